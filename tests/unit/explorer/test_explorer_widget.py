"""The widget without a front end: what a message of one is answered with."""

import gc
import json
import warnings
import weakref

import pytest

from fluss_lab.errors import InvalidNameError, TableNotFoundError
from fluss_lab.explorer.explorer_widget import ExplorerWidget
from fluss_lab.testing.mock_clock import wait_until


class Told(ExplorerWidget):
    """An explorer whose answers are kept here."""

    def send(self, content, buffers=None):
        self.__dict__.setdefault("reported", []).append(content)


@pytest.fixture
def widget(lab):
    made = Told(lab, "my lab", table=None, mask=(), read_only=False)
    yield made
    made.close()


def say(widget, content):
    widget._handle_custom_msg(content, [])


def test_a_question_of_the_view_is_answered(widget):
    say(widget, {"kind": "tree", "slot": "tree", "seq": 7})
    wait_until(lambda: len(widget.__dict__.get("reported", ())) == 2)
    answer, end = widget.reported
    assert (answer["slot"], answer["seq"], answer["kind"]) == ("tree", 7, "tree")
    json.dumps(answer)
    assert (end["slot"], end["seq"], end["last"]) == ("tree", 7, answer["number"])


@pytest.mark.parametrize("content", [None, [], "x", {"kind": "evil", "slot": "a", "seq": 3}])
def test_what_is_no_question_is_an_error_of_its_slot(widget, content):
    say(widget, content)
    (answer,) = widget.reported
    assert answer["error"]["class"] == "InvalidRequestError"
    assert answer["number"] == answer["last"], "it is asked no more"
    assert answer["slot"] == ("a" if isinstance(content, dict) else None)


def test_lab_explore_opens_on_a_table(lab):
    lab.create_table("shop.opened", {"id": "int", "email": "string"}, if_not_exists=True)
    widget = lab.explore("shop.opened", mask=["email"], read_only=True)
    assert json.loads(widget.saved) == {"table": "shop.opened", "read_only": True}
    assert repr(widget) == f"<Explorer of {lab.folder.name}, opened on shop.opened>"
    assert widget._repr_mimebundle_()[0]["text/plain"] == repr(widget), "what a notebook without widgets shows"
    widget.close()
    with pytest.raises(TableNotFoundError):
        lab.explore("shop.nothing")
    with pytest.raises(InvalidNameError):
        lab.explore("../x")


def test_a_mask_that_hides_nothing_is_warned_of(lab):
    lab.create_table("shop.opened", {"id": "int", "email": "string"}, if_not_exists=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lab.explore(mask=["EMail"]).close()
        lab.explore().close()
    with pytest.warns(UserWarning, match=r"no table has a column 'address\.zip', 'emial'") as found:
        lab.explore("shop.opened", mask=["email", "emial", "address.zip"]).close()
    assert found[0].filename == __file__


def test_a_widget_that_is_closed_is_let_go(lab):
    widget = Told(lab, "my lab", table=None, mask=(), read_only=False)
    say(widget, {"kind": "tree", "slot": "tree", "seq": 1})
    wait_until(lambda widget=widget: widget.__dict__.get("reported"))
    gone = weakref.ref(widget)
    widget.close()
    del widget
    gc.collect()
    assert gone() is None

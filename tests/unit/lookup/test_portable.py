"""The text in which partitioners and lookup functions travel."""

import json
import subprocess
import sys

import pytest

from fluss_lab.errors import CorruptDataError, InvalidError, UnsupportedError
from fluss_lab.lookup.portable import faults_named, function_of, partitioner_of, portable_text
from tests.unit.lookup import portables
from tests.unit.lookup.portables import HIDDEN, Another, Constant, Refusing, Unreadable, Written


def text_of(name, module="tests.unit.lookup.portables", text="{}"):
    return json.dumps({"version": 1, "module": module, "name": name, "json": text})


def test_an_object_is_made_again():
    made = partitioner_of(portable_text(Constant(3)))
    assert (type(made), made.number) == (Constant, 3)
    assert type(partitioner_of(portable_text(Constant.Inner()))) is Constant.Inner


def test_the_text_is_json_and_ascii():
    text = portable_text(Constant(3))
    assert text.isascii()
    assert json.loads(text) == json.loads(text_of("Constant", text='{"partition": 3}'))


def test_a_local_class_is_refused_by_name():
    class Local(Constant):
        """Of this test only."""

    with pytest.raises(
        UnsupportedError, match=r"Local is defined in a function.*put it into a module that is installed"
    ):
        portable_text(Local(1))


def test_a_class_of_a_script_is_refused_by_name():
    script = """
from tests.unit.lookup.portables import Constant
from fluss_lab.lookup.portable import portable_text
class Mine(Constant): pass
try:
    portable_text(Mine(1))
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith("UnsupportedError __main__.Mine is defined in a notebook or script")
    assert "put it into a module that is installed where tasks run" in said


def test_a_class_that_its_module_does_not_have_under_its_name_is_refused():
    with pytest.raises(UnsupportedError, match=r"portables.Hidden: the module has another class under that name"):
        portable_text(HIDDEN(1))


@pytest.mark.parametrize("text", ["", "{", "NaN]", None, b"{}", {}])
def test_what_is_no_json_is_refused(monkeypatch, text):
    monkeypatch.setattr(Written, "text", text)
    with pytest.raises(InvalidError, match=r"portables.Written.to_json: expected a text of JSON, found"):
        portable_text(Written(1))


def test_what_to_json_raises_names_the_class(monkeypatch):
    monkeypatch.setattr(Written, "text", OSError("no disk"))
    with pytest.raises(InvalidError, match=r"portables.Written.to_json raised OSError: no disk"):
        portable_text(Written(1))


def test_what_cannot_be_made_again_is_refused_on_the_driver():
    with pytest.raises(InvalidError, match=r"portables.Unreadable.from_json raised KeyError: 'partition'"):
        portable_text(Unreadable(1))
    with pytest.raises(InvalidError, match=r"portables.Another.from_json: expected .*Another, found str"):
        portable_text(Another(1))
    with pytest.raises(UnsupportedError, match=r"^not on a Sunday$"):
        portable_text(Refusing(1))


@pytest.mark.parametrize("name", ["NoPortable", "json", "HIDDEN.to_json"])
def test_only_classes_of_the_kind_expected_are_called(name):
    with pytest.raises(InvalidError, match=r"expected a class that derives from .*InputDataPartitioner, found"):
        partitioner_of(text_of(name))


def test_a_partitioner_is_no_function():
    with pytest.raises(InvalidError, match=r"portables.Constant: expected a class that derives from .*LookupFunction"):
        function_of(portable_text(Constant(1)))


@pytest.mark.parametrize(
    ("name", "module", "reason"),
    [
        ("Constant", "not_installed_here", "ModuleNotFoundError: No module named 'not_installed_here'"),
        ("Missing", "tests.unit.lookup.portables", "AttributeError"),
        ("Constant", "", "ValueError: Empty module name"),
    ],
)
def test_a_class_that_cannot_be_imported_is_named_with_the_reason(name, module, reason):
    with pytest.raises(UnsupportedError, match=rf"{module}.{name} cannot be imported: {reason}.*have that installed"):
        partitioner_of(text_of(name, module))


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "module": 3, "name": "a", "json": ""}'])
def test_other_text_is_refused(text):
    with pytest.raises(CorruptDataError, match="a partitioner or lookup function as text"):
        partitioner_of(text)


def test_text_of_another_release_is_refused():
    with pytest.raises(CorruptDataError, match="driver and workers run different releases"):
        partitioner_of(text_of("Constant").replace('"version": 1', '"version": 2'))


def test_errors_of_the_house_and_interrupts_pass_unchanged():
    with pytest.raises(KeyboardInterrupt), faults_named(portables.Constant, "open"):
        raise KeyboardInterrupt
    with pytest.raises(UnsupportedError, match=r"^as it is$"), faults_named(portables.Constant, "open"):
        raise UnsupportedError("as it is")

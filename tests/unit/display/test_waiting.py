"""Progress: from half a second on, where a person watches, and nothing left behind."""

import io
import sys
import tempfile
import threading
import types

import pytest

from fluss_lab.display import waiting
from fluss_lab.display.waiting import NotebookView, TerminalView, Waiting, make_view, progress_html, shown_elsewhere
from tests.unit.display.card_rules import HOSTILE, IDS
from tests.unit.display.seen_view import SeenView

pytestmark = pytest.mark.slow


@pytest.fixture
def view(monkeypatch):
    seen = SeenView()
    monkeypatch.setattr(waiting, "make_view", lambda: seen)
    return seen


def test_what_is_over_at_once_is_not_shown(view):
    with Waiting("reading"):
        pass
    assert view.lines == []
    assert view.closed.is_set()


def test_rows_bytes_and_seconds_are_shown_and_taken_away(view):
    with Waiting("reading nyc.flights") as progress:
        progress.plan(1_000)
        progress.add(250, 2_000_000)
        assert view.shown.wait(10)
        assert not view.closed.is_set()
    line, html = view.lines[0]
    assert line.startswith("reading nyc.flights: 250 of 1,000 rows, 2.0 MB, ")
    assert "width:25.0%" in html
    assert view.closed.is_set()


def test_what_is_left_is_guessed_once_some_of_it_is_done(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    progress = Waiting("x", 1_000)
    progress._began_s = 100.0
    progress.add(250)
    now[0] = 104.0
    assert progress.line() == "x: 250 of 1,000 rows, 4 s, about 12 s left"
    assert Waiting("starting Spark…").line().startswith("starting Spark… ")


def test_rows_may_be_counted_elsewhere(view):
    with Waiting("writing to nyc.flights", count=lambda: (30, 40)):
        assert view.shown.wait(10)
    line, html = view.lines[0]
    assert line.startswith("writing to nyc.flights: 30 of 40 rows, ")
    assert "width:75.0%" in html


def test_an_error_and_an_interrupt_take_it_away_too(view):
    for kind in (ValueError, KeyboardInterrupt):
        view.closed.clear()
        with pytest.raises(kind), Waiting("reading"):
            raise kind
        assert view.closed.is_set()
    assert "fluss-lab-progress" not in {thread.name for thread in threading.enumerate()}


def test_a_view_that_fails_changes_nothing(monkeypatch):
    class Broken(SeenView):
        def show(self, line, html):
            super().show(line, html)
            raise OSError("the front end is gone")

        def close(self):
            raise OSError("the front end is gone")

    broken = Broken()
    monkeypatch.setattr(waiting, "make_view", lambda: broken)
    with Waiting("reading"):
        assert broken.shown.wait(10)


def kernel(monkeypatch, *, takes_input):
    """Make this process look like a kernel, and return what it publishes."""
    published = []
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(_allow_stdin=takes_input))
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    display = types.ModuleType("IPython.display")
    display.publish_display_data = lambda data, transient, update: published.append((data, transient, update))
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return published


def test_a_notebook_run_as_a_job_shows_nothing(monkeypatch):
    published = kernel(monkeypatch, takes_input=False)
    assert make_view() is None
    with Waiting("reading"):
        pass
    assert published == []


def test_what_is_stored_of_a_notebook_has_no_content(monkeypatch):
    published = kernel(monkeypatch, takes_input=True)
    view = make_view()
    assert isinstance(view, NotebookView)
    view.close()
    assert published == []  # nothing was shown
    view.show("1 row", "<div>1 row</div>")
    view.show("2 rows", "<div>2 rows</div>")
    view.close()
    assert [(data, update) for data, _, update in published] == [
        ({"text/html": "<div>1 row</div>", "text/plain": "1 row"}, False),
        ({"text/html": "<div>2 rows</div>", "text/plain": "2 rows"}, True),
        ({}, True),
    ]
    assert len({transient["display_id"] for _, transient, _ in published}) == 1


def test_what_is_shown_elsewhere_is_in_no_cell(monkeypatch):
    kernel(monkeypatch, takes_input=True)
    found = []
    with shown_elsewhere():
        assert make_view() is None
        thread = threading.Thread(target=lambda: found.append(make_view()))
        thread.start()
        thread.join()
    assert isinstance(found[0], NotebookView), "only what the block's own thread does"
    assert isinstance(make_view(), NotebookView)


def test_a_terminal_has_one_line_which_goes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    view = make_view()
    assert isinstance(view, TerminalView)
    view.show("1 row\n\x1b[31m", "<div>")
    assert stream.getvalue() == "\r\x1b[2K1 row\\n\\x1b[31m"
    view.close()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_elsewhere_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert make_view() is None
    monkeypatch.setattr(sys, "stderr", None)
    assert make_view() is None


@pytest.mark.parametrize("evil", HOSTILE, ids=IDS)
def test_a_line_is_text(evil):
    html = progress_html(evil, 0.5)
    assert "<img" not in html
    assert "<script" not in html
    assert html.isprintable()
    assert len(html) < 2_000


CELL = """
import time
from fluss_lab.display import Waiting
with Waiting("starting Spark…"):
    time.sleep(1.0)
1 + 1
"""


def outputs_of(client, *, takes_input):
    """Run the cell as a front end does that takes input or not; return what each message that shows something holds."""
    ident = client.execute(CELL, allow_stdin=takes_input)
    found = []
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != ident:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return found
        if kind not in {"status", "execute_input"}:
            found.append((kind, content.get("data", content)))


def test_a_real_kernel_shows_progress_to_a_person_only():
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        manager.start_kernel()
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=60)
            (only,) = outputs_of(client, takes_input=False)
            first, *news, last, result = outputs_of(client, takes_input=True)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    assert only[0] == "execute_result"
    assert (first[0], result[0]) == ("display_data", "execute_result")
    assert first[1]["text/plain"].startswith("starting Spark… ")
    assert {kind for kind, _ in news} <= {"update_display_data"}
    assert last == ("update_display_data", {})

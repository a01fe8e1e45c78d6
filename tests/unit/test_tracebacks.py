"""Errors in a notebook: one paragraph, every frame on request."""

import re
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from fluss_lab import errors
from fluss_lab.model import TablePath
from fluss_lab.tracebacks import notebook_traceback

_COLOR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def shell():
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def run(shell, code, capsys):
    """Return what a cell shows."""
    shell.run_cell(code, store_history=True)
    return _COLOR.sub("", "".join(capsys.readouterr()))


def test_an_error_is_a_paragraph_with_the_callers_line(shell, capsys):
    run(shell, "from fluss_lab.model import TablePath", capsys)
    shown = run(shell, "def mine(text):\n    return TablePath.parse(text)\nmine('x')", capsys)
    assert "InvalidNameError: table path 'x': expected 'database.table'" in shown
    assert "line 2: return TablePath.parse(text)" in shown
    assert "names.py" not in shown
    assert len(shown.strip().splitlines()) <= 4


def test_every_frame_is_shown_on_request(shell, capsys):
    run(shell, "from fluss_lab.model import TablePath\nTablePath.parse('x')", capsys)
    for _ in range(2):
        shown = run(shell, "%tb", capsys)
        assert "names.py" in shown
        assert "Traceback (most recent call last)" in shown


def test_causes_are_folded_too(shell, capsys):
    code = "from fluss_lab.errors import StorageError\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise StorageError('full') from e"
    assert "ZeroDivisionError" not in run(shell, code, capsys)
    assert "ZeroDivisionError" in run(shell, "%tb", capsys)


def test_errors_of_others_are_shown_as_ever(shell, capsys):
    assert "Traceback (most recent call last)" in run(shell, "1 / 0", capsys)


@pytest.mark.parametrize("message", ["", "a\nb", "<b>", "\x1b[31m", "x" * 10_000, "é\ud800"])
def test_any_message_is_shown(message):
    assert len(notebook_traceback(errors.FlussError(message))) >= 2


def test_outside_of_ipython_it_is_text():
    with pytest.raises(errors.InvalidNameError) as raised:
        TablePath.parse("x")
    raised.value.add_note("a note")
    lines = [_COLOR.sub("", line) for line in notebook_traceback(raised.value)]
    assert lines[0] == "InvalidNameError: table path 'x': expected 'database.table'"
    assert lines[1] == "a note"
    assert "test_tracebacks.py, line" in lines[2]
    assert "names.py" in "".join(notebook_traceback(raised.value))


def test_every_error_of_the_house_has_it_and_importing_it_does_nothing():
    assert all(
        hasattr(each, "_render_traceback_")
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.FlussError)
    )
    code = "import sys, fluss_lab.errors; assert not {'IPython', 'fluss_lab.tracebacks'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)

"""Exit codes, and the line on standard error that says why."""

import io
import os
import re
import subprocess
import sys

import click
import pytest

from fluss_lab.cli import main
from fluss_lab.cli.exit_codes import run_command
from fluss_lab.errors import FlussError
from tests.unit.cli.shell_kit import call


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["up", "--option", "log.segment.fil-size=1mb"], "did you mean 'log.segment.file-size'"),
        (["up", "--option", "log.durability=maybe"], "expected one of ack, fsync"),
        (["up", "--option", "nonsense"], "expected KEY=VALUE"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(tmp_path, monkeypatch, arguments, text):
    failed = call(*arguments, tmp_path / "lab")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("fluss-lab: ")
    assert text in failed.err
    assert len(failed.err.splitlines()) == 1
    monkeypatch.setenv("FLUSS_LAB_DEBUG", "1")
    with pytest.raises(FlussError, match=re.escape(text)):
        call(*arguments, tmp_path / "lab")


def test_closed_standard_output_is_no_failure(tmp_path, monkeypatch):
    """What `>&-` of a shell leaves of it."""
    monkeypatch.setattr(sys, "stdout", None)
    assert main_code("config", tmp_path) == 0
    assert main_code("status", tmp_path / "none") == 3


def test_what_the_terminal_s_encoding_does_not_have_is_escaped(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1"))
    printing = click.Command("print", callback=lambda: click.echo("Z\u00fcrich \u65e5"))
    assert run_command(printing, []) == 0
    assert written.getvalue() == b"Z\xfcrich \\u65e5\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.parametrize("length", [10, 1_000_000])
def test_output_that_the_disk_does_not_take_is_said_to_be_that(length):
    """It was `[Errno 28] No space left on device`: as if it were the lab's disk."""
    script = f"import click, sys; from fluss_lab.cli.exit_codes import run_command; sys.exit(run_command(click.Command('p', callback=lambda: click.echo('x' * {length})), []))"
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "fluss-lab: standard output cannot be written: No space left on device; what was printed is not whole: make room where it "
        "goes, or send it elsewhere\n"
    )


def test_what_is_said_beside_an_error_is_said_too(capsys):
    """How a run ended whose end could not be stored was known in notebooks only."""

    def fail():
        error = FlussError("the jobs cannot be stored")
        error.add_note("run r1 itself succeeded")
        raise error

    assert run_command(click.Command("fail", callback=fail), []) == 1
    assert capsys.readouterr().err == "fluss-lab: the jobs cannot be stored; run r1 itself succeeded\n"


def main_code(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code or 0


def test_a_missing_argument_with_choices_is_a_sentence():
    assert call("completion").err == (
        "fluss-lab: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish; see `fluss-lab completion --help`\n"
    )


def test_exit_codes_are_documented():
    assert "Exit codes: 0 done; 1 failed" in call("--help").out.replace("\n  ", " ")

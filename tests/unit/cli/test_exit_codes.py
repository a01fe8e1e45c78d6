"""Exit codes, and the line on standard error that says why."""

import re

import pytest

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


def test_exit_codes_are_documented():
    assert "Exit codes: 0 done; 1 failed" in call("--help").out.replace("\n  ", " ")

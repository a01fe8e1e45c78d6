"""The command for failures: words stay words, whatever an error says."""

import sys
from dataclasses import replace

import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.jobs.scheduling.failure_notice import check_command, command_of, send_notice
from tests.unit.jobs.test_job_store import make_run


@pytest.mark.parametrize("words", [[""], [" "], ["{name}"], ["a\0b"], ["a", 3], ["a"] * 200, ["a", "x" * 5000]])
def test_what_is_no_command_is_refused(words):
    with pytest.raises(InvalidRequestError, match="on_failure"):
        check_command(words)


def test_fields_are_filled_in_once_and_stay_in_their_word(tmp_path):
    run = replace(make_run(), state="failed", error="{run} $(rm -rf /) ; `x`\n--flag \x1b[31m" + "y" * 5000)
    words = check_command(["notify", "{name}: {error}", "{run}-{state}", "{nope} {", "{{name}}", "}", "{output}{log}"])
    found = command_of(words, run, tmp_path / "o", tmp_path / "l")
    assert found[0] == "notify"
    assert found[1].startswith("job: {run} $(rm -rf /) ; `x` --flag  [31myyy")
    assert len(found[1]) < 1100
    assert found[2:] == ["r1-failed", "{nope} {", "{{name}}".replace("{name}", "job"), "}", f"{tmp_path}/o{tmp_path}/l"]


def test_what_it_prints_and_how_it_ends_is_in_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "x")
    log = tmp_path / "r.log"
    code = "import os, sys; print(sys.argv[1:], 'SOME_TOKEN' in os.environ); sys.exit(3)"
    send_notice([sys.executable, "-c", code, "a b"], log).join(30)
    assert log.read_text() == f"['a b'] False\non_failure: {sys.executable} ended with code 3\n"
    send_notice(["/nowhere/program"], log).join(30)
    assert "on_failure: /nowhere/program: [Errno 2]" in log.read_text()

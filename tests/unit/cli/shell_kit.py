"""The command line called in this process: a process of its own costs a second."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from fluss_lab.cli import main


class Called(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Return the lines of output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def call(*arguments: object) -> Called:
    """Run a command line; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(map(str, arguments)))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Called(code, out.getvalue(), err.getvalue())


def assert_refused(called: Called, code: int = 1) -> None:
    """Assert that a command failed with one line on standard error, and printed nothing else."""
    assert (called.code, called.out) == (code, ""), called
    assert called.err.startswith("fluss-lab: "), called
    assert called.err.count("\n") == 1, called
    assert called.err.endswith("\n"), called
    assert called.err[:-1].isprintable(), called
    assert "Traceback" not in called.err, called
    assert "shows where" not in called.err, called  # an error that is not the house's

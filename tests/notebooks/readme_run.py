"""The README's code, run as it stands, in an empty folder: its Python blocks one after another, then its ``fluss-lab`` lines."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import WriteStoppedError
from tests.unit.cli.shell_kit import call

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND: Final = "fluss-lab"
_STOP_AFTER_SECONDS: Final = 0.2


def code_blocks(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the code of each fenced block of this language."""
    for found in _FENCE.finditer(text):
        if found[1] == language:
            yield text.count("\n", 0, found.start(2)), found[2]


def fluss_lab_lines(text: str) -> list[list[str]]:
    """Return the arguments of each ``fluss-lab`` line of the shell blocks."""
    lines = (line for _, block in code_blocks(text, "sh") for line in block.splitlines())
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True))[:1] == [_COMMAND]]


def _stop_a_write(names: dict[str, Any]) -> None:
    """Do what the text says: stop a cell that writes. Its error is then ``sys.last_value``."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(_STOP_AFTER_SECONDS, signal.pthread_kill, (main, signal.SIGINT))
    try:
        with names["flights"].writer() as writer:
            timer.start()
            while True:
                writer.append([{"id": 0, "month": "2013-03", "dest": "JFK", "delay": 0}] * 1000)
    except WriteStoppedError as error:
        sys.last_value = error
    finally:
        timer.join()


#: What has happened before a block that holds this text.
_BEFORE: Final[dict[str, Callable[[dict[str, Any]], None]]] = {"sys.last_value": _stop_a_write}


def run_readme(path: Path) -> None:
    """Run everything, in the working directory; a warning is an error, and a traceback names the README's own lines.

    Raises:
        Exception: What a block raised.
        AssertionError: A command failed.
    """
    # What a shell starts in the background ignores it, and a write that is to be stopped would go on until the disk is full.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = path.read_text()
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for line, block in code_blocks(text, "python"):
            for mark, prepare in _BEFORE.items():
                if mark in block:
                    prepare(names)
            exec(compile("\n" * line + block, str(path), "exec"), names)
        for arguments in fluss_lab_lines(text):
            done = call(*arguments)
            print("$", _COMMAND, *arguments)
            print(done.out)
            assert done.code == 0, done

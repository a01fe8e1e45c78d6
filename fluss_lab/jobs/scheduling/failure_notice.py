"""The command that a job runs when a run has failed for good."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from fluss_lab.errors import InvalidRequestError
from fluss_lab.jobs.run_record import RunRecord

TIMEOUT_S: Final = 60
WORDS_MAX: Final = 100
_WORD_LENGTH_MAX: Final = 4_000
_VALUE_LENGTH_MAX: Final = 1_000
#: What words may hold, in braces.
FIELDS: Final = ("name", "run", "notebook", "state", "error", "output", "log")
_PASSED: Final = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"}
)


def check_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command with arguments.

    Raises:
        InvalidRequestError: It is none; no shell reads it, so a text is not split.
    """
    found = tuple(words)
    if len(found) > WORDS_MAX or any(
        not isinstance(word, str) or "\0" in word or len(word) > _WORD_LENGTH_MAX for word in found
    ):
        raise InvalidRequestError(f"on_failure: expected a command and its arguments as at most {WORDS_MAX} texts")
    if found and (not found[0].strip() or "{" in found[0]):
        raise InvalidRequestError(f"on_failure: expected the name of a program first, found {found[0][:60]!r}")
    return found


def command_of(words: Sequence[str], run: RunRecord, output: Path, log: Path) -> list[str]:
    """Return the command for a run: ``{name}``, ``{run}``, ``{error}`` and so on filled in, each within its word."""
    values = {
        "name": run.job, "run": run.id, "notebook": run.task.notebook, "state": run.state, "error": run.error or "",
        "output": str(output), "log": str(log),
    }  # fmt: skip
    found = [words[0]]
    for word in words[1:]:
        # One pass: what a value holds is not filled in again.
        parts = word.split("{")
        filled = parts[0]
        for part in parts[1:]:
            name, brace, rest = part.partition("}")
            known = brace and name in values
            filled += _printable(values[name]) + rest if known else "{" + part
        found.append(filled)
    return found


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)[:_VALUE_LENGTH_MAX]


def send_notice(command: Sequence[str], log: Path) -> threading.Thread:
    """Start a command; return the thread that waits for its end, at most `TIMEOUT_S`.

    What it prints, and how it ended, goes to the end of the run's log, where that can be written.
    """
    environment = {name: value for name, value in os.environ.items() if name in _PASSED}
    file = _open_log(log)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        _end(file, f"on_failure: {command[0]}: {error}")
        thread = threading.Thread()
    else:
        thread = threading.Thread(
            target=_await_end, args=(command[0], process, file), name="fluss-failure-notice", daemon=True
        )
    thread.start()
    return thread


def _open_log(log: Path) -> IO[str]:
    try:
        log.parent.mkdir(mode=0o700, exist_ok=True)
        return log.open("a", encoding="utf-8")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")


def _await_end(name: str, process: subprocess.Popen[bytes], file: IO[str]) -> None:
    try:
        text = f"on_failure: {name} ended with code {process.wait(TIMEOUT_S)}"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        text = f"on_failure: {name}: killed after {TIMEOUT_S} s"
    _end(file, text)


def _end(file: IO[str], text: str) -> None:
    with suppress(OSError), file:  # a full disk
        file.write(f"{text}\n")

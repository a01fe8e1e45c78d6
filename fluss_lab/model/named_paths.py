"""The place of a file or folder that a person names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fluss_lab.errors import InvalidRequestError, StorageError


def absolute_path(given: str | Path, named: str) -> Path:
    """Return the place that a path names; ``~`` is the home.

    Args:
        given: The path, in which the system admits each character.
        named: What is said of it in an error, which begins with that.

    Raises:
        InvalidRequestError: It names none: a user who does not exist, or a relative path where the working directory was removed.
    """
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidRequestError(f"{named}: there is no such user, or it has no home") from error
    except FileNotFoundError as error:
        raise InvalidRequestError(
            f"{named}: the working directory of this process was removed; change to another one, or give an absolute path"
        ) from error


def name_fault(text: str) -> str | None:
    """Return why a text names no file or folder that this process can keep and name again; None: it does."""
    if not text:
        return "it is empty"
    if "\0" in text:
        return "it has the character of code 0"
    encoding = sys.getfilesystemencoding()
    mend = "rename it" if encoding == "utf-8" else "have Python use UTF-8: PYTHONUTF8=1, or LC_ALL=C.UTF-8"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"it has bytes that are no text in {encoding}; {mend}"
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        return f"{encoding}, in which this process names files, has no {text[error.start]!r}; {mend}"
    return None


def check_working_directory(what: object) -> None:
    """Check that the working directory of this process is there, in which libraries look for settings of theirs.

    Args:
        what: What is done; the error begins with it.

    Raises:
        StorageError: It was removed.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise StorageError(
            f"{what}: the working directory of process {os.getpid()} was removed, and the lake's libraries look for settings there: change to "
            "another one, for instance by os.chdir(os.path.expanduser('~')); a server that was started there is started again: "
            "close the lab, or run fluss-lab down, and open it from a directory that stays"
        ) from error

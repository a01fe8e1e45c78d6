"""The place of a file or folder that a person names."""

from __future__ import annotations

import os
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

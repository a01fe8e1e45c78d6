"""The place of a file or folder that a person names."""

from __future__ import annotations

from pathlib import Path

from fluss_lab.errors import InvalidRequestError


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

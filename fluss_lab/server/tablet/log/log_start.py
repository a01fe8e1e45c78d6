"""The first offset of a bucket's log, noted before what lies in front of it is deleted.

Without the note a log whose first segments were lost would look like one that dropped them. The checkpoint knows the
first segment too; so that neither file is a single point of failure, a start is believed when one of them has it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import Whole, decode, encode
from fluss_lab.records.sealed import seal_content, unseal_content

log = logging.getLogger(__name__)

FILE_NAME: Final = "log-start"
VERSION: Final = 1


class _Note(msgspec.Struct):
    start: Whole


def save(folder: Path, offset: int) -> None:
    """Note, durably, that the log in a folder begins at an offset from now on.

    Raises:
        OSError: The file system refused; nothing in front of the offset may be deleted.
    """
    files.write_atomic(folder / FILE_NAME, seal_content(encode(_Note(offset), version=VERSION, indent=0)))


def expected_start(folder: Path, checkpointed: int | None) -> int:
    """Return the first offset at which a folder's log may begin: a first segment behind it means that others are missing.

    Args:
        folder: The bucket's.
        checkpointed: The first segment of its checkpoint; None without one.

    Raises:
        UnsupportedError: A newer version noted it.
    """
    # A crash may come between noting a start and deleting what lies in front of it, not the other way round.
    return max(load(folder) or 0, checkpointed or 0)


def load(folder: Path) -> int | None:
    """Return what was noted; None when nothing was, or it cannot be believed.

    Raises:
        UnsupportedError: A newer version noted it.
    """
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if (body := unseal_content(data)) is None:
            return None
        return decode(_Note, body, path, version=VERSION).start
    except CorruptDataError as error:
        log.warning("%s; it is no start of a log", error)
        return None

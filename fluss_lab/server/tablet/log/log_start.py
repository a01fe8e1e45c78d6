"""The first offset of a bucket's log, noted before what lies in front of it is deleted.

Without the note a log whose first segments were lost would look like one that dropped them. The checkpoint knows the
first segment too; so that neither file is a single point of failure, a start is believed when one of them has it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.model.format_versions import check_format
from fluss_lab.records.sealed import seal_content, unseal_content

log = logging.getLogger(__name__)

FILE_NAME: Final = "log-start"
VERSION: Final = 1


def save(folder: Path, offset: int) -> None:
    """Note, durably, that the log in a folder begins at an offset from now on.

    Raises:
        OSError: The file system refused; nothing in front of the offset may be deleted.
    """
    files.write_atomic(folder / FILE_NAME, seal_content(json.dumps({"version": VERSION, "start": offset}).encode()))


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
        value = json.loads(body)
        check_format(path, value.get("version"), VERSION)
        return int(value["start"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("%s: not the start of a log (%r)", path, error)
        return None

"""A mark in a bucket's own folder: up to which offset its segments were deleted because the remote log has them.

Without it, a remote log that is missing as a whole (another ``remote.data.dir``, a folder not mounted) would look like
one that never was, and its records as if they were never written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from fluss_lab import files
from fluss_lab.model.json_codec import Whole, decode, encode

MARK_FILE: Final = "remote-log"
MARK_VERSION: Final = 1


class _Mark(msgspec.Struct):
    """The file."""

    dropped_offset: Whole


class DroppedMark:
    """The mark of one bucket.

    Args:
        folder: The bucket's own; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / MARK_FILE
        self._offset = 0

    def load(self) -> int:
        """Return the offset; 0 when there is no mark.

        Raises:
            CorruptDataError: The mark cannot be read.
            UnsupportedError: A newer version wrote it.
            OSError: The file system refused.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._offset = 0
        else:
            # Before there were versions, the offset was the only member.
            version = MARK_VERSION if b'"version"' in data else None
            self._offset = decode(_Mark, data, self.path, version=version, remedy=_REMEDY).dropped_offset
        return self._offset

    def raise_to(self, offset: int) -> None:
        """Put the mark at an offset, durably, if it is below.

        Raises:
            OSError: The file system refused.
        """
        if offset > self._offset:
            files.write_atomic(self.path, encode(_Mark(offset), version=MARK_VERSION, indent=1))
            self._offset = offset


_REMEDY: Final = (
    "not the mark of a remote log, and without its manifest it is not known up to where segments were moved to remote "
    "storage; restore the manifest or this file from a copy"
)

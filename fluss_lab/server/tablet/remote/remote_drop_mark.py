"""A mark in a bucket's own folder: up to which offset its segments were deleted because the remote log has them.

Without it, a remote log that is missing as a whole (another ``remote.data.dir``, a folder not mounted) would look like
one that never was, and its records as if they were never written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import CorruptDataError

MARK_FILE: Final = "remote-log"


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
            OSError: The file system refused.
        """
        try:
            self._offset = int(json.loads(self.path.read_bytes())["dropped_offset"])
        except FileNotFoundError:
            self._offset = 0
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptDataError(
                f"{self.path}: not the mark of a remote log ({error!r}), and without its manifest it is not known up to where "
                "segments were moved to remote storage; restore the manifest or this file from a copy"
            ) from error
        return self._offset

    def raise_to(self, offset: int) -> None:
        """Put the mark at an offset, durably, if it is below.

        Raises:
            OSError: The file system refused.
        """
        if offset > self._offset:
            files.write_json_atomic(self.path, {"dropped_offset": offset})
            self._offset = offset

"""The fsyncs of one log: the first that fails is the last.

A kernel says once that what it wrote back was refused, to one of those that ask, and calls the pages clean: an fsync that
succeeds afterwards proves nothing of what was written before. So PostgreSQL ends after one, and Kafka takes the folder out of
use. Here the log stops: nothing is acknowledged or called durable any more, whichever thread had the error and whatever else
stopped the log before. The next start gives what the cache has new pages, which are made durable before anything is served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import StorageError

#: Left by a log whose fsync failed: what the cache holds behind the recovery point may not be on the device, however
#: clean the kernel calls it.
SUSPECT_FILE: Final = "fsync-failed"


class FsyncGuard:
    """Runs the fsyncs of one log, one at a time. Safe for threads.

    Args:
        folder: The bucket's.

    Attributes:
        failure: Why nothing more of the log is known to be on the device; None while all fsyncs succeeded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.failure: StorageError | None = None

    def run(self, sync: Callable[[], object], durable_offset: int) -> None:
        """Have something brought to the device, unless that failed before; a first failure is noted for the next start.

        Args:
            sync: Calls fsync.
            durable_offset: Up to where the log is on the device, for the message.

        Raises:
            StorageError: The device refused, now or before: the log must no longer be written.
        """
        with self._lock:
            if self.failure is None:
                try:
                    sync()
                except OSError as error:
                    self._note(error, durable_offset)
            if self.failure is not None:
                raise StorageError(str(self.failure))

    def _note(self, error: OSError, durable_offset: int) -> None:
        self.failure = StorageError(
            f"fsync failed ({error.strerror or error}): what was appended from offset {durable_offset} on may "
            "not survive a power loss. Repair the disk and start the server again"
        )
        # Not durably, which a failing device would refuse too: the note is needed where the cache outlives the server.
        with suppress(OSError):
            files.write_atomic(self._folder / SUSPECT_FILE, str(error).encode(), durable=False)

"""Changes of local snapshot files under a running server: whether what rows lie in, or a snapshot builds on, is as it was checked.

A file is checked once and then mapped, or kept for the snapshots that follow. Nobody but this server is to write there, but whoever
does (a disk that is repaired, a mistaken copy) must not change rows without a word: so it is asked of the file system whether a file
was written to since its check, and a file that was is checked again. What a device loses without a write shows at the next start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fluss_lab.errors import CorruptDataError
from fluss_lab.records.kv_files import check_file
from fluss_lab.records.kv_manifest import FileMark

#: Between two looks, for each file: one takes a microsecond, and calls that come faster than this wait for more than that.
_REST_S: Final = 10e-6


class _Stamp(NamedTuple):
    """What a write changes of a file."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


@dataclass(slots=True)
class SnapshotFile:
    """One file, as it was before its bytes were checked.

    Attributes:
        path: Where it is.
        mark: What its bytes were.
        stamp: Of the file whose bytes were checked; None: there was none.
        is_damaged: Whether it was found changed.
    """

    path: Path
    mark: FileMark
    stamp: _Stamp | None
    is_damaged: bool = False

    @staticmethod
    def of(path: Path, mark: FileMark) -> SnapshotFile:
        """Return a file that is checked after this call, or was written just before it."""
        return SnapshotFile(path, mark, _stamp_of(path))

    def is_changed(self) -> bool:
        """Return whether its bytes are others than those checked; once they were, they stay so.

        Of a file that is gone, or another one with its name, they are what they were: what is mapped of it stays.

        Cost: a call of the system; of a file that was written to since, a read.
        """
        if self.is_damaged:
            return True
        now = _stamp_of(self.path)
        if self.stamp is None or now is None or now == self.stamp or now.inode != self.stamp.inode:
            return False
        try:
            check_file(self.path, self.mark)
        except (CorruptDataError, OSError):
            self.is_damaged = True
            return True
        self.stamp = now
        return False


class SnapshotFiles:
    """The files that a store's rows lie in. Safe for threads.

    Args:
        files: Each as it was before its bytes were checked.
        timer: Gives the time, in seconds.
    """

    def __init__(self, files: Iterable[SnapshotFile] = (), timer: Callable[[], float] = time.monotonic) -> None:
        self._files, self._timer = tuple(files), timer
        self._due_s = 0.0
        self._damaged: Path | None = None

    def by_name(self) -> dict[str, SnapshotFile]:
        """Return each of them by the name of its file."""
        return {each.path.name: each for each in self._files}

    def find_changed(self) -> Path | None:
        """Return a file whose bytes are others than those checked; None where there is none.

        Each look counts for a moment, which is less than a millisecond for the files of a usual snapshot: see `_REST_S`.
        """
        if self._damaged is not None or not self._files or self._timer() < self._due_s:
            return self._damaged
        self._damaged = next((each.path for each in self._files if each.is_changed()), None)
        self._due_s = self._timer() + _REST_S * len(self._files)
        return self._damaged


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

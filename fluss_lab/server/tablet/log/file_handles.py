"""Open files of the log, shared and few: a server of thousands of buckets must not hold a descriptor for each.

A descriptor is closed with the last reference to its `Handle`, so a reader that has one keeps reading the right
file however the pool decides, and also after the file was deleted.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Below the 1,024 descriptors that a desktop shell allows, with room for sockets, SQLite and the JVM's pipes.
HANDLES_MAX: Final = 512
#: And of what the system allows this process, so that there is room for what else it opens, for moments or for good.
_SHARE: Final = 3
#: What the system says when a process, or the machine, has too many files open.
_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class Handle:
    """An open file, for reading and writing at given positions; closed with the last reference to it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class HandlePool:
    """Opens files on demand and keeps the most recently used ones open.

    Args:
        limit: Most descriptors kept, or a third of what the system allows; more are open only while threads use them.
        check: Called when a file was opened, with what was not done if it raises: whether the path still leads where it did.
    """

    def __init__(self, limit: int = HANDLES_MAX, check: Callable[[str], object] = lambda _what: None) -> None:
        self._limit, self._check = limit, check
        self._handles: OrderedDict[Path, Handle] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path) -> Handle:
        """Return the open file of a path.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: It cannot be opened.
            FlussError: What is at the path may be another lab's.
        """
        with self._lock:
            if (handle := self._handles.get(path)) is not None:
                self._handles.move_to_end(path)
                return handle
            try:
                handle = self._open_there(path)
            finally:
                self._check(f"{path} was not opened")
            return self._keep(path, handle)

    def _open_there(self, path: Path) -> Handle:
        try:
            return self._open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            # A link of a lab's shadow: what it leads to is only read.
            if error.errno not in _READ_ONLY or not path.is_symlink():
                raise
            return self._open(path, os.O_RDONLY | os.O_CLOEXEC)

    def create(self, path: Path) -> Handle:
        """Make a file, or empty the one that is there, and return it open.

        Raises:
            OSError: The file system refused.
        """
        with self._lock:
            self._handles.pop(path, None)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            return self._keep(path, self._open(path, flags))

    def forget(self, path: Path) -> None:
        """Drop a file that is deleted or renamed; those that have it open keep it."""
        with self._lock:
            self._handles.pop(path, None)

    def forget_below(self, folder: Path) -> None:
        """Drop all files in a folder and those in it."""
        with self._lock:
            # By their texts, which paths keep: a table of a thousand buckets calls this a thousand times.
            below = f"{folder}{os.sep}"
            for path in [path for path in self._handles if str(path).startswith(below)]:
                del self._handles[path]

    def _open(self, path: Path, flags: int) -> Handle:
        """Open a file; where the system allows no further one, in the place of the longest unused half of the others."""
        while True:
            try:
                return Handle(os.open(path, flags, 0o600))
            except OSError as error:
                if error.errno not in _TOO_MANY or not self._handles:
                    raise
            for _ in range((len(self._handles) + 1) // 2):
                self._handles.popitem(last=False)

    def _keep(self, path: Path, handle: Handle) -> Handle:
        self._handles[path] = handle
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = self._limit if allowed == resource.RLIM_INFINITY else max(1, min(self._limit, allowed // _SHARE))
        while len(self._handles) > most:
            self._handles.popitem(last=False)
        return handle

"""The reserve on a lab's disk: with it a lab whose disk is full can start, serve reads, and drop tables.

The file ``disk-reserve`` in the lab's folder has real blocks. On a full disk, a start and a drop free some of them, for their
own use only: while the file is short, appends and all creations are refused. The file is restored when the disk has room
for it; then the lab accepts writes again by itself.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from fluss_lab import files
from fluss_lab.errors import StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.config.options import DISK_RESERVE

log = logging.getLogger(__name__)

T = TypeVar("T")

RESERVE_FILE: Final = "disk-reserve"
#: Bytes freed at a time. A start writes some 100 kB, a drop as much or, for thousands of partitions, a few MB.
STEP_BYTES: Final = 1 << 20
#: Errors of a full disk, or an exhausted quota.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
#: The unit of `st_blocks`, whatever the file system's blocks are.
_STAT_BLOCK_BYTES: Final = 512
#: The remedy, for messages.
ADVICE: Final = "free space on it: drop tables, or delete other files; the lab continues by itself when there is room"


class DiskReserve:
    """The reserve of a lab's folder. Thread-safe; any process may check whether it is short.

    Args:
        folder: The lab's folder; it exists.
        size: Bytes; 0 for none.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._path = folder / RESERVE_FILE
        self._size = size
        self._identity = _identity_of(folder)
        self._lock = threading.Lock()
        self._problem = ""

    @property
    def is_read_only(self) -> bool:
        """Return whether nothing may be written, and no file be removed: what is at the path now may be another lab."""
        return self.folder_trouble is not None

    def check_writable(self, what: str) -> None:
        """Refuse a change that needs no room, where nothing may be written at all.

        Args:
            what: What was not done; the message begins with it.

        Raises:
            StorageError: Nothing may be written.
        """
        self.check_place(what)

    def check_place(self, what: str) -> None:
        """Refuse where the folder is no longer at its path: what would be changed would be gone with it, or be of another lab.

        Args:
            what: What was not done; the message begins with it.

        Raises:
            StorageError: It is gone, or another one.
        """
        if (trouble := self.folder_trouble) is not None:
            raise StorageError(f"{what}: {trouble}")

    @property
    def is_short(self) -> bool:
        """Return whether a part was freed and not yet restored. A reserve that was never created is not short."""
        if not self._size:
            return False
        found = self._file_size()
        return found is not None and found < self._size

    @property
    def folder_trouble(self) -> str | None:
        """Return why the folder at the path is not the one that was opened, and what to do; None: it is."""
        if _identity_of(self._folder) == self._identity:
            return None
        return (
            f"the lab's folder is no longer at {self._folder}: it was removed, moved or replaced while its server ran; put it "
            "back, or close the lab, which ends the server"
        )

    @property
    def write_trouble(self) -> str | None:
        """Return why nothing may be written, whatever room there is, and what to do; None: it may."""
        return self.folder_trouble

    def check(self, what: str) -> None:
        """Refuse to write while the reserve is short, or where the folder is no longer at its path.

        Args:
            what: What was not done; the message begins with it.

        Raises:
            StorageError: It is short; or what would be written would be gone with the folder, or be in another one.
        """
        self.check_place(what)
        if self.is_short:
            raise StorageError(
                f"{what}: the disk of {self._folder} is full, the rest of its reserve ({DISK_RESERVE.key}) is for reading "
                f"and dropping: {ADVICE}"
            )

    def is_short_for(self, place: Path) -> bool:
        """Return whether nothing may be written, or the reserve is short and a path, if it exists, is on the same disk."""
        try:
            return self.is_read_only or (self.is_short and place.stat().st_dev == self._folder.stat().st_dev)
        except OSError:
            return False

    # -- use -----------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make room for a start's first write; restore the reserve if there is more. Call it before that write.

        Raises:
            OSError: The file system refused for another reason than lack of room.
        """
        self._drop_holes()
        self.make_room(STEP_BYTES)
        self.restore()

    def make_room(self, room: int) -> bool:
        """Free parts until the disk has room for some bytes, or nothing is left; return whether any was freed."""
        given = False
        with self._lock:
            while not self._has_room(room) and self._give():
                given = True
        return given

    def lend(self, action: Callable[[], T]) -> T:
        """Run a transaction that will free room; if the disk refuses it, run it again with room from the reserve.

        Raises:
            StorageError: The disk still refuses, or the folder is no longer at its path; nothing was changed.
        """
        self.check_place("nothing was dropped")
        room = STEP_BYTES
        self.make_room(room)
        while True:
            try:
                return action()
            except StorageError as error:
                # A disk with more room than the whole reserve would add has refused for another reason.
                while room <= 2 * self._size:
                    room *= 2
                    if self.make_room(room):
                        break
                else:
                    if (full := self.explain(error)) is not None:
                        raise full from error
                    raise

    def explain(self, error: BaseException) -> StorageError | None:
        """Return the error to raise for a failure that the reserve should prevent; None: the disk is not full."""
        if not isinstance(error, OSError | StorageError) or self._has_room(STEP_BYTES):
            return None
        state = "has nothing left to give" if self._size else "is switched off"
        return StorageError(
            f"{self._folder}: the disk is full ({error}), and the reserve for this ({DISK_RESERVE.key}) {state}: delete other "
            "files on it, then try again"
        )

    def _give(self) -> bool:
        if not (found := self._file_size()):
            return False
        left = max(0, found - STEP_BYTES)
        _cut(self._path, left)
        log.warning("event=disk_full folder=%s reserve=%d of=%d", self._folder, left, self._size)
        return True

    # -- restoration ---------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore the reserve, if the disk has room for that and a little more; else, and in another's folder, leave it as it is.

        Other errors of the file system are logged once: without a reserve the lab works until the disk is full.
        """
        if self.is_read_only:
            return
        with self._lock:
            try:
                self._restore()
                self._problem = ""
            except OSError as error:
                if str(error) != self._problem:
                    log.error("event=no_disk_reserve folder=%s error=%s", self._folder, error)
                self._problem = str(error)

    def _restore(self) -> None:
        found = self._file_size()
        if not self._size:
            self._path.unlink(missing_ok=True)
        elif found is not None and found > self._size:
            _cut(self._path, self._size)
        elif found != self._size and self._has_room(self._size - (found or 0) + STEP_BYTES):
            self._grow(found)

    def _grow(self, found: int | None) -> None:
        # A new one gets its name when it is complete: until then there is no reserve, not a short one.
        path = self._path.with_name(f".{RESERVE_FILE}") if found is None else self._path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, found or 0, self._size)
        except OSError as error:
            os.ftruncate(fd, found or 0)
            if not is_full(error):
                raise
            return
        finally:
            os.close(fd)
        if found is None:
            files.replace(path, self._path)
        log.info("event=disk_reserve_whole folder=%s size=%d", self._folder, self._size)

    def _drop_holes(self) -> None:
        """Remove a file whose blocks a copy of the folder left out."""
        with self._lock:
            try:
                found = self._path.stat()
            except FileNotFoundError:
                return
            if found.st_blocks * _STAT_BLOCK_BYTES < found.st_size:
                self._path.unlink()

    def _file_size(self) -> int | None:
        """Return the size of the file; None when it does not exist."""
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return None

    def _has_room(self, size: int) -> bool:
        """Return whether the disk has room for so many bytes of this user, by allocating and freeing them."""
        try:
            failpoint("disk.room")
            state = os.statvfs(self._folder)
            if state.f_bavail * state.f_frsize < size:
                return False
            with tempfile.TemporaryFile(dir=self._folder) as file:
                _allocate(file.fileno(), 0, size)
        except OSError as error:
            # Freeing the reserve helps against no other error.
            return not is_full(error)
        return True


def _identity_of(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another one at its path; None when there is none."""
    try:
        found = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def is_full(error: OSError) -> bool:
    """Return whether an error means that a disk is full."""
    return error.errno in _FULL


def refusal(error: OSError) -> str:
    """Return the text of a file system's error, with the remedy where the disk is full."""
    text = error.strerror or str(error)
    return f"{text}; the disk is full: {ADVICE}" if is_full(error) else text


def _cut(path: Path, size: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _allocate(fd: int, start: int, stop: int) -> None:
    """Allocate real blocks for a file's bytes ``[start, stop)``.

    Raises:
        OSError: The file system refused; some blocks may be allocated.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, start, stop - start)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise
        if os.fstat(fd).st_blocks * _STAT_BLOCK_BYTES >= stop:
            return
    # A file system without allocation needs written bytes, and cannot compress noise.
    noise = os.urandom(min(STEP_BYTES, stop - start))
    while start < stop:
        start += os.pwrite(fd, noise[: stop - start], start)

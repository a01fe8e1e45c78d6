"""The store of local files: durable by fsync, at once by rename, new by O_EXCL. Mounted storage is this too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fluss_lab import files
from fluss_lab.storage.file_store import ABSENT, Content, FileReader, FileWriter, Version


class LocalStore:
    """The files of this machine: see `FileStore`."""

    def read(self, place: Path) -> bytes:
        """See `FileStore.read`."""
        return place.read_bytes()

    def load(self, place: Path) -> tuple[bytes, Version]:
        """See `FileStore.load`."""
        return place.read_bytes(), ABSENT

    def put(self, place: Path, data: bytes, expected: Version | None = None) -> Version:
        """See `FileStore.put`."""
        files.write_atomic(place, data)
        return ABSENT

    @contextmanager
    def create(self, place: Path, *, is_unique: bool = False) -> Iterator[FileWriter]:
        """See `FileStore.create`."""
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            yield _LocalWriter(fd)
            files.fsync_file(fd)
        except BaseException:
            place.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def open(self, place: Path, size: int) -> FileReader:
        """See `FileStore.open`."""
        return _LocalReader(place)

    def size(self, place: Path) -> int | None:
        """See `FileStore.size`."""
        try:
            return place.stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: Path) -> list[str]:
        """See `FileStore.names`."""
        try:
            return sorted(each.name for each in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_folder(self, place: Path) -> bool:
        """See `FileStore.is_folder`."""
        return place.is_dir()

    def make_folder(self, folder: Path, *, is_new: bool = False) -> None:
        """See `FileStore.make_folder`."""
        if is_new:
            folder.mkdir(mode=0o700)
        else:
            files.make_folder(folder)

    def settle(self, folder: Path) -> None:
        """See `FileStore.settle`."""
        files.fsync_folder(folder)

    def rename(self, place: Path, name: str) -> None:
        """See `FileStore.rename`."""
        files.replace(place, place.with_name(name))

    def remove(self, place: Path) -> None:
        """See `FileStore.remove`."""
        place.unlink(missing_ok=True)

    def remove_folder(self, folder: Path) -> None:
        """See `FileStore.remove_folder`."""
        shutil.rmtree(folder)


class _LocalReader:
    """An open file: it can be read to its end though it is deleted meanwhile."""

    def __init__(self, place: Path) -> None:
        self._fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, start: int, stop: int, until: int) -> bytes:
        data = os.pread(self._fd, stop - start, start)
        while len(data) < stop - start and (more := os.pread(self._fd, stop - start - len(data), start + len(data))):
            data += more
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _LocalWriter:
    """Writes to a descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: Content) -> None:
        left = memoryview(data)
        while left:
            # A short write is what a disk that is almost full answers.
            left = left[os.write(self._fd, left) :]

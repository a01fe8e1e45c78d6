"""The interface of a store of files: what those who write and read remote storage may rely on, wherever the files are.

A place is a `pathlib.Path` of a local file system, or an `ObjectPath`; both are joined by ``/`` and shown by `str`. What is
done to a place is done by its store: ``store_of(place).read(place)``. Local files stay plain paths: they are read by
position and memory-mapped as ever, and nothing that is only ever local needs to know of stores.

Failures are `OSError` and its kinds, with the place as their file name: `FileNotFoundError` (it is not there, for sure),
`FileExistsError` (another writer was there first), `PermissionError` (credentials), `ConnectionError` and `TimeoutError` (no
answer; nothing is known), `BlockingIOError` (too busy), any other ``OSError``. `store_failure` makes the house's of them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Content: TypeAlias = "bytes | memoryview | pa.Buffer"


@dataclass(frozen=True, slots=True)
class Version:
    """Which content a file had when it was read or written, as its store tells versions apart; empty: none that is known."""

    e_tag: str | None = None
    number: str | None = None


#: Of a file that must not be there yet.
ABSENT: Final = Version()


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A place in an object store.

    Attributes:
        store: Where.
        key: Its key, or that of a folder without the last slash; empty: the bucket itself.
    """

    store: ObjectPlaces
    key: str

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.store, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"{self.store.location}/{self.key}"

    @property
    def name(self) -> str:
        """Return the part behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """Return the folder that it is in."""
        return ObjectPath(self.store, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        """Return another place in the same folder."""
        return self.parent / name


Place: TypeAlias = Path | ObjectPath
P = TypeVar("P", bound=Place)
P_contra = TypeVar("P_contra", bound=Place, contravariant=True)


class FileReader(Protocol):
    """A file open for reading by position. For one thread."""

    def read(self, start: int, stop: int, until: int) -> bytes:
        """Return the bytes ``[start, stop)``, fewer where the file ends before.

        Args:
            until: Up to where the caller goes on reading, most likely: a store may fetch so far ahead.

        Raises:
            OSError: As the store; `FileNotFoundError` too, where files that are deleted cannot be read to their end.
        """
        ...

    def close(self) -> None:
        """Release it. Closing again does nothing."""
        ...


class FileWriter(Protocol):
    """A new file being written."""

    def write(self, data: Content) -> None:
        """Write all of the data behind what was written before."""
        ...


class FileStore(Protocol[P_contra]):
    """A store of files, for places of one kind. Safe for threads. Every method may raise `OSError`, as the module says."""

    def read(self, place: P_contra) -> bytes:
        """Return a file's content."""
        ...

    def load(self, place: P_contra) -> tuple[bytes, Version]:
        """Return a file's content, and its version for `put`."""
        ...

    def put(self, place: P_contra, data: bytes, expected: Version | None = None) -> Version:
        """Replace a small file's content at once, durably: readers see the old bytes or the new. Return its version.

        Args:
            expected: The version that must be there, or `ABSENT`; None: whatever is there. An object store compares and
                replaces in one step; a file system cannot, and does not compare: there the lock of the lab's folder keeps
                a second server out.

        Raises:
            FileExistsError: Another version is there, which is not this content. It stays. An answer that was lost is no
                such case: what is there is read, and when it is this content, this call has put it there.
        """
        ...

    def create(self, place: P_contra, *, is_unique: bool = False) -> AbstractContextManager[FileWriter]:
        """Write a new file while the block runs; it is whole and its content durable behind the block.

        If the block raises, nothing of it can be read; an object store has never shown any of it. In a file system its name
        is durable after `settle` of the folder.

        Args:
            is_unique: Whether nobody else uses the name: then a large one may go in parts, faster.

        Raises:
            FileExistsError: It exists already; it is not changed.
        """
        ...

    def open(self, place: P_contra, size: int) -> FileReader:
        """Open a file of a known size for reading by position."""
        ...

    def size(self, place: P_contra) -> int | None:
        """Return the bytes of a file; None when it is not there."""
        ...

    def names(self, folder: P_contra) -> list[str]:
        """Return the names of files and folders in a folder, in order; none when it is not there."""
        ...

    def is_folder(self, place: P_contra) -> bool:
        """Return whether a folder is there, or may be made by the first file in it."""
        ...

    def make_folder(self, folder: P_contra, *, is_new: bool = False) -> None:
        """Make a folder and those above it, durably, where there are folders.

        Args:
            is_new: Whether it must not exist; the one above does, and its name there is durable after `settle` only.
        """
        ...

    def settle(self, folder: P_contra) -> None:
        """Make the names in a folder durable: files created, renamed and removed in it."""
        ...

    def rename(self, place: P_contra, name: str) -> None:
        """Give a small file another name in its folder, durably; it may have both for a moment."""
        ...

    def remove(self, place: P_contra) -> None:
        """Remove a file; nothing happens where there is none."""
        ...

    def remove_folder(self, folder: P_contra) -> None:
        """Remove all that is in a folder, and the folder."""
        ...


class ObjectPlaces(FileStore["ObjectPath"], Protocol):
    """An object store.

    Attributes:
        location: Scheme and bucket, as in locations.
    """

    location: str

"""The only module that makes files durable, swaps them in or locks them: fsync, replace and flock live here."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

#: Bytes of a file copied at once.
_COPIED_BYTES: Final = 4 << 20


def fsync_file(fd: int) -> None:
    """Return when everything written to the descriptor is on the device.

    Raises:
        OSError: The device refused. The file must not be trusted or written again: kernels mark
            pages clean after a failed fsync (ATC '20), so a later success proves nothing.
    """
    os.fdatasync(fd)


def fsync_path(path: Path) -> None:
    """Make one existing file (content and length) durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_folder(path: Path) -> None:
    """Make the entries of a folder durable: creations, renames and removals in it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a file's content at once: readers see the old bytes or the new, never a mixture.

    Args:
        path: The file; its folder must exist.
        data: The whole new content.
        mode: Permissions of the new file.
        durable: Whether content and name are on the device when this returns.
    """
    with _temporary(path, data, mode, durable=durable) as temporary:
        os.replace(temporary, path)
    if durable:
        fsync_folder(path.parent)


def create_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Make a file that does not exist, whole and durable at once: of several that try, in any process, one succeeds.

    Args:
        path: The file; its folder must exist, on a file system with hard links.
        data: Its content.
        mode: Its permissions.

    Raises:
        FileExistsError: There is one; it is left as it is.
    """
    with _temporary(path, data, mode, durable=True) as temporary:
        # Unlike a rename, a link never replaces what is there.
        os.link(temporary, path)
    fsync_folder(path.parent)


def copy_atomic(source: Path, start: int, path: Path, *, mode: int = 0o600) -> None:
    """Make a file of what another one has from a position on, whole and durable at once; one that is there is replaced.

    Args:
        source: The other file; it does not change meanwhile.
        start: Position in it.
        path: The file; its folder must exist.
        mode: Its permissions.
    """

    def pieces() -> Iterator[bytes]:
        with source.open("rb") as file:
            file.seek(start)
            while piece := file.read(_COPIED_BYTES):
                yield piece

    with _filled(path, pieces(), mode, durable=True) as temporary:
        os.replace(temporary, path)
    fsync_folder(path.parent)


def _temporary(path: Path, data: bytes, mode: int, *, durable: bool) -> AbstractContextManager[str]:
    return _filled(path, [data], mode, durable=durable)


@contextmanager
def _filled(path: Path, pieces: Iterable[bytes], mode: int, *, durable: bool) -> Iterator[str]:
    """Give a whole file beside the one meant; what is left of it when the block ends goes."""
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.writelines(pieces)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file, for as long as a descriptor of this opening lives; return False when somebody else has it locked.

    Args:
        fd: The file's descriptor.
        shared: Whether others may lock it so too.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_json_atomic(path: Path, value: Any, *, mode: int = 0o600, durable: bool = True) -> None:
    """`write_atomic` of a value as indented JSON."""
    write_atomic(path, (json.dumps(value, indent=1) + "\n").encode(), mode=mode, durable=durable)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another in the same folder, or a folder to a name that is free there, durably."""
    os.replace(source, target)
    fsync_folder(target.parent)


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Make a folder and those above it that are missing, durably. One that is there is left as it is."""
    if not path.is_dir():
        make_folder(path.parent, mode=mode)
        path.mkdir(mode=mode, exist_ok=True)
        fsync_folder(path.parent)

"""Durable writes, atomic replacement and locks of files: the only module that calls fsync, replace and flock. And temporary files."""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import StorageError

#: Bytes of a file copied at once.
_COPIED_BYTES: Final = 4 << 20
#: Of Linux's ``renameat2``: the paths are of the working folder, and each gets what the other has.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
#: What it says where kernel or file system cannot.
_NO_EXCHANGE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})

#: In a temporary folder of a process: locked for as long as that lives, or a child that it forked.
_OWNER: Final = ".owner"


def temporary_root() -> Path:
    """Return the folder for temporary files, which is ``TMPDIR`` if that can be written.

    Raises:
        StorageError: No folder for them can be written.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StorageError(
            f"{error.strerror}: none of them is there, can be written and has room; let TMPDIR name one that does"
        ) from error


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder of this user's, which is removed when the block ends.

    Raises:
        StorageError: It cannot be made.
    """
    root = temporary_root()
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    except OSError as error:
        raise temporary_refusal(root, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_folder(prefix: str) -> Path:
    """Make a temporary folder that is removed when this process ends, and remove those that killed processes of this user left.

    Args:
        prefix: Of the folder's name, and of those that are looked for.

    Raises:
        StorageError: It cannot be made.
    """
    root = temporary_root()
    for path in root.glob(f"{prefix}*"):
        _remove_left(path)
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        fd, draft = tempfile.mkstemp(dir=folder)
        # Whoever finds it finds it locked. Where the file system has no locks, what is left stays.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.replace(draft, folder / _OWNER)
    except OSError as error:
        raise temporary_refusal(root, error) from error
    return folder


def _remove_left(folder: Path) -> None:
    """Remove the temporary folder of a process that is gone; one that is another user's, or is no such folder, is left alone."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return
        fd = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if try_lock(fd):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


def temporary_refusal(folder: Path, error: OSError) -> StorageError:
    """Return the error for a temporary file that cannot be written in a folder."""
    return StorageError(
        f"{folder}: no temporary files can be written there: {error.strerror or error}; make room, or let TMPDIR name another folder"
    )


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
    """Create a file atomically and durably: of several concurrent callers, in any process, one succeeds.

    Args:
        path: The file; its folder must exist, on a file system with hard links.
        data: Its content.
        mode: Its permissions.

    Raises:
        FileExistsError: It exists; it is not changed.
    """
    with _temporary(path, data, mode, durable=True) as temporary:
        # Unlike a rename, a link never replaces a file.
        os.link(temporary, path)
    fsync_folder(path.parent)


def copy_atomic(source: Path, start: int, path: Path, *, mode: int = 0o600) -> None:
    """Copy a file from a position on into another one, atomically and durably; an existing one is replaced.

    Args:
        source: The file to copy; it must not change meanwhile.
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
    """Yield a complete temporary file beside the target; remove it when the block ends."""
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
    """Lock an open file, for as long as a descriptor of this opening lives; return False when another has locked it.

    Args:
        fd: The file's descriptor.
        shared: Whether the lock is shared.
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


def exchange(source: Path, target: Path) -> None:
    """Give two folders in the same folder each other's name, durably: both names are there all the time.

    Where the system cannot do that at once (Linux can, on the usual file systems), a process that is killed in the middle
    leaves what the target was as the source's name with ``.old``; a failure leaves both as they were.
    """
    if not _exchange_at_once(source, target):
        before = source.with_name(f"{source.name}.old")
        os.replace(target, before)
        try:
            os.replace(source, target)
        except BaseException:
            os.replace(before, target)
            raise
        os.replace(before, source)
    fsync_folder(target.parent)


def _exchange_at_once(source: Path, target: Path) -> bool:
    """Exchange two names in one step; return False where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(target))


def move(source: Path, target: Path) -> None:
    """Rename at once what is going to be removed: durable only once the folder that it leaves is."""
    os.replace(source, target)


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Create a folder and its missing parents, durably. An existing one is not changed."""
    if not path.is_dir():
        make_folder(path.parent, mode=mode)
        path.mkdir(mode=mode, exist_ok=True)
        fsync_folder(path.parent)

"""The hidden file or folder that an export writes until it is whole. One of a process that was killed is removed by the next export.

Whoever writes one holds a lock on it for as long, which the system lets go of when the process ends.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fluss_lab import files

_NAME: Final = re.compile(r"\.fluss-export-[0-9a-f]{16}\.tmp")


def part_of(target: Path) -> Path:
    """Return a name beside a target for what is going to be it."""
    return target.with_name(f".fluss-export-{secrets.token_hex(8)}.tmp")


def through_link(target: Path) -> Path:
    """Return where a target leads to that is a link to something; any other stays what it is."""
    return target.resolve() if target.is_symlink() and target.exists() else target


@contextmanager
def claimed(part: Path, *, is_folder: bool = False) -> Iterator[None]:
    """Create a part, and keep it from being taken for one that was left; first, remove those that were, beside it.

    Raises:
        OSError: It cannot be created.
    """
    remove_leavings(part.parent)
    fd = _create(part, is_folder=is_folder)
    try:
        yield
    finally:
        os.close(fd)


def _create(part: Path, *, is_folder: bool) -> int:
    while True:
        part.mkdir(exist_ok=True) if is_folder else part.touch()
        fd = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        # Another export may have taken it for one that was left in the moment before it was locked.
        if _lock(fd) and _is_at(part, fd):
            return fd
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        return files.try_lock(fd)
    except OSError:
        return True  # a file system without locks, where nobody removes what is left


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def remove_leavings(folder: Path) -> None:
    """Remove what exports into a folder left that were killed. What cannot be removed stays."""
    with suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(folder)):
            with suppress(OSError):
                _remove_if_left(folder / name)


def _remove_if_left(part: Path) -> None:
    fd = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not files.try_lock(fd):
            return  # its process lives
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    finally:
        os.close(fd)

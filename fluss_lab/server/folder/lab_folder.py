"""A lab's folder: its creation, and the checks that it is the user's own and that no other user can write in it."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fluss_lab.errors import LabError
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE
from fluss_lab.server.folder.disk_reserve import RESERVE_FILE
from fluss_lab.server.folder.folder_lock import LOCK_FILE
from fluss_lab.server.folder.read_only_lab import unseen_error
from fluss_lab.server.process.discovery import DISCOVERY_FILE, TOKEN_FILE

#: Of the folder's path without links: SQLite opens no file whose path has more than 504 bytes, and ``lake/catalog.db`` lies in it.
PATH_BYTES_MAX: Final = 488
#: Files that a server opens by name. Through a link in their place it would read or overwrite other files.
_OWN_FILES: Final = (
    TOKEN_FILE, DISCOVERY_FILE, DATABASE_FILE, LOCK_FILE, "start.lock", "server-options.json", "server.log", "server.out",
    RESERVE_FILE,
)  # fmt: skip


def lab_exists(folder: Path) -> bool:
    """Return whether the folder is a lab's: a server was started there once.

    Raises:
        LabError: This user may not look into it.
    """
    try:
        return (folder / DATABASE_FILE).exists() or (folder / DISCOVERY_FILE).exists()
    except OSError as error:
        raise unseen_error(folder, error) from error


def check_lab_exists(folder: Path) -> None:
    """Check that the folder is a lab's.

    Raises:
        LabError: It is not; the message says how to make one.
    """
    _check_kind(folder)
    if not lab_exists(folder):
        found = "an empty or other folder" if folder.is_dir() else "nothing"
        raise LabError(
            f"{folder}: expected a lab's folder, found {found}; name it by --folder, or make a lab there by "
            f"`fluss-lab up {shlex.quote(str(folder))}`"
        )


def make_lab_folder(folder: Path) -> None:
    """Create a lab's folder if it is missing, for its owner only, and check that it is safe for a server.

    Raises:
        LabError: Its path is too long; it cannot be created, belongs to another user, or others may write in it; or one of the lab's own
            files is a link, or another user's.
    """
    _check_kind(folder)
    if (length := len(os.fsencode(os.path.realpath(folder)))) > PATH_BYTES_MAX:
        raise LabError(
            f"{folder}: the path of the lab's folder has {length:,} bytes, expected at most {PATH_BYTES_MAX}, as SQLite opens no files with "
            "longer paths; name a shorter one (a link to it does not help)"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: the lab's folder cannot be created: {error.strerror or error}") from error
    try:
        problem = next(_problems(folder), None)
    except OSError as error:
        raise unseen_error(folder, error) from error
    if problem:
        raise LabError(problem)


def _check_kind(folder: Path) -> None:
    try:
        _check_is_folder(folder)
    except OSError as error:
        raise unseen_error(folder, error) from error


def _check_is_folder(folder: Path) -> None:
    for place in (folder, *folder.parents):
        if place.is_symlink() and not place.exists():
            raise LabError(
                f"{folder}: expected a folder for the lab, found the link {place}, which leads nowhere; mend or remove it"
            )
        if place.exists():
            if not place.is_dir():
                raise LabError(f"{folder}: expected a folder for the lab, found the file {place}; name another place")
            return


def _problems(folder: Path) -> Iterator[str]:
    me, found = os.geteuid(), folder.stat()
    if found.st_uid != me:
        yield (
            f"{folder}: expected a folder of user {_user(me)}, found one of {_user(found.st_uid)}, who could put any file "
            "there; use a folder of your own, or change the owner"
        )
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, me)):
        yield (
            f"{folder}: others may write in it (mode {stat.S_IMODE(found.st_mode):o}): they could put a token or a link "
            f"there; look at what is in it, then `chmod go-w {folder}`"
        )
    for name in _OWN_FILES:
        path = folder / name
        try:
            entry = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(entry.st_mode):
            yield f"{path}: expected a file, found a link to {os.readlink(path)}; servers never make one: remove it"
        elif entry.st_uid != me:
            yield f"{path}: expected a file of user {_user(me)}, found one of {_user(entry.st_uid)}; find out who made it"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _is_private(group: int, user: int) -> bool:
    """Return whether a group is a user's private one: many systems give each user a group of the same name."""
    try:
        found = grp.getgrgid(group)
        return found.gr_name == pwd.getpwuid(user).pw_name and set(found.gr_mem) <= {found.gr_name}
    except KeyError:
        return False

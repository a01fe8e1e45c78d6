"""The folders of buckets: made durably, and marked, so that the folder of another table or partition is never taken for one.

Folders are named by ids, and ids come from the coordinator's metadata. Where that is older than the folders (a backup was
restored) or another lab's, an id may mean something else than it did. So each bucket's folder has an empty file
``identity-<32 hex digits>``, whose name follows from the lab, the table, the partition and when they were made; the
coordinator sends it with every bucket. A file's name needs no content that could be torn: it is there with the folder's
next fsync.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import CorruptDataError

_IDENTITY_FILE: Final = re.compile(r"identity-([0-9a-f]{32})")


def has_folders(folder: Path) -> bool:
    """Return whether there is any folder in one that need not exist."""
    try:
        with os.scandir(folder) as entries:
            return any(each.is_dir() for each in entries)
    except FileNotFoundError:
        return False


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    try:
        folder.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    files.fsync_folder(folder.parent)


def check_identity(folder: Path, identity: str, *, adopt: bool) -> None:
    """Check that a bucket's folder is the bucket's, and mark one that is empty.

    The mark of an empty folder is durable with the next fsync of it.

    Args:
        folder: The bucket's; it exists.
        identity: The bucket's, 32 hexadecimal digits; empty: the coordinator is of a version that sends none.
        adopt: Whether a folder with files and without a mark is the bucket's: made before there were marks.

    Raises:
        CorruptDataError: The folder is another bucket's, or it is not known whose. Nothing was changed.
        OSError: The file system refused.
    """
    if not identity:
        return
    names = [path.name for path in folder.iterdir()]
    found = _identities(names)
    if found == [identity]:
        return
    if found or (names and not adopt):
        has = f"those of another bucket (identity {found[0]})" if found else "files without an identity"
        raise CorruptDataError(
            f"{folder}: expected no files, or those of this bucket (identity {identity}), found {has}: the lab's metadata.db is "
            "older than this folder, or of another lab. Restore the metadata.db that belongs to it; or move the folder "
            "elsewhere, and keep it: it may be the only copy of its rows"
        )
    (folder / f"identity-{identity}").touch(mode=0o600)
    if names:
        files.fsync_folder(folder)
    # Else its first segment brings the next fsync: a folder that is empty again after a power loss is marked again.


def folder_identity(folder: Path) -> str:
    """Return the identity of the bucket that a folder is of; empty where it has none."""
    return next(iter(_identities(path.name for path in folder.iterdir())), "")


def _identities(names: Iterable[str]) -> list[str]:
    return [match[1] for name in names if (match := _IDENTITY_FILE.fullmatch(name))]

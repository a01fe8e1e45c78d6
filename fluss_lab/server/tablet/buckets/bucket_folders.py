"""The folders of buckets: made durably, marked, so that the folder of another table or partition is never taken for one, and removed.

Folders are named by ids, and ids come from the coordinator's metadata. Where that is older than the folders (a backup was
restored) or another lab's, an id may mean something else than it did. So each bucket's folder has an empty file
``identity-<32 hex digits>``, whose name follows from the lab, the table, the partition and when they were made; the
coordinator sends it with every bucket. A file's name needs no content that could be torn: it is there with the folder's
next fsync.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import CorruptDataError

#: Folders that are written to the device side by side: its journal takes several with one write.
_WRITTEN_AT_ONCE: Final = 4
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


def make_folders(wanted: Sequence[Path], within: Path) -> None:
    """Make the folders of new buckets, durably: what some of them lie in is written once, not for each.

    Args:
        wanted: The folders.
        within: What the folders of their tables lie in; these exist.

    Raises:
        OSError: The file system refused; what was made is gone again.
    """
    made: list[Path] = []
    parents = {folder.parent: None for folder in wanted}
    try:
        for folder in (*(parent for parent in parents if parent.parent != within), *wanted):
            with suppress(FileExistsError):
                folder.mkdir()
                made.append(folder)
        # Those that were there too: a process may have been killed before they were durable.
        with ThreadPoolExecutor(_WRITTEN_AT_ONCE, thread_name_prefix="bucket-folders") as pool:
            list(pool.map(files.fsync_folder, parents))
        for folder in {parent.parent: None for parent in parents if parent.parent != within}:
            files.fsync_folder(folder)
    except OSError:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


class Trash:
    """The folders of deleted buckets, until their files are gone. Safe for threads.

    Args:
        folder: Where they are moved to; it is made, and emptied.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        #: What folders were moved out of since it was made durable, and where they are.
        self._left: list[Path] = []
        self._moved: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def take(self, folder: Path, name: str) -> None:
        """Move a folder here at once, if it is there: a crash leaves a bucket whole or gone.

        Raises:
            OSError: The file system refused.
        """
        aside = None
        if folder.exists():
            aside = Path(tempfile.mkdtemp(prefix=name, dir=self._folder))
            files.move(folder, aside / folder.name)
        with self._lock:
            # One that is gone already may have been moved by a process that was killed before it made that durable.
            self._left.append(folder.parent)
            self._moved += [] if aside is None else [aside]

    def empty(self) -> None:
        """Make durable that folders are gone, and remove their files.

        Raises:
            OSError: The file system refused; the next call tries it again.
        """
        with self._lock:
            left, self._left = self._left, []
            moved, self._moved = self._moved, []
        try:
            for folder in {_existing(folder): None for folder in left}:
                files.fsync_folder(folder)
        except OSError:
            with self._lock:
                self._left += left
                self._moved += moved
            raise
        for aside in moved:
            shutil.rmtree(aside, ignore_errors=True)
        if stayed := [aside for aside in moved if aside.exists()]:
            with self._lock:
                self._moved += stayed


def _existing(folder: Path) -> Path:
    """Return a folder, or the one above it that is still there."""
    while not folder.exists():
        folder = folder.parent
    return folder


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
    problem = identity_problem(folder, identity, adopt=adopt)
    if problem is not None:
        raise CorruptDataError(problem)
    names = [path.name for path in folder.iterdir()]
    if _identities(names):
        return
    (folder / f"identity-{identity}").touch(mode=0o600)
    if names:
        files.fsync_folder(folder)
    # Else its first segment brings the next fsync: a folder that is empty again after a power loss is marked again.


def identity_problem(folder: Path, identity: str, *, adopt: bool) -> str | None:
    """Return why a bucket's folder is not the bucket's, and the remedy; None where it is. The arguments are those of `check_identity`.

    Raises:
        OSError: The file system refused.
    """
    names = [path.name for path in folder.iterdir()]
    found = _identities(names)
    if found == [identity]:
        return None
    if found or (names and not adopt):
        has = f"those of another bucket (identity {found[0]})" if found else "files without an identity"
        return (
            f"{folder}: expected no files, or those of this bucket (identity {identity}), found {has}: the lab's metadata.db is "
            "older than this folder, or of another lab. Restore the metadata.db that belongs to it; or move the folder "
            "elsewhere, and keep it: it may be the only copy of its rows"
        )
    return None


def folder_identity(folder: Path) -> str:
    """Return the identity of the bucket that a folder is of; empty where it has none."""
    return next(iter(_identities(path.name for path in folder.iterdir())), "")


def _identities(names: Iterable[str]) -> list[str]:
    return [match[1] for name in names if (match := _IDENTITY_FILE.fullmatch(name))]

"""Single values of a lab's metadata, read beside its server or without one, and without a change of any file."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, StorageError
from fluss_lab.server.coordinator.metadata.metadata_store import BUSY_TIMEOUT_S, DATABASE_FILE, PASSING
from fluss_lab.server.folder.disk_reserve import is_full


@contextmanager
def database_copy(path: Path) -> Iterator[Path]:
    """Yield a copy of a file of SQLite's with its logs, to which nobody writes meanwhile: opening it changes files beside it.

    Raises:
        OSError: It cannot be read.
        StorageError: There is no room for the copy, which says nothing about the file.
    """
    with files.temporary_folder("fluss-lab-doctor-") as folder:
        for each in (path, *(path.with_name(path.name + log) for log in ("-wal", "-journal"))):
            if each.exists():
                _copy(each, folder)
        yield folder / path.name


def _copy(path: Path, folder: Path) -> None:
    try:
        shutil.copyfile(path, folder / path.name)
    except OSError as error:
        if not is_full(error):
            raise
        raise files.temporary_refusal(folder.parent, error) from error


def metadata_values(folder: Path, *, is_served: bool) -> dict[str, str]:
    """Return the single values of a lab's metadata by their keys; empty when there is no metadata.

    Args:
        folder: The lab's.
        is_served: Whether a process holds the folder.

    Raises:
        CorruptDataError: The metadata is damaged, or none of ours.
        StorageError: It cannot be read.

    Cost: a copy of the file where no server runs: opening it would leave files beside it, of whoever looks.
    """
    path = folder / DATABASE_FILE
    try:
        if not path.exists():
            return {}
        with _opened(path, is_served=is_served) as db:
            return dict(db.execute("SELECT key, value FROM meta"))
    except OSError as error:
        raise StorageError(f"{path}: the lab's metadata cannot be read: {error}") from error
    except (sqlite3.DatabaseError, UnicodeError) as error:
        is_passing = (getattr(error, "sqlite_errorname", "") or "").startswith(PASSING)
        kind = StorageError if is_passing else CorruptDataError
        raise kind(f"{path}: the lab's metadata cannot be read: {error}") from error


@contextmanager
def _opened(path: Path, *, is_served: bool) -> Iterator[sqlite3.Connection]:
    if is_served:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, timeout=BUSY_TIMEOUT_S, uri=True)) as db:
            yield db
        return
    with database_copy(path) as copy, closing(sqlite3.connect(copy)) as db:
        yield db

"""A lab whose folder cannot be written, as on a read-only file system: it is served for reading from a shadow.

The shadow is a private folder among this machine's temporary ones, the same for all of a user's processes. Servers
write their own files there: locks, token, discovery file, logs. The metadata is copied, with its write-ahead
log; the files of the buckets are linked, and recovery and replay may replace or remove the links. Nothing of that is kept:
writes and changes of tables are refused (`ReadOnlyDisk`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from fluss_lab import files
from fluss_lab.errors import LabError, StorageError
from fluss_lab.model.config.options import DISK_RESERVE
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE
from fluss_lab.server.folder.disk_reserve import DiskReserve

T = TypeVar("T")

#: In the shadow of a lab that cannot be written (see `cast`): the lab's folder.
SHADOW_MARK: Final = "shadow-of"
#: The database and its write-ahead log.
_METADATA: Final = (DATABASE_FILE, f"{DATABASE_FILE}-wal")
#: Not linked of a tablet server's folder: its lock, and dropped buckets.
_LEFT_OUT: Final = frozenset({"server.lock", "trash"})
_NAME_LENGTH: Final = 32


def is_read_only(folder: Path) -> bool:
    """Return whether a folder is a lab's, and cannot be written.

    Raises:
        LabError: This user may not look into it.
    """
    try:
        return (folder / DATABASE_FILE).exists() and not os.access(folder, os.W_OK)
    except OSError as error:
        raise unseen_error(folder, error) from error


def unseen_error(folder: Path, error: OSError) -> LabError:
    """Return the error for a folder that this user, or anybody, cannot look at or into."""
    return LabError(f"{folder}: the lab's folder cannot be looked at: {error.strerror or error}; name another place")


def home_of(folder: Path) -> Path:
    """Return where the servers of a lab write: its folder, or its shadow, which need not exist."""
    if not is_read_only(folder):
        return folder
    # Another lab in the same place, or this one after a change, has another shadow.
    identity = [str(folder.resolve()), *(_identity_of(folder / name) for name in _METADATA)]
    name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:_NAME_LENGTH]
    return files.temporary_root() / f"fluss-lab-{os.geteuid()}" / name


def _identity_of(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"


def make_home(folder: Path) -> Path:
    """Return `home_of` a lab, created if it is a shadow.

    Raises:
        LabError: The shadow is another user's, or others may write in it; or the folder cannot be written and is no lab's.
        StorageError: The shadow cannot be made.
    """
    home = home_of(folder)
    if home == folder:
        if not os.access(folder, os.W_OK):
            raise LabError(
                f"{folder}: expected a lab or a folder that can be written, found neither; name another place"
            )
        return home
    for place in (home.parent, home):
        _make_private(place, folder)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise LabError(
                f"{place}: expected a folder that only this user can use, for the servers of {folder}, which cannot be written; "
                "found another one: find out who made it, and remove it, or set TMPDIR to another place"
            )
    return home


def _make_private(place: Path, folder: Path) -> None:
    try:
        place.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        return  # perhaps no folder: that is checked with its owner
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written, and {place}, where its servers would write, cannot be made: {error.strerror or error}; "
            "let TMPDIR name a folder that can be written"
        ) from error


def cast(folder: Path, home: Path) -> None:
    """Create a lab's shadow, in place of an earlier one; the caller holds its lock.

    Raises:
        StorageError: The lab cannot be read, or the shadow cannot be written.
    """
    try:
        clear(home)
        for name in _METADATA:
            if (folder / name).exists():
                shutil.copyfile(folder / name, home / name)
        for tablet in folder.glob("tablet*"):
            if tablet.is_dir():
                _link(tablet, home / tablet.name)
        files.write_atomic(home / SHADOW_MARK, os.fsencode(folder), durable=False)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written, and cannot be served for reading from {home}: {error}; make room there, or let TMPDIR "
            "name another folder"
        ) from error


def _link(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                _link(Path(entry.path), target / entry.name)
            else:
                (target / entry.name).symlink_to(entry.path)


def clear(home: Path) -> None:
    """Remove what `cast` created. The servers' own files stay."""
    for path in home.glob("tablet*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    for path in home.glob(f"{DATABASE_FILE}*"):
        path.unlink(missing_ok=True)


def reserve_of(home: Path, options: Mapping[str, str]) -> DiskReserve:
    """Return the configured reserve of the folder where a lab's servers write; a shadow's refuses every write."""
    if (home / SHADOW_MARK).exists():
        return ReadOnlyDisk(home)
    return DiskReserve(home, DISK_RESERVE.of(options))


class ReadOnlyDisk(DiskReserve):
    """The disk of a lab that is served from its shadow: every write is refused, whatever room there is.

    Args:
        home: The shadow.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home, 0)
        self._lab = os.fsdecode((home / SHADOW_MARK).read_bytes())

    @property
    def is_read_only(self) -> bool:
        """Return True."""
        return True

    @property
    def is_short(self) -> bool:
        """Return True: nothing may be written."""
        return True

    def is_short_for(self, place: Path) -> bool:
        """Return True, for any folder: the lab's metadata could not follow."""
        return True

    def check(self, what: str) -> None:
        """Raise StorageError."""
        raise self._refusal(what)

    def check_writable(self, what: str) -> None:
        """Raise StorageError."""
        raise self._refusal(what)

    @property
    def write_trouble(self) -> str:
        """Return that the lab cannot be written, and what to do."""
        return (
            f"the lab's folder {self._lab} cannot be written, for instance because its file system is mounted read-only: "
            "it is open for reading; to write, make it writable, close the lab and open it again"
        )

    def _refusal(self, what: str) -> StorageError:
        return StorageError(f"{what}: {self.write_trouble}")

    def prepare(self) -> None:
        """Do nothing: there is no reserve."""

    def restore(self) -> None:
        """Do nothing: there is no reserve."""

    def lend(self, action: Callable[[], T]) -> T:
        """Raise StorageError: a drop is a change too."""
        raise self._refusal("nothing was dropped")

    def explain(self, error: BaseException) -> StorageError | None:
        """Return None: the reserve is never the reason."""
        return None

"""The folder of remote storage, ``remote.data.dir``: where the files of a bucket lie in it, and which lab owns it.

Log segments and key-value snapshots lie in ``<remote.data.dir>/<kind>/<database>/<table>-<table id>/[<partition>-p<partition
id>/]<bucket>/``. Names are there for people; ids make the place unique, and are enough to find it.

Two labs in one folder would delete each other's files as left-overs. A folder that is not mounted looks like an empty one:
only the owner's file in it shows the difference.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, cast

from fluss_lab.errors import LabError, StorageError
from fluss_lab.model.config.options import REMOTE_DATA_DIR
from fluss_lab.model.format_versions import check_format
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.storage.file_store import ABSENT, FileStore, ObjectPath, P, Place
from fluss_lab.storage.store_errors import ObjectExistsError, reason_of, store_failure
from fluss_lab.storage.store_location import place_of, store_of

#: Kinds of files.
KV: Final = "kv"
LOG: Final = "log"
#: Characters of a partition's name that may stand in a folder's name on every file system; others become ``_``.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._=+-]")
#: How long an object store that did not answer is not asked again whose it is.
_AWAY_S: Final = 2.0
#: A folder's name may have 255 bytes.
_PARTITION_CHARACTERS_MAX: Final = 100


def remote_root(options: Mapping[str, str], folder: Path) -> Place:
    """Return ``remote.data.dir``; of a server that was not given one, ``remote`` in its own folder."""
    given = REMOTE_DATA_DIR.of(options)
    return place_of(given, options) if given else folder / "remote"


def bucket_folder(remote: P, kind: str, path: TablePath, partition: str | None, bucket: TableBucket) -> P:
    """Return the folder of a bucket's files of one kind. It need not exist.

    Args:
        remote: ``remote.data.dir``.
        kind: `KV` or `LOG`.
        path: The bucket's table.
        partition: Name of its partition; None without partitions.
        bucket: Its ids.
    """
    folder = cast(P, remote / kind / path.database / f"{path.table}-{bucket.table_id}")
    if bucket.partition_id is not None:
        shown = _UNFIT.sub("_", partition or "")[:_PARTITION_CHARACTERS_MAX]
        folder = cast(P, folder / f"{shown}-p{bucket.partition_id}")
    return cast(P, folder / str(bucket.bucket))


def remove_bucket_folders(remote: Place, kind: str, bucket: TableBucket) -> None:
    """Remove a bucket's files of one kind, whatever its table was called, and the folders that are empty then.

    Doing it again does nothing.

    Raises:
        OSError: The file system refused; some files may be left.
    """
    root, store = remote / kind, store_of(remote)
    for database in store.names(root):
        for table in _with_suffix(store, root / database, f"-{bucket.table_id}"):
            parents = [table] if bucket.partition_id is None else _with_suffix(store, table, f"-p{bucket.partition_id}")
            for parent in parents:
                if str(bucket.bucket) in store.names(parent):
                    store.remove_folder(parent / str(bucket.bucket))
                _remove_empty(parent, root)


def _with_suffix(store: FileStore[Place], folder: Place, suffix: str) -> list[Place]:
    return [folder / name for name in store.names(folder) if name.endswith(suffix)]


def _remove_empty(folder: Place, root: Place) -> None:
    """Remove local folders that are empty, from one up to below another."""
    while isinstance(folder, Path) and folder != root:
        with suppress(OSError):  # others are still in it
            folder.rmdir()
        folder = folder.parent


#: Of the JSON form.
FORMAT: Final = 1

log = logging.getLogger(__name__)

OWNER_FILE: Final = "owner.json"
#: Under which name the coordinator keeps its own id, once a folder has it.
META_KEY: Final = "remote_owner"
#: And before that, while it is being written into the folder for the first time.
CLAIM_KEY: Final = "remote_claim"


class Meta(Protocol):
    """Single values that are kept durably."""

    def meta(self, key: str) -> str | None:
        """Return a value by its key."""

    def set_meta(self, key: str, value: str) -> None:
        """Set a value."""


class RemoteDir:
    """``remote.data.dir``, distinguished from another folder in its place. Thread-safe.

    Args:
        path: The folder: absolute, or in an object store.
        owner: The id that its owner's file must have; None: not known, and no file is expected.
    """

    def __init__(self, path: Place, owner: str | None = None) -> None:
        self.path = path
        self.owner = owner
        self._away: tuple[float, StorageError] | None = None

    def check(self) -> None:
        """See that the folder is there, and the lab's own: before what is found or not found in it is believed.

        Raises:
            StorageError: It is not there, or cannot be read; it may come back.
            LabError: It is another lab's.

        Cost: one small file read.
        """
        if self.owner is None:
            return
        if (away := self._away) is not None and time.monotonic() < away[0]:
            raise StorageError(str(away[1]))
        try:
            found = _owner_read(self.path, self.owner)
        except StorageError as failure:
            if isinstance(self.path, ObjectPath):
                # It took all retries to know; others who ask meanwhile need not wait as long.
                self._away = time.monotonic() + _AWAY_S, failure
            raise
        self._away = None
        if found is None:
            raise StorageError(_absent(self.path, self.owner))
        if found != self.owner:
            raise LabError(_foreign(self.path))


def claim_remote(remote: Place, store: Meta) -> None:
    """Make ``remote.data.dir`` a lab's own, when the lab never had one; else only see that it is not another lab's.

    A lab that had one gets no new one: where its owner's file is not, the folder may be one that is not mounted. That is
    logged; what needs the folder is refused until it is there (see `RemoteDir`), and all else goes on.

    Args:
        remote: The folder; made when absent, the first time. In an object store, of two labs that claim it at once one does.
        store: Keeps the lab's id.

    Raises:
        LabError: The folder is another lab's.
        StorageError, AuthenticationError, UnavailableError: It cannot be made or written the first time.
    """
    if (known := store.meta(META_KEY)) is not None:
        try:
            RemoteDir(remote, known).check()
        except StorageError as error:
            log.error("event=remote_absent error=%s", error)
        return
    path, begun = remote / OWNER_FILE, store.meta(CLAIM_KEY)
    try:
        files = store_of(remote)
        files.make_folder(remote)
        found = owner_of(remote)
        if found is not None and found != begun:
            raise LabError(_foreign(remote))
        mine = begun or str(uuid.uuid4())
        if begun is None:
            # Before the folder gets it: a claim that was cut off must not look like another lab's.
            store.set_meta(CLAIM_KEY, mine)
        if found is None:
            files.put(path, (json.dumps({"version": FORMAT, "lab": mine}, indent=1) + "\n").encode(), ABSENT)
    except ObjectExistsError as error:
        raise LabError(_foreign(remote)) from error
    except OSError as error:
        failure = store_failure(f"{_title(remote)} cannot be used", error)
        raise type(failure)(f"{failure}; mount or mend it, or set another one") from error
    store.set_meta(META_KEY, mine)


def is_claimed(remote: Place, values: Mapping[str, str]) -> bool:
    """Return whether a ``remote.data.dir`` is a lab's own; False while no lab has claimed it. It is only looked at.

    Args:
        remote: The folder, or the place in an object store.
        values: The single values of the lab's metadata.

    Raises:
        StorageError: It is the lab's and not there, or cannot be read.
        LabError: It is another lab's, or its owner's file is damaged.
        UnsupportedError: A newer version wrote that.

    Cost: one small file read.
    """
    if (known := values.get(META_KEY)) is not None:
        RemoteDir(remote, known).check()
        return True
    found = _owner_read(remote)
    if found is not None and found != values.get(CLAIM_KEY):
        raise LabError(_foreign(remote))
    return found is not None


def _owner_read(remote: Place, owner: str | None = None) -> str | None:
    try:
        return owner_of(remote, owner)
    except OSError as error:
        raise StorageError(f"{_title(remote)} cannot be read: {reason_of(error)}; mount or mend it") from error


def _title(remote: Place) -> str:
    return f"remote.data.dir {remote}"


def _foreign(remote: Place) -> str:
    return (
        f"{remote}: this remote.data.dir is another lab's ({remote / OWNER_FILE}); give each lab one of its own. If this lab's "
        "metadata.db was lost, or restored from another moment, bring back the one that belongs to the folder: it may hold "
        "the only copy of records. If that lab is gone for good, move the folder away"
    )


def _absent(remote: Place, owner: str) -> str:
    return (
        f"{_title(remote)} is not there: expected the lab's {OWNER_FILE} in it. Mount it, or set remote.data.dir to where its "
        "files are; it is tried again by itself. Only if what was in it is lost for good, write "
        f"{_owner_text(owner)} into {remote / OWNER_FILE} to go on with an empty one: buckets that need what is lost then say so"
    )


def _owner_text(owner: str) -> str:
    return f'{{"version": {FORMAT}, "lab": "{owner}"}}'


def owner_of(remote: Place, owner: str | None = None) -> str | None:
    """Return the id of the lab that a ``remote.data.dir`` is of; None when no lab ever claimed it.

    Args:
        remote: The folder, or the place in an object store.
        owner: Whose it should be, for the error; None: not known.

    Raises:
        LabError: Its owner's file is none.
        UnsupportedError: A newer version wrote it.
        OSError: It cannot be read.
    """
    path = remote / OWNER_FILE
    try:
        value = json.loads(store_of(path).read(path))
        check_format(path, value["version"], FORMAT)
        return str(value["lab"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        again = (
            "" if owner is None else f", or write {_owner_text(owner)} into it if this is the lab's own remote.data.dir"
        )
        raise LabError(
            f"{path}: not the owner's file of a remote.data.dir: {error!r}; restore it from a copy{again}"
        ) from error

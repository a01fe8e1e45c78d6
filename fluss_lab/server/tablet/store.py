"""The buckets of a tablet server, in memory and on the disk.

Paths are made of ids only, so a name used again is another place::

    data/t<table id>/schema-<schema id>.json
    data/t<table id>[/p<partition id>]/b<bucket>/     one bucket's log
    data/trash/                                       deleted buckets, until their files are gone
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.clock import Clock
from fluss_lab.errors import FlussError, NotLeaderError
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.serving import as_fluss_error
from fluss_lab.server.tablet.bucket import Bucket, LakeState
from fluss_lab.server.tablet.handles import HandlePool
from fluss_lab.server.tablet.log import BucketLog, LogOptions
from fluss_lab.server.tablet.logs import BucketLogger
from fluss_lab.server.tablet.tables import Table, kept_schemas

log = logging.getLogger(__name__)

_TRASH: Final = "trash"


def bucket_id(message: pb.PbTableBucket) -> TableBucket:
    """Return the bucket that a message names."""
    return TableBucket(
        message.table_id, message.partition_id if message.HasField("partition_id") else None, message.bucket_id
    )


class BucketStore:
    """All buckets of one tablet server. Safe for threads; finding a bucket takes no lock.

    Args:
        folder: The server's; ``data`` is made in it.
        options: How logs are kept.
        clock: Gives the timestamps.
        waiting_max: Appends that may wait for a predecessor at once.
    """

    def __init__(self, folder: Path, options: LogOptions, clock: Clock, waiting_max: int) -> None:
        self._data = folder / "data"
        self._trash = self._data / _TRASH
        self._options, self._clock = options, clock
        self._pool = HandlePool()
        self._waiting = threading.Semaphore(waiting_max)
        self._lock = threading.Lock()
        self._tables: dict[int, Table] = {}
        self._buckets: dict[TableBucket, Bucket] = {}
        self._failed: dict[TableBucket, FlussError] = {}
        self._lakes: dict[TableBucket, LakeState] = {}
        self._trash.mkdir(parents=True, exist_ok=True)
        self._empty_trash()

    def get(self, bucket: TableBucket) -> Bucket:
        """Return a bucket that is open here.

        Raises:
            NotLeaderError: It is not; it may be elsewhere, or not yet be opened.
            FlussError: It could not be opened: why.
        """
        found = self._buckets.get(bucket)
        if found is None:
            if (failure := self._failed.get(bucket)) is not None:
                raise type(failure)(str(failure))
            raise NotLeaderError(f"bucket {bucket} is not held by this server; refresh the metadata and retry")
        return found

    def table(self, table_id: int) -> Table:
        """Return a table with buckets here.

        Raises:
            NotLeaderError: There is none.
        """
        found = self._tables.get(table_id)
        if found is None:
            raise NotLeaderError(f"table id {table_id} has no buckets on this server; refresh the metadata and retry")
        return found

    def all(self, table_id: int | None = None) -> list[Bucket]:
        """Return the open buckets, of a table or of all, in order."""
        found = [bucket for bucket in list(self._buckets.values()) if table_id in {None, bucket.id.table_id}]
        return sorted(found, key=lambda bucket: bucket.id.sort_key())

    def failures(self, table_id: int) -> dict[TableBucket, FlussError]:
        """Return the buckets of a table that could not be opened, and why."""
        return {bucket: error for bucket, error in list(self._failed.items()) if bucket.table_id == table_id}

    # -- opening -------------------------------------------------------------------------------------------------------

    def open(self, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> Bucket:
        """Open a bucket, making it if there is none, and take over its table's definition.

        Raises:
            FlussError: Why it cannot be opened. It stays unusable until it is opened again.
        """
        bucket = bucket_id(request.table_bucket)
        with self._lock:
            try:
                found = self._open(bucket, request)
            except Exception as error:
                if bucket not in self._buckets:
                    self._failed[bucket] = as_fluss_error(error, f"open bucket {bucket}")
                raise
            self._failed.pop(bucket, None)
            self._buckets[bucket] = found
            return found

    def _open(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> Bucket:
        physical = request.physical_table_path
        path = TablePath(physical.database_name, physical.table_name)
        partition = physical.partition_name if physical.HasField("partition_name") else None
        folder = self._data / f"t{bucket.table_id}"
        table = self._tables.get(bucket.table_id)
        if table is None:
            table = Table(bucket.table_id, path, request.schema_id, kept_schemas(folder))
        _make_folder(folder)
        table.define(request.table_json, request.schema_id, folder)
        self._tables[bucket.table_id] = table
        if (found := self._buckets.get(bucket)) is not None:
            return found
        place = self._folder(bucket)
        _make_folder(place)
        logger = BucketLogger(log, str(path), partition, bucket)
        opened = BucketLog(place, self._options, self._pool, self._clock, logger, self._waiting)
        return Bucket(bucket, table, partition, opened, self._lakes.get(bucket))

    def set_lake(self, bucket: TableBucket, lake: LakeState) -> None:
        """Take note of what the lake holds of a bucket; it may be opened later."""
        with self._lock:
            self._lakes[bucket] = lake
            if (found := self._buckets.get(bucket)) is not None:
                found.lake = lake

    def lake(self, bucket: TableBucket) -> LakeState | None:
        """Return what was last said of a bucket in the lake."""
        return self._lakes.get(bucket)

    # -- closing -------------------------------------------------------------------------------------------------------

    def release(self, bucket: TableBucket, *, delete: bool) -> None:
        """Close a bucket and, if asked, delete its files. Doing it again does nothing.

        Files are first moved aside at once, so that a crash leaves a bucket whole or gone.

        Raises:
            OSError: The file system refused to move them.
        """
        with self._lock:
            found = self._buckets.pop(bucket, None)
            self._failed.pop(bucket, None)
            if found is not None:
                found.log.close(save=not delete)
            if not delete:
                return
            self._lakes.pop(bucket, None)
            folder = self._folder(bucket)
            if folder.exists():
                aside = Path(tempfile.mkdtemp(prefix=f"{bucket}-".replace("/", "-"), dir=self._trash))
                files.replace(folder, aside / folder.name)
                files.fsync_folder(folder.parent)
                self._pool.forget_below(folder)
            self._remove_empty(bucket)
            self._empty_trash()

    def _remove_empty(self, bucket: TableBucket) -> None:
        """Remove the folders of a partition and a table that hold no bucket any more."""
        table = self._data / f"t{bucket.table_id}"
        if bucket.partition_id is not None:
            with suppress(OSError):
                self._folder(bucket).parent.rmdir()
        if not any(path.is_dir() for path in table.glob("*")):
            self._tables.pop(bucket.table_id, None)
            shutil.rmtree(table, ignore_errors=True)

    def _empty_trash(self) -> None:
        for path in self._trash.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Close all buckets, each with a recovery point at its end."""
        with self._lock:
            for bucket in self._buckets.values():
                bucket.log.close()

    def _folder(self, bucket: TableBucket) -> Path:
        folder = self._data / f"t{bucket.table_id}"
        if bucket.partition_id is not None:
            folder /= f"p{bucket.partition_id}"
        return folder / f"b{bucket.bucket}"


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        files.fsync_folder(folder.parent)

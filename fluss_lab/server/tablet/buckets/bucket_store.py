"""The buckets of a tablet server, in memory and on the disk.

Paths are made of ids only, so a name used again is another place::

    data/t<table id>/schema-<schema id>.json
    data/t<table id>[/p<partition id>]/b<bucket>/     one bucket's log
    data/trash/                                       deleted buckets, until their files are gone
    data/looks/                                       stand-ins for lost logs, while they are examined
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import CorruptDataError, FlussError, NotLeaderError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import bucket_of
from fluss_lab.server.folder.remote_storage import KV, LOG, RemoteDir, bucket_folder
from fluss_lab.server.tablet.buckets.bucket import Bucket, LakeState
from fluss_lab.server.tablet.buckets.bucket_folders import Trash, check_identity, has_folders, make_folder, make_folders
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket, RowOptions
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.buckets.unopened_buckets import UnopenedBuckets, durable_offset_of, partition_of
from fluss_lab.server.tablet.damage import log_cut
from fluss_lab.server.tablet.damage.lost_log import LostLog, copy_beside
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.server.tablet.remote.remote_log import RemoteLog

log = logging.getLogger(__name__)

_TRASH: Final = "trash"
_LOOKS: Final = "looks"
#: Between the steps of a new start of a lost log. Ended at any of them, it can be requested again.
FAILPOINTS: Final = ("tablet.lost.before", "tablet.lost.noted", "tablet.lost.begun")
#: No log gets so far.
OFFSET_MAX: Final = 2**63 - 1
RESTORE_FOLDER: Final = (
    "restore it from a copy, see what it would come to to do without (fluss-lab repair TABLE --skip-corrupt), or drop the table "
    "or partition if nothing of it is needed"
)


class BucketStore:
    """All buckets of one tablet server. Safe for threads; finding a bucket takes no lock.

    Args:
        folder: The server's; ``data`` is made in it.
        options: How logs are kept.
        clock: Gives the timestamps.
        waiting_max: Appends that may wait for a predecessor at once.
        remote, pool: ``remote.data.dir``, and the open files of logs.
        rows: How the rows of primary-key tables are kept.
        reopen_max_ms: Longest wait until a bucket that could not be opened is tried again.
    """

    def __init__(
        self,
        folder: Path,
        options: LogOptions,
        clock: Clock,
        waiting_max: int,
        remote: RemoteDir,
        *,
        pool: HandlePool,
        rows: RowOptions,
        reopen_max_ms: int,
    ) -> None:
        self._data = folder / "data"
        self._remote, self._pool = remote, pool
        self._options, self._clock, self._rows = options, clock, rows
        self._waiting = threading.Semaphore(waiting_max)
        # Held for moments, and while folders are made; a bucket that is being opened is in `_opening`, others that want it wait.
        self._lock = threading.Condition()
        self._opening: set[TableBucket] = set()
        self._tables: dict[int, RegisteredTable] = {}
        self._buckets: dict[TableBucket, Bucket] = {}
        #: The same by table: of a thousand tables each is described by itself.
        self._by_table: defaultdict[int, dict[TableBucket, Bucket]] = defaultdict(dict)
        self._unopened = UnopenedBuckets(clock, reopen_max_ms)
        #: Requests with definitions that could not be taken over.
        self._undefined: dict[int, pb.PbNotifyLeaderAndIsrReqForBucket] = {}
        #: The last request to open each bucket, without definitions.
        self._requests: dict[TableBucket, pb.PbNotifyLeaderAndIsrReqForBucket] = {}
        self._lakes: dict[TableBucket, LakeState] = {}
        #: The newest commit of which the coordinator notified, by bucket.
        self._lake_sequences: dict[TableBucket, int] = {}
        self._trash = Trash(self._data / _TRASH)
        self._looks = self._data / _LOOKS
        shutil.rmtree(self._looks, ignore_errors=True)

    def get(self, bucket: TableBucket) -> Bucket:
        """Return a bucket that is open here.

        Raises:
            NotLeaderError: It is not; it may be elsewhere, or not yet be opened.
            FlussError: It could not be opened: why.
        """
        found = self._buckets.get(bucket)
        if found is None:
            self._unopened.check(bucket)
            raise NotLeaderError(f"bucket {bucket} is not held by this server; refresh the metadata and retry")
        return found

    def table(self, table_id: int) -> RegisteredTable:
        """Return a table with buckets here.

        Raises:
            NotLeaderError: There is none.
            FlussError: None could be opened: why.
        """
        found = self._tables.get(table_id)
        if found is None:
            for error in self._unopened.of_table(table_id).values():
                raise error
            raise NotLeaderError(f"table id {table_id} has no buckets on this server; refresh the metadata and retry")
        return found

    def has_table(self, table_id: int) -> bool:
        """Return whether there are buckets of a table here."""
        return table_id in self._tables

    def all(self, table_id: int | None = None) -> list[Bucket]:
        """Return the open buckets, of a table or of all, in order."""
        held = self._buckets if table_id is None else self._by_table.get(table_id, {})
        found = list(held.values())  # at once, whatever is opened meanwhile
        return sorted(found, key=lambda bucket: bucket.id.sort_key())

    def failures(self, table_id: int | None = None) -> dict[TableBucket, FlussError]:
        """Return the buckets of a table, or of all, that could not be opened, and why."""
        found = self._unopened.of_table(table_id)
        # One that is open may not have taken over a new definition: that is tried again too, and it serves meanwhile.
        return {bucket: error for bucket, error in found.items() if bucket not in self._buckets}

    # -- opening -------------------------------------------------------------------------------------------------------

    def define(self, requests: Sequence[pb.PbNotifyLeaderAndIsrReqForBucket]) -> None:
        """Take over the tables that requests define, before any of their buckets is opened.

        Of a table's requests in one call the first brings the definition. For one that cannot be taken over `open`
        raises.
        """
        for request in requests:
            if request.table_json:
                with self._lock, suppress(Exception):
                    self._define(bucket_of(request.table_bucket), request)

    def make_new_folders(self, requests: Sequence[pb.PbNotifyLeaderAndIsrReqForBucket]) -> None:
        """Make the folders of new buckets of defined tables together, before they are opened; `open` makes those it lacks."""
        made = [bucket_of(request.table_bucket) for request in requests if not request.HasField("durable_offset")]
        with self._lock, suppress(OSError):
            new = [self.folder(each) for each in made if each not in self._buckets and each.table_id in self._tables]
            if len(new) > 1:
                make_folders(new, self._data)

    def reopen(self) -> int:
        """Try again to open the buckets that could not be opened and are due; return how many are open now."""
        due = self._unopened.due()
        with self._lock:  # a newer definition comes before or after, never in between
            self.define(list(self._undefined.values()))
        opened = 0
        for request in due:
            with suppress(FlussError):
                opened += self.open(request, again=True) is not None
        return opened

    def open(self, request: pb.PbNotifyLeaderAndIsrReqForBucket, *, again: bool = False) -> Bucket | None:
        """Open a bucket, making it if there is none, and take over its table's definition.

        Args:
            request: The coordinator's.
            again: Only if it could not be opened before and is still wanted.

        Returns:
            The bucket; None when it is no longer wanted.

        Raises:
            FlussError: Why it cannot be opened; it names bucket, cause and remedy. It is tried again by `reopen`.
        """
        bucket = bucket_of(request.table_bucket)
        with self._lock:
            self._lock.wait_for(lambda: bucket not in self._opening)
            if again and bucket not in self._unopened:
                return self._buckets.get(bucket)
            self._requests[bucket] = _without_definition(request)
            try:
                table = self._define(bucket, self._newest(request))
                if (found := self._buckets.get(bucket)) is not None:
                    self._unopened.forget(bucket)
                    return found
                self._make_bucket(bucket, request)
            except Exception as error:
                raise self._unopened.note(request, error) from error
            self._opening.add(bucket)
        with self._ending_open(bucket, request):
            # Beside others: what takes time is reading, checking and replaying.
            return self._register(self._open(bucket, table, partition_of(request), durable_offset_of(request)))

    def durable_offset(self, bucket: TableBucket) -> int:
        """Return up to where an open bucket's log was on the device, as the coordinator knew when it was opened; 0 if new."""
        request = self._requests.get(bucket)
        return request.durable_offset if request is not None else 0

    def renew(self, bucket: TableBucket, change: Callable[[Bucket], None]) -> Bucket:
        """Close a bucket, have its files changed, and open it again. Meanwhile calls get `NotLeaderError` and retry.

        Raises:
            NotLeaderError: It is not open here.
            FlussError: The change failed, or it cannot be opened: it is tried again by `reopen`.
        """
        with self._lock:
            self._lock.wait_for(lambda: bucket not in self._opening)
            found, request = self.get(bucket), self._requests[bucket]
            self._unregister(bucket)
            self._opening.add(bucket)
        with self._ending_open(bucket, request):
            _close(found, save=False)
            change(found)
            self._pool.forget_below(self.folder(bucket))
            return self._register(self._open(bucket, found.table, found.partition, durable_offset_of(request)))

    # -- logs that are gone --------------------------------------------------------------------------------------------

    def is_lost(self, bucket: TableBucket) -> bool:
        """Return whether a bucket cannot be opened, and no segment of its log is left; it is tried to open it first."""
        if (request := self._unopened.request(bucket)) is not None:
            with suppress(FlussError):
                self.open(request, again=True)
        is_unopened = bucket in self._unopened and bucket not in self._buckets
        return is_unopened and bucket.table_id in self._tables and not segment_bases(self.folder(bucket))

    @contextmanager
    def stand_in(self, bucket: TableBucket) -> Iterator[tuple[Bucket, Path]]:
        """Open an empty log instead of a lost one, elsewhere, and give it and its folder: to be looked at in the block.

        Raises:
            NotLeaderError: The bucket is open meanwhile, or not wanted.
            FlussError, OSError: As `LostLog.of`.
        """
        request = self._lost_request(bucket)
        self._looks.mkdir(exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=self._looks))
        try:
            check_identity(place, request.identity, adopt=True)
            copy_beside(self.folder(bucket), place)
            lost = self._lost_log(bucket, request)
            lost.note(place)
            lost.begin(place)
            opened = self._open(bucket, self._tables[bucket.table_id], partition_of(request), None, place)
            opened.lake = self._lakes.get(bucket)
            try:
                yield opened, place
            finally:
                _close(opened, save=False)
                self._pool.forget_below(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def begin_anew(self, bucket: TableBucket) -> Bucket:
        """Lay an empty log where one is lost, and open it: damaged up to where it is known to have been.

        Raises:
            NotLeaderError: The bucket is not wanted here.
            FlussError, OSError: As `LostLog.of`, and as `open`.
        """
        if (found := self._buckets.get(bucket)) is not None:
            request = self._requests[bucket]
            lost = self._lost_log(bucket, request).with_log(found.log)
            return self.renew(bucket, lambda _: self._lay(bucket, request, lost))
        request = self._lost_request(bucket)
        self._lay(bucket, request, self._lost_log(bucket, request))
        self.open(request, again=True)
        return self.get(bucket)

    def _lay(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket, lost: LostLog) -> None:
        folder = self.folder(bucket)
        make_folder(folder)
        check_identity(folder, request.identity, adopt=request.adopt_unmarked)
        failpoint("tablet.lost.before")
        lost.note(folder)
        failpoint("tablet.lost.noted")
        lost.begin(folder)
        failpoint("tablet.lost.begun")

    def _lost_request(self, bucket: TableBucket) -> pb.PbNotifyLeaderAndIsrReqForBucket:
        request = self._unopened.request(bucket)
        if request is None:
            raise NotLeaderError(
                f"bucket {bucket} is open meanwhile, or not held by this server; describe its damage again"
            )
        return request

    def _lost_log(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> LostLog:
        folder, table = self.folder(bucket), self._tables[bucket.table_id]
        if folder.exists() and any(folder.iterdir()):
            check_identity(folder, request.identity, adopt=request.adopt_unmarked)
        self._remote.check()
        partition = partition_of(request)
        away = [bucket_folder(self._remote.path, kind, table.path, partition, bucket) for kind in (LOG, KV)]
        return LostLog.of(
            folder, bucket, self._lakes.get(bucket), remote=away[0], snapshots=away[1],
            durable_offset=request.durable_offset,
        )  # fmt: skip

    @contextmanager
    def _ending_open(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> Iterator[None]:
        """Note why a bucket cannot be opened in the block, and let others have it behind the block."""
        try:
            yield
        except Exception as error:
            raise self._unopened.note(request, error) from error
        finally:
            with self._lock:
                self._opening.discard(bucket)
                self._lock.notify_all()

    def _register(self, bucket: Bucket) -> Bucket:
        with self._lock:
            bucket.lake = self._lakes.get(bucket.id)
            self._buckets[bucket.id] = self._by_table[bucket.id.table_id][bucket.id] = bucket
            self._unopened.forget(bucket.id)
            return bucket

    def _unregister(self, bucket: TableBucket) -> Bucket | None:
        """Take a bucket out, in the lock; return it if it was open."""
        of_table = self._by_table.get(bucket.table_id, {})
        of_table.pop(bucket, None)
        if not of_table:
            self._by_table.pop(bucket.table_id, None)
        return self._buckets.pop(bucket, None)

    def _newest(self, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> pb.PbNotifyLeaderAndIsrReqForBucket:
        """Return a request with what is still to be taken over of its table: its own definition may be outdated by now."""
        table_id = request.table_bucket.table_id
        if not request.table_json or (table_id not in self._undefined and table_id not in self._tables):
            return request
        return self._undefined.get(table_id) or _without_definition(request)

    def _define(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> RegisteredTable:
        folder = self._data / f"t{bucket.table_id}"
        if request.table_json:
            self._undefined[bucket.table_id] = request
        table = self._tables.get(bucket.table_id)
        if table is None:
            table = RegisteredTable.load(request, folder)
        make_folder(folder)
        table.define(request, folder)
        self._tables[bucket.table_id] = table
        if request.table_json:
            del self._undefined[bucket.table_id]
        return table

    def _make_bucket(self, bucket: TableBucket, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> None:
        folder = self.folder(bucket)
        # An empty folder is a new bucket's, of which nothing was on the device, or one that is just being restored.
        lost = not folder.exists() or (request.durable_offset > 0 and not any(folder.iterdir()))
        if request.HasField("durable_offset") and lost:
            raise CorruptDataError(
                f"{folder} is gone or empty, with a log that was on the device up to offset {request.durable_offset}; "
                f"{RESTORE_FOLDER}"
            )
        make_folder(folder)
        check_identity(folder, request.identity, adopt=request.adopt_unmarked)

    def _open(
        self,
        bucket: TableBucket,
        table: RegisteredTable,
        partition: str | None,
        durable_offset: int | None,
        place: Path | None = None,
    ) -> Bucket:
        place = place or self.folder(bucket)
        given_up = log_cut.finish(place)
        logger = BucketLogger(log, str(table.path), partition, bucket)
        has_rows = bool(table.descriptor.schema.primary_key)
        opened = BucketLog(
            place, self._options, self._pool, self._clock, logger, self._waiting,
            changelog=has_rows, durable_offset=durable_offset,
        )  # fmt: skip
        try:
            kv = KvBucket.open(table, opened, bucket, partition, self._rows, logger) if has_rows else None
            away = bucket_folder(self._remote.path, LOG, table.path, partition, bucket)
            start = opened.start if opened.stopped is None else 0
            # Where a log that was found damaged would end is not known either: remote storage may have what comes behind.
            end = opened.end if opened.reader.ended_by is None else OFFSET_MAX
            remote = RemoteLog(away, place, bucket, (start, end), logger, self._remote.check, opened.stop_for)
        except BaseException:
            opened.close(save=False)
            raise
        return Bucket(bucket, table, partition, opened, kv=kv, remote=remote, given_up=given_up.ranges)

    def set_lake(self, bucket: TableBucket, lake: LakeState | None, sequence: int) -> None:
        """Note what the lake holds of a bucket, None for nothing; it may be opened later.

        Args:
            lake: What the lake holds of it.
            sequence: The commit that made it so; one older than a known one is ignored.
        """
        with self._lock:
            if sequence < self._lake_sequences.get(bucket, sequence):
                return
            self._lake_sequences[bucket] = sequence
            if lake is None:
                self._lakes.pop(bucket, None)
            else:
                self._lakes[bucket] = lake
            if (found := self._buckets.get(bucket)) is not None:
                found.lake = lake

    # -- closing -------------------------------------------------------------------------------------------------------

    def release(self, bucket: TableBucket, *, delete: bool) -> None:
        """Close a bucket and, if requested, delete its files. A repetition does nothing.

        Files are first moved aside at once, so that a crash leaves a bucket whole or gone; then `empty_trash`.

        Raises:
            OSError: The file system refused to move them.
        """
        with self._lock:
            self._lock.wait_for(lambda: bucket not in self._opening)
            found = self._unregister(bucket)
            self._unopened.forget(bucket)
            self._requests.pop(bucket, None)
            if found is not None:
                _close(found, save=not delete)
            if not delete:
                return
            self._lakes.pop(bucket, None)
            self._lake_sequences.pop(bucket, None)
            folder = self.folder(bucket)
            self._trash.take(folder, f"{bucket}-".replace("/", "-"))
            self._pool.forget_below(folder)
            self._remove_empty(bucket)

    def empty_trash(self) -> None:
        """Make durable what `release` deleted, and remove the files. Once for all buckets of a call.

        Raises:
            OSError: The file system refused; the next call tries it again.
        """
        self._trash.empty()

    def _remove_empty(self, bucket: TableBucket) -> None:
        """Remove the folders of a partition and a table that no longer hold a bucket."""
        table = self._data / f"t{bucket.table_id}"
        if bucket.partition_id is not None:
            with suppress(OSError):
                self.folder(bucket).parent.rmdir()
        if not has_folders(table):
            self._tables.pop(bucket.table_id, None)
            self._undefined.pop(bucket.table_id, None)
            shutil.rmtree(table, ignore_errors=True)

    def close(self, *, save: bool = True) -> None:
        """Close all buckets, each with a recovery point at its end if that is to be saved."""
        with self._lock:
            self._lock.wait_for(lambda: not self._opening)
            for bucket in self._buckets.values():
                _close(bucket, save=save)

    def folder(self, bucket: TableBucket) -> Path:
        """Return the folder of a bucket."""
        folder = self._data / f"t{bucket.table_id}"
        if bucket.partition_id is not None:
            folder /= f"p{bucket.partition_id}"
        return folder / f"b{bucket.bucket}"


def _without_definition(request: pb.PbNotifyLeaderAndIsrReqForBucket) -> pb.PbNotifyLeaderAndIsrReqForBucket:
    """Return a request as it is kept for a bucket: its table's definition is kept once, with the table."""
    kept = pb.PbNotifyLeaderAndIsrReqForBucket()
    kept.CopyFrom(request)
    kept.table_json = b""
    kept.ClearField("schemas")
    return kept


def _close(bucket: Bucket, *, save: bool = True) -> None:
    """End all use of a bucket."""
    if bucket.remote is not None:
        bucket.remote.close()
    if bucket.kv is not None:
        bucket.kv.snapshots.close()
    bucket.log.close(save=save)

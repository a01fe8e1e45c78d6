"""The tablet server: answers requests on the buckets it holds, and keeps their logs in the background."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import ConflictError, FlussError, InvalidRequestError, UnsupportedError, error_code
from fluss_lab.model.config import options as opt
from fluss_lab.model.names import TableBucket
from fluss_lab.model.offsets import EARLIEST, LATEST, TIMESTAMP
from fluss_lab.periodic_work import Ticker
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.message_codec import Frame, bucket_of, partition_id_of
from fluss_lab.rpc.serving.grpc_server import as_fluss_error, put_error
from fluss_lab.rpc.serving.unread_answers import AnswerMemory
from fluss_lab.server.folder.read_only_lab import reserve_of
from fluss_lab.server.folder.remote_storage import KV, LOG, RemoteDir, remote_root, remove_bucket_folders
from fluss_lab.server.kv.row_memory import ROWS_FOLDER, RowMemory
from fluss_lab.server.server_metrics import Family
from fluss_lab.server.tablet import tablet_gauges
from fluss_lab.server.tablet.buckets.bucket import Bucket, LakeState, OffsetAnswer
from fluss_lab.server.tablet.buckets.bucket_description import describe_bucket, unknown
from fluss_lab.server.tablet.buckets.bucket_logger import bucket_fields
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.buckets.coordinator_reports import DurableReporter, KvSnapshotReporter
from fluss_lab.server.tablet.buckets.kv_bucket import RowOptions
from fluss_lab.server.tablet.buckets.kv_snapshotter import KvSnapshotter
from fluss_lab.server.tablet.buckets.segment_retention import apply_retention
from fluss_lab.server.tablet.buckets.unopened_buckets import FIRST_WAIT_MS
from fluss_lab.server.tablet.damage.damage_requests import DamageRequests
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.server.tablet.remote.remote_task import RemoteLogTask
from fluss_lab.server.tablet.request_counters import RequestTally
from fluss_lab.server.tablet.requests.bucket_scans import Scanners, limit_scan
from fluss_lab.server.tablet.requests.fetch_log import FetchLog
from fluss_lab.server.tablet.requests.lookup_rows import LookupLimits, lookup, prefix_lookup
from fluss_lab.server.tablet.requests.record_location import locate_record
from fluss_lab.server.tablet.requests.write_payloads import produce, put

log = logging.getLogger(__name__)

#: Bytes by which an answer may exceed its records: ids, offsets and messages of 10,000 buckets.
_ANSWER_MARGIN_BYTES: Final = 1 << 20
#: How often the memory of rows is looked after: no writer fills more than some 100 MB meanwhile.
_ROWS_INTERVAL_MS: Final = 250
#: Memory of answers that are being made, in answers of the largest size; each takes it twice, read and joined.
_BUILT_AT_ONCE: Final = 4
#: Buckets opened side by side: reading and checking run outside the interpreter's lock. More would only hold more
#: memory at once.
_OPENED_AT_ONCE: Final = max(2, min(4, os.cpu_count() or 1))


class TabletService:
    """A tablet server's side of `TabletServerGateway`, and the coordinator's notifications. Safe for threads.

    Args:
        folder: The server's; logs live in ``data`` in it.
        options: Cluster options.
        clock: Gives timestamps and measures ttl.
        coordinator: Returns the coordinator: itself where it is in this process, else a connection to it; None: there
            is none to report to.

    Raises:
        InvalidPropertyError: An option is ill-typed.
        OSError: The folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Mapping[str, str],
        clock: Clock | None = None,
        coordinator: Callable[[], CoordinatorGateway] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._coordinator = coordinator
        # The coordinator's, of the lab's folder, in which this one lies.
        self._reserve = reserve_of(folder.parent, options)
        kept = LogOptions(
            segment_bytes=opt.LOG_SEGMENT_FILE_SIZE.of(options),
            index_interval_bytes=opt.LOG_INDEX_INTERVAL_SIZE.of(options),
            fsync=opt.LOG_DURABILITY.of(options) == "fsync",
            writer_expiration_ms=opt.WRITER_ID_EXPIRATION.of(options),
            check_disk=self._reserve.check,
        )
        self._size_max = opt.REQUEST_SIZE_MAX.of(options)
        # Half of the threads may wait for predecessors: those find a thread among the others.
        self._remote = RemoteDir(remote_root(options, folder))
        retained = opt.KV_SNAPSHOTS_RETAINED.of(options)
        holds = not self._reserve.is_read_only
        self._memory = RowMemory(folder / "data" / ROWS_FOLDER, opt.KV_ROWS_MEMORY_MAX.of(options), self._reserve.check)
        rows = RowOptions(self._remote.path, retained, self._size_max, self._memory, self._remote.check, holds)
        reopen_max_ms = opt.BUCKET_REOPEN_WAIT_MAX.of(options)
        self._store = BucketStore(
            folder, kept, self._clock, max(1, opt.SERVER_THREADS.of(options) // 2), remote=self._remote, rows=rows,
            pool=HandlePool(check=self._reserve.check_place), reopen_max_ms=reopen_max_ms,
        )  # fmt: skip
        self._answer_max = max(self._size_max - _ANSWER_MARGIN_BYTES, self._size_max // 2)
        self._answer_memory = AnswerMemory(_BUILT_AT_ONCE * self._answer_max)
        self._lookup_limits = LookupLimits(opt.LOOKUP_KEYS_MAX.of(options), self._answer_max)
        ttl_ms = opt.SCANNER_TTL.of(options)
        self._scanners = Scanners(
            self._store, scanners_max=opt.SCANNERS_MAX.of(options), ttl_ms=ttl_ms,
            crowded_ttl_ms=opt.SCANNER_TTL_CROWDED.of(options), clock=self._clock,
        )  # fmt: skip
        self._tickers = [
            Ticker("tablet-flush", opt.LOG_FLUSH_INTERVAL.of(options), self.flush),
            Ticker("tablet-retention", opt.LOG_RETENTION_CHECK_INTERVAL.of(options), self.apply_retention),
            Ticker("tablet-reopen", min(FIRST_WAIT_MS, reopen_max_ms), self.reopen),
            Ticker("tablet-scanners", max(1, ttl_ms // 2), self._expire),
            Ticker("tablet-rows", _ROWS_INTERVAL_MS, self.look_after_rows),
        ]
        self._tally = RequestTally(self._store.has_table)
        self._closing = threading.Event()
        self._retention_problems: dict[TableBucket, str] = {}
        self._epoch_lock = threading.Lock()
        self._coordinator_epoch = -1
        self._snapshots = KvSnapshotter(
            self._store.all,
            self._clock,
            interval_ms=opt.KV_SNAPSHOT_INTERVAL.of(options),
            reporter=KvSnapshotReporter(coordinator, lambda: self._coordinator_epoch),
        )
        self._damage = DamageRequests(
            self._store, self._snapshots, self._scanners, self._reserve, self._clock, rows_ttl_ms=ttl_ms,
            size_max=self._size_max,
        )  # fmt: skip
        self._reporter = DurableReporter(self._store.all, coordinator, lambda: self._coordinator_epoch)
        self._report_ticker = Ticker("tablet-reports", opt.BUCKET_REPORT_INTERVAL.of(options), self._reporter.report)
        self._tickers.append(self._report_ticker)
        self._remote_lock = threading.Lock()
        self._remote_task = RemoteLogTask(self._store.all, self._clock, self._closing.is_set)
        if interval_ms := opt.REMOTE_LOG_INTERVAL.of(options):
            self._tickers.append(Ticker("tablet-remote-log", interval_ms, self.copy_to_remote))
        self._tickers.append(Ticker("tablet-kv-snapshots", self._snapshots.look_interval_ms, self._look_for_snapshots))

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to flush and to apply retention in the background."""
        for ticker in self._tickers:
            ticker.start()
        self._report_ticker.soon()

    def interrupt(self) -> None:
        """Make every waiting fetch answer at once, now and from now on: for a server that is about to stop."""
        self._closing.set()
        for bucket in self._store.all():
            bucket.log.reader.wake()

    def close(self) -> None:
        """End: waiting calls answer, logs are made durable with a recovery point at their ends. Closing again does nothing."""
        self.interrupt()
        for bucket in self._store.all():
            if bucket.remote is not None:
                bucket.remote.close()
        self._memory.close()
        for ticker in self._tickers:
            ticker.stop()
        is_read_only = self._reserve.is_read_only
        if not is_read_only:
            self._snapshots.take_all()
        self._store.close(save=not is_read_only)
        self._reporter.report()

    def reopen(self) -> None:
        """Try again to open what could not be opened, each bucket when its turn has come."""
        if opened := self._store.reopen():
            log.info("event=reopened buckets=%d", opened)

    def flush(self) -> None:
        """Make every log durable, and write the recovery points that are due. One bucket's failure is only logged."""
        for bucket in self._store.all():
            # Looked at before each: a pass over many logs takes seconds.
            if self._reserve.is_read_only:
                return
            try:
                bucket.log.flush()
            except FlussError as error:
                log.error("%s", error, extra=bucket.log_fields)

    def apply_retention(self, now_ms: int | None = None) -> int:
        """Drop the segments past their table's ttl (of lake-enabled tables only what the lake holds).

        Args:
            now_ms: The moment to judge by; the clock's when None.

        Returns:
            How many segments were dropped. One bucket's failure is only logged.
        """
        if self._reserve.is_read_only:
            return 0
        moment = self._clock.now_ms() if now_ms is None else now_ms
        dropped, problems = 0, {}
        for bucket in self._store.all():
            try:
                dropped += apply_retention(bucket, moment)
            except FlussError as error:
                problems[bucket.id] = str(error)
                if self._retention_problems.get(bucket.id) != str(error):  # logged once, not with every pass
                    log.error("event=retention_refused error=%s", error, extra=bucket.log_fields)
        self._retention_problems = problems
        return dropped

    def copy_to_remote(self) -> int:
        """Copy to remote storage what was rolled, and drop what need not stay here; return how many segments were copied.

        One bucket's failure is only logged. A background thread does it every ``remote.log.task-interval-duration``.
        """
        if self._is_remote_short():
            return 0
        with self._remote_lock:
            return self._remote_task.run()

    def look_after_rows(self) -> int:
        """Write rows to files if too many are in memory; return how many bytes."""
        return self._memory.look()

    def _expire(self) -> None:
        self._scanners.expire()
        self._damage.expire()

    def _look_for_snapshots(self) -> None:
        if not self._is_remote_short():
            self._snapshots.tick()

    def _is_remote_short(self) -> bool:
        """Return whether nothing may be written to remote storage: its disk's reserve is used up, or the lab is read-only."""
        if not isinstance(self._remote.path, Path):
            return self._reserve.is_read_only
        return self._reserve.is_short_for(self._remote.path)

    def snapshot_now(self, bucket: TableBucket) -> CompletedSnapshot | None:
        """Take a key-value snapshot of a bucket, unless nothing changed since its last one; return the newest one.

        Raises:
            NotLeaderError: The bucket is not open here.
            UnsupportedError: It is of a log table.
            StorageError, CorruptDataError: As `KvSnapshotter.take`.
        """
        found = self._store.get(bucket)
        if found.kv is None:
            raise UnsupportedError(f"{found.table.path} has no primary key, and so no key-value snapshots")
        return self._snapshots.take(found)

    def note_answer(self, method: str, request: object, response: object) -> None:
        """Note a request and its answer, for the metrics."""
        self._tally.note_answer(method, request, response)

    def note_unawaited(self, method: str, request: Any, response: Any) -> None:
        """End the scan whose first answer nobody awaits: its caller does not know of it."""
        if method == "scan_kv" and not request.HasField("scanner_id"):
            self._scanners.end(response.message.scanner_id)

    def metrics(self) -> Iterator[Family]:
        """Yield what there is to measure of the buckets held here."""
        return tablet_gauges.families(self._store.all(), self._tally.tables, len(self._store.failures()))

    # -- records -------------------------------------------------------------------------------------------------------

    def produce_log(self, request: Frame[pb.ProduceLogRequest], /) -> pb.ProduceLogResponse:
        """Append each bucket's payload, all of its batches or none; one bucket's error is in its own answer."""
        return produce(self._store, request, self._size_max)

    def fetch_log(self, request: pb.FetchLogRequest, /) -> Frame[pb.FetchLogResponse]:
        """Return batches of each bucket from an offset on, waiting for them up to ``max_wait_ms``."""
        return FetchLog(
            self._store, request, self._answer_max, self._closing.is_set, self._answer_memory, self._damage.confirm
        ).run()

    # -- primary-key tables --------------------------------------------------------------------------------------------

    def put_kv(self, request: Frame[pb.PutKvRequest], /) -> pb.PutKvResponse:
        """Change rows, all of each bucket's batch or none; one bucket's error is in its own answer."""
        return put(self._store, request)

    def lookup(self, request: Frame[pb.LookupRequest], /) -> Frame[pb.LookupResponse]:
        """Return the row of each key that has one; one bucket's error is in its own answer."""
        return lookup(self._store, request, self._lookup_limits)

    def prefix_lookup(self, request: Frame[pb.PrefixLookupRequest], /) -> Frame[pb.PrefixLookupResponse]:
        """Return all rows whose key begins with each prefix; one bucket's error is in its own answer."""
        return prefix_lookup(self._store, request, self._lookup_limits)

    def limit_scan(self, request: pb.LimitScanRequest, /) -> Frame[pb.LimitScanResponse]:
        """Return a few rows of a bucket: any of a primary-key table, the latest of a log table."""
        return limit_scan(self._store, request, self._answer_max)

    def scan_kv(self, request: pb.ScanKvRequest, /) -> Frame[pb.ScanKvResponse]:
        """Return all live rows of a bucket at one moment, in several calls."""
        return self._scanners.scan(request)

    # -- offsets and state ---------------------------------------------------------------------------------------------

    def list_offsets(self, request: pb.ListOffsetsRequest, /) -> pb.ListOffsetsResponse:
        """Return an offset of each bucket: see `Bucket`; one bucket's error is in its own answer."""
        if request.offset_type not in {EARLIEST, LATEST, TIMESTAMP}:
            raise InvalidRequestError(f"offset_type: expected 0, 1 or 2, found {request.offset_type}")
        if request.offset_type == TIMESTAMP and not request.HasField("startTimestamp"):
            raise InvalidRequestError("startTimestamp: expected a time with offset_type 2, found none")
        partition_id = partition_id_of(request)
        response = pb.ListOffsetsResponse()
        for number in request.bucket_id:
            answer = response.buckets_resp.add(bucket_id=number)
            bucket = TableBucket(request.table_id, partition_id, number)
            try:
                found = _offset(self._store.get(bucket), request)
            except Exception as error:
                put_error(answer, error, f"list offsets of {bucket}")
                continue
            if found.offset is not None:
                answer.offset = found.offset
            if found.timestamp_ms is not None:
                answer.timestamp = found.timestamp_ms
            if found.lake_snapshot_id is not None:
                answer.lake_snapshot_id = found.lake_snapshot_id
        return response

    def describe_buckets(self, request: pb.DescribeBucketsRequest, /) -> pb.DescribeBucketsResponse:
        """Return how each bucket of a table on this server is, those that failed to open included: known, or an error."""
        response = pb.DescribeBucketsResponse()
        for bucket in self._store.all(request.table_id):
            response.buckets.append(describe_bucket(bucket))
        for failed, error in self._store.failures(request.table_id).items():
            response.buckets.append(unknown(failed, error))
        return response

    def locate_record(self, request: pb.LocateRecordRequest, /) -> pb.LocateRecordResponse:
        """Return where a record of a bucket's log lies, on this disk and in remote storage."""
        return locate_record(self._store.get(bucket_of(request)), request.log_offset)

    # -- damage --------------------------------------------------------------------------------------------------------

    def describe_damage(self, request: pb.DescribeDamageRequest, /) -> pb.DescribeDamageResponse:
        """Return what cannot be read of a bucket's log, after reading every byte of it: see `bucket_damage.find_damage`."""
        return self._damage.describe(request)

    def send_rows(self, request: Frame[pb.SendRowsRequest], /) -> pb.SendRowsResponse:
        """Keep rows of a primary-key bucket for the cut that follows: see `UploadedRows`."""
        return self._damage.take_rows(request)

    def give_up_range(self, request: pb.GiveUpRangeRequest, /) -> pb.GiveUpRangeResponse:
        """Have a bucket's log begin behind its first damaged range: see `bucket_damage` for what that must not lose."""
        return self._damage.give_up(request)

    # -- notifications of the coordinator ------------------------------------------------------------------------------

    def notify_leader_and_isr(self, request: pb.NotifyLeaderAndIsrRequest, /) -> pb.NotifyLeaderAndIsrResponse:
        """Open buckets, or take over their table's new definition."""
        answers = self.open_buckets(request.notify_buckets_leader_req, request.coordinator_epoch)
        return pb.NotifyLeaderAndIsrResponse(notify_buckets_leader_resp=answers)

    def expect_remote(self, owner: str | None) -> None:
        """Note the owner of ``remote.data.dir``, before any bucket is opened; None: it is not checked."""
        self._remote.owner = owner

    def open_buckets(
        self, buckets: Iterable[pb.PbNotifyLeaderAndIsrReqForBucket], coordinator_epoch: int
    ) -> list[pb.PbNotifyLeaderAndIsrRespForBucket]:
        """Open buckets, or take over their table's new definition; return an answer each, in order.

        Raises:
            ConflictError: A newer coordinator has spoken.
        """
        self._check_epoch(coordinator_epoch)
        requests = list(buckets)
        self._store.define(requests)
        self._store.make_new_folders(requests)
        if len(requests) < _OPENED_AT_ONCE:
            return [self._open_bucket(request) for request in requests]
        with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="tablet-open") as pool:
            return list(pool.map(self._open_bucket, requests))

    def _open_bucket(self, request: pb.PbNotifyLeaderAndIsrReqForBucket) -> pb.PbNotifyLeaderAndIsrRespForBucket:
        answer = pb.PbNotifyLeaderAndIsrRespForBucket(table_bucket=request.table_bucket)
        try:
            self._store.open(request)
        except Exception as error:
            known = as_fluss_error(error, f"open bucket {bucket_of(request.table_bucket)}")
            path = request.physical_table_path
            fields = bucket_fields(
                f"{path.database_name}.{path.table_name}", path.partition_name or None, bucket_of(request.table_bucket)
            )
            log.error("the bucket could not be opened: %s", known, extra=fields)
            answer.error_code, answer.error_message = error_code(known), str(known)
        return answer

    def stop_replica(self, request: pb.StopReplicaRequest, /) -> pb.StopReplicaResponse:
        """Close buckets, and delete their files where requested; or only close them to writes: see `Seal`.

        A repetition does nothing.
        """
        self._check_epoch(request.coordinator_epoch)
        response = pb.StopReplicaResponse()
        for each in request.stop_replicas_req:
            answer = response.stop_replicas_resp.add(table_bucket=each.table_bucket)
            try:
                self._stop_bucket(each, answer)
            except Exception as error:
                put_error(answer, error, f"stop bucket {bucket_of(each.table_bucket)}")
        if any(each.delete for each in request.stop_replicas_req):
            self._end_deletion(request, response)
        return response

    def _end_deletion(self, request: pb.StopReplicaRequest, response: pb.StopReplicaResponse) -> None:
        try:
            self._store.empty_trash()
        except OSError as error:
            for each, answer in zip(request.stop_replicas_req, response.stop_replicas_resp, strict=True):
                if each.delete:
                    put_error(answer, error, f"delete bucket {bucket_of(each.table_bucket)}")

    def _stop_bucket(self, each: pb.PbStopReplicaReqForBucket, answer: pb.PbStopReplicaRespForBucket) -> None:
        bucket = bucket_of(each.table_bucket)
        if each.unseal:
            self._store.get(bucket).log.unseal(each.seal_number)
        elif each.HasField("seal_at_offset"):
            log = self._store.get(bucket).log
            answer.log_end_offset = log.seal_at(each.seal_at_offset, each.seal_number)
            answer.log_max_timestamp = log.max_timestamp_ms
        else:
            if each.delete:
                self._reserve.check_place(f"{bucket} was not deleted")
            self._store.release(bucket, delete=each.delete)
            self._scanners.close_bucket(bucket)
            if each.delete and not self._reserve.is_read_only:
                self._remote.check()
                for kind in (KV, LOG):
                    remove_bucket_folders(self._remote.path, kind, bucket)

    def notify_lake_table_offset(self, request: pb.NotifyLakeTableOffsetRequest, /) -> pb.NotifyLakeTableOffsetResponse:
        """Note what the lake holds."""
        self._check_epoch(request.coordinator_epoch)
        self.set_lake_offsets(request.notify_buckets_req)
        return pb.NotifyLakeTableOffsetResponse()

    def set_lake_offsets(self, buckets: Iterable[pb.PbNotifyLakeTableOffsetReqForBucket]) -> None:
        """Note what the lake holds of buckets, open or not; the newest commit counts.

        A message without end offset is about a bucket of which the lake holds nothing, perhaps because it was removed.
        """
        for each in buckets:
            lake = None
            if each.HasField("log_end_offset"):
                max_timestamp_ms = each.log_max_timestamp if each.HasField("log_max_timestamp") else -1
                lake = LakeState(each.snapshot_id, each.log_start_offset, each.log_end_offset, max_timestamp_ms)
            self._store.set_lake(bucket_of(each), lake, each.commit_sequence)

    def _check_epoch(self, epoch: int) -> None:
        with self._epoch_lock:
            if epoch < self._coordinator_epoch:
                raise ConflictError(
                    f"coordinator epoch {epoch}: epoch {self._coordinator_epoch} has spoken; a newer coordinator is running"
                )
            self._coordinator_epoch = epoch


def _offset(bucket: Bucket, request: pb.ListOffsetsRequest) -> OffsetAnswer:
    enable_lake = request.enable_lake and not request.local_only
    if request.offset_type == EARLIEST:
        return bucket.earliest(enable_lake=enable_lake)
    if request.offset_type == LATEST:
        return bucket.latest(durable=request.durable)
    return bucket.at_time(request.startTimestamp, enable_lake=enable_lake, raise_clock=request.raise_clock)

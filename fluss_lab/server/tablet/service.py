"""The tablet server: answers requests on the buckets it holds, and keeps their logs in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import ConflictError, FlussError, InvalidRequestError, error_code
from fluss_lab.model import options as opt
from fluss_lab.model.names import TableBucket
from fluss_lab.model.offsets import EARLIEST, LATEST, TIMESTAMP
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.codec import Frame
from fluss_lab.rpc.serving import as_fluss_error
from fluss_lab.server.tablet.bucket import Bucket, LakeState, OffsetAnswer
from fluss_lab.server.tablet.fetch import FetchLog
from fluss_lab.server.tablet.log import LogOptions
from fluss_lab.server.tablet.produce import produce
from fluss_lab.server.tablet.store import BucketStore, bucket_id
from fluss_lab.server.tablet.ticker import Ticker

log = logging.getLogger(__name__)

#: Bytes by which an answer may exceed its records: ids, offsets and messages of 10,000 buckets.
_ANSWER_MARGIN_BYTES: Final = 1 << 20


class TabletService:
    """A tablet server's side of `TabletServerGateway`, and what the coordinator tells it. Safe for threads.

    Args:
        folder: The server's; logs live in ``data`` in it.
        options: Cluster options.
        clock: Gives timestamps and measures ttl.

    Raises:
        InvalidPropertyError: An option is ill-typed.
        OSError: The folder cannot be used.
    """

    def __init__(self, folder: Path, *, options: Mapping[str, str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        kept = LogOptions(
            segment_bytes=opt.LOG_SEGMENT_FILE_SIZE.of(options),
            index_interval_bytes=opt.LOG_INDEX_INTERVAL_SIZE.of(options),
            fsync=opt.LOG_DURABILITY.of(options) == "fsync",
            writer_expiration_ms=opt.WRITER_ID_EXPIRATION.of(options),
        )
        self._size_max = opt.REQUEST_SIZE_MAX.of(options)
        # Half of the threads may wait for predecessors: those find a thread among the others.
        self._store = BucketStore(folder, kept, self._clock, max(1, opt.SERVER_THREADS.of(options) // 2))
        self._tickers = [
            Ticker("tablet-flush", opt.LOG_FLUSH_INTERVAL.of(options), self.flush),
            Ticker("tablet-retention", opt.LOG_RETENTION_CHECK_INTERVAL.of(options), self.apply_retention),
        ]
        self._closing = threading.Event()
        self._epoch_lock = threading.Lock()
        self._coordinator_epoch = -1

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to flush and to apply retention in the background."""
        for ticker in self._tickers:
            ticker.start()

    def interrupt(self) -> None:
        """Let every waiting fetch answer at once, now and from now on: for a server that is about to stop."""
        self._closing.set()
        for bucket in self._store.all():
            bucket.log.reader.wake()

    def close(self) -> None:
        """End: waiting calls answer, logs are made durable with a recovery point at their ends. Closing again is fine."""
        self.interrupt()
        for ticker in self._tickers:
            ticker.stop()
        self._store.close()

    def flush(self) -> None:
        """Make every log durable, and write the recovery points that are due. One bucket's failure is only logged."""
        for bucket in self._store.all():
            try:
                bucket.log.flush()
            except FlussError as error:
                log.error("%s", error)

    def apply_retention(self, now_ms: int | None = None) -> int:
        """Drop the segments past their table's ttl (of lake-enabled tables only what the lake holds).

        Args:
            now_ms: The moment to judge by; the clock's when None.

        Returns:
            How many segments were dropped. One bucket's failure is only logged.
        """
        moment = self._clock.now_ms() if now_ms is None else now_ms
        dropped = 0
        for bucket in self._store.all():
            try:
                dropped += bucket.apply_retention(moment)
            except FlussError as error:
                log.error("%s", error)
        return dropped

    # -- records -------------------------------------------------------------------------------------------------------

    def produce_log(self, request: Frame[pb.ProduceLogRequest], /) -> pb.ProduceLogResponse:
        """Append each bucket's payload, all of its batches or none; one bucket's error is in its own answer."""
        return produce(self._store, request, self._size_max)

    def fetch_log(self, request: pb.FetchLogRequest, /) -> Frame[pb.FetchLogResponse]:
        """Return batches of each bucket from an offset on, waiting for them up to ``max_wait_ms``."""
        size_max = max(self._size_max - _ANSWER_MARGIN_BYTES, self._size_max // 2)
        return FetchLog(self._store, request, size_max, self._closing.is_set).run()

    def list_offsets(self, request: pb.ListOffsetsRequest, /) -> pb.ListOffsetsResponse:
        """Return an offset of each bucket asked: see `Bucket`; one bucket's error is in its own answer."""
        if request.offset_type not in {EARLIEST, LATEST, TIMESTAMP}:
            raise InvalidRequestError(f"offset_type: expected 0, 1 or 2, found {request.offset_type}")
        if request.offset_type == TIMESTAMP and not request.HasField("startTimestamp"):
            raise InvalidRequestError("startTimestamp: expected a time with offset_type 2, found none")
        partition_id = request.partition_id if request.HasField("partition_id") else None
        response = pb.ListOffsetsResponse()
        for number in request.bucket_id:
            answer = response.buckets_resp.add(bucket_id=number)
            bucket = TableBucket(request.table_id, partition_id, number)
            try:
                found = _offset(self._store.get(bucket), request)
            except Exception as error:
                known = as_fluss_error(error, f"list offsets of {bucket}")
                answer.error_code, answer.error_message = error_code(known), str(known)
                continue
            answer.offset = found.offset
            if found.timestamp_ms is not None:
                answer.timestamp = found.timestamp_ms
            if found.lake_snapshot_id is not None:
                answer.lake_snapshot_id = found.lake_snapshot_id
        return response

    def describe_buckets(self, request: pb.DescribeBucketsRequest, /) -> pb.DescribeBucketsResponse:
        """Return what there is of each bucket of a table on this server, those that failed to open included."""
        response = pb.DescribeBucketsResponse()
        for bucket in self._store.all(request.table_id):
            response.buckets.append(_description(bucket))
        for failed, error in self._store.failures(request.table_id).items():
            response.buckets.append(_no_description(failed, error))
        return response

    # -- what the coordinator tells ------------------------------------------------------------------------------------

    def notify_leader_and_isr(self, request: pb.NotifyLeaderAndIsrRequest, /) -> pb.NotifyLeaderAndIsrResponse:
        """Open buckets, or take over their table's new definition."""
        answers = self.open_buckets(request.notify_buckets_leader_req, request.coordinator_epoch)
        return pb.NotifyLeaderAndIsrResponse(notify_buckets_leader_resp=answers)

    def open_buckets(
        self, buckets: Iterable[pb.PbNotifyLeaderAndIsrReqForBucket], coordinator_epoch: int
    ) -> list[pb.PbNotifyLeaderAndIsrRespForBucket]:
        """Open buckets, or take over their table's new definition; return an answer each, in order.

        Raises:
            ConflictError: A newer coordinator has spoken.
        """
        self._check_epoch(coordinator_epoch)
        answers = []
        for request in buckets:
            answer = pb.PbNotifyLeaderAndIsrRespForBucket(table_bucket=request.table_bucket)
            try:
                self._store.open(request)
            except Exception as error:
                known = as_fluss_error(error, f"open bucket {bucket_id(request.table_bucket)}")
                log.error("bucket %s of %s could not be opened: %s", bucket_id(request.table_bucket),
                          request.physical_table_path.table_name, known)  # fmt: skip
                answer.error_code, answer.error_message = error_code(known), str(known)
            answers.append(answer)
        return answers

    def stop_replica(self, request: pb.StopReplicaRequest, /) -> pb.StopReplicaResponse:
        """Close buckets, and delete their files where asked. Doing it again does nothing."""
        self._check_epoch(request.coordinator_epoch)
        response = pb.StopReplicaResponse()
        for each in request.stop_replicas_req:
            answer = response.stop_replicas_resp.add(table_bucket=each.table_bucket)
            try:
                self._store.release(bucket_id(each.table_bucket), delete=each.delete)
            except Exception as error:
                known = as_fluss_error(error, f"stop bucket {bucket_id(each.table_bucket)}")
                answer.error_code, answer.error_message = error_code(known), str(known)
        return response

    def notify_lake_table_offset(self, request: pb.NotifyLakeTableOffsetRequest, /) -> pb.NotifyLakeTableOffsetResponse:
        """Take note of what the lake holds."""
        self._check_epoch(request.coordinator_epoch)
        self.set_lake_offsets(request.notify_buckets_req)
        return pb.NotifyLakeTableOffsetResponse()

    def set_lake_offsets(self, buckets: Iterable[pb.PbNotifyLakeTableOffsetReqForBucket]) -> None:
        """Take note of what the lake holds of buckets, open or not; what is said last is true.

        A message without end offset is about a bucket of which the lake holds nothing, and changes nothing.
        """
        for each in buckets:
            if each.HasField("log_end_offset"):
                partition_id = each.partition_id if each.HasField("partition_id") else None
                max_timestamp_ms = each.log_max_timestamp if each.HasField("log_max_timestamp") else -1
                lake = LakeState(each.snapshot_id, each.log_start_offset, each.log_end_offset, max_timestamp_ms)
                self._store.set_lake(TableBucket(each.table_id, partition_id, each.bucket_id), lake)

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


def _description(bucket: Bucket) -> pb.PbBucketDescription:
    held = bucket.log
    described = pb.PbBucketDescription(
        table_bucket=_pb_bucket(bucket.id),
        log_start_offset=held.start,
        log_end_offset=held.end,
        high_watermark=held.high_watermark,
        durable_offset=held.durable_offset,
        size_in_bytes=held.size_bytes,
        segments=held.segment_count,
        max_timestamp=held.max_timestamp_ms,
    )
    if (lake := bucket.lake) is not None:
        described.lake_snapshot_id, described.lake_log_end_offset = lake.snapshot_id, lake.end
    if held.stopped is not None:
        described.error_message = str(held.stopped)
    return described


def _no_description(bucket: TableBucket, error: FlussError) -> pb.PbBucketDescription:
    return pb.PbBucketDescription(
        table_bucket=_pb_bucket(bucket), log_start_offset=0, log_end_offset=0, high_watermark=0, durable_offset=0,
        size_in_bytes=0, segments=0, max_timestamp=-1, error_message=str(error),
    )  # fmt: skip


def _pb_bucket(bucket: TableBucket) -> pb.PbTableBucket:
    return pb.PbTableBucket(table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket)

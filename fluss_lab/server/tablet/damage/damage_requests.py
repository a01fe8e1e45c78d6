"""The calls about a damaged bucket: what is damaged, the cut of its log, and the changes that make its rows those of the lake."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_lab.clock import Clock
from fluss_lab.errors import ConflictError, CorruptDataError, InvalidRecordError, InvalidRequestError, UnsupportedError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    align_buffer,
    checksum,
    decode_checked,
    split_headers,
)
from fluss_lab.records.kv_files import OFFSET_COLUMN, TIMESTAMP_COLUMN, stored_schema
from fluss_lab.records.log_records import fit_to_schema
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.server.folder.disk_reserve import DiskReserve
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_chunks import KvChunk
from fluss_lab.server.kv.store_view import KvImage
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_description import damage_response
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.buckets.kv_snapshotter import KvSnapshotter
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.damage.bucket_damage import (
    BucketDamage,
    checkpoint_behind,
    confirm_damage,
    cut_behind,
    find_damage,
)
from fluss_lab.server.tablet.damage.damaged_ranges import DamagedRange, SoundTail
from fluss_lab.server.tablet.damage.log_cut import LogCut, begin
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.payload_validation import check_body
from fluss_lab.server.tablet.requests.bucket_scans import Scanners

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Upload:
    """What was sent of one bucket."""

    bucket: TableBucket
    log_offset: int
    used_ms: float
    parts: int = 0
    row_count: int = 0
    chunks: list[KvChunk] = field(default_factory=list)


class UploadedRows:
    """The rows that were uploaded last. Safe for threads.

    Args:
        clock: Measures how long they are unused.
        ttl_ms: For how long they are kept then.
        size_max: Bytes of one part, at most.
    """

    def __init__(self, clock: Clock, *, ttl_ms: int, size_max: int) -> None:
        self._clock, self._ttl_ms, self._size_max = clock, ttl_ms, size_max
        self._lock = threading.Lock()
        self._sent: _Upload | None = None

    def take(self, request: Frame[pb.SendRowsRequest], schemas: Mapping[int, pa.Schema]) -> int:
        """Keep one part; return how many rows there are now.

        Args:
            request: The part: the first one replaces whatever was there.
            schemas: Arrow schema of each schema id of the table.

        Raises:
            ConflictError: Another part is the next: start again with the first.
            InvalidRequestError, InvalidRecordError, CorruptDataError: They are no rows of the table, in order of their
                offsets.
        """
        message = request.message
        with self._lock:
            if message.part == 0:
                self._sent = _Upload(bucket_of(message), message.log_offset, self._clock.monotonic_ms())
            sent = self._find_upload(bucket_of(message), message.log_offset)
            if sent.parts != message.part:
                raise ConflictError(
                    f"rows of {sent.bucket}: expected part {sent.parts}, found {message.part}; send all again"
                )
            if request.payloads:
                after = int(sent.chunks[-1].offsets[-1]) if sent.chunks else -1
                data = memoryview(b"".join(request.payloads[0]))
                chunk = self._chunk(data, schemas, len(sent.chunks), range(after + 1, sent.log_offset))
                sent.chunks.append(chunk)
                sent.row_count += chunk.rows.num_rows
            sent.parts += 1
            sent.used_ms = self._clock.monotonic_ms()
            return sent.row_count

    def give(self, bucket: TableBucket, log_offset: int, row_count: int) -> KvImage:
        """Return the rows of a bucket as they were at an offset, and keep them no more.

        Raises:
            ConflictError: They were not sent, or not so many: send them again.
        """
        with self._lock:
            sent = self._find_upload(bucket, log_offset)
            if sent.row_count != row_count:
                raise ConflictError(f"rows of {bucket}: expected {row_count}, found {sent.row_count}; send them again")
            self._sent = None
        live = tuple(np.ones(chunk.rows.num_rows, np.bool_) for chunk in sent.chunks)
        return KvImage(log_offset, tuple(sent.chunks), live, len(sent.chunks))

    def expire(self) -> None:
        """Drop rows that were unused for too long."""
        with self._lock:
            if self._sent is not None and self._sent.used_ms < self._clock.monotonic_ms() - self._ttl_ms:
                self._sent = None

    def _find_upload(self, bucket: TableBucket, log_offset: int) -> _Upload:
        sent = self._sent
        if sent is None or (sent.bucket, sent.log_offset) != (bucket, log_offset):
            raise ConflictError(f"rows of {bucket} at offset {log_offset}: they were not sent, or are no longer kept")
        return sent

    def _chunk(self, data: memoryview, schemas: Mapping[int, pa.Schema], chunk_id: int, within: range) -> KvChunk:
        if len(data) > self._size_max:
            raise InvalidRequestError(f"rows: expected at most {self._size_max} bytes in a part, found {len(data)}")
        batches = list(split_headers(data))
        if len(batches) != 1 or not batches[0][0].record_count:
            raise InvalidRecordError(f"rows: expected one batch with rows, found {len(batches)} batches")
        header, whole = batches[0]
        if (found := checksum(whole[CRC_START:])) != header.crc:
            raise CorruptDataError(f"rows: expected CRC {header.crc:08x}, found {found:08x}")
        if (schema := schemas.get(header.schema_id)) is None or not header.append_only:
            raise InvalidRecordError(f"rows: expected a schema id in {sorted(schemas)}, found {header.schema_id}")
        check_body(whole[HEADER_BYTES:])
        rows = decode_checked(header, whole, stored_schema(schema)).rows
        offsets, times = (rows.column(name).to_numpy() for name in (OFFSET_COLUMN, TIMESTAMP_COLUMN))
        if int(offsets[0]) < within.start or int(offsets[-1]) >= within.stop or bool((np.diff(offsets) <= 0).any()):
            raise InvalidRecordError(
                f"rows: expected offsets that ascend in [{within.start}, {within.stop}), found {len(offsets)} from "
                f"{offsets[0]} to {offsets[-1]}"
            )
        content = pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema)
        return KvChunk(chunk_id, header.schema_id, content, offsets, times)


def check_rows(table: RegisteredTable, image: KvImage, tail: SoundTail) -> None:
    """Check that rows are those that a bucket had at an offset, as far as can be checked: the log's tail follows on them.

    Args:
        table: The bucket's.
        image: The rows.
        tail: Of its log; all of its batches from the image's offset on are done.

    Raises:
        CorruptDataError: A key has two rows, or a change does not fit.
        OSError: A file cannot be read.

    Cost: what opening the bucket costs, in time and memory.
    """
    _check_unique(image, table.descriptor.schema.primary_key)
    schema = table.schemas[table.schema_id]
    store = KvStore.restore(table.descriptor, table.schema_id, table.schemas, image)
    for header, whole in tail.batches():
        if header.base_offset < image.log_offset or not header.record_count:
            continue
        body = HEADER_BYTES + header.record_count
        rows = fit_to_schema(_rows(header, whole[body:], table.schemas), schema)
        times = np.full(rows.num_rows, header.timestamp_ms, np.int64)
        store.replay(rows, bytes(whole[HEADER_BYTES:body]), header.base_offset, times)


def _rows(header: BatchHeader, body: memoryview, schemas: Mapping[int, pa.Schema]) -> pa.RecordBatch:
    if (schema := schemas.get(header.schema_id)) is None:
        raise CorruptDataError(f"batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
    return pa.ipc.read_record_batch(align_buffer(body), schema)


def _check_unique(image: KvImage, key: Sequence[str]) -> None:
    parts = [chunk.rows.select(key) for chunk in image.chunks]
    if not parts:
        return
    keys = pa.Table.from_batches(parts)
    if (found := keys.group_by(list(key)).aggregate([]).num_rows) != keys.num_rows:
        raise CorruptDataError(f"rows at offset {image.log_offset}: expected {keys.num_rows} keys, found {found}")


class DamageRequests:
    """Describes damaged buckets of one server, and cuts their logs. Safe for threads; one cut at a time.

    Args:
        snapshots: Keeps rows that a log can no longer give.
        scanners: Their scans end when a bucket is cut.
        reserve: Decides whether anything may be written.
        clock: Gives the time of a cut.
        rows_ttl_ms: For how long rows are kept that were sent.
        size_max: Bytes of one part of them, at most.
    """

    def __init__(
        self,
        store: BucketStore,
        snapshots: KvSnapshotter,
        scanners: Scanners,
        reserve: DiskReserve,
        clock: Clock,
        *,
        rows_ttl_ms: int,
        size_max: int,
    ) -> None:
        self._store, self._snapshots, self._scanners = store, snapshots, scanners
        self._reserve, self._clock = reserve, clock
        self._cutting = threading.Lock()
        self._sent = UploadedRows(clock, ttl_ms=rows_ttl_ms, size_max=size_max)

    def describe(self, request: pb.DescribeDamageRequest) -> pb.DescribeDamageResponse:
        """Return what cannot be read of a bucket's log, after reading every byte of it: see `bucket_damage.find_damage`."""
        if self._store.is_lost(bucket_of(request)):
            with self._store.stand_in(bucket_of(request)) as (lost, folder):
                return damage_response(lost, self._find_lost(lost, folder))
        bucket = self._store.get(bucket_of(request))
        return damage_response(bucket, self._find_damage(bucket))

    def confirm(self, bucket: Bucket, error: CorruptDataError) -> CorruptDataError:
        """Return what to say of bytes of a log that failed their checks when they were read: see `bucket_damage.confirm_damage`."""
        return confirm_damage(bucket, self._store.folder(bucket.id), self._store.durable_offset(bucket.id), error)

    def take_rows(self, request: Frame[pb.SendRowsRequest]) -> pb.SendRowsResponse:
        """Keep rows that are sent for a cut: see `UploadedRows.take`."""
        table = self._store.table(request.message.table_id)
        if not table.descriptor.schema.primary_key:
            raise UnsupportedError(f"{table.path} has no primary key: no rows are made of its log")
        return pb.SendRowsResponse(row_count=self._sent.take(request, table.schemas))

    def expire(self) -> None:
        """Drop uploaded rows that no cut uses."""
        self._sent.expire()

    def give_up(self, request: pb.GiveUpRangeRequest) -> pb.GiveUpRangeResponse:
        """Have a bucket's log begin behind its first damaged range: see `bucket_damage` for what that must not lose."""
        self._reserve.check_writable("nothing was given up")
        with self._cutting:
            if is_lost := self._store.is_lost(bucket_of(request)):
                self._begin_anew(request)
            bucket = self._store.get(bucket_of(request))
            # Requested again because the answer was lost.
            is_done = any(each.start == request.start_offset for each in bucket.given_up)
            if request.start_offset == request.stop_offset:
                bucket = self._make_rows(bucket, request, is_gone=is_lost)
            elif not is_done and request.start_offset < request.stop_offset:
                bucket = self._cut(self._lay_log(bucket, request), request)
            return pb.GiveUpRangeResponse(log_start_offset=bucket.log.start)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin_anew(self, request: pb.GiveUpRangeRequest) -> None:
        """Lay an empty log where one is lost, if it may be given up."""
        with self._store.stand_in(bucket_of(request)) as (bucket, folder):
            self._cut_of(self._find_lost(bucket, folder), request)
        renewed = self._store.begin_anew(bucket_of(request))
        log.warning("event=lost_log_begun_anew log_start=%d", renewed.log.start, extra=renewed.log_fields)

    def _lay_log(self, bucket: Bucket, request: pb.GiveUpRangeRequest) -> Bucket:
        """Return an open bucket; with an empty log instead of one whose files went meanwhile, if that may be given up."""
        if segment_bases(self._store.folder(bucket.id)):
            return bucket
        self._cut_of(self._find_damage(bucket), request)
        if bucket.kv is not None and bucket.kv.is_live:
            self._snapshots.take_of_stopped(bucket)
        return self._store.begin_anew(bucket.id)

    def _find_lost(self, bucket: Bucket, folder: Path) -> BucketDamage:
        """Return what is gone of a bucket of which no segment is left: nothing, where no record of it is known."""
        found = find_damage(bucket, folder, 0)
        place, start = self._store.folder(bucket.id), found.start
        gone = found.ranges[0] if found.ranges else DamagedRange(place, start, start, 0)
        rows = found.lake_rows_offset
        if found.snapshots is not None and found.lake is not None:
            rows = min(found.lake.end, start)  # what the lake has not is lost with the log
        return replace(found, ranges=(gone._replace(path=place),), lake_rows_offset=rows, is_gone=True, snapshots=None)

    def _cut_of(self, found: BucketDamage, request: pb.GiveUpRangeRequest) -> LogCut:
        return cut_behind(
            found,
            request.start_offset,
            request.stop_offset,
            discard=request.discard_before,
            now_ms=self._clock.now_ms(),
            sent_offset=request.rows_offset if request.HasField("rows_offset") else None,
        )

    def _find_damage(self, bucket: Bucket) -> BucketDamage:
        return find_damage(bucket, self._store.folder(bucket.id), self._store.durable_offset(bucket.id))

    def _cut(self, bucket: Bucket, request: pb.GiveUpRangeRequest) -> Bucket:
        found, folder = self._find_damage(bucket), self._store.folder(bucket.id)
        cut = self._cut_of(found, request)
        self._keep_rows(bucket, found, cut, request)
        bucket.log.sync()
        if found.remote_end is not None and bucket.remote is not None and cut.start <= found.remote_end:
            bucket.remote.note_dropped(cut.start)
        checkpoint = checkpoint_behind(bucket, folder, cut.start)
        renewed = self._store.renew(bucket.id, lambda _: begin(folder, cut, checkpoint))
        self._scanners.close_bucket(bucket.id)
        log.warning("event=range_given_up start=%d stop=%d lost_from=%d log_start=%d", cut.noted.start, cut.noted.stop,
                    cut.noted.lost_start, cut.start, extra=bucket.log_fields)  # fmt: skip
        return renewed

    def _make_rows(self, bucket: Bucket, request: pb.GiveUpRangeRequest, *, is_gone: bool) -> Bucket:
        """Have the rows that a sound log goes on from, where no snapshot has them any more."""
        found = self._find_damage(bucket)
        if found.snapshots is None:
            return bucket
        found = replace(found, is_gone=is_gone)
        self._keep_rows(bucket, found, self._cut_of(found, request), request)
        renewed = self._store.renew(bucket.id, lambda _: None)
        self._scanners.close_bucket(bucket.id)
        log.warning("event=rows_made_from_lake log_start=%d", renewed.log.start, extra=bucket.log_fields)
        return renewed

    def _keep_rows(self, bucket: Bucket, found: BucketDamage, cut: LogCut, request: pb.GiveUpRangeRequest) -> None:
        """Have a snapshot from which the rows are made behind the cut, without the log before it."""
        if bucket.kv is None:
            return
        if bucket.kv.is_live:
            self._snapshots.take_of_stopped(bucket)  # of the rows that the log can no longer give
        elif request.HasField("rows_offset"):
            image = self._sent.give(bucket.id, request.rows_offset, request.row_count)
            if found.is_gone:
                image = replace(image, log_offset=cut.start)
            try:
                check_rows(bucket.table, image, SoundTail.find(self._store.folder(bucket.id), found.ranges[-1]))
            except CorruptDataError as error:
                raise CorruptDataError(
                    f"the rows that the lake has of the bucket at offset {image.log_offset} are not those that its log goes on "
                    f"from: {error}. Nothing was changed; restore {found.file} from a copy"
                ) from error
            self._snapshots.take_anew(bucket, image)
        elif found.is_gone and (found.rows_offset or 0) < cut.start:
            loaded = bucket.kv.snapshots.load(bucket.table.schemas)
            image = KvImage(0, (), (), 0) if loaded is None else loaded[1]
            self._snapshots.take_anew(bucket, replace(image, log_offset=cut.start))

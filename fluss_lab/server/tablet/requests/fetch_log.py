"""One FetchLog call: many buckets of many tables, waiting for records if there are not enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import Buffer, read_header
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.rpc.serving.grpc_server import put_error
from fluss_lab.rpc.serving.unread_answers import AnswerMemory
from fluss_lab.server.tablet.buckets.bucket import Bucket, LakeState
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.log.log_reader import FetchedBatches
from fluss_lab.server.tablet.log.previous_offsets import VALUE_BYTES
from fluss_lab.server.tablet.remote.remote_log import RemoteFetch
from fluss_lab.server.tablet.requests.column_projection import (
    check_projection,
    project,
    small_batches,
    whole_batches,
)

#: Longest wait of one call, whatever it requests: an answer without records costs nothing, a lost client a thread.
WAIT_MS_MAX: Final = 30_000
#: With a projection, log bytes read for one bucket at most, in sizes of the answer: 16 MB at the default of 4 MB.
_PROJECTED_READ_FACTOR: Final = 4
#: And in how many reads: a guess, and what corrects it.
_PROJECTED_READS_MAX: Final = 4


@dataclass(slots=True)
class _Want:
    """The request for one bucket."""

    request: pb.PbFetchLogReqForBucket
    bucket: TableBucket
    projection: tuple[int, ...] | None
    problem: FlussError | None
    previous: bool = False
    takes_whole: bool = False
    only_previous: bool = False
    stop: int | None = None


class FetchLog:
    """One call.

    Args:
        store: The server's buckets.
        request: The call's.
        size_max: Bytes of the answer, whatever is requested.
        is_closing: Returns whether waiting calls must end.
        answer_memory: Bounds the memory of answers that are being made.
        confirm_damage: Looks at the files of a bucket of which a batch failed its checks; returns what to raise.
    """

    def __init__(
        self,
        store: BucketStore,
        request: pb.FetchLogRequest,
        size_max: int,
        is_closing: Callable[[], bool],
        answer_memory: AnswerMemory,
        confirm_damage: Callable[[Bucket, CorruptDataError], CorruptDataError],
    ) -> None:
        if request.max_bytes <= 0:
            raise InvalidRequestError(f"max_bytes: expected at least 1, found {request.max_bytes}")
        self._store, self._request, self._is_closing = store, request, is_closing
        self._answer_memory = answer_memory
        self._confirm_damage = confirm_damage
        self._size_max = min(request.max_bytes, size_max)
        self._wants = [[self._want(table, each) for each in table.buckets_req] for table in request.tables_req]

    def _want(self, table: pb.PbFetchLogReqForTable, request: pb.PbFetchLogReqForBucket) -> _Want:
        want = _Want(request, bucket_of(request, table.table_id), None, None)
        if table.projection_pushdown_enabled:
            try:
                found = self._store.table(table.table_id)
                want.projection = check_projection(table.projected_fields, found.schemas[found.schema_id])
            except FlussError as error:
                want.problem = error
        want.previous, want.takes_whole = table.previous_offsets, table.small_batches_whole
        want.only_previous = table.previous_offsets_only
        if request.HasField("stop_offset"):
            want.stop = request.stop_offset
            if want.stop <= request.fetch_offset:
                want.problem = InvalidRequestError(
                    f"stop_offset: expected an offset behind {request.fetch_offset}, where the fetch begins, found {want.stop}"
                )
        return want

    def run(self) -> Frame[pb.FetchLogResponse]:
        """Return what there is, as soon as it is enough, or something is wrong, or the time is over."""
        self._wait()
        response = pb.FetchLogResponse()
        # Twice: what was read from files is joined to one message.
        reservation = self._answer_memory.reserve(2 * self._size_max)
        frame: Frame[pb.FetchLogResponse] = Frame(response, reservation=reservation)
        left = self._size_max
        for table, wants in zip(self._request.tables_req, self._wants, strict=True):
            answers = response.tables_resp.add(table_id=table.table_id)
            for want in wants:
                answer = answers.buckets_resp.add(bucket_id=want.bucket.bucket, partition_id=want.bucket.partition_id)
                try:
                    payload, size = self._answer(want, answer, left, at_least_one=left == self._size_max)
                except Exception as error:
                    put_error(answer, error, f"fetch from {want.bucket}")
                    continue
                left -= size
                if payload:
                    answer.records = b""
                    frame.payloads.append(payload)
        reservation.shrink(2 * (self._size_max - left))
        return frame

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Return when there is enough, or waiting cannot help."""
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        wants = [want for table in self._wants for want in table]
        bytes_min = min(max(self._request.min_bytes, 1), self._size_max)
        if wait_ms <= 0 or not wants or self._is_enough(wants, bytes_min):
            return
        # By the machine's clock: an event waits by it, and tests do not move it.
        deadline = time.monotonic() + wait_ms / 1000
        watcher = threading.Event()
        watched: list[Bucket] = []
        try:
            for want in wants:
                bucket = self._store.get(want.bucket)
                bucket.log.reader.watch(watcher)
                watched.append(bucket)
            while not self._is_enough(wants, bytes_min):
                left = deadline - time.monotonic()
                if left <= 0 or not watcher.wait(left):
                    return
                watcher.clear()
        except FlussError:
            return  # raised again, per bucket, in the answer
        finally:
            for bucket in watched:
                bucket.log.reader.unwatch(watcher)

    def _is_enough(self, wants: list[_Want], bytes_min: int) -> bool:
        if self._is_closing():
            return True
        total = 0
        for want in wants:
            offset = want.request.fetch_offset
            try:
                reader = self._store.get(want.bucket).log.reader
                if want.problem is not None or not reader.view.start <= offset <= reader.view.end:
                    return True
                # Where one record is enough, its place need not be looked up.
                total += reader.available(offset) if bytes_min > 1 else reader.view.end - offset
                reader.check_end(offset)
            except Exception:
                return True  # raised again, per bucket, in the answer
            if total >= bytes_min:
                return True
        return False

    # -- answering -----------------------------------------------------------------------------------------------------

    def _answer(
        self, want: _Want, answer: pb.PbFetchLogRespForBucket, left: int, *, at_least_one: bool
    ) -> tuple[list[Buffer], int]:
        if want.problem is not None:
            raise want.problem
        bucket = self._store.get(want.bucket)
        answer.high_watermark = bucket.log.high_watermark
        with suppress(FlussError):  # not known: left out; the offset that is fetched may be here all the same
            answer.log_start_offset = bucket.start
        budget = min(left, want.request.max_fetch_bytes)
        if budget <= 0:
            return [], 0
        try:
            return self._answer_from(bucket, want, answer, budget, at_least_one=at_least_one)
        except OffsetOutOfRangeError:
            if want.request.fetch_offset >= bucket.log.start:
                raise
            # The records left the log before their previous offsets were read: where they are now is the answer.
            return self._answer_from(bucket, want, answer, budget, at_least_one=at_least_one)

    def _answer_from(
        self, bucket: Bucket, want: _Want, answer: pb.PbFetchLogRespForBucket, budget: int, *, at_least_one: bool
    ) -> tuple[list[Buffer], int]:
        """Return the batches of a bucket, and their size; where they are elsewhere the answer says so.

        Raises:
            OffsetOutOfRangeError: They are nowhere; or they left the log while they were read.
        """
        answer.ClearField("all_columns")
        if want.only_previous and (size := _put_previous(bucket, want, answer, budget)):
            bucket.counters.bytes_out += size
            return [], size
        found = self._fetch(bucket, want, want.request.fetch_offset, budget, at_least_one=at_least_one)
        if isinstance(found, LakeState):
            answer.lake_log_fetch_info.snapshot_id = found.snapshot_id
            answer.lake_log_fetch_info.log_end_offset = found.end
            return [], 0
        if isinstance(found, RemoteFetch):
            answer.remote_log_fetch_info.CopyFrom(_remote_info(found, bucket.partition))
            return [], 0
        # Read after the records: a record that is served lies below it.
        answer.high_watermark = bucket.log.high_watermark
        projection = want.projection
        if projection is not None and want.takes_whole and (small := small_batches(found)) is not None:
            found, projection, answer.all_columns = small, None, True
        if projection is None and not want.previous:
            bucket.counters.bytes_out += found.size
            return list(found.buffers), found.size
        if want.previous and bucket.kv is None:
            raise UnsupportedError(f"{bucket.table.path} has no primary key, so its records have no previous offsets")
        payload, size, offsets = self._gather(bucket, found, want, projection, budget, at_least_one=at_least_one)
        if want.previous and payload and bucket.kv is not None:
            failpoint("tablet.fetch.before_previous")
            answer.previous_offsets = bucket.kv.previous(*offsets)
        bucket.counters.bytes_out += size
        return payload, size

    def _fetch(
        self, bucket: Bucket, want: _Want, offset: int, budget: int, *, at_least_one: bool
    ) -> FetchedBatches | RemoteFetch | LakeState:
        lake, stop = self._request.enable_lake, want.stop
        if stop is not None and stop <= offset:
            return FetchedBatches([], 0, offset)
        return bucket.fetch(offset, budget, at_least_one=at_least_one, enable_lake=lake, stop=stop)

    def _gather(
        self,
        bucket: Bucket,
        found: FetchedBatches,
        want: _Want,
        projection: tuple[int, ...] | None,
        budget: int,
        *,
        at_least_one: bool,
    ) -> tuple[list[Buffer], int, tuple[int, int]]:
        """Return the batches of the answer from those read, their size with that of their previous offsets, and their offsets.

        More is read where a projection shrank it.
        """
        if not found.buffers:
            return [], 0, (0, 0)
        start = stop = read_header(found.buffers[0]).base_offset
        if projection is None:
            # Offsets have no gaps. Batch by batch only what does not fit together with what is sent beside it.
            size = found.size + (VALUE_BYTES * (found.next_offset - start) if want.previous else 0)
            if size <= budget:
                return list(found.buffers), size, (start, found.next_offset)
        payload: list[Buffer] = []
        size = read = 0
        for _ in range(_PROJECTED_READS_MAX):
            try:
                for before, after in self._taken_apart(found, projection, bucket):
                    header = read_header(after[0])
                    beside = VALUE_BYTES * header.record_count if want.previous else 0
                    grown = size + beside + sum(len(memoryview(part)) for part in after)
                    if grown > budget and (payload or (want.previous and not at_least_one)):
                        return payload, size, (start, stop)
                    payload += after
                    size, read, stop = grown, read + before, header.next_offset
                # As much log as fills the rest, judged by what this much gave.
                wanted = min((budget - size) * read // max(size, 1), _PROJECTED_READ_FACTOR * budget - read)
                if projection is None or not found.buffers or wanted <= 0:
                    break
                more = self._fetch(bucket, want, found.next_offset, wanted, at_least_one=False)
            except CorruptDataError:
                if not payload:
                    raise
                break  # what is good is answered; a fetch of what follows gets the error
            if not isinstance(more, FetchedBatches):
                break
            found = more
        return payload, size, (start, stop)

    def _taken_apart(
        self, found: FetchedBatches, projection: tuple[int, ...] | None, bucket: Bucket
    ) -> Iterator[tuple[int, list[Buffer]]]:
        """Yield of each batch that was read its size and the buffers to answer."""
        for data in found.buffers:
            if projection is None:
                yield from whole_batches(data)
                continue
            try:
                yield from project(data, projection, bucket.table.schemas)
            except CorruptDataError as error:
                raise self._confirm_damage(bucket, error) from error


def _put_previous(bucket: Bucket, want: _Want, answer: pb.PbFetchLogRespForBucket, budget: int) -> int:
    """Put the previous offsets of a log's records into an answer; return their size, 0 where the log here has none."""
    offset, reader = want.request.fetch_offset, bucket.log.reader
    view = reader.view
    if bucket.kv is None or not view.start <= offset < view.end:
        return 0
    start = reader.locate(offset).header.base_offset
    count_max = max(1, budget // VALUE_BYTES)
    last = min(view.end, start + count_max, view.end if want.stop is None else want.stop) - 1
    header = reader.locate(last).header
    # Whole batches: one that does not fit is left for the next call, but for the first.
    fits = header.next_offset - start <= count_max or header.base_offset == start
    stop = header.next_offset if fits else header.base_offset
    answer.previous_offsets, answer.previous_offsets_start = bucket.kv.previous(start, stop), start
    answer.high_watermark = bucket.log.high_watermark
    return VALUE_BYTES * (stop - start)


def _remote_info(found: RemoteFetch, partition: str | None) -> pb.PbRemoteLogFetchInfo:
    info = pb.PbRemoteLogFetchInfo(remote_log_tablet_dir=str(found.folder), first_start_pos=found.start_position)
    if partition is not None:
        info.partition_name = partition
    for each in found.segments:
        info.remote_log_segments.add(
            remote_log_segment_id=each.segment_id,
            remote_log_start_offset=each.base_offset,
            remote_log_end_offset=each.end_offset,
            segment_size_in_bytes=each.size_bytes,
            max_timestamp=each.max_timestamp_ms,
        )
    return info

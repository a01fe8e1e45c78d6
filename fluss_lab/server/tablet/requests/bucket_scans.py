"""Scans of a bucket: a few rows at once, or all live rows at one moment in several calls."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    ResourceExhaustedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.server.kv.file_changes import SnapshotFiles
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.requests.lookup_rows import check_columns, look_up_bucket

#: Names of the columns that a full scan appends.
OFFSET_COLUMN: Final = "__offset"
TIMESTAMP_COLUMN: Final = "__timestamp"
#: Bytes of one answer of a full scan by default, and at most: a session keeps its last answer.
_BATCH_BYTES: Final = 1 << 20
_BATCH_BYTES_MAX: Final = 4 << 20
#: Bytes of a scanner's id: as hard to guess as a key.
_ID_BYTES: Final = 16
#: Bytes of last answers that are kept of scans whose rows were all given out.
_FINISHED_BYTES_MAX: Final = 64 << 20


def limit_scan(store: BucketStore, request: pb.LimitScanRequest, bytes_max: int) -> Frame[pb.LimitScanResponse]:
    """Return up to some rows of a bucket: any live ones of a primary-key table, the latest of a log table.

    Of a log table whole batches are returned, so the first one may begin before the rows wanted.

    Args:
        store: The server's buckets.
        request: The call's.
        bytes_max: Bytes of the answer.

    Raises:
        InvalidRequestError: The limit is not positive.
        RecordTooLargeError: The rows are more than an answer may have.
        FlussError: As of reading the bucket.
    """
    if request.limit <= 0:
        raise InvalidRequestError(f"limit: expected at least 1, found {request.limit}")
    bucket = store.get(bucket_of(request))
    response = pb.LimitScanResponse(is_log_table=bucket.kv is None, records=b"")
    if bucket.kv is None:
        response.schema_id = bucket.table.schema_id
        return Frame(response, [_latest(bucket, request.limit, bytes_max)])
    response.schema_id = bucket.kv.schema_id
    columns = check_columns((), bucket, response.schema_id)
    rows = bucket.kv.limit_scan(request.limit).select(list(columns))
    if rows.nbytes > bytes_max:
        raise _too_large(rows.nbytes, bytes_max)
    bucket.log.settle()
    return Frame(response, [[rows.serialize()]])


def _latest(bucket: Bucket, limit: int, bytes_max: int) -> list[Buffer]:
    """Return the batches that hold a log's last records."""
    reader = bucket.log.reader
    reader.check_end()
    while True:
        view = reader.view
        if view.end - limit < view.start:
            reader.check_start()
        failpoint("tablet.limit.before_read")
        try:
            return _range_batches(bucket, max(view.start, view.end - limit), view.end, bytes_max)
        except OffsetOutOfRangeError:
            if reader.view.start == view.start:
                raise
            # Retention drops the first of them just now: what is left is the answer.


def _range_batches(bucket: Bucket, first: int, end: int, bytes_max: int) -> list[Buffer]:
    """Return the batches that hold the records of a range of offsets.

    Raises:
        OffsetOutOfRangeError: Some of them have left the log.
        RecordTooLargeError: They have more bytes, and are more than one batch.
    """
    reader, start = bucket.log.reader, first
    buffers: list[Buffer] = []
    size = 0
    while start < end:
        found = reader.read(start, bytes_max - size + 1)
        buffers += found.buffers
        size += found.size
        if size > bytes_max and (start > first or found.next_offset < end):  # one batch is always returned
            raise _too_large(size, bytes_max)
        start = found.next_offset
    return buffers


def _too_large(size: int, bytes_max: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"the rows have {size} bytes or more, expected at most {bytes_max} in an answer (server.request-size-max); ask for "
        "fewer"
    )


@dataclass(slots=True)
class _Session:
    """One full scan that is under way."""

    bucket: Bucket
    schema_id: int
    log_offset: int
    batches: Iterator[pa.RecordBatch]
    #: What the rows lie in.
    files: SnapshotFiles
    used_ms: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    call: int = -1
    #: The rows of the last call, and of the one after it: known before, so that the last answer is marked as the last.
    last: pa.RecordBatch | None = None
    coming: pa.RecordBatch | None = None
    #: Bytes of the last answer, once the scan has finished.
    kept_bytes: int = 0


class Scanners:
    """The full scans that are open on this server. Safe for threads; calls of one scan are answered in turn.

    Whoever leaves scans unread does not keep others from theirs: where there is no place, the one that paused longest loses its
    place, if it paused for a time. A scan whose rows were all given out is open no more. It is kept, as far as there is room, since its last answer may be
    lost on the way and asked for again.

    Args:
        store: The server's buckets.
        scanners_max: Scans open at once, and finished ones kept.
        ttl_ms: How long a scan may pause, and a finished one is kept.
        crowded_ttl_ms: How long a scan may pause while another one waits for its place.
        clock: Measures that.
    """

    def __init__(
        self, store: BucketStore, *, scanners_max: int, ttl_ms: int, crowded_ttl_ms: int, clock: Clock
    ) -> None:
        self._store, self._scanners_max, self._ttl_ms, self._clock = store, scanners_max, ttl_ms, clock
        self._crowded_ttl_ms = crowded_ttl_ms
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Session] = {}
        #: The longest finished first.
        self._finished: dict[bytes, _Session] = {}
        self._finished_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def scan(self, request: pb.ScanKvRequest) -> Frame[pb.ScanKvResponse]:
        """Begin a scan, go on with it, repeat its last call, or end it.

        Raises:
            NotFoundError: No such scan is open: it expired, or its bucket was closed; begin again.
            InvalidRequestError: Neither a bucket nor a scan is named, or the call is out of turn.
            ResourceExhaustedError: Too many scans are open.
            FlussError: As of reading the bucket.
        """
        if not request.HasField("scanner_id"):
            if request.close_scanner:
                raise InvalidRequestError("close_scanner: expected the scanner's id, found none")
            return self._begin(request)
        if request.close_scanner:
            self.end(request.scanner_id)
            return Frame(pb.ScanKvResponse(scanner_id=request.scanner_id, has_more_results=False))
        with self._lock:
            session = self._sessions.get(request.scanner_id) or self._finished.get(request.scanner_id)
        if session is None or self._store.get(session.bucket.id) is not session.bucket:
            raise NotFoundError(
                "no such scan is open: it paused for too long, or its bucket was closed; begin the scan again"
            )
        with session.lock:
            return self._answer(request.scanner_id, session, request.call_seq_id)

    def _begin(self, request: pb.ScanKvRequest) -> Frame[pb.ScanKvResponse]:
        if not request.HasField("bucket_scan_req"):
            raise InvalidRequestError("expected scanner_id or bucket_scan_req, found neither")
        if request.call_seq_id:
            raise InvalidRequestError(f"call_seq_id: expected 0 to begin a scan, found {request.call_seq_id}")
        asked = request.bucket_scan_req
        bucket = self._store.get(bucket_of(asked))
        kv = look_up_bucket(bucket)
        schema_id = kv.schema_id
        columns = check_columns(asked.projected_fields, bucket, schema_id)
        size = min(request.batch_size_bytes if request.batch_size_bytes > 0 else _BATCH_BYTES, _BATCH_BYTES_MAX)
        scanner_id = secrets.token_bytes(_ID_BYTES)
        with self._lock:
            self._expire()
            if len(self._sessions) >= self._scanners_max and not self._make_room():
                raise ResourceExhaustedError(
                    f"{len(self._sessions)} scans are open, expected at most {self._scanners_max} "
                    "(server.scanners-max); retry when others have ended"
                )
            view = kv.view()
            batches = _group(
                (_with_places(*each) for each in view.batches(columns, asked.start_offset, bytes_max=size)), size
            )
            session = _Session(bucket, schema_id, view.log_offset, batches, view.files, self._clock.monotonic_ms())
            self._sessions[scanner_id] = session
        try:
            with session.lock:
                # What it shows must stay: only what is durable is shown, if the log promises that.
                bucket.log.settle()
                failpoint("tablet.scan.before_rows")
                session.coming = next(batches, None)
                return self._answer(scanner_id, session, 0)
        except BaseException:
            self.end(scanner_id)
            raise

    def _answer(self, scanner_id: bytes, session: _Session, call: int) -> Frame[pb.ScanKvResponse]:
        if call == session.call + 1:
            try:
                coming = next(session.batches, None) if session.coming is not None else None
                if (changed := session.files.find_changed()) is not None:
                    raise NotFoundError(
                        f"no such scan is open: {changed} was changed since it was read; begin it again"
                    )
            except BaseException:
                # What comes behind a failure would look like the end.
                self.end(scanner_id)
                raise
            session.last, session.coming, session.call = session.coming, coming, call
            if coming is None:
                self._finish(scanner_id)
        elif call != session.call:
            raise InvalidRequestError(
                f"call_seq_id: expected {session.call + 1}, or {session.call} again, found {call}"
            )
        session.used_ms = self._clock.monotonic_ms()
        response = pb.ScanKvResponse(
            scanner_id=scanner_id,
            has_more_results=session.coming is not None,
            log_offset=session.log_offset,
            schema_id=session.schema_id,
        )
        if session.last is None:
            return Frame(response)
        response.records = b""
        return Frame(response, [[session.last.serialize()]])

    def _finish(self, scanner_id: bytes) -> None:
        """Keep a scan for its last answer only; the longest finished ones make room."""
        with self._lock:
            session = self._sessions.pop(scanner_id, None)
            if session is None:  # finished before, or ended meanwhile
                return
            session.kept_bytes = 0 if session.last is None else session.last.nbytes
            self._finished[scanner_id] = session
            self._finished_bytes += session.kept_bytes
            while len(self._finished) > self._scanners_max or self._finished_bytes > _FINISHED_BYTES_MAX:
                self._forget(next(iter(self._finished)))

    def _make_room(self) -> bool:
        """End the scan that has paused longest, if it paused for a time; return whether there was one. The lock is held."""
        paused = [(each.used_ms, scanner_id) for scanner_id, each in self._sessions.items() if not each.lock.locked()]
        used_ms, scanner_id = min(paused, default=(0, None))
        if scanner_id is None or used_ms > self._clock.monotonic_ms() - self._crowded_ttl_ms:
            return False
        self._forget(scanner_id)
        return True

    def _expire(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self._ttl_ms
        self._forget_where(lambda session: session.used_ms < oldest_ms)

    def _forget_where(self, chosen: Callable[[_Session], bool]) -> None:
        for sessions in (self._sessions, self._finished):
            for scanner_id in [each for each, session in sessions.items() if chosen(session)]:
                self._forget(scanner_id)

    def _forget(self, scanner_id: bytes) -> None:
        """Let a scan go. The lock is held."""
        self._sessions.pop(scanner_id, None)
        finished = self._finished.pop(scanner_id, None)
        if finished is not None:
            self._finished_bytes -= finished.kept_bytes

    def end(self, scanner_id: bytes) -> None:
        """End a scan; one that is not open is ended already."""
        with self._lock:
            self._forget(scanner_id)

    def expire(self) -> None:
        """End the scans that paused for too long, so that the rows they hold can go."""
        with self._lock:
            self._expire()

    def close_bucket(self, bucket: TableBucket) -> None:
        """End the scans of a bucket."""
        with self._lock:
            self._forget_where(lambda session: session.bucket.id == bucket)


def _group(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches as large as may be: rows that came in small puts lie in many small batches."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if group and size + batch.nbytes > bytes_max:
            yield pa.concat_batches(group)
            group, size = [], 0
        group.append(batch)
        size += batch.nbytes
    if group:
        yield pa.concat_batches(group)


def _with_places(
    rows: pa.RecordBatch, offsets: npt.NDArray[np.int64], timestamps_ms: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Return rows with the offset and the timestamp of each behind their columns."""
    places: list[tuple[str, Any]] = [(OFFSET_COLUMN, offsets), (TIMESTAMP_COLUMN, timestamps_ms)]
    fields = [*rows.schema, *(pa.field(name, pa.int64(), nullable=False) for name, _ in places)]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *(pa.array(values, pa.int64()) for _, values in places)], schema=pa.schema(fields)
    )

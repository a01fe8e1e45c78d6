"""The request and the answer of a FetchLog, encoded, decoded and checked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

import pyarrow as pa
from cachetools import LRUCache

from fluss_lab.errors import CorruptDataError, FlussError, InvalidSchemaError, error_from_code
from fluss_lab.model import Schema, TableBucket, TableInfo
from fluss_lab.records import LogRecords, concat_records, decode, decode_runs, fit_to_schema, records_of
from fluss_lab.records.batch import Buffer, Schemas, end_offset, read_header
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import CLIENT_ID, Frame, bucket_of

#: Any record ends a long poll.
_BYTES_MIN: Final = 1
_OFFSET_BYTES: Final = 8
#: Longer answers are decoded each time: their batches are large, or they are read once.
_KEPT_BYTES_MAX: Final = 512 * 1024
#: Of all answers that are kept and their records, and of a single one: records of compressed batches are larger than these.
_KEPT_TOGETHER_BYTES_MAX: Final = 16 * 1024 * 1024
_KEPT_ONE_BYTES_MAX: Final = 2 * 1024 * 1024


class Projection:
    """Which columns are read, in which order they are wanted, and what they are in batches of other schemas.

    Args:
        info: The table, as the reader knows it: its schema is that of the rows given.
        wanted: Names or positions, in the order wanted; None: all.
        schema_of: Gives the table's schema of an id; None: only that of `info` is known.

    Raises:
        InvalidSchemaError: There is no such column, or one is wanted twice.
    """

    def __init__(
        self, info: TableInfo, wanted: Sequence[str | int] | None, schema_of: Callable[[int], Schema] | None = None
    ) -> None:
        schema = info.schema.arrow_schema
        self.schema_id = info.schema_id
        self._schema_of = schema_of
        self._select: list[str] | None = None
        self.columns: tuple[str, ...] | None = None
        self.indices: list[int] | None = None
        self._own: pa.Schema = schema
        if wanted is not None:
            known = schema.names
            names = [_name(info, known, each) for each in wanted]
            if len(set(names)) != len(names):
                raise InvalidSchemaError(f"{info.path}: projection {names}: a column appears twice")
            # The server sends columns in the table's order, at least one, so that rows can be counted.
            indices = sorted(schema.get_field_index(name) for name in names) or [0]
            self._own = pa.schema([schema.field(index) for index in indices])
            # Of all columns there is nothing to take out: the server sends batches as they are stored.
            self.indices = indices if len(indices) < len(known) else None
            self.columns = tuple(names)
            self._select = None if names == self._own.names else names
        self._full = {info.schema_id: schema}
        self._wire = {info.schema_id: self._own}

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows given."""
        return self._own if self._select is None else pa.schema([self._own.field(name) for name in self._select])

    def full_schema(self, schema_id: int) -> pa.Schema:
        """Return the Arrow schema of whole batches of a schema id.

        Raises:
            CorruptDataError: The table has no schema of that id.
        """
        if (found := self._full.get(schema_id)) is None:
            if self._schema_of is None:
                raise CorruptDataError(f"expected schema id {self.schema_id}, found {schema_id}; open the table again")
            found = self._full[schema_id] = self._schema_of(schema_id).arrow_schema
        return found

    def wire_schema(self, schema_id: int) -> pa.Schema:
        """Return the Arrow schema of batches of a schema id as the server sends them: the requested columns that it has.

        Raises:
            CorruptDataError: The table has no schema of that id.
        """
        if (found := self._wire.get(schema_id)) is None:
            found = self.full_schema(schema_id)
            if self.indices is not None:
                found = pa.schema([found.field(index) for index in self.indices if index < len(found)])
            self._wire[schema_id] = found
        return found

    def rows(self, received: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of any schema, whole or as sent, with the columns wanted: those added since are null."""
        own = fit_to_schema(received, self._own, cut=True)
        return own if self._select is None else own.select(self._select)


def _name(info: TableInfo, names: Sequence[str], wanted: str | int) -> str:
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
        return names[wanted]
    if wanted in names:
        return str(wanted)
    raise InvalidSchemaError(f"{info.path}: no column {wanted!r}; the columns are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much and how long one fetch may be, and what may be in it.

    Attributes:
        previous_offsets: Of a primary-key table: ask for the previous offsets too,
        previous_offsets_only: and for no records, where the server's log has them.
    """

    max_bytes: int
    max_wait_ms: int
    enable_lake: bool
    previous_offsets: bool = False
    previous_offsets_only: bool = False


def fetch_request(
    table_id: int,
    positions: Sequence[tuple[TableBucket, int]],
    projection: Projection,
    limits: FetchLimits,
    stop: int | None = None,
) -> pb.FetchLogRequest:
    """Return the request for buckets of one table from offsets on; earlier ones are served first.

    Args:
        table_id: Of the table.
        positions: Buckets, each with the offset from which on records are wanted.
        projection: Which columns.
        limits: Of the call.
        stop: Of batches that begin here or behind none is wanted; a server of an older version sends them all the same.
    """
    request = pb.FetchLogRequest(
        follower_server_id=CLIENT_ID,
        max_bytes=limits.max_bytes,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=_BYTES_MIN,
        enable_lake=limits.enable_lake,
    )
    table = request.tables_req.add(
        table_id=table_id,
        projection_pushdown_enabled=projection.indices is not None,
        projected_fields=projection.indices or [],
    )
    if projection.indices is not None:
        table.small_batches_whole = True
    if limits.previous_offsets:
        table.previous_offsets = True
    if limits.previous_offsets_only:
        table.previous_offsets_only = True
    for bucket, offset in positions:
        table.buckets_req.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket, fetch_offset=offset,
            max_fetch_bytes=limits.max_bytes, stop_offset=stop,
        )  # fmt: skip
    return request


@dataclass(frozen=True)
class FetchedBucket:
    """What an answer holds of one bucket: an error, the way to remote storage or the lake, or records (maybe none).

    Attributes:
        previous_offsets: One for each record of `data`, little-endian int64; None unless requested.
        previous_offsets_start: Where they came without records: the offset of the record that the first is of.
        all_columns: Whether `data` has all columns though some were requested.
    """

    bucket: TableBucket
    error: FlussError | None
    lake: pb.PbLakeLogFetchInfo | None
    high_watermark: int
    log_start_offset: int
    data: Buffer
    previous_offsets: bytes | None = None
    remote: pb.PbRemoteLogFetchInfo | None = None
    all_columns: bool = False
    previous_offsets_start: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its records."""
        return len(memoryview(self.data))

    @cached_property
    def next_offset(self) -> int | None:
        """Return the offset after its records as their headers say, which are not checked; None without records.

        Cost: 0.3 us a batch, once.
        """
        return end_offset(self.data)


def fetched_buckets(response: Frame[pb.FetchLogResponse]) -> Iterator[FetchedBucket]:
    """Yield what an answer holds, bucket by bucket."""
    payloads = iter(response.payloads)
    for table in response.message.tables_resp:
        for entry in table.buckets_resp:
            data: Buffer = b""
            if entry.HasField("records"):
                parts = next(payloads)
                data = parts[0] if len(parts) == 1 else b"".join(parts)
            yield FetchedBucket(
                bucket_of(entry, table.table_id),
                error_from_code(entry.error_code, entry.error_message) if entry.error_code else None,
                entry.lake_log_fetch_info if entry.HasField("lake_log_fetch_info") else None,
                entry.high_watermark if entry.HasField("high_watermark") else -1,
                entry.log_start_offset if entry.HasField("log_start_offset") else 0,
                data,
                entry.previous_offsets if entry.HasField("previous_offsets") else None,
                entry.remote_log_fetch_info if entry.HasField("remote_log_fetch_info") else None,
                entry.all_columns,
                entry.previous_offsets_start if entry.HasField("previous_offsets_start") else None,
            )


@dataclass(frozen=True, slots=True)
class _DecodedEnd:
    data: bytes
    runs: Sequence[LogRecords]

    @property
    def size_bytes(self) -> int:
        return len(self.data) + sum(int(run.rows.nbytes) for run in self.runs)


class DecodedEnds:
    """What short answers were decoded to, for reads that fetch the same bytes again and a few new ones behind them.

    A batch of one row takes as long as one of ten thousand: a log that is written row by row, and read after each row, would be
    decoded again and again. Records are given again for the very bytes that they were made of, so that nothing has to be
    known of what became of the log meanwhile. Safe in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[Hashable, _DecodedEnd] = LRUCache(
            _KEPT_TOGETHER_BYTES_MAX, getsizeof=lambda end: end.size_bytes
        )

    def decode(self, key: Hashable, data: memoryview, schemas: Schemas) -> Iterator[LogRecords]:
        """Yield the records of several batches; small ones are joined.

        Args:
            key: The bucket, and the columns by which its bytes are called.
            data: Bytes of whole batches.
            schemas: As `fluss_lab.records.decode_runs` takes them; the same of the same key.

        Raises:
            CorruptDataError: A check failed; what was yielded before is right.
        """
        own = bytes(data)  # records of larger batches are views of it
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or not own.startswith(kept.data):
            kept = _DecodedEnd(b"", ())
        runs = [*kept.runs]
        yield from kept.runs
        if len(kept.data) == len(own):
            return
        for records in decode_runs(memoryview(own)[len(kept.data) :], schemas):
            runs.append(records)
            yield records
        end = _DecodedEnd(own, _join_runs(runs))
        if end.size_bytes <= _KEPT_ONE_BYTES_MAX:
            with self._lock:
                self._kept[key] = end


def _join_runs(runs: Sequence[LogRecords]) -> list[LogRecords]:
    """Return runs of one schema and kind as one."""
    groups = groupby(runs, key=lambda run: (run.rows.schema, run.change_types is None))
    alike = [list(group) for _, group in groups]
    return [group[0] if len(group) == 1 else concat_records(group) for group in alike]


def decode_bucket(
    fetched: FetchedBucket, offset: int, projection: Projection, ends: DecodedEnds | None = None
) -> Iterator[LogRecords]:
    """Yield the records of a bucket from an offset on, without gaps; small batches are joined.

    Args:
        fetched: The bucket of an answer.
        offset: The fetch offset; earlier records of the first batch are left out.
        projection: The columns of the request.
        ends: What was decoded before, of answers with the same begin; None: all is decoded.

    Raises:
        CorruptDataError: A check failed, or offsets are missing; what was yielded before is right.
    """
    previous = _PreviousOffsets(fetched)
    for records in _decode_batches(fetched, projection, ends):
        before = previous.take(len(records))
        if records.next_offset <= offset:
            continue
        if records.base_offset > offset:
            raise CorruptDataError(
                f"bucket {fetched.bucket}: expected records from offset {offset}, found them from {records.base_offset}"
            )
        wanted = records.replace(projection.rows(records.rows), before)
        clipped = wanted.clip(offset, records.next_offset)
        assert clipped is not None
        offset = clipped.next_offset
        yield clipped
    previous.check_end()


def _decode_batches(fetched: FetchedBucket, projection: Projection, ends: DecodedEnds | None) -> Iterator[LogRecords]:
    """Yield the records of an answer's batches; small ones are joined where there are several."""
    view = memoryview(fetched.data)
    schemas = projection.full_schema if fetched.all_columns else projection.wire_schema
    if view and read_header(view).size == len(view):
        if (records := records_of(decode(view, schemas))) is not None:
            yield records
    elif ends is not None and len(view) <= _KEPT_BYTES_MAX:
        # Names of columns are not in the bytes.
        yield from ends.decode((fetched.bucket, schemas(projection.schema_id)), view, schemas)
    elif view:
        yield from decode_runs(view, schemas)


class _PreviousOffsets:
    """The previous offsets beside an answer's records, taken batch by batch."""

    def __init__(self, fetched: FetchedBucket) -> None:
        self._bucket = fetched.bucket
        self._offsets: pa.Int64Array | None = None
        self._at = 0
        if (data := fetched.previous_offsets) is not None:
            if len(data) % _OFFSET_BYTES:
                raise self._damage(f"expected whole offsets of {_OFFSET_BYTES} bytes, found {len(data)} bytes")
            self._offsets = pa.Array.from_buffers(pa.int64(), len(data) // _OFFSET_BYTES, [None, pa.py_buffer(data)])

    def take(self, count: int) -> pa.Int64Array | None:
        """Return those of the next records; None when they were not requested."""
        if self._offsets is None:
            return None
        taken = self._offsets.slice(self._at, count)
        if len(taken) != count:
            raise self._damage(f"expected {self._at + count} and more, found {len(self._offsets)}")
        self._at += count
        return taken

    def check_end(self) -> None:
        """Check that there are no more than records."""
        if self._offsets is not None and self._at != len(self._offsets):
            raise self._damage(f"expected {self._at}, found {len(self._offsets)}")

    def _damage(self, what: str) -> CorruptDataError:
        return CorruptDataError(f"bucket {self._bucket}: previous offsets: {what}")

"""One FetchLog: what is asked, and what the answer holds, decoded and checked. No threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fluss_lab.client.offsets import CLIENT
from fluss_lab.errors import CorruptDataError, FlussError, InvalidSchemaError, error_from_code
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records import LogRecords, decode_all, records_of
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.codec import Frame

#: Any record ends a long poll.
_BYTES_MIN: Final = 1


class Projection:
    """Which columns are read, and in which order they are wanted.

    Args:
        info: The table.
        wanted: Names or positions, in the order wanted; None: all.

    Raises:
        InvalidSchemaError: There is no such column, or one is wanted twice.
    """

    def __init__(self, info: TableInfo, wanted: Sequence[str | int] | None) -> None:
        schema = info.schema.arrow()
        self.schema_id = info.schema_id
        self._select: list[str] | None = None
        self.columns: tuple[str, ...] | None = None
        self.indices: list[int] | None = None
        self.wire_schema: pa.Schema = schema
        if wanted is not None:
            names = [_name(info, each) for each in wanted]
            if len(set(names)) != len(names):
                raise InvalidSchemaError(f"{info.path}: projection {names}: a column appears twice")
            # The server sends columns in the table's order, at least one, so that rows can be counted.
            self.indices = sorted(schema.get_field_index(name) for name in names) or [0]
            self.wire_schema = pa.schema([schema.field(index) for index in self.indices])
            self.columns = tuple(names)
            self._select = None if names == self.wire_schema.names else names

    def rows(self, received: pa.RecordBatch) -> pa.RecordBatch:
        """Return received rows with the columns in the order wanted."""
        return received if self._select is None else received.select(self._select)


def _name(info: TableInfo, wanted: str | int) -> str:
    names = info.schema.names
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
        return names[wanted]
    if wanted in names:
        return str(wanted)
    raise InvalidSchemaError(f"{info.path}: no column {wanted!r}; the columns are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much and how long one fetch may be."""

    max_bytes: int
    max_wait_ms: int
    enable_lake: bool


def fetch_request(
    table_id: int, positions: Sequence[tuple[TableBucket, int]], projection: Projection, limits: FetchLimits
) -> pb.FetchLogRequest:
    """Return the request for buckets of one table from offsets on; earlier ones are served first."""
    request = pb.FetchLogRequest(
        follower_server_id=CLIENT,
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
    for bucket, offset in positions:
        entry = table.buckets_req.add(bucket_id=bucket.bucket, fetch_offset=offset, max_fetch_bytes=limits.max_bytes)
        if bucket.partition_id is not None:
            entry.partition_id = bucket.partition_id
    return request


@dataclass(frozen=True, slots=True)
class FetchedBucket:
    """What an answer holds of one bucket: an error, the way to the lake, or records (maybe none)."""

    bucket: TableBucket
    error: FlussError | None
    lake: pb.PbLakeLogFetchInfo | None
    high_watermark: int
    log_start_offset: int
    data: Buffer

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its records."""
        return len(memoryview(self.data))


def fetched_buckets(response: Frame[pb.FetchLogResponse]) -> Iterator[FetchedBucket]:
    """Yield what an answer holds, bucket by bucket."""
    payloads = iter(response.payloads)
    for table in response.message.tables_resp:
        for entry in table.buckets_resp:
            data: Buffer = b""
            if entry.HasField("records"):
                parts = next(payloads)
                data = parts[0] if len(parts) == 1 else b"".join(parts)
            partition_id = entry.partition_id if entry.HasField("partition_id") else None
            yield FetchedBucket(
                TableBucket(table.table_id, partition_id, entry.bucket_id),
                error_from_code(entry.error_code, entry.error_message) if entry.error_code else None,
                entry.lake_log_fetch_info if entry.HasField("lake_log_fetch_info") else None,
                entry.high_watermark if entry.HasField("high_watermark") else -1,
                entry.log_start_offset if entry.HasField("log_start_offset") else 0,
                data,
            )


def decoded(fetched: FetchedBucket, offset: int, projection: Projection) -> Iterator[LogRecords]:
    """Yield the records of a bucket from an offset on, without gaps.

    Args:
        fetched: The bucket of an answer.
        offset: The fetch offset; earlier records of the first batch are left out.
        projection: What was asked.

    Raises:
        CorruptDataError: A check failed, or offsets are missing; what was yielded before is right.
    """
    for batch in decode_all(fetched.data, projection.wire_schema):
        if batch.header.schema_id != projection.schema_id:
            raise CorruptDataError(
                f"bucket {fetched.bucket}, offset {batch.base_offset}: expected schema id {projection.schema_id}, found "
                f"{batch.header.schema_id}; open the table again"
            )
        records = records_of(batch)
        if records is None or records.next_offset <= offset:
            continue
        if records.base_offset > offset:
            raise CorruptDataError(
                f"bucket {fetched.bucket}: expected records from offset {offset}, found them from {records.base_offset}"
            )
        clipped = records.clip(offset, records.next_offset)
        assert clipped is not None
        offset = clipped.next_offset
        yield LogRecords(projection.rows(clipped.rows), clipped.offsets, clipped.timestamps_ms, clipped.change_types)

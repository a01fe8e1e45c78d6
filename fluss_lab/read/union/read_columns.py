"""The columns of a read, and bringing what was stored to the table's own types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidRequestError, InvalidSchemaError
from fluss_lab.model import Schema, TableInfo
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES, Filter
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.records import LogRecords, concat_records

SOURCE_COLUMN: Final = "_source"
LAKE: Final = "lake"
LOG: Final = "log"
OFFSET: Final = "__offset"
TIMESTAMP: Final = "__timestamp"

#: Rows of a batch that a reader is given: big enough for vectorised work, small enough to hold many.
BATCH_ROWS: Final = 65_536
#: And bytes: of large rows it has fewer. What is joined stays far below the 2 GB of a column of texts or bytes.
BATCH_BYTES: Final = 64 * 1024 * 1024
#: Records that are worth the work on a batch, some 100 microseconds; and bytes of them.
GATHERED_ROWS: Final = 4_096
GATHERED_BYTES: Final = 4 * 1024 * 1024
_SMALL_BYTES: Final = 64 * 1024
_UNBOUNDED_BITS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a read gives, in order.

    Attributes:
        names: User's and system columns.
        with_source: Whether ``_source`` follows them.
        types: The type of every column that may be read.
    """

    names: tuple[str, ...]
    with_source: bool
    types: dict[str, pa.Field]

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of what the read gives."""
        fields = [self.types[name] for name in self.names]
        if self.with_source:
            fields.append(pa.field(SOURCE_COLUMN, pa.string(), nullable=False))
        return pa.schema(fields)

    def inner(self, where: Filter | None, *, in_lake: bool, offset: bool = True) -> list[str]:
        """Return the columns to fetch: those given, those that the filter needs here, and the offset, unless it is known without.

        A file reader filters by itself where it can, so the filter's columns need not leave it.
        """
        needed = list(self.names)
        if where is not None and (where.left_over or not in_lake):
            needed += sorted(where.columns)
        if offset:
            needed.append(OFFSET)
        return list(dict.fromkeys(needed))

    def fields(self, names: Iterable[str]) -> pa.Schema:
        """Return the Arrow schema of some columns."""
        return pa.schema([self.types[name] for name in names])

    def finish(self, batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
        """Return the columns that the read gives, of a batch with at least these."""
        if self.with_source:
            arrays = [batch.column(name) for name in self.names]
            return pa.RecordBatch.from_arrays([*arrays, pa.repeat(source, batch.num_rows)], schema=self.schema())
        return batch if tuple(batch.schema.names) == self.names else batch.select(list(self.names))


def with_columns_at(source: TableSource, point: ReadPoint) -> TableSource:
    """Return a table with the columns that it had at a read point.

    Raises:
        TableNotFoundError: The read point is of a table that was dropped since.
    """
    source.check_table(point.path, point.table_id, point.created_ms, "read point")
    info = source.info
    if point.schema_id == info.schema_id:
        return source
    return source.with_info(info.with_schema(point.schema_id, source.connection.schema(info, point.schema_id)))


def make_columns(schema: Schema, names: Sequence[str] | None, with_source: bool = False) -> Columns:
    """Return checked columns.

    Args:
        schema: The table's.
        names: User's and system columns, in the order wanted; None: the user's, in schema order.
        with_source: Whether to add ``_source``.

    Raises:
        InvalidSchemaError: There is no such column, or it is named twice.
        InvalidRequestError: No column at all.
    """
    types = {field.name: field for field in schema.arrow_schema}
    types |= {name: pa.field(name, dtype, nullable=False) for name, dtype in SYSTEM_TYPES.items()}
    if names is None:
        return Columns(tuple(schema.arrow_schema.names), with_source, types)
    if isinstance(names, str):
        raise InvalidSchemaError(f"columns: expected a list of names, found the text {names!r}")
    wanted = list(names)
    if SOURCE_COLUMN in wanted:
        raise InvalidSchemaError(f"column {SOURCE_COLUMN!r} is asked for with with_source=True, not by name")
    for name in wanted:
        if name not in types:
            raise InvalidSchemaError(f"no column {name!r}; the columns are {', '.join(types)}")
    if twice := [name for name in wanted if wanted.count(name) > 1]:
        raise InvalidSchemaError(f"column {twice[0]!r} is asked for twice")
    if not wanted:
        raise InvalidRequestError("columns: expected at least one; for the number of rows use count()")
    return Columns(tuple(wanted), with_source, types)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, by name and in its order, cast to its types."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def of_records(records: LogRecords, bucket: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return records of the log as a batch of a schema of user's and system columns."""
    if records.rows.schema.equals(schema):
        return records.rows
    arrays = []
    for field in schema:
        match field.name:
            case "__bucket":
                array = pa.array(np.full(len(records), bucket, dtype=np.int32))
            case "__offset":
                array = records.offsets
            case "__timestamp":
                array = timestamps(records)
            case name:
                array = records.rows.column(name)
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def stored_columns(info: TableInfo, names: Iterable[str]) -> list[str]:
    """Return the user's columns among some; at least one that every record has, so that records can be counted."""
    user = [name for name in names if name not in SYSTEM_TYPES]
    if user:
        return user
    known = info.schema.arrow_schema
    return [min(info.schema.primary_key or known.names[:1], key=lambda name: _width(known.field(name).type))]


def _width(dtype: pa.DataType) -> int:
    """Return how many bits a value has; of types without a width, more than of any that has one."""
    try:
        return int(dtype.bit_width)
    except ValueError:
        return _UNBOUNDED_BITS


def coalesce(runs: Iterable[LogRecords], limit: int | None = None) -> Iterator[LogRecords]:
    """Yield the same records with small runs joined: a writer that flushes often leaves batches of a few rows each.

    Args:
        runs: Records of one bucket, in order.
        limit: So many are enough to hand out; None: as many as are worth the work on a batch.
    """
    enough = GATHERED_ROWS if limit is None else min(max(1, limit), GATHERED_ROWS)
    held: list[LogRecords] = []
    count = size = 0
    for records in runs:
        held.append(records)
        count += len(records)
        size += _size_bytes(records.rows)
        if count >= enough or size >= GATHERED_BYTES:
            yield held[0] if len(held) == 1 else concat_records(held)
            held, count, size = [], 0, 0
    if held:
        yield held[0] if len(held) == 1 else concat_records(held)


def timestamps(records: LogRecords) -> pa.Array:
    """Return the records' timestamps as moments in microseconds, as the lake has them."""
    return moments(records.timestamps_ms)


def moments(millis: pa.Int64Array) -> pa.Array:
    """Return epoch milliseconds as the type of ``__timestamp``."""
    return millis.cast(pa.timestamp("ms", "UTC")).cast(SYSTEM_TYPES[TIMESTAMP])


def rebatch(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_max: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `rows_max`, the last of fewer, and those that have `BATCH_BYTES` with fewer.

    Holds at most that and one input batch.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, rows_max - count)
            at += piece.num_rows
            count += piece.num_rows
            size += _size_bytes(piece)
            held.append(piece)
            if count == rows_max or size >= BATCH_BYTES:
                yield from _join(held, schema)
                held, count, size = [], 0, 0
    if held:
        yield from _join(held, schema)


def _size_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch; of a small one those of its buffers: the exact ones take 30 us, and there may be one for each row."""
    known = int(batch.get_total_buffer_size())
    return known if known <= _SMALL_BYTES else int(batch.nbytes)


def limit_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first rows; None: all. No batch is asked for beyond them."""
    if limit is None:
        yield from batches
        return
    found, left = iter(batches), limit
    while left > 0 and (batch := next(found, None)) is not None:
        piece = batch.slice(0, left)
        left -= piece.num_rows
        yield piece


def _join(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows as one batch; as several where a column has more than the 2 GB that one array takes."""
    if len(batches) == 1:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return joined

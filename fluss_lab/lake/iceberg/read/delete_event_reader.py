"""Reader of delete files as events: the ``-U`` and ``-D`` events of a bucket's log.

Their form is that of `delete_schema`. Columns are found by field id, whichever engine wrote the file and by which names; a file
without events (another engine's) has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema

from fluss_lab.closing import Closing
from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.file_faults import reading_fault
from fluss_lab.lake.iceberg.files.lake_errors import library_errors
from fluss_lab.lake.iceberg.files.parquet_input import check_footer, open_parquet, parquet_errors
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete
from fluss_lab.lake.iceberg.table.type_mapping import arrow_field, arrow_ids, arrow_names, ids_of
from fluss_lab.lake.iceberg.write.delete_schema import (
    CHANGE_TYPE_ID,
    PREVIOUS_OFFSET_ID,
    EventRange,
    event_range,
    field_id_of,
)
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import ChangeType
from fluss_lab.model.values.required_fields import cast_column

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO
    from pyiceberg.types import NestedField

    from fluss_lab.lake.iceberg.table.layout import LakeColumns

_MICROS: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one delete file, ascending by offset.

    Attributes:
        rows: The rows that they end, in the table's own types; with the events' own ``__offset``, so that there is a column.
        offsets: int64; the events' own.
        times_ms: int64; the events' own, epoch milliseconds.
        kinds: int8 `ChangeType` numbers.
        previous: int64; offsets of the rows that they end.
    """

    rows: pa.Table
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    kinds: NDArray[np.int8]
    previous: NDArray[np.int64]


class EventFile(Closing):
    """One open delete file. Used by one thread; a context manager.

    Args:
        io: Access to the file.
        path: Where it is.
        columns: The table's columns.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is no Parquet file.
    """

    def __init__(self, io: FileIO, path: str, columns: LakeColumns) -> None:
        self._io = io
        self._path = path
        self._columns = columns
        with parquet_errors(io, path, "delete file"):
            self._stream = io.new_input(path).open()
        try:
            check_footer(path)
            parquet = open_parquet(self._stream)
            self._physical: pa.Schema = parquet.schema_arrow
            self._by_id = {number: each for each in self._physical if (number := field_id_of(each)) >= 0}
            coded = [self._by_id[CHANGE_TYPE_ID].name] if CHANGE_TYPE_ID in self._by_id else []
            self._parquet = open_parquet(
                self._stream, metadata=parquet.metadata, read_dictionary=coded, pre_buffer=True
            )
        except library_errors(pa.ArrowException, OSError, ValueError) as error:
            self.close()
            raise reading_fault(io, path, "delete file", error) from error
        except BaseException:
            self.close()
            raise
        _, self._offset_id, self._timestamp_id = columns.layout.system_ids

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    @property
    def has_events(self) -> bool:
        """Return whether it carries the events that made the deletes."""
        return CHANGE_TYPE_ID in self._by_id

    def times(self, span: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offsets, ascending, and times in milliseconds of the events with offsets in ``[start, stop)``.

        Raises:
            CorruptDataError: It is not what tiering writes.
        """
        if not self.has_events:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = self._read([self._offset_id, self._timestamp_id], self._groups(span))
        offsets, times = self._numbers(rows, self._offset_id), self._millis(rows)
        order = _span_positions(offsets, span)
        return offsets[order], times[order]

    def place(self, offset: int) -> tuple[int, int] | None:
        """Return the position in the file of the event with an offset, and its time in milliseconds; None without it.

        Raises:
            CorruptDataError: It is not what tiering writes.
        """
        if not self.has_events:
            return None
        footer = self._parquet.metadata
        for number in self._groups((offset, offset + 1)):
            rows = self._read([self._offset_id, self._timestamp_id], [number])
            if len(at := np.flatnonzero(self._numbers(rows, self._offset_id) == offset)):
                first = sum(footer.row_group(before).num_rows for before in range(number))
                return first + int(at[0]), int(self._millis(rows)[at[0]])
        return None

    def events(self, names: Sequence[str], span: tuple[int, int]) -> Events:
        """Return the events with offsets in ``[start, stop)``; all of them are in memory.

        Args:
            names: User's columns of the rows, in the order wanted; null where the file does not have one.
            span: Which offsets.

        Raises:
            CorruptDataError: It is not what tiering writes, or holds values that are none of the table's types.
        """
        fields = [self._columns.layout.schema.find_field(name) for name in names]
        if not self.has_events:
            nothing = np.empty(0, np.int64)
            return Events(self._empty(names), nothing, nothing, np.empty(0, np.int8), nothing)
        needed = [CHANGE_TYPE_ID, PREVIOUS_OFFSET_ID, self._offset_id, self._timestamp_id]
        ids = [*needed, *(field.field_id for field in fields if field.field_id in self._by_id)]
        read = self._read(ids, self._groups(span))
        offsets = self._numbers(read, self._offset_id)
        order = _span_positions(offsets, span)
        if len(order) < len(offsets) or bool((order != np.arange(len(offsets))).any()):
            read = read.take(pa.array(order))
        return Events(
            self._rows(read, fields, offsets[order]),
            offsets[order],
            self._millis(read),
            self._kinds(read),
            self._numbers(read, PREVIOUS_OFFSET_ID),
        )

    # -- columns -------------------------------------------------------------------------------------------------------

    def _read(self, ids: Sequence[int], groups: Sequence[int]) -> pa.Table:
        """Return columns of some row groups."""
        if missing := [each for each in ids if each not in self._by_id]:
            raise self._corrupt(f"it has no column of field id {missing[0]}")
        names = list(dict.fromkeys(self._by_id[each].name for each in ids))
        try:
            rows = self._parquet.read_row_groups(list(groups), columns=names)
        except library_errors(pa.ArrowException, OSError, ValueError) as error:
            raise reading_fault(self._io, self._path, "delete file", error) from error
        return rows.select(names)

    def _groups(self, span: tuple[int, int]) -> list[int]:
        """Return the row groups that can hold events of a span."""
        footer = self._parquet.metadata
        offset_name = self._by_id[self._offset_id].name
        leaf = next(at for at in range(footer.num_columns) if footer.schema.column(at).path == offset_name)
        found = []
        for number in range(footer.num_row_groups):
            known = footer.row_group(number).column(leaf).statistics
            if known is None or not known.has_min_max or (known.max >= span[0] and known.min < span[1]):
                found.append(number)
        return found

    def _numbers(self, rows: pa.Table, field_id: int) -> NDArray[np.int64]:
        column = rows.column(self._by_id[field_id].name)
        if column.null_count:
            raise self._corrupt(f"column {self._by_id[field_id].name!r} holds nulls")
        numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return numbers

    def _millis(self, rows: pa.Table) -> NDArray[np.int64]:
        column = rows.column(self._by_id[self._timestamp_id].name)
        if column.null_count:
            raise self._corrupt(f"column {TIMESTAMP_COLUMN!r} holds nulls")
        micros: NDArray[np.int64] = column.cast(_MICROS).cast(pa.int64()).to_numpy()
        return micros // 1000

    def _kinds(self, rows: pa.Table) -> NDArray[np.int8]:
        column = rows.column(self._by_id[CHANGE_TYPE_ID].name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        known = {ChangeType.UPDATE_BEFORE.symbol: ChangeType.UPDATE_BEFORE, ChangeType.DELETE.symbol: ChangeType.DELETE}
        symbols = column.dictionary.to_pylist()
        if column.null_count or any(each not in known for each in symbols):
            raise self._corrupt(f"expected the change types {sorted(known)}, found {symbols[:5]}")
        kinds = np.array([int(known[each]) for each in symbols], dtype=np.int8)
        codes = column.indices.to_numpy(zero_copy_only=False)
        return kinds[codes] if len(kinds) else np.empty(0, np.int8)

    def _rows(self, rows: pa.Table, fields: Sequence[NestedField], offsets: NDArray[np.int64]) -> pa.Table:
        """Return the user's columns of rows, in the table's own types, and the offsets."""
        schema = pa.schema([self._columns.schema.field(field.name) for field in fields])
        columns: list[Any] = []
        for field, wanted in zip(fields, schema, strict=True):
            found = self._by_id.get(field.field_id)
            if found is None:
                column = pa.chunked_array([pa.nulls(len(rows), wanted.type)])
            else:
                column = self._cast(rows.column(found.name), found, field, wanted)
            if not wanted.nullable and column.null_count:
                raise self._corrupt(f"column {wanted.name!r} is NOT NULL, but holds nulls")
            columns.append(column)
        schema = schema.append(self._columns.schema.field(OFFSET_COLUMN))
        return pa.Table.from_arrays([*columns, pa.array(offsets)], schema=schema)

    def _cast(self, column: pa.ChunkedArray, found: pa.Field, field: NestedField, wanted: pa.Field) -> pa.ChunkedArray:
        try:
            if arrow_ids(found) == ids_of(field) and arrow_names(found) == arrow_names(arrow_field(field)):
                return cast_column(column, wanted.type)
            return cast_column(self._project(column, found, field), wanted.type)
        except (pa.ArrowException, ValueError, ResolveError) as error:
            raise self._corrupt(f"column {wanted.name!r} cannot be read as {wanted.type}: {error}") from error

    def _project(self, column: pa.ChunkedArray, found: pa.Field, field: NestedField) -> pa.ChunkedArray:
        """Return a nested column whose inner fields are others, as Iceberg's rules of schema evolution have it."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        from fluss_lab.lake.iceberg.table.schema_projection import project_rows

        in_file = pyarrow_to_schema(pa.schema([found]))
        table = pa.Table.from_arrays([column], schema=pa.schema([found]))
        batches = [project_rows(Schema(field), in_file, batch).column(0) for batch in table.to_batches()]
        return pa.chunked_array(batches) if batches else pa.chunked_array([], arrow_field(field).type)

    def _empty(self, names: Sequence[str]) -> pa.Table:
        return pa.schema([self._columns.schema.field(name) for name in (*names, OFFSET_COLUMN)]).empty_table()

    def _corrupt(self, why: str) -> CorruptDataError:
        return CorruptDataError(f"lake file {self._path}: not the delete file that it should be: {why}")


class EventRanges:
    """The ranges of delete files, each opened at most once, and only if its name does not say the range. Used by one thread."""

    def __init__(self, io: FileIO, columns: LakeColumns) -> None:
        self._io = io
        self._columns = columns
        self._known: dict[str, EventRange | None] = {}

    def of(self, delete: LakeDelete) -> EventRange | None:
        """Return between which offsets and times a delete file's events lie; None of a file without events.

        The range may be wider than what the file holds.

        Raises:
            FileNotFoundError: The file is gone.
            CorruptDataError: It is no delete file.
        """
        path = delete.file.file_path
        if path not in self._known:
            self._known[path] = event_range(path) or self._read(path)
        return self._known[path]

    def _read(self, path: str) -> EventRange | None:
        with EventFile(self._io, path, self._columns) as file:
            offsets, times = file.times((0, 2**63 - 1))
        if not len(offsets):
            return None
        return EventRange(int(offsets[0]), int(offsets[-1]), int(times.min()), int(times.max()))


def _span_positions(offsets: NDArray[np.int64], span: tuple[int, int]) -> NDArray[np.intp]:
    """Return the positions of the offsets in ``[start, stop)``, in ascending order of offset."""
    inside = np.flatnonzero((offsets >= span[0]) & (offsets < span[1]))
    chosen = offsets[inside]
    return inside if bool((chosen[1:] > chosen[:-1]).all()) else inside[np.argsort(chosen, kind="stable")]

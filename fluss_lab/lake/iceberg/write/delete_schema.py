"""The form of delete files that carry rows: the state's deletes and the changelog's ``-U`` and ``-D`` events in one.

A position-delete file has, beside Iceberg's ``file_path`` and ``pos``, the change type, the offset of the row that the
event ends, and the whole old row with the event's own offset and timestamp. The table's columns have their own field ids
but are called ``_r<field id>``: a user's column called ``pos`` or ``file_path`` would break Spark and pyiceberg. Readers of
Iceberg see ordinary position deletes. An event whose row is in no file goes to an equality-delete file, where the
table's columns keep their names, since readers of these look for the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.parquet_input import opened_parquet
from fluss_lab.lake.iceberg.table.type_mapping import FIELD_ID_KEY, arrow_schema
from fluss_lab.model import ChangeType
from fluss_lab.model.values.required_fields import cast_column

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

#: Reserved by Iceberg: of position-delete files, and of changelogs.
PATH_ID: Final = 2147483546
POSITION_ID: Final = 2147483545
CHANGE_TYPE_ID: Final = 2147483543
#: Ours: below all ids that Iceberg reserves, above all that tables use.
PREVIOUS_OFFSET_ID: Final = 2147482647
PATH_COLUMN: Final = "file_path"
POSITION_COLUMN: Final = "pos"
CHANGE_TYPE_COLUMN: Final = "_change_type"
PREVIOUS_OFFSET_COLUMN: Final = "_previous_offset"
#: What an event without a place has for them in a file that the committer is going to place.
NO_PATH: Final = ""
NO_POSITION: Final = -1
_READ_ROWS: Final = 64 * 1024
_SYMBOLS: Final = pa.array([ChangeType.UPDATE_BEFORE.symbol, ChangeType.DELETE.symbol])
#: A column of texts: plain as it is read; of the writer, by dictionary.
TEXT: Final = pa.string()
SYMBOL_TYPE: Final = pa.dictionary(pa.int8(), pa.string())
_RANGES: Final = re.compile(r"-e(\d+)_(\d+)-t(-?\d+)_(-?\d+)-[0-9a-f]{32}\.parquet$")


@dataclass(frozen=True, slots=True)
class EventRange:
    """Between which offsets and times the events of a delete file lie.

    Attributes:
        min_offset: No event has a smaller offset (inclusive).
        max_offset: No event has a larger offset (inclusive).
        min_timestamp_ms: No event is earlier (inclusive).
        max_timestamp_ms: No event is later (inclusive).
    """

    min_offset: int
    max_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int


def event_range(path: str) -> EventRange | None:
    """Return what the name of a delete file says of its events; None when it says nothing, so that one has to look."""
    found = _RANGES.search(path)
    return None if found is None else EventRange(*(int(number) for number in found.groups()))


def delete_schema(schema: Schema, path_type: pa.DataType = TEXT, symbol_type: pa.DataType = TEXT) -> pa.Schema:
    """Return the columns of a position-delete file that carries rows of a table.

    Args:
        schema: The table's columns in the lake, user's then system.
        path_type: A string, plain or by dictionary.
        symbol_type: Of the change types, likewise.
    """
    path = reserved_field(PATH_COLUMN, path_type, PATH_ID)
    return pa.schema(
        [path, reserved_field(POSITION_COLUMN, pa.int64(), POSITION_ID), *event_fields(schema, symbol_type)]
    )


def equality_schema(schema: Schema, symbol_type: pa.DataType = TEXT) -> pa.Schema:
    """Return the columns of an equality-delete file: the table's under their names, then those of the event."""
    return pa.schema([*arrow_schema(schema), *change_fields(symbol_type)])


def read_events(io: FileIO, file: DataFile) -> Iterator[pa.RecordBatch]:
    """Yield the events of a delete file, whatever its kind, with columns as `delete_schema` has them.

    The table's columns are those that the file has, called ``_r<field id>``: one that was added later is missing.
    `NO_PATH` and `NO_POSITION` stand in events of equality-delete files and of files that were not placed. A file without
    events (another engine's delete file) yields nothing.

    Args:
        io: Access to the file.
        file: A delete file.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is no Parquet file.
    """
    with opened_parquet(io, file.file_path, "delete file") as parquet:
        names = _event_names(parquet.schema_arrow)
        if CHANGE_TYPE_COLUMN not in names:
            return
        # By row group: a batch could span several, and these are what bounds the bytes of wide rows.
        for number in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(batch_size=_READ_ROWS, row_groups=[number], use_threads=False):
                yield _as_events(batch, names)


def reserved_field(name: str, arrow: pa.DataType, field_id: int) -> pa.Field:
    """Return a column of delete files that is none of the table's."""
    return pa.field(name, arrow, nullable=False, metadata={FIELD_ID_KEY: str(field_id).encode()})


def field_id_of(field: pa.Field) -> int:
    """Return the field id in a column's metadata; -1 without one."""
    return int((field.metadata or {}).get(FIELD_ID_KEY, -1))


def change_fields(symbol_type: pa.DataType) -> list[pa.Field]:
    """Return the columns of what an event did; `symbol_type` is a string, plain or by dictionary."""
    return [
        reserved_field(CHANGE_TYPE_COLUMN, symbol_type, CHANGE_TYPE_ID),
        reserved_field(PREVIOUS_OFFSET_COLUMN, pa.int64(), PREVIOUS_OFFSET_ID),
    ]


def event_fields(schema: Schema, symbol_type: pa.DataType) -> list[pa.Field]:
    """Return the columns of an event: what it did, then the table's by field id."""
    named = [
        field.with_name(f"_r{each.field_id}") for field, each in zip(arrow_schema(schema), schema.fields, strict=True)
    ]
    return [*change_fields(symbol_type), *named]


def _event_names(schema: pa.Schema) -> dict[str, pa.Field]:
    """Return the columns of a delete file by the names that they have in `delete_schema`, by their field ids."""
    names = {
        PATH_ID: PATH_COLUMN,
        POSITION_ID: POSITION_COLUMN,
        CHANGE_TYPE_ID: CHANGE_TYPE_COLUMN,
        PREVIOUS_OFFSET_ID: PREVIOUS_OFFSET_COLUMN,
    }
    found = {}
    for field in schema:
        if (field_id := field_id_of(field)) >= 0:
            found[names.get(field_id, f"_r{field_id}")] = field
    # The order of `delete_schema`, whatever the file's.
    return {name: found[name] for name in [*(name for name in names.values() if name in found), *found]}


def _as_events(batch: pa.RecordBatch, names: dict[str, pa.Field]) -> pa.RecordBatch:
    columns = [batch.column(batch.schema.get_field_index(field.name)) for field in names.values()]
    fields = [field.with_name(name) for name, field in names.items()]
    if PATH_COLUMN not in names:
        columns = [pa.repeat(NO_PATH, len(batch)), pa.repeat(pa.scalar(NO_POSITION, pa.int64()), len(batch)), *columns]
        fields = [
            reserved_field(PATH_COLUMN, pa.string(), PATH_ID),
            reserved_field(POSITION_COLUMN, pa.int64(), POSITION_ID),
            *fields,
        ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def change_symbols(kinds: NDArray[np.int8]) -> pa.DictionaryArray:
    """Return ``-U`` and ``-D`` `ChangeType` numbers as they are written."""
    return pa.DictionaryArray.from_arrays(pa.array((kinds == ChangeType.DELETE).astype(np.int8)), _SYMBOLS)


def conform_events(what: str, events: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return events in the columns that are written now: those added since are null, types that were widened are cast.

    Args:
        what: The table and bucket, for messages.
        events: Of `read_events`.
        schema: Of `event_fields`.

    Raises:
        CorruptDataError: A column that is never null is missing, or there is another change type.
    """
    columns: list[Any] = []
    for field in schema:
        index = events.schema.get_field_index(field.name)
        if index >= 0 and field.type == SYMBOL_TYPE:
            indices = pc.index_in(events.column(index), _SYMBOLS).cast(pa.int8())
            columns.append(pa.DictionaryArray.from_arrays(indices, _SYMBOLS))
        elif index >= 0:
            columns.append(cast_column(events.column(index), field.type))
        else:
            columns.append(cast_column(pa.nulls(len(events), field.type), field.type))
        if not field.nullable and columns[-1].null_count:
            raise CorruptDataError(f"{what}: events without the column {field.name!r}, which is never null")
    return pa.Table.from_arrays(columns, schema=schema)

"""Files as other engines write them: delete files that carry no rows."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record


def bare_position_deletes(table, info, places, *, bucket=0, partition=None, ids=True) -> DataFile:
    """Return a position-delete file with nothing but paths and positions."""
    del info
    schema = pa.schema([_field("file_path", pa.string(), 2147483546, ids), _field("pos", pa.int64(), 2147483545, ids)])
    rows = pa.table([[path for path, _ in sorted(places)], [at for _, at in sorted(places)]], schema=schema)
    return _file(table, rows, DataFileContent.POSITION_DELETES, None, bucket, partition)


def equality_deletes(table, info, columns, *, bucket=0, partition=None, names=None) -> DataFile:
    """Return an equality-delete file with the values of some columns."""
    del info
    fields = [table.schema().find_field(name) for name in columns]
    arrow = {field.name: field for field in table.schema().as_arrow()}
    schema = pa.schema([arrow[field.name] for field in fields])
    rows = pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
    ids = [field.field_id for field in fields if names is None or field.name in names]
    return _file(table, rows, DataFileContent.EQUALITY_DELETES, ids, bucket, partition)


def _field(name, arrow, field_id, ids):
    metadata = {b"PARQUET:field_id": str(field_id).encode()} if ids else None
    return pa.field(name, arrow, nullable=False, metadata=metadata)


def _file(table, rows, content, ids, bucket, partition) -> DataFile:
    location = f"{table.location()}/data/foreign-{uuid.uuid4().hex}.parquet"
    with table.io.new_output(location).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*([] if partition is None else [partition]), bucket),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(location)),
        equality_ids=ids,
    )
    file.spec_id = table.spec().spec_id
    return file

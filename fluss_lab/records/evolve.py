"""Rows of one schema of a table as rows of another: columns added since are null, columns not known are cut."""

from __future__ import annotations

import pyarrow as pa

from fluss_lab.errors import InvalidRecordError


def padded(rows: pa.RecordBatch, schema: pa.Schema, *, cut: bool = False) -> pa.RecordBatch:
    """Return rows with exactly the columns of a schema, matched by name, in its order and with its nullability.

    Args:
        rows: Of an older (or, with `cut`, newer) schema of the same table, or of a part of its columns.
        schema: Of the rows wanted.
        cut: Whether columns that `schema` does not have are left out instead of refused.

    Returns:
        The rows themselves when nothing differs; else a batch over the same buffers. Nullable columns that are missing
        are null.

    Raises:
        InvalidRecordError: A NOT NULL column of `schema` is missing or holds a null, a column has another type, or
            there is a column too many.

    Cost: no values are copied; null columns are made, and counted nulls are looked at where NOT NULL is asked.
    """
    if rows.schema.equals(schema):
        return rows
    if not cut and (unknown := [name for name in rows.schema.names if schema.get_field_index(name) < 0]):
        raise InvalidRecordError(f"column {unknown[0]!r} is unknown; expected {', '.join(schema.names)}")
    arrays = [_column(rows, field) for field in schema]
    if not arrays:
        return rows.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        if not field.nullable:
            raise InvalidRecordError(f"column {field.name!r} is NOT NULL and missing")
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(index)
    if column.type != field.type:
        raise InvalidRecordError(f"column {field.name!r}: expected {field.type}, found {column.type}")
    if not field.nullable and column.null_count:
        raise InvalidRecordError(
            f"column {field.name!r} is NOT NULL: {column.null_count} of {len(column)} rows are null"
        )
    return column

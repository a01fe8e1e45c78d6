"""How many bytes rows take, told before they are copied."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.server.kv.keys import Longs


def value_bytes(column: pa.Array) -> Longs:
    """Return about how many bytes each value takes in a column of its own: its data, and the place of it.

    Cost: some 2 ns a value; of lists and maps also for each of their elements.
    """
    kind, count = column.type, len(column)
    if pa.types.is_struct(kind):
        return sum((value_bytes(column.field(index)) for index in range(kind.num_fields)), np.zeros(count, np.int64))
    if (width := _width(kind)) is not None:
        return np.full(count, width)
    places = column.buffers()[1]
    if places is None:
        return np.zeros(count, np.int64)
    edges = np.frombuffer(places, np.int32, count=count + 1, offset=4 * column.offset).astype(np.int64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inner = [column.values] if pa.types.is_list(kind) else [column.keys, column.items]
        elements = np.add.reduce([value_bytes(each) for each in inner])
        edges = np.concatenate([[0], np.cumsum(elements)])[edges]
    sizes: Longs = np.diff(edges) + 4
    return sizes


def widest_bytes(columns: Iterable[pa.Array]) -> int:
    """Return how many bytes no row of some columns exceeds."""
    held = [(column, _width(column.type)) for column in columns]
    return sum(int(value_bytes(column).max(initial=0)) if width is None else width for column, width in held)


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of each value of a type; None when they differ."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return int(kind.bit_width) // 8
    return None


def rows_bytes(columns: Iterable[pa.Array], rows: Longs) -> int:
    """Return about how many bytes some rows take; one that is named several times counts as often."""
    return sum(int(value_bytes(column)[rows].sum()) for column in columns)


def check_rows(columns: Iterable[pa.Array], rows: Longs, bytes_max: int) -> None:
    """Refuse to copy rows that are too large together; one that is copied several times counts as often.

    Raises:
        RecordTooLargeError: They have more than `bytes_max`.
    """
    held = list(columns)
    # No row is larger than the whole: most are let through by that.
    if rows.size * sum(column.nbytes for column in held) <= bytes_max:
        return
    size = rows_bytes(held, rows)
    if size > bytes_max:
        raise RecordTooLargeError(
            f"{rows.size} rows have {size} bytes, expected at most {bytes_max} at once; ask for, or send, fewer rows at once"
        )

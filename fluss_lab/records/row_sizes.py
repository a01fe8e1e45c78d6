"""The size of rows in bytes, and its limit: one rule, for those that send rows and those that take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.config.options import REQUEST_SIZE_MAX

#: Of the largest request. A row of a primary-key table is logged twice when it is updated, as it was and as it is.
_SHARES: Final = {False: (7, 8), True: (7, 16)}
#: Whatever the request may have: rows are gathered in Arrow arrays of 32-bit offsets.
_ROW_BYTES_MAX: Final = 128 << 20
#: Around the values of a batch: its header and Arrow's message; for each column, also inner ones, its place and padding.
_BATCH_BYTES: Final = 512
_COLUMN_BYTES: Final = 256
#: What is in the table after a change. What a change replaces or deletes may be as large as it is.
_WRITTEN: Final = [int(ChangeType.APPEND_ONLY), int(ChangeType.INSERT), int(ChangeType.UPDATE_AFTER)]


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The largest row of a table: what is accepted can also be updated, deleted, looked up, fetched and scanned.

    Attributes:
        bytes_max: Of a row, with what is around its values.
        keyed: Whether the table has a primary key.
    """

    bytes_max: int
    keyed: bool

    @staticmethod
    def of(request_bytes_max: int, *, keyed: bool) -> RowLimit:
        """Return the limit where requests may have so many bytes (``server.request-size-max``)."""
        part, of = _SHARES[keyed]
        return RowLimit(min(request_bytes_max * part // of, _ROW_BYTES_MAX), keyed)

    def check(self, rows: pa.RecordBatch, change_types: bytes | None = None) -> None:
        """Refuse rows that are too large.

        Args:
            change_types: A byte a row: only what is written counts, not what it replaces; None: all is.

        Raises:
            RecordTooLargeError: One is.
        """
        # No row is larger than the whole: nearly all are let through by that.
        around = around_bytes(rows.schema)
        if rows.nbytes + around <= self.bytes_max or not rows.num_rows:
            return
        sizes = np.add.reduce([value_bytes(column) for column in rows.columns]) + around
        if change_types is not None:
            sizes = sizes[np.isin(np.frombuffer(change_types, np.uint8), _WRITTEN)]
        if (found := int(sizes.max(initial=0))) > self.bytes_max:
            raise RecordTooLargeError(self._text(found))

    def _text(self, found: int) -> str:
        part, of = _SHARES[self.keyed]
        kind = "with" if self.keyed else "without"
        return (
            f"a row of {found:,} bytes, expected at most {self.bytes_max:,} in a table {kind} a primary key ({part}/{of} of "
            f"{REQUEST_SIZE_MAX.key}, never more than {_ROW_BYTES_MAX:,}); raise {REQUEST_SIZE_MAX.key}, or keep large "
            "values elsewhere and their place in the row"
        )


def around_bytes(schema: pa.Schema) -> int:
    """Return how many bytes a batch has beside the values of its rows, at most about."""
    return _BATCH_BYTES + _COLUMN_BYTES * sum(_columns(field.type) for field in schema)


def _columns(kind: pa.DataType) -> int:
    return 1 + sum(_columns(kind.field(index).type) for index in range(kind.num_fields))


def value_bytes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return about how many bytes each value takes in a column of its own: its data, and the place of it.

    Cost: some 2 ns a value; of lists and maps also for each of their elements.
    """
    kind, count = column.type, len(column)
    if pa.types.is_struct(kind):
        return sum((value_bytes(column.field(index)) for index in range(kind.num_fields)), np.zeros(count, np.int64))
    if (width := fixed_bytes(kind)) is not None:
        return np.full(count, width)
    places = column.buffers()[1]
    if places is None:
        return np.zeros(count, np.int64)
    edges = np.frombuffer(places, np.int32, count=count + 1, offset=4 * column.offset).astype(np.int64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inner = [column.values] if pa.types.is_list(kind) else [column.keys, column.items]
        elements = np.add.reduce([value_bytes(each) for each in inner])
        edges = np.concatenate([[0], np.cumsum(elements)])[edges]
    sizes: npt.NDArray[np.int64] = np.diff(edges) + 4
    return sizes


def fixed_bytes(kind: pa.DataType) -> int | None:
    """Return the bytes of each value of a type; None when they differ."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return int(kind.bit_width) // 8
    return None


def widest_bytes(columns: Iterable[pa.Array]) -> int:
    """Return how many bytes no row of some columns exceeds."""
    held = [(column, fixed_bytes(column.type)) for column in columns]
    return sum(int(value_bytes(column).max(initial=0)) if width is None else width for column, width in held)


def rows_bytes(columns: Iterable[pa.Array], rows: npt.NDArray[np.int64]) -> int:
    """Return about how many bytes some rows take; one that is named several times counts as often."""
    return sum(int(value_bytes(column)[rows].sum()) for column in columns)


def check_rows(columns: Iterable[pa.Array], rows: npt.NDArray[np.int64], bytes_max: int) -> None:
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

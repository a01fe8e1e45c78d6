"""The size of rows in bytes, computed before they are copied."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.records.row_sizes import fixed_bytes, value_bytes
from fluss_lab.server.kv.keys.key_hashes import Longs


def widest_bytes(columns: Iterable[pa.Array]) -> int:
    """Return how many bytes no row of some columns exceeds."""
    held = [(column, fixed_bytes(column.type)) for column in columns]
    return sum(int(value_bytes(column).max(initial=0)) if width is None else width for column, width in held)


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

"""Reading with every size made small, so that a table of a few rows takes the ways of a large one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fluss_lab.lake.iceberg.read import data_file_scan
from fluss_lab.read.changelog import net_changes
from fluss_lab.read.union import lake_rows, pk_merge, pk_plan, pk_undo, read_columns

#: What a reader holds at once, or reads together: bytes, rows, records.
SMALL: Final[tuple[tuple[Any, str, int], ...]] = (
    (read_columns, "GATHERED_ROWS", 3),
    (read_columns, "GATHERED_BYTES", 400),
    (read_columns, "BATCH_BYTES", 600),
    (lake_rows, "BATCH_ROWS", 3),
    (lake_rows, "RUN_BYTES", 1),
    (pk_undo, "BATCH_ROWS", 3),
    (pk_undo, "KEPT_BYTES", 100),
    (pk_merge, "TAIL_BYTES", 100),
    (pk_merge, "LIVE_MIN", 4),
    (pk_plan, "FOLDED_MIN", 5),
    (net_changes, "HELD_RECORDS_MAX", 8),
    (data_file_scan, "FILES_AT_ONCE", 2),
    (data_file_scan, "SMALL_BYTES", 1),
    (data_file_scan, "AHEAD_BYTES", 1),
    (data_file_scan, "_BATCH_ROWS", 3),
)


@contextmanager
def small_sizes() -> Iterator[None]:
    """Make every size small; as before when done."""
    before = [(module, name, getattr(module, name)) for module, name, _ in SMALL]
    for module, name, size in SMALL:
        setattr(module, name, size)
    try:
        yield
    finally:
        for module, name, size in before:
            setattr(module, name, size)

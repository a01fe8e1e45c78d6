"""Reading with every size made small, so that a table of a few rows takes the ways of a large one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fluss_lab.lake.iceberg.read import file_reading
from fluss_lab.read.changelog import net
from fluss_lab.read.union import columns, keyed_plan, keyed_rows, lake_rows, live_rows

#: What a reader holds at once, or reads together: bytes, rows, records.
SMALL: Final[tuple[tuple[Any, str, int], ...]] = (
    (columns, "GATHERED_ROWS", 3),
    (lake_rows, "BATCH_ROWS", 3),
    (lake_rows, "RUN_BYTES", 1),
    (live_rows, "BATCH_ROWS", 3),
    (live_rows, "KEPT_BYTES", 100),
    (keyed_rows, "TAIL_BYTES", 100),
    (keyed_plan, "FOLDED_MIN", 5),
    (net, "HELD_RECORDS_MAX", 8),
    (file_reading, "FILES_AT_ONCE", 2),
    (file_reading, "SMALL_BYTES", 1),
    (file_reading, "AHEAD_BYTES", 1),
    (file_reading, "_BATCH_ROWS", 3),
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

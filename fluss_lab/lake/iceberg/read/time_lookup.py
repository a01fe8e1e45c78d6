"""The first record at or after a time, in one open file of a bucket."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fluss_lab.lake.format_interfaces import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.lake.iceberg.read.data_file_rows import LakeFileReader
from fluss_lab.lake.iceberg.read.delete_event_reader import EventFile

#: Offset, and timestamp in epoch milliseconds.
FirstRecord: TypeAlias = tuple[int, int]


def first_row_at(
    reader: LakeFileReader, timestamp_ms: int, span: tuple[int, int], best: FirstRecord | None
) -> FirstRecord | None:
    """Return the first row of a data file at or after a time, or the best known if that comes before it.

    Args:
        reader: The file.
        timestamp_ms: The time.
        span: Offsets ``[start, stop)``: others do not count.
        best: What other files had.

    Raises:
        CorruptDataError: The file cannot be decoded.
    """
    wanted_us = timestamp_ms * 1000
    groups = [group for group in reader.groups if group.max_timestamp_us >= wanted_us and group.max_offset >= span[0]]
    for group in sorted(groups, key=lambda group: group.min_offset):
        if group.min_offset >= (span[1] if best is None else best[0]):
            break
        rows = reader.read([group], [OFFSET_COLUMN, TIMESTAMP_COLUMN])
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        micros = rows.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy()
        low, high = np.searchsorted(offsets, span)
        late = np.flatnonzero(micros[low:high] >= wanted_us)
        if late.size:
            at = int(low) + int(late[0])
            found = (int(offsets[at]), int(micros[at]) // 1000)
            best = found if best is None else min(best, found)
    return best


def first_event_at(
    events: EventFile, timestamp_ms: int, span: tuple[int, int], best: FirstRecord | None
) -> FirstRecord | None:
    """Return the first event of a delete file at or after a time, or the best known if that comes before it.

    Args:
        events: The file.
        timestamp_ms: The time.
        span: Offsets ``[start, stop)``: others do not count.
        best: What other files had.

    Raises:
        CorruptDataError: The file is not what tiering writes.
    """
    offsets, times = events.times(span)
    late = np.flatnonzero(times >= timestamp_ms)
    if not late.size:
        return best
    found = (int(offsets[late[0]]), int(times[late[0]]))
    return found if best is None else min(best, found)

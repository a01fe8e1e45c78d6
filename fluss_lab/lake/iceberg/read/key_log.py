"""The records of few keys of a primary-key bucket's log: files and row groups without them are left alone, by statistics.

What `pk_log` puts together whole is here put together of what a condition over the key leaves. A ``-U`` and the ``+U``
behind it have the same key, so they stay side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.lake.iceberg.metadata.replay_chain import ChainLink
from fluss_lab.lake.iceberg.read.data_file_reader import clip_rows
from fluss_lab.lake.iceberg.read.pk_log import NO_OFFSET, FileOpeners
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import ChangeType
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

_SYSTEM: Final = pa.schema(
    [("offset", pa.int64()), ("time_ms", pa.int64()), ("kind", pa.int8()), ("previous", pa.int64())]
)


def records_by_key(
    files: FileOpeners,
    link: ChainLink,
    span: tuple[int, int],
    names: Sequence[str],
    where: pc.Expression,
    might_match: Callable[[DataFile], bool],
) -> LogRecords | None:
    """Return the records ``[start, stop)`` of a chain link that fulfil a condition, ascending by offset; None: there are none.

    Args:
        files: How files are opened.
        link: The link that holds the range.
        span: The range.
        names: User's columns, in the order wanted, those of the condition among them.
        where: Over columns of the primary key alone.
        might_match: Whether a file can hold rows for which it is true.

    Raises:
        FileNotFoundError: A file is gone.
        CorruptDataError: A file is not what it should be.

    Cost: of each file that may have such records, the row groups that may; memory is what was found, and a row group.
    """
    rows: list[pa.Table] = []
    system: list[pa.Table] = []
    for file in link.state.data:
        if file.max_offset < span[0] or file.min_offset >= span[1] or not might_match(file.file):
            continue
        with files.data(file) as reader:
            groups = [group for group in reader.groups if group.max_offset >= span[0] and group.min_offset < span[1]]
            for run in reader.runs(reader.matching(groups, where)):
                found = reader.read(run, list(dict.fromkeys([*names, OFFSET_COLUMN, TIMESTAMP_COLUMN])), where)
                found = clip_rows(found, found.column(OFFSET_COLUMN), *span)
                offsets = found.column(OFFSET_COLUMN).to_numpy()
                times_ms = found.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy() // 1000
                rows.append(found.select(names))
                system.append(_columns(offsets, times_ms, ChangeType.INSERT, NO_OFFSET))
    # An update whose first half is below the range.
    reach = (span[0] - 1 if span[0] > link.start else span[0], span[1])
    for known, delete in link.events:
        if known.max_offset < reach[0] or known.min_offset >= span[1] or not might_match(delete.file):
            continue
        with files.events(delete) as opened:
            events = opened.events(names, reach)
        mine = events.rows.filter(where)
        at = np.searchsorted(events.offsets, mine.column(OFFSET_COLUMN).to_numpy())
        rows.append(mine.select(names))
        system.append(_columns(events.offsets[at], events.times_ms[at], events.kinds[at], events.previous[at]))
    return _join_records(rows, system, span[0]) if any(map(len, rows)) else None


def _columns(offsets: Any, times_ms: Any, kinds: Any, previous: Any) -> pa.Table:
    count = len(offsets)
    arrays = (np.broadcast_to(each, count) for each in (offsets, times_ms, kinds, previous))
    columns = [pa.array(np.ascontiguousarray(each), field.type) for each, field in zip(arrays, _SYSTEM, strict=True)]
    return pa.Table.from_arrays(columns, schema=_SYSTEM)


def _join_records(rows: list[pa.Table], system: list[pa.Table], start: int) -> LogRecords | None:
    """Return records of several files as one, with the inserts that follow a ``-U`` as ``+U``; those below a start go."""
    every = pa.concat_tables(system)
    order = pc.sort_indices(every.column(0))
    every = every.take(order)
    offsets, kinds, previous = (every.column(at).to_numpy().copy() for at in (0, 2, 3))
    after = (
        (kinds[1:] == ChangeType.INSERT)
        & (kinds[:-1] == ChangeType.UPDATE_BEFORE)
        & (offsets[1:] == offsets[:-1] + 1)
    )  # fmt: skip
    kinds[1:][after] = ChangeType.UPDATE_AFTER
    previous[1:][after] = previous[:-1][after]
    low = int(np.searchsorted(offsets, start))
    if low == len(offsets):
        return None
    taken = pa.concat_tables(rows).take(order).slice(low).combine_chunks()
    (batch,) = taken.to_batches()
    times_ms = pa.array(every.column(1).to_numpy()[low:])
    return LogRecords(batch, pa.array(offsets[low:]), times_ms, pa.array(kinds[low:]), pa.array(previous[low:]))

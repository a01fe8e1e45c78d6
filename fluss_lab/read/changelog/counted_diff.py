"""The difference of a table between two moments in numbers, with its first rows: step by step, and bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_lab.model import TableInfo
from fluss_lab.read.changelog.changelog import (
    LOG_OFFSET,
    ChangelogRange,
    changelog_batch,
    changelog_schema,
    read_changes,
)
from fluss_lab.read.changelog.net_changes import HELD_BYTES_MAX, NetChange, net_slices
from fluss_lab.read.changelog.table_diff import parts_between
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource

#: The four sets of rows of a difference; changed rows are in two of them, in the same order.
ADDED: Final = "added"
REMOVED: Final = "removed"
OLD: Final = "old"
NEW: Final = "new"
_REVERSED: Final = {ADDED: REMOVED, REMOVED: ADDED, OLD: NEW, NEW: OLD}


@dataclass(slots=True)
class CountedDiff:
    """What changed in a table from one moment to another: how many rows, and the first of them.

    Attributes:
        before: The one moment.
        after: The other one, earlier or later.
        counts: How many rows are ``added``, ``removed``, and ``old``, which are as many as ``new``.
        rows: The first rows of each set, in the columns of `changelog_schema`, by partition, bucket and offset.
        lake_records: Records of the log between the moments that only the lake holds.
        log_records: Those that the cluster holds.
        records: How many were read, again ones included.
        buckets: How many buckets have something between the moments.
        done: How many of them are compared; all when the difference is whole.
        is_full: Whether no more rows are kept, since those that are kept are large.
    """

    before: ReadPoint
    after: ReadPoint
    counts: dict[str, int]
    rows: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {name: [] for name in _REVERSED})
    lake_records: int = 0
    log_records: int = 0
    records: int = 0
    buckets: int = 0
    done: int = 0
    is_full: bool = False

    def room(self, name: str, rows_max: int) -> int:
        """Return how many more rows of a set are kept."""
        return 0 if self.is_full else rows_max - sum(each.num_rows for each in self.rows[name])

    def weigh(self) -> None:
        """Keep no more once what is kept is large."""
        size_bytes = sum(each.nbytes for batches in self.rows.values() for each in batches)
        self.is_full = self.is_full or size_bytes >= HELD_BYTES_MAX

    def table(self, name: str, info: TableInfo) -> pa.Table:
        """Return the first rows of a set."""
        return pa.Table.from_batches(self.rows[name], changelog_schema(info, info.schema.names))


def counted_diff(source: TableSource, before: ReadPoint, after: ReadPoint, rows_max: int) -> Iterator[CountedDiff]:
    """Yield a difference as far as it is known, after each step of reading; it is whole when there are no more.

    What it counts and holds is what `fluss_lab.read.changelog.table_diff.diff` returns. Of a log table only the rows that
    are kept are read: each offset is one.

    Args:
        source: The table.
        before: A moment.
        after: Another one, earlier or later.
        rows_max: How many rows of each set are kept.

    Raises:
        FlussError: As `diff`.

    Memory: `rows_max` rows of each set, of large rows fewer (`HELD_BYTES_MAX`), and what `net_slices` holds.
    """
    found = CountedDiff(before, after, dict.fromkeys(_REVERSED, 0))
    parts = parts_between(source, before, after)
    found.buckets = len(parts)
    for part, _ in parts:
        found.lake_records += part.lake_stop - part.start
        found.log_records += part.stop - part.lake_stop
    yield found
    for part, is_forward in parts:
        if source.info.is_log_table:
            name = ADDED if is_forward else REMOVED
            found.counts[name] += part.stop - part.start
            _keep_first(source, part, found, name, rows_max)
        else:
            bucket = _BucketDiff(changelog_schema(source.info, source.info.schema.names), rows_max)
            for step in net_slices(source, part):
                if isinstance(step, int):
                    found.records += step
                    yield found
                else:
                    bucket.add(part, step)
            rooms = {name: found.room(name, rows_max) for name in _REVERSED}
            for name, count in bucket.counts.items():
                shown = name if is_forward else _REVERSED[name]
                found.counts[shown] += count
                found.rows[shown].append(bucket.rows[name].slice(0, rooms[shown]))
                found.is_full |= bucket.rows[name].num_rows < min(count, rows_max)
            found.weigh()
        found.done += 1
        yield found


def _keep_first(source: TableSource, part: ChangelogRange, found: CountedDiff, name: str, rows_max: int) -> None:
    """Keep the first records of a log table's bucket, and read no others."""
    stop = min(part.stop, part.start + found.room(name, rows_max))
    if stop <= part.start:
        return
    first = replace(part, stop=stop, lake_stop=min(part.lake_stop, stop))
    schema = changelog_schema(source.info, source.info.schema.names)
    for records in read_changes(source, first, source.info.schema.names):
        found.records += len(records)
        found.rows[name].append(changelog_batch(records, part, schema))
        found.weigh()
        if found.is_full:
            break


class _BucketDiff:
    """The net change of one bucket, slice by slice: counted, and the first rows kept, by the offset of what is there after."""

    def __init__(self, schema: pa.Schema, rows_max: int) -> None:
        self._schema = schema
        #: Sets whose rows belong together, with how many are kept; large rows make it fewer.
        self._limits: dict[tuple[str, ...], int] = dict.fromkeys([(ADDED,), (REMOVED,), (NEW, OLD)], rows_max)
        self.counts = dict.fromkeys(_REVERSED, 0)
        self.rows = {name: pa.RecordBatch.from_pylist([], schema) for name in _REVERSED}

    def add(self, part: ChangelogRange, change: NetChange) -> None:
        """Add a slice."""
        fresh = {}
        sets = {ADDED: change.inserted, REMOVED: change.deleted, OLD: change.before, NEW: change.after}
        for (name, records), sign in zip(sets.items(), ("+I", "-D", "-U", "+U"), strict=True):
            self.counts[name] += len(records)
            fresh[name] = changelog_batch(records, part, self._schema, sign)
        for names, limit in self._limits.items():
            both = {name: pa.concat_batches([self.rows[name], fresh[name].slice(0, limit)]) for name in names}
            order = np.argsort(both[names[0]].column(LOG_OFFSET).to_numpy(), kind="stable")[:limit]
            taken = {name: batch.take(pa.array(order)) for name, batch in both.items()}
            while sum(batch.nbytes for batch in taken.values()) > HELD_BYTES_MAX and len(order) > 1:
                order = order[: len(order) // 2]
                taken = {name: batch.slice(0, len(order)) for name, batch in taken.items()}
                self._limits[names] = len(order)
            self.rows |= taken

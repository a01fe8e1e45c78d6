"""Changes of a primary-key table between two read points, and from a read point on: what leads from one to another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError, PartitionNotFoundError, UnsupportedError
from fluss_lab.lookup.rows.keyed_rows import KeyedRows, KeyIndex, Longs, distinct, empty_batch, merge_found
from fluss_lab.model import TableBucket
from fluss_lab.model.changes import ChangeType
from fluss_lab.read.changelog.changelog import locate_range, read_changes
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.records import LogRecords

#: Changes that end a row: they have it as it was.
_ENDS: Final = (int(ChangeType.UPDATE_BEFORE), int(ChangeType.DELETE))


def own_buckets(point: ReadPoint, numbers: Collection[int] | None) -> list[PointBucket]:
    """Return the buckets of a point that have some numbers; None: all.

    Raises:
        FlussError: One of them was not known when the point was taken.
    """
    for unknown in point.unknown:
        if numbers is None or unknown.bucket in numbers:
            raise unknown.error
    return [each for each in point.buckets if numbers is None or each.bucket in numbers]


def ranges_between(old: ReadPoint, new: ReadPoint, numbers: Collection[int] | None) -> list[LogRange] | None:
    """Return the records between two points of a table, by bucket; None where changes do not lead from one to the other.

    They do not where a partition of the old point is not in the new one, and where the new point is the older one.
    """
    before = {_identity(old, each): each.stop for each in own_buckets(old, numbers)}
    found = []
    for each in own_buckets(new, numbers):
        bucket = _identity(new, each)
        start = before.pop(bucket, 0)
        if each.stop < start:
            return None
        if start < each.stop:
            found.append(LogRange(bucket, each.partition, start, each.stop))
    return None if before else found


def changes(source: TableSource, ranges: Sequence[LogRange], columns: Sequence[str]) -> Iterator[LogRecords]:
    """Yield the records of ranges, bucket by bucket in order, with some of the table's columns.

    Raises:
        OffsetOutOfRangeError: Some are held nowhere any more.
    """
    if not ranges:
        return
    state = source.look()
    for each in ranges:
        yield from read_changes(source, locate_range(each, state), columns)


def ends(records: LogRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return of each change whether it ends a row, and so has it as it was; the others have it as it became."""
    if records.change_types is None:
        raise CorruptDataError(
            f"changes [{records.base_offset}, {records.next_offset}): expected change types, found none"
        )
    return np.isin(records.change_types.to_numpy(), _ENDS)


class PointUndo:
    """What has become of a table's rows since a read point, taken back: live rows become those of the point.

    Of each key the first change since the point is kept: it says whether there was a row, and which. Used by one thread.

    Args:
        source: The table.
        point: The moment.
        buckets: Of the point, those that rows are asked of.
        key: The primary key.
        names: Columns by which rows are looked up, some of the primary key's.
        columns: All columns wanted of rows, those of the key and names among them.
        keys_max: Of so many keys at most the first change is held.

    Memory: a row for each key that has changed since the point.
    """

    def __init__(
        self, source: TableSource, point: ReadPoint, buckets: Sequence[PointBucket], key: Sequence[str],
        names: Sequence[str], columns: Sequence[str], keys_max: int,
    ) -> None:  # fmt: skip
        self._keys_max = keys_max
        self._source = source
        self._buckets: Mapping[TableBucket, PointBucket] = {_identity(point, each): each for each in buckets}
        self._read = {bucket: each.stop for bucket, each in self._buckets.items()}
        self._key, self._names, self._columns = list(key), list(names), list(columns)
        schema = pa.schema([source.info.schema.arrow_schema.field(name).with_nullable(True) for name in columns])
        self._rows = empty_batch(schema)
        self._changed = KeyIndex.of(self._rows.select(self._key))
        self._existed = np.zeros(0, dtype=np.bool_)
        #: The rows that there were, by `names`; made when needed.
        self._before: KeyedRows | None = None

    def __len__(self) -> int:
        return len(self._changed)

    def extend(self, partitions: Collection[str] | None = None) -> None:
        """Read the log up to now: what was looked up before this call is undone from then on.

        Args:
            partitions: Only of these partitions; None: of all.

        Raises:
            PartitionNotFoundError: A partition of the point is gone from the cluster.
            OffsetOutOfRangeError: Changes since the point are held nowhere any more.
            UnsupportedError: More keys have changed than may be held.

        Cost: a look at the table; reading what was written since the last call.
        """
        state = self._source.look()
        for bucket, each in self._buckets.items():
            if partitions is not None and each.partition not in partitions:
                continue
            present = state.by_bucket.get(bucket)
            if present is None or present.is_dropped:
                raise PartitionNotFoundError(
                    f"lookup in {self._source.info.path}: partition {each.partition!r} was dropped from the cluster, and live "
                    "rows are looked up there; use mode 'full', which reads what the lake holds of it, or a newer read point"
                )
            start, stop = self._read[bucket], present.end
            if stop < start:
                raise CorruptDataError(
                    f"lookup in {self._source.info.path}: expected bucket {bucket} to have records up to offset {start} of the "
                    f"read point, found {stop}"
                )
            if start < stop:
                part = locate_range(LogRange(bucket, each.partition, start, stop), state)
                for records in read_changes(self._source, part, self._columns):
                    self._add(records)
                    self._check_room()
                self._read[bucket] = stop

    def undo(self, keys: pa.RecordBatch, positions: Longs, rows: pa.RecordBatch) -> tuple[Longs, pa.RecordBatch]:
        """Return the rows of keys at the point.

        Args:
            keys: What was looked up: the columns `names`.
            positions: Ascending: of each live row, which key it was found for.
            rows: The live rows, in the columns wanted, looked up before the last `extend`.
        """
        if not len(self._changed):
            return positions, rows
        kept = self._changed.find(rows.select(self._key)) < 0
        if self._before is None:
            self._before = KeyedRows.of(self._rows.filter(pa.array(self._existed)), self._names, is_unique=False)
        at, ids = self._before.match(keys)
        if kept.all() and not len(at):
            return positions, rows
        return merge_found((positions[kept], rows.filter(pa.array(kept))), (at, self._before.rows.take(pa.array(ids))))

    def _check_room(self) -> None:
        if len(self) > self._keys_max:
            raise UnsupportedError(
                f"lookup in {self._source.info.path}: expected at most {self._keys_max:,} keys that have changed since the read "
                f"point (lookup.remote.max-changes), found {len(self):,}; use mode 'full', or a newer read point"
            )

    def _add(self, records: LogRecords) -> None:
        """Keep the first change of each key that had none."""
        rows = records.rows.select(self._columns).cast(self._rows.schema)
        existed = ends(records)
        fresh = np.flatnonzero(self._changed.find(rows.select(self._key)) < 0)
        if not len(fresh):
            return
        _, codes = distinct(rows.select(self._key).take(pa.array(fresh)))
        # The first row of each code: written last.
        firsts = np.empty(int(codes.max()) + 1, dtype=np.int64)
        firsts[codes[::-1]] = fresh[::-1]
        first = rows.take(pa.array(firsts))
        self._changed = self._changed.extend(first.select(self._key))
        self._rows = pa.concat_batches([self._rows, first])
        self._existed = np.concatenate([self._existed, existed[firsts]])
        self._before = None


def _identity(point: ReadPoint, each: PointBucket) -> TableBucket:
    return TableBucket(point.table_id, each.partition_id, each.bucket)

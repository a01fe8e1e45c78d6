"""The compaction policy of a lake table, bucket by bucket.

By itself a compaction is done where it keeps two costs bounded. Of reading: files and deletes of a bucket. Of writing: how
often a row is written again. Files are put together in runs of neighbours by offset, and a run takes a larger file in
only when the smaller ones after it come to almost its size: a row is then rewritten about as often as files double
from a round's to the target, and what is left are files of which each is as large as all after it together, so some ten.

Sizes are judged as Iceberg's own rewrite does: files below 75 % and over 180 % of the target are candidates.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table import TableProperties

from fluss_lab.lake.iceberg.maintenance.compaction_task import BucketCompaction, CompactionScope, CompactionTask
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles
from fluss_lab.lake.iceberg.table.layout import checked_layout
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DATALAKE_DELETE_MODE
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: Iceberg's own: shares of the target size.
SMALL_SHARE: Final = 0.75
LARGE_SHARE: Final = 1.8
#: Iceberg's own: fewer small files are not put together, unless they fill a file.
INPUT_FILES_MIN: Final = 5
#: A file is put together with smaller ones when they come to this part of it (1/1.2).
GROWTH: Final = 1.2
#: A bucket with more position-delete files gets fewer: a reader finds one more at most, of a round whose compaction is still
#: to come. With 20 an event was written again 4.6 times in 2,000 rounds of deletes alone, with 10 it is 5.1 times.
DELETE_FILES_MAX: Final = 10
#: Position-delete files of more rows are as large as they get: they are left alone.
DELETE_ROWS_MAX: Final = 500_000
#: Share of deleted rows from which on data files are rewritten.
DIRTY_SHARE: Final = 0.2
#: Bytes that one automatic compaction rewrites without dropping rows, whatever else there is: the next round goes on.
KEEPING_BYTES_MAX: Final = 4 << 30


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """What is worth it.

    Attributes:
        target_bytes: Size that data files should have.
        force: By hand: whatever can be better is done.
        may_drop: Whether deleted rows may be dropped.
        may_fold: Whether equality deletes may be applied though that is not due for others.
        by_equality: Whether equality deletes are how this table deletes rows, not a rare exception.
    """

    target_bytes: int
    force: bool
    may_drop: bool
    may_fold: bool
    by_equality: bool

    @staticmethod
    def of(table: TableInfo, lake: Table, *, force: bool, may_drop: bool, may_fold: bool) -> CompactionPolicy:
        """Return the policy for a table."""
        target = int(
            lake.properties.get(
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
            )
        )
        by_equality = DATALAKE_DELETE_MODE.of(table.descriptor.properties) == "equality"
        return CompactionPolicy(target, force, may_drop, may_fold, by_equality)

    def bucket(self, key: BucketKey, state: BucketFiles, sequence_number: int) -> BucketCompaction | None:
        """Return what is worth doing with a bucket; None for nothing."""
        sizes = [file.file.file_size_in_bytes for file in state.data]
        runs = packing_runs(sizes, self.target_bytes, force=self.force)
        merge = self._merged_deletes(state)
        drops = self._drops(state)
        by_key = any(delete.is_equality for delete in state.deletes)
        if by_key and not drops:
            # A row that is written again must not escape deletes of a larger sequence number than its own file's.
            runs = []
        if not (runs or merge or drops):
            return None
        share = 0.0 if self.force else DIRTY_SHARE
        return BucketCompaction(
            *key, sequence_number, tuple(state.data), tuple(state.deletes), tuple(runs), tuple(merge), drops, share
        )

    def _drops(self, state: BucketFiles) -> bool:
        """Return whether deleted rows of a bucket are dropped."""
        rows = sum(file.file.record_count for file in state.data)
        by_position = sum(delete.file.record_count for delete in state.deletes if not delete.is_equality)
        by_key = [delete.file.record_count for delete in state.deletes if delete.is_equality]
        if self.force:
            return self.may_drop and bool(state.deletes)
        if by_key and not self.by_equality and self.may_fold:
            return True
        many_keys = sum(by_key) > DIRTY_SHARE * rows or len(by_key) > DELETE_FILES_MAX
        # More than a fifth of all rows: then more than a fifth of some file's.
        return self.may_drop and (by_position > DIRTY_SHARE * rows or (bool(by_key) and many_keys))

    def _merged_deletes(self, state: BucketFiles) -> list[int]:
        """Return which position-delete files are put together."""
        small = [
            index
            for index, delete in enumerate(state.deletes)
            if not delete.is_equality and delete.file.record_count < DELETE_ROWS_MAX
        ]
        if self.force:
            return small if len(small) > 1 else []
        if len(small) <= DELETE_FILES_MAX:
            return []
        small.sort(key=lambda index: state.deletes[index].file.file_size_in_bytes, reverse=True)
        sizes = [state.deletes[index].file.file_size_in_bytes for index in small]
        return sorted(small[merge_start(sizes) :])


def packing_runs(sizes: Sequence[int], target_bytes: int, *, force: bool) -> list[tuple[int, int]]:
    """Return the half-open ranges of neighbouring files that are put together.

    Args:
        sizes: Of a bucket's data files, ascending by offset.
        target_bytes: Size that they should have.
        force: Two small ones are enough, however unlike.
    """
    runs: list[tuple[int, int]] = []
    start = 0
    for at in range(len(sizes) + 1):
        if at < len(sizes) and sizes[at] < SMALL_SHARE * target_bytes:
            continue
        runs += _run_in(sizes, start, at, target_bytes, force=force)
        if at < len(sizes) and sizes[at] > LARGE_SHARE * target_bytes:
            runs.append((at, at + 1))
        start = at + 1
    return runs


def _run_in(sizes: Sequence[int], start: int, stop: int, target_bytes: int, *, force: bool) -> list[tuple[int, int]]:
    """Return the run, if any, within neighbouring small files."""
    if stop - start < 2:
        return []
    if force or sum(sizes[start:stop]) >= target_bytes:
        return [(start, stop)]
    first = start + growth_start(sizes[start:stop])
    return [(first, stop)] if stop - first >= INPUT_FILES_MIN else []


def growth_start(sizes: Sequence[int]) -> int:
    """Return the position of the first file that is not much larger than all after it together."""
    after = sum(sizes)
    for index, size in enumerate(sizes):
        after -= size
        if size <= GROWTH * after:
            return index
    return len(sizes)


def merge_start(sizes: Sequence[int]) -> int:
    """Return the position of the first of too many delete files, descending by size, that is put together with all after it.

    However unlike they are, no more than `DELETE_FILES_MAX` are left.
    """
    return min(growth_start(sizes), DELETE_FILES_MAX - 1)


def compaction_tasks(
    table: TableInfo, lake: Table, state: Mapping[BucketKey, BucketFiles], policy: CompactionPolicy
) -> tuple[dict[str, Any], ...]:
    """Return the tasks of a compaction, those that read most first; none for nothing.

    Args:
        table: The table.
        lake: Its lake table; its newest snapshot is what is compacted.
        state: What that consists of.
        policy: What is worth it.

    Raises:
        UnsupportedError: The table is not as fluss_lab made it.
    """
    snapshot = lake.metadata.current_snapshot()
    assert snapshot is not None
    sequence_number = int(snapshot.sequence_number or 0)
    found = [policy.bucket(key, each, sequence_number) for key, each in state.items()]
    buckets = sorted((each for each in found if each is not None), key=lambda each: each.size_bytes, reverse=True)
    if not policy.force:
        buckets = _limit(buckets)
    if not buckets:
        return ()
    scope = CompactionScope.of(uuid.uuid4().hex, WriteTarget.of(checked_layout(table, lake), lake), lake)
    return tuple(CompactionTask(scope, each).to_plain() for each in buckets)


def _limit(buckets: Sequence[BucketCompaction]) -> list[BucketCompaction]:
    """Return the buckets of which rows are dropped, as that is seldom allowed, and of the others so many as are allowed."""
    taken = [each for each in buckets if each.drops]
    keeping = [each for each in buckets if not each.drops]
    size_bytes = 0
    for each in keeping:
        if size_bytes and size_bytes + each.size_bytes > KEEPING_BYTES_MAX:
            continue
        size_bytes += each.size_bytes
        taken.append(each)
    return taken

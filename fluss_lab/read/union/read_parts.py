"""The parts of a planned read: what is read of each bucket, and what is wanted of the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from fluss_lab.client.log.range_reader import FirstAnswer, FirstAnswers
from fluss_lab.errors import (
    BucketNotFoundError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import LakeSplit
from fluss_lab.model import TableBucket
from fluss_lab.model.names import BucketKey
from fluss_lab.read.filter.filter_compiler import Filter
from fluss_lab.read.union.read_columns import Columns


@dataclass(frozen=True, slots=True)
class BucketPart:
    """What is read of one bucket: ``[start, lake_stop)`` from the lake, then ``[lake_stop, stop)`` from the log.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        start: First offset wanted.
        lake_stop: Where the lake's part ends; at least `start`, at most `stop`.
        stop: Offset after the last one wanted.
        filter: What is left of the filter in this bucket; None: every row is wanted.
        splits: The files that can hold rows wanted, ordered by offset.
        row_stop: Only rows with smaller offsets are wanted, though the bucket is read as it is at `stop`: a task's share of
            a primary-key table's bucket. None: all up to `stop`.
        live: Of a primary-key table: whether the rows are the cluster's live ones, with what came after `stop` taken
            back, because neither the lake nor the log alone has them (or not as cheaply); `lake_stop` is `start`.
        first: What is fetched of its log together with other buckets' logs, if anything is.
    """

    bucket: TableBucket
    partition: str | None
    start: int
    lake_stop: int
    stop: int
    filter: Filter | None
    splits: tuple[LakeSplit, ...] = ()
    row_stop: int | None = None
    live: bool = False
    first: FirstAnswers | None = field(default=None, repr=False, compare=False)

    @property
    def log_start(self) -> int:
        """Return the first offset that is read of the log."""
        return max(self.start, self.lake_stop)

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket.bucket)

    def first_answer(self) -> FirstAnswer | None:
        """Return what was fetched of its log together with other buckets', once; None: nothing was."""
        return None if self.first is None else self.first.take(self.bucket)

    @property
    def record_count(self) -> int | None:
        """Return how many records of a log table it has, where its files tell that without being read; None else."""
        if self.filter is not None:
            return None
        total = self.stop - self.log_start
        for split in self.splits:
            if self.start <= split.min_offset and split.max_offset < self.lake_stop:
                total += split.rows
            elif split.rows == split.max_offset - split.min_offset + 1:
                total += max(0, min(split.max_offset + 1, self.lake_stop) - max(split.min_offset, self.start))
            else:
                return None
        return total


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned read: its buckets in order, and the lake snapshot that the files are of (None: none is read)."""

    parts: tuple[BucketPart, ...]
    snapshot_id: int | None

    @property
    def splits(self) -> list[LakeSplit]:
        """Return all files, in reading order."""
        return [split for part in self.parts for split in part.splits]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a read point are wanted.

    Attributes:
        filter: Rows for which it is true; None: all.
        partitions: Names; None: all.
        buckets: Numbers; None: all.
    """

    filter: Filter | None = None
    partitions: Collection[str] | None = None
    buckets: Collection[int] | None = None


#: What a reader meets when records have moved on since it planned.
MOVED: Final = (
    OffsetOutOfRangeError,
    LakeSnapshotNotFoundError,
    PartitionNotFoundError,
    BucketNotFoundError,
    FileNotFoundError,
)


class TimesGoneError(UnsupportedError):
    """The times of rows that have changed since are not in the cluster any more. A lake snapshot that came since may have them."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of the rows.

    Attributes:
        columns: Which columns.
        filter: The whole filter, to prune files by.
        limit: How many rows are wanted at most, so that no more is read ahead; the rows are not cut. None: all.
        step_rows: For a reader that may stop at any time: about so many rows of the lake's files are read at once, more where
            few of them are wanted, and wherever so much was read, or an answer of the log, a batch without rows is given
            if nothing else is. None: what is fastest for all rows.
    """

    columns: Columns
    filter: Filter | None
    limit: int | None = None
    step_rows: int | None = None

    def no_rows(self) -> pa.RecordBatch:
        """Return a batch without rows, with the columns that are read."""
        return pa.RecordBatch.from_pylist([], schema=self.columns.fields(self.columns.names))

    def pauses(self, steps: Iterable[object], position: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield, for a reader that may stop at any time, a batch without rows after each step of work that gives none."""
        for _ in steps:
            if self.step_rows is not None:
                yield self.no_rows(), position

"""The plug-in interfaces by which a lake is read: the rows of its snapshots, and the log that they were."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


@dataclass(frozen=True, slots=True)
class LakeSplit:
    """A piece of a lake snapshot that one reader reads: one Parquet file.

    Attributes:
        path: URI of the file. Other readers (Spark's) may open it by that, with `LakeSource.file_columns`.
        partition: Partition name, or None.
        bucket: Bucket that all its rows are of.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        rows: Rows in the file.
        size_bytes: Bytes of the file.
    """

    path: str
    partition: str | None
    bucket: int
    min_offset: int
    max_offset: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileColumn:
    """How a top-level column is found in a lake's files, for readers of others than this package's.

    Attributes:
        field_id: The id under which every file has it.
        named: Whether every file that has it calls it by its own name, and calls no other column so: only then may a
            reader that asks statistics by name be given a filter on it.
    """

    field_id: int
    named: bool


class LakeSource(ABC):
    """Reads the rows of a log table's lake snapshots. Used by one thread.

    It knows the columns of the table as it was made with: rows written before a column existed have null there, columns
    that the lake has beyond them are not shown.
    """

    @abstractmethod
    def plan(
        self,
        snapshot_id: int,
        *,
        stops: Mapping[tuple[str | None, int], int] | None = None,
        where: BooleanExpression | None = None,
    ) -> list[LakeSplit]:
        """Return the files that can hold rows asked for, ordered by partition, bucket, offset.

        Args:
            snapshot_id: Which snapshot.
            stops: By (partition, bucket): only rows with smaller offsets are asked for; a bucket without an
                entry is left out. None: all.
            where: What the rows will be filtered by, as the syntax tree that this package has for filters of lakes: an
                unbound `pyiceberg.expressions.BooleanExpression` over the user's columns (plain data, which needs no
                Iceberg table). A hint only: files in which it can be true for no row may be left out; a format without
                statistics ignores it, since `read` filters. None: no hint.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            InvalidFilterError: The hint names no column of the table, or compares it with what it is not; only where
                the format looks at it.
            UnsupportedError: A primary-key table, or one that others changed beyond what can be read.
        """

    def file_columns(self) -> Mapping[str, FileColumn]:
        """Return how each user's and system column is found in the files by others; empty: by its name, in every file."""
        return {}

    @abstractmethod
    def read(
        self,
        splits: Sequence[LakeSplit],
        columns: Sequence[str],
        *,
        where: pc.Expression | None = None,
        stops: Mapping[tuple[str | None, int], int] | None = None,
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order, in the table's own Arrow types (system columns in those of `SYSTEM_FIELDS`).

        Rows of a file ascend by offset. Files are read one after another; memory is bounded by a row group.

        Args:
            splits: From `plan`.
            columns: User's and system columns, in the order wanted.
            where: Rows for which it is not true are left out; its columns, user's or system, need not be among
                `columns`.
            stops: As for `plan`: only rows with smaller offsets are yielded. None: all.

        Raises:
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """


@dataclass(frozen=True, slots=True)
class LookupContext:
    """What a time is looked up for (source: FIP "fetch log from lake")."""

    partition: str | None
    bucket: int
    timestamp_ms: int
    lake_snapshot_id: int


@dataclass(frozen=True, slots=True)
class FetchContext:
    """Which records are fetched from the lake (source: FIP "fetch log from lake").

    Attributes:
        fetch_start_offset: First offset wanted.
        log_end_offset: Offsets at or beyond are not wanted; at most the snapshot's log end offset of the bucket.
        projection: User columns wanted, in order; None: all.
    """

    fetch_start_offset: int
    log_end_offset: int
    partition: str | None
    bucket: int
    lake_snapshot_id: int
    projection: tuple[str, ...] | None = None


class FlussLogSource(ABC):
    """The log of a table as the lake holds it."""

    @abstractmethod
    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        """Return the first offset whose timestamp is at or after a time, and that record's timestamp in milliseconds.

        It should read little: the files' own ranges of offsets and times tell where to look.

        Raises:
            InvalidTimestampError: The time is after every record of the bucket in the snapshot.
            LakeSnapshotNotFoundError: No such snapshot.
        """

    @abstractmethod
    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records in order of offset; exactly those that the bucket's log had.

        Columns come in the order of the projection, in the table's own types. Memory is bounded.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            CorruptDataError: The lake's files do not hold every offset asked for.
        """

    @abstractmethod
    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset of the bucket that the lake holds; None when it holds no record of it."""

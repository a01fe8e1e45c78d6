"""The plug-in interfaces by which a lake is read: the rows of its snapshots, and the log that they were."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.lake_splits import LakeSplit
from fluss_lab.model.names import BucketKey
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyiceberg.expressions import BooleanExpression


@dataclass(frozen=True, slots=True)
class FileColumn:
    """How a top-level column is found in a lake's files, for readers of others than this package's.

    Attributes:
        field_id: The id under which every file has it.
        named: Whether every file that has it calls it by its own name, and calls no other column so: only then may a
            reader that looks up statistics by name be given a filter on it.
        inner_named: Whether every file that has it calls the fields within it, at any depth, by their own names: only then may
            a reader that finds these by name read it.
        own_typed: Whether every file that has it holds it, and what is within, in the table's own types: others wrote wider ones, if
            they widened it. Only then may a reader that does not make them narrow again read it.
    """

    field_id: int
    named: bool
    inner_named: bool = True
    own_typed: bool = True


class LakeSource(ABC):
    """Reads the rows of a table's lake snapshots. Used by one thread.

    A log table's rows are its records. A primary-key table's rows at a stop offset are those that were live there: written
    by a record below the stop, and ended by none below it. A stop may lie anywhere from the bucket's replay start on, also
    before the snapshot's end: the format then takes what it needs from older snapshots that it has kept.

    It knows the columns of the table as it was made with: rows written before a column existed have null there, columns
    that the lake has beyond them are not shown.
    """

    @abstractmethod
    def plan(
        self,
        snapshot_id: int,
        *,
        stops: Mapping[BucketKey, int] | None = None,
        where: BooleanExpression | None = None,
    ) -> list[LakeSplit]:
        """Return the files that can hold rows asked for, ordered by partition, bucket, offset.

        Args:
            snapshot_id: Which snapshot.
            stops: By (partition, bucket): only rows with smaller offsets are asked for, of a primary-key table as they
                were at that offset; a bucket without an entry is left out. None: all that the snapshot has.
            where: What the rows will be filtered by, as the syntax tree that this package has for filters of lakes: an
                unbound ``pyiceberg.expressions.BooleanExpression`` over the user's columns (plain data, which needs no
                Iceberg table). A hint only: files in which it can be true for no row may be left out; a format without
                statistics ignores it, since `read` filters. None: no hint.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            InvalidFilterError: The hint names no column of the table, or compares it with what it is not; only where
                the format looks at it.
            UnsupportedError: A table that others changed beyond what can be read.
        """

    def file_columns(self) -> Mapping[str, FileColumn]:
        """Return how each user's and system column is found in the files by others; empty: by its name, in every file."""
        return {}

    def pinned_properties(self, snapshot_id: int) -> Mapping[str, str] | None:
        """Return the configuration of a storage with which a task reads the table as it is now.

        It travels to Spark's executors: credentials of the file system may be in it, those of a catalog not.

        Args:
            snapshot_id: A snapshot that the table has then.

        Returns:
            For `fluss_lab.lake.lake_storage`, which makes a `SupportsPinnedReads` of it. None: the format has no such thing;
            tasks read with the configuration that the cluster gives its clients.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
        """
        del snapshot_id
        return None

    def check_files(self, splits: Sequence[LakeSplit]) -> None:
        """Compare files with what the lake says of them, before a reader of others than this package's opens them.

        Such a reader may take an empty file for one without rows, and believe whatever a damaged footer says. The pages
        are left to it. Here: nothing is compared, as a format may that knows of no damage.

        Args:
            splits: From `plan`.

        Raises:
            LakeSnapshotNotFoundError: A file is gone, and its snapshot too; plan the read again.
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """
        del splits

    def dead_offsets(
        self,
        splits: Sequence[LakeSplit],
        *,
        stops: Mapping[BucketKey, int],
        ended: Mapping[BucketKey, NDArray[np.int64]],
    ) -> list[NDArray[np.int64]] | None:
        """Return of each file the offsets of rows that `read` leaves out, for readers of others than this package's.

        Args:
            splits: From `plan`.
            stops: As for `read`.
            ended: As for `read`.

        Returns:
            Of each split, in no order; some may be there twice, or be no row's. None: it takes more than offsets to say which
            rows are left out, or the format, as here, does not say.

        Raises:
            As `read`.
        """
        del splits, stops, ended
        return None

    @abstractmethod
    def read(
        self,
        splits: Sequence[LakeSplit],
        columns: Sequence[str],
        *,
        where: pc.Expression | None = None,
        stops: Mapping[BucketKey, int] | None = None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None = None,
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order, in the table's own Arrow types (system columns in those of `fluss_lab.lake.SYSTEM_FIELDS`).

        Rows of a file ascend by offset. Files are read one after another; memory is bounded by a row group.

        Args:
            splits: From `plan`.
            columns: User's and system columns, in the order wanted.
            where: Rows for which it is not true are left out; its columns, user's or system, need not be among
                `columns`.
            stops: As for `plan`, with the same values: only rows with smaller offsets are yielded. None: all.
            ended: Of a primary-key table, by (partition, bucket): offsets, ascending, of rows that are left out too:
                those that the log ended beyond the stop. None: none.

        Raises:
            LakeSnapshotNotFoundError: Of a primary-key table: what deletes rows is gone; plan the read again.
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """

    def count(
        self,
        splits: Sequence[LakeSplit],
        *,
        stops: Mapping[BucketKey, int] | None = None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None = None,
    ) -> int:
        """Return how many rows `read` would yield without a filter; formats that know better need not read for it."""
        found = self.read(splits, ["__offset"], stops=stops, ended=ended)
        return sum(batch.num_rows for _, batch in found)


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


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What a lake opens to give a range of a bucket's log.

    Attributes:
        data_files: Files with rows.
        delete_files: Files with events that ended rows, of a primary-key table.
        rows: Rows and events in all of them.
        size_bytes: Bytes of all of them.
    """

    data_files: int
    delete_files: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LakeRecordPlace:
    """Where the lake holds a record of a bucket's log.

    Attributes:
        snapshot_id: The snapshot whose file it is: of a record that a compaction left out, one that is kept for replay.
        file: URI of the file.
        content: What the file holds, in the words of `LakeFileInfo`: ``data``, or deletes that carry their events.
        position: The row's in the file, from 0.
        timestamp_ms: The record's.
    """

    snapshot_id: int
    file: str
    content: str
    position: int
    timestamp_ms: int


class FlussLogSource(ABC):
    """The log of a table as the lake holds it."""

    @abstractmethod
    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        """Return the first offset whose timestamp is at or after a time, and that record's timestamp in milliseconds.

        It should read little: the files' own ranges of offsets and times say where to look.

        Raises:
            InvalidTimestampError: The time is after every record of the bucket in the snapshot.
            LakeSnapshotNotFoundError: No such snapshot.
        """

    @abstractmethod
    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records in order of offset; exactly those that the bucket's log had.

        Of a primary-key table with change types (``+I -U +U -D``) and previous offsets (-1 for a ``+I``), back to the
        bucket's replay start, whatever compactions and expiries did since. Columns come in the order of the projection, in
        the table's own types. Memory is bounded.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot, or it was expired meanwhile: go on from the next offset with the one
                that is known then.
            OffsetOutOfRangeError: Of a primary-key table: the range begins before the replay start, which the text names.
            CorruptDataError: The lake's files do not hold every offset asked for.
        """

    def fetch_records_by_key(
        self, context: FetchContext, prune: BooleanExpression, where: pc.Expression
    ) -> Iterator[LogRecords]:
        """Yield, of what `fetch_log_records` would, at least the records that fulfil a condition, ascending by offset.

        Args:
            context: Of a primary-key table; the projection has the condition's columns.
            prune: A condition over columns of the primary key alone, to prune files by.
            where: The same, to filter by.

        Raises:
            As `fetch_log_records`, but that other records are missing need not be noticed.
        """
        del prune, where
        return self.fetch_log_records(context)

    @abstractmethod
    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset from which on the lake holds the bucket's log; None when it holds no record of it.

        Of a primary-key table that is its replay start.
        """

    def locate_record(
        self, partition: str | None, bucket: int, offset: int, snapshot_id: int
    ) -> LakeRecordPlace | None:
        """Return where the lake holds a record; None when it does not.

        Raises:
            UnsupportedError: The format does not say where records lie.
            LakeSnapshotNotFoundError: No such snapshot; or one that was kept for replay was expired meanwhile: ask again.
            CorruptDataError: The lake should hold the record, and does not.
        """
        raise UnsupportedError(
            f"partition {partition}, bucket {bucket}, offset {offset}: this lake format does not say where records lie"
        )

    def log_files(self, context: FetchContext) -> LogFiles | None:
        """Return what `fetch_log_records` would open, for people; None: the format does not say.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
        """
        return None

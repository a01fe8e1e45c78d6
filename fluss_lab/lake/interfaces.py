"""The plug-in interfaces of a lake format, in the words of the source documents.

A format is a `LakeStorage`, found by entry point (group ``fluss_lab.lake``) under the name of ``table.datalake.format``.
Everything above speaks to it through these classes only. Where the documents work record by record, these work by
Arrow batches. Objects that cross processes (write results, committables) are bytes made by a versioned serializer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.closing import Closing
from fluss_lab.model import LakeOffset, PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_lab.records import LogRecords

WriteResultT = TypeVar("WriteResultT")
CommittableT = TypeVar("CommittableT")
T = TypeVar("T")

#: The system columns that every lake table has after the user's.
BUCKET_COLUMN = "__bucket"
OFFSET_COLUMN = "__offset"
TIMESTAMP_COLUMN = "__timestamp"
SYSTEM_COLUMNS = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)
#: Their types wherever rows of the lake are handed out. The timestamp holds whole milliseconds.
SYSTEM_FIELDS: Final = (
    pa.field(BUCKET_COLUMN, pa.int32(), nullable=False),
    pa.field(OFFSET_COLUMN, pa.int64(), nullable=False),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", "UTC"), nullable=False),
)

#: Who commits, in the lake snapshot's summary.
COMMIT_USER_KEY = "commit-user"
COMMIT_USER = "__fluss_lake_tiering"
BUCKET_OFFSET_KEY = "fluss-bucket-offset"
COMMIT_ID_KEY = "fluss-commit-id"
TIERING_EPOCH_KEY = "fluss-tiering-epoch"
TABLE_ID_KEY = "fluss-table-id"


class SimpleVersionedSerializer(ABC, Generic[T]):
    """Turns objects into bytes and back, across processes and versions."""

    #: Written beside the bytes by whoever keeps them.
    version: int

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the value as bytes of this serializer's `version`."""

    @abstractmethod
    def deserialize(self, version: int, data: bytes) -> T:
        """Return the value.

        Raises:
            CorruptDataError: The bytes are none of that version, or the version is newer than known.
        """


@dataclass(frozen=True, slots=True)
class WriterInitContext:
    """What a task needs to write one split.

    Attributes:
        table: The table, as planned.
        bucket: Which bucket the records are of.
        partition: Name of its partition, if any.
        lake_table: What `LakeTieringFactory.describe_table` gave at planning time: JSON; nothing else of the
            lake is looked up by the task.
        round_id: Unique to the round; part of every file's name, so that files of dead rounds can be told.
        split_index: Position of the split among the round's.
    """

    table: TableInfo
    bucket: TableBucket
    partition: str | None
    lake_table: Mapping[str, Any]
    round_id: str
    split_index: int


@dataclass(frozen=True, slots=True)
class CommitterInitContext:
    """What a committer is made for."""

    table: TableInfo
    round_id: str


class Written(Protocol):
    """What every format's write results and committables tell about themselves."""

    @property
    def row_count(self) -> int:
        """Return the rows written."""

    @property
    def file_count(self) -> int:
        """Return the files written."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of these files."""


class LakeWriter(ABC, Generic[WriteResultT]):
    """Writes the records of one split. Used by one thread; either `complete` or `abort` ends it."""

    @abstractmethod
    def write(self, records: LogRecords) -> None:
        """Take records, in ascending order of offset across calls."""

    @abstractmethod
    def complete(self) -> WriteResultT:
        """Finish all files and return what was written (possibly nothing)."""

    @abstractmethod
    def abort(self) -> None:
        """Give up: remove what was written, as far as can be. Never raises."""


class LakeCommitter(Closing, Generic[WriteResultT, CommittableT]):
    """Commits a round to the lake, or nothing of it. Used by one thread."""

    @abstractmethod
    def to_committable(self, results: Sequence[WriteResultT]) -> CommittableT:
        """Return what all the write results of a round come to."""

    @abstractmethod
    def commit(self, committable: CommittableT, planned_snapshot_id: int | None, properties: Mapping[str, str]) -> int:
        """Commit atomically, on condition that the table's newest snapshot is still the planned one.

        Args:
            committable: From `to_committable`; one without files makes an empty snapshot, which moves offsets
                forward or fences a predecessor.
            planned_snapshot_id: The newest snapshot when the round was planned; None for a table without any.
            properties: For the snapshot's summary; `COMMIT_ID_KEY` makes the commit recognisable.

        Returns:
            The new snapshot's id. Data, metadata and their folders are durable by then.

        Raises:
            CommitConflictError: The table moved on; nothing was committed. Plan again.
            ForeignCommitError: It moved on by somebody else's change of rows.
            CommitOutcomeUnknownError: Neither success nor failure can be told; look for the commit id.
        """

    @abstractmethod
    def abort(self, results: Sequence[WriteResultT]) -> None:
        """Remove the files of write results that will not be committed. Never one a snapshot refers to. Never raises."""

    @abstractmethod
    def current_snapshot_id(self) -> int | None:
        """Return the id of the table's newest snapshot on its main line."""

    @abstractmethod
    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours that the cluster does not know yet.

        Args:
            known_snapshot_id: The newest that the cluster knows; None when it knows none.

        Returns:
            None when the cluster knows the newest of ours.

        Raises:
            LakeSnapshotNotFoundError: The known snapshot is not in the lake's history any more.
            ForeignCommitError: Somebody else changed the table's rows since the known snapshot.
        """

    def close(self) -> None:
        """Let go of whatever is held."""


@dataclass(frozen=True, slots=True)
class CommittedLakeSnapshot:
    """A snapshot of ours: what its summary says.

    Attributes:
        snapshot_id: Its id.
        offsets: By (partition name or None, bucket): how far the lake holds each bucket.
        properties: The rest of the summary.
        partition_ids: The id of each partition that `offsets` speaks of: one of the same name made later has another.
    """

    snapshot_id: int
    offsets: Mapping[tuple[str | None, int], LakeOffset]
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_ids: Mapping[str, int] = field(default_factory=dict)


class LakeTieringFactory(ABC, Generic[WriteResultT, CommittableT]):
    """Makes writers and committers, and the serializers of what passes between them."""

    @abstractmethod
    def describe_table(self, table: TableInfo) -> dict[str, Any]:
        """Return, as JSON, all that writers of the table need: a round asks once, on the driver.

        Raises:
            TableNotFoundError: The lake table is gone.
            UnsupportedError: It is not as fluss_lab made it (schema, partition spec, format version).
        """

    @abstractmethod
    def create_lake_writer(self, context: WriterInitContext) -> LakeWriter[WriteResultT]:
        """Return a writer for one split; called in a task, maybe on another machine."""

    @abstractmethod
    def write_result_serializer(self) -> SimpleVersionedSerializer[WriteResultT]:
        """Return the serializer of write results."""

    @abstractmethod
    def create_lake_committer(self, context: CommitterInitContext) -> LakeCommitter[WriteResultT, CommittableT]:
        """Return a committer for one round; called on the driver."""

    @abstractmethod
    def committable_serializer(self) -> SimpleVersionedSerializer[CommittableT]:
        """Return the serializer of committables."""


class LakeCatalog(ABC):
    """Makes and drops lake tables as Fluss tables come and go."""

    @abstractmethod
    def create_table(self, table: TableInfo) -> None:
        """Create the lake table of a Fluss table.

        A lake table of the same layout that has no snapshot yet is taken over (an earlier creation that was cut off).

        Raises:
            LakeTableExistsError: There is another one of that name.
            UnsupportedError: The format cannot hold the table.
        """

    @abstractmethod
    def alter_table(self, table: TableInfo) -> None:
        """Bring the lake table's columns and properties to those of the (already altered) Fluss table, at once.

        New columns come after the user's others. Columns that the Fluss table does not have and that an earlier call
        brought go again: that alteration was cut off or taken back, and nobody wrote them.

        Raises:
            UnsupportedError: The format cannot hold the table as it is now.
        """

    @abstractmethod
    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the lake table with its files, or with `keep` rename it by its table id. Absent is fine."""

    @abstractmethod
    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Delete the rows of a partition that the cluster has dropped, in one commit of ours; doing it again is fine.

        No commit that was planned before may succeed after it. An absent lake table is fine.
        """


@dataclass(frozen=True, slots=True)
class LakeSplit:
    """A piece of a lake snapshot that one reader reads: one data file.

    Attributes:
        path: URI of the file.
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
    """Reads the rows of a table's lake snapshots."""

    @abstractmethod
    def plan(
        self,
        snapshot_id: int,
        *,
        stops: Mapping[tuple[str | None, int], int] | None = None,
        where: Any = None,
    ) -> list[LakeSplit]:
        """Return the files that can hold rows asked for, ordered by partition, bucket, offset.

        Args:
            snapshot_id: Which snapshot.
            stops: By (partition, bucket): only rows with smaller offsets are asked for; a bucket without an
                entry is left out. None: all.
            where: A pyiceberg expression over the user's columns, for pruning by statistics; None: no pruning.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
        """

    def file_columns(self) -> Mapping[str, FileColumn]:
        """Return how each user's and system column is found in the files; empty when they are known by name alone."""
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
        """Return the first offset whose timestamp is at or after a time, and that record's timestamp.

        Raises:
            InvalidTimestampError: The time is after every record of the bucket in the snapshot.
            LakeSnapshotNotFoundError: No such snapshot.
        """

    @abstractmethod
    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records in order of offset; exactly those that the bucket's log had.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            CorruptDataError: The lake's files do not hold every offset asked for.
        """

    @abstractmethod
    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset of the bucket that the lake holds; None when it holds no record of it."""


class LakeStorage(ABC):
    """A lake format with its configuration: where everything else comes from."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """Return the configuration that it was made with; tasks make their own storage of it (see `lake_storage`)."""

    @abstractmethod
    def create_lake_tiering_factory(self) -> LakeTieringFactory[Any, Any]:
        """Return the factory of writers and committers."""

    @abstractmethod
    def create_lake_catalog(self) -> LakeCatalog:
        """Return the catalog of lake tables."""

    @abstractmethod
    def create_lake_source(self, table: TableInfo) -> LakeSource:
        """Return a reader of a table's rows."""


class SupportsCreateFlussLogSource(ABC):
    """A `LakeStorage` whose tables can be read back as logs."""

    @abstractmethod
    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        """Return the log of a table as the lake holds it."""

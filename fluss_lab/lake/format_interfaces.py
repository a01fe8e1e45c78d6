"""The plug-in interfaces of a lake format: storage, catalog, writer, committer, and what passes between them.

Everything above speaks to a format through these classes only. Where the documents work record by record, these work by
Arrow batches.

How to write a format
    1.  A `LakeStorage`: made from plain strings (the cluster options ``datalake.<name>.*``, without that prefix), found by
        entry point: group ``fluss_lab.lake``, the format's name, the class (or anything that takes the mapping and returns
        the storage). It is made anew in the coordinator, on the driver and in every task, so it holds nothing that these
        would have to share, and connects to nothing before it must.
    2.  A lake table has the table's columns in order, then `SYSTEM_COLUMNS`. Tables are recognised by their table id, never
        by their name alone: a name may come to mean another table.
    3.  A `LakeWriter` writes the records of one split into files of its own, which are invisible before a commit, and returns a
        write result that names them. Tasks are repeated and die: every attempt has files of its own.
    4.  A `LakeCommitter` makes the files of all results visible at once, in one new *snapshot*, on condition that the newest
        snapshot is still the one that the round was planned from. That condition is what keeps results exactly once; the
        catalog or file system must check it atomically. A snapshot has an id (a positive number of at most 63 bits that
        the table never uses again) and keeps the properties it was committed with. What these mean, and what several
        snapshots mean together, is for `snapshot_summary` to read and merge, never for the format.
    5.  A `LakeCatalog` makes, alters, drops and renames; every call may be repeated after a crash and must then finish.
    6.  A `LakeSource` reads the rows of a log table's snapshots, a `FlussLogSource` reads them as the log they were
        (both in `reader_interfaces`). Maintenance is optional, and so is whatever else is called ``Supports...``.
    7.  Whatever is reported as done is durable. A failure removes what it made where that is certain to be unused;
        what a dead process leaves behind is garbage, never part of the table.
    8.  Errors are those of `fluss_lab.errors`, as each method says: callers act by class.

`fluss_lab.testing.parquet_lake` is a small whole format to begin from, `fluss_lab.testing.conformance` the tests that
every format passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from fluss_lab.closing import Closing
from fluss_lab.lake.reader_interfaces import FlussLogSource, LakeSource
from fluss_lab.lake.snapshot_summary import CommittedLakeSnapshot
from fluss_lab.model import PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.records import LogRecords

WriteResultT = TypeVar("WriteResultT")
CommittableT = TypeVar("CommittableT")
T = TypeVar("T")


class SimpleVersionedSerializer(ABC, Generic[T]):
    """Turns objects into bytes and back, across processes and versions.

    Never by pickle or anything else that runs what it reads: the bytes come from other machines. A change of the layout
    raises `version`; older ones that may still be under way are read for as long as releases that wrote them are in use.
    """

    #: Of what `serialize` writes: 1 or more. Written beside the bytes by whoever keeps them.
    version: int

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the value as bytes of this serializer's `version`."""

    @abstractmethod
    def deserialize(self, version: int, data: bytes) -> T:
        """Return the value.

        Raises:
            CorruptDataError: The bytes are none of that version, or the version is newer than known: another release
                wrote them. Nothing is guessed.
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
        round_id: Unique to the round; part of every file's name, so that files of dead rounds can be recognised.
        split_index: Position of the split among the round's. Two attempts at a split have the same one, so file names
            need something unique beside it.
        lake_bucket: What `LakeTieringFactory.describe_buckets` gave for the bucket; empty for a bucket without rows in
            the lake.
        alone: Whether no other split of the round is of this bucket. Of one that is not alone, changes of rows that
            another split writes can be placed by the committer only.
    """

    table: TableInfo
    bucket: TableBucket
    partition: str | None
    lake_table: Mapping[str, Any] = field(repr=False)
    round_id: str
    split_index: int
    lake_bucket: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = True


@dataclass(frozen=True, slots=True)
class CommitterInitContext:
    """What a committer is made for."""

    table: TableInfo
    round_id: str


class WriteTotals(Protocol):
    """The counts that every format's write results and committables have."""

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
    """Writes the records of one split. Used by one thread; `complete` or `abort` ends it.

    Records have the columns of ``context.table.schema`` in its order and types. Offsets may have gaps (a split of a
    key-value snapshot). Memory is bounded, whatever the split's size.

    Records of a primary-key table have their change types and previous offsets: ``+I`` and ``+U`` add rows, ``-U`` and
    ``-D`` are events that end the row at their previous offset. Every event is kept, with its own offset and timestamp.
    A ``+U`` too names the row it replaces, which the ``-U`` just before it has ended; the two always come in one split. The
    row that an event ends may lie in the lake already, in this split, or in an earlier split of the same round.
    """

    @abstractmethod
    def write(self, records: LogRecords) -> None:
        """Take records, in ascending order of offset across calls.

        Raises:
            UnsupportedError: A value that the format cannot hold; the text names column, bucket and offsets.
            StorageError: A file cannot be written.
        """

    @abstractmethod
    def complete(self) -> WriteResultT:
        """Finish all files and return what was written (possibly nothing).

        Raises:
            StorageError: A file cannot be written or made durable.
        """

    @abstractmethod
    def abort(self) -> None:
        """Give up: remove what was written, as far as can be. Never raises.

        Also after `complete`, by a caller that has not handed the result on: then no snapshot can refer to the files.
        """


class LakeCommitter(Closing, Generic[WriteResultT, CommittableT]):
    """Commits a round to the lake, or nothing of it. Used by one thread."""

    @abstractmethod
    def to_committable(self, results: Sequence[WriteResultT]) -> CommittableT:
        """Return what all the write results of a round come to, in whatever order they are given.

        Raises:
            InternalError: Two results hold the same offset of a bucket, or one is of another table.
        """

    @abstractmethod
    def commit(self, committable: CommittableT, planned_snapshot_id: int | None, properties: Mapping[str, str]) -> int:
        """Commit atomically, on condition that the table's newest snapshot is still the planned one.

        Args:
            committable: From `to_committable`; one without files makes an empty snapshot, which moves offsets
                forward or fences a predecessor.
            planned_snapshot_id: The newest snapshot when the round was planned; None for a table without any. What others
                changed beside rows meanwhile (properties, columns) does not matter.
            properties: Kept with the snapshot; `fluss_lab.lake.snapshot_summary.COMMIT_ID_KEY` makes the commit recognisable.

        Returns:
            The new snapshot's id. Data, metadata and their folders are durable by then. When the table has, since the
            planned snapshot, one of the same commit id already, nothing is done and that one's id is returned.

        Raises:
            CommitConflictError: The table moved on; nothing was committed. Plan again.
            ForeignCommitError: It moved on by another program's change of rows; nothing was committed.
            CommitOutcomeUnknownError: Neither success nor failure is known; look for the commit id.
            StorageError: It cannot be written; nothing was committed.
            TableNotFoundError: The lake table is gone.
        """

    @abstractmethod
    def abort(self, results: Sequence[WriteResultT]) -> None:
        """Remove the files of write results that will not be committed. Never one a snapshot refers to. Never raises.

        When it is not known whether a file is in use, it stays.
        """

    @abstractmethod
    def current_snapshot_id(self) -> int | None:
        """Return the id of the table's newest snapshot, whoever committed it; None for a table without any.

        Snapshots form a line; of a format with branches it is the main one. A commit of another process that has
        returned is seen at once.

        Raises:
            TableNotFoundError: The lake table is gone.
        """

    @abstractmethod
    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours that the cluster does not know yet.

        Its offsets are those of all snapshots of ours since the known one, newer over older.

        Args:
            known_snapshot_id: The newest that the cluster knows; None when it knows none.

        Returns:
            None when the cluster knows the newest of ours.

        Raises:
            LakeSnapshotNotFoundError: The known snapshot is not in the lake's history any more.
            ForeignCommitError: Another program changed the table's rows since the known snapshot; or a repair
                was cut off before the cluster knew of it.
        """

    @abstractmethod
    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours in the table's history, whatever others did since; None without.

        Its offsets are those of all snapshots of ours, back to the newest repair. For repair only: rounds go by `missing_lake_snapshot`, which
        refuses what others changed.
        """

    def close(self) -> None:
        """Let go of whatever is held."""


class SupportsEmptyBuckets(ABC):
    """A `LakeStorage` that can take all rows of single buckets out of a table."""

    @abstractmethod
    def empty_buckets(
        self,
        table: TableInfo,
        buckets: Sequence[BucketKey],
        planned_snapshot_id: int | None,
        properties: Mapping[str, str],
    ) -> int:
        """Commit a snapshot without any row of some buckets, conditional and recognised as `LakeCommitter.commit`.

        Args:
            table: The table.
            buckets: Partition name and number of each.
            planned_snapshot_id: The newest snapshot when that was decided.
            properties: For the snapshot, with `fluss_lab.lake.snapshot_summary.COMMIT_ID_KEY`.

        Returns:
            The snapshot's id.

        Raises:
            CommitConflictError: The lake moved on; nothing was committed.
            CommitOutcomeUnknownError: Neither success nor failure is known.
        """


class LakeTieringFactory(ABC, Generic[WriteResultT, CommittableT]):
    """Makes writers and committers, and the serializers of what passes between them.

    Write results and committables have what `WriteTotals` has; no method needs more of them.
    """

    @abstractmethod
    def describe_table(self, table: TableInfo) -> dict[str, Any]:
        """Return, as JSON, all that writers of the table need: a round calls it once, on the driver.

        It travels to the tasks, so it may hold what opens files there (credentials), and no path that only the driver has.

        Raises:
            TableNotFoundError: The lake table is gone.
            UnsupportedError: It is not as the format made it, or lacks columns of `table`.
        """

    def describe_buckets(
        self, table: TableInfo, buckets: Sequence[BucketKey], snapshot_id: int | None
    ) -> dict[BucketKey, dict[str, Any]]:
        """Return, as JSON, what writers of single buckets of a primary-key table need: a round calls it once, on the driver.

        Args:
            table: The table.
            buckets: Partition name and number of each.
            snapshot_id: The snapshot that the round is planned from; None for a table without any.

        Returns:
            Nothing for a bucket whose writer needs nothing.
        """
        del table, buckets, snapshot_id
        return {}

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
        """Create the lake table of a Fluss table, of its database too where the format has such a thing.

        One of the same table id is left as it is. One of another id that has the same layout and no snapshot yet is taken
        over, with the new id (an earlier creation that was cut off).

        Raises:
            LakeTableExistsError: There is another one of that name.
            UnsupportedError: The format cannot hold the table.
        """

    @abstractmethod
    def alter_table(self, table: TableInfo) -> None:
        """Bring the lake table's columns and properties to those of the (already altered) Fluss table, at once.

        New columns come after the user's others; in rows written before they are null. Columns that the Fluss table does
        not have and that an earlier call brought go again: that alteration was cut off or taken back, and no row was written
        with them. Doing it again is fine.

        Raises:
            TableNotFoundError: There is no lake table, or it is another table's.
            UnsupportedError: The format cannot hold the table as it is now.
        """

    @abstractmethod
    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the lake table with its files, or with `keep` rename it ``<name>__<table id>``.

        Absent is fine, and so is one of another table id: it is left alone. A kept table's files stay readable.

        Raises:
            LakeTableExistsError: With `keep`: the new name is taken.
        """

    def discard_table(self, path: TablePath, table_id: int) -> None:
        """Drop the lake table of a creation that was not finished, as `drop_table`; one that has rows all the same is left alone.

        Somebody may have written to a table that was taken over, and `create_table` leaves one of the same table id as it is. Here it
        is dropped in any case: a format that can tell should look.
        """
        self.drop_table(path, table_id)

    @abstractmethod
    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Delete the rows of a partition that the cluster has dropped, in one commit of ours; doing it again is fine.

        Also when it holds no row: no commit that was planned before may succeed after it. It says nothing of offsets. A
        partition of the same name made later has another id, and another call deletes its rows. An absent lake table is
        fine.
        """


class LakeStorage(ABC):
    """A lake format with its configuration: where everything else comes from.

    Threads may share it; what it makes is for one thread each, the catalog excepted. Making one is cheap.
    """

    @property
    @abstractmethod
    def format_name(self) -> str:
        """Return the name under which the format is installed: by it, tasks find it again."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """Return the configuration that it was made with: another storage can be made of it (see `fluss_lab.lake.lake_storage`)."""

    @property
    def task_properties(self) -> Mapping[str, str]:
        """Return the configuration with which a task makes its own storage: what writers and compaction need, no more.

        It travels to Spark's executors: secrets that only the catalog needs stay out. By default all `properties`.
        """
        return self.properties

    @property
    def local_folder(self) -> Path | None:
        """Return the folder that holds the tables' files, where they lie in a file system.

        Tasks on other machines need it under the same path. None: the files are in a store that has an address.
        """
        return None

    @abstractmethod
    def create_lake_tiering_factory(self) -> LakeTieringFactory[Any, Any]:
        """Return the factory of writers and committers."""

    @abstractmethod
    def create_lake_catalog(self) -> LakeCatalog:
        """Return the catalog of lake tables."""

    @abstractmethod
    def create_lake_source(self, table: TableInfo) -> LakeSource:
        """Return a reader of a table's rows."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the files of a lake go that lie in a store, and with what tasks reach them.

    Attributes:
        location: URI of a folder.
        properties: Of the storage that a task makes; credentials of the store may be in them.
    """

    location: str
    properties: Mapping[str, str] = field(repr=False)


class SupportsStoreTrial(ABC):
    """A `LakeStorage` that can say beforehand whether its catalog and its store serve a round."""

    @abstractmethod
    def store_place(self, tables: Iterable[TablePath]) -> StorePlace | None:
        """Ask the catalog, and return where files go; None: into a file system, or nowhere yet.

        Args:
            tables: Some that are in the lake, taken as far as needed.

        Raises:
            UnavailableError, AuthenticationError, StorageError, InvalidPropertyError: The catalog does not serve.
        """

    @abstractmethod
    def try_store(self, location: str) -> None:
        """Write, read and delete a small object under a location.

        Raises:
            UnavailableError, AuthenticationError, StorageError: The store does not do it.
        """


class SupportsPinnedReads(ABC):
    """A `LakeStorage` that may be made of `LakeSource.pinned_properties`: it reads one table, without asking a catalog."""

    @abstractmethod
    def renew_from(self, newest: Callable[[], LakeStorage]) -> None:
        """Take where the table's snapshots are had that came after it was pinned.

        Args:
            newest: Gives the whole storage; called only when a snapshot is asked for that the pinned table does not
                have, or one of its files is gone.
        """


class SupportsCreateFlussLogSource(ABC):
    """A `LakeStorage` whose tables can be read back as logs."""

    @abstractmethod
    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        """Return the log of a table as the lake holds it."""

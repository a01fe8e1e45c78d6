"""Iceberg as a lake format: where everything else comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss_lab.clock import Clock
from fluss_lab.errors import TableNotFoundError
from fluss_lab.lake.format_interfaces import (
    CommitterInitContext,
    LakeCatalog,
    LakeCommitter,
    LakeStorage,
    LakeTieringFactory,
    LakeWriter,
    SimpleVersionedSerializer,
    StorePlace,
    SupportsCreateFlussLogSource,
    SupportsEmptyBuckets,
    SupportsPinnedReads,
    SupportsStoreTrial,
    WriterInitContext,
)
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.pinned_table import METADATA_LOCATION, PinnedAccess, table_place
from fluss_lab.lake.maintenance_interfaces import LakeMaintenance, SupportsMaintenance
from fluss_lab.lake.reader_interfaces import FlussLogSource, LakeSource
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.config.lake_options import file_properties
from fluss_lab.model.json_codec import to_plain
from fluss_lab.model.named_paths import check_working_directory

if TYPE_CHECKING:
    from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
    from fluss_lab.lake.iceberg.read.bucket_deletes import EndedCache
    from fluss_lab.lake.iceberg.read.lake_table import LoadedTables
    from fluss_lab.lake.iceberg.write.lake_write_result import IcebergCommittable, IcebergWriteResult


class IcebergLakeStorage(
    LakeStorage,
    SupportsCreateFlussLogSource,
    SupportsMaintenance,
    SupportsEmptyBuckets,
    SupportsPinnedReads,
    SupportsStoreTrial,
):
    """Iceberg through pyiceberg.

    Args:
        properties: pyiceberg's catalog properties (``type``, ``uri``, ``warehouse``, ``s3.endpoint``, ...) and the
            catalog's name under ``name`` (default ``fluss_lab``). The folder of a SQLite catalog is made when absent. Or
            what `LakeSource.pinned_properties` gave.

    Nothing is connected to before the first use. Safe in any thread; what it makes is for one thread each, the catalog
    excepted. What it makes shares decoded manifests and delete events, so keep one storage per process.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._access = PinnedAccess(properties) if METADATA_LOCATION in properties else CatalogAccess(properties)
        self._entries: EntryCache | None = None
        self._ended: EndedCache | None = None
        self._tables: LoadedTables | None = None

    @property
    def format_name(self) -> str:
        """Return ``iceberg``."""
        return "iceberg"

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties that this storage was made with, to make it again elsewhere."""
        return {"name": self._access.name, **self._access.properties}

    @property
    def task_properties(self) -> dict[str, str]:
        """Return what files are read and written with: the file system's credentials, not the catalog's."""
        return {"name": self._access.name, **file_properties(self._access.properties)}

    def renew_from(self, newest: Callable[[], LakeStorage]) -> None:
        """Take where snapshots are had that came after the table was pinned; without effect on a storage of all tables."""
        if isinstance(self._access, PinnedAccess):
            self._access.renew_from(newest)

    def store_place(self, tables: Iterable[TablePath]) -> StorePlace | None:
        """Ask the catalog, and return where files go that lie in a store; see `SupportsStoreTrial`."""
        if self.local_folder is not None:
            return None
        if (warehouse := self._access.warehouse) is not None:
            self._access.call("ask the lake's catalog for its databases", lambda catalog: catalog.list_namespaces())
            return StorePlace(warehouse, self.task_properties)
        for path in tables:
            with suppress(TableNotFoundError):
                return table_place(self._access.load_table(path))
        return None

    def try_store(self, location: str) -> None:
        """Write, read and delete a small object under a location."""
        from fluss_lab.lake.iceberg.files.store_probe import try_store

        try_store(self._access.file_io(location), location)

    @cached_property
    def local_folder(self) -> Path | None:
        """Return the warehouse's folder; None where it is an object store's, or a catalog's own to decide."""
        from fluss_lab.lake.iceberg.files.file_locations import local_path

        return local_path(self._access.warehouse) if self._access.warehouse else None

    @property
    def access(self) -> CatalogAccess:
        """Return the catalog access, for what needs pyiceberg's own table."""
        return self._access

    def create_lake_tiering_factory(self) -> LakeTieringFactory[IcebergWriteResult, IcebergCommittable]:
        """Return the factory of writers and committers."""
        return IcebergLakeTieringFactory(self._access, self._entry_cache())

    def create_lake_catalog(self) -> LakeCatalog:
        """Return the catalog of lake tables."""
        check_working_directory(f"lake catalog {self._access.name!r}")
        from fluss_lab.lake.iceberg.catalog import IcebergLakeCatalog

        return IcebergLakeCatalog(self._access, self._entry_cache())

    def create_lake_source(self, table: TableInfo) -> LakeSource:
        """Return a reader of a table's rows."""
        check_working_directory(f"lake table {table.path}")
        from fluss_lab.lake.iceberg.read.row_source import IcebergLakeSource

        return IcebergLakeSource(self._access, self._entry_cache(), table, self._ended_cache(), self._loaded_tables())

    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        """Return the log of a table as the lake holds it."""
        check_working_directory(f"lake table {table.path}")
        from fluss_lab.lake.iceberg.read.lake_log import IcebergFlussLogSource

        return IcebergFlussLogSource(self._access, self._entry_cache(), table, self._loaded_tables())

    def create_lake_maintenance(self, table: TableInfo, clock: Clock | None = None) -> LakeMaintenance:
        """Return the maintenance of a table."""
        check_working_directory(f"lake table {table.path}")
        from fluss_lab.lake.iceberg.maintenance.iceberg_maintenance import IcebergLakeMaintenance

        return IcebergLakeMaintenance(self._access, self._entry_cache(), table, clock)

    def compact(self, table: TableInfo, task: Mapping[str, Any]) -> bytes:
        """Do one task of a compaction's plan; nothing but the task is asked."""
        from fluss_lab.lake.iceberg.maintenance.compaction import compact_bucket

        return compact_bucket(table, task)

    def empty_buckets(
        self,
        table: TableInfo,
        buckets: Sequence[tuple[str | None, int]],
        planned_snapshot_id: int | None,
        properties: Mapping[str, str],
    ) -> int:
        """Commit a snapshot without any row of some buckets: see `SupportsEmptyBuckets`."""
        from fluss_lab.lake.iceberg.commit.bucket_removal import empty_buckets

        return empty_buckets(
            self._access, self._entry_cache(), table, frozenset(buckets), planned_snapshot_id, properties
        )

    def _entry_cache(self) -> EntryCache:
        from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache

        if self._entries is None:
            self._entries = EntryCache()
        return self._entries

    def _ended_cache(self) -> EndedCache | None:
        """Return what sources share; None of a store, where a file that is gone is known by opening it alone."""
        if self.local_folder is None:
            return None
        from fluss_lab.lake.iceberg.read.bucket_deletes import EndedCache

        if self._ended is None:
            self._ended = EndedCache()
        return self._ended

    def _loaded_tables(self) -> LoadedTables | None:
        """Return what sources share; None of a store, where a catalog may give credentials with a table, for a while."""
        if self.local_folder is None:
            return None
        from fluss_lab.lake.iceberg.read.lake_table import LoadedTables

        if self._tables is None:
            self._tables = LoadedTables()
        return self._tables


class IcebergLakeTieringFactory(LakeTieringFactory["IcebergWriteResult", "IcebergCommittable"]):
    """Makes writers and committers of Iceberg, and what serializes between them."""

    def __init__(self, access: CatalogAccess, entries: EntryCache) -> None:
        self._access = access
        self._entries = entries

    def describe_table(self, table: TableInfo) -> dict[str, Any]:
        """Return what writers of the table need, as JSON (credentials of the file system included).

        Raises:
            TableNotFoundError: The lake table is gone.
            UnsupportedError: It is not as fluss_lab made it.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        from fluss_lab.lake.iceberg.write.write_target import WriteTarget

        lake = self._access.rounds.planned_table(table.path) or self._access.load_table(table.path)
        return WriteTarget.of(self._entries.layout(table, lake), lake).to_json()

    def describe_buckets(
        self, table: TableInfo, buckets: Sequence[tuple[str | None, int]], snapshot_id: int | None
    ) -> dict[tuple[str | None, int], dict[str, Any]]:
        """Return the live data files of a primary-key table's buckets, as JSON: where rows are sought that have ended.

        Raises:
            LakeSnapshotNotFoundError: The table has no such snapshot.
            CommitConflictError: It is being expired; plan again.
            TableNotFoundError, UnsupportedError, UnavailableError: As `describe_table`.

        Cost: one pass over the snapshot's files for all buckets; none for a snapshot that was asked for before.
        """
        from fluss_lab.lake.iceberg.metadata.snapshot_files import snapshot_state
        from fluss_lab.lake.iceberg.write.row_locator import offset_files

        if table.is_log_table or snapshot_id is None:
            return {}
        lake = self._access.rounds.planned_table(table.path) or self._access.load_table(table.path)
        state = snapshot_state(table, lake, snapshot_id, self._entries)
        files = {key: state[key].data for key in buckets if key in state}
        return {key: {"files": to_plain(offset_files(found))} for key, found in files.items() if found}

    def create_lake_writer(self, context: WriterInitContext) -> LakeWriter[IcebergWriteResult]:
        """Return a writer for one split; nothing but the context is asked."""
        from fluss_lab.lake.iceberg.write.data_file_writer import IcebergLakeWriter
        from fluss_lab.lake.iceberg.write.pk_split_writer import IcebergKeyedWriter

        return IcebergLakeWriter(context) if context.table.is_log_table else IcebergKeyedWriter(context)

    def write_result_serializer(self) -> SimpleVersionedSerializer[IcebergWriteResult]:
        """Return the serializer of write results."""
        from fluss_lab.lake.iceberg.write.lake_write_result import WriteResultSerializer

        return WriteResultSerializer()

    def create_lake_committer(
        self, context: CommitterInitContext
    ) -> LakeCommitter[IcebergWriteResult, IcebergCommittable]:
        """Return a committer for one round."""
        from fluss_lab.lake.iceberg.commit.round_commit import IcebergLakeCommitter

        return IcebergLakeCommitter(self._access, self._entries, context)

    def committable_serializer(self) -> SimpleVersionedSerializer[IcebergCommittable]:
        """Return the serializer of committables."""
        from fluss_lab.lake.iceberg.write.lake_write_result import CommittableSerializer

        return CommittableSerializer()

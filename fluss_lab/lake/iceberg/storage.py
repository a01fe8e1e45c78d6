"""Iceberg as a lake format: where everything else comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss_lab.lake.iceberg.access import CatalogAccess
from fluss_lab.lake.interfaces import (
    CommitterInitContext,
    FlussLogSource,
    LakeCatalog,
    LakeCommitter,
    LakeSource,
    LakeStorage,
    LakeTieringFactory,
    LakeWriter,
    SimpleVersionedSerializer,
    SupportsCreateFlussLogSource,
    WriterInitContext,
)
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from fluss_lab.lake.iceberg.manifests import EntryCache
    from fluss_lab.lake.iceberg.results import IcebergCommittable, IcebergWriteResult


class IcebergLakeStorage(LakeStorage, SupportsCreateFlussLogSource):
    """Iceberg through pyiceberg.

    Args:
        properties: pyiceberg's catalog properties (``type``, ``uri``, ``warehouse``, ``s3.endpoint``, ...) and the
            catalog's name under ``name`` (default ``fluss_lab``). The folder of a SQLite catalog is made when absent.

    Nothing is connected to before the first use. Safe in any thread; what it makes is for one thread each, the catalog
    excepted. What it makes shares decoded manifests, so keep one storage per process.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._access = CatalogAccess(properties)
        self._entries: EntryCache | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties that this storage was made with, to make it again elsewhere."""
        return {"name": self._access.name, **self._access.properties}

    @property
    def access(self) -> CatalogAccess:
        """Return the catalog access, for what needs pyiceberg's own table."""
        return self._access

    def create_lake_tiering_factory(self) -> LakeTieringFactory[IcebergWriteResult, IcebergCommittable]:
        """Return the factory of writers and committers."""
        return IcebergLakeTieringFactory(self._access, self._entry_cache())

    def create_lake_catalog(self) -> LakeCatalog:
        """Return the catalog of lake tables."""
        from fluss_lab.lake.iceberg.catalog import IcebergLakeCatalog

        return IcebergLakeCatalog(self._access, self._entry_cache())

    def create_lake_source(self, table: TableInfo) -> LakeSource:
        """Return a reader of a table's rows."""
        from fluss_lab.lake.iceberg.source import IcebergLakeSource

        return IcebergLakeSource(self._access, self._entry_cache(), table)

    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        """Return the log of a table as the lake holds it."""
        from fluss_lab.lake.iceberg.log_source import IcebergFlussLogSource

        return IcebergFlussLogSource(self._access, self._entry_cache(), table)

    def _entry_cache(self) -> EntryCache:
        from fluss_lab.lake.iceberg.manifests import EntryCache

        if self._entries is None:
            self._entries = EntryCache()
        return self._entries


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
        from fluss_lab.lake.iceberg.target import WriteTarget

        return WriteTarget.of(table, self._access.load_table(table.path)).to_json()

    def create_lake_writer(self, context: WriterInitContext) -> LakeWriter[IcebergWriteResult]:
        """Return a writer for one split; nothing but the context is asked."""
        from fluss_lab.lake.iceberg.writer import IcebergLakeWriter

        return IcebergLakeWriter(context)

    def write_result_serializer(self) -> SimpleVersionedSerializer[IcebergWriteResult]:
        """Return the serializer of write results."""
        from fluss_lab.lake.iceberg.results import WriteResultSerializer

        return WriteResultSerializer()

    def create_lake_committer(
        self, context: CommitterInitContext
    ) -> LakeCommitter[IcebergWriteResult, IcebergCommittable]:
        """Return a committer for one round."""
        from fluss_lab.lake.iceberg.committer import IcebergLakeCommitter

        return IcebergLakeCommitter(self._access, self._entries, context)

    def committable_serializer(self) -> SimpleVersionedSerializer[IcebergCommittable]:
        """Return the serializer of committables."""
        from fluss_lab.lake.iceberg.results import CommittableSerializer

        return CommittableSerializer()

"""The lake's half of every change of tables and partitions: noted before it begins, undone or finished after a failure.

A change has two halves, in the metadata and in the lake, and no transaction spans both. So the change of the lake is noted
in the metadata first. A failure undoes it at once; what a crash leaves noted is settled by the next change:
`LakeTableDdl.settle`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fluss_lab.errors import InvalidPropertyError, LakeNotConfiguredError, NotFoundError, TableNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.model.config.options import DATALAKE_ENABLED, DATALAKE_FORMAT
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog
from fluss_lab.server.coordinator.tiering import lake_snapshots
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger, PartitionDrop

log = logging.getLogger(__name__)


class LakeTables(Protocol):
    """Creates, alters and drops lake tables. `LakeCatalog` implements it; the server gets it as an argument."""

    def create_table(self, table: TableInfo) -> None:
        """Create the lake table; one of the same layout without snapshots is adopted."""

    def alter_table(self, table: TableInfo) -> None:
        """Set the lake table's columns and properties to those of the table."""

    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the lake table, or with `keep` rename it by its table id. A missing one, or another table's, is left."""

    def discard_table(self, path: TablePath, table_id: int) -> None:
        """Drop the lake table of a creation that was not finished; one that has rows all the same is left alone."""

    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Delete the rows of a partition, so that no round planned before can commit rows of it. May be repeated."""


def check_lake_format(table: TableInfo, format_name: str) -> None:
    """Refuse a table whose lake format is not that of the cluster's lake.

    Raises:
        InvalidPropertyError: It asks for another one.
    """
    asked = DATALAKE_FORMAT.of(table.descriptor.properties)
    if asked not in {"", format_name}:
        raise InvalidPropertyError(
            f"property {DATALAKE_FORMAT.key!r}: expected {format_name!r}, the format of the cluster's lake "
            f"({FORMAT_KEY}), found {asked!r}; leave it out, or configure the cluster with that lake"
        )


class LakeTableDdl:
    """The lake's half of changes. Called by one change at a time.

    Args:
        catalog: Tables and partitions.
        ledger: Which lake tables exist, and in which state.
        lake_tables: The lake; None: lake-enabled tables are refused.
    """

    def __init__(
        self, store: MetadataStore, catalog: TableCatalog, ledger: LakeLedger, lake_tables: LakeTables | None
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._ledger = ledger
        self._lake_tables = lake_tables

    def tables(self) -> LakeTables:
        """Return the lake.

        Raises:
            LakeNotConfiguredError: The cluster has none.
        """
        if self._lake_tables is None:
            raise LakeNotConfiguredError(
                f"the cluster has no lake: start it with datalake.* options, or leave {DATALAKE_ENABLED.key} off"
            )
        return self._lake_tables

    def has_table(self, info: TableInfo) -> bool:
        """Return whether the lake has a table for this one, whether it is tiered at present or not."""
        return self._ledger.state(info.table_id) in {lake_snapshots.LIVE, lake_snapshots.ALTERING}

    @contextmanager
    def creation(self, info: TableInfo) -> Iterator[None]:
        """Create a lake table, then run the block: a transaction that ends with `live`. Both happen, or neither.

        Raises:
            LakeNotConfiguredError, LakeTableExistsError, UnsupportedError: As `LakeTables.create_table`.
        """
        lake = self.tables()
        self.settle(info.path)
        self._ledger.set_state(info.table_id, info.path, lake_snapshots.MAKING)
        try:
            lake.create_table(info)
            yield
        except BaseException:
            self.unmake(info)
            raise

    @contextmanager
    def alteration(self, old: TableInfo, new: TableInfo) -> Iterator[None]:
        """Alter a lake table, then run the block: a transaction that ends with `live`. Both happen, or neither.

        Where it is gone, and the lake is switched on again, it is made anew: what it held was given up by that.

        Raises:
            LakeNotConfiguredError, UnsupportedError, CommitConflictError: As `LakeTables.alter_table`.
            TableNotFoundError: It is gone.
        """
        lake = self.tables()
        self.settle(new.path)
        self._ledger.set_state(new.table_id, new.path, lake_snapshots.ALTERING)
        try:
            try:
                lake.alter_table(new)
            except TableNotFoundError:
                if old.descriptor.lake_enabled or not new.descriptor.lake_enabled:
                    raise
                lake.create_table(new)
            yield
        except BaseException:
            self._take_back(old)
            raise

    def live(self, info: TableInfo) -> None:
        """Note that a lake table agrees with its table. Part of the caller's transaction."""
        self._ledger.set_state(info.table_id, info.path, lake_snapshots.LIVE)

    def unmake(self, info: TableInfo) -> None:
        """Discard a lake table whose table could not be created. A failure leaves it noted as being created."""
        try:
            self.tables().discard_table(info.path, info.table_id)
            self._ledger.set_state(info.table_id, info.path, None)
        except Exception:
            log.exception("event=lake_table_left table=%s id=%d", info.path, info.table_id)

    def _take_back(self, old: TableInfo) -> None:
        try:
            self._follow(old)
            self.live(old)
        except Exception:
            log.exception("event=lake_table_left table=%s id=%d", old.path, old.table_id)

    def _follow(self, info: TableInfo) -> None:
        """Alter a lake table to what its table is; of a table that is not tiered it may be gone."""
        try:
            self.tables().alter_table(info)
        except TableNotFoundError:
            if info.descriptor.lake_enabled:
                raise

    # -- what is done after the metadata -------------------------------------------------------------------------------

    def note_drop(self, info: TableInfo, *, keep: bool) -> None:
        """Note that a table's lake table must be dropped. Part of the caller's transaction; `settle` does it.

        Raises:
            LakeNotConfiguredError: It has one, and the cluster has no lake.
        """
        if self._ledger.state(info.table_id) is not None:
            self.tables()
            self._ledger.set_state(
                info.table_id, info.path, lake_snapshots.RENAMING if keep else lake_snapshots.DROPPING
            )

    def note_partition_drop(self, info: TableInfo, partition: PartitionInfo) -> None:
        """Note that a dropped partition must leave the lake too. Part of the caller's transaction; `settle` does it.

        Raises:
            LakeNotConfiguredError: The cluster has no lake.
        """
        self.tables()
        self._ledger.note_partition_drop(PartitionDrop(info.table_id, partition))

    def settle(self, path: TablePath | None = None) -> None:
        """Finish interrupted changes of the lake: of this table, and of others if possible.

        Args:
            path: The table; None: all, if possible.

        Raises:
            FlussError: The lake refused, for this table.
        """
        for row in self._ledger.tables():
            if row.state in {lake_snapshots.LIVE, lake_snapshots.KEPT}:
                continue
            try:
                self._settle_table(row)
            except Exception as error:
                if row.path == path:
                    raise
                log.warning("event=lake_table_left table=%s id=%d error=%s", row.path, row.table_id, error)
        for drop in self._ledger.partition_drops():
            try:
                info = self._catalog.table_by_id(drop.table_id)
            except NotFoundError:
                continue  # dropped in between, and the note with it
            try:
                self._drop_partition(info, drop)
            except Exception as error:
                if info.path == path:
                    raise
                log.warning(
                    "event=lake_partition_left table=%s partition=%s error=%s", info.path, drop.partition.name, error
                )

    def _settle_table(self, row: lake_snapshots.LakeTableRow) -> None:
        if row.state == lake_snapshots.ALTERING:
            # The table is as it was or as it was to be; the lake table follows.
            self._follow(self._catalog.table_by_id(row.table_id))
            self._ledger.set_state(row.table_id, row.path, lake_snapshots.LIVE)
            return
        if row.state == lake_snapshots.MAKING:
            self.tables().discard_table(row.path, row.table_id)
        else:
            self.tables().drop_table(row.path, row.table_id, row.state == lake_snapshots.RENAMING)
        self._ledger.set_state(
            row.table_id, row.path, lake_snapshots.KEPT if row.state == lake_snapshots.RENAMING else None
        )

    def _drop_partition(self, info: TableInfo, drop: PartitionDrop) -> None:
        self.tables().drop_partition(info, drop.partition)
        failpoint("coordinator.ddl.after_lake_partition")
        with self._store.write():
            self._ledger.end_partition_drop(drop)
            self._catalog.forget_partition(drop.partition.partition_id)
        log.info("event=lake_partition_dropped table=%s partition=%s", info.path, drop.partition.name)

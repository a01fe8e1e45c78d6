"""Databases, tables and partitions come, change and go: every check, and the order in which nothing stays half done.

The lake table is made before the table is known, and dropped after the table is gone; what a crash leaves of either is
noted in the metadata beforehand, and settled with the next change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    DatabaseExistsError,
    DatabaseNotFoundError,
    InvalidPartitionError,
    LakeNotConfiguredError,
    PartitionExistsError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model import PartitionInfo, TableDescriptor, TableInfo, TablePath, make_descriptor
from fluss_lab.model.descriptor import check_lake
from fluss_lab.model.names import check_name, partition_name
from fluss_lab.model.options import (
    BUCKETS_MAX,
    DATALAKE_ENABLED,
    FREE_PREFIXES,
    PARTITIONS_MAX,
    TABLE_OPTIONS,
    check_properties,
)
from fluss_lab.server.coordinator import lakes
from fluss_lab.server.coordinator.catalog import Catalog, Partition
from fluss_lab.server.coordinator.lakes import LakeLedger
from fluss_lab.server.coordinator.store import MetadataStore
from fluss_lab.server.coordinator.tablets import TabletServers, leaders_for
from fluss_lab.server.coordinator.tiering import TieringManager

log = logging.getLogger(__name__)

#: Schemas do not change yet, so each table's is its first.
FIRST_SCHEMA_ID: Final = 1
#: Ids begin at 1, so that a 0 in a message or a folder name is seen to be a mistake.
FIRST_ID: Final = 1


class LakeTables(Protocol):
    """Makes, alters and drops lake tables. A `LakeCatalog` is one; it is handed in from above."""

    def create_table(self, table: TableInfo) -> None:
        """Create the lake table; one of the same layout without snapshots is taken over."""

    def alter_table(self, table: TableInfo) -> None:
        """Bring the lake table's properties to those of the table."""

    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the lake table, or with `keep` rename it by its table id. Absent is fine; another table's is left alone."""


class Lifecycle:
    """Everything that changes what exists. Changes run one after another."""

    def __init__(
        self,
        store: MetadataStore,
        catalog: Catalog,
        ledger: LakeLedger,
        tablets: TabletServers,
        tiering: TieringManager,
        *,
        clock: Clock,
        options: Mapping[str, str],
        lake_tables: LakeTables | None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._ledger = ledger
        self._tablets = tablets
        self._tiering = tiering
        self._clock = clock
        self._lake_tables = lake_tables
        self._buckets_max = BUCKETS_MAX.of(options)
        self._partitions_max = PARTITIONS_MAX.of(options)
        self._changing = threading.Lock()

    # -- databases ---------------------------------------------------------------------------------------------------

    def create_database(self, name: str, *, ignore_if_exists: bool) -> None:
        """Create a database.

        Raises:
            InvalidNameError: The name breaks the rule.
            DatabaseExistsError: It exists.
        """
        check_name(name, "database")
        with self._changing:
            try:
                self._catalog.add_database(name, self._clock.now_ms())
            except DatabaseExistsError:
                if not ignore_if_exists:
                    raise

    def drop_database(self, name: str, *, ignore_if_not_exists: bool, cascade: bool) -> None:
        """Drop a database; with `cascade` its tables first, one after another.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables.
        """
        check_name(name, "database")
        with self._changing:
            try:
                self._catalog.require_database(name)
            except DatabaseNotFoundError:
                if ignore_if_not_exists:
                    return
                raise
            for table in self._catalog.tables(name) if cascade else ():
                self._drop_table(self._catalog.table(TablePath(name, table)), keep_lake=False)
            self._catalog.remove_database(name)

    # -- tables ------------------------------------------------------------------------------------------------------

    def create_table(self, path: TablePath, wanted: TableDescriptor, *, ignore_if_exists: bool) -> None:
        """Create a table and, if it is lake-enabled, its lake table: both, or none.

        Raises:
            InvalidError: A kind of it for each thing that can be wrong.
            LakeNotConfiguredError: It is lake-enabled, and the cluster has no lake.
            DatabaseNotFoundError, TableExistsError, LakeTableExistsError: As they say.
        """
        descriptor = self._checked(wanted)
        with self._changing:
            self._catalog.require_database(path.database)
            if self._catalog.find_table(path) is not None:
                if ignore_if_exists:
                    return
                raise TableExistsError(f"table {path} exists")
            servers = self._servers()
            now_ms = self._clock.now_ms()
            info = TableInfo(path, self._store.next_id("table", FIRST_ID), FIRST_SCHEMA_ID, descriptor, now_ms, now_ms)
            leaders = () if descriptor.partitioned_by else leaders_for(servers, descriptor.buckets, info.table_id)
            if descriptor.lake_enabled:
                self._make_lake_table(info)
            try:
                failpoint("coordinator.ddl.after_lake")
                with self._store.write():
                    self._catalog.add_table(info, leaders)
                    if descriptor.lake_enabled:
                        self._ledger.set_state(info.table_id, path, lakes.LIVE)
            except BaseException:
                if descriptor.lake_enabled:
                    self._unmake_lake_table(info)
                raise
            self._tablets.note_table(info.table_id)
            if descriptor.lake_enabled:
                self._tiering.register(info, new=True)
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=table_created table=%s id=%d", path, info.table_id)

    def _checked(self, wanted: TableDescriptor) -> TableDescriptor:
        """Return a definition that came over the wire, checked like one that a person writes."""
        checked = make_descriptor(
            wanted.schema,
            primary_key=wanted.schema.primary_key,
            partitioned_by=wanted.partitioned_by,
            buckets=wanted.buckets,
            bucket_key=wanted.bucket_key,
            properties=wanted.properties,
            comment=wanted.comment,
            buckets_max=self._buckets_max,
        )
        if checked.schema.primary_key:
            raise UnsupportedError(
                f"primary key {list(checked.schema.primary_key)}: primary-key tables are not served by this version; "
                "leave the primary key out for a log table"
            )
        return checked

    def drop_table(self, path: TablePath, *, ignore_if_not_exists: bool, keep_lake: bool) -> None:
        """Drop a table and its lake table; with `keep_lake` that stays, renamed by its table id.

        Raises:
            TableNotFoundError: It does not exist.
            FlussError: The table is gone, but the lake refused to drop its own; that is tried again with the next change.
        """
        with self._changing:
            found = self._catalog.find_table(path)
            if found is None and ignore_if_not_exists:
                return
            if found is None:
                raise TableNotFoundError(f"table {path} does not exist")
            self._drop_table(found, keep_lake=keep_lake)

    def _drop_table(self, info: TableInfo, *, keep_lake: bool) -> None:
        has_lake_table = self._ledger.state(info.table_id) is not None
        if has_lake_table:
            self._lake()
        with self._store.write():
            if has_lake_table:
                self._ledger.set_state(info.table_id, info.path, lakes.RENAMING if keep_lake else lakes.DROPPING)
            self._catalog.remove_table(info.table_id)
        self._tablets.note_drop()
        self._tiering.remove(info.table_id)
        failpoint("coordinator.ddl.after_commit")
        self._tablets.settle()
        log.info("event=table_dropped table=%s id=%d", info.path, info.table_id)
        self._settle_lake_tables(info.path)

    def alter_table(
        self, path: TablePath, set: Mapping[str, str], reset: Sequence[str], *, ignore_if_not_exists: bool
    ) -> None:
        """Set and reset properties of a table.

        Raises:
            TableNotFoundError: It does not exist.
            InvalidPropertyError: An unknown property, or a value that cannot be.
            UnsupportedError: A property that a live table may not change, or a table that the lake cannot hold.
        """
        check_properties(set)
        for key in [*set, *reset]:
            _check_alterable(key)
        with self._changing:
            old = self._catalog.find_table(path)
            if old is None and ignore_if_not_exists:
                return
            if old is None:
                raise TableNotFoundError(f"table {path} does not exist")
            kept = {key: value for key, value in old.descriptor.properties.items() if key not in reset}
            descriptor = old.descriptor.with_properties(check_properties({**kept, **set}))
            if descriptor == old.descriptor:
                return
            now_ms = self._clock.now_ms()
            self._alter(old, TableInfo(path, old.table_id, old.schema_id, descriptor, old.created_ms, now_ms))

    def _alter(self, old: TableInfo, new: TableInfo) -> None:
        state = self._ledger.state(new.table_id)
        is_enabled = new.descriptor.lake_enabled
        made = is_enabled and state != lakes.LIVE
        if is_enabled:
            check_lake(new.descriptor)
        if made:
            self._make_lake_table(new)
        elif is_enabled:
            self._lake().alter_table(new)
        try:
            failpoint("coordinator.ddl.after_lake")
            with self._store.write():
                self._catalog.set_descriptor(new.table_id, new.descriptor, new.modified_ms)
                if made:
                    self._ledger.set_state(new.table_id, new.path, lakes.LIVE)
        except BaseException:
            if made:
                self._unmake_lake_table(new)
            elif is_enabled:
                self._lake().alter_table(old)
            raise
        self._tablets.note_table(new.table_id)
        if is_enabled:
            self._tiering.register(new, new=not old.descriptor.lake_enabled)
        else:
            self._tiering.remove(new.table_id)
        failpoint("coordinator.ddl.after_commit")
        self._tablets.settle()
        log.info("event=table_altered table=%s id=%d", new.path, new.table_id)

    # -- partitions --------------------------------------------------------------------------------------------------

    def create_partition(self, path: TablePath, values: Mapping[str, str], *, ignore_if_exists: bool) -> None:
        """Create a partition.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions or too many, or the values cannot be.
            PartitionExistsError: It exists, or one of that name was dropped and is still read from the lake.
        """
        with self._changing:
            info = self._catalog.table(path)
            name = name_of_partition(info, values)
            found = self._catalog.find_partition(info.table_id, name)
            if found is not None and found.dropped_ms is None and ignore_if_exists:
                return
            count = len(self._catalog.partitions(info.table_id))
            if found is None and count >= self._partitions_max:
                raise InvalidPartitionError(
                    f"table {path} has {count} partitions, the most there may be ({PARTITIONS_MAX.key}): drop some first"
                )
            if found is not None:
                raise _partition_exists(path, name, was_dropped=found.dropped_ms is not None)
            partition_id = self._store.next_id("partition", FIRST_ID)
            leaders = leaders_for(self._servers(), info.descriptor.buckets, partition_id)
            self._catalog.add_partition(
                Partition(PartitionInfo(partition_id, name), info.table_id, leaders), self._clock.now_ms()
            )
            self._tablets.note_table(info.table_id)
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()

    def drop_partition(self, path: TablePath, values: Mapping[str, str], *, ignore_if_not_exists: bool) -> None:
        """Drop a partition. What the lake holds of it stays readable there.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: The table has no partitions, or the values cannot be.
            PartitionNotFoundError: It does not exist.
        """
        with self._changing:
            info = self._catalog.table(path)
            name = name_of_partition(info, values)
            found = self._catalog.find_partition(info.table_id, name)
            if found is None or found.dropped_ms is not None:
                if ignore_if_not_exists:
                    return
                raise PartitionNotFoundError(f"table {path} has no partition {name!r}")
            # A round that is under way may still bring rows of it to the lake.
            keep_row = self._ledger.state(info.table_id) is not None
            self._catalog.remove_partition(found, self._clock.now_ms(), keep_row=keep_row)
            self._tablets.note_drop()
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _servers(self) -> list[int]:
        if servers := self._tablets.ids():
            return servers
        raise ServerUnavailableError("no tablet server has registered yet; try again in a moment")

    def _lake(self) -> LakeTables:
        if self._lake_tables is None:
            raise LakeNotConfiguredError(
                f"the cluster has no lake: start it with datalake.* options, or leave {DATALAKE_ENABLED.key} off"
            )
        return self._lake_tables

    def _make_lake_table(self, info: TableInfo) -> None:
        lake = self._lake()
        self._settle_lake_tables(info.path)
        self._ledger.set_state(info.table_id, info.path, lakes.MAKING)
        try:
            lake.create_table(info)
        except BaseException:
            self._unmake_lake_table(info)
            raise

    def _unmake_lake_table(self, info: TableInfo) -> None:
        """Take back a lake table whose table could not be made. A failure leaves it noted as being made."""
        try:
            self._lake().drop_table(info.path, info.table_id, False)
            self._ledger.set_state(info.table_id, info.path, None)
        except Exception:
            log.exception("event=lake_table_left table=%s id=%d", info.path, info.table_id)

    def _settle_lake_tables(self, path: TablePath) -> None:
        """Finish what was begun with lake tables and cut off: those of this path, and those of others if possible.

        Raises:
            FlussError: The lake refused, for this path.
        """
        for row in self._ledger.tables():
            if row.state in {lakes.LIVE, lakes.KEPT}:
                continue
            try:
                self._lake().drop_table(row.path, row.table_id, row.state == lakes.RENAMING)
            except Exception as error:
                if row.path == path:
                    raise
                log.warning("event=lake_table_left table=%s id=%d error=%s", row.path, row.table_id, error)
                continue
            state = lakes.KEPT if row.state == lakes.RENAMING else None
            self._ledger.set_state(row.table_id, row.path, state)


def name_of_partition(info: TableInfo, values: Mapping[str, str]) -> str:
    """Return the name of the partition of a table with these values.

    Raises:
        InvalidPartitionError: The table has no partitions, the values are not of its partition columns, or cannot be.
    """
    columns = info.descriptor.partitioned_by
    if not columns:
        raise InvalidPartitionError(f"table {info.path} is not partitioned")
    if sorted(values) != sorted(columns):
        raise InvalidPartitionError(
            f"partition of table {info.path}: expected values of {list(columns)}, found {sorted(values)}"
        )
    return partition_name(tuple(values[column] for column in columns))


def _partition_exists(path: TablePath, name: str, *, was_dropped: bool) -> PartitionExistsError:
    if not was_dropped:
        return PartitionExistsError(f"table {path} has a partition {name!r}")
    return PartitionExistsError(
        f"table {path} had a partition {name!r}, whose rows are still read from the lake; a new one of that name would mix "
        "with them: choose another value"
    )


def _check_alterable(key: str) -> None:
    if key.startswith(FREE_PREFIXES):
        return
    option = TABLE_OPTIONS.get(key)
    if option is None:
        check_properties({key: ""})  # says what is known
    elif not option.alterable:
        alterable = sorted(name for name, each in TABLE_OPTIONS.items() if each.alterable)
        raise UnsupportedError(
            f"property {key!r}: a live table may not change it; those that may change are {', '.join(alterable)} and "
            f"anything under {' and '.join(repr(prefix) for prefix in FREE_PREFIXES)}"
        )

"""The creation, alteration and drop of databases and tables: every check, and the order in which nothing stays half done.

The lake table is created before the table, and dropped after it; what a crash leaves of either is
noted in the metadata beforehand, and settled with the next change (`lake_table_ddl`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    DatabaseExistsError,
    DatabaseNotFoundError,
    InvalidSchemaError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model import TableDescriptor, TableInfo, TablePath, make_descriptor
from fluss_lab.model.auto_partition import AutoPartition
from fluss_lab.model.config.options import BUCKETS_MAX, DATALAKE_FORMAT, TABLE_OPTIONS, check_properties, free_prefixes
from fluss_lab.model.descriptor import check_descriptor, check_lake
from fluss_lab.model.names import check_name
from fluss_lab.model.schema import NewColumn, with_columns
from fluss_lab.server.coordinator.ddl.lake_table_ddl import LakeTableDdl
from fluss_lab.server.coordinator.ddl.partition_ddl import FIRST_ID
from fluss_lab.server.coordinator.ddl.partition_records import AutoPartitionMarks
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog
from fluss_lab.server.coordinator.tablets.leadership import TabletServers
from fluss_lab.server.coordinator.tiering.tiering_manager import TieringManager

#: Log batches hold a schema's id in 16 bits.
SCHEMA_ID_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class TableAlteration:
    """The changes of one ALTER TABLE request: all of them are applied, or none.

    Attributes:
        set: Properties and their new values.
        reset: Properties set back to their defaults.
        columns: Columns added at the end, in order.
    """

    set: Mapping[str, str] = field(default_factory=dict)
    reset: Sequence[str] = ()
    columns: Sequence[NewColumn] = ()

    def _check(self, known: Mapping[str, str]) -> None:
        """Check each property by itself; which prefixes are free depends on those that the table has."""
        lake = {key: value for key, value in known.items() if key == DATALAKE_FORMAT.key}
        check_properties({**lake, **self.set})
        free = free_prefixes(lake)
        for key in (*self.set, *self.reset):
            if not key.startswith(free):
                _check_alterable(key, free)

    def apply(self, old: TableInfo, now_ms: int) -> TableInfo | None:
        """Return the altered table; None when nothing changes.

        Raises:
            InvalidSchemaError, InvalidNameError: A column that cannot be added, or a definition that becomes too large.
            InvalidPropertyError: An unknown property, an invalid value, or properties that do not fit each other or the
                table.
            UnsupportedError: A property that a live table may not change, or a table that the lake cannot hold.
        """
        self._check(old.descriptor.properties)
        kept = {key: value for key, value in old.descriptor.properties.items() if key not in self.reset}
        schema = with_columns(old.schema, self.columns)
        properties = check_properties({**kept, **self.set})
        descriptor = replace(old.descriptor, schema=schema, properties=properties)
        if descriptor == old.descriptor:
            return None
        check_descriptor(descriptor)
        schema_id = old.schema_id + bool(self.columns)
        if schema_id > SCHEMA_ID_MAX:
            raise InvalidSchemaError(
                f"table {old.path} has had {old.schema_id} schemas, the most there may be: create it anew"
            )
        return replace(old, schema_id=schema_id, descriptor=descriptor, modified_ms=now_ms)


def _check_alterable(key: str, free: Sequence[str]) -> None:
    option = TABLE_OPTIONS.get(key)
    if option is None:
        check_properties({key: ""})  # raises with the known names
    elif not option.alterable:
        raise UnsupportedError(
            f"property {key!r}: a live table may not change it; those that may change are {', '.join(_alterable())} and "
            f"anything under {' and '.join(repr(prefix) for prefix in free)}"
        )


def _alterable() -> Iterable[str]:
    return sorted(name for name, each in TABLE_OPTIONS.items() if each.alterable)


log = logging.getLogger(__name__)

#: Each change of columns makes the next one.
FIRST_SCHEMA_ID: Final = 1


class TableDdl:
    """Creates, alters and drops databases and tables. Changes are serialized, with those of partitions too.

    Args:
        catalog: What exists.
        tablets: The tablet servers, notified of every change.
        tiering: Which tables are tiered.
        lake: The lake's side of changes.
        marks: The progress of automatic partitions.
        changing: Held during every change of what exists.
        clock: The server's.
        options: Of the cluster.
    """

    def __init__(
        self,
        store: MetadataStore,
        catalog: TableCatalog,
        tablets: TabletServers,
        tiering: TieringManager,
        lake: LakeTableDdl,
        marks: AutoPartitionMarks,
        *,
        changing: threading.Lock,
        clock: Clock,
        options: Mapping[str, str],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._tablets = tablets
        self._tiering = tiering
        self._lake = lake
        self._marks = marks
        self._changing = changing
        self._clock = clock
        self._buckets_max = BUCKETS_MAX.of(options)

    # -- databases ---------------------------------------------------------------------------------------------------

    def create_database(self, name: str, *, ignore_if_exists: bool) -> None:
        """Create a database.

        Raises:
            InvalidNameError: The name breaks the rule.
            DatabaseExistsError: It exists.
        """
        check_name(name, "database")
        self._store.reserve.check(f"database {name!r} was not created")
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
            self._store.reserve.lend(lambda: self._catalog.remove_database(name))

    # -- tables ------------------------------------------------------------------------------------------------------

    def create_table(self, path: TablePath, wanted: TableDescriptor, *, ignore_if_exists: bool) -> None:
        """Create a table and, if it is lake-enabled, its lake table: both, or none.

        Raises:
            InvalidError: A subclass for each kind of mistake.
            LakeNotConfiguredError: It is lake-enabled, and the cluster has no lake.
            DatabaseNotFoundError, TableExistsError, LakeTableExistsError: As their names say.
        """
        descriptor = self._check_definition(wanted)
        self._store.reserve.check(f"table {path} was not created")
        with self._changing:
            self._catalog.require_database(path.database)
            if self._catalog.find_table(path) is not None:
                if ignore_if_exists:
                    return
                raise TableExistsError(f"table {path} exists")
            leaders = () if descriptor.partitioned_by else self._tablets.assign(descriptor.buckets)[0]
            now_ms = self._clock.now_ms()
            info = TableInfo(path, self._store.next_id("table", FIRST_ID), FIRST_SCHEMA_ID, descriptor, now_ms, now_ms)
            lake = self._lake.creation(info) if descriptor.lake_enabled else nullcontext()
            with lake:
                failpoint("coordinator.ddl.after_lake")
                with self._store.write():
                    self._catalog.add_table(info, leaders)
                    if descriptor.lake_enabled:
                        self._lake.live(info)
            self._tablets.note_table(info.table_id)
            if descriptor.lake_enabled:
                self._tiering.register(info, new=True)
            failpoint("coordinator.ddl.after_commit")
            self._tablets.settle()
            log.info("event=table_created table=%s id=%d", path, info.table_id)

    def _check_definition(self, wanted: TableDescriptor) -> TableDescriptor:
        """Return a definition received over the wire, checked like one given to the API."""
        return make_descriptor(
            wanted.schema,
            primary_key=wanted.schema.primary_key,
            partitioned_by=wanted.partitioned_by,
            buckets=wanted.buckets,
            bucket_key=wanted.bucket_key,
            properties=wanted.properties,
            comment=wanted.comment,
            buckets_max=self._buckets_max,
        )

    def drop_table(self, path: TablePath, *, ignore_if_not_exists: bool, keep_lake: bool) -> None:
        """Drop a table and its lake table; with `keep_lake` that stays, renamed by its table id.

        The table is gone at once. The lake table is dropped when a tierer that holds the table has stopped, or was silent for
        `lake.tiering.takeover`.

        Raises:
            TableNotFoundError: It does not exist.
            FlussError: The table is gone, but the lake refused to drop the lake table; the next change retries that.
        """
        with self._changing:
            found = self._catalog.find_table(path)
            if found is None and ignore_if_not_exists:
                return
            if found is None:
                raise TableNotFoundError(f"table {path} does not exist")
            self._drop_table(found, keep_lake=keep_lake)

    def _drop_table(self, info: TableInfo, *, keep_lake: bool) -> None:
        with self._store.read():  # a table that is gone is never seen as still tiered
            self._store.reserve.lend(lambda: self._remove(info, keep_lake=keep_lake))
            self._tablets.note_drop()  # at once: whatever fails from here on, the drop is done
            self._tiering.drop(info.table_id)
        failpoint("coordinator.ddl.after_commit")
        self._tablets.settle()
        log.info("event=table_dropped table=%s id=%d", info.path, info.table_id)
        if not self._tiering.leaving.wait(info.table_id):
            log.warning("event=tierer_silent table=%s id=%d", info.path, info.table_id)
        self._lake.settle(info.path)

    def _remove(self, info: TableInfo, *, keep_lake: bool) -> None:
        with self._store.write():
            self._lake.note_drop(info, keep=keep_lake)
            self._catalog.remove_table(info.table_id)

    def alter_table(self, path: TablePath, change: TableAlteration, *, ignore_if_not_exists: bool) -> None:
        """Set and reset properties of a table and add columns to it: all of it, or nothing.

        Raises:
            TableNotFoundError: It does not exist.
            InvalidPropertyError: An unknown property, or an invalid value.
            InvalidSchemaError, InvalidNameError: A column that cannot be added.
            UnsupportedError: A property that a live table may not change, or a table that the lake cannot hold.
        """
        with self._changing:
            old = self._catalog.find_table(path)
            if old is None and ignore_if_not_exists:
                return
            if old is None:
                raise TableNotFoundError(f"table {path} does not exist")
            if (new := change.apply(old, self._clock.now_ms())) is not None:
                self._store.reserve.check(f"table {path} was not altered")
                self._alter(old, new)

    def _alter(self, old: TableInfo, new: TableInfo) -> None:
        is_enabled = new.descriptor.lake_enabled
        with self._altering_lake(old, new):
            failpoint("coordinator.ddl.after_lake")
            with self._store.write():
                self._catalog.set_definition(new)
                if AutoPartition.of(new.descriptor.partitioned_by, new.descriptor.properties) != AutoPartition.of(
                    old.descriptor.partitioned_by, old.descriptor.properties
                ):
                    self._marks.forget(new.table_id)
                if is_enabled or self._lake.has_table(new):
                    self._lake.live(new)
        self._tablets.note_table(new.table_id)
        if is_enabled:
            self._tiering.register(new, new=not old.descriptor.lake_enabled)
        else:
            self._tiering.remove(new.table_id)
        failpoint("coordinator.ddl.after_commit")
        self._tablets.settle()
        log.info("event=table_altered table=%s id=%d schema=%d", new.path, new.table_id, new.schema_id)

    def _altering_lake(self, old: TableInfo, new: TableInfo) -> AbstractContextManager[None]:
        """Return the context of an alteration's transaction that alters the lake table."""
        has_new_columns = new.schema_id != old.schema_id
        if not self._lake.has_table(old):
            return self._lake.creation(new) if new.descriptor.lake_enabled else nullcontext()
        if has_new_columns:
            # What the lake holds is read with them also while the table is not tiered.
            check_lake(new.descriptor)
        if has_new_columns or new.descriptor.lake_enabled:
            return self._lake.alteration(old, new)
        return nullcontext()

    def settle_lake(self) -> None:
        """Finish in the lake what a crash or a failure left, where the lake lets it."""
        if self._store.reserve.is_read_only:
            return
        with self._changing:
            self._lake.settle()

"""Lake tables made, altered and dropped as Fluss tables are.

Source: FIP "Iceberg tiering", "IcebergLakeCatalog".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import (
    AuthenticationError,
    CommitConflictError,
    InvalidRequestError,
    LakeTableExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake.format_interfaces import LakeCatalog
from fluss_lab.lake.iceberg.commit.bucket_removal import drop_partition
from fluss_lab.lake.iceberg.commit.first_snapshot import with_first_snapshot
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.metadata.snapshot_history import is_empty_start
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess, CatalogLockedError, identifier
from fluss_lab.lake.iceberg.table.layout import (
    TABLE_ID_PROPERTY,
    LakeLayout,
    check_owner,
    check_spec,
    checked_layout,
    new_layout,
    same_schema,
)
from fluss_lab.lake.iceberg.table.schema_evolution import evolution_of
from fluss_lab.lake.iceberg.table.table_folders import chosen_location, own_folders, remove_files
from fluss_lab.lake.iceberg.table.table_properties import (
    FLUSS_PREFIX,
    LOCATION_PROPERTY,
    changed_properties,
    lake_properties,
)
from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.model.descriptor import check_lake

if TYPE_CHECKING:
    from pyiceberg.table import Table

_LOG: Final = logging.getLogger(__name__)
#: A property commit that loses against a round's commit is tried again; rounds of one table commit seconds apart.
ALTER_TRIES: Final = 5


class IcebergLakeCatalog(LakeCatalog):
    """Makes a table's Iceberg table exactly as the FIP lays it out.

    Columns: the user's, then ``__bucket int``, ``__offset bigint``, ``__timestamp timestamptz``, required. Partitions:
    identity of the partition columns, then ``bucket[N](key)`` for one bucket key, else identity of ``__bucket``. Sorted
    ascending by ``__offset``. Format version 2. Comments of columns become their docs. The columns of a primary key are
    the identifier fields, and such a table is merge-on-read for every writer.

    Properties: ``iceberg.x`` becomes ``x``, every other one ``fluss.`` and its name. Beside these the table gets
    ``fluss.table-id``, ``fluss.field-ids``, ``fluss.forwarded`` and the defaults of `table_properties.DEFAULTS` (compression,
    manifest merging, metadata clean-up, metrics), each of which a property under ``iceberg.`` overrides. The FIP names
    none of these and forbids none.

    The location holds the table id, so that a table dropped with ``keep`` never shares it with a later one of its name. A REST
    catalog is asked for that; where it insists on one of its own, orphan files are not looked for. Safe in any thread.
    """

    def __init__(self, access: CatalogAccess, entries: EntryCache) -> None:
        self._access = access
        self._entries = entries

    def create_table(self, table: TableInfo) -> None:
        """Create the lake table; calling it again for the same table changes nothing.

        One that an earlier creation left behind, of the same layout and without rows, is taken over. In a REST catalog the table
        has an empty snapshot from the start: see `fluss_lab.lake.iceberg.commit.first_snapshot`.

        Raises:
            LakeTableExistsError: The lake has another table of that name.
            UnsupportedError: A type, key or property that the lake cannot hold.
            InvalidPropertyError: A property under ``iceberg.`` with a value that cannot be.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        check_lake(table.descriptor)
        layout = new_layout(table)
        properties = lake_properties(table, layout)
        what = f"create lake table {table.path}"
        self._access.call(what, lambda catalog: catalog.create_namespace_if_not_exists(table.path.database))
        try:
            made = self._make_table(what, table, layout, properties)
        except TableAlreadyExistsError:
            made = self._take_over(table, properties)
        else:
            _check_ids(table, layout, made)
        with_first_snapshot(self._access, table.path, made)

    def alter_table(self, table: TableInfo) -> None:
        """Bring the lake table's columns and properties to those of the Fluss table, in one commit.

        What others added or set there stays; see `schema_evolution`.

        Raises:
            TableNotFoundError: There is no lake table.
            UnsupportedError, InvalidPropertyError: As `create_table`.
            CommitConflictError: Others keep changing the table; try again.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        lake = self._access.load_table(table.path)
        check_owner(table, lake)
        self._bring(table, lake)

    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the lake table and the files under its location, or with `keep` rename it ``<name>__<table id>``.

        A lake table of that name that belongs to another Fluss table, or to none, is left alone; absent is fine.
        Files that cannot be removed stay, with a warning in the log.

        Raises:
            LakeTableExistsError: With `keep`: the new name is taken.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            lake = self._access.load_table(path)
        except TableNotFoundError:
            return
        if lake.properties.get(TABLE_ID_PROPERTY) != str(table_id):
            _LOG.warning("lake table %s is not that of Fluss table id %d: left alone", path, table_id)
            return
        try:
            if keep:
                kept = (path.database, f"{path.table}__{table_id}")
                self._access.call(
                    f"rename lake table {path}", lambda catalog: catalog.rename_table(identifier(path), kept)
                )
                return
            self._access.call(f"drop lake table {path}", lambda catalog: catalog.drop_table(identifier(path)))
        except NoSuchTableError:
            return
        except TableAlreadyExistsError as error:
            raise LakeTableExistsError(
                f"lake table {path}: it cannot be kept as {path.table}__{table_id}, a table of that name exists; drop that one"
            ) from error
        remove_files(lake, self._entries, own_folders(self._access, path, lake))

    def discard_table(self, path: TablePath, table_id: int) -> None:
        """Drop the lake table of a creation that was not finished, as `drop_table`; one with snapshots of rows is left alone.

        Raises:
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        try:
            lake = self._access.load_table(path)
        except TableNotFoundError:
            return
        if _has_rows(lake):
            _LOG.warning("lake table %s has snapshots though its creation was not finished: left alone", path)
            return
        self.drop_table(path, table_id)

    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Delete a dropped partition's rows in one commit: see `bucket_removal.drop_partition`."""
        drop_partition(self._access, self._entries, table, partition)

    def _make_table(self, what: str, table: TableInfo, layout: LakeLayout, properties: dict[str, str]) -> Table:
        """Make the table where nothing but it is; if a REST catalog refuses that, where the catalog puts it."""

        def make(location: str | None) -> Table:
            asked = {LOCATION_PROPERTY: location} if self._access.is_rest and location is not None else {}
            return self._access.call(
                what,
                lambda catalog: catalog.create_table(
                    identifier(table.path),
                    layout.schema,
                    location=location,
                    partition_spec=layout.spec,
                    sort_order=layout.sort_order,
                    properties=properties | asked,
                ),
            )

        location = chosen_location(self._access, table)
        try:
            return make(location)
        except (InvalidRequestError, AuthenticationError) as error:
            if not self._access.is_rest or location is None:
                raise
            _LOG.info("%s: not at %s, so where the catalog puts it: %s", what, location, error)
            return make(None)

    def _take_over(self, table: TableInfo, properties: dict[str, str]) -> Table:
        """Return the table that is there if an earlier call for this one made it, or one that was cut off."""
        lake = self._access.load_table(table.path)
        if lake.properties.get(TABLE_ID_PROPERTY) == str(table.table_id):
            checked_layout(table, lake)
        else:
            _check_same(table, lake, properties)
        self._bring(table, lake)
        return lake

    def _bring(self, table: TableInfo, lake: Table) -> None:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

        what = f"alter lake table {table.path}"
        for _ in range(ALTER_TRIES):
            evolution = evolution_of(table, lake)
            updates, removals = changed_properties(lake.properties, lake_properties(table, evolution.layout))
            changes: list[TableUpdate] = [*evolution.updates]
            if updates:
                changes.append(SetPropertiesUpdate(updates=updates))
            if removals:
                changes.append(RemovePropertiesUpdate(removals=removals))
            if not changes:
                return
            requirements = (AssertTableUUID(uuid=lake.metadata.table_uuid), *evolution.requirements)
            try:
                self._access.commit(what, lake, requirements, tuple(changes), repeatable=True)
            except (CommitFailedException, CatalogLockedError):
                lake = self._access.load_table(table.path)
            else:
                return
        raise CommitConflictError(f"{what}: others changed the table {ALTER_TRIES} times meanwhile; try again")


def _check_ids(table: TableInfo, layout: LakeLayout, made: Table) -> None:
    """Check what every catalog is expected to do: number the fields as Iceberg's own code numbers them."""
    if not same_schema(made.schema(), layout.schema):
        raise UnsupportedError(
            f"lake table {table.path}: the catalog changed the schema on the way: expected {layout.schema}, found "
            f"{made.schema()}; drop the table there and use another catalog"
        )


def _has_rows(lake: Table) -> bool:
    """Return whether a table may have had rows: it has a snapshot beside the empty one that it may begin with."""
    return not all(is_empty_start(snapshot) for snapshot in lake.metadata.snapshots)


def _check_same(table: TableInfo, lake: Table, wanted: dict[str, str]) -> None:
    """Raise `LakeTableExistsError` unless the table could be the empty rest of a cut-off creation of this one."""
    layout = new_layout(table)
    differences = []
    if _has_rows(lake):
        differences.append(f"it has {len(lake.metadata.snapshots)} snapshot(s)")
    if not same_schema(lake.schema(), layout.schema):
        differences.append(f"its schema is {lake.schema()}")
    try:
        check_spec("", layout.spec, lake.spec())
    except UnsupportedError:
        differences.append(f"its partition spec is {lake.spec()}")
    if lake.sort_order().fields != layout.sort_order.fields:
        differences.append(f"its sort order is {lake.sort_order()}")
    found = lake.properties
    keys = {*wanted, *(key for key in found if key.startswith(FLUSS_PREFIX))} - {TABLE_ID_PROPERTY, LOCATION_PROPERTY}
    differences += [
        f"its property {key!r} is {found.get(key)!r}, not {wanted.get(key)!r}"
        for key in sorted(keys)
        if found.get(key) != wanted.get(key)
    ]
    if differences:
        raise LakeTableExistsError(
            f"lake table {table.path} exists and is another one: {'; '.join(differences)}. Drop or rename it in the lake, "
            "or choose another name"
        )

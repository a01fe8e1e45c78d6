"""Databases, tables, partitions and who holds their buckets, as rows of the metadata file."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_lab.errors import (
    DatabaseExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    PartitionNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from fluss_lab.model import PartitionInfo, Schema, TableDescriptor, TableInfo, TablePath
from fluss_lab.model.descriptor import DefinitionCache
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore

#: Stands for "the table itself" where a partition id is part of a key.
NO_PARTITION: Final = -1
#: Nothing is replicated and buckets never move, so a bucket's leader is always in its first term.
LEADER_EPOCH: Final = 0
#: The end of the year 9999: no clock is later.
_TIME_MAX_MS: Final = 253_402_300_800_000
#: How much of what cannot be understood is shown.
_SHOWN_LENGTH: Final = 100


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's row.

    Attributes:
        info: Id and name.
        table_id: Whose it is.
        leaders: The server of each bucket.
        dropped_ms: When it was dropped, if the lake may still hold rows of it; None while it exists.
        created_ms: When it was made; where that is not asked, 0.
    """

    info: PartitionInfo
    table_id: int
    leaders: tuple[int, ...]
    dropped_ms: int | None = None
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class BucketGroup:
    """The buckets of a table, or of one of its partitions.

    Attributes:
        table_id: Whose they are.
        partition_id: The partition, or `NO_PARTITION`.
        leaders: The server of each bucket.
    """

    table_id: int
    partition_id: int
    leaders: tuple[int, ...]


class TableCatalog:
    """What exists. Each method is one transaction, or part of the caller's.

    Paths and names are taken as checked; existence is checked here. Rows are fetched before they are parsed: a query that a
    damaged row ends in the middle would stay open, and hold back what was committed from the file.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._definitions = DefinitionCache()

    # -- databases ---------------------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        with self._store.read() as db:
            return [str(row[0]) for row in db.execute("SELECT name FROM databases ORDER BY name")]

    def has_database(self, name: str) -> bool:
        """Return whether a database exists."""
        with self._store.read() as db:
            return db.execute("SELECT 1 FROM databases WHERE name = ?", (name,)).fetchone() is not None

    def require_database(self, name: str) -> None:
        """Raise `DatabaseNotFoundError` unless it exists."""
        if not self.has_database(name):
            raise DatabaseNotFoundError(f"database {name!r} does not exist; create it, or correct its name")

    def add_database(self, name: str, now_ms: int) -> None:
        """Add a database.

        Raises:
            DatabaseExistsError: It exists.
        """
        with self._store.write() as db:
            if self.has_database(name):
                raise DatabaseExistsError(f"database {name!r} exists")
            db.execute("INSERT INTO databases VALUES (?, ?)", (name, now_ms))

    def remove_database(self, name: str) -> None:
        """Remove an empty database.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables.
        """
        with self._store.write() as db:
            if tables := self.tables(name):
                shown = ", ".join(tables[:5]) + (" ..." if len(tables) > 5 else "")
                raise DatabaseNotEmptyError(
                    f"database {name!r} has {len(tables)} tables ({shown}): drop them, or cascade"
                )
            db.execute("DELETE FROM databases WHERE name = ?", (name,))

    # -- tables ------------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted.

        Raises:
            DatabaseNotFoundError: There is no such database.
        """
        with self._store.read() as db:
            self.require_database(database)
            rows = db.execute("SELECT name FROM tables WHERE database = ? ORDER BY name", (database,))
            return [str(row[0]) for row in rows]

    def all_tables(self) -> list[TableInfo]:
        """Return every table, by id."""
        with self._store.read() as db:
            return [self._table(row) for row in db.execute("SELECT * FROM tables ORDER BY table_id").fetchall()]

    def find_table(self, path: TablePath) -> TableInfo | None:
        """Return a table by its path; None when it does not exist."""
        with self._store.read() as db:
            query = "SELECT * FROM tables WHERE database = ? AND name = ?"
            row = db.execute(query, (path.database, path.table)).fetchone()
        return None if row is None else self._table(row)

    def table(self, path: TablePath) -> TableInfo:
        """Return a table by its path.

        Raises:
            TableNotFoundError: It does not exist.
        """
        if (found := self.find_table(path)) is None:
            raise TableNotFoundError(f"table {path} does not exist")
        return found

    def table_by_id(self, table_id: int) -> TableInfo:
        """Return a table by its id.

        Raises:
            TableNotFoundError: It does not exist: it was dropped, or created again under another id.
        """
        with self._store.read() as db:
            query = "SELECT * FROM tables WHERE table_id = ?"
            row = db.execute(query, (table_id,)).fetchone()
        if row is None:
            raise TableNotFoundError(f"no table with id {table_id}: it was dropped, or created again under another id")
        return self._table(row)

    def _table(self, row: tuple[int, str, str, int, str, int, int]) -> TableInfo:
        table_id, database, name, schema_id, descriptor, created_ms, modified_ms = row
        with self._store.parse_guard(f"table {database}.{name}"):
            path = TablePath(database, name)
            definition = self._definitions.parse(descriptor)
            if definition.buckets < 1 or not definition.schema.columns:
                raise ValueError(f"{definition.buckets} buckets, {len(definition.schema.columns)} columns")
            if not 0 < schema_id < 1 << 31 or not 0 <= created_ms <= modified_ms < _TIME_MAX_MS:
                raise ValueError(f"schema id {schema_id}, made at {created_ms}, changed at {modified_ms}")
        return TableInfo(path, table_id, schema_id, definition, created_ms, modified_ms)

    def add_table(self, info: TableInfo, leaders: Sequence[int]) -> None:
        """Add a table.

        Args:
            leaders: The server of each bucket; empty for a partitioned table.

        Raises:
            DatabaseNotFoundError: There is no such database.
            TableExistsError: There is a table of that path.
        """
        with self._store.write() as db:
            self.require_database(info.path.database)
            if self.find_table(info.path) is not None:
                raise TableExistsError(f"table {info.path} exists")
            values = (
                info.table_id, info.path.database, info.path.table, info.schema_id, _json_of(info.descriptor),
                info.created_ms, info.modified_ms,
            )  # fmt: skip
            db.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            schema = json.dumps(info.schema.to_json())
            db.execute("INSERT INTO schemas VALUES (?, ?, ?)", (info.table_id, info.schema_id, schema))
            if leaders:
                self._assign(db, info.table_id, NO_PARTITION, leaders)

    def set_definition(self, info: TableInfo) -> None:
        """Replace a table's definition. A schema id that it did not have is added; the older schemas stay."""
        with self._store.write() as db:
            query = "UPDATE tables SET schema_id = ?, descriptor = ?, modified_ms = ? WHERE table_id = ?"
            db.execute(query, (info.schema_id, _json_of(info.descriptor), info.modified_ms, info.table_id))
            schema = json.dumps(info.schema.to_json())
            db.execute("INSERT OR IGNORE INTO schemas VALUES (?, ?, ?)", (info.table_id, info.schema_id, schema))

    def remove_table(self, table_id: int) -> None:
        """Remove a table and all that hangs on it; its buckets are noted as still to be stopped."""
        with self._store.write() as db:
            query = "INSERT OR REPLACE INTO pending_stops SELECT * FROM assignments WHERE table_id = ?"
            db.execute(query, (table_id,))
            db.execute("DELETE FROM tables WHERE table_id = ?", (table_id,))

    def schema(self, table_id: int, schema_id: int) -> Schema | None:
        """Return a table's schema by its id; None when it does not exist."""
        with self._store.read() as db:
            query = "SELECT schema FROM schemas WHERE table_id = ? AND schema_id = ?"
            row = db.execute(query, (table_id, schema_id)).fetchone()
        return None if row is None else self._schema(table_id, schema_id, row[0])

    def schemas(self, table_id: int) -> dict[int, Schema]:
        """Return every schema that a table has had, by id in ascending order."""
        with self._store.read() as db:
            query = "SELECT schema_id, schema FROM schemas WHERE table_id = ? ORDER BY schema_id"
            rows = db.execute(query, (table_id,)).fetchall()
        return {int(row[0]): self._schema(table_id, int(row[0]), row[1]) for row in rows}

    def _schema(self, table_id: int, schema_id: int, text: str) -> Schema:
        with self._store.parse_guard(f"schema {schema_id} of table id {table_id}"):
            return Schema.from_json(json.loads(text))

    # -- partitions --------------------------------------------------------------------------------------------------

    def partitions(self, table_id: int, *, dropped: bool = False) -> list[Partition]:
        """Return a table's partitions by id; with `dropped` also those of which the lake may still hold rows."""
        query = f"{_PARTITION_QUERY} WHERE p.table_id = ? {'' if dropped else 'AND p.dropped_ms IS NULL'} ORDER BY 1"
        with self._store.read() as db:
            return [self._partition(row) for row in db.execute(query, (table_id,)).fetchall()]

    def count_partitions(self, table_id: int) -> int:
        """Return how many partitions a table has; dropped ones do not count."""
        query = "SELECT count(*) FROM partitions WHERE table_id = ? AND dropped_ms IS NULL"
        with self._store.read() as db:
            return int(db.execute(query, (table_id,)).fetchone()[0])

    def find_partition(self, table_id: int, name: str) -> Partition | None:
        """Return a partition by name, dropped ones too; None when it does not exist."""
        with self._store.read() as db:
            row = db.execute(f"{_PARTITION_QUERY} WHERE p.table_id = ? AND p.name = ?", (table_id, name)).fetchone()
        return None if row is None else self._partition(row)

    def partition_by_id(self, partition_id: int) -> Partition:
        """Return an existing partition by its id.

        Raises:
            PartitionNotFoundError: It does not exist, or was dropped.
        """
        with self._store.read() as db:
            row = db.execute(f"{_PARTITION_QUERY} WHERE p.partition_id = ?", (partition_id,)).fetchone()
        if row is None or row[3] is not None:
            raise PartitionNotFoundError(f"no partition with id {partition_id}: it was dropped, or never existed")
        return self._partition(row)

    def add_partition(self, partition: Partition, now_ms: int) -> None:
        """Add a partition, whose name the table does not have (nor had, while the lake may hold rows of it)."""
        with self._store.write() as db:
            values = (partition.info.partition_id, partition.table_id, partition.info.name, now_ms)
            db.execute("INSERT INTO partitions VALUES (?, ?, ?, ?, NULL)", values)
            self._assign(db, partition.table_id, partition.info.partition_id, partition.leaders)

    def remove_partition(self, partition: Partition, now_ms: int, *, keep_row: bool) -> None:
        """Remove a partition; its buckets are noted as still to be stopped.

        Args:
            now_ms: The time.
            keep_row: Keep it as dropped, because the lake may hold rows of it.
        """
        key = (partition.table_id, partition.info.partition_id)
        with self._store.write() as db:
            query = (
                "INSERT OR REPLACE INTO pending_stops SELECT * FROM assignments WHERE table_id = ? AND partition_id = ?"
            )
            db.execute(query, key)
            db.execute("DELETE FROM assignments WHERE table_id = ? AND partition_id = ?", key)
            if keep_row:
                db.execute("UPDATE partitions SET dropped_ms = ? WHERE partition_id = ?", (now_ms, key[1]))
            else:
                db.execute("DELETE FROM partitions WHERE partition_id = ?", (key[1],))

    def forget_partition(self, partition_id: int) -> None:
        """Remove the row of a dropped partition; its name is free again."""
        with self._store.write() as db:
            db.execute("DELETE FROM partitions WHERE partition_id = ? AND dropped_ms IS NOT NULL", (partition_id,))

    # -- buckets -----------------------------------------------------------------------------------------------------

    def bucket_groups(self, table_id: int | None = None) -> list[BucketGroup]:
        """Return the buckets of one table, or of all, by table and partition id."""
        query = "SELECT * FROM assignments WHERE :id IS NULL OR table_id = :id ORDER BY table_id, partition_id"
        with self._store.read() as db:
            return [self._group(row) for row in db.execute(query, {"id": table_id}).fetchall()]

    def load(self) -> Counter[int]:
        """Return how many buckets each server holds."""
        # Most groups are placed alike, so that few texts are read.
        query = "SELECT leaders, count(*) FROM assignments GROUP BY leaders"
        found: Counter[int] = Counter()
        with self._store.read() as db:
            for leaders, count in db.execute(query).fetchall():
                for leader in self._leaders(leaders, "assignments"):
                    found[leader] += count
        return found

    def pending_stops(self) -> list[BucketGroup]:
        """Return the buckets of dropped tables and partitions that their servers may still hold."""
        with self._store.read() as db:
            return [self._group(row) for row in db.execute("SELECT * FROM pending_stops").fetchall()]

    def forget_stops(self, groups: Iterable[BucketGroup]) -> None:
        """Note that servers have released dropped buckets."""
        with self._store.write() as db:
            query = "DELETE FROM pending_stops WHERE table_id = ? AND partition_id = ?"
            db.executemany(query, [(group.table_id, group.partition_id) for group in groups])

    def _partition(self, row: tuple[int, int, str, int | None, str, int]) -> Partition:
        leaders = self._leaders(row[4], f"assignments of partition {row[2]!r} (id {row[0]}) of table id {row[1]}")
        return Partition(PartitionInfo(row[0], row[2]), row[1], leaders, row[3], row[5])

    def _group(self, row: tuple[int, int, str]) -> BucketGroup:
        return BucketGroup(row[0], row[1], self._leaders(row[2], f"assignments of table id {row[0]}"))

    def _leaders(self, text: str, what: str) -> tuple[int, ...]:
        with self._store.parse_guard(what):
            found = json.loads(text)
            if not isinstance(found, list) or not all(type(each) is int and each >= 0 for each in found):
                raise ValueError(f"the servers of buckets: {text[:_SHOWN_LENGTH]}")
            return tuple(found)

    @staticmethod
    def _assign(db: sqlite3.Connection, table_id: int, partition_id: int, leaders: Sequence[int]) -> None:
        db.execute("INSERT INTO assignments VALUES (?, ?, ?)", (table_id, partition_id, json.dumps(list(leaders))))


_PARTITION_QUERY: Final = (
    "SELECT p.partition_id, p.table_id, p.name, p.dropped_ms, coalesce(a.leaders, '[]'), p.created_ms FROM partitions p "
    "LEFT JOIN assignments a ON a.table_id = p.table_id AND a.partition_id = p.partition_id"
)


def _json_of(descriptor: TableDescriptor) -> str:
    return json.dumps(descriptor.to_json())

"""The writer of primary-key tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_lab.client.write.linger import RowGatherer
from fluss_lab.client.write.table_writer import TableWriter
from fluss_lab.client.write.write_requests import Upserts
from fluss_lab.client.write.write_result import UpsertResult
from fluss_lab.errors import InvalidSchemaError, UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.config.options import DELETE_BEHAVIOR, MERGE_ENGINE
from fluss_lab.model.values.row_input import is_row, record_batches
from fluss_lab.records import fit_to_schema

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


@check_arguments
class UpsertWriter(TableWriter):
    """Upserts rows into one primary-key table, and deletes rows from it.

    See `TableWriter` for threads, outages and back-pressure. Upserts and deletes of one writer reach each key in the order of the calls. What a row replaces, and which change
    becomes of that, is decided by the server (``table.merge-engine``).

    Args:
        columns: For a partial update: the columns that the rows have, the primary key's among them, in any order. The
            other columns of a row keep their value; of a new row they are null. None: all.

    Raises:
        UnsupportedError: It is a log table; or a partial update of a table that has another NOT NULL column than the
            key's, or a merge engine that keeps whole rows.
        InvalidSchemaError: A column does not exist, is given twice, or one of the key is left out.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, columns: Sequence[str] | None = None) -> None:
        if info.is_log_table:
            raise UnsupportedError(
                f"{info.path} has no primary key: rows are not upserted into it but appended; call append, or open an "
                "append_writer"
            )
        targets = None if columns is None else check_targets(info, columns)
        everything = targets is None or len(targets) == len(info.schema.columns)
        names = info.schema.names
        form = body_schema(info, names if targets is None else targets)
        kind = Upserts(info, [] if everything else [*map(names.index, targets or ())])
        super().__init__(connection, info, kind, form, targets)
        self._key = info.schema.primary_key

    def upsert(self, rows: object) -> UpsertResult:
        """Queue rows to be inserted, or to replace those of the same key; return a future of their changes.

        Everything is checked before anything is sent: when this raises, no row was queued. Waits while the writer
        holds ``client.writer.buffer-memory-size`` unacknowledged bytes.

        Args:
            rows: See `fluss_lab.model.values.row_input.record_batches`, or one row as a dict: see `AppendWriter.append`. Of
                two rows of one key the later one counts. With `columns`, each row must give each of them; other columns are left out. Rows must not be changed before
                the future is done.

        Raises:
            InvalidRecordError, InvalidPartitionError: The rows do not fit; the text names column, row and value.
            RecordTooLargeError: A row is larger than the cluster takes (``server.request-size-max``).
            PartitionNotFoundError: A row's partition does not exist, and creating it is switched off.
            ServerUnavailableError: A partition or writer id was needed, and no server answered.
            FlussError: An earlier call failed with it, and nobody has read its future; nothing of this one was queued.
        """
        single: RowGatherer[UpsertResult] | None = self._single
        if single is not None and type(rows) is dict and rows and (future := single.add(rows)) is not None:
            return future  # as `_take` does, a third faster
        return self._take(rows, UpsertResult, ChangeType.UPDATE_AFTER)

    def delete(self, keys: object) -> UpsertResult:
        """Queue keys whose rows are to go; return a future of their changes. Keys without a row change nothing.

        By a writer of some columns, these columns become null; the row goes when no other column has a value then. With
        the merge engines ``first_row`` and ``versioned`` deletes are ignored.

        Args:
            keys: Rows in any form of `fluss_lab.model.values.row_input.record_batches`, or one as a dict; only their key
                columns are looked at.

        Raises:
            UnsupportedError: The table forbids deletes (``table.delete.behavior``); or a key is of a partition that was
                dropped from the cluster and kept in the lake, whose rows nothing deletes but its drop from there.
            InvalidRecordError, InvalidPartitionError: The keys cannot be; the text names column, row and value.
            ServerUnavailableError: A partition or writer id was needed, and no server answered.
            FlussError: An earlier call failed with it, and nobody has read its future; nothing of this one was queued.
        """
        if DELETE_BEHAVIOR.of(self._info.descriptor.properties) == "disable":
            raise UnsupportedError(f"{self._info.path}: the table forbids to delete ({DELETE_BEHAVIOR.key}=disable)")
        if type(keys) is dict and is_row({name: value for name, value in keys.items() if name in self._key}):
            keys = [keys]
        batches = [fit_to_schema(batch, self._form) for batch in record_batches(keys, self._info.schema, self._key)]
        return self._write(UpsertResult(), batches, ChangeType.DELETE)


def body_schema(info: TableInfo, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema in which rows travel to a primary-key table: only the key is NOT NULL, for deletes."""
    key = info.schema.primary_key
    fields = [info.schema.column(name).type.arrow_field(name) for name in columns]
    return pa.schema([field.with_nullable(field.name not in key) for field in fields])


def check_targets(info: TableInfo, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a partial update in the table's order, by Fluss's rules.

    Raises:
        InvalidSchemaError, UnsupportedError: They break the rules; see `UpsertWriter`.
    """
    what, schema = f"partial update of {info.path}", info.schema
    if isinstance(columns, str):
        raise InvalidSchemaError(f"{what}: columns: expected a list of names, found the text {columns!r}")
    given = [schema.column(name).name for name in columns]
    if twice := [name for name in given if given.count(name) > 1]:
        raise InvalidSchemaError(f"{what}: column {twice[0]!r} is given twice")
    if absent := [name for name in schema.primary_key if name not in given]:
        raise InvalidSchemaError(
            f"{what}: expected the columns to include the primary key ({', '.join(schema.primary_key)}), {absent[0]!r} "
            "is missing"
        )
    if (engine := MERGE_ENGINE.of(info.descriptor.properties)) != MERGE_ENGINE.default:
        raise UnsupportedError(f"{what}: the merge engine {engine!r} keeps whole rows; upsert all columns")
    if len(given) < len(schema.columns):
        for column in schema.columns:
            if column.name not in schema.primary_key and not column.type.nullable:
                raise UnsupportedError(
                    f"{what}: expected every column but the key's to be nullable, found {column.name!r} {column.type}: "
                    "a row inserted or deleted in part could not be; upsert all columns"
                )
    return tuple(name for name in schema.names if name in given)

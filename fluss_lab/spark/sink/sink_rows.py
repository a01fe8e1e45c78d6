"""Rows of a frame as they are sent to a table: checked, in the table's types, each with what is to be done with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.write.upsert_writer import body_schema, check_targets
from fluss_lab.client.write.write_requests import Appends, Upserts, WriteKind
from fluss_lab.errors import InvalidRecordError, InvalidSchemaError, UnsupportedError
from fluss_lab.model import TableInfo
from fluss_lab.model.changes import CHANGE_SYMBOLS, ChangeType
from fluss_lab.model.config.options import DELETE_BEHAVIOR
from fluss_lab.model.names import is_reserved_column
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.read.changelog.changelog import CHANGE_TYPE
from fluss_lab.records import fit_to_schema

#: What each change type means for the table written to; the row before an update goes by what comes after it.
_WRITES: Final = {"+A": ChangeType.UPDATE_AFTER, "+I": ChangeType.UPDATE_AFTER, "+U": ChangeType.UPDATE_AFTER,
                  "-D": ChangeType.DELETE, "-U": None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows of a frame become rows of a table. Plain data: tasks get it.

    Attributes:
        info: The table.
        change: The frame's column that says what is done with each row: ``+A +I +U`` write it, ``-D`` deletes the row of
            its key, ``-U`` is nothing. None: every row is written.
        targets: Of a primary-key table: columns of a partial update, in the table's order; None: all.
    """

    info: TableInfo
    change: str | None = None
    targets: tuple[str, ...] | None = None

    @staticmethod
    def of(info: TableInfo, names: Sequence[str], change: str | None, columns: Sequence[str] | None) -> RowForm:
        """Return how rows with columns of some names are written.

        Columns with reserved names, as a changelog has them beside ``_change_type``, are left out: no table has such.

        Args:
            names: The frame's columns.
            change: The one that says what is done; None: ``_change_type``, if it is there.
            columns: For a partial update.

        Raises:
            InvalidSchemaError: A column that the table does not have, or that is missing.
            UnsupportedError: A partial update of a table that cannot be updated so.
        """
        if change is not None and change not in names:
            raise InvalidSchemaError(
                f"write to {info.path}: the frame has no column {change!r}; it has {', '.join(names)}"
            )
        if change is None and CHANGE_TYPE in names:
            change = CHANGE_TYPE
        if columns is not None and info.is_log_table:
            raise UnsupportedError(f"write to {info.path}: it has no primary key, so no row can be updated in part")
        targets = None if columns is None else check_targets(info, columns)
        form = RowForm(info, change, targets)
        form._check(names)
        return form

    def _check(self, names: Sequence[str]) -> None:
        info = self.info
        given = [name for name in names if name != self.change and not is_reserved_column(name)]
        known = ", ".join(info.schema.names)
        if unknown := [name for name in given if name not in info.schema.names]:
            raise InvalidSchemaError(f"write to {info.path}: column {unknown[0]!r} is unknown; the table has {known}")
        for column in info.schema.columns:
            is_wanted = column.name in self.targets if self.targets is not None else not column.type.nullable
            if is_wanted and column.name not in given:
                raise InvalidSchemaError(
                    f"write to {info.path}: column {column.name!r} is missing; the frame has {', '.join(given)}"
                )

    @property
    def keyed(self) -> bool:
        """Return whether rows are put by key, and carry their change type."""
        return not self.info.is_log_table

    @property
    def body(self) -> pa.Schema:
        """Return the Arrow schema in which rows travel."""
        if not self.keyed:
            return self.info.schema.arrow_schema
        return body_schema(self.info, self.info.schema.names if self.targets is None else self.targets)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of `convert`: that of the body, for a primary-key table with the change type behind."""
        return self.body.append(pa.field(CHANGE_TYPE, pa.int8(), nullable=False)) if self.keyed else self.body

    def kind(self) -> WriteKind:
        """Return how its batches travel."""
        return write_kind(self.info, self.targets)

    def convert(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a frame's rows in `schema`, in their order.

        Raises:
            InvalidRecordError: They do not fit the table; the text names column and value.
            UnsupportedError: A delete that the table does not take.
        """
        if not batch.num_rows:
            return
        writes = None if self.change is None else self._writes(batch.column(self.change))
        names = [name for name in batch.schema.names if name in self.info.schema.names and name != self.change]
        rows = batch.select(names)
        if not self.keyed:
            if writes is not None and (writes.null_count or pc.any(pc.equal(writes, int(ChangeType.DELETE))).as_py()):
                raise UnsupportedError(f"write to {self.info.path}: a log table only grows: it takes no -U and no -D")
            yield from record_batches(rows, self.info.schema)
            return
        if writes is None:
            writes = pa.repeat(pa.scalar(int(ChangeType.UPDATE_AFTER), pa.int8()), batch.num_rows)
        elif writes.null_count:
            kept = pc.is_valid(writes)
            rows, writes = rows.filter(kept), writes.filter(kept)
        if rows.num_rows:
            yield self._key_rows(rows, writes)

    def _writes(self, symbols: pa.Array) -> pa.Int8Array:
        """Return what is done with each row; null for nothing."""
        if not pa.types.is_string(symbols.type) and not pa.types.is_large_string(symbols.type):
            raise InvalidRecordError(
                f"write to {self.info.path}: column {self.change!r}: expected text, found {symbols.type}"
            )
        places = pc.index_in(symbols, pa.array(CHANGE_SYMBOLS, symbols.type))
        if places.null_count:
            wrong = symbols.filter(pc.is_null(places))[0].as_py()
            raise InvalidRecordError(
                f"write to {self.info.path}: column {self.change!r}: expected one of {', '.join(CHANGE_SYMBOLS)}, found "
                f"{wrong!r}"
            )
        return pa.array([_WRITES[symbol] for symbol in CHANGE_SYMBOLS], pa.int8()).take(places)

    def _key_rows(self, rows: pa.RecordBatch, writes: pa.Int8Array) -> pa.RecordBatch:
        deletes = pc.equal(writes, int(ChangeType.DELETE))
        count = pc.sum(deletes).as_py()
        if count and DELETE_BEHAVIOR.of(self.info.descriptor.properties) == "disable":
            raise UnsupportedError(
                f"write to {self.info.path}: the table forbids to delete ({DELETE_BEHAVIOR.key}=disable)"
            )
        parts = []
        if count < rows.num_rows:
            kept = rows.filter(pc.invert(deletes)) if count else rows
            found = record_batches(kept, self.info.schema, self.targets)
            parts += [pa.RecordBatch.from_arrays(each.columns, schema=self.body) for each in found]
        if count:
            # Of a delete only the key is looked at: the rest may be anything.
            gone = rows.filter(deletes).select(list(self.info.schema.primary_key))
            parts += [
                fit_to_schema(each, self.body)
                for each in record_batches(gone, self.info.schema, self.info.schema.primary_key)
            ]
        body = pa.Table.from_batches(parts, self.body).combine_chunks().to_batches()[0]
        if 0 < count < rows.num_rows:
            # They were parted; each goes back to its place, for rows of one key must stay in order.
            order = np.argsort(deletes.to_numpy(zero_copy_only=False), kind="stable")
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            body = body.take(pa.array(back))
        return pa.RecordBatch.from_arrays([*body.columns, writes], schema=self.schema)


def write_kind(info: TableInfo, targets: Iterable[str] | None) -> WriteKind:
    """Return how batches of a table travel, of all columns or, in part, of some."""
    if info.is_log_table:
        return Appends(info)
    names = info.schema.names
    indexes = sorted(names.index(name) for name in (targets or ()))
    return Upserts(info, [] if len(indexes) == len(names) else indexes)

"""The checks of rows and keys before a store looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.changes import ChangeType
from fluss_lab.server.kv.keys.row_equality import Mask


@dataclass(frozen=True, slots=True)
class RowChecks:
    """Checks against one schema.

    Attributes:
        schema: All columns.
        keys: Indexes of the primary key's columns, in its order.
        prefix: The primary key's columns that a prefix lookup may begin with: partition columns are left out.
    """

    schema: pa.Schema
    keys: tuple[int, ...]
    prefix: tuple[int, ...]
    _is_key: Mask = field(init=False)

    def __post_init__(self) -> None:
        is_key = np.zeros(len(self.schema), np.bool_)
        is_key[list(self.keys)] = True
        object.__setattr__(self, "_is_key", is_key)

    @property
    def is_key(self) -> Mask:
        """Return for each column whether it is of the primary key."""
        return self._is_key

    def operations(self, change_types: bytes, count: int) -> Mask:
        """Return for each row whether it upserts; else it deletes.

        Raises:
            InvalidRecordError: Not one change type a row, or one that is neither +U (3) nor -D (4).
        """
        kinds = np.frombuffer(change_types, np.int8)
        if kinds.size != count:
            raise InvalidRecordError(f"expected a change type for each of {count} rows, found {kinds.size}")
        upserts: Mask = kinds == ChangeType.UPDATE_AFTER
        known = upserts | (kinds == ChangeType.DELETE)
        if not known.all():
            row = int(np.argmin(known))
            raise InvalidRecordError(f"row {row}: expected change type 3 (upsert) or 4 (delete), found {kinds[row]}")
        return upserts

    def columns(self, rows: pa.RecordBatch, names: Sequence[str] | None, upserts: Mask) -> list[pa.Array | None]:
        """Return a batch's columns in order of the schema; None for those that it need not have.

        Raises:
            InvalidRecordError: Columns missing, unknown or of another type; a null in a key, or in a NOT NULL column of
                a row that upserts. The text names column and row.
        """
        wanted = self.schema.names if names is None else list(names)
        if rows.schema.names != wanted:
            raise InvalidRecordError(f"expected the columns {', '.join(wanted)}; found {', '.join(rows.schema.names)}")
        places = [self.schema.get_field_index(name) for name in wanted]
        if unknown := [name for name, place in zip(wanted, places, strict=True) if place < 0]:
            raise InvalidRecordError(f"column {unknown[0]!r} is unknown; expected {', '.join(self.schema.names)}")
        if any(later <= place for place, later in pairwise(places)):
            raise InvalidRecordError(f"expected the columns in the table's order, found {', '.join(wanted)}")
        if missing := [index for index in self.keys if index not in places]:
            name = self.schema.field(missing[0]).name
            raise InvalidRecordError(f"a partial update needs the whole primary key; column {name!r} is missing")
        columns: list[pa.Array | None] = [None] * len(self.schema)
        for place, column in zip(places, rows.columns, strict=True):
            self._check(place, column, upserts)
            columns[place] = column
        return columns

    def _check(self, place: int, column: pa.Array, upserts: Mask) -> None:
        wanted = self.schema.field(place)
        if column.type != wanted.type:
            raise InvalidRecordError(f"column {wanted.name!r}: expected {wanted.type}, found {column.type}")
        is_key = bool(self._is_key[place])
        if (wanted.nullable and not is_key) or not column.null_count:
            return
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        if is_key:
            raise InvalidRecordError(f"key column {wanted.name!r}: row {int(nulls.argmax())} is null")
        if (wrong := nulls & upserts).any():
            raise InvalidRecordError(f"column {wanted.name!r} is NOT NULL: row {int(wrong.argmax())} is null")

    def partial_allowed(self, engine: str) -> None:
        """Refuse partial updates of a table with a merge engine.

        Raises:
            InvalidRecordError: It has one.
        """
        if engine != "default":
            raise InvalidRecordError(f"the merge engine {engine} takes whole rows only: give all columns")

    def key_columns(self, keys: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the keys of a lookup.

        Raises:
            InvalidRecordError: Not the primary key's columns in its order, another type, or a null.
        """
        return self._values(keys, self.keys, "key")

    def prefix_columns(self, prefixes: pa.RecordBatch) -> tuple[tuple[int, ...], list[pa.Array]]:
        """Return indexes and columns of the prefixes of a lookup.

        Raises:
            InvalidRecordError: Not the first columns of the primary key (partition columns left out), another type, or a
                null.
        """
        count = prefixes.num_columns
        if not 1 <= count <= len(self.prefix):
            expected = ", ".join(self.schema.field(index).name for index in self.prefix)
            raise InvalidRecordError(f"expected the first columns of {expected}; found {prefixes.schema.names}")
        return self.prefix[:count], self._values(prefixes, self.prefix[:count], "prefix")

    def _values(self, rows: pa.RecordBatch, indexes: tuple[int, ...], what: str) -> list[pa.Array]:
        fields = [self.schema.field(index) for index in indexes]
        if rows.schema.names != [each.name for each in fields]:
            expected = ", ".join(each.name for each in fields)
            raise InvalidRecordError(f"{what}: expected the columns {expected}; found {', '.join(rows.schema.names)}")
        for each, column in zip(fields, rows.columns, strict=True):
            if column.type != each.type:
                raise InvalidRecordError(f"{what} column {each.name!r}: expected {each.type}, found {column.type}")
            if column.null_count:
                row = pc.index(column.is_null(), True).as_py()
                raise InvalidRecordError(f"{what} column {each.name!r}: row {row} is null")
        return list(rows.columns)

"""The form of a record: its fields, what was typed checked against the table and against the row that there is, and its write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import WriteResult
from fluss_lab.display import short
from fluss_lab.display.waiting import shown_elsewhere
from fluss_lab.errors import InvalidPartitionError, InvalidRecordError, InvalidRequestError, UnsupportedError
from fluss_lab.explorer.explorer_answers import Answer, cut_to_size
from fluss_lab.explorer.explorer_requests import FormRequest, WriteRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.screens.table_answers import COLUMNS_MAX, column_kind
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.column_mask import ColumnMask
from fluss_lab.explorer.texts.typed_values import one_value, plain_value, read_text
from fluss_lab.explorer.texts.value_texts import typed_text
from fluss_lab.model import Column, TableInfo
from fluss_lab.model.config.options import DELETE_BEHAVIOR, MERGE_ENGINE
from fluss_lab.model.names import partition_name
from fluss_lab.workbench.table import Table

#: Characters of a type or comment beside a field, of an error, of what a row has now: what is longer cannot be taken over.
_NOTE_LENGTH_MAX: Final = 300
NOW_LENGTH_MAX: Final = 2_000
#: Characters of Python lines.
_CODE_LENGTH_MAX: Final = 50_000
#: Types of which no text and an empty text are two values.
_TEXTS: Final = ("STRING", "CHAR", "BYTES")

_KEY_HIDDEN: Final = "A column of the key is hidden here: rows can be neither written nor deleted."
_NEEDED_HIDDEN: Final = "A column that must have a value is hidden here: no row can be written, it would have none."
_WHOLE_HIDDEN: Final = "Columns are hidden here, and this table takes only whole rows: what they hold would be erased."
_WHOLE_ONLY: Final = (
    "This table takes only whole rows: it has another column than the key's that must have a value, or a merge engine."
)
_NO_DELETES: Final = "This table forbids deletes (table.delete.behavior)."


@dataclass(frozen=True, slots=True)
class _Writes:
    """What may be written to a table from here.

    Attributes:
        refused: By mode, ``append``, ``upsert``, ``delete`` or ``columns`` (an upsert of some): why not; None: it may be.
        hides: Whether an upsert of all that is shown leaves something out.
    """

    refused: Mapping[str, str | None]
    hides: bool

    @staticmethod
    def of(info: TableInfo, mask: ColumnMask) -> _Writes:
        """Return what may be written to a table with a mask over it."""
        key, properties = info.schema.primary_key, info.descriptor.properties
        hidden = [column for column in info.schema.columns if not mask.shows(column.name)]
        needed = [column for column in info.schema.columns if not column.type.nullable and column.name not in key]
        whole_only = bool(needed) or MERGE_ENGINE.of(properties) != MERGE_ENGINE.default
        missing = _NEEDED_HIDDEN if any(not column.type.nullable for column in hidden) else None
        if not key:
            return _Writes({"append": missing}, bool(hidden))
        lost = _KEY_HIDDEN if any(column.name in key for column in hidden) else None
        forbidden = _NO_DELETES if DELETE_BEHAVIOR.of(properties) == "disable" else None
        refused = {
            "upsert": lost or missing or (_WHOLE_HIDDEN if hidden and whole_only else None),
            "columns": lost or missing or (_WHOLE_ONLY if whole_only else None),
            "delete": lost or forbidden,
        }
        return _Writes(refused, bool(hidden))


class RecordForm:
    """What a view shows of a record to be written, and its write. It keeps nothing: threads may share it.

    Args:
        tables: Those that requests mean.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables

    def form(self, request: FormRequest) -> Answer:
        """Return the fields of a table's records, and what may be written: ``refused``, by mode why not, or None.

        ``fields``: name, type, ``kind`` as in a schema, ``needs`` (why it must have a value; None: it may be null),
        ``is_key``, ``has_empty`` (an empty text is not null), comment.
        """
        info = self._tables.info(request)
        mask, writes = self._tables.mask, _Writes.of(info, self._tables.mask)
        columns = mask.columns(info.schema)

        def make(length: int) -> Answer:
            return {"fields": [self._field(info, column, length) for column in columns[:COLUMNS_MAX]]}

        answer: Answer = {
            "refused": writes.refused,
            "hidden": len(info.schema.columns) - len(columns),
            "schema_id": info.schema_id,
            "code": code_lines.schema_code(info.path),
        }
        return cut_to_size(lambda length: answer | make(length), _NOTE_LENGTH_MAX)

    def _field(self, info: TableInfo, column: Column, length: int) -> Answer:
        kind = str(column.type.with_nullable(True))
        comment = None if column.comment is None else self._tables.mask.visible_text(column.comment)
        return {
            "name": column.name,
            "type": short(kind if "<" in kind else kind.lower(), length),
            "kind": column_kind(column.type.name),
            "needs": _need(info, column),
            "is_key": column.name in info.schema.primary_key,
            "has_empty": column.type.name in _TEXTS,
            "comment": None if comment is None else short(comment, length),
        }

    def write(self, request: WriteRequest) -> Answer:
        """Check a record, and write it unless only that is asked for, or something is wrong.

        Returns:
            ``errors`` by field, with nothing written where there are any; ``now``: what the row of the key has, as it would be
            typed, None where there is none or the key is not whole; ``same``: columns that would not change; ``long``: those whose value is too long to be
            typed; of a record that was written ``offsets`` (partition, bucket, first, end) and ``ms``.

        Raises:
            UnsupportedError: Nothing, or not so, can be written from here.
            InvalidRequestError: Columns that are not there.
            FlussError: The write failed; the text says whether something may have been written.
        """
        info = self._tables.info(request)
        writes = _Writes.of(info, self._tables.mask)
        names = self._names(info, request, writes)
        values, errors = self._values(info, request, names)
        table = self._tables.table(info)
        answer: Answer = {
            "mode": request.mode,
            "written": False,
            "code": self._code(info, request, names, values, errors),
        }
        if not (request.check or errors):
            rows = _rows(info, values)
            with shown_elsewhere():
                if request.mode == "append":
                    result = table.append(rows)
                elif request.mode == "delete":
                    result = table.delete(rows)
                else:
                    result = table.upsert(rows, self._partial(request, names, writes))
            return answer | {"errors": {}, "written": True, **_result(result)}
        found = self._now(info, table, values)

        def make(length: int) -> Answer:
            return {
                "errors": {name: short(text, min(length, _NOTE_LENGTH_MAX)) for name, text in errors.items()},
                **self._form_notes(info, found, values, length),
            }

        return cut_to_size(lambda length: answer | make(length), NOW_LENGTH_MAX)

    # -- what is typed -------------------------------------------------------------------------------------------------

    def _names(self, info: TableInfo, request: WriteRequest, writes: _Writes) -> list[str]:
        """Return the columns that a write has.

        Raises:
            UnsupportedError, InvalidRequestError: See `write`.
        """
        mode = "columns" if request.columns is not None and request.mode == "upsert" else request.mode
        if mode not in writes.refused:
            kind = "appended to a log table" if info.is_log_table else "upserted into a primary-key table"
            raise UnsupportedError(f"table {info.path}: expected a row that is {kind}, found mode {request.mode!r}")
        if (why := writes.refused[mode]) is not None:
            raise UnsupportedError(f"table {info.path}: {why}")
        shown, key = self._tables.visible_names(info), info.schema.primary_key
        if not (set(request.values) | set(request.columns or ())) <= set(shown):
            raise InvalidRequestError(
                f"table {info.path}: expected values of its columns {short(', '.join(shown), 200)}"
            )
        if request.mode == "delete":
            return [name for name in shown if name in key]
        chosen = set(shown if request.columns is None else request.columns) | set(key)
        return [name for name in shown if name in chosen]

    def _values(
        self, info: TableInfo, request: WriteRequest, names: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the plain values of what was typed, and what is wrong with the rest."""
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name in names:
            column, text = info.schema.column(name), request.values.get(name)
            if text is None and (need := _need(info, column)) is not None:
                errors[name] = f"needed: {need}"
                continue
            try:
                values[name] = None if text is None else read_text(text, column.type, self._tables.time_zone)
                if name in info.descriptor.partitioned_by:
                    partition_name((str(values[name]),))
            except (InvalidRecordError, InvalidPartitionError) as error:
                values.pop(name, None)
                errors[name] = self._tables.mask.visible_text(str(error))
        return values, errors

    def _partial(self, request: WriteRequest, names: Sequence[str], writes: _Writes) -> list[str] | None:
        """Return the columns that an upsert names; None: all. What is hidden keeps its value, as what is not chosen does."""
        return list(names) if request.columns is not None or writes.hides else None

    def _code(
        self,
        info: TableInfo,
        request: WriteRequest,
        names: Sequence[str],
        values: Mapping[str, Any],
        errors: Mapping[str, str],
    ) -> list[str]:
        if errors:
            return code_lines.schema_code(info.path)
        row = {name: (values[name], info.schema.column(name).type) for name in names}
        partial = None
        if request.mode == "upsert":
            partial = self._partial(request, names, _Writes.of(info, self._tables.mask))
        code = code_lines.record_code(info.path, request.mode, row, partial)
        return code if sum(map(len, code)) <= _CODE_LENGTH_MAX else []

    # -- what there is -------------------------------------------------------------------------------------------------

    def _now(self, info: TableInfo, table: Table, values: Mapping[str, Any]) -> pa.Table | None:
        """Return the row of the key that was typed; None where there is none, or the key is not whole."""
        key = info.schema.primary_key
        if not key or not all(name in values for name in key):
            return None
        found = table.lookup(_rows(info, {name: values[name] for name in key}), self._tables.visible_names(info))
        return None if found.column(key[0])[0].as_py() is None else found

    def _form_notes(self, info: TableInfo, found: pa.Table | None, values: Mapping[str, Any], length: int) -> Answer:
        """Return what stands beside the fields."""
        if found is None:
            return {"now": None, "same": [], "long": []}
        now: dict[str, str | None] = {}
        same, long = [], []
        for name in self._tables.visible_names(info)[:COLUMNS_MAX]:
            kind = info.schema.column(name).type
            value = plain_value(found.column(name)[0], kind)
            text = typed_text(value, kind, self._tables.time_zone)
            if value is not None and (text is None or len(text) > length):
                long.append(name)
                text = None if text is None else short(text, min(length, _NOTE_LENGTH_MAX))
            now[name] = text
            if name in values and repr(_as_held(values[name], kind)) == repr(value):
                same.append(name)
        return {"now": now, "same": same, "long": long}


def _need(info: TableInfo, column: Column) -> str | None:
    if column.name in info.descriptor.partitioned_by:
        return "it names the partition"
    if column.name in info.schema.primary_key:
        return "it is the key" if len(info.schema.primary_key) == 1 else "it is of the key"
    return None if column.type.nullable else "it is NOT NULL"


def _rows(info: TableInfo, values: Mapping[str, Any]) -> pa.Table:
    types = {name: info.schema.column(name).type for name in values}
    fields = [kind.arrow_field(name) for name, kind in types.items()]
    return pa.Table.from_arrays(
        [one_value(values[name], kind) for name, kind in types.items()], schema=pa.schema(fields)
    )


def _as_held(value: Any, kind: Any) -> Any:
    """Return a plain value as the table has it: decimals with all digits of their scale."""
    return plain_value(one_value(value, kind)[0], kind)


def _result(result: WriteResult) -> Answer:
    offsets = [
        [partition, bucket, str(base), str(end)]
        for (partition, bucket), ranges in result.offsets.items()
        for base, end in ranges
    ]
    return {"offsets": offsets, "ms": round(result.seconds * 1_000, 1)}

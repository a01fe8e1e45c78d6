"""Types and values of JSON: what types its values have over all of a file, and what Arrow's reader of JSON would change.

That reader moves times with a zone to UTC and forgets the zone, takes numbers for dates, passes over what a type does not
name, rounds whole numbers that no float is, and wraps decimals. So times are read as texts here, and the rest is looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.values.casts import CellPosition, value_text
from fluss_lab.workbench.load.json_floats import ELEMENT, are_float_texts, number_paths
from fluss_lab.workbench.load.load_columns import LoadColumn
from fluss_lab.workbench.load.text_types import (
    FLOAT_EXACT_MAX,
    TextTypes,
    exact_decimal,
    float_loss_text,
    parsed_texts,
)

_FLOATS: Final[dict[str, Any]] = {"FLOAT": np.float32, "DOUBLE": np.float64}
_TIMES: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"})
_TINY: Final = re.compile(rb"[eE]-(?:[0-9]{3}|[4-9][0-9])")
_DECIMAL_DIGITS_MAX: Final = 38
#: What numbers are written in; the rest is a space.
_SIGNS: Final = bytes(
    ord("0" if each in b"0123456789." else "e" if each in b"eE" else "+" if each in b"+-" else " ")
    for each in range(256)
)
_WIDE_PRECISION: Final = 76
#: Stands for texts like ``NaN`` alone, before it is known whether there are numbers or other texts beside them: JSON has no such type.
_FLOAT_TEXTS: Final = pa.float16()


# -- types -----------------------------------------------------------------------------------------------------------


class FoundTypes:
    """The types of the values of a file, column by column, nested ones too. Texts that are times become times if all of them are.

    Attributes:
        large: Columns in which there is a number so large that a float may stand for several whole numbers.
    """

    def __init__(self) -> None:
        self._types: dict[str, pa.DataType] = {}
        self._texts: dict[str, TextTypes] = {}
        self.large: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Return the names of the columns found so far."""
        return list(self._types)

    def numbers(self) -> set[tuple[str, ...]]:
        """Return the paths at which there are numbers so far."""
        return {path for name, found in self._types.items() for path in number_paths(name, found)}

    def add(self, table: pa.Table, title: str, row: int) -> pa.Schema:
        """Take rows as Arrow finds their types; return which columns `add_texts` wants, in the types that it wants.

        Raises:
            InvalidSchemaError: A column has values of types that no type has together.
        """
        wanted = []
        for field in table.schema:
            plain = _untimed_type(field.type)
            settled = _settled_type(plain, table.column(field.name))
            before = self._types.get(field.name, settled)
            self._types[field.name] = _join_types(before, settled, f"{title}: column {field.name!r}", row)
            leaves = list(_leaves(field.name, table.column(field.name)))
            if any(_has_large(leaf) for _, leaf in leaves):
                self.large.add(field.name)
            if any(self._may_be_times(path, leaf) for path, leaf in leaves):
                wanted.append(pa.field(field.name, plain))
        return pa.schema(wanted)

    def _may_be_times(self, path: str, leaf: pa.ChunkedArray) -> bool:
        """Return whether texts have to be looked at: a text that is no time settles a column."""
        types = pa.types
        if not (types.is_timestamp(leaf.type) or types.is_string(leaf.type)):
            return False
        return not self._texts.setdefault(path, TextTypes(("TIMESTAMP", "TIMESTAMP_LTZ"))).is_text

    def add_texts(self, table: pa.Table) -> None:
        """Take the texts of the rows taken last, as the file has them."""
        for name in table.column_names:
            for path, leaf in _leaves(name, table.column(name)):
                if path in self._texts:
                    for chunk in leaf.chunks:
                        self._texts[path].add(chunk.drop_null())

    def type(self, name: str) -> pa.DataType:
        """Return the type of a column, as Arrow has it and a table may."""
        return self._timed_type(name, self._types[name])

    def _timed_type(self, path: str, found: pa.DataType) -> pa.DataType:
        if pa.types.is_null(found) or found.equals(_FLOAT_TEXTS):
            return pa.string()
        if pa.types.is_string(found) and path in self._texts:
            return self._texts[path].type().arrow()
        if pa.types.is_list(found):
            return pa.list_(self._timed_type(f"{path}.{ELEMENT}", found.value_type))
        if pa.types.is_struct(found):
            return pa.struct([(field.name, self._timed_type(f"{path}.{field.name}", field.type)) for field in found])
        return found

    def unknown(self, name: str, dtype: DataType) -> tuple[str, ...] | None:
        """Return the path in a column of the first key that its type in the table does not name; None: there is none."""
        return _unknown(self._types[name], dtype)


def _join_types(one: pa.DataType, other: pa.DataType, what: str, row: int) -> pa.DataType:
    """Return the type that has the values of two parts of a file."""
    types = pa.types
    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    one, other = (
        pa.string() if each.equals(_FLOAT_TEXTS) and not _is_number(beside) else each
        for each, beside in ((one, other), (other, one))
    )
    if one.equals(other):
        return one
    if _is_number(one) and _is_number(other):
        return pa.float64()
    if types.is_list(one) and types.is_list(other):
        return pa.list_(_join_types(one.value_type, other.value_type, what, row))
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _join_types(fields.get(field.name, field.type), field.type, what, row)
        return pa.struct(list(fields.items()))
    raise InvalidSchemaError(
        f"{what}: its values are {one} before row {row} and {other} after it; make them of one type in the file"
    )


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_int64(found) or pa.types.is_float64(found) or found.equals(_FLOAT_TEXTS))


def _untimed_type(found: pa.DataType) -> pa.DataType:
    """Return a type that Arrow found with texts for what it takes for times."""
    if pa.types.is_timestamp(found):
        return pa.string()
    if pa.types.is_list(found):
        return pa.list_(_untimed_type(found.value_type))
    if pa.types.is_struct(found):
        return pa.struct([(field.name, _untimed_type(field.type)) for field in found])
    return found


def _settled_type(found: pa.DataType, values: pa.ChunkedArray) -> pa.DataType:
    """Return a type with `_FLOAT_TEXTS` where all texts are such as other parts of the file may have with numbers."""
    if pa.types.is_list(found):
        return pa.list_(_settled_type(found.value_type, pc.list_flatten(values)))
    if pa.types.is_struct(found):
        pairs = zip(found, values.flatten(), strict=True)
        return pa.struct([(field.name, _settled_type(field.type, inner)) for field, inner in pairs])
    return _FLOAT_TEXTS if pa.types.is_string(values.type) and are_float_texts(values) else found


def _leaves(path: str, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield the values of a column that are not nested, each kind with its path."""
    if pa.types.is_list(values.type):
        yield from _leaves(f"{path}.{ELEMENT}", pc.list_flatten(values))
    elif pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    else:
        yield path, values


def _has_large(values: pa.ChunkedArray) -> bool:
    if not (pa.types.is_int64(values.type) or pa.types.is_float64(values.type)):
        return False
    ends = pc.min_max(values).as_py()
    return any(end is not None and abs(end) >= FLOAT_EXACT_MAX[64] for end in ends.values())


def _unknown(found: pa.DataType, dtype: DataType) -> tuple[str, ...] | None:
    if dtype.name == "ARRAY" and pa.types.is_list(found):
        inner = _unknown(found.value_type, dtype.fields[0].type)
        return None if inner is None else (ELEMENT, *inner)
    if dtype.name == "ROW" and pa.types.is_struct(found):
        known = {field.name: field.type for field in dtype.fields}
        for field in found:
            if field.name not in known:
                return (field.name,)
            if (inner := _unknown(field.type, known[field.name])) is not None:
                return (field.name, *inner)
    return None


def has_floats(dtype: DataType) -> bool:
    """Return whether values of a type are floats, or have such within."""
    return dtype.name in _FLOATS or any(has_floats(field.type) for field in dtype.fields)


# -- values ----------------------------------------------------------------------------------------------------------


def read_type(dtype: DataType) -> pa.DataType:
    """Return the type in which Arrow reads JSON's values of a table's type: times as texts, nulls everywhere.

    Raises:
        InvalidSchemaError: JSON has no values of the type.
    """
    if dtype.name == "MAP":
        raise InvalidSchemaError(f"JSON has no values of type {dtype}: its objects are read as ROW")
    if dtype.name in _TIMES:
        return pa.string()
    if dtype.name == "BINARY":
        return pa.binary()
    if dtype.name == "DECIMAL":
        return pa.decimal256(_WIDE_PRECISION, dtype.parameters[1])
    if dtype.name == "ARRAY":
        return pa.list_(read_type(dtype.fields[0].type))
    if dtype.name == "ROW":
        return pa.struct([(field.name, read_type(field.type)) for field in dtype.fields])
    return dtype.arrow()


def with_times(values: pa.Array, dtype: DataType, place: CellPosition) -> pa.Array:
    """Return values read in a type of `read_type` with their times.

    Raises:
        InvalidRecordError: A text is no such time; the error names row, path and text.
    """
    if dtype.name in _TIMES:
        return parsed_texts(values, dtype, place)
    if not _has_times(dtype):
        return values
    valid = values.is_valid() if values.null_count else None
    mask = pc.invert(valid) if valid is not None else None
    if dtype.name == "ARRAY":
        offsets = pc.subtract(values.offsets, values.offsets[0])
        parents = pc.list_parent_indices(values)
        inner = place.inner(ELEMENT, lambda at: parents[at].as_py())
        elements = with_times(values.flatten(), dtype.fields[0].type, inner)
        return pa.ListArray.from_arrays(offsets, elements, mask=mask)
    children = [
        with_times(child, field.type, place.inner(field.name, lambda at: at))
        for child, field in zip(values.flatten(), dtype.fields, strict=True)
    ]
    return pa.StructArray.from_arrays(children, [field.name for field in dtype.fields], mask=mask)


def _has_times(dtype: DataType) -> bool:
    return dtype.name in _TIMES or any(_has_times(field.type) for field in dtype.fields)


def check_numbers(table: pa.Table, columns: Sequence[LoadColumn], data: bytes, base: int) -> None:
    """Refuse rows that have a number which is another one in its column's type: rounded, infinite, 0 or wrapped.

    A number with a point is the nearest float.

    Args:
        table: The rows, as read.
        columns: Its columns.
        data: What it was read of; it is looked at where a number may be such.
        base: The number of the first row.

    Raises:
        InvalidRecordError: There is such a row; the error names it, the path and the number.
    """
    suspects = [column for column in columns if _is_suspect(table.column(column.source_name), data)]
    if not suspects:
        return
    for index, row in enumerate(json_rows(data)):
        for column in suspects:
            if (found := _lost_number(row.get(column.source_name), column.known_type, column.name)) is not None:
                path, dtype, value = found
                place = CellPosition(path, lambda at: base + at)
                why = (
                    float_loss_text(_float_of(value, dtype))
                    if dtype.name in _FLOATS
                    else "the value does not fit exactly"
                )
                raise place.refusal(index, dtype, value, why)


def _is_suspect(values: pa.ChunkedArray, data: bytes) -> bool:
    """Return whether a number of a column may be another one; `data` is looked at where only that tells."""
    for _, leaf in _leaves("", values):
        if pa.types.is_decimal(leaf.type) and _may_have_long(data):
            return True
        if pa.types.is_floating(leaf.type):
            ends = [end for end in pc.min_max(leaf).as_py().values() if end is not None]
            if any(abs(end) >= FLOAT_EXACT_MAX[leaf.type.bit_width] for end in ends):
                return True
            if pc.any(pc.equal(leaf, pa.scalar(0, leaf.type))).as_py() and _may_have_tiny(data):
                return True
    return False


def _may_have_tiny(data: bytes) -> bool:
    """Return whether there may be a number so small that a float is 0 for it."""
    if b"0" * _DECIMAL_DIGITS_MAX in data:
        return True
    return (b"e-" in data or b"E-" in data) and _TINY.search(data) is not None


def _may_have_long(data: bytes) -> bool:
    """Return whether there may be a decimal that Arrow reads as another one, though it has room for twice as many digits."""
    signs = data.translate(_SIGNS)
    return b"0" * (_DECIMAL_DIGITS_MAX + 1) in signs or b"0e0" in signs or b"0e+" in signs


def _lost_number(value: Any, dtype: DataType, path: str) -> tuple[str, DataType, Any] | None:
    """Return path, type and value of the first number within a value that is another number in its type."""
    inner: list[tuple[Any, DataType, str]] = []
    if dtype.name in _FLOATS and isinstance(value, int | Decimal):
        made = _float_of(value, dtype)
        is_other = made != value if isinstance(value, int) else np.isinf(made) or (made == 0 and value != 0)
        return (path, dtype, value) if is_other else None
    if dtype.name == "DECIMAL" and isinstance(value, int | Decimal | str):
        fits = exact_decimal(value, dtype) is not None and len(Decimal(value).as_tuple().digits) <= _DECIMAL_DIGITS_MAX
        return None if fits else (path, dtype, value)
    if dtype.name == "ARRAY" and isinstance(value, list):
        inner = [(each, dtype.fields[0].type, f"{path}.{ELEMENT}") for each in value]
    elif dtype.name == "ROW" and isinstance(value, dict):
        inner = [(value.get(field.name), field.type, f"{path}.{field.name}") for field in dtype.fields]
    return next((found for each in inner if (found := _lost_number(*each)) is not None), None)


def _float_of(value: float | Decimal, dtype: DataType) -> float:
    with np.errstate(over="ignore"):
        return float(_FLOATS[dtype.name](float(value)))


def json_rows(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of some lines that Arrow has read, numbers with a point as decimals."""
    text, at = data.decode(), 0
    decoder = json.JSONDecoder(strict=False, parse_float=Decimal)
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return
        row, at = decoder.raw_decode(text, at)
        yield row


def has_key(row: Any, path: tuple[str, ...]) -> bool:
    """Return whether a value has the key at the end of a path."""
    if not path:
        return True
    if path[0] == ELEMENT and isinstance(row, list):
        return any(has_key(each, path[1:]) for each in row)
    return isinstance(row, dict) and path[0] in row and has_key(row[path[0]], path[1:])


def refusal_of_key(title: str, row: int, column: str, path: tuple[str, ...], dtype: DataType) -> InvalidRecordError:
    """Return the error for a key that a column's type does not name."""
    parent = dtype
    for step in path[:-1]:
        parent = next(field.type for field in parent.fields if field.name == step)
    known = ", ".join(field.name for field in parent.fields)
    return InvalidRecordError(
        f"{title}: column {'.'.join((column, *path))!r}, row {row}: expected one of the fields {known} of {value_text(str(dtype))}, found "
        f"the field {path[-1]!r}; add it to the type, or leave it out of the file; nothing of it was loaded"
    )

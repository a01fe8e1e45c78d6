"""Arrow arrays brought to a table's own types, without ever changing a value.

What fits exactly is taken in any of Arrow's forms (views, dictionaries, wider or narrower numbers, finer or coarser
times); what does not is refused with its column, row and value. Nothing is rounded, cut or wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.types import DataType, is_list

#: A value's text in a message is cut here.
_SHOWN_MAX: Final = 80
INTEGERS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
#: More digits than any integer and any scale need together.
_WIDE_DECIMAL_PRECISION: Final = 76
#: What 64 bits of microseconds reach, in the units of times that are coarser.
_MICROS_REACH: Final = {"s": (2**63 - 1) // 10**6, "ms": (2**63 - 1) // 10**3}
#: Values that Arrow decodes out of no encoding, such as those of Polars' categories, and what they are decoded as.
_WIDE_OF_VIEW: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


@dataclass(frozen=True, slots=True)
class CellPosition:
    """Where values come from, for messages.

    Attributes:
        column: Path of the column: ``a``, ``a.element``.
        row_of: Gives the caller's row number (from 0) of the value at a position.
    """

    column: str
    row_of: Callable[[int], int]

    def inner(self, name: str, parent_of: Callable[[int], int]) -> CellPosition:
        """Return the place of a nested field whose values belong to values of this one."""
        return CellPosition(f"{self.column}.{name}", lambda index: self.row_of(parent_of(index)))

    def refusal(self, index: int, target: DataType, value: object, why: str) -> InvalidRecordError:
        """Return the error for one value that is not of its type."""
        return InvalidRecordError(
            f"column {self.column!r}, row {self.row_of(index)}: expected {target}, found {value_text(value)}: {why}; "
            "nothing was sent"
        )

    def mismatch(self, target: DataType, found: object, hint: str = "") -> InvalidRecordError:
        """Return the error for a whole column of another type."""
        return InvalidRecordError(
            f"column {self.column!r}: expected {target}, found {found}{'; ' + hint if hint else ''}; nothing was sent"
        )


def value_text(value: object) -> str:
    """Return a value's text, cut to what a message can hold."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def cast_array(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    """Return the same values in a type's one Arrow form.

    Args:
        array: Valid Arrow data (`pa.Array.validate` with ``full=True`` passed).
        target: The type wanted, with its nullability.
        place: For messages.

    Raises:
        InvalidRecordError: A value does not fit exactly, a null where none may be, or types that do not go together.
            The text names column, first row and value.

    Cost: nothing for flat columns that already are of the type; else one pass, two for narrowing.
    """
    array = _plain(array)
    if pa.types.is_null(array.type):
        made = pa.nulls(len(array), target.arrow())
    elif target.fields:
        made = (
            array
            if array.type == target.arrow() and not any(has_rules(field.type) for field in target.fields)
            else _cast_nested(array, target, place)
        )
    else:
        made = array if array.type == target.arrow() else _flat(array, target, place)
        if target.name == "CHAR":
            _check_length(made, target, place)
        elif _is_coarse(target):
            _check_micros(made, target, place)
    if not target.nullable and made.null_count:
        raise place.refusal(pc.index(made.is_null(), True).as_py(), target, None, "null in a NOT NULL column")
    return made


def first_failing(count: int, attempt: Callable[[int, int], object]) -> int:
    """Return the first position whose value makes an attempt on ``[start, stop)`` raise, by bisection.

    Raises:
        ValueError: No single value does.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(attempt, low, middle):
            high = middle
        else:
            low = middle
    if low < high and _fails(attempt, low, high):
        return low
    raise ValueError("every value passes on its own")


def _fails(attempt: Callable[[int, int], object], start: int, stop: int) -> bool:
    try:
        attempt(start, stop)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError):
        return True
    return False


def _plain(array: pa.Array) -> pa.Array:
    """Return the array without encodings that only save space."""
    if isinstance(array.type, pa.UuidType):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        if (wide := _WIDE_OF_VIEW.get(array.type.value_type)) is not None:
            runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, array.values.cast(wide))
            array = runs.slice(array.offset, len(array))
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        if (wide := _WIDE_OF_VIEW.get(array.type.value_type)) is not None:
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(wide))
        array = array.dictionary_decode()
    return array


def has_rules(dtype: DataType) -> bool:
    """Return whether a type has rules that an equal Arrow type does not vouch for: NOT NULL, a length, or a reach."""
    has_own = not dtype.nullable or dtype.name == "CHAR" or _is_coarse(dtype)
    return has_own or any(has_rules(field.type) for field in dtype.fields)


def _is_coarse(dtype: DataType) -> bool:
    return dtype.name in {"TIMESTAMP", "TIMESTAMP_LTZ"} and dtype.arrow().unit in _MICROS_REACH


# -- flat types ------------------------------------------------------------------------------------------------------


def _flat(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    source, types = array.type, pa.types
    if target.name in INTEGERS:
        accepted, hint = (
            types.is_integer(source),
            "floating-point numbers are not taken for integers; round and cast them first",
        )
        hint = hint if types.is_floating(source) else ""
    elif target.name == "FLOAT":
        if types.is_float64(source):
            return _narrowed_float(array, target, place)
        accepted, hint = types.is_float16(source) or types.is_integer(source), ""
    elif target.name == "DOUBLE":
        accepted, hint = types.is_floating(source) or types.is_integer(source), ""
    elif target.name == "DECIMAL":
        if types.is_integer(source):
            array = pc.cast(array, pa.decimal256(_WIDE_DECIMAL_PRECISION, target.parameters[1]))
        accepted, hint = types.is_integer(source) or types.is_decimal(source), "convert to decimals first"
    elif target.name in {"STRING", "CHAR"}:
        accepted = types.is_large_string(source) or types.is_string_view(source)
        hint = "convert to strings first"
    elif target.name in {"BYTES", "BINARY"}:
        return _binary(array, target, place)
    elif target.name == "DATE":
        accepted, hint = (
            types.is_date64(source),
            "take the date of each time first" if types.is_timestamp(source) else "",
        )
    elif target.name == "TIME":
        accepted, hint = types.is_time(source), ""
    elif target.name in {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        return _timestamp(array, target, place)
    else:
        accepted, hint = False, ""
    if not accepted:
        raise place.mismatch(target, source, hint)
    return checked_cast(array, target, place)


def checked_cast(array: pa.Array, target: DataType, place: CellPosition, arrow: pa.DataType | None = None) -> pa.Array:
    """Return Arrow's own safe cast, whose first failure names row and value."""
    to = arrow or target.arrow()
    try:
        return pc.cast(array, to, safe=True)
    except pa.ArrowInvalid as error:
        if _lies_high(array):
            return checked_cast(pa.concat_arrays([array, array.slice(0, 0)]), target, place, arrow)
        index = first_failing(len(array), lambda start, stop: pc.cast(array.slice(start, stop - start), to, safe=True))
        raise place.refusal(index, target, _value(array, index), "the value does not fit exactly") from error


def _lies_high(array: pa.Array) -> bool:
    """Return whether values lie behind 2 GB of others that are not part of the array: a cast to 32-bit offsets goes by where they lie."""
    if not (len(array) and (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))):
        return False
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return bool(offsets[0] > 0 and offsets[-1] >= 2**31 and offsets[-1] - offsets[0] < 2**31)


def _value(array: pa.Array, index: int) -> object:
    """Return a value for a message; Python has no nanoseconds and no year 10000."""
    try:
        return array[index].as_py()
    except (ValueError, OverflowError):
        return str(array[index].cast(pa.string()))


def _narrowed_float(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    made = pc.cast(array, pa.float32(), safe=False)
    exact = pc.or_(pc.equal(pc.cast(made, pa.float64()), array), pc.is_nan(array))
    if not pc.all(exact, min_count=0).as_py():
        index = pc.index(pc.fill_null(exact, True), False).as_py()
        why = "the value is not exact in 32 bits; make it a 32-bit float first, which rounds it"
        raise place.refusal(index, target, array[index].as_py(), why)
    return made


def _binary(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    source, types = array.type, pa.types
    fixed = types.is_fixed_size_binary(source)
    if not (fixed or types.is_binary(source) or types.is_large_binary(source) or types.is_binary_view(source)):
        raise place.mismatch(target, source)
    if target.name == "BYTES":
        return checked_cast(array, target, place)
    plain = array if types.is_large_binary(source) else pc.cast(array, pa.large_binary())
    wrong = pc.not_equal(pc.binary_length(plain), target.precision)
    if pc.any(wrong, min_count=0).as_py():
        index = pc.index(pc.fill_null(wrong, False), True).as_py()
        why = f"expected {target.precision} bytes, found {len(array[index].as_py())}"
        raise place.refusal(index, target, array[index].as_py(), why)
    return pc.cast(pc.cast(plain, pa.binary()), target.arrow())


def _timestamp(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    if not pa.types.is_timestamp(array.type):
        raise place.mismatch(target, array.type)
    local = target.name == "TIMESTAMP_LTZ"
    if local and array.type.tz is None:
        hint = "these times have no time zone; give them the one they are meant in (pandas: .dt.tz_localize('UTC'))"
        raise place.mismatch(target, array.type, hint)
    if not local and array.type.tz is not None:
        hint = "these times have a time zone; use TIMESTAMP_LTZ, or take it off (pandas: .dt.tz_localize(None))"
        raise place.mismatch(target, array.type, hint)
    return checked_cast(array, target, place)


def _check_length(array: pa.Array, target: DataType, place: CellPosition) -> None:
    too_long = pc.greater(pc.utf8_length(array), target.precision)
    if pc.any(too_long, min_count=0).as_py():
        index = pc.index(pc.fill_null(too_long, False), True).as_py()
        value = array[index].as_py()
        raise place.refusal(index, target, value, f"expected at most {target.precision} characters, found {len(value)}")


def _check_micros(array: pa.Array, target: DataType, place: CellPosition) -> None:
    """Refuse times that no lake has a form of: a record that cannot be tiered stops its table's tiering, and stays in the log."""
    reach = _MICROS_REACH[array.type.unit]
    counts = array.view(pa.int64())
    low, high = pc.min_max(counts).as_py().values()
    if low is None or -reach <= low <= high <= reach:
        return
    wrong = pc.or_(pc.less(counts, -reach), pc.greater(counts, reach))
    index = pc.index(pc.fill_null(wrong, False), True).as_py()
    why = "a lake counts microseconds in 64 bits, which is from the year -290308 to 294247; are these times of another unit?"
    raise place.refusal(index, target, f"{counts[index].as_py()} {array.type.unit}", why)


# -- nested types ----------------------------------------------------------------------------------------------------


def _cast_nested(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    types, source = pa.types, array.type
    if target.name == "ARRAY" and is_list(source):
        return _array(array, target, place)
    if target.name == "MAP" and types.is_map(source):
        return _map(array, target, place)
    if target.name == "ROW" and types.is_struct(source):
        return _row(array, target, place)
    raise place.mismatch(target, source)


def _offsets(array: pa.Array) -> tuple[pa.Array, Callable[[int], int]]:
    """Return the offsets of a list-like array over its flattened values, and the parent of a flattened value."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    if array.null_count:
        lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    return offsets_of(lengths)


def offsets_of(lengths: npt.ArrayLike) -> tuple[pa.Array, Callable[[int], int]]:
    """Return the offsets of lists of given lengths, and the list that a value at a position is of."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return pa.array(ends.astype(np.int32)), lambda index: int(np.searchsorted(ends, index, side="right")) - 1


def _array(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    offsets, parent_of = _offsets(array)
    values = cast_array(pc.list_flatten(array), target.fields[0].type, place.inner("element", parent_of))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=target.arrow(), mask=mask)


def _map(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    # Not by Arrow's cast from map to list: it refuses null rows that have fields which are not null.
    ends = array.offsets.to_numpy()
    hidden = array.is_null().to_numpy(zero_copy_only=False)
    lengths = np.where(hidden, 0, np.diff(ends))
    offsets, parent_of = offsets_of(lengths)
    keys, values = (child.slice(ends[0], ends[-1] - ends[0]) for child in (array.keys, array.items))
    if len(keys) != lengths.sum():
        is_shown = np.repeat(~hidden, np.diff(ends))
        keys, values = _filter(keys, is_shown), _filter(values, is_shown)
    keys = cast_array(keys, target.fields[0].type.with_nullable(False), place.inner("key", parent_of))
    values = cast_array(values, target.fields[1].type, place.inner("value", parent_of))
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, values, type=target.arrow(), mask=mask)


def _row(array: pa.Array, target: DataType, place: CellPosition) -> pa.Array:
    if array.null_count:
        valid = array.is_valid()
        is_row = valid.to_numpy(zero_copy_only=False)
        at = np.flatnonzero(is_row)
        dense = _row(
            _filter(array, is_row), target, CellPosition(place.column, lambda index: place.row_of(int(at[index])))
        )
        ranks = pc.subtract(pc.cumulative_sum(pc.cast(valid, pa.int64())), 1)
        return dense.take(pc.if_else(valid, ranks, pa.scalar(None, pa.int64())))
    names = [field.name for field in array.type]
    check_names(names, [(field.name, field.type) for field in target.fields], f"column {place.column!r}: ROW field")
    given = dict(zip(names, array.flatten(), strict=True))
    children = [
        cast_array(given[field.name], field.type, place.inner(field.name, lambda index: index))
        if field.name in given
        else pa.nulls(len(array), field.type.arrow())
        for field in target.fields
    ]
    return pa.StructArray.from_arrays(children, fields=list(target.arrow()))


def _filter(array: pa.Array, keep: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the values where `keep` is true."""
    try:
        return array.filter(pa.array(keep))
    except pa.ArrowNotImplementedError:
        # Arrow filters no views and no runs of values, also within others; but it concatenates slices of all.
        edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8))).tolist()
        runs = zip(edges[::2], edges[1::2], strict=True)
        return pa.concat_arrays([array[:0], *(array[start:stop] for start, stop in runs)])


def check_names(names: list[str], wanted: list[tuple[str, DataType]], kind: str) -> None:
    """Check given names against those of a table or ROW: none twice, none unknown, none missing that must not be null.

    Raises:
        InvalidRecordError: They do not agree; the text names the one, and what was found.
    """
    known = [name for name, _ in wanted]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRecordError(f"{kind} {name!r} is given twice; nothing was sent")
        if name not in known:
            raise InvalidRecordError(f"{kind} {name!r} is unknown; expected {', '.join(known)}; nothing was sent")
    for name, dtype in wanted:
        if name not in names and not dtype.nullable:
            found = ", ".join(map(str, names)) or "none"
            raise InvalidRecordError(f"{kind} {name!r} ({dtype}) is missing; found {found}; nothing was sent")


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

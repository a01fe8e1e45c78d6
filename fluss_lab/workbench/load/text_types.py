"""Texts of files as values: which types a column of texts has, and the texts made values of a type, none of them changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DecimalException
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.values.casts import INTEGERS, CellPosition, first_failing

_LEADING_ZERO: Final = r"^\s*[+-]?0[0-9xX]"
#: What Arrow reads as a number in base 16, and wraps where it is large.
_BASE_16: Final = r"^[+-]?0[xX]"
#: Whole numbers that a float may not hold exactly.
_LONG_DIGITS: Final = r"^[+-]?[0-9]{16,}$"
_DIGITS: Final = r"^[+-]?[0-9]+$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?$"
_NOT_ZERO: Final = r"^[+-]?[0.]*[1-9]"
#: What is no number, and null in a column of other values than floats and texts.
NAN: Final = "nan"
#: From here on a float of so many bits may stand for several whole numbers.
FLOAT_EXACT_MAX: Final = {32: 2**24, 64: 2**53}
#: The arrow types that texts are tried as, the narrowest first.
_TRIED: Final = {
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
}
#: Texts that are of the one type are of the other one.
_IMPLIED: Final = {"DATE": "TIMESTAMP", "BIGINT": "DOUBLE"}


class TextTypes:
    """The types that all texts of a column so far have.

    Args:
        tried: The types that there are, the narrowest first.
    """

    def __init__(self, tried: Sequence[str] = tuple(_TRIED)) -> None:
        self._left = list(tried)
        self._is_empty = True
        self._has_nan = False

    @property
    def is_text(self) -> bool:
        """Return whether it is settled that they are texts, whatever comes."""
        return not self._left

    def add(self, values: pa.StringArray, has_nan: bool = False) -> None:
        """Take further texts, none of which is null; `has_nan`: there is a ``nan`` beside them, which makes floats of numbers."""
        self._has_nan = self._has_nan or has_nan
        if not len(values) or not self._left:
            return
        self._is_empty = False
        if _some(values, _LEADING_ZERO):
            self._left = [name for name in self._left if name not in {"BIGINT", "DOUBLE"}]
        if "DOUBLE" in self._left and _some(values, _LONG_DIGITS):
            self._left.remove("DOUBLE")
        fitting: set[str] = set()
        for name in self._left:
            if name not in fitting and _fits(values, name):
                fitting |= {name, _IMPLIED.get(name, name)}
        self._left = [name for name in self._left if name in fitting]

    def type(self) -> DataType:
        """Return the narrowest type of them all; of a column without values, and of any other one, text."""
        found = self._left[0] if self._left and not self._is_empty else "STRING"
        if found == "BIGINT" and self._has_nan and "DOUBLE" in self._left:
            found = "DOUBLE"
        return DataType(found, (6,)) if found.startswith("TIMESTAMP") else DataType(found)


def _fits(values: pa.StringArray, name: str) -> bool:
    if name == "BOOLEAN":
        return bool(pc.all(pc.is_in(pc.utf8_lower(values), pa.array(["true", "false"]))).as_py())
    try:
        made = pc.cast(values, _TRIED[name])
    except pa.ArrowInvalid:
        return False
    return name != "DOUBLE" or _first_lost(values, made) is None


def _some(values: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def parsed_texts(values: pa.StringArray, dtype: DataType, place: CellPosition) -> pa.Array:
    """Return texts as values of a type that is no text.

    A number with a point is the nearest float; a whole number that no float is, and one that is beyond them all, is refused.

    Raises:
        InvalidSchemaError: The type is a nested one.
        InvalidRecordError: A text is no value of the type; the error names column, first row and text.
    """
    if dtype.fields:
        raise InvalidSchemaError(f"column {place.column!r}: CSV has no values of type {dtype}")
    convert = _conversion(dtype)
    if dtype.name in INTEGERS and _some(values, _BASE_16):
        index = pc.index(pc.fill_null(pc.match_substring_regex(values, _BASE_16), False), True).as_py()
        raise place.refusal(index, dtype, values[index].as_py(), "the text is no such value")
    try:
        made = convert(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        try:
            index = first_failing(len(values), lambda start, stop: convert(values.slice(start, stop - start)))
        except ValueError:
            raise InvalidRecordError(f"column {place.column!r}: no {dtype}: {error}") from error
        raise place.refusal(index, dtype, values[index].as_py(), "the text is no such value") from error
    if pa.types.is_floating(made.type) and (lost := _first_lost(values, made)) is not None:
        raise place.refusal(lost, dtype, values[lost].as_py(), float_loss_text(made[lost].as_py()))
    return made


def float_loss_text(made: float) -> str:
    """Return why a number that would be another one is refused, and what to do."""
    return f"as a float it would be {made!r}; a DECIMAL column, or one of texts, keeps it"


def _conversion(dtype: DataType) -> Callable[[pa.Array], pa.Array]:
    to = dtype.arrow()
    if dtype.name == "DECIMAL":
        return partial(_decimals, dtype=dtype)
    if pa.types.is_fixed_size_binary(to):
        return lambda part: pc.cast(pc.cast(part, pa.binary()), to)
    if pa.types.is_time(to):
        moment = pa.timestamp(to.unit)
        return lambda part: pc.cast(pc.cast(pc.binary_join_element_wise("1970-01-01", part, " "), moment), to)
    return lambda part: pc.cast(part, to, safe=True)


def _decimals(texts: pa.StringArray, dtype: DataType) -> pa.Array:
    """Return texts as decimals. Arrow wraps those with too many digits, and makes 0 of those with small exponents.

    Raises:
        ArrowInvalid: A text is no such decimal.
    """
    precision, scale = dtype.parameters
    is_plain = pc.match_substring_regex(texts, rf"^[+-]?[0-9]{{0,{precision - scale}}}(\.[0-9]{{0,{scale}}})?$")
    is_odd = pc.fill_null(pc.invert(is_plain), False)
    made = pc.cast(pc.if_else(is_odd, None, texts), dtype.arrow())
    odd = texts.filter(is_odd)
    if not len(odd):
        return made
    found = [exact_decimal(text, dtype) for text in odd.to_pylist()]
    if None in found or not pc.all(pc.match_substring_regex(odd, _NUMBER)).as_py():
        raise pa.ArrowInvalid(f"not a {dtype}")
    return pc.replace_with_mask(made, is_odd, pa.array(found, dtype.arrow()))


def exact_decimal(number: str | int | Decimal, dtype: DataType) -> Decimal | None:
    """Return a number as a decimal of a type; None: it is none, or has digits that the type has not."""
    precision, scale = dtype.parameters
    try:
        value = Decimal(number)
        plain = value.normalize(Context(prec=max(1, len(value.as_tuple().digits))))
    except DecimalException:
        return None
    if not plain.is_finite():
        return None
    if not plain:
        return None if value else Decimal(0)
    fits = plain.adjusted() < precision - scale and -int(plain.as_tuple().exponent) <= scale
    return plain if fits else None


def _first_lost(texts: pa.StringArray, made: pa.Array) -> int | None:
    """Return the first text whose float is infinite or 0 though it is not, or another whole number; None: there is none."""
    floats = made.to_numpy(zero_copy_only=False)
    exact_max = FLOAT_EXACT_MAX[made.type.bit_width]
    suspects = np.flatnonzero((np.abs(floats) >= exact_max) | (floats == 0))
    if not len(suspects):
        return None
    chosen = texts.take(pa.array(suspects))
    of_zero = pc.equal(pc.cast(made.take(pa.array(suspects)), pa.float64()), 0.0)
    endless = pc.and_(pc.invert(of_zero), pc.invert(pc.match_substring_regex(pc.utf8_lower(chosen), "inf")))
    is_odd = pc.if_else(of_zero, pc.match_substring_regex(chosen, _NOT_ZERO), endless)
    is_odd = np.flatnonzero(pc.fill_null(is_odd, False).to_numpy(zero_copy_only=False))
    is_whole = pc.match_substring_regex(chosen, _DIGITS)
    for at in is_odd.tolist():
        found = float(floats[suspects[at]])
        if found == 0 or np.isinf(found) or (is_whole[at].as_py() and int(chosen[at].as_py()) != int(found)):
            return int(suspects[at])
    return None

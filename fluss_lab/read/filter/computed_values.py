"""Values that a filter computes from columns: their types, and the Arrow expressions that give them.

NULL makes NULL of whatever is computed from it, but for COALESCE. Whole numbers are computed as BIGINT, FLOAT as DOUBLE,
DECIMAL exactly; a number too large fails the read, dividing by zero gives NULL. Whole numbers and DECIMAL beside DOUBLE
are computed, and compared, as DOUBLE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.predicates import Reference
from fluss_lab.read.filter.typed_conditions import fit_literal

_DIGITS_MAX: Final = 38
_BIGINT: Final = pa.int64()
_DOUBLE: Final = pa.float64()
_UNITS: Final = ("s", "ms", "us", "ns")
_WIDE_DIGITS: Final = 76
#: That tell doubles apart.
_DOUBLE_DIGITS: Final = 17
#: Later ones are written with a sign.
_YEAR_PLAIN_MAX: Final = 9_999
#: Decimals with more digits behind the point are written by Arrow with an exponent where they are small.
_PLAIN_SCALE_MAX: Final = 6
_NUMBERS: Final = frozenset({"a whole number", "a decimal", "a double"})
_MOMENTS: Final = frozenset({"a date", "a timestamp", "a timestamp with zone"})
#: Kinds of values to what they can be cast to, beside their own kind.
_CASTS: Final = {
    "a whole number": {*_NUMBERS, "text"},
    "a decimal": {*_NUMBERS, "text"},
    "a double": _NUMBERS,
    "text": _NUMBERS | _MOMENTS,
    "a date": {"a timestamp", "text"},
    "a timestamp": {"a date", "text"},
    "a timestamp with zone": {"a date", "text"},
    "true or false": {"text"},
    "NULL": {*_NUMBERS, *_MOMENTS, "text", "true or false", "a time", "bytes"},
}


@dataclass(frozen=True, slots=True)
class Term:
    """A value of each row, or a constant.

    Attributes:
        expression: What computes it.
        sample: No row of it; of a constant: its value.
        columns: What it is computed from.
        written: Whether it is a literal as it was written: it takes the type of what it meets.
        value: Of such a literal: the Python value.
    """

    expression: pc.Expression
    sample: pa.Array | pa.Scalar
    columns: tuple[Reference, ...] = ()
    written: bool = False
    value: Any = None

    @property
    def type(self) -> pa.DataType:
        """Return its type."""
        return self.sample.type

    @property
    def is_constant(self) -> bool:
        """Return whether all rows have one value: `sample`."""
        return isinstance(self.sample, pa.Scalar)


def constant(scalar: pa.Scalar) -> Term:
    """Return a value that all rows have."""
    return Term(pc.scalar(scalar), scalar)


def literal(value: Any) -> Term:
    """Return a literal as it was written, of the type that it has when nothing else says one."""
    scalar = _natural(value)
    return Term(pc.scalar(scalar), scalar, (), True, value)


def column(reference: Reference) -> Term:
    """Return a column's value: a whole number as BIGINT, a FLOAT as DOUBLE."""
    term = Term(reference.field(), pa.array([], reference.type), (reference,))
    if pa.types.is_integer(term.type):
        return _cast(term, _BIGINT)
    return _cast(term, _DOUBLE) if pa.types.is_float32(term.type) else term


def type_kind(dtype: pa.DataType) -> str:
    """Return what a type is a kind of: values of one kind can be compared."""
    kinds: dict[str, Callable[[pa.DataType], bool]] = {
        "a whole number": pa.types.is_integer, "a decimal": pa.types.is_decimal, "a double": pa.types.is_floating,
        "text": pa.types.is_string, "true or false": pa.types.is_boolean, "a date": pa.types.is_date,
        "a time": pa.types.is_time, "bytes": lambda each: pa.types.is_binary(each) or pa.types.is_fixed_size_binary(each),
        "a timestamp": lambda each: pa.types.is_timestamp(each) and each.tz is None,
        "a timestamp with zone": lambda each: pa.types.is_timestamp(each) and each.tz is not None,
        "NULL": pa.types.is_null,
    }  # fmt: skip
    return next((name for name, holds in kinds.items() if holds(dtype)), str(dtype))


def is_number(term: Term) -> bool:
    """Return whether a term can be computed with."""
    return type_kind(term.type) in {*_NUMBERS, "NULL"}


def call(function: Callable[..., Any], *terms: Term, **options: Any) -> Term:
    """Return a function of Arrow of some terms.

    Raises:
        InvalidFilterError: It is none of such types, or a constant cannot be computed.
    """
    try:
        sample = function(*[each.sample for each in terms], **options)
        expression = function(*[each.expression for each in terms], **options)
    except (pa.ArrowException, NotImplementedError, TypeError) as error:
        raise InvalidFilterError(str(error)[:200]) from error
    if isinstance(sample, pa.Scalar):
        return constant(sample)
    return Term(expression, sample, tuple(dict.fromkeys(each for term in terms for each in term.columns)))


def alike(terms: list[Term]) -> list[Term]:
    """Return terms in one type in which they can be compared, literals in the others' type.

    Raises:
        InvalidFilterError: There is no such type, or a literal has no such value.
    """
    others = [each for each in terms if not each.written]
    if not others:
        return _numbers_alike(terms) if all(is_number(each) for each in terms) else _of_one_type(terms)
    made = _of_one_type(others) if not all(is_number(each) for each in others) else _numbers_alike(others)
    dtype = next((each.type for each in made if not pa.types.is_null(each.type)), made[0].type)
    if not any(each.written for each in terms):
        return made
    if all(is_number(each) for each in terms):
        return _numbers_alike(terms)
    rest = iter(made)
    return [_fit_literal(each, dtype) if each.written else next(rest) for each in terms]


def compute(operator: str, left: Term, right: Term) -> Term:
    """Return ``left operator right``; the operator is + - * / %.

    Raises:
        InvalidFilterError: They are no numbers.
    """
    for each in (left, right):
        if not is_number(each):
            raise InvalidFilterError(f"{operator} is of numbers, found {type_kind(each.type)}")
    if operator == "/":
        left, right = _cast(left, _DOUBLE), _cast(right, _DOUBLE)
        return call(pc.divide, left, _not_zero(right))
    left, right = _numbers_alike([left, right])
    if operator == "%":
        if type_kind(left.type) != "a whole number" and not pa.types.is_null(left.type):
            raise InvalidFilterError(f"% is of whole numbers, found {type_kind(left.type)}")
        right = _not_zero(right)
        return call(pc.subtract_checked, left, call(pc.multiply_checked, call(pc.divide_checked, left, right), right))
    functions = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
    return call(functions[operator], left, right)


def cast(term: Term, target: pa.DataType) -> Term:
    """Return a term in another type; a fraction is cut off for a whole number, and rounded for FLOAT and DECIMAL.

    For DECIMAL halves go away from zero, as in SQL. Texts are those that Spark gives.

    Raises:
        InvalidFilterError: That is not offered, or the value of a constant cannot be.
    """
    source, wanted = type_kind(term.type), type_kind(target)
    if wanted not in {source, *_CASTS.get(source, ())}:
        raise InvalidFilterError(f"CAST of {source} to {wanted} is not offered{_instead(source, wanted)}")
    if wanted == "text":
        return _text(term, source)
    if wanted == "a whole number" and source in {"a double", "a decimal"}:
        term = to_whole(pc.trunc, term)
    if pa.types.is_decimal(target) and source == "a whole number":
        term = _cast(term, pa.decimal256(19, 0))
    if pa.types.is_decimal(target) and source == "a double":
        term = _decimal_of(term, target.scale)
    if pa.types.is_decimal(target) and pa.types.is_decimal(term.type):
        wide = _cast(term, pa.decimal256(_WIDE_DIGITS, term.type.scale))
        term = call(pc.round, wide, ndigits=target.scale, round_mode="half_towards_infinity")
    term = _cast(term, target, safe=wanted not in {"a double", "a date"})
    if pa.types.is_integer(target):
        return _cast(term, _BIGINT)
    return _cast(term, _DOUBLE) if pa.types.is_float32(target) else term


def to_whole(function: Callable[..., Any], number: Term) -> Term:
    """Return what rounds a number to a whole one; a decimal gets room for a digit more, without which Arrow gives 0 for 99.9."""
    if pa.types.is_decimal(number.type):
        number = _widen(number)
    return call(function, number)


def _widen(number: Term) -> Term:
    """Return decimals with room for a digit more before the point."""
    return _cast(number, pa.decimal256(min(number.type.precision + 1, _WIDE_DIGITS), number.type.scale))


def _instead(source: str, wanted: str) -> str:
    if source == "a double" and wanted == "text":
        return ": engines write such numbers each in their own way; CAST to DECIMAL(p, s) first"
    return ""


def _text(term: Term, source: str) -> Term:
    """Return a term as text, as Spark writes it; times with a zone in UTC.

    Raises:
        InvalidFilterError: It is a number as it was written, with a point or an exponent: 1e2 would be another text.
    """
    if term.written and isinstance(term.value, Decimal) and term.value.as_tuple().exponent != 0:
        raise InvalidFilterError(
            "CAST of a number with a point or an exponent to text: write the text in single quotes"
        )
    if source in _MOMENTS:
        return _moment_text(term)
    return _decimal_text(term) if source == "a decimal" else _cast(term, pa.string())


def _moment_text(moment: Term) -> Term:
    """Return days and times as text, of a second's part no zeros at its end, years of five digits behind a plus sign."""
    if pa.types.is_timestamp(moment.type):
        moment = _cast(moment, pa.timestamp(moment.type.unit))
    text = _cast(moment, pa.string())
    if pa.types.is_timestamp(moment.type) and moment.type.unit != "s":
        text = call(pc.utf8_rtrim, call(pc.utf8_rtrim, text, characters="0"), characters=".")
    is_late = call(pc.greater, call(pc.year, moment), constant(pa.scalar(_YEAR_PLAIN_MAX)))
    return call(pc.if_else, is_late, _join(constant(pa.scalar("+")), text), text)


def _decimal_text(number: Term) -> Term:
    """Return decimals as text, all digits of their scale and no exponent, which Arrow writes where values are small."""
    if number.type.scale <= _PLAIN_SCALE_MAX:
        return _cast(number, pa.string())
    wide = _widen(number)
    zero, one = (constant(pa.scalar(Decimal(each), pa.decimal256(1, 0))) for each in (0, 1))
    sign = call(pc.if_else, call(pc.less, wide, zero), constant(pa.scalar("-")), constant(pa.scalar("")))
    size = call(pc.abs, wide)
    whole = call(pc.trunc, size)
    # Beside a digit before the point no exponent is written.
    fraction = _cast(call(pc.add_checked, call(pc.subtract_checked, size, whole), one), pa.string())
    digits = _cast(_cast(whole, pa.decimal256(wide.type.precision, 0)), pa.string())
    return _join(sign, digits, call(pc.utf8_slice_codeunits, fraction, start=1))


def _join(*texts: Term) -> Term:
    return call(lambda *each: pc.binary_join_element_wise(*each, ""), *texts)


def _decimal_of(number: Term, scale: int) -> Term:
    """Return doubles as the decimals that they are written as, which is what SQL rounds; those that are 0 then as 0."""
    half = constant(pa.scalar(0.1 ** (scale + 1)))
    large = call(pc.if_else, call(pc.less, call(pc.abs, number), half), constant(pa.scalar(0.0)), number)
    return _cast(_cast(large, pa.string()), pa.decimal256(_WIDE_DIGITS, scale + _DOUBLE_DIGITS + 1))


def _natural(value: Any) -> pa.Scalar:
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        if exponent == 0 and -(2**63) <= value < 2**63:
            return pa.scalar(int(value), _BIGINT)
        assert isinstance(exponent, int)
        if len(digits) + abs(exponent) <= _DIGITS_MAX:
            return pa.scalar(Decimal(int(value)) if exponent > 0 else value)
        return pa.scalar(float(value), _DOUBLE)
    return pa.scalar(value)


def _fit_literal(term: Term, dtype: pa.DataType) -> Term:
    """Return a literal in a type, if it has exactly such a value."""
    if term.value is None:
        return constant(pa.scalar(None, dtype))
    found = fit_literal("=", term.value, dtype, "the other side")
    if found.value is None:
        raise InvalidFilterError(f"{str(term.value)[:80]} is no value of type {dtype}")
    return constant(found.value)


def _numbers_alike(terms: list[Term]) -> list[Term]:
    kinds = {type_kind(each.type) for each in terms}
    if "a double" in kinds:
        return [_cast(each, _DOUBLE) for each in terms]
    if "a decimal" not in kinds:
        return [_cast(each, _BIGINT) for each in terms]
    return [_decimal(each) for each in terms]


def _decimal(term: Term) -> Term:
    if pa.types.is_decimal(term.type):
        return _cast(term, pa.decimal256(term.type.precision, term.type.scale))
    return _cast(term, pa.decimal256(19, 0))


def _of_one_type(terms: list[Term]) -> list[Term]:
    kinds = [type_kind(each.type) for each in terms if not pa.types.is_null(each.type)]
    if any(kind != kinds[0] for kind in kinds) and set(kinds) != {"a date", "a timestamp"}:
        raise InvalidFilterError(f"cannot compare {' with '.join(dict.fromkeys(kinds))}; use CAST")
    types = [each.type for each in terms if not pa.types.is_null(each.type)]
    if not types:
        return terms
    common = types[0]
    if len(set(kinds)) > 1:
        common = next(each for each in types if pa.types.is_timestamp(each))
    if pa.types.is_timestamp(common) or pa.types.is_time(common):
        unit = max((each.unit for each in types if not pa.types.is_date(each)), key=_UNITS.index)
        common = _in_unit(common, unit)
    elif len(set(types)) > 1:
        common = pa.binary()
    return [_cast(each, common) for each in terms]


def _in_unit(dtype: pa.DataType, unit: str) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.timestamp(unit, dtype.tz)
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


def _not_zero(term: Term) -> Term:
    zero = constant(pa.scalar(0, term.type)) if not pa.types.is_decimal(term.type) else None
    if zero is None:
        return term
    return call(pc.if_else, call(pc.equal, term, zero), constant(pa.scalar(None, term.type)), term)


def _cast(term: Term, target: pa.DataType, *, safe: bool = False) -> Term:
    if term.type == target:
        return term if not term.written else constant(term.sample)
    if pa.types.is_decimal(term.type) and pa.types.is_floating(target):
        term = _cast(term, pa.string())  # Arrow's own cast is not to the nearest one
    exact = safe or not pa.types.is_floating(target)
    return call(lambda value: value.cast(target, safe=exact), term)

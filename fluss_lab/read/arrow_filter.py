"""Arrow expressions understood: an expression cannot be looked into, but it can be guessed and compared.

The text of an expression is read with a small grammar, the expression is built again from what was read, and only if
Arrow says that both are the same is the reading believed. So a reading is right or absent, whatever the text holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.predicates import Among, Constant, Predicate, junction, leaves, negate
from fluss_lab.read.sql_filter import DEPTH_MAX, TEXT_LENGTH_MAX, Tests

_OPERATORS: Final = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BUILD: Final[dict[str, Any]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SPLIT: Final = re.compile(r" (and|or|==|!=|<=|>=|<|>) ")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL: Final = re.compile(r"(is_in|is_null|is_valid|is_nan|starts_with|match_like|invert)\((.*)\)", re.DOTALL)
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MEMBERS: Final = re.compile(
    r"(?P<column>\w+), \{value_set=(?P<type>[^\n]*):\[\n(?P<values>.*)\n\], null_matching_behavior=MATCH\}", re.DOTALL
)
_PATTERN: Final = re.compile(r'(?P<column>\w+), \{pattern="(?P<pattern>.*)", ignore_case=false\}', re.DOTALL)

#: What is read: the expression as built again, and what it says.
_Read = tuple[pc.Expression, Predicate]


def predicate_of_arrow(where: pc.Expression, tests: Tests) -> Predicate | None:
    """Return what an Arrow expression says, or None when it is beyond the words of `predicates`.

    Comparisons of columns with literals, ``&``, ``|``, ``~``, ``isin``, ``is_null``, ``is_valid``, ``is_nan``,
    ``starts_with`` and ``match_like`` are understood. Where Arrow's rules differ from SQL's (``~isin`` of a null is
    true), the expression is not read.
    """
    text = str(where)
    if len(text) > TEXT_LENGTH_MAX:
        return None
    try:
        for built, node in _read(text, tests, 0):
            if built.equals(where):
                return node
    except (InvalidFilterError, RecursionError):
        return None
    return None


def _read(text: str, tests: Tests, depth: int) -> Iterator[_Read]:
    """Yield the expressions that a text may stand for."""
    if depth > DEPTH_MAX:
        return
    if text in {"true", "false"}:
        yield pc.scalar(text == "true"), Constant(text == "true")
    elif text.startswith("("):
        yield from _infix(text[1:-1], tests, depth)
    elif _NAME.fullmatch(text):
        reference = tests.column((text,))
        if pa.types.is_boolean(reference.type):
            yield pc.field(text), tests.compare(reference, "=", True)
    elif call := _CALL.fullmatch(text):
        yield from _call(call[1], call[2], tests, depth)


def _infix(text: str, tests: Tests, depth: int) -> Iterator[_Read]:
    split = _outermost(text)
    if split is None:
        return
    left, operator, right = split
    if operator in {"and", "or"}:
        for one, said in _read(left, tests, depth + 1):
            for other, also in _read(right, tests, depth + 1):
                built = one & other if operator == "and" else one | other
                yield built, junction(operator == "and", [said, also])
        return
    for name, literal, flipped in ((left, right, False), (right, left, True)):
        if _NAME.fullmatch(name):
            yield from _comparison(tests, name, operator, literal, flipped)


def _comparison(tests: Tests, name: str, operator: str, literal: str, flipped: bool) -> Iterator[_Read]:
    reference = tests.column((name,))
    sql = _OPERATORS[operator]
    for value in _literals(literal, reference.type):
        field, scalar = pc.field(name), pc.scalar(value)
        built = _BUILD[operator](scalar, field) if flipped else _BUILD[operator](field, scalar)
        try:
            node = tests.compare(reference, _MIRROR[sql] if flipped else sql, _python(value))
        except InvalidFilterError:
            continue
        yield built, node


def _outermost(text: str) -> tuple[str, str, str] | None:
    """Split ``a op b`` at the operator that stands outside of parentheses and quotes."""
    level, at = 0, 0
    while at < len(text):
        if (quoted := _TEXT.match(text, at)) is not None:
            at = quoted.end()
            continue
        if text[at] in "({[":
            level += 1
        elif text[at] in ")}]":
            level -= 1
        elif level == 0 and (match := _SPLIT.match(text, at)) is not None:
            return text[:at], match[1], text[match.end() :]
        at += 1
    return None


def _call(name: str, inside: str, tests: Tests, depth: int) -> Iterator[_Read]:
    if name == "invert":
        for built, node in _read(inside, tests, depth + 1):
            # Arrow's `is_in` of a null is false, so its negation is true; SQL's stays unknown.
            if not any(isinstance(leaf, Among) for leaf in leaves(node)):
                yield ~built, negate(node)
        return
    if name == "is_in":
        yield from _members(inside, tests)
        return
    if name in {"starts_with", "match_like"}:
        if (match := _PATTERN.fullmatch(inside)) is not None:
            yield from _pattern(name, match, tests)
        return
    column = inside.removesuffix(", {nan_is_null=false}")
    if not _NAME.fullmatch(column):
        return
    reference = tests.column((column,))
    field = pc.field(column)
    if name == "is_null":
        yield field.is_null(), tests.null(reference)
    elif name == "is_valid":
        yield field.is_valid(), negate(tests.null(reference))
    else:
        yield field.is_nan(), tests.nan(reference)


def _pattern(name: str, match: re.Match[str], tests: Tests) -> Iterator[_Read]:
    reference = tests.column((match["column"],))
    for pattern in {match["pattern"], _unescaped(match["pattern"])}:
        if name == "match_like":
            yield pc.match_like(pc.field(match["column"]), pattern), tests.like(reference, pattern)
        else:
            like = re.sub(r"([%_\\])", r"\\\1", pattern) + "%"
            yield pc.starts_with(pc.field(match["column"]), pattern), tests.like(reference, like)


def _members(inside: str, tests: Tests) -> Iterator[_Read]:
    match = _MEMBERS.fullmatch(inside)
    if match is None:
        return
    reference = tests.column((match["column"],))
    if pa.types.is_floating(reference.type):  # to Arrow's `is_in`, 0.0 and -0.0 are two values
        return
    lines = [line.strip().removesuffix(",") for line in match["values"].split("\n")]
    if "null" in lines or "..." in lines:  # Arrow finds a null among nulls; a long list is not shown whole
        return
    choices = [list(_literals(line, reference.type)) for line in lines]
    for dtype in {value.type for options in choices for value in options}:
        values = [next((v for v in options if v.type == dtype), None) for options in choices]
        if None in values:
            continue
        members = pa.array([value.as_py() for value in values if value is not None], dtype)
        built = pc.field(match["column"]).isin(members)
        yield built, tests.among(reference, [_python(value) for value in values if value is not None], False)


def _literals(text: str, column: pa.DataType) -> Iterator[pa.Scalar]:
    """Yield the literals that a text may stand for, next to a column of a type."""
    if text in {"true", "false"}:
        yield pa.scalar(text == "true")
    elif text.startswith('"') and text.endswith('"'):
        inner = text[1:-1]
        yield from (pa.scalar(value) for value in dict.fromkeys((inner, _unescaped(inner))))
        if re.fullmatch(r"(?:[0-9A-F]{2})*", inner):
            for dtype in {pa.binary(), column if pa.types.is_fixed_size_binary(column) else pa.binary()}:
                if not pa.types.is_fixed_size_binary(dtype) or dtype.byte_width * 2 == len(inner):
                    yield pa.scalar(bytes.fromhex(inner), dtype)
    elif pa.types.is_temporal(column):
        yield from _times(text, column)
    else:
        yield from _numbers(text, column)


def _numbers(text: str, column: pa.DataType) -> Iterator[pa.Scalar]:
    """Yield numbers that Arrow compares with the column without rounding either side."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return
    if re.fullmatch(r"-?\d+", text) and (not pa.types.is_floating(column) or abs(number) < 2**24):
        for dtype in (pa.int64(), pa.int32(), pa.int16(), pa.int8()):
            if -(2 ** (dtype.bit_width - 1)) <= int(text) < 2 ** (dtype.bit_width - 1):
                yield pa.scalar(int(text), dtype)
    if pa.types.is_floating(column):
        narrow = pa.scalar(float(text), pa.float32())
        if pa.types.is_float64(column) or narrow.as_py() == float(text):
            yield pa.scalar(float(text), pa.float64())
        yield narrow
    elif number.is_finite() and len(number.as_tuple().digits) <= 38:
        yield pa.scalar(number)
        if pa.types.is_decimal(column):
            try:
                yield pa.scalar(number, column)
            except pa.ArrowException:
                return


def _times(text: str, column: pa.DataType) -> Iterator[pa.Scalar]:
    """Yield dates and times of the column's kind, in every unit."""
    plain, zoned = text.removesuffix("Z"), text.endswith("Z")
    if pa.types.is_date(column):
        kinds = [pa.date32()]
    elif pa.types.is_time(column):
        kinds = [pa.time64("us"), pa.time32("s"), pa.time32("ms"), pa.time64("ns")]
    else:
        kinds = [pa.timestamp(unit) for unit in ("us", "ms", "s", "ns")]
    for dtype in kinds:
        try:
            value = pa.scalar(plain).cast(dtype)
            yield value.cast(pa.timestamp(dtype.unit, "UTC")) if zoned else value
        except (pa.ArrowException, NotImplementedError):
            continue


def _python(value: pa.Scalar) -> Any:
    """Return a scalar as `literals.fit` takes it: text for what Python's times cannot hold."""
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type):
        return str(value.cast(pa.string()).as_py())
    return value.as_py()


def _unescaped(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda match: known.get(match[1], match[1]), text, flags=re.DOTALL)

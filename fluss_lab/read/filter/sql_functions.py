"""The functions that a filter's SQL text may call."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.computed_values import Term, alike, call, cast, is_number, to_whole, type_kind

_MOMENTS: Final = {"a date", "a timestamp", "a timestamp with zone"}


def function(name: str, terms: list[Term]) -> Term:
    """Return what a function gives of some values.

    Raises:
        InvalidFilterError: There is no such function, or it takes others.
    """
    if name not in FUNCTIONS:
        raise InvalidFilterError(
            f"there is no function {name!r}; offered are {', '.join(sorted(FUNCTIONS))} and CAST; a pyarrow expression may "
            "call any of Arrow's"
        )
    low, high, made = FUNCTIONS[name]
    if not low <= len(terms) <= high:
        wanted = str(low) if low == high else f"{low} to {high}" if high < _ANY else f"at least {low}"
        raise InvalidFilterError(f"{name} takes {wanted} values, found {len(terms)}")
    return made(name, terms)


def _of_text(arrow: Callable[..., Any]) -> Callable[[str, list[Term]], Term]:
    def make(name: str, terms: list[Term]) -> Term:
        return call(arrow, *[_text(name, each) for each in terms])

    return make


def _text(name: str, term: Term) -> Term:
    kind = type_kind(term.type)
    if kind not in {"text", "NULL"}:
        raise InvalidFilterError(f"{name} is of text, found {kind}")
    return cast(term, pa.string())


def _length(name: str, terms: list[Term]) -> Term:
    return cast(call(pc.utf8_length, _text(name, terms[0])), pa.int64())


def _substr(name: str, terms: list[Term]) -> Term:
    first = _whole(name, terms[1])
    if first < 1:
        raise InvalidFilterError(f"{name}: expected a place from 1 on, found {first}")
    stop = None
    if len(terms) > 2:
        length = _whole(name, terms[2])
        if length < 0:
            raise InvalidFilterError(f"{name}: expected a length of at least 0, found {length}")
        stop = first - 1 + length
    return call(pc.utf8_slice_codeunits, _text(name, terms[0]), start=first - 1, stop=stop)


def _whole(name: str, term: Term) -> int:
    value = term.value
    if not isinstance(value, Decimal) or value != int(value) or abs(value) >= 2**31:
        raise InvalidFilterError(f"{name}: expected whole numbers as literals for place and length")
    return int(value)


def _test_maker(arrow: Callable[..., Any]) -> Callable[[str, list[Term]], Term]:
    def make(name: str, terms: list[Term]) -> Term:
        if not isinstance(terms[1].value, str):
            raise InvalidFilterError(f"{name}: expected text in single quotes as the second value")
        return call(arrow, _text(name, terms[0]), pattern=terms[1].value)

    return make


def _round_maker(arrow: Callable[..., Any]) -> Callable[[str, list[Term]], Term]:
    def make(name: str, terms: list[Term]) -> Term:
        if not is_number(terms[0]):
            raise InvalidFilterError(f"{name} is of numbers, found {type_kind(terms[0].type)}")
        if name == "abs":
            return call(arrow, terms[0])
        return terms[0] if type_kind(terms[0].type) == "a whole number" else to_whole(arrow, terms[0])

    return make


def _coalesce(name: str, terms: list[Term]) -> Term:
    return call(pc.coalesce, *alike(terms))


def _part(arrow: Callable[..., Any]) -> Callable[[str, list[Term]], Term]:
    def make(name: str, terms: list[Term]) -> Term:
        if (kind := type_kind(terms[0].type)) not in _MOMENTS:
            raise InvalidFilterError(f"{name} is of dates and timestamps, found {kind}")
        return call(arrow, terms[0])

    return make


def _concat(name: str, terms: list[Term]) -> Term:
    return call(lambda *texts: pc.binary_join_element_wise(*texts, ""), *[_text(name, each) for each in terms])


_ANY: Final = 100
#: Name to how many values it takes, at least and at most, and what it gives.
FUNCTIONS: Final[dict[str, tuple[int, int, Callable[[str, list[Term]], Term]]]] = {
    "lower": (1, 1, _of_text(pc.utf8_lower)),
    "upper": (1, 1, _of_text(pc.utf8_upper)),
    "trim": (1, 1, _of_text(partial(pc.utf8_trim, characters=" "))),
    "length": (1, 1, _length),
    "substr": (2, 3, _substr),
    "substring": (2, 3, _substr),
    "concat": (1, _ANY, _concat),
    "starts_with": (2, 2, _test_maker(pc.starts_with)),
    "ends_with": (2, 2, _test_maker(pc.ends_with)),
    "contains": (2, 2, _test_maker(pc.match_substring)),
    "abs": (1, 1, _round_maker(pc.abs_checked)),
    "floor": (1, 1, _round_maker(pc.floor)),
    "ceil": (1, 1, _round_maker(pc.ceil)),
    "coalesce": (1, _ANY, _coalesce),
    "year": (1, 1, _part(pc.year)),
    "month": (1, 1, _part(pc.month)),
    "day": (1, 1, _part(pc.day)),
}

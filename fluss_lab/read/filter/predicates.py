"""The predicates of a filter: a tree without NOT, and the forms in which readers take it.

Negation is pushed down to the leaves while a tree is made, which keeps SQL's three-valued logic as long as one only
asks which rows are *true*: so each leaf may be replaced by something weaker where a reader cannot express it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.arrow_expression import expression_of
from fluss_lab.read.filter.text_patterns import match_pattern

#: Leaves of one filter, once comparisons of one column with = or != are folded into one leaf. Arrow looks at a batch once
#: for each: 2,000 take about a second for 65,536 rows.
LEAVES_MAX: Final = 2_000
_Joined = TypeVar("_Joined")
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, or a field within a ROW column: names from the outside in, and the type found there."""

    path: tuple[str, ...]
    type: pa.DataType

    @property
    def column(self) -> str:
        """Return the column's name."""
        return self.path[0]

    def __str__(self) -> str:
        return ".".join(self.path)

    def field(self) -> pc.Expression:
        """Return the reference as Arrow takes it."""
        return pc.field(*self.path)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for every row: true, false, or (None) unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    """A column against a literal of its own type. A NaN on the left makes all but ``!=`` false."""

    column: Reference
    operator: str
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Among:
    """IN, or NOT IN, literals of the column's type; with a null among them NOT IN is never true."""

    column: Reference
    values: tuple[pa.Scalar, ...]
    with_null: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Null:
    """IS NULL or IS NOT NULL."""

    column: Reference
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NotANumber:
    """IS NAN or IS NOT NAN; null is neither."""

    column: Reference
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    r"""LIKE or NOT LIKE: ``%`` any text, ``_`` one character, ``\`` before one of these: itself."""

    column: Reference
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """A condition that Arrow evaluates, true, false or null; of it no more is known than the columns it looks at.

    Attributes:
        form: The expression as `arrow_expression` keeps it.
        columns: What it looks at.
        negated: Whether its opposite is meant; null stays null.
    """

    form: bytes
    columns: tuple[Reference, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Junction:
    """AND, or OR, of at least two parts."""

    all_of: bool
    parts: tuple[Predicate, ...]


Leaf = Compare | Among | Null | NotANumber | Like | Applied
Predicate = Constant | Leaf | Junction


def junction(all_of: bool, parts: Iterable[Predicate]) -> Predicate:
    """Return the AND or OR of parts, flattened; what compares one column with = (of OR) or != (of AND) is one leaf."""
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Junction) and part.all_of == all_of else [part])
    flat = _fold(all_of, flat)
    return flat[0] if len(flat) == 1 else Junction(all_of, tuple(flat))


def _fold(all_of: bool, parts: list[Predicate]) -> list[Predicate]:
    """Return parts with all comparisons of a column that IN (of AND: NOT IN) can say in the first one's place."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, part in enumerate(parts):
        if _is_membership(part, all_of):
            places.setdefault(part.column.path, []).append(place)  # type: ignore[union-attr]
    folded: list[Predicate | None] = list(parts)
    for same in places.values():
        if len(same) > 1:
            folded[same[0]] = _union([parts[place] for place in same], negated=all_of)
            for place in same[1:]:
                folded[place] = None
    return [part for part in folded if part is not None]


def _is_membership(part: Predicate, negated: bool) -> bool:
    if isinstance(part, Compare):
        return part.operator == ("!=" if negated else "=")
    return isinstance(part, Among) and part.negated == negated


def _union(parts: Sequence[Predicate], *, negated: bool) -> Among:
    values: dict[pa.Scalar, None] = {}
    with_null = False
    for part in parts:
        if isinstance(part, Among):
            values.update(dict.fromkeys(part.values))
            with_null |= part.with_null
        elif isinstance(part, Compare):
            values[part.value] = None
    return Among(parts[0].column, tuple(values), with_null, negated)  # type: ignore[union-attr]


def balance(parts: Sequence[_Joined], join: Callable[[_Joined, _Joined], _Joined]) -> _Joined:
    """Return at least one part joined two by two: as deep as the logarithm of their number.

    What takes a tree apart goes down into it, in Arrow and Spark on a stack that a chain of thousands overflows.
    """
    level = list(parts)
    while len(level) > 1:
        pairs = [join(level[place], level[place + 1]) for place in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def check_size(node: Predicate) -> None:
    """Check that a tree is no larger than a read can evaluate.

    Raises:
        InvalidFilterError: It has more than `LEAVES_MAX` leaves.
    """
    if (count := sum(1 for _ in leaves(node))) > LEAVES_MAX:
        raise InvalidFilterError(
            f"where: expected at most {LEAVES_MAX} conditions, found {count}; = and != of one column count as one, "
            "as IN does: write values as IN lists, or read a wider range and filter its rows"
        )


def negate(node: Predicate) -> Predicate:
    """Return NOT of a tree, pushed down to its leaves."""
    match node:
        case Constant():
            return Constant(None if node.value is None else not node.value)
        case Junction():
            return Junction(not node.all_of, tuple(negate(part) for part in node.parts))
        case Compare() if pa.types.is_floating(node.column.type) and node.operator in {"<", "<=", ">", ">="}:
            # NOT (NaN > 1) is true, NaN <= 1 is not.
            return Junction(
                False, (Compare(node.column, _OPPOSITE[node.operator], node.value), NotANumber(node.column))
            )
        case Compare():
            return Compare(node.column, _OPPOSITE[node.operator], node.value)
        case _:
            return replace(node, negated=not node.negated)


def leaves(node: Predicate) -> Iterator[Leaf]:
    """Yield the leaves that look at a column."""
    if isinstance(node, Junction):
        for part in node.parts:
            yield from leaves(part)
    elif not isinstance(node, Constant):
        yield node


def column_names(node: Predicate) -> frozenset[str]:
    """Return the names of the columns that a tree looks at."""
    return frozenset(each.column for leaf in leaves(node) for each in references(leaf))


def references(leaf: Leaf) -> tuple[Reference, ...]:
    """Return what a leaf looks at."""
    return leaf.columns if isinstance(leaf, Applied) else (leaf.column,)


def weaken(node: Predicate, unsafe: Callable[[Leaf], bool]) -> Predicate:
    """Return a tree that is true wherever this one is, without some leaves."""
    if isinstance(node, Junction):
        return Junction(node.all_of, tuple(weaken(part, unsafe) for part in node.parts))
    if isinstance(node, Constant):
        return node
    return Constant(True) if unsafe(node) else node


def to_arrow(node: Predicate) -> pc.Expression:
    """Return the tree as an Arrow expression; it is true for exactly the rows for which the tree is."""
    match node:
        case Constant():
            return pc.scalar(bool(node.value))
        case Junction():
            parts = [to_arrow(part) for part in node.parts]
            return balance(parts, (lambda a, b: a & b) if node.all_of else (lambda a, b: a | b))
        case Compare():
            return _COMPARE[node.operator](node.column.field(), pc.scalar(node.value))
        case Among():
            return _membership(node)
        case Null():
            return node.column.field().is_valid() if node.negated else node.column.field().is_null()
        case NotANumber():
            nan = node.column.field().is_nan()
            return ~nan if node.negated else nan
        case Like():
            like = match_pattern(node.column.field(), node.pattern)
            return ~like if node.negated else like
        case Applied():
            expression = expression_of(node.form)
            return ~expression if node.negated else expression


_COMPARE: Final[Mapping[str, Callable[[pc.Expression, pc.Expression], pc.Expression]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _membership(node: Among) -> pc.Expression:
    if node.negated and node.with_null:
        return pc.scalar(False)
    field = node.column.field()
    # As scalars: Python's times end at microseconds.
    values = list(node.values)
    if pa.types.is_floating(node.column.type) and any(value.as_py() == 0 for value in values):
        values += [pa.scalar(zero, node.column.type) for zero in (0.0, -0.0)]  # equal, but two values to `isin`
    # `isin` is false, not null, for a null.
    found = field.isin(pa.array(values, node.column.type)) if values else pc.scalar(False)
    return ~found & field.is_valid() if node.negated else found


def decide(node: Predicate, known: Mapping[str, Any]) -> Predicate:
    """Return the tree with every leaf decided that looks at a column whose value is known (and not null).

    Args:
        node: The tree.
        known: Column names to the value that all rows have.
    """
    if isinstance(node, Junction):
        parts: list[Predicate] = []
        for part in node.parts:
            decided = decide(part, known)
            if isinstance(decided, Constant):
                if bool(decided.value) != node.all_of:
                    return Constant(bool(decided.value))
                continue
            parts.append(decided)
        return junction(node.all_of, parts) if parts else Constant(node.all_of)
    if isinstance(node, Constant) or not all(len(each.path) == 1 and each.column in known for each in references(node)):
        return node
    row = {each.column: pa.array([known[each.column]], each.type) for each in references(node)}
    try:
        return Constant(pa.table(row or {"none": pa.nulls(1)}).filter(to_arrow(node)).num_rows == 1)
    except pa.ArrowException as error:
        raise cannot_apply(error) from error


def cannot_apply(error: pa.ArrowException) -> InvalidFilterError:
    """Return what to raise when Arrow cannot evaluate a filter for some row."""
    return InvalidFilterError(
        f"where: the filter cannot be computed for some row: {str(error)[:200]}; leave such rows out before, CAST to a "
        "wider type, or compute it after the read"
    )


def bounds(node: Predicate, column: str) -> tuple[int | None, int | None]:
    """Return the range ``[low, high]`` outside of which the tree is true for no value of an integer column.

    None stands for no bound. An empty range has ``low > high``.
    """
    match node:
        case Constant():
            return (None, None) if node.value else (1, 0)
        case Junction():
            ranges = [bounds(part, column) for part in node.parts]
            return _intersection(ranges) if node.all_of else _hull(ranges)
        case Compare() if node.column.path == (column,):
            value = int(node.value.as_py())
            return {
                "=": (value, value),
                "<": (None, value - 1),
                "<=": (None, value),
                ">": (value + 1, None),
                ">=": (value, None),
            }.get(node.operator, (None, None))
        case Among() if node.column.path == (column,) and not node.negated:
            values = [int(value.as_py()) for value in node.values]
            return (min(values), max(values)) if values else (1, 0)
        case _:
            return None, None


def _intersection(ranges: list[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    lows = [low for low, _ in ranges if low is not None]
    highs = [high for _, high in ranges if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _hull(ranges: list[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    some = [(low, high) for low, high in ranges if low is None or high is None or low <= high]
    if not some:
        return 1, 0
    lows, highs = [low for low, _ in some], [high for _, high in some]
    low = None if None in lows else min(each for each in lows if each is not None)
    high = None if None in highs else max(each for each in highs if each is not None)
    return low, high


def equal_values(node: Predicate, column: str) -> list[pa.Scalar] | None:
    """Return the only values of a column for which the tree can be true; None when there is no such list."""
    match node:
        case Compare() if node.column.path == (column,) and node.operator == "=":
            return [node.value]
        case Among() if node.column.path == (column,) and not node.negated:
            return list(node.values)
        case Junction():
            found = [equal_values(part, column) for part in node.parts]
            known = [values for values in found if values is not None]
            if node.all_of:
                return min(known, key=len, default=None)
            return (
                list(dict.fromkeys(value for values in known for value in values)) if len(known) == len(found) else None
            )
        case _:
            return None

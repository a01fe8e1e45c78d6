"""Filters as people write them, and as readers need them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import Schema
from fluss_lab.read import predicates as tree
from fluss_lab.read.arrow_filter import predicate_of_arrow
from fluss_lab.read.literals import as_integer, fit
from fluss_lab.read.sql_filter import Tests, parse_sql

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

#: The system columns, in the types in which every read gives them.
SYSTEM_TYPES: Final = {"__bucket": pa.int32(), "__offset": pa.int64(), "__timestamp": pa.timestamp("us", "UTC")}

_LIKE: Final = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
_PLAIN_PREFIX: Final = re.compile(r"(?:[^%_\\]|\\[%_\\])*", re.DOTALL)
_MICROS: Final = {"s": 10**6, "ms": 10**3, "us": 1}


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter: rows for which it is not true are left out.

    Attributes:
        text: As it was written.
        columns: The columns it looks at, of the user's and the system's.
        expression: For Arrow data in the table's own types.
        predicate: What it says, as a tree; None for an Arrow expression beyond the tree's words.
    """

    text: str
    columns: frozenset[str]
    expression: pc.Expression
    predicate: tree.Predicate | None

    def __repr__(self) -> str:
        return f"<Filter {self.text}>"

    @property
    def pushed(self) -> pc.Expression | None:
        """Return what a file reader may filter by itself: true wherever the filter is. None when that is nothing.

        Arrow trusts the statistics of Parquet files, which leave NaN out: by them a NaN can pass for a number. So
        nothing that is said of a FLOAT or DOUBLE is handed over.
        """
        if self.predicate is None:
            return None
        weaker = tree.decide(tree.weakened(self.predicate, _holds_nan), {})
        return None if isinstance(weaker, tree.Constant) and weaker.value else tree.to_arrow(weaker)

    @property
    def left_over(self) -> bool:
        """Tell whether rows that pass `pushed` must be filtered again."""
        return self.predicate is None or any(_holds_nan(leaf.column) for leaf in tree.leaves(self.predicate))

    def prune(self) -> BooleanExpression | None:
        """Return a pyiceberg expression that is true wherever the filter is; None when there is nothing to prune by."""
        if self.predicate is None:
            return None
        pruning = to_iceberg(self.predicate)
        return None if isinstance(pruning, _expressions().AlwaysTrue) else cast("BooleanExpression", pruning)

    def decide(self, known: Mapping[str, Any]) -> Filter | bool:
        """Return what is left of the filter where some columns have one known value; True or False when it is decided.

        Args:
            known: Column names to the value (never null) that all rows at hand have.
        """
        if self.predicate is None:
            return self
        left = tree.decide(self.predicate, known)
        if isinstance(left, tree.Constant):
            return bool(left.value)
        columns = frozenset(leaf.column.column for leaf in tree.leaves(left))
        return replace(self, columns=columns, expression=tree.to_arrow(left), predicate=left)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the filter is true, in the same order."""
        return batch.filter(self.expression) if batch.num_rows else batch


def compile_filter(where: object, schema: Schema) -> Filter | None:
    """Return a filter in the forms that readers need.

    Args:
        where: A pyarrow expression, a pyiceberg expression (unbound), SQL text (the grammar is in
            `fluss_lab.read.sql_filter`), a filter that was made already, or None. It may name the table's columns and
            ``__bucket``, ``__offset``, ``__timestamp``; in SQL in any case.
        schema: The table's.

    Returns:
        None for no filter. SQL and pyiceberg expressions go by SQL's three-valued logic, and a NaN compares by IEEE 754
        (it equals nothing and is neither above nor below); a pyarrow expression goes by Arrow's own rules.

    Raises:
        InvalidFilterError: It cannot be read, names an unknown column, or compares what cannot be compared.
    """
    if where is None or isinstance(where, Filter):
        return where
    types = _types(schema)
    tests = _tests(types)
    if isinstance(where, str):
        return filter_of(parse_sql(where, tests), where)
    if isinstance(where, pc.Expression):
        return _from_arrow(where, types, tests)
    if type(where).__module__.startswith("pyiceberg."):
        return filter_of(_from_iceberg(where, tests), str(where))
    raise InvalidFilterError(
        f"where: expected SQL text, a pyarrow expression or a pyiceberg expression, found {type(where).__name__}"
    )


def _holds_nan(column: tree.Reference) -> bool:
    return bool(pa.types.is_floating(column.type))


def filter_of(node: tree.Predicate, text: str) -> Filter:
    """Return the filter that a tree says; the tree's literals are of their columns' own types."""
    columns = frozenset(leaf.column.column for leaf in tree.leaves(node))
    return Filter(text, columns, tree.to_arrow(node), node)


def _types(schema: Schema) -> dict[str, pa.DataType]:
    return {column.name: column.type.arrow() for column in schema.columns} | SYSTEM_TYPES


# -- checked leaves ---------------------------------------------------------------------------------------------------


def _tests(types: Mapping[str, pa.DataType]) -> Tests:
    return Tests(lambda path: _resolve(path, types), _compare, _among, _like, tree.Null, _nan)


def _resolve(path: tuple[str, ...], types: Mapping[str, pa.DataType]) -> tree.Reference:
    found, dtype = _find(path[0], types.items())
    if dtype is None:
        raise InvalidFilterError(f"filter names an unknown column {path[0]!r}; the columns are {', '.join(types)}")
    names = [found]
    for name in path[1:]:
        fields = [(field.name, field.type) for field in dtype] if pa.types.is_struct(dtype) else []
        found, inner = _find(name, fields)
        if inner is None:
            shown = f"the fields are {', '.join(f[0] for f in fields)}" if fields else f"it is of type {dtype}"
            raise InvalidFilterError(f"filter names an unknown field {name!r} of {'.'.join(names)!r}; {shown}")
        names.append(found)
        dtype = inner
    return tree.Reference(tuple(names), dtype)


def _find(name: str, typed: Iterable[tuple[str, pa.DataType]]) -> tuple[str, pa.DataType | None]:
    """Return the name that is meant: exactly, or the only one in another case."""
    known = dict(typed)
    if name in known:
        return name, known[name]
    near = [other for other in known if other.lower() == name.lower()]
    return (near[0], known[near[0]]) if len(near) == 1 else (name, None)


def _compare(reference: tree.Reference, operator: str, value: Any) -> tree.Predicate:
    fitted = fit(operator, value, reference.type, str(reference))
    if fitted.value is not None:
        return tree.Compare(reference, fitted.operator, fitted.value)
    # Decided for every value; a null stays unknown, and so does its negation: (not) among nothing says just that.
    return tree.Among(reference, (), negated=fitted.always)


def _among(reference: tree.Reference, values: list[Any], with_null: bool) -> tree.Predicate:
    fitted = [fit("=", value, reference.type, str(reference)) for value in values]
    scalars = tuple(dict.fromkeys(each.value for each in fitted if each.value is not None))
    return tree.Among(reference, scalars, with_null)


def _like(reference: tree.Reference, pattern: str) -> tree.Predicate:
    if not pa.types.is_string(reference.type):
        raise InvalidFilterError(f"column {str(reference)!r} of type {reference.type}: LIKE is asked of text only")
    if _LIKE.fullmatch(pattern) is None:
        raise InvalidFilterError(rf"pattern {pattern!r}: expected '\' only before '%', '_' or another '\'")
    return tree.Like(reference, pattern)


def _nan(reference: tree.Reference) -> tree.Predicate:
    if not pa.types.is_floating(reference.type):
        raise InvalidFilterError(
            f"column {str(reference)!r} of type {reference.type}: only FLOAT and DOUBLE can be NaN"
        )
    return tree.NotANumber(reference)


# -- from Arrow -------------------------------------------------------------------------------------------------------


def _from_arrow(where: pc.Expression, types: Mapping[str, pa.DataType], tests: Tests) -> Filter:
    text = str(where)
    if "FieldPath(" in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        raise InvalidFilterError(f"filter {text}: columns are named, not numbered: use pc.field('name')")
    empty = pa.schema(list(types.items())).empty_table()
    try:
        empty.filter(where)
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError) as error:
        reason = str(error).split(" in ")[0] if "No match for" in str(error) else str(error)
        raise InvalidFilterError(f"filter {text}: {reason}; the columns are {', '.join(types)}") from error
    columns = _needed(where, empty)
    return Filter(text, columns, where, predicate_of_arrow(where, tests))


def _needed(where: pc.Expression, empty: pa.Table) -> frozenset[str]:
    """Return the columns an expression looks at: those without which it cannot be bound, by halving."""

    def bound_without(dropped: list[str]) -> bool:
        try:
            empty.drop_columns(dropped).filter(where)
        except (pa.ArrowException, NotImplementedError, TypeError, ValueError):
            return False
        return True

    needed: set[str] = set()
    pending = [empty.column_names]
    while pending:
        names = pending.pop()
        if bound_without(names):
            continue
        if len(names) == 1:
            needed.add(names[0])
        else:
            half = len(names) // 2
            pending += [names[:half], names[half:]]
    return frozenset(needed)


# -- from and to pyiceberg --------------------------------------------------------------------------------------------


def _expressions() -> Any:
    """Return pyiceberg's expressions; their constructors' types are those of their JSON form, so they go untyped."""
    from pyiceberg import expressions

    return expressions


def _from_iceberg(where: Any, tests: Tests) -> tree.Predicate:
    ice = _expressions()
    match where:
        case ice.AlwaysTrue():
            return tree.Constant(True)
        case ice.AlwaysFalse():
            return tree.Constant(False)
        case ice.And() | ice.Or():
            parts = [_from_iceberg(where.left, tests), _from_iceberg(where.right, tests)]
            return tree.junction(isinstance(where, ice.And), parts)
        case ice.Not():
            return tree.negate(_from_iceberg(where.child, tests))
    if not isinstance(where, ice.UnboundPredicate) or not isinstance(where.term, ice.Reference):
        raise InvalidFilterError(f"filter {where}: expected an unbound pyiceberg expression over columns")
    reference = tests.column(tuple(where.term.name.split(".")))
    return _iceberg_leaf(where, reference, tests)


def _iceberg_leaf(where: Any, reference: tree.Reference, tests: Tests) -> tree.Predicate:
    ice = _expressions()
    operators: dict[type, str] = {
        ice.EqualTo: "=", ice.NotEqualTo: "!=", ice.LessThan: "<", ice.LessThanOrEqual: "<=",
        ice.GreaterThan: ">", ice.GreaterThanOrEqual: ">=",
    }  # fmt: skip
    unary: dict[type, Callable[[], tree.Predicate]] = {
        ice.IsNull: lambda: tests.null(reference),
        ice.NotNull: lambda: tree.negate(tests.null(reference)),
        ice.IsNaN: lambda: tests.nan(reference),
        ice.NotNaN: lambda: tree.negate(tests.nan(reference)),
    }
    kind = type(where)
    if kind in operators:
        return tests.compare(reference, operators[kind], _iceberg_value(where.literal))
    if kind in unary:
        return unary[kind]()
    if kind in {ice.In, ice.NotIn}:
        node = tests.among(reference, [_iceberg_value(literal) for literal in where.literals], False)
        return node if kind is ice.In else tree.negate(node)
    if kind in {ice.StartsWith, ice.NotStartsWith}:
        escaped = re.sub(r"([%_\\])", r"\\\1", str(where.literal.value))
        node = tests.like(reference, escaped + "%")
        return node if kind is ice.StartsWith else tree.negate(node)
    raise InvalidFilterError(f"filter {where}: {kind.__name__} is not supported")


def _iceberg_value(literal: Any) -> Any:
    """Return a pyiceberg literal as what it was made from: it keeps times as numbers."""
    name = type(literal).__name__
    if name == "DateLiteral":
        return date(1970, 1, 1) + timedelta(days=literal.value)
    if name == "TimestampLiteral":
        return datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(microseconds=literal.value)
    if name == "TimeLiteral":
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=literal.value)
        return time(moment.hour, moment.minute, moment.second, moment.microsecond)
    return literal.value


def to_iceberg(node: tree.Predicate) -> Any:
    """Return a pyiceberg expression that is true wherever the tree is, for pruning by statistics."""
    ice = _expressions()
    match node:
        case tree.Constant():
            return ice.AlwaysTrue() if node.value else ice.AlwaysFalse()
        case tree.Junction():
            parts = [to_iceberg(part) for part in node.parts]
            return reduce(ice.And if node.all_of else ice.Or, parts)
        case tree.Null():
            return (ice.NotNull if node.negated else ice.IsNull)(str(node.column))
        case tree.Compare() if (value := _iceberg_literal(node.value)) is not None:
            kinds = {"=": ice.EqualTo, "<": ice.LessThan, "<=": ice.LessThanOrEqual,
                     ">": ice.GreaterThan, ">=": ice.GreaterThanOrEqual}  # fmt: skip
            kind = kinds.get(node.operator)
            return kind(str(node.column), value) if kind else ice.AlwaysTrue()
        case tree.Among() if not node.negated:
            values = [_iceberg_literal(value) for value in node.values]
            if not values:
                return ice.AlwaysFalse()
            return ice.AlwaysTrue() if None in values else ice.In(str(node.column), values)
        case tree.Like() if not node.negated:
            match = _PLAIN_PREFIX.match(node.pattern)
            prefix = re.sub(r"\\(.)", r"\1", match[0], flags=re.DOTALL) if match else ""
            return ice.StartsWith(str(node.column), prefix) if prefix else ice.AlwaysTrue()
        case _:
            return ice.AlwaysTrue()


def _iceberg_literal(value: pa.Scalar) -> Any:
    """Return a literal as pyiceberg binds it to the column's Iceberg type; None when it cannot be."""
    dtype = value.type
    if pa.types.is_date(dtype):
        return as_integer(value)
    if pa.types.is_time(dtype) or pa.types.is_timestamp(dtype):
        return None if dtype.unit == "ns" else as_integer(value) * _MICROS[dtype.unit]
    return value.as_py()

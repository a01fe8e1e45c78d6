"""Filters from and to pyiceberg's expressions: what others hand in, and what files are pruned by."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter import predicates as tree
from fluss_lab.read.filter.typed_conditions import Conditions, as_integer

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

#: Files are pruned in Python, leaf by leaf: by larger filters they are not.
PRUNING_LEAVES_MAX: Final = 500
_DEPTH_MAX: Final = 100
_PLAIN_PREFIX: Final = re.compile(r"(?:[^%_\\]|\\[%_\\])*", re.DOTALL)
_MICROS: Final = {"s": 10**6, "ms": 10**3, "us": 1}
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)


def _expressions() -> Any:
    """Return pyiceberg's expressions; their constructors' types are those of their JSON form, so they go untyped."""
    from pyiceberg import expressions

    return expressions


def predicate_of_iceberg(where: Any, conditions: Conditions, depth: int = 0) -> tree.Predicate:
    """Return what an unbound pyiceberg expression says.

    Raises:
        InvalidFilterError: It is bound, transforms a column, names no column, or compares what cannot be compared.
    """
    ice = _expressions()
    if depth > _DEPTH_MAX:
        raise InvalidFilterError(f"where: expected at most {_DEPTH_MAX} levels of And, Or and Not within each other")
    match where:
        case ice.AlwaysTrue():
            return tree.Constant(True)
        case ice.AlwaysFalse():
            return tree.Constant(False)
        case ice.And() | ice.Or():
            parts = [predicate_of_iceberg(part, conditions, depth + 1) for part in _chain(where)]
            return tree.junction(isinstance(where, ice.And), parts)
        case ice.Not():
            return tree.negate(predicate_of_iceberg(where.child, conditions, depth + 1))
    if not isinstance(where, ice.UnboundPredicate) or not isinstance(where.term, ice.Reference):
        raise InvalidFilterError(
            f"filter {str(where)[:200]}: expected an unbound pyiceberg expression over columns, found "
            f"{type(where).__name__}"
        )
    return _leaf(where, conditions.column(where.term.name.split(".")), conditions)


def _chain(where: Any) -> list[Any]:
    """Return the parts of a chain of one connective, in order: pyiceberg makes one of pairs, as deep as it is long."""
    parts, pending = [], [where]
    while pending:
        each = pending.pop()
        if type(each) is type(where):
            pending += [each.right, each.left]
        else:
            parts.append(each)
    return parts


def _leaf(where: Any, reference: tree.Reference, conditions: Conditions) -> tree.Predicate:
    ice = _expressions()
    operators: dict[type, str] = {
        ice.EqualTo: "=", ice.NotEqualTo: "!=", ice.LessThan: "<", ice.LessThanOrEqual: "<=",
        ice.GreaterThan: ">", ice.GreaterThanOrEqual: ">=",
    }  # fmt: skip
    unary: dict[type, Callable[[], tree.Predicate]] = {
        ice.IsNull: lambda: conditions.null(reference),
        ice.NotNull: lambda: tree.negate(conditions.null(reference)),
        ice.IsNaN: lambda: conditions.nan(reference),
        ice.NotNaN: lambda: tree.negate(conditions.nan(reference)),
    }
    kind = type(where)
    if kind in operators:
        return conditions.compare(reference, operators[kind], _value(where.literal))
    if kind in unary:
        return unary[kind]()
    if kind in {ice.In, ice.NotIn}:
        node = conditions.is_in(reference, [_value(literal) for literal in where.literals], False)
        return node if kind is ice.In else tree.negate(node)
    if kind in {ice.StartsWith, ice.NotStartsWith}:
        node = conditions.starts_with(reference, str(where.literal.value))
        return node if kind is ice.StartsWith else tree.negate(node)
    raise InvalidFilterError(f"filter {where}: {kind.__name__} is not supported")


def _value(literal: Any) -> Any:
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


def pruning_of(node: tree.Predicate) -> BooleanExpression | None:
    """Return a pyiceberg expression that is true wherever a tree is, for pruning by statistics; None: nothing to prune by."""
    if sum(1 for _ in tree.leaves(node)) > PRUNING_LEAVES_MAX:
        return None
    pruning = _pruning(node)
    return None if isinstance(pruning, _expressions().AlwaysTrue) else cast("BooleanExpression", pruning)


def _pruning(node: tree.Predicate) -> Any:
    ice = _expressions()
    match node:
        case tree.Constant():
            return ice.AlwaysTrue() if node.value else ice.AlwaysFalse()
        case tree.Junction():
            return tree.balance([_pruning(part) for part in node.parts], ice.And if node.all_of else ice.Or)
        case tree.Null() if not node.negated and len(node.column.path) > 1:
            return ice.AlwaysTrue()  # to pyiceberg a NOT NULL field is never null, within a null ROW it is
        case tree.Null():
            return (ice.NotNull if node.negated else ice.IsNull)(str(node.column))
        case tree.Compare():
            return _comparison(node)
        case tree.Among() if not node.negated:
            if not node.values:
                return ice.AlwaysFalse()
            values = [_literal(value) for value in node.values]
            return ice.AlwaysTrue() if None in values else ice.In(str(node.column), values)
        case tree.Like() if not node.negated:
            match = _PLAIN_PREFIX.match(node.pattern)
            prefix = re.sub(r"\\(.)", r"\1", match[0], flags=re.DOTALL) if match else ""
            return ice.StartsWith(str(node.column), prefix) if prefix else ice.AlwaysTrue()
        case _:
            return ice.AlwaysTrue()


def _comparison(node: tree.Compare) -> Any:
    ice = _expressions()
    kinds = {"=": ice.EqualTo, "<": ice.LessThan, "<=": ice.LessThanOrEqual,
             ">": ice.GreaterThan, ">=": ice.GreaterThanOrEqual}  # fmt: skip
    kind = kinds.get(node.operator)
    if kind is None:
        return ice.AlwaysTrue()
    if (value := _literal(node.value)) is not None:
        return kind(str(node.column), value)
    if not pa.types.is_float32(node.value.type):
        return ice.AlwaysTrue()
    # An infinity. What is at or beyond it lies beyond the largest number; everything may lie before it.
    if node.value.as_py() > 0:
        return (
            ice.GreaterThanOrEqual(str(node.column), _FLOAT_MAX)
            if node.operator in {"=", ">", ">="}
            else ice.AlwaysTrue()
        )
    return ice.LessThanOrEqual(str(node.column), -_FLOAT_MAX) if node.operator in {"=", "<", "<="} else ice.AlwaysTrue()


def _literal(value: pa.Scalar) -> Any:
    """Return a literal as pyiceberg binds it to the column's Iceberg type; None when it cannot be.

    An infinity for a FLOAT it takes for a DOUBLE beyond all FLOATs, which no row is at or above.
    """
    dtype = value.type
    if pa.types.is_date(dtype):
        return as_integer(value)
    if pa.types.is_time(dtype) or pa.types.is_timestamp(dtype):
        return None if dtype.unit == "ns" else as_integer(value) * _MICROS[dtype.unit]
    if pa.types.is_float32(dtype) and not isfinite(value.as_py()):
        return None
    return value.as_py()

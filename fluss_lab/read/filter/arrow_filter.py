"""Arrow expressions as trees of predicates.

Comparisons of a column with a literal mean exactly what they mean in SQL text (`fluss_lab.read.filter.typed_conditions`): no side is
rounded. What the words of `predicates` cannot say stays a part that Arrow evaluates as it is; all around it is understood.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.arrow_expression import ExpressionForm, Node, expression_of
from fluss_lab.read.filter.predicates import Applied, Constant, Null, Predicate, Reference, junction, negate
from fluss_lab.read.filter.typed_conditions import Conditions

#: Levels of AND within OR within NOT; chains of one of them are one level.
DEPTH_MAX: Final = 100
#: Longer lists of `isin` are left to Arrow, which looks values up by hash.
MEMBERS_MAX: Final = 1_000
#: Levels of functions within functions in a part that Arrow evaluates: it goes down into it.
COMPUTED_DEPTH_MAX: Final = 1_000

_OPERATORS: Final = {
    "equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MATCH: Final = 0  # of SetLookupOptions: a null is found among nulls


def predicate_of_arrow(form: ExpressionForm, conditions: Conditions, empty: pa.Table) -> Predicate:
    """Return what an Arrow expression says.

    Args:
        form: The expression, written out.
        conditions: Over the table's columns.
        empty: The table's columns without rows, to check parts that Arrow evaluates.

    Raises:
        InvalidFilterError: It names no column of the table, is no condition, or compares what cannot be compared.
    """
    return _Reading(form, conditions, empty).predicate(form.root, 0)


class _Reading:
    def __init__(self, form: ExpressionForm, conditions: Conditions, empty: pa.Table) -> None:
        self.form = form
        self.conditions = conditions
        self.empty = empty

    def column(self, path: tuple[str, ...]) -> Reference:
        return self.conditions.column(path, exactly=True)

    def predicate(self, node: Node, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise InvalidFilterError(f"where: expected at most {DEPTH_MAX} levels of &, | and ~ within each other")
        match node.name:
            case "and_kleene" | "or_kleene":
                parts = [self.predicate(part, depth + 1) for part in _chain(node)]
                return junction(node.name == "and_kleene", parts)
            case "invert":
                return negate(self.predicate(node.arguments[0], depth + 1))
        try:
            said = self.leaf(node)
        except InvalidFilterError:
            # Such a literal does not fit such a column by our rules; whether it does by Arrow's, Arrow says.
            said = None
        return self.apply(node) if said is None else said

    def leaf(self, node: Node) -> Predicate | None:
        """Return what a part says in the words of `predicates`; None when it is beyond them."""
        if node.literal is not None:
            return Constant(node.literal.as_py()) if pa.types.is_boolean(node.literal.type) else None
        if node.path:
            reference = self.column(node.path)
            return self.conditions.compare(reference, "=", True) if pa.types.is_boolean(reference.type) else None
        if node.name in _OPERATORS:
            return self.comparison(node)
        if not node.arguments or not node.arguments[0].path:
            return None
        reference = self.column(node.arguments[0].path)
        match node.name:
            case "is_null" if not _option(node, "nan_is_null", False):
                return self.conditions.null(reference)
            case "is_valid":
                return negate(self.conditions.null(reference))
            case "is_nan":
                return self.conditions.nan(reference)
            case "is_in":
                return self.members(reference, node)
            case "starts_with" | "match_like" if not _option(node, "ignore_case", False):
                pattern = str(_option(node, "pattern", ""))
                said = self.conditions.starts_with if node.name == "starts_with" else self.conditions.like
                return said(reference, pattern)
        return None

    def comparison(self, node: Node) -> Predicate | None:
        left, right = node.arguments
        operator = _OPERATORS[node.name]
        if left.literal is not None:
            left, right, operator = right, left, _MIRROR[operator]
        if not left.path or right.literal is None:
            return None
        reference = self.column(left.path)
        if not right.literal.is_valid:
            return Constant(None)
        if not _comparable(reference.type, right.literal.type):
            return None
        return self.conditions.compare(reference, operator, right.literal)

    def members(self, reference: Reference, node: Node) -> Predicate | None:
        """Return what ``isin`` says: unlike SQL's IN it is false, not unknown, for a null; or true with a null among them."""
        if node.options is None or _option(node, "null_matching_behavior", None) != _MATCH:
            return None
        found = node.options["value_set"].values
        if len(found) > MEMBERS_MAX:
            return self.many_members(reference, found, node)
        values = list(found)
        some = [value for value in values if value.is_valid]
        if not all(_comparable(reference.type, value.type) for value in some):
            return None
        if pa.types.is_floating(reference.type) and not all(_is_plain(value.as_py()) for value in some):
            return None  # to Arrow's `is_in`, 0.0 and -0.0 are two values, and NaN is one
        among = self.conditions.is_in(reference, some, False)
        null = Null(reference)
        return junction(False, [among, null]) if len(some) < len(values) else junction(True, [among, negate(null)])

    def many_members(self, reference: Reference, values: pa.Array, node: Node) -> Predicate | None:
        """Return ``isin`` of a long list as Arrow evaluates it, and the range that files are pruned by."""
        if values.null_count or pa.types.is_floating(reference.type):
            return None
        try:
            ends = pc.min_max(values.cast(reference.type))
        except (pa.ArrowException, NotImplementedError):
            return None
        low = self.conditions.compare(reference, ">=", ends["min"])
        return junction(True, [low, self.conditions.compare(reference, "<=", ends["max"]), self.apply(node)])

    def apply(self, node: Node) -> Predicate:
        """Return a part as it is, checked by Arrow."""
        paths = _paths(node)
        form = self.form.part(node)
        expression = expression_of(form)
        try:
            self.empty.filter(expression)
        except (pa.ArrowException, NotImplementedError, TypeError, ValueError) as error:
            reason = str(error).split(" in ")[0] if "No match for" in str(error) else str(error)
            raise InvalidFilterError(
                f"where, in {_shorten(str(expression))}: {reason[:300]}; the columns are {', '.join(self.empty.column_names)}"
            ) from error
        return Applied(form, tuple(self.column(path) for path in paths))


def _chain(node: Node) -> list[Node]:
    """Return the parts of a chain of one connective, in order, however it was put together."""
    parts: list[Node] = []
    pending = [node]
    while pending:
        each = pending.pop()
        if each.name == node.name:
            pending += reversed(each.arguments)
        else:
            parts.append(each)
    return parts


def _paths(node: Node) -> list[tuple[str, ...]]:
    """Return the fields that a part looks at, each once."""
    paths: dict[tuple[str, ...], None] = {}
    pending = [(node, 0)]
    while pending:
        each, depth = pending.pop()
        if depth > COMPUTED_DEPTH_MAX:
            raise InvalidFilterError(
                f"where: expected at most {COMPUTED_DEPTH_MAX} levels of functions within functions"
            )
        if each.path:
            paths[each.path] = None
        pending += [(argument, depth + 1) for argument in each.arguments]
    return list(paths)


def _option(node: Node, name: str, default: Any) -> Any:
    return default if node.options is None else node.options[name].as_py()


def _is_plain(value: Any) -> bool:
    return bool(abs(value) > 0)  # not of NaN


def _comparable(column: pa.DataType, literal: pa.DataType) -> bool:
    """Return whether a literal is of the column's kind; text is not a date here."""
    kinds = (
        pa.types.is_boolean,
        lambda each: pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_decimal(each),
        lambda each: pa.types.is_string(each) or pa.types.is_large_string(each),
        lambda each: pa.types.is_binary(each) or pa.types.is_large_binary(each) or pa.types.is_fixed_size_binary(each),
        pa.types.is_date32,
        pa.types.is_time,
        lambda each: pa.types.is_timestamp(each) and each.tz is None,
        lambda each: pa.types.is_timestamp(each) and each.tz is not None,
    )
    return any(kind(column) and kind(literal) for kind in kinds)


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Filters as SQL text: a WHERE clause over one table.

Grammar (keywords in any case; what binds more closely stands lower)::

    or      := and (OR and)*            and  := not (AND not)*          not := NOT not | test
    test    := value [op value | [NOT] IN '(' value, ... ')' | [NOT] BETWEEN value AND value | [NOT] LIKE text
             | IS [NOT] NULL | IS [NOT] NAN | IS [NOT] (TRUE | FALSE)]
    op      := = == != <> < <= > >=
    value   := sum ('||' sum)*          sum  := product (('+' | '-') product)*     product := sign (('*' | '/' | '%') sign)*
    sign    := '-' sign | '+' sign | literal | column | function '(' value, ... ')' | CAST '(' value AS type ')' | '(' or ')'
    literal := number | 'text' | X'00ff' | TRUE | FALSE | NULL | DATE 'text' | TIME 'text' | TIMESTAMP 'text'
    column  := name | "name" | `name`, with dots into ROW columns

A column compared with a literal keeps the comparison's truth whatever the literal (`fluss_lab.read.filter.filter_literals`), and prunes
files. A literal of a TIMESTAMP column has no zone; of a TIMESTAMP_LTZ column one without a zone is in UTC. What is computed
(`fluss_lab.read.filter.sql_terms` and `sql_functions`) is compared row by row. Logic is three-valued; NaN compares by IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidFilterError, InvalidSchemaError
from fluss_lab.model.types import DataType
from fluss_lab.read.filter import sql_terms
from fluss_lab.read.filter.filter_literals import fit_literal
from fluss_lab.read.filter.predicates import Applied, Constant, Predicate, Reference, junction, negate
from fluss_lab.read.filter.sql_functions import function
from fluss_lab.read.filter.sql_syntax import Node, parse_text, syntax_error
from fluss_lab.read.filter.sql_terms import Term
from fluss_lab.read.filter.substrait_form import form_of
from fluss_lab.read.filter.typed_conditions import Conditions, checked_pattern

_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARROW: Final[dict[str, Callable[..., Any]]] = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_CONDITIONS: Final = frozenset(
    {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NAN", "IS TRUE", "IS FALSE", *_MIRROR}
)


def parse_sql(text: str, conditions: Conditions) -> Predicate:
    """Return what a WHERE clause says.

    Raises:
        InvalidFilterError: It cannot be read, or a column or literal does not fit; the message shows the place.
    """
    return _Reading(text, conditions).predicate(parse_text(text))


class _Reading:
    def __init__(self, text: str, conditions: Conditions) -> None:
        self.text = text
        self.conditions = conditions

    def predicate(self, node: Node) -> Predicate:
        if node.kind == "call" and node.name in {"AND", "OR"}:
            return junction(node.name == "AND", [self.predicate(part) for part in node.arguments])
        if node.kind == "call" and node.name == "NOT":
            return negate(self.predicate(node.arguments[0]))
        try:
            return self.test(node)
        except InvalidFilterError as error:
            raise syntax_error(self.text, node.at, node.end, str(error)) from error

    def test(self, node: Node) -> Predicate:
        given = node.arguments
        match node.name:
            case "=" | "!=" | "<" | "<=" | ">" | ">=":
                return self.compared(node.name, given[0], given[1])
            case "IN":
                return self.members(given[0], given[1:])
            case "BETWEEN":
                return junction(
                    True, [self.compared(">=", given[0], given[1]), self.compared("<=", given[0], given[2])]
                )
            case "LIKE":
                return self.like(given[0], given[1])
            case "IS NULL":
                return self.null(given[0])
            case "IS NAN":
                return self.nan(given[0])
            case "IS TRUE" | "IS FALSE":
                holds = self.compared("=", given[0], Node("literal", 0, 0, value=node.name == "IS TRUE"))
                # Never unknown: a null is neither.
                return junction(True, [holds, negate(self.null(given[0]))])
        return self.alone(node)

    def alone(self, node: Node) -> Predicate:
        """Return a value that is a condition itself."""
        if node.name == "starts_with" and (prefix := self.prefix(node)) is not None:
            return prefix
        if (reference := self.column(node)) is not None and pa.types.is_boolean(reference.type):
            return self.conditions.compare(reference, "=", True)
        term = self.term(node)
        if pa.types.is_null(term.type):
            return Constant(None)
        if not pa.types.is_boolean(term.type):
            raise InvalidFilterError(
                f"expected a comparison after {self.text[node.at : node.end][:40]!r}: it is no condition"
            )
        return _applied(term)

    def prefix(self, node: Node) -> Predicate | None:
        if len(node.arguments) != 2 or (reference := self.column(node.arguments[0])) is None:
            return None
        value = node.arguments[1].value
        return self.conditions.starts_with(reference, value) if isinstance(value, str) else None

    def column(self, node: Node) -> Reference | None:
        return self.conditions.column(node.path) if node.kind == "column" else None

    # -- comparisons --------------------------------------------------------------------------------------------------

    def compared(self, operator: str, left: Node, right: Node) -> Predicate:
        if left.kind != "column" and right.kind == "column":
            left, right, operator = right, left, _MIRROR[operator]
        reference = self.column(left)
        if reference is not None and right.kind == "literal":
            return Constant(None) if right.value is None else self.conditions.compare(reference, operator, right.value)
        other = self.term(right)
        if reference is not None and other.is_constant and _is_fit(reference, other):
            if not other.sample.is_valid:
                return Constant(None)
            return self.conditions.compare(reference, operator, other.sample)
        return _comparison(operator, self.term(left), other)

    def members(self, left: Node, values: list[Node]) -> Predicate:
        reference = self.column(left)
        if reference is not None and all(each.kind == "literal" for each in values):
            some = [each.value for each in values if each.value is not None]
            return self.conditions.among(reference, some, len(some) < len(values))
        return junction(False, [self.compared("=", left, each) for each in values])

    def like(self, left: Node, right: Node) -> Predicate:
        if right.kind != "literal" or not isinstance(right.value, str):
            raise InvalidFilterError("expected a pattern in single quotes after LIKE")
        if (reference := self.column(left)) is not None:
            return self.conditions.like(reference, right.value)
        term = self.term(left)
        if sql_terms.type_kind(term.type) not in {"text", "NULL"}:
            raise InvalidFilterError(f"LIKE is asked of text only, found {sql_terms.type_kind(term.type)}")
        return _applied(
            sql_terms.call(pc.match_like, sql_terms.cast(term, pa.string()), pattern=checked_pattern(right.value))
        )

    def null(self, node: Node) -> Predicate:
        if (reference := self.column(node)) is not None:
            return self.conditions.null(reference)
        return _applied(sql_terms.call(pc.is_null, self.term(node)))

    def nan(self, node: Node) -> Predicate:
        if (reference := self.column(node)) is not None:
            return self.conditions.nan(reference)
        term = self.term(node)
        if sql_terms.type_kind(term.type) != "a double":
            raise InvalidFilterError(f"only FLOAT and DOUBLE can be NaN, found {sql_terms.type_kind(term.type)}")
        return _applied(sql_terms.call(pc.is_nan, term))

    # -- values -------------------------------------------------------------------------------------------------------

    def term(self, node: Node) -> Term:
        if node.kind == "literal":
            return sql_terms.literal(node.value)
        if (reference := self.column(node)) is not None:
            return sql_terms.column(reference)
        if node.name in _CONDITIONS:
            raise InvalidFilterError(f"expected a value, found the condition {self.text[node.at : node.end][:40]!r}")
        given = [self.term(each) for each in node.arguments]
        match node.name:
            case "+" | "-" | "*" | "/" | "%":
                return sql_terms.compute(node.name, given[0], given[1])
            case "SIGN -":
                return sql_terms.compute("-", sql_terms.literal(0), given[0])
            case "SIGN +":
                return sql_terms.compute("+", sql_terms.literal(0), given[0])
            case "||":
                return function("concat", given)
            case "CAST":
                return sql_terms.cast(given[0], _type(node.value))
        return function(node.name, given)


def _type(text: str) -> pa.DataType:
    try:
        return DataType.parse(text).arrow()
    except InvalidSchemaError as error:
        raise InvalidFilterError(str(error)) from error


def _is_fit(reference: Reference, other: Term) -> bool:
    """Tell whether a column can be compared with a constant as with a literal."""
    one, two = sql_terms.type_kind(reference.type), sql_terms.type_kind(other.type)
    numbers = {"a whole number", "a decimal", "a double"}
    return two in {"NULL", one} or {one, two} <= numbers


def _comparison(operator: str, left: Term, right: Term) -> Predicate:
    if left.written and not right.written:
        left, right, operator = right, left, _MIRROR[operator]
    if right.written and not left.written:
        if right.value is None or pa.types.is_null(left.type):
            return Constant(None)
        fitted = fit_literal(operator, right.value, left.type, "computed")
        if fitted.value is not None:
            return _applied(sql_terms.call(_ARROW[fitted.operator], left, sql_terms.constant(fitted.value)))
        decided = sql_terms.constant(pa.scalar(fitted.always))
        unknown = sql_terms.constant(pa.scalar(None, pa.bool_()))
        return _applied(sql_terms.call(pc.if_else, sql_terms.call(pc.is_valid, left), decided, unknown))
    left, right = sql_terms.alike([left, right])
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return Constant(None)
    return _applied(sql_terms.call(_ARROW[operator], left, right))


def _applied(term: Term) -> Predicate:
    if term.is_constant:
        return Constant(term.sample.as_py())
    return Applied(form_of(term.expression), term.columns)

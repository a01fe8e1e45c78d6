"""WHERE clauses: the SQL text of a filter, over one table, as a tree of predicates.

Grammar (keywords in any case; what binds more closely stands lower)::

    or      := and (OR and)*            and  := not (AND not)*          not := NOT not | test
    test    := value [op value | [NOT] IN '(' value, ... ')' | [NOT] BETWEEN value AND value | [NOT] LIKE text
             | IS [NOT] NULL | IS [NOT] NAN | IS [NOT] (TRUE | FALSE)]
    op      := = == != <> < <= > >=
    value   := sum ('||' sum)*          sum  := product (('+' | '-') product)*     product := sign (('*' | '/' | '%') sign)*
    sign    := '-' sign | '+' sign | literal | column | function '(' value, ... ')' | CAST '(' value AS type ')' | '(' or ')'
    literal := number | 'text' | X'00ff' | TRUE | FALSE | NULL | DATE 'text' | TIME 'text' | TIMESTAMP 'text'
    column  := name | "name" | `name`, with dots into ROW columns

A column compared with a literal keeps the comparison's truth whatever the literal (`fluss_lab.read.filter.typed_conditions`), and prunes
files. A literal of a TIMESTAMP column has no zone; of a TIMESTAMP_LTZ column one without a zone is in UTC. What is computed
(`fluss_lab.read.filter.computed_values` and `sql_functions`) is compared row by row. Logic is three-valued; NaN compares by IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from fluss_lab.errors import InvalidFilterError, InvalidSchemaError
from fluss_lab.model.types import DataType
from fluss_lab.read.filter import computed_values
from fluss_lab.read.filter.arrow_expression import form_of
from fluss_lab.read.filter.computed_values import Term
from fluss_lab.read.filter.predicates import Applied, Constant, Predicate, Reference, junction, negate
from fluss_lab.read.filter.sql_functions import function
from fluss_lab.read.filter.sql_parser import DEPTH_MAX, parse_condition, span, syntax_error
from fluss_lab.read.filter.text_patterns import match_pattern
from fluss_lab.read.filter.typed_conditions import Conditions, checked_pattern, fit_literal

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_COMPUTED: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_CONDITIONS: Final = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.In, exp.Between, exp.Like, exp.Is)
_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARROW: Final[dict[str, Callable[..., Any]]] = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
#: What a part is that is no literal.
_NO_LITERAL: Final = object()


def parse_sql(text: str, conditions: Conditions) -> Predicate:
    """Return what a WHERE clause says.

    Raises:
        InvalidFilterError: It cannot be read, or a column or literal does not fit; the message shows the place.
    """
    return _Reading(text, conditions).predicate(parse_condition(text))


class _Reading:
    def __init__(self, text: str, conditions: Conditions) -> None:
        self.text = text
        self.conditions = conditions

    def show(self, node: exp.Expr) -> str:
        """Return how a part is written, for messages."""
        at, end = span(self.text, node)
        return repr(self.text[at:end][:40])

    def predicate(self, node: exp.Expr) -> Predicate:
        node = _bare(node)
        if isinstance(node, exp.And | exp.Or):
            return junction(isinstance(node, exp.And), [self.predicate(part) for part in _chain(node)])
        if isinstance(node, exp.Not):
            return negate(self.predicate(node.this))
        try:
            test = self.test(node)
        except InvalidFilterError as error:
            raise syntax_error(self.text, *span(self.text, node), str(error)) from error
        return negate(test) if node.args.get("negate") else test  # sqlglot marks NOT LIKE so

    def test(self, node: exp.Expr) -> Predicate:
        left = _bare(node.this) if isinstance(node, _CONDITIONS) else node
        if operator := _COMPARISONS.get(type(node)):
            return self.compare(operator, left, _bare(node.expression))
        if isinstance(node, exp.In):
            return self.members(left, [_bare(each) for each in node.expressions])
        if isinstance(node, exp.Between):
            low, high = _bare(node.args["low"]), _bare(node.args["high"])
            return junction(True, [self.compare(">=", left, low), self.compare("<=", left, high)])
        if isinstance(node, exp.Like):
            return self.like(left, _bare(node.expression))
        if isinstance(node, exp.Is):
            if isinstance(node.expression, exp.Null):  # how sqlglot reads `a NOT NULL`
                raise InvalidFilterError("expected IN, BETWEEN or LIKE after NOT, found NULL")
            return self.state(left, node.expression.name)
        return self.alone(node)

    def state(self, left: exp.Expr, word: str) -> Predicate:
        """Return what IS says."""
        if word == "NULL":
            return self.null(left)
        if word == "NAN":
            return self.nan(left)
        holds = self.compare("=", left, exp.Boolean(this=word == "TRUE"))
        # Never unknown: a null is neither.
        return junction(True, [holds, negate(self.null(left))])

    def alone(self, node: exp.Expr) -> Predicate:
        """Return a value that is a condition itself."""
        if (prefix := self.prefix(node)) is not None:
            return prefix
        if (reference := self.column(node)) is not None and pa.types.is_boolean(reference.type):
            return self.conditions.compare(reference, "=", True)
        term = self.term(node)
        if pa.types.is_null(term.type):
            return Constant(None)
        if not pa.types.is_boolean(term.type):
            raise InvalidFilterError(f"expected a comparison after {self.show(node)}: it is no condition")
        return _apply(term)

    def prefix(self, node: exp.Expr) -> Predicate | None:
        if not isinstance(node, exp.Anonymous) or node.name.lower() != "starts_with" or len(node.expressions) != 2:
            return None
        reference, value = self.column(_bare(node.expressions[0])), _literal(_bare(node.expressions[1]))
        return self.conditions.starts_with(reference, value) if reference and isinstance(value, str) else None

    def column(self, node: exp.Expr) -> Reference | None:
        path = _path(node)
        try:
            return self.conditions.column(path) if path else None
        except InvalidFilterError as error:
            if self.text[span(self.text, node)[0]] != '"':
                raise
            raise InvalidFilterError(f"{error}; double quotes are those of names, a text has single ones") from error

    # -- comparisons --------------------------------------------------------------------------------------------------

    def compare(self, operator: str, left: exp.Expr, right: exp.Expr) -> Predicate:
        if not _path(left) and _path(right):
            left, right, operator = right, left, _MIRROR[operator]
        reference = self.column(left)
        if reference is not None and (value := _literal(right)) is not _NO_LITERAL:
            return Constant(None) if value is None else self.conditions.compare(reference, operator, value)
        other = self.term(right)
        if reference is not None and other.is_constant and _is_fit(reference, other):
            if not other.sample.is_valid:
                return Constant(None)
            return self.conditions.compare(reference, operator, other.sample)
        return _comparison(operator, self.term(left), other)

    def members(self, left: exp.Expr, values: list[exp.Expr]) -> Predicate:
        reference = self.column(left)
        found = [_literal(each) for each in values]
        if reference is not None and _NO_LITERAL not in found:
            some = [each for each in found if each is not None]
            return self.conditions.is_in(reference, some, len(some) < len(found))
        return junction(False, [self.compare("=", left, each) for each in values])

    def like(self, left: exp.Expr, right: exp.Expr) -> Predicate:
        if not isinstance(pattern := _literal(right), str):
            raise InvalidFilterError("expected a pattern in single quotes after LIKE")
        if (reference := self.column(left)) is not None:
            return self.conditions.like(reference, pattern)
        term = self.term(left)
        if computed_values.type_kind(term.type) not in {"text", "NULL"}:
            raise InvalidFilterError(f"LIKE is of text only, found {computed_values.type_kind(term.type)}")
        return _apply(
            computed_values.call(
                match_pattern, computed_values.cast(term, pa.string()), pattern=checked_pattern(pattern)
            )
        )

    def null(self, node: exp.Expr) -> Predicate:
        if (reference := self.column(node)) is not None:
            return self.conditions.null(reference)
        return _apply(computed_values.call(pc.is_null, self.term(node)))

    def nan(self, node: exp.Expr) -> Predicate:
        if (reference := self.column(node)) is not None:
            return self.conditions.nan(reference)
        term = self.term(node)
        if computed_values.type_kind(term.type) != "a double":
            raise InvalidFilterError(f"only FLOAT and DOUBLE can be NaN, found {computed_values.type_kind(term.type)}")
        return _apply(computed_values.call(pc.is_nan, term))

    # -- values -------------------------------------------------------------------------------------------------------

    def term(self, node: exp.Expr, depth: int = 0) -> Term:
        if depth > DEPTH_MAX:
            raise InvalidFilterError(f"expected at most {DEPTH_MAX} levels of operators and functions")
        if (value := _literal(node)) is not _NO_LITERAL:
            return computed_values.literal(value)
        if (reference := self.column(node)) is not None:
            return computed_values.column(reference)
        if isinstance(node, _CONDITIONS):
            raise InvalidFilterError(f"expected a value, found the condition {self.show(node)}")
        given = [self.term(_bare(each), depth + 1) for each in _operands(node)]
        if operator := _COMPUTED.get(type(node)):
            return computed_values.compute(operator, given[0], given[1])
        if isinstance(node, exp.Neg):
            return computed_values.compute("-", computed_values.literal(0), given[0])
        if isinstance(node, exp.DPipe):
            return function("concat", given)
        if isinstance(node, exp.Cast):
            return computed_values.cast(given[0], _type(node.args["to"].name))
        if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            return function(node.this.lower(), given)
        raise InvalidFilterError(f"expected a column, a value or a function, found {self.show(node)}")


def _bare(node: exp.Expr) -> exp.Expr:
    """Return a part without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _chain(node: exp.And | exp.Or) -> list[exp.Expr]:
    """Return the parts of a chain of one connective, in order: sqlglot makes one as deep as it is long."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node):
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return node.expressions
    return [each for each in (node.this, node.args.get("expression")) if isinstance(each, exp.Expr)]


def _path(node: exp.Expr) -> tuple[str, ...]:
    """Return the names of a column or field, from the outside in; () for anything else."""
    names: list[exp.Expr] = []
    while isinstance(node, exp.Dot):
        names.append(node.expression)
        node = node.this
    if not isinstance(node, exp.Column):
        return ()
    parts = [*node.parts, *reversed(names)]
    return tuple(part.name for part in parts) if all(isinstance(part, exp.Identifier) for part in parts) else ()


def _literal(node: exp.Expr) -> Any:
    """Return the Python value of a literal, None of NULL; `_NO_LITERAL` of anything else."""
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else Decimal(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return Decimal(f"-{node.this.this}")
    if isinstance(node, exp.HexString):
        return bytes.fromhex(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return None if isinstance(node, exp.Null) else _NO_LITERAL


def _type(text: str) -> pa.DataType:
    try:
        return DataType.parse(text).arrow()
    except InvalidSchemaError as error:
        raise InvalidFilterError(str(error)) from error


def _is_fit(reference: Reference, other: Term) -> bool:
    """Return whether a column can be compared with a constant as with a literal."""
    one, two = computed_values.type_kind(reference.type), computed_values.type_kind(other.type)
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
            return _apply(computed_values.call(_ARROW[fitted.operator], left, computed_values.constant(fitted.value)))
        decided = computed_values.constant(pa.scalar(fitted.always))
        unknown = computed_values.constant(pa.scalar(None, pa.bool_()))
        return _apply(computed_values.call(pc.if_else, computed_values.call(pc.is_valid, left), decided, unknown))
    left, right = computed_values.alike([left, right])
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return Constant(None)
    return _apply(computed_values.call(_ARROW[operator], left, right))


def _apply(term: Term) -> Predicate:
    if term.is_constant:
        return Constant(term.sample.as_py())
    return Applied(form_of(term.expression), term.columns)

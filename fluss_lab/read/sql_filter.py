"""Filters as SQL text: a WHERE clause over one table.

Grammar (keywords in any case)::

    or      := and (OR and)*            and  := not (AND not)*          not := NOT not | test
    test    := '(' or ')' | TRUE | FALSE | column tail | literal op column
    tail    := op literal | [NOT] IN '(' literal, ... ')' | [NOT] BETWEEN literal AND literal | [NOT] LIKE text
             | IS [NOT] NULL | IS [NOT] NAN | IS [NOT] (TRUE | FALSE) | nothing, for a BOOLEAN column
    op      := = == != <> < <= > >=
    literal := number | 'text' | X'00ff' | TRUE | FALSE | NULL | DATE 'text' | TIME 'text' | TIMESTAMP 'text'
    column  := name | "name" | `name`, with dots into ROW columns
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.predicates import Constant, Predicate, Reference, junction, negate

#: Longer texts and deeper nesting are refused: the parser recurses.
TEXT_LENGTH_MAX: Final = 100_000
DEPTH_MAX: Final = 100

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[0-9A-Fa-f]*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_0-9]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol><=|>=|<>|!=|==|[=<>(),.+-])
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "NAN", "TRUE", "FALSE"})
_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Tests:
    """How leaves are made: checked against the table's columns.

    Attributes:
        column: Path of names to a reference; raises InvalidFilterError.
        compare: (reference, operator, Python value) to a predicate.
        among: (reference, Python values, whether NULL is one) to a predicate.
        like: (reference, pattern) to a predicate.
        null: Reference to IS NULL.
        nan: Reference to IS NAN.
    """

    column: Callable[[tuple[str, ...]], Reference]
    compare: Callable[[Reference, str, Any], Predicate]
    among: Callable[[Reference, list[Any], bool], Predicate]
    like: Callable[[Reference, str], Predicate]
    null: Callable[[Reference], Predicate]
    nan: Callable[[Reference], Predicate]


def parse_sql(text: str, tests: Tests) -> Predicate:
    """Return what a WHERE clause says.

    Raises:
        InvalidFilterError: It cannot be read, or a column or literal does not fit; the text points at the place.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidFilterError(f"a filter of {len(text)} characters: expected at most {TEXT_LENGTH_MAX}")
    parser = _Parser(text, tests)
    node = parser.any_of(0)
    if (token := parser.peek()) is not None:
        raise parser.error("expected AND, OR or the end", token)
    return node


class _Parser:
    def __init__(self, text: str, tests: Tests) -> None:
        self.text = text
        self.tests = tests
        self.tokens = self._split()
        self.position = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None:
                raise InvalidFilterError(
                    f"filter {self.text!r}: cannot be read from character {at + 1} on: {self.text[at : at + 20]!r}"
                )
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return tokens

    def error(self, expected: str, token: _Token | None) -> InvalidFilterError:
        found = "the end" if token is None else f"{token.text!r} at character {token.at + 1}"
        return InvalidFilterError(f"filter {self.text!r}: {expected}, found {found}")

    # -- tokens -------------------------------------------------------------------------------------------------------

    def peek(self) -> _Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, expected: str) -> _Token:
        token = self.peek()
        if token is None:
            raise self.error(f"expected {expected}", None)
        self.position += 1
        return token

    def word(self, *words: str) -> bool:
        """Take keywords that stand next, all or none."""
        ahead = self.tokens[self.position : self.position + len(words)]
        if [t.text.upper() for t in ahead if t.kind == "word"] != list(words):
            return False
        self.position += len(words)
        return True

    def symbol(self, symbol: str) -> bool:
        token = self.peek()
        if token is None or token.kind != "symbol" or token.text != symbol:
            return False
        self.position += 1
        return True

    def need(self, symbol: str) -> None:
        if not self.symbol(symbol):
            raise self.error(f"expected {symbol!r}", self.peek())

    # -- grammar ------------------------------------------------------------------------------------------------------

    def any_of(self, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise self.error(f"expected at most {DEPTH_MAX} levels of parentheses and NOT", self.peek())
        parts = [self.all_of(depth)]
        while self.word("OR"):
            parts.append(self.all_of(depth))
        return junction(False, parts)

    def all_of(self, depth: int) -> Predicate:
        parts = [self.inverted(depth)]
        while self.word("AND"):
            parts.append(self.inverted(depth))
        return junction(True, parts)

    def inverted(self, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise self.error(f"expected at most {DEPTH_MAX} levels of parentheses and NOT", self.peek())
        return negate(self.inverted(depth + 1)) if self.word("NOT") else self.test(depth)

    def test(self, depth: int) -> Predicate:
        if self.symbol("("):
            node = self.any_of(depth + 1)
            self.need(")")
            return node
        token = self.peek()
        if token is not None and (
            token.kind in {"bytes", "text", "number"} or token.text in {"+", "-"} or self._constant(token)
        ):
            return self.mirrored()
        reference = self.reference()
        return self.tail(reference)

    def _constant(self, token: _Token) -> bool:
        if token.kind != "word":
            return False
        upper = token.text.upper()
        after = self.tokens[self.position + 1] if self.position + 1 < len(self.tokens) else None
        typed = upper in {"DATE", "TIME", "TIMESTAMP"} and after is not None and after.kind == "text"
        return typed or upper in {"TRUE", "FALSE", "NULL"}

    def mirrored(self) -> Predicate:
        """Read ``literal op column``, or a constant alone."""
        start = self.peek()
        value = self.literal()
        token = self.peek()
        operator = _OPERATORS.get(token.text) if token is not None and token.kind == "symbol" else None
        if operator is None:
            if value is None or isinstance(value, bool):
                return Constant(value)
            raise self.error("expected a column or a comparison", start)
        self.position += 1
        return self.compare(self.reference(), _MIRROR[operator], value)

    def reference(self) -> Reference:
        path = [self.name()]
        while self.symbol("."):
            path.append(self.name())
        return self.tests.column(tuple(path))

    def name(self) -> str:
        token = self.take("a column")
        if token.kind == "quoted":
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        if token.kind != "word" or token.text.upper() in _KEYWORDS:
            raise self.error("expected a column", token)
        return token.text

    def tail(self, reference: Reference) -> Predicate:
        token = self.peek()
        if token is not None and token.kind == "symbol" and token.text in _OPERATORS:
            self.position += 1
            return self.compare(reference, _OPERATORS[token.text], self.literal())
        if self.word("IS"):
            return self.state(reference)
        negated = self.word("NOT")
        if self.word("IN"):
            node = self.members(reference)
        elif self.word("BETWEEN"):
            low = self.compare(reference, ">=", self.literal())
            if not self.word("AND"):
                raise self.error("expected AND", self.peek())
            node = junction(True, [low, self.compare(reference, "<=", self.literal())])
        elif self.word("LIKE"):
            node = self.like(reference)
        elif negated:
            raise self.error("expected IN, BETWEEN or LIKE", self.peek())
        elif pa.types.is_boolean(reference.type):
            node = self.tests.compare(reference, "=", True)
        else:
            raise self.error(f"expected a comparison after {str(reference)!r}", self.peek())
        return negate(node) if negated else node

    def compare(self, reference: Reference, operator: str, value: Any) -> Predicate:
        return Constant(None) if value is None else self.tests.compare(reference, operator, value)

    def state(self, reference: Reference) -> Predicate:
        negated = self.word("NOT")
        if self.word("NULL"):
            node = self.tests.null(reference)
        elif self.word("NAN"):
            node = self.tests.nan(reference)
        elif self.word("TRUE") or self.word("FALSE"):
            asked = self.tokens[self.position - 1].text.upper() == "TRUE"
            return self.truth(reference, asked, negated)
        else:
            raise self.error("expected NULL, NAN, TRUE or FALSE", self.peek())
        return negate(node) if negated else node

    def truth(self, reference: Reference, asked: bool, negated: bool) -> Predicate:
        """IS TRUE is never unknown: a null is not true."""
        if negated:
            return junction(False, [self.tests.compare(reference, "=", not asked), self.tests.null(reference)])
        return junction(True, [self.tests.compare(reference, "=", asked), negate(self.tests.null(reference))])

    def members(self, reference: Reference) -> Predicate:
        self.need("(")
        values = [self.literal()]
        while self.symbol(","):
            values.append(self.literal())
        self.need(")")
        return self.tests.among(reference, [value for value in values if value is not None], None in values)

    def like(self, reference: Reference) -> Predicate:
        token = self.take("a pattern")
        if token.kind != "text":
            raise self.error("expected a pattern in single quotes", token)
        return self.tests.like(reference, token.text[1:-1].replace("''", "'"))

    def literal(self) -> Any:
        token = self.take("a literal")
        if token.kind == "symbol" and token.text in {"+", "-"}:
            number = self.take("a number")
            if number.kind != "number":
                raise self.error("expected a number", number)
            return Decimal(token.text + number.text)
        if token.kind == "number":
            return Decimal(token.text)
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "bytes":
            if len(token.text) % 2 == 0:
                raise self.error("expected two hexadecimal digits a byte", token)
            return bytes.fromhex(token.text[2:-1])
        upper = token.text.upper() if token.kind == "word" else ""
        if upper in {"TRUE", "FALSE", "NULL"}:
            return {"TRUE": True, "FALSE": False, "NULL": None}[upper]
        following = self.peek()
        if upper in {"DATE", "TIME", "TIMESTAMP"} and following is not None and following.kind == "text":
            return self.literal()
        raise self.error("expected a literal (text in single quotes)", token)

"""SQL text of a WHERE clause as a tree of what is written: no table is known here.

Operators bind as in SQL: ``OR``, ``AND``, ``NOT``, comparisons (with ``IS IN BETWEEN LIKE``), ``||``, ``+ -``, ``* / %``, signs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from fluss_lab.errors import InvalidFilterError

#: Longer texts are refused, and deeper nesting: reading goes down into it.
TEXT_LENGTH_MAX: Final = 100_000
DEPTH_MAX: Final = 100
_EXPONENT_DIGITS_MAX: Final = 5
_FRAGMENT: Final = 40

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[0-9A-Fa-f]*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z_0-9]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol><=|>=|<>|!=|==|\|\||[=<>(),.+*/%-])
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "NAN", "TRUE", "FALSE", "AS"})
_COMPARISONS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OR, _AND, _NOT, _TEST, _JOIN, _SUM, _PRODUCT, _SIGN = range(1, 9)
_POWERS: Final = (
    dict.fromkeys(_COMPARISONS, _TEST)
    | {"OR": _OR, "AND": _AND, "NOT": _TEST, "IS": _TEST, "IN": _TEST, "BETWEEN": _TEST, "LIKE": _TEST}
    | {"||": _JOIN, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
)


@dataclass(slots=True)
class Node:
    """A part of what is written.

    Attributes:
        kind: "column", "literal" or "call".
        at: Where it begins in the text.
        end: Where it ends.
        name: Of a call: an operator as SQL writes it, in capitals, or a function in small letters.
        arguments: Of a call.
        path: Of a column: names from the outside in.
        value: Of a literal: a Python value, None for NULL; of CAST: the type's text.
        depth: How many calls are within each other here.
    """

    kind: str
    at: int
    end: int
    name: str = ""
    arguments: list[Node] = field(default_factory=list)
    path: tuple[str, ...] = ()
    value: Any = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)

    @property
    def key(self) -> str:
        """Return what a keyword or symbol is compared by; "" for names and literals."""
        return self.text.upper() if self.kind == "word" else self.text if self.kind == "symbol" else ""


def parse_text(text: str) -> Node:
    """Return what a WHERE clause is made of.

    Raises:
        InvalidFilterError: It cannot be read; the message shows the place.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidFilterError(
            f"where: a text of {len(text)} characters: expected at most {TEXT_LENGTH_MAX}; give many values as "
            "pc.field('name').isin(values)"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise syntax_error(text, error.start, error.end, "expected characters of Unicode, found half of one") from error
    parser = _Parser(text)
    node = parser.expression(0, 0)
    if (token := parser.peek()) is not None:
        raise parser.error("expected AND, OR or the end", token)
    return node


def syntax_error(text: str, at: int, end: int, what: str) -> InvalidFilterError:
    """Return an error that shows its place in a text, and no more of it than that."""
    fragment = text[at:end] if end - at <= _FRAGMENT else f"{text[at : at + _FRAGMENT]}..."
    place = f" at {fragment!r}" if fragment else ""
    return InvalidFilterError(f"where, character {at + 1}{place}: {what}")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split()
        self.position = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                what = "a quote that is not closed" if self.text[at] in "'\"`" else "no part of SQL"
                raise syntax_error(self.text, at, min(end, at + _FRAGMENT), f"cannot be read: {what}")
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return tokens

    def error(self, expected: str, token: _Token | None) -> InvalidFilterError:
        if token is None:
            end = len(self.text)
            start = max(0, end - _FRAGMENT)
            after = f" after {self.text[start:]!r}" if self.text else ""
            return InvalidFilterError(f"where, character {end + 1}: {expected}, found the end{after}")
        return syntax_error(self.text, token.at, token.end, f"{expected}, found {token.text[:_FRAGMENT]!r}")

    # -- tokens -------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> _Token | None:
        place = self.position + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def take(self, expected: str) -> _Token:
        token = self.peek()
        if token is None:
            raise self.error(f"expected {expected}", None)
        self.position += 1
        return token

    def taken(self, key: str) -> bool:
        """Take a keyword or symbol if it stands next."""
        token = self.peek()
        if token is None or token.key != key:
            return False
        self.position += 1
        return True

    def need(self, key: str) -> None:
        if not self.taken(key):
            raise self.error(f"expected {key!r}" if not key.isalpha() else f"expected {key}", self.peek())

    def call(self, name: str, arguments: list[Node], at: int, value: Any = None) -> Node:
        node = Node("call", at, self.tokens[self.position - 1].end, name, arguments, (), value)
        node.depth = 1 + max((each.depth for each in arguments), default=0)
        if node.depth > DEPTH_MAX:
            raise self.error(f"expected at most {DEPTH_MAX} levels of operators and functions", self.peek())
        return node

    # -- grammar ------------------------------------------------------------------------------------------------------

    def expression(self, floor: int, depth: int) -> Node:
        """Read an operand and the operators behind it that bind more closely than `floor`."""
        if depth > DEPTH_MAX:
            raise self.error(f"expected at most {DEPTH_MAX} levels of parentheses, NOT and operators", self.peek())
        left = self.operand(depth)
        while (token := self.peek()) is not None and (power := _POWERS.get(token.key, 0)) > floor:
            if power <= _AND:
                left = self.chain(left, token.key, power, depth)
            elif power == _TEST:
                left = self.test(left, depth)
            else:
                self.position += 1
                left = self.call(token.text, [left, self.expression(power, depth + 1)], left.at)
        return left

    def chain(self, first: Node, word: str, power: int, depth: int) -> Node:
        parts = [first]
        while self.taken(word):
            parts.append(self.expression(power, depth + 1))
        return self.call(word, parts, first.at)

    def test(self, left: Node, depth: int) -> Node:
        token = self.take("a comparison")
        if token.key in _COMPARISONS:
            return self.call(_COMPARISONS[token.key], [left, self.expression(_TEST, depth + 1)], left.at)
        negated = token.key == "NOT"
        if token.key == "IS":
            negated = self.taken("NOT")
            word = self.take("NULL, NAN, TRUE or FALSE")
            if word.key not in {"NULL", "NAN", "TRUE", "FALSE"}:
                raise self.error("expected NULL, NAN, TRUE or FALSE", word)
            made = self.call(f"IS {word.key}", [left], left.at)
        else:
            if negated:
                token = self.take("IN, BETWEEN or LIKE")
            match token.key:
                case "IN":
                    made = self.call("IN", [left, *self.listed(depth)], left.at)
                case "BETWEEN":
                    low = self.expression(_TEST, depth + 1)
                    self.need("AND")
                    made = self.call("BETWEEN", [left, low, self.expression(_TEST, depth + 1)], left.at)
                case "LIKE":
                    made = self.call("LIKE", [left, self.expression(_TEST, depth + 1)], left.at)
                case _:
                    raise self.error("expected IN, BETWEEN or LIKE", token)
        return self.call("NOT", [made], left.at) if negated else made

    def listed(self, depth: int) -> list[Node]:
        """Read ``(value, ...)``."""
        self.need("(")
        values = [self.expression(_TEST, depth + 1)]
        while self.taken(","):
            values.append(self.expression(_TEST, depth + 1))
        self.need(")")
        return values

    def operand(self, depth: int) -> Node:
        token = self.take("a column or a value")
        following = self.peek()
        match token.key:
            case "(":
                node = self.expression(0, depth + 1)
                self.need(")")
                return node
            case "NOT":
                return self.call("NOT", [self.expression(_NOT, depth + 1)], token.at)
            case "+" | "-" if following is not None and following.kind == "number":
                self.position += 1
                return self.number(following, token)
            case "+" | "-":
                return self.call(f"SIGN {token.text}", [self.expression(_SIGN, depth + 1)], token.at)
            case "TRUE" | "FALSE" | "NULL":
                value = {"TRUE": True, "FALSE": False, "NULL": None}[token.key]
                return Node("literal", token.at, token.end, value=value)
            case "DATE" | "TIME" | "TIMESTAMP" if following is not None and following.kind == "text":
                self.position += 1
                return Node("literal", token.at, following.end, value=_unquoted(following.text))
        if token.kind == "number":
            return self.number(token, None)
        if token.kind == "text":
            return Node("literal", token.at, token.end, value=_unquoted(token.text))
        if token.kind == "bytes":
            if len(token.text) % 2 == 0:
                raise self.error("expected two hexadecimal digits a byte", token)
            return Node("literal", token.at, token.end, value=bytes.fromhex(token.text[2:-1]))
        if token.kind == "word" and token.key not in _KEYWORDS and following is not None and following.key == "(":
            return self.cast(token, depth) if token.key == "CAST" else self.function(token, depth)
        return self.column(token)

    def number(self, token: _Token, sign: _Token | None) -> Node:
        exponent = token.text.lower().partition("e")[2].lstrip("+-").lstrip("0")
        if len(exponent) > _EXPONENT_DIGITS_MAX:
            raise self.error(f"expected an exponent of at most {_EXPONENT_DIGITS_MAX} digits", token)
        text = token.text if sign is None else sign.text + token.text
        return Node("literal", token.at if sign is None else sign.at, token.end, value=Decimal(text))

    def function(self, token: _Token, depth: int) -> Node:
        self.need("(")
        arguments = []
        if not self.taken(")"):
            arguments.append(self.expression(0, depth + 1))
            while self.taken(","):
                arguments.append(self.expression(0, depth + 1))
            self.need(")")
        return self.call(token.text.lower(), arguments, token.at)

    def cast(self, token: _Token, depth: int) -> Node:
        self.need("(")
        node = self.expression(0, depth + 1)
        self.need("AS")
        start = self.take("a type").at
        if self.taken("("):
            self.take("a number")
            if self.taken(","):
                self.take("a number")
            self.need(")")
        text = self.text[start : self.tokens[self.position - 1].end]
        self.need(")")
        return self.call("CAST", [node], token.at, text)

    def column(self, token: _Token) -> Node:
        path = [self.name(token)]
        while self.taken("."):
            path.append(self.name(self.take("a field")))
        return Node("column", token.at, self.tokens[self.position - 1].end, path=tuple(path))

    def name(self, token: _Token) -> str:
        if token.kind == "quoted":
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        if token.kind != "word" or token.key in _KEYWORDS:
            raise self.error("expected a column or a value", token)
        return token.text


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")

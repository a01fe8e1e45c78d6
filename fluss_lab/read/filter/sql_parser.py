"""SQL text of a condition as sqlglot's tree: what may be written, and where each part of it stands.

Words and literals are cut here, so that text means one thing whatever sqlglot's dialects do: no comments, no escapes but doubled
quotes, and every word but the operators' may name a column. How operators bind is sqlglot's.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from fluss_lab.errors import InvalidFilterError

#: Longer texts are refused, and deeper nesting: parsing goes down into it.
TEXT_LENGTH_MAX: Final = 100_000
DEPTH_MAX: Final = 100
#: Parentheses, functions and signs, up to which Python's usual limit of 1,000 frames leaves the caller half of them.
_DEPTH_SHALLOW: Final = 15
#: Frames of `DEPTH_MAX` levels: sqlglot takes up to 30 for one.
_FRAMES_MAX: Final = 10_000
_FRAMES_LOCK: Final = threading.Lock()
_EXPONENT_DIGITS_MAX: Final = 5
_FRAGMENT: Final = 40

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<bytes>[xX]'[0-9A-Fa-f]*')
    | (?:(?i:DATE|TIME|TIMESTAMP)\s*)?(?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z_0-9]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol><=|>=|<>|!=|==|\|\||[=<>(),.+*/%-])
    )""",
    re.VERBOSE,
)
_WORDS: Final = {
    "AND": TokenType.AND, "OR": TokenType.OR, "NOT": TokenType.NOT, "IN": TokenType.IN, "BETWEEN": TokenType.BETWEEN,
    "LIKE": TokenType.LIKE, "IS": TokenType.IS, "NULL": TokenType.NULL, "TRUE": TokenType.TRUE,
    "FALSE": TokenType.FALSE, "AS": TokenType.ALIAS, "NAN": TokenType.UNKNOWN,
}  # fmt: skip
_SYMBOLS: Final = {
    "<=": TokenType.LTE, ">=": TokenType.GTE, "<>": TokenType.NEQ, "!=": TokenType.NEQ, "==": TokenType.EQ, "=": TokenType.EQ,
    "<": TokenType.LT, ">": TokenType.GT, "||": TokenType.DPIPE, "(": TokenType.L_PAREN, ")": TokenType.R_PAREN,
    ",": TokenType.COMMA, ".": TokenType.DOT, "+": TokenType.PLUS, "-": TokenType.DASH, "*": TokenType.STAR,
    "/": TokenType.SLASH, "%": TokenType.MOD,
}  # fmt: skip
_KINDS: Final = {
    "bytes": TokenType.HEX_STRING, "text": TokenType.STRING, "quoted": TokenType.IDENTIFIER, "number": TokenType.NUMBER,
}  # fmt: skip


def parse_condition(text: str) -> exp.Expr:
    """Return what a WHERE clause says, as sqlglot's tree.

    Columns are `exp.Column` or `exp.Dot`, functions `exp.Anonymous`; the type of `exp.Cast` is text.

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
    tokens = _tokens(text)
    with _frames(_depth(text, tokens)):
        (tree,) = _ConditionParser().parse_into(exp.Condition, tokens, text)
    assert tree is not None, text
    return tree


def syntax_error(text: str, at: int, end: int, what: str) -> InvalidFilterError:
    """Return an error that shows its place in a text, and no more of it than that."""
    fragment = text[at:end] if end - at <= _FRAGMENT else f"{text[at : at + _FRAGMENT]}..."
    place = f" at {fragment!r}" if fragment else ""
    return InvalidFilterError(f"where, character {at + 1}{place}: {what}")


def span(text: str, node: exp.Expr) -> tuple[int, int]:
    """Return where a part begins in its text and where it ends, closing parentheses included."""
    places = [each.meta for each in node.walk() if "start" in each.meta]
    if not places:
        return 0, len(text)
    at, end = min(each["start"] for each in places), max(each["end"] for each in places) + 1
    still_open = text.count("(", at, end) - text.count(")", at, end)
    while still_open > 0 and (match := re.compile(r"\s*\)").match(text, end)):
        end, still_open = match.end(), still_open - 1
    return at, end


# -- words ------------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "a quote that is not closed" if text[at] in "'\"`" else "no part of SQL"
            raise syntax_error(text, at, min(end, at + _FRAGMENT), f"cannot be read: {what}")
        kind, written = match.lastgroup, match[match.lastgroup]
        start = at + len(match[0]) - len(match[0].lstrip())
        at = match.end()
        if kind == "word":
            token_type = _WORDS.get(written.upper(), TokenType.VAR)
        elif kind == "symbol":
            token_type = _SYMBOLS[written]
        else:
            token_type = _KINDS[kind]
            written = _literal(text, kind, written, start)
            _check_neighbour(text, tokens, token_type, start, at)
        tokens.append(Token(token_type, written, start=start, end=at - 1))
    return tokens


def _check_neighbour(text: str, tokens: list[Token], kind: TokenType, at: int, end: int) -> None:
    """Refuse what sqlglot would join: two texts, and a dot before a number."""
    pair = (tokens[-1].token_type if tokens else None, kind)
    if pair in {(TokenType.STRING, TokenType.STRING), (TokenType.DOT, TokenType.NUMBER)}:
        expected = "AND, OR or the end" if kind == TokenType.STRING else "a column or a value"
        raise syntax_error(text, at, end, f"expected {expected}, found {text[at:end][:_FRAGMENT]!r}")


def _literal(text: str, kind: str, written: str, at: int) -> str:
    """Return what a literal or quoted name says."""
    if kind == "number":
        exponent = written.lower().partition("e")[2].lstrip("+-").lstrip("0")
        if len(exponent) > _EXPONENT_DIGITS_MAX:
            what = f"expected an exponent of at most {_EXPONENT_DIGITS_MAX} digits, found {written[:_FRAGMENT]!r}"
            raise syntax_error(text, at, at + len(written), what)
        return written
    if kind == "bytes":
        if len(written) % 2 == 0:
            what = f"expected two hexadecimal digits a byte, found {written[:_FRAGMENT]!r}"
            raise syntax_error(text, at, at + len(written), what)
        return written[2:-1]
    quote = written[0]
    return written[1:-1].replace(quote * 2, quote)


def _depth(text: str, tokens: list[Token]) -> int:
    """Return how many parentheses, NOT and signs are within each other."""
    deepest = depth = run = 0
    levels: list[int] = []
    for token in tokens:
        kind = token.token_type
        if kind in {TokenType.NOT, TokenType.DASH, TokenType.PLUS}:
            run += 1
        elif kind == TokenType.L_PAREN:
            levels.append(depth)
            depth, run = depth + run + 1, 0
        else:
            run = 0
            if kind == TokenType.R_PAREN and levels:
                depth = levels.pop()
        if depth + run > DEPTH_MAX:
            what = (
                f"expected at most {DEPTH_MAX} levels of parentheses, NOT and signs, found {token.text[:_FRAGMENT]!r}"
            )
            raise syntax_error(text, token.start, token.end + 1, what)
        deepest = max(deepest, depth + run)
    return deepest


@contextmanager
def _frames(depth: int) -> Iterator[None]:
    """Allow Python the frames in which sqlglot goes down into a deep text."""
    if depth <= _DEPTH_SHALLOW:
        yield
        return
    with _FRAMES_LOCK:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _FRAMES_MAX))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


# -- grammar ----------------------------------------------------------------------------------------------------------

#: What may follow IS.
_IS_WORDS: Final = ("NULL", "NAN", "TRUE", "FALSE")
_OPERAND_MISSING: Final = "expected a column or a value"


class _ConditionParser(Parser):
    """sqlglot's parser, without what no condition has: queries, lambdas, functions of its own, types before values."""

    UNARY_PARSERS: ClassVar = {
        TokenType.NOT: Parser.UNARY_PARSERS[TokenType.NOT],
        TokenType.DASH: lambda self: self._parse_minus(),
        TokenType.PLUS: lambda self: self._parse_plus(),
    }
    RANGE_PARSERS: ClassVar = {
        kind: Parser.RANGE_PARSERS[kind] for kind in (TokenType.IN, TokenType.BETWEEN, TokenType.LIKE, TokenType.IS)
    }
    PRIMARY_PARSERS: ClassVar = {
        kind: Parser.PRIMARY_PARSERS[kind] for kind in (TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING)
    } | {
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }
    ID_VAR_TOKENS: ClassVar = {TokenType.VAR}
    FUNC_TOKENS: ClassVar = {TokenType.VAR}
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {"CAST": lambda self: self._parse_typed()}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {}

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise an error that shows the place at which parsing stands."""
        if message.startswith("Required keyword"):
            message = _OPERAND_MISSING
        elif message.startswith("Expecting )"):
            message = "expected ')'"
        elif message.startswith("Invalid expression"):
            message = "expected AND, OR or the end"
        at = token or self._curr
        if at.token_type == TokenType.NOT:
            message, at = "expected IN, BETWEEN or LIKE", self._next
        if at:
            shown = self.sql[at.start : at.end + 1][:_FRAGMENT]
            raise syntax_error(self.sql, at.start, at.end + 1, f"{message}, found {shown!r}")
        end = len(self.sql)
        after = f" after {self.sql[max(0, end - _FRAGMENT) :]!r}" if self.sql else ""
        raise InvalidFilterError(f"where, character {end + 1}: {message}, found the end{after}")

    def _parse_unary(self) -> exp.Expr:
        node = super()._parse_unary()
        if node is None:
            self.raise_error(_OPERAND_MISSING)
        assert node is not None
        return node

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        return self._parse_column()

    def _parse_minus(self) -> exp.Expr:
        sign = self._prev
        return self.expression(exp.Neg(this=self._parse_unary()), sign)

    def _parse_plus(self) -> exp.Expr:
        sign = self._prev
        if self._curr.token_type == TokenType.NUMBER:
            return self.expression(exp.Paren(this=self._parse_unary()), sign)
        return self.expression(exp.Add(this=exp.Literal.number(0), expression=self._parse_unary()), sign)

    def _parse_paren(self) -> exp.Expr | None:
        if not self._match(TokenType.L_PAREN):
            return None
        node = self._parse_disjunction()
        self._match_r_paren()
        return self.expression(exp.Paren(this=node))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected '('")
        node = self.expression(exp.In(this=this, expressions=self._parse_csv(self._parse_bitwise)))
        self._match_r_paren()
        return node

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr:
        negated = self._match(TokenType.NOT)
        word = self.sql[self._curr.start : self._curr.end + 1].upper() if self._curr else ""
        if word not in _IS_WORDS:
            self.raise_error(f"expected {', '.join(_IS_WORDS[:-1])} or {_IS_WORDS[-1]}")
        self._advance()
        node = self.expression(exp.Is(this=this, expression=self.expression(exp.Var(this=word), self._prev)))
        return self.expression(exp.Not(this=node)) if negated else node

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("expected AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        return [] if self._match(TokenType.R_PAREN, advance=False) else self._parse_csv(self._parse_disjunction)

    def _parse_typed(self) -> exp.Expr:
        """Parse what follows ``CAST(``; a type is a word, and one or two numbers in parentheses."""
        name = self._tokens[self._index - 2]
        node = self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS")
        start = self._any("a type").start
        if self._match(TokenType.L_PAREN):
            self._any("a number")
            if self._match(TokenType.COMMA):
                self._any("a number")
            self._match_r_paren()
        target = exp.Var(this=self.sql[start : self._prev.end + 1])
        return self.expression(exp.Cast(this=node, to=self.expression(target, self._prev)), name)

    def _any(self, expected: str) -> Token:
        if not self._curr:
            self.raise_error(f"expected {expected}")
        self._advance()
        return self._prev

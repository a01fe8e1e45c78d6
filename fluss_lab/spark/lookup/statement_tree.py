"""A SQL statement as sqlglot's tree whose parts know where they stand in the text, and the hints of its SELECTs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from fluss_lab.errors import InvalidRequestError
from fluss_lab.spark.lookup.lookup_hint import HintBlock, parse_block

_SPAN: Final = "fluss_lab_span"
_SPACE: Final = r"(?:\s|/\*(?!\+).*?\*/|--[^\n]*(?:\n|$))*"
#: sqlglot takes all behind this word as one text.
_EXPLAIN: Final = re.compile(rf"{_SPACE}EXPLAIN\b({_SPACE}(?:EXTENDED|CODEGEN|COST|FORMATTED)\b)?", re.I | re.DOTALL)
_QUERY: Final = (TokenType.WITH, TokenType.SELECT, TokenType.FROM)
_MESSAGE_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the text, ``[start, stop)`` in characters."""

    start: int
    stop: int

    def is_within(self, other: Place) -> bool:
        """Return whether it is a part of another, or all of it."""
        return other.start <= self.start and self.stop <= other.stop


@dataclass(frozen=True, slots=True)
class SelectHints:
    """The hint blocks of one SELECT, and the number of its token."""

    token: int
    blocks: tuple[tuple[Place, HintBlock], ...]


class StatementText:
    """A statement's tokens.

    Raises:
        InvalidRequestError: It ends within a text or a comment.
    """

    def __init__(self, text: str) -> None:
        explained = _EXPLAIN.match(text)
        #: The statement, with spaces for what sqlglot does not read.
        self.text = text if explained is None else " " * explained.end() + text[explained.end() :]
        try:
            self.tokens: list[Token] = Spark().tokenize(self.text)
        except TokenError as error:
            raise InvalidRequestError(f"sql: cannot be read: {_first_line(error)}") from error

    def word(self, index: int) -> str:
        """Return a token in upper case; empty for none, and for texts and quoted names."""
        if not 0 <= index < len(self.tokens) or self.tokens[index].token_type in {
            TokenType.STRING,
            TokenType.IDENTIFIER,
        }:
            return ""
        return self.tokens[index].text.upper()

    def place(self, first: int, stop: int) -> Place:
        """Return where the tokens ``[first, stop)`` stand."""
        return Place(self.tokens[first].start, self.tokens[stop - 1].end + 1)

    def text_at(self, place: Place) -> str:
        """Return a part of the text."""
        return self.text[place.start : place.stop]

    def hints(self) -> Iterator[SelectHints]:
        """Yield what stands as hints right behind each SELECT that has some."""
        for index, token in enumerate(self.tokens):
            if token.token_type != TokenType.SELECT:
                continue
            after = next((each for each in self.tokens[index + 1 :] if each.token_type != TokenType.HINT), None)
            stop = len(self.text) if after is None else after.start
            blocks = tuple(
                (place, parse_block(self.text[place.start + 3 : place.stop - 2]))
                for place in _hint_places(self.text, token.end + 1, stop)
            )
            if blocks:
                yield SelectHints(index, blocks)

    def tree(self) -> exp.Expr:
        """Return the statement's tree, from its first query on.

        Raises:
            InvalidRequestError: It cannot be read.
        """
        starts, level = [], 0
        for index, token in enumerate(self.tokens):
            level += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if not level and token.token_type in _QUERY:
                starts.append(index)
        reason: Exception | None = None
        # What is before the query (CREATE VIEW name AS) may be Spark's alone, and may have a WITH of its own.
        for start in dict.fromkeys([0, *starts[:2]]):
            try:
                trees = _SpanParser(start, dialect=Spark(), error_level=ErrorLevel.IMMEDIATE).parse(
                    self.tokens[start:], self.text
                )
            except (ParseError, RecursionError) as error:
                reason = reason or error
                continue
            found: list[exp.Expr] = [each for each in trees if each is not None]
            if len(found) == 1 and not isinstance(found[0], exp.Command):
                return found[0]
        raise InvalidRequestError(f"sql: cannot be read: {_first_line(reason)}") from reason


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Return the numbers ``[first, stop)`` of a node's tokens, where they are recorded."""
    found = node.meta.get(_SPAN)
    return None if found is None else (int(found[0]), int(found[1]))


def _first_line(error: Exception | None) -> str:
    if isinstance(error, RecursionError):
        return "too deep"
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip() or "there is no query in it"
    return text.splitlines()[0][:_MESSAGE_MAX]


def _hint_places(text: str, start: int, stop: int) -> Iterator[Place]:
    """Yield where hints stand in what has nothing but them, comments and spaces."""
    while start < stop:
        if text.startswith("--", start):
            end = text.find("\n", start)
            start = stop if end < 0 else end + 1
        elif text.startswith("/*+", start):
            end = text.find("*/", start)
            end = stop if end < 0 else end + 2
            yield Place(start, end)
            start = end
        elif text.startswith("/*", start):
            start = _comment_end(text, start)
        else:
            start += 1


def _comment_end(text: str, start: int) -> int:
    """Return the end of a comment; comments may be in it."""
    level = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        level += 1 if mark[0] == "/*" else -1
        if not level:
            return mark.end()
    return len(text)


def _record_step(name: str) -> Callable[..., Any]:
    """Return a step of sqlglot's parser that writes down which tokens became the node it returns."""

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = self._index
        node = getattr(super(_SpanParser, self), name)(*args, **kwargs)
        # A node handed in began before; a node that several steps return is as long as the innermost says.
        if isinstance(node, exp.Expr) and not any(isinstance(each, exp.Expr) for each in args) and first < self._index:
            node.meta.setdefault(_SPAN, (self._offset + first, self._offset + self._index))
        return node

    return step


class _SpanParser(SparkParser):
    """sqlglot's parser of Spark's SQL, which writes down where relations, joins and conditions stand, and each SELECT."""

    def __init__(self, offset: int, **options: Any) -> None:
        self._offset = offset
        super().__init__(**options)

    _parse_table = _record_step("_parse_table")
    _parse_join = _record_step("_parse_join")
    _parse_version = _record_step("_parse_version")
    _parse_cte = _record_step("_parse_cte")
    _parse_disjunction = _record_step("_parse_disjunction")
    _parse_equality = _record_step("_parse_equality")
    _parse_comparison = _record_step("_parse_comparison")

    def _parse_hint(self) -> exp.Hint:
        """Write down which SELECT it is, in place of its hints, which are read from the text."""
        node = exp.Hint(expressions=[])
        node.meta[_SPAN] = (self._offset + self._index - 1, self._offset + self._index)
        self._match(TokenType.HINT)
        return node

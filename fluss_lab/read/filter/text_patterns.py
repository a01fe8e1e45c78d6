"""Patterns of LIKE as functions of Arrow."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow.compute as pc

_ESCAPE: Final = "\\"
_TOKEN: Final = re.compile(r"\\(.)|(.)", re.DOTALL)
_WILDCARDS: Final = {"%": ".*", "_": "."}


def match_pattern(text: Any, pattern: str) -> Any:
    r"""Return whether a text, an expression or values, is LIKE a pattern, in which ``\`` stands before ``%``, ``_`` and itself.

    Arrow's own `match_like` turns ``x%``, ``%x`` and ``%x%`` into plain searches for x as it is written, each ``\`` included.
    """
    if _ESCAPE not in pattern:
        return pc.match_like(text, pattern=pattern)
    tokens = _tokens(pattern)
    inner = _without_ends(tokens)
    if any(is_wild for _, is_wild in inner):
        regex = "".join(_WILDCARDS[char] if is_wild else re.escape(char) for char, is_wild in tokens)
        return pc.match_substring_regex(text, pattern=rf"(?s)\A{regex}\z")
    literal = "".join(char for char, _ in inner)
    if inner == tokens:
        return pc.equal(text, literal)
    if _is_open(tokens[0]):
        search = pc.match_substring if _is_open(tokens[-1]) else pc.ends_with
        return search(text, pattern=literal)
    return pc.starts_with(text, pattern=literal)


def _tokens(pattern: str) -> list[tuple[str, bool]]:
    """Return the characters of a pattern, each with whether it is a wildcard."""
    return [(match[1] or match[2], match[1] is None and match[2] in _WILDCARDS) for match in _TOKEN.finditer(pattern)]


def _without_ends(tokens: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return a pattern without the ``%`` that it begins and ends with."""
    start, stop = 0, len(tokens)
    while start < stop and _is_open(tokens[start]):
        start += 1
    while start < stop and _is_open(tokens[stop - 1]):
        stop -= 1
    return tokens[start:stop]


def _is_open(token: tuple[str, bool]) -> bool:
    return token == ("%", True)

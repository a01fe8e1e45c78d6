"""The nesting of JSON rows: bounded before Arrow reads them, whose reader ends the process where a row nests some ten thousand deep."""

from __future__ import annotations

from typing import Final

import numpy as np

#: Far more than a table's types have, and few enough for whoever walks a type by recursion.
ROW_NESTING_MAX: Final = 100
#: What opens a value, what closes one, and what begins or ends a text; the rest is left out.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_QUOTE: Final = ord('"')
_OTHERS: Final = bytes(set(range(256)) - set(b'[{]}"'))


def row_nested_too_deeply(data: bytes) -> int | None:
    """Return the first of some lines whose values nest deeper than `ROW_NESTING_MAX`, counting from 0; None: none does.

    Args:
        data: An object a line. What is no JSON is judged up to there.

    Cost: a third of the CPU that Arrow reads flat rows in; as much as that reads them in where texts have many backslashes.
    """
    if _depth(data) <= ROW_NESTING_MAX:
        return None
    lines = [line for line in data.split(b"\n") if line.strip()]
    return next((row for row, line in enumerate(lines) if _depth(line) > ROW_NESTING_MAX), 0)


def _depth(data: bytes) -> int:
    """Return how deep values nest, the outermost counted."""
    if b"\\" in data:  # quotes within texts; of several backslashes the first two are one, and so on
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    signs = np.frombuffer(data.translate(_STEPS, _OTHERS), np.int8)
    is_quote = signs == _QUOTE
    is_within = np.cumsum(is_quote.view(np.uint8), dtype=np.uint8) & 1  # odd behind the first quote of a text
    steps = np.where(is_quote | is_within.view(np.bool_), np.int8(0), signs)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))

"""Tables of text for people: aligned columns in which no value reaches the terminal as a command to it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from fluss_lab.display.shown_text import visible

#: Longer values of data are cut; ``--json`` has them whole.
CELL_WIDTH_MAX: Final = 60
_NULL: Final = "-"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as aligned columns; numbers to the right and in groups of three digits, None as a dash."""
    cells = [[_group_digits(value) for value in row] for row in rows]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(headers))]
    return "\n".join(_align([list(headers), *cells], right))


class DataTable:
    """A table of data that is printed as it is read: the widths are those of its first rows.

    Args:
        names: The columns.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = [visible(name) for name in names]
        self._widths: list[int] | None = None
        self._right: list[bool] = []

    def lines(self, columns: Sequence[Sequence[object]]) -> list[str]:
        """Return the lines of the next rows, given by column, the first time with the header."""
        shown = [[_data_text(value) for value in column] for column in columns]
        if self._widths is not None:
            return _align(zip(*shown, strict=True), self._right, self._widths)
        self._right = [bool(column) and all(_is_number(value) for value in column) for column in columns]
        self._widths = [max(map(text_width, [name, *column])) for name, column in zip(self._names, shown, strict=True)]
        return _align([self._names, *zip(*shown, strict=True)], self._right, self._widths)


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _align(rows: Iterable[Sequence[str]], right: Sequence[bool], widths: Sequence[int] | None = None) -> list[str]:
    cells = [list(row) for row in rows]
    if widths is None:
        widths = [max(text_width(row[index]) for row in cells) for index in range(len(right))]
    lines = []
    for row in cells:
        shown = [_pad(*each) for each in zip(row, widths, right, strict=True)]
        lines.append("  ".join(shown).rstrip())
    return lines


def _pad(cell: str, width: int, right: bool) -> str:
    blanks = " " * max(0, width - text_width(cell))
    return blanks + cell if right else cell + blanks


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _group_digits(value: object) -> str:
    if value is None:
        return _NULL
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else visible(str(value))


def _data_text(value: object) -> str:
    """Return a value of data: JSON's, numbers ungrouped."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
    text = visible(text[: CELL_WIDTH_MAX + 1])
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"

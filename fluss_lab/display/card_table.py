"""The table of a card: columns that fit its width, numbers right, long texts cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final
from unicodedata import east_asian_width

from fluss_lab.display.marks import CHANGED, LINE
from fluss_lab.display.shown_text import CELL_LENGTH_MAX, NOTHING, display_text, is_path, short, visible

#: Widest card, in pixels; its border takes two.
WIDTH_MAX: Final = 640
#: Of a character at 12 px in the widest of the usual interface fonts (DejaVu Sans).
_CHARACTER_WIDTH: Final = 7.2
_PADDINGS: Final = (12, 6)
#: A text column is cut no further than this before columns are left out.
_TEXT_LENGTH_MIN: Final = 12
_PATH_LENGTH_MIN: Final = 17
_ID_LENGTH: Final = 13
_MARK_WIDTH: Final = 12
#: Columns that are laid out at all: more do not fit.
_COLUMNS_MAX: Final = 14
#: Of a text so much is looked at.
_LOOK_LENGTH_MAX: Final = 200
_MARK: Final = '<span style="display:inline-block;width:8px;height:8px;margin-right:4px;background:{}"></span>'
#: Columns that go where no row has anything in them.
_OPTIONAL: Final = ("partition", "role", "comment")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_HEADER: Final = (
    "text-align:{};font-weight:400;opacity:.72;padding:4px {}px;border:0;white-space:nowrap;"
    f"border-top:1px solid {LINE};border-bottom:1px solid {LINE}"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with how it is marked.

    Attributes:
        value: Shown as any other.
        hue: Colour of a mark before it: `LAKE` or `LOG`.
        changed: Whether it stands on the mark of changed values.
        struck: Whether it is struck through: what was.
        is_word: Whether it is a word about the value, as *null*, which is set apart from values.
    """

    value: object
    hue: str | None = None
    changed: bool = False
    struck: bool = False
    is_word: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under headers, as many as are shown.

    Attributes:
        headers: Column names.
        rows: Cells: values or `Cell`.
        right: Columns aligned right though they are no numbers; those of numbers are anyway.
        kept: Columns that are not left out for others, however narrow the card is.
        minor: Columns that are left out before others, the first one first.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    right: Sequence[str] = ()
    kept: Sequence[str] = ()
    minor: Sequence[str] = ()


@dataclass(slots=True)
class _Column:
    """A column as it is laid out.

    Attributes:
        name: Of the grid.
        cells: As they were given.
        texts: What they say, whole.
        is_right: Whether they stand right.
        is_kept: Whether it is not left out for others.
        is_time: Whether all its texts are times.
        length_min: How far its texts may be cut; None: not at all.
        length_max: How far they are.
    """

    name: str
    cells: list[Cell]
    texts: list[str]
    is_right: bool
    is_kept: bool
    is_time: bool
    length_min: int | None
    length_max: int = CELL_LENGTH_MAX

    def width(self, padding: int) -> float:
        """Return how wide it is, in pixels."""
        marked = _MARK_WIDTH if any(each.hue for each in self.cells) else 0
        return max(len(self.header), self.longest) * _CHARACTER_WIDTH + 2 * padding + marked

    @property
    def header(self) -> str:
        """Return its name as it is shown."""
        return short(self.name, 24)

    @property
    def longest(self) -> int:
        """Return how many characters wide its cells are."""
        return min(max(map(_length, self.texts), default=0), self.length_max)

    @property
    def least(self) -> int:
        """Return how far its cells may be cut; no further than its header needs anyway."""
        return self.longest if self.length_min is None else max(self.length_min, len(self.header))


@dataclass(frozen=True, slots=True)
class GridHtml:
    """A table as HTML, with what it leaves to be said.

    Attributes:
        html: The table.
        left_out: Columns that did not fit.
        date: The one date of all its times, which are shown without it; empty where they have several.
    """

    html: str
    left_out: list[str]
    date: str


def grid_html(grid: Grid) -> GridHtml:
    """Return a table as HTML.

    Cost: what is shown; rows beyond are for the caller to leave out.
    """
    # A table without partitions has no column for them.
    places = [index for index in range(len(grid.headers)) if not _is_unused(grid, index)]
    # What must be there is laid out wherever it stands.
    chosen = sorted(sorted(places, key=lambda index: grid.headers[index] not in grid.kept)[:_COLUMNS_MAX])
    columns = [_column(grid, index) for index in chosen]
    left_out = [grid.headers[index] for index in places if index not in chosen]
    date = _one_date(columns)
    padding = _fit(columns, left_out, grid.minor)
    if not any(each.is_time for each in columns):
        date = ""
    head = "".join(f'<th style="{_HEADER.format(_side(each), padding)}">{escape(each.header)}</th>' for each in columns)
    body = "".join(
        '<tr style="background:none">' + "".join(_cell(each, index, padding) for each in columns) + "</tr>"
        for index in range(len(grid.rows))
    )
    # JupyterLab's own style makes columns equally wide, and rows striped.
    style = "table-layout:auto;border-collapse:collapse;width:100%;font-size:12px;line-height:16px;margin:0;border:0"
    table = f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return GridHtml(f'<div style="overflow-x:auto">{table}</div>', [short(name, 40) for name in left_out], date)


def is_identifier(name: str) -> bool:
    """Return whether numbers of a column name something: their digits are not grouped."""
    return name.endswith(("id", "bucket", "leader", "port", "process"))


def _column(grid: Grid, index: int) -> _Column:
    name = grid.headers[index]
    cells = [_as_cell(row[index]) for row in grid.rows]
    values = [each.value for each in cells if each.value is not None]
    numeric = bool(values) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    named = is_identifier(name)
    texts = [visible(display_text(each.value, grouped=not named)[:_LOOK_LENGTH_MAX]) for each in cells]
    is_time = bool(values) and all(_TIME.fullmatch(each) or each == NOTHING for each in texts)
    # Amounts are never cut, nor times; of a long identifier both ends stay.
    least = _ID_LENGTH if numeric and named else None if numeric or is_time else _TEXT_LENGTH_MIN
    if name == "table" or any(is_path(each) for each in texts[:1]):
        least = _PATH_LENGTH_MIN
    return _Column(name, cells, texts, numeric or name in grid.right, name in grid.kept, is_time, least)


def _is_unused(grid: Grid, index: int) -> bool:
    if grid.headers[index] not in _OPTIONAL or not grid.rows:
        return False
    return all(row[index] is None or row[index] == "" for row in grid.rows)


def _as_cell(value: object) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _one_date(columns: list[_Column]) -> str:
    """Return the date that all times share, and take it off them; empty without one."""
    times = [text for each in columns if each.is_time for text in each.texts if text != NOTHING]
    dates = {text[:10] for text in times}
    if len(dates) != 1:
        return ""
    for each in columns:
        if each.is_time:
            each.texts = [text if text == NOTHING else text[11:].rstrip("Z") for text in each.texts]
    return dates.pop()


def _fit(columns: list[_Column], left_out: list[str], minor: Sequence[str]) -> int:
    """Cut texts, then leave columns out, until the table is as wide as a card at most; return the padding."""
    padding = _PADDINGS[0]
    while (excess := sum(each.width(padding) for each in columns) - (WIDTH_MAX - 2)) > 0:
        if padding == _PADDINGS[0]:
            padding = _PADDINGS[-1]
            continue
        if wide := [each for each in columns if each.longest > each.least]:
            widest = max(wide, key=lambda each: each.longest)
            share = int(excess / _CHARACTER_WIDTH / len(wide))
            widest.length_max = max(widest.least, widest.longest - max(1, share))
            continue
        free = [each for each in columns if not each.is_kept]
        if len(columns) == 1 or not free:
            break
        dropped = next((each for name in minor for each in free if each.name == name), free[-1])
        left_out.insert(0, dropped.name)
        columns.remove(dropped)
    return padding


def _cell(column: _Column, index: int, padding: int) -> str:
    cell = column.cells[index]
    text = short(
        column.texts[index], column.length_max, middle=column.name == "table" or column.length_min == _ID_LENGTH
    )
    inner = escape(text)
    if cell.is_word:
        inner = f"<i>{inner}</i>"
    if cell.struck:
        inner = f'<s style="opacity:.72">{inner}</s>'
    mark = mark_html(cell.hue) if cell.hue else ""
    ground = f";background:{CHANGED}" if cell.changed else ""
    style = f"text-align:{_side(column)};padding:4px {padding}px;border:0;white-space:nowrap{ground}"
    return f'<td style="{style}">{mark}{inner}</td>'


def _side(column: _Column) -> str:
    return "right" if column.is_right else "left"


def _length(text: str) -> int:
    """Return how many characters wide a text is: those of East Asia, and pictures, count twice."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(each) in "WF") for each in text)


def mark_html(hue: str) -> str:
    """Return a mark of a colour."""
    return _MARK.format(hue)

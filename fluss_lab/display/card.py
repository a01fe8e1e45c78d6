"""The card of an object: kind and name, a line of facts, at most one bar, a table, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from fluss_lab.display.card_table import WIDTH_MAX, Grid, grid_html, mark_html
from fluss_lab.display.marks import EMPTY, LINE
from fluss_lab.display.shown_text import display_text, short

#: Rows of a listing beyond these are counted, not shown; of any other card, `CARD_ROWS_MAX`.
ROWS_MAX: Final = 50
CARD_ROWS_MAX: Final = 10
#: Of a title, a fact and a sentence; whole texts are the object's own.
_NAME_LENGTH_MAX: Final = 100
_FACT_LENGTH_MAX: Final = 160
_NOTE_LENGTH_MAX: Final = 400
_NOTES_MAX: Final = 5
_ROOT: Final = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;line-height:20px;"
    f"font-variant-numeric:tabular-nums;border:1px solid {LINE};border-radius:6px;max-width:{WIDTH_MAX}px;"
    "overflow:hidden;overflow-wrap:anywhere;text-align:left;margin:0 0 8px"
)
_CODE: Final = "font-size:11px;font-family:var(--jp-code-font-family,monospace);background:none;padding:0"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a bar's key, and its part of the bar.

    Attributes:
        hue: Colour of its mark; empty for a text without a mark.
        text: What the part is.
        weight: How much of the bar it has; 0 for none.
    """

    hue: str
    text: str
    weight: float = 0.0


def card(
    kind: str,
    name: object,
    facts: Iterable[tuple[str, object]] = (),
    *,
    notes: Iterable[object] = (),
    keys: Sequence[Key] = (),
    grid: Grid | None = None,
    total: int | None = None,
    noun: str = "row",
    last: str = "",
    calls: Sequence[str] = (),
) -> str:
    """Return an object as HTML that needs no script, style sheet or network, at most 640 px wide.

    Args:
        kind: Its class.
        name: What it is of.
        facts: Label (maybe empty) and value; those whose value is None are left out. A label that ends in a backquote
            shows its value as code.
        notes: What needs attention: shown first.
        keys: The key of the bar; the bar itself where weights are given.
        grid: The table. The caller has cut it to the rows that are shown.
        total: How many rows there are; None: those of `grid`.
        noun: What a row is, in the singular.
        last: The last line's text, beside what was left out.
        calls: The next calls.
    """
    label = f'<span style="opacity:.72">{escape(short(kind))}</span> ' if kind else ""
    title = f'<b style="font-weight:600">{escape(short(name, _NAME_LENGTH_MAX))}</b>'
    parts = [f'<div style="padding:8px 12px;border-bottom:1px solid {LINE}">{label}{title}</div>']
    head = _notes(notes) + " ".join(_fact(label, value) for label, value in facts if value is not None) + _bar(keys)
    if head:
        parts.append(f'<div style="padding:8px 12px">{head}</div>')
    left_out: list[str] = []
    if grid is not None:
        table = grid_html(grid)
        parts.append(table.html)
        left_out = table.left_out
        last = " ".join(filter(None, [last, f"Times of {table.date}, UTC." if table.date else ""]))
    count = len(grid.rows) if grid is not None else 0
    line = _last_line(count, count if total is None else total, noun, left_out, last, calls)
    if line:
        style = f"padding:6px 12px;border-top:1px solid {LINE};font-size:12px"
        parts.append(f'<div style="{style}">{line}</div>')
    return f'<div style="{_ROOT}">{"".join(parts)}</div>'


def html_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]], rows_max: int = ROWS_MAX) -> str:
    """Return a table as a card.

    Args:
        title: Shown above.
        headers: Column names.
        rows: Cells, shown by `str`; None is shown as a dash.
        rows_max: Rows beyond are only counted.
    """
    listed = list(rows)
    grid = Grid(headers, listed[:rows_max]) if headers else None
    return card("", title, grid=grid, total=len(listed))


def _notes(notes: Iterable[object]) -> str:
    texts = [short(each, _NOTE_LENGTH_MAX) for each in notes if each]
    more = [f"and {len(texts) - _NOTES_MAX} more like these"] if len(texts) > _NOTES_MAX else []
    return "".join(f"<div>◆ {escape(each)}</div>" for each in [*texts[:_NOTES_MAX], *more])


def _fact(label: str, value: object) -> str:
    text = escape(short(display_text(value), _FACT_LENGTH_MAX))
    if label.endswith("`"):
        label, text = label[:-1], f'<code style="{_CODE}">{text}</code>'
    named = f'<span style="opacity:.72;font-size:12px">{escape(short(label))}</span> ' if label else ""
    return f'<span style="display:inline-block;margin-right:20px">{named}{text}</span>'


def _bar(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    texts = " &nbsp; ".join(
        (mark_html(each.hue) if each.hue else "") + escape(short(each.text, _FACT_LENGTH_MAX)) for each in keys
    )
    shown_keys = f'<div style="margin-top:6px;font-size:12px">{texts}</div>'
    total = sum(each.weight for each in keys)
    if not total:
        return shown_keys
    spans = "".join(
        f'<span style="display:inline-block;height:8px;width:{_share(each.weight / total)}%;background:{each.hue}"></span>'
        for each in keys
        if each.weight > 0
    )
    style = (
        f"margin-top:4px;height:8px;width:100%;background:{EMPTY};font-size:0;line-height:0;white-space:nowrap;"
        "overflow:hidden"
    )
    return f'{shown_keys}<div style="{style}">{spans}</div>'


def _share(part: float) -> str:
    """Return a part in per cent: what is not empty is seen, what is not all leaves something to see."""
    return f"{min(max(part * 100, 0.4), 99.6) if part < 1 else 100:.1f}"


def _last_line(count: int, total: int, noun: str, left_out: Sequence[str], last: str, calls: Sequence[str]) -> str:
    texts = []
    if total > count:
        texts.append(f"{count:,} of {total:,} {_many(noun)}.")
    if left_out:
        names = ", ".join(left_out[:6]) + (", …" if len(left_out) > 6 else "")
        texts.append(
            f"{'Column' if len(left_out) == 1 else f'{len(left_out):,} columns'} not shown: {short(names, 120)}."
        )
    if last:
        texts.append(short(last, _FACT_LENGTH_MAX))
    said = f'<span style="opacity:.72">{escape(" ".join(texts))}</span>' if texts else ""
    # Without anything left out there is no need for a next call, unless the object is one that waits for it.
    code = " ".join(f'<code style="{_CODE}">{escape(short(call, 80))}</code>' for call in calls)
    return " ".join(filter(None, [said, code]))


def _many(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"

"""Short HTML for what a notebook shows. Every cell value and column name is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

#: Rows beyond these are counted, not shown.
ROWS_MAX: Final = 50
_STYLE: Final = "text-align:left;padding:2px 10px;border-bottom:1px solid #ddd;vertical-align:top"


def html_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]], rows_max: int = ROWS_MAX) -> str:
    """Return a table as HTML that needs no script, style sheet or network.

    Args:
        title: Shown above.
        headers: Column names.
        rows: Cells, shown by `str`; None is shown as a dash.
        rows_max: Rows beyond are only counted.
    """
    listed = list(rows)
    head = "".join(f'<th style="{_STYLE}">{escape(str(name))}</th>' for name in headers)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_STYLE}">{_cell(value)}</td>' for value in row) + "</tr>"
        for row in listed[:rows_max]
    )
    more = f"<div>… and {len(listed) - rows_max:,} more</div>" if len(listed) > rows_max else ""
    return (
        f'<div class="fluss-lab"><div><b>{escape(title)}</b></div>'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>'
    )


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))

"""The display for people: cards of objects in a notebook, texts of values, progress, pictures.

In come titles, facts and rows of whoever shows itself; out go HTML of one pattern, text, and matplotlib figures. Cards hold
inline styles only: no script, no style sheet, no ids, nothing to load, so that they look the same in a saved notebook.
"""

from fluss_lab.display.card import ROWS_MAX, Key, card, html_table
from fluss_lab.display.card_table import Cell, Grid
from fluss_lab.display.marks import LAKE, LOG, MUTED, STRONG
from fluss_lab.display.shown_text import ago, plural, short, visible
from fluss_lab.display.waiting import Waiting, is_interactive, progress_html

__all__ = [
    "LAKE",
    "LOG",
    "MUTED",
    "ROWS_MAX",
    "STRONG",
    "Cell",
    "Grid",
    "Key",
    "Waiting",
    "ago",
    "card",
    "html_table",
    "is_interactive",
    "plural",
    "progress_html",
    "short",
    "visible",
]

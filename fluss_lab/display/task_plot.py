"""The picture of what tasks held: a bar for each, and what share of its rows the task already had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_lab.display.marks import INK, LOG
from fluss_lab.display.plot_style import Picture, count_axis, ink_text, say_nothing

#: Bars of one picture: the last ones.
_BARS_MAX: Final = 60
#: Room beside the longest bar for its text.
_ROOM: Final = 1.25


def tasks_picture(names: Sequence[str], rows_cached: Sequence[int], hit_rates: Sequence[float | None]) -> Picture:
    """Return a bar of the rows that each task held at its end, from top to bottom.

    Args:
        names: What stands beside the bars.
        rows_cached: Of each.
        hit_rates: Of each, the share of its lookups that these rows answered, in ``[0, 1]``; None: there were none.

    Raises:
        UnsupportedError: matplotlib is not installed (where the module is imported).
    """
    shown = list(zip(names, rows_cached, hit_rates, strict=True))[-_BARS_MAX:]
    cut = f", the last {_BARS_MAX}" if len(names) > _BARS_MAX else ""
    picture = Picture(0.9 + 0.3 * max(1, len(shown)), f"rows held by {len(names):,} tasks{cut}")
    axes = picture.drawing
    if not shown:
        say_nothing(axes, "No task has ended.")
        return picture
    longest = max(rows for _, rows, _ in shown)
    axes.barh(range(len(shown)), [rows for _, rows, _ in shown], height=0.6, color=LOG, linewidth=0)
    for place, (_, rows, rate) in enumerate(shown):
        text = f" {rows:,}" + ("" if rate is None else f", hit rate {rate:.0%}")
        axes.text(rows, place, text, va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(shown)), [ink_text(name) for name, _, _ in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, max(1, longest) * _ROOM)
    count_axis(axes.xaxis)
    axes.set_xlabel("rows held at the end of the task")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return picture

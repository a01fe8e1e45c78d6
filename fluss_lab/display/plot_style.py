"""Pictures by matplotlib in the colours of the house, on no background, so that they are read in either theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any, Final

from fluss_lab.display.marks import INK
from fluss_lab.display.shown_text import short
from fluss_lab.errors import UnsupportedError
from fluss_lab.interrupts import import_whole

try:
    # At one go; see there.
    import_whole("matplotlib.figure")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as missing:
    raise UnsupportedError(
        "a picture needs matplotlib, which is not installed: pip install 'fluss-lab[demo]'"
    ) from missing

_WIDTH_IN: Final = 7.6
_DPI: Final = 100
#: Pixels of the picture for one that a notebook shows: sharp on any screen.
_SCALE: Final = 2
_MARGIN_MIN: Final = timedelta(milliseconds=500)
#: Below are the letters of Europe that do not combine, which matplotlib's own font has.
_KNOWN: Final = "\u0250"


class Picture(Figure):
    """A figure that a notebook shows once, as the value of its cell: pyplot does not know it, nothing has to be closed.

    Args:
        height_in: Inches; all pictures are equally wide.
        title: Above it.
    """

    def __init__(self, height_in: float, title: str) -> None:
        super().__init__(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained", facecolor="none")
        self.canvas: FigureCanvasAgg = FigureCanvasAgg(self)
        #: Where it is drawn.
        self.drawing: Any = self.add_subplot()
        style(self.drawing)
        self.drawing.set_title(title, loc="left", fontsize=10, color=INK, fontweight="bold")

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return it as PNG on a transparent ground, with the size at which a notebook shows it."""
        stream = BytesIO()
        self.canvas.print_figure(stream, format="png", dpi=_DPI * _SCALE, facecolor="none")
        width, height = (round(float(each) * _DPI) for each in self.get_size_inches())
        return stream.getvalue(), {"width": width, "height": height}


def style(axes: Any) -> None:
    """Give axes the ink and the lines of the house."""
    axes.set_facecolor("none")
    axes.tick_params(colors=INK, labelsize=8, length=3)
    for name, spine in axes.spines.items():
        spine.set_visible(name in {"left", "bottom"})
        spine.set_color(INK)
        spine.set_linewidth(0.6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
        axis.label.set_fontsize(9)


def swatch(colour: str, text: str, alpha: float = 1.0) -> Any:
    """Return an entry of a key."""
    return Patch(color=colour, alpha=alpha, linewidth=0, label=text)


def key(axes: Any, swatches: Sequence[Any]) -> None:
    """Put a key above the picture, right."""
    axes.legend(
        handles=list(swatches), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=max(1, len(swatches)), frameon=False,
        fontsize=8, labelcolor=INK, handlelength=1.0, handleheight=1.0, borderaxespad=0.2, columnspacing=1.2,
    )  # fmt: skip


def count_axis(axis: Any, ticks_max: int = 6) -> None:
    """Have an axis show whole numbers in groups."""
    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.0f}"))
    axis.set_major_locator(MaxNLocator(ticks_max, integer=True))


def worded_axis(axis: Any, words: Callable[[float], str]) -> None:
    """Have an axis show its values in words."""
    axis.set_major_formatter(FuncFormatter(lambda value, _place: words(value)))


def time_axis(axes: Any, times: Sequence[datetime]) -> None:
    """Have the horizontal axis show times, in UTC; a single moment has some time around it."""
    first, last = min(times), max(times)
    margin = max((last - first) * 0.03, _MARGIN_MIN)
    axes.set_xlim(first - margin, last + margin)
    locator = AutoDateLocator(maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.xaxis.get_offset_text().set_color(INK)
    axes.xaxis.get_offset_text().set_fontsize(8)
    axes.set_xlabel("UTC")


def ink_text(text: object, length_max: int = 40) -> str:
    """Return a name as a picture shows it: cut, no formula, in letters that its font has."""
    known = "".join(
        each if each < _KNOWN else each.encode("unicode_escape").decode() for each in short(text, length_max)
    )
    return short(known, length_max).replace("$", r"\$")


def say_nothing(axes: Any, text: str) -> None:
    """Say in the picture why there is nothing to draw."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=9, color=INK)

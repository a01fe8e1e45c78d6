"""The picture of what goes through stages: a bar for each, cut by how long its stages took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fluss_lab.display.marks import INK, LAKE
from fluss_lab.display.plot_style import Picture, ink_text, key, say_nothing, swatch

#: Bars of one picture: the last ones.
_BARS_MAX: Final = 60
#: Stages that write to the lake in its hue, the others in grey; beside each other no two are alike.
_COLOURS: Final = {
    "plan": (INK, 0.45),
    "write": (LAKE, 1.0),
    "commit": (INK, 0.9),
    "maintain": (LAKE, 0.5),
    "finish": (INK, 0.3),
}


def stages_picture(names: Sequence[str], seconds: Sequence[Mapping[str, float]]) -> Picture:
    """Return a bar for each, from top to bottom.

    Args:
        names: What stands beside the bars.
        seconds: Of each, by stage; what is no stage of a round is left out.

    Raises:
        UnsupportedError: matplotlib is not installed (where the module is imported).
    """
    shown = [(name, took) for name, took in zip(names, seconds, strict=True) if took][-_BARS_MAX:]
    picture = Picture(0.9 + 0.3 * max(1, len(shown)), _title(len(names)))
    axes = picture.drawing
    if not shown:
        say_nothing(axes, "No round was timed.")
        return picture
    left = [0.0] * len(shown)
    places = range(len(shown))
    swatches = []
    for stage, (colour, alpha) in _COLOURS.items():
        widths = [took.get(stage, 0.0) for _, took in shown]
        if any(widths):
            axes.barh(places, widths, left=left, height=0.6, color=colour, alpha=alpha, linewidth=0)
            text = f"{stage} {widths[0]:.2f} s" if len(shown) == 1 else stage
            swatches.append(swatch(colour, text, alpha))
        left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.set_yticks(list(places), [ink_text(name) for name, _ in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    key(axes, swatches)
    return picture


def _title(count: int) -> str:
    if count == 1:
        return "stages"
    return f"stages of {count:,} rounds" + (f", the last {_BARS_MAX}" if count > _BARS_MAX else "")

"""A picture of curves on logarithmic axes, as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.growth.curve_fit import fit
from benchmarks.growth.growth_report import AxisReport, exponent, shown

_LEFT: Final = 70
_TOP: Final = 34
_WIDTH: Final = 470
_HEIGHT: Final = 400
_LEGEND: Final = 18
#: Distinct also for people who see red and green alike, and in print.
_COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f", "#8c564b", "#9467bd",
    "#bcbd22", "#17becf", "#aa3377", "#4477aa", "#999933", "#882255", "#44aa99", "#117733",
)  # fmt: skip


@dataclass(frozen=True)
class _Scale:
    """Where values lie on an axis: decades from `low` to `high`."""

    low: int
    high: int
    start: float
    length: float

    @classmethod
    def of(cls, values: list[float], start: float, length: float) -> _Scale:
        low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
        return cls(low, max(high, low + 1), start, length)

    def at(self, value: float) -> float:
        return self.start + self.length * (math.log10(value) - self.low) / (self.high - self.low)

    def decades(self) -> list[float]:
        return [10.0**number for number in range(self.low, self.high + 1)]


def picture(axis: AxisReport) -> str:
    """Return the times of an axis: CPU seconds as points, the fitted curves as lines, a grey line that is linear."""
    curves = {what: each.cpu for what, each in axis.measures.items() if each.unit == "s" and each.cpu}
    positive = {what: {size: value for size, value in values.items() if value > 0} for what, values in curves.items()}
    everything = [value for values in positive.values() for value in values.values()]
    across = _Scale.of([float(size) for size in axis.sizes()], _LEFT, _WIDTH)
    up = _Scale.of(everything, _TOP + _HEIGHT, -_HEIGHT)
    height = max(_TOP + _HEIGHT + 50, _TOP + _LEGEND * (len(curves) + 2))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="{height}" viewBox="0 0 1000 {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="1000" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">CPU by {escape(axis.name)}</text>',
        *_grid(across, up),
        *_linear(across, up),
    ]
    for number, (what, values) in enumerate(positive.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _curve(values, colour, across, up)
        y = _TOP + 10 + _LEGEND * number
        reported = exponent(fit(values)).replace("**", "") or "no fit"
        parts.append(f'<circle cx="{_LEFT + _WIDTH + 24}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 34}" y="{y}">{escape(what.replace("`", ""))}: {reported}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _grid(across: _Scale, up: _Scale) -> list[str]:
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    lines = []
    for size in across.decades():
        x = across.at(size)
        lines.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{size:,.0f}</text>')
    for value in up.decades():
        y = up.at(value)
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#dddddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_label(value)}</text>')
    return lines


def _label(value: float) -> str:
    return shown(value * 1.0000001, "s").replace(".0", "")


def _linear(across: _Scale, up: _Scale) -> list[str]:
    """Draw what is linear, from the lower left corner until it leaves the picture."""
    decades = min(across.high - across.low, up.high - up.low)
    start, end = (10.0**across.low, 10.0**up.low), (10.0 ** (across.low + decades), 10.0 ** (up.low + decades))
    (x, y), (right, top) = ((across.at(size), up.at(value)) for size, value in (start, end))
    return [
        f'<path d="M{x:.1f} {y:.1f}L{right:.1f} {top:.1f}" stroke="#aaaaaa" stroke-dasharray="4 4"/>',
        f'<text x="{(x + right) / 2 + 6:.1f}" y="{(y + top) / 2 + 12:.1f}" fill="#888888">linear</text>',
    ]


def _curve(values: dict[int, float], colour: str, across: _Scale, up: _Scale) -> list[str]:
    points = [
        f'<circle cx="{across.at(size):.1f}" cy="{up.at(value):.1f}" r="3" fill="{colour}"/>'
        for size, value in values.items()
    ]
    found = fit(values)
    if found is None:
        return points
    first, last = math.log10(min(values)), math.log10(max(values))
    sizes = [10 ** (first + (last - first) * step / 40) for step in range(41)]
    low, high = 10.0**up.low, 10.0**up.high
    path = " ".join(f"{across.at(size):.1f},{up.at(min(max(found.at(size), low), high)):.1f}" for size in sizes)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-opacity="0.6"/>', *points]

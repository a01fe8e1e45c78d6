"""What was measured, as JSON and as tables in Markdown."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.growth.curve_fit import Fit, fit
from benchmarks.growth.meter import Measured

VERSION: Final = 1
#: A range of exponents as wide as this is told beside the best one; wider than the second, instead of it.
WIDE: Final = 0.2
OPEN: Final = 1.2


@dataclass(frozen=True)
class AxisReport:
    """The curves of one axis.

    Attributes:
        name: What grows.
        about: What is held the same.
        machine: Where it was measured, and under which conditions: axes may be measured at different times.
        headlines: The measures of which a short table tells.
        measures: Values by what they are of.
    """

    name: str
    about: str
    machine: str
    headlines: tuple[str, ...]
    measures: dict[str, Measured]

    def sizes(self) -> list[int]:
        """Return the sizes that were measured, from the smallest."""
        return sorted({size for measured in self.measures.values() for size in measured.cpu})


@dataclass(frozen=True)
class GrowthReport:
    """The curves of all axes."""

    axes: tuple[AxisReport, ...]

    def to_json(self) -> str:
        """Return the report; fits are in it for other programs, and are not read back."""
        axes = [
            {
                "name": axis.name,
                "about": axis.about,
                "machine": axis.machine,
                "headlines": axis.headlines,
                "measures": {what: _plain(measured) for what, measured in axis.measures.items()},
            }
            for axis in self.axes
        ]
        return json.dumps({"version": VERSION, "axes": axes}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> GrowthReport:
        """Read a report."""
        value = json.loads(text)
        if value["version"] != VERSION:
            raise ValueError(f"a report of version {value['version']}; this program reads {VERSION}: measure again")
        axes = (
            AxisReport(
                each["name"], each["about"], each["machine"], tuple(each["headlines"]),
                {what: _measured(found) for what, found in each["measures"].items()},
            )
            for each in value["axes"]
        )  # fmt: skip
        return cls(tuple(axes))

    def with_axes(self, axes: tuple[AxisReport, ...]) -> GrowthReport:
        """Return the report with axes that were measured anew, the others as they were."""
        newer = {each.name: each for each in axes}
        kept = tuple(newer.pop(each.name, each) for each in self.axes)
        return GrowthReport((*kept, *newer.values()))


def _plain(measured: Measured) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": measured.unit}
    for kind, values in (("cpu" if measured.wall else "value", measured.cpu), ("wall", measured.wall)):
        if values:
            found[kind] = {str(size): value for size, value in values.items()}
            found[f"{kind}_fit"] = _plain_fit(fit(values))
    return found


def _plain_fit(found: Fit | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {name: round(value, 3) if name == "miss" else float(f"{value:.4g}") for name, value in vars(found).items()}


def _measured(found: dict[str, Any]) -> Measured:
    values, walls = found.get("cpu") or found["value"], found.get("wall", {})
    return Measured(
        found["unit"],
        {int(size): value for size, value in values.items()},
        {int(size): value for size, value in walls.items()},
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def long_table(axis: AxisReport) -> str:
    """Return all measures of an axis: values by the decade, exponents of CPU and clock, what is fixed, what one more costs."""
    sizes = _decades(axis.sizes())
    heads = [axis.name, *(_count(size) for size in sizes), "exponent", "by the clock", "fixed", "one more"]
    lines = [_line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for what, measured in axis.measures.items():
        found = fit(measured.cpu)
        largest = max(measured.cpu)
        cells = [shown(measured.cpu[size], measured.unit) if size in measured.cpu else "" for size in sizes]
        fixed = "" if found is None else shown(found.fixed, measured.unit)
        more = "" if found is None or found.is_flat else shown(found.slope(largest), measured.unit)
        lines.append(_line([what, *cells, exponent(found), exponent(fit(measured.wall)), fixed, more]))
    return "\n".join(lines)


def short_table(report: GrowthReport) -> str:
    """Return the headlines of all axes, each as its first and last value and its exponent."""
    lines = [_line(["more", "what it costs: from the first to the last, exponent"]), _line(["---", "---"])]
    for axis in report.axes:
        sizes = axis.sizes()
        reported = "; ".join(_headline(what, axis.measures[what]) for what in axis.headlines if what in axis.measures)
        lines.append(_line([f"{axis.name}, {_count(sizes[0])} to {_count(sizes[-1])}", reported]))
    return "\n".join(lines)


def _headline(what: str, measured: Measured) -> str:
    first, last = min(measured.cpu), max(measured.cpu)
    values = f"{shown(measured.cpu[first], measured.unit)} to {shown(measured.cpu[last], measured.unit)}"
    return f"{what} {values}, {exponent(fit(measured.cpu))}"


def exponent(found: Fit | None) -> str:
    """Return an exponent as people read it: with its range where that is wide, in bold where growth is above linear."""
    if found is None:
        return ""
    if found.is_flat:
        return "flat"
    reported = f"{found.exponent:.2f}"
    if found.high - found.low > OPEN:
        return f"{found.low:.1f} to {found.high:.1f}"
    if found.high - found.low > WIDE:
        reported += f" ({found.low:.1f} to {found.high:.1f})"
    return f"**{reported}**" if found.is_above_linear else reported


def shown(value: float, unit: str) -> str:
    """Return a value as people read it."""
    if value == 0:
        return "0"
    if unit == "%":
        return f"{value:.2g} %"
    steps = {
        "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
        "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    }[unit]
    step, name = next((each for each in steps if value >= 0.995 * each[0]), steps[-1])
    # Rounded before its figures are counted: 0.9999 is shown as 1.0.
    digits = max(0, 1 - math.floor(math.log10(max(float(f"{value / step:.2g}"), 1e-3))))
    return f"{value / step:.{digits}f} {name}"


def _decades(sizes: list[int]) -> list[int]:
    """Return the sizes that are powers of ten, and the largest."""
    return [size for size in sizes if str(size).strip("0") == "1" or size == sizes[-1]]


def _count(size: int) -> str:
    if size >= 1_000_000:
        return f"{size / 1e6:g} M"
    return f"{size:,}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"

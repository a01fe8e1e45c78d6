"""The exponent with which a cost grows.

A cost of size n is taken as ``fixed + factor * n ** exponent``, neither of the two below zero. The three are those whose curve
misses the measured values least, by the sum of squares of the misses *as shares of the values*: so a value at the small end
counts as much as one at the large end, which is what least squares in a log-log picture means, but with the fixed cost
fitted too instead of taken for growth (a straight line in the picture would see a fixed cost as a small exponent).

Only the upper three decades are fitted: below, what is fixed hides what grows. The range beside an exponent holds those
whose best curve misses on average by at most a twentieth more than the best one, or by at most twice as much: measurements are not
better than that, and with few of them one that is off bends the best curve.
A cost that is at the largest size less than a quarter above its least grows too little for an exponent: it is called flat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Sizes that are fitted reach from the largest down to this part of it.
DECADES: Final = 1_000
#: With fewer sizes three parameters mean nothing.
POINTS_MIN: Final = 4
#: Misses that are as good as the best: measurements of one thing differ by so much on a machine that does other things.
NOISE: Final = 0.05
AS_GOOD: Final = 2
FLAT: Final = 1.25
EXPONENTS: Final = tuple(number / 100 for number in range(5, 301))
#: Above it growth is called more than linear.
LINEAR_MAX: Final = 1.1


@dataclass(frozen=True)
class Fit:
    """A fitted curve.

    Attributes:
        fixed: What it costs at no size at all.
        factor: Of the part that grows.
        exponent: Of the part that grows; 1 is linear, 2 a loop in a loop, 0 is flat.
        low, high: Exponents that would fit as well.
        miss: How far the curve misses the values on average, as a share of them.
    """

    fixed: float
    factor: float
    exponent: float
    low: float
    high: float
    miss: float

    @property
    def is_flat(self) -> bool:
        """Return whether nothing grows."""
        return self.exponent == 0

    @property
    def is_above_linear(self) -> bool:
        """Return whether the exponent is above linear, and no smaller one would fit as well."""
        return self.exponent > LINEAR_MAX and self.low > 1

    def at(self, size: float) -> float:
        """Return the curve's value."""
        return self.fixed + self.factor * math.pow(size, self.exponent)

    def slope(self, size: float) -> float:
        """Return what one more costs at a size."""
        return 0.0 if self.is_flat else self.factor * self.exponent * math.pow(size, self.exponent - 1)


def fit(values: Mapping[int, float]) -> Fit | None:
    """Return the curve of values by size; None: too few of them, or a zero among them."""
    largest = max(values, default=0)
    chosen = {size: value for size, value in values.items() if size * DECADES >= largest}
    if len(chosen) < POINTS_MIN or min(chosen.values()) <= 0:
        return None
    least, most = min(chosen.values()), max(chosen.values())
    if chosen[largest] < FLAT * least:
        return Fit(math.sqrt(least * most), 0.0, 0.0, 0.0, 0.0, math.sqrt(most / least) - 1)
    curves = [(exponent, *_straight(chosen, exponent)) for exponent in EXPONENTS]
    exponent, fixed, factor, miss = min(curves, key=lambda curve: curve[3])
    as_good = [each for each, _, _, missed in curves if missed <= max(miss + NOISE, AS_GOOD * miss)]
    return Fit(fixed, factor, exponent, min(as_good), max(as_good), miss)


def _straight(values: Mapping[int, float], exponent: float) -> tuple[float, float, float]:
    """Return fixed part, factor and miss of the best curve with an exponent: relative least squares, both at least zero."""
    ones = [1 / value for value in values.values()]
    grown = [size**exponent / value for size, value in values.items()]
    aa, ab, bb = (
        math.fsum(x * y for x, y in zip(left, right, strict=True))
        for left, right in ((ones, ones), (ones, grown), (grown, grown))
    )
    a, b = math.fsum(ones), math.fsum(grown)
    determinant = aa * bb - ab * ab
    pairs = [(a / aa, 0.0), (0.0, b / bb)]
    if determinant > 1e-12 * aa * bb:
        pairs.append(((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant))
    return min(
        ((fixed, factor, _miss(ones, grown, fixed, factor)) for fixed, factor in pairs if fixed >= 0 and factor >= 0),
        key=lambda found: found[2],
    )


def _miss(ones: list[float], grown: list[float], fixed: float, factor: float) -> float:
    squares = [(fixed * one + factor * size - 1) ** 2 for one, size in zip(ones, grown, strict=True)]
    return math.sqrt(math.fsum(squares) / len(squares))

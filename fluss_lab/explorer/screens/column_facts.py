"""The facts of columns: share of nulls, and how values are spread, from a sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.display import short
from fluss_lab.explorer.texts.cell_texts import cell_texts

#: Of 64 bits, or Python's own where these are too few.
_Numbers = np.ndarray[Any, np.dtype[Any]]

#: Rows that are looked at.
SAMPLE_ROWS: Final = 10_000
#: Of wide rows fewer, of so many bytes in all; at least one of each bucket.
SAMPLE_BYTES: Final = 16 * 1024 * 1024
#: Buckets that they are taken from.
SAMPLE_BUCKETS: Final = 16
_BINS: Final = 14
_VALUES_MAX: Final = 20
_TEXT_MAX: Final = 60
#: Of a bin's width: an edge has no more digits than tell it from the next one.
_EDGE_DIGITS: Final = 3
#: For decimals of any precision: others round to 28 digits.
_EXACT: Final = Context(prec=100)
#: Words that a condition takes for something else than a column, unless they are quoted.
_WORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "AS", "NAN"})


def column_facts(name: str, kind: str, values: pa.ChunkedArray, *, is_sample: bool) -> dict[str, Any]:
    """Return what a view shows of a column: ``nulls`` (share), and ``bins``, ``values`` or ``distinct``.

    Args:
        name: Its name.
        kind: ``number``, ``text``, ``time``, ``bool`` or ``other``.
        values: Those that were looked at.
        is_sample: Whether there are others.
    """
    facts: dict[str, Any] = {"name": name, "sampled": is_sample, "rows": len(values)}
    facts["nulls"] = values.null_count / len(values) if len(values) else 0.0
    known = values.drop_null()
    if not len(known):
        return facts
    written = f'"{name}"' if name.upper() in _WORDS else name
    if kind == "number":
        return facts | _spread(written, known)
    if kind in {"text", "bool"}:
        return facts | _shares(written, kind, known)
    return facts


def _spread(name: str, values: pa.ChunkedArray) -> dict[str, Any]:
    """Return the numbers in bins of about one width; how many there are of one."""
    if pa.types.is_decimal(values.type):
        return _exact_bins(name, values, _unscale(values), values.type.scale)
    if pa.types.is_integer(values.type):
        return _exact_bins(name, values, np.asarray(values).astype(np.int64), 0)
    return _float_bins(name, values)


def _unscale(values: pa.ChunkedArray) -> _Numbers:
    """Return decimals as whole numbers of their last digit, without a `Decimal` of each: these cost a hundred times as much."""
    array = pa.concat_arrays(values.chunks)
    halves = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    low, high = halves[:, 0], halves[:, 1].view(np.int64)
    if (high == low.view(np.int64) >> 63).all():
        return low.view(np.int64)
    whole: _Numbers = high.astype(object) * 2**64 + low.astype(object)
    return whole


def _exact_bins(name: str, values: pa.ChunkedArray, numbers: _Numbers, scale: int) -> dict[str, Any]:
    """Return the bins of numbers as whole ones of their last digit: 64 bits, and decimals, are more than a float holds."""
    least, most = int(numbers.min()), int(numbers.max())
    if least == most:
        return {"distinct": 1}
    span = most - least + 1
    bins = min(_BINS, span)
    step = 10 ** max(0, len(str(span // bins)) - _EDGE_DIGITS)
    edges = [edge - edge % step for edge in (least + span * number // bins for number in range(1, bins))]
    places = np.searchsorted(np.array(edges, numbers.dtype), numbers, side="right")
    conditions = _conditions(name, [_decimal_text(edge, scale) for edge in edges])
    return _bins(values, np.bincount(places, minlength=bins).tolist(), conditions)


def _decimal_text(number: int, scale: int) -> str:
    text = f"{Decimal(number).scaleb(-scale, _EXACT):f}"
    return text.rstrip("0").rstrip(".") if scale else text


def _float_bins(name: str, values: pa.ChunkedArray) -> dict[str, Any]:
    """Return the bins of the numbers that are neither infinite nor NaN."""
    known = values.filter(pc.is_finite(values))
    if not len(known):
        return {}
    numbers = np.asarray(known).astype(np.float64)
    least, most = float(numbers.min()), float(numbers.max())
    if least == most:
        others = values.filter(pc.invert(pc.is_finite(values)))
        return {"distinct": 1 + len({str(each) for each in others.to_pylist()})}
    width = (most - least) / _BINS
    if not width or not math.isfinite(width):
        return {}
    edges = [_edge(least + width * number, width) for number in range(1, _BINS)]
    places = np.searchsorted(np.array([float(edge) for edge in edges]), numbers, side="right")
    conditions = _conditions(name, edges)
    found = _bins(known, np.bincount(places, minlength=_BINS).tolist(), conditions)
    if len(known) < len(values):  # these lie beyond all numbers, where the first and the last bin have no end
        # The ends as they are compared: the shortest text of a FLOAT may lie within them.
        conditions[0] = f"{name} >= {least!r} and {conditions[0]}"
        conditions[-1] = f"{conditions[-1]} and {name} <= {most!r}"
    return found


def _edge(value: float, width: float) -> str:
    """Return an edge of a bin as SQL: whole where bins are wide; else exact enough to tell two apart."""
    digits = max(0, _EDGE_DIGITS - 1 - math.floor(math.log10(width)))
    if width < 100 and digits <= 15:
        return f"{value:.{digits}f}"
    return str(math.floor(value)) if width >= 100 and abs(value) < 2**53 else repr(value)


def _conditions(name: str, edges: Sequence[str]) -> list[str]:
    """Return the conditions of the bins that some edges part."""
    inner = [f"{name} >= {low} and {name} < {high}" for low, high in itertools.pairwise(edges)]
    return [f"{name} < {edges[0]}", *inner, f"{name} >= {edges[-1]}"]


def _bins(values: pa.ChunkedArray, counts: list[int], conditions: list[str]) -> dict[str, Any]:
    ends = pc.min_max(values)
    (low, high), _ = cell_texts(pa.array([ends["min"].as_py(), ends["max"].as_py()], values.type), None)
    return {"bins": {"lo": low, "hi": high, "counts": counts, "conditions": conditions}}


def _shares(name: str, kind: str, values: pa.ChunkedArray) -> dict[str, Any]:
    """Return the share of each value where they are few; else how many were seen."""
    counted = pc.value_counts(values)
    if len(counted) > _VALUES_MAX:
        return {"distinct": len(counted)}
    shares = sorted(((each["counts"].as_py(), each["values"].as_py()) for each in counted), key=lambda pair: -pair[0])
    return {
        "values": [
            [short(_text(value), _TEXT_MAX), count / len(values), _condition(name, kind, value)]
            for count, value in shares
        ]
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _condition(name: str, kind: str, value: object) -> str | None:
    """Return the condition that a click adds; None of a text that is too long to be typed."""
    if kind == "bool":
        return name if value else f"not {name}"
    text = str(value)
    return "{} = '{}'".format(name, text.replace("'", "''")) if text.isprintable() and len(text) <= _TEXT_MAX else None

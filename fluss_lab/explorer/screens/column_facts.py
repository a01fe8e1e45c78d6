"""The facts of columns: share of nulls, and how values are spread, from a sample."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.display import short

#: Rows that are looked at.
SAMPLE_ROWS: Final = 10_000
#: Of wide rows fewer, of so many bytes in all; at least one of each bucket.
SAMPLE_BYTES: Final = 16 * 1024 * 1024
#: Buckets that they are taken from.
SAMPLE_BUCKETS: Final = 16
_BINS: Final = 14
_VALUES_MAX: Final = 20
_TEXT_MAX: Final = 60


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
    if kind == "number":
        return facts | _spread(name, known)
    if kind in {"text", "bool"}:
        return facts | _shares(name, kind, known)
    return facts


def _spread(name: str, values: pa.ChunkedArray) -> dict[str, Any]:
    """Return the numbers in bins of about one width; how many there are of one."""
    import numpy as np

    is_whole = pa.types.is_integer(values.type)
    numbers = np.asarray(pc.cast(values, pa.float64(), safe=False))
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return {}
    least, most = float(numbers.min()), float(numbers.max())
    if least == most:
        return {"distinct": 1}
    bins = min(_BINS, int(most - least) + 1) if is_whole else _BINS
    width = (most - least + is_whole) / bins
    if not width or not math.isfinite(width):
        return {}
    texts = [_edge(least + width * number, width, is_whole=is_whole) for number in range(bins + 1)]
    inner = np.array([float(text) for text in texts[1:-1]])
    counts = np.bincount(np.searchsorted(inner, numbers, side="right"), minlength=bins)
    conditions = [f"{name} >= {low} and {name} < {high}" for low, high in itertools.pairwise(texts)]
    conditions[0], conditions[-1] = f"{name} < {texts[1]}", f"{name} >= {texts[-2]}"
    last = str(int(most)) if is_whole else texts[-1]
    return {"bins": {"lo": texts[0], "hi": last, "counts": counts.tolist(), "conditions": conditions}}


def _edge(value: float, width: float, *, is_whole: bool) -> str:
    """Return an edge of a bin as SQL: whole where numbers are, or bins are wide; else exact enough to tell two apart."""
    if is_whole or width >= 100:
        return str(math.floor(value))
    return f"{value:.{min(max(0, 2 - math.floor(math.log10(width))), 15)}f}"


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

"""The removal of some rows from a batch: which they are, of rows that ascend by a number, and the batch without them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Where at most one in so many rows is removed, what lies between is copied piece by piece: twice as fast as a filter.
FEW_REMOVED: Final = 1024


def without_rows(rows: pa.RecordBatch, places: NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows without those at some places, which are in no order and may come twice."""
    if not len(places):
        return rows
    if len(places) > rows.num_rows // FEW_REMOVED:
        left = np.ones(rows.num_rows, dtype=bool)
        left[places] = False
        return rows.filter(boolean_array(left))
    edges = [-1, *np.unique(places).tolist(), rows.num_rows]
    pieces = [rows.slice(low + 1, high - low - 1) for low, high in pairwise(edges) if high - low > 1]
    return pa.concat_batches(pieces) if pieces else rows.slice(0, 0)


def member_places(values: NDArray[np.int64], members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where among values that ascend strictly some others, which ascend, are; ascending. One may come twice, as there."""
    if not len(values):
        return np.empty(0, dtype=np.int64)
    first, last = int(values[0]), int(values[-1])
    within = slice_ascending(members, first, last + 1)
    if last - first + 1 == len(values):  # without gaps: nothing is looked for
        return within - first
    places = values.searchsorted(within)
    found: NDArray[np.int64] = places[values[places] == within]
    return found


def slice_ascending(ascending: NDArray[np.int64], first: int, stop: int) -> NDArray[np.int64]:
    """Return those of ascending numbers that are in ``[first, stop)``. No copy."""
    low, high = ascending.searchsorted((first, stop))
    return ascending[low:high]


def boolean_array(values: NDArray[np.bool_]) -> pa.BooleanArray:
    """Return booleans as Arrow has them; seven times as fast as `pa.array`."""
    bits = np.packbits(values, bitorder="little")
    return pa.BooleanArray.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])

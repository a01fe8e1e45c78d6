"""The masks of a primary-key table's records: which write rows, and which end them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.changes import ChangeType
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INSERT: Final = int(ChangeType.INSERT)
_BEFORE: Final = int(ChangeType.UPDATE_BEFORE)
_AFTER: Final = int(ChangeType.UPDATE_AFTER)
_DELETE: Final = int(ChangeType.DELETE)


def write_mask(records: LogRecords) -> NDArray[np.bool_]:
    """Return of each record whether it writes a row.

    Raises:
        CorruptDataError: The records do not say.
    """
    kinds = _kinds(records)
    written: NDArray[np.bool_] = (kinds == _INSERT) | (kinds == _AFTER)
    return written


def end_mask(records: LogRecords) -> NDArray[np.bool_]:
    """Return of each record whether it ends a row.

    Raises:
        CorruptDataError: The records do not say, or one does not say which row.
    """
    kinds = _kinds(records)
    ending: NDArray[np.bool_] = (kinds == _BEFORE) | (kinds == _DELETE)
    if records.previous_offsets is None:
        raise _damage(records, "expected previous offsets, found none")
    if ending.any() and int(records.previous_offsets.to_numpy()[ending].min()) < 0:
        raise _damage(records, "a record ends a row and does not say which")
    return ending


def ended_offsets(records: LogRecords) -> NDArray[np.int64]:
    """Return the offsets of the rows that records end, in the order of the records.

    Raises:
        CorruptDataError: They do not say.
    """
    ending = end_mask(records)
    assert records.previous_offsets is not None
    previous: NDArray[np.int64] = records.previous_offsets.to_numpy()
    return previous[ending]


def membership_mask(values: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return of each value whether it is one of some others, which ascend."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == values
    return found


def _kinds(records: LogRecords) -> NDArray[np.int8]:
    if records.change_types is None:
        raise _damage(records, "expected change types, found none")
    kinds: NDArray[np.int8] = records.change_types.to_numpy()
    return kinds


def _damage(records: LogRecords, what: str) -> CorruptDataError:
    return CorruptDataError(f"changes [{records.base_offset}, {records.next_offset}) of a primary-key table: {what}")

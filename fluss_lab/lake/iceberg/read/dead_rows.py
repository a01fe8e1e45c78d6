"""The deleted rows of a data file, by offset, position or key, and the rows without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.lake.format_interfaces import OFFSET_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.lake.iceberg.read.row_deletes import DeletedKeys

NO_NUMBERS: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DeadRows:
    """What of one data file is left out.

    Attributes:
        offsets: Arrays of offsets, each ascending: rows that have one of them. Others may be among them.
        positions: Positions in the file, ascending.
        keys: Rows that others deleted by key; None: none.
        number: The file's data sequence number: deletes by key of larger ones apply.
        stop: Rows at or after this offset; None: none.
    """

    offsets: tuple[NDArray[np.int64], ...] = ()
    positions: NDArray[np.int64] = field(default_factory=lambda: NO_NUMBERS)
    keys: DeletedKeys | None = None
    number: int = 0
    stop: int | None = None

    @property
    def columns(self) -> list[str]:
        """Return the columns by which `without` tells dead rows."""
        names = [] if self.keys is None else self.keys.names
        return [*names, OFFSET_COLUMN] if self.offsets or self.stop is not None else list(names)

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that ascend by offset without dead ones, positions apart: those only the file's reader can tell.

        Args:
            rows: With at least the columns `columns`.
        """
        if not rows.num_rows or (not self.offsets and self.keys is None and self.stop is None):
            return rows
        if self.offsets or self.stop is not None:
            values = rows.column(OFFSET_COLUMN).to_numpy()
            if self.stop is not None and values[-1] >= self.stop:
                rows = rows.slice(0, int(np.searchsorted(values, self.stop)))
                values = values[: rows.num_rows]
            if (alive := _alive(values, self.offsets)) is not None:
                rows = rows.filter(pa.array(alive))
        if self.keys is not None and self.keys.names and rows.num_rows:
            gone = self.keys.deleted(pa.Table.from_batches([rows]), self.number)
            rows = rows.filter(pa.array(~gone)) if gone.any() else rows
        return rows

    def count_in(self, first: int, stop: int) -> int:
        """Return how many of the offsets of a range are dead, where each of the range is a row's."""
        found = [part for part in (slice_ascending(each, first, stop) for each in self.offsets) if len(part)]
        return len(found[0]) if len(found) == 1 else len(np.unique(np.concatenate(found))) if found else 0


def slice_ascending(ascending: NDArray[np.int64], first: int, stop: int) -> NDArray[np.int64]:
    """Return those of ascending numbers that are in ``[first, stop)``. No copy."""
    low, high = np.searchsorted(ascending, [first, stop])
    return ascending[low:high]


def _alive(offsets: NDArray[np.int64], dead: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_] | None:
    """Return of ascending offsets which are in none of some arrays; None: all."""
    if not len(offsets):
        return None
    alive: NDArray[np.bool_] | None = None
    for each in dead:
        wanted = slice_ascending(each, int(offsets[0]), int(offsets[-1]) + 1)
        if not len(wanted):
            continue
        places = np.searchsorted(offsets, wanted)
        hits = places[offsets[places] == wanted]
        if len(hits):
            alive = np.ones(len(offsets), dtype=bool) if alive is None else alive
            alive[hits] = False
    return alive

"""The offsets that a writer has written as rows, in order: its own rows are located without reading them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fluss_lab.lake.iceberg.write.row_locator import NOWHERE

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Offsets are packed by so many: finding some of them unpacks their block, 0.5 MB.
BLOCK_ROWS: Final = 64 * 1024
#: A block is a bitmap where that is smaller than its offsets, of 64 bits each.
_BITS_A_ROW_MAX: Final = 64


class WrittenRows:
    """The offsets of rows in the order in which they were written, ascending. Used by one thread.

    Memory: a bit for every offset between the first and the last, never more than 8 bytes a row; so a split of 10 million
    records, half of them rows, takes some 1.3 MB.
    """

    def __init__(self) -> None:
        self._count = 0
        self._loose: list[NDArray[np.int64]] = []
        self._loose_count = 0
        self._blocks: list[tuple[int, NDArray[np.uint8] | NDArray[np.int64]]] = []
        self._first_offsets: list[int] = []
        self._first_ordinals: list[int] = []

    def __len__(self) -> int:
        return self._count

    def append(self, offsets: NDArray[np.int64]) -> None:
        """Take the offsets of further rows: ascending, and after those before."""
        # A copy: what is given may be a view of a whole batch.
        self._loose.append(offsets.copy())
        self._loose_count += len(offsets)
        self._count += len(offsets)
        if self._loose_count >= BLOCK_ROWS:
            self._pack()

    def locate(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each offset, in any order, which row it is (the first written is 0); -1 where it is none."""
        self._pack()
        order = np.argsort(offsets, kind="stable")
        wanted = offsets[order]
        found = np.full(len(wanted), NOWHERE, dtype=np.int64)
        # Of an offset before all blocks the block is -1: there is none.
        block_of = np.searchsorted(np.array(self._first_offsets, dtype=np.int64), wanted, side="right") - 1
        edges = np.searchsorted(block_of, np.arange(len(self._blocks) + 1), side="left")
        for index in range(len(self._blocks)):
            low, high = edges[index], edges[index + 1]
            if low < high:
                values = self._unpacked(index)
                places = np.minimum(np.searchsorted(values, wanted[low:high]), len(values) - 1)
                hits = values[places] == wanted[low:high]
                found[low:high][hits] = self._first_ordinals[index] + places[hits]
        ordinals = np.empty_like(found)
        ordinals[order] = found
        return ordinals

    def _pack(self) -> None:
        if not self._loose_count:
            return
        offsets = np.concatenate(self._loose)
        first_ordinal = self._count - self._loose_count
        self._loose.clear()
        self._loose_count = 0
        for start in range(0, len(offsets), BLOCK_ROWS):
            block = offsets[start : start + BLOCK_ROWS]
            base, span = int(block[0]), int(block[-1]) - int(block[0]) + 1
            packed: NDArray[np.uint8] | NDArray[np.int64] = block.copy()
            if span <= len(block) * _BITS_A_ROW_MAX:
                bits = np.zeros(span, dtype=np.bool_)
                bits[block - base] = True
                packed = np.packbits(bits)
            self._first_offsets.append(base)
            self._first_ordinals.append(first_ordinal + start)
            self._blocks.append((base, packed))

    def _unpacked(self, index: int) -> NDArray[np.int64]:
        base, packed = self._blocks[index]
        if packed.dtype == np.int64:
            return packed.astype(np.int64, copy=False)
        return np.flatnonzero(np.unpackbits(packed.astype(np.uint8, copy=False))) + base

"""The cache of remote lookups: rows by key, keys without a row too, the least recently used ones dropped first."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from fluss_lab.lookup.rows.keyed_rows import Groups, KeyIndex, Longs, empty_batch

#: This part of a full cache is dropped at once, so that it is not made anew for each batch.
_DROPPED_PART: Final = 8
#: What is known of each key beside its rows.
_NUMBERS: Final = ("start", "count", "used", "written")


class LookupCache:
    """Rows of keys, up to a number of rows. Used by one thread.

    A key without a row counts as one. Which keys were used last is known batch by batch.

    Args:
        keys: The schema of keys.
        rows: The schema of rows.
        rows_max: Rows at most; 0: none.
        expiry_ms: After so long an entry is not found any more; 0: never.
    """

    def __init__(self, keys: pa.Schema, rows: pa.Schema, rows_max: int, expiry_ms: int = 0) -> None:
        self._rows_max, self._expiry_ms = rows_max, expiry_ms
        self._index = KeyIndex.of(empty_batch(keys))
        self._rows = empty_batch(rows)
        #: Of each key: where its rows begin, how many they are, the batch that used it last, when it was written.
        self._starts, self._counts, self._used, self._written = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self._batch = 0

    def __len__(self) -> int:
        return int(self._weights().sum())

    @property
    def size_bytes(self) -> int:
        """Return how much memory keys and rows take."""
        return int(self._index.keys.nbytes + self._rows.nbytes + self._index.slots.nbytes + 5 * self._starts.nbytes)

    @property
    def rows(self) -> pa.RecordBatch:
        """Return all rows, for those that `expand` returns."""
        return self._rows

    def find(self, keys: pa.RecordBatch, now_ms: int) -> Longs:
        """Return the entry of each key; -1 for one that is not cached. Those found count as used."""
        self._batch += 1
        found = self._index.find(keys)
        if self._expiry_ms and len(self._written):
            expired = self._written <= now_ms - self._expiry_ms
            found[(found >= 0) & expired[found]] = -1
        self._used[found[found >= 0]] = self._batch
        return found

    def expand(self, entries: Longs) -> tuple[Longs, Longs]:
        """Return the rows of entries: positions, ascending, and the row of each; an entry without rows has none."""
        return Groups(self._starts, self._counts).expand(entries)

    def add(self, keys: pa.RecordBatch, positions: Longs, rows: pa.RecordBatch, now_ms: int) -> None:
        """Take the rows of keys, which are distinct, and which `find` did not find just now.

        Args:
            positions: Ascending: of each row, which key it was found for.
        """
        if self._expiry_ms:
            self._keep(self._written > now_ms - self._expiry_ms)
        counts = np.bincount(positions, minlength=keys.num_rows)
        weights = np.maximum(counts, 1)
        # Of more than there is room for, the last ones that there is.
        fitting = np.cumsum(weights[::-1])[::-1] <= self._rows_max
        if not fitting.all():
            first = int(np.argmax(fitting)) if fitting.any() else keys.num_rows
            place = int(counts[:first].sum())
            keys, counts, rows = keys.slice(first), counts[first:], rows.slice(place)
            weights = weights[first:]
        self._make_room(int(weights.sum()))
        starts = np.cumsum(counts) - counts + self._rows.num_rows
        self._index = self._index.extend(keys)
        self._rows = pa.concat_batches([self._rows, rows])
        self._starts, self._counts = np.concatenate([self._starts, starts]), np.concatenate([self._counts, counts])
        self._used = np.concatenate([self._used, np.full(len(counts), self._batch)])
        self._written = np.concatenate([self._written, np.full(len(counts), now_ms)])

    def drop(self, keys: pa.RecordBatch) -> None:
        """Forget some keys, which may be there or not."""
        found = self._index.find(keys)
        kept = np.ones(len(self._starts), dtype=np.bool_)
        kept[found[found >= 0]] = False
        self._keep(kept)

    def parts(self) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
        """Return keys, numbers of each key, and rows, as `restore` takes them."""
        numbers = [self._starts, self._counts, self._used, self._written]
        return self._index.keys, pa.RecordBatch.from_arrays(list(map(pa.array, numbers)), list(_NUMBERS)), self._rows

    def restore(self, keys: pa.RecordBatch, numbers: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        """Take what `parts` returned of another cache of the same schemas."""
        self._index, self._rows = KeyIndex.of(keys), rows
        self._starts, self._counts, self._used, self._written = (each.to_numpy().copy() for each in numbers.columns)
        self._batch = int(self._used.max(initial=0))
        self._make_room(0)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _weights(self) -> Longs:
        return np.maximum(self._counts, 1)

    def _make_room(self, wanted: int) -> None:
        """Drop the least recently used entries until so many rows have room."""
        weights = self._weights()
        if int(weights.sum()) + wanted <= self._rows_max:
            return
        room = max(0, self._rows_max - max(wanted, self._rows_max // _DROPPED_PART))
        order = np.argsort(-self._used, kind="stable")
        kept = np.zeros(len(weights), dtype=np.bool_)
        kept[order[np.cumsum(weights[order]) <= room]] = True
        self._keep(kept)

    def _keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Keep some entries only."""
        if kept.all():
            return
        at = np.flatnonzero(kept)
        _, ids = Groups(self._starts, self._counts).expand(at)
        self._index = KeyIndex.of(self._index.keys.take(pa.array(at)))
        self._rows = self._rows.take(pa.array(ids))
        self._counts, self._used, self._written = self._counts[at], self._used[at], self._written[at]
        self._starts = np.cumsum(self._counts) - self._counts

"""Rows in append-only chunks, each found by the log offset of its record.

Chunks of a store follow one another: every offset of one is smaller than every offset of the next, so a row's offset is
its address for as long as it lives, whatever is merged or rewritten meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.records.row_sizes import rows_bytes, widest_bytes
from fluss_lab.server.kv.keys.key_hashes import Longs
from fluss_lab.server.kv.keys.row_equality import Mask

#: Below this a binary search in the cache is as fast as anything.
RANKED_ROWS_MIN: Final = 8192
#: Offsets for each row up to which a bitmap of them is kept: at most 8 bytes a row.
RANKED_SPREAD_MAX: Final = 32
#: Rows whose keys are hashed and put into an index together: what they need stays in the cache.
KEYS_ROWS: Final = 1 << 16

_WORD_BITS: Final = 64
#: So many rows are sliced out one by one: each costs 2 us, taking some of each chunk 30 us a chunk.
_SLICED_ROWS_MAX: Final = 64


#: Rows that are gathered at once for one call. Answers and changelogs are limited to a fraction of it by the server; this
#: keeps a call that asks for far too much from filling the memory first, and Arrow's 32-bit string offsets from overflowing.
GATHERED_BYTES_MAX: Final = 256 << 20


def check_bytes(size: int, bytes_max: int = GATHERED_BYTES_MAX) -> None:
    """Refuse to gather too much.

    Raises:
        RecordTooLargeError: It is more than `bytes_max`.
    """
    if size > bytes_max:
        raise RecordTooLargeError(
            f"the rows of these keys have {size} bytes, expected at most {bytes_max}; ask for fewer keys, or send smaller "
            "batches"
        )


@dataclass(frozen=True, slots=True)
class KvChunk:
    """Rows that were put into the store together, or merged from such. Never changed once made.

    Attributes:
        chunk_id: Unique within the store's life, and its restored successors'; the same rows for ever.
        schema_id: The schema that the rows were made by.
        rows: In the Arrow schema of that schema id.
        offsets: int64: log offset of each row's record, ascending.
        timestamps_ms: int64: commit timestamp of each row's record.
        is_mapped: Whether all of it lies in a mapped file: memory that the system may take back, and reads again.
    """

    chunk_id: int
    schema_id: int
    rows: pa.RecordBatch
    offsets: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]
    is_mapped: bool = False


class ChunkIds:
    """The ids of a store's chunks, none of them used twice.

    Attributes:
        coming: Larger than every id used.
    """

    def __init__(self) -> None:
        self.coming = 0

    def take(self) -> int:
        """Return a new one."""
        self.coming += 1
        return self.coming - 1


class OffsetBitmap:
    """Rows of a chunk by offset: a bit for each offset of its range, and how many bits are set before each word."""

    def __init__(self, offsets: Longs) -> None:
        self._offsets = offsets
        self._first = int(offsets[0])
        self._ranks: tuple[npt.NDArray[np.uint64], Longs] | None = None
        span = int(offsets[-1]) - self._first + 1
        self._is_dense = span == offsets.size
        self._is_ranked = offsets.size >= RANKED_ROWS_MIN and span <= RANKED_SPREAD_MAX * offsets.size
        self._span = span

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the bitmap; it is made when it is first needed."""
        return 0 if self._ranks is None else sum(part.nbytes for part in self._ranks)

    def settle(self, offsets: Longs) -> None:
        """Read the same offsets from another place."""
        self._offsets = offsets

    def of_one(self, offset: int) -> int:
        """Return the row of one offset that is there."""
        return offset - self._first if self._is_dense else int(self.of(np.array([offset]))[0])

    def of(self, offsets: Longs) -> Longs:
        """Return the rows of offsets that are all there. Cost: some 5 ns each, 40 ns where offsets lie far apart."""
        if self._is_dense:
            return offsets - self._first
        if not self._is_ranked:
            return np.searchsorted(self._offsets, offsets)
        words, before = self._rank_words()
        bits = offsets - self._first
        word = bits >> 6
        below = (np.uint64(1) << (bits & (_WORD_BITS - 1)).astype(np.uint64)) - np.uint64(1)
        rows: Longs = before[word] + np.bitwise_count(words[word] & below)
        return rows

    def _rank_words(self) -> tuple[npt.NDArray[np.uint64], Longs]:
        if self._ranks is None:
            size = -(-self._span // _WORD_BITS) * _WORD_BITS
            bits = np.zeros(size, np.bool_)
            bits[self._offsets - self._first] = True
            words = np.packbits(bits, bitorder="little").view(np.uint64)
            counts = np.bitwise_count(words).astype(np.int64)
            self._ranks = words, np.cumsum(counts) - counts
        return self._ranks


class Chunk:
    """A `KvChunk` in use: which of its rows are live, and what helps to find them.

    Attributes:
        data: Never changes, but for its place: see `settle`.
        live: Whether each row is its key's present one. The writer changes it, unless it is `shared`.
        live_count: How many are.
        shared: `live` is read without the lock: the writer copies it before it changes it.
        places: Rows by offset.
        sidecar: What prefix lookups keep here, once there was one.
    """

    __slots__ = ("_selected", "_widest_bytes", "data", "live", "live_count", "places", "row_bytes", "shared", "sidecar")

    def __init__(self, data: KvChunk, live: npt.NDArray[np.bool_] | None = None, *, shared: bool = False) -> None:
        self.data = data
        self.shared = shared
        self.live = np.ones(data.rows.num_rows, np.bool_) if live is None else live
        self.live_count = data.rows.num_rows if live is None else int(np.count_nonzero(live))
        self.places = OffsetBitmap(data.offsets)
        self.row_bytes = int(data.rows.nbytes)
        self.sidecar: object | None = None
        self._selected: tuple[list[int], pa.RecordBatch, pa.RecordBatch] | None = None
        self._widest_bytes = -1

    def __len__(self) -> int:
        return int(self.data.rows.num_rows)

    @property
    def data_bytes(self) -> int:
        """Return the bytes of rows, offsets and timestamps, wherever they are."""
        return self.row_bytes + self.data.offsets.nbytes + self.data.timestamps_ms.nbytes

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that are in memory: of rows, offsets and timestamps unless they are mapped, and of aids."""
        return (0 if self.data.is_mapped else self.data_bytes) + self.live.nbytes + self.places.memory_bytes

    def settle(self, data: KvChunk) -> None:
        """Take the same rows, offsets and timestamps from another place. Who reads them meanwhile reads either."""
        self.data = data
        self.places.settle(data.offsets)
        self._selected = None

    def select(self, columns: list[int]) -> pa.RecordBatch:
        """Return some of the columns. The same are usually wanted again."""
        held, rows = self._selected, self.data.rows
        if held is None or held[0] != columns or held[1] is not rows:
            held = self._selected = columns, rows, rows.select(columns)
        return held[2]

    def bytes_of(self, rows: int) -> int:
        """Return about how many bytes some of the rows are."""
        return self.row_bytes * rows // max(len(self), 1)

    @property
    def widest_bytes(self) -> int:
        """Return how many bytes no row exceeds. Cost: a look at all lengths, the first time."""
        if self._widest_bytes < 0:
            self._widest_bytes = widest_bytes(self.data.rows.columns)
        return self._widest_bytes

    def keys(self, columns: Sequence[int]) -> Iterator[tuple[list[pa.Array], Mask, Longs]]:
        """Yield columns of all rows, which of them are live, and their offsets, in parts."""
        chosen = [self.data.rows.column(index) for index in columns]
        for start in range(0, len(self), KEYS_ROWS):
            part = slice(start, start + KEYS_ROWS)
            yield [column.slice(start, KEYS_ROWS) for column in chosen], self.live[part], self.data.offsets[part]

    def bury(self, rows: Longs) -> None:
        """Mark rows as dead, all of which live."""
        if self.shared:
            self.live = self.live.copy()
            self.shared = False
        self.live[rows] = False
        self.live_count -= rows.size

    def live_rows(self, start: int = 0, stop: int | None = None) -> Longs:
        """Return the live rows among some, ascending."""
        return np.flatnonzero(self.live[start:stop]) + start


def check_gathered(found: Sequence[tuple[Chunk, Longs]], bytes_max: int = GATHERED_BYTES_MAX) -> None:
    """Refuse to gather rows of chunks that are too large together; a row counts as often as it is named.

    Raises:
        RecordTooLargeError: They have more than `bytes_max`. Nothing was copied.

    Cost: next to nothing, unless there are rows so wide that as many of them would be too much.
    """
    if sum(rows.size * chunk.row_bytes for chunk, rows in found) <= bytes_max:
        return
    if sum(rows.size * chunk.widest_bytes for chunk, rows in found) > bytes_max:
        check_bytes(sum(rows_bytes(chunk.data.rows.columns, rows) for chunk, rows in found), bytes_max)


class ChunkLayout:
    """The chunks of a store at one moment, in order of their offsets. Never changes; only its chunks' `live` does."""

    __slots__ = ("_starts", "chunks")

    def __init__(self, chunks: tuple[Chunk, ...] = ()) -> None:
        self.chunks = chunks
        self._starts = np.array([chunk.data.offsets[0] for chunk in chunks], np.int64)

    def append(self, chunk: Chunk) -> ChunkLayout:
        """Return the layout with one more chunk."""
        return ChunkLayout((*self.chunks, chunk))

    def replace(self, start: int, stop: int, chunks: Sequence[Chunk]) -> ChunkLayout:
        """Return the layout with other chunks in place of some."""
        return ChunkLayout((*self.chunks[:start], *chunks, *self.chunks[stop:]))

    def split(self, ascending: Longs) -> Iterator[tuple[Chunk, Longs]]:
        """Yield chunk and rows of offsets that are all there, in ascending order."""
        if ascending.size == 1:
            # As most look-ups ask: no need to look at every chunk.
            chunk = self.chunks[int(np.searchsorted(self._starts, ascending[0], "right")) - 1]
            yield chunk, chunk.places.of(ascending)
            return
        edges = np.searchsorted(ascending, self._starts).tolist()
        edges.append(ascending.size)
        for chunk, (start, stop) in zip(self.chunks, pairwise(edges), strict=True):
            if start < stop:
                yield chunk, chunk.places.of(ascending[start:stop])

    def rows_of(self, offsets: Longs, columns: Sequence[int], schema: pa.Schema, answer: pa.Schema) -> pa.RecordBatch:
        """Return columns of the rows at offsets that are all there, in the order of the offsets; see `gather`.

        Args:
            answer: The schema of these columns.

        Raises:
            RecordTooLargeError: They would be too much.
        """
        if 0 < offsets.size <= _SLICED_ROWS_MAX:
            places = np.argsort(offsets)
            few = list(self.split(offsets[places]))
            check_gathered(few)
            if (sliced := _slice_rows(few, places, columns)) is not None and sliced.schema.equals(answer):
                return sliced
        order, found = self._group(offsets)
        arrays = self._take(found, columns, schema, GATHERED_BYTES_MAX)
        if order is not None:
            asked = np.empty(order.size, np.int64)
            asked[order] = np.arange(order.size)
            back = pa.array(asked)
            arrays = [array.take(back) for array in arrays]
        return pa.RecordBatch.from_arrays(arrays, schema=answer)

    def _group(self, offsets: Longs) -> tuple[Longs | None, list[tuple[Chunk, Longs]]]:
        """Return chunks with rows of each, and which of the offsets these are, one after another; None: in their order."""
        if not offsets.size:
            return None, []
        owners = self._starts.searchsorted(offsets, "right") - 1
        counts = np.bincount(owners)
        owned = np.flatnonzero(counts)
        if owned.size == 1:
            chunk = self.chunks[owned[0]]
            return None, [(chunk, chunk.places.of(offsets))]
        # Of numbers of 16 bits a stable sort goes through them twice only.
        order = np.argsort(owners.astype(np.int16) if len(self.chunks) <= 1 << 15 else owners, kind="stable")
        parts = np.split(offsets[order], np.cumsum(counts[owned])[:-1])
        held = [self.chunks[index] for index in owned.tolist()]
        return order, [(chunk, chunk.places.of(part)) for chunk, part in zip(held, parts, strict=True)]

    def row_of(self, offset: int, columns: list[int], schema: pa.Schema, answer: pa.Schema) -> pa.RecordBatch:
        """Return columns of the row at one offset that is there, not copied: as `rows_of` does for many, at a tenth of the cost."""
        chunk = self.chunks[int(self._starts.searchsorted(offset, "right")) - 1]
        if chunk.data.rows.num_columns > max(columns, default=-1):
            sliced = chunk.select(columns).slice(chunk.places.of_one(offset), 1)
            if sliced.schema.equals(answer):
                return sliced
        return self.rows_of(np.array([offset]), columns, schema, answer)

    def gather(
        self, ascending: Longs, columns: Sequence[int], schema: pa.Schema, bytes_max: int = GATHERED_BYTES_MAX
    ) -> list[pa.Array]:
        """Return columns of the rows at offsets that are all there, in ascending order.

        Args:
            ascending: Log offsets.
            columns: Indexes in `schema`; columns that a chunk is too old to have are null.
            schema: The current one.
            bytes_max: Of whole rows, at most; a row counts as often as it is named.

        Raises:
            RecordTooLargeError: They would be more. Nothing was copied.
        """
        return self._take(list(self.split(ascending)), columns, schema, bytes_max)

    def _take(
        self, found: Sequence[tuple[Chunk, Longs]], columns: Sequence[int], schema: pa.Schema, bytes_max: int
    ) -> list[pa.Array]:
        """Return columns of rows of chunks, one chunk after another."""
        check_gathered(found, bytes_max)
        parts = [take_columns(chunk, rows, columns, schema) for chunk, rows in found]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return [pa.nulls(0, schema.field(index).type) for index in columns]
        return [pa.concat_arrays(list(column)) for column in zip(*parts, strict=True)]


def _slice_rows(found: Sequence[tuple[Chunk, Longs]], order: Longs, columns: Sequence[int]) -> pa.RecordBatch | None:
    """Return columns of a few rows, each where `order` says; None where the chunks are of different schemas.

    Args:
        found: Chunks, with rows of each.
        order: Where each of these rows goes.
        columns: Indexes of the columns.
    """
    first = found[0][0].data
    if first.rows.num_columns <= max(columns, default=-1) or any(
        chunk.data.schema_id != first.schema_id for chunk, _ in found
    ):
        return None
    chosen = list(columns)
    sliced = [part.slice(row, 1) for chunk, rows in found for part in (chunk.select(chosen),) for row in rows.tolist()]
    if len(sliced) == 1:
        return sliced[0]
    placed = [sliced[0]] * len(sliced)
    for place, row in zip(order.tolist(), sliced, strict=True):
        placed[place] = row
    return pa.concat_batches(placed)


def take_columns(chunk: Chunk, chosen: Longs | slice, columns: Sequence[int], schema: pa.Schema) -> list[pa.Array]:
    """Return columns of some rows; columns of `schema` that the rows are too old to have are null."""
    width = chunk.data.rows.num_columns
    held = [index for index in columns if index < width]
    part = chunk.select(held)
    if not isinstance(chosen, slice) and chosen.size == 1:
        # Ten times as fast as taking it.
        chosen = slice(row := int(chosen[0]), row + 1)
    if isinstance(chosen, slice):
        count = chosen.stop - chosen.start
        part = part.slice(chosen.start, count)
    else:
        count = chosen.size
        part = part.take(pa.array(chosen)) if held else part
    if len(held) == len(columns):
        return list(part.columns)
    arrays = iter(part.columns)
    return [next(arrays) if index < width else pa.nulls(count, schema.field(index).type) for index in columns]


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a schema without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)

"""A store at one moment: the view that reads it, and the image that a snapshot writes and a store is restored from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import InvalidRequestError
from fluss_lab.server.kv.file_changes import SnapshotFiles
from fluss_lab.server.kv.keys.key_hashes import Longs
from fluss_lab.server.kv.keys.row_equality import Mask
from fluss_lab.server.kv.row_chunks import Chunk, KvChunk, check_bytes, no_rows, take_columns

#: Rows of one batch of a view, unless fewer are wanted: some 5 MB.
VIEW_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class KvImage:
    """The state of a store with all changes below a log offset, and none from it on.

    Attributes:
        log_offset: That offset.
        chunks: Ascending by their first offset.
        live: For each chunk, a boolean for each row: whether it is the present row of its key. Over all chunks no key
            is live twice.
        next_chunk_id: Larger than every chunk id ever used.
        files: What chunks that were read lie in.
    """

    log_offset: int
    chunks: tuple[KvChunk, ...]
    live: tuple[npt.NDArray[np.bool_], ...]
    next_chunk_id: int
    files: SnapshotFiles = field(default_factory=SnapshotFiles)

    @property
    def row_count(self) -> int:
        """Return how many live rows there are."""
        return sum(int(np.count_nonzero(alive)) for alive in self.live)


@dataclass(frozen=True, slots=True)
class KvView:
    """The live rows of a store with all changes below a log offset, and none from it on.

    It stays as it is while the store changes, and keeps the memory of what it shows.

    Attributes:
        log_offset: That offset.
        schema_id: The schema that rows are given in.
        schema: Its Arrow form.
        parts: Chunks in order of their offsets, and which of their rows are live. Never changed.
        files: What chunks lie in that a snapshot had.
    """

    log_offset: int
    schema_id: int
    schema: pa.Schema
    parts: tuple[tuple[Chunk, Mask], ...]
    files: SnapshotFiles = field(default_factory=SnapshotFiles)

    @property
    def row_count(self) -> int:
        """Return how many live rows there are."""
        return sum(int(live.sum()) for _, live in self.parts)

    def batches(
        self,
        columns: Sequence[int] | None = None,
        start_offset: int = 0,
        *,
        rows_max: int = VIEW_ROWS,
        bytes_max: int | None = None,
    ) -> Iterator[tuple[pa.RecordBatch, Longs, Longs]]:
        """Yield the live rows in ascending order of the offset of their last change.

        Args:
            columns: Indexes of the columns wanted; None for all.
            start_offset: Rows whose last change has a smaller one are left out.
            rows_max: Most rows of one batch.
            bytes_max: Most bytes of one batch, though at least one row; None for no limit.

        Returns:
            Batches of at least one row, each with int64 log offsets and commit timestamps (epoch milliseconds).

        Cost: memory of one batch of `rows_max` rows (of the projected columns).
        """
        wanted = checked_columns(columns, self.schema)
        schema = self.schema if columns is None else pa.schema([self.schema.field(index) for index in wanted])
        for chunk, live in self.parts:
            for start in range(int(chunk.data.offsets.searchsorted(start_offset)), len(chunk), rows_max):
                rows = live[start : start + rows_max].nonzero()[0] + start
                if rows.size:
                    chosen = _selector(chunk, rows)
                    arrays = take_columns(chunk, chosen, wanted, self.schema)
                    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                    yield from _cut(batch, chunk.data.offsets[chosen], chunk.data.timestamps_ms[chosen], bytes_max)

    def first(self, limit: int) -> pa.RecordBatch:
        """Return the first rows, up to a limit, all columns.

        Raises:
            RecordTooLargeError: The rows are too large to be gathered at once.
        """
        found: list[pa.RecordBatch] = []
        rest, size = limit, 0
        if limit > 0:
            for batch, _offsets, _timestamps in self.batches(rows_max=max(1, min(limit, VIEW_ROWS))):
                found.append(batch.slice(0, rest))
                check_bytes(size := size + found[-1].nbytes)
                rest -= found[-1].num_rows
                if rest <= 0:
                    break
        return pa.concat_batches(found) if found else no_rows(self.schema)


def _selector(chunk: Chunk, rows: Longs) -> Longs | slice:
    """Return rows of a chunk, ascending, as what takes them: without a copy where they lie together in memory."""
    first, last = int(rows[0]), int(rows[-1])
    # A file may be changed while its rows are held, but not what was copied from it.
    return slice(first, last + 1) if last - first + 1 == rows.size and not chunk.data.is_mapped else rows


def _cut(
    rows: pa.RecordBatch, offsets: Longs, timestamps_ms: Longs, bytes_max: int | None
) -> Iterator[tuple[pa.RecordBatch, Longs, Longs]]:
    """Yield rows in halves of halves until each part is small enough."""
    count = rows.num_rows
    if bytes_max is None or count == 1 or rows.nbytes <= bytes_max:
        yield rows, offsets, timestamps_ms
        return
    half = count // 2
    yield from _cut(rows.slice(0, half), offsets[:half], timestamps_ms[:half], bytes_max)
    yield from _cut(rows.slice(half), offsets[half:], timestamps_ms[half:], bytes_max)


def checked_columns(columns: Sequence[int] | None, schema: pa.Schema) -> list[int]:
    """Return column indexes as a list; all for None.

    Raises:
        InvalidRequestError: There is no column of some index.
    """
    if columns is None:
        return list(range(len(schema)))
    if wrong := [index for index in columns if not 0 <= index < len(schema)]:
        raise InvalidRequestError(f"no column {wrong[0]}: expected indexes in [0, {len(schema)})")
    return list(columns)

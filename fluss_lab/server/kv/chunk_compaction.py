"""The compaction of chunks: small neighbours are merged, chunks of dead rows rewritten.

Small merges are done at once; larger ones a few rows with every change, so that no single call pays for them. Readers
notice nothing: the rows keep their offsets, and a reader that has an old chunk keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.server.kv.keys.key_hashes import Longs
from fluss_lab.server.kv.row_chunks import Chunk, ChunkLayout, KvChunk, take_columns

#: So many neighbours of about one size (within a factor of four) become one.
NEIGHBOURS: Final = 4
#: Bytes of all rows of chunks that become one, dead ones included, for each byte of the largest chunk.
WHOLE: Final = 8


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """How much is merged and rewritten, and when.

    Attributes:
        chunk_rows: Rows of the largest chunk that merging makes.
        chunk_bytes: Its bytes. Its columns are joined one in a change; one of 64 MB takes some 20 ms.
        at_once_rows: Rows of the largest merge that is done within a change: about 1 ms.
        at_once_bytes: Its bytes.
        pace: Rows looked at in a change, for each of its rows. Each row is merged some five times in its life; and a
            chunk half of which is dead is examined twice for each row that replaced one of it.
        step_rows: Rows looked at in a change at least.
        dead_part: Part of a chunk that may be dead: memory of rows is bounded by the live ones divided by the rest.
        dead_rows: Dead rows below which a chunk is left alone: merging it takes them away.
    """

    chunk_rows: int = 1 << 20
    chunk_bytes: int = 64 << 20
    at_once_rows: int = 1 << 15
    at_once_bytes: int = 4 << 20
    pace: int = 8
    step_rows: int = 1 << 13
    dead_part: float = 0.5
    dead_rows: int = 1 << 10


class _Job:
    """Chunks on their way into one: what was copied so far."""

    def __init__(self, sources: Sequence[Chunk], schema_id: int, schema: pa.Schema) -> None:
        self.sources = tuple(sources)
        self._schema_id = schema_id
        self._schema = schema
        self._columns = range(len(schema))
        self._pieces: list[pa.RecordBatch] = []
        #: For each source, the rows copied.
        self._copied: list[list[Longs | slice]] = [[] for _ in sources]
        self._joined: list[pa.Array] = []
        self._at = 0
        self._row = 0

    def step(self, budget: int) -> bool:
        """Look at some more rows, or join the pieces of one column; return whether all is done."""
        if self._at == len(self.sources) and len(self._joined) < len(self._columns):
            self._join()
            return len(self._joined) == len(self._columns)
        while budget > 0 and self._at < len(self.sources):
            source = self.sources[self._at]
            stop = min(len(source), self._row + budget)
            budget -= stop - self._row
            self._copy(source, self._row, stop)
            self._row = stop
            if stop == len(source):
                self._at, self._row = self._at + 1, 0
        return self._at == len(self.sources) and not self._pieces

    def _copy(self, source: Chunk, start: int, stop: int) -> None:
        rows = source.live_rows(start, stop)
        if not rows.size:
            return
        chosen: Longs | slice = slice(start, stop) if rows.size == stop - start else rows
        columns = take_columns(source, chosen, self._columns, self._schema)
        self._pieces.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._copied[self._at].append(chosen)

    def _join(self) -> None:
        index = len(self._joined)
        self._joined.append(pa.concat_arrays([piece.column(index) for piece in self._pieces]))

    def chunk(self, chunk_id: int) -> Chunk | None:
        """Return the one chunk; rows that died since they were copied are dead in it. None when nothing lives."""
        lives: list[npt.NDArray[np.bool_]] = []
        offsets: list[Longs] = []
        timestamps: list[Longs] = []
        for source, parts in zip(self.sources, self._copied, strict=True):
            for rows in parts:
                lives.append(source.live[rows])
                offsets.append(source.data.offsets[rows])
                timestamps.append(source.data.timestamps_ms[rows])
        if not self._pieces:
            return None
        live = np.concatenate(lives)
        if not live.any():
            return None
        while len(self._joined) < len(self._columns):
            self._join()
        rows = pa.RecordBatch.from_arrays(self._joined, schema=self._schema)
        data = KvChunk(chunk_id, self._schema_id, rows, np.concatenate(offsets), np.concatenate(timestamps))
        return Chunk(data, live, shared=False)


class Rewriter:
    """Decides what is merged or rewritten, and does it step by step.

    Args:
        next_id: Returns a chunk id never used before.
        limits: When, and how much.
    """

    def __init__(self, next_id: Callable[[], int], limits: CompactionLimits) -> None:
        self._next_id = next_id
        self._limits = limits
        self._job: _Job | None = None

    def forget(self) -> None:
        """Leave what is half done: the schema changed."""
        self._job = None

    def advance(self, layout: ChunkLayout, rows: int, schema_id: int, schema: pa.Schema) -> ChunkLayout:
        """Do some work after a change, and return the layout that results.

        Args:
            layout: The present one.
            rows: Of the change: the more, the more is done.
            schema_id: The current schema, in which rows are rewritten.
            schema: Its Arrow form.
        """
        layout = self._merged_tail(layout, schema_id, schema)
        if self._job is None and (span := self._span(layout)) is not None:
            self._job = _Job(layout.chunks[slice(*span)], schema_id, schema)
        job = self._job
        if job is not None and job.step(max(self._limits.step_rows, self._limits.pace * rows)):
            start = layout.chunks.index(job.sources[0])
            layout = self._finish(layout, start, job)
            self._job = None
        return layout

    def _finish(self, layout: ChunkLayout, start: int, job: _Job) -> ChunkLayout:
        made = job.chunk(self._next_id())
        return layout.replace(start, start + len(job.sources), [] if made is None else [made])

    def _merged_tail(self, layout: ChunkLayout, schema_id: int, schema: pa.Schema) -> ChunkLayout:
        """Merge the last chunks while they are small and of one size."""
        busy = () if self._job is None else self._job.sources
        while True:
            chunks = layout.chunks
            start = _tail(chunks)
            sources = chunks[start:]
            if len(sources) < NEIGHBOURS or any(source in busy for source in sources):
                return layout
            rows = sum(len(source) for source in sources)
            size = sum(source.row_bytes for source in sources)
            if rows > self._limits.at_once_rows or size > self._limits.at_once_bytes:
                return layout
            job = _Job(sources, schema_id, schema)
            job.step(rows)
            layout = self._finish(layout, start, job)

    def _span(self, layout: ChunkLayout) -> tuple[int, int] | None:
        """Return the chunks to be merged or rewritten next; None when all is well."""
        chunks = layout.chunks
        for at, chunk in enumerate(chunks):
            if not chunk.live_count:
                return at, at + 1
            dead = len(chunk) - chunk.live_count
            if dead >= self._limits.dead_rows and dead > self._limits.dead_part * len(chunk):
                return self._widen(chunks, at)
        # From the newest: chunks of one size meet there.
        stop = len(chunks)
        while stop >= NEIGHBOURS:
            start = _tail(chunks[:stop])
            if stop - start == NEIGHBOURS:
                fitting = next((end for end in range(stop, start + 1, -1) if self._fits(chunks[start:end])), start)
                if fitting > start:
                    return start, fitting
            stop = min(start, stop - 1)
        return None

    def _fits(self, chunks: Sequence[Chunk]) -> bool:
        rows = sum(chunk.live_count for chunk in chunks)
        size = sum(chunk.bytes_of(chunk.live_count) for chunk in chunks)
        # Live rows may be larger than the average: what all rows have bounds what they can have.
        whole = sum(chunk.row_bytes for chunk in chunks)
        limits = self._limits
        return rows <= limits.chunk_rows and size <= limits.chunk_bytes and whole <= WHOLE * limits.chunk_bytes

    def _widen(self, chunks: Sequence[Chunk], at: int) -> tuple[int, int]:
        """Return a chunk with those neighbours that are small, as far as one chunk holds them all."""
        small = self._limits.chunk_rows // 2
        start, stop = at, at + 1
        while start and chunks[start - 1].live_count <= small and self._fits(chunks[start - 1 : stop]):
            start -= 1
        while stop < len(chunks) and chunks[stop].live_count <= small and self._fits(chunks[start : stop + 1]):
            stop += 1
        return start, stop


def _tail(chunks: Sequence[Chunk]) -> int:
    """Return where the last chunks that are of one size, or smaller than that, begin; at most `NEIGHBOURS` of them."""
    start = len(chunks)
    tier = 0
    while start and len(chunks) - start < NEIGHBOURS:
        if _tier(chunks[start - 1]) > tier and start < len(chunks):
            break
        start -= 1
        tier = max(tier, _tier(chunks[start]))
    return start


def _tier(chunk: Chunk) -> int:
    return chunk.live_count.bit_length() // 2

"""The rows that a bucket's part has in the lake, ascending by offset, whoever wrote its files and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.lake import LakeSplit
from fluss_lab.model.names import BucketKey
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_columns import BATCH_ROWS, GATHERED_ROWS, OFFSET, conform
from fluss_lab.read.union.read_parts import BucketPart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.read.union.read_parts import Request

#: A step (`Request.step_rows`) in which few rows are found is followed by one of twice as many, up to so many,
STEP_ROWS_MAX: Final = 262_144
#: or about so many stored bytes: some tenths of a second of reading.
STEP_BYTES: Final = 8 * 1024 * 1024
#: Files are read together up to this many stored bytes, so that many small ones cost what one costs, and a run of them
#: (with its rows decoded, some five times that) fits in memory. A single larger file is streamed.
RUN_BYTES: Final = 32 * 1024 * 1024


def lake_rows(
    source: TableSource, part: BucketPart, request: Request, ended: NDArray[np.int64] | None = None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the part's rows in the lake, and the offset up to which the bucket is read with them.

    Args:
        source: The table.
        part: Which rows: offsets ``[start, lake_stop)``, below `row_stop`.
        request: Which columns; its limit keeps the first run of files short.
        ended: Of a primary-key table: offsets, ascending, of rows that the log ended beyond `lake_stop`.
    """
    stop = part.lake_stop if part.row_stop is None else min(part.lake_stop, part.row_stop)
    if part.start >= stop:
        return
    splits = _overlapping_splits(part.splits, part.start, stop)
    if request.step_rows is None:
        yield from _read_span(source, part, splits, (part.start, stop), request, ended)
        return
    step = _Step(splits, request.step_rows)
    low = part.start
    while low < stop:
        high, rows = min(stop, low + step.offsets), 0
        for batch, position in _read_span(
            source, part, _overlapping_splits(splits, low, high), (low, high), request, ended
        ):
            rows += batch.num_rows
            yield batch, position
        yield request.no_rows(), high
        low = high
        step.grow(rows)


def _overlapping_splits(splits: Sequence[LakeSplit], start: int, stop: int) -> list[LakeSplit]:
    return [split for split in splits if split.min_offset < stop and split.max_offset >= start]


class _Step:
    """How far a read goes at once.

    Args:
        splits: What is read.
        rows: Stored rows of the first step.
    """

    def __init__(self, splits: Sequence[LakeSplit], rows: int) -> None:
        stored = max(1, sum(split.rows for split in splits))
        size = max(1, sum(split.size_bytes for split in splits))
        span = max((split.max_offset for split in splits), default=0) - min(
            (split.min_offset for split in splits), default=0
        )
        self._most = max(1, min(STEP_ROWS_MAX, STEP_BYTES * stored // size))
        self._rows = min(rows, self._most)
        #: Offsets of a stored row: others have no row any more.
        self._spread = max(1, span // stored)

    @property
    def offsets(self) -> int:
        return self._rows * self._spread

    def grow(self, found: int) -> None:
        """Take the next step longer where few rows were found."""
        if found < self._rows // 2:
            self._rows = min(2 * self._rows, self._most)


def _read_span(
    source: TableSource,
    part: BucketPart,
    splits: Sequence[LakeSplit],
    span: tuple[int, int],
    request: Request,
    ended: NDArray[np.int64] | None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    for run in _runs(splits, request.limit):
        for low, high in _spans(run, *span):
            if within := _overlapping_splits(run, low, high):
                yield from _read_run(source, part, within, (low, high), request, ended)


def _runs(splits: Sequence[LakeSplit], limit: int | None) -> Iterator[list[LakeSplit]]:
    """Yield files in groups: overlapping ones together, and small ones together."""
    run: list[LakeSplit] = []
    size = high = rows = 0
    for split in splits:
        full = size + split.size_bytes > RUN_BYTES or (limit is not None and rows >= limit)
        if run and split.min_offset > high and full:
            yield run
            run, size, high, rows = [], 0, 0, 0
        run.append(split)
        size += split.size_bytes
        rows += split.rows
        high = max(high, split.max_offset)
    if run:
        yield run


def _spans(run: Sequence[LakeSplit], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of offsets, each of which is read at once: files that overlap may be more together than fits in memory."""
    low = max(start, min(split.min_offset for split in run))
    high = min(stop, max(split.max_offset for split in run) + 1)
    size = sum(split.size_bytes for split in run)
    pieces = 1 if len(run) == 1 else max(1, min(-(-size // RUN_BYTES), high - low))
    edges = [low + (high - low) * number // pieces for number in range(pieces + 1)]
    yield from itertools.pairwise(edges)


def _read_run(
    source: TableSource,
    part: BucketPart,
    run: list[LakeSplit],
    span: tuple[int, int],
    request: Request,
    ended: NDArray[np.int64] | None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = request.columns.inner(part.filter, in_lake=True)
    keyed = not source.info.is_log_table
    stops: Mapping[BucketKey, int] | None = {part.key: part.lake_stop} if keyed else None
    gone = {part.key: ended} if keyed and ended is not None and len(ended) else None
    found = source.lake_source.read(run, names, where=_where(part, run, span), stops=stops, ended=gone)
    batches = _filter_rows(part, request.columns.fields(names), found)
    if len(run) == 1:
        for batch in batches:
            yield batch, int(batch.column(OFFSET)[-1].as_py()) + 1
        return
    table = pa.Table.from_batches(list(batches), request.columns.fields(names))
    if not table.num_rows:
        return
    # Each file ascends; those of another engine's compaction may overlap.
    if not ascends(table.column(OFFSET)):
        table = table.take(pc.sort_indices(table.column(OFFSET)))
    elif len(table) < GATHERED_ROWS * table.column(0).num_chunks:
        table = table.combine_chunks()
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield batch, int(batch.column(OFFSET)[-1].as_py()) + 1


def _filter_rows(
    part: BucketPart, schema: pa.Schema, found: Iterator[tuple[LakeSplit, pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    for _, stored in found:
        batch = conform(stored, schema)
        if part.filter is not None and part.filter.left_over:
            batch = part.filter.apply(batch)
        if batch.num_rows:
            yield batch


def _where(part: BucketPart, run: Sequence[LakeSplit], span: tuple[int, int]) -> pc.Expression | None:
    """Return the filter of the rows wanted: by offset only where a file reaches beyond."""
    terms: list[pc.Expression] = []
    if min(split.min_offset for split in run) < span[0]:
        terms.append(pc.field(OFFSET) >= pc.scalar(pa.scalar(span[0], pa.int64())))
    if max(split.max_offset for split in run) >= span[1]:
        terms.append(pc.field(OFFSET) < pc.scalar(pa.scalar(span[1], pa.int64())))
    if part.filter is not None and (pushed := part.filter.pushed) is not None:
        terms.append(pushed)
    where = None
    for term in terms:
        where = term if where is None else where & term
    return where


def ascends(offsets: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether offsets ascend strictly."""
    values = offsets.to_numpy()
    return bool(np.all(values[1:] > values[:-1]))

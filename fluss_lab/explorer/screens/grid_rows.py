"""Pages of the rows of one read: any page of a log table at once, of a filtered or keyed read by an index built on the way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import pyarrow as pa

from fluss_lab.model.names import BucketKey
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.union.scan import Scan
from fluss_lab.workbench.table import Table

#: Every so many rows the index remembers where it is: a page begins at most so many rows behind such a place.
MARK_ROWS: Final = 1_000
#: Rows of a step: what is asked meanwhile is answered between two.
_STEP_ROWS: Final = 8_192

SYSTEM: Final = ("__bucket", "__offset", "__timestamp")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a row is: its number, the bucket's place in the read point, and its offset."""

    row: int
    bucket: int
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one bucket, in order: user's columns, then system columns and ``_source``."""

    key: BucketKey
    rows: pa.Table | pa.RecordBatch


class GridRows:
    """The rows of a table at one read point, in reading order, by their numbers. For one thread.

    Args:
        table: The table.
        point: The moment.
        where: The condition as SQL; empty: none. It is known to be one.

    Attributes:
        at_least: How many rows there are, as far as is known.
        total: How many there are; None as long as that is not known.
    """

    def __init__(self, table: Table, point: ReadPoint, where: str) -> None:
        point.check_known()
        self.table, self.point, self.where = table, point, where
        #: Read once: most reads begin at the begin of a bucket.
        self._filter = compile_filter(where or None, table.info.schema)
        self._buckets: Sequence[PointBucket] = point.buckets
        #: Each offset of a log table is a row.
        self._is_even = table.info.is_log_table and not where
        self._ends = list(accumulate(each.stop - each.start for each in self._buckets)) if self._is_even else []
        self._marks = [Mark(0, 0, 0)]
        self.total: int | None = (self._ends[-1] if self._ends else 0) if self._is_even else None
        self.at_least = self.total or 0

    def page(self, first: int, count: int, columns: Sequence[str]) -> Iterator[list[Piece] | None]:
        """Yield None between steps, then the rows ``[first, first + count)``, as many of them as there are.

        Raises:
            FlussError: They cannot be read.
        """
        found: list[Piece] = []
        wanted = count
        source = self._even_pieces(first, count, columns) if self._is_even else self._pieces_from(first, columns)
        for piece in source:
            if piece is None:
                yield None
                continue
            taken = piece.rows.slice(0, wanted)
            found.append(Piece(piece.key, taken))
            wanted -= taken.num_rows
            if not wanted:
                break
            yield None
        yield found

    def count(self) -> Iterator[None]:
        """Yield between steps until `total` is known. Where it is not at once, the rest of the offsets is read."""
        if self.total is None:
            last = self._marks[-1]
            for _ in self._pieces(last, ()):
                yield None

    def sample(self, columns: Sequence[str], rows: int, buckets_max: int) -> Iterator[pa.Table | None]:
        """Yield None between steps, then some rows from buckets evenly chosen, the first of each."""
        filled = [position for position, each in enumerate(self._buckets) if each.stop > each.start]
        step = max(1, -(-len(filled) // buckets_max))
        chosen = filled[::step]
        parts = []
        for position in chosen:
            scan = self._scan(position, columns, 0, None, limit=-(-rows // len(chosen)))
            parts.append(_rows(scan))
            yield None
        yield pa.concat_tables(parts) if parts else None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _even_pieces(self, first: int, count: int, columns: Sequence[str]) -> Iterator[Piece | None]:
        """Yield the rows of a read in which each offset is one, bucket by bucket."""
        position = bisect_right(self._ends, first)
        left = count
        while left > 0 and position < len(self._buckets):
            bucket = self._buckets[position]
            begin = bucket.start + first - (self._ends[position] - (bucket.stop - bucket.start))
            stop = min(bucket.stop, begin + left)
            if stop > begin:
                yield Piece(bucket.key, _rows(self._scan(position, columns, begin, stop)))
                left -= stop - begin
                first += stop - begin
            position += 1

    def _pieces_from(self, first: int, columns: Sequence[str]) -> Iterator[Piece | None]:
        mark = self._marks[bisect_right(self._marks, first, key=lambda each: each.row) - 1]
        row = mark.row
        for piece in self._pieces(mark, columns):
            if piece is None:
                yield None
                continue
            skipped = min(max(0, first - row), piece.rows.num_rows)
            row += piece.rows.num_rows
            yield Piece(piece.key, piece.rows.slice(skipped)) if skipped < piece.rows.num_rows else None

    def _pieces(self, mark: Mark, columns: Sequence[str]) -> Iterator[Piece | None]:
        """Yield the rows from a mark on; what they show of the index is kept."""
        row = mark.row
        for position in range(mark.bucket, len(self._buckets)):
            bucket = self._buckets[position]
            if bucket.stop <= bucket.start:
                continue
            begin = mark.offset if position == mark.bucket else 0
            for batch in self._scan(position, columns, begin, None).to_batches(_STEP_ROWS):
                self._note(row, position, batch)
                row += batch.num_rows
                yield Piece(bucket.key, batch)
            yield None
        self.total = row
        self.at_least = max(self.at_least, row)

    def _note(self, row: int, position: int, batch: pa.RecordBatch) -> None:
        """Keep where every so many rows are, of rows that were not seen before."""
        self.at_least = max(self.at_least, row + batch.num_rows)
        offsets = batch.column("__offset")
        while (number := self._marks[-1].row + MARK_ROWS) < row + batch.num_rows and number >= row:
            self._marks.append(Mark(number, position, offsets[number - row].as_py()))

    def _scan(
        self, position: int, columns: Sequence[str], begin: int, stop: int | None, limit: int | None = None
    ) -> Scan:
        bucket = self._buckets[position]
        offsets = [f"__offset >= {begin}"] if begin else []
        offsets += [f"__offset < {stop}"] if stop is not None else []
        given = [f"({self.where}\n)"] if self.where else []
        return self.table.scan(
            [*columns, *SYSTEM],
            " and ".join(given + offsets) if offsets else self._filter,
            limit=limit,
            read_point=self.point,
            partitions=None if bucket.partition is None else [bucket.partition],
            buckets=[bucket.bucket],
            with_source=True,
        )

    def row(self, key: BucketKey, offset: int, columns: Sequence[str]) -> pa.Table | None:
        """Return the row that the record at an offset wrote, as a table; None when it is no row at this moment.

        Raises:
            FlussError: It cannot be read.
        """
        for position, bucket in enumerate(self._buckets):
            if bucket.key == key:
                found = _rows(self._scan(position, columns, offset, offset + 1))
                return found if found.num_rows else None
        return None


def _rows(scan: Scan) -> pa.Table:
    """Return the rows of a scan, without its progress being shown in some cell."""
    return pa.Table.from_batches(scan.to_batches(), scan.schema)

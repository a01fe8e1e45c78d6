"""The rows of one grid: pages of a read at one read point, their number, a sample of them, and one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.model.names import BucketKey
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.union.row_pages import RowPage, RowPages
from fluss_lab.read.union.scan import Scan
from fluss_lab.workbench.table import Table

#: Sets of columns whose pages stay open: those in view, and those that a person scrolls to and back from.
_OPEN_MAX: Final = 3
#: Rows of a sample's first read of a bucket; of narrow rows each next one reads twice as many.
_SAMPLE_BEGIN_ROWS: Final = 4
_SAMPLE_PAGE_ROWS: Final = 10_000
#: A row that lies beyond every row: to go there is to count them.
_BEYOND: Final = 2**62


class GridRows:
    """The rows of a table at one moment, in reading order, by their numbers. For one thread.

    Args:
        table: The table.
        where: The condition as SQL; empty: none.
        as_of: The moment; None: now.

    Attributes:
        table: The table.
        info: Its definition when the point was taken: its rows have these columns, whatever is altered since.
        point: The read point of the moment.

    Raises:
        FlussError: The moment or the condition is none, or how far a bucket went is not known.
    """

    def __init__(self, table: Table, where: str, as_of: str | int | None) -> None:
        self.table = table
        while True:
            self.info = table.info
            self._filter = compile_filter(where or None, self.info.schema)
            scan = table.scan(["__offset"], self._filter, as_of=as_of, with_source=True)
            self.point: ReadPoint = scan.read_point
            if self.point.schema_id == self.info.schema_id:  # else it was altered in between
                break
        self.point.check_known()
        #: In the narrowest column: it counts, and what it learns of where rows are serves the others.
        self._counter = scan.pages(timestamps=False)
        self._open: dict[tuple[str, ...], RowPages] = {}

    @property
    def total(self) -> int | None:
        """How many rows there are; None as long as that is not known."""
        return self._counter.total

    @property
    def at_least(self) -> int:
        """How many rows there are, as far as is known."""
        return self._counter.at_least

    def close(self) -> None:
        """Let go of what is held. Twice is fine."""
        for pages in (self._counter, *self._open.values()):
            pages.close()
        self._open.clear()

    def page(self, first: int, count: int, columns: Sequence[str]) -> Iterator[RowPage | None]:
        """Yield None between steps, then the rows ``[first, first + count)``, as many of them as there are.

        Raises:
            FlussError: They cannot be read.
        """
        yield from self._pages(tuple(columns) or ("__offset",)).steps(first, count)

    def count(self) -> Iterator[None]:
        """Yield between steps until `total` is known. Where it is not at once, the rest of the rows is read."""
        if self.total is None:
            for _ in self._counter.steps(_BEYOND, 1):
                yield None

    def sample(self, columns: Sequence[str], rows: int, size_bytes: int, buckets_max: int) -> Iterator[pa.Table | None]:
        """Yield None between steps, then some rows from buckets evenly chosen, the first of each.

        Args:
            columns: At least one.
            rows: So many at most.
            size_bytes: No more is read once they have so many bytes; of each bucket at least one row is.
            buckets_max: From so many buckets at most.
        """
        filled = [each for each in self.point.buckets if each.stop > each.start]
        chosen = filled[:: max(1, -(-len(filled) // buckets_max))]
        parts: list[pa.Table] = []
        for bucket in chosen:
            share = -(-rows // len(chosen)), size_bytes // len(chosen)
            with self._scan(bucket, columns, self._filter).pages(timestamps=False) as pages:
                for part in _first_rows(pages, *share):
                    if part is not None:
                        parts.append(part)
                    yield None
        yield pa.concat_tables(parts) if parts else None

    def row(self, key: BucketKey, offset: int, columns: Sequence[str]) -> Iterator[RowPage | None]:
        """Yield None between steps, then a page of the row that the record at an offset wrote; without one if it is no row now.

        Raises:
            FlussError: It cannot be read.
        """
        for bucket in self.point.buckets:
            if bucket.key == key and bucket.start <= offset < bucket.stop:
                # No SQL: the first detail that is opened would wait for sqlglot's import.
                with self._scan(
                    bucket, columns, pc.field("__offset") == pa.scalar(offset, pa.int64())
                ).pages() as pages:
                    yield from pages.steps(0, 1)
                    return

    def _pages(self, columns: tuple[str, ...]) -> RowPages:
        found = self._open.pop(columns, None)
        if found is None:
            found = self._counter.select(columns)
        self._open[columns] = found
        while len(self._open) > _OPEN_MAX:
            self._open.pop(next(iter(self._open))).close()
        return found

    def _scan(self, bucket: PointBucket, columns: Sequence[str], where: object) -> Scan:
        return self.table.scan(
            list(columns) or ["__offset"],
            where,
            read_point=self.point,
            partitions=None if bucket.partition is None else [bucket.partition],
            buckets=[bucket.bucket],
            with_source=True,
        )


def _first_rows(pages: RowPages, rows: int, size_bytes: int) -> Iterator[pa.Table | None]:
    """Yield the first rows in parts, up to a number and a size, and None between steps."""
    taken = size = 0
    step = min(_SAMPLE_BEGIN_ROWS, rows)
    while taken < rows and (not taken or size < size_bytes):
        for page in pages.steps(taken, step):
            if page is None:
                yield None
        assert page is not None
        if not len(page):
            return
        taken, size = taken + len(page), size + page.rows.nbytes
        yield page.rows
        fitting = max(1, (size_bytes - size) * taken // max(1, size))
        step = min(2 * step, rows - taken, fitting, _SAMPLE_PAGE_ROWS) or 1

"""The rows of one bucket merged by offset: row groups of files that may overlap, without the rows that delete files delete.

Files of a bucket normally follow one another by offset; those that another engine compacted may overlap. Columns are found
by field id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.closing import Closing
from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeFile
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader, RowGroup, clip_rows
from fluss_lab.lake.iceberg.read.equality_deletes import EqualityDeletes
from fluss_lab.lake.iceberg.read.position_deletes import PositionDeletes
from fluss_lab.lake.iceberg.table.layout import LakeColumns
from fluss_lab.lake.system_columns import OFFSET_COLUMN

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_END: Final = 2**63 - 1
#: Every offset.
ALL: Final = (0, _END)


@dataclass(order=True, slots=True)
class _Queued:
    """A row group that is to be read; ordered by its first offset."""

    min_offset: int
    sequence: int
    group: RowGroup = field(compare=False)
    file: LakeFile = field(compare=False)
    reader: DataFileReader = field(compare=False)


@dataclass(frozen=True, slots=True)
class OpenRowGroup:
    """A row group whose turn it is.

    Attributes:
        file: Its file.
        reader: The file, open until the next one is taken.
        group: The row group.
        ahead: No row still to come has a smaller offset.
    """

    file: LakeFile
    reader: DataFileReader
    group: RowGroup
    ahead: int


class RowGroupQueue(Closing):
    """Row groups of files by first offset, files opened when they are reached and closed when they are done.

    Args:
        open_file: Opens a file.
        files: Of one bucket.
        span: Offsets ``[start, stop)``; row groups outside of it are passed over.
    """

    def __init__(
        self, open_file: Callable[[LakeFile], DataFileReader], files: Iterable[LakeFile], span: tuple[int, int] = ALL
    ) -> None:
        self._open_file = open_file
        start, stop = span
        self._files = sorted(
            (file for file in files if file.max_offset >= start and file.min_offset < stop),
            key=lambda file: (file.min_offset, file.max_offset),
        )
        self._span = span
        self._heap: list[_Queued] = []
        self._open: list[DataFileReader] = []
        self._count = 0

    def close(self) -> None:
        """Close the files that are open."""
        for reader in self._open:
            reader.close()
        self._open.clear()

    def __iter__(self) -> Iterator[OpenRowGroup]:
        while True:
            self._open_reached()
            if not self._heap:
                return
            queued = heapq.heappop(self._heap)
            yield OpenRowGroup(queued.file, queued.reader, queued.group, self._ahead())
            if not any(other.reader is queued.reader for other in self._heap):
                queued.reader.close()
                self._open.remove(queued.reader)

    def _ahead(self) -> int:
        next_group = self._heap[0].min_offset if self._heap else _END
        next_file = self._files[0].min_offset if self._files else _END
        return min(next_group, next_file)

    def _open_reached(self) -> None:
        """Open the files that begin no later than the next row group, so that none is passed over."""
        start, stop = self._span
        while self._files and (not self._heap or self._files[0].min_offset <= self._heap[0].min_offset):
            file = self._files.pop(0)
            reader = self._open_file(file)
            self._open.append(reader)
            queued = False
            for group in reader.groups:
                if group.max_offset >= start and group.min_offset < stop:
                    self._count += 1
                    queued = True
                    heapq.heappush(self._heap, _Queued(group.min_offset, self._count, group, file, reader))
            if not queued:
                reader.close()
                self._open.remove(reader)


def merge_row_groups(
    queue: RowGroupQueue,
    columns: Sequence[str],
    span: tuple[int, int],
    read: Callable[[OpenRowGroup, Sequence[str]], pa.Table],
) -> Iterator[pa.Table]:
    """Yield the rows of row groups in ascending order of offset.

    Args:
        queue: The row groups.
        columns: What is read, ``__offset`` included.
        span: Offsets ``[start, stop)``: others are left out.
        read: Reads columns of a row group, ascending by offset.

    Cost: memory is bounded by a row group, and by what overlaps.
    """
    held: pa.Table | None = None
    for opened in queue:
        rows = read(opened, columns)
        rows = clip_rows(rows, rows.column(OFFSET_COLUMN), *span)
        held = rows if held is None else pa.concat_tables([held, rows]).sort_by(OFFSET_COLUMN)
        ready = clip_rows(held, held.column(OFFSET_COLUMN), None, opened.ahead)
        held = held.slice(len(ready)) if len(ready) < len(held) else None
        if len(ready):
            yield ready
    # What was held for files that turned out to have no row group of the span.
    if held is not None:
        yield held


class LiveReader:
    """Reads the rows of one bucket's data files that its delete files leave. Used by one thread.

    Args:
        io: Access to the files.
        columns: The table's columns.
        positions: What is deleted by position; None: nothing.
        keys: What is deleted by key; None: nothing.
    """

    def __init__(
        self, io: FileIO, columns: LakeColumns, positions: PositionDeletes | None, keys: EqualityDeletes | None
    ) -> None:
        self._io = io
        self._columns = columns
        self._positions = positions
        self._keys = keys

    @staticmethod
    def of(io: FileIO, columns: LakeColumns, state: BucketFiles) -> LiveReader:
        """Return the reader of a bucket as it is in a snapshot.

        Raises:
            FileNotFoundError: A delete file is gone.
            CorruptDataError, UnsupportedError: As `PositionDeletes` and `EqualityDeletes`.
        """
        wanted = {file.file.file_path for file in state.data}
        by_position = [each.file.file_path for each in state.deletes if not each.is_equality]
        by_key = [each for each in state.deletes if each.is_equality]
        return LiveReader(
            io,
            columns,
            PositionDeletes(io, by_position, wanted) if by_position else None,
            EqualityDeletes(io, by_key, columns) if by_key else None,
        )

    def read(
        self,
        files: Sequence[LakeFile],
        names: Sequence[str],
        *,
        where: pc.Expression | None = None,
        span: tuple[int, int] = ALL,
    ) -> Iterator[pa.Table]:
        """Yield rows in ascending order of offset, about a row group at a time.

        Args:
            files: Data files of the bucket; they may overlap.
            names: User's and system columns, in the order wanted.
            where: Rows for which it is not true are left out.
            span: Offsets ``[start, stop)``: others are left out.

        Raises:
            FileNotFoundError: A data file is gone.
            CorruptDataError: A file is not what the lake's metadata says.
        """
        wanted = list(dict.fromkeys([*names, OFFSET_COLUMN]))

        def read(opened: OpenRowGroup, columns: Sequence[str]) -> pa.Table:
            return self._live(opened, columns, where)

        with RowGroupQueue(self._open, files, span) as queue:
            for rows in merge_row_groups(queue, wanted, span, read):
                yield rows.select(list(names))

    def _open(self, file: LakeFile) -> DataFileReader:
        reader = DataFileReader(self._io, file.file.file_path, self._columns)
        rows = sum(group.rows for group in reader.groups)
        if rows != file.file.record_count:
            reader.close()
            raise CorruptDataError(
                f"lake file {file.file.file_path}: expected {file.file.record_count} rows, found {rows}"
            )
        return reader

    def _live(self, opened: OpenRowGroup, columns: Sequence[str], where: pc.Expression | None) -> pa.Table:
        dead = None if self._positions is None else self._positions.of(opened.file.file.file_path)
        if self._keys is None or not (keys := self._keys.names):
            return opened.reader.read([opened.group], columns, where, dead)
        rows = opened.reader.read([opened.group], list(dict.fromkeys([*columns, *keys])), where, dead)
        gone = self._keys.deleted_mask(rows, opened.file.data_sequence_number)
        if gone.any():
            rows = rows.filter(pa.array(~gone))
        return rows.select(list(columns))


def read_live(
    io: FileIO,
    columns: LakeColumns,
    state: BucketFiles,
    names: Sequence[str],
    *,
    where: pc.Expression | None = None,
    span: tuple[int, int] = ALL,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one bucket in a snapshot, without deleted ones, in ascending order of offset.

    Args:
        io: Access to the files.
        columns: The table's columns: rows come in the types of its schema.
        state: The bucket's data and delete files, from `fluss_lab.lake.iceberg.metadata.snapshot_files.live_state`.
        names: User's and system columns, in the order wanted.
        where: Rows for which it is not true are left out.
        span: Offsets ``[start, stop)``: others are left out.

    Raises:
        FileNotFoundError: A file is gone: the snapshot was expired.
        CorruptDataError: A file is not what the lake's metadata says.
        UnsupportedError: Another engine deleted rows by columns that the table does not have.

    Cost: memory is bounded by a row group (and by what overlaps), eight bytes for each deleted position, and the keys of
    the equality deletes.
    """
    for rows in LiveReader.of(io, columns, state).read(state.data, names, where=where, span=span):
        yield from rows.combine_chunks().to_batches()

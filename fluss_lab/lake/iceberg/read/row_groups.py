"""Row groups of a bucket's files in the order of their offsets, and their rows merged where files overlap.

Files of a bucket normally follow one another by offset; those that somebody else compacted may overlap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from fluss_lab.closing import Closing
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeFile
from fluss_lab.lake.iceberg.read.data_file_rows import LakeFileReader, RowGroup, clip_rows

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
    reader: LakeFileReader = field(compare=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group whose turn it is.

    Attributes:
        file: Its file.
        reader: The file, open until the next piece is asked for.
        group: The row group.
        ahead: No row still to come has a smaller offset.
    """

    file: LakeFile
    reader: LakeFileReader
    group: RowGroup
    ahead: int


class Pieces(Closing):
    """Row groups of files by first offset, files opened when they are reached and closed when they are done.

    Args:
        open_file: Opens a file.
        files: Of one bucket.
        span: Offsets ``[start, stop)``; row groups outside of it are passed over.
    """

    def __init__(
        self, open_file: Callable[[LakeFile], LakeFileReader], files: Iterable[LakeFile], span: tuple[int, int] = ALL
    ) -> None:
        self._open_file = open_file
        start, stop = span
        self._files = sorted(
            (file for file in files if file.max_offset >= start and file.min_offset < stop),
            key=lambda file: (file.min_offset, file.max_offset),
        )
        self._span = span
        self._heap: list[_Queued] = []
        self._open: list[LakeFileReader] = []
        self._count = 0

    def close(self) -> None:
        """Close the files that are open."""
        for reader in self._open:
            reader.close()
        self._open.clear()

    def __iter__(self) -> Iterator[Piece]:
        while True:
            self._open_reached()
            if not self._heap:
                return
            queued = heapq.heappop(self._heap)
            yield Piece(queued.file, queued.reader, queued.group, self._ahead())
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


def merge_pieces(
    pieces: Pieces, columns: Sequence[str], span: tuple[int, int], read: Callable[[Piece, Sequence[str]], pa.Table]
) -> Iterator[pa.Table]:
    """Yield the rows of pieces in ascending order of offset.

    Args:
        pieces: The row groups.
        columns: What is read, ``__offset`` included.
        span: Offsets ``[start, stop)``: others are left out.
        read: Reads columns of a row group, ascending by offset.

    Cost: memory is bounded by a row group, and by what overlaps.
    """
    held: pa.Table | None = None
    for piece in pieces:
        rows = read(piece, columns)
        rows = clip_rows(rows, rows.column(OFFSET_COLUMN), *span)
        held = rows if held is None else pa.concat_tables([held, rows]).sort_by(OFFSET_COLUMN)
        ready = clip_rows(held, held.column(OFFSET_COLUMN), None, piece.ahead)
        held = held.slice(len(ready)) if len(ready) < len(held) else None
        if len(ready):
            yield ready

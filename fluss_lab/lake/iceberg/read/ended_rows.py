"""The rows that delete files of a bucket end, by the offset that each row was written with.

So much of a delete file is one column, whatever its kind and wherever the rows lie now. What an event ends, it ends in data
files that the delete file applies to by Iceberg's rules: in none that came later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.durable_io import side_by_side
from fluss_lab.lake.iceberg.files.parquet_input import check_footer, open_parquet, parquet_errors
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete
from fluss_lab.lake.iceberg.read.dead_rows import NO_NUMBERS
from fluss_lab.lake.iceberg.read.row_deletes import open_delete_file
from fluss_lab.lake.iceberg.write.delete_schema import (
    CHANGE_TYPE_ID,
    PREVIOUS_OFFSET_COLUMN,
    PREVIOUS_OFFSET_ID,
    event_range,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

#: What the events of four million deleted rows take.
ENDED_BYTES_MAX: Final = 32 * 1024 * 1024


def last_number(delete: LakeDelete) -> int:
    """Return the largest data sequence number of files that a delete file applies to."""
    return delete.data_sequence_number - delete.is_equality


def _path(delete: LakeDelete) -> str:
    return str(delete.file.file_path)


@dataclass(frozen=True, slots=True)
class EventsBefore:
    """Which events of delete files count.

    Attributes:
        stop: Those with smaller offsets.
        offset_id: Field id of the column ``__offset``.
    """

    stop: int
    offset_id: int

    def column(self, path: str, names: Mapping[int, str]) -> str | None:
        """Return the column that tells which events of a delete file count; None when all do.

        Raises:
            CorruptDataError: There is no such column.
        """
        if self.admits_all(path):
            return None
        if self.offset_id not in names:
            raise CorruptDataError(f"lake file {path}: expected the offsets of its events, but there is no such column")
        return names[self.offset_id]

    def admits_all(self, path: str) -> bool:
        """Tell from its name that all events of a delete file count."""
        events = event_range(path)
        return events is not None and events.max_offset < self.stop


class EndedCache:
    """What whole delete files end, kept for the next read: they never change. Used by one thread.

    Args:
        bytes_max: The least recently used are dropped when it is more.
    """

    def __init__(self, bytes_max: int = ENDED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, NDArray[np.int64]] = OrderedDict()
        self._size_bytes = 0

    def get(self, path: str) -> NDArray[np.int64] | None:
        """Return what a file ends, if that is kept."""
        if (found := self._kept.get(path)) is not None:
            self._kept.move_to_end(path)
        return found

    def keep(self, path: str, ended: NDArray[np.int64]) -> None:
        """Keep what a file ends."""
        if path not in self._kept:
            self._kept[path] = ended
            self._size_bytes += ended.nbytes
        while self._size_bytes > self._bytes_max:
            self._size_bytes -= self._kept.popitem(last=False)[1].nbytes


class EndedRows:
    """The rows that events end. Used by one thread.

    Args:
        io: Access to the files.
        deletes: Delete files of one bucket.
        before: Which events count; None: all.
        cache: What is known of delete files, and is added to.

    Attributes:
        without_events: Those of the delete files that carry none: they are somebody else's.

    Raises:
        FileNotFoundError: A delete file is gone.
        CorruptDataError: One is no delete file.
    """

    def __init__(
        self, io: FileIO, deletes: Sequence[LakeDelete], before: EventsBefore | None, cache: EndedCache
    ) -> None:
        self._io = io
        self.without_events: list[LakeDelete] = []
        parts: list[tuple[NDArray[np.int64], int]] = []
        together: list[LakeDelete] = []
        for each in deletes:
            path = each.file.file_path
            if event_range(path) is not None and (before is None or before.admits_all(path)):
                together.append(each)
            elif (ended := self._opened(path, before)) is None:
                self.without_events.append(each)
            else:
                parts.append((ended, last_number(each)))
        found = {path: ended for each in together if (ended := cache.get(path := _path(each))) is not None}
        unknown = [each for each in together if _path(each) not in found]
        for each, ended in zip(unknown, side_by_side(_path, self._of_events, unknown), strict=True):
            found[_path(each)] = ended
            cache.keep(_path(each), ended)
        parts += [(found[_path(each)], last_number(each)) for each in together]
        self._offsets = np.concatenate([ended for ended, _ in parts]) if parts else NO_NUMBERS
        order = np.argsort(self._offsets, kind="stable")
        self._offsets = self._offsets[order]
        #: Up to which data sequence number each applies, counted from the smallest such number; None: all up to that.
        self._numbers: NDArray[np.int32] | None = None
        self._smallest = min((number for _, number in parts), default=0)
        if any(number != self._smallest for _, number in parts):
            each_one = [np.full(len(ended), number - self._smallest, dtype=np.int32) for ended, number in parts]
            self._numbers = np.concatenate(each_one)[order]

    def of(self, first: int, stop: int, number: int) -> NDArray[np.int64]:
        """Return the offsets in ``[first, stop)``, ascending, of rows that are ended in a file.

        Args:
            first: First offset.
            stop: Offset after the last one.
            number: The file's data sequence number.
        """
        low, high = np.searchsorted(self._offsets, [first, stop])
        found = self._offsets[low:high]
        if self._numbers is None or self._smallest >= number:
            return found if self._smallest >= number else NO_NUMBERS
        applies = self._numbers[low:high] >= number - self._smallest
        return found if applies.all() else found[applies]

    def _opened(self, path: str, before: EventsBefore | None) -> NDArray[np.int64] | None:
        """Return what the events of one delete file end; None of a file without events."""
        with open_delete_file(self._io, path) as (parquet, names):
            if PREVIOUS_OFFSET_ID not in names or CHANGE_TYPE_ID not in names:
                return None
            previous = names[PREVIOUS_OFFSET_ID]
            event = None if before is None else before.column(path, names)
            rows = parquet.read(columns=[previous] if event is None else [previous, event], use_threads=False)
        ended: NDArray[np.int64] = rows.column(previous).to_numpy()
        return ended if event is None or before is None else ended[rows.column(event).to_numpy() < before.stop]

    def _of_events(self, delete: LakeDelete) -> NDArray[np.int64]:
        """Return what all events of a delete file end, one whose name says that it has some."""
        path = delete.file.file_path
        with parquet_errors(path, "delete file"), self._io.new_input(path).open() as stream:
            check_footer(path)
            # Not by field ids, which take as long to look up as a small file to read: tiering gives no other name.
            found = open_parquet(stream).read(columns=[PREVIOUS_OFFSET_COLUMN], use_threads=False)
        if found.num_columns != 1 or found.column(0).null_count or found.column(0).type != pa.int64():
            raise CorruptDataError(
                f"lake file {path}: not the delete file that its name says: expected {PREVIOUS_OFFSET_COLUMN!r} of its "
                f"events, found {found.schema}"
            )
        ended: NDArray[np.int64] = found.column(0).to_numpy()
        return ended

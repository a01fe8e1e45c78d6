"""The deletes of one bucket as a read applies them: what of each data file is dead at a stop, by offset, position or key.

Splits carry delete files as text; they are loaded when the first data file is read. Delete files of tiering carry the event
that ended each row, so that they serve every stop: what an event ends is one column of offsets, whatever the file's kind and
wherever the rows lie now, in data files that the delete file applies to by Iceberg's rules. Delete files of other engines
have no time: what they delete is gone at every stop.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN
from fluss_lab.lake.iceberg.files.parquet_input import (
    check_footer,
    file_stamp,
    open_parquet,
    parquet_errors,
    side_by_side,
)
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.equality_deletes import EqualityDeletes
from fluss_lab.lake.iceberg.read.position_deletes import PositionDeletes, open_delete_file
from fluss_lab.lake.iceberg.write.delete_schema import (
    CHANGE_TYPE_ID,
    PATH_ID,
    PREVIOUS_OFFSET_COLUMN,
    PREVIOUS_OFFSET_ID,
    event_range,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

    from fluss_lab.lake.iceberg.table.layout import LakeColumns

NO_NUMBERS: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DeadRows:
    """What of one data file is left out.

    Attributes:
        offsets: Arrays of offsets, each ascending: rows that have one of them. Others may be among them.
        positions: Positions in the file, ascending.
        keys: Rows that others deleted by key; None: none.
        number: The file's data sequence number: deletes by key of larger ones apply.
        stop: Rows at or after this offset; None: none.
    """

    offsets: tuple[NDArray[np.int64], ...] = ()
    positions: NDArray[np.int64] = field(default_factory=lambda: NO_NUMBERS)
    keys: EqualityDeletes | None = None
    number: int = 0
    stop: int | None = None

    @property
    def columns(self) -> list[str]:
        """Return the columns by which `without` finds dead rows."""
        names = [] if self.keys is None else self.keys.names
        return [*names, OFFSET_COLUMN] if self.offsets or self.stop is not None else list(names)

    def without(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows that ascend by offset without dead ones, positions apart: those only the file's reader knows.

        Args:
            rows: With at least the columns `columns`.
        """
        if not rows.num_rows or (not self.offsets and self.keys is None and self.stop is None):
            return rows
        if self.offsets or self.stop is not None:
            values = rows.column(OFFSET_COLUMN).to_numpy()
            if self.stop is not None and values[-1] >= self.stop:
                rows = rows.slice(0, int(np.searchsorted(values, self.stop)))
                values = values[: rows.num_rows]
            if (alive := _alive(values, self.offsets)) is not None:
                rows = rows.filter(pa.array(alive))
        if self.keys is not None and self.keys.names and rows.num_rows:
            gone = self.keys.deleted(pa.Table.from_batches([rows]), self.number)
            rows = rows.filter(pa.array(~gone)) if gone.any() else rows
        return rows

    def count_in(self, first: int, stop: int) -> int:
        """Return how many of the offsets of a range are dead, where each of the range is a row's."""
        found = [part for part in (slice_ascending(each, first, stop) for each in self.offsets) if len(part)]
        return len(found[0]) if len(found) == 1 else len(np.unique(np.concatenate(found))) if found else 0


def slice_ascending(ascending: NDArray[np.int64], first: int, stop: int) -> NDArray[np.int64]:
    """Return those of ascending numbers that are in ``[first, stop)``. No copy."""
    low, high = np.searchsorted(ascending, [first, stop])
    return ascending[low:high]


def _alive(offsets: NDArray[np.int64], dead: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_] | None:
    """Return of ascending offsets which are in none of some arrays; None: all."""
    if not len(offsets):
        return None
    alive: NDArray[np.bool_] | None = None
    for each in dead:
        wanted = slice_ascending(each, int(offsets[0]), int(offsets[-1]) + 1)
        if not len(wanted):
            continue
        places = np.searchsorted(offsets, wanted)
        hits = places[offsets[places] == wanted]
        if len(hits):
            alive = np.ones(len(offsets), dtype=bool) if alive is None else alive
            alive[hits] = False
    return alive


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
        """Return the column that decides which events of a delete file count; None when all do.

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
    """What whole delete files end, kept for the next read: they never change. Safe in any thread.

    A file of this machine counts as the same while its length, time of change and inode are: one that was removed, or
    damaged, since is opened again, for its error.

    Args:
        bytes_max: The least recently used are dropped when it is more.
    """

    def __init__(self, bytes_max: int = ENDED_BYTES_MAX) -> None:
        self._kept: LRUCache[tuple[str, tuple[int, ...]], NDArray[np.int64]] = LRUCache(
            bytes_max, getsizeof=lambda ended: ended.nbytes
        )
        self._lock = threading.Lock()

    def get(self, path: str) -> NDArray[np.int64] | None:
        """Return what a file ends, if that is kept."""
        stamp = file_stamp(path)
        with self._lock:
            return None if stamp is None else self._kept.get((path, stamp))

    def keep(self, path: str, ended: NDArray[np.int64]) -> None:
        """Keep what a file ends, unless that alone is more than is kept."""
        stamp = file_stamp(path)
        with self._lock:
            if stamp is not None and ended.nbytes <= self._kept.maxsize:
                self._kept[path, stamp] = ended


class EndedRows:
    """The rows that events end. Used by one thread.

    Args:
        io: Access to the files.
        deletes: Delete files of one bucket.
        before: Which events count; None: all.
        cache: What is known of delete files, and is added to.

    Attributes:
        without_events: Those of the delete files that carry none: they are another engine's.

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
        with parquet_errors(self._io, path, "delete file"), self._io.new_input(path).open() as stream:
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


def deletes_text(state: BucketFiles, stop: int | None) -> tuple[str, ...]:
    """Return the delete files that may matter to a bucket's rows at a stop, as text.

    Args:
        state: The bucket.
        stop: Events at or after this offset do not count; None: all do.
    """
    found = []
    for each in state.deletes:
        events = event_range(each.file.file_path)
        if stop is None or events is None or events.min_offset < stop:
            ids = list(each.file.equality_ids or ()) if each.is_equality else None
            found.append(json.dumps([each.file.file_path, each.data_sequence_number, ids], separators=(",", ":")))
    return tuple(found)


def applies(deletes: Iterable[LakeDelete], file: LakeFile) -> bool:
    """Return whether one of a bucket's delete files may delete rows of a data file: by sequence numbers and paths."""
    return any(
        last_number(each) >= file.data_sequence_number and (each.is_equality or _admits(each.file, file))
        for each in deletes
    )


def _admits(delete: DataFile, file: LakeFile) -> bool:
    path = file.file.file_path.encode()
    low, high = (delete.lower_bounds or {}).get(PATH_ID), (delete.upper_bounds or {}).get(PATH_ID)
    return (low is None or low <= path) and (high is None or path <= high)


class BucketDeletes:
    """What deletes rows of one bucket at a stop: loaded once, asked for each of the bucket's files. Used by one thread.

    Every event names the row that it ends by the offset which the row keeps, so events of either kind of delete file
    are but offsets. Only what others deleted is looked for by position and by key.

    Args:
        io: Access to the files.
        columns: The table's columns.
        deletes: From `deletes_text`.
        stop: Events at or after this offset do not count; None: all do.
        cache: What is known of delete files, and is added to.

    Raises:
        FileNotFoundError: A delete file is gone.
        CorruptDataError: One is no delete file; or the text is not that of `deletes_text`.
        UnsupportedError: Another engine deleted rows by columns that the table does not have.

    Cost: one column of delete files that carry events is read; twelve bytes for each deleted row are kept, and the keys
    that others deleted by.
    """

    def __init__(
        self, io: FileIO, columns: LakeColumns, deletes: Sequence[str], stop: int | None, cache: EndedCache
    ) -> None:
        before = None if stop is None else EventsBefore(stop, columns.layout.system_ids[1])
        self._ended = EndedRows(io, [_delete(text) for text in deletes], before, cache)
        others = self._ended.without_events
        by_position = [each.file.file_path for each in others if not each.is_equality]
        by_key = [each for each in others if each.is_equality]
        self._positions = PositionDeletes(io, by_position, None) if by_position else None
        self._keys = EqualityDeletes(io, by_key, columns) if by_key else None

    def of(self, path: str, min_offset: int, max_offset: int, number: int) -> DeadRows:
        """Return what is dead of one data file.

        Args:
            path: Where it is.
            min_offset: No row has a smaller offset (inclusive).
            max_offset: No row has a larger offset (inclusive).
            number: Its data sequence number.
        """
        ended = self._ended.of(min_offset, max_offset + 1, number)
        return DeadRows(
            (ended,) if len(ended) else (),
            NO_NUMBERS if self._positions is None else self._positions.of(path),
            self._keys,
            number,
        )


def _delete(text: str) -> LakeDelete:
    try:
        path, number, ids = json.loads(text)
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES if ids is None else DataFileContent.EQUALITY_DELETES,
            file_path=str(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=0,
            file_size_in_bytes=0,
            equality_ids=ids,
        )
        return LakeDelete(file, None, 0, int(number), ids is not None)
    except (ValueError, TypeError) as error:
        raise CorruptDataError(f"split of a lake: expected a delete file, found {text[:200]!r}") from error

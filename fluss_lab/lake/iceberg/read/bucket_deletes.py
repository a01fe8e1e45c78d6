"""The deletes of one bucket as a read applies them: what of each data file is dead at a stop, by offset, position or key.

Splits carry delete files as text; they are loaded when the first data file is read. Delete files of tiering carry the event
that ended each row, so that they serve every stop: what an event ends is one column of offsets, whatever the file's kind and
wherever the rows lie now, in data files that the delete file applies to by Iceberg's rules. Delete files of other engines
have no time: what they delete is gone at every stop.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.parquet_input import (
    check_footer,
    file_stamp,
    open_parquet,
    parquet_errors,
    side_by_side,
)
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.dead_rows import NO_NUMBERS, DeadRows
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

#: What the events of a million and a half deleted rows take: of each eight bytes by its file, and up to twelve in the bucket.
ENDED_BYTES_MAX: Final = 32 * 1024 * 1024


def last_number(delete: LakeDelete) -> int:
    """Return the largest data sequence number of files that a delete file applies to."""
    return delete.data_sequence_number - delete.is_equality


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file as a split names it.

    Attributes:
        path: Where it is.
        number: Its data sequence number.
        equality_ids: Of one that deletes by the values of columns, their field ids; None of one that does by position.
    """

    path: str
    number: int
    equality_ids: tuple[int, ...] | None

    @property
    def last_number(self) -> int:
        """Return the largest data sequence number of files that it applies to."""
        return self.number - (self.equality_ids is not None)


@dataclass(frozen=True, slots=True)
class MergedEnds:
    """What several delete files end.

    Attributes:
        offsets: Of the rows, ascending.
        smallest: The smallest data sequence number that one of the files applies up to.
        numbers: Up to which number each offset's file applies, counted from `smallest`; None: all up to that.
    """

    offsets: NDArray[np.int64]
    smallest: int
    numbers: NDArray[np.int32] | None

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes."""
        return self.offsets.nbytes + (0 if self.numbers is None else self.numbers.nbytes)

    @staticmethod
    def of(parts: Sequence[tuple[NDArray[np.int64], int]]) -> MergedEnds:
        """Return what files end, of each the offsets and the largest data sequence number that it applies to."""
        if not parts:
            return MergedEnds(NO_NUMBERS, 0, None)
        offsets = np.concatenate([ended for ended, _ in parts])
        order = np.argsort(offsets, kind="stable")
        smallest = min(number for _, number in parts)
        if all(number == smallest for _, number in parts):
            return MergedEnds(offsets[order], smallest, None)
        each_one = [np.full(len(ended), number - smallest, dtype=np.int32) for ended, number in parts]
        return MergedEnds(offsets[order], smallest, np.concatenate(each_one)[order])


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
        """Return whether all events of a delete file count, by its name."""
        events = event_range(path)
        return events is not None and events.max_offset < self.stop


#: By what is known what several delete files end, each with the number that it applies up to; and what one ends.
_Key: TypeAlias = "tuple[tuple[str, int, tuple[int, ...]], ...]"


_ALONE: Final = -1


class EndedCache:
    """What whole delete files end, kept for the next read: they never change. Safe in any thread.

    A file of this machine counts as the same while its length, time of change and inode are: one that was removed, or
    damaged, since is opened again, for its error.

    Args:
        bytes_max: The least recently used are dropped when it is more.
    """

    def __init__(self, bytes_max: int = ENDED_BYTES_MAX) -> None:
        self._kept: LRUCache[_Key, NDArray[np.int64] | MergedEnds] = LRUCache(
            bytes_max, getsizeof=lambda ended: ended.nbytes
        )
        self._lock = threading.Lock()

    def get(self, path: str) -> NDArray[np.int64] | None:
        """Return what a file ends, if that is kept."""
        found = self._get(_key([(path, _ALONE)]))
        return None if isinstance(found, MergedEnds) else found

    def keep(self, path: str, ended: NDArray[np.int64]) -> None:
        """Keep what a file ends, unless that alone is more than is kept."""
        self._keep(_key([(path, _ALONE)]), ended)

    def merged_ends(self, files: Sequence[tuple[str, int]], merge: Callable[[], MergedEnds]) -> MergedEnds:
        """Return what several files end, each with the number that it applies up to: what is kept, or made now and kept."""
        # Of the files as they are before they are read: if one is another by then, nobody will ask for this again.
        key = _key(files)
        found = self._get(key)
        if isinstance(found, MergedEnds):
            return found
        made = merge()
        self._keep(key, made)
        return made

    def _get(self, key: _Key | None) -> NDArray[np.int64] | MergedEnds | None:
        with self._lock:
            return None if key is None else self._kept.get(key)

    def _keep(self, key: _Key | None, ended: NDArray[np.int64] | MergedEnds) -> None:
        with self._lock:
            if key is not None and ended.nbytes <= self._kept.maxsize:
                self._kept[key] = ended


def _key(files: Iterable[tuple[str, int]]) -> _Key | None:
    """Return by what files are known, with their stamps; None where one is gone."""
    found = []
    for path, number in files:
        if (stamp := file_stamp(path)) is None:
            return None
        found.append((path, number, stamp))
    return tuple(found)


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
        self, io: FileIO, deletes: Sequence[DeleteFile], before: EventsBefore | None, cache: EndedCache
    ) -> None:
        self._io = io
        self._cache = cache
        self.without_events: list[DeleteFile] = []
        parts: list[tuple[NDArray[np.int64], int]] = []
        together: list[DeleteFile] = []
        for each in deletes:
            if event_range(each.path) is not None and (before is None or before.admits_all(each.path)):
                together.append(each)
            elif (ended := self._read_ends(each.path, before)) is None:
                self.without_events.append(each)
            else:
                parts.append((ended, each.last_number))
        if parts:
            self._ends = MergedEnds.of([*parts, *self._of_all_events(together)])
        else:
            known = [(each.path, each.last_number) for each in together]
            self._ends = cache.merged_ends(known, lambda: MergedEnds.of(self._of_all_events(together)))

    def _of_all_events(self, deletes: Sequence[DeleteFile]) -> list[tuple[NDArray[np.int64], int]]:
        """Return what all events of each delete file end, files whose names say that they have some."""
        found = {each.path: ended for each in deletes if (ended := self._cache.get(each.path)) is not None}
        unknown = [each.path for each in deletes if each.path not in found]
        for path, ended in zip(unknown, side_by_side(str, self._of_events, unknown), strict=True):
            found[path] = ended
            self._cache.keep(path, ended)
        return [(found[each.path], each.last_number) for each in deletes]

    def of(self, first: int, stop: int, number: int) -> NDArray[np.int64]:
        """Return the offsets in ``[first, stop)``, ascending, of rows that are ended in a file.

        Args:
            first: First offset.
            stop: Offset after the last one.
            number: The file's data sequence number.
        """
        ends = self._ends
        low, high = ends.offsets.searchsorted((first, stop))
        found = ends.offsets[low:high]
        if ends.numbers is None or ends.smallest >= number:
            return found if ends.smallest >= number else NO_NUMBERS
        applies = ends.numbers[low:high] >= number - ends.smallest
        return found if applies.all() else found[applies]

    def _read_ends(self, path: str, before: EventsBefore | None) -> NDArray[np.int64] | None:
        """Return what the events of one delete file end; None of a file without events."""
        with open_delete_file(self._io, path) as (parquet, names):
            if PREVIOUS_OFFSET_ID not in names or CHANGE_TYPE_ID not in names:
                return None
            previous = names[PREVIOUS_OFFSET_ID]
            event = None if before is None else before.column(path, names)
            rows = parquet.read(columns=[previous] if event is None else [previous, event], use_threads=False)
        ended: NDArray[np.int64] = rows.column(previous).to_numpy()
        return ended if event is None or before is None else ended[rows.column(event).to_numpy() < before.stop]

    def _of_events(self, path: str) -> NDArray[np.int64]:
        """Return what all events of a delete file end, one whose name says that it has some."""
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


def applies(deletes: Sequence[LakeDelete], file: LakeFile) -> bool:
    """Return whether one of a bucket's delete files may delete rows of a data file: by sequence numbers and paths."""
    # The last ones are the newest, which apply to most files: one look is enough.
    return any(
        last_number(each) >= file.data_sequence_number and (each.is_equality or _admits(each.file, file))
        for each in reversed(deletes)
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
        by_position = [each.path for each in others if each.equality_ids is None]
        by_key = [_lake_delete(each) for each in others if each.equality_ids is not None]
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


def _delete(text: str) -> DeleteFile:
    try:
        path, number, ids = json.loads(text)
        return DeleteFile(str(path), int(number), None if ids is None else tuple(int(each) for each in ids))
    except (ValueError, TypeError) as error:
        raise CorruptDataError(f"split of a lake: expected a delete file, found {text[:200]!r}") from error


def _lake_delete(delete: DeleteFile) -> LakeDelete:
    """Return a delete file that deletes by the values of columns."""
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=delete.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=0,
        file_size_in_bytes=0,
        equality_ids=list(delete.equality_ids or ()),
    )
    return LakeDelete(file, None, 0, delete.number, is_equality=True)

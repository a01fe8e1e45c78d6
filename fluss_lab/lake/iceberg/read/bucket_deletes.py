"""The deletes of one bucket as splits carry them: described as text, loaded when the first file is read.

By position, and at what time: delete files of tiering carry the event that ended each row, so that they serve every stop.
Those of others have no time: what they delete is gone at every stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.dead_rows import NO_NUMBERS, DeadRows
from fluss_lab.lake.iceberg.read.ended_rows import EndedCache, EndedRows, EventsBefore, last_number
from fluss_lab.lake.iceberg.read.row_deletes import DeletedKeys, DeletedPositions
from fluss_lab.lake.iceberg.write.delete_schema import PATH_ID, event_range

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from fluss_lab.lake.iceberg.read.data_file_rows import LakeColumns


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
    """Tell whether one of a bucket's delete files may delete rows of a data file: by sequence numbers and paths."""
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
        deletes: What `deletes_text` told of.
        stop: Events at or after this offset do not count; None: all do.
        cache: What is known of delete files, and is added to.

    Raises:
        FileNotFoundError: A delete file is gone.
        CorruptDataError: One is no delete file; or the text is not that of `deletes_text`.
        UnsupportedError: Somebody deleted rows by columns that the table does not have.

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
        self._positions = DeletedPositions(io, by_position, None) if by_position else None
        self._keys = DeletedKeys(io, by_key, columns) if by_key else None

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

"""The rows of one bucket as they are: data files merged by offset, without the rows that delete files delete.

Whoever wrote the delete files, by position or by key. Columns are found by field id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, LakeFile
from fluss_lab.lake.iceberg.read.data_file_rows import LakeColumns, LakeFileReader
from fluss_lab.lake.iceberg.read.row_deletes import DeletedKeys, DeletedPositions
from fluss_lab.lake.iceberg.read.row_groups import ALL, Piece, Pieces, merge_pieces

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class LiveReader:
    """Reads the rows of one bucket's data files that its delete files leave. Used by one thread.

    Args:
        io: Access to the files.
        columns: The table's columns.
        positions: What is deleted by position; None: nothing.
        keys: What is deleted by key; None: nothing.
    """

    def __init__(
        self, io: FileIO, columns: LakeColumns, positions: DeletedPositions | None, keys: DeletedKeys | None
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
            CorruptDataError, UnsupportedError: As `DeletedPositions` and `DeletedKeys`.
        """
        wanted = {file.file.file_path for file in state.data}
        by_position = [each.file.file_path for each in state.deletes if not each.is_equality]
        by_key = [each for each in state.deletes if each.is_equality]
        return LiveReader(
            io,
            columns,
            DeletedPositions(io, by_position, wanted) if by_position else None,
            DeletedKeys(io, by_key, columns) if by_key else None,
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

        def read(piece: Piece, columns: Sequence[str]) -> pa.Table:
            return self._live(piece, columns, where)

        with Pieces(self._open, files, span) as pieces:
            for rows in merge_pieces(pieces, wanted, span, read):
                yield rows.select(list(names))

    def _open(self, file: LakeFile) -> LakeFileReader:
        reader = LakeFileReader(self._io, file.file.file_path, self._columns)
        rows = sum(group.rows for group in reader.groups)
        if rows != file.file.record_count:
            reader.close()
            raise CorruptDataError(
                f"lake file {file.file.file_path}: expected {file.file.record_count} rows, found {rows}"
            )
        return reader

    def _live(self, piece: Piece, columns: Sequence[str], where: pc.Expression | None) -> pa.Table:
        dead = None if self._positions is None else self._positions.of(piece.file.file.file_path)
        if self._keys is None or not (keys := self._keys.names):
            return piece.reader.read([piece.group], columns, where, dead)
        rows = piece.reader.read([piece.group], list(dict.fromkeys([*columns, *keys])), where, dead)
        gone = self._keys.deleted(rows, piece.file.data_sequence_number)
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
        UnsupportedError: Somebody deleted rows by columns that the table does not have.

    Cost: memory is bounded by a row group (and by what overlaps), eight bytes for each deleted position, and the keys of
    the equality deletes.
    """
    for rows in LiveReader.of(io, columns, state).read(state.data, names, where=where, span=span):
        yield from rows.combine_chunks().to_batches()

"""The writer of one split of a primary-key table: rows to data files, the ends of rows to delete files.

``+I`` and ``+U`` records become rows, ``-U`` and ``-D`` events that say where the row is that they end: in the bucket's live
files, which come with the split; in the files of this split itself; or, when other splits of the round may have
written it, nowhere yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InternalError
from fluss_lab.lake.format_interfaces import LakeWriter, WriterInitContext
from fluss_lab.lake.iceberg.write.data_file_writer import DataFileWriter
from fluss_lab.lake.iceberg.write.delete_writer import BY_KEY, PLACED_LATER, DeleteFileWriter, RowPlaces
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult, WrittenSpan
from fluss_lab.lake.iceberg.write.row_locator import NOWHERE, OffsetFile, RowLocator
from fluss_lab.lake.iceberg.write.write_target import BucketTarget
from fluss_lab.model import ChangeType
from fluss_lab.model.config.options import DATALAKE_DELETE_MODE
from fluss_lab.model.json_codec import from_plain
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray


class IcebergKeyedWriter(LakeWriter[IcebergWriteResult]):
    """Writes the records of a primary-key table's split into data files and delete files of its bucket's partition.

    Every event goes into exactly one delete file, with its whole row. Rows that end within the split stay in the data
    files: replay needs them. Files are durable when they are finished. Memory is bounded by a row group, the events that
    are gathered at a time, and a bit to 8 bytes a row.
    """

    def __init__(self, context: WriterInitContext) -> None:
        target = BucketTarget.of_split(context)
        io = target.table.file_io()
        self._context = context
        self._span = WrittenSpan(context)
        self._rows = DataFileWriter(io, target)
        self._own = SplitOffsets()
        self._files = from_plain(list[OffsetFile], context.lake_bucket.get("files", []), "lake files of a bucket")
        self._lake = RowLocator(io, self._files, target.table.offset_id)
        self._by_equality = DATALAKE_DELETE_MODE.of(context.table.descriptor.properties) == "equality"
        self._deletes = DeleteFileWriter(io, target, self._place)

    def write(self, records: LogRecords) -> None:
        """Take records of the bucket, ascending by offset across calls, with change types and previous offsets.

        Raises:
            InternalError: Their offsets do not ascend, or they are no changes.
            UnsupportedError: A value has no form in Iceberg (a time beyond microseconds of 64 bits).
            StorageError: A file cannot be written.
            CorruptDataError: A row that ends is in two live files, or a file is not what it should be.
            CommitConflictError: A live file is gone. Plan the round again.
        """
        self._span.add(records)
        is_end = self._ends(records)
        if not is_end.any():
            self._append_rows(records)
        elif is_end.all():
            self._deletes.append(records)
        else:
            # Rows first: an event may end one of the same batch.
            self._append_rows(_choose(records, ~is_end))
            self._deletes.append(_choose(records, is_end))

    def complete(self) -> IcebergWriteResult:
        """Finish all files and return them; without records there are none.

        Raises:
            As `write`.
        """
        # Events are placed by the paths of the data files, finished or not.
        deletes = self._deletes.finish()
        return self._span.result(files=self._rows.finish(), deletes=deletes.placed, unplaced=deletes.unplaced)

    def abort(self) -> None:
        """Remove what was written, as far as can be. Never raises."""
        self._deletes.abort()
        self._rows.abort()

    def _ends(self, records: LogRecords) -> NDArray[np.bool_]:
        """Return for each record whether it ends a row, after checking that each is a change."""
        if records.change_types is None or records.previous_offsets is None:
            raise InternalError(
                f"split {self._context.split_index} of {self._context.bucket}: a primary-key table's records need change "
                "types and previous offsets, found none"
            )
        kinds = records.change_types.to_numpy()
        is_end: NDArray[np.bool_] = (kinds == ChangeType.UPDATE_BEFORE) | (kinds == ChangeType.DELETE)
        is_row = (kinds == ChangeType.INSERT) | (kinds == ChangeType.UPDATE_AFTER)
        previous = records.previous_offsets.to_numpy()
        wrong = ~(is_end | is_row) | (is_end & ((previous < 0) | (previous >= records.offsets.to_numpy())))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InternalError(
                f"split {self._context.split_index} of {self._context.bucket}, offset {records.offsets[at]}: expected a "
                f"change that ends an earlier row or begins one, found change type {kinds[at]} with previous offset "
                f"{previous[at]}"
            )
        return is_end

    def _append_rows(self, records: LogRecords) -> None:
        self._own.append(records.offsets.to_numpy())
        self._rows.append(records)

    def _place(self, previous: NDArray[np.int64]) -> RowPlaces:
        """Return where the rows of some offsets are: in this split's files, in the bucket's live ones, or elsewhere."""
        # Sorted once: what seeks sorts again, and has nothing to do then.
        order = np.argsort(previous)
        paths, file_of, positions = self._places(previous[order])
        placement = RowPlaces(paths, np.empty_like(file_of), np.empty_like(positions))
        placement.file_of[order], placement.positions[order] = file_of, positions
        return placement

    def _places(self, previous: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64]]:
        paths = [file.path for file in self._files]
        ordinals = self._own.locate(previous)
        is_own = ordinals >= 0
        file_of = np.full(len(previous), BY_KEY, dtype=np.int32)
        positions = np.full(len(previous), -1, dtype=np.int64)
        if is_own.any():
            # Rows that are still gathered get their file and position now.
            self._rows.flush()
            firsts = np.array([first for first, _ in self._rows.begun], dtype=np.int64)
            number = np.searchsorted(firsts, ordinals[is_own], side="right") - 1
            file_of[is_own] = number + len(paths)
            positions[is_own] = ordinals[is_own] - firsts[number]
            paths += [location for _, location in self._rows.begun]
        others = np.flatnonzero(~is_own)
        if len(others) and not self._by_equality:
            file_of[others], positions[others] = self._lake.locate(previous[others])
        if not self._context.alone:
            # Rows of the round are behind all that the lake has; the other splits of the bucket may have written them.
            end = max((file.max_offset for file in self._files), default=-1)
            file_of[(file_of == BY_KEY) & (previous > end)] = PLACED_LATER
        return paths, file_of, positions


def _choose(records: LogRecords, mask: NDArray[np.bool_]) -> LogRecords:
    """Return the records for which a mask is true, at least one."""
    at = pa.array(np.flatnonzero(mask))
    assert records.change_types is not None
    assert records.previous_offsets is not None
    return LogRecords(
        records.rows.take(at),
        records.offsets.take(at),
        records.timestamps_ms.take(at),
        records.change_types.take(at),
        records.previous_offsets.take(at),
    )


#: Offsets are packed by so many: finding some of them unpacks their block, 0.5 MB.
BLOCK_ROWS: Final = 64 * 1024
#: A block is a bitmap where that is smaller than its offsets, of 64 bits each.
_BITS_A_ROW_MAX: Final = 64


class SplitOffsets:
    """The offsets of rows in the order in which they were written, ascending. Used by one thread.

    Memory: a bit for every offset between the first and the last, never more than 8 bytes a row; so a split of 10 million
    records, half of them rows, takes some 1.3 MB.
    """

    def __init__(self) -> None:
        self._count = 0
        self._loose: list[NDArray[np.int64]] = []
        self._loose_count = 0
        self._blocks: list[tuple[int, NDArray[np.uint8] | NDArray[np.int64]]] = []
        self._first_offsets: list[int] = []
        self._first_ordinals: list[int] = []

    def __len__(self) -> int:
        return self._count

    def append(self, offsets: NDArray[np.int64]) -> None:
        """Take the offsets of further rows: ascending, and after those before."""
        # A copy: what is given may be a view of a whole batch.
        self._loose.append(offsets.copy())
        self._loose_count += len(offsets)
        self._count += len(offsets)
        if self._loose_count >= BLOCK_ROWS:
            self._pack()

    def locate(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each offset, in any order, which row it is (the first written is 0); -1 where it is none."""
        self._pack()
        order = np.argsort(offsets, kind="stable")
        wanted = offsets[order]
        found = np.full(len(wanted), NOWHERE, dtype=np.int64)
        # Of an offset before all blocks the block is -1: there is none.
        block_of = np.searchsorted(np.array(self._first_offsets, dtype=np.int64), wanted, side="right") - 1
        edges = np.searchsorted(block_of, np.arange(len(self._blocks) + 1), side="left")
        for index in range(len(self._blocks)):
            low, high = edges[index], edges[index + 1]
            if low < high:
                values = self._unpack(index)
                places = np.minimum(np.searchsorted(values, wanted[low:high]), len(values) - 1)
                hits = values[places] == wanted[low:high]
                found[low:high][hits] = self._first_ordinals[index] + places[hits]
        ordinals = np.empty_like(found)
        ordinals[order] = found
        return ordinals

    def _pack(self) -> None:
        if not self._loose_count:
            return
        offsets = np.concatenate(self._loose)
        first_ordinal = self._count - self._loose_count
        self._loose.clear()
        self._loose_count = 0
        for start in range(0, len(offsets), BLOCK_ROWS):
            block = offsets[start : start + BLOCK_ROWS]
            base, span = int(block[0]), int(block[-1]) - int(block[0]) + 1
            packed: NDArray[np.uint8] | NDArray[np.int64] = block.copy()
            if span <= len(block) * _BITS_A_ROW_MAX:
                bits = np.zeros(span, dtype=np.bool_)
                bits[block - base] = True
                packed = np.packbits(bits)
            self._first_offsets.append(base)
            self._first_ordinals.append(first_ordinal + start)
            self._blocks.append((base, packed))

    def _unpack(self, index: int) -> NDArray[np.int64]:
        base, packed = self._blocks[index]
        if packed.dtype == np.int64:
            return packed.astype(np.int64, copy=False)
        return np.flatnonzero(np.unpackbits(packed.astype(np.uint8, copy=False))) + base

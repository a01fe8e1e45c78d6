"""The rows of a table's lake snapshots: which files can hold the rows that a read wants, and reading them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import SortDirection, SortField
from pyiceberg.transforms import IdentityTransform

from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError
from fluss_lab.lake.iceberg.files.parquet_input import check_file, check_footer, parquet_errors
from fluss_lab.lake.iceberg.metadata.file_pruning import pruning
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, LakeFile
from fluss_lab.lake.iceberg.read.bucket_deletes import BucketDeletes, EndedCache, applies, deletes_text
from fluss_lab.lake.iceberg.read.data_file_scan import FILES_AT_ONCE, DataFileScan, WantedFile
from fluss_lab.lake.iceberg.read.dead_rows import NO_NUMBERS, DeadRows
from fluss_lab.lake.iceberg.read.lake_table import LakeTable, LoadedTables
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.lake_splits import LakeSplit
from fluss_lab.lake.reader_interfaces import FileColumn, LakeSource
from fluss_lab.lake.system_columns import OFFSET_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.records.row_removal import slice_ascending

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.table import Table


class IcebergLakeSource(LakeSource):
    """Reads a table's Iceberg snapshots. Used by one thread."""

    def __init__(
        self,
        access: CatalogAccess,
        entries: EntryCache,
        table: TableInfo,
        ended: EndedCache | None = None,
        shared: LoadedTables | None = None,
    ) -> None:
        self._table = LakeTable(access, entries, table, shared)
        self._ended = EndedCache() if ended is None else ended
        self._deletes: tuple[tuple[str, ...], int | None, BucketDeletes] | None = None

    def plan(
        self, snapshot_id: int, *, stops: Mapping[BucketKey, int] | None = None, where: Any = None
    ) -> list[LakeSplit]:
        """Return the files that can hold rows asked for, by partition, bucket and offset; see `LakeSource.plan`.

        Of a primary-key table those of the oldest snapshot kept that reaches to a bucket's stop.

        Args:
            snapshot_id: Which snapshot.
            stops: By (partition, bucket): only rows with smaller offsets are asked for; a bucket without an entry is
                left out. None: all.
            where: A pyiceberg expression over the table's columns, for pruning by partition and by metrics; None: none.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            OffsetOutOfRangeError: A primary-key bucket's stop is below its replay start.
            InvalidFilterError: The expression names no column of the table, or compares it with what it is not.
            UnsupportedError: Another engine deleted rows of a log table by delete files, or changed the table's layout.
            CorruptDataError: A manifest is missing.

        Cost: each manifest is read and decoded once; then some 10 microseconds a file.
        """
        lake, columns = self._table.lake_with(snapshot_id), self._table.columns()
        might_match = pruning(lake, columns, where)
        orders = _ascending_orders(lake, columns.layout.system_ids[1])
        keys = self._table.snapshot_files(snapshot_id).states if stops is None else stops
        splits: list[LakeSplit] = []
        for key in sorted(keys, key=lambda key: (key[0] or "", key[1])):
            stop = None if stops is None else stops[key]
            found_in, state = self._state(snapshot_id, key, stop)
            deletes = deletes_text(state, stop) if state.deletes else ()
            splits += [
                _split(file, deletes if deletes and applies(state.deletes, file) else (), found_in, orders)
                for file in state.data
                if (stop is None or file.min_offset < stop) and might_match(file.file)
            ]
        return splits

    def _state(self, snapshot_id: int, key: BucketKey, stop: int | None) -> tuple[int, BucketFiles]:
        """Return what holds a bucket's rows as they were at a stop, and in which snapshot that is."""
        if stop is None or self._table.info.is_log_table:
            return snapshot_id, self._table.snapshot_files(snapshot_id).states.get(key, BucketFiles())
        if stop <= 0:
            return snapshot_id, BucketFiles()
        chain = self._table.chain(snapshot_id)
        if stop < (start := chain.replay_start(snapshot_id, key)):
            raise OffsetOutOfRangeError(
                f"table {self._table.info.path}, partition {key[0]}, bucket {key[1]}: asked for the rows as they were at "
                f"offset {stop}, but the lake holds the bucket's changes from offset {start} on"
            )
        links = chain.links(snapshot_id, key)
        # Where two meet, both have the state: the later one has been compacted.
        link = [link for link in links if link.start <= stop][-1]
        return link.snapshot_id, link.state

    def file_columns(self) -> Mapping[str, FileColumn]:
        """Return how each column is found in the table's files."""
        return self._table.file_columns()

    def pinned_properties(self, snapshot_id: int) -> Mapping[str, str] | None:
        """Return what a task reads the table with, without its catalog; see `LakeSource.pinned_properties`."""
        return self._table.pinned_properties(snapshot_id)

    def check_files(self, splits: Sequence[LakeSplit]) -> None:
        """Compare length and seal of files on this machine's file systems, of delete files the seal; see `LakeSource.check_files`.

        Raises:
            LakeSnapshotNotFoundError: A file is gone, and its snapshot too; plan the read again.
            CorruptDataError: A file is missing, or is not what the lake's metadata says.

        Cost: some 30 microseconds a file.
        """
        checked: set[str] = set()
        for split in splits:
            try:
                with parquet_errors(None, split.path, "Parquet file"):
                    check_file(split.path, split.size_bytes)
                for path in (json.loads(each)[0] for each in split.deletes if each not in checked):
                    with parquet_errors(None, path, "delete file"):
                        check_footer(path)
            except FileNotFoundError as error:
                raise self._table.missing(_SplitDetail.of(split).snapshot_id, error) from error
            checked.update(split.deletes)

    def read(
        self,
        splits: Sequence[LakeSplit],
        columns: Sequence[str],
        *,
        where: pc.Expression | None = None,
        stops: Mapping[BucketKey, int] | None = None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None = None,
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order; see `LakeSource.read`.

        Raises:
            LakeSnapshotNotFoundError: The snapshot of a primary-key table was expired, and a file with it.
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """
        reading = DataFileScan(self._table, columns, where)
        for first in range(0, len(splits), FILES_AT_ONCE):
            part = splits[first : first + FILES_AT_ONCE]
            found = ((split, self._wanted_file(split, stops, ended)) for split in part)
            wanted = [(split, file) for split, file in found if file is not None]
            for at, rows in reading.read([file for _, file in wanted]):
                yield wanted[at][0], rows

    def _wanted_file(
        self,
        split: LakeSplit,
        stops: Mapping[BucketKey, int] | None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None,
    ) -> WantedFile | None:
        """Return what is read of a split; None: nothing is asked of it."""
        key = (split.partition, split.bucket)
        stop = None if stops is None else stops.get(key, 0)
        if stop is not None and stop <= split.min_offset:
            return None
        detail = _SplitDetail.of(split)
        span = (split.min_offset, split.max_offset + 1)
        dead: DeadRows | None = None
        if split.deletes:
            dead = self._deletes_of(split, detail, stop).of(split.path, *span, detail.number)
        if ended is not None and len(also := slice_ascending(ended.get(key, NO_NUMBERS), *span)):
            dead = DeadRows((also,)) if dead is None else replace(dead, offsets=(*dead.offsets, also))
        if stop is not None and stop <= split.max_offset:
            dead = DeadRows(stop=stop) if dead is None else replace(dead, stop=stop)
        return WantedFile(split.path, detail.snapshot_id, split.rows, split.size_bytes, detail.ascends, dead)

    def _deletes_of(self, split: LakeSplit, detail: _SplitDetail, stop: int | None) -> BucketDeletes:
        """Return what deletes rows of a split; loaded once for splits of one bucket that follow one another."""
        kept = self._deletes
        if kept is None or kept[0] != split.deletes or kept[1] != stop:
            self._deletes = None
            try:
                found = BucketDeletes(self._table.io(), self._table.columns(), split.deletes, stop, self._ended)
            except FileNotFoundError as error:
                raise self._table.missing(detail.snapshot_id, error) from error
            kept = self._deletes = (split.deletes, stop, found)
        return kept[2]

    def dead_offsets(
        self,
        splits: Sequence[LakeSplit],
        *,
        stops: Mapping[BucketKey, int],
        ended: Mapping[BucketKey, NDArray[np.int64]],
    ) -> list[NDArray[np.int64]] | None:
        """Return the offsets of rows that `read` leaves out; see `LakeSource.dead_offsets`.

        None where another engine deleted rows by position or key, or a stop lies within a file.

        Raises:
            As `read`.

        Cost: what deletes rows is read, and kept for the next read; the files themselves are not.
        """
        found = []
        for split in splits:
            file = self._wanted_file(split, stops, ended)
            if file is None:
                return None
            dead = file.dead or DeadRows()
            if dead.keys is not None or len(dead.positions) or dead.stop is not None:
                return None
            found.append(np.concatenate(dead.offsets) if dead.offsets else NO_NUMBERS)
        return found

    def count(
        self,
        splits: Sequence[LakeSplit],
        *,
        stops: Mapping[BucketKey, int] | None = None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None = None,
    ) -> int:
        """Return how many rows `read` would yield without a filter.

        Raises:
            As `read`.

        Cost: of files from which nothing is left out, nothing is read. Of others what deletes their rows; the files
        themselves only where offsets do not say how many of them it hits.
        """
        total = 0
        rest: list[LakeSplit] = []
        for split in splits:
            file = self._wanted_file(split, stops, ended)
            if file is None:
                continue
            known = _live_count(split, file)
            if known is None:
                rest.append(split)
            else:
                total += known
        looked_at = self.read(rest, [OFFSET_COLUMN], stops=stops, ended=ended)
        return total + sum(int(rows.num_rows) for _, rows in looked_at)


@dataclass(frozen=True, slots=True)
class _SplitDetail:
    """The details of a split in this format.

    Attributes:
        snapshot_id: The snapshot that the file was found in; None: not known.
        number: Its data sequence number.
        ascends: Whether it says that its rows ascend by offset.
    """

    snapshot_id: int | None = None
    number: int = 0
    ascends: bool = False

    def text(self) -> str:
        """Return it as a split carries it."""
        return json.dumps([self.snapshot_id, self.number, int(self.ascends)], separators=(",", ":"))

    @staticmethod
    def of(split: LakeSplit) -> _SplitDetail:
        """Return what a split says.

        Raises:
            CorruptDataError: It is no split of this format.
        """
        if not split.detail:
            return _SplitDetail()
        try:
            snapshot_id, number, ascends = json.loads(split.detail)
            return _SplitDetail(None if snapshot_id is None else int(snapshot_id), int(number), bool(ascends))
        except (ValueError, TypeError) as error:
            raise CorruptDataError(
                f"lake file {split.path}: expected the detail of a split, found {split.detail!r}"
            ) from error


def _live_count(split: LakeSplit, file: WantedFile) -> int | None:
    """Return how many rows of a file are live; None when one has to look."""
    dead = file.dead
    if dead is None:
        return split.rows
    if dead.keys is not None or len(dead.positions):
        return None
    if not dead.offsets and dead.stop is None:
        return split.rows
    if split.rows != split.max_offset - split.min_offset + 1:
        return None
    # Every offset of its range is a row's.
    stop = split.max_offset + 1 if dead.stop is None else dead.stop
    return stop - split.min_offset - dead.count_in(split.min_offset, stop)


def _ascending_orders(lake: Table, offset_id: int) -> frozenset[int]:
    """Return the ids of the sort orders of a table by which offsets ascend."""
    orders = lake.metadata.sort_orders
    return frozenset(order.order_id for order in orders if order.fields and _is_by_offset(order.fields[0], offset_id))


def _is_by_offset(field: SortField, offset_id: int) -> bool:
    return (
        field.source_id == offset_id
        and field.direction is SortDirection.ASC
        and isinstance(field.transform, IdentityTransform)
    )


def _split(file: LakeFile, deletes: tuple[str, ...], snapshot_id: int, orders: Collection[int]) -> LakeSplit:
    found = file.file
    return LakeSplit(
        found.file_path,
        file.partition,
        file.bucket,
        file.min_offset,
        file.max_offset,
        found.record_count,
        found.file_size_in_bytes,
        deletes,
        _SplitDetail(snapshot_id, file.data_sequence_number, found.sort_order_id in orders).text(),
    )

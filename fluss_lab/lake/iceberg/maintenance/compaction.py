"""One task of a compaction: the files of a bucket rewritten so that it is read faster. Its rows stay as they are.

Data files are put together in runs that follow one another by offset, and their rows stay sorted by it. Then there are two
ways. *Dropping*: deleted rows are left out, delete files that nothing needs any more go, and so do equality deletes, once
they are applied; replay needs the snapshot before. *Keeping*: every row and every event stays, the events' places being
found anew; nothing is lost, so that it can be done as often as one likes.

Position-delete files that carry no rows (another engine wrote them) are never rewritten: they stay as long as a live file
needs them, and the files that they delete from are not rewritten while keeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.files.parquet_output import ParquetSettings
from fluss_lab.lake.iceberg.maintenance.compaction_task import (
    BucketCompaction,
    CompactedBucket,
    CompactionScope,
    CompactionTask,
)
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete, LakeFile, lake_file
from fluss_lab.lake.iceberg.read.equality_deletes import EqualityDeletes
from fluss_lab.lake.iceberg.read.merge_reader import LiveReader
from fluss_lab.lake.iceberg.read.position_deletes import PositionDeletes, PositionFile
from fluss_lab.lake.iceberg.write.data_file_writer import DataFileWriter
from fluss_lab.lake.iceberg.write.delete_schema import PATH_COLUMN, read_events
from fluss_lab.lake.iceberg.write.delete_writer import DeleteFileWriter, RowPlaces
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult
from fluss_lab.lake.iceberg.write.row_locator import RowLocator, offset_files
from fluss_lab.lake.iceberg.write.write_target import BucketTarget, WriteTarget
from fluss_lab.lake.system_columns import OFFSET_COLUMN
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile


def compact_bucket(table: TableInfo, task: Mapping[str, Any]) -> bytes:
    """Rewrite the files of one bucket; return a `CompactedBucket` as bytes. On failure nothing is left of what was written.

    Raises:
        CorruptDataError: A file is missing, or is not what the lake's metadata says; or the task is none of this release.
        StorageError: A file cannot be written.

    Cost: memory is bounded by row groups, eight bytes for each deleted position of the bucket, and the keys of its
    equality deletes.
    """
    parsed = CompactionTask.from_plain(task)
    try:
        rewrite = _Rewrite(table, parsed.scope, parsed.bucket)
    except FileNotFoundError as error:
        raise _missing(table, error) from error
    try:
        return rewrite.run().to_bytes()
    except FileNotFoundError as error:
        rewrite.abort()
        raise _missing(table, error) from error
    except BaseException:
        rewrite.abort()
        raise


def _missing(table: TableInfo, error: OSError) -> CorruptDataError:
    return CorruptDataError(
        f"lake table {table.path}: a file of the planned snapshot is missing: it was expired meanwhile, then plan again; or "
        f"another program removed it: {error}"
    )


class _Rewrite:
    """The rewriting of one bucket. Run it once."""

    def __init__(self, table: TableInfo, scope: CompactionScope, bucket: BucketCompaction) -> None:
        self._table = table
        self._scope = scope
        self._bucket = bucket
        self._io: FileIO = scope.target.file_io()
        self._columns = scope.columns()
        self._writers: list[DataFileWriter | DeleteFileWriter] = []
        live = {file.file.file_path for file in bucket.data}
        by_position = [each.file.file_path for each in bucket.deletes if not each.is_equality]
        by_key = [each for each in bucket.deletes if each.is_equality]
        self._positions = PositionDeletes(self._io, by_position, live)
        self._keys = EqualityDeletes(self._io, by_key, self._columns) if by_key and bucket.drops else None
        self._live = live

    def run(self) -> CompactedBucket:
        """Write what is to be written."""
        bucket = self._bucket
        chosen = self._chosen_positions()
        new_data: list[DataFile] = []
        for low, high in _runs(chosen):
            new_data += self._write_data(bucket.data[low:high])
        gone = {bucket.data[index].file.file_path for index in chosen}
        added = [self._as_lake_file(file) for file in new_data]
        staying = [file for file in bucket.data if file.file.file_path not in gone]
        removed_deletes, new_deletes = self._write_deletes(gone, [*staying, *added])
        folded = self._folded_keys()
        before = sum(bucket.data[index].file.record_count for index in chosen)
        written = IcebergWriteResult(
            self._table.table_id, bucket.partition, bucket.bucket, 0, 0, -1, tuple(new_data), tuple(new_deletes)
        )
        return CompactedBucket(
            written,
            (*sorted(gone), *removed_deletes, *folded),
            dropped=bool(folded) or sum(file.record_count for file in new_data) < before,
            sequence_number=bucket.sequence_number,
        )

    def abort(self) -> None:
        """Remove what was written. Never raises."""
        for writer in self._writers:
            writer.abort()

    # -- data files ----------------------------------------------------------------------------------------------------

    def _chosen_positions(self) -> set[int]:
        """Return the positions of the data files that are rewritten."""
        bucket = self._bucket
        if not bucket.drops:
            bare = {path for found in self._positions.files if not found.has_events for path in found.counts}
            runs = [_without(run, bucket.data, bare) for run in bucket.runs]
            return {index for run in runs for part in run for index in part}
        chosen = {index for low, high in bucket.runs for index in range(low, high)}
        for index, file in enumerate(bucket.data):
            dead = len(self._positions.of(file.file.file_path))
            is_dirty = dead > bucket.dirty_share * file.file.record_count
            if is_dirty or (index not in chosen and self._has_dead_keys(file)):
                chosen.add(index)
        return chosen

    def _has_dead_keys(self, file: LakeFile) -> bool:
        """Return whether an equality delete applies to a row of a file."""
        if self._keys is None:
            return False
        reader = LiveReader(self._io, self._columns, None, None)
        return any(
            bool(self._keys.deleted_mask(rows, file.data_sequence_number).any())
            for rows in reader.read([file], self._keys.names)
        )

    def _write_data(self, files: Sequence[LakeFile]) -> tuple[DataFile, ...]:
        target = self._bucket_target(replace(self._scope.target, schema=self._scope.fields), "compact")
        writer = DataFileWriter(self._io, target)
        self._writers.append(writer)
        drops = self._bucket.drops
        reader = LiveReader(self._io, self._columns, self._positions if drops else None, self._keys if drops else None)
        settings = ParquetSettings.of(target.table.properties)
        names = [field.name for field in self._scope.fields.fields]
        rows = reader.read(files, self._columns.schema.names)
        for group in _gather(self._ascending(rows), settings.row_group_rows, settings.row_group_bytes):
            writer.append_lake_rows(group.rename_columns(names))
            failpoint("maintenance.compact.after_group")
        written = writer.finish()
        failpoint("maintenance.compact.after_file")
        return written

    def _ascending(self, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield rows as they are; each offset must come once, as the readers of the file that is written take it."""
        last = -(2**63)
        for part in rows:
            offsets = part.column(OFFSET_COLUMN).to_numpy()
            wrong = np.flatnonzero(offsets[1:] <= offsets[:-1]) + 1
            if len(offsets) and offsets[0] <= last:
                wrong = np.zeros(1, np.int64)
            if len(wrong):
                raise CorruptDataError(
                    f"{self._what}: the live files hold the offset {int(offsets[wrong[0]])} more than once: another program copied rows "
                    "in the lake. They are not rewritten as they are; remove one of the rows"
                )
            last = int(offsets[-1]) if len(offsets) else last
            yield part

    def _as_lake_file(self, file: DataFile) -> LakeFile:
        return lake_file(self._io, self._table.path, self._columns.layout, file, self._bucket.sequence_number)

    # -- delete files --------------------------------------------------------------------------------------------------

    def _write_deletes(self, gone: set[str], after: Sequence[LakeFile]) -> tuple[list[str], tuple[DataFile, ...]]:
        """Write delete files anew where it is due; return the paths of those that go, and the new ones.

        Args:
            gone: Paths of the data files that go.
            after: The data files that the bucket has then.
        """
        bucket = self._bucket
        # Entries of these files are of use: their rows are still there, somewhere, and still to be deleted.
        needed = self._live - gone if bucket.drops else self._live
        merge = {bucket.deletes[index].file.file_path for index in bucket.merge}
        files = {each.file.file_path: each for each in bucket.deletes if not each.is_equality}
        removed: list[str] = []
        rewritten: list[LakeDelete] = []
        for found in self._positions.files:
            used = sum(count for path, count in found.counts.items() if path in needed)
            if not used:
                removed.append(found.path)
            elif found.has_events and (found.path in merge or self._is_due(found, gone, used)):
                removed.append(found.path)
                rewritten.append(files[found.path])
        if not rewritten:
            return removed, ()
        return removed, self._write_events(rewritten, needed, after)

    def _is_due(self, found: PositionFile, gone: set[str], used: int) -> bool:
        """Return whether a delete file has entries that must be placed anew; or, while dropping, that nothing needs.

        None of the latter may stay: the number of entries says how many rows of a bucket are deleted.
        """
        if self._bucket.drops:
            return used < sum(found.counts.values())
        return any(path in gone for path in found.counts)

    def _write_events(
        self, deletes: Sequence[LakeDelete], needed: set[str], after: Sequence[LakeFile]
    ) -> tuple[DataFile, ...]:
        locator = RowLocator(self._io, offset_files(after), self._scope.target.offset_id)
        paths = [file.path for file in locator.files]

        def place(offsets: NDArray[np.int64]) -> RowPlaces:
            file_of, positions = locator.locate(offsets)
            if bool((file_of < 0).any()):
                missing = int(offsets[np.flatnonzero(file_of < 0)[0]])
                raise CorruptDataError(
                    f"{self._what}: a position delete ends the row of offset {missing}, but no live data file has it: "
                    "another program changed files without a commit, or wrote delete files that look like tiering's"
                )
            return RowPlaces(paths, file_of, positions)

        writer = DeleteFileWriter(self._io, self._bucket_target(self._scope.target, "compact"), place)
        self._writers.append(writer)
        live = pa.array(sorted(needed), pa.string())
        for delete in deletes:
            for events in read_events(self._io, delete.file):
                kept = events.filter(pc.is_in(events.column(PATH_COLUMN), live))
                if len(kept):
                    writer.append_events(kept)
        written = writer.finish().placed
        failpoint("maintenance.compact.after_deletes")
        return written

    def _folded_keys(self) -> list[str]:
        """Return the equality-delete files that go: all matching rows were left out, those that match none delete nothing."""
        if self._keys is None:
            return []
        return [each.file.file_path for each in self._bucket.deletes if each.is_equality and len(each.file.partition)]

    @property
    def _what(self) -> str:
        bucket = self._bucket
        return f"lake table {self._table.path}, partition {bucket.partition}, bucket {bucket.bucket}"

    def _bucket_target(self, target: WriteTarget, split: str) -> BucketTarget:
        bucket = self._bucket
        what = f"lake table {self._table.path}"
        return BucketTarget.of(target, what, bucket.partition, bucket.bucket, self._scope.compaction_id, split)


def _runs(chosen: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the half-open ranges of positions that follow one another."""
    picked = sorted(chosen)
    start = 0
    for at in range(1, len(picked) + 1):
        if at == len(picked) or picked[at] != picked[at - 1] + 1:
            yield picked[start], picked[at - 1] + 1
            start = at


def _without(run: tuple[int, int], data: Sequence[LakeFile], bare: set[str]) -> list[list[int]]:
    """Return the parts of a run, of at least two files each, that have none of some files."""
    parts: list[list[int]] = [[]]
    for index in range(*run):
        if data[index].file.file_path in bare:
            parts.append([])
        else:
            parts[-1].append(index)
    whole = run[1] - run[0]
    return [part for part in parts if len(part) > 1 or (len(part) == 1 and whole == 1)]


def _gather(rows: Iterator[pa.Table], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Yield rows in pieces of about a row group's size."""
    held: list[pa.Table] = []
    count = size_bytes = 0
    for part in rows:
        rest = part
        while len(rest):
            taken = rest.slice(0, rows_max - count)
            rest = rest.slice(len(taken))
            held.append(taken)
            count += len(taken)
            size_bytes += taken.nbytes
            if count >= rows_max or size_bytes >= bytes_max:
                yield pa.concat_tables(held).combine_chunks()
                held, count, size_bytes = [], 0, 0
    if held:
        yield pa.concat_tables(held).combine_chunks()

"""The writer of one split, log records in, one Parquet file out; and the committer of a round of them.

A primary-key table's files hold its changelog as it is: every record with its change type and the offset of the row that
it ends. So nothing has to be placed, looked up or rewritten; `read_state` makes rows of it.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.errors import (
    CommitConflictError,
    CorruptDataError,
    ForeignCommitError,
    InternalError,
    LakeSnapshotNotFoundError,
    StorageError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.files import fsync_folder, fsync_path
from fluss_lab.lake import (
    SYSTEM_FIELDS,
    CommittedLakeSnapshot,
    CommitterInitContext,
    LakeCommitter,
    LakeWriter,
    SimpleVersionedSerializer,
    WriterInitContext,
)
from fluss_lab.lake.snapshot_summary import (
    COMMIT_ID_KEY,
    REPLAY_START_KEY,
    SnapshotSummary,
    check_registered,
    newest_committed,
    newest_of_history,
    read_starts,
)
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.names import BucketKey
from fluss_lab.records import LogRecords
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder, Manifest

VERSION: Final = 1
T = TypeVar("T")
#: Records gathered before they are written as a row group: the unit in which files are read.
ROW_GROUP_RECORDS: Final = 65_536
#: Beside the system columns, in files of primary-key tables.
CHANGE_TYPE: Final = pa.field("_change_type", pa.int8(), nullable=False)
PREVIOUS_OFFSET: Final = pa.field("_previous_offset", pa.int64(), nullable=False)
_LOG: Final = logging.getLogger(__name__)


class _Counted:
    """What a run of files amounts to."""

    __slots__ = ()
    files: tuple[LakeFile, ...]

    @property
    def row_count(self) -> int:
        """Return the records in the files, events included."""
        return sum(file.rows for file in self.files)

    @property
    def file_count(self) -> int:
        """Return the number of files."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class ParquetWriteResult(_Counted):
    """The files of one split, ascending by offset; none for a split without records."""

    table_id: int
    partition: str | None
    bucket: int
    files: tuple[LakeFile, ...] = ()

    @property
    def key(self) -> BucketKey:
        """Return its partition and bucket."""
        return self.partition, self.bucket


@dataclass(frozen=True, slots=True)
class ParquetCommittable(_Counted):
    """All files of a round; none for a commit that only moves offsets or fences."""

    files: tuple[LakeFile, ...]


class WriteResultSerializer(SimpleVersionedSerializer[ParquetWriteResult]):
    """Write results as JSON."""

    version = VERSION

    def serialize(self, value: ParquetWriteResult) -> bytes:
        """Return a write result as JSON."""
        return encode(value)

    def deserialize(self, version: int, data: bytes) -> ParquetWriteResult:
        """Return the write result of such JSON."""
        return _read(ParquetWriteResult, version, data)


class CommittableSerializer(SimpleVersionedSerializer[ParquetCommittable]):
    """Committables as JSON."""

    version = VERSION

    def serialize(self, value: ParquetCommittable) -> bytes:
        """Return a committable as JSON."""
        return encode(value)

    def deserialize(self, version: int, data: bytes) -> ParquetCommittable:
        """Return the committable of such JSON."""
        return _read(ParquetCommittable, version, data)


def _read(kind: type[T], version: int, data: bytes) -> T:
    if not 1 <= version <= VERSION:
        raise CorruptDataError(f"{kind.__name__}: expected at most version {VERSION}, found {version}: another release")
    return decode(kind, data, kind.__name__)


def file_schema(table: TableInfo) -> pa.Schema:
    """Return the columns of a table's files: the user's, the system's, of a primary-key table two more."""
    keyed = () if table.is_log_table else (CHANGE_TYPE, PREVIOUS_OFFSET)
    return pa.schema([*table.schema.arrow_schema, *SYSTEM_FIELDS, *keyed])


class ParquetLakeWriter(LakeWriter[ParquetWriteResult]):
    """Writes a split's records into one file, which is durable when `complete` returns."""

    def __init__(self, folder: LakeFolder, context: WriterInitContext) -> None:
        self._context = context
        self._schema = file_schema(context.table)
        round_id = re.sub(r"[^A-Za-z0-9_-]", "_", context.round_id)
        # Attempts at a split may run at the same time: each has a name of its own.
        self._name = f"{round_id}-b{context.bucket.bucket}-s{context.split_index}-{uuid.uuid4().hex}.parquet"
        self._path = folder.data_file(self._name)
        self._gathered: list[LogRecords] = []
        self._file: pq.ParquetWriter | None = None
        self._rows = 0
        self._offsets: tuple[int, int] | None = None
        self._max_timestamp_ms = -1

    def write(self, records: LogRecords) -> None:
        """Take records of the bucket, ascending by offset across calls."""
        first, last = self._offsets or (records.base_offset, records.base_offset - 1)
        if records.base_offset <= last:
            raise InternalError(
                f"split {self._context.split_index}: expected offsets after {last}, found {records.base_offset}"
            )
        self._offsets = (first, records.next_offset - 1)
        self._max_timestamp_ms = int(records.timestamps_ms[-1].as_py())
        self._gathered.append(records)
        if sum(map(len, self._gathered)) >= ROW_GROUP_RECORDS:
            self._flush()

    def complete(self) -> ParquetWriteResult:
        """Finish the file; without records there is none."""
        context = self._context
        files: tuple[LakeFile, ...] = ()
        if self._offsets is not None:
            self._flush()
            assert self._file is not None
            try:
                self._file.close()
                fsync_path(self._path)
                fsync_folder(self._path.parent)
                size_bytes = self._path.stat().st_size
            except OSError as error:
                raise StorageError(f"lake file {self._path}: {error}") from error
            place = (context.partition, context.bucket.bucket)
            files = (LakeFile(self._name, *place, *self._offsets, self._max_timestamp_ms, self._rows, size_bytes),)
            failpoint("lake.write.after_file")
        return ParquetWriteResult(context.table.table_id, context.partition, context.bucket.bucket, files)

    def abort(self) -> None:
        """Remove what was written."""
        self._gathered.clear()
        try:
            if self._file is not None:
                self._file.close()
            self._path.unlink(missing_ok=True)
        except (OSError, pa.ArrowException):
            return  # a file that no snapshot names is garbage, not part of the table

    def _flush(self) -> None:
        """Write what is gathered as a row group."""
        if not self._gathered:
            return
        rows = pa.Table.from_batches([self._batch(records) for records in self._gathered])
        self._gathered.clear()
        try:
            if self._file is None:
                self._file = pq.ParquetWriter(self._path, self._schema)
            self._file.write_table(rows, row_group_size=len(rows))
        except OSError as error:
            raise StorageError(f"lake file {self._path}: {error}") from error
        self._rows += len(rows)

    def _batch(self, records: LogRecords) -> pa.RecordBatch:
        """Return records as the columns of the file."""
        times = pa.array(records.timestamps_ms.to_numpy() * 1000).view(SYSTEM_FIELDS[2].type)
        buckets = pa.array(np.full(len(records), self._context.bucket.bucket, dtype=np.int32))
        columns = [*records.rows.columns, buckets, records.offsets, times]
        if not self._context.table.is_log_table:
            if records.change_types is None or records.previous_offsets is None:
                raise InternalError("records of a primary-key table without change types or previous offsets")
            columns += [records.change_types, records.previous_offsets]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class ParquetLakeCommitter(LakeCommitter[ParquetWriteResult, ParquetCommittable]):
    """Commits a round to one table."""

    def __init__(self, folder: LakeFolder, context: CommitterInitContext) -> None:
        self._folder = folder
        self._table_id = context.table.table_id
        self._what = f"lake table {context.table.path}, round {context.round_id}"

    def to_committable(self, results: Sequence[ParquetWriteResult]) -> ParquetCommittable:
        """Return the files of all results, by bucket and offset."""
        if strangers := [result.table_id for result in results if result.table_id != self._table_id]:
            raise InternalError(f"{self._what}: a write result is of table id {strangers[0]}")
        files = [file for result in results for file in result.files]
        files.sort(key=lambda file: (file.partition or "", file.bucket, file.min_offset))
        for before, after in pairwise(files):
            if before.key == after.key and before.max_offset >= after.min_offset:
                raise InternalError(f"{self._what}: two splits of bucket {after.key} hold offset {after.min_offset}")
        return ParquetCommittable(tuple(files))

    def commit(
        self, committable: ParquetCommittable, planned_snapshot_id: int | None, properties: Mapping[str, str]
    ) -> int:
        """Publish the next version, on condition that the newest snapshot is the planned one."""
        return self.commit_on(planned_snapshot_id, properties, frozenset(), committable.files)

    def commit_on(
        self,
        planned_snapshot_id: int | None,
        properties: Mapping[str, str],
        emptied: frozenset[BucketKey],
        files: Sequence[LakeFile] = (),
    ) -> int:
        """Commit files, and leave out those that some buckets had: see `commit`."""
        commit_id = properties.get(COMMIT_ID_KEY)
        if not commit_id:
            raise InternalError(f"{self._what}: a commit needs {COMMIT_ID_KEY!r} in its properties")
        failpoint("lake.commit.before")
        starts = read_starts(properties.get(REPLAY_START_KEY, "[]"), f"{self._what}, property {REPLAY_START_KEY!r}")
        while True:
            newest = self._folder.newest_of(self._table_id)
            try:
                newer = self._since(newest, planned_snapshot_id)
            except LakeSnapshotNotFoundError as error:
                raise CommitConflictError(f"{self._what}: planned at a snapshot that is gone: {error}") from error
            if landed := [each for each in newer if each.properties.get(COMMIT_ID_KEY) == commit_id]:
                return landed[0].version
            if newer:
                self._check_no_foreign(newer)
                raise CommitConflictError(
                    f"{self._what}: planned at snapshot {planned_snapshot_id}, but the newest is {newer[0].version}; "
                    "nothing was committed, plan again"
                )
            kept = (file for file in newest.files if file.key not in emptied)
            following = newest.next_committed((*kept, *files), properties, starts)
            try:
                self._folder.publish(following)
            except FileExistsError:
                continue  # another process made that version first: was it a commit, or did it only alter the table?
            failpoint("lake.commit.after")
            return following.version

    def abort(self, results: Sequence[ParquetWriteResult]) -> None:
        """Remove the files of results, except those that any version names."""
        try:
            newest = self._folder.newest_of(self._table_id)
            used = {file.name for each in self._folder.history(newest) for file in each.files}
            for file in (file for result in results for file in result.files):
                if file.name not in used:
                    self._folder.data_file(file.name).unlink(missing_ok=True)
        except Exception as error:
            _LOG.warning("%s: files stay, as it is not known whether they are in use: %s", self._what, error)

    def current_snapshot_id(self) -> int | None:
        """Return the id of the newest snapshot."""
        return self._folder.newest_of(self._table_id).snapshot_id

    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours after the known one, with all offsets committed since."""
        newer = self._since(self._folder.newest_of(self._table_id), known_snapshot_id)
        self._check_no_foreign(newer)
        return newest_committed(self._summaries(newer))

    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours, with all offsets ever committed."""
        return newest_of_history(self._summaries(self._folder.history(self._folder.newest_of(self._table_id))))

    def _since(self, newest: Manifest, known: int | None) -> list[Manifest]:
        """Return the snapshots after a known one, the newest first."""
        newer: list[Manifest] = []
        for snapshot in self._folder.history(newest):
            if snapshot.version == known:
                return newer
            newer.append(snapshot)
        if known is not None:
            raise LakeSnapshotNotFoundError(f"{self._what}: the table has no snapshot {known}")
        return newer

    def _check_no_foreign(self, snapshots: Sequence[Manifest]) -> None:
        for summary in self._summaries(snapshots):
            if not summary.is_ours:
                raise ForeignCommitError(f"{self._what}: snapshot {summary.snapshot_id} was not committed by tiering")
            check_registered(summary)

    def _summaries(self, snapshots: Iterable[Manifest]) -> Iterator[SnapshotSummary]:
        return (SnapshotSummary(str(self._folder.table_path), each.version, each.properties) for each in snapshots)

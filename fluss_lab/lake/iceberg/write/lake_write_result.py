"""The write results that writers hand to committers: versioned JSON, never pickle.

Layout of version 2: an object with the result's own fields, of which ``files``, ``deletes`` and ``unplaced`` are lists
of objects with every field of an Iceberg data file by name; keys of its maps are field ids as strings, binary values are
base64. A committable is an object with ``results``, a list of these. Write results of version 1, which had data files
only, are read too; committables of version 1 never left the process that made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError, InternalError
from fluss_lab.lake.format_interfaces import SimpleVersionedSerializer, WriterInitContext
from fluss_lab.lake.iceberg.table.layout import partition_values
from fluss_lab.model.json_codec import Forms, decode, encode, known_type
from fluss_lab.records import LogRecords

VERSION: Final = 2


class _PlainFile(msgspec.Struct):
    """An Iceberg data file's fields, as they travel."""

    spec_id: int
    content: DataFileContent
    file_path: str
    file_format: FileFormat
    partition: list[str | int | None]
    record_count: int
    file_size_in_bytes: int
    column_sizes: dict[int, int] | None
    value_counts: dict[int, int] | None
    null_value_counts: dict[int, int] | None
    nan_value_counts: dict[int, int] | None
    lower_bounds: dict[int, bytes] | None
    upper_bounds: dict[int, bytes] | None
    key_metadata: bytes | None
    split_offsets: list[int] | None
    equality_ids: list[int] | None
    sort_order_id: int | None

    @staticmethod
    def of(file: DataFile) -> _PlainFile:
        values = {name: getattr(file, name) for name in _PlainFile.__struct_fields__}
        return _PlainFile(**values | {"partition": partition_values(file)})

    def file(self) -> DataFile:
        values = {name: getattr(self, name) for name in self.__struct_fields__ if name != "spec_id"}
        file = DataFile.from_args(**values | {"partition": Record(*self.partition)})
        file.spec_id = self.spec_id
        return file


#: How data files travel.
FILE_FORMS: Final[Forms] = {
    DataFile: (_PlainFile.of, lambda value: msgspec.convert(value, known_type(_PlainFile), str_keys=True).file())
}


class _Counted:
    """What can be counted of files."""

    __slots__ = ()
    files: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    unplaced: tuple[DataFile, ...]

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """Return every file that was written, of whatever kind: what an abort removes."""
        return (*self.files, *self.deletes, *self.unplaced)

    @property
    def row_count(self) -> int:
        """Return the rows in the data files."""
        return sum(file.record_count for file in self.files)

    @property
    def event_count(self) -> int:
        """Return the ``-U`` and ``-D`` events in the delete files, placed or not."""
        return sum(file.record_count for file in (*self.deletes, *self.unplaced))

    @property
    def file_count(self) -> int:
        """Return the number of files of all kinds."""
        return len(self.all_files)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files of all kinds."""
        return sum(file.file_size_in_bytes for file in self.all_files)


@dataclass(frozen=True, slots=True)
class IcebergWriteResult(_Counted):
    """The files of one split.

    Attributes:
        table_id: Of the Fluss table.
        partition: Name of its partition, or None.
        bucket: Its bucket.
        start_offset: First offset written; equal to `end_offset` when nothing was.
        end_offset: The offset after the last one written.
        max_timestamp_ms: Timestamp of the last record; -1 when there is none.
        files: The data files, ascending by offset.
        deletes: Delete files with the split's ``-U`` and ``-D`` events: position deletes of rows in the lake or in
            `files`, and equality deletes. They are ready to be committed.
        unplaced: Delete files whose events no file and position was found for, as other splits of the round may hold
            their rows: the committer places them (`place_again`) and never commits them as they are.
    """

    table_id: int
    partition: str | None
    bucket: int
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    files: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    unplaced: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class IcebergCommittable(_Counted):
    """All write results of a round by partition, bucket and offset; none for a commit that only moves offsets or fences."""

    results: tuple[IcebergWriteResult, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:  # type: ignore[override]
        """Return the data files of all results."""
        return tuple(file for result in self.results for file in result.files)

    @property
    def deletes(self) -> tuple[DataFile, ...]:  # type: ignore[override]
        """Return the delete files of all results that can be committed as they are."""
        return tuple(file for result in self.results for file in result.deletes)

    @property
    def unplaced(self) -> tuple[DataFile, ...]:  # type: ignore[override]
        """Return the delete files of all results that must be placed first."""
        return tuple(file for result in self.results for file in result.unplaced)


@dataclass(slots=True)
class WrittenSpan:
    """Which records a split's writer has been given.

    Attributes:
        context: Of the writer.
        start_offset: The first offset; None before the first record.
        end_offset: The offset after the last one.
        max_timestamp_ms: Timestamp of the last record; -1 before the first.
    """

    context: WriterInitContext
    start_offset: int | None = None
    end_offset: int = 0
    max_timestamp_ms: int = -1

    def add(self, records: LogRecords) -> None:
        """Take note of records.

        Raises:
            InternalError: They are not after those before.
        """
        if self.start_offset is None:
            self.start_offset = self.end_offset = records.base_offset
        if records.base_offset < self.end_offset:
            raise InternalError(
                f"split {self.context.split_index} of {self.context.bucket}: expected offsets from {self.end_offset}, "
                f"found {records.base_offset}"
            )
        self.end_offset = records.next_offset
        self.max_timestamp_ms = int(records.timestamps_ms[-1].as_py())

    def result(
        self,
        *,
        files: tuple[DataFile, ...] = (),
        deletes: tuple[DataFile, ...] = (),
        unplaced: tuple[DataFile, ...] = (),
    ) -> IcebergWriteResult:
        """Return the write result of these records in some files."""
        context = self.context
        start = 0 if self.start_offset is None else self.start_offset
        return IcebergWriteResult(
            context.table.table_id,
            context.partition,
            context.bucket.bucket,
            start,
            self.end_offset,
            self.max_timestamp_ms,
            files,
            deletes,
            unplaced,
        )


class WriteResultSerializer(SimpleVersionedSerializer[IcebergWriteResult]):
    """Write results as JSON."""

    version = VERSION

    def serialize(self, value: IcebergWriteResult) -> bytes:
        """Return a write result as JSON."""
        return encode(value, forms=FILE_FORMS)

    def deserialize(self, version: int, data: bytes) -> IcebergWriteResult:
        """Return the write result of JSON that `serialize` made, in this release or the one before.

        Raises:
            CorruptDataError: It is of a newer version, or no such JSON.
        """
        _check_version(IcebergWriteResult, version, oldest=1)
        return decode(IcebergWriteResult, data, IcebergWriteResult.__name__, forms=FILE_FORMS)


class CommittableSerializer(SimpleVersionedSerializer[IcebergCommittable]):
    """Committables as JSON."""

    version = VERSION

    def serialize(self, value: IcebergCommittable) -> bytes:
        """Return a committable as JSON."""
        return encode(value, forms=FILE_FORMS)

    def deserialize(self, version: int, data: bytes) -> IcebergCommittable:
        """Return the committable of JSON that `serialize` made.

        Raises:
            CorruptDataError: It is of another version, or no such JSON.
        """
        _check_version(IcebergCommittable, version)
        return decode(IcebergCommittable, data, IcebergCommittable.__name__, forms=FILE_FORMS)


def _check_version(kind: type, version: int, *, oldest: int = VERSION) -> None:
    if not oldest <= version <= VERSION:
        raise CorruptDataError(f"{kind.__name__}: expected version {VERSION}, found {version}; use the same release")

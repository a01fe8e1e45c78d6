"""The task of a compaction and its result, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete, LakeFile
from fluss_lab.lake.iceberg.table.layout import LakeColumns, LakeLayout, partition_values
from fluss_lab.lake.iceberg.table.type_mapping import arrow_field
from fluss_lab.lake.iceberg.write.lake_write_result import FILE_FORMS, IcebergWriteResult
from fluss_lab.lake.iceberg.write.write_target import TABLE_FORMS, WriteTarget
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS
from fluss_lab.model.json_codec import Forms, decode, encode, from_plain, known_type, to_plain

if TYPE_CHECKING:
    from pyiceberg.table import Table

VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """What all tasks of a compaction have in common.

    Attributes:
        compaction_id: In the name of every file.
        target: Where files go, and the columns of delete files.
        fields: All columns of the lake table, those that another engine added too, the system columns last; as they are
            called in the lake now.
        name_mapping: For files that others added without field ids.
    """

    compaction_id: str
    target: WriteTarget
    fields: Schema
    name_mapping: NameMapping | None

    @staticmethod
    def of(compaction_id: str, target: WriteTarget, lake: Table) -> CompactionScope:
        """Return what the tasks of a table's compaction need."""
        # Of a ROW with what others added within it, which files of theirs have.
        ours = [lake.schema().find_field(field.field_id) for field in target.schema.fields]
        known = {field.field_id for field in ours}
        others = [field for field in lake.schema().fields if field.field_id not in known]
        split = len(ours) - len(SYSTEM_COLUMNS)
        return CompactionScope(
            compaction_id, target, Schema(*ours[:split], *others, *ours[split:]), lake.name_mapping()
        )

    def columns(self) -> LakeColumns:
        """Return the columns as rows are read to be written again: in the lake's types, system columns by our names."""
        split = len(self.fields.fields) - len(SYSTEM_COLUMNS)
        system = [
            field.model_copy(update={"name": name})
            for field, name in zip(self.fields.fields[split:], SYSTEM_COLUMNS, strict=True)
        ]
        schema = Schema(*self.fields.fields[:split], *system)
        arrow = pa.schema([arrow_field(field).remove_metadata() for field in schema.fields])
        return LakeColumns(LakeLayout(schema, self.target.spec, UNSORTED_SORT_ORDER), arrow, self.name_mapping)


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """What is to be done with one bucket.

    Attributes:
        partition: Name of its partition, or None.
        bucket: Its number.
        sequence_number: Of the planned snapshot: what is written has it.
        data: All its live data files, ascending by offset.
        deletes: All its live delete files.
        runs: Half-open ranges of `data` that are put together.
        merge: Positions in `deletes` of position-delete files that are put together.
        drops: Whether deleted rows may be dropped, with the events that delete them.
        dirty_share: With `drops`: a data file of whose rows a larger share is deleted is rewritten.
    """

    partition: str | None
    bucket: int
    sequence_number: int
    data: tuple[LakeFile, ...]
    deletes: tuple[LakeDelete, ...]
    runs: tuple[tuple[int, int], ...] = ()
    merge: tuple[int, ...] = ()
    drops: bool = False
    dirty_share: float = 0.0

    @property
    def size_bytes(self) -> int:
        """Return the bytes that are read, as far as that is known before."""
        merged = sum(self.deletes[index].file.file_size_in_bytes for index in self.merge)
        packed = sum(file.file.file_size_in_bytes for low, high in self.runs for file in self.data[low:high])
        whole = sum(file.file.file_size_in_bytes for file in self.data) if self.drops else 0
        return merged + max(packed, whole)


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """What one task does: the compaction, and its bucket."""

    scope: CompactionScope
    bucket: BucketCompaction

    def to_plain(self) -> dict[str, Any]:
        """Return the task as JSON. It may hold credentials of the file system."""
        plain: dict[str, Any] = to_plain(self, version=VERSION, forms=_TASK_FORMS)
        return plain

    @staticmethod
    def from_plain(value: Mapping[str, Any]) -> CompactionTask:
        """Read what `to_plain` gave.

        Raises:
            CorruptDataError: It is of another version, or no task.
        """
        return from_plain(CompactionTask, value, "compaction task", version=VERSION, peer=True, forms=_TASK_FORMS)


@dataclass(frozen=True, slots=True)
class CompactedBucket:
    """What a task did.

    Attributes:
        written: The files written.
        removed: Paths of the data and delete files that they replace.
        dropped: Whether rows or events were left out, so that replay needs what is replaced.
        sequence_number: Data sequence number of the files written.
    """

    written: IcebergWriteResult
    removed: tuple[str, ...]
    dropped: bool
    sequence_number: int

    def to_bytes(self) -> bytes:
        """Return the result as versioned JSON."""
        return encode(self, version=VERSION, forms=FILE_FORMS)

    @staticmethod
    def from_bytes(data: bytes) -> CompactedBucket:
        """Read what `to_bytes` gave.

        Raises:
            CorruptDataError: It is of another version, or no result.
        """
        return decode(CompactedBucket, data, "result of a compaction", version=VERSION, peer=True, forms=FILE_FORMS)


class _TaskFile(msgspec.Struct, array_like=True):
    """A data or delete file, as far as it matters to who reads it."""

    content: DataFileContent
    path: str
    rows: int
    size_bytes: int
    equality_ids: list[int] | None
    #: Empty: it applies to every bucket, and is not this one's to remove.
    partition: list[str | int | None]

    @staticmethod
    def of(file: DataFile) -> _TaskFile:
        return _TaskFile(
            file.content, file.file_path, file.record_count, file.file_size_in_bytes, file.equality_ids,
            partition_values(file),
        )  # fmt: skip

    def file(self) -> DataFile:
        return DataFile.from_args(
            content=self.content,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=self.rows,
            file_size_in_bytes=self.size_bytes,
            equality_ids=self.equality_ids,
        )


#: A bucket may have thousands of files: a task has no metrics of theirs.
_TASK_FORMS: Final[Forms] = {
    **TABLE_FORMS,
    DataFile: (_TaskFile.of, lambda value: msgspec.convert(value, known_type(_TaskFile)).file()),
}

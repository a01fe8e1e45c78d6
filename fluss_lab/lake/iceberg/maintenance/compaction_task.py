"""The task of a compaction and its result, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.format_interfaces import SYSTEM_COLUMNS
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.data_file_rows import LakeColumns
from fluss_lab.lake.iceberg.table.layout import LakeLayout
from fluss_lab.lake.iceberg.table.type_mapping import arrow_field
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult, WriteResultSerializer
from fluss_lab.lake.iceberg.write.write_target import WriteTarget

if TYPE_CHECKING:
    from pyiceberg.table import Table

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """What all tasks of a compaction have in common.

    Attributes:
        compaction_id: In the name of every file.
        target: Where files go, and the columns of delete files.
        fields: All columns of the lake table, those that somebody else added too, the system columns last; as they are
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
        ours = list(target.schema.fields)
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

    def to_json(self) -> dict[str, Any]:
        """Return the scope as JSON. It may hold credentials of the file system."""
        mapping = self.name_mapping
        return {
            "compaction_id": self.compaction_id,
            "target": self.target.to_json(),
            "fields": self.fields.model_dump_json(),
            "name_mapping": None if mapping is None else mapping.model_dump_json(),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> CompactionScope:
        """Read what `to_json` gave."""
        mapping = value["name_mapping"]
        return CompactionScope(
            str(value["compaction_id"]),
            WriteTarget.from_json(value["target"]),
            Schema.model_validate_json(value["fields"]),
            None if mapping is None else parse_mapping_from_json(mapping),
        )


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

    def to_json(self) -> dict[str, Any]:
        """Return the bucket as JSON."""
        return {
            "partition": self.partition,
            "bucket": self.bucket,
            "sequence_number": self.sequence_number,
            "data": [_data_to_json(file) for file in self.data],
            "deletes": [_delete_to_json(delete) for delete in self.deletes],
            "runs": [list(run) for run in self.runs],
            "merge": list(self.merge),
            "drops": self.drops,
            "dirty_share": self.dirty_share,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BucketCompaction:
        """Read what `to_json` gave."""
        key = (value["partition"], int(value["bucket"]))
        return BucketCompaction(
            *key,
            int(value["sequence_number"]),
            tuple(_data_from_json(key, each) for each in value["data"]),
            tuple(_delete_from_json(key, each) for each in value["deletes"]),
            tuple((int(low), int(high)) for low, high in value["runs"]),
            tuple(int(index) for index in value["merge"]),
            bool(value["drops"]),
            float(value["dirty_share"]),
        )


def task_to_json(scope: CompactionScope, bucket: BucketCompaction) -> dict[str, Any]:
    """Return a task as JSON."""
    return {"version": VERSION, "scope": scope.to_json(), "bucket": bucket.to_json()}


def task_from_json(value: Mapping[str, Any]) -> tuple[CompactionScope, BucketCompaction]:
    """Read what `task_to_json` gave.

    Raises:
        CorruptDataError: It is of another version, or no task.
    """
    try:
        if value["version"] != VERSION:
            raise CorruptDataError(f"compaction task: expected version {VERSION}, found {value['version']!r}")
        return CompactionScope.from_json(value["scope"]), BucketCompaction.from_json(value["bucket"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"compaction task: not the form of one: {error!r}") from error


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
        serializer = WriteResultSerializer()
        value = {
            "version": VERSION,
            "write_version": serializer.version,
            "written": base64.b64encode(serializer.serialize(self.written)).decode(),
            "removed": list(self.removed),
            "dropped": self.dropped,
            "sequence_number": self.sequence_number,
        }
        return json.dumps(value).encode()

    @staticmethod
    def from_bytes(data: bytes) -> CompactedBucket:
        """Read what `to_bytes` gave.

        Raises:
            CorruptDataError: It is of another version, or no result.
        """
        try:
            value = json.loads(data)
            if value["version"] != VERSION:
                raise CorruptDataError(
                    f"result of a compaction: expected version {VERSION}, found {value['version']!r}"
                )
            written = base64.b64decode(value["written"], validate=True)
            return CompactedBucket(
                WriteResultSerializer().deserialize(int(value["write_version"]), written),
                tuple(str(path) for path in value["removed"]),
                bool(value["dropped"]),
                int(value["sequence_number"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"result of a compaction: not the form of one: {error!r}") from error


def _data_to_json(file: LakeFile) -> list[Any]:
    found = file.file
    return [
        found.file_path, found.record_count, found.file_size_in_bytes,
        file.min_offset, file.max_offset, file.max_timestamp_us, file.data_sequence_number,
    ]  # fmt: skip


def _data_from_json(key: tuple[str | None, int], value: Any) -> LakeFile:
    path, rows, size_bytes, *numbers = value
    file = _file(DataFileContent.DATA, path, rows, size_bytes)
    low, high, timestamp_us, sequence_number = (int(number) for number in numbers)
    return LakeFile(file, *key, low, high, timestamp_us, sequence_number)


def _delete_to_json(delete: LakeDelete) -> list[Any]:
    found = delete.file
    # Without partition values it applies to every bucket: it is not this one's to remove.
    everywhere = not len(found.partition)
    ids = list(found.equality_ids or ()) if delete.is_equality else None
    return [
        found.file_path, found.record_count, found.file_size_in_bytes, delete.data_sequence_number, ids, everywhere,
    ]  # fmt: skip


def _delete_from_json(key: tuple[str | None, int], value: Any) -> LakeDelete:
    path, rows, size_bytes, sequence_number, ids, everywhere = value
    content = DataFileContent.POSITION_DELETES if ids is None else DataFileContent.EQUALITY_DELETES
    partition = Record() if everywhere else Record(*([key[0]] if key[0] is not None else []), key[1])
    file = _file(content, path, rows, size_bytes, ids, partition)
    return LakeDelete(file, *key, int(sequence_number), ids is not None)


def _file(
    content: DataFileContent,
    path: str,
    rows: int,
    size_bytes: int,
    ids: list[int] | None = None,
    partition: Record | None = None,
) -> DataFile:
    """Return a file as far as it matters to who reads it."""
    return DataFile.from_args(
        content=content,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record() if partition is None else partition,
        record_count=int(rows),
        file_size_in_bytes=int(size_bytes),
        equality_ids=ids,
    )

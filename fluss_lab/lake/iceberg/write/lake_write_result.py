"""The write results that writers hand to committers: versioned JSON, never pickle.

Layout of version 2: an object with the result's own fields, of which ``files``, ``deletes`` and ``unplaced`` are lists
of objects with every field of an Iceberg data file by name; keys of its maps are field ids as strings, binary values are
base64. A committable is an object with ``results``, a list of these. Write results of version 1, which had data files
only, are read too; committables of version 1 never left the process that made them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from pyiceberg.manifest import DATA_FILE_TYPE, DEFAULT_READ_VERSION, DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.format_interfaces import SimpleVersionedSerializer

VERSION: Final = 2
_FIELDS: Final = tuple(field.name for field in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields)
_COUNTS: Final = frozenset({"column_sizes", "value_counts", "null_value_counts", "nan_value_counts"})
_BOUNDS: Final = frozenset({"lower_bounds", "upper_bounds"})
_LISTS: Final = ("files", "deletes", "unplaced")
ValueT = TypeVar("ValueT")


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

    results: tuple[IcebergWriteResult, ...] = ()

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


class WriteResultSerializer(SimpleVersionedSerializer[IcebergWriteResult]):
    """Write results as JSON."""

    version = VERSION

    def serialize(self, value: IcebergWriteResult) -> bytes:
        """Return a write result as JSON."""
        return _to_bytes_of_json(_result_to_json(value))

    def deserialize(self, version: int, data: bytes) -> IcebergWriteResult:
        """Return the write result of JSON that `serialize` made, in this release or the one before.

        Raises:
            CorruptDataError: It is of a newer version, or no such JSON.
        """
        return _read_json(IcebergWriteResult.__name__, version, data, _result_from_json, oldest=1)


class CommittableSerializer(SimpleVersionedSerializer[IcebergCommittable]):
    """Committables as JSON."""

    version = VERSION

    def serialize(self, value: IcebergCommittable) -> bytes:
        """Return a committable as JSON."""
        return _to_bytes_of_json({"results": [_result_to_json(result) for result in value.results]})

    def deserialize(self, version: int, data: bytes) -> IcebergCommittable:
        """Return the committable of JSON that `serialize` made.

        Raises:
            CorruptDataError: It is of another version, or no such JSON.
        """
        return _read_json(IcebergCommittable.__name__, version, data, _committable_from_json)


def _read_json(kind: str, version: int, data: bytes, read: Callable[[Any], ValueT], *, oldest: int = VERSION) -> ValueT:
    if not oldest <= version <= VERSION:
        raise CorruptDataError(f"{kind}: expected version {VERSION}, found {version}; use the same release")
    try:
        return read(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(f"{kind}: {len(data)} bytes that are not its JSON: {error!r}") from error


def _to_bytes_of_json(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


def _result_to_json(result: IcebergWriteResult) -> dict[str, Any]:
    plain = {field.name: getattr(result, field.name) for field in fields(result)}
    return plain | {name: [_file_to_json(file) for file in plain[name]] for name in _LISTS}


def _result_from_json(plain: Any) -> IcebergWriteResult:
    # Version 1 had data files only.
    lists = {name: tuple(_file_from_json(file) for file in plain[name]) for name in _LISTS if name in plain}
    return IcebergWriteResult(**(plain | lists))


def _committable_from_json(plain: Any) -> IcebergCommittable:
    return IcebergCommittable(tuple(_result_from_json(result) for result in plain["results"]))


def _file_to_json(file: DataFile) -> dict[str, Any]:
    value: dict[str, Any] = {"spec_id": file.spec_id}
    for name in _FIELDS:
        found = getattr(file, name)
        if name == "content":
            value[name] = int(found.value)
        elif name == "file_format":
            value[name] = found.value
        elif name == "partition":
            value[name] = list(found._data)
        elif name in _BOUNDS and found is not None:
            value[name] = {str(key): _to_text(bound) for key, bound in found.items()}
        elif name == "key_metadata" and found is not None:
            value[name] = _to_text(found)
        else:
            value[name] = found
    return value


def _file_from_json(value: dict[str, Any]) -> DataFile:
    arguments: dict[str, Any] = {name: value[name] for name in _FIELDS}
    arguments["content"] = DataFileContent(value["content"])
    arguments["file_format"] = FileFormat(value["file_format"])
    arguments["partition"] = Record(*value["partition"])
    _by_id(arguments, _COUNTS, int)
    _by_id(arguments, _BOUNDS, _to_bytes)
    if arguments["key_metadata"] is not None:
        arguments["key_metadata"] = _to_bytes(arguments["key_metadata"])
    file = DataFile.from_args(**arguments)
    file.spec_id = int(value["spec_id"])
    return file


def _by_id(arguments: dict[str, Any], names: frozenset[str], read: Callable[[Any], Any]) -> None:
    for name in names:
        if arguments[name] is not None:
            arguments[name] = {int(key): read(value) for key, value in arguments[name].items()}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

"""What writers hand to committers, and the bytes in which it travels: versioned JSON, never pickle.

Layout of version 1: an object with the result's own fields and ``files``, a list of objects with every field of an
Iceberg data file by name; keys of its maps are field ids as strings, binary values are base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

from pyiceberg.manifest import DATA_FILE_TYPE, DEFAULT_READ_VERSION, DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.interfaces import SimpleVersionedSerializer

VERSION: Final = 1
_FIELDS: Final = tuple(field.name for field in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields)
_COUNTS: Final = frozenset({"column_sizes", "value_counts", "null_value_counts", "nan_value_counts"})
_BOUNDS: Final = frozenset({"lower_bounds", "upper_bounds"})


class _Counted:
    """What can be counted of files."""

    __slots__ = ()
    files: tuple[DataFile, ...]

    @property
    def row_count(self) -> int:
        """Return the rows in the files."""
        return sum(file.record_count for file in self.files)

    @property
    def file_count(self) -> int:
        """Return the number of files."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files."""
        return sum(file.file_size_in_bytes for file in self.files)


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
        files: The files, ascending by offset.
    """

    table_id: int
    partition: str | None
    bucket: int
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class IcebergCommittable(_Counted):
    """All files of a round; none for a commit that only moves offsets or fences."""

    files: tuple[DataFile, ...] = ()


ValueT = TypeVar("ValueT", IcebergWriteResult, IcebergCommittable)


class _JsonSerializer(SimpleVersionedSerializer[ValueT], Generic[ValueT]):
    """Dataclasses of plain values and data files as JSON."""

    version = VERSION
    kind: type[ValueT]

    def serialize(self, value: ValueT) -> bytes:
        """Return the value as JSON."""
        plain = {field.name: getattr(value, field.name) for field in fields(value)}
        plain["files"] = [_file_to_json(file) for file in value.files]
        return json.dumps(plain, separators=(",", ":")).encode()

    def deserialize(self, version: int, data: bytes) -> ValueT:
        """Return the value of JSON that `serialize` made.

        Raises:
            CorruptDataError: It is of a newer version, or no such JSON.
        """
        if version != VERSION:
            raise CorruptDataError(
                f"{self.kind.__name__}: expected version {VERSION}, found {version}; use the same release"
            )
        try:
            plain = json.loads(data)
            plain["files"] = tuple(_file_from_json(file) for file in plain["files"])
            return self.kind(**plain)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptDataError(
                f"{self.kind.__name__}: {len(data)} bytes that are not its JSON: {error!r}"
            ) from error


class WriteResultSerializer(_JsonSerializer[IcebergWriteResult]):
    """Write results as JSON."""

    kind = IcebergWriteResult


class CommittableSerializer(_JsonSerializer[IcebergCommittable]):
    """Committables as JSON."""

    kind = IcebergCommittable


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

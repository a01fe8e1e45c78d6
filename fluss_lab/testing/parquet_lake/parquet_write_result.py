"""The write results that writers hand to the committer: versioned JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake import SimpleVersionedSerializer
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.parquet_lake.table_versions import LakeFile

VERSION: Final = 1
T = TypeVar("T")


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

    files: tuple[LakeFile, ...] = ()


class WriteResultSerializer(SimpleVersionedSerializer[ParquetWriteResult]):
    """Write results as JSON."""

    version = VERSION

    def serialize(self, value: ParquetWriteResult) -> bytes:
        """Return a write result as JSON."""
        return json.dumps(asdict(value)).encode()

    def deserialize(self, version: int, data: bytes) -> ParquetWriteResult:
        """Return the write result of such JSON."""
        return _read(ParquetWriteResult, version, data)


class CommittableSerializer(SimpleVersionedSerializer[ParquetCommittable]):
    """Committables as JSON."""

    version = VERSION

    def serialize(self, value: ParquetCommittable) -> bytes:
        """Return a committable as JSON."""
        return json.dumps(asdict(value)).encode()

    def deserialize(self, version: int, data: bytes) -> ParquetCommittable:
        """Return the committable of such JSON."""
        return _read(ParquetCommittable, version, data)


def _read(kind: type[T], version: int, data: bytes) -> T:
    if not 1 <= version <= VERSION:
        raise CorruptDataError(f"{kind.__name__}: expected at most version {VERSION}, found {version}: another release")
    try:
        value: dict[str, Any] = json.loads(data)
        value["files"] = tuple(LakeFile(**file) for file in value["files"])
        return kind(**value)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptDataError(f"{kind.__name__}: {len(data)} bytes that are not its JSON: {error!r}") from error

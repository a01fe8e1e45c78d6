"""The manifest of a key-value snapshot: which files make up one state of one bucket, and how to know them again.

A snapshot exists when its manifest does: the manifest is written last, at once, and holds a CRC-32C of itself and of
every file. Bytes: a JSON object, a newline, the object's CRC as eight hex digits. `CompletedSnapshot` is what the tablet
server sends to the coordinator of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from fluss_lab.errors import CorruptDataError, InvalidRequestError
from fluss_lab.model.json_codec import Whole, decode, encode
from fluss_lab.model.names import TableBucket
from fluss_lab.records.checksummed_json import seal_content, unseal_content
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_location import store_of

VERSION: Final = 1
MANIFEST_SUFFIX: Final = ".manifest"
CHUNKS_SUFFIX: Final = ".chunks"
LIVE_SUFFIX: Final = ".live"
#: Ids have ten digits in names, so that names sort; longer ones are read as well.
_MANIFEST_NAME: Final = re.compile(r"(\d{10,18})\.manifest")
_FILE_NAME: Final = r"\d{10,18}(-\d{1,9})?\.(chunks|live)"
#: Of the JSON form.
FORMAT: Final = 1


def manifest_name(snapshot_id: int) -> str:
    """Return the name of a snapshot's manifest."""
    return f"{snapshot_id:010d}{MANIFEST_SUFFIX}"


def snapshot_id_of(name: str) -> int | None:
    """Return the snapshot id in the name of a manifest; None when the name is none of a manifest."""
    match = _MANIFEST_NAME.fullmatch(name)
    return None if match is None else int(match[1])


class ChunkMark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One chunk of rows in a manifest.

    Attributes:
        chunk_id: Names the same rows for ever, within the snapshots that were made one from another.
        schema_id: The schema of the rows.
        row_count: How many there are, dead ones too; at least one.
        first_offset: Offset of the first row.
        last_offset: Offset of the last row.
    """

    chunk_id: int
    schema_id: int
    row_count: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class FileMark:
    """A file by its plain name, its bytes and their CRC-32C."""

    name: str
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """A file of chunks, and the chunks in it, in order. Snapshots may share it; one may use only some of them."""

    file: FileMark
    chunks: tuple[ChunkMark, ...]


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """One snapshot of one bucket.

    Attributes:
        bucket: Whose state it is.
        snapshot_id: Unique within the bucket, for ever.
        log_offset: The state has all changes below this offset, and none from it on.
        row_count: Live rows.
        created_ms: When it was begun.
        next_chunk_id: Larger than every chunk id used until then.
        chunk_ids: The chunks of the state, in order.
        files: Where they are; each chunk of `chunk_ids` in exactly one of them.
        live: The file that says which rows are live: for each chunk of the state a bit a row, lowest bit first, filled
            up to whole bytes.
        writers: The bucket's writers at the log offset, as plain JSON values.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    row_count: int
    created_ms: int
    next_chunk_id: int
    chunk_ids: tuple[int, ...]
    files: tuple[ChunkFile, ...]
    live: FileMark
    writers: object

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return manifest_name(self.snapshot_id)

    @property
    def file_names(self) -> set[str]:
        """Return the names of all files that it needs, its own among them."""
        return {self.name, self.live.name, *(each.file.name for each in self.files)}

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files that it needs, without its own."""
        return self.live.size_bytes + sum(each.file.size_bytes for each in self.files)

    @property
    def schema_ids(self) -> tuple[int, ...]:
        """Return the schemas that are needed to read it, ascending."""
        used = set(self.chunk_ids)
        return tuple(sorted({m.schema_id for each in self.files for m in each.chunks if m.chunk_id in used}))

    def to_bytes(self) -> bytes:
        """Return the bytes of its file."""
        bucket = self.bucket
        content = _Content(
            bucket.table_id, bucket.partition_id, bucket.bucket, self.snapshot_id, self.log_offset, self.row_count,
            self.created_ms, self.next_chunk_id, self.schema_ids, self.chunk_ids,
            [_ChunkFileForm(*_plain(each.file), each.chunks) for each in self.files], _FileForm(*_plain(self.live)),
            self.writers,
        )  # fmt: skip
        return seal_content(encode(content, version=VERSION))


def read_manifest(path: Place) -> SnapshotManifest:
    """Return the manifest in a file, checked.

    Raises:
        CorruptDataError: It is none, or another snapshot's; nothing of it can be used.
        UnsupportedError: It was written by a newer version of fluss_lab.
        OSError: It cannot be read; `FileNotFoundError` when it is not there.
    """
    return parse_manifest(store_of(path).read(path), path)


def parse_manifest(data: bytes, path: Place) -> SnapshotManifest:
    """Return the manifest in the bytes of a file: see `read_manifest`."""
    if (body := unseal_content(data)) is None:
        raise CorruptDataError(f"{path}: the checksum of the snapshot's manifest does not agree with its content")
    content = decode(_Content, body, f"{path} (manifest of a snapshot)", version=VERSION)
    manifest = content.manifest()
    if manifest.name != path.name:
        raise CorruptDataError(f"{path}: expected the manifest of that snapshot, found that of {manifest.snapshot_id}")
    return manifest


class _FileForm(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern=rf"^{_FILE_NAME}$")]
    size: Whole
    crc: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]

    def mark(self) -> FileMark:
        return FileMark(self.name, self.size, int(self.crc, 16))


class _ChunkFileForm(_FileForm):
    chunks: tuple[ChunkMark, ...]


class _Content(msgspec.Struct):
    """The file."""

    table_id: Whole
    partition_id: Whole | None
    bucket: Whole
    snapshot_id: Whole
    log_offset: Whole
    row_count: Whole
    created_ms: int
    next_chunk_id: Whole
    schema_ids: tuple[Whole, ...]
    chunk_ids: tuple[Whole, ...]
    files: list[_ChunkFileForm]
    live: _FileForm
    writers: Any

    def __post_init__(self) -> None:
        held = sorted(mark.chunk_id for each in self.files for mark in each.chunks)
        if len(set(held)) != len(held) or not set(self.chunk_ids) <= set(held):
            raise ValueError("a chunk that is in no file, or in two")

    def manifest(self) -> SnapshotManifest:
        return SnapshotManifest(
            TableBucket(self.table_id, self.partition_id, self.bucket), self.snapshot_id, self.log_offset, self.row_count,
            self.created_ms, self.next_chunk_id, self.chunk_ids,
            tuple(ChunkFile(each.mark(), each.chunks) for each in self.files), self.live.mark(), self.writers,
        )  # fmt: skip


def _plain(mark: FileMark) -> tuple[str, int, str]:
    return mark.name, mark.size_bytes, f"{mark.crc:08x}"


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """A snapshot that is complete and durable.

    Attributes:
        bucket: Whose state it is.
        snapshot_id: Never used twice within the bucket.
        log_offset: All changes below it are in the snapshot, none from it on.
        row_count: Live rows.
        size_bytes: Of its files, those that it shares with other snapshots too.
        new_bytes: Of the files that were written for it.
        location: The folder of its files.
        created_ms: When its state was taken.
        retained: Ids of the snapshots that there were at its report, ascending; this one among them.
        broken: Ids of the snapshots found broken and set aside (the last few), ascending.
        writers: The bucket's writers at the log offset, as given to `SnapshotStore.write`. Not part of the JSON.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    row_count: int
    size_bytes: int
    new_bytes: int
    location: str
    created_ms: int
    retained: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    writers: object = field(default=None, repr=False, compare=False)

    def to_json(self) -> bytes:
        """Return what is reported to the coordinator, as JSON."""
        names = _Report.__struct_fields__[3:]
        report = _Report(
            self.bucket.table_id, self.bucket.partition_id, self.bucket.bucket, *(getattr(self, name) for name in names)
        )
        return encode(report, version=FORMAT, indent=0)

    @staticmethod
    def from_json(data: bytes | str) -> CompletedSnapshot:
        """Read what `to_json` returned.

        Raises:
            InvalidRequestError: It is nothing of that form.
            UnsupportedError: A newer version wrote it.
        """
        report = decode(_Report, data, "completed snapshot in JSON", version=FORMAT, error=InvalidRequestError)
        values = msgspec.structs.asdict(report)
        bucket = TableBucket(values.pop("table_id"), values.pop("partition_id"), values.pop("bucket_id"))
        return CompletedSnapshot(bucket, **values)


class _Report(msgspec.Struct, rename={"location": "snapshot_location", "new_bytes": "snapshot_incremental_size"}):
    """The JSON form: names as in Apache Fluss."""

    table_id: Whole
    partition_id: Whole | None
    bucket_id: Whole
    snapshot_id: Whole
    location: str
    log_offset: Whole
    row_count: Whole
    size_bytes: Whole
    new_bytes: Whole
    created_ms: Whole
    retained: tuple[Whole, ...]
    broken: tuple[Whole, ...]

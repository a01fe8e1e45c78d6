"""The files of a lake table, read by themselves: metadata by pyiceberg, Parquet by pyarrow, nothing by fluss_lab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

Row = dict[str, Any]
Place = tuple[str | None, int]
#: Field ids of a position-delete file's own columns, and of what fluss_lab adds to them.
FILE_PATH, POS, CHANGE_TYPE, PREVIOUS = 2147483546, 2147483545, 2147483543, 2147482647
COMMIT_USER: Final = "__fluss_lake_tiering"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a data file, or an event of a delete file.

    Attributes:
        offset: Its own.
        timestamp_ms: Its own.
        row: The user's columns, by their present names; columns that the file does not have are absent.
        change: ``-U`` or ``-D`` of an event; None of a row.
        previous: Of an event: the offset of the row that it ends.
        target: Of a position delete: file and position.
    """

    offset: int
    timestamp_ms: int
    row: Row
    change: str | None = None
    previous: int = -1
    target: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file: what bucket it is of, and what is in it. A delete file that others wrote has no entries."""

    place: Place
    content: DataFileContent
    entries: tuple[Entry, ...]
    foreign: bool = False


@dataclass
class LakeFiles:
    """Reads the files of one table, each once."""

    cache: dict[str, FileContent] = field(default_factory=dict)
    manifests: dict[str, list[DataFile]] = field(default_factory=dict)

    def of(self, table: Table, snapshot: Snapshot) -> dict[str, FileContent]:
        """Return the live files of a snapshot by path; none of them is referred to twice."""
        found: dict[str, FileContent] = {}
        for file in self._live(table, snapshot):
            assert file.file_path not in found, f"snapshot {snapshot.snapshot_id} refers twice to {file.file_path}"
            found[file.file_path] = self._content(table, file)
        return found

    def _live(self, table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in self.manifests:
                self.manifests[manifest.manifest_path] = _entries_of(table, manifest)
            yield from self.manifests[manifest.manifest_path]

    def _content(self, table: Table, file: DataFile) -> FileContent:
        if file.file_path not in self.cache:
            self.cache[file.file_path] = _read(table, file)
        return self.cache[file.file_path]


def live_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(table.io):
        yield from _entries_of(table, manifest)


def _entries_of(table: Table, manifest: ManifestFile) -> list[DataFile]:
    return [entry.data_file for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]


def tiered_ends(table: Table) -> dict[Place, int]:
    """Return how far each bucket is tiered: as the newest snapshot that tells it says, less partitions dropped since."""
    return {place: entry["offset"] for place, entry in tiered(table, table.current_snapshot()).items()}


def replay_starts(table: Table) -> dict[Place, int]:
    """Return where replay begins, of buckets where that is not 0.

    What the table remembers of a dropped partition does not count for another of its name.
    """
    now = tiered(table, table.current_snapshot())
    known = _entries(table.properties.get("fluss.replay-start", "[]"))
    return {
        place: entry["offset"]
        for place, entry in known.items()
        if place in now and now[place].get("partition_id") == entry.get("partition_id")
    }


def tiered(table: Table, snapshot: Snapshot | None) -> dict[Place, dict[str, Any]]:
    """Return what is told of each bucket in a snapshot, or in the newest before it that tells."""
    if snapshot is None:
        return {}
    dropped: set[str] = set()
    found: dict[Place, dict[str, Any]] = {}
    # By age: an expiry may have taken the ones in between.
    for each in sorted(table.metadata.snapshots, key=lambda found: -(found.sequence_number or 0)):
        summary = each.summary.additional_properties if each.summary is not None else {}
        if (each.sequence_number or 0) > (snapshot.sequence_number or 0):
            continue
        if (reported := summary.get("fluss-bucket-offset")) is not None:
            found = {place: entry for place, entry in _entries(reported).items() if place[0] not in dropped} | found
            if "fluss-bucket-offset-since" not in summary:
                return found
        if (name := summary.get("fluss-dropped-partition")) is not None:
            dropped.add(name)
    return found


def _entries(text: str) -> dict[Place, dict[str, Any]]:
    return {(each.get("partition_name"), each["bucket"]): each for each in json.loads(text)}


def replay_snapshots(table: Table) -> list[Snapshot]:
    """Return the snapshots whose files replay reads: the newest, and those that tags keep."""
    ids = [reference.snapshot_id for name, reference in table.metadata.refs.items() if name != "main"]
    current = table.current_snapshot()
    chosen = {} if current is None else {current.snapshot_id: current}
    for snapshot_id in ids:
        snapshot = table.snapshot_by_id(snapshot_id)
        assert snapshot is not None, f"a tag keeps snapshot {snapshot_id}, which is gone"
        chosen[snapshot_id] = snapshot
    return list(chosen.values())


def is_local(location: str) -> bool:
    return urlparse(location).scheme in {"", "file"}


def local_path(location: str) -> str:
    return unquote(urlparse(location).path)


def _read(table: Table, file: DataFile) -> FileContent:
    names = {each.field_id: each.name for each in table.schema().fields}
    with table.io.new_input(file.file_path).open() as stream:
        data = pq.ParquetFile(stream).read()
    by_id = {_field_id(each): data.column(index) for index, each in enumerate(data.schema)}
    place = _place(table, file)
    assert data.num_rows == file.record_count, file.file_path
    if file.content is not DataFileContent.DATA and CHANGE_TYPE not in by_id:
        return FileContent(place, file.content, (), foreign=True)
    columns = {name: by_id[number].to_pylist() for number, name in names.items() if number in by_id}
    offsets, timestamps = columns.pop("__offset"), [_millis(each) for each in columns.pop("__timestamp")]
    buckets = columns.pop("__bucket", None)
    if file.content is DataFileContent.DATA:
        assert offsets == sorted(set(offsets)), f"{file.file_path}: offsets do not ascend"
        assert set(buckets or []) <= {place[1]}, file.file_path
    nothing = [None] * len(offsets)
    changes = by_id[CHANGE_TYPE].to_pylist() if CHANGE_TYPE in by_id else nothing
    previous = by_id[PREVIOUS].to_pylist() if PREVIOUS in by_id else nothing
    targets: list[Any] = list(nothing)
    if FILE_PATH in by_id:
        targets = list(zip(by_id[FILE_PATH].to_pylist(), by_id[POS].to_pylist(), strict=True))
        assert targets == sorted(set(targets)), f"{file.file_path}: not sorted by file and position, or one twice"
    entries = tuple(
        Entry(
            offset,
            ms,
            {name: columns[name][index] for name in columns},
            changes[index],
            previous[index],
            targets[index],
        )
        for index, (offset, ms) in enumerate(zip(offsets, timestamps, strict=True))
    )
    return FileContent(place, file.content, entries)


def _place(table: Table, file: DataFile) -> Place:
    """Return the bucket of a file: that of its partition values, which end with the bucket."""
    spec = table.specs()[file.spec_id]
    names = [str(file.partition[index]) for index in range(len(spec.fields) - 1)]
    return ("$".join(names) or None, int(file.partition[len(spec.fields) - 1]))


def _field_id(column: pa.Field) -> int:
    metadata = column.metadata or {}
    return int(metadata.get(b"PARQUET:field_id", b"-1"))


def _millis(moment: datetime) -> int:
    delta: timedelta = moment - _EPOCH
    assert not delta.microseconds % 1000, moment
    return delta // timedelta(milliseconds=1)

"""What a snapshot consists of: its live data files, read from manifests that are decoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.types import LongType

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.layout import LakeLayout, check_spec
from fluss_lab.lake.iceberg.types import FIELD_ID_KEY
from fluss_lab.model import TablePath
from fluss_lab.model.names import partition_name

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Entries kept decoded: about 3 kB each with the metrics of ten columns, so 150 MB when full.
ENTRIES_MAX: Final = 50_000
BucketKey = tuple[str | None, int]


class EntryCache:
    """Decoded manifests, the least recently used dropped first. A manifest never changes. Safe in any thread."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: OrderedDict[str, tuple[ManifestEntry, ...]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def entries(self, io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the live entries of a manifest.

        Raises:
            FileNotFoundError: The manifest is gone.
        """
        path = manifest.manifest_path
        with self._lock:
            if (kept := self._kept.get(path)) is not None:
                self._kept.move_to_end(path)
                return kept
        entries = tuple(manifest.fetch_manifest_entry(io, discard_deleted=True))
        with self._lock:
            if path not in self._kept:
                self._kept[path] = entries
                self._count += len(entries)
            while self._count > self._entries_max and len(self._kept) > 1:
                self._count -= len(self._kept.popitem(last=False)[1])
        return entries


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A data file of a snapshot.

    Attributes:
        file: What Iceberg keeps of it.
        partition: Name of the partition, or None.
        bucket: The bucket that all its rows are of.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        max_timestamp_us: No row has a later timestamp (inclusive), in epoch microseconds.
    """

    file: DataFile
    partition: str | None
    bucket: int
    min_offset: int
    max_offset: int
    max_timestamp_us: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)


def snapshot_of(lake: Table, path: TablePath, snapshot_id: int) -> Snapshot:
    """Return a snapshot of a table.

    Raises:
        LakeSnapshotNotFoundError: It has none of that id.
    """
    snapshot = lake.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise LakeSnapshotNotFoundError(
            f"lake table {path}: no snapshot {snapshot_id} (the newest is {lake.metadata.current_snapshot_id}): it was "
            "expired or the table was replaced; plan the read again"
        )
    return snapshot


def live_files(
    lake: Table, path: TablePath, layout: LakeLayout, snapshot: Snapshot, cache: EntryCache
) -> dict[BucketKey, list[LakeFile]]:
    """Return a snapshot's data files by bucket, each bucket's ascending by offset.

    Raises:
        UnsupportedError: Somebody deleted rows by delete files, wrote other formats, or changed the partition spec.
        FileNotFoundError: A manifest is gone.
    """
    found: defaultdict[BucketKey, list[LakeFile]] = defaultdict(list)
    specs = lake.metadata.specs()
    for manifest in snapshot.manifests(lake.io):
        if manifest.content == ManifestContent.DELETES:
            if cache.entries(lake.io, manifest):
                raise UnsupportedError(
                    f"lake table {path}, snapshot {snapshot.snapshot_id}: somebody deleted rows ({manifest.manifest_path}); "
                    "log tables are append-only, and fluss_lab does not read them with deletes. Rewrite the table's data "
                    "files or roll back"
                )
            continue
        entries = cache.entries(lake.io, manifest)
        if entries:
            check_spec(
                f"lake table {path}, manifest {manifest.manifest_path}", layout.spec, specs[manifest.partition_spec_id]
            )
        for entry in entries:
            file = _lake_file(lake.io, path, layout, entry.data_file)
            found[file.key].append(file)
    for files in found.values():
        files.sort(key=lambda file: (file.min_offset, file.max_offset))
    return dict(found)


def _lake_file(io: FileIO, path: TablePath, layout: LakeLayout, file: DataFile) -> LakeFile:
    if file.file_format != FileFormat.PARQUET:
        raise UnsupportedError(
            f"lake table {path}: {file.file_path} is {file.file_format.value}; fluss_lab reads Parquet"
        )
    *values, bucket = file.partition._data
    partition = partition_name(tuple(values)) if values else None
    _, offset_id, timestamp_id = layout.system_ids
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    if offset_id in lower and offset_id in upper and timestamp_id in upper:
        # All three are eight bytes, little-endian, whatever they count.
        bounds = tuple(
            int(from_bytes(LongType(), raw)) for raw in (lower[offset_id], upper[offset_id], upper[timestamp_id])
        )
    else:
        bounds = _bounds_in_file(io, path, file, offset_id, timestamp_id)
    return LakeFile(file, partition, int(bucket), bounds[0], bounds[1], bounds[2])


def _bounds_in_file(
    io: FileIO, path: TablePath, file: DataFile, offset_id: int, timestamp_id: int
) -> tuple[int, int, int]:
    """Return smallest and largest offset and the last timestamp by reading them: somebody wrote the file without metrics."""
    with io.new_input(file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream)
        ids = {int(field.metadata[FIELD_ID_KEY]): field.name for field in parquet.schema_arrow if field.metadata}
        if offset_id not in ids or timestamp_id not in ids:
            raise CorruptDataError(f"lake table {path}: {file.file_path} has no offsets and timestamps")
        rows = parquet.read(columns=[ids[offset_id], ids[timestamp_id]])
    offsets = rows.column(ids[offset_id]).to_numpy()
    timestamps = rows.column(ids[timestamp_id]).cast("int64").to_numpy()
    return int(offsets.min()), int(offsets.max()), int(timestamps.max())


def referenced_files(lake: Table, cache: EntryCache) -> set[str]:
    """Return the path of every data file that any snapshot of a table refers to."""
    return {entry.data_file.file_path for entry in _all_entries(lake, cache)}


def _all_entries(lake: Table, cache: EntryCache) -> Iterator[ManifestEntry]:
    seen: set[str] = set()
    for snapshot in reversed(lake.metadata.snapshots):
        for manifest in snapshot.manifests(lake.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield from cache.entries(lake.io, manifest)

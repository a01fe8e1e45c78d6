"""The live data and delete files of a snapshot, read from manifests that are decoded once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from cachetools import LRUCache
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import TableProperties

from fluss_lab.errors import CommitConflictError, CorruptDataError, LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.files.parquet_input import opened_parquet
from fluss_lab.lake.iceberg.metadata.metadata_files import read_list, read_manifest
from fluss_lab.lake.iceberg.table.layout import (
    FIELD_IDS_PROPERTY,
    FORMAT_VERSION,
    MAKE_ANEW,
    TABLE_ID_PROPERTY,
    LakeColumns,
    LakeLayout,
    check_spec,
    checked_layout,
    known_layout,
    partition_values,
    readable_layout,
)
from fluss_lab.lake.iceberg.table.type_mapping import FIELD_ID_KEY
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.names import BucketKey, partition_name

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Smallest and largest offset, and the last timestamp in epoch microseconds.
Bounds: TypeAlias = tuple[int, int, int]
#: Entries kept: about 3 kB each with the metrics of ten columns, so 150 MB when full.
ENTRIES_MAX: Final = 50_000
#: Snapshots kept put together: those that are kept for replay are looked at again with every new snapshot. Their files are
#: shared, so one takes eight bytes a file.
STATES_MAX: Final = 128
#: Manifest lists kept: each of some twenty manifests, nearly all of which it shares with its neighbours.
LISTS_MAX: Final = 2_000
#: Columns kept, of all tables, and the same number of fields of layouts: some kB each.
COLUMNS_MAX: Final = 10_000


@dataclass(slots=True)
class _DecodedManifest:
    """The live entries of a manifest, and what its readers made of them; None before."""

    entries: tuple[ManifestEntry, ...]
    files: tuple[LakeFile | LakeDelete, ...] | None = None


class EntryCache:
    """What tables' metadata says, decoded: manifests, their lists, columns. Safe in any thread.

    It never changes. The least recently used is dropped first.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._lists: LRUCache[str, tuple[ManifestFile, ...]] = LRUCache(LISTS_MAX)
        # A manifest of more entries than all that are kept is kept alone.
        self._kept: LRUCache[str, _DecodedManifest] = LRUCache(
            entries_max, getsizeof=lambda manifest: min(len(manifest.entries), entries_max)
        )
        self._states: LRUCache[str, dict[BucketKey, BucketFiles]] = LRUCache(STATES_MAX)
        self._lock = threading.Lock()
        self._columns: LRUCache[tuple[Any, ...], LakeColumns] = LRUCache(
            COLUMNS_MAX, getsizeof=lambda columns: len(columns.schema)
        )
        self._layouts: LRUCache[tuple[Any, ...], LakeLayout] = LRUCache(
            COLUMNS_MAX, getsizeof=lambda layout: len(layout.schema.fields)
        )

    def entries(self, io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the live entries of a manifest.

        Raises:
            FileNotFoundError: The manifest is gone.
            CorruptDataError: It is not what was written.
        """
        return self.decode(io, manifest).entries

    def decode(self, io: FileIO, manifest: ManifestFile) -> _DecodedManifest:
        """Return a manifest, as `entries`."""
        path = manifest.manifest_path
        with self._lock:
            if (kept := self._kept.get(path)) is not None:
                return kept
        decoded = _DecodedManifest(read_manifest(io, manifest))
        with self._lock:
            return self._kept.setdefault(path, decoded)

    def keep(self, path: str, entries: tuple[ManifestEntry, ...]) -> None:
        """Take the live entries of a manifest from its writer."""
        with self._lock:
            self._kept.setdefault(path, _DecodedManifest(entries))

    def keep_list(self, path: str, manifests: tuple[ManifestFile, ...]) -> None:
        """Take the manifests of a manifest list from its writer, with the sequence numbers that the list gives them."""
        with self._lock:
            self._lists[path] = manifests

    def state(self, snapshot: Snapshot) -> dict[BucketKey, BucketFiles] | None:
        """Return what `keep_state` was given for a snapshot, if it is still there. Not to be changed."""
        with self._lock:
            return self._states.get(snapshot.manifest_list)

    def keep_state(self, snapshot: Snapshot, state: dict[BucketKey, BucketFiles]) -> None:
        """Take what the buckets of a primary-key table consist of in a snapshot."""
        with self._lock:
            self._states[snapshot.manifest_list] = state

    def manifests(self, io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """Return the manifests of a snapshot.

        Raises:
            FileNotFoundError: Their list is gone.
            CorruptDataError: It is not what was written.
        """
        path = snapshot.manifest_list
        with self._lock:
            if (kept := self._lists.get(path)) is not None:
                return kept
        manifests = read_list(io, path, snapshot.snapshot_id)
        self.keep_list(path, manifests)
        return manifests

    def columns(self, table: TableInfo, lake: Table) -> LakeColumns:
        """Return the columns of a table whose files can be read, made once for each of its schemas.

        Raises:
            UnsupportedError: As `readable_layout`.
        """
        key = (*_definition(table, lake), lake.properties.get(TableProperties.DEFAULT_NAME_MAPPING))
        with self._lock:
            found = self._columns.get(key)
        if found is None:
            found = LakeColumns.of(table, readable_layout(table, lake), lake.name_mapping())
            with self._lock:
                self._columns[key] = found
        return found

    def layout(self, table: TableInfo, lake: Table) -> LakeLayout:
        """Return the layout of a table that can be written, checked once for each of its definitions here and in the lake.

        Raises:
            UnsupportedError: As `checked_layout`.
        """
        metadata = lake.metadata
        owner = lake.properties.get(TABLE_ID_PROPERTY)
        key = (*_definition(table, lake), table.table_id, owner, metadata.format_version, metadata.default_spec_id)
        return self._layout(key, lambda: checked_layout(table, lake))

    def known_layout(self, table: TableInfo, lake: Table) -> LakeLayout:
        """Return the layout of a table, as `layout.known_layout`, made once.

        Raises:
            UnsupportedError: As there.
        """
        return self._layout(_definition(table, lake), lambda: known_layout(table, lake))

    def _layout(self, key: tuple[Any, ...], make: Callable[[], LakeLayout]) -> LakeLayout:
        with self._lock:
            found = self._layouts.get(key)
        if found is None:
            found = make()
            with self._lock:
                self._layouts[key] = found
        return found


def _definition(table: TableInfo, lake: Table) -> tuple[Any, ...]:
    """Return what the columns of a table follow from: its own definition, and that of the lake's table."""
    descriptor, metadata = table.descriptor, lake.metadata
    return (
        descriptor.schema, descriptor.partitioned_by, descriptor.bucket_key, descriptor.buckets,
        metadata.table_uuid, metadata.current_schema_id, lake.properties.get(FIELD_IDS_PROPERTY),
    )  # fmt: skip


class LakeFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file of a snapshot.

    Attributes:
        file: What Iceberg keeps of it.
        partition: Name of the partition, or None.
        bucket: The bucket that all its rows are of.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        max_timestamp_us: No row has a later timestamp (inclusive), in epoch microseconds.
        data_sequence_number: Equality deletes of larger ones apply to its rows.
    """

    file: DataFile
    partition: str | None
    bucket: int
    min_offset: int
    max_offset: int
    max_timestamp_us: int
    data_sequence_number: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)


class LakeDelete(msgspec.Struct, frozen=True, array_like=True):
    """A delete file of a snapshot, as it applies to one bucket.

    Attributes:
        file: What Iceberg keeps of it.
        partition: Name of the partition, or None.
        bucket: The bucket whose rows it deletes.
        data_sequence_number: Position deletes apply to data files of this or smaller ones, equality deletes of smaller
            ones only.
        is_equality: Whether it deletes by the values of columns (`DataFile.equality_ids`), not by path and position.
    """

    file: DataFile
    partition: str | None
    bucket: int
    data_sequence_number: int
    is_equality: bool

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """What one bucket consists of in a snapshot.

    Attributes:
        data: Its data files, ascending by offset.
        deletes: The delete files that may apply to them, ascending by data sequence number.
    """

    data: list[LakeFile] = field(default_factory=list)
    deletes: list[LakeDelete] = field(default_factory=list)


def snapshot_of(lake: Table, path: TablePath, snapshot_id: int) -> Snapshot:
    """Return a snapshot of a table.

    Raises:
        LakeSnapshotNotFoundError: It has none of that id.
    """
    snapshot = lake.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise no_snapshot(lake, path, snapshot_id)
    return snapshot


def no_snapshot(lake: Table, path: TablePath, snapshot_id: int) -> LakeSnapshotNotFoundError:
    """Return the error for a snapshot that a table does not have."""
    return LakeSnapshotNotFoundError(
        f"lake table {path}: no snapshot {snapshot_id} (the newest is {lake.metadata.current_snapshot_id}): it was "
        "expired or the table was replaced; plan the read again"
    )


def live_files(
    lake: Table, path: TablePath, layout: LakeLayout, snapshot: Snapshot, cache: EntryCache
) -> dict[BucketKey, list[LakeFile]]:
    """Return the data files of a log table's snapshot by bucket, each bucket's ascending by offset.

    Raises:
        UnsupportedError: The table is of a format version that fluss_lab does not read, or another engine deleted rows by
            delete files, wrote other formats, or changed the partition spec.
        FileNotFoundError: A manifest is gone.
    """
    _check_version(lake, path)
    found: defaultdict[BucketKey, list[LakeFile]] = defaultdict(list)
    for manifest in cache.manifests(lake.io, snapshot):
        if manifest.content == ManifestContent.DELETES:
            if cache.entries(lake.io, manifest):
                raise UnsupportedError(
                    f"lake table {path}, snapshot {snapshot.snapshot_id}: another engine deleted rows ({manifest.manifest_path}); "
                    "log tables are append-only, and fluss_lab does not read them with deletes. Rewrite the table's data "
                    "files or roll back"
                )
            continue
        for file in _place_files(lake, path, layout, manifest, cache):
            assert isinstance(file, LakeFile)
            found[file.key].append(file)
    for files in found.values():
        files.sort(key=lambda file: (file.min_offset, file.max_offset))
    return dict(found)


def live_state(
    lake: Table, path: TablePath, layout: LakeLayout, snapshot: Snapshot, cache: EntryCache
) -> dict[BucketKey, BucketFiles]:
    """Return a snapshot's data and delete files by bucket.

    Delete files of others are understood too: by partition, and equality deletes of an unpartitioned spec, which apply to
    every bucket and are among the deletes of each.

    Raises:
        UnsupportedError: The table is of a format version that fluss_lab does not read, or another engine wrote other formats
            or under another partition spec.
        FileNotFoundError: A manifest is gone.

    Returns:
        By partition name and bucket. Not to be changed.

    Cost: some 60 microseconds a file whose manifest the cache does not have, one for others; none for a snapshot that was
    asked for lately.
    """
    _check_version(lake, path)
    if (kept := cache.state(snapshot)) is not None:
        return kept
    found: defaultdict[BucketKey, BucketFiles] = defaultdict(BucketFiles)
    everywhere: list[ManifestEntry] = []
    specs = lake.metadata.specs()
    for manifest in cache.manifests(lake.io, snapshot):
        if manifest.content == ManifestContent.DELETES and specs[manifest.partition_spec_id].is_unpartitioned():
            everywhere += cache.entries(lake.io, manifest)
            continue
        for file in _place_files(lake, path, layout, manifest, cache):
            if isinstance(file, LakeFile):
                found[file.key].data.append(file)
            else:
                found[file.key].deletes.append(file)
    for key, state in found.items():
        # Position deletes of another spec apply to nothing of ours (Iceberg: spec and values must be equal).
        state.deletes.extend(each for entry in everywhere if (each := _lake_delete(path, entry, key)).is_equality)
        state.data.sort(key=lambda file: (file.min_offset, file.max_offset))
        state.deletes.sort(key=lambda delete: (delete.data_sequence_number, delete.file.file_path))
    cache.keep_state(snapshot, dict(found))
    return dict(found)


def snapshot_state(
    table: TableInfo, lake: Table, snapshot_id: int | None, cache: EntryCache
) -> Mapping[BucketKey, BucketFiles]:
    """Return `live_state` of the snapshot that a round or an upkeep was planned with; nothing for None. Not to be changed.

    Raises:
        LakeSnapshotNotFoundError: The table has no such snapshot.
        UnsupportedError: As `live_state`.
        CommitConflictError: A manifest is gone, as of a snapshot that was expired: plan again.
    """
    if snapshot_id is None:
        return {}
    snapshot = snapshot_of(lake, table.path, snapshot_id)
    if (kept := cache.state(snapshot)) is not None:
        return kept
    try:
        return live_state(lake, table.path, cache.known_layout(table, lake), snapshot, cache)
    except FileNotFoundError as error:
        raise CommitConflictError(
            f"lake table {table.path}, snapshot {snapshot_id}: {error}: it was expired meanwhile, plan again; or another "
            "program removed the file"
        ) from error


def _place_files(
    lake: Table, path: TablePath, layout: LakeLayout, manifest: ManifestFile, cache: EntryCache
) -> tuple[LakeFile | LakeDelete, ...]:
    """Return the files of a manifest by what they are to a bucket; made once, whichever snapshots share the manifest."""
    decoded = cache.decode(lake.io, manifest)
    if decoded.files is None:
        if decoded.entries:
            what = f"lake table {path}, manifest {manifest.manifest_path}"
            check_spec(what, layout.spec, lake.metadata.specs()[manifest.partition_spec_id])
        decoded.files = tuple(
            lake_file(lake.io, path, layout, entry.data_file, _sequence_number(path, entry))
            if entry.data_file.content == DataFileContent.DATA
            else _lake_delete(path, entry, _bucket_of(entry.data_file))
            for entry in decoded.entries
        )
    return decoded.files


def _check_version(lake: Table, path: TablePath) -> None:
    if (version := lake.format_version) != FORMAT_VERSION:
        raise UnsupportedError(
            f"lake table {path}: another engine upgraded it to format version {version}; expected {FORMAT_VERSION}. fluss_lab does "
            f"not read or write others yet: restore the table; or, {MAKE_ANEW}"
        )


def _bucket_of(file: DataFile) -> BucketKey:
    *values, bucket = partition_values(file)
    return (partition_name(tuple(values)) if values else None, int(bucket))


def _lake_delete(path: TablePath, entry: ManifestEntry, key: BucketKey) -> LakeDelete:
    file = entry.data_file
    _check_format(path, file)
    return LakeDelete(file, *key, _sequence_number(path, entry), file.content == DataFileContent.EQUALITY_DELETES)


def _sequence_number(path: TablePath, entry: ManifestEntry) -> int:
    if entry.sequence_number is None:
        raise CorruptDataError(
            f"lake table {path}: a manifest has no data sequence number of {entry.data_file.file_path}"
        )
    return int(entry.sequence_number)


def _check_format(path: TablePath, file: DataFile) -> None:
    if file.file_format != FileFormat.PARQUET:
        raise UnsupportedError(
            f"lake table {path}: {file.file_path} is {file.file_format.value}; fluss_lab reads Parquet"
        )


def lake_file(io: FileIO, path: TablePath, layout: LakeLayout, file: DataFile, data_sequence_number: int) -> LakeFile:
    """Return a data file with what is known of its offsets; a file without metrics of them is opened.

    Raises:
        UnsupportedError: It is no Parquet file.
        CorruptDataError: It has no offsets.
        OSError: It cannot be read.
    """
    _check_format(path, file)
    _, offset_id, timestamp_id = layout.system_ids
    bounds = _bounds_in_metrics(file, offset_id, timestamp_id) or _bounds_in_file(
        io, path, file, offset_id, timestamp_id
    )
    return LakeFile(file, *_bucket_of(file), *bounds, data_sequence_number)


def _bounds_in_metrics(file: DataFile, offset_id: int, timestamp_id: int) -> Bounds | None:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    if offset_id not in lower or offset_id not in upper or timestamp_id not in upper:
        return None
    # All three are eight bytes, little-endian, whatever they count.
    raw = (lower[offset_id], upper[offset_id], upper[timestamp_id])
    first, last, latest = (int.from_bytes(each, "little", signed=True) for each in raw)
    return first, last, latest


def _bounds_in_file(io: FileIO, path: TablePath, file: DataFile, offset_id: int, timestamp_id: int) -> Bounds:
    """Return smallest and largest offset and the last timestamp by reading them, of a file that was written without metrics."""
    with opened_parquet(io, file.file_path, "Parquet file") as parquet:
        ids = {int(field.metadata[FIELD_ID_KEY]): field.name for field in parquet.schema_arrow if field.metadata}
        if offset_id not in ids or timestamp_id not in ids:
            raise CorruptDataError(f"lake table {path}: {file.file_path} has no offsets and timestamps")
        rows = parquet.read(columns=[ids[offset_id], ids[timestamp_id]])
    offsets = rows.column(ids[offset_id]).to_numpy()
    timestamps = rows.column(ids[timestamp_id]).cast("int64").to_numpy()
    return int(offsets.min()), int(offsets.max()), int(timestamps.max())


def referenced_files(lake: Table, cache: EntryCache) -> set[str]:
    """Return the path of every data and delete file that any snapshot of a table refers to."""
    return {entry.data_file.file_path for entry in _all_entries(lake, cache)}


def _all_entries(lake: Table, cache: EntryCache) -> Iterator[ManifestEntry]:
    seen: set[str] = set()
    for snapshot in reversed(lake.metadata.snapshots):
        for manifest in cache.manifests(lake.io, snapshot):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield from cache.entries(lake.io, manifest)

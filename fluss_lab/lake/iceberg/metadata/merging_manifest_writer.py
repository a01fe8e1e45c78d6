"""Manifests of a new snapshot: data and delete files apart, small manifests merged, entries in blocks.

Built on pyiceberg's manifest writer, whose version is pinned. What it does otherwise than the specification, or than is
needed here: it declares ``equality_ids`` as longs (Java reads ints only and fails), writes no delete manifests, merges none
of them, and compresses every entry on its own.
"""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.bin_packing import ListPacker
from pyiceberg.utils.properties import property_as_bool, property_as_int

from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.files.file_seals import AVRO_FORM, AVRO_KEY, SealedOutput

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache

#: Field ids in Iceberg's manifests: the data file of an entry, and its list of equality columns.
_DATA_FILE_ID: Final = 2
_EQUALITY_IDS_ID: Final = 135
_EQUALITY_ID_ID: Final = 136
#: Entries of one compressed block: some 100 kB before compression.
_BLOCK_ENTRIES: Final = 256
#: Bytes of an entry in a manifest, about, where nothing better is known: decides only what is merged with what.
_ENTRY_BYTES: Final = 250
#: A manifest of so many entries is full, however small: writing it again would hold a commit up for 0.1 s, and opening it
#: costs planning a tenth of what its entries do, so more of them in one would gain nothing.
_FULL_ENTRIES: Final = 1000
#: Schemas of manifests that are kept: two for each kind of partition values. pyiceberg makes them anew for each manifest,
#: which takes longer than a small one's entries.
_ENTRY_SCHEMAS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a snapshot changes.

    Attributes:
        added: Data and delete files, each with its data sequence number; None: the snapshot's own.
        removed: Paths of data and delete files that are in its parent and not in it.
    """

    added: Sequence[tuple[DataFile, int | None]] = ()
    removed: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where a new snapshot is in its table's history.

    Attributes:
        snapshot_id: Its id.
        parent_id: Of the snapshot before; None: it is the first.
        sequence_number: Its number.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int


@dataclass(slots=True)
class _ManifestDraft:
    """A manifest of the new snapshot: one that exists, or entries that are not written yet."""

    kept: ManifestFile | None = None
    added: list[ManifestEntry] = field(default_factory=list)
    existing: Sequence[ManifestEntry] = ()
    deleted: list[ManifestEntry] = field(default_factory=list)

    def weight(self, full: int) -> int:
        """Return its length in bytes, about, or what makes it full if it is full by entries."""
        kept = self.kept
        if kept is None:
            entries = len(self.added) + len(self.existing) + len(self.deleted)
            return max(_ENTRY_BYTES * entries, full * entries // _FULL_ENTRIES)
        entries = (kept.added_files_count or 0) + (kept.existing_files_count or 0)
        return max(int(kept.manifest_length), full * entries // _FULL_ENTRIES)

    def parts(self) -> list[_ManifestDraft]:
        """Return it as the manifests that are written: what is deleted apart.

        The next snapshot leaves such a manifest out; among live entries, readers would go over them until a merge.
        """
        if not self.deleted or not (self.added or self.existing):
            return [self]
        return [_ManifestDraft(added=self.added, existing=self.existing), _ManifestDraft(deleted=self.deleted)]


class ManifestFiles:
    """Writes the manifests of one new snapshot of a table, its manifest list, and that of one that follows in the same commit.

    What is written is kept as decoded, and so is the list: the next commit merges it, and the next round plans with it.
    """

    def __init__(self, lake: Table, place: SnapshotPlace, entries: EntryCache) -> None:
        self._lake = lake
        self._metadata: TableMetadata = lake.metadata
        self._place = place
        self._entries = entries
        self._commit_uuid = uuid.uuid4()
        self._numbers = itertools.count()
        self._locations = load_location_provider(self._metadata.location, self._metadata.properties)
        properties, names = self._metadata.properties, TableProperties
        codec = properties.get(names.WRITE_AVRO_COMPRESSION, names.WRITE_AVRO_COMPRESSION_DEFAULT).lower()
        #: pyiceberg knows Iceberg's other names.
        self._compression: Any = "null" if codec == "uncompressed" else codec
        self._target_bytes = _number(
            properties, names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
        )
        self._merge_count = _number(properties, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT)
        self._merges = property_as_bool(properties, names.MANIFEST_MERGE_ENABLED, names.MANIFEST_MERGE_ENABLED_DEFAULT)
        self.paths: list[str] = []

    def write(self, changes: FileChanges) -> tuple[list[ManifestFile], list[DataFile]]:
        """Write what has to be written; return the snapshot's manifests, and the files that are removed.

        Raises:
            KeyError: A file to be removed is not in the parent; its argument is the path.
            OSError, StorageError: A manifest cannot be written.
        """
        parent = self._metadata.current_snapshot()
        known = self._entries.manifests(self._lake.io, parent) if parent is not None else ()
        groups: dict[tuple[ManifestContent, int], list[_ManifestDraft]] = defaultdict(list)
        for key, added in self._added_entries(changes).items():
            groups[key].append(_ManifestDraft(added=added))
        missing, removed = set(changes.removed), []
        for manifest in known:
            if group := self._without(manifest, missing):
                groups[(manifest.content, manifest.partition_spec_id)].append(group)
                removed += [entry.data_file for entry in group.deleted]
        if missing:
            raise KeyError(min(missing))
        # Data manifests first, as every writer of Iceberg lists them.
        order = sorted(groups, key=lambda key: (key[0].value, key[1]))
        merged = [(key, part) for key in order for group in self._merge(groups[key]) for part in group.parts()]
        return [self._write(*key, group) for key, group in merged], removed

    def write_list(self, place: SnapshotPlace, manifests: list[ManifestFile]) -> str:
        """Write the manifest list of a snapshot; return where it is."""
        path = self._new_path(f"snap-{place.snapshot_id}-0-{self._commit_uuid}.avro")
        found = write_manifest_list(
            format_version=2,
            output_file=SealedOutput(self._lake.io.new_output(path)),
            snapshot_id=place.snapshot_id,
            parent_snapshot_id=place.parent_id,
            sequence_number=place.sequence_number,
            avro_compression=self._compression,
        )
        found._meta[AVRO_KEY] = AVRO_FORM.decode()
        numbered = [found.prepare_manifest(manifest) for manifest in manifests]
        with found as writer:
            writer.add_manifests(numbered)
        self._entries.keep_list(path, tuple(numbered))
        return path

    @contextmanager
    def removed_on_error(self) -> Iterator[None]:
        """Remove whatever was written when the block fails."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written. Never raises."""
        for path in self.paths:
            delete_quietly(self._lake.io, path)
        self.paths.clear()

    def _added_entries(self, changes: FileChanges) -> dict[tuple[ManifestContent, int], list[ManifestEntry]]:
        added: dict[tuple[ManifestContent, int], list[ManifestEntry]] = defaultdict(list)
        for file, sequence_number in changes.added:
            is_data = file.content == DataFileContent.DATA
            content = ManifestContent.DATA if is_data else ManifestContent.DELETES
            added[(content, file.spec_id)].append(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._place.snapshot_id,
                    sequence_number=sequence_number,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
        return added

    def _without(self, manifest: ManifestFile, missing: set[str]) -> _ManifestDraft | None:
        """Return a manifest of the parent without the files to be removed, which are taken out of the set.

        None: nothing of it is live.
        """
        if not (manifest.has_added_files() or manifest.has_existing_files()):
            return None
        if not missing:
            return _ManifestDraft(kept=manifest)
        entries = self._entries.entries(self._lake.io, manifest)
        gone = [entry for entry in entries if entry.data_file.file_path in missing]
        if not gone:
            return _ManifestDraft(kept=manifest)
        paths = {entry.data_file.file_path for entry in gone}
        missing -= paths
        return _ManifestDraft(
            existing=[entry for entry in entries if entry.data_file.file_path not in paths], deleted=gone
        )

    def _merge(self, groups: list[_ManifestDraft]) -> Iterable[_ManifestDraft]:
        """Merge small manifests as the table's properties say, and as Iceberg's own writer does."""
        if not self._merges:
            return groups
        packer: ListPacker[_ManifestDraft] = ListPacker(
            target_weight=self._target_bytes, lookback=1, largest_bin_first=False
        )
        merged: list[_ManifestDraft] = []
        for found in packer.pack_end(groups, lambda group: group.weight(self._target_bytes)):
            # The bin of the newest waits until it has enough of them, so that not every commit writes all small ones again.
            if len(found) == 1 or (groups[0] in found and len(found) < self._merge_count):
                # What has to be written anyway goes into one: after a compaction readers would open all that it emptied.
                fresh = [group for group in found if group.kept is None]
                merged += [self._join(fresh)] if len(fresh) > 1 else fresh
                merged += [group for group in found if group.kept is not None]
            else:
                merged.append(self._join(found))
        return merged

    def _join(self, groups: list[_ManifestDraft]) -> _ManifestDraft:
        existing: list[ManifestEntry] = []
        for group in groups:
            existing += group.existing if group.kept is None else self._entries.entries(self._lake.io, group.kept)
        return _ManifestDraft(
            added=[entry for group in groups for entry in group.added],
            existing=existing,
            deleted=[entry for group in groups for entry in group.deleted],
        )

    def _write(self, content: ManifestContent, spec_id: int, group: _ManifestDraft) -> ManifestFile:
        if group.kept is not None:
            return group.kept
        path = self._new_path(f"{self._commit_uuid}-m{next(self._numbers)}.avro")
        spec = self._metadata.specs()[spec_id]
        output = SealedOutput(self._lake.io.new_output(path))
        with _Writer(
            content, spec, self._metadata.schema(), output, self._place.snapshot_id, self._compression
        ) as writer:
            for entry in group.added:
                writer.add(entry)
            for entry in group.existing:
                writer.existing(entry)
            for entry in group.deleted:
                writer.delete(entry)
        self._entries.keep(path, (*map(self._number_entry, group.added), *group.existing))
        return writer.to_manifest_file()

    def _number_entry(self, added: ManifestEntry) -> ManifestEntry:
        """Return an entry as it is read back: with the sequence numbers that the manifest list gives it."""
        number = added.sequence_number
        return ManifestEntry.from_args(
            status=added.status,
            snapshot_id=added.snapshot_id,
            sequence_number=self._place.sequence_number if number is None else number,
            file_sequence_number=self._place.sequence_number,
            data_file=added.data_file,
        )

    def _new_path(self, name: str) -> str:
        path = self._locations.new_metadata_location(name)
        self.paths.append(path)
        return path


class _Writer(ManifestWriterV2):
    """pyiceberg's writer for either content, with equality ids as the specification has them."""

    def __init__(self, content: ManifestContent, spec: PartitionSpec, schema: Schema, *arguments: Any) -> None:
        super().__init__(spec, schema, *arguments)
        self._content = content
        self._partition_type = spec.partition_type(schema)

    def __enter__(self) -> _Writer:
        super().__enter__()
        self._writer = _Blocks(self._writer)  # type: ignore[assignment]
        return self

    def content(self) -> ManifestContent:
        return self._content

    @property
    def _meta(self) -> dict[str, str]:
        content = "deletes" if self._content == ManifestContent.DELETES else "data"
        return {**super()._meta, "content": content, AVRO_KEY: AVRO_FORM.decode()}

    def _with_partition(self, format_version: Any) -> Schema:
        return _entry_schema(self._partition_type, format_version)


class _Blocks:
    """An Avro file that gathers entries to blocks: a block is what is compressed at once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._gathered: list[Any] = []

    @property
    def output_file(self) -> Any:
        """Return the file below."""
        return self._file.output_file

    def write_block(self, entries: list[Any]) -> None:
        """Take entries."""
        self._gathered += entries
        if len(self._gathered) >= _BLOCK_ENTRIES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._file.__exit__(kind, error, trace)

    def _flush(self) -> None:
        if self._gathered:
            self._file.write_block(self._gathered)
            self._gathered = []


@lru_cache(_ENTRY_SCHEMAS_KEPT)
def _entry_schema(partition_type: StructType, format_version: Any) -> Schema:
    """Return the columns of a manifest whose files have such partition values."""
    data_file = data_file_with_partition(partition_type, format_version=format_version)
    schema = manifest_entry_schema_with_data_file(format_version=format_version, data_file=data_file)
    return Schema(*(_with_int_equality_ids(each) for each in schema.fields), schema_id=schema.schema_id)


def _with_int_equality_ids(found: NestedField) -> NestedField:
    if found.field_id == _EQUALITY_IDS_ID:
        ids = ListType(_EQUALITY_ID_ID, IntegerType(), element_required=True)
        return NestedField(_EQUALITY_IDS_ID, found.name, ids, required=False, doc=found.doc)
    if found.field_id == _DATA_FILE_ID and isinstance(found.field_type, StructType):
        inner = StructType(*(_with_int_equality_ids(each) for each in found.field_type.fields))
        return NestedField(_DATA_FILE_ID, found.name, inner, required=found.required, doc=found.doc)
    return found


def _number(properties: Any, name: str, default: int) -> int:
    return property_as_int(properties, name, default) or default

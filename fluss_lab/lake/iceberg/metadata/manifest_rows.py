"""Manifests read for what most questions need: which files, of which bucket, between which offsets.

pyiceberg decodes every metric of every column of every file, and builds a schema anew for each manifest: 40 to 80
microseconds a file, 3 to 6 ms a manifest. Of a table with thousands of files that is most of what a cold look-up takes.
Here metrics are passed over but for those of offset and timestamp; who asks for another has the manifest decoded whole, by
pyiceberg. Manifests of a form that is not expected are decoded so at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.iceberg.metadata.manifest_decoding import Bounds, QuickEntry, bounds_of, live_files_in
from fluss_lab.lake.iceberg.metadata.metadata_files import check_counts, manifest_entries

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A live entry of a manifest.

    Attributes:
        file: The file. What is not told here is decoded when it is asked for.
        sequence_number: Data sequence number; None where the manifest tells none.
        bounds: Smallest and largest offset, and the last timestamp in epoch microseconds, as the metrics have them; None
            where these are missing, or were not looked for.
    """

    file: DataFile
    sequence_number: int | None
    bounds: Bounds | None


class HeldManifest:
    """The live entries of one manifest: as rows, or whole. Safe in any thread.

    Args:
        manifest: As the manifest list has it.
        data: Its bytes; no longer held when it was decoded whole.

    Attributes:
        count: How many entries it has, about: for who bounds what is kept.
        placed: What its reader made of the rows; None before.
    """

    def __init__(self, manifest: ManifestFile, data: bytes) -> None:
        self._manifest: ManifestFile | None = manifest
        self._data: bytes | None = data
        self._entries: tuple[ManifestEntry, ...] | None = None
        self._rows: tuple[ManifestRow, ...] | None = None
        self.count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        self.placed: tuple[Any, ...] | None = None

    @staticmethod
    def of(entries: tuple[ManifestEntry, ...]) -> HeldManifest:
        """Return the manifest of live entries that are known, as by who wrote it."""
        held = HeldManifest.__new__(HeldManifest)
        held._manifest = held._data = held._rows = held.placed = None
        held._entries, held.count = entries, len(entries)
        return held

    def entries(self) -> tuple[ManifestEntry, ...]:
        """Return the entries with all that the manifest tells of them.

        Raises:
            CorruptDataError: It is not the manifest that was written.
        """
        # Whoever sets the one takes the other away after it.
        manifest, data = self._manifest, self._data
        if (entries := self._entries) is None:
            assert manifest is not None
            assert data is not None
            self._entries = entries = manifest_entries(manifest, data)
            self._data = None
        return entries

    def rows(self, ids: tuple[int, int]) -> tuple[ManifestRow, ...]:
        """Return the entries as rows.

        Args:
            ids: Field ids of offset and timestamp in the table that the manifest is of.

        Raises:
            CorruptDataError: It is not the manifest that was written.

        Cost: some 10 microseconds an entry, once.
        """
        if (rows := self._rows) is None:
            quick = self._quick_rows(ids) if self._entries is None else None
            rows = tuple(manifest_row(entry, ids) for entry in self.entries()) if quick is None else quick
            self._rows = rows
        return rows

    def _quick_rows(self, ids: tuple[int, int]) -> tuple[ManifestRow, ...] | None:
        manifest, data = self._manifest, self._data
        if manifest is None or data is None:
            return None
        try:
            found = live_files_in(data, ids, f"lake file {manifest.manifest_path}")
        except (UnsupportedError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
            # Another form than ours and Java's: pyiceberg knows it, or says what is wrong.
            return None
        check_counts(manifest, [entry.records for entry in found])
        rows = []
        for number, entry in enumerate(found):
            told = entry.sequence_number
            if told is None and (entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0):
                told = manifest.sequence_number
            rows.append(ManifestRow(_QuickFile(self, number, entry, manifest.partition_spec_id), told, entry.bounds))
        return tuple(rows)


class _QuickFile(DataFile):
    """A data or delete file of which the metrics are not decoded yet."""

    def __init__(self, held: HeldManifest, number: int, entry: QuickEntry, spec_id: int) -> None:
        # `Record` keeps everything in `_data`: as long as that is not set, `__getattr__` is asked for it.
        self.__dict__.update(_held=held, _number=number, _entry=entry, _spec_id=spec_id)

    def __getattr__(self, name: str) -> Any:
        if name != "_data":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        held: HeldManifest = self._held
        self._data = held.entries()[self._number].data_file._data
        return self._data

    @property
    def content(self) -> DataFileContent:
        return self._known.content

    @property
    def file_path(self) -> str:
        return self._known.path

    @property
    def file_format(self) -> FileFormat:
        return self._known.file_format

    @property
    def partition(self) -> Record:
        return self._known.partition

    @property
    def record_count(self) -> int:
        return self._known.records

    @property
    def file_size_in_bytes(self) -> int:
        return self._known.size_bytes

    @property
    def _known(self) -> QuickEntry:
        entry: QuickEntry = self.__dict__["_entry"]
        return entry


def manifest_row(entry: ManifestEntry, ids: tuple[int, int]) -> ManifestRow:
    """Return an entry that was decoded whole as a row."""
    file = entry.data_file
    return ManifestRow(file, entry.sequence_number, bounds_of(file.lower_bounds or {}, file.upper_bounds or {}, *ids))

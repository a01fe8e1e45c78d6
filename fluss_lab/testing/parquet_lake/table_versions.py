"""The versions of a lake table: each is one JSON file, whole, that never changes.

Layout of a table's folder, ``<warehouse>/<database>/<table>``::

    versions/0000000001.json    the table as it was made; each further version is a commit or an alteration
    data/<name>.parquet

Version *n + 1* is made by creating its file, which succeeds for one of all that try: that is the whole of concurrency
control. A version that commits rows is a *snapshot*, and its number is the snapshot's id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import (
    CorruptDataError,
    LakeSnapshotNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.files import create_atomic, fsync_folder
from fluss_lab.lake.snapshot_summary import ReplayStart, merge_starts
from fluss_lab.model import TableDescriptor, TableInfo, TablePath
from fluss_lab.model.format_versions import check_format
from fluss_lab.model.names import BucketKey

#: Of the JSON form.
FORMAT_VERSION: Final = 1
DATA: Final = "data"
_VERSIONS: Final = "versions"


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A data file, as manifests and write results name it.

    Attributes:
        name: Under the table's folder ``data``: a table that is renamed takes its files along.
        partition: Name of its partition, or None.
        bucket: Its bucket.
        min_offset: Smallest offset in it (inclusive).
        max_offset: Largest offset in it (inclusive).
        max_timestamp_ms: Timestamp of its last record.
        rows: Records in it.
        size_bytes: Its size.
    """

    name: str
    partition: str | None
    bucket: int
    min_offset: int
    max_offset: int
    max_timestamp_ms: int
    rows: int
    size_bytes: int

    @property
    def key(self) -> BucketKey:
        """Return its partition and bucket."""
        return self.partition, self.bucket


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a lake table.

    Attributes:
        version: Its number, from 1.
        table_id: Of the Fluss table that it belongs to.
        descriptor: That table's definition.
        snapshot_id: The newest snapshot, which is this version or an older one; None for a table without any.
        properties: What this version was committed with; empty for one that is no snapshot.
        replay_starts: First offset of each bucket from which its log is whole; those not named: 0.
        files: All data files of the newest snapshot.
    """

    version: int
    table_id: int
    descriptor: TableDescriptor
    snapshot_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    replay_starts: Mapping[BucketKey, int] = field(default_factory=dict)
    files: tuple[LakeFile, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Return whether this version committed rows, or an empty snapshot."""
        return self.snapshot_id == self.version

    def next_altered(self, table: TableInfo) -> Manifest:
        """Return the next version with another definition or owner."""
        return replace(
            self, version=self.version + 1, table_id=table.table_id, descriptor=table.descriptor, properties={}
        )

    def next_committed(
        self, files: tuple[LakeFile, ...], properties: Mapping[str, str], replay_starts: Mapping[BucketKey, ReplayStart]
    ) -> Manifest:
        """Return the next version as a snapshot with these files; replay starts go on from those before."""
        version = self.version + 1
        known = {key: ReplayStart(start) for key, start in self.replay_starts.items()}
        starts = {key: start.offset for key, start in merge_starts(known, replay_starts).items()}
        return replace(
            self, version=version, snapshot_id=version, properties=dict(properties), replay_starts=starts, files=files
        )

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        value = {
            "format_version": FORMAT_VERSION,
            "version": self.version,
            "table_id": self.table_id,
            "descriptor": self.descriptor.to_json(),
            "snapshot_id": self.snapshot_id,
            "properties": dict(self.properties),
            "replay_starts": [[*key, start] for key, start in self.replay_starts.items()],
            "files": [asdict(file) for file in self.files],
        }
        return json.dumps(value, indent=1).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Read the form of `to_bytes`.

        Raises:
            CorruptDataError: It is another form.
            UnsupportedError: A newer version wrote it.
        """
        try:
            value: dict[str, Any] = json.loads(data)
            check_format("format of a lake table's version", value["format_version"], FORMAT_VERSION)
            if value["format_version"] != FORMAT_VERSION:
                raise CorruptDataError(f"expected format version {FORMAT_VERSION}, found {value['format_version']!r}")
            return Manifest(
                int(value["version"]),
                int(value["table_id"]),
                TableDescriptor.from_json(value["descriptor"]),
                value["snapshot_id"],
                value["properties"],
                {(partition, bucket): start for partition, bucket, start in value["replay_starts"]},
                tuple(LakeFile(**file) for file in value["files"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"not the form of a manifest: {error!r}") from error


class LakeFolder:
    """The folder of one lake table. It holds nothing in memory: every call looks at the disk."""

    def __init__(self, warehouse: Path, path: TablePath) -> None:
        self.table_path = path
        self.path = warehouse / path.database / path.table

    def data_file(self, name: str) -> Path:
        """Return where a data file lies."""
        return self.path / DATA / name

    def newest(self) -> Manifest | None:
        """Return the newest version; None when there is no table."""
        try:
            names = [name for name in os.listdir(self.path / _VERSIONS) if name.endswith(".json")]
        except FileNotFoundError:
            return None
        return self.version(int(max(names).removesuffix(".json"))) if names else None

    def newest_of(self, table_id: int) -> Manifest:
        """Return the newest version of the lake table of a Fluss table.

        Raises:
            TableNotFoundError: There is none, or it is another table's.
        """
        manifest = self.newest()
        if manifest is None:
            raise TableNotFoundError(f"lake table {self.table_path} does not exist in {self.path}")
        if manifest.table_id != table_id:
            raise TableNotFoundError(
                f"lake table {self.table_path}: expected that of table id {table_id}, found that of {manifest.table_id}"
            )
        return manifest

    def version(self, number: int) -> Manifest:
        """Return a version that there is.

        Raises:
            CorruptDataError: It cannot be read.
            UnsupportedError: A newer version wrote it.
        """
        path = self._manifest(number)
        try:
            return Manifest.from_bytes(path.read_bytes())
        except UnsupportedError as error:
            raise UnsupportedError(f"{path}: {error}") from error
        except (CorruptDataError, OSError) as error:
            raise CorruptDataError(f"lake table {self.table_path}: manifest {path}: {error}") from error

    def snapshot(self, table_id: int, snapshot_id: int) -> Manifest:
        """Return a snapshot of a Fluss table.

        Raises:
            LakeSnapshotNotFoundError: The table is gone, or has no such snapshot.
        """
        newest = self.newest()
        known = newest is not None and newest.table_id == table_id and 1 <= snapshot_id <= newest.version
        if not known or not (found := self.version(snapshot_id)).is_snapshot:
            raise LakeSnapshotNotFoundError(
                f"lake table {self.table_path} of table id {table_id}: no snapshot {snapshot_id}"
            )
        return found

    def history(self, newest: Manifest) -> Iterator[Manifest]:
        """Yield the snapshots up to a version, the newest first."""
        for number in range(newest.snapshot_id or 0, 0, -1):
            manifest = newest if number == newest.version else self.version(number)
            if manifest.is_snapshot:
                yield manifest

    def publish(self, manifest: Manifest) -> None:
        """Make a version the newest one.

        Raises:
            FileExistsError: Another process made that version: look again.
            StorageError: It cannot be written; nothing was changed.
        """
        path = self._manifest(manifest.version)
        try:
            if manifest.version > 1:
                # A folder that was dropped meanwhile must not come to life again by a later version.
                self._manifest(manifest.version - 1).stat()
            create_atomic(path, manifest.to_bytes())
        except FileExistsError:
            raise
        except FileNotFoundError as error:
            raise TableNotFoundError(f"lake table {self.table_path} was dropped meanwhile") from error
        except OSError as error:
            raise StorageError(f"lake table {self.table_path}: manifest {path}: {error}") from error

    def make(self) -> None:
        """Make the folders; those that are there stay.

        Raises:
            StorageError: They cannot be made.
        """
        try:
            for each in (self.path / DATA, self.path / _VERSIONS):
                each.mkdir(parents=True, exist_ok=True)
            for each in (self.path, self.path.parent, self.path.parent.parent):
                fsync_folder(each)
        except OSError as error:
            raise StorageError(f"lake table {self.table_path}: folder {self.path}: {error}") from error

    def _manifest(self, number: int) -> Path:
        return self.path / _VERSIONS / f"{number:010d}.json"

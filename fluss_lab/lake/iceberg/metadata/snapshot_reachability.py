"""The files that only some of a table's snapshots refer to, so that they can go with these.

Not every snapshot that stays has to be looked at. What a snapshot consists of it has from its parent, or it made it. So a
manifest or file made by a snapshot that stays is in use, and one made by another is in use by a snapshot that stays only
if it is in use by one that stays and whose parent does not: there are few of these, the oldest of each line. The
newest of every branch and whatever a tag names are looked at beside, for those who bring old files back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestEntry, ManifestFile

from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


@dataclass(slots=True)
class UnusedFiles:
    """Files that nothing refers to once some snapshots are gone, in the order in which they may be removed.

    Attributes:
        data: Data and delete files, with their sizes in bytes.
        manifests: Manifests, with theirs.
        lists: Manifest lists, and statistics files.
    """

    data: dict[str, int] = field(default_factory=dict)
    manifests: dict[str, int] = field(default_factory=dict)
    lists: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all but the manifest lists."""
        return sum(self.data.values()) + sum(self.manifests.values())

    def __iter__(self) -> Iterator[str]:
        yield from self.data
        yield from self.manifests
        yield from self.lists


def unused_files(lake: Table, gone: Collection[int], cache: EntryCache) -> UnusedFiles:
    """Return the files that nothing refers to without some snapshots.

    Args:
        lake: The table, from which they are not gone yet.
        gone: Ids of the snapshots.
        cache: Decoded manifests.

    Raises:
        FileNotFoundError: A manifest or manifest list is gone already: somebody else removes files too.

    Cost: the manifest lists of the snapshots that go, and of one or two that stay; the manifests that are only in the
    former, and those of the latter as far as they were not decoded.
    """
    unused = UnusedFiles()
    candidates: dict[str, ManifestFile] = {}
    staying = {
        snapshot.snapshot_id: snapshot for snapshot in lake.metadata.snapshots if snapshot.snapshot_id not in gone
    }
    lists = {snapshot.manifest_list for snapshot in staying.values()}
    for snapshot in lake.metadata.snapshots:
        if snapshot.snapshot_id not in staying and snapshot.manifest_list not in lists:
            unused.lists.append(snapshot.manifest_list)
            candidates |= {manifest.manifest_path: manifest for manifest in cache.manifests(lake.io, snapshot)}
    kept: dict[str, ManifestFile] = {}
    for snapshot in _witnesses(lake, staying):
        kept |= {manifest.manifest_path: manifest for manifest in cache.manifests(lake.io, snapshot)}
    unused_manifests = [
        manifest
        for path, manifest in candidates.items()
        if path not in kept and manifest.added_snapshot_id not in staying
    ]
    unused.manifests = {manifest.manifest_path: int(manifest.manifest_length) for manifest in unused_manifests}
    for entry in _entries(lake, unused_manifests, cache):
        if entry.snapshot_id not in staying:
            unused.data[entry.data_file.file_path] = int(entry.data_file.file_size_in_bytes)
    for entry in _entries(lake, kept.values(), cache) if unused.data else ():
        unused.data.pop(entry.data_file.file_path, None)
    unused.lists += _statistics(lake, gone)
    return unused


def _witnesses(lake: Table, staying: Mapping[int, Snapshot]) -> list[Snapshot]:
    """Return which of the snapshots that stay have to be looked at."""
    heads = {ref.snapshot_id for ref in lake.metadata.refs.values()}
    return [
        snapshot
        for snapshot_id, snapshot in staying.items()
        if snapshot_id in heads or snapshot.parent_snapshot_id not in staying
    ]


def _entries(lake: Table, manifests: Collection[ManifestFile], cache: EntryCache) -> Iterator[ManifestEntry]:
    for manifest in manifests:
        yield from cache.entries(lake.io, manifest)


def _statistics(lake: Table, gone: Collection[int]) -> list[str]:
    """Return the statistics files of snapshots that go."""
    found = [*lake.metadata.statistics, *lake.metadata.partition_statistics]
    staying = {each.statistics_path for each in found if each.snapshot_id not in gone}
    return sorted({each.statistics_path for each in found if each.snapshot_id in gone} - staying)

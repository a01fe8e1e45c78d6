"""The folder of a bucket's key-value snapshots: which there are, which are broken, what is no longer needed.

::

    0000000012.manifest            snapshot 12 exists (see `fluss_lab.records.kv_manifest`)
    0000000012-0.chunks            a file of chunks that came with snapshot 12; later ones may need it too
    0000000012.live                which rows are live in snapshot 12
    0000000011.manifest.broken     snapshot 11 was found broken; its name keeps the id used
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Final

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import SnapshotManifest, manifest_name, read_manifest, snapshot_id_of
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_location import store_of

log = logging.getLogger(__name__)

BROKEN_SUFFIX: Final = ".broken"
#: Manifests of broken snapshots that stay, for a search of the cause.
BROKEN_KEPT: Final = 5
#: Every name that a snapshot's file may have, its manifest's temporary name included.
_OURS: Final = re.compile(r"\.?(\d{10,18})(-\d{1,9})?\.(chunks|live|manifest)(\..+)?")


class SnapshotFolder:
    """The files of one bucket's snapshots. Not safe for threads.

    Args:
        path: The folder; need not exist.
    """

    def __init__(self, path: Place, bucket: TableBucket) -> None:
        self.path = path
        self._store = store_of(path)
        self._bucket = bucket

    def manifests(self) -> list[SnapshotManifest]:
        """Return the snapshots that there are, the newest first. One whose manifest is broken is set aside.

        The files that manifests name are only looked at for being there with the right size.

        Raises:
            UnsupportedError: One was written by a newer version.
            OSError: The file system refused to read.
        """
        found = []
        for name in self._names():
            if (snapshot_id := snapshot_id_of(name)) is None:
                continue
            try:
                manifest = read_manifest(self.path / name)
                self._check(manifest)
                found.append(manifest)
            except FileNotFoundError:
                continue
            except CorruptDataError as error:
                self.set_aside(snapshot_id, error)
        return sorted(found, key=lambda manifest: manifest.snapshot_id, reverse=True)

    def _check(self, manifest: SnapshotManifest) -> None:
        if manifest.bucket != self._bucket:
            raise CorruptDataError(
                f"{self.path / manifest.name}: expected a snapshot of {self._bucket}, found one of {manifest.bucket}"
            )
        for mark in (manifest.live, *(each.file for each in manifest.files)):
            if (size := self.size_of(mark.name)) != mark.size_bytes:
                shown = "none" if size is None else f"one of {size}"
                raise CorruptDataError(
                    f"{self.path / mark.name}: expected a file of {mark.size_bytes} bytes, found {shown}"
                )

    def size_of(self, name: str) -> int | None:
        """Return the bytes of a file; None when it is not there."""
        return self._store.size(self.path / name)

    def id_max(self) -> int:
        """Return the largest snapshot id in any name, of broken and unfinished snapshots too; -1 when there is none."""
        matches = [match for name in self._names() if (match := _OURS.fullmatch(name)) is not None]
        return max((int(match[1]) for match in matches), default=-1)

    def set_aside(self, snapshot_id: int, reason: Exception) -> None:
        """Let a broken snapshot exist no more; its manifest stays under another name.

        When the file system refuses, that is only logged: it will be found broken again.
        """
        path = self.path / manifest_name(snapshot_id)
        log.error("%s: the snapshot is broken and set aside: %s", path, reason)
        try:
            self._store.rename(path, path.name + BROKEN_SUFFIX)
        except OSError as error:
            log.warning("%s: could not be set aside: %s", path, error)

    def broken_ids(self) -> list[int]:
        """Return the ids of the snapshots that were set aside, ascending."""
        names = [name.removesuffix(BROKEN_SUFFIX) for name in self._names() if name.endswith(BROKEN_SUFFIX)]
        return sorted(found for name in names if (found := snapshot_id_of(name)) is not None)

    def make(self) -> None:
        """Make the folder and those above it, durably.

        Raises:
            OSError: The file system refused.
        """
        self._store.make_folder(self.path)

    def remove_manifests(self, keep: Collection[str]) -> None:
        """Remove the manifests of all snapshots but those named, durably, before what they need is removed.

        Raises:
            OSError: The file system refused.
        """
        gone = [name for name in self._names() if snapshot_id_of(name) is not None and name not in keep]
        for name in gone:
            self._store.remove(self.path / name)
        if gone:
            self._store.settle(self.path)

    def remove_unneeded(self, needed: Collection[str]) -> int:
        """Remove files of snapshots that are not among those named: of expired snapshots, and leftovers of attempts.

        Returns:
            How many were removed.

        Raises:
            OSError: The file system refused.
        """
        broken = [f"{manifest_name(each)}{BROKEN_SUFFIX}" for each in self.broken_ids()[-BROKEN_KEPT:]]
        unneeded = [n for n in self._names() if _OURS.fullmatch(n) and n not in needed and n not in broken]
        for name in unneeded:
            self._store.remove(self.path / name)
        return len(unneeded)

    def _names(self) -> list[str]:
        return self._store.names(self.path)

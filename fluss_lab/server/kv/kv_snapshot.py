"""Key-value snapshots of one bucket: written incrementally and at once, read back with a fall-back.

Order of a write, each step durable before the next: new files of chunks, the file of live rows, their names, the
manifest. Only then are the oldest snapshot's manifest and what no snapshot needs removed. So at every moment
there is what there was before, or that and one more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError, NotLeaderError, StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_files import ChunkRows, read_chunks, write_chunks, write_live
from fluss_lab.records.kv_manifest import (
    CHUNKS_SUFFIX,
    LIVE_SUFFIX,
    ChunkFile,
    ChunkMark,
    CompletedSnapshot,
    SnapshotManifest,
)
from fluss_lab.server.kv.file_changes import SnapshotFile, SnapshotFiles
from fluss_lab.server.kv.row_chunks import KvChunk
from fluss_lab.server.kv.snapshot_folder import SnapshotFolder
from fluss_lab.server.kv.store_view import KvImage
from fluss_lab.storage.file_store import ABSENT, Place
from fluss_lab.storage.single_writer import Hold
from fluss_lab.storage.store_errors import reason_of
from fluss_lab.storage.store_location import store_of

log = logging.getLogger(__name__)

T = TypeVar("T")

#: New chunks share a file until it has so many bytes; a larger one has a file of its own.
FILE_BYTES: Final = 64 << 20
#: Of files smaller than this, a snapshot keeps so many; more are written again as one.
SMALL_FILE_BYTES: Final = 1 << 20
SMALL_FILES_MAX: Final = 64


class SnapshotStore:
    """The snapshots of one bucket. Safe for threads; one write or load at a time.

    Args:
        folder: The bucket's; made with the first snapshot. No other process writes there: in an object store, one that does
            is stopped by the first write after this one, but for the instant between a look and a write.
        retained: Snapshots kept; at least one.
        check: Raises `StorageError` while the storage that the folder is in is not there.
        holds: Whether snapshots will be written: then another process that wrote there before can no longer.

    Raises:
        UnsupportedError: A snapshot was written by a newer version.
        StorageError: The folder cannot be read.
    """

    def __init__(
        self,
        folder: Place,
        *,
        retained: int,
        bucket: TableBucket,
        check: Callable[[], None] = lambda: None,
        holds: bool = True,
    ) -> None:
        check()
        self._check_there = check
        self._folder = SnapshotFolder(folder, bucket)
        self._hold = Hold(folder)
        self._retained = retained
        self._bucket = bucket
        self._working = threading.Lock()
        self._closed = False
        #: The snapshot from which the present state of the bucket was made, or that was made of it: chunks with its
        #: ids are the same. Of any other snapshot that is not known: ids are used again after a fall-back.
        self._base: SnapshotManifest | None = None
        #: The local files of chunks of it, by name.
        self._base_files: dict[str, SnapshotFile] = {}
        self._id_min = 0
        try:
            if holds:
                self._hold.take()
            self._manifests = tuple(self._folder.manifests())
            self._broken = tuple(self._folder.broken_ids())
        except OSError as error:
            raise StorageError(f"{folder}: the snapshots cannot be read: {reason_of(error)}") from error

    @property
    def folder(self) -> Place:
        """Return the folder of the files."""
        return self._folder.path

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    def retained_floor(self) -> int | None:
        """Return the smallest log offset of the retained snapshots; None when there is none.

        The log from it on is needed: a restart may have to fall back to the oldest of them.
        """
        return min((manifest.log_offset for manifest in self._manifests[: self._retained]), default=None)

    @property
    def latest(self) -> CompletedSnapshot | None:
        """Return the newest snapshot that is not known to be broken; None when there is none."""
        manifests = self._manifests
        return self._completed_snapshot(manifests[0]) if manifests else None

    def skip_ids(self, used_max: int) -> None:
        """Use only ids above one for new snapshots."""
        self._id_min = max(self._id_min, used_max + 1)

    def close(self) -> None:
        """Write no more; a write under way ends without effect, before this returns. Closing again does nothing."""
        self._closed = True
        with self._working:
            pass

    # -- reading -------------------------------------------------------------------------------------------------------

    def load(self, schemas: Mapping[int, pa.Schema]) -> tuple[CompletedSnapshot, KvImage] | None:
        """Return the newest snapshot that is whole, and the state in it; None when there is none.

        One that is not whole is logged and set aside; it is no longer retained.

        Args:
            schemas: Arrow schema of each schema id of the table.

        Raises:
            InvalidSchemaError: A snapshot has rows of a schema that is not among `schemas`.
            StorageError: The file system refused to read; the snapshots may be right.
        """
        with self._working:
            found = self._whole(lambda manifest: _image(self._folder.path, manifest, schemas))
            if found is None:
                return None
            self._base, image = found
            self._base_files = image.files.by_name()
            return self._completed_snapshot(self._base), image

    def check(self, schemas: Mapping[int, pa.Schema]) -> CompletedSnapshot | None:
        """Return the snapshot that `load` would; it raises as that does. The state is read, and not kept."""
        with self._working:
            found = self._whole(lambda manifest: sum(1 for _ in read_chunks(self._folder.path, manifest, schemas)))
            return None if found is None else self._completed_snapshot(found[0])

    def _whole(self, read: Callable[[SnapshotManifest], T]) -> tuple[SnapshotManifest, T] | None:
        for manifest in self._manifests:
            try:
                return manifest, read(manifest)
            except CorruptDataError as error:
                self._folder.set_aside(manifest.snapshot_id, error)
                self._manifests = tuple(each for each in self._manifests if each is not manifest)
                self._broken = tuple(sorted({*self._broken, manifest.snapshot_id}))
            except OSError as error:
                raise StorageError(
                    f"{self.folder / manifest.name}: the snapshot cannot be read: {reason_of(error)}"
                ) from error
        return None

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, image: KvImage, *, writers: object, created_ms: int, anew: bool = False) -> CompletedSnapshot:
        """Write a state as a new snapshot, and drop those that are no longer retained.

        Files of chunks that the snapshot before has already are used again.

        Args:
            image: The state. Everything below its log offset must be durable in the log already.
            writers: The bucket's writers at that offset, as plain JSON values.
            created_ms: When the state was taken.
            anew: Whether it was made elsewhere: its chunks are others than those that had their ids before.

        Returns:
            The snapshot, durable.

        Raises:
            StorageError: The disk refused; the snapshots from before stay, and nothing of this one is left (or what
                is, is removed with the next write).
            NotLeaderError: The store was closed.
        """
        with self._working:
            self._check_open()
            self._check_there()
            snapshot_id = max(self._folder.id_max() + 1, self._id_min)
            try:
                self._folder.make()
                self._sweep()
                if anew:
                    self._base = None
                    self._base_files = {}
                manifest, new_bytes = self._write(snapshot_id, image, writers, created_ms)
            except BaseException as error:
                self._abandon(snapshot_id)
                if isinstance(error, OSError):
                    text = f"snapshot {snapshot_id} was not written, those before stay: {error.strerror or error}"
                    raise StorageError(f"{self.folder}: {text}") from error
                raise
            self._base = manifest
            self._base_files = {name: each for name, each in self._base_files.items() if name in manifest.file_names}
            self._manifests = (manifest, *self._manifests)
            self._expire()
            return replace(self._completed_snapshot(manifest), new_bytes=new_bytes)

    def _write(
        self, snapshot_id: int, image: KvImage, writers: object, created_ms: int
    ) -> tuple[SnapshotManifest, int]:
        # A chunk without a live row is no part of the state.
        alive = [
            (chunk, live) for chunk, live in zip(image.chunks, image.live, strict=True) if np.any(live)
        ]  # fmt: skip
        kept = self._reusable([chunk for chunk, _ in alive])
        held = {mark.chunk_id for each in kept for mark in each.chunks}
        new = []
        for number, group in enumerate(_groups([chunk for chunk, _ in alive if chunk.chunk_id not in held])):
            self._check_open()
            failpoint("kv.snapshot.before_chunks")
            path = self.folder / f"{snapshot_id:010d}-{number}{CHUNKS_SUFFIX}"
            mark = write_chunks(path, [ChunkRows(each.rows, each.offsets, each.timestamps_ms) for each in group])
            if isinstance(path, Path):
                self._base_files[path.name] = SnapshotFile.of(path, mark)
            new.append(ChunkFile(mark, tuple(_mark(each) for each in group)))
        self._check_open()
        failpoint("kv.snapshot.before_live")
        live = write_live(self.folder / f"{snapshot_id:010d}{LIVE_SUFFIX}", [live for _, live in alive])
        failpoint("kv.snapshot.before_names")
        store = store_of(self.folder)
        store.settle(self.folder)
        self._hold.keep()
        manifest = SnapshotManifest(
            bucket=self._bucket,
            snapshot_id=snapshot_id,
            log_offset=image.log_offset,
            row_count=image.row_count,
            created_ms=created_ms,
            next_chunk_id=image.next_chunk_id,
            chunk_ids=tuple(chunk.chunk_id for chunk, _ in alive),
            files=(*kept, *new),
            live=live,
            writers=writers,
        )
        self._check_open()
        failpoint("kv.snapshot.before_manifest")
        # New: of two servers with copies of one lab's folder, the second one's snapshot is refused.
        store.put(self.folder / manifest.name, manifest.to_bytes(), ABSENT)
        failpoint("kv.snapshot.after_manifest")
        return manifest, live.size_bytes + sum(each.file.size_bytes for each in new)

    def _reusable(self, chunks: list[KvChunk]) -> list[ChunkFile]:
        """Return the files of the base that hold chunks of a state and are worth keeping."""
        if self._base is None:
            return []
        wanted = {chunk.chunk_id: _mark(chunk) for chunk in chunks}
        kept = []
        for each in self._base.files:
            used = sum(mark.row_count for mark in each.chunks if wanted.get(mark.chunk_id) == mark)
            # Where most is no longer needed, the rest is written again, so that the file can go.
            is_worth_it = 2 * used >= sum(mark.row_count for mark in each.chunks)
            if is_worth_it and self._is_whole(each):
                kept.append(each)
        small = [each for each in kept if each.file.size_bytes < SMALL_FILE_BYTES]
        return [each for each in kept if each not in small] if len(small) > SMALL_FILES_MAX else kept

    def _is_whole(self, each: ChunkFile) -> bool:
        """Return whether a snapshot can be built on a file: it is there, and is as it was written or checked."""
        if self._folder.size_of(each.file.name) != each.file.size_bytes:
            return False
        known = self._base_files.get(each.file.name)
        return known is None or not known.is_changed()

    def _expire(self) -> None:
        """Remove what is no longer retained. When the disk refuses, the next write tries again."""
        self._manifests = self._manifests[: self._retained]
        try:
            failpoint("kv.snapshot.before_expire")
            self._sweep()
        except OSError as error:
            log.warning("%s: old snapshots are not removed yet: %s", self.folder, error)
        failpoint("kv.snapshot.after_delete")

    def _abandon(self, snapshot_id: int) -> None:
        """Remove what an attempt left; its id is not used again, whatever a power loss may bring back."""
        self._id_min = max(self._id_min, snapshot_id + 1)
        try:
            self._sweep()
        except OSError as error:
            log.warning("%s: leftovers of snapshot %d stay until the next one: %s", self.folder, snapshot_id, error)

    def _sweep(self) -> None:
        """Remove all that the snapshots at hand do not need: manifests first, so that none is left without its files.

        What another server wrote since is none of those at hand: nothing is removed without the hold.
        """
        self._hold.keep()
        self._folder.remove_manifests({manifest.name for manifest in self._manifests})
        failpoint("kv.snapshot.before_delete")
        self._folder.remove_unneeded({name for manifest in self._manifests for name in manifest.file_names})

    def _check_open(self) -> None:
        if self._closed:
            raise NotLeaderError(f"{self.folder}: the bucket was closed; no more snapshots are taken of it here")

    def _completed_snapshot(self, manifest: SnapshotManifest) -> CompletedSnapshot:
        return CompletedSnapshot(
            manifest.bucket,
            snapshot_id=manifest.snapshot_id,
            log_offset=manifest.log_offset,
            row_count=manifest.row_count,
            size_bytes=manifest.size_bytes,
            new_bytes=0,
            location=str(self.folder),
            created_ms=manifest.created_ms,
            retained=tuple(sorted(each.snapshot_id for each in self._manifests[: self._retained])),
            broken=self._broken,
            writers=manifest.writers,
        )


def _image(folder: Place, manifest: SnapshotManifest, schemas: Mapping[int, pa.Schema]) -> KvImage:
    # What is written to them once they are checked is noticed.
    files = [SnapshotFile.of(folder / each.file.name, each.file) for each in manifest.files if isinstance(folder, Path)]
    stored = list(read_chunks(folder, manifest, schemas))
    # What an object store gave is in memory; a local file is mapped.
    is_mapped = isinstance(folder, Path)
    chunks = tuple(
        KvChunk(
            each.mark.chunk_id, each.mark.schema_id, each.content.rows, each.content.offsets, each.content.timestamps_ms,
            is_mapped,
        )
        for each in stored
    )  # fmt: skip
    live = tuple(each.live for each in stored)
    return KvImage(manifest.log_offset, chunks, live, manifest.next_chunk_id, SnapshotFiles(files))


def _mark(chunk: KvChunk) -> ChunkMark:
    return ChunkMark(chunk.chunk_id, chunk.schema_id, len(chunk.offsets), int(chunk.offsets[0]), int(chunk.offsets[-1]))


def _groups(chunks: list[KvChunk]) -> list[list[KvChunk]]:
    """Return chunks in groups that make a file each: of one schema, and not too large."""
    groups: list[list[KvChunk]] = []
    size = 0
    for chunk in chunks:
        if not groups or groups[-1][0].schema_id != chunk.schema_id or size + chunk.rows.nbytes > FILE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(chunk)
        size += chunk.rows.nbytes
    return groups

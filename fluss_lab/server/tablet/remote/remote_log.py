"""The remote log of one bucket: what remote storage holds, how it grows and shrinks, where an offset or a time is in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, FlussError, NotLeaderError, StorageError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.records.remote_segment import SegmentFile
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.log.log_reader import RecordLocation
from fluss_lab.server.tablet.log.segment import Segment
from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.server.tablet.remote.remote_manifest import DroppedMark, RemoteManifest, RemoteSegment
from fluss_lab.server.tablet.remote.segment_copy import copy_segment
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_errors import ObjectExistsError, reason_of
from fluss_lab.storage.store_location import store_of

T = TypeVar("T")

#: Segments that one fetch answer names: 16 x 80 bytes, and some gigabytes of records before the next fetch.
_SEGMENTS_SENT_MAX: Final = 16
#: Manifests tried while segments expire under a reader: one retention pass is one manifest.
_MANIFESTS_MAX: Final = 10
_DRAFT: Final = re.compile(rf"\.{remote_manifest.FILE_NAME}\.")
_SEGMENT_FOLDER: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class RemoteFetch:
    """Where in remote storage the records from an offset on are.

    Attributes:
        folder: The bucket's remote folder.
        segments: From the one that holds the offset on, perhaps not all.
        start_position: Where in the first one reading may begin.
    """

    folder: Place
    segments: tuple[RemoteSegment, ...]
    start_position: int


class RemoteLog:
    """The remote log of one bucket. Safe for threads; reading takes no lock.

    What is wrong with it does not hinder the bucket's own log: `problem` returns it, and reads raise it.

    Args:
        folder: The bucket's remote folder; need not exist.
        local: The bucket's own folder; it exists.
        log_range: Its log's first offset and end offset; the first is 0 where it is not known.
        logger: Knows the bucket's name.
        check: Raises `StorageError` while remote storage is not there.
        stop: Ends all appends to the log, for a reason: it would give offsets anew that remote storage has.

    Raises:
        StorageError: It is not known what remote storage holds, and the disk refused to note that.
    """

    def __init__(
        self,
        folder: Place,
        local: Path,
        bucket: TableBucket,
        log_range: tuple[int, int],
        logger: BucketLogger,
        check: Callable[[], None] = lambda: None,
        stop: Callable[[FlussError], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self._store = store_of(folder)
        self._mark = DroppedMark(local)
        self._bucket, self._log = bucket, logger
        self._log_start, self._log_end = log_range
        self._check_there, self._stop = check, stop
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._manifest: RemoteManifest | None = None
        self._problem: FlussError | None = None
        self._copy_problem: FlussError | None = None
        self._is_tidy = False
        # Whether it reaches beyond the log as that was opened.
        self._is_ahead = False
        # Whether the manifest on the device may be another than the one here, after it could not be replaced cleanly.
        self._is_unsure = False
        self._is_fenced = False
        self._file = remote_manifest.ManifestFile(folder, bucket)
        self._try_load()
        if self._manifest is None and not self._is_ahead:
            self._note_unseen()

    def __repr__(self) -> str:
        return f"<RemoteLog {self._bucket} {self.known or self._problem}>"

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def manifest(self) -> RemoteManifest:
        """Return what remote storage holds now.

        Raises:
            CorruptDataError: It cannot be known, because something is damaged or missing; the text says what.
            StorageError: It cannot be read at the moment.
        """
        if self._manifest is None:
            self._try_load()
        if (found := self._manifest) is not None:
            return found
        assert self._problem is not None
        raise type(self._problem)(str(self._problem))

    @property
    def known(self) -> RemoteManifest | None:
        """Return what remote storage holds; None while that is not known: see `problem`."""
        return self._manifest

    @property
    def problem(self) -> FlussError | None:
        """Return why it is not known what remote storage holds; None when it is."""
        self._try_load()
        return self._problem

    @property
    def copy_problem(self) -> FlussError | None:
        """Return why the last attempt to copy a segment failed; None when it did not."""
        return self._copy_problem

    def _try_load(self) -> None:
        """Read the manifest, unless that has been done: what was missing or damaged may be there again."""
        if self._manifest is not None or self._is_fenced:
            return
        with self._lock:
            if self._manifest is not None or self._is_fenced:
                return
            try:
                self._manifest, self._problem = self._load(), None
            except FlussError as error:
                if self._problem is None:
                    self._log.error("%s", error)
                self._problem = error
        if self._is_ahead and self._problem is not None:
            # Grown past the end of the remote log, it would be taken for the log that was copied there.
            self._stop(self._problem)

    def _note_unseen(self) -> None:
        """Note that the log grows from here on without a look at the remote log, which may have these offsets already.

        Raises:
            StorageError: The disk refused.
        """
        try:
            self._mark.note_unseen(self._log_end)
        except FlussError as error:
            self._log.error("%s", error)  # a damaged mark, which is said again once the manifest is read
        except OSError as error:
            raise StorageError(f"{self._log.title}: {self._mark.path}: {error.strerror or error}") from error

    def _load(self) -> RemoteManifest:
        path = self._file.place
        self._check_there()
        try:
            found = self._file.load()
            dropped = self._dropped_offset(found)
        except OSError as error:
            raise StorageError(f"{self._log.title}: the remote log cannot be read: {reason_of(error)}") from error
        manifest = RemoteManifest(self._bucket) if found is None else found
        if dropped > manifest.copied_offset:
            what = "none" if found is None else f"one that ends at {found.copied_offset}"
            # One that is not there may come back: a mount.
            raise (StorageError if found is None else CorruptDataError)(
                f"{self._log.title}: {path}: expected the manifest of a remote log that reaches to offset {dropped}, since "
                f"segments below it were deleted here, found {what}; restore the folder, or set remote.data.dir to where "
                f"it is. To do without those records, delete {self._mark.path}"
            )
        unseen = self._mark.unseen_from
        log_end = self._log_end if unseen is None else min(unseen, self._log_end)
        self._is_ahead = manifest.copied_offset > log_end
        if self._is_ahead:
            ends = "ends" if log_end == self._log_end else "ended, when it was first opened without that,"
            raise CorruptDataError(
                f"{self._log.title}: {path} reaches to offset {manifest.copied_offset}, the log {ends} at {log_end}: the "
                "server's folder is older than remote.data.dir (restored from a copy?); restore both from one moment, or "
                f"move {self.folder} away to do without, and start the server again"
            )
        try:
            self._mark.note_seen()  # before anything is copied: from now on the log may be ahead of what was noted
        except OSError as error:
            raise StorageError(f"{self._log.title}: {self._mark.path}: {error.strerror or error}") from error
        return manifest

    def _dropped_offset(self, found: RemoteManifest | None) -> int:
        """Return up to where segments here were deleted because they are in remote storage.

        A manifest that leads up to the log means the same as the mark, and repairs it.

        Raises:
            CorruptDataError: The mark is damaged, and it matters.
            OSError: The file system refused.
        """
        leads = found is not None and found.start < self._log_start <= found.end
        try:
            dropped = self._mark.load()
        except CorruptDataError as error:
            if not leads and self._log_start:
                raise CorruptDataError(f"{self._log.title}: {error}") from error
            dropped = 0
        if leads:
            self._mark.raise_to(self._log_start)
            dropped = max(dropped, self._log_start)
        return dropped

    # -- reading -------------------------------------------------------------------------------------------------------

    def fetch(self, offset: int) -> RemoteFetch | None:
        """Return where the records from an offset on are; None when remote storage does not hold it.

        Raises:
            CorruptDataError, StorageError: As `manifest`; or the segment's index is damaged, or cannot be read.

        Cost: one small file read.
        """

        def find(manifest: RemoteManifest) -> RemoteFetch | None:
            segments = manifest.from_offset(offset)[:_SEGMENTS_SENT_MAX]
            if not segments:
                return None
            with SegmentFile(self.folder, segments[0].key) as file:
                start = file.index.positions(file.index.at_offset(offset))[0]
            return RemoteFetch(self.folder, segments, start)

        return self._newest(find)

    def locate(self, offset: int) -> RecordLocation | None:
        """Return where the record at an offset lies; None when remote storage does not hold it.

        Raises:
            CorruptDataError, StorageError: As `fetch`; or the block that should hold it is damaged.

        Cost: one index and a block.
        """

        def find(manifest: RemoteManifest) -> RecordLocation | None:
            segment = next(iter(manifest.from_offset(offset)), None)
            if segment is None:
                return None
            with SegmentFile(self.folder, segment.key) as file:
                at = file.index.at_offset(offset)
                position = file.index.positions(at)[0]
                for header, _ in file.batches(at):
                    if header.next_offset > offset:
                        span = (segment.base_offset, segment.end_offset)
                        return RecordLocation(file.path, *span, position, header, segment.segment_id)
                    position += header.size
                raise CorruptDataError(f"{file.path}: expected a batch with offset {offset}, found none")

        return self._newest(find)

    def find_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a time; None when all are older.

        Raises:
            CorruptDataError, StorageError: As `fetch`.

        Cost: one index and a block or two.
        """

        def find(manifest: RemoteManifest) -> tuple[int, int] | None:
            for segment in manifest.segments:
                if segment.max_timestamp_ms >= timestamp_ms and (found := self._find_time(segment, timestamp_ms)):
                    return found
            return None

        return self._newest(find)

    def _find_time(self, segment: RemoteSegment, timestamp_ms: int) -> tuple[int, int] | None:
        with SegmentFile(self.folder, segment.key) as file:
            for block in range(file.index.before_time(timestamp_ms), len(file.index)):
                for header, _ in file.batches(block):
                    if header.timestamp_ms >= timestamp_ms and header.record_count:
                        return header.base_offset, header.timestamp_ms
        return None

    def _newest(self, find: Callable[[RemoteManifest], T]) -> T:
        """Look into the newest manifest, again where its files go away under the look."""
        for _ in range(_MANIFESTS_MAX):
            manifest = self.manifest
            try:
                return find(manifest)
            except FileNotFoundError as error:
                if self._manifest is manifest:
                    self._check_there()
                    raise CorruptDataError(
                        f"{self._log.title}: a file of the remote log is missing: {error.filename}; restore it from a copy"
                    ) from error
            except OSError as error:
                raise StorageError(f"{self._log.title}: the remote log cannot be read: {reason_of(error)}") from error
            except (CorruptDataError, UnsupportedError) as error:
                raise type(error)(f"{self._log.title}: {error}") from error
        raise NotLeaderError(f"{self._log.title}: its remote segments expire faster than they can be read; retry")

    # -- growing -------------------------------------------------------------------------------------------------------

    def copy_next(
        self, rolled: Sequence[Segment], schemas: Mapping[int, pa.Schema], durable_offset: int, now_ms: int
    ) -> RemoteSegment | None:
        """Copy the oldest segment that was not copied yet; None when there is none.

        Args:
            rolled: The log's segments but the last, oldest first.
            schemas: Arrow schema of each schema id.
            durable_offset: Of the log; nothing above it is copied.
            now_ms: Kept with the copy.

        Returns:
            What was copied, once the manifest that names it is on the device.

        Raises:
            CorruptDataError: The segment is damaged, or as `manifest`.
            StorageError: Remote storage refused; it is tried again when called again.
        """
        manifest = self.manifest
        with self._lock:
            manifest = self._manifest or manifest
            segment = next((each for each in rolled if manifest.copied_offset <= each.base_offset), None)
            if self._closed.is_set() or segment is None or segment.end_offset > durable_offset:
                return None
            try:
                copied = self._copy(segment, manifest, schemas, now_ms)
            except FlussError as error:
                self._copy_problem = None if isinstance(error, NotLeaderError) else error
                raise
            finally:
                # Whatever was left by an attempt that failed goes before the next one.
                self._is_tidy = self._is_tidy and self._manifest is not manifest
            self._copy_problem = None
            return copied

    def _copy(
        self, segment: Segment, manifest: RemoteManifest, schemas: Mapping[int, pa.Schema], now_ms: int
    ) -> RemoteSegment | None:
        self._check_there()
        try:
            self._store.make_folder(self.folder)
            copied = copy_segment(segment, self.folder, schemas, created_ms=now_ms, check=self._check_open)
            failpoint("remote.manifest.before")
            try:
                self._replace(manifest, manifest.add(copied))
            finally:
                if self._is_fenced:
                    self._remove(self.folder / copied.segment_id)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not segment.path.exists():
                return None  # retention was faster
            raise StorageError(
                f"{self._log.title}: {segment.path.name} could not be copied to {self.folder}: {error.strerror or error}. "
                "It stays here, and is tried again"
            ) from error
        except CorruptDataError as error:
            raise CorruptDataError(f"{self._log.title}: not copied to remote storage: {error}") from error
        self._log.info("copied [%d, %d) to remote storage: %d bytes of %d", copied.base_offset, copied.end_offset,
                       copied.size_bytes, segment.size)  # fmt: skip
        return copied

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise NotLeaderError(f"{self._log.title}: the bucket was closed")

    def note_dropped(self, offset: int) -> None:
        """Note durably that local segments below an offset may be deleted, because they are in the remote log.

        From then on the bucket is not opened without a manifest that reaches so far.

        Raises:
            StorageError: The disk refused: they must not be deleted.
        """
        try:
            self._mark.raise_to(offset)
        except OSError as error:
            raise StorageError(f"{self._log.title}: {self._mark.path}: {error.strerror or error}") from error

    # -- shrinking -----------------------------------------------------------------------------------------------------

    def expire(self, time_ms: int, offset_max: int | None) -> int:
        """Drop the oldest segments whose records are all older than a time and below an offset; return how many.

        Args:
            time_ms: Records at or after it stay.
            offset_max: Records at or above it stay; None for no such bound.

        Raises:
            CorruptDataError, StorageError: As `manifest`; or remote storage refused, and nothing was dropped.
        """
        manifest = self.manifest
        if not _count_expired(manifest, time_ms, offset_max):
            return 0  # as most passes find: nothing of the folder needs to be believed
        self._check_there()
        with self._lock:
            manifest = self._manifest or manifest
            count = _count_expired(manifest, time_ms, offset_max)
            if count and not self._closed.is_set():
                try:
                    self._replace(manifest, manifest.without_first(count))
                except OSError as error:
                    raise StorageError(f"{self._log.title}: {self.folder}: {error.strerror or error}") from error
                self._log.info("dropped %d segments of the remote log", count)
            return count

    def _replace(self, before: RemoteManifest, after: RemoteManifest) -> None:
        """Make another manifest durable, then known, then delete the files that it no longer names."""
        self._is_unsure = True
        self._save(after)
        failpoint("remote.manifest.after")
        self._manifest, self._is_unsure = after, False
        kept = {each.segment_id for each in after.segments}
        for segment in before.segments:
            if segment.segment_id not in kept:
                failpoint("remote.retention.before_delete")
                self._remove(self.folder / segment.segment_id)

    def _save(self, manifest: RemoteManifest, *, holds: bool = False) -> None:
        try:
            if holds:
                self._file.hold(manifest)
            else:
                self._file.save(manifest)
        except ObjectExistsError as error:
            # What is in it now may name other files than those that are known here: nothing is read or removed by it.
            self._manifest, self._is_fenced = None, True
            self._problem = StorageError(
                f"{self._log.title}: {self._file.place} was replaced by another server: expected it as this one wrote it. Two "
                "servers run on copies of one lab's folder: stop the one that is not to go on, then start this one again"
            )
            raise self._problem from error

    def tidy(self) -> None:
        """Remove what crashed copies and retentions left. Done once, and again after something failed."""
        with self._lock:
            is_due = not (self._is_tidy or self._is_unsure or self._closed.is_set())
            if not is_due or (manifest := self._manifest) is None:
                return
            self._is_tidy = True
            kept = {each.segment_id for each in manifest.segments}
            try:
                names = self._store.names(self.folder)
                left = [name for name in names if _DRAFT.match(name)]
                left += [name for name in names if _SEGMENT_FOLDER.fullmatch(name) and name not in kept]
                if left:
                    self._save(manifest, holds=True)
            except (OSError, StorageError) as error:
                self._is_tidy = False
                self._log.warning("%s is tidied later: %s", self.folder, error)
                return
            for name in left:
                self._remove(self.folder / name, is_folder=_DRAFT.match(name) is None)

    def _remove(self, path: Place, *, is_folder: bool = True) -> None:
        try:
            if is_folder:
                self._store.remove_folder(path)
            else:
                self._store.remove(path)
        except OSError as error:
            self._is_tidy = False
            self._log.warning("%s could not be removed, and is tried again: %s", path, error)

    def close(self) -> None:
        """Change nothing from now on; a copy under way ends soon and leaves nothing behind. Closing again does nothing."""
        self._closed.set()
        with self._lock:
            pass  # a task under way has ended


def _count_expired(manifest: RemoteManifest, time_ms: int, offset_max: int | None) -> int:
    """Return how many of the oldest segments are wholly older than a time and below an offset."""
    for count, segment in enumerate(manifest.segments):
        if segment.max_timestamp_ms >= time_ms or (offset_max is not None and segment.end_offset > offset_max):
            return count
    return len(manifest.segments)

"""The account that a bucket keeps of its remote log: the manifest of its segments, and a mark in the bucket's own folder.

The manifest, JSON with a seal in the bucket's remote folder, says which segments there are: what it does not name does not
exist. It is replaced at once, after the files that it names are on the device and before any that it no longer names is
removed. Nothing in it is a path, so the folder may be moved.

The mark says up to which offset segments were deleted here because the remote log has them. Without it, a remote log that
is missing as a whole (another ``remote.data.dir``, a folder not mounted) would look like one that never was, and its
records as if they were never written. It also says where the log ended when it was first opened without a look at the
remote log: what that has of offsets from there on is of another log.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import Whole, decode, encode
from fluss_lab.model.names import TableBucket
from fluss_lab.records.checksummed_json import read_sealed, seal_content
from fluss_lab.records.remote_segment import SegmentKey
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.single_writer import GuardedFile

FILE_NAME: Final = "manifest"
VERSION: Final = 1
MARK_FILE: Final = "remote-log"
MARK_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """One segment in remote storage.

    Attributes:
        segment_id: A UUID, the name of its folder.
        base_offset: Offset of its first record.
        end_offset: Offset after its last record.
        size_bytes: Of its batches, as they lie in remote storage.
        first_timestamp_ms: Of its first record.
        max_timestamp_ms: Of its last record.
        created_ms: When it was copied.
    """

    segment_id: str
    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    created_ms: int

    @property
    def key(self) -> SegmentKey:
        """Return what its files are found and checked by."""
        return SegmentKey(self.segment_id, self.base_offset, self.end_offset, self.size_bytes)


@dataclass(frozen=True, slots=True)
class RemoteManifest:
    """What remote storage holds of a bucket. It never changes; changes make another one.

    Attributes:
        bucket: Whose it is.
        copied_offset: All segments below it were copied at some time; 0 before the first.
        segments: Those that are there, oldest first, without a hole.
    """

    bucket: TableBucket
    copied_offset: int = 0
    segments: tuple[RemoteSegment, ...] = ()
    _bases: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bases", tuple(each.base_offset for each in self.segments))

    @property
    def start(self) -> int:
        """Return the first offset held; `copied_offset` when nothing is."""
        return self._bases[0] if self.segments else self.copied_offset

    @property
    def end(self) -> int:
        """Return the offset after the last one held."""
        return self.segments[-1].end_offset if self.segments else self.copied_offset

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(each.size_bytes for each in self.segments)

    def from_offset(self, offset: int) -> tuple[RemoteSegment, ...]:
        """Return the segments from the one that holds an offset on; empty when none does."""
        if not self.start <= offset < self.end:
            return ()
        return self.segments[bisect_right(self._bases, offset) - 1 :]

    def add(self, segment: RemoteSegment) -> RemoteManifest:
        """Return the manifest with a segment more. Segments that it does not continue are left out: see `RemoteLog`."""
        before = self.segments if self.end == segment.base_offset else ()
        return replace(self, copied_offset=segment.end_offset, segments=(*before, segment))

    def without_first(self, count: int) -> RemoteManifest:
        """Return the manifest without its oldest segments."""
        return replace(self, segments=self.segments[count:])


class _Content(msgspec.Struct, omit_defaults=True):
    """The file."""

    table_id: Whole
    partition_id: Whole | None
    bucket: Whole
    copied_offset: Whole
    segments: tuple[RemoteSegment, ...]
    #: Of the server that saw to leftovers last, in an object store: see `ManifestFile.hold`.
    hold: str | None = None

    def __post_init__(self) -> None:
        for before, after in pairwise(self.segments):
            if before.end_offset != after.base_offset:
                raise ValueError(f"a hole between offsets {before.end_offset} and {after.base_offset}")
        if any(each.base_offset >= each.end_offset for each in self.segments):
            raise ValueError("a segment without records")

    def manifest(self) -> RemoteManifest:
        bucket = TableBucket(self.table_id, self.partition_id, self.bucket)
        return RemoteManifest(bucket, self.copied_offset, self.segments)


class ManifestFile:
    """The manifest in a bucket's remote folder, replaced only by who knows what is in it. For one thread at a time.

    Args:
        folder: The bucket's remote folder.
    """

    def __init__(self, folder: Place, bucket: TableBucket) -> None:
        self._bucket = bucket
        self._file = GuardedFile(folder / FILE_NAME)
        self._hold: str | None = None

    @property
    def place(self) -> Place:
        """Return where it is."""
        return self._file.place

    def load(self) -> RemoteManifest | None:
        """Return the manifest; None when there is none.

        Raises:
            CorruptDataError: It is damaged, or another bucket's.
            UnsupportedError: A newer version wrote it.
            OSError: It cannot be read.
        """
        if (data := self._file.load()) is None:
            return None
        manifest = read_sealed(_Content, data, str(self.place), version=VERSION, remedy=_REMEDY).manifest()
        bucket = self._bucket
        if manifest.bucket != bucket:
            raise CorruptDataError(
                f"{self.place}: expected the manifest of {bucket}, found that of {manifest.bucket}; {_REMEDY}"
            )
        return manifest

    def save(self, manifest: RemoteManifest) -> None:
        """Replace the manifest, durably; it raises as `GuardedFile.save`."""
        bucket = manifest.bucket
        content = _Content(
            bucket.table_id, bucket.partition_id, bucket.bucket, manifest.copied_offset, manifest.segments, self._hold
        )
        self._file.save(seal_content(encode(content, version=VERSION, indent=1)))

    def hold(self, manifest: RemoteManifest) -> None:
        """Replace the manifest by the same one, so that what another server has copied meanwhile can no longer be named.

        Only then is what this one does not name a leftover. A local folder needs it not: the lab's lock keeps others out.
        It raises as `save`.
        """
        if not isinstance(self.place, Path):
            # Another content, as versions of some stores are sums of contents.
            self._hold = uuid.uuid4().hex
            self.save(manifest)


def load(folder: Place, bucket: TableBucket) -> RemoteManifest | None:
    """Return the manifest in a bucket's remote folder; None when there is none: see `ManifestFile.load`."""
    return ManifestFile(folder, bucket).load()


_REMEDY: Final = (
    "restore the file from a copy. Its segments are beside it and are left alone; nothing more is copied until then"
)


class _Mark(msgspec.Struct, omit_defaults=True):
    """The file."""

    dropped_offset: Whole
    unseen_from: Whole | None = None


class DroppedMark:
    """The mark of one bucket.

    Args:
        folder: The bucket's own; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / MARK_FILE
        self._offset = 0
        self._unseen_from: int | None = None

    def load(self) -> int:
        """Return the offset; 0 when there is no mark.

        Raises:
            CorruptDataError: The mark cannot be read.
            UnsupportedError: A newer version wrote it.
            OSError: The file system refused.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            self._offset, self._unseen_from = 0, None
        else:
            # Before there were versions, the offset was the only member.
            version = MARK_VERSION if b'"version"' in data else None
            found = decode(_Mark, data, self.path, version=version, remedy=_MARK_REMEDY)
            self._offset, self._unseen_from = found.dropped_offset, found.unseen_from
        return self._offset

    @property
    def unseen_from(self) -> int | None:
        """Return where the log ended, by the mark that was loaded last, when it was first opened without the remote log."""
        return self._unseen_from

    def raise_to(self, offset: int) -> None:
        """Put the mark at an offset, durably, if it is below.

        Raises:
            OSError: The file system refused.
        """
        if offset > self._offset:
            self._write(_Mark(offset, self._unseen_from))

    def note_unseen(self, log_end: int) -> None:
        """Note durably where a log ends that is opened without the remote log, unless that was noted before.

        Raises:
            CorruptDataError, UnsupportedError, OSError: As `load`; or the file system refused to write.
        """
        self.load()
        if self._unseen_from is None or log_end < self._unseen_from:
            self._write(_Mark(self._offset, log_end))

    def note_seen(self) -> None:
        """Take back durably what `note_unseen` noted: the remote log is known, and belongs to the log.

        Raises:
            OSError: The file system refused.
        """
        if self._unseen_from is not None:
            self._write(_Mark(self._offset))

    def _write(self, mark: _Mark) -> None:
        files.write_atomic(self.path, encode(mark, version=MARK_VERSION, indent=1))
        self._offset, self._unseen_from = mark.dropped_offset, mark.unseen_from


_MARK_REMEDY: Final = (
    "not the mark of a remote log, and without its manifest it is not known up to where segments were moved to remote "
    "storage; restore the manifest or this file from a copy"
)

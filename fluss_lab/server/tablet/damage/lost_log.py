"""The log of a bucket of which no segment is left: what is known of it elsewhere, and an empty one in its place.

The empty one is damaged from its first offset on, up to where the log is known to have been: so it is refused like any
damaged log, and its damage can be given up like any.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.model.names import TableBucket
from fluss_lab.server.kv.snapshot_folder import SnapshotFolder
from fluss_lab.server.tablet.buckets.bucket import LakeState
from fluss_lab.server.tablet.damage.log_cut import GIVEN_UP_FILE
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.batch_admission import WriterStates
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX, SegmentMark
from fluss_lab.server.tablet.log.sparse_index import IndexMark
from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.storage.file_store import Place

#: What may be left beside the segments, and belongs to the bucket without them.
_BESIDE: Final = (GIVEN_UP_FILE, remote_manifest.MARK_FILE)


@dataclass(frozen=True, slots=True)
class LostLog:
    """What is known of a log that is gone.

    Attributes:
        start: Its first offset; where that is no longer known, the first that the lake or remote storage holds.
        end: Offset below which its records were on the device, as far as is known.
        floor_ms: No later record may have an earlier timestamp.
        writers: Its writers, as far as they are known.
    """

    start: int
    end: int
    floor_ms: int
    writers: WriterStates

    @staticmethod
    def of(
        folder: Path,
        bucket: TableBucket,
        lake: LakeState | None,
        *,
        remote: Place,
        snapshots: Place,
        durable_offset: int,
    ) -> LostLog:
        """Return what is known of a bucket's log.

        Args:
            folder: The bucket's, or where it was.
            lake: What the lake holds of it.
            remote: Its folder in remote storage.
            snapshots: The folder of its key-value snapshots.
            durable_offset: Up to where it was on the device, as the coordinator knows.

        Raises:
            CorruptDataError, UnsupportedError: What remote storage holds, or what is left in the folder, cannot be read.
            OSError: The file system refused.
        """
        known, noted = recovery_point.load(folder), recovery_point.load_start(folder)
        held = remote_manifest.load(remote, bucket)
        kept = SnapshotFolder(snapshots, bucket).manifests()
        if known is not None or noted is not None:
            start = recovery_point.expected_start(folder, None if known is None else known.segments[0].base_offset)
        elif held is not None and held.segments:
            start = held.start
        else:
            start = 0 if lake is None else lake.start
        ends = [start, durable_offset, *(each.log_offset for each in kept)]
        floor_ms = 0  # what the lake knows is minded when the log is cut
        if known is not None:
            ends.append(known.recovery_point)
            floor_ms = known.floor_ms
        if held is not None:
            ends.append(held.copied_offset)
        if lake is not None:
            ends.append(lake.end)
        return LostLog(start, max(ends), floor_ms, WriterStates() if known is None else known.writers)

    def with_log(self, log: BucketLog) -> LostLog:
        """Return the same, with what is known of the log by the server that has it open."""
        floor_ms = max(self.floor_ms, log.floor_ms)
        return LostLog(log.start, max(self.end, log.end), floor_ms, log.writers())

    def note(self, place: Path) -> None:
        """Note in a folder that has the bucket's identity what its log was; there is none as long as it has no segment.

        Raises:
            OSError: The file system refused.
        """
        if self.start:
            recovery_point.save_start(place, self.start)
        mark = SegmentMark(self.start, 0, self.start, -1, IndexMark())
        recovery_point.save(place, Checkpoint(self.end, self.floor_ms, (mark,), self.writers), durable=True)

    def begin(self, place: Path) -> None:
        """Begin an empty log where it was noted what it was.

        Raises:
            OSError: The file system refused.
        """
        files.write_atomic(place / f"{self.start:020d}{LOG_SUFFIX}", b"")


def copy_beside(folder: Path, place: Path) -> None:
    """Copy what is left beside the segments of a bucket's folder, if that is there, to another place.

    Raises:
        OSError: The file system refused.
    """
    for name in _BESIDE:
        if (folder / name).exists():
            shutil.copyfile(folder / name, place / name)

"""The damage of a bucket's log, what else holds the records, and the cut that leaves them out.

A log has no holes. So the log is made to begin behind the damage, like after retention: everything before must be held
elsewhere first, or be discarded explicitly. The lake may hold it, or remote storage, from which no cut loses anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab.errors import ConflictError, CorruptDataError, UnavailableError, UnsupportedError, UntieredRecordsError
from fluss_lab.server.tablet.buckets.bucket import Bucket, LakeState
from fluss_lab.server.tablet.damage.damaged_ranges import DamagedRange, SoundTail, damaged_ranges
from fluss_lab.server.tablet.damage.log_cut import GivenUpRange, LogCut
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.log_reader import Frontier
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import SegmentMark
from fluss_lab.server.tablet.log.sparse_index import IndexMark
from fluss_lab.storage.file_store import Place

#: Looks at a log that is being written, until two agree.
_LOOKS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class BucketDamage:
    """What is damaged of a bucket's log, and what else there is of it.

    Attributes:
        start: First offset that the cluster holds, were all of it sound.
        end: Offset that the next record gets, as far as it is known.
        ranges: What cannot be read, ascending; a batch of a newer format is not among it. Of a sound log that begins behind
            what its rows are made from: one empty range at its start.
        remote_end: Remote storage holds what is before this offset, from `start` on; None: it does not lead into the log.
        lake: What the lake holds.
        rows_offset: Offset from which on the rows of a primary-key table's bucket can be made again from the log: that of
            its newest whole snapshot, or the end where the rows in memory are those of the log; None of a log table.
        lake_rows_offset: The lake has the rows as they were at this offset, and all of the log from there on is sound; None
            where that is not so, or not needed.
        is_gone: Whether nothing of the log is left on the disk.
        snapshots: Where the key-value snapshots are, of a sound log that begins behind the newest that is whole; else None.
    """

    start: int
    end: int
    ranges: tuple[DamagedRange, ...]
    remote_end: int | None
    lake: LakeState | None
    rows_offset: int | None
    lake_rows_offset: int | None = None
    is_gone: bool = False
    snapshots: Place | None = None

    @property
    def file(self) -> str:
        """Return what to restore from a copy, of the first of what is damaged."""
        return str(self.snapshots or self.ranges[0].path)


def find_damage(bucket: Bucket, folder: Path, durable_offset: int) -> BucketDamage:
    """Return what is damaged of a bucket; its log takes no more records where that is anything.

    Args:
        bucket: Open.
        folder: Its own.
        durable_offset: Up to where its log was on the device, as the coordinator knew when it was opened.

    Raises:
        CorruptDataError, StorageError, UnsupportedError: It is not known what remote storage holds; or the log goes on in a
            newer format, or its rows are of one.
        OSError: A file cannot be read.

    Cost: reads every byte of the log on the server's disk, and decodes every batch.
    """
    log, lake = bucket.log, bucket.lake if bucket.table.lake_enabled else None
    if isinstance(log.stopped, UnsupportedError):
        raise type(log.stopped)(str(log.stopped))
    known_end = log.end
    if segment_bases(folder):
        ranges = _ranges(bucket, folder, max(durable_offset, known_end))
    else:
        ranges = [DamagedRange(folder, log.start, max(durable_offset, known_end), 0)]
    if ranges:
        _stop(bucket, ranges[0], folder)
    local_start = min(log.start, ranges[0].start) if ranges else log.start
    rows_offset = None if bucket.kv is None else bucket.kv.rows_offset()
    held = None if bucket.remote is None else bucket.remote.manifest
    leads = held is not None and held.segments and held.start <= local_start <= held.end
    if held is None or not leads:
        held = None
    elsewhere = [0 if lake is None else lake.end, 0 if held is None else held.end, rows_offset or 0]
    if ranges and ranges[-1].stop > max(segment_bases(folder), default=-1) and ranges[-1].position is None:
        # The end itself is lost: offsets that were seen are not given again.
        ranges[-1] = ranges[-1]._replace(stop=max(ranges[-1].stop, *elsewhere))
    is_gone = bool(ranges) and _is_gone(folder, ranges, local_start)
    snapshots = None
    if not ranges and bucket.kv is not None and rows_offset is not None and rows_offset < log.start:
        snapshots = bucket.kv.snapshots.folder
        ranges.append(DamagedRange(folder, log.start, log.start, 0))
    needs_rows = bool(ranges) and rows_offset is not None and rows_offset < ranges[-1].stop
    return BucketDamage(
        start=local_start if held is None else min(held.start, local_start),
        end=max(known_end, ranges[-1].stop) if ranges else known_end,
        ranges=tuple(ranges),
        remote_end=None if held is None else held.end,
        lake=lake,
        rows_offset=rows_offset,
        lake_rows_offset=_lake_rows(folder, ranges, lake, is_gone=is_gone) if needs_rows and lake else None,
        is_gone=is_gone,
        snapshots=snapshots,
    )


def _is_gone(folder: Path, ranges: list[DamagedRange], local_start: int) -> bool:
    """Return whether nothing that can be read is left of a log."""
    (first, *others), bases = ranges, segment_bases(folder)
    return not others and first.start == local_start and SoundTail.find(folder, first).path is None and len(bases) <= 1


def _lake_rows(folder: Path, ranges: list[DamagedRange], lake: LakeState, *, is_gone: bool) -> int | None:
    """Return the offset at which the lake has the rows, so that what can be read of the log follows on them."""
    if is_gone:
        return min(lake.end, ranges[-1].stop)
    return SoundTail.find(folder, ranges[-1]).boundary(lake.end)


def _ranges(bucket: Bucket, folder: Path, durable_offset: int) -> list[DamagedRange]:
    """Return what cannot be read. Of a log that goes on being written, only what is found twice counts.

    Retention may take segments away between two steps of a look: then it finds another beginning, or a file gone.
    """
    before: list[DamagedRange] | None = None
    for _ in range(_LOOKS_MAX):
        until = bucket.log.reader.view.frontier if bucket.log.stopped is None else None
        try:
            found = list(damaged_ranges(folder, bucket.table.schemas, durable_offset, until))
        except FileNotFoundError:
            continue
        if not found or found == before or until is None:
            return found
        before = found
    raise UnavailableError(f"{bucket.table.path}, bucket {bucket.id}: its files change while they are read; try again")


def confirm_damage(bucket: Bucket, folder: Path, durable_offset: int, error: CorruptDataError) -> CorruptDataError:
    """Return what to say of bytes that failed their checks when they were read: which file and offsets that is, if so.

    Args:
        bucket: As `look`, which stops it.
        folder: As `look`.
        durable_offset: As `look`.
        error: Of the check that failed.

    Raises:
        FlussError, OSError: As `look`.
    """
    find_damage(bucket, folder, durable_offset)
    ended = bucket.log.reader.ended_by
    return error if ended is None else CorruptDataError(f"{ended} ({error})")


def _stop(bucket: Bucket, first: DamagedRange, folder: Path) -> None:
    """Serve a log up to its first damaged range only."""
    reason = CorruptDataError(
        f"{first.path}: offsets [{first.start}, {first.stop}) cannot be read; restore the file from a copy and start the server "
        f"again, or give them up: fluss-lab repair {bucket.table.path} --skip-corrupt"
    )
    if first.path == folder:
        bucket.log.stop_for(reason)  # its beginning is gone: all that is there can be read
    else:
        bucket.log.end_by(reason, Frontier(int(first.path.stem), first.end_position, first.start))


def cut_behind(
    found: BucketDamage, start: int, stop: int, *, discard: bool, now_ms: int, sent_offset: int | None = None
) -> LogCut:
    """Return how a log is cut so that its first damaged range is left out, and nothing else is lost.

    Args:
        found: What is damaged.
        start: Of the first damaged range, as the caller knows it.
        stop: Likewise.
        discard: Whether sound records before it that are held nowhere else may be lost too; and of a log of which nothing
            is left, all that is held nowhere else.
        now_ms: Kept with what is given up.
        sent_offset: The rows were sent as they were at this offset; None: they were not.

    Raises:
        ConflictError: The first damaged range is another one: describe the damage again.
        UntieredRecordsError: Sound records before it would be lost; or records of a log of which nothing is left.
        UnsupportedError: The rows of a primary-key table need what is damaged.
    """
    damaged = found.ranges[0] if found.ranges else None
    if damaged is None or (damaged.start, damaged.stop) != (start, stop):
        shown = "none" if damaged is None else f"[{damaged.start}, {damaged.stop})"
        raise ConflictError(f"expected [{start}, {stop}) to be the first offsets that cannot be read, found {shown}")
    to, lost_start, is_keyed = stop, stop, found.rows_offset is not None
    if found.remote_end is not None and start < found.remote_end < stop and not (found.is_gone and is_keyed):
        # What it holds of the damage goes first: nothing is lost by that.
        to = lost_start = found.remote_end
    elif found.remote_end is None or found.remote_end < stop:
        lost_start = _lost_start(found, damaged, discard=discard)
    rows_offset = None if found.rows_offset is None else max(found.rows_offset, sent_offset or 0)
    if found.is_gone:
        _check_discard(min(lost_start, to if rows_offset is None else rows_offset), to, discard=discard)
    elif rows_offset is not None and rows_offset < to:
        raise UnsupportedError(
            f"the rows are made from the changes since offset {rows_offset}, where their newest key-value snapshot is, "
            f"and [{rows_offset if start == stop else start}, {stop}) of them cannot be read: restore {found.file} from a copy"
        )
    source = damaged.path.name if damaged.position is not None and to == stop else None
    noted = GivenUpRange(start, to, lost_start, now_ms)
    return LogCut(to, source, damaged.position or 0, noted)


def _check_discard(lost_start: int, stop: int, *, discard: bool) -> None:
    if lost_start < stop and not discard:
        raise UntieredRecordsError(
            f"nothing of the log is left, and offsets [{lost_start}, {stop}) are held nowhere else: restore the bucket's folder "
            "from a copy, or discard them. Nothing was changed"
        )


def _lost_start(found: BucketDamage, damaged: DamagedRange, *, discard: bool) -> int:
    """Return the offset from which what is given up is held nowhere else, up to the end of the damage."""
    held = lake_end(found)
    if held < damaged.start and not discard:
        raise UntieredRecordsError(
            f"offsets [{held}, {damaged.start}) lie before what cannot be read, are sound, and are held nowhere else: tier "
            "them first, or discard them. Nothing was changed"
        )
    return min(held if held < damaged.start else max(held, damaged.start), damaged.stop)


def lake_end(found: BucketDamage) -> int:
    """Return up to where the lake holds what the cluster has, from its first offset on; that offset, where it does not.

    Of rows that are to be made from the lake's: up to where it holds the bucket.
    """
    lake = found.lake
    # What a primary-key table has before the first offset that the lake can replay is in it as rows: see retention.
    if lake is None or (found.rows_offset is None and lake.start > found.start):
        return found.start
    return lake.end if found.snapshots is not None else max(found.start, lake.end)


def checkpoint_behind(bucket: Bucket, folder: Path, start: int) -> Checkpoint:
    """Return the recovery point of a log that is to begin at an offset: it keeps what is known of writers and times.

    Batches behind it are read again when the log is opened; those that the writers have are below its offset.
    """
    log, known = bucket.log, recovery_point.load(folder)
    point = max(start, log.end, 0 if known is None else known.recovery_point)
    floor_ms = max(log.floor_ms, -1 if bucket.lake is None else bucket.lake.max_timestamp_ms)
    mark = SegmentMark(start, 0, start, -1, IndexMark())
    return Checkpoint(point, floor_ms, (mark,), log.writers())

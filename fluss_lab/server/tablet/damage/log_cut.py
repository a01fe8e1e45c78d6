"""The cut of a bucket's log, which then begins behind records that cannot be read, and the note of what it gave up.

The note is one small file, ``given-up``, replaced at once, with a checksum of its own and the identity of its bucket.

`begin` is the moment at which a cut is decided, in that file; `finish` does the rest, and is called whenever the bucket is
opened, until it has come to its end. In between, every step may be interrupted and repeated:

1. what follows the damage in its segment gets a segment of its own;
2. the log's first offset is noted;
3. the segments before it are deleted, the oldest first;
4. what was given up is noted for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.checksummed_json import load_sealed, save_sealed
from fluss_lab.server.tablet.buckets.bucket_folders import folder_identity
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.previous_offsets import MARKS_SUFFIX, VALUES_SUFFIX, PreviousOffsets
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX
from fluss_lab.server.tablet.log.sparse_index import OFFSET_SUFFIX, TIME_SUFFIX

GIVEN_UP_FILE: Final = "given-up"
VERSION: Final = 1
_REMEDY: Final = "restore it from a copy, or delete it: what was given up of the bucket is then no longer known"
#: Between the steps, in order. Ended at any of them, opening the bucket finishes it, or it can be requested again.
FAILPOINTS: Final = (
    "tablet.cut.before",
    "tablet.cut.checkpoint",
    "tablet.cut.begun",
    "tablet.cut.segment",
    "tablet.cut.start",
    "tablet.cut.before_delete",
    "tablet.cut.deleted",
)
_SUFFIXES: Final = (OFFSET_SUFFIX, TIME_SUFFIX, VALUES_SUFFIX, MARKS_SUFFIX)
#: Two files of previous offsets are open at once.
_HANDLES: Final = 4


@dataclass(frozen=True, slots=True)
class GivenUpRange:
    """Offsets ``[start, stop)`` that were given up.

    Attributes:
        start: First offset that could not be read.
        stop: Where the log could be read again.
        lost_start: Offsets ``[lost_start, stop)`` were held neither by the lake nor by remote storage;
            `stop` when there were none. It is below `start` where sound records before the damage were discarded too.
        time_ms: When that was done.
    """

    start: int
    stop: int
    lost_start: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class LogCut:
    """A log that is to begin at an offset.

    Attributes:
        start: The offset.
        source: Name of the segment in which its batch is, at `position`; None: it begins a segment, or there is none yet.
        position: See there.
        noted: What is given up by it.
    """

    start: int
    source: str | None
    position: int
    noted: GivenUpRange


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What was given up of a bucket's log.

    Attributes:
        ranges: In the order in which they were given up.
        pending: What has begun, and is to be finished before the log is used; None: nothing.
    """

    ranges: tuple[GivenUpRange, ...] = ()
    pending: LogCut | None = None


class _Noted(msgspec.Struct):
    """The file: what was given up, and of which bucket."""

    identity: str
    ranges: tuple[GivenUpRange, ...]
    pending: LogCut | None


def save_given_up(folder: Path, given_up: GivenUp) -> None:
    """Replace what is noted in a bucket's folder, durably.

    Raises:
        OSError: The file system refused; what was noted stands.
    """
    noted = _Noted(folder_identity(folder), given_up.ranges, given_up.pending)
    save_sealed(folder / GIVEN_UP_FILE, noted, version=VERSION, indent=0)


def load_given_up(folder: Path) -> GivenUp:
    """Return what is noted in a bucket's folder; nothing where there is no file.

    Raises:
        CorruptDataError: The file is damaged, or another bucket's.
        UnsupportedError: A newer version wrote it.
        OSError: It cannot be read.
    """
    path = folder / GIVEN_UP_FILE
    if (noted := load_sealed(_Noted, path, version=VERSION, remedy=_REMEDY)) is None:
        return GivenUp()
    if noted.identity != (identity := folder_identity(folder)):
        raise CorruptDataError(
            f"{path}: expected what was given up of bucket {identity!r}, found that of {noted.identity!r}; {_REMEDY}"
        )
    return GivenUp(noted.ranges, noted.pending)


def begin(folder: Path, cut: LogCut, checkpoint: Checkpoint) -> None:
    """Decide that the log in a folder begins at a later offset; `finish` is called before it is read.

    Args:
        folder: The bucket's; its log is closed.
        cut: Where it begins.
        checkpoint: What is known there of writers and times, which may have been in what goes.

    Raises:
        OSError: The file system refused; nothing was decided.
    """
    failpoint("tablet.cut.before")
    recovery_point.save(folder, checkpoint, durable=True)
    failpoint("tablet.cut.checkpoint")
    save_given_up(folder, replace(load_given_up(folder), pending=cut))
    failpoint("tablet.cut.begun")


def finish(folder: Path) -> GivenUp:
    """Finish what `begin` decided, if anything is left of it; return what was given up of the bucket.

    Raises:
        CorruptDataError, UnsupportedError: As `load_given_up`.
        OSError: The file system refused; call it again.
    """
    noted = load_given_up(folder)
    if (cut := noted.pending) is None:
        return noted
    _make_segment(folder, cut)
    failpoint("tablet.cut.segment")
    recovery_point.save_start(folder, cut.start)
    failpoint("tablet.cut.start")
    _delete_before(folder, cut.start)
    failpoint("tablet.cut.deleted")
    done = GivenUp((*noted.ranges, cut.noted))
    save_given_up(folder, done)
    return done


def _make_segment(folder: Path, cut: LogCut) -> None:
    """Make the segment that begins at the cut, unless it is there: then it is whole, since it was made at once."""
    path = folder / f"{cut.start:020d}{LOG_SUFFIX}"
    if path.exists():
        return
    if cut.source is None:
        files.write_atomic(path, b"")
        return
    source = folder / cut.source
    base_offset = int(source.stem)
    PreviousOffsets(source.with_suffix(""), HandlePool(_HANDLES)).split_off(
        cut.start - base_offset, path.with_suffix("")
    )
    files.copy_atomic(source, cut.position, path)


def _delete_before(folder: Path, start: int) -> None:
    for base in segment_bases(folder):
        if base >= start:
            return
        failpoint("tablet.cut.before_delete")
        stem = folder / f"{base:020d}"
        for suffix in (*_SUFFIXES, LOG_SUFFIX):
            stem.with_suffix(suffix).unlink(missing_ok=True)
        files.fsync_folder(folder)

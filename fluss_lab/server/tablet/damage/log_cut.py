"""The cut of a bucket's log, which then begins behind records that cannot be read: its files, step by step.

`begin` is the moment at which it is decided; `finish` does the rest, and is called again whenever the bucket is opened, until
it has come to its end. In between, every step may be interrupted and repeated:

1. what follows the damage in its segment gets a segment of its own;
2. the log's first offset is noted;
3. the segments before it are deleted, the oldest first;
4. what was given up is noted for good.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.failpoints import failpoint
from fluss_lab.server.tablet.damage import given_up_ranges
from fluss_lab.server.tablet.damage.given_up_ranges import Cut, GivenUp
from fluss_lab.server.tablet.log import log_start, recovery_point
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_recovery import segment_bases
from fluss_lab.server.tablet.log.previous_offsets import MARKS_SUFFIX, VALUES_SUFFIX, PreviousOffsets
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX
from fluss_lab.server.tablet.log.sparse_index import OFFSET_SUFFIX, TIME_SUFFIX

#: Between the steps, in order. Ended at any of them, opening the bucket finishes it, or it can be asked for again.
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


def begin(folder: Path, cut: Cut, checkpoint: Checkpoint) -> None:
    """Decide that the log in a folder begins at a later offset; `finish` is to be called before anybody reads it.

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
    given_up_ranges.save(folder, replace(given_up_ranges.load(folder), pending=cut))
    failpoint("tablet.cut.begun")


def finish(folder: Path) -> GivenUp:
    """Finish what `begin` decided, if anything is left of it; return what was given up of the bucket.

    Raises:
        CorruptDataError, UnsupportedError: As `given_up_ranges.load`.
        OSError: The file system refused; call it again.
    """
    noted = given_up_ranges.load(folder)
    if (cut := noted.pending) is None:
        return noted
    _make_segment(folder, cut)
    failpoint("tablet.cut.segment")
    log_start.save(folder, cut.start)
    failpoint("tablet.cut.start")
    _delete_before(folder, cut.start)
    failpoint("tablet.cut.deleted")
    done = GivenUp((*noted.ranges, cut.noted))
    given_up_ranges.save(folder, done)
    return done


def _make_segment(folder: Path, cut: Cut) -> None:
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

"""The recovery point of a bucket: up to where its log is whole and on the device, and the note of where the log starts.

Two small files, each replaced at once, with a CRC of its own. The recovery point is never needed, only believed when it is
right: without it recovery reads all segments. So it is swapped in without waiting for the device, except when the log is
closed. One of a newer version is refused: what that version wrote into the log may be more than this one can judge.

The start is noted before what lies in front of it is deleted. Without the note a log whose first segments were lost would
look like one that dropped them. The recovery point knows the first segment too; so that neither file is a single point of
failure, a start is believed when one of them has it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab.clock import Clock
from fluss_lab.errors import CorruptDataError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.json_codec import Forms, Whole
from fluss_lab.records.checksummed_json import load_sealed, save_sealed
from fluss_lab.server.tablet.log.batch_admission import WriterStates
from fluss_lab.server.tablet.log.segment import SegmentMark

log = logging.getLogger(__name__)

FILE_NAME: Final = "recovery-point"
VERSION: Final = 1
START_FILE: Final = "log-start"
START_VERSION: Final = 1
_WRITERS: Final[Forms] = {WriterStates: (WriterStates.to_json, WriterStates.from_json)}
#: A recovery point is due after so many bytes: recovery then reads and checks the rest in 3 ms.
_DUE_BYTES: Final = 8 << 20
#: Or after so long: what an idle bucket leaves to check is small anyway.
_DUE_AFTER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A bucket's recovery point.

    Attributes:
        recovery_point: All records below this offset are whole and on the device.
        floor_ms: No later record has an earlier timestamp.
        segments: The segments at that moment, oldest first; the last one ends at the recovery point.
        writers: The writers at that moment.
    """

    recovery_point: int
    floor_ms: int
    segments: tuple[SegmentMark, ...]
    writers: WriterStates

    def mark_of(self, base_offset: int) -> SegmentMark | None:
        """Return the mark of the segment with a base offset; None without one."""
        return next((mark for mark in self.segments if mark.base_offset == base_offset), None)


class CheckpointSchedule:
    """When a log's recovery point is written again. Guarded by the log.

    Attributes:
        is_wanted: Whether something changed that the last one does not say, whatever was appended.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._covered, self._covered_ms = 0, clock.monotonic_ms()
        self.is_wanted = False

    def note(self, written_bytes: int) -> None:
        """Note that a recovery point was written above so many appended bytes."""
        self._covered, self._covered_ms = written_bytes, self._clock.monotonic_ms()

    def is_owed(self, written_bytes: int) -> bool:
        """Return whether the last one lacks anything, after so many appended bytes."""
        return self.is_wanted or written_bytes > self._covered

    def is_due(self, written_bytes: int) -> bool:
        """Return whether it lacks enough, or lacks it for long enough, to be written now."""
        fresh = written_bytes - self._covered
        waited_ms = self._clock.monotonic_ms() - self._covered_ms
        return self.is_wanted or fresh >= _DUE_BYTES or (fresh > 0 and waited_ms >= _DUE_AFTER_MS)


def save(folder: Path, checkpoint: Checkpoint, *, durable: bool) -> None:
    """Replace the recovery point of the bucket in a folder.

    Raises:
        OSError: The file system refused; the old one stands.
    """
    failpoint("tablet.checkpoint.before")
    save_sealed(folder / FILE_NAME, checkpoint, version=VERSION, forms=_WRITERS, durable=durable)


def load(folder: Path) -> Checkpoint | None:
    """Return the recovery point of the bucket in a folder; None when there is none that can be believed.

    Raises:
        UnsupportedError: A newer version wrote it.
    """
    remedy = "it is no recovery point, the log is read from its start"
    try:
        return load_sealed(Checkpoint, folder / FILE_NAME, version=VERSION, remedy=remedy, forms=_WRITERS)
    except CorruptDataError as error:
        log.warning("%s", error)
        return None


class _Start(msgspec.Struct):
    start: Whole


def save_start(folder: Path, offset: int) -> None:
    """Note, durably, that the log in a folder begins at an offset from now on.

    Raises:
        OSError: The file system refused; nothing in front of the offset may be deleted.
    """
    save_sealed(folder / START_FILE, _Start(offset), version=START_VERSION, indent=0)


def expected_start(folder: Path, checkpointed: int | None) -> int:
    """Return the first offset at which a folder's log may begin: a first segment behind it means that others are missing.

    Args:
        folder: The bucket's.
        checkpointed: The first segment of its checkpoint; None without one.

    Raises:
        UnsupportedError: A newer version noted it.
    """
    # A crash may come between noting a start and deleting what lies in front of it, not the other way round.
    return max(load_start(folder) or 0, checkpointed or 0)


def load_start(folder: Path) -> int | None:
    """Return what was noted; None when nothing was, or it cannot be believed.

    Raises:
        UnsupportedError: A newer version noted it.
    """
    try:
        found = load_sealed(_Start, folder / START_FILE, version=START_VERSION, remedy="it is no start of a log")
    except CorruptDataError as error:
        log.warning("%s", error)
        return None
    return None if found is None else found.start

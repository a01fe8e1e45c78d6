"""The admission of a writer's batches: which are new, which were appended already, and which come too early.

A writer numbers its batches per bucket from 0 up, by one; after the largest int32 comes 0 again. The last five
batches of each writer are remembered with their offsets (as many as a writer may have in flight), so that a retry is
answered and not appended again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    DuplicateSequenceError,
    FlussError,
    NotLeaderError,
    OutOfOrderSequenceError,
)
from fluss_lab.model.json_codec import from_plain
from fluss_lab.records.batch import BatchHeader
from fluss_lab.server.tablet.log.payload_validation import CheckedBatch

#: Batches remembered of each writer, as Apache Fluss: what a writer may have in flight at once.
BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
#: Writers remembered in one bucket: 500 bytes each in memory, 150 in the checkpoint, so 5 MB and 1.5 MB at most.
WRITERS_MAX: Final = 10_000
#: A writer is forgotten so long after it was first found idle, by the clock that never steps: one that the wall clock's step
#: makes look idle may still send a batch again, and one whose first batch that is would have it twice.
FORGET_DELAY_MS: Final = 3_600_000
#: A sequence further ahead than this is one that lies behind: sequences begin again at 0 after the largest int32.
_AHEAD_MAX: Final = (SEQUENCE_MAX + 1) // 2


class WrittenBatch(NamedTuple):
    """A batch that was appended: its sequence and its offsets ``[base_offset, end_offset)``.

    Attributes:
        crc: Of the batch as its writer sent it, which distinguishes another batch of the same number; None when it is
            not known: the changelog of a primary-key table, from which writers are recovered, holds other bytes.
    """

    sequence: int
    base_offset: int
    end_offset: int
    crc: int | None = None


@dataclass(slots=True)
class _Writer:
    """What is known of a writer, and since when it was found idle: by the monotonic clock of this process."""

    used_ms: int
    batches: list[WrittenBatch]
    idle_since_ms: int | None = None


def following(sequence: int) -> int:
    """Return the sequence after another."""
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


class WriterStates:
    """The writers of one bucket. Not safe for threads: the bucket's lock guards it."""

    def __init__(self) -> None:
        self._writers: dict[int, _Writer] = {}

    def __len__(self) -> int:
        return len(self._writers)

    def find(self, writer_id: int, sequence: int) -> WrittenBatch | None:
        """Return the remembered batch of a writer with a sequence; None when there is none."""
        writer = self._writers.get(writer_id)
        if writer is None:
            return None
        return next((batch for batch in reversed(writer.batches) if batch.sequence == sequence), None)

    def expected_sequence(self, writer_id: int) -> int:
        """Return the sequence that a writer's next batch must have: 0 of a writer that is not known."""
        writer = self._writers.get(writer_id)
        return 0 if writer is None else following(writer.batches[-1].sequence)

    def knows(self, writer_id: int) -> bool:
        """Return whether a writer has batches that are remembered."""
        return writer_id in self._writers

    def add(self, writer_id: int, batch: WrittenBatch, used_ms: int) -> None:
        """Remember a batch that was appended. Beyond the limit the writer that was idle longest is forgotten."""
        writer = self._writers.pop(writer_id, None)
        if writer is None:
            writer = _Writer(used_ms, [])
            if len(self._writers) >= WRITERS_MAX:
                del self._writers[next(iter(self._writers))]
        # Taken out and put back: the dict is in the order of last use.
        self._writers[writer_id] = writer
        writer.used_ms, writer.idle_since_ms = used_ms, None
        writer.batches.append(batch)
        if len(writer.batches) > BATCHES_KEPT:
            del writer.batches[0]

    def add_older(self, older: WriterStates) -> None:
        """Take in batches that lie before those known here; what both know stays as it is here."""
        merged = {}
        for writer_id, before in older._writers.items():
            writer = self._writers.pop(writer_id, None)
            after = [] if writer is None else writer.batches
            known = {batch.sequence for batch in after}
            batches = [batch for batch in before.batches if batch.sequence not in known] + after
            used_ms = before.used_ms if writer is None else max(before.used_ms, writer.used_ms)
            merged[writer_id] = _Writer(used_ms, batches[-BATCHES_KEPT:])
        everyone = sorted({**merged, **self._writers}.items(), key=lambda item: item[1].used_ms)
        self._writers = dict(everyone[-WRITERS_MAX:])

    def expire(self, clock: Clock, idle_ms: int) -> int:
        """Forget writers whose last batch is older than so long, and was when it was looked before; return how many.

        A single look could not tell idleness from a step of the clock.
        """
        before_ms, now_ms = clock.now_ms() - idle_ms, clock.monotonic_ms()
        old = []
        for writer_id, writer in self._writers.items():
            if writer.used_ms >= before_ms:
                writer.idle_since_ms = None
            elif writer.idle_since_ms is None:
                writer.idle_since_ms = now_ms
            elif now_ms - writer.idle_since_ms >= min(idle_ms, FORGET_DELAY_MS):
                old.append(writer_id)
        for writer_id in old:
            del self._writers[writer_id]
        return len(old)

    def copy(self) -> WriterStates:
        """Return the same states, apart from these."""
        states = WriterStates()
        states._writers = {each: _Writer(w.used_ms, w.batches.copy()) for each, w in self._writers.items()}
        return states

    def to_json(self) -> list[list[object]]:
        """Return all writers as plain values, for a checkpoint."""
        return [[writer_id, w.used_ms, [list(b) for b in w.batches]] for writer_id, w in self._writers.items()]

    @staticmethod
    def from_json(value: object) -> WriterStates:
        """Read what `to_json` wrote. Batches of older versions have no CRC.

        Raises:
            CorruptDataError: It is nothing of that form.
        """
        states = WriterStates()
        writers = from_plain(list[tuple[int, int, list[WrittenBatch]]], value, "writers of a log")
        for writer_id, used_ms, batches in writers:
            if not batches:
                raise CorruptDataError(f"writers of a log: writer {writer_id} without batches")
            states._writers[writer_id] = _Writer(used_ms, batches)
        return states


class Seal:
    """Closes a bucket to writes while it is decided whether its partition is dropped. Called under the bucket's lock.

    Seals are numbered, because a message may arrive after the one that takes it back.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._opened = -1

    def close(self, number: int) -> None:
        """Close the bucket to writes.

        Raises:
            ConflictError: That seal was taken back already.
        """
        if number <= self._opened:
            raise ConflictError(f"seal {number} was taken back before it came")
        self._number = number

    def open(self, number: int) -> None:
        """Take back a seal and all earlier ones."""
        self._opened = max(self._opened, number)
        if self._number is not None and self._number <= number:
            self._number = None

    def check(self) -> None:
        """Raise `NotLeaderError` if the bucket is closed to writes."""
        if self._number is not None:
            raise NotLeaderError("the bucket is closed to writes, its partition being dropped; retry in a moment")


class _Gap(NamedTuple):
    """A batch whose predecessor is not here."""

    writer_id: int
    expected: int
    found: int


class Admission:
    """Guards the sequence of every writer of one bucket. All methods are called under the bucket's lock.

    Args:
        writers: The bucket's.
        changed: The bucket's lock, on which appends wait for their predecessors.
        waiting: How many may wait at once, over all buckets that share it, so that those for whom they wait find a
            thread.

    Attributes:
        seal: Whether the bucket takes anything new at present.
    """

    def __init__(self, writers: WriterStates, changed: threading.Condition, waiting: threading.Semaphore) -> None:
        self._writers = writers
        self._changed = changed
        self._waiting = waiting
        self._waiters = 0
        self.seal = Seal()

    def admit(
        self, batches: Sequence[CheckedBatch], wait_ms: int, check: Callable[[], None]
    ) -> list[WrittenBatch | None]:
        """Return for each batch where it is already, or None if it is to be appended.

        Requests of one writer are sent one after another but may be taken up by threads in another order, so a batch
        that is ahead of its turn waits a little.

        Args:
            batches: One payload, in order.
            wait_ms: How long to wait for predecessors.
            check: Called before and after waiting; raises what makes appending impossible.

        Raises:
            OutOfOrderSequenceError: A predecessor did not come.
            DuplicateSequenceError: Another batch has the number, or the number is older than those remembered.
            NotLeaderError: One of them is new, and the bucket is sealed.
        """
        check()
        found = self._classify(batches)
        if isinstance(found, list):
            return self._open_to(found)
        if wait_ms <= 0 or not self._waiting.acquire(blocking=False):
            raise self._refusal(found)
        # A condition waits by the machine's clock, which tests do not move.
        deadline = time.monotonic() + wait_ms / 1000
        self._waiters += 1
        try:
            while isinstance(found, _Gap):
                left = deadline - time.monotonic()
                if left <= 0 or self._is_behind(found):
                    raise self._refusal(found)
                self._changed.wait(left)
                check()
                found = self._classify(batches)
            return self._open_to(found)
        finally:
            self._waiters -= 1
            self._waiting.release()

    def _open_to(self, found: list[WrittenBatch | None]) -> list[WrittenBatch | None]:
        if None in found:
            self.seal.check()
        return found

    def _classify(self, batches: Sequence[CheckedBatch]) -> list[WrittenBatch | None] | _Gap:
        found: list[WrittenBatch | None] = []
        turns: dict[int, int] = {}
        for batch in batches:
            writer_id, sequence = batch.header.writer_id, batch.header.batch_sequence
            if writer_id < 0:
                found.append(None)
                continue
            before = None if writer_id in turns else self._writers.find(writer_id, sequence)
            found.append(before)
            if before is not None and before.crc not in (None, batch.header.crc):
                raise DuplicateSequenceError(
                    f"batch sequence {sequence} of writer {writer_id}: another batch has this number and lies at offsets "
                    f"[{before.base_offset}, {before.end_offset}): expected CRC {before.crc:08x}, found "
                    f"{batch.header.crc:08x}; nothing was appended: rows that are new need a new number, or a new writer id"
                )
            if before is None:
                expected = turns.get(writer_id, self._writers.expected_sequence(writer_id))
                if sequence != expected:
                    return _Gap(writer_id, expected, sequence)
                turns[writer_id] = following(sequence)
        return found

    def _is_behind(self, gap: _Gap) -> bool:
        return (gap.found - gap.expected) % (SEQUENCE_MAX + 1) > _AHEAD_MAX

    def _refusal(self, gap: _Gap) -> FlussError:
        text = f"batch sequence of writer {gap.writer_id}: expected {gap.expected}, found {gap.found}"
        if not self._writers.knows(gap.writer_id):
            hint = "the writer is not known here (or was forgotten after long idleness), so its first batch must be 0"
        elif self._is_behind(gap):
            return DuplicateSequenceError(
                f"{text}; it is older than the batches remembered of the writer; it was appended before or never will be"
            )
        else:
            hint = "send its predecessor first"
        return OutOfOrderSequenceError(f"{text}; {hint}")

    def find(self, headers: Sequence[BatchHeader]) -> tuple[int, int] | None:
        """Return the offsets ``[base, end)`` of batches that were appended before; None unless all of them were."""
        found: list[WrittenBatch] = []
        for header in headers:
            batch = self._writers.find(header.writer_id, header.batch_sequence)
            if batch is None or batch.crc not in (None, header.crc):
                return None
            found.append(batch)
        return (found[0].base_offset, found[-1].end_offset) if found else None

    def add(self, writer_id: int, batch: WrittenBatch, used_ms: int) -> None:
        """Remember a batch that was appended, and let those continue that waited for it."""
        if writer_id >= 0:
            self._writers.add(writer_id, batch, used_ms)
            if self._waiters:
                self._changed.notify_all()

    def expire(self, clock: Clock, idle_ms: int) -> int:
        """Forget the writers that are idle for so long, as `WriterStates.expire` finds them; return how many."""
        return self._writers.expire(clock, idle_ms)

    def adopt(self, older: WriterStates) -> None:
        """Take in batches that are older than those known."""
        self._writers.add_older(older)

    def snapshot(self) -> WriterStates:
        """Return a copy of the writers as they are now."""
        return self._writers.copy()

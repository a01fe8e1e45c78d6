"""The state of a bucket's writers: their last batches, so that a retry is answered and not appended again.

A writer numbers its batches per bucket from 0 up, by one; after the largest int32 comes 0 again. The last five
batches of each writer are remembered with their offsets (as many as a writer may have in flight).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import from_plain

#: Batches remembered of each writer, as Apache Fluss: what a writer may have in flight at once.
BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
#: Writers remembered in one bucket: 500 bytes each in memory, 150 in the checkpoint, so 5 MB and 1.5 MB at most.
WRITERS_MAX: Final = 10_000


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
    used_ms: int
    batches: list[WrittenBatch]


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

    def expected(self, writer_id: int) -> int:
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
        writer.used_ms = used_ms
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

    def expire(self, before_ms: int) -> int:
        """Forget writers whose last batch is older than a time; return how many."""
        old = [writer_id for writer_id, writer in self._writers.items() if writer.used_ms < before_ms]
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

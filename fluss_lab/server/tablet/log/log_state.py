"""The state of a log: its segments, and how far it is readable and durable."""

from __future__ import annotations

import threading

from fluss_lab.errors import FlussError
from fluss_lab.server.tablet.append.batch_admission import Admission
from fluss_lab.server.tablet.append.write_seal import Seal
from fluss_lab.server.tablet.log.log_reader import LogReader
from fluss_lab.server.tablet.log.log_view import Frontier
from fluss_lab.server.tablet.log.segment import Segment


class LogState:
    """What may be asked of a log at any time, without a lock; `BucketLog` is what changes it.

    Attributes:
        reader: Reads the log.
        lock: Held by whoever appends.
    """

    reader: LogReader
    lock: threading.Condition
    _admission: Admission
    _segments: tuple[Segment, ...]
    _durable: Frontier
    _floor_ms: int
    _written: int
    _stopped: FlussError | None

    @property
    def start(self) -> int:
        """Return the log start offset."""
        return self.reader.view.start

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return self._active.end_offset

    @property
    def high_watermark(self) -> int:
        """Return the offset after the last readable record."""
        return self.reader.view.end

    @property
    def durable_offset(self) -> int:
        """Return the offset below which all records are on the device."""
        return self._durable.offset

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return sum(segment.size for segment in self._segments)

    @property
    def written_bytes(self) -> int:
        """Return the bytes appended since the log was opened."""
        return self._written

    @property
    def segment_count(self) -> int:
        """Return how many segments there are."""
        return len(self._segments)

    @property
    def rolled(self) -> tuple[Segment, ...]:
        """Return the segments that do not change any more, oldest first: all but the last. They are on the device."""
        return self._segments[:-1]

    @property
    def max_timestamp_ms(self) -> int:
        """Return the last record's timestamp, -1 before the first; of a log that was emptied, its floor."""
        held = max(segment.max_timestamp_ms for segment in self._segments)
        return self._floor_ms if held < 0 < self.end else held

    @property
    def floor_ms(self) -> int:
        """Return the time before which no later record's timestamp is."""
        return self._floor_ms

    @property
    def stopped(self) -> FlussError | None:
        """Return why the log cannot be written; None when it can."""
        return self._stopped

    @property
    def seal(self) -> Seal:
        """Return whether the log is closed to writes; it is asked and changed under `lock`."""
        return self._admission.seal

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    def _frontier(self) -> Frontier:
        return Frontier(self._active.base_offset, self._active.size, self._active.end_offset)


def seal_at(log: LogState, offset: int, number: int) -> int:
    """Return where a log ends, and close it to writes if that is at an offset: nothing is appended in between.

    Raises:
        FlussError: The log has stopped, so nobody can tell where it ends.
        ConflictError: That seal was taken back already.
    """
    with log.lock:
        if log.stopped is not None:
            raise type(log.stopped)(str(log.stopped))
        if (end := log.end) == offset:
            log.seal.close(number)
        return end


def unseal(log: LogState, number: int) -> None:
    """Open a log to writes again that a seal, or an earlier one, has closed."""
    with log.lock:
        log.seal.open(number)

"""The view that readers of a log have: its segments and how far they may be read, at one moment.

A view never changes, so reading takes no lock. A log makes a new one whenever something becomes readable or is dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fluss_lab.errors import CorruptDataError, FlussError, OffsetOutOfRangeError
from fluss_lab.server.tablet.log.segment import UNREADABLE, BatchPosition, Segment


class Frontier(NamedTuple):
    """A place in a log: everything before it is readable, or durable. Compared in the order of the log."""

    base_offset: int
    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole batches, one after another.

    Attributes:
        buffers: Their bytes.
        size: Bytes in all.
        next_offset: The offset after them.
    """

    buffers: list[memoryview]
    size: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class LogView:
    """The readable part of a log.

    Attributes:
        segments: Oldest first; at least one.
        bases: Their base offsets.
        frontier: Where the readable part ends.
    """

    segments: tuple[Segment, ...]
    bases: tuple[int, ...]
    frontier: Frontier

    @property
    def start(self) -> int:
        """Return the log start offset."""
        return self.bases[0]

    @property
    def end(self) -> int:
        """Return the offset after the last readable record: the high watermark."""
        return self.frontier.offset

    def limit(self, segment: Segment) -> int:
        """Return how many bytes of a segment may be read."""
        base_offset, position, _ = self.frontier
        if segment.base_offset == base_offset:
            return position
        return segment.size if segment.base_offset < base_offset else 0

    def from_offset(self, offset: int) -> tuple[Segment, ...]:
        """Return the segments from the one that holds an offset on.

        Raises:
            OffsetOutOfRangeError: The offset is not in ``[start, end]``.
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not held: expected one in [{self.start}, {self.end}], from the log's start to its "
                "high watermark; start from one of these, or from the lake if it holds the offset"
            )
        return self.segments[bisect_right(self.bases, offset) - 1 :]

    def read(self, offset: int, bytes_max: int, *, at_least_one: bool) -> FetchedBatches:
        """Return whole batches from the one that holds an offset on.

        Args:
            offset: In ``[start, end]``.
            bytes_max: Bytes of the answer, at most.
            at_least_one: Whether the first batch is returned even if it is larger than that.

        Raises:
            OffsetOutOfRangeError: The offset is outside.
            CorruptDataError: What lies at the offset is no batch that continues the log.
            FileNotFoundError: A segment was deleted since the view was made: take a new one.

        Cost: one read a segment, straight from the page cache, and 0.5 us a batch.
        """
        buffers: list[memoryview] = []
        size = 0
        if offset == self.end:
            return FetchedBatches(buffers, size, offset)
        for segment in self.from_offset(offset):
            limit = self.limit(segment)
            place = self._find(segment, offset)
            if place is None:
                break  # the last segment, which is empty
            try:
                data, end = _read_whole(segment, place, limit, bytes_max - size, at_least_one and not size)
            except UNREADABLE as error:
                raise self._named(segment, error) from error
            if data:
                buffers.append(data)
                size += len(data)
                offset = end.base_offset
            if end.position < limit or size >= bytes_max or offset != self._end_of(segment):
                break
        return FetchedBatches(buffers, size, offset)

    def _end_of(self, segment: Segment) -> int:
        """Return the offset after the last readable record of a segment."""
        at = bisect_right(self.bases, segment.base_offset)
        return min(self.bases[at], self.end) if at < len(self.bases) else self.end

    def _find(self, segment: Segment, offset: int) -> BatchPosition | None:
        """Return where the batch that holds an offset begins; None when the segment ends before it.

        Raises:
            CorruptDataError: The offset is below the segment's end and yet in none of its batches.
        """
        try:
            place = segment.find_offset(offset, self.limit(segment))
        except UNREADABLE as error:
            raise self._named(segment, error) from error
        if place is None and offset < (end := self._end_of(segment)):
            raise CorruptDataError(f"{segment.path}: expected records up to offset {end}, found none at {offset}")
        return place

    def _named(self, segment: Segment, error: FlussError) -> FlussError:
        """Return an error about a segment with the file and its offsets."""
        return type(error)(f"{self.described(segment.path)}: {error}")

    def described(self, path: str | Path) -> str:
        """Return a file of a segment, with the offsets that it is of."""
        stem = Path(path).stem
        found = next((each for each in self.segments if each.path.stem == stem), None)
        return str(path) if found is None else f"{path}, of offsets [{found.base_offset}, {self._end_of(found)})"

    def previous(self, start: int, stop: int) -> bytes:
        """Return the previous offsets of the records in ``[start, stop)``, whole batches, as little-endian int64.

        Raises:
            OffsetOutOfRangeError: They are not held.
            CorruptDataError: The previous offsets are damaged, or the log has none.
            FileNotFoundError: A segment was deleted since the view was made, or a file was lost.
        """
        parts: list[bytes] = []
        for segment in self.from_offset(start):
            if start >= stop:
                break
            end = min(stop, self._end_of(segment))
            if segment.previous is None:
                raise CorruptDataError(f"{segment.path.name} is of a log without previous offsets")
            parts.append(segment.previous.read(start - segment.base_offset, end - segment.base_offset))
            start = end
        return b"".join(parts)

    def available(self, offset: int) -> int:
        """Return how many bytes `read` could return from an offset on. It raises what `read` raises."""
        if offset == self.end:
            return 0
        first, *others = self.from_offset(offset)
        place = self._find(first, offset)
        return (0 if place is None else self.limit(first) - place.position) + sum(
            self.limit(segment) for segment in others
        )

    def find_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first readable record at or after a time; None when all are older."""
        for segment in self.segments:
            if segment.max_timestamp_ms >= timestamp_ms:
                try:
                    header = segment.find_time(timestamp_ms, self.limit(segment))
                except UNREADABLE as error:
                    raise self._named(segment, error) from error
                if header is not None:
                    return header.base_offset, header.timestamp_ms
        return None

    def timestamp_at(self, offset: int) -> int | None:
        """Return the timestamp of the record at an offset; None at the end."""
        if offset == self.end:
            return None
        segment = self.from_offset(offset)[0]
        place = self._find(segment, offset)
        return None if place is None else segment.header(place, self.limit(segment)).timestamp_ms


def _read_whole(
    segment: Segment, place: BatchPosition, limit: int, bytes_max: int, at_least_one: bool
) -> tuple[memoryview, BatchPosition]:
    """Return the whole batches at a place, within a number of bytes, and the place behind them."""
    stop = min(place.position + max(bytes_max, 0), limit)
    data = segment.read(place.position, stop)
    end, problem = segment.take_whole(data, place)
    if end.position == place.position and problem is None and at_least_one:
        data = segment.read(place.position, place.position + segment.header(place, limit).size)
        end, problem = segment.take_whole(data, place)
    size = end.position - place.position
    if problem is not None and not size:
        raise problem
    return memoryview(data)[:size], end

"""The readers' side of one bucket's log: what may be read at a moment, and reading while the log grows and shrinks.

A view never changes, so reading takes no lock. A log makes a new one whenever something becomes readable or is dropped.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fluss_lab.errors import CorruptDataError, FlussError, NotLeaderError, OffsetOutOfRangeError
from fluss_lab.records.batch import BatchHeader
from fluss_lab.server.tablet.log.segment import UNREADABLE, BatchPosition, Segment
from fluss_lab.storage.file_store import Place

T = TypeVar("T")
#: Views tried while segments go away under a reader: one retention pass drops all it drops in one view.
_VIEWS_MAX: Final = 10


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


class RecordLocation(NamedTuple):
    """The batch that holds a record, and the segment that holds the batch.

    Attributes:
        path: The segment's file.
        base_offset: The segment's first offset.
        end_offset: The one after its last.
        position: Where the batch begins in the file, in bytes.
        header: The batch's.
        segment_id: The id of a segment in remote storage; None of one on this disk.
    """

    path: Place
    base_offset: int
    end_offset: int
    position: int
    header: BatchHeader
    segment_id: str | None = None


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

    def read(self, offset: int, bytes_max: int, *, at_least_one: bool, stop: int | None = None) -> FetchedBatches:
        """Return whole batches from the one that holds an offset on.

        Args:
            offset: In ``[start, end]``.
            bytes_max: Bytes of the answer, at most.
            at_least_one: Whether the first batch is returned even if it is larger than that.
            stop: Above `offset`: of batches that begin here or behind none is returned; None: there is no such offset.

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
            limit = self.limit(segment) if stop is None else self._limit_before(segment, stop)
            place = self._find(segment, offset)
            if place is None:
                break  # the last segment, which is empty
            try:
                data, end = _read_whole(segment, place, limit, bytes_max - size, at_least_one and not size)
            except UNREADABLE as error:
                raise self._name_segment(segment, error) from error
            if data:
                buffers.append(data)
                size += len(data)
                offset = end.base_offset
            if end.position < limit or size >= bytes_max or offset != self._end_of(segment):
                break
            if stop is not None and offset >= stop:
                break
        return FetchedBatches(buffers, size, offset)

    def _limit_before(self, segment: Segment, stop: int) -> int:
        """Return how many bytes of a segment may be read, without the batches that begin at an offset or behind it."""
        limit = self.limit(segment)
        if stop >= self._end_of(segment):
            return limit
        try:
            place = segment.find_offset(stop, limit)
            if place is None:
                return limit
            return place.position + (segment.header(place, limit).size if place.base_offset < stop else 0)
        except UNREADABLE:
            return limit  # what is good is read up to the damage

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
            raise self._name_segment(segment, error) from error
        if place is None and offset < (end := self._end_of(segment)):
            raise CorruptDataError(f"{segment.path}: expected records up to offset {end}, found none at {offset}")
        return place

    def _name_segment(self, segment: Segment, error: FlussError) -> FlussError:
        """Return an error about a segment with the file and its offsets."""
        return type(error)(f"{self.describe(segment.path)}: {error}")

    def describe(self, path: str | Path) -> str:
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
                    raise self._name_segment(segment, error) from error
                if header is not None:
                    return header.base_offset, header.timestamp_ms
        return None

    def locate(self, offset: int) -> RecordLocation:
        """Return where the record at an offset lies.

        Raises:
            OffsetOutOfRangeError: The offset is not in ``[start, end)``.
            CorruptDataError, FileNotFoundError: As `read`.
        """
        segment = self.from_offset(offset)[0]
        place = self._find(segment, offset)
        if place is None:
            raise OffsetOutOfRangeError(f"offset {offset} is not held: expected one in [{self.start}, {self.end})")
        header = segment.header(place, self.limit(segment))
        return RecordLocation(segment.path, segment.base_offset, self._end_of(segment), place.position, header)

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


class BucketLogReader:
    """The readers' side of one bucket's log. Safe for threads.

    Args:
        title: As the attribute.
        stop: Called with what makes the log unfit for writing: damage that a reader found.

    Attributes:
        title: How errors call the bucket.
        view: What may be read now.
        ended_by: Why nothing can ever follow the last readable record, and the log's end is not known; None while it is.
        lost_start: Why the first offset is not known; None when it is.
    """

    view: LogView

    def __init__(self, title: str, stop: Callable[[FlussError], None]) -> None:
        self.title = title
        self._stop = stop
        self._lock = threading.Lock()
        self._watchers: frozenset[threading.Event] = frozenset()
        self._closed = False
        self.ended_by: FlussError | None = None
        self.lost_start: FlussError | None = None

    def publish(self, view: LogView) -> None:
        """Publish a view, and wake those that wait for one."""
        self.view = view
        self.wake()

    def wake(self) -> None:
        """Wake those that wait, whether anything changed or not."""
        for watcher in self._watchers:
            watcher.set()

    def close(self) -> None:
        """Wake those that wait. Reading goes on as long as the files are there."""
        self._closed = True
        self.wake()

    def watch(self, watcher: threading.Event) -> None:
        """Set an event whenever something becomes readable, and when the log is closed, until `unwatch`."""
        with self._lock:
            self._watchers |= {watcher}

    def unwatch(self, watcher: threading.Event) -> None:
        """End what `watch` began."""
        with self._lock:
            self._watchers -= {watcher}

    def read(
        self, offset: int, bytes_max: int, *, at_least_one: bool = True, stop: int | None = None
    ) -> FetchedBatches:
        """Return whole batches from the one that holds an offset on: see `LogView.read`.

        Raises:
            OffsetOutOfRangeError: The offset is outside ``[start, high watermark]``.
            CorruptDataError: The log is damaged there, and is no longer written; also at the end of a log that is
                damaged behind it, because nothing will follow.
            NotLeaderError: The log was closed and its files moved.
        """
        self.check_end(offset)
        return self._newest(lambda view: view.read(offset, bytes_max, at_least_one=at_least_one, stop=stop))

    def previous(self, start: int, stop: int) -> bytes:
        """Return the previous offsets of records: see `LogView.previous`. Damage of them does not stop the log.

        Raises:
            OffsetOutOfRangeError: The records are no longer held.
            CorruptDataError: The previous offsets are damaged or lost.
        """
        for _ in range(_VIEWS_MAX):
            view = self.view
            try:
                return view.previous(start, stop)
            except FileNotFoundError as error:
                if self.view is view:
                    raise CorruptDataError(
                        f"{self.title}: the previous offsets of [{start}, {stop}) are gone with {error.filename}"
                    ) from error
            except UNREADABLE as error:
                raise type(error)(f"{self.title}: {error}") from error
        raise NotLeaderError(f"{self.title}: its segments go away faster than they can be read; retry")

    def available(self, offset: int) -> int:
        """Return how many bytes can be read from an offset on. It raises what `read` raises."""
        self.check_end(offset)
        return self._newest(lambda view: view.available(offset))

    def find_time(self, timestamp_ms: int) -> tuple[int, int | None]:
        """Return (offset, timestamp) of the first record at or after a time; (high watermark, None) when all are older.

        Raises:
            CorruptDataError, UnsupportedError: The log is damaged where the answer would be, or may lie in what is lost.
            NotLeaderError: The log was closed and its files moved.
        """
        offset, found_ms = self._newest(lambda view: view.find_time(timestamp_ms) or (view.end, None))
        if found_ms is None:
            self.check_end(offset)
        return offset, found_ms

    def locate(self, offset: int) -> RecordLocation:
        """Return where the record at an offset lies. It raises what `read` raises, and at the end too."""
        self.check_end(offset)
        return self._newest(lambda view: view.locate(offset))

    def timestamp_at(self, offset: int) -> int | None:
        """Return the timestamp of the record at an offset, None at the end. It raises what `read` raises."""
        return self._newest(lambda view: view.timestamp_at(offset))

    def check_end(self, offset: int | None = None) -> None:
        """Raise at and behind the end of a log that is damaged there; without an offset, for any such log.

        Raises:
            CorruptDataError, UnsupportedError: The records there cannot be read, and how many they are is not known.
        """
        if self.ended_by is not None and (offset is None or offset >= self.view.end):
            raise type(self.ended_by)(f"{self.title} can be read up to offset {self.view.end} only: {self.ended_by}")

    def check_start(self) -> None:
        """Raise, when segments in front of the first one are missing, what is known of them.

        Raises:
            CorruptDataError: The log's first offset is not known.
        """
        if self.lost_start is not None:
            raise type(self.lost_start)(f"{self.title}: {self.lost_start}")

    def _newest(self, read: Callable[[LogView], T]) -> T:
        for _ in range(_VIEWS_MAX):
            view = self.view
            try:
                return read(view)
            except FileNotFoundError as error:
                if self._closed:
                    raise NotLeaderError(
                        f"{self.title}: the bucket was closed; refresh the metadata and retry"
                    ) from error
                if self.view is view:
                    raise self._damage_error(f"a file of the log is gone: {view.describe(error.filename)}") from error
            except UNREADABLE as error:
                raise self._damage_error(str(error), type(error)) from error
        raise NotLeaderError(f"{self.title}: its segments go away faster than they can be read; retry")

    def _damage_error(self, text: str, kind: type[FlussError] = CorruptDataError) -> FlussError:
        self._stop(kind(text))
        return kind(f"{self.title}: {text}")

"""The reader of one bucket's log while it grows and shrinks: always from the newest view, without a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from fluss_lab.errors import CorruptDataError, FlussError, NotLeaderError
from fluss_lab.server.tablet.log.log_view import FetchedBatches, LogView
from fluss_lab.server.tablet.log.segment import UNREADABLE

T = TypeVar("T")

#: Views tried while segments go away under a reader: one retention pass drops all it drops in one view.
_VIEWS_MAX: Final = 10


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

    def read(self, offset: int, bytes_max: int, *, at_least_one: bool = True) -> FetchedBatches:
        """Return whole batches from the one that holds an offset on: see `LogView.read`.

        Raises:
            OffsetOutOfRangeError: The offset is outside ``[start, high watermark]``.
            CorruptDataError: The log is damaged there, and is no longer written; also at the end of a log that is
                damaged behind it, because nothing will follow.
            NotLeaderError: The log was closed and its files moved.
        """
        self.check_end(offset)
        return self._newest(lambda view: view.read(offset, bytes_max, at_least_one=at_least_one))

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
                    raise self._damaged(f"a file of the log is gone: {view.described(error.filename)}") from error
            except UNREADABLE as error:
                raise self._damaged(str(error), type(error)) from error
        raise NotLeaderError(f"{self.title}: its segments go away faster than they can be read; retry")

    def _damaged(self, text: str, kind: type[FlussError] = CorruptDataError) -> FlussError:
        self._stop(kind(text))
        return kind(f"{self.title}: {text}")

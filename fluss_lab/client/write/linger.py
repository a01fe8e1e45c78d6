"""Rows given to a writer one at a time: gathered, so that they are queued as one call."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from fluss_lab.client.write.write_result import WriteFuture
from fluss_lab.errors import FlussError, WriteInterruptedError
from fluss_lab.interrupts import Flag, Held, join_threads
from fluss_lab.model.values.plain_rows import PlainRows

log = logging.getLogger(__name__)

F = TypeVar("F", bound=WriteFuture)

#: Rows that are queued together at most: larger calls are not faster.
ROWS_MAX: Final = 8192
#: What gathered rows may take, were each as large as a row can be.
GATHERED_BYTES_MAX: Final = 16 << 20
#: How long a row waits for others. In a loop thousands come in that time, and nobody sees it.
LINGER_S: Final = 0.002


@dataclass(slots=True, eq=False)
class Gathering(Generic[F]):
    """Rows that are one call of a writer, and its future.

    Threads add rows without a lock: appending to a list is one step of the interpreter. So a row may come late, behind
    those that are taken; whoever added it finds `calm_below` 0, and looks for its row with the writer's lock held.

    Attributes:
        future: Of all the rows.
        started: When the first was given.
        rows: As `PlainRows.look_at` gave them.
        calm_below: With fewer rows than this, nothing is to be done but to add another one. 0 before anybody sees to it
            that the rows are queued soon, and after they were taken.
        taken: How many rows are queued together; None: more may come.
    """

    future: F
    started: float = field(default_factory=time.monotonic)
    rows: list[Any] = field(default_factory=list)
    calm_below: int = 0
    taken: int | None = None

    def close(self) -> None:
        """Take no more rows than there are."""
        self.calm_below = 0
        self.taken = len(self.rows)

    def place_of(self, row: Any) -> int:
        """Return where a row is that was added; -1: it was let go of. It is one of the last."""
        return next((at for at in reversed(range(len(self.rows))) if self.rows[at] is row), -1)

    def let_go(self, row: Any) -> None:
        """Remove a row that was added."""
        if (at := self.place_of(row)) >= 0:
            del self.rows[at]
            if self.taken is not None and at < self.taken:
                self.taken -= 1


class _Ready(Protocol):
    def __call__(self, *, raises_failure: bool) -> None:
        """Make a writer ready."""


class RowGatherer(Generic[F]):
    """The rows of one writer that were given one at a time and are not queued yet.

    Any thread may `add`; all else, where nothing else is said, is done with the writer's lock held.

    Args:
        plain: What rows are checked by.
        new_future: Makes the future of a call.
        ready: Makes the writer ready; raises when it is closed, and, with `raises_failure`, what an earlier call failed with.
        queue: Queues checked rows as one call: its future, the rows, when it began.
        lock: The writer's, in whose order calls are queued.
        name: For threads and messages.
    """

    def __init__(
        self,
        plain: PlainRows,
        new_future: Callable[[], F],
        ready: _Ready,
        queue: Callable[[F, pa.RecordBatch, float], object],
        lock: threading.Lock,
        name: str,
    ) -> None:
        self._look_at = plain.look_at
        self._plain, self._new_future, self._ready, self._queue = plain, new_future, ready, queue
        self._lock, self._name = lock, name
        self._rows_max = max(1, min(ROWS_MAX, GATHERED_BYTES_MAX // plain.row_bytes_max))
        #: Takes rows; None: the next row begins one.
        self._open: Gathering[F] | None = None
        #: Closed, to be queued before anything else.
        self._closed: deque[Gathering[F]] = deque()
        self._lingerer: _Lingerer | None = None

    def add(self, given: dict[Any, Any]) -> F | None:
        """Add a row; return the future of the rows that it is queued with. Without the lock.

        Returns:
            None where whether the row is right is for `record_batches` to say: it was not taken.

        Raises:
            FlussError: As `ready` and `queue`; the row was not taken.
        """
        if (row := self._look_at(given)) is None:
            return None
        gathering = self._open
        if gathering is not None:
            rows = gathering.rows
            rows.append(row)
            if len(rows) < gathering.calm_below:
                return gathering.future
        return self._note_added_row(gathering, row)

    def _note_added_row(self, gathering: Gathering[F] | None, row: Any) -> F:
        """Do what the lock is needed for, after a row was added to some rows, which may have been taken before."""
        with self._lock, Held():
            try:
                self._ready(raises_failure=True)
                if gathering is not None and gathering is not self._open:
                    if 0 <= gathering.place_of(row) < (gathering.taken or 0):
                        return gathering.future
                    gathering.let_go(row)
                if gathering is None or gathering is not self._open:
                    gathering = self._open = self._open or Gathering(self._new_future())
                    gathering.rows.append(row)
                if len(gathering.rows) >= self._rows_max:
                    self.drain()
                elif not gathering.calm_below:
                    gathering.calm_below = self._rows_max
                    self._lingering().expect()
            except BaseException:
                if gathering is not None and (gathering is self._open or gathering in self._closed):
                    gathering.let_go(row)
                raise
            return gathering.future

    @property
    def rows(self) -> int:
        """Return how many rows are not queued. Without the lock."""
        gathering = self._open
        return (0 if gathering is None else len(gathering.rows)) + sum(each.taken or 0 for each in list(self._closed))

    def drain(self) -> None:
        """Queue what there is; what cannot be queued stays.

        Raises:
            FlussError: As `queue`.
        """
        self._close_open()
        while self._closed:
            first = self._closed[0]
            if first.taken:
                self._queue(first.future, self._plain.batch(first.rows[: first.taken]), first.started)
            self._closed.popleft()

    def end(self) -> None:
        """Let no row in any more without the lock, and end the thread. Without the lock."""
        if (gathering := self._open) is not None:
            gathering.calm_below = 0
        if self._lingerer is not None:
            self._lingerer.end()

    def fail(self, error: WriteInterruptedError) -> None:
        """Drop what there is."""
        self._close_open()
        while self._closed:
            self._closed.popleft().future.set_exception(error)

    def _close_open(self) -> None:
        if self._open is not None:
            self._open.close()
            self._closed.append(self._open)
            self._open = None

    def _lingering(self) -> _Lingerer:
        if self._lingerer is None or self._lingerer.is_ended:
            self._lingerer = _Lingerer(f"gather-{self._name}", self._drain_late)
        return self._lingerer

    def _drain_late(self) -> None:
        with self._lock:
            try:
                self._ready(raises_failure=False)
                self.drain()
            except FlussError as error:
                log.info("%s: rows wait: %s", self._name, error)  # the writer's next call raises it


class _Lingerer:
    """A thread that has rows queued once they have waited for others long enough."""

    def __init__(self, name: str, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._awaited = Flag()
        self.is_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def expect(self) -> None:
        """Say that there are rows from now on."""
        self._awaited.set()

    def end(self) -> None:
        """End the thread, and return when it has ended, unless the writer's lock is held for long."""
        self.is_ended = True
        self._awaited.set()
        join_threads([self._thread], _JOIN_S)

    def _run(self) -> None:
        while not self.is_ended:
            self._awaited.wait()
            self._awaited.clear()
            time.sleep(LINGER_S)
            if not self.is_ended:
                self._drain()


#: The thread waits no longer than a row does, but the writer's lock may be held by a call that waits for room.
_JOIN_S: Final = 1.0

"""The sessions of attached processes: each has an open stream; when the last one closes, an ephemeral server ends.

Never by parent-death signals: they fire when the thread that started the server ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import ResourceExhaustedError, ServerUnavailableError
from fluss_lab.model.config.options import SERVER_ATTACHED_MAX
from fluss_lab.rpc import fluss_api_pb2 as pb

log = logging.getLogger(__name__)

#: An ephemeral server waits at least this long for its first process: an opener may be slow to import.
FIRST_WAIT_MS: Final = 30_000
#: Of one run of the server: with a thousand a second they last for eleven days.
SESSIONS_MAX: Final = 1_000_000_000
#: Longest wait between two looks at the clock, which a test may move.
LOOK_INTERVAL_S: Final = 1.0


class ClientSessions:
    """The sessions that are open now.

    Args:
        clock: Measures the grace.
        most: Most sessions at once.
        first_id: The first session's id; the next `SESSIONS_MAX` ids are unused too. Ids are not written to the disk, which
            may be full: readers attach too.
        coordinator_epoch: Sent to each session.
        on_end: Called with the id of each session after it ended.
    """

    def __init__(
        self, clock: Clock, *, most: int, first_id: int, coordinator_epoch: int, on_end: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._most = most
        self._ids = count(first_id)
        self._coordinator_epoch = coordinator_epoch
        self._on_end = on_end
        self._changed = threading.Condition()
        self._open: dict[int, threading.Event] = {}
        self._left_ms: int | None = None
        self._closing = False
        self._watcher: threading.Thread | None = None

    def attach(self, client_name: str, closed: threading.Event) -> Iterator[pb.AttachResponse]:
        """Yield the session once, then end when `closed` is set or the server ends.

        Raises:
            ServerUnavailableError: The server is about to end.
            ResourceExhaustedError: Too many are attached.
        """
        session_id = next(self._ids)
        with self._changed:
            if self._closing:
                raise ServerUnavailableError("the server is stopping")
            if len(self._open) >= self._most:
                raise ResourceExhaustedError(
                    f"{self._most} processes are attached, the most there may be ({SERVER_ATTACHED_MAX.key}): close a lab"
                )
            self._open[session_id] = closed
            self._changed.notify_all()
        log.info("event=attached session=%d client=%s", session_id, client_name[:100])
        try:
            yield pb.AttachResponse(session_id=session_id, coordinator_epoch=self._coordinator_epoch)
            closed.wait()
        finally:
            with self._changed:
                del self._open[session_id]
                self._left_ms = self._clock.monotonic_ms()
                self._changed.notify_all()
            log.info("event=detached session=%d", session_id)
            self._on_end(session_id)

    def is_open(self, session_id: int) -> bool:
        """Return whether a session is open."""
        with self._changed:
            return session_id in self._open

    def __len__(self) -> int:
        with self._changed:
            return len(self._open)

    def watch(self, grace_ms: int, stop: Callable[[], None]) -> None:
        """From now on, call `stop` once when no session was open for the grace.

        Args:
            grace_ms: The grace after the last session ended; before the first, at least `FIRST_WAIT_MS`.
            stop: Must return at once.
        """

        def run() -> None:
            if self._wait_alone(max(grace_ms, FIRST_WAIT_MS), grace_ms):
                log.info("event=nobody_attached grace_ms=%d", grace_ms)
                stop()

        self._watcher = threading.Thread(target=run, name="fluss-sessions", daemon=True)
        self._watcher.start()

    def _wait_alone(self, first_ms: int, grace_ms: int) -> bool:
        """Return True, and accept no more, when no session was open for long enough; False after `close`."""
        with self._changed:
            began_ms = self._clock.monotonic_ms()
            while not self._closing:
                if self._open:
                    self._changed.wait()
                    continue
                # A session that began and ended between two looks of this thread counts too.
                end_ms = began_ms + first_ms if self._left_ms is None else self._left_ms + grace_ms
                rest_ms = end_ms - self._clock.monotonic_ms()
                if rest_ms <= 0:
                    self._closing = True  # a session from now on would get a server that ends
                    return True
                self._changed.wait(min(rest_ms / 1000, LOOK_INTERVAL_S))
            return False

    def end_if_only(self, session_ids: Collection[int]) -> bool:
        """Accept no more sessions if only these are open; return whether it is so. Later ones are refused: the server ends."""
        with self._changed:
            if not set(session_ids).issuperset(self._open):
                return False
            self._closing = True
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End every session and accept no more."""
        with self._changed:
            self._closing = True
            for closed in self._open.values():
                closed.set()
            self._changed.notify_all()

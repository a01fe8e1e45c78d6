"""A session of the tierer at the coordinator: an open stream, by whose end a dead process frees its tables at once."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Final, Self

from fluss_lab.client import Connection
from fluss_lab.errors import FlussError, ServerUnavailableError
from fluss_lab.interrupts import Flag, Held, joined
from fluss_lab.rpc import fluss_api_pb2 as pb

log = logging.getLogger(__name__)

CLIENT_NAME: Final = "tiering"
#: Longest wait for the first session: the client retries a server that is away for 30 s by default.
ATTACH_TIMEOUT_S: Final = 60.0
#: Wait before attaching again after the stream broke (a restarting server needs about a second).
REATTACH_DELAY_S: Final = 0.5
#: How long `close` waits for the stream to end; it is cancelled at once, so this is never used up.
CLOSE_TIMEOUT_S: Final = 5.0


class TieringSession:
    """Holds one attached session, and attaches again when the server comes back. Use it as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session_id: int | None = None
        self._error: FlussError | None = None
        self._answered = Flag()
        self._closing = Flag()
        self._stream_closed = Flag()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="fluss-tiering-session", daemon=True)

    @property
    def session_id(self) -> int | None:
        """Return the present session's id; None while no server answers."""
        return self._session_id

    def __enter__(self) -> Self:
        """Attach.

        Raises:
            ServerUnavailableError: No server answers.
        """
        with Held():
            self._thread.start()
        try:
            answered = self._answered.wait(ATTACH_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        if not answered:
            self.close()
            raise ServerUnavailableError(f"attaching to the coordinator: no answer in {ATTACH_TIMEOUT_S:.0f} s")
        if self._error is not None:
            self.close()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session: tables still held by it are free."""
        with Held():
            self._closing.set()
            with self._lock:
                self._stream_closed.set()
            joined([self._thread], CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        attempts = self._connection.attempts("attach")
        while not self._closing.is_set():
            with self._lock:
                if self._closing.is_set():
                    return
                self._stream_closed = closed = Flag()
            try:
                self._hold(closed)
            except FlussError as error:
                log.debug("tiering session: %s", error)
                if not self._answered.is_set() and (attempts.left_s <= 0 or not error.retriable):
                    self._error = error
                    self._answered.set()
                    return
            finally:
                closed.set()
                self._session_id = None
            self._closing.wait(REATTACH_DELAY_S)

    def _hold(self, closed: threading.Event) -> None:
        """Hold one stream until it breaks or is closed."""
        coordinator = self._connection.coordinator()
        # A stream is not repeated: first make sure that the address is that of a server which answers.
        coordinator.describe_cluster(pb.DescribeClusterRequest())
        for response in coordinator.attach(pb.AttachRequest(client_name=CLIENT_NAME), closed):
            self._session_id = int(response.session_id)
            self._connection.sessions.add(self._session_id)
            self._answered.set()

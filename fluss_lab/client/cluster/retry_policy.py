"""The retry policy of a call while no server answers: how long, and with which pauses."""

from __future__ import annotations

import threading
import time
from typing import Final

from fluss_lab.errors import FlussError, RequestTimeoutError, ServerUnavailableError
from fluss_lab.model.config.options import CLIENT_REQUEST_TIMEOUT

#: Pauses between attempts: 50 ms, doubled up to one second. A server restarts in about half a second; a connection
#: that is refused costs the server nothing.
PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


class Attempts:
    """The attempts of one call: counts failures, waits between them, and ends them when the time is up.

    Args:
        what: The call, for messages.
        timeout_ms: From now to the last attempt; 0 for a single one.
        closed: Set when the connection is closed; ends every wait.
    """

    def __init__(self, what: str, timeout_ms: int, closed: threading.Event) -> None:
        self.what = what
        self.failures = 0
        self._closed = closed
        self._timeout_ms = timeout_ms
        self._started = time.monotonic()
        self._pause_s = PAUSE_FIRST_S

    @property
    def left_s(self) -> float:
        """Return the seconds until the time is up; negative after."""
        return self._started + self._timeout_ms / 1000 - time.monotonic()

    def progressed(self) -> None:
        """Start the time anew: a part of the work was done."""
        self._started = time.monotonic()
        self._pause_s = PAUSE_FIRST_S

    def failed(self, error: FlussError, address: str) -> None:
        """Count a failure and wait until the next attempt is due.

        Raises:
            ServerUnavailableError: The time is up and no server answered, or the connection was closed.
            FlussError: The time is up and a server went on answering `error`.
        """
        self.failures += 1
        left_s = self.left_s
        if left_s <= 0:
            raise self._given_up(error, address) from error
        if self._closed.wait(min(self._pause_s, left_s)):
            raise ServerUnavailableError(f"{self.what}: the connection was closed") from error
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _given_up(self, error: FlussError, address: str) -> FlussError:
        if not isinstance(error, ServerUnavailableError | RequestTimeoutError) or not self._timeout_ms:
            return error
        tried_s = time.monotonic() - self._started
        return ServerUnavailableError(
            f"{self.what}: not done in {tried_s:.1f} s of attempts at {address} ({CLIENT_REQUEST_TIMEOUT.key}). The last "
            f"answer: {error}. If no server runs there, start it again (open the lab, or `fluss-lab up`); then repeat the call"
        )

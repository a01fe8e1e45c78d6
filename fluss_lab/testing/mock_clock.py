"""Time in tests: a clock that only a test moves, and the wait for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

#: 2026-01-01T00:00:00Z.
START_MS = 1_767_225_600_000

#: Between two looks: short beside what is waited for (a process starts in 300 ms), long beside a look.
LOOK_INTERVAL_S: Final = 0.01


class MockClock:
    """Both clocks of a server, in the hand of a test. Threads may share it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<MockClock {self._now_ms}>"

    def now_ms(self) -> int:
        """Return wall time in epoch milliseconds."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds."""
        return self._monotonic_ms

    def advance(self, delta_ms: int) -> None:
        """Let time pass on both clocks."""
        if delta_ms < 0:
            raise ValueError(f"time passes forward, found {delta_ms} ms; see `set_wall` for a clock that is set back")
        with self._lock:
            self._now_ms += delta_ms
            self._monotonic_ms += delta_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock to any time, as an administrator may; the monotonic one does not notice."""
        with self._lock:
            self._now_ms = now_ms


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Return as soon as a condition holds.

    Args:
        condition: Looked at again and again.
        timeout_s: Longest wait; generous, for it is only used up when something is broken.

    Raises:
        AssertionError: It does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come about in {timeout_s:.0f} s")
        pause.wait(LOOK_INTERVAL_S)

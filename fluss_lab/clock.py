"""The clocks: the system's, and the interface by which tests move time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two clocks that the servers read."""

    def now_ms(self) -> int:
        """Return wall time in epoch milliseconds, UTC. It may step back."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment. It never steps back."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Return wall time in epoch milliseconds, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

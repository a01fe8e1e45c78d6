"""The call metrics of a server: number, duration and failures of each method."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Upper edges of the slots that call times are counted in, in milliseconds: from a look-up to a long poll.
TIME_EDGES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000)


@dataclass(slots=True)
class CallCounters:
    """The calls of one method. Plain additions, without a lock: two at the same moment may count as one.

    Attributes:
        total: Calls that have ended.
        failed: Those that were answered by an error; the error of one bucket among several is in the answer instead.
        time_ms: Milliseconds that all took.
        slots: How many took up to each of `TIME_EDGES_MS` and more than the edge before; the last one: longer.
    """

    total: int = 0
    failed: int = 0
    time_ms: float = 0.0
    slots: list[int] = field(default_factory=lambda: [0] * (len(TIME_EDGES_MS) + 1))


class CallMetrics:
    """Counts the calls of a server's methods, by service and method name."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], CallCounters] = {}
        self._lock = threading.Lock()
        #: Calls that were refused before anything of them was read: without the token, and for too many at once.
        self.unauthenticated = 0
        self.crowded_out = 0

    @property
    def counters(self) -> Mapping[tuple[str, str], CallCounters]:
        """Return the counters by (service, method) of the methods that were called."""
        return dict(self._counters)

    def count(self, service: str, method: str, seconds: float, failed: bool) -> None:
        """Count a call that has ended."""
        counters = self._counters.get((service, method))
        if counters is None:
            with self._lock:
                counters = self._counters.setdefault((service, method), CallCounters())
        time_ms = seconds * 1000
        counters.total += 1
        counters.failed += failed
        counters.time_ms += time_ms
        counters.slots[bisect_left(TIME_EDGES_MS, time_ms)] += 1

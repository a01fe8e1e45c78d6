"""The memory of a server's own process: given back to the system when its load is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fluss_lab.rpc.allocator import MemoryRelease
from fluss_lab.server.tablet.periodic_work import Ticker

_INTERVAL_MS: Final = 2_000


@contextmanager
def releasing_memory() -> Iterator[None]:
    """Give memory back from time to time, in a thread of its own, within the block."""
    ticker = Ticker("memory", _INTERVAL_MS, MemoryRelease().look)
    ticker.start()
    try:
        yield
    finally:
        ticker.stop()

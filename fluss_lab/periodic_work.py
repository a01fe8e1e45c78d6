"""Work that is done again and again beside the requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Ticker:
    """A thread that does something every so often until it is stopped.

    What the work raises is logged and does not end it.

    Args:
        name: Of the thread.
        interval_ms: Between the end of one pass and the start of the next.
        work: What to do.
    """

    def __init__(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        self._interval_s = interval_ms / 1000
        self._work = work
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first pass is one interval away."""
        self._thread.start()

    def soon(self) -> None:
        """Make the next pass begin now."""
        self._due.set()

    def stop(self) -> None:
        """End, when a pass under way has ended."""
        self._stopping.set()
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._due.wait(self._interval_s)
            self._due.clear()
            if self._stopping.is_set():
                return
            try:
                self._work()
            except Exception:
                log.exception("%s: a pass failed", self._thread.name)

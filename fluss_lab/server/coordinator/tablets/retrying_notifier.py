"""A thread that tells others what they must hear, so that a server which does not answer holds up nobody else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

#: Between two attempts to tell somebody who did not hear: short beside a server's restart.
AGAIN_PAUSE_S: Final = 0.5


class RetryingNotifier:
    """Does a piece of work in a thread of its own whenever it is asked to, and again until it succeeds.

    Args:
        work: Returns whether all is done. It must not be called by others at the same time.
    """

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._asked = 0
        self._done = 0
        self._is_left = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, wait_s: float) -> None:
        """Have the work done from now on, and wait until it was tried once.

        Args:
            wait_s: Longest wait; the work goes on.
        """
        with self._changed:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="coordinator-teller", daemon=True)
                self._thread.start()
            self._asked = mine = self._asked + 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._done >= mine, wait_s)

    def close(self) -> None:
        """End. Work under way goes on to its end, unheeded."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, after `close`; nothing happens when that takes too long."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._asked > self._done, AGAIN_PAUSE_S if self._is_left else None
                )
                if self._closed:
                    return
                goal = self._asked
            try:
                is_all = self._work()
            except Exception:
                log.exception("telling tablet servers failed")
                is_all = False
            with self._changed:
                self._done, self._is_left = goal, not is_all
                self._changed.notify_all()

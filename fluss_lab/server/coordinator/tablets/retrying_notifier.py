"""A thread that sends notifications and retries them, so that a server which does not answer delays no caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from fluss_lab.errors import FlussError

log = logging.getLogger(__name__)

#: Between two attempts: short beside a server's restart.
AGAIN_PAUSE_S: Final = 0.5


class RetryingNotifier:
    """Runs the same work in a thread of its own on request, and again until it succeeds.

    Args:
        work: Returns whether everything was done. It is never called concurrently.
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
        """Request a run of the work, and wait until it was tried once.

        Args:
            wait_s: Longest wait; the work continues after it.
        """
        with self._changed:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="coordinator-notifier", daemon=True)
                self._thread.start()
            self._asked = mine = self._asked + 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._done >= mine, wait_s)

    def close(self) -> None:
        """Stop. A running attempt continues to its end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, after `close`, at most `timeout_s`."""
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
                log.exception("notifying tablet servers failed")
                is_all = False
            with self._changed:
                self._done, self._is_left = goal, not is_all
                self._changed.notify_all()


def is_settled(attempt: Callable[[], bool], what: str) -> bool:
    """Return whether a notification needs no retry: one that raises, as where the metadata cannot be read, does, and no other."""
    try:
        return attempt()
    except FlussError as error:
        log.warning("event=not_notified what=%s error=%s", what, error)
    except Exception:
        log.exception("event=not_notified what=%s", what)
    return False

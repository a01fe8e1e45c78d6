"""A tierer's work that the main thread waits for, done beside it: an interrupt ends it where it can end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Final, TypeVar

from fluss_lab.interrupts import Flag, Held

T = TypeVar("T")

#: Between two calls of `cancel`: work that was just about to begin did not hear the first.
_CANCEL_INTERVAL_S: Final = 0.5
#: Work that does not end, because lake or server do not answer, is left behind; it cannot commit.
_CANCEL_TIMEOUT_S: Final = 60.0


def run_interruptibly(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Return what work returns, done in a thread of its own when the calling one can be interrupted.

    An interrupt cancels the work, is raised when the work has ended, and a second one at once.

    Args:
        work: Raises when it was cancelled.
        cancel: Makes it end soon. Called again while it goes on.

    Raises:
        KeyboardInterrupt: The main thread was interrupted, whether or not the work was done by then.
    """
    with Held() as held:
        if not held.is_interruptible:
            return work()
        done, returned, raised = Flag(), list[T](), list[BaseException]()

        def run() -> None:
            try:
                returned.append(work())
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        context = copy_context()  # what the work shows belongs to the notebook's cell
        threading.Thread(target=context.run, args=(run,), name="fluss-round", daemon=True).start()
        try:
            done.wait()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                deadline_s = time.monotonic() + _CANCEL_TIMEOUT_S
                while not done.is_set() and time.monotonic() < deadline_s:
                    cancel()
                    done.wait(_CANCEL_INTERVAL_S)
            raise
        if raised:
            raise raised[0]
        return returned[0]

"""The wait for a condition, with a deadline, where there is nothing to wait on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

#: Between two looks: short beside what is waited for (a process starts in 300 ms), long beside a look.
LOOK_INTERVAL_S: Final = 0.01


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

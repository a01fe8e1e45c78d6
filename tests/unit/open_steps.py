"""Steps of locks on the main thread that an interrupt could break, because no `Held` block is around them."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: What of `threading` has locks that Python code acquires and releases.
_OF_THREADING = ("Condition", "Event", "Thread.start", "Semaphore")


class Steps:
    """What was seen: how many steps of locks, and those that were open to an interrupt."""

    def __init__(self) -> None:
        self.seen = 0
        self.open: list[str] = []

    def watch(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one event of `sys.setprofile`."""
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        theirs = "/grpc/" in path or "/concurrent/futures/" in path
        if event != "call" or not (theirs or (path.endswith("/threading.py") and name.startswith(_OF_THREADING))):
            return
        self.seen += 1
        # A queue in C is all that a pool's callback touches.
        is_lockless = name.endswith(("__init__", "weakref_cb"))
        is_held = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if not is_held and not is_lockless and not _is_import(frame):
            self.open.append(f"{name} {path}:{frame.f_lineno}")


@contextmanager
def watched_steps() -> Iterator[Steps]:
    """Watch the steps of the block, on this thread."""
    restored = signal.signal(signal.SIGINT, signal.default_int_handler)
    # What other tests have left is collected first, and not in between: its locks are nobody's.
    gc.collect()
    gc.disable()
    steps = Steps()
    sys.setprofile(steps.watch)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        gc.enable()
        signal.signal(signal.SIGINT, restored)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if "importlib" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False

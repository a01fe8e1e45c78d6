"""Named places where a test may make the process die, fail, pause or wait.

A failpoint is a line ``failpoint("room.step.moment")``. It costs one dict lookup and does nothing
unless armed: in the process by `arm`, or before it starts by the environment variable
``FLUSS_LAB_FAILPOINTS``, as ``name=action[,name=action]``. Actions:

* ``kill``        the process ends by SIGKILL, as if the machine had taken it;
* ``stop``        the process stops by SIGSTOP until it is continued;
* ``error``       a `FailpointError` is raised;
* ``enospc`` / ``eio``   an `OSError` of that kind is raised;
* ``kill@3`` etc. the third pass acts, the others do nothing;
* a callable      called at the first pass, by the thread that passes (of `arm` only).

(After SlateDB's failpoints; kept on the lowest floor because every room above uses them.)
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable

ENVIRONMENT = "FLUSS_LAB_FAILPOINTS"


class FailpointError(RuntimeError):
    """Raised by an armed failpoint with the action ``error``."""


class _Registry:
    """The armed failpoints of this process."""

    def __init__(self, text: str) -> None:
        self.armed: dict[str, tuple[str | Callable[[], object], int]] = {}
        self.passes: dict[str, int] = {}
        self.lock = threading.Lock()
        for item in filter(None, text.split(",")):
            name, _, action = item.partition("=")
            self.arm(name.strip(), action.strip())

    def arm(self, name: str, action: str | Callable[[], object]) -> None:
        if isinstance(action, str):
            verb, _, turn = action.partition("@")
            if verb not in {"kill", "stop", "error", "enospc", "eio"}:
                raise ValueError(f"failpoint {name}: unknown action {action!r}")
            self.armed[name] = (verb, int(turn) if turn else 0)
        else:
            self.armed[name] = (action, 1)
        self.passes[name] = 0


#: A constant of the process: read once from the environment, changed only by tests.
_REGISTRY = _Registry(os.environ.get(ENVIRONMENT, ""))


def arm(name: str, action: str | Callable[[], object]) -> None:
    """Arm a failpoint in this process. Arming again replaces the action and its count."""
    with _REGISTRY.lock:
        _REGISTRY.arm(name, action)


def disarm(name: str | None = None) -> None:
    """Disarm one failpoint, or all of them."""
    with _REGISTRY.lock:
        for each in [name] if name is not None else list(_REGISTRY.armed):
            _REGISTRY.armed.pop(each, None)


def passes(name: str) -> int:
    """Return how often a failpoint was passed since it was armed last, in this process."""
    return _REGISTRY.passes.get(name, 0)


def failpoint(name: str) -> None:
    """Do what the failpoint is armed for; nothing when it is not armed."""
    if name in _REGISTRY.armed:
        _act(name)


def _act(name: str) -> None:
    with _REGISTRY.lock:
        verb, turn = _REGISTRY.armed.get(name, ("", 0))
        _REGISTRY.passes[name] = passed = _REGISTRY.passes.get(name, 0) + 1
    if not verb or (turn and passed != turn):
        return
    if not isinstance(verb, str):
        verb()
    elif verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "stop":
        # To this thread, so that it stops here; a signal to the process would stop the main thread first.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif verb == "error":
        raise FailpointError(f"failpoint {name}")
    else:
        code = errno.ENOSPC if verb == "enospc" else errno.EIO
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

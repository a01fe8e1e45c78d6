"""A server process in which gRPC's own thread has died hears of no call any more, and lives on: it ends instead.

That thread dies of what is raised in gRPC itself: a `MemoryError`, for instance, where a request's bytes find no room. Whoever
watches a server, its coordinator or the attached labs, starts one again that ended; of one that hangs, callers only time out.
"""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import Final

log = logging.getLogger(__name__)

#: As after SIGKILL nothing is tidied up: what is without memory is not to be trusted with it, and recovery needs nothing.
EXIT_CODE: Final = 70
#: Where gRPC takes events from its queue.
_SERVING: Final = ("_server.py", "_serve")


def end_when_serving_is_lost() -> None:
    """Have this process end when the thread dies in which gRPC serves. For processes that are servers and nothing else."""

    def on_error(args: threading.ExceptHookArgs) -> None:
        lost = _is_serving(args.exc_traceback)
        try:
            threading.__excepthook__(args)
            if lost:
                log.critical("event=serving_lost error=%r", args.exc_value)
        finally:
            if lost:
                os._exit(EXIT_CODE)

    threading.excepthook = on_error


def _is_serving(trace: TracebackType | None) -> bool:
    file, function = _SERVING
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == function and os.path.basename(code.co_filename) == file:
            return True
        trace = trace.tb_next
    return False

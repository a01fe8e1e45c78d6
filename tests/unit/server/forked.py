"""A call in a process of its own, forked from one that has imported what it needs: imports take a second."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

from fluss_lab.testing.tierers import PRELOAD

_WAIT_S: Final = 300.0


def _run(pipe: Pipe, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except BaseException:
        pipe.send(traceback.format_exc())
        raise SystemExit(1) from None


def run_forked(function: Callable[..., None], *arguments: Any) -> int:
    """Call a function of a module in a process that forks as it likes; return its exit code.

    Raises:
        AssertionError: The function raised, there or in a process that it forked; or it did not end.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    process.join(_WAIT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{function.__module__}: still running after {_WAIT_S} s")
    if process.exitcode == 1:
        raise AssertionError(ours.recv())
    return process.exitcode

"""The processes of a run: found by a mark in their environment, which every child inherits, and ended together.

Kernels, and the Python workers of Spark, begin sessions and process groups of their own: a process group alone does not have
them all. Servers of a lab that a run started belong to the lab, whatever else uses it, and end by themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

from fluss_lab.model.config.config_chain import RUN_VARIABLE
from fluss_lab.server.process.discovery import process_start_ticks

#: Killed processes are gone within milliseconds, unless the device that they wait for is not there.
KILL_TIMEOUT_S: Final = 20.0
_LOOK_INTERVAL_S: Final = 0.02
#: By so much the system's clock may have made the starts of processes appear later or earlier, where only its time tells them.
_CLOCK_STEP_MAX_S: Final = 60.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SERVER_COMMANDS: Final = ("server", "tablet-server")


def run_processes(run_id: str) -> list[psutil.Process]:
    """Return the living processes of a run, this one not among them.

    Cost: about 5 ms for 100 processes.
    """
    found = []
    me = os.getpid()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != me and process.environ().get(RUN_VARIABLE) == run_id and not _is_gone(process):
                found.append(process)
    return found


def kill_run(run_id: str) -> bool:
    """Kill all processes of a run, but servers of labs, until there are none.

    Returns:
        False when some were still there after `KILL_TIMEOUT_S`.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while left := [process for process in run_processes(run_id) if not _is_server(process)]:
        for process in left:
            with suppress(psutil.Error, OSError):
                process.kill()
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_INTERVAL_S)
    return True


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process and its descendants hold, what they share counted once; 0 when it is gone."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_memory_bytes(process) for process in members if not _is_server(process))


def exceeds_memory(pid: int, limit_bytes: int) -> bool:
    """Return whether a process and its descendants hold more than so many bytes of memory."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return False
    # What is resident counts shared pages for each process: cheap, and never too low.
    return _resident(members) > limit_bytes and memory_of(pid) > limit_bytes


def _resident(members: Iterable[psutil.Process]) -> int:
    total = 0
    for process in members:
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _memory_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error, OSError):
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.uss))
    return 0


def identity(pid: int) -> str:
    """Return the identity of a living process: its id alone may become another one's. Empty when it is gone.

    It has the ticks since the system's start at which the process started, which no step of the clock moves, and which start of
    the system that was; where there are no ticks, the time.
    """
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        if not _is_gone(process):
            ticks = process_start_ticks(pid)
            return f"{pid}:{ticks}:{_boot_id()}" if ticks >= 0 else f"{pid}:{process.create_time():.2f}"
    return ""


def _boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def is_alive(process_identity: str) -> bool:
    """Return whether the process of an identity lives; also of one as older releases recorded it, by the time of its start."""
    pid, _, started = process_identity.partition(":")
    if not pid.isdecimal() or not (found := identity(int(pid))):
        return False
    return found == process_identity if "." not in started else _has_start_time(int(pid), started)


def _has_start_time(pid: int, started: str) -> bool:
    """Return whether a process started at a time of the system's clock, which may have been set since."""
    with suppress(psutil.Error, OSError, ValueError):
        return bool(abs(psutil.Process(pid).create_time() - float(started)) <= _CLOCK_STEP_MAX_S)
    return False


def _is_gone(process: psutil.Process) -> bool:
    return bool(process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


def _is_server(process: psutil.Process) -> bool:
    with suppress(psutil.Error, OSError):
        words = process.cmdline()
        return any(first == "fluss_lab.cli" and second in _SERVER_COMMANDS for first, second in pairwise(words))
    return False

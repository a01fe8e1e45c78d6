"""CPU seconds of this process, of all that it started, and of servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """Return what Linux tells of a process, from its state on; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def tree(without: Iterable[int] = ()) -> list[int]:
    """Return this process and its descendants, less some and theirs."""
    left_out = set(without)
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if found := stat(int(path.name)):
            children.setdefault(int(found[1]), []).append(int(path.name))
    found_pids, pending = [], [os.getpid()]
    while pending:
        pid = pending.pop()
        if pid not in left_out:
            found_pids.append(pid)
            pending += children.get(pid, [])
    return found_pids


def cpu_of_tree(without: Iterable[int] = ()) -> float:
    """Return the CPU seconds of the tree so far, with those of children that ended."""
    return sum(sum(map(int, found[11:15])) for pid in tree(without) if (found := stat(pid))) / _TICKS


def cpu_of_all(pids: Iterable[int]) -> float:
    """Return the CPU seconds so far of some processes themselves."""
    return sum(sum(map(int, found[11:13])) for pid in pids if (found := stat(pid))) / _TICKS


def spent_s(servers: Iterable[int] = ()) -> float:
    """Return the CPU seconds so far of the tree and of servers; this process's to the microsecond, others' to the tick."""
    own, others = os.getpid(), set(servers)
    ended = sum(map(int, stat(own)[13:15]))
    ticks = sum(sum(map(int, found[11:15])) for pid in {*tree(), *others} - {own} if (found := stat(pid)))
    return time.process_time() + (ended + ticks) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is its own: what is mapped from files does not count."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

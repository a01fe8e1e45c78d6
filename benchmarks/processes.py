"""CPU seconds of this process, of all that it started, and of servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far by process: whose child it is, its own, and those of its children that ended."""

    found: Mapping[int, tuple[int, float, float]]

    @classmethod
    def now(cls, servers: Iterable[int] = ()) -> Usage:
        """Return what the tree and servers have used; this process to the microsecond, others to the tick."""
        found = {}
        for pid in {*tree(), *servers}:
            if fields := stat(pid):
                own, ended = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
                found[pid] = (int(fields[1]), time.process_time() if pid == os.getpid() else own, ended)
        return cls(found)

    def until(self, later: Usage) -> float:
        """Return what was used in between. What ended unseen by its parent is lost, and takes nothing away from the rest."""
        before: dict[int, float] = {}
        for pid, (parent, own, ended) in self.found.items():
            if pid not in later.found:
                before[parent] = before.get(parent, 0.0) + own + ended
        used = 0.0
        for pid, (_, own, ended) in later.found.items():
            _, own_before, ended_before = self.found.get(pid, (0, 0.0, 0.0))
            used += own - own_before + max(0.0, ended - ended_before - before.get(pid, 0.0))
        return used


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is its own: what is mapped from files does not count."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

"""What a process and all that it started use, as Linux tells it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fluss_lab.rpc.malloc_settings import resident_bytes

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory and descriptors of a process and those below it, Java apart: its heap grows to its limit first."""

    python_mb: int
    java_mb: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.python_mb} MB Python, {self.java_mb} MB Java, {self.descriptors} descriptors"


def usage_of(pid: int) -> Usage:
    """Return what a process and its descendants use now; those that end meanwhile do not count."""
    python = java = descriptors = 0
    for each in [pid, *descendants(pid)]:
        size = resident_bytes(each) // MB
        if is_java(each):
            java += size
        else:
            python += size
        with suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{each}/fd"))
    return Usage(python, java, descriptors)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did."""
    children: dict[int, list[int]] = {}
    for each, parent in _parents():
        children.setdefault(parent, []).append(each)
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def spark_workers(pid: int) -> list[int]:
    """Return the Python workers of the Spark that a process runs: what its daemon forked."""
    below = descendants(pid)
    daemons = {each for each in below if "daemon" in command_of(each) and not is_java(each)}
    parents = dict(_parents())
    return [each for each in daemons if parents.get(each) in daemons]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_java(pid: int) -> bool:
    return "java" in command_of(pid).partition(" ")[0]


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            yield int(folder.name), int(fields[1])

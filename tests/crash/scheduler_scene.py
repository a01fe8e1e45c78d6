"""A scheduler that is killed again and again: ``python -m tests.crash.scheduler_scene LAB CLOCK``.

For each line on standard input (failpoints, may be empty) it forks one scheduler, prints its process id, and, when that has
ended, ``ended``. Time is what the file CLOCK says. Forked, because importing everything takes longer than what is tested.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from fluss_lab import failpoints
from fluss_lab.jobs import Scheduler
from tests.unit.jobs.job_kit import SCRIPT_PROCESS


class FileClock:
    """The time that a file says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now_ms(self) -> int:
        """Return wall time."""
        return int(self._path.read_text())

    def monotonic_ms(self) -> int:
        """Return wall time: nobody sets it back here."""
        return self.now_ms()


def main() -> None:
    """Fork schedulers for as long as lines arrive."""
    lab, clock = Path(sys.argv[1]), FileClock(Path(sys.argv[2]))
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            for item in filter(None, line.strip().split(",")):
                failpoints.arm(*item.split("="))
            Scheduler(lab, clock=clock, command=SCRIPT_PROCESS, poll_interval_s=0.01).run(threading.Event())
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()

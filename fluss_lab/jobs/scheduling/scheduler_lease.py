"""The right to schedule a lab's jobs: held by one process at a time, until it ends in whatever way."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from fluss_lab.errors import LabError, LabLockedError, RequestTimeoutError, StorageError
from fluss_lab.files import try_lock
from fluss_lab.jobs.job_store import JOBS_FOLDER
from fluss_lab.jobs.run_processes import identity, is_alive

LOCK_FILE: Final = "scheduler.lock"
#: A scheduler that is stopped ends its runs first.
STOP_TIMEOUT_S: Final = 90.0
_LOOK_INTERVAL_S: Final = 0.05
_LOOK_TIMEOUT_S: Final = 0.5
_NOTE_BYTES_MAX: Final = 500
#: In the lock's file: the identity of the process, which its id alone is not.
_PROCESS: Final = "process"


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that schedules a lab's jobs.

    Attributes:
        pid: Its process id.
        is_detached: Whether ``fluss-lab up --jobs`` started it: ``fluss-lab down`` stops it.
    """

    pid: int
    is_detached: bool


_UNKNOWN: Final = LeaseHolder(0, is_detached=False)


class SchedulerLease(Closing):
    """The lease, taken.

    Args:
        lab: The lab's folder.
        is_detached: See `LeaseHolder`.

    Raises:
        LabLockedError: Another scheduler has it.
    """

    def __init__(self, lab: Path, *, is_detached: bool = False) -> None:
        self._path = path = lab / JOBS_FOLDER / LOCK_FILE
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageError(
                f"{path}: the scheduler's lock cannot be made: {error.strerror}; make the lab's folder writable"
            ) from error
        if not _lock(fd):
            os.close(fd)
            holder = lease_holder(lab)
            which = f"process {holder.pid}" if holder is not None else "another process"
            raise LabLockedError(
                f"{lab}: {which} schedules its jobs already; one scheduler works for a lab: stop that one first"
            )
        self._fd: int | None = fd
        # For people, and for `fluss-lab down`.
        note = {"pid": os.getpid(), "detached": is_detached, _PROCESS: identity(os.getpid())}
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps(note).encode())

    def check(self) -> None:
        """Check that it is the lease of what lies in the lab's place still.

        Raises:
            LabError: The lab was removed, moved, or another is in its place, which another process may schedule.
        """
        found = None
        try:
            found = self._path.stat()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                return  # it passes
        if self._fd is not None and (found is None or not os.path.samestat(found, os.fstat(self._fd))):
            raise LabError(
                f"{self._path.parent.parent}: the lab's folder was removed or moved, or another is in its place: its scheduler ends; "
                "`fluss-lab jobs run` schedules what is there now"
            )

    def close(self) -> None:
        """Give it up. Twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _lock(fd: int) -> bool:
    """Lock a file; who only looks at it holds it for a moment."""
    deadline = time.monotonic() + _LOOK_TIMEOUT_S
    while not (locked := try_lock(fd)) and time.monotonic() < deadline:
        time.sleep(_LOOK_INTERVAL_S)
    return locked


def lease_holder(lab: Path) -> LeaseHolder | None:
    """Return which process schedules a lab's jobs; None when none does. The process id is 0 where it is not known.

    Cost: a call of the file system; half a second at most where the lock has just been taken, and its file still says who had it
    before, or nothing.

    Raises:
        StorageError: That cannot be seen.
    """
    path = lab / JOBS_FOLDER / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            f"{path}: whether a scheduler runs cannot be seen: {error.strerror}; mend the file's owner and mode, or its disk"
        ) from error
    deadline = time.monotonic() + _LOOK_TIMEOUT_S
    try:
        # A shared lock: two that look do not take each other for the holder.
        while not try_lock(fd, shared=True):
            holder, process = _parse(os.pread(fd, _NOTE_BYTES_MAX, 0))
            if process is not None and is_alive(process):
                return holder
            if time.monotonic() > deadline:
                # Of a process that is gone the id may be another's by now.
                return holder if process is None else _UNKNOWN
            time.sleep(_LOOK_INTERVAL_S)
        return None
    finally:
        os.close(fd)


def _parse(note: bytes) -> tuple[LeaseHolder, str | None]:
    """Return what a lock's file says: the holder, and the identity of its process; None for that as older releases wrote it."""
    try:
        found = json.loads(note)
        process = found.get(_PROCESS)
        return LeaseHolder(int(found["pid"]), bool(found["detached"])), None if process is None else str(process)
    except (ValueError, KeyError, TypeError, AttributeError):
        return _UNKNOWN, None


def stop_scheduler(lab: Path, holder: LeaseHolder, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop a lab's scheduler, and wait until it is gone.

    Raises:
        RequestTimeoutError: It has not ended in time.
    """
    with suppress(ProcessLookupError):
        if holder.pid > 1:
            os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while (present := lease_holder(lab)) is not None and present.pid == holder.pid:
        if time.monotonic() > deadline:
            raise RequestTimeoutError(f"{lab}: the scheduler (process {holder.pid}) has not ended in {timeout_s:.0f} s")
        time.sleep(_LOOK_INTERVAL_S)

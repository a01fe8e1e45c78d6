"""The lock of a folder, held by the process that writes in it for as long as that lives."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fluss_lab.errors import LabLockedError
from fluss_lab.files import try_lock

log = logging.getLogger(__name__)

LOCK_FILE: Final = "server.lock"
LOOK_INTERVAL_S: Final = 0.02
#: Folders of tablet servers in a lab's folder: that of the first one, and of further ones.
_TABLET_FOLDER: Final = re.compile(r"tablet(-\d+)?")


class FolderLock:
    """The lock of a folder, with the id of its holder's process.

    Args:
        folder: The folder; created when absent, for its owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fd: int | None = None

    def take(self, wait_s: float, goes_on: Callable[[], bool], advice: str) -> None:
        """Take the lock.

        Args:
            wait_s: Longest wait for another holder.
            goes_on: Called repeatedly while another process holds it; False ends the wait.
            advice: The remedy in the message about another holder.

        Raises:
            LabLockedError: Another process holds it.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        waiting = False
        try:
            while not try_lock(fd):
                if time.monotonic() < deadline and goes_on():
                    if not waiting:
                        log.info("event=lock_awaited folder=%s", self.folder)
                    waiting = True
                    time.sleep(LOOK_INTERVAL_S)
                    continue
                holder = os.read(fd, 32).decode("ascii", "replace").strip()
                raise LabLockedError(
                    f"{self.folder}: another server runs on this folder (process {holder or 'unknown'}): {advice}"
                )
            # The id is for people only: on a full disk it is left out.
            with suppress(OSError):
                os.ftruncate(fd, 0)
                os.write(fd, str(os.getpid()).encode())
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    @property
    def is_held(self) -> bool:
        """Return whether this process holds it."""
        return self._fd is not None

    def release(self) -> None:
        """Release it. May be called twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def tablet_folders(folder: Path) -> list[Path]:
    """Return the folders of a lab's tablet servers, sorted."""
    return sorted(path for path in folder.glob("tablet*") if path.is_dir() and _TABLET_FOLDER.fullmatch(path.name))


@contextmanager
def lock_out_servers(folder: Path) -> Iterator[None]:
    """Keep servers of a lab from starting, for as long as the block lasts.

    Raises:
        LabLockedError: A server runs.
    """
    fds = []
    try:
        for place in (folder, *tablet_folders(folder)):
            try:
                fd = os.open(place / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            fds.append(fd)
            if not try_lock(fd):
                raise LabLockedError(
                    f"{place}: a server runs on it, and changes its files meanwhile: stop it with `fluss-lab down "
                    f"{shlex.quote(str(folder))}`"
                )
        yield
    finally:
        for fd in fds:
            os.close(fd)

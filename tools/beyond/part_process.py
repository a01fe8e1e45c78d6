"""The process of a part: it answers once it has started, and ends with whoever started it, however that ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing

#: Nessie's JVM starts in 6 s on a quiet machine; two busy cores take six times that.
START_TIMEOUT_S: Final = 60.0
#: After it a part that was asked to end is killed.
STOP_TIMEOUT_S: Final = 10.0
LOG_LINES_SHOWN: Final = 40
_LOOK_S: Final = 0.05

#: Waits for the end of its input, which comes when the starter is gone, however it went. Then the part's group gets its
#: signal, two seconds, and an end; and its folder goes. A starter that ends the part itself says ``group 0`` or ``done``.
_GUARD: Final = """
trap '' INT TERM HUP
group=0
while read -r word value; do
    case $word in group) group=$value ;; done) exit 0 ;; esac
done
if [ "$group" != 0 ]; then
    kill -s "$1" "$group" 2>/dev/null
    turns=20
    while [ $turns -gt 0 ] && kill -0 "$group" 2>/dev/null; do sleep 0.1; turns=$((turns - 1)); done
    kill -s CONT -- "-$group" 2>/dev/null
    kill -s KILL -- "-$group" 2>/dev/null
fi
[ -z "$2" ] || rm -rf -- "$2"
"""


class PartFailedError(Exception):
    """A part did not start; the text has the end of its log."""


class PartFolder:
    """Where a part keeps its data and its log: a folder that was given, which stays, or a temporary one, which goes."""

    def __init__(self, name: str, given: Path | None) -> None:
        self.is_temporary = given is None
        # Not below pytest's: PostgreSQL runs as another user, who must reach it.
        self.path = Path(tempfile.mkdtemp(prefix=f"fluss-lab-{name}-")) if given is None else given.absolute()
        self.path.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove a temporary folder with all that is in it."""
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)


class PartProcess(Closing):
    """A server in a process group of its own, which can be stopped, killed, paused and started again.

    Args:
        name: In messages and folders.
        command: The program and its arguments.
        folder: Where it runs, with its log.
        is_ready: Whether it answers.
        env: Variables beside this process's own.
        user: Id of the user who runs it; None: this one.
        stop_signal: What asks it to end.
        start_timeout_s: How long it may take until it answers.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: PartFolder,
        is_ready: Callable[[], bool],
        *,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.env = dict(env or {})
        self.log = folder.path / f"{name}.log"
        self._folder = folder
        self._is_ready = is_ready
        self._user = user
        self._stop_signal = stop_signal
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        removed = str(folder.path) if folder.is_temporary else ""
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, f"guard-of-{name}", stop_signal.name.removeprefix("SIG"), removed],
            stdin=subprocess.PIPE, text=True, start_new_session=True, cwd="/",
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Return the process's id."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def launch(self) -> None:
        """Start it for the first time, as `start` does; of one that cannot start nothing is left."""
        with self.ended_by_failure():
            self.start()

    @contextlib.contextmanager
    def ended_by_failure(self) -> Iterator[None]:
        """Close it when the block raises: whoever makes a part has nothing to close before it is made."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it; return when it answers.

        Raises:
            PartFailedError: It ended or did not answer in time; it does not run then.
        """
        assert self._process is None, f"{self.name} runs"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder.path,
                env={**os.environ, **self.env}, start_new_session=True, user=self._user, group=self._user,
                extra_groups=None if self._user is None else [],
            )  # fmt: skip
        self._tell_guard(f"group {self._process.pid}")
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, and kill it when it does not; nothing happens when it does not run."""
        if self._process is not None:
            self.resume()
            self._process.send_signal(self._stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            self.kill()

    def kill(self) -> None:
        """End it and all that it started at once."""
        process, self._process = self._process, None
        if process is not None:
            self._signal(process, signal.SIGKILL)
            process.wait()
            self._tell_guard("group 0")

    def pause(self) -> None:
        """Have it answer nothing until `resume`: connections stay and are accepted."""
        self._signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """Have a paused one go on."""
        self._signal(self._process, signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove a temporary folder."""
        self.stop()
        if self._guard.returncode is None:
            self._tell_guard("done")
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._folder.remove()

    def log_end(self) -> str:
        """Return the last lines that it wrote."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline_s, pause = time.monotonic() + self._start_timeout_s, threading.Event()
        while True:
            if self._is_ready():
                return
            if (code := self._process.poll()) is not None:
                raise PartFailedError(f"{self.name} ended with code {code} before it answered:\n{self.log_end()}")
            if time.monotonic() > deadline_s:
                raise PartFailedError(
                    f"{self.name} did not answer within {self._start_timeout_s:.0f} s:\n{self.log_end()}"
                )
            pause.wait(_LOOK_S)

    def _signal(self, process: subprocess.Popen[bytes] | None, which: signal.Signals) -> None:
        assert process is not None, f"{self.name} does not run"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, which)

    def _tell_guard(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(line + "\n")
        self._guard.stdin.flush()


def free_port() -> int:
    """Return a port of loopback that nobody listens on: the kernel chooses, from those that it gave to nobody lately."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])

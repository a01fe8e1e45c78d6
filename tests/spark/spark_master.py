"""A standalone Spark on loopback, by pyspark's own scripts: a master and workers in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from fluss_lab.spark.session.java_home import find_java
from fluss_lab.spark.session.worker_placement import spark_home
from fluss_lab.testing.mock_clock import wait_until

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
#: How a command begins that sees a folder empty.
_HIDING: Final = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
#: A JVM starts in 2 s on an idle machine.
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0


def can_hide(folder: Path) -> bool:
    """Return whether this user may start processes that see a folder empty: on Linux, as root."""
    try:
        return subprocess.run([*_HIDING, str(folder), "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class StandaloneSpark(Closing):
    """Runs a standalone master and its workers. Use it as a context manager; everything ends with it.

    Args:
        workers: The loopback address of each worker; with several different ones Spark takes them for several machines.
        cores: Of each worker.
        memory_mb: Of each worker, for its executors.
        hidden: A folder that workers and executors see empty, as on another machine; see `can_hide`.

    Raises:
        JavaNotFoundError: No Java 17 or newer.
        AssertionError: A process did not come up; the text is its log.
    """

    def __init__(
        self,
        workers: Sequence[str] = ("127.0.0.1",),
        *,
        cores: int = 1,
        memory_mb: int = 1024,
        hidden: Path | None = None,
    ) -> None:
        home = spark_home()
        assert home is not None, "pyspark is not installed"
        self._home = home
        self._folder = Path(tempfile.mkdtemp(prefix="fluss_lab-standalone-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            log = self._start(_MASTER, "127.0.0.1", "--port", "0", "--webui-port", "0")
            #: What to give Spark as its master.
            self.url = self._output(log, r"Starting Spark master at (spark://\S+)")
            logs = [
                self._start(
                    _WORKER, host, "--cores", str(cores), "--memory", f"{memory_mb}M", "--webui-port", "0",
                    "--work-dir", str(self._folder / f"work-{number}"), self.url, hidden=hidden,
                )
                for number, host in enumerate(workers)
            ]  # fmt: skip
            for each in logs:
                self._output(each, r"Successfully registered with master (\S+)")
        except BaseException:
            self.close()
            raise

    def logs(self) -> list[str]:
        """Return what the processes, executors among them, have written so far."""
        found = [
            each
            for each in self._folder.rglob("*")
            if each.is_file() and each.name.endswith((".log", "stderr", "stdout"))
        ]
        return [each.read_text(errors="replace") for each in found]

    def close(self) -> None:
        """End workers, with their executors, and the master."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str, host: str, *arguments: str, hidden: Path | None = None) -> Path:
        log = self._folder / f"{len(self._processes)}.log"
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": host,
            # Else it is where pyspark is installed.
            "SPARK_WORKER_DIR": str(self._folder / "work"),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        command = [str(self._home / "bin" / "spark-class"), name, "--host", host, *arguments]
        if hidden is not None:
            command = [*_HIDING, str(hidden), *command]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder
            )
        self._processes.append(process)
        return log

    def _output(self, log: Path, pattern: str) -> str:
        """Wait until a process says something, and return the pattern's group."""
        found: list[str] = []

        def said() -> bool:
            found.extend(re.findall(pattern, log.read_text(errors="replace")))
            return bool(found) or any(process.poll() is not None for process in self._processes)

        wait_until(said, timeout_s=START_TIMEOUT_S)
        assert found, f"a process of Spark ended: {log.read_text(errors='replace')[-2000:]}"
        return found[0]

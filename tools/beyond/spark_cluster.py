"""Spark standalone: a master and workers, from pyspark's own jars."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from fluss_lab.closing import Closing
from fluss_lab.spark.session.java_home import find_java
from tools.beyond.part_process import PartFolder, PartProcess, free_port

_ANSWER_TIMEOUT_S: Final = 2.0


class SparkCluster(Closing):
    """A running Spark standalone cluster on loopback, which authenticates. Use it as a context manager.

    Args:
        folder: Where master and workers have their logs and work, each in a folder of its own; it stays. None: temporary ones.
        workers: How many.
        cores: Of each worker.
        memory: Of each worker, and of its executor.

    Attributes:
        master: ``spark://host:port``.
        processes: The master, then the workers.

    Raises:
        JavaNotFoundError: There is no Java for Spark.
        PartFailedError: One did not start.
    """

    def __init__(self, folder: Path | None = None, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        import pyspark

        self.version = str(pyspark.__version__)
        self._home = Path(pyspark.__file__).parent
        self._java = find_java().home
        self._memory = memory
        self._secret = secrets.token_hex(16)
        port, self._ui_port = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.processes: list[PartProcess] = []
        try:
            listens = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._ui_port)]
            self._start(folder, "spark-master", "master.Master", listens, 0)
            for number in range(1, workers + 1):
                place = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores), "--memory", memory]
                self._start(folder, f"spark-worker-{number}", "worker.Worker", [*place, self.master], number)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path | None, name: str, role: str, arguments: list[str], workers: int) -> None:
        """Start one, and wait until the master knows so many workers."""
        place = PartFolder(name, None if folder is None else folder / name)
        settings = place.path / "spark.conf"
        _write_private(settings, self.settings())
        more = ["--work-dir", str(place.path / "work")] if role.startswith("worker") else []
        command = [
            "/bin/bash", str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}",
            "--properties-file", str(settings), *more, *arguments,
        ]  # fmt: skip
        env = {
            "JAVA_HOME": str(self._java), "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1",
        }  # fmt: skip
        process = PartProcess(name, command, place, lambda: self.alive_workers() >= workers, env=env)
        self.processes.append(process)
        process.start()

    def settings(self) -> dict[str, str]:
        """Return Spark's settings of a session on the cluster, as of its master and workers; the secret is among them."""
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self._secret,
            "spark.network.crypto.enabled": "true",
            "spark.executor.memory": self._memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def write_settings(self, folder: Path) -> Path:
        """Write the settings where ``SPARK_CONF_DIR`` may point, readable by this user only; return the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        _write_private(folder / "spark-defaults.conf", {**self.settings(), "spark.master": self.master})
        return folder

    def alive_workers(self) -> int:
        """Return how many workers the master knows and hears; -1 while it does not answer."""
        state = self._state()
        return int(state["aliveworkers"]) if state.get("status") == "ALIVE" else -1

    def applications(self) -> list[str]:
        """Return the ids of the applications that have run on it, or do, those that came first first."""
        state = self._state()
        return sorted(str(each["id"]) for name in ("activeapps", "completedapps") for each in state.get(name, []))

    def _state(self) -> dict[str, Any]:
        """Return what the master says of itself; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui_port}/json/", timeout=_ANSWER_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return {}

    def close(self) -> None:
        """End workers and master, with the executors that they began."""
        for process in reversed(self.processes):
            process.close()
        self.processes.clear()


def _write_private(path: Path, settings: dict[str, str]) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), "utf-8")

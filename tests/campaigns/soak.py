"""Hours of tiering, with kills: ``python -m tests.campaigns.soak --minutes 10``.

Six tables are written and tiered by a service in a process of its own. A verifier holds the lake against the logs all the
time. For the first part of the run the server, the service and Spark's workers are killed at random; then nothing is, and
memory and descriptors must be flat. In the end everything written is in the lake.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from fluss_lab.client import Connection
from fluss_lab.testing import ServerProcess
from fluss_lab.testing.seeds import seed_named
from tests.campaigns.processes import Usage, kill, spark_workers, usage_of
from tests.crash.history import History
from tests.readers.audit import LakeAudit
from tests.readers.lake_files import tiered_ends

KINDS: Final = ("log", "log_parts", "pk", "pk_parts", "pk_types", "pk_versioned")
FRESHNESS: Final = {"table.datalake.enabled": True, "table.datalake.freshness": "2s"}
CLIENT: Final = {"client.request-timeout": "280s"}
#: Everything that runs by the clock runs often, so that kills fall into it.
SERVER: Final = {
    "log.segment.file-size": "256kb",
    "log.flush.interval": "100ms",
    "remote.log.task-interval-duration": "2s",
    "kv.snapshot.interval": "3s",
    "lake.tiering.heartbeat-timeout": "15s",
}
#: So much of the time there are kills.
KILLING: Final = 0.6
KILL_PAUSE_S: Final = (4.0, 15.0)
SAMPLE_S: Final = 5.0
#: Of the time without kills so much is for Spark to start and caches to fill.
WARMING: Final = 0.4
#: Fewer samples in each half say nothing.
SAMPLES_MIN: Final = 6
#: The longest honest wait for a service to start Spark and to tier what is left.
PATIENCE_S: Final = 300.0
#: Growth in the part without kills, of the second half's mean against the first's: noise of allocators is less.
GROWTH_MB_MAX: Final = 60
GROWTH_DESCRIPTORS_MAX: Final = 24


class Worker(threading.Thread):
    """Does one thing again and again until it is told to end, or it fails."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.rng = random.Random(seed)
        self.ending = threading.Event()
        self.turns = 0
        self.error: str | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self.turn()
                self.turns += 1
        except BaseException:
            self.error = f"{self.name}: {traceback.format_exc()}"

    def turn(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """Writes one table; the verifier reads what it knows under its lock."""

    def __init__(self, connection: Connection, kind: str, seed: int) -> None:
        super().__init__(f"writer of {kind}", seed)
        self.lock = threading.Lock()
        self.history = History(connection, kind, self.rng, properties=FRESHNESS)
        self.audit = LakeAudit(self.history)

    def turn(self) -> None:
        with self.lock:
            if self.rng.random() < 0.002 and len(self.history.added) < 3:
                self.history.add_column()
            self.history.write(40)
        self.ending.wait(self.rng.random() * 0.4)

    def verify(self, *, complete: bool = False) -> None:
        with self.lock:
            self.audit.check(complete=complete)

    @property
    def caught_up(self) -> bool:
        """Return whether all that was written is in the lake, as the lake says; the writer has ended."""
        logs = self.history.read()
        ends = tiered_ends(self.audit.table())
        return all(ends.get(place, 0) == len(log.events) for place, log in logs.items())


class Verifier(Worker):
    """Holds one table after the other against its log."""

    def __init__(self, writers: list[Writer], seed: int) -> None:
        super().__init__("verifier", seed)
        self._writers = writers

    def turn(self) -> None:
        self.rng.choice(self._writers).verify()
        self.ending.wait(0.2)


class Service:
    """The tiering service as a process of its own, as an operator starts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "service.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "fluss_lab.cli", "tier", "--continuous", "--folder", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def check_lives(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the service ended by itself, see {self._log.name}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def stop(self) -> None:
        """Stop it as Ctrl-C does; return when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_S)
        self._log.close()


class Soak:
    """One run.

    Args:
        folder: The lab's.
        seed: Of all choices.
        minutes: How long tables are written.
    """

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._seconds = minutes * 60
        self._server = ServerProcess(folder, SERVER, client=CLIENT)
        self._folder = folder
        self.kills: Counter[str] = Counter()
        self.samples: list[dict[str, Usage]] = []
        self.workers: list[Worker] = []

    def run(self) -> None:
        """Run it to its end.

        Raises:
            AssertionError: A violation; the text says which.
        """
        with self._server as server:
            self.writers = [Writer(server.connection, kind, self._seed + n) for n, kind in enumerate(KINDS)]
            self.workers = [*self.writers, Verifier(list(self.writers), self._seed)]
            self._service = Service(self._folder)
            self._service.start()
            started_s = time.monotonic()
            for worker in self.workers:
                worker.start()
            try:
                self._kill_until(started_s + self._seconds * KILLING)
                self._sample_until(started_s + self._seconds)
                self._finish()
            finally:
                for worker in self.workers:
                    worker.ending.set()
                with suppress(subprocess.TimeoutExpired):
                    self._service.stop()
                self._service.kill()
        self._check_flat()

    def _kill_until(self, deadline_s: float) -> None:
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._wait(min(left_s, self._rng.uniform(*KILL_PAUSE_S)))
            victim = self._rng.choice(["server", "service", "worker", "worker", "worker"])
            if victim == "server":
                self._server.kill()
                self._server.start()
            elif victim == "service":
                self._service.kill()
                self._service.start()
            elif workers := spark_workers(self._service.pid):
                kill(self._rng.choice(workers))
            else:
                continue
            self.kills[victim] += 1
            self._say(f"killed a {victim}")

    def _sample_until(self, deadline_s: float) -> None:
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._wait(min(left_s, SAMPLE_S))
            self.samples.append({"server": usage_of(self._server.pid), "service": usage_of(self._service.pid)})
            if len(self.samples) % 6 == 1:
                self._say("; ".join(f"{name}: {usage}" for name, usage in self.samples[-1].items()))

    def _finish(self) -> None:
        for worker in self.workers:
            worker.ending.set()
        for worker in self.workers:
            worker.join(PATIENCE_S)
        self._check()
        deadline_s = time.monotonic() + PATIENCE_S
        while not all(writer.caught_up for writer in self.writers):
            assert time.monotonic() < deadline_s, "the service does not catch up"
            self._wait(1.0)
        # The last rounds may still be telling Fluss.
        self._service.stop()
        for writer in self.writers:
            writer.verify(complete=True)

    def _wait(self, seconds: float) -> None:
        deadline_s, pause = time.monotonic() + seconds, threading.Event()
        while (left_s := deadline_s - time.monotonic()) > 0:
            pause.wait(min(left_s, 0.5))
            self._check()

    def _check(self) -> None:
        self._service.check_lives()
        for worker in self.workers:
            assert worker.error is None, worker.error

    def _check_flat(self) -> None:
        """Compare the halves of the time without kills, less its begin: what was killed last has just started."""
        samples = self.samples[int(len(self.samples) * WARMING) :]
        half = len(samples) // 2
        if half < SAMPLES_MIN:
            self._say(f"{len(samples)} samples of memory are too few to compare")
            return
        for name in ("server", "service"):
            for unit, limit in (("python_mb", GROWTH_MB_MAX), ("descriptors", GROWTH_DESCRIPTORS_MAX)):
                values = [getattr(each[name], unit) for each in samples]
                grown = sum(values[half:]) / len(values[half:]) - sum(values[:half]) / half
                self._say(f"{name} {unit}: {values[0]} ... {values[-1]}, grown by {grown:.1f}")
                assert grown < limit, f"{name}: {unit} grew by {grown:.1f}: {values}"

    def report(self) -> str:
        """Return what happened, in numbers: violations there are none, else it would have failed."""
        events = {writer.name: sum(len(log.events) for log in writer.history.logs.values()) for writer in self.writers}
        checks = {worker.name: worker.turns for worker in self.workers if isinstance(worker, Verifier)}
        return f"kills {dict(self.kills)}; records {events}; checks {checks}"

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def run(folder: Path, seed: int, minutes: float) -> None:
    """Run a soak and print what came of it."""
    soak = Soak(folder, seed, minutes)
    soak.run()
    print(soak.report())


def main() -> None:
    """Run with what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="kept; default: a temporary one")
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else seed_named("soak", by_chance=True)
    if chosen.folder is not None:
        run(chosen.folder, seed, chosen.minutes)
        return
    with tempfile.TemporaryDirectory(prefix="fluss-lab-soak-") as folder:
        run(Path(folder) / "lab", seed, chosen.minutes)


if __name__ == "__main__":
    main()

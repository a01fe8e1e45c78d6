"""A driver with streaming queries of its own, for tests that kill it: ``python -m tests.spark.streamer``, task on stdin.

One query writes each batch into a file of its number, the other into a table. Both go on from their checkpoints. Every
batch that a query has done is told as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fluss_lab.failpoints import ENVIRONMENT
from fluss_lab.files import write_json_atomic

ROOT: Final = Path(__file__).parents[2]
#: Environment variable of everything that a driver starts: a name of its own.
MARK: Final = "FLUSS_LAB_STREAMER"
#: Two drivers at once on a busy machine need minutes until their first batch.
WAIT_S: Final = 900.0
LOG_END_CHARS: Final = 20_000


class Streamer:
    """A driver process. Its JVM and its Python workers go with it.

    Args:
        folder: Of checkpoints and files; those of the last driver, to go on.
        address: Of the cluster, as `fluss_lab.client.ServerAddress.to_json` gives it.
        source: Path of the table that is streamed.
        target: Path of the table that is written.
        ends: Whether the queries end with what there is.
        rows_max: Of a batch.
        failpoints: Name to action, armed in every process of Spark's.
        module: What is run.
    """

    def __init__(
        self, folder: Path, address: str, source: str, target: str, *, ends: bool, rows_max: int,
        failpoints: Mapping[str, str] | None = None, module: str = "tests.spark.streamer",
    ) -> None:  # fmt: skip
        task = {
            "folder": str(folder), "address": address, "source": source, "target": target, "ends": ends,
            "rows_max": rows_max,
        }  # fmt: skip
        armed = ",".join(f"{name}={action}" for name, action in (failpoints or {}).items())
        self._mark = f"{folder}-{time.monotonic_ns()}"
        environment = os.environ | {MARK: self._mark, ENVIRONMENT: armed}
        self._log_path = folder / "streamer.log"
        self._log = self._log_path.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode())
        self._process.stdin.close()
        self.reported: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self.reported.append(json.loads(line))

    def wait_for(self, reported: int, timeout_s: float = WAIT_S) -> bool:
        """Wait until so much was told; return False when the driver ended before."""
        deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
        while len(self.reported) < reported:
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline_s, f"the driver reported {self.reported}, see streamer.log"
            pause.wait(0.05)
        return True

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Return the exit code: 0 when the queries ended, 3 when one failed."""
        code = self._process.wait(timeout_s)
        self.kill()
        return code

    def log_end(self) -> str:
        """Return the last lines that drivers of this folder wrote: why a query failed."""
        return self._log_path.read_text(errors="replace")[-LOG_END_CHARS:]

    def kill(self) -> None:
        """End the driver and its JVM at once, and wait until nothing of them is left."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(WAIT_S)
        deadline_s, pause = time.monotonic() + WAIT_S, threading.Event()
        while any(self._is_ours(path) for path in Path("/proc").glob("[0-9]*")):
            assert time.monotonic() < deadline_s, "Spark outlived the process that started it"
            pause.wait(0.1)
        self._reading.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _is_ours(self, folder: Path) -> bool:
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            return False
        return f"{MARK}={self._mark}".encode() in environment.split(b"\0")


def main() -> int:
    """Run the queries."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as F  # noqa: N812

    from fluss_lab.client import ServerAddress
    from fluss_lab.spark import register
    from fluss_lab.spark.session.spark_session import spark_session
    from fluss_lab.spark.source.source_options import place_options

    task = json.loads(sys.stdin.read())
    folder = Path(task["folder"])
    session = spark_session(master="local[2,3]", folder=folder / "spark")
    register(session, place_options(ServerAddress.from_json(task["address"])))
    reader = (
        session.readStream.format("fluss").option("changelog", "true").option("maxRowsPerTrigger", task["rows_max"])
    )
    frame = reader.load(task["source"]).select(
        F.col("_partition").alias("p"), F.col("_bucket").alias("b"), F.col("_log_offset").alias("o"), "id"
    )

    def write(batch: Any, batch_id: int) -> None:
        rows = [list(row.values()) for row in batch.toArrow().to_pylist()]
        write_json_atomic(folder / "files" / f"{batch_id}.json", rows, durable=False)

    trigger = {"availableNow": True} if task["ends"] else {"processingTime": "0 seconds"}
    (folder / "files").mkdir(exist_ok=True)
    to_files = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "to files"))
    to_table = frame.writeStream.format("fluss").option("table", task["target"])
    to_table = to_table.option("checkpointLocation", str(folder / "to table"))
    queries = [each.trigger(**trigger).start() for each in (to_files, to_table)]
    code, seen = 0, [-1, -1]
    while not code and any(each.isActive for each in queries):
        for number, query in enumerate(queries):
            progress = query.lastProgress
            if progress is not None and progress["batchId"] != seen[number] and progress["numInputRows"]:
                seen[number] = progress["batchId"]
                print(json.dumps({"query": number, "batch": seen[number]}), flush=True)
            try:
                query.awaitTermination(0.1)
            except StreamingQueryException as error:
                print(error, file=sys.stderr)
                code = 3
    for query in queries:
        query.stop()
    session.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())

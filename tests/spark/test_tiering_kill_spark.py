"""A tierer with a Spark of its own, killed: its JVM goes with it, and the next round goes on."""

import threading
import time
from pathlib import Path

import pytest

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import MARK, TiererProcess
from tests.unit.tiering.kit import TAKEOVER, Tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLED = -9


@pytest.mark.parametrize("step", ["tiering.write.after", "tiering.lake_commit.after"])
def test_the_round_after_a_killed_one_on_spark_goes_on(step):
    with EmbeddedCluster(options=TAKEOVER) as cluster:
        tables = Tables(cluster)
        info = tables.create(buckets=2, bucket_key=["id"])
        tables.append(info, 200)
        process = TiererProcess(cluster.address.to_json(), info.table_id, failpoints={step: "kill"}, spark=True)
        pid = process.pid
        assert process.wait() == KILLED
        committed = step == "tiering.lake_commit.after"
        assert tables.lake_rows(info).num_rows == (200 if committed else 0)
        tables.append(info, 50)
        assert tables.tier(info).rows == (50 if committed else 250)
        tables.check(info)
    wait_until_gone(pid)


def wait_until_gone(parent, timeout_s=60.0):
    """Wait until no process of a dead parent's session of Spark is left: none may outlive the test."""
    deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
    while any(_belongs(path, parent) for path in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline_s, "Spark outlived the process that started it"
        pause.wait(0.1)


def _belongs(folder, parent):
    try:
        environment = (folder / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={parent}".encode() in environment.split(b"\0")

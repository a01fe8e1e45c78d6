"""Append from two client processes: to one tablet server beside the coordinator, and to two in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, cpu_of, millions
from fluss_lab.client import Connection, ServerAddress
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.server import cluster
from fluss_lab.testing import ServerProcess

CLIENTS = 2
BUCKETS = 4
BATCH_ROWS = 10_000
CLIENT_ROWS = 4_000_000
RUNS = 3
#: Two servers and two clients need as many cores to be faster; with fewer they must not cost more.
CORES_TO_BE_FASTER = 4


def run() -> None:
    """Measure and print."""
    figures = Figures(f"append by {CLIENTS} client processes, {BUCKETS} buckets, batches of {BATCH_ROWS:,} rows")
    # In turns, so that both meet the same weather.
    found = [[_measured(servers) for servers in (1, 2)] for _ in range(RUNS)]
    one, two = (max(rate for rate, _ in each) for each in zip(*found, strict=True))
    cpu_one, cpu_two = (min(cpu for _, cpu in each) for each in zip(*found, strict=True))
    is_wide = (os.cpu_count() or 1) >= CORES_TO_BE_FASTER
    figures.add("1 tablet server", millions(one))
    figures.add("2 tablet servers", millions(two), millions(one), two / one, "1.6" if is_wide else "")
    figures.add("servers' CPU a million rows, 1", f"{cpu_one:.3f} s")
    # An idle coordinator and a second process's own upkeep are in it.
    goal = "" if is_wide else "at most 1.1"
    figures.add("servers' CPU a million rows, 2", f"{cpu_two:.3f} s", f"{cpu_one:.3f} s", cpu_two / cpu_one, goal)
    figures.print()


def _measured(tablet_servers: int) -> tuple[float, float]:
    """Return rows a second, and the servers' CPU seconds a million rows."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "lab", tablet_servers=tablet_servers) as server,
    ):
        admin = server.connection.admin()
        admin.create_database("bench")
        admin.create_table(TablePath("bench", "t"), make_descriptor(SCHEMA, buckets=BUCKETS))
        discovery = cluster.read_discovery(server.folder)
        assert discovery is not None
        pids = [each.pid for each in discovery.servers]
        clients = [_client(server.address) for _ in range(CLIENTS)]
        before = sum(map(cpu_of, pids))
        started = time.perf_counter()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(b"go\n")
            client.stdin.flush()
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == b"done\n"
        elapsed_s = time.perf_counter() - started
        cpu_s = sum(map(cpu_of, pids)) - before
        for client in clients:
            client.communicate()
    total = CLIENTS * CLIENT_ROWS
    return total / elapsed_s, cpu_s / total * 1e6


def _client(address: ServerAddress) -> subprocess.Popen[bytes]:
    """Start a client, and return it when it is ready to write."""
    client = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.servers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(address.to_json().encode() + b"\n")
    client.stdin.flush()
    assert client.stdout.readline() == b"ready\n"
    return client


def write() -> None:
    """Be a client: an address on standard input, then the word to go."""
    address = ServerAddress.from_json(sys.stdin.readline())
    batch = rows(BATCH_ROWS)
    with Connection(lambda: address) as connection, connection.append_writer("bench.t") as writer:
        writer.append(batch).result()
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(CLIENT_ROWS // BATCH_ROWS):
            writer.append(batch)
        writer.flush()
        print("done", flush=True)


if __name__ == "__main__":
    write()

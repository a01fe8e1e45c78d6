"""A cluster of many tables: its start, memory, care, heartbeats, states, and the connections of many workers."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.data import SCHEMA, rows
from benchmarks.report import cpu_of
from benchmarks.scale import BUCKETS, TABLES, WORKERS, Costs
from fluss_lab.client import Connection
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import ServerProcess
from fluss_lab.tiering.round.source_enumerator import TieringSession
from fluss_lab.workbench import Lab
from fluss_lab.workbench.health.doctor import checks

_DATABASE: Final = "scale"
_IDLE_S: Final = 10.0
_CALLS: Final = 20


def measure(costs: Costs, part: int) -> None:
    """Measure 1,000 tables of 10 buckets, or a part of them, in a server process of its own."""
    count = TABLES // part
    with tempfile.TemporaryDirectory() as name, ServerProcess(Path(name) / "lab") as server:
        admin = server.connection.admin()
        admin.create_database(_DATABASE)
        lake = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
        descriptor = make_descriptor(SCHEMA, buckets=BUCKETS, properties=lake)
        paths = [TablePath(_DATABASE, f"t{number:04d}") for number in range(count)]
        with costs.timed("create tables of 10 buckets, in the lake too", part, server.pid):
            for path in paths:
                admin.create_table(path, descriptor)
        with costs.timed("append a row to each bucket of each table", part, server.pid):
            for path in paths:
                with server.connection.append_writer(path) as writer:
                    writer.append(rows(2 * BUCKETS))
        costs.add("`metadata.db`", part, _size(server.folder / "metadata.db"), "bytes")
        _running(costs, part, server)
        _workbench(costs, part, server)
        _workers(costs, part, server)
        started = time.perf_counter()
        server.restart()
        costs.add("restart of the server, by the clock", part, time.perf_counter() - started, "s")


def _running(costs: Costs, part: int, server: ServerProcess) -> None:
    time.sleep(2)  # what the appends left to do
    costs.add("memory of the server", part, _resident(server.pid), "bytes")
    before = cpu_of(server.pid)
    time.sleep(_IDLE_S)
    idle = (cpu_of(server.pid) - before) / _IDLE_S
    costs.add("CPU of the idle server, of a core", part, idle * 100, "%")
    connection = server.connection
    with TieringSession(connection) as session:
        heartbeat = pb.LakeTieringHeartbeatRequest(request_table=False)
        if session.session_id is not None:
            heartbeat.session_id = session.session_id
        _repeat(
            costs, "heartbeat of a tierer", part, lambda: connection.coordinator().lake_tiering_heartbeat(heartbeat)
        )
    _repeat(
        costs, "states of all tables' tiering", part,
        lambda: connection.coordinator().describe_cluster(pb.DescribeClusterRequest()),
    )  # fmt: skip
    described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    costs.add("  their message", part, described.ByteSize(), "bytes")


def _repeat(costs: Costs, what: str, part: int, call: Callable[[], object]) -> None:
    # The least: what a call takes of which nothing else on the machine took a share.
    seconds = []
    for _ in range(_CALLS):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    costs.add(what, part, min(seconds), "s")


def _workbench(costs: Costs, part: int, server: ServerProcess) -> None:
    with Lab.open(server.folder) as lab:
        with costs.timed("`lab.tables()`", part, server.pid):
            paths = lab.tables()
        with costs.timed("`lab.status()`", part, server.pid):
            lab.status()
        table = lab.table(paths[0])
        _repeat(costs, "`table.buckets()` of one table", part, table.buckets)
        with costs.timed("doctor", part, server.pid):
            list(checks(server.folder, lab.connection))


def _workers(costs: Costs, part: int, server: ServerProcess) -> None:
    """Open a connection for each worker, as the tasks that run at once have them."""
    count, before = WORKERS // part, _resident(server.pid)
    with ExitStack() as stack:
        address = server.address
        with costs.timed("connections of all workers, and a call on each", part, server.pid):
            for _ in range(count):
                connection = Connection(lambda: address)
                stack.callback(connection.close)
                connection.table_info(TablePath(_DATABASE, "t0000"))
        costs.add("  memory of the server for them", part, max(0, _resident(server.pid) - before), "bytes")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))

"""Append and fetch, one client process against one server process."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peer
from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, best_of, millions
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.workbench import Lab, Table

#: Turns of each side, and calls in a turn.
TURNS = 60
CALLS = 20


def run() -> None:
    """Measure and print."""
    figures = Figures("append and fetch: one client, one server, one bucket")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        for batch_rows, total, goal in (
            (1_000, 1_000_000, "0.45 M"),
            (10_000, 4_000_000, ""),
            (100_000, 8_000_000, "5 M"),
        ):
            rate = best_of(3, partial(_append, lab, batch_rows, total))
            figures.add(f"append, batches of {batch_rows:,} rows", millions(rate), goal=goal)
        table = lab.table("bench.b10000")
        fetched, limit = _fetch_beside_peer(lab.table("bench.b1000"))
        figures.add(
            "fetch of 4 MB answers",
            f"{fetched / 1e6:.0f} MB/s",
            f"tuned gRPC {limit / 1e6:.0f} MB/s",
            fetched / limit,
            "0.9",
        )
        scanned = best_of(3, lambda: _scan(table, None))
        figures.add("scan to Arrow, 6 columns", millions(scanned), goal="10 M")
        figures.add("scan to Arrow, 1 of 6 columns", millions(best_of(3, lambda: _scan(table, ["amount"]))))
    figures.print()


def _append(lab: Lab, batch_rows: int, total: int) -> float:
    path = f"bench.b{batch_rows}"
    lab.drop_table(path, if_exists=True)
    table = lab.create_table(path, SCHEMA)
    batch = rows(batch_rows)
    with table.lab.connection.append_writer(table.path) as writer:
        writer.append(batch).result()
        started = time.perf_counter()
        for _ in range(total // batch_rows):
            writer.append(batch)
        writer.flush()
        return total / (time.perf_counter() - started)


def _fetch_beside_peer(table: Table) -> tuple[float, float]:
    """Return bytes a second of whole fetch answers, as the client's gateway gives them, and of bare gRPC.

    A few calls of each in turn, and the middle of many turns, so that both meet the same weather.
    """
    status = table.lab.connection.admin().buckets(table.info)[0]
    server = table.lab.connection.tablet_server(status.bucket)
    offsets = itertools.cycle(_offsets(server, status.bucket.table_id, status.require().end_offset))

    def fetch() -> int:
        frame = server.fetch_log(_request(status.bucket.table_id, next(offsets)))
        return sum(len(view) for view in frame.payloads[0])

    rates: list[list[float]] = [[], []]
    with peer.channel() as channel:
        call_bare = channel.unary_unary(peer.METHOD, response_deserializer=memoryview)

        def bare() -> int:
            return len(call_bare(b"x"))

        for _ in range(TURNS):
            for call, found in zip((fetch, bare), rates, strict=True):
                started = time.perf_counter()
                got = sum(call() for _ in range(CALLS))
                found.append(got / (time.perf_counter() - started))
    return statistics.median(rates[0]), statistics.median(rates[1])


def _request(table_id: int, offset: int) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=4 << 20, max_wait_ms=0, min_bytes=1)
    wanted = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=False)
    wanted.buckets_req.add(bucket_id=0, fetch_offset=offset, max_fetch_bytes=4 << 20)
    return request


def _offsets(server: TabletServerGateway, table_id: int, end: int) -> list[int]:
    """Return where full answers begin, one after another."""
    offsets, offset = [0], 0
    while offset < end:
        frame = server.fetch_log(_request(table_id, offset))
        for view in frame.payloads[0]:
            offset = _end_of(view)
        offsets.append(offset)
    return offsets[:-2]


def _end_of(view: Any) -> int:
    from fluss_lab.records.batch import split_headers

    *_, (header, _whole) = split_headers(view)
    return int(header.next_offset)


def _scan(table: Table, columns: list[str] | None) -> float:
    started = time.perf_counter()
    count: int = sum(batch.num_rows for batch in table.scan(columns=columns).to_batches())
    return count / (time.perf_counter() - started)

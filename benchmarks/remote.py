"""The remote log: how fast segments are copied and how small they get, and reading them beside the server's disk."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, best_of, millions
from fluss_lab.client import BucketStatus, read_range
from fluss_lab.model import TableBucket, make_descriptor
from fluss_lab.records.batch import encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing import wait_until
from fluss_lab.workbench import Lab, Table

_ROWS = 4_000_000
_SEGMENT = "64mb"


def run() -> None:
    """Measure and print."""
    figures = Figures("remote log: one bucket")
    for batch_rows in (1_000, 100_000):
        size, seconds, ratio = _copy(batch_rows)
        figures.add(f"copy of segments, batches of {batch_rows:,} rows", f"{size / seconds / 1e6:.0f} MB/s",
                    f"{1 / ratio:.2f} x smaller")  # fmt: skip
    options: dict[str, object] = {"log.segment.file-size": _SEGMENT, "remote.log.task-interval-duration": "100ms"}
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab", config=options) as lab:
        lab.create_database("bench")
        local, remote = (_table(lab, name, kept) for name, kept in (("here", 1000), ("there", 1)))
        wait_until(lambda: _status(remote).require().segments == 1, 120.0)
        for what, columns in (("6 columns", None), ("1 of 6 columns", ["amount"])):
            beside, found = (best_of(3, partial(_scan, table, columns)) for table in (local, remote))
            figures.add(f"scan to Arrow from remote storage, {what}", millions(found),
                        f"server's disk {millions(beside)}", found / beside)  # fmt: skip
    figures.print()


def _copy(batch_rows: int) -> tuple[int, float, float]:
    """Return the bytes copied, the seconds that it took, and the size of the copy beside the original's."""
    batch = rows(batch_rows)
    payload = b"".join(bytes(memoryview(part)) for part in encode(batch, schema_id=1))
    with tempfile.TemporaryDirectory() as folder:
        service = TabletService(Path(folder), options={"log.segment.file-size": _SEGMENT})
        service.open_buckets([
            pb.PbNotifyLeaderAndIsrReqForBucket(
                physical_table_path=pb.PbPhysicalTablePath(database_name="bench", table_name="t"),
                table_bucket=pb.PbTableBucket(table_id=1, bucket_id=0), leader=0, leader_epoch=0, schema_id=1,
                table_json=json.dumps(make_descriptor(SCHEMA).to_json()).encode(),
            )
        ], 1)  # fmt: skip
        for _ in range(_ROWS // batch_rows):
            request = pb.ProduceLogRequest(acks=-1, table_id=1, timeout_ms=0)
            request.buckets_req.add(bucket_id=0, records=b"")
            service.produce_log(Frame(request, [[memoryview(payload)]]))
        described = pb.DescribeBucketsRequest(table_id=1)
        before = service.describe_buckets(described).buckets[0]
        started = time.perf_counter()
        service.copy_to_remote()
        seconds = time.perf_counter() - started
        after = service.describe_buckets(described).buckets[0]
        service.close()
    copied = before.size_in_bytes * after.remote_log_end_offset // before.log_end_offset
    return copied, seconds, after.remote_size_in_bytes / copied


def _table(lab: Lab, name: str, kept: int) -> Table:
    table = lab.create_table(f"bench.{name}", SCHEMA, properties={"table.log.tiered.local-segments": kept})
    batch = rows(100_000)
    with lab.connection.append_writer(table.path) as writer:
        for _ in range(_ROWS // batch.num_rows):
            writer.append(batch)
    return table


def _status(table: Table) -> BucketStatus:
    return table.lab.connection.admin().buckets(table.info)[0]


def _scan(table: Table, columns: list[str] | None) -> float:
    """Return rows a second of all that rolled segments hold."""
    status = _status(table)
    stop = status.require().local_start_offset or status.require().end_offset
    bucket = TableBucket(table.info.table_id, None, 0)
    started = time.perf_counter()
    found = sum(
        len(run)
        for run in read_range(table.lab.connection, table.info, bucket, 0, stop, projection=columns, lake=False)
    )
    assert found == stop
    return stop / (time.perf_counter() - started)

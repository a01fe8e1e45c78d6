"""One table of many buckets: writing, describing, a round's driver with simulated tasks, its commit, plans of reads."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from benchmarks.data import SCHEMA, rows
from benchmarks.scale import BUCKETS, PARTITIONS, Costs
from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult, WriteResultSerializer
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TaskProgress, TaskResult, TieringTask, parse_task

_PATH: Final = TablePath("scale", "large")
_ROUNDS: Final = 3


class SimulatedTasks:
    """Answers the tasks of a round with files that only metadata knows, and counts what travels.

    Attributes:
        task_bytes: Of all tasks of the last round.
        result_bytes: Of all their results.
        seconds: What it took to answer: no cost of the driver.
    """

    parallelism = 400
    is_alive = True

    def __init__(self) -> None:
        self.task_bytes = self.result_bytes = 0
        self.seconds = 0.0

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Return a result for each task, without reading or writing anything."""
        started = time.process_time()
        parsed = parse_task(tasks[0])
        assert isinstance(parsed, TieringTask)
        target = WriteTarget.from_json(parsed.scene.lake_table)
        results = [_result(task, target) for task in map(parse_task, tasks) if isinstance(task, TieringTask)]
        self.task_bytes, self.result_bytes = sum(map(len, tasks)), sum(map(len, results))
        self.seconds = time.process_time() - started
        return results

    def cancel(self) -> None:
        """Do nothing: there is nothing that runs."""


def _result(task: TieringTask, target: WriteTarget) -> bytes:
    split = task.split
    ids = [each.field_id for each in target.schema.fields]
    place = target.place(split.partition_name, split.table_bucket.bucket)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{target.location}/data/{place.to_path()}/{uuid.uuid4().hex}.parquet",
        file_format=FileFormat.PARQUET,
        partition=place.record,
        record_count=split.end - split.start,
        file_size_in_bytes=4000,
        column_sizes=dict.fromkeys(ids, 400),
        value_counts=dict.fromkeys(ids, split.end - split.start),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds={number: (1).to_bytes(8, "little") for number in ids},
        upper_bounds={number: (2).to_bytes(8, "little") for number in ids},
    )
    file.spec_id = target.spec.spec_id
    now_ms = int(time.time() * 1000)
    written = IcebergWriteResult(
        task.table.table_id, split.partition_name, split.table_bucket.bucket, split.start, split.end, now_ms, (file,)
    )
    serializer = WriteResultSerializer()
    return TaskResult(
        split.split_index, split.end, now_ms, split.end - split.start, serializer.version, serializer.serialize(written),
        size_bytes=4000, start=split.start,
    ).to_bytes()  # fmt: skip


def measure(costs: Costs, part: int) -> None:
    """Measure a table of 1,000 partitions of 10 buckets, or a part of them."""
    count = PARTITIONS // part
    with tempfile.TemporaryDirectory() as name, EmbeddedCluster(Path(name) / "lab") as cluster:
        admin = cluster.connection.admin()
        admin.create_database(_PATH.database)
        properties = {"table.datalake.enabled": True, "table.datalake.auto-maintenance": False}
        schema = SCHEMA.append(pa.field("day", pa.string()))
        descriptor = make_descriptor(schema, buckets=BUCKETS, partitioned_by=["day"], properties=properties)
        info = admin.create_table(_PATH, descriptor)
        days = [f"d{number:05d}" for number in range(count)]
        with costs.timed("create partitions of 10 buckets", part):
            admin.create_partitions(_PATH, [{"day": day} for day in days])
        _append(costs, part, cluster, days)
        _described(costs, part, cluster, info)
        _read(costs, part, cluster, "log only")
        _rounds(costs, part, cluster, info, days)
        _read(costs, part, cluster, "tiered")


def _append(costs: Costs | None, part: int, cluster: EmbeddedCluster, days: Sequence[str]) -> None:
    """Append two rows a bucket, in one call: those without a key go round the buckets of their partition."""
    data = rows(2 * BUCKETS * len(days))
    column = pa.array(days).take(pa.array([at % len(days) for at in range(data.num_rows)]))
    batch = pa.record_batch([*data.columns, column], names=[*data.schema.names, "day"])
    started = time.process_time()
    with cluster.connection.append_writer(_PATH) as writer:
        for at in range(BUCKETS):
            size = 2 * len(days)
            writer.append(batch.slice(at * size, size))
            writer.flush()
    if costs is not None:
        costs.add("append in 10 batches to all partitions", part, time.process_time() - started, "s")


def _described(costs: Costs, part: int, cluster: EmbeddedCluster, info: TableInfo) -> None:
    connection = cluster.connection
    admin = connection.admin()
    with costs.timed("where the buckets are, and how: `admin.buckets()`", part):
        found = admin.buckets(info)
    held = sum(each.require().end_offset > 0 for each in found)
    costs.add("  buckets with records", part, held, "")
    described = cluster.tablet().describe_buckets(pb.DescribeBucketsRequest(table_id=info.table_id))
    costs.add("  message of it", part, described.ByteSize(), "bytes")
    ids = [each.partition_id for each in admin.partitions(_PATH)]
    metadata = connection.coordinator().metadata(pb.MetadataRequest(partitions_id=ids))
    costs.add("  message of the metadata", part, metadata.ByteSize(), "bytes")


def _rounds(costs: Costs, part: int, cluster: EmbeddedCluster, info: TableInfo, days: Sequence[str]) -> None:
    connection = cluster.connection
    storage = connection.lake_storage()
    assert storage is not None
    tasks = SimulatedTasks()
    report: TieringReport | None = None
    driver_s = 0.0
    for number in range(_ROUNDS):
        if number:
            _append(None, part, cluster, days)
        started = time.process_time()
        report = run_round(connection, storage, tasks, table_id=info.table_id)
        driver_s = time.process_time() - started - tasks.seconds
    assert report is not None
    costs.add("driver of a round, with its calls in the server", part, driver_s, "s")
    for stage in ("plan", "commit", "finish"):
        costs.add(f"  of it {stage}, by the clock", part, report.seconds.get(stage, 0.0), "s")
    costs.add("  splits", part, report.splits, "")
    costs.add("  tasks' bytes", part, tasks.task_bytes, "bytes")
    costs.add("  results' bytes", part, tasks.result_bytes, "bytes")
    with costs.timed("how far the lake holds each bucket", part):
        lake_snapshot(connection, _PATH)
    answer = connection.coordinator().get_lake_snapshot(pb.GetLakeSnapshotRequest(table_path=path_message(_PATH)))
    costs.add("  message of it", part, answer.ByteSize(), "bytes")


def _read(costs: Costs, part: int, cluster: EmbeddedCluster, what: str) -> None:
    reader = TableReader(cluster.connection, _PATH)
    with costs.timed(f"read point, {what}", part):
        point = reader.read_point()
    with costs.timed(f"plan of a read, {what}", part):
        scan = reader.scan(read_point=point)
        scan.plan()
    costs.add("  a kept read point", part, len(str(point.to_json())), "bytes")
    if what == "log only":
        with costs.timed(f"read of all rows, {what}", part):
            scan.to_arrow()

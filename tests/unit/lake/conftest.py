"""A lake on a temporary folder, and rows to put into it."""

import json
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lake import CommitterInitContext, WriterInitContext
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, COMMIT_USER, COMMIT_USER_KEY
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.records import LogRecords

EPOCH_MS = 1_700_000_000_000


def summary(commit_id: str | None = None, offsets=()) -> dict[str, str]:
    """The summary that a round gives its snapshot; offsets as (partition, bucket, end, max timestamp)."""
    entries = [
        ({} if partition is None else {"partition_id": 1, "partition_name": partition})
        | {"bucket": bucket, "offset": end, "max_timestamp": timestamp}
        for partition, bucket, end, timestamp in offsets
    ]
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        COMMIT_ID_KEY: commit_id or uuid.uuid4().hex,
        BUCKET_OFFSET_KEY: json.dumps(entries),
    }


def records(rows: pa.RecordBatch, first_offset: int = 0, timestamps_ms=None) -> LogRecords:
    offsets = np.arange(first_offset, first_offset + rows.num_rows, dtype=np.int64)
    if timestamps_ms is None:
        timestamps_ms = EPOCH_MS + offsets
    return LogRecords(rows, pa.array(offsets), pa.array(np.asarray(timestamps_ms, dtype=np.int64)))


class Lake:
    """A storage of its own, with what the tests do to it again and again."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.properties = {
            "name": "test",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog/lake.db",
            "warehouse": f"file://{folder}/warehouse",
        } | properties
        self.storage = IcebergLakeStorage(self.properties)
        self.catalog = self.storage.create_lake_catalog()
        self.factory = self.storage.create_lake_tiering_factory()
        self.rounds = 0

    def info(self, schema, *, name="t", table_id=7, comment=None, **definition) -> TableInfo:
        definition["properties"] = {"table.datalake.enabled": True} | definition.get("properties", {})
        descriptor = make_descriptor(schema, comment=comment, **definition)
        return TableInfo(TablePath("db", name), table_id, 1, descriptor, 0, 0)

    def table(self, schema, **definition) -> TableInfo:
        info = self.info(schema, **definition)
        self.catalog.create_table(info)
        return info

    def load(self, info: TableInfo):
        return self.storage.access.load_table(info.path)

    def writer(self, info, bucket=0, partition=None, split=0, target=None):
        place = TableBucket(info.table_id, None if partition is None else 1, bucket)
        target = target or self.factory.describe_table(info)
        return self.factory.create_lake_writer(
            WriterInitContext(info, place, partition, target, f"round{self.rounds}", split)
        )

    def write(self, info, *runs: LogRecords, bucket=0, partition=None):
        writer = self.writer(info, bucket, partition)
        for run in runs:
            writer.write(run)
        return writer.complete()

    def committer(self, info):
        return self.factory.create_lake_committer(CommitterInitContext(info, f"round{self.rounds}"))

    def commit(self, info, *results, commit_id=None) -> int:
        """Commit results on top of whatever is there."""
        self.rounds += 1
        committer = self.committer(info)
        offsets = [(r.partition, r.bucket, r.end_offset, r.max_timestamp_ms) for r in results]
        planned = committer.current_snapshot_id()
        return int(committer.commit(committer.to_committable(results), planned, summary(commit_id, offsets)))

    def append(
        self, info, rows: pa.RecordBatch, first_offset=0, *, bucket=0, partition=None, timestamps_ms=None
    ) -> int:
        """Write and commit rows as one file."""
        run = records(rows, first_offset, timestamps_ms)
        return self.commit(info, self.write(info, run, bucket=bucket, partition=partition))

    def rows(self, info, snapshot_id, columns=None, **options) -> pa.Table:
        source = self.storage.create_lake_source(info)
        names = columns or info.schema.names
        splits = source.plan(snapshot_id, stops=options.get("stops"))
        batches = [batch for _, batch in source.read(splits, names, **options)]
        if batches:
            return pa.Table.from_batches(batches)
        return pa.schema([info.schema.arrow_schema.field(name) for name in names]).empty_table()


@pytest.fixture
def lake(tmp_path) -> Lake:
    """A lake under a path with a space in it."""
    return Lake(tmp_path / "a lab")

"""Lookup joins of streams: each micro-batch at a point of its own, kept in the checkpoint."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from fluss_lab.spark.lookup.batch_points import POINTS
from fluss_lab.spark.lookup.lookup_frame import JoinRequest, join_frame
from fluss_lab.spark.lookup.task_counts import TaskCounts
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.sharded_rows import ShardedRows

pytestmark = pytest.mark.spark

KEYS = 12


def versioned(version):
    """Return rows that say of which version they are; each version lacks a key."""
    ids = [i for i in range(KEYS) if i != version % KEYS]
    return pa.table({"id": pa.array(ids, pa.int64()), "version": pa.array([version] * len(ids), pa.int32())})


@pytest.fixture
def source(tmp_path):
    return ShardedRows.create(tmp_path / "rows", versioned(1), shard_by=["id"], shards=4, unique=["id"])


class Input:
    """A stream of files of JSON; each file is a micro-batch."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.count = spark, folder, 0
        folder.mkdir()

    def add(self, ids):
        path = self.folder / f"{self.count}.json"
        (self.folder.parent / "new").write_text("".join(json.dumps({"id": i, "file": self.count}) + "\n" for i in ids))
        (self.folder.parent / "new").rename(path)
        self.count += 1

    def frame(self):
        reader = self.spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1)
        return reader.json(self.folder.as_uri())


@pytest.fixture
def stream(spark, tmp_path):
    return Input(spark, tmp_path / "input")


def expected(ids, version):
    return sorted((i, version if i < KEYS and i != version % KEYS else None) for i in ids)


class Batches:
    """A sink that asks for each batch twice, and may fail after it."""

    def __init__(self):
        self.rows = {}
        self.fails = False
        self.between = None

    def __call__(self, frame, batch_id):
        rows = sorted((row.id, row.version) for row in frame.collect())
        if self.between is not None:
            self.between()
        assert sorted((row.id, row.version) for row in frame.collect()) == rows
        self.rows.setdefault(batch_id, []).append(rows)
        if self.fails:
            raise RuntimeError("after")


def run(frame, sink, checkpoint):
    query = (
        frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    )
    started = query.start()
    try:
        assert started.awaitTermination(120)
    finally:
        started.stop()


def test_batches_have_points(spark, source, stream, tmp_path):
    """While the source changes, during a batch that is used twice, and before one that is run again."""
    ids, sink, counts = [*range(KEYS + 2), 1, 1], Batches(), TaskCounts(spark.sparkContext)
    checkpoint, versions = tmp_path / "check point", iter(range(2, 100))

    def change():
        assert source.put(versioned(number := next(versions))) == str(number)

    request = JoinRequest({"id": "id"}, shuffle=True, tasks=3, counts=counts)
    sink.between = change
    for _ in range(2):
        stream.add(ids)
    run(join_frame(stream.frame(), source, request), sink, checkpoint)
    assert sink.rows == {0: [expected(ids, 1)], 1: [expected(ids, 2)]}
    stream.add(ids)
    sink.fails = True
    with pytest.raises(StreamingQueryException, match="after"):
        run(join_frame(stream.frame(), source, request), sink, checkpoint)
    sink.fails = False
    stream.add(ids)
    run(join_frame(stream.frame(), source, request), sink, checkpoint)
    assert sink.rows[2] == [expected(ids, 3)] * 2
    assert sink.rows[3] == [expected(ids, 5)]
    assert sorted(path.name for path in (checkpoint / POINTS / source.name).iterdir()) == ["0", "1", "2", "3"]
    wait_until(lambda: sum(row["rows"] for row in counts.rows()) == len(ids) * 10)
    assert {row["batch"] for row in counts.rows()} == {0, 1, 2, 3}

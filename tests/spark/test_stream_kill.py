"""Streaming queries over a table whose history is mostly in the lake, killed and started again: every event once.

The sinks are a folder with a file for each batch, and a table of the same cluster. What the driver is killed in the middle
of is decided by failpoints, or by the seed; meanwhile rows are appended, tiered, compacted, expired and dropped.
"""

import json
import random

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from tests.spark.streamer import Streamer
from tests.unit.read.kit import OPTIONS, ModelTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STEPS = [
    "sink.stage.after=kill",
    "sink.intent.before=kill",
    "sink.intent.after=kill",
    "sink.send.after=kill",
    "sink.send.after=kill@2",
    "sink.note.before=kill",
    "sink.note.after=kill",
    "sink.done.before=kill",
    "sink.done.after=kill",
]
TARGET = TablePath("db", "target")
KILLS = 24


class World:
    """A table that lives on while its streams are killed."""

    def __init__(self, cluster, clock, rng):
        self.cluster = cluster
        self.rng = rng
        self.table = ModelTable(cluster, clock, "source")
        self.months = ["2013-01", "2013-02"]
        columns = {"p": "string", "b": "int", "o": "bigint", "id": "int"}
        cluster.connection.admin().create_table(TARGET, make_descriptor(columns, buckets=2, bucket_key=["id"]))

    def begin(self):
        """Write a history that only the lake holds, and a few records more."""
        for _ in range(3):
            self.table.append_random(self.rng, 80, self.months)
            self.table.tier()
        self.table.expire()
        self.table.append_random(self.rng, 20, self.months)

    def step(self):
        action = self.rng.choice(["append", "append", "tier", "retention", "compact", "expire", "month"])
        if action == "append":
            self.table.append_random(self.rng, self.rng.randint(1, 60), self.months)
        elif action == "tier":
            self.table.tier()
        elif action == "retention":
            self.table.tier()
            self.table.expire()
        elif action == "month" and len(self.months) < 6:
            self.months.append(f"2014-0{len(self.months)}")
        elif action in {"compact", "expire"}:
            connection = self.cluster.connection
            executor, storage = LocalTieringExecutor(), connection.lake_storage()
            day_ms = 86_400_000
            maintain_by_hand(connection, storage, executor, action, self.table.info.table_id, ahead_ms=30 * day_ms)

    def streamer(self, folder, *, ends=False, step=None, rows_max=50):
        armed = dict([step.split("=")]) if step else {}
        return Streamer(
            folder, self.cluster.address.to_json(), str(self.table.path), str(TARGET), ends=ends,
            rows_max=rows_max, failpoints=armed,
        )  # fmt: skip

    def check(self, folder):
        """Check that both sinks have every record once."""
        expected = sorted([each.partition, each.bucket, each.offset, each.row[0]] for each in self.table.records)
        files = [json.loads(path.read_text()) for path in (folder / "files").glob("*.json")]
        assert sorted(row for file in files for row in file) == expected
        log = TableReader(self.cluster.connection, TARGET).changelog(columns=["p", "b", "o", "id"]).to_arrow()
        rows = [[row["p"], row["b"], row["o"], row["id"]] for row in log.to_pylist()]
        assert sorted(rows) == expected


@pytest.fixture
def world(seed):
    clock = MockClock()
    with EmbeddedCluster(options=OPTIONS | {"log.segment.file-size": "20kb"}, clock=clock) as cluster:
        found = World(cluster, clock, random.Random(seed))
        found.begin()
        yield found


def test_a_stream_goes_on_after_its_driver_was_killed_in_the_middle_of_a_batch(world, tmp_path):
    # The process that writes dies with a part of a batch sent; the query fails with it, and so does the driver.
    streamer = world.streamer(tmp_path, step="sink.send.after=kill@2")
    assert streamer.wait() == 3
    world.table.tier()
    world.table.expire()
    world.table.append_random(world.rng, 30, [*world.months, "2013-03"])
    streamer = world.streamer(tmp_path, ends=True, rows_max=200)
    assert streamer.wait() == 0, streamer.log_end()
    world.check(tmp_path)


@pytest.mark.campaign
def test_streams_killed_again_and_again_give_every_event_once(world, tmp_path):
    rng, progressed = world.rng, 0
    for number in range(KILLS):
        step = STEPS[number % len(STEPS)] if number % 2 else None
        streamer = world.streamer(tmp_path, step=step)
        wanted = rng.randint(1, 5)
        while not len(streamer.reported) >= wanted:
            world.step()
            # The streams may have all there was: something must come for them to tell of.
            world.table.append_random(rng, 5, world.months)
            if not streamer.wait_for(min(len(streamer.reported) + 1, wanted)):
                break
        progressed += len(streamer.reported)
        streamer.kill()
    assert progressed >= KILLS
    streamer = world.streamer(tmp_path, ends=True)
    assert streamer.wait() == 0, streamer.log_end()
    world.check(tmp_path)

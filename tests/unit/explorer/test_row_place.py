"""The place of a row: what `locate` says, and why nothing is known where nothing is."""

import random

import pytest

from fluss_lab.errors import BucketNotFoundError
from fluss_lab.explorer.screens.row_place import row_place
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS, ModelTable

NOWHERE = dict.fromkeys(("file", "content", "position", "snapshot_id", "server", "segment", "byte", "local", "unknown"))


@pytest.fixture(scope="module")
def make_table():
    clock = MockClock()
    with EmbeddedCluster(options=OPTIONS, clock=clock) as cluster:
        yield lambda name: ModelTable(cluster, clock, name, partitioned=False)


def test_a_record_of_lake_and_log_has_both_places(make_table):
    table = make_table("both")
    table.append_random(random.Random(1), 30, ["2013-01"])
    table.clock.advance(1000)
    table.tier()
    table.append_random(random.Random(1), 30, ["2013-01"])
    reader, met = table.reader(), set()
    for record in table.records:
        place = row_place(reader, None, record.bucket, record.offset)
        exact = reader.locate(None, record.bucket, record.offset)
        lake, log = exact.lake, exact.log
        assert place == NOWHERE | {
            **({} if lake is None else {"file": lake.file, "content": "data", "position": str(lake.position), "snapshot_id": str(lake.snapshot_id)}),
            **({} if log is None else {"server": log.server, "segment": log.file, "byte": str(log.position), "local": not log.is_remote}),
        }  # fmt: skip
        met.add((lake is not None, log is not None))
    assert met == {(True, True), (False, True)}


def test_a_record_that_is_held_nowhere_is_not_known_and_it_says_why(make_table):
    table = make_table("gone")
    for _ in range(8):
        table.append_random(random.Random(1), 60, ["2013-01"])
    table.connection.admin().alter_table(table.path, set={"table.datalake.enabled": False})
    table.cluster.tablet().apply_retention(table.clock.now_ms() + 400 * 24 * 3_600_000)
    status = next(each for each in table.connection.admin().buckets(table.info) if each.start_offset > 0)
    place = row_place(table.reader(), None, status.bucket.bucket, 0)
    assert place["unknown"].startswith("OffsetOutOfRangeError: ")
    assert "is held neither in the cluster nor in the lake any more" in place["unknown"]
    assert place | {"unknown": None} == NOWHERE


def test_a_bucket_that_there_is_not_is_not_known(make_table):
    place = row_place(make_table("few").reader(), None, 99, 0)
    assert place["unknown"].startswith(f"{BucketNotFoundError.__name__}: ")

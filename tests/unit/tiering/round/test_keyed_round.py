"""Rounds of primary-key tables: what the lake holds afterwards is what happened, event by event."""

import json
import random as randoms
from urllib.parse import unquote, urlparse

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import TableNotFoundError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.snapshot_summary import REPLAY_START_KEY
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import FailedTieringEvent, TieringSourceEnumerator
from tests.unit.tiering.keyed_kit import PARTITIONED, KeyedTable

pytestmark = pytest.mark.slow

#: Cuts whatever there is into one split a worker.
FINE = TieringOptions(split_bytes_min=1)

KINDS = {
    "two buckets": {},
    "partitioned": {"columns": PARTITIONED, "primary_key": ["id", "p"], "partitioned_by": ["p"], "buckets": 1},
    "first_row": {"properties": {"table.merge-engine": "first_row"}, "buckets": 1},
    "versioned": {
        "columns": {"id": "bigint not null", "name": "string", "x": "double", "v": "bigint"},
        "properties": {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
    },
}


def made(tables, kind, name="people"):
    return KeyedTable(tables, name, **KINDS[kind])


@pytest.mark.parametrize("kind", ["two buckets", "partitioned"])
def test_random_histories_in_many_rounds(tables, seed, kind):
    """Splits cut or not, columns added on the way, rounds limited or not."""
    random = randoms.Random(seed)
    people = made(tables, kind)
    for turn in range(5):
        people.change(random)
        if turn == 2:
            people.add_column("note")
        options = random.choice([
            FINE, TieringOptions(), TieringOptions(round_records_max=25), TieringOptions(split_bytes_min=1, round_bytes_max=900)
        ])  # fmt: skip
        report = tables.tier(
            people.info, executor=LocalTieringExecutor(parallelism=random.choice([1, 4])), options=options
        )
        people.check(complete=not report.is_limited)
    while tables.tier(people.info, options=FINE).is_limited:
        pass
    people.check()


def test_updates_between_the_splits_of_a_bucket(tables):
    """Rows that one task writes and others end: only the committer can place those deletes."""
    people = made(tables, "two buckets")
    for turn in range(4):
        people.upsert([{"id": key, "name": f"n{turn}", "x": float(turn)} for key in range(20)])
    people.delete([{"id": key} for key in range(5)])
    report = tables.tier(people.info, executor=LocalTieringExecutor(parallelism=6), options=FINE)
    assert report.splits > 2
    assert (report.rows, report.events) == (80, 65)
    people.check()


def test_rounds_with_maintenance_between(tables, seed):
    random = randoms.Random(seed)
    people = KeyedTable(tables, properties={"table.datalake.auto-maintenance": True})
    for _ in range(4):
        people.upsert([{"id": key, "name": f"n{random.randrange(9)}", "x": random.random()} for key in range(30)])
        people.change(random)
        tables.tier(people.info, options=FINE, executor=LocalTieringExecutor(parallelism=3))
        people.check()
    assert any(snapshot.summary.operation.value == "replace" for snapshot in tables.lake(people.info).snapshots())


# -- buckets whose log does not reach back to their begin --------------------------------------------------------------

FORGETFUL = {"log.segment.file-size": "1kb", "log.retention.check-interval": "20ms"}


def late(tables, random, **options):
    """Return a table whose lake is switched on when some of its log is gone, and where its snapshots are."""
    tables.cluster.restart(FORGETFUL)
    people = KeyedTable(tables, properties={"table.datalake.enabled": False}, **options)
    for _ in range(4):
        people.change(random, count=60)
    people.upsert([{"id": key, "name": "all", "x": 0.5} for key in range(25)])
    starts = people.snapshot()
    people.change(random, count=5)
    begins = people.lose_log()
    assert all(0 < begins[place] <= starts[place] for place in starts)
    people.info = people.admin.alter_table(people.info.path, set={"table.datalake.enabled": True})
    return people, starts


def test_a_bucket_whose_log_was_cut_off_begins_with_its_snapshot(tables, seed):
    random = randoms.Random(seed)
    people, starts = late(tables, random)
    people.change(random)
    report = tables.tier(people.info)
    assert report.snapshots == 2
    assert {(each.partition, each.bucket): each.start for each in report.buckets} == starts
    people.check(starts=starts)
    people.change(random)
    assert tables.tier(people.info, options=FINE).snapshots == 0
    people.check(starts=starts)


def test_rows_of_a_snapshot_have_the_columns_of_the_plan(tables, seed):
    random = randoms.Random(seed)
    people, starts = late(tables, random, buckets=1)
    people.add_column("note")
    people.upsert([{"id": 99, "name": "new", "x": 1.0, "note": "noted"}])
    tables.tier(people.info)
    people.check(starts=starts)


class Between(LocalTieringExecutor):
    """Does something between the plan and the first task of the first rounds."""

    def __init__(self, action, times=1, **options):
        super().__init__(**options)
        self.action, self.times = action, times

    def run(self, tasks, progress=None):
        if self.times:
            self.times -= 1
            self.action()
        return super().run(tasks, progress)


def test_a_snapshot_that_goes_before_it_is_read_is_replaced_by_the_next(tables, seed):
    """Of those that are retained, two make room for it while the round waits for its tasks."""
    random = randoms.Random(seed)
    people, _ = late(tables, random, buckets=1)
    newest = {}

    def supersede():
        for _ in range(3):
            people.change(random)
            newest.update(people.snapshot())

    executor = Between(supersede)
    report = tables.tier(people.info, executor=executor)
    assert report.snapshots == 1
    assert executor.times == 0
    assert people.check(starts=newest) == {(None, 0): len(people.model.buckets[None, 0].log)}


def test_the_start_of_replay_is_reported_to_lake_and_cluster(tables, seed):
    people, starts = late(tables, randoms.Random(seed))
    tables.tier(people.info)
    said = json.loads(tables.lake(people.info).current_snapshot().summary.additional_properties[REPLAY_START_KEY])
    assert {(None, each["bucket"]): each["offset"] for each in said} == starts
    known = tables.known(people.info)
    assert {(None, bucket.bucket): start for bucket, start in known.starts.items()} == starts


def test_the_start_of_replay_survives_a_round_that_does_not_live_to_tell(tables, seed):
    people, starts = late(tables, randoms.Random(seed))
    failpoints.arm("tiering.lake_commit.after", "error")
    with pytest.raises(FailpointError):
        tables.tier(people.info)
    failpoints.disarm()
    people.upsert([{"id": 1, "name": "later", "x": None}])
    assert tables.tier(people.info).snapshots == 0
    known = tables.known(people.info)
    assert {(None, bucket.bucket): start for bucket, start in known.starts.items() if start} == starts
    people.check(starts=starts)


def test_a_bucket_that_is_only_a_snapshot_is_tiered(tables, seed):
    """Nothing came after it, and nothing may be left of the log."""
    random = randoms.Random(seed)
    people, _ = late(tables, random, buckets=1)
    starts = people.snapshot()
    report = tables.tier(people.info)
    assert (report.splits, report.snapshots, report.events) == (1, 1, 0)
    assert report.rows == len(people.live_at((None, 0), starts[None, 0]))
    people.check(starts=starts)


# -- merge engines and partial rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["first_row", "versioned"])
def test_merge_engines(tables, seed, kind):
    random = randoms.Random(seed)
    people = made(tables, kind)
    for _ in range(3):
        rows = [{"id": random.randrange(9), "name": f"n{random.randrange(9)}", "x": 0.5} for _ in range(20)]
        people.upsert([row | {"v": random.randrange(9)} if kind == "versioned" else row for row in rows])
        tables.tier(people.info, options=FINE)
        people.check()


def test_partial_rows(tables):
    people = made(tables, "two buckets")
    people.upsert([{"id": key, "name": f"n{key}", "x": 1.0} for key in range(8)])
    tables.tier(people.info)
    people.upsert([{"id": key, "x": 2.0} for key in range(4, 12)])
    report = tables.tier(people.info)
    assert (report.rows, report.events) == (8, 4)
    people.check()


# -- limits ------------------------------------------------------------------------------------------------------------


def is_due(tables):
    """Return whether the coordinator offers a table to whoever asks for one."""
    enumerator = TieringSourceEnumerator(tables.connection, None, 3.0)
    assignment = enumerator.request(None)
    if assignment is not None:
        enumerator.handle(FailedTieringEvent(assignment, "only asked"))
    return assignment is not None


def test_a_round_that_runs_out_of_time_is_followed_by_the_next_at_once(tables):
    people = made(tables, "two buckets")
    people.upsert([{"id": key, "name": f"n{key}", "x": 0.0} for key in range(400)])
    people.upsert([{"id": key, "name": f"m{key}", "x": 0.0} for key in range(400)])
    options = TieringOptions(split_bytes_min=1, split_bytes_max=4096, round_duration_max_s=0.0)
    report = tables.tier(people.info, options=options)
    assert report.is_limited
    assert report.splits == 1
    ends = people.check(complete=False)
    assert 0 < sum(ends.values()) < 1200
    assert is_due(tables)
    rounds = 0
    while report.is_limited:
        report = tables.tier(people.info, options=options, executor=LocalTieringExecutor(parallelism=3))
        rounds += 1
    people.check()
    assert rounds > 1
    assert not is_due(tables)


def test_what_began_in_time_is_written_whole(tables):
    """Two pieces of a bucket are begun; the third is not, and no file of it is left."""
    people = made(tables, "two buckets")
    people.upsert([{"id": key, "name": f"n{key}", "x": 0.0} for key in range(400)])
    options = TieringOptions(split_bytes_min=1, split_bytes_max=4096, round_duration_max_s=0.0)
    report = tables.tier(people.info, options=options, executor=LocalTieringExecutor(1, parallelism=2))
    assert report.splits == 2
    assert len({each.bucket for each in report.buckets}) == 2  # the first piece of each before a second of one
    assert tables.files(people.info) == {path_of(each) for each in tables.lake(people.info).inspect.files().to_pylist()}


def path_of(file):
    return unquote(urlparse(file["file_path"]).path)


def test_a_round_beyond_its_bytes_is_followed_by_the_next_at_once(tables):
    people = made(tables, "two buckets")
    people.upsert([{"id": key, "name": f"n{key}", "x": 0.0} for key in range(200)])
    assert tables.tier(people.info, options=TieringOptions(round_bytes_max=600)).is_limited
    people.check(complete=False)
    assert is_due(tables)
    assert not tables.tier(people.info).is_limited
    people.check()
    assert not is_due(tables)


# -- tasks that run more than once -------------------------------------------------------------------------------------


class Twice(LocalTieringExecutor):
    """Runs every task twice, as after a lost answer or by speculation; one of the results counts."""

    def __init__(self, random):
        super().__init__(parallelism=3)
        self.random = random

    def _one(self, task):
        return self.random.choice([super()._one(task), super()._one(task)])


def test_a_task_that_ran_twice_counts_once(tables, seed):
    random = randoms.Random(seed)
    people = made(tables, "two buckets")
    for _ in range(2):
        people.change(random)
        tables.tier(people.info, executor=Twice(random), options=FINE)
        people.check()


# -- what happens meanwhile --------------------------------------------------------------------------------------------


def test_columns_added_while_the_tasks_run(tables):
    people = made(tables, "two buckets")
    people.upsert([{"id": key, "name": f"n{key}", "x": 0.0} for key in range(20)])
    tables.tier(people.info, executor=Between(lambda: people.add_column("note")))
    people.upsert([{"id": key, "name": "new", "x": 0.0, "note": "n"} for key in range(5)])
    tables.tier(people.info)
    people.check()


def test_a_table_dropped_and_made_again_meanwhile_gets_nothing_of_the_old(tables):
    people = made(tables, "two buckets")
    people.upsert([{"id": 1, "name": "old", "x": 0.0}])
    again = []

    def replace_it():
        people.admin.drop_table(people.info.path)
        again.append(made(tables, "two buckets"))

    with pytest.raises(TableNotFoundError):
        tables.tier(people.info, executor=Between(replace_it))
    again[0].upsert([{"id": 2, "name": "new", "x": 0.0}])
    tables.tier(again[0].info)
    again[0].check()


def test_a_partition_dropped_meanwhile_is_left_out(tables):
    people = made(tables, "partitioned")
    people.upsert([{"id": key, "p": part, "name": "n", "x": 0.0} for key in range(9) for part in "ab"])
    executor = Between(lambda: people.admin.drop_partition(people.info.path, {"p": "a"}, discard_untiered=True))
    report = tables.tier(people.info, executor=executor)
    assert {each.partition for each in report.buckets} == {"b"}
    people.model.drop_partition("a")
    people.check()


def test_a_partition_that_only_the_lake_has_any_more_is_left_alone(tables):
    people = made(tables, "partitioned")
    people.upsert([{"id": key, "p": part, "name": "n", "x": 0.0} for key in range(9) for part in "ab"])
    tables.tier(people.info)
    people.admin.drop_partition(people.info.path, {"p": "a"})
    people.upsert([{"id": 1, "p": "b", "name": "later", "x": 0.0}])
    report = tables.tier(people.info)
    assert [each.partition for each in report.buckets] == ["b"]
    rows = tables.lake_rows(people.info)
    assert sorted(set(zip(rows["p"].to_pylist(), rows["name"].to_pylist(), strict=True))) == [
        ("a", "n"), ("b", "later"), ("b", "n"),
    ]  # fmt: skip


def test_no_heartbeat_comes_after_the_last_word(tables, caplog):
    """It would find the table given back, and cancel what the executor does next."""
    people = made(tables, "two buckets")
    for turn in range(5):
        people.upsert([{"id": 1, "name": f"n{turn}", "x": 0.0}])
        tables.tier(people.info, options=TieringOptions(renew_interval_s=0.0005))
    assert [each.message for each in caplog.records if "not held by this tierer" in each.message] == []

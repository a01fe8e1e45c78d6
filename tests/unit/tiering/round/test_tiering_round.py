"""Whole rounds against a real cluster and a real Iceberg, tasks in this process."""

import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    LakeNotConfiguredError,
    NotFoundError,
    TableNotFoundError,
    TieringInProgressError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import TieringSession, TieringSourceEnumerator
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.tiering.kit import FAST, SCHEMA

pytestmark = pytest.mark.slow

#: Cuts whatever there is into one split a worker.
FINE = TieringOptions(split_bytes_min=1)

KINDS = {
    "no key": {"buckets": 3},
    "bucket key": {"buckets": 3, "bucket_key": ["id"]},
    "string bucket key": {"buckets": 2, "bucket_key": ["name"]},
    "partitioned": {"buckets": 2, "partitioned_by": ["month"]},
    "partitioned with bucket key": {"buckets": 2, "partitioned_by": ["month"], "bucket_key": ["id"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_bring_every_record_into_the_lake_once(tables, kind):
    info = tables.create(**KINDS[kind])
    for month in ("2013-01", "2013-02"):
        tables.append(info, 1000, month)
        report = tables.tier(info)
        assert report.rows == 1000
        tables.check(info)
    assert tables.tier(info).rows == 0


def test_the_report_says_what_was_done(tables):
    info = tables.create(buckets=2, bucket_key=["id"])
    tables.append(info, 500)
    tables.tier(info)
    tables.append(info, 700)
    report = tables.tier(info)
    ends = tables.ends(info)
    assert report.table == info.path
    assert {(each.partition, each.bucket): each.end for each in report.buckets} == ends
    assert sum(each.end - each.start for each in report.buckets) == report.rows == 700
    newest = max(each.max_timestamp_ms for each in report.buckets)
    assert newest == max(each.max_timestamp_ms for each in tables.connection.admin().buckets(info))
    assert report.snapshot_id == tables.lake(info).current_snapshot().snapshot_id
    assert report.files == report.splits == 2
    assert report.bytes > 0
    stages = dict(report.seconds)
    total = stages.pop("total")
    assert min(stages.values()) > 0
    assert sum(stages.values()) <= total < sum(stages.values()) + 1


def test_fluss_and_the_snapshot_know_offsets_and_timestamps_of_all_buckets(tables):
    info = tables.create(buckets=2, partitioned_by=["month"])
    tables.append(info, 100, "a")
    tables.tier(info)
    tables.append(info, 100, "b")
    report = tables.tier(info)
    known = tables.known(info)
    assert known.snapshot_id == report.snapshot_id
    buckets = {status.bucket: status for status in tables.connection.admin().buckets(info)}
    for bucket, offset in known.offsets.items():
        assert offset.end == buckets[bucket].end_offset
        assert offset.partition == buckets[bucket].partition
        assert offset.max_timestamp_ms == buckets[bucket].max_timestamp_ms
    assert {offset.partition for offset in known.offsets.values()} == {"a", "b"}
    summary = tables.lake(info).current_snapshot().summary
    assert summary["commit-user"] == "__fluss_lake_tiering"
    assert summary["fluss-bucket-offset"].count('"partition_id"') == len(known.offsets)


def test_nothing_to_tier_makes_no_snapshot(tables):
    info = tables.create()
    report = tables.tier(info)
    assert (report.rows, report.snapshot_id) == (0, None)
    assert tables.lake(info).current_snapshot() is None
    tables.append(info, 10)
    first = tables.tier(info)
    second = tables.tier(info)
    assert (second.rows, second.snapshot_id) == (0, first.snapshot_id)
    assert len(tables.lake(info).snapshots()) == 1


def test_a_long_bucket_is_cut_for_all_workers(tables):
    info = tables.create(buckets=1)
    tables.append(info, 5_000)
    report = tables.tier(info, executor=LocalTieringExecutor(2, parallelism=4), options=FINE)
    assert report.splits == 4
    assert [(each.start, each.end) for each in report.buckets] == [(0, 5_000)]
    tables.check(info)


def test_little_data_is_not_cut(tables):
    info = tables.create(buckets=1)
    tables.append(info, 5_000)
    assert tables.tier(info, executor=LocalTieringExecutor(parallelism=4)).splits == 1


def test_a_backlog_is_tiered_in_steps(tables):
    info = tables.create(buckets=2)
    tables.append(info, 1_000)
    options = TieringOptions(round_records_max=400)
    rows = []
    while report := tables.tier(info, options=options):
        if not report.rows:
            break
        rows.append(report.rows)
        tables.check(info, complete=False)
    assert sum(rows) == 1_000
    assert max(rows) <= 400
    tables.check(info)


def test_two_tables_do_not_touch_each_other(tables):
    one, two = tables.create("one", buckets=2), tables.create("two", partitioned_by=["month"])
    tables.append(one, 300)
    tables.append(two, 200, "x")
    assert tables.tier(one).rows == 300
    assert tables.lake_rows(two).num_rows == 0
    assert tables.tier(two).rows == 200
    tables.check(one)
    tables.check(two)


def test_tiering_goes_on_after_a_restart_of_the_server(tables):
    info = tables.create(buckets=2)
    tables.append(info, 100)
    tables.tier(info)
    tables.append(info, 50)
    tables.cluster.restart()
    assert tables.tier(info).rows == 50
    tables.check(info)


def test_a_due_table_is_found_without_being_named(tables):
    tables.create("idle", properties={"table.datalake.freshness": "1d"})
    info = tables.create("due", properties={"table.datalake.freshness": "1ms"})
    tables.append(info, 10)
    report = run_round(tables.connection, tables.storage, LocalTieringExecutor(), table_id=None)
    assert report is not None
    assert (report.table, report.rows) == (info.path, 10)


def test_no_due_table_is_no_round(tables):
    tables.create("idle", properties={"table.datalake.freshness": "1d"})
    assert run_round(tables.connection, tables.storage, LocalTieringExecutor(), table_id=None) is None


def test_progress_is_reported(tables):
    info = tables.create(buckets=1)
    tables.append(info, 1_000)
    news = []
    executor = LocalTieringExecutor(parallelism=3)
    report = tables.tier(info, executor=executor, options=FINE, progress=news.append)
    assert [(each.stage, each.table, each.epoch) for each in news[:2]] == [
        ("plan", info.path, report.epoch),
        ("write", info.path, report.epoch),
    ]
    assert (news[1].stage, news[1].tasks_done, news[1].tasks, news[1].rows, news[1].planned) == (
        "write",
        0,
        3,
        0,
        1_000,
    )
    assert ("write", 3, 3, 1_000) in [(each.stage, each.tasks_done, each.tasks, each.rows) for each in news]
    assert [each.stage for each in news[-3:]] == ["commit", "maintain", "finish"]
    assert [(each.bucket, each.planned, each.rows) for each in news[-1].buckets] == [(0, 1_000, 1_000)]
    assert news[-1].size_bytes == report.bytes > 0


def test_a_table_held_by_a_living_tierer_is_refused(tables):
    info = tables.create()
    tables.append(info, 10)
    with TieringSession(tables.connection) as session:
        holder = TieringSourceEnumerator(tables.connection, session.session_id, FAST.renew_interval_s)
        assignment = holder.request(info.table_id)
        with holder.hold(assignment, lambda: None), pytest.raises(TieringInProgressError):
            tables.tier(info)


def test_a_tierer_that_ends_without_a_word_frees_its_table_at_once(tables):
    info = tables.create()
    tables.append(info, 10)
    with TieringSession(tables.connection) as session:
        holder = TieringSourceEnumerator(tables.connection, session.session_id, FAST.renew_interval_s)
        assert not holder.request(info.table_id).takeover
    report = tables.tier(info)
    assert report.rows == 10
    # The predecessor was fenced first: an empty snapshot, then the round's.
    assert len(tables.lake(info).snapshots()) == 2
    tables.check(info)


def test_tables_that_cannot_be_tiered(tables):
    plain = tables.connection.admin().create_table(TablePath("db", "plain"), make_descriptor(SCHEMA))
    with pytest.raises(LakeNotConfiguredError):
        tables.tier(plain)
    with pytest.raises(TableNotFoundError):
        run_round(tables.connection, tables.storage, LocalTieringExecutor(), table_id=999_999)


# -- failures of this process's own making -----------------------------------------------------------------------------

BEFORE_COMMIT = ["tiering.heartbeat.after", "tiering.plan.after", "tiering.write.after", "tiering.lake_commit.before"]
AFTER_COMMIT = ["tiering.lake_commit.after", "tiering.fluss_commit.after", "tiering.finish.before"]


def state_of(tables, info):
    described = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    return next(state for state in described.tiering_states if state.table_id == info.table_id)


@pytest.mark.parametrize("name", BEFORE_COMMIT)
def test_a_failure_before_the_commit_leaves_nothing(tables, name):
    info = tables.create(buckets=2)
    tables.append(info, 100)
    failpoints.arm(name, "error")
    with pytest.raises(FailpointError):
        tables.tier(info)
    assert tables.files(info) == set()
    assert tables.lake(info).current_snapshot() is None
    state = state_of(tables, info)
    assert name in state.last_error
    assert state.failures == 1
    failpoints.disarm()
    assert tables.tier(info).rows == 100
    tables.check(info)


@pytest.mark.parametrize("name", AFTER_COMMIT)
def test_a_failure_after_the_commit_keeps_its_files(tables, name):
    info = tables.create(buckets=2)
    tables.append(info, 100)
    failpoints.arm(name, "error")
    with pytest.raises(FailpointError):
        tables.tier(info)
    assert tables.files(info) == tables.referenced(info) != set()
    failpoints.disarm()
    tables.append(info, 30)
    assert tables.tier(info).rows == 30
    tables.check(info)


def test_a_failed_task_removes_the_files_of_all_tasks(tables):
    info = tables.create(buckets=3, bucket_key=["id"])
    tables.append(info, 300)
    failpoints.arm("tiering.write.after_task", "error@3")
    with pytest.raises(Exception, match="failpoint"):
        tables.tier(info)
    assert tables.files(info) == set()
    failpoints.disarm()
    assert tables.tier(info).rows == 300
    tables.check(info)


def test_a_table_dropped_during_the_round_ends_it(tables):
    info = tables.create()
    tables.append(info, 100)

    class Dropping(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            results = super().run(tasks, progress)
            tables.connection.admin().drop_table(info.path)
            tables.create()
            return results

    with pytest.raises(TableNotFoundError):
        tables.tier(info, executor=Dropping())
    again = tables.connection.admin().table_info(info.path)
    assert tables.lake_rows(again).num_rows == 0
    tables.appended.clear()
    tables.append(again, 20)
    assert tables.tier(again).rows == 20
    tables.check(again)


def test_records_appended_during_the_round_wait_for_the_next(tables):
    info = tables.create()
    tables.append(info, 100)

    class Appending(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            tables.append(info, 11)
            return super().run(tasks, progress)

    assert tables.tier(info, executor=Appending()).rows == 100
    assert tables.tier(info).rows == 11
    tables.check(info)


def test_a_partition_made_during_the_round_waits_for_the_next(tables):
    info = tables.create(partitioned_by=["month"])
    tables.append(info, 10, "a")

    class Appending(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            tables.append(info, 7, "b")
            return super().run(tasks, progress)

    assert tables.tier(info, executor=Appending()).rows == 10
    assert tables.tier(info).rows == 7
    tables.check(info)


def test_a_partition_dropped_during_the_round_keeps_what_was_written(tables):
    info = tables.create(partitioned_by=["month"])
    tables.append(info, 10, "a")
    tables.append(info, 10, "b")

    class Dropping(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            results = super().run(tasks, progress)
            tables.connection.admin().drop_partition(info.path, {"month": "a"}, discard_untiered=True)
            return results

    assert tables.tier(info, executor=Dropping()).rows == 20
    assert sorted(tables.lake_rows(info)["month"].to_pylist()) == ["a"] * 10 + ["b"] * 10
    tables.append(info, 5, "b")
    assert tables.tier(info).rows == 5


def test_a_partition_dropped_before_its_tasks_fails_the_round_only(tables):
    info = tables.create(partitioned_by=["month"])
    tables.append(info, 10, "a")
    tables.append(info, 10, "b")

    class Dropping(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            tables.connection.admin().drop_partition(info.path, {"month": "a"}, discard_untiered=True)
            return super().run(tasks, progress)

    with pytest.raises(NotFoundError):
        tables.tier(info, executor=Dropping())
    assert tables.files(info) == set()
    assert tables.tier(info).rows == 10
    assert tables.lake_rows(info)["month"].to_pylist() == ["b"] * 10


def test_readers_see_whole_rounds_only(tables):
    """P3: whatever moment a reader takes, it sees the rows of a number of whole rounds."""
    info = tables.create(buckets=3)
    rounds, size = 4, 300
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(tables.lake_rows(info).num_rows)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(rounds):
            tables.append(info, size)
            tables.tier(info, executor=LocalTieringExecutor(2, parallelism=4), options=FINE)
    finally:
        done.set()
        reader.join()
    assert seen <= {size * number for number in range(rounds + 1)}

"""Maintenance with a cluster: after rounds, by hand, by tasks; what it tells Fluss; and that it never costs a round."""

import json
import random

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AddSnapshotUpdate

from fluss_lab import failpoints
from fluss_lab.errors import (
    CommitConflictError,
    CorruptDataError,
    FencedTieringEpochError,
    TieringInProgressError,
    UnavailableError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.metadata.snapshot_history import keeps_rows
from fluss_lab.model import TablePath
from fluss_lab.testing import MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.maintenance.automatic_maintenance import FAILPOINTS, TableMaintenance
from fluss_lab.tiering.maintenance.manual_maintenance import NoTieringExecutor, maintain
from fluss_lab.tiering.round.round_report import (
    CompactionReport,
    ExpiryReport,
    MaintenanceReport,
    OrphanReport,
)
from fluss_lab.tiering.round.source_enumerator import TieringSession, TieringSourceEnumerator
from fluss_lab.tiering.task.tiering_task import TASK_VERSION, MaintenanceTask, TaskResult, parse_task, run_task
from tests.unit.lake.upkeep import DAY_MS, HOUR_MS, clock_at_now
from tests.unit.tiering.keyed_kit import KeyedTable

pytestmark = pytest.mark.slow


def by_hand(tables, info, action, *, executor=None, clock=None):
    return maintain(
        tables.connection,
        tables.storage,
        executor or LocalTieringExecutor(),
        action,
        table_id=info.table_id,
        clock=clock,
    )


def compact(tables, info, **options):
    return by_hand(tables, info, lambda held: held.compact(force=True), **options)


def log_rounds(tables, info, count, rows=4):
    for _ in range(count):
        tables.append(info, rows)
        report = tables.tier(info)
    return report


def test_after_some_rounds_small_files_are_put_together(tables):
    info = tables.create(buckets=1)
    for turn in range(1, 6):
        report = log_rounds(tables, info, 1)
        assert (report.maintenance is not None) == (turn == 5)
    assert report.maintenance.errors == ()
    done = report.maintenance.compaction
    assert (done.files_before, done.files_after, done.tag) == (5, 1, None)
    assert report.snapshot_id == done.snapshot_id == tables.known(info).snapshot_id
    assert report.seconds["maintain"] > 0
    assert "CompactionReport" in repr(report.maintenance)
    assert json.dumps(report.to_dict())
    tables.check(info)
    log_rounds(tables, info, 1)
    tables.check(info)


def test_what_is_not_due_is_not_planned(tables, monkeypatch):
    for unwanted in ("expire", "remove_orphans"):
        monkeypatch.delattr(TableMaintenance, unwanted)
    assert log_rounds(tables, tables.create(buckets=2), 2).maintenance is None


def test_without_auto_maintenance_nothing_is_done(tables):
    info = tables.create(buckets=1, properties={"table.datalake.auto-maintenance": False})
    assert log_rounds(tables, info, 6).maintenance is None
    assert len(tables.referenced(info)) == 6


def test_by_hand_a_keyed_table_is_compacted_and_its_changelog_stays(tables, seed):
    rng = random.Random(seed)
    people = KeyedTable(tables)
    for _ in range(4):
        people.change(rng)
        tables.tier(people.info)
    done = compact(tables, people.info)
    assert done.snapshot_id == tables.known(people.info).snapshot_id
    assert done.tag in tables.lake(people.info).metadata.refs
    people.check()
    people.change(rng)
    tables.tier(people.info)
    people.check()
    assert compact(tables, people.info).snapshot_id is not None
    people.check()
    again = compact(tables, people.info)
    assert (again.snapshot_id, repr(again).count("nothing to compact")) == (None, 1)


def test_partitioned_tables_are_compacted_by_partition_and_bucket(tables, seed):
    rng = random.Random(seed)
    columns = {"id": "bigint not null", "p": "string not null", "name": "string", "x": "double"}
    people = KeyedTable(tables, columns=columns, primary_key=["id", "p"], bucket_key=["id"], partitioned_by=["p"])
    for _ in range(3):
        people.change(rng)
        tables.tier(people.info)
    people.add_column("note")
    people.change(rng)
    tables.tier(people.info)
    compact(tables, people.info)
    people.check()


def test_expiry_tells_fluss_where_replay_begins(tables):
    people = KeyedTable(tables, buckets=1, properties={"table.datalake.snapshots-min": 1})
    rng = random.Random(1)
    for _ in range(3):
        people.change(rng)
        tables.tier(people.info)
    compact(tables, people.info)
    end = people.check()[(None, 0)]
    clock = clock_at_now()
    clock.advance(8 * DAY_MS)
    failpoints.arm("maintenance.expire.after_commit", "error")
    with pytest.raises(FailpointError):
        by_hand(tables, people.info, lambda held: held.expire(), executor=NoTieringExecutor(), clock=clock)
    failpoints.disarm()
    (bucket,) = tables.known(people.info).offsets
    assert tables.known(people.info).starts.get(bucket, 0) == 0
    # It did not live to tell: the next one does, though there is nothing to expire any more.
    done = by_hand(tables, people.info, lambda held: held.expire(), executor=NoTieringExecutor(), clock=clock)
    assert done.replay_starts == {(None, 0): end}
    assert tables.known(people.info).starts == {bucket: end}
    people.check(starts={(None, 0): end})
    assert by_hand(tables, people.info, lambda held: held.expire(), clock=clock).replay_starts == {}


def test_the_snapshot_that_fluss_knows_is_never_expired(tables):
    info = tables.create(buckets=1, properties={"table.datalake.auto-maintenance": False})
    log_rounds(tables, info, 3)
    clock = clock_at_now()
    clock.advance(30 * DAY_MS)
    done = by_hand(tables, info, lambda held: held.expire(older_than_ms=0, keep=1), clock=clock)
    assert len(done.snapshot_ids) == 2
    assert [each.snapshot_id for each in tables.lake(info).snapshots()] == [tables.known(info).snapshot_id]
    log_rounds(tables, info, 1)
    tables.check(info)


def test_expiry_of_a_table_that_was_never_tiered_does_nothing(tables):
    info = tables.create(buckets=1)
    assert by_hand(tables, info, lambda held: held.expire()).snapshot_ids == ()
    assert compact(tables, info).snapshot_id is None


def test_files_of_a_killed_round_are_orphans(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 1)
    tables.append(info, 4)
    failpoints.arm("lake.commit.before", "error")
    with pytest.raises(FailpointError):
        tables.tier(info)
    failpoints.disarm()
    stray = tables.files(info) - tables.referenced(info)
    assert stray
    look = by_hand(tables, info, lambda held: held.remove_orphans(dry_run=True))
    assert look.files == ()  # younger than three days
    clock = clock_at_now()
    clock.advance(3 * DAY_MS + HOUR_MS)
    done = by_hand(tables, info, lambda held: held.remove_orphans(), clock=clock)
    assert stray <= {path.removeprefix("file://") for path in done.files}
    assert tables.files(info) == tables.referenced(info)
    log_rounds(tables, info, 1)
    tables.check(info)


def test_a_table_that_is_being_tiered_is_refused(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 1)
    with TieringSession(tables.connection) as session:
        TieringSourceEnumerator(tables.connection, session.session_id, 1.0).request(info.table_id)
        with pytest.raises(TieringInProgressError):
            compact(tables, info)
    assert compact(tables, info) is not None


def test_what_was_due_is_due_after_maintenance(tables):
    """Nothing was tiered by it: freshness does not begin anew."""
    from fluss_lab.tiering.round.tiering_round import run_round

    info = tables.create(buckets=1)
    log_rounds(tables, info, 1)
    compact(tables, info)
    tables.append(info, 3)
    report = run_round(tables.connection, tables.storage, LocalTieringExecutor(), table_id=None)
    assert report is not None
    assert report.rows == 3


def test_a_round_is_done_whatever_becomes_of_maintenance(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 4)
    for name in ("maintenance.task.after", "maintenance.write.after", "maintenance.commit.before"):
        failpoints.arm(name, "error")
        report = log_rounds(tables, info, 1)
        failpoints.disarm()
        assert report.rows == 4
        assert "compaction: " in report.maintenance.errors[0]
        tables.check(info)
    report = log_rounds(tables, info, 1)
    assert report.maintenance.compaction is not None
    tables.check(info)


def test_a_compaction_that_may_still_arrive_is_fenced_before_the_table_is_worked_on_again(tables, monkeypatch):
    """Though no round has anything to tier: arriving late it could refer to files that were removed as orphans."""
    info = tables.create(buckets=1, properties={"iceberg.commit.status-check.num-retries": 0})
    log_rounds(tables, info, 4)
    commit, late = SqlCatalog.commit_table, []

    def held_back(self, lake, requirements, updates):
        if any(isinstance(each, AddSnapshotUpdate) and keeps_rows(each.snapshot) for each in updates):
            late.append((self, lake, requirements, updates))
            raise ConnectionError("the answer got lost")
        return commit(self, lake, requirements, updates)

    with monkeypatch.context() as broken:
        broken.setattr(SqlCatalog, "commit_table", held_back)
        report = log_rounds(tables, info, 1)
    assert report.maintenance.is_unfinished
    assert "CommitOutcomeUnknownError" in report.maintenance.errors[0]
    by_hand(tables, info, lambda held: held.remove_orphans(older_than_ms=-DAY_MS))
    with pytest.raises(CommitFailedException):
        commit(*late[0])
    tables.check(info)


def test_a_task_that_fails_removes_what_the_others_wrote(tables):
    info = tables.create(buckets=2)
    log_rounds(tables, info, 4, rows=20)
    failpoints.arm("maintenance.task.after", "error@2")
    before = tables.files(info)
    with pytest.raises(Exception, match=r"maintenance\.task\.after"):
        compact(tables, info)
    failpoints.disarm()
    # The task that came to its end and then died leaves its files to the search for orphans.
    assert len(tables.files(info) - before) <= 1
    tables.check(info)


def test_a_commit_of_others_in_between_is_a_conflict_and_leaves_no_file(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 4)
    before = tables.files(info)

    class Meddling(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            results = super().run(tasks, progress)
            tables.lake(info).append(tables.lake_rows(info).slice(0, 0))
            return results

    with pytest.raises((CommitConflictError, Exception), match=r"moved on|planned at snapshot|was not committed"):
        compact(tables, info, executor=Meddling())
    assert {path for path in tables.files(info) if "compact" in path} == set()
    assert before <= tables.files(info)


def test_a_holder_that_lost_the_table_commits_nothing(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 4)
    snapshot_id = tables.known(info).snapshot_id

    class Slow(LocalTieringExecutor):
        """Meanwhile the coordinator gives the table to somebody else."""

        def run(self, tasks, progress=None):
            results = super().run(tasks, progress)
            from fluss_lab.tiering.round.source_enumerator import FailedTieringEvent

            enumerator = TieringSourceEnumerator(tables.connection, None, 1.0)
            enumerator.handle(FailedTieringEvent.of(self.assignment, RuntimeError("as if taken")))
            return results

    executor = Slow()

    def action(held):
        executor.assignment = held._scene.assignment
        return held.compact(force=True)

    with pytest.raises(FencedTieringEpochError):
        by_hand(tables, info, action, executor=executor)
    assert tables.known(info).snapshot_id == snapshot_id
    assert tables.lake(info).metadata.current_snapshot_id == snapshot_id
    assert {path for path in tables.files(info) if "compact" in path} == set()
    log_rounds(tables, info, 1)
    tables.check(info)


def test_a_compaction_that_fluss_was_not_notified_of_is_registered_by_the_next_round(tables):
    info = tables.create(buckets=1)
    log_rounds(tables, info, 4)
    failpoints.arm("maintenance.commit.after", "error")
    with pytest.raises(FailpointError):
        compact(tables, info)
    failpoints.disarm()
    newest = tables.lake(info).metadata.current_snapshot_id
    assert tables.known(info).snapshot_id != newest
    log_rounds(tables, info, 1)
    tables.check(info)
    ends = {bucket.bucket: offset.end for bucket, offset in tables.known(info).offsets.items()}
    assert ends == {0: 20}


def test_tasks_travel_as_json_and_tell_what_is_wrong(tables):
    info = tables.create(buckets=1)
    task = MaintenanceTask(3, info, "iceberg", {"type": "sql", "uri": "sqlite://"}, {"version": 99})
    data = task.to_bytes()
    assert parse_task(data) == task
    result = TaskResult.from_bytes(run_task(task.to_bytes()))
    assert (result.split_index, type(result.error)) == (3, CorruptDataError)
    assert "version 2, found 99" in str(result.error)
    with pytest.raises(CorruptDataError, match="different releases"):
        run_task(json.dumps(json.loads(data) | {"version": 1}).encode())
    with pytest.raises(CorruptDataError, match="missing required field `index`"):
        run_task(b'{"kind": "maintain", "version": %d}' % TASK_VERSION)


def test_failpoints_are_all_passed(tables, monkeypatch):
    """The list that kill tests go through is the code's."""
    from fluss_lab.lake.iceberg.maintenance import compaction, iceberg_maintenance
    from fluss_lab.lake.iceberg.maintenance import snapshot_expiry as expiry
    from fluss_lab.lake.iceberg.table import table_folders
    from fluss_lab.tiering.maintenance import automatic_maintenance
    from fluss_lab.tiering.task import tiering_task

    passed = set()
    for module in (compaction, expiry, table_folders, iceberg_maintenance, automatic_maintenance, tiering_task):
        monkeypatch.setattr(module, "failpoint", passed.add)
    properties = {"table.datalake.snapshots-min": 1, "table.datalake.auto-maintenance": True}
    people = KeyedTable(tables, buckets=1, properties=properties)
    people.upsert([{"id": key, "name": "a", "x": 0.0} for key in range(30)])
    tables.tier(people.info)
    people.delete([{"id": 29}])
    tables.tier(people.info)
    clock = clock_at_now()
    compact(tables, people.info, clock=clock)
    for turn in range(6):  # small files whose rows end again: put together without dropping any
        people.upsert([{"id": 1, "name": f"b{turn}", "x": 0.0}])
        tables.tier(people.info)
    stray = people.tables.files(people.info).copy().pop().replace("-b0", "-b1")
    with open(stray, "wb") as stream:
        stream.write(b"x")
    clock.advance(30 * DAY_MS)
    by_hand(tables, people.info, lambda held: held.expire(), clock=clock)
    by_hand(tables, people.info, lambda held: held.remove_orphans(), clock=clock)
    assert {name for name in passed if name.startswith("maintenance.")} == set(FAILPOINTS)


def test_reports_tell_what_was_done():
    path = TablePath("db", "t")
    compaction = CompactionReport(path, 7, 2, 10, 2, 2_000_000, 1_000_000, "tag", 0.5)
    assert repr(compaction) == (
        "<CompactionReport db.t: 10 files (2.0 MB) of 2 buckets became 2 (1.0 MB), snapshot 7, 0.50 s>"
    )
    expiry = ExpiryReport(path, (1, 2), 5, 3_000_000, {(None, 0): 4}, 0.1)
    assert repr(expiry) == "<ExpiryReport db.t: 2 snapshots, 5 files (3.0 MB), 0.10 s>"
    orphans = OrphanReport(path, ("a", "b"), dry_run=True, seconds=0.2)
    assert repr(orphans) == "<OrphanReport db.t: 2 files found, 0.20 s>"
    whole = MaintenanceReport(compaction, expiry, orphans, ("no",))
    assert json.loads(json.dumps(whole.to_dict()))["expiry"]["replay_starts"] == [
        {"partition": None, "bucket": 0, "offset": 4}
    ]
    for each in (compaction, expiry, orphans):
        assert "db.t" in each._repr_html_()
    assert repr(MaintenanceReport()) == "<MaintenanceReport nothing to do>"
    with pytest.raises(Exception, match="expected none"):
        NoTieringExecutor().run([b"x"])
    assert isinstance(MockClock().now_ms(), int)
    assert issubclass(UnavailableError, Exception)

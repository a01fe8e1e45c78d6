"""Rounds that meet something unexpected: in the lake, in the cluster, or another tierer."""

import shutil
import threading
import time

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    CommitConflictError,
    FencedTieringEpochError,
    FlussError,
    ForeignCommitError,
    LakeAheadError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from fluss_lab.lake import CommitterInitContext
from fluss_lab.model import LakeOffset, OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import (
    FailedTieringEvent,
    FinishedTieringEvent,
    TieringSession,
    TieringSourceEnumerator,
)
from fluss_lab.tiering.round.split_generator import TieringLogSplit, TieringSplitGenerator
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter, TieringCommitter
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.split_reader import TieringSplitReader
from tests.unit.tiering.kit import FAST, LAKE, SCHEMA, TAKEOVER, Tables

pytestmark = pytest.mark.slow


class During(LocalTieringExecutor):
    """Does something between the plan and the commit of its first rounds."""

    def __init__(self, action, times=1):
        super().__init__()
        self.action, self.times = action, times

    def run(self, tasks, progress=None):
        results = super().run(tasks, progress)
        if self.times:
            self.times -= 1
            self.action()
        return results


def foreign_append(tables, info):
    lake = tables.lake(info)
    lake.append(lake.scan().to_arrow().slice(0, 1))


def test_rows_of_somebody_else_stop_the_table(tables):
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    tables.append(info, 10)
    with pytest.raises(ForeignCommitError, match=r"repair db\.events --adopt"):
        tables.tier(info, executor=During(lambda: foreign_append(tables, info)))
    assert tables.files(info) == tables.referenced(info)
    with pytest.raises(ForeignCommitError):
        tables.tier(info)


def test_a_commit_to_another_branch_is_none_of_tiering_s_business(tables):
    """Seen: the round took a sequence number that the branch had by then, and ended in `CommitOutcomeUnknownError`."""
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    lake = tables.lake(info)
    lake.manage_snapshots().create_branch(lake.current_snapshot().snapshot_id, "trial").commit()

    def append_to_branch():
        lake = tables.lake(info)
        lake.append(lake.scan().to_arrow().slice(0, 1), branch="trial")

    for _ in range(2):
        tables.append(info, 10)
        assert tables.tier(info, executor=During(append_to_branch)).rows == 10
    tables.check(info)
    assert (
        tables.lake(info).scan(snapshot_id=tables.lake(info).metadata.refs["trial"].snapshot_id).to_arrow().num_rows
        == 12
    )


def test_a_lake_that_lost_the_known_snapshot_stops_the_table(tables):
    info = tables.create()
    for _ in range(2):
        tables.append(info, 10)
        tables.tier(info)
    lake = tables.lake(info)
    first = lake.history()[0].snapshot_id
    lake.manage_snapshots().rollback_to_snapshot(first).commit()
    tables.append(info, 10)
    with pytest.raises(LakeSnapshotNotFoundError, match="Roll the"):
        tables.tier(info)
    assert tables.lake_rows(info).num_rows == 10


def test_a_round_that_loses_the_race_plans_again(tables):
    """Another commit of ours between plan and commit: the files are removed, and the second plan goes through."""
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    tables.append(info, 10)

    def other_commit():
        table = tables.connection.admin().table_info(info.path)
        with committer_of(tables, table) as lake:
            offset = tables.known(info).offsets
            TieringCommitter(lake, assignment, "other").fence(offset, lake.current_snapshot_id())

    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 1.0)
        assignment = enumerator.request(info.table_id)
        enumerator.handle(FailedTieringEvent(assignment, "only for its numbers"))
    executor = During(other_commit)
    assert tables.tier(info, executor=executor).rows == 10
    tables.check(info)
    assert tables.files(info) == tables.referenced(info)


def committer_of(tables, table):
    return tables.storage.create_lake_tiering_factory().create_lake_committer(CommitterInitContext(table, "other"))


def test_a_round_that_always_loses_gives_up(tables):
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    tables.append(info, 10)
    table = tables.connection.admin().table_info(info.path)
    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 1.0)
        assignment = enumerator.request(info.table_id)
        enumerator.handle(FailedTieringEvent(assignment, "only for its numbers"))
    turns = []

    def other_commit():
        turns.append(1)
        with committer_of(tables, table) as lake:
            offsets = tables.known(info).offsets
            TieringCommitter(lake, assignment, f"o{len(turns)}").fence(offsets, lake.current_snapshot_id())

    options = TieringOptions(replans_max=2)
    with pytest.raises(CommitConflictError):
        tables.tier(info, executor=During(other_commit, times=99), options=options)
    assert len(turns) == 3
    assert tables.files(info) == tables.referenced(info)
    assert tables.tier(info).rows == 10
    tables.check(info)


def test_a_commit_that_certainly_failed_leaves_no_files(tables):
    info = tables.create(buckets=2)
    tables.append(info, 100)
    for _ in range(2):
        failpoints.arm("lake.commit.after_metadata", "enospc")
        with pytest.raises(StorageError):
            tables.tier(info)
        failpoints.disarm()
    assert tables.files(info) == set()
    tables.tier(info)
    tables.check(info)


# -- cluster and lake that do not fit ----------------------------------------------------------------------------------


def generate(tables, info, tiered):
    partitions = tables.connection.admin().partitions(info.path)
    return TieringSplitGenerator(tables.connection, info, partitions, TieringOptions()).generate(tiered, 1).splits


def test_a_lake_ahead_of_the_log_is_an_error(tables):
    info = tables.create()
    tables.append(info, 10)
    bucket = TableBucket(info.table_id, None, 0)
    with pytest.raises(LakeAheadError, match="older than the lake"):
        generate(tables, info, {bucket: LakeOffset(11)})
    assert generate(tables, info, {bucket: LakeOffset(10)}) == []


@pytest.mark.parametrize("is_seen_before", [False, True])
@pytest.mark.parametrize("is_keyed", [False, True])
def test_other_records_at_offsets_that_the_lake_has_are_noticed(tmp_path, is_keyed, is_seen_before):
    """The cluster was restored from a copy, and wrote on past the lake's end: what it wrote below that was never tiered."""
    lab, kept = tmp_path / "lab", tmp_path / "kept"
    with EmbeddedCluster(lab, TAKEOVER) as cluster:
        tables = Tables(cluster)
        types = {"id": "bigint", "name": "string"}
        key = ["id"] if is_keyed else []
        descriptor = make_descriptor(types, primary_key=key, buckets=1, properties=LAKE)
        info = cluster.connection.admin().create_table(TablePath("db", "restored"), descriptor)

        def write(first, count):
            rows = [{"id": first + index, "name": "n"} for index in range(count)]
            if is_keyed:
                with tables.connection.upsert_writer(info.path) as writer:
                    writer.upsert(rows)
            else:
                with tables.connection.append_writer(info.path) as writer:
                    writer.append(rows)

        write(0, 10)
        tables.tier(info)
        cluster.stop()
        shutil.copytree(lab, kept, ignore=shutil.ignore_patterns("lake"))
        cluster.start()
        write(10, 10)
        tables.tier(info)
        cluster.stop()
        for place in kept.iterdir():
            shutil.rmtree(lab / place.name, ignore_errors=True)
            (shutil.copytree if place.is_dir() else shutil.copy)(place, lab / place.name)
        cluster.start()
        if is_seen_before:
            with pytest.raises(LakeAheadError, match="older than the lake"):
                tables.tier(info)
        write(1_000, 25)
        for _ in range(2):
            with pytest.raises(LakeAheadError, match="only those below 10 are so old"):
                tables.tier(info)
        assert sorted(tables.lake_rows(info)["id"].to_pylist()) == list(range(20))
        if is_seen_before:  # what the error offers: the doctor said that a plain drop keeps the lake's records
            with pytest.raises(
                LakeAheadError, match=r"lab.drop_table\('db.restored', lake=False\)\) and create it anew"
            ):
                tables.tier(info)
            admin = tables.connection.admin()
            admin.drop_table(info.path, lake=False)
            anew = admin.create_table(info.path, descriptor)
            write(5_000, 3)
            tables.tier(anew)
            assert sorted(tables.lake_rows(anew)["id"].to_pylist()) == [5_000, 5_001, 5_002]
            kept = tables.lake(anew).catalog.load_table(("db", f"restored__{info.table_id}"))
            assert sorted(kept.scan().to_arrow()["id"].to_pylist()) == list(range(20))


def test_only_durable_records_are_planned(tables):
    info = tables.create()
    tables.append(info, 10)
    (split,) = generate(tables, info, {})
    (status,) = tables.connection.admin().buckets(info)
    assert split.stopping_offset == status.durable_offset == 10


def test_a_gap_between_lake_and_cluster_is_an_error(tables):
    """Records expired while the table's lake was switched off: nothing is skipped in silence."""
    tables.cluster.restart({
        "log.segment.file-size": "1kb", "log.retention.check-interval": "20ms", "lake.tiering.takeover": "200ms",
    })  # fmt: skip
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    admin = tables.connection.admin()
    admin.alter_table(info.path, set={"table.datalake.enabled": False, "table.log.ttl": "1ms"})
    for _ in range(3):
        tables.append(info, 100)
    wait_for(lambda: admin.buckets(info)[0].start_offset > 10)
    admin.alter_table(info.path, set={"table.datalake.enabled": True})
    tables.append(info, 1)
    with pytest.raises(OffsetOutOfRangeError, match="left the cluster before they were tiered"):
        tables.tier(info)
    assert tables.lake_rows(info).num_rows == 10


def test_retention_takes_only_what_the_lake_holds(tables):
    tables.cluster.restart({
        "log.segment.file-size": "1kb", "log.retention.check-interval": "20ms", "lake.tiering.takeover": "200ms",
    })  # fmt: skip
    info = tables.create(properties={"table.log.ttl": "1ms"})
    admin = tables.connection.admin()
    for _ in range(4):
        tables.append(info, 100)
    assert admin.buckets(info)[0].start_offset == 0
    tables.tier(info)
    tables.append(info, 100)
    wait_for(lambda: admin.buckets(info)[0].start_offset > 0)
    assert admin.buckets(info)[0].start_offset <= 400
    tables.tier(info)
    tables.check(info)


def test_a_table_whose_lake_is_switched_on_late_starts_at_what_is_left(tables):
    tables.cluster.restart({"log.segment.file-size": "1kb", "log.retention.check-interval": "20ms"})
    admin = tables.connection.admin()
    info = admin.create_table(TablePath("db", "late"), make_descriptor(SCHEMA, properties={"table.log.ttl": "1ms"}))
    for _ in range(3):
        tables.append(info, 100)
    wait_for(lambda: admin.buckets(info)[0].start_offset > 0)
    info = admin.alter_table(info.path, set={"table.datalake.enabled": True, "table.log.ttl": "7d"})
    tables.append(info, 10)
    start = admin.buckets(info)[0].start_offset
    assert start > 0
    report = tables.tier(info)
    assert [(each.start, each.end) for each in report.buckets] == [(start, 310)]
    assert sorted(tables.lake_rows(info)["__offset"].to_pylist()) == list(range(start, 310))
    # The server knows where the lake begins: it is asked for nothing before, when the log has left the cluster.
    admin.alter_table(info.path, set={"table.log.ttl": "1ms"})
    wait_for(lambda: admin.buckets(info)[0].start_offset > start)
    assert admin.list_offsets(info, OffsetSpec.earliest())[0].offset == start


def test_a_task_never_reads_from_the_lake(tables):
    """What is in the lake has been tiered: a split that reaches there is wrong, and must not come twice."""
    tables.cluster.restart({"log.segment.file-size": "1kb", "log.retention.check-interval": "20ms"})
    info = tables.create(properties={"table.log.ttl": "1ms"})
    for _ in range(3):
        tables.append(info, 100)
    tables.tier(info)
    wait_for(lambda: tables.connection.admin().buckets(info)[0].start_offset > 0)
    split = TieringLogSplit(info.path, TableBucket(info.table_id, None, 0), None, 1, 0, 0, 300)
    with pytest.raises(OffsetOutOfRangeError):
        list(TieringSplitReader(tables.connection, info, split))


def wait_for(condition, timeout_s=60.0):
    deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        pause.wait(0.02)


# -- losing the table --------------------------------------------------------------------------------------------------


def test_a_round_that_lives_longer_than_the_takeover_time_keeps_its_table(tables):
    tables.cluster.restart({"lake.tiering.takeover": "3s"})
    info = tables.create()
    tables.append(info, 10)
    refused = []

    def somebody_else():
        deadline_s, pause = time.monotonic() + 4, threading.Event()
        while time.monotonic() < deadline_s:
            pause.wait(0.1)
            try:
                tables.tier(info)
            except FlussError as error:
                refused.append(type(error).__name__)

    report = tables.tier(info, executor=During(somebody_else), options=FAST)
    assert report.rows == 10
    assert set(refused) == {"TieringInProgressError"}
    tables.check(info)


def test_a_round_that_loses_its_table_ends_and_removes_its_files(tables):
    """Too slow a heartbeat: another tierer takes over in the middle of the round."""
    info = tables.create()
    tables.append(info, 10)
    silent = TieringOptions(renew_interval_s=60)

    def somebody_else():
        threading.Event().wait(0.4)
        assert tables.tier(info).rows == 10

    with pytest.raises(FencedTieringEpochError):
        tables.tier(info, executor=During(somebody_else), options=silent)
    tables.check(info)
    assert tables.files(info) == tables.referenced(info)


def test_a_round_notices_by_its_heartbeat_that_its_table_is_gone(tables):
    info = tables.create()
    tables.append(info, 10)
    lost = threading.Event()
    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 0.02)
        assignment = enumerator.request(info.table_id)
        with enumerator.hold(assignment, lambda _: lost.set()):
            enumerator.handle(FailedTieringEvent(assignment, "as if taken"))
            assert lost.wait(60)


class LateEnumerator(TieringSourceEnumerator):
    """Its heartbeats are held back until they are let go."""

    def __init__(self, connection, session_id):
        super().__init__(connection, session_id, 0.02)
        self.is_held, self.let_go = threading.Event(), threading.Event()

    def renew(self, assignment):
        self.is_held.set()
        assert self.let_go.wait(60)
        super().renew(assignment)


def test_a_heartbeat_that_comes_late_ends_nothing(tables):
    """A service's thread cancels its executor then, and that runs the next table's round by now."""
    info = tables.create()
    lost = threading.Event()
    with TieringSession(tables.connection) as session:
        enumerator = LateEnumerator(tables.connection, session.session_id)
        assignment = enumerator.request(info.table_id)
        with enumerator.hold(assignment, lambda _: lost.set()):
            assert enumerator.is_held.wait(60)
        enumerator.handle(FinishedTieringEvent(assignment, 0, 0))
        (heartbeats,) = [each for each in threading.enumerate() if each.name == "fluss-tiering-heartbeat"]
        enumerator.let_go.set()
        heartbeats.join(60)
        assert not heartbeats.is_alive()
    assert not lost.is_set()


def test_fluss_refuses_the_snapshot_of_a_tierer_that_does_not_hold_the_table(tables):
    info = tables.create()
    tables.append(info, 10)
    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 1.0)
        assignment = enumerator.request(info.table_id)
        enumerator.handle(FailedTieringEvent(assignment, "gives up"))
        committer = FlussTableLakeSnapshotCommitter(tables.connection, assignment)
        with pytest.raises(FencedTieringEpochError):
            committer.commit(1, {TableBucket(info.table_id, None, 0): LakeOffset(10)})
    with pytest.raises(LakeSnapshotNotFoundError):
        tables.known(info)


def test_a_restarted_server_ends_the_round_and_the_next_goes_on(tables):
    info = tables.create(buckets=2)
    tables.append(info, 100)
    with pytest.raises(FlussError):
        tables.tier(info, executor=During(tables.cluster.restart))
    tables.tier(info)
    tables.check(info)


def test_a_due_round_is_not_given_twice(tables):
    info = tables.create(properties={"table.datalake.freshness": "1ms"})
    tables.append(info, 10)
    other = []

    def ask_again():
        other.append(run_round(tables.connection, tables.storage, LocalTieringExecutor(), table_id=None))

    run_round(tables.connection, tables.storage, During(ask_again), table_id=None, options=FAST)
    assert other == [None]
    tables.check(info)


# -- commits of unknown outcome ----------------------------------------------------------------------------------------

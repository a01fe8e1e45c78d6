"""The lake side of a table in the hand: what is shown of it, and keeping it in shape; Spark is in tests/spark."""

import json
import os
import threading

import pytest

import fluss_lab as fl
from fluss_lab import errors
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.lab_spark import LateExecutor

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": True}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("upkeep") / "lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("d")
        yield lab


@pytest.fixture
def people(lab):
    table = lab.create_table(
        "d.people", {"id": "bigint", "name": "string"}, primary_key=["id"], buckets=1, properties=LAKE
    )
    for turn in range(3):
        table.upsert([{"id": key, "name": f"{key}-{turn}"} for key in range(4)])
        tier(table)
    yield table
    lab.drop_table("d.people")


def tier(table):
    lab = table.lab
    return run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)


@pytest.fixture
def in_process(monkeypatch):
    """Compaction as `Table.compact` does it, with tasks in this process."""
    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", lambda _table: LocalTieringExecutor())


def test_a_table_is_kept_in_shape_by_hand(people, in_process):
    files = people.files()
    assert {row["content"] for row in files} == {"data", "position deletes"}
    done = people.compact()
    assert (done.buckets, done.files_before, done.files_after) == (1, len(files), 1)
    (file,) = people.files()
    assert (file["content"], file["rows"], file["last_offset"]) == ("data", 4, 19)
    assert file["first_time"] <= file["last_time"]
    before, newest = people.snapshots()[-2:]
    assert (newest["operation"], newest["ours"], newest["total_rows"], newest["deletes"]) == ("replace", True, 4, 0)
    assert newest["offsets"] == before["offsets"]
    assert before["tags"] == [done.tag]
    assert len(people.files(before["snapshot_id"])) == len(files)
    assert people.compact().snapshot_id is None
    assert people.expire_snapshots(older_than="7d", keep=1).snapshot_ids == ()
    assert people.remove_orphan_files(dry_run=True, older_than="1h").files == ()
    assert json.dumps(people.snapshots()[-1])
    assert "replace" in repr(people.snapshots())
    assert people.lake_schemas()[0]["columns"]["__offset"] == "long"


def test_rounds_and_lag_are_listings(lab, people):
    rounds = people.rounds()
    assert rounds.column("rows") == [4, 4, 4]
    assert rounds.column("state") == ["done"] * 3
    snapshots = people.snapshots().column("snapshot_id")
    assert [each for each in snapshots if each in rounds.column("snapshot_id")] == rounds.column("snapshot_id")
    assert rounds[-1]["snapshot_id"] == snapshots[-1]
    assert rounds.column("lag_records") == [0, 0, 0]
    assert all(row["seconds"] >= row["plan_s"] + row["write_s"] + row["commit_s"] > 0 for row in rounds)
    assert rounds.column("start") == sorted(rounds.column("start"))
    assert rounds.to_pandas()["bytes"].min() > 0
    people.upsert([{"id": 9, "name": "new"}])
    lag = people.lag_history()
    assert lag.column("round") == [epoch for epoch in rounds.column("round") for _ in "be"] + [None]
    assert lag.column("records") == [4, 0, 8, 0, 8, 0, 1]
    assert lag[-1]["lag_ms"] > 0
    assert lag.column("time") == sorted(lag.column("time"))
    newest = people.lag_history(samples=2)
    assert (len(newest), newest[0]) == (2, lag[-2])
    with pytest.raises(errors.InvalidRequestError, match="at least one"):
        people.lag_history(samples=0)
    plain = lab.create_table("d.plain", {"id": "bigint"})
    assert list(plain.rounds()) == []
    with pytest.raises(errors.LakeNotConfiguredError):
        plain.lag_history()
    lab.drop_table("d.plain")


def test_a_round_is_followed_and_cancelled_from_another_thread(lab, people, in_process):
    people.upsert([{"id": 1, "name": "again"}])
    event, states = threading.Event(), []

    def follow(state):
        states.append(state)
        if state.stage == "write":
            event.set()
        raise ValueError("what a listener raises changes nothing")

    with pytest.raises(errors.TieringCancelledError):
        lab.tier(cancel=event, progress=follow)
    assert {(str(each.table), each.stage) for each in states} == {("d.people", "plan"), ("d.people", "write")}
    assert people.rounds()[-1]["state"] == "cancelled"
    with pytest.raises(errors.TieringCancelledError, match="before it began"):
        people.tier(cancel=event)
    for bad in ({"cancel": True}, {"progress": 7}):
        with pytest.raises(errors.InvalidRequestError, match=f"tier: {next(iter(bad))}"):
            people.tier(**bad)
    states.clear()
    event.clear()
    assert people.tier(progress=states.append).rows == 1
    last = states[-1]
    assert (last.stage, last.epoch, last.rows, last.planned) == ("finish", people.rounds()[-1]["round"], 2, 2)
    assert {"plan", "write", "commit", "maintain"} <= set(last.stages)
    assert [each.bucket for each in last.buckets] == [0]


def test_a_failed_round_says_why_in_the_listing(people, monkeypatch):
    class Failing(LocalTieringExecutor):
        def run(self, tasks, progress=None):
            raise errors.StorageError("<b>no</b> room")

    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", lambda _table: Failing())
    people.upsert([{"id": 1, "name": "again"}])
    with pytest.raises(errors.StorageError):
        people.tier()
    row = people.rounds()[-1]
    assert (row["state"], row["error_class"], row["error"]) == ("failed", "StorageError", "<b>no</b> room")
    assert row["rows"] is None
    assert "<b>no" not in people.rounds()._repr_html_()
    assert "StorageError" in people.rounds()._repr_html_()


def test_what_cannot_be_is_reported(lab, people):
    with pytest.raises(errors.InvalidPropertyError):
        people.expire_snapshots(older_than="soon")
    with pytest.raises(errors.LakeSnapshotNotFoundError):
        people.files(5)
    plain = lab.create_table("d.plain", {"id": "bigint"})
    with pytest.raises(errors.LakeSnapshotNotFoundError, match=r"d\.plain: neither the cluster nor the lake"):
        plain.scan(as_of=2**62)
    for call in (plain.compact, plain.expire_snapshots, plain.remove_orphan_files, plain.snapshots, plain.files):
        with pytest.raises(errors.LakeNotConfiguredError):
            call()


def test_a_table_that_was_never_tiered_shows_nothing(lab, in_process):
    empty = lab.create_table("d.empty", {"id": "bigint"}, properties=LAKE)
    assert (list(empty.snapshots()), list(empty.files())) == ([], [])
    assert empty.snapshots().columns[0] == "snapshot_id"
    assert empty.compact().snapshot_id is None
    assert empty.expire_snapshots().files == 0


@pytest.fixture
def made(monkeypatch):
    """Executors of this process in place of Spark's, and a list of those that were made."""
    found = []

    def make(_upkeep):
        found.append(LocalTieringExecutor())
        return found[-1]

    monkeypatch.setattr("fluss_lab.workbench.lake_upkeep.LakeUpkeep._executor", make)
    return found


def test_where_there_is_nothing_to_do_spark_is_not_started(lab, made):
    table = lab.create_table("d.late", {"id": "bigint"}, properties=LAKE)
    assert table.tier().rows == 0
    assert table.compact().snapshot_id is None
    assert made == []
    table.append([{"id": 1}])
    assert table.tier().rows == 1
    assert len(made) == 1
    assert table.tier().rows == 0
    assert len(made) == 1


def test_an_executor_is_made_by_its_first_tasks():
    made = []

    class Counted(LocalTieringExecutor):
        parallelism = 7

        def run(self, tasks, progress=None):
            made.append(tasks)
            return [b"done"]

    late = LateExecutor(Counted)
    assert late.run([]) == []
    assert (made, late.parallelism, late.is_alive) == ([], os.cpu_count(), True)
    assert late.run([b"task"]) == [b"done"]
    assert late.parallelism == 7
    late.cancel()
    assert made == [[b"task"]]
    stopped = LateExecutor(Counted)
    stopped.cancel()
    with pytest.raises(errors.UnavailableError, match="cancelled before"):
        stopped.run([b"task"])
    assert len(made) == 1

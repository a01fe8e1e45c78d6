"""The store of jobs: several processes write it, damage and newer formats are refused by name."""

import json
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from fluss_lab.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InternalError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.jobs.job_store import JobStore, runs_query
from fluss_lab.jobs.run_record import RunRecord
from fluss_lab.jobs.scheduling.due_plan import DuePlan
from tests.unit.jobs.job_kit import make_job


@pytest.fixture
def store(tmp_path):
    return JobStore(tmp_path)


def make_run(run_id="r1", **changes):
    members = {
        "job": "job",
        "job_id": 1,
        "task": make_job().task,
        "trigger": "schedule",
        "attempt": 1,
        "state": "queued",
        "queued_ms": 5,
    }
    return RunRecord(id=run_id, **members | changes)


def test_reading_makes_no_file(store, tmp_path):
    assert (store.jobs(), store.runs()) == ([], [])
    with pytest.raises(NotFoundError, match="there are: none"):
        store.job("x")
    with pytest.raises(NotFoundError, match="run 'x'"):
        store.run("x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_looked_at_is_an_error(store):
    """Seen: a raw `PermissionError`; and where a file is in its place, no jobs and no runs."""
    store.folder.write_text("")
    refused = r"jobs\.db: the jobs cannot be read or stored now: Not a directory; mend owner and mode"
    for call in (
        store.jobs,
        store.runs,
        lambda: store.end_run("r1", state="failed"),
        lambda: store.add_run(make_run()),
    ):
        with pytest.raises(StorageError, match=refused):
            call()
    store.folder.unlink()
    store.folder.mkdir()
    store.path.symlink_to(store.folder / "gone")
    with pytest.raises(StorageError, match="found a link"):
        store.runs()


def test_a_store_that_is_removed_meanwhile_is_not_made_anew(store):
    job = store.add_job(make_job(id=0), replaces=False)
    store.add_run(make_run(job_id=job.id))
    store.path.unlink()
    store.folder.rmdir()
    ends = {"state": "failed", "ended_ms": 9}
    assert (store.change_run("r1", cell=1), store.cancel_run("r1", 9), store.end_run("r1", **ends)) == (
        None,
        None,
        None,
    )
    with pytest.raises(NotFoundError, match=r"jobs\.db: removed meanwhile, with all jobs and runs"):
        store.decide(job, DuePlan((), (), 9), [])
    assert not store.folder.exists()


def test_what_is_entered_is_there(store):
    made = store.add_job(
        make_job(id=0, parameters={"a": [1, {"b": None}], "t": "ü"}, on_failure=("x", "{name}")), replaces=False
    )
    assert store.jobs() == [store.job("job")] == [store.job("JOB")] == [made]
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(AlreadyExistsError, match="'job' exists"):
        store.add_job(make_job(name="Job"), replaces=False)
    other = store.add_job(make_job(cron="0 0 * * *"), replaces=True)
    assert other.id > made.id
    run = make_run(summary={"rows": 1}, due_ms=3)
    store.add_run(run)
    assert store.run("r1") == run
    assert store.change_run("r1", state="running", owner="1:2") == replace(run, state="running", owner="1:2")
    assert store.change_run("r1", state="succeeded").state == "succeeded"
    assert store.change_run("r1", state="failed") is None, "what has ended stays"
    assert store.change_run("none", state="failed") is None


def test_pause_and_resume_are_noted(store):
    store.add_job(make_job(), replaces=False)
    assert store.set_paused("job", 10, paused=True).paused_ms == 10
    assert store.set_paused("job", 20, paused=True).paused_ms == 10
    assert store.add_job(make_job(cron="@hourly"), replaces=True).paused_ms == 10, "a replaced one stays paused"
    resumed = store.set_paused("job", 30, paused=False)
    assert (resumed.paused_ms, resumed.resumed) == (None, (10, 30))
    assert store.set_paused("job", 40, paused=False) == resumed
    assert store.add_job(make_job(), replaces=True).paused_ms is None


def test_a_removed_job_takes_its_queued_runs_along(store):
    job = store.add_job(make_job(), replaces=False)
    store.add_run(make_run("r1", job_id=job.id))
    store.add_run(make_run("r2", job_id=job.id, state="succeeded", attempt=2))
    store.remove_job("job")
    assert [run.id for run in store.runs("job")] == ["r2"]


def test_a_replaced_job_leaves_its_queued_runs_in_the_history(store):
    """A due time that was decided on is run, or recorded as what became of it."""
    job = store.add_job(make_job(), replaces=False)
    store.add_run(make_run("r1", job_id=job.id, due_ms=7))
    store.add_job(make_job(name="Job"), replaces=True, now_ms=9)
    (run,) = store.runs()
    assert (run.state, run.error, run.due_ms, run.ended_ms) == (
        "cancelled",
        "the job was replaced before it began",
        7,
        9,
    )


def test_a_run_that_has_begun_is_not_ended_by_its_record(store):
    """Who runs it ends it: only one that is queued still is ended at once."""
    store.add_run(make_run("r1"))
    store.add_run(make_run("r2", state="running"))
    store.add_run(make_run("r3", state="succeeded"))
    queued, running, ended = (store.cancel_run(run_id, 9) for run_id in ("r1", "r2", "r3"))
    assert (queued.state, queued.error, queued.ended_ms, queued.is_cancelled) == ("cancelled", "cancelled", 9, True)
    assert (running.state, running.error, running.ended_ms, running.is_cancelled) == ("running", None, None, True)
    assert ended is None
    assert [run.state for run in store.runs()] == ["succeeded", "running", "cancelled"]


def test_runs_are_listed_newest_first_by_job_and_state(store):
    for at in range(5):
        store.add_run(
            make_run(f"r{at}", state="missed" if at % 2 else "succeeded", job="a" if at < 3 else "b", due_ms=at)
        )
    assert [run.id for run in store.runs()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.id for run in store.runs("a", 2)] == ["r2", "r1"]
    assert [run.id for run in store.runs(states=("missed",), limit=-1)] == ["r3", "r1"]
    store.drop_runs(store.runs("a"))
    assert [run.id for run in store.runs()] == ["r4", "r3"]


@pytest.mark.parametrize("states", [("queued",), ("running",), ("queued", "running")])
def test_what_is_pending_is_found_without_reading_the_history(store, states):
    """A scheduler asks several times a second, however long the history is."""
    store.add_run(make_run())
    query, values = runs_query(None, states)
    with closing(sqlite3.connect(store.path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", [*values, -1])]
    assert "SEARCH runs USING INDEX runs_by_state (state=?)" in plan, plan


def test_a_decision_on_a_changed_job_is_not_entered(store):
    job = store.add_job(make_job(), replaces=False)
    store.set_paused("job", 1, paused=True)
    assert not store.decide(job, DuePlan((5,), (), 10), [make_run(job_id=job.id, due_ms=5)])
    assert store.runs() == []
    assert store.decide(store.job("job"), DuePlan((5,), (), 10), [make_run(job_id=job.id, due_ms=5)])
    assert store.job("job").next_due_ms == 10


def test_a_due_time_is_entered_once_whatever_happens(store):
    store.add_run(make_run("r1", due_ms=5))
    with pytest.raises(InternalError, match="entered twice"):
        store.add_run(make_run("r2", due_ms=5))
    assert [run.id for run in store.runs()] == ["r1"]


def test_damage_and_newer_formats_are_refused(store):
    store.add_job(make_job(), replaces=False)
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for call in (store.jobs, lambda: store.add_run(make_run())):
        with pytest.raises(UnsupportedError, match="newer version"):
            call()
    for damaged in (b"not a database" * 1000, b""):
        store.path.write_bytes(damaged)
        for call in (store.jobs, lambda: store.add_run(make_run())):
            with pytest.raises(CorruptDataError, match=r"jobs\.db: damaged"):
                call()


@pytest.mark.parametrize("record", ["", "{}", "[1]", '{"id": 1'])
def test_a_record_that_cannot_be_read_is_named_with_its_file_and_what_helps(store, record):
    store.add_job(make_job(), replaces=False)
    store.add_run(make_run())
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE jobs SET record = ?", (record,))
        db.execute("UPDATE runs SET record = ?", (record,))
        db.commit()
    for call, what in ((store.jobs, "a job"), (store.runs, "a run"), (lambda: store.run("r1"), "a run")):
        with pytest.raises(
            CorruptDataError, match=rf"jobs\.db: damaged \({what} of the store: .*\); restore it from a backup"
        ):
            call()


@pytest.mark.parametrize("moment_ms", [-1, 253_402_300_800_000, 10**20])
def test_a_time_of_a_record_that_cannot_be_shown_is_damage(store, moment_ms):
    store.add_job(make_job(), replaces=False)
    store.add_run(make_run(started_ms=5))
    for table, name, read in (("jobs", "next_due_ms", store.jobs), ("runs", "started_ms", store.runs)):
        with closing(sqlite3.connect(store.path)) as db:
            (record,) = db.execute(f"SELECT record FROM {table}").fetchone()
            db.execute(f"UPDATE {table} SET record = ?", (json.dumps(json.loads(record) | {name: moment_ms}),))
            db.commit()
        with pytest.raises(CorruptDataError, match=rf"jobs\.db: damaged .*{name}"):
            read()


def test_several_that_begin_at_once_find_tables_or_nothing(tmp_path):
    """Whoever reads while another makes the file."""
    failures = []

    def use(number):
        store = JobStore(tmp_path)
        try:
            store.runs()
            store.add_run(make_run(f"r{number}", due_ms=number))
            assert store.run(f"r{number}").due_ms == number
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(JobStore(tmp_path).runs()) == 16
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["jobs.db"]


def test_a_link_in_its_place_is_not_followed(store, tmp_path):
    store.folder.mkdir()
    store.path.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StorageError, match="found a link"):
        store.add_job(make_job(), replaces=False)
    assert not (tmp_path / "elsewhere.db").exists()

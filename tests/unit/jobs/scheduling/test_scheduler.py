"""The scheduler by a moved clock: what is due runs once, in real processes, and the policies hold."""

import json
import os
import sqlite3
import sys
import threading
from dataclasses import replace

import pytest

from fluss_lab.errors import LabError, LabLockedError
from fluss_lab.jobs import Jobs
from fluss_lab.jobs.run_execution import settle_lost_runs
from fluss_lab.jobs.run_processes import identity, run_processes
from fluss_lab.jobs.run_record import RunRecord, new_run_id
from fluss_lab.jobs.scheduling.scheduler import Scheduler
from fluss_lab.testing import wait_until
from tests.unit.jobs.job_kit import SCRIPT_PROCESS, write_notebook
from tests.unit.jobs.scheduling.scheduler_kit import DONE, FAILED, MINUTE, NOON
from tests.unit.jobs.test_job_store import make_run

pytestmark = pytest.mark.slow


def test_what_is_due_runs_once(scene):
    scene.add()
    scene.scheduler.step()
    assert scene.states() == []
    for _ in range(3):
        scene.advance()
        scene.scheduler.step()
        scene.settle()
    assert scene.states() == [("succeeded", 1), ("succeeded", 2), ("succeeded", 3)]
    run = scene.store.runs()[0]
    assert run.trigger == "schedule"
    assert (scene.lab / "jobs" / "job" / f"{run.id}.ipynb").exists()


def test_after_an_outage_one_is_made_up_for_and_the_rest_is_recorded(scene):
    scene.add(cron="*/10 * * * *")
    scene.advance(35 * MINUTE)
    scene.settle()
    assert scene.states() == [("missed", 10), ("missed", 20), ("succeeded", 30)]
    assert "no scheduler ran" in scene.store.runs()[-1].error


def test_a_clock_that_was_ahead_for_a_moment_stops_nothing_and_nothing_runs_twice(scene):
    scene.add()
    scene.advance()
    scene.settle()
    scene.clock.set_wall(NOON + 3 * 86_400_000)
    scene.scheduler.step()
    scene.settle()
    scene.clock.set_wall(NOON + MINUTE)
    scene.scheduler.step()
    for _ in range(2):
        scene.advance()
        scene.settle()
    states = scene.states()
    assert ("succeeded", 2) in states
    assert ("succeeded", 3) in states
    assert states.count(("succeeded", 1)) == 1
    assert not [each for each in states if each[0] == "missed"]


def test_after_a_restart_too(scene):
    scene.add()
    scene.clock.set_wall(NOON + 3 * 86_400_000)
    scene.scheduler.step()
    scene.settle()
    scene.clock.set_wall(NOON)
    scene.start()
    scene.scheduler.step()
    scene.advance()
    scene.settle()
    assert ("succeeded", 1) in scene.states()


def test_a_due_time_that_ran_under_a_clock_ahead_does_not_run_again(scene):
    day = 1440
    scene.add(cron="0 12 * * *")
    scene.clock.set_wall(NOON + 3 * day * MINUTE)
    scene.scheduler.step()
    scene.settle()
    assert scene.states() == [("missed", day), ("missed", 2 * day), ("succeeded", 3 * day)]
    scene.clock.set_wall(NOON + MINUTE)
    scene.scheduler.step()
    for number in range(1, 5):
        scene.clock.set_wall(NOON + number * day * MINUTE)
        scene.scheduler.step()
        scene.settle()
    assert sorted(scene.states()) == [("succeeded", number * day) for number in range(1, 5)]


def test_all_are_made_up_for_one_after_another_in_order(scene):
    out = scene.lab.parent / "order"
    code = f"open({str(out)!r}, 'a').write(task['output'] + ' '); report(end=True)"
    scene.add(cron="*/10 * * * *", catch_up="all", code=code)
    scene.advance(35 * MINUTE)
    scene.settle()
    assert scene.states() == [("succeeded", 10), ("succeeded", 20), ("succeeded", 30)]
    ran = [text.rpartition("/")[2].removesuffix(".ipynb") for text in out.read_text().split()]
    assert ran == [run.id for run in sorted(scene.store.runs(), key=lambda run: run.due_ms)]


def test_overlap_skip_records_and_queue_waits(scene):
    gate = scene.lab.parent / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    scene.add("skips", code)
    scene.add("queues", code, overlap="queue")
    scene.advance()
    scene.advance()
    gate.write_text("")
    scene.settle()
    assert scene.states("skips") == [("succeeded", 1), ("missed", 2)]
    assert "was still under way" in scene.store.runs("skips")[0].error
    assert scene.states("queues") == [("succeeded", 1), ("succeeded", 2)]


def test_one_that_was_started_by_hand_is_under_way_too(scene):
    """What is due meanwhile is missed or waits; when its process is gone, nothing waits for it any more."""
    gate = scene.lab.parent / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    for name, overlap in (("skips", "skip"), ("queues", "queue")):
        scene.add(name, code, overlap=overlap)
    jobs = Jobs(scene.lab, SCRIPT_PROCESS)
    by_hand = [jobs.start(name) for name in ("skips", "queues")]
    scene.advance()
    scene.advance(100)
    assert scene.states("skips") == [("running", None), ("missed", 1)]
    assert f"run {by_hand[0].id} was still under way" in scene.store.runs("skips")[0].error
    assert scene.states("queues") == [("running", None), ("queued", 1)]
    gate.write_text("")
    wait_until(lambda: {run.state for run in by_hand} == {"succeeded"})
    scene.settle()
    assert scene.states("queues") == [("succeeded", None), ("succeeded", 1)]
    scene.store.add_run(replace(by_hand[0].record, id="lost", state="running", owner="999999:1"))
    scene.advance()
    scene.settle()
    assert scene.store.run("lost").state == "failed"
    assert scene.states("skips")[-1] == ("succeeded", 2)


def test_a_run_of_a_replaced_job_is_under_way_still(scene):
    gate = scene.lab.parent / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    job = scene.add("Job", code)
    scene.advance()
    scene.store.add_job(replace(job, name="job", next_due_ms=NOON + 2 * MINUTE), replaces=True)
    scene.advance()
    gate.write_text("")
    scene.settle()
    assert scene.states() == [("succeeded", 1), ("missed", 2)]


def test_what_is_entered_by_hand_is_not_for_the_scheduler(scene):
    job = scene.add()
    run = RunRecord(
        id="entered", job="job", job_id=job.id, task=job.task, trigger="call", attempt=1, state="queued", queued_ms=NOON,
        owner=identity(os.getpid()),
    )  # fmt: skip
    scene.store.add_run(run)
    scene.scheduler.step()
    assert scene.store.run("entered") == run


def test_a_failed_run_is_tried_again_after_a_pause_and_then_reported(scene):
    out = scene.lab.parent / "notice"
    notice = (sys.executable, "-c", f"import sys; open({str(out)!r}, 'a').write(sys.argv[1] + '|')", "{name} {error}")
    scene.add(code=FAILED, retries=2, on_failure=notice, cron="0 * * * *")
    scene.advance(60 * MINUTE)
    scene.settle()
    assert scene.states() == [("failed", 60), ("queued", 60)]
    scene.advance(9_000)
    assert scene.states()[-1] == ("queued", 60)
    scene.advance(1_000)
    scene.settle()
    scene.advance(20_000)
    scene.settle()
    assert scene.states() == [("failed", 60)] * 3
    assert [run.attempt for run in scene.store.runs()] == [3, 2, 1]
    wait_until(lambda: out.exists() and out.read_text() != "")
    assert out.read_text() == "job no|"


def test_one_that_hangs_ends_as_its_policy_says(scene):
    scene.add(code="import time; time.sleep(600)", retries=1, timeout_ms=300, cron="0 * * * *")
    scene.advance(60 * MINUTE)
    scene.settle()
    scene.advance(10_000)
    scene.settle()
    assert [(run.state, run.attempt, run.error) for run in scene.store.runs()] == [
        ("failed", 2, "the time limit of 300ms has passed"), ("failed", 1, "the time limit of 300ms has passed"),
    ]  # fmt: skip


@pytest.mark.parametrize("spoils", ["gone", "parameters", "secret"])
def test_what_no_longer_fits_is_recorded_and_not_started(scene, spoils):
    job = scene.add(retries=3)
    if spoils == "gone":
        scene.notebook.unlink()
    elif spoils == "parameters":
        write_notebook(scene.notebook, "other: int = 1")
    else:
        task = replace(job.task, secrets=("NO_SUCH_SECRET",))
        scene.store.add_job(replace(job, task=task), replaces=True)
    scene.advance()
    scene.settle()
    (run,) = scene.store.runs()
    assert run.state == "failed"
    assert run.error.startswith("not started: ")
    assert {"gone": "does not exist", "parameters": "is no parameter of it", "secret": "NO_SUCH_SECRET"}[
        spoils
    ] in run.error
    assert run.started_ms is None


def test_paused_it_waits_and_resumed_it_catches_up(scene):
    scene.add(cron="*/10 * * * *")
    scene.store.set_paused("job", NOON, paused=True)
    scene.advance(25 * MINUTE)
    assert scene.states() == []
    scene.store.set_paused("job", scene.clock.now_ms(), paused=False)
    scene.advance(1)
    scene.settle()
    assert scene.states() == [("missed", 10), ("succeeded", 20)]
    assert "the job was paused from 2026-03-28T12:00" in scene.store.runs()[-1].error


def test_a_removed_job_is_due_no_more(scene):
    scene.add()
    scene.store.remove_job("job")
    scene.advance()
    assert scene.states() == []


def test_a_cancelled_run_ends(scene):
    scene.add(code="import time; time.sleep(600)")
    scene.advance()
    (run,) = scene.store.runs()
    assert run.state == "running"
    scene.store.change_run(run.id, is_cancelled=True)
    scene.settle()
    (run,) = scene.store.runs()
    assert (run.state, run.error) == ("cancelled", "cancelled")
    assert run_processes(run.id) == []


def test_only_so_many_runs_at_a_time(scene):
    scene.start(runs_max=2)
    for name in ("a", "b", "c"):
        scene.add(name, code="import time; time.sleep(600)")
    scene.advance()
    assert sorted(run.state for run in scene.store.runs()) == ["queued", "running", "running"]


def test_old_runs_go_with_their_files(scene):
    scene.add(keep=2)
    for _ in range(4):
        scene.advance()
        scene.settle()
    assert scene.states() == [("succeeded", 3), ("succeeded", 4)]
    kept = {path.name for path in (scene.lab / "jobs" / "job").iterdir() if path.is_file()}
    assert kept == {f"{run.id}{suffix}" for run in scene.store.runs() for suffix in (".ipynb", ".log")}


def test_runs_of_a_notebook_that_is_called_as_a_job_are_kept(scene):
    """They have the same folder, and no job that says how many of them are kept."""
    scene.add("x", keep=1)
    by_hand = [Jobs(scene.lab, SCRIPT_PROCESS).run(scene.notebook, {"code": DONE}) for _ in range(2)]
    for _ in range(2):
        scene.advance()
        scene.settle()
    assert scene.states("x") == [("succeeded", None), ("succeeded", None), ("succeeded", 2)]
    assert all(run.output.exists() and run.log_file.exists() for run in by_hand)


@pytest.mark.parametrize(("cron", "zone"), [("* * * * *", "Mars/Olympus"), ("* * * * 99", "UTC")])
def test_a_job_whose_zone_is_not_known_here_stops_no_other(scene, cron, zone):
    """As of a lab that was moved to a machine with fewer zones."""
    bad = scene.add("bad")
    scene.store.add_job(replace(bad, cron=cron, zone=zone), replaces=True)
    scene.add("good")
    for _ in range(2):
        scene.advance()
        scene.settle()
    assert scene.states("good") == [("succeeded", 1), ("succeeded", 2)]
    assert scene.states("bad") == []
    (said,) = [line for line in scene.events if "cannot go on now" in line]
    assert "enter the job again" in said
    assert zone in said


def test_a_clock_that_is_set_back_runs_nothing_twice(scene):
    scene.add()
    scene.advance()
    scene.settle()
    scene.clock.set_wall(NOON - 10 * MINUTE)
    for _ in range(12):
        scene.advance()
    scene.settle()
    assert scene.states() == [("succeeded", 1), ("succeeded", 2)]


def test_it_takes_up_what_a_killed_one_left(scene):
    """One run was under way, one was queued: the first is recorded as failed, and tried again; the second runs."""
    job = scene.add(retries=1)
    task = scene.store.job("job").task
    template = {"job": "job", "job_id": job.id, "task": task, "trigger": "schedule", "attempt": 1, "queued_ms": NOON}
    lost = RunRecord(id=new_run_id(NOON), state="running", due_ms=NOON, owner="999999:1.00", **template)
    waiting = RunRecord(id=new_run_id(NOON + 1), state="queued", due_ms=NOON + 1, **template)
    for run in (lost, waiting):
        scene.store.add_run(run)
    stop = threading.Event()
    thread = threading.Thread(target=scene.scheduler.run, args=(stop,), daemon=True)  # a failure ends the tests
    thread.start()
    wait_until(lambda: scene.store.run(waiting.id).state == "succeeded")
    assert scene.store.run(lost.id).state == "failed"
    assert "ended while it was under way" in scene.store.run(lost.id).error
    with pytest.raises(LabLockedError):
        Scheduler(scene.lab).run(threading.Event())
    scene.clock.advance(10_000)
    wait_until(lambda: [run.state for run in scene.store.runs() if run.trigger == "retry"] == ["succeeded"])
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_history_that_records_a_lost_run_takes_no_retry_and_no_notice_from_it(scene):
    out = scene.lab.parent / "notice"
    notice = (sys.executable, "-c", f"import sys; open({str(out)!r}, 'a').write(sys.argv[1] + '|')", "{name} {run}")
    lost = {}
    for name, retries in (("again", 1), ("reported", 0)):
        job = scene.add(name, cron="0 * * * *", retries=retries, on_failure=notice)
        lost[name] = RunRecord(
            id=new_run_id(NOON), job=name, job_id=job.id, task=job.task, trigger="schedule", attempt=1, state="running",
            queued_ms=NOON, due_ms=NOON, owner="999999:1.00",
        )  # fmt: skip
        scene.store.add_run(lost[name])
    settle_lost_runs(scene.store, scene.clock)  # as any look at the history does
    assert [run.state for run in scene.store.runs("again")] == ["queued", "failed"]
    assert [run.state for run in scene.store.runs("reported")] == ["failed"]
    scene.clock.advance(10_000)
    for _ in range(2):
        scene.start()
        stop = threading.Event()
        thread = threading.Thread(target=scene.scheduler.run, args=(stop,), daemon=True)  # a failure ends the tests
        thread.start()
        wait_until(lambda: [run.state for run in scene.store.runs("again")] == ["succeeded", "failed"])
        wait_until(lambda: out.exists() and out.read_text() != "")
        stop.set()
        thread.join(30)
    assert out.read_text() == f"reported {lost['reported'].id}|", "once"


def test_whoever_listens_to_events_stops_nothing(scene):
    scene.scheduler = Scheduler(scene.lab, clock=scene.clock, command=SCRIPT_PROCESS, on_event=lambda line: 1 / 0)
    scene.add(code=FAILED, retries=1)
    scene.advance()
    scene.settle()
    assert scene.states() == [("failed", 1), ("queued", 1)]


def test_stopped_it_ends_what_runs_and_the_next_one_tries_again(scene):
    gate = scene.lab.parent / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    scene.add(code=code, retries=1)
    stop = threading.Event()
    thread = threading.Thread(target=scene.scheduler.run, args=(stop,), daemon=True)  # a failure ends the tests
    thread.start()
    scene.clock.advance(MINUTE)
    wait_until(lambda: [run.state for run in scene.store.runs()] == ["running"])
    stop.set()
    thread.join(30)
    retry, stopped = scene.store.runs()
    assert (stopped.state, stopped.error) == ("failed", "the scheduler was stopped")
    assert run_processes(stopped.id) == []
    assert (retry.state, retry.attempt) == ("queued", 2)
    gate.write_text("")
    scene.start()
    scene.clock.advance(10_000)
    scene.settle()
    assert [run.state for run in scene.store.runs()] == ["succeeded", "failed"]


def test_a_full_disk_is_said_once_and_passes(scene, monkeypatch):
    scene.add()
    with monkeypatch.context() as broken:
        broken.setattr(scene.store.path.__class__, "lstat", lambda path: exec("raise OSError(28, 'No space left')"))
        scene.advance()
        scene.advance()
    assert len([line for line in scene.events if "No space left" in line]) == 1
    scene.advance()
    scene.settle()
    assert scene.states()[-1][0] == "succeeded"


def test_on_a_disk_that_cannot_be_written_the_history_is_read_and_a_scheduler_waits(scene, monkeypatch):
    job = scene.add()
    lost = RunRecord(
        id=new_run_id(NOON), job="job", job_id=job.id, task=scene.store.job("job").task, trigger="schedule", attempt=1,
        state="running", queued_ms=NOON, due_ms=NOON, owner="999999:1.00",
    )  # fmt: skip
    scene.store.add_run(lost)
    connect, stop = sqlite3.connect, threading.Event()
    thread = threading.Thread(target=scene.scheduler.run, args=(stop,), daemon=True)  # a failure ends the tests
    with monkeypatch.context() as broken:
        broken.setattr(sqlite3, "connect", lambda path, **how: connect(f"file:{path}?mode=ro", uri=True, **how))
        assert [run.id for run in Jobs(scene.lab).history()] == [lost.id]
        thread.start()
        wait_until(lambda: any("readonly" in line for line in scene.events))
        assert thread.is_alive()
    wait_until(lambda: scene.store.run(lost.id).state == "failed")
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_the_record_of_a_run_is_json(scene):
    scene.add(code="report(end=True, summary={'rows': 3, 'by': {'a': [1.5, None]}})")
    scene.advance()
    scene.settle()
    (run,) = scene.store.runs()
    assert run.summary == {"rows": 3, "by": {"a": [1.5, None]}}
    assert json.dumps(dict(run.summary))


def test_a_scheduler_whose_lab_is_removed_ends_its_runs_and_itself(scene, tmp_path):
    """Seen: it went on for ever without a word, and scheduled what was made in the lab's place beside the next scheduler."""
    scene.add(code="import time; print('under way', flush=True); time.sleep(600)")
    scene.clock.advance(MINUTE)
    raised, stop = [], threading.Event()

    def schedule():
        try:
            scene.scheduler.run(stop)
        except LabError as error:
            raised.append(error)

    thread = threading.Thread(target=schedule, daemon=True)
    thread.start()
    wait_until(lambda: [run.state for run in scene.store.runs()] == ["running"])
    (run,) = scene.store.runs()
    scene.lab.rename(tmp_path / "moved")
    thread.join(30)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert run_processes(run.id) == []
    assert not scene.lab.exists()


def test_a_run_takes_as_long_as_it_does_whatever_the_clock_is_set_to(scene, tmp_path):
    """Seen: `succeeded after -18000.0 s`."""
    gate = tmp_path / "gate"
    scene.add(
        code=f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n{DONE}", cron="0 0 * * *"
    )
    scene.advance(12 * 60 * MINUTE)
    (run,) = scene.store.runs()
    scene.clock.set_wall(NOON)
    scene.clock.advance(2_000)
    gate.touch()
    scene.settle()
    ended = scene.store.run(run.id)
    assert (ended.state, ended.ended_ms - run.started_ms) == ("succeeded", 2_000)
    assert any(line.endswith("succeeded after 2.0 s") for line in scene.events)


def test_a_lost_run_does_not_end_before_it_began(scene):
    job = scene.add()
    scene.store.add_run(make_run("r1", job_id=job.id, state="running", owner="999999:1.00", started_ms=NOON + MINUTE))
    (lost,) = settle_lost_runs(scene.store, scene.clock)
    assert (lost.state, lost.ended_ms) == ("failed", NOON + MINUTE)

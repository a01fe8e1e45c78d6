"""The face of jobs: what cannot be run is refused when it is entered, and what is entered is what is listed."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fluss_lab.display import waiting
from fluss_lab.errors import (
    AlreadyExistsError,
    FlussError,
    InvalidError,
    InvalidNameError,
    NotebookError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.jobs.lab_jobs import jobs_of
from fluss_lab.jobs.run_execution import settle_lost_runs
from fluss_lab.model.times import parse_moment
from fluss_lab.testing.mock_clock import MockClock, wait_until
from tests.unit.display.seen_view import SeenView
from tests.unit.jobs.job_kit import write_notebook
from tests.unit.jobs.test_job_store import make_run
from tests.unit.jobs.test_notebook_library import HOSTILE as HOSTILE_PATHS
from tests.unit.jobs.test_notebook_parameters import HOSTILE as HOSTILE_PARAMETERS

#: Names of jobs become folders.
HOSTILE_NAMES = [
    "", ".", "..", "../x", "a/b", "/etc", "a\0", "a\n", "-rf", "a b", "{name}", "é", "x" * 65, "CON:", "a;b", "$HOME", "jobs.db", "`id`",
]  # fmt: skip


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "x.ipynb", 'n: int = 3  # 1 to 10\ntext: str = ""')


def nothing_was_made(jobs):
    return not jobs.folder.exists() and list(jobs) == [] and list(jobs.history()) == []


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused(jobs, notebook, name):
    with pytest.raises(InvalidNameError, match="job name"):
        jobs.schedule(name, notebook, cron="@daily")
    for verb in (jobs.pause, jobs.resume, jobs.remove, jobs.job, jobs.find_run, jobs.cancel, jobs.history):
        with pytest.raises(NotFoundError):
            verb(name)
    assert nothing_was_made(jobs)


@pytest.mark.parametrize("values", HOSTILE_PARAMETERS, ids=lambda values: repr(values)[:40])
def test_hostile_parameters_are_refused_at_both_entries(jobs, notebook, values):
    with pytest.raises(InvalidError):
        jobs.schedule("x", notebook, cron="@daily", parameters=values)
    with pytest.raises(InvalidError):
        jobs.run(notebook, values)
    assert nothing_was_made(jobs)


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=lambda path: repr(path)[:40])
def test_hostile_paths_are_refused_at_both_entries(jobs, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidError, NotFoundError)):
        jobs.schedule("x", path, cron="@daily")
    with pytest.raises((InvalidError, NotFoundError)):
        jobs.run(path)
    assert nothing_was_made(jobs)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"retries": -1}, "retries"), ({"retries": 101}, "retries"), ({"keep": 0}, "keep"), ({"overlap": "kill"}, "skip, queue"),
        ({"catch_up": "some"}, "one, all, none"), ({"timeout": "soon"}, "timeout: expected a duration"), ({"timeout": 0}, "timeout: expected 1 ms to 365d, found 0"),
        ({"memory": "1kb"}, "memory"), ({"memory": "lots"}, "memory: expected a size"), ({"cron": "whenever"}, "cron"), ({"time_zone": "Moon"}, "time zone"),
        ({"secrets": ["a=b"]}, "secrets"), ({"secrets": "KEY"}, "secrets"), ({"on_failure": "rm -rf /"}, "on_failure"),
        ({"on_failure": ["{name}"]}, "on_failure"), ({"parameters": [1]}, "parameters"), ({"cron": None}, "cron"),
        ({"timeout": "1000000d"}, "timeout"), ({"timeout": True}, "timeout"), ({"timeout": "10"}, "found '10', which is 10 milliseconds"),
        ({"timeout": 3600}, "with a unit, such as '10min' or '3600s'"),
    ],
)  # fmt: skip
def test_policies_that_cannot_be_are_refused(jobs, notebook, policy, says):
    with pytest.raises(InvalidError, match=says):
        jobs.schedule("x", notebook, **{"cron": "@daily"} | policy)
    assert nothing_was_made(jobs)


def test_a_secret_is_entered_by_name_and_needed_when_it_runs(jobs, notebook, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    made = jobs.schedule("x", notebook, cron="@daily", secrets=["MY_KEY"])
    assert made.secrets == ("MY_KEY",)
    with pytest.raises(InvalidError, match="MY_KEY: no such variable"):
        jobs.run(notebook, secrets=["MY_KEY"])
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    assert "hunter2" not in repr(made) + made._repr_html_() + jobs._repr_html_() + jobs.store.path.read_bytes().decode(
        "latin1"
    )


def test_a_secret_is_no_parameter_either(jobs, notebook, monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    for entry in (jobs.run, lambda *args, **more: jobs.schedule("x", *args, cron="@daily", **more)):
        with pytest.raises(InvalidError, match="parameter text: it holds the value of a secret") as refused:
            entry(notebook, parameters={"text": "key=hunter2-hunter2"}, secrets=["MY_KEY"])
        assert "hunter2" not in str(refused.value)
    assert nothing_was_made(jobs)


def test_what_is_scheduled_is_listed(jobs, notebook):
    made = jobs.schedule(
        "refresh", str(notebook), cron="*/5 * * * *", parameters={"n": 5}, retries=2, timeout="10min", memory="1gb", overlap="queue",
        catch_up="none", keep=7, on_failure=["notify", "{name}"], time_zone="Europe/Berlin",
    )  # fmt: skip
    assert list(jobs) == [jobs.job("refresh")] == [made]
    assert len(jobs) == 1
    assert (made.notebook, made.timeout, made.memory, made.keep) == (str(notebook), "10min", "1.0 GB", 7)
    assert parse_moment(made.next_due) % 300_000 == 0
    assert "refresh" in repr(jobs)
    assert "*/5 * * * * (Europe/Berlin)" in made._repr_html_()
    with pytest.raises(AlreadyExistsError):
        jobs.schedule("refresh", notebook, cron="@daily")
    assert jobs.schedule("refresh", notebook, cron="@daily", replace=True).cron == "0 0 * * *"
    assert jobs.pause("refresh").is_paused
    assert jobs.job("refresh").next_due is None
    assert not jobs.resume("refresh").is_paused
    jobs.remove("refresh")
    assert repr(jobs) == f"<no jobs in {jobs.folder}>"


def test_a_run_is_recorded_and_run_again(scripts):
    jobs, notebook = scripts
    lines = []
    run = jobs.run(notebook, {"code": "print('hello'); report(end=True, summary={'rows': 3})"}, on_line=lines.append)
    again = run.rerun()
    assert lines == ["hello", "succeeded"]
    assert [(each.id, each.job, each.state, each.summary) for each in jobs.history("s")] == [
        (each.id, "s", "succeeded", {"rows": 3}) for each in (again, run)
    ]
    assert run.output != again.output
    assert run.log == "hello\nsucceeded\n"
    run.log_file.unlink()
    with pytest.raises(NotFoundError, match=rf"run {run.id}: its log .* was removed: what it printed is not known"):
        _ = run.log
    run.log_file.mkdir()
    with pytest.raises(StorageError, match=rf"run {run.id}: its log .* cannot be read: Is a directory"):
        _ = run.log
    assert 0 <= run.seconds < 60
    assert f"<Run {run.id} of s: succeeded, " in repr(run)


def test_a_run_outlives_whoever_reads_its_lines(scripts):
    """A terminal that is gone, an error of the caller's own: no line of the log is lost, and no process is ended."""
    jobs, notebook = scripts
    lines = []

    def read_two(line):
        lines.append(line)
        if len(lines) == 2:
            raise BrokenPipeError("nobody reads")

    printing = "for n in range(20_000): print('line', n)\n"
    with pytest.raises(BrokenPipeError, match="nobody reads") as raised:
        jobs.run(notebook, {"code": f"{printing}report(end=True, summary={{'rows': 3}})"}, on_line=read_two)
    with pytest.raises(NotebookError, match="no rows; see") as failed:
        jobs.run(notebook, {"code": f"{printing}report(end=True, error='no rows')"}, on_line=lambda line: 1 / 0)
    bad, good = jobs.history("s")
    assert lines == ["line 0", "line 1"]
    assert raised.value.__notes__ == [f"raised by on_line; run {good.id} itself succeeded: see {good.output}"]
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert [(run.state, run.summary) for run in (bad, good)] == [("failed", {}), ("succeeded", {"rows": 3})]
    printed = [f"line {n}" for n in range(20_000)]
    gone = "... on_line raised BrokenPipeError: nobody reads; it gets no more lines"
    assert good.log.splitlines() == [*printed[:2], gone, *printed[2:], "succeeded"]
    assert bad.log.splitlines()[2:] == [*printed[1:], "failed: no rows"]


def test_a_job_is_started_by_hand_and_goes_on_in_the_background(scripts, tmp_path):
    jobs, notebook = scripts
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    jobs.schedule("refresh", notebook, cron="@daily", parameters={"code": f"{waits}report(end=True)"})
    jobs.pause("refresh")
    first, second = jobs.start("refresh"), jobs.start("refresh")
    assert (first.job, first.state, first.record.trigger) == ("refresh", "running", "call")
    second.cancel()
    assert second.state == "cancelled"
    again = second.rerun(wait=False)
    gate.touch()
    wait_until(lambda: first.state == again.state == "succeeded")
    assert [(run.id, run.job) for run in jobs.history("refresh")] == [
        (each.id, "refresh") for each in (again, second, first)
    ]


def test_a_failure_by_hand_is_tried_no_more_and_sends_no_notice(scripts, tmp_path):
    jobs, notebook = scripts
    jobs.schedule(
        "refresh", notebook, cron="@daily", parameters={"code": "report(end=True, error='no')"}, retries=3, on_failure=["false"]
    )  # fmt: skip
    run = jobs.start("refresh")
    wait_until(lambda: run.state == "failed")
    with pytest.raises(NotebookError, match="no; see"):
        run.rerun()
    again, first = jobs.history("refresh")
    assert [each.record.trigger for each in (again, first)] == ["rerun", "call"]
    assert not again.record.is_notice_due
    assert not first.record.is_notice_due


def test_a_run_whose_caller_was_killed_before_it_began_is_recorded(scripts):
    jobs, notebook = scripts
    code = f"from fluss_lab.jobs import Jobs; from pathlib import Path; Jobs(Path({str(jobs.folder)!r})).run({str(notebook)!r})"
    killed = {**os.environ, "FLUSS_LAB_FAILPOINTS": "jobs.run.entered=kill"}
    assert subprocess.run([sys.executable, "-c", code], env=killed).returncode == -signal.SIGKILL
    assert [run.state for run in jobs.store.runs()] == ["queued"]
    (run,) = jobs.history()
    assert (run.state, run.error) == (
        "failed",
        "not started: whoever entered it (command or notebook) ended before it began",
    )
    assert run.record.ended_ms is not None


def test_of_older_releases_what_waits_by_hand_has_a_while_to_begin(jobs):
    """They recorded no owner before a run began; one that waits for the scheduler has none."""
    jobs._clock = MockClock(1_000_000)
    jobs.store.add_run(make_run("hand", trigger="call", job_id=None, queued_ms=1_000_000))
    jobs.store.add_run(make_run("waits", queued_ms=1_000_000, due_ms=1))
    jobs._clock.advance(600_000)
    assert {run.id: run.state for run in jobs.history()} == {"hand": "queued", "waits": "queued"}
    jobs._clock.advance(1)
    assert {run.id: run.state for run in jobs.history()} == {"hand": "failed", "waits": "queued"}


def test_what_cannot_be_started_is_in_no_history(scripts):
    jobs, notebook = scripts
    jobs.schedule("refresh", notebook, cron="@daily", secrets=["NO_SUCH_SECRET"])
    with pytest.raises(FlussError, match="NO_SUCH_SECRET"):
        jobs.start("refresh")
    notebook.unlink()
    with pytest.raises(NotFoundError):
        jobs.start("refresh")
    with pytest.raises(NotFoundError, match="there are: refresh"):
        jobs.start("other")
    assert list(jobs.history()) == []


def test_a_run_by_hand_leaves_the_runs_that_its_job_keeps(scripts):
    jobs, notebook = scripts
    jobs.schedule("refresh", notebook, cron="@daily", parameters={"code": "report(end=True)"}, keep=60)
    for number in range(58):
        jobs.store.add_run(make_run(f"r{number}", job="refresh", due_ms=number, state="succeeded"))
    run = jobs.start("refresh")
    wait_until(lambda: run.state == "succeeded")
    run.rerun()
    assert len(jobs.history("refresh")) == 60


def test_a_run_shows_its_cell_where_nobody_takes_its_lines(scripts, tmp_path, monkeypatch):
    jobs, notebook = scripts
    views = []
    monkeypatch.setattr(waiting, "make_view", lambda: views.append(SeenView()) or views[-1])
    seen = tmp_path / "seen"
    waits = f"import os, time\nwhile not os.path.exists({str(seen)!r}): time.sleep(0.02)\n"

    def touch():
        wait_until(lambda: bool(views) and views[0].has_shown("running s.ipynb: cell 2 of 5, "))
        seen.touch()

    watcher = threading.Thread(target=touch)
    watcher.start()
    jobs.run(notebook, {"code": f"report(cell=2, of=5)\n{waits}report(end=True)"})
    watcher.join()
    (view,) = views
    assert any("width:20.0%" in html for _, html in view.lines)
    assert view.closed.is_set()
    jobs.run(notebook, {"code": "report(end=True)"}, on_line=print)
    assert len(views) == 1


def test_a_failed_run_is_an_error_that_names_its_output(scripts):
    jobs, notebook = scripts
    with pytest.raises(NotebookError, match=r"notebook s.ipynb: cell 2: no; see .*\.ipynb and .*\.log"):
        jobs.run(notebook, {"code": "report(end=True, error='cell 2: no', cell=2)"})
    (run,) = jobs.history()
    assert (run.state, run.error, run.cell) == ("failed", "cell 2: no", 2)
    with pytest.raises(NotebookError, match="time limit of 200ms"):
        jobs.run(notebook, {"code": "import time; time.sleep(600)"}, timeout="200ms")


def test_a_queued_run_is_cancelled_at_once_and_a_lost_one_is_settled(jobs, notebook):
    jobs.store.add_run(make_run("r1", due_ms=1))
    jobs.cancel("r1")
    assert jobs.find_run("r1").state == "cancelled"
    jobs.cancel("r1")
    jobs.store.add_run(make_run("r2", due_ms=2, state="running", owner="999999:1.00", started_ms=5))
    jobs.cancel(jobs.find_run("r2"))
    assert jobs.find_run("r2").state == "failed"
    jobs.store.add_run(make_run("r3", due_ms=3, state="running", owner="999999:1.00"))
    assert [(run.id, run.state) for run in jobs.history()] == [("r3", "failed"), ("r2", "failed"), ("r1", "cancelled")]
    assert settle_lost_runs(jobs.store, jobs._clock) == []


def test_history_shows_markup_as_text(jobs):
    evil = "<img src=x onerror=alert(1)>"
    jobs.store.add_run(make_run("r1", state="failed", error=evil, summary={evil: evil}))
    history = jobs.history()
    for shown in (history._repr_html_(), history[0]._repr_html_()):
        assert "<img" not in shown
        assert "&lt;img" in shown
    assert repr(history) == f"<Run r1 of job: failed: {evil}>"
    assert len(history[:1]) == 1
    assert repr(history[1:]) == "<no runs>"


def test_the_history_of_a_name_that_nobody_has_is_an_error(jobs, notebook):
    jobs.schedule("refresh", notebook, cron="@daily")
    assert list(jobs.history("refresh")) == []
    with pytest.raises(NotFoundError, match="there are: refresh"):
        jobs.history("refesh")
    jobs.store.add_run(make_run("r1", state="failed"))  # its job is gone
    assert [run.id for run in jobs.history("job")] == ["r1"]


def test_of_a_lab_elsewhere_there_are_none():
    with pytest.raises(UnsupportedError, match="opened by it"):
        jobs_of(None)


def test_every_error_is_one_of_ours(jobs, notebook):
    for call in (
        lambda: jobs.run(3),
        lambda: jobs.run(notebook, 3),
        lambda: jobs.history(limit=0),
        lambda: jobs.cancel(None),
    ):
        with pytest.raises(FlussError):
            call()

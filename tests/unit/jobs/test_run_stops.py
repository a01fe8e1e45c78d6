"""Runs by hand that are interrupted, or whose end cannot be stored at once."""

import signal
import sqlite3
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest

from fluss_lab import failpoints
from fluss_lab.display import waiting
from fluss_lab.errors import NotebookError, StorageError
from fluss_lab.jobs import job_store, notebook_run
from fluss_lab.jobs.run_execution import RunExecution
from fluss_lab.jobs.run_processes import run_processes
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.jobs.job_kit import SCRIPT_PROCESS
from tests.unit.jobs.test_job_store import make_run


@pytest.fixture
def interruptible():
    """A shell's background job ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_stopped(scripts):
    """Check that a run is ended and recorded when its caller is interrupted."""
    jobs, notebook = scripts
    main = threading.main_thread().ident
    with pytest.raises(KeyboardInterrupt):
        jobs.run(
            notebook, {"code": "print('under way', flush=True); import time; time.sleep(600)"},
            on_line=lambda line: signal.pthread_kill(main, signal.SIGINT) if line == "under way" else None,
        )  # fmt: skip
    (run,) = jobs.history()
    assert (run.state, run.error) == ("cancelled", "interrupted")
    assert run_processes(run.id) == []


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_run(scripts):
    check_stopped(scripts)


@pytest.mark.usefixtures("interruptible")
def test_further_interrupts_wait_until_the_run_has_ended(scripts, monkeypatch):
    """Whoever pressed stop again and again left the run "running", with its processes, as long as the kernel lived."""
    kill = notebook_run.kill_run

    def interrupted(run_id):
        signal.raise_signal(signal.SIGINT)
        return kill(run_id)

    monkeypatch.setattr(notebook_run, "kill_run", interrupted)
    check_stopped(scripts)


def test_an_interrupt_before_a_run_is_followed_ends_it_too(scripts, monkeypatch):
    """A notebook takes a moment to show what is under way."""
    jobs, notebook = scripts

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "make_view", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.run(notebook, {"code": "import time; time.sleep(600)"})
    (run,) = jobs.history()
    assert (run.state, run.error) == ("cancelled", "interrupted")
    assert run_processes(run.id) == []


def test_an_interrupt_while_a_run_begins_ends_it_too(scripts):
    jobs, notebook = scripts

    def interrupted():
        raise KeyboardInterrupt

    for point in ("jobs.run.started", "jobs.run.recorded"):
        failpoints.arm(point, interrupted)
        try:
            with pytest.raises(KeyboardInterrupt) as kept:
                jobs.run(notebook, {"code": "import time; time.sleep(600)"})
        finally:
            failpoints.disarm(point)
        run = jobs.history()[0]
        assert (run.state, run.error) == ("failed", "interrupted")
        # A notebook keeps its last traceback, and with it what the run had open.
        assert kept.tb is not None
        assert run_processes(run.id) == []


def test_a_store_that_cannot_be_read_for_a_while_ends_no_run(scripts, tmp_path):
    jobs, notebook = scripts
    jobs.schedule("job", notebook, cron="@daily")
    gate, away = tmp_path / "gate", tmp_path / "away.db"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    task = replace(jobs.store.job("job").task, parameters={"code": code})
    run = make_run("r1", trigger="call", task=task)
    jobs.store.add_run(run)
    execution = RunExecution(jobs.store, jobs.folder, run, jobs._clock, SCRIPT_PROCESS)
    assert execution.begin()
    jobs.store.path.rename(away)
    jobs.store.path.symlink_to(away)
    with pytest.raises(StorageError):
        jobs.find_run("r1")
    assert not execution.poll()
    away.replace(jobs.store.path)
    gate.touch()
    wait_until(execution.poll)
    assert jobs.find_run("r1").state == "succeeded"


def test_a_run_whose_lab_is_removed_ends_and_makes_nothing_anew(scripts, tmp_path):
    """Seen: the error asked for the history, and `jobs.db` was there again, in a folder that was no lab any more."""
    jobs, notebook = scripts
    moved = tmp_path / "moved"
    code = "print('under way', flush=True); import time; time.sleep(600)"
    with pytest.raises(
        NotebookError, match=r"notebook s.ipynb: its record is gone: .*jobs\.db was removed while it was under way"
    ):
        jobs.run(notebook, {"code": code}, on_line=lambda line: line == "under way" and jobs.folder.rename(moved))
    assert not jobs.folder.exists()


@contextmanager
def held_store(jobs, monkeypatch):
    """Within the block the store can be read and not written, as on a full disk."""
    other = sqlite3.connect(jobs.store.path, isolation_level=None, check_same_thread=False)
    with closing(other), monkeypatch.context() as limits:
        limits.setattr(job_store, "BUSY_TIMEOUT_S", 0.01)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("waits", [True, False], ids=["run", "start"])
def test_a_run_whose_end_cannot_be_stored_is_recorded_as_soon_as_it_can(scripts, tmp_path, monkeypatch, waits):
    """It was under way for ever, for its job too, while this process lived."""
    jobs, notebook = scripts
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nreport(end=True)"
    jobs.schedule("job", notebook, cron="@daily", parameters={"code": code})
    with ExitStack() as held:

        def open_gate(line=""):
            held.enter_context(held_store(jobs, monkeypatch))
            gate.touch()

        if waits:
            with pytest.raises(StorageError, match="locked") as raised:
                jobs.run(
                    notebook,
                    {"code": f"print('under way', flush=True)\n{code}"},
                    on_line=lambda line: gate.exists() or open_gate(),
                )
            assert "itself succeeded; this process, while it lives, records that" in raised.value.__notes__[0]
            run = jobs.history()[0]
        else:
            run = jobs.start("job")
            open_gate()
            wait_until(lambda: run_processes(run.id) == [])
        assert run.state == "running"
    wait_until(lambda: run.state == "succeeded")


def test_a_run_that_cannot_begin_is_recorded_as_soon_as_it_can(scripts, monkeypatch):
    jobs, notebook = scripts
    with ExitStack() as held:
        failpoints.arm("jobs.run.started", lambda: held.enter_context(held_store(jobs, monkeypatch)))
        try:
            with pytest.raises(StorageError, match="locked"):
                jobs.run(notebook, {"code": "report(end=True)"})
        finally:
            failpoints.disarm("jobs.run.started")
        assert jobs.history()[0].state == "queued"
    wait_until(lambda: jobs.history()[0].state == "failed")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_stays_one_where_the_end_cannot_be_stored(scripts, monkeypatch):
    jobs, notebook = scripts
    main = threading.main_thread().ident
    with ExitStack() as held:

        def stop(line):
            if line == "under way":
                held.enter_context(held_store(jobs, monkeypatch))
                signal.pthread_kill(main, signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            jobs.run(notebook, {"code": "print('under way', flush=True); import time; time.sleep(600)"}, on_line=stop)
        (run,) = jobs.history()
        assert run_processes(run.id) == []
    wait_until(lambda: run.state == "cancelled")

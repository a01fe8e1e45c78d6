"""One scheduler works for a lab."""

import os
import subprocess
import sys

import pytest

from fluss_lab.errors import LabError, LabLockedError, StorageError
from fluss_lab.files import try_lock
from fluss_lab.jobs.job_store import JOBS_FOLDER
from fluss_lab.jobs.scheduling.scheduler_lease import (
    LOCK_FILE,
    LeaseHolder,
    SchedulerLease,
    lease_holder,
    stop_scheduler,
)
from fluss_lab.testing import wait_until

HOLD = (
    "import sys, time; from pathlib import Path; from fluss_lab.jobs.scheduling.scheduler_lease import SchedulerLease;"
    "lease = SchedulerLease(Path(sys.argv[1]), is_detached=True); print('held', flush=True); time.sleep(600)"
)


def test_a_second_one_is_refused_and_named_until_the_first_ends(tmp_path):
    assert lease_holder(tmp_path) is None
    with SchedulerLease(tmp_path) as lease:
        assert lease_holder(tmp_path) == LeaseHolder(os.getpid(), is_detached=False)
        with pytest.raises(LabLockedError, match=f"process {os.getpid()} schedules its jobs already"):
            SchedulerLease(tmp_path)
    lease.close()
    assert lease_holder(tmp_path) is None


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_lease_of_a_lab_that_is_gone_is_none(tmp_path, is_made_anew):
    """Another process may schedule what is in its place."""
    lab = tmp_path / "lab"
    with SchedulerLease(lab) as lease:
        lease.check()
        lab.rename(tmp_path / "moved")
        if is_made_anew:
            SchedulerLease(lab).close()
        with pytest.raises(
            LabError, match="the lab's folder was removed or moved, or another is in its place: its scheduler ends"
        ):
            lease.check()
        if not is_made_anew:
            (tmp_path / "moved").rename(lab)
            lease.check()
    lease.check()


def test_a_lock_that_cannot_be_opened_is_not_taken_for_no_scheduler(tmp_path):
    SchedulerLease(tmp_path).close()
    lock = tmp_path / JOBS_FOLDER / LOCK_FILE
    lock.unlink()
    lock.symlink_to(LOCK_FILE)
    with pytest.raises(StorageError, match="whether a scheduler runs cannot be seen"):
        lease_holder(tmp_path)


@pytest.mark.parametrize("kills", [True, False])
def test_a_process_that_ends_in_whatever_way_gives_it_up(tmp_path, kills):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
        holder = lease_holder(tmp_path)
        assert holder == LeaseHolder(process.pid, is_detached=True)
        with pytest.raises(LabLockedError):
            SchedulerLease(tmp_path)
        process.kill() if kills else stop_scheduler(tmp_path, holder, 30)
        process.wait()
    wait_until(lambda: lease_holder(tmp_path) is None)
    SchedulerLease(tmp_path).close()


def test_nonsense_in_the_file_is_no_process_to_stop(tmp_path):
    with SchedulerLease(tmp_path):
        (tmp_path / "jobs" / "scheduler.lock").write_text("nonsense")
        assert lease_holder(tmp_path) == LeaseHolder(0, is_detached=False)


@pytest.mark.parametrize("before", ["", "of a killed one"])
def test_one_that_has_just_taken_the_lock_is_known_once_it_has_said_who_it_is(tmp_path, monkeypatch, before):
    lock = tmp_path / JOBS_FOLDER / LOCK_FILE
    if before:
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
        with process.stdout:
            assert process.stdout.readline() == b"held\n"
            process.kill()
            process.wait()
    with SchedulerLease(tmp_path / "other", is_detached=True):
        said = (tmp_path / "other" / JOBS_FOLDER / LOCK_FILE).read_text()
    lock.parent.mkdir(exist_ok=True)
    with lock.open("a") as held:
        assert try_lock(held.fileno())
        looks = []

        def go_on(_seconds):
            looks.append(lock.read_text())
            lock.write_text(said[: len(said) // 2] if len(looks) == 1 else said)

        monkeypatch.setattr("fluss_lab.jobs.scheduling.scheduler_lease.time.sleep", go_on)
        assert lease_holder(tmp_path) == LeaseHolder(os.getpid(), is_detached=True)
    assert len(looks) == 2
    assert ("pid" in looks[0]) == bool(before)


def test_a_process_that_is_gone_is_not_stopped_for_one_that_does_not_say_who_it_is(tmp_path):
    """Its id may be another process's by now."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
        process.kill()
        process.wait()
    with (tmp_path / JOBS_FOLDER / LOCK_FILE).open("a") as held:
        assert try_lock(held.fileno())
        assert lease_holder(tmp_path) == LeaseHolder(0, is_detached=False)


def test_one_of_an_older_release_is_known(tmp_path):
    with SchedulerLease(tmp_path):
        (tmp_path / JOBS_FOLDER / LOCK_FILE).write_text('{"pid": 4711, "detached": true}')
        assert lease_holder(tmp_path) == LeaseHolder(4711, is_detached=True)

"""Processes of runs: known again by what no step of the clock moves, and by what older releases recorded."""

import os
import subprocess
import sys

import psutil
import pytest

from fluss_lab.jobs.run_processes import identity, is_alive

if sys.platform != "linux":
    pytest.skip("identities have ticks on Linux", allow_module_level=True)


@pytest.fixture
def stepped(monkeypatch):
    """Step the system's clock as psutil, which reckons starts by the time of the system's own, sees it."""
    before = psutil.Process.create_time

    def step(seconds):
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + seconds)

    return step


@pytest.mark.parametrize("seconds", [-86_400, -0.02, 0.02, 3_600])
def test_a_process_is_itself_whatever_the_clock_says(stepped, seconds):
    found = identity(os.getpid())
    stepped(seconds)
    assert is_alive(found)
    assert identity(os.getpid()) == found


def test_a_process_that_is_gone_and_others_with_its_id_are_not_it():
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    found = identity(process.pid)
    assert is_alive(found)
    process.kill()
    process.communicate()
    assert identity(process.pid) == ""
    assert not is_alive(found)
    pid, ticks, boot = identity(os.getpid()).split(":")
    for other in (
        f"{pid}:{int(ticks) + 1}:{boot}",
        f"{pid}:{ticks}:another-boot",
        f"{pid}:{ticks}",
        pid,
        "",
        "x:1:y",
        "-1:1:y",
    ):
        assert not is_alive(other)


def test_what_older_releases_recorded_is_known_by_its_time(stepped):
    pid, created = os.getpid(), psutil.Process().create_time()
    assert is_alive(f"{pid}:{created:.2f}")
    for other in (f"{pid}:{created - 3_600:.2f}", f"{pid}:1.00", f"{pid}:x.y", "999999999:1.00"):
        assert not is_alive(other)
    stepped(30)
    assert is_alive(f"{pid}:{created:.2f}")

"""Failpoints do nothing until armed, then exactly what they are armed for."""

import errno
import signal
import subprocess
import sys

import pytest

from fluss_lab import failpoints


def test_unarmed_ones_do_nothing():
    failpoints.failpoint("test.nothing")


def test_errors_and_turns():
    failpoints.arm("test.error", "error@2")
    failpoints.failpoint("test.error")
    with pytest.raises(failpoints.FailpointError):
        failpoints.failpoint("test.error")
    failpoints.failpoint("test.error")
    failpoints.arm("test.disk", "enospc")
    with pytest.raises(OSError, match="failpoint") as caught:
        failpoints.failpoint("test.disk")
    assert caught.value.errno == errno.ENOSPC
    failpoints.disarm("test.disk")
    failpoints.failpoint("test.disk")


def test_a_process_dies_where_it_is_told():
    code = "from fluss_lab.failpoints import failpoint; failpoint('a'); failpoint('b'); print('alive')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"FLUSS_LAB_FAILPOINTS": "b=kill"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL
    assert run.stdout == ""


def test_unknown_actions_are_refused():
    with pytest.raises(ValueError, match="explode"):
        failpoints.arm("test.x", "explode")

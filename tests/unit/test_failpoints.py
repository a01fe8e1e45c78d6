"""Failpoints do nothing until armed, then exactly what they are armed for."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading

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


def test_a_call_is_made_once_by_whoever_passes_first():
    called = []
    failpoints.arm("test.call", lambda: called.append(threading.current_thread()))
    thread = threading.Thread(target=failpoints.failpoint, args=("test.call",))
    thread.start()
    thread.join()
    failpoints.failpoint("test.call")
    assert called == [thread]
    assert failpoints.passes("test.call") == 2
    failpoints.arm("test.call", "error@3")
    assert failpoints.passes("test.call") == 0


def test_a_process_dies_where_it_is_to():
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


#: The main thread sleeps, as of one whose round runs beside it; the count is what was done behind the failpoint.
_STOPS_BESIDE = """
import mmap, sys, threading
from fluss_lab.failpoints import failpoint
shared = mmap.mmap(int(sys.argv[1]), 8)
def run():
    failpoint('a')
    count = 0
    while True:
        count += 1
        shared[:8] = count.to_bytes(8, 'little')
threading.Thread(target=run, daemon=True).start()
threading.Event().wait(60)
"""


def test_a_thread_stops_where_it_is_to_though_it_is_not_the_main_one():
    done = []
    for _ in range(10):
        with tempfile.TemporaryFile() as file:
            file.truncate(8)
            command = [sys.executable, "-c", _STOPS_BESIDE, str(file.fileno())]
            environment = {"FLUSS_LAB_FAILPOINTS": "a=stop"}
            with subprocess.Popen(command, env=environment, pass_fds=[file.fileno()]) as process:
                try:
                    os.waitpid(process.pid, os.WUNTRACED)
                    done.append(int.from_bytes(os.pread(file.fileno(), 8, 0), "little"))
                finally:
                    process.kill()
    assert done == [0] * 10


def test_unknown_actions_are_refused():
    with pytest.raises(ValueError, match="explode"):
        failpoints.arm("test.x", "explode")

"""Interrupts that are held back: recorded, delivered once, and no lock stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from fluss_lab.client import AppendResult, WriteResult
from fluss_lab.errors import WriteStoppedError
from fluss_lab.interrupts import Flag, Held, Monitor, cancelled_by, join_threads
from fluss_lab.testing.mock_clock import wait_until

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_when(condition) -> threading.Thread:
    """Interrupt the main thread when something is so, from a thread of its own."""

    def run() -> None:
        wait_until(condition, WAIT_S)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_interrupt_takes_effect_at_the_end_of_the_block():
    reached = False
    with pytest.raises(KeyboardInterrupt), Held() as held:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert held.is_pending
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Held() as held:
        assert not held.is_pending


def test_one_that_is_delivered_within_does_not_come_again():
    with Held() as held:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            held.deliver()
        held.deliver()


def test_a_block_within_a_block_leaves_it_to_the_outer_one():
    with pytest.raises(KeyboardInterrupt), Held():  # noqa: PT012
        with Held():
            signal.raise_signal(signal.SIGINT)
        with Held() as inner:
            assert inner.is_pending


def test_a_second_interrupt_leaves_the_first_one_with_what_it_says():
    with pytest.raises(KeyboardInterrupt) as raised, Held() as held:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        try:
            held.deliver()
        except KeyboardInterrupt as first:
            signal.raise_signal(signal.SIGINT)
            raise WriteStoppedError("half of it") from first
    assert isinstance(raised.value, WriteStoppedError)
    with pytest.raises(KeyboardInterrupt), Held():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise ValueError("no interrupt is on its way")


def test_a_handler_of_ones_own_hears_of_a_second_interrupt():
    called = []
    signal.signal(signal.SIGINT, lambda *_: called.append(1))
    with pytest.raises(KeyboardInterrupt), Held():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt
    assert called == [1]


def test_a_handler_of_ones_own_is_called_instead():
    called = []
    signal.signal(signal.SIGINT, lambda *_: called.append(1))
    with Held():
        signal.raise_signal(signal.SIGINT)
        assert called == []
    assert called == [1]


def test_a_handler_set_within_the_block_stays():
    def other(*_: object) -> None: ...

    with Held():
        signal.signal(signal.SIGINT, other)
    assert signal.getsignal(signal.SIGINT) is other


@pytest.mark.parametrize("disposition", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_no_interrupt_can_come_nothing_is_held(disposition):
    signal.signal(signal.SIGINT, disposition)
    with Held() as held:
        assert not held.is_interruptible
        assert signal.getsignal(signal.SIGINT) is disposition


def test_other_threads_are_not_held():
    found = []

    def run() -> None:
        with Held() as held:
            found.append(held.is_interruptible)

    thread = threading.Thread(target=run)
    thread.start()
    assert join_threads([thread], WAIT_S)
    assert found == [False]


def test_a_wait_ends_by_an_interrupt_and_gives_the_lock_back():
    monitor = Monitor()
    thread = interrupt_when(lambda: bool(monitor._waiters))
    with pytest.raises(KeyboardInterrupt), monitor:
        monitor.wait_for(lambda: False, WAIT_S)
    assert join_threads([thread], WAIT_S)
    assert monitor._waiters == []
    seen = []

    def take() -> None:
        with monitor:
            seen.append(True)
            monitor.notify_all()

    other = threading.Thread(target=take)
    other.start()
    assert join_threads([other], WAIT_S)
    assert seen == [True]


def test_an_interrupt_before_the_wait_ends_it_too():
    monitor = Monitor()
    with pytest.raises(KeyboardInterrupt), monitor:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        monitor.wait()


@pytest.mark.parametrize("timeout_s", [None, WAIT_S])
def test_an_interrupt_that_another_thread_gets_ends_the_wait_too(timeout_s):
    """It does not end the system's wait for a lock, as one does not that comes just before that wait begins."""
    flag, waited = Flag(), threading.Event()

    def run() -> None:
        wait_until(lambda: bool(flag._monitor._waiters), WAIT_S)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not waited.wait(WAIT_S / 2):
            flag.set()  # the test has failed, and ends

    thread = threading.Thread(target=run)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        flag.wait(timeout_s)
    assert not flag.is_set()
    waited.set()
    thread.join(WAIT_S)


def test_a_monitor_wakes_all_that_wait_and_knows_when_time_is_up():
    monitor, state = Monitor(), []

    def wait() -> None:
        with monitor:
            monitor.wait_for(lambda: state)
            state.append(1)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(monitor._waiters) == 3, WAIT_S)
    with monitor:
        assert not monitor.wait_for(lambda: state, 0.01)
        state.append(0)
        monitor.notify_all()
    assert join_threads(threads, WAIT_S)
    assert state == [0, 1, 1, 1]


def test_a_flag_is_waited_for_by_all_threads():
    flag = Flag()
    assert not flag.wait(0.0)
    thread = threading.Thread(target=flag.set)
    thread.start()
    assert flag.wait(WAIT_S)
    assert join_threads([thread], WAIT_S)
    flag.clear()
    assert not flag.is_set()
    stopper = interrupt_when(lambda: bool(flag._monitor._waiters))
    with pytest.raises(KeyboardInterrupt):
        flag.wait(WAIT_S)
    assert join_threads([stopper], WAIT_S)


def test_waiting_for_threads_can_be_interrupted_and_ends_in_time():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert not join_threads([thread], 0.01)
        with pytest.raises(KeyboardInterrupt), Held():  # noqa: PT012
            signal.raise_signal(signal.SIGINT)
            join_threads([thread])
    finally:
        done.set()
    assert join_threads([thread, threading.current_thread()], WAIT_S)


def test_a_future_whose_waiting_was_interrupted_is_settled_all_the_same():
    waits = threading.Event()

    class Watched(AppendResult):
        def done(self) -> bool:
            waits.set()
            return super().done()

    future = Watched()
    thread = interrupt_when(waits.is_set)
    with pytest.raises(KeyboardInterrupt):
        future.result(WAIT_S)
    assert join_threads([thread], WAIT_S)
    result = WriteResult(1, {}, 0.0)
    settler = threading.Thread(target=future.set_result, args=(result,))
    settler.start()
    assert future.result(WAIT_S) is result
    assert join_threads([settler], WAIT_S)


def test_an_event_of_another_thread_cancels_again_and_again_until_the_block_ends():
    event, calls = threading.Event(), []
    with cancelled_by(event, lambda: calls.append(1)):
        threading.Thread(target=event.set).start()
        wait_until(lambda: len(calls) > 1, WAIT_S)
    count = len(calls)
    assert not [thread for thread in threading.enumerate() if thread.name == "fluss-cancel"]
    with cancelled_by(threading.Event(), lambda: calls.append(1)), cancelled_by(None, lambda: calls.append(1)):
        pass
    assert len(calls) == count


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("fluss_lab.Lab", "numpy.linalg"),
        ("fluss_lab.Lab\nimport pyarrow\npyarrow.table({'a': [1]}).to_pandas()", "pandas.core.frame"),
        ("from fluss_lab.display.plot_style import Picture\nPicture(1, 'x')._repr_png_()", "matplotlib.lines"),
        ("from fluss_lab.display.plot_style import Picture\nPicture(1, 'x')._repr_png_()", "matplotlib.backends.backend_agg"),
        ("from fluss_lab.display.plot_style import Picture\nPicture(1, 'x')._repr_png_()", "matplotlib.dates"),
    ],
)  # fmt: skip
def test_a_package_that_was_being_imported_works_behind_an_interrupt(statement: str, module: str) -> None:
    """A notebook's first call that needs pandas takes a second to import it: stopped then, no later one worked in that kernel."""
    program = (
        "import signal, sys, fluss_lab\n"
        "sys.ps1 = '> '\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r} and self in sys.meta_path:\n"
        "            sys.meta_path.remove(self)\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        f"statement = {statement!r}\n"
        "sys.meta_path.insert(0, Stop())\n"
        "try:\n"
        "    exec(statement)\n"
        "    print('not stopped')\n"
        "except KeyboardInterrupt:\n"
        "    exec(statement)\n"
        "    print('whole')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "whole"), done.stdout + done.stderr[-2000:]

"""A round that a person stops: it ends where it can, the coordinator knows, and the next one goes on."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from fluss_lab.errors import TieringCancelledError
from fluss_lab.interrupts import Flag, run_interruptibly
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.task.round_progress import RoundState

pytestmark = pytest.mark.slow

WAIT_S = 60.0
#: Stages of a round, and whether its rows are in the lake when it is stopped there.
STAGES = {"write": False, "commit": False, "maintain": True, "finish": True}


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class StageExecutor(LocalTieringExecutor):
    """Waits at one stage of the round until its tasks are cancelled, by what it begins there."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage, self.heard = stage, Flag()
        self.states: list[RoundState] = []

    def begin_cancel(self) -> None:
        """Do what must lead to a cancel."""
        raise NotImplementedError

    def __call__(self, state):
        self.states.append(state)
        if state.stage == self._stage and not self.heard.is_set():
            self.begin_cancel()
            assert self.heard.wait(WAIT_S)

    def cancel(self) -> None:
        super().cancel()
        self.heard.set()


class Interrupted(StageExecutor):
    """Interrupts the main thread."""

    def begin_cancel(self) -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_that_is_stopped_at_any_stage_leaves_nothing_half_done(tables, stage):
    info = tables.create(buckets=2)
    tables.append(info, 300)
    executor = Interrupted(stage)
    with pytest.raises(KeyboardInterrupt):
        tables.tier(info, executor=executor, progress=executor)
    state = next(iter(tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tiering_states))
    if STAGES[stage]:
        tables.check(info)
    else:
        (kept,) = tables.connection.admin().tiering_rounds(info.path)
        assert (kept.state, kept.error_class) == ("cancelled", "TieringCancelledError")
        assert "interrupted" in kept.error
        assert not state.last_error
        assert tables.lake(info).current_snapshot() is None
        assert tables.files(info) == set()
    assert state.state != "tiering"
    tables.append(info, 100)
    assert tables.tier(info).rows == (100 if STAGES[stage] else 400)
    tables.check(info)


class Cancelled(StageExecutor):
    """Sets an event in a thread of its own."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.event = threading.Event()

    def begin_cancel(self) -> None:
        threading.Thread(target=self.event.set).start()


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_that_another_thread_cancels_at_any_stage_leaves_nothing_half_done(tables, stage):
    info = tables.create(buckets=2)
    tables.append(info, 300)
    executor = Cancelled(stage)
    if STAGES[stage]:
        report = tables.tier(info, executor=executor, progress=executor, cancel=executor.event)
        assert report.rows == 300
        tables.check(info)
    else:
        with pytest.raises(TieringCancelledError, match="next one goes on"):
            tables.tier(info, executor=executor, progress=executor, cancel=executor.event)
        assert tables.lake(info).current_snapshot() is None
        assert tables.files(info) == set()
    assert executor.event.is_set()
    (kept,) = tables.connection.admin().tiering_rounds(info.path)
    assert kept.state == ("done" if STAGES[stage] else "cancelled")
    assert {(each.table, each.epoch) for each in executor.states} == {(info.path, kept.epoch)}
    assert not [each for each in threading.enumerate() if each.name == "fluss-cancel"]
    tables.append(info, 100)
    assert tables.tier(info, cancel=threading.Event()).rows == (100 if STAGES[stage] else 400)
    tables.check(info)


def test_tasks_that_were_cancelled_end_the_round_as_cancelled(tables):
    info = tables.create(buckets=4)
    tables.append(info, 300)
    event = threading.Event()

    class Half(LocalTieringExecutor):
        def _one(self, task):
            event.set()
            self.cancel()
            return super()._one(task)

    with pytest.raises(TieringCancelledError):
        tables.tier(info, executor=Half(), cancel=event)
    assert tables.files(info) == set()
    assert tables.tier(info).rows == 300


def test_a_round_that_is_cancelled_before_it_begins_asks_nobody(tables):
    info = tables.create()
    event = threading.Event()
    event.set()
    with pytest.raises(TieringCancelledError, match="before it began"):
        tables.tier(info, cancel=event)
    assert tables.connection.admin().tiering_rounds(info.path) == []


def test_work_beside_returns_what_it_returns_and_raises_what_it_raises():
    assert run_interruptibly(lambda: 7, lambda: None) == 7
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0, lambda: None)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(run_interruptibly(threading.get_ident, lambda: None) == thread.ident)
    )
    thread.start()
    thread.join(WAIT_S)
    assert found == [True]


def test_a_second_interrupt_does_not_wait_for_the_end():
    begun, going = Flag(), Flag()

    def work():
        begun.set()
        going.wait(WAIT_S)

    def stop():
        begun.wait(WAIT_S)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        # The second one comes while the first makes the work end.
        run_interruptibly(work, lambda: signal.raise_signal(signal.SIGINT))
    assert time.monotonic() - started_s < WAIT_S / 2
    assert not going.is_set()
    going.set()
    thread.join(WAIT_S)

"""A round that a person stops: it ends where it can, the coordinator knows, and the next one goes on."""

from __future__ import annotations

import signal
import threading

import pytest

from fluss_lab.interrupts import Flag, run_interruptibly
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing.tierers import LocalTieringExecutor

WAIT_S = 60.0
#: Stages of a round, and whether its rows are in the lake when it is stopped there.
STAGES = {"write": False, "commit": False, "maintain": True, "finish": True}


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Stopped(LocalTieringExecutor):
    """Waits, at one stage of the round, until it is cancelled: by the interrupt that it sends."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage, self.heard = stage, Flag()

    def __call__(self, state):
        if state.stage == self._stage and not self.heard.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert self.heard.wait(WAIT_S)

    def cancel(self) -> None:
        super().cancel()
        self.heard.set()


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_that_is_stopped_at_any_stage_leaves_nothing_half_done(tables, stage):
    info = tables.create(buckets=2)
    tables.append(info, 300)
    executor = Stopped(stage)
    with pytest.raises(KeyboardInterrupt):
        tables.tier(info, executor=executor, progress=executor)
    state = next(iter(tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tiering_states))
    if STAGES[stage]:
        tables.check(info)
    else:
        assert "interrupted" in state.last_error
        assert tables.lake(info).current_snapshot() is None
        assert tables.files(info) == set()
    assert state.state != "tiering"
    tables.append(info, 100)
    assert tables.tier(info).rows == (100 if STAGES[stage] else 400)
    tables.check(info)


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
    with pytest.raises(KeyboardInterrupt):
        # The second one comes while the first makes the work end.
        run_interruptibly(work, lambda: signal.raise_signal(signal.SIGINT))
    assert not going.is_set()
    going.set()
    thread.join(WAIT_S)

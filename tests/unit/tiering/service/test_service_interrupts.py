"""A tiering service whose start or end is interrupted."""

import signal
import threading

import pytest

from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.source_enumerator import TieringSession
from tests.unit.tiering.service.service_kit import SOON, service_of, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def sessions():
    return [each for each in threading.enumerate() if each.name == "fluss-tiering-session"]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_its_start_leaves_nothing_behind(tables, monkeypatch):
    """Its session stayed, with a thread that attached it again and again."""
    enter = TieringSession.__enter__

    def interrupted(session):
        entered = enter(session)
        signal.raise_signal(signal.SIGINT)
        return entered

    monkeypatch.setattr(TieringSession, "__enter__", interrupted)
    service = service_of(tables)
    with pytest.raises(KeyboardInterrupt), service:
        raise AssertionError("it was started")
    wait_for(lambda: not sessions())
    assert not service.is_running


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_its_end_cancels_the_rounds_and_leaves_no_session(tables):
    info = tables.create(properties=SOON)
    tables.append(info, 10)
    waits, cancelled = threading.Event(), threading.Event()
    main = threading.main_thread().ident

    class Waiting(LocalTieringExecutor):
        def _one(self, task):
            waits.set()
            threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
            assert cancelled.wait(60)
            return super()._one(task)

        def cancel(self):
            super().cancel()
            cancelled.set()

    service = service_of(tables, Waiting, max_tables=1)
    service.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        assert waits.wait(60)
        service.stop(60.0)
    assert cancelled.is_set()
    assert not service.is_running
    wait_for(lambda: not sessions())
    wait_for(lambda: not [each for each in threading.enumerate() if each.name == "fluss-tiering-0"])
    assert tables.lake(info).current_snapshot() is None
    tables.tier(info)
    tables.check(info)

"""What is told in the background: tried at once, again until it succeeds, and nobody waits for one who hangs."""

import threading
import time

from fluss_lab.server.coordinator.tablets.retrying_notifier import RetryingNotifier
from fluss_lab.testing import wait_until


def test_who_asks_waits_until_it_was_done():
    done: list[int] = []

    def work() -> bool:
        done.append(1)
        return True

    notifier = RetryingNotifier(work)
    for count in range(1, 4):
        notifier.ask(60)
        assert len(done) == count
    notifier.close()
    notifier.ask(60)
    assert len(done) == 3


def test_who_asks_does_not_wait_for_one_who_hangs():
    going = threading.Event()
    notifier = RetryingNotifier(lambda: going.wait(60))
    began = time.monotonic()
    notifier.ask(0.05)
    assert time.monotonic() - began < 30
    going.set()
    notifier.ask(60)
    notifier.close()
    notifier.join(60)


def test_what_failed_is_tried_again_without_being_asked():
    outcomes: list[object] = [False, RuntimeError("a defect"), True]
    tried = threading.Semaphore(0)

    def work() -> bool:
        outcome = outcomes.pop(0)
        tried.release()
        if isinstance(outcome, Exception):
            raise outcome
        return bool(outcome)

    notifier = RetryingNotifier(work)
    notifier.ask(60)
    wait_until(lambda: not outcomes, 60)
    notifier.close()

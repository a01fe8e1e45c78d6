"""Lookups share calls: what waits goes out together, who gives up harms nobody, and nobody waits for a server that is away."""

from __future__ import annotations

import threading

import pytest

from fluss_lab.client.kv.single_key_queue import CALLS_AT_ONCE, LOOKUPS_MAX, LookupQueue
from fluss_lab.testing import wait_until


class Server:
    """Answers tenfold, once it is let; calls of several lookups when they are let too."""

    def __init__(self):
        self.calls = []
        self.open, self.open_to_many = threading.Event(), threading.Event()
        self.open_to_many.set()
        self.lookups_max = LOOKUPS_MAX
        self.wrong = None

    def send(self, asked):
        self.calls.append([each.what for each in asked])
        assert self.open.wait(30)
        assert len(asked) == 1 or self.open_to_many.wait(30)
        if self.wrong is not None:
            raise self.wrong
        if self.lookups_max:
            for each in asked:
                each.answer = each.what * 10
        return self.lookups_max


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def ask(server):
    """Looks something up in a thread of its own; the answers come into a dict."""
    queue, answers, threads = LookupQueue(server.send), {}, []

    def start(what, place="a"):
        def look():
            try:
                answers[what] = queue.answer(what, place)
            except ValueError as error:
                answers[what] = error

        threads.append(threading.Thread(target=look, daemon=True))
        threads[-1].start()

    start.answers, start.queue = answers, queue
    yield start
    server.open.set()
    server.open_to_many.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def waiting(ask, place="a"):
    return len(ask.queue._lanes[place].waiting)


def busy(ask, server, numbers):
    """Have as many calls under way as there may be, and the numbers wait."""
    for number in range(CALLS_AT_ONCE):
        ask(1000 + number)
    wait_until(lambda: len(server.calls) == CALLS_AT_ONCE, 30)
    for number in numbers:
        ask(number)
    wait_until(lambda: waiting(ask) == len(numbers), 30)


def test_a_lookup_alone_is_sent_at_once_and_those_that_wait_go_out_together(server, ask):
    busy(ask, server, range(20))
    assert server.calls == [[1000], [1001]]
    server.open.set()
    wait_until(lambda: len(ask.answers) == 22, 30)
    assert ask.answers == {each: each * 10 for each in [1000, 1001, *range(20)]}
    together = server.calls[2:]
    assert sorted(each for call in together for each in call) == list(range(20))
    assert len(together) <= CALLS_AT_ONCE
    ask(77)
    wait_until(lambda: 77 in ask.answers, 30)
    assert ask.queue._lanes["a"].calls == 0


def test_a_call_has_so_many_lookups_as_the_last_one_found_possible(server, ask):
    server.lookups_max = 3
    busy(ask, server, range(20))
    server.open.set()
    wait_until(lambda: len(ask.answers) == 22, 30)
    assert max(map(len, server.calls)) <= 3


def test_a_server_that_hangs_delays_only_its_own(server, ask):
    busy(ask, server, range(5))
    ask(50, "b")
    wait_until(lambda: [50] in server.calls, 30)
    assert not ask.answers


def test_when_no_server_answers_those_that_wait_try_by_themselves(server, ask):
    busy(ask, server, range(5))
    server.lookups_max = 0
    server.open.set()
    wait_until(lambda: len(ask.answers) == 7, 30)
    assert set(ask.answers.values()) == {None}
    assert all(len(call) == 1 for call in server.calls)
    server.lookups_max = LOOKUPS_MAX
    ask(8)
    wait_until(lambda: 8 in ask.answers, 30)
    assert ask.answers[8] == 80


def test_a_defect_is_reported_to_who_sent_and_leaves_nobody_waiting(server, ask):
    busy(ask, server, range(5))
    server.wrong = ValueError("a defect")
    server.open.set()
    wait_until(lambda: len(ask.answers) == 7, 30)
    assert all(ask.answers[number] is None for number in range(5))
    assert ask.answers[1000] is server.wrong
    wait_until(lambda: ask.queue._lanes["a"].calls == 0, 30)


def test_who_is_interrupted_leaves_and_the_others_have_their_answers(server, ask):
    busy(ask, server, range(3))
    main = threading.main_thread().ident
    interrupter = threading.Thread(target=_interrupt_once, args=(main, lambda: waiting(ask) == 4))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        ask.queue.answer(99, "a")
    interrupter.join(30)
    server.open.set()
    wait_until(lambda: len(ask.answers) == 5, 30)
    assert ask.answers == {each: each * 10 for each in [1000, 1001, 0, 1, 2]}


def test_who_is_interrupted_while_the_call_is_made_leaves_nobody_waiting(server, ask):
    """Those that wait are woken one by another, and it is gone."""
    server.open_to_many.clear()
    busy(ask, server, range(3))
    threads = [
        threading.Thread(target=lambda: (wait_until(lambda: waiting(ask) == 4, 30), ask(3), ask(4))),
        threading.Thread(target=lambda: (wait_until(lambda: waiting(ask) == 6, 30), server.open.set())),
        threading.Thread(
            target=_interrupt_once,
            args=(threading.main_thread().ident, lambda: any(len(call) == 6 for call in server.calls)),
        ),
    ]
    for thread in threads:
        thread.start()
    with pytest.raises(KeyboardInterrupt):
        ask.queue.answer(99, "a")
    for thread in threads:
        thread.join(30)
    server.open_to_many.set()
    wait_until(lambda: len(ask.answers) == 7, 30)
    assert ask.answers == {each: each * 10 for each in [1000, 1001, *range(5)]}


def test_beside_a_call_of_many_nobody_calls_alone(server, ask):
    server.open_to_many.clear()
    busy(ask, server, range(20))
    server.open.set()
    wait_until(lambda: ask.queue._lanes["a"].under_way == 20, 30)
    for number in (77, 78, 79):
        ask(number)
    wait_until(lambda: waiting(ask) == 3, 30)
    assert [len(call) for call in server.calls] == [1, 1, 20]
    server.open_to_many.set()
    wait_until(lambda: len(ask.answers) == 25, 30)
    assert sorted(server.calls[-1]) == [77, 78, 79]
    wait_until(lambda: ask.queue._lanes["a"].calls == 0, 30)
    assert ask.queue._lanes["a"].under_way == 0


def _interrupt_once(thread, condition):
    import signal

    wait_until(condition, 30)
    signal.pthread_kill(thread, signal.SIGINT)

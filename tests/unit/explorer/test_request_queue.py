"""The worker: newest request of a slot, turns, threads that end."""

import threading

import pytest

from fluss_lab.explorer import request_queue
from fluss_lab.explorer.request_queue import RequestQueue
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.explorer.explorer_kit import request


class Gate:
    """Steps that wait until they are let through, and what was sent."""

    def __init__(self):
        self.sent, self.begun, self.ended, self.ends = [], [], [], []
        self.open = threading.Event()

    def steps(self, asked):
        self.begun.append(asked.seq)
        try:
            while not self.open.wait(0.005):
                yield None
            yield {"n": asked.seq}
        finally:
            self.ended.append(asked.seq)

    def send(self, message):
        (self.ends if "last" in message else self.sent).append(message)


def page(slot, view=""):
    return request("page", slot, table="a.b", view=view)


def answers_in(found):
    """Return what keeps the answers of what is sent, without their ends."""
    return lambda message: "last" in message or found.append(message)


def test_only_the_newest_request_of_a_slot_is_answered():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    first, other, second = page("page"), page("count"), page("page")
    worker.submit(first)
    worker.submit(other)
    wait_until(lambda: len(gate.begun) == 2)  # both are under way: they take turns
    worker.submit(second)
    wait_until(lambda: first.seq in gate.ended)
    gate.open.set()
    wait_until(lambda: len(gate.sent) == 2)
    assert {answer["seq"] for answer in gate.sent} == {other.seq, second.seq}
    assert all(answer["n"] == answer["seq"] for answer in gate.sent)
    worker.close()


def several(asked):
    """Answer with as many answers as the slot's name says; a fault ends those of ``fault``."""
    for number in range(int(asked.slot.removeprefix("fault"))):
        yield None
        yield {"n": number}
    if asked.slot.startswith("fault"):
        raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("slot", ["0", "1", "3", "fault0", "fault2"])
def test_each_answer_has_a_number_and_the_end_says_which_was_the_last(slot):
    sent = []
    worker = RequestQueue(several, sent.append)
    other, asked = page("1", "other"), page(slot)
    for each in (other, asked):
        worker.submit(each)
    wait_until(lambda: sum("last" in each for each in sent) == 2)
    *found, end = [each for each in sent if each["seq"] == asked.seq]
    assert len(found) == int(slot[-1]) + slot.startswith("fault")
    numbers = [each["number"] for each in found]
    assert numbers == sorted({*numbers})
    assert end == {"slot": slot, "seq": asked.seq, "view": "", "last": numbers[-1] if numbers else None}
    assert not {*numbers} & {each.get("number") for each in sent if each["seq"] == other.seq}
    worker.close()


def test_the_same_request_sent_again_is_answered_once_while_it_is_under_way_and_anew_afterwards():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    asked = page("page")
    for _ in range(3):
        worker.submit(asked)
        wait_until(lambda: gate.begun)
    assert gate.ended == []
    gate.open.set()
    wait_until(lambda: gate.ends)
    worker.submit(asked)  # neither answer nor end may have arrived
    wait_until(lambda: len(gate.ends) == 2)
    assert gate.begun == [asked.seq] * 2
    assert [each["number"] for each in gate.sent] == [each["last"] for each in gate.ends]
    assert gate.sent[0]["number"] < gate.sent[1]["number"]
    worker.close()


def test_slots_of_different_views_are_apart():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    asked = [page("page", "one"), page("page", "two")]
    for each in asked:
        worker.submit(each)
    wait_until(lambda: len(gate.begun) == 2)
    gate.open.set()
    wait_until(lambda: len(gate.sent) == 2)
    assert {(answer["view"], answer["seq"]) for answer in gate.sent} == {(each.view, each.seq) for each in asked}
    worker.close()


def test_what_a_view_that_is_gone_has_asked_is_given_up():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    gone, stays = [page("page", "gone"), page("count", "gone")], page("page", "stays")
    for each in (*gone, stays):
        worker.submit(each)
    wait_until(lambda: len(gate.begun) == 3)
    leave = request("leave", view="gone")
    worker.submit(leave)
    wait_until(lambda: {each.seq for each in gone} <= set(gate.ended))
    gate.open.set()
    wait_until(lambda: len(gate.sent) == 2)
    assert {answer["seq"] for answer in gate.sent} == {stays.seq, leave.seq}
    worker.close()


def test_requests_under_way_are_bounded(monkeypatch):
    monkeypatch.setattr(request_queue, "WORK_MAX", 3)
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    for number in range(4):
        worker.submit(page("page", f"view {number}"))
    assert [(each["view"], each["error"]["class"]) for each in gate.sent] == [("view 3", "InvalidRequestError")]
    worker.submit(page("page", "view 0"))  # in the place of one that is under way
    gate.open.set()
    wait_until(lambda: len(gate.sent) == 4)
    worker.close()


def record(name, action, *, check=False, view=""):
    body = {"table": "a.b", "mode": "append", "values": {}, "action": action, "check": check}
    return request("write", name, view=view, **body)


def test_an_action_is_given_up_for_no_other_and_begun_once():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    first, second = record("act", "a"), record("act", "b")
    for each in (first, second, first, second):  # the same message again
        worker.submit(each)
    wait_until(lambda: len(gate.begun) == 2)
    worker.submit(request("leave"))  # the view is gone: what its person did stays done
    gate.open.set()
    wait_until(lambda: {first.seq, second.seq} <= {answer["seq"] for answer in gate.sent})
    assert [seq for seq in gate.begun if seq in {first.seq, second.seq}] == [first.seq, second.seq]
    worker.close()


def test_what_is_done_about_a_run_is_done_also_when_the_view_is_gone():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    cancel, show = request("jobs", "act", op="cancel", name="x"), request("jobs", "show")
    for each in (cancel, show):
        worker.submit(each)
    wait_until(lambda: len(gate.begun) == 2)
    worker.submit(request("leave"))
    wait_until(lambda: show.seq in gate.ended)
    gate.open.set()
    wait_until(lambda: cancel.seq in {answer["seq"] for answer in gate.sent})
    worker.close()


def test_a_check_is_given_up_for_a_newer_one():
    gate = Gate()
    worker = RequestQueue(gate.steps, gate.send)
    first, second = record("check", "a", check=True), record("check", "a", check=True)
    worker.submit(first)
    wait_until(lambda: gate.begun)
    worker.submit(second)
    wait_until(lambda: first.seq in gate.ended)
    gate.open.set()
    wait_until(lambda: gate.sent)
    assert [answer["seq"] for answer in gate.sent] == [second.seq]
    worker.close()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("page", {"table": "a.b"}), ("snapshots", {"table": "a.b"}), ("lake", {"table": "a.b"}), ("health", {}),
        ("jobs", {"op": "cancel", "name": "r1"}), ("jobs", {"op": "start", "name": "refresh"}),
    ],
)  # fmt: skip
def test_what_takes_long_does_not_keep_the_tree_and_the_jobs_waiting(kind, body):
    blocked, sent = threading.Event(), []

    def steps(asked):
        if asked.slot == "long":
            blocked.wait(30)
        yield {"slot_": asked.slot}

    worker = RequestQueue(steps, answers_in(sent))
    worker.submit(request(kind, "long", **body))
    for each in ("head", "tree", "jobs"):
        worker.submit(request(each, **({"table": "a.b"} if each == "head" else {})))
    wait_until(lambda: sorted(each["slot"] for each in sent) == ["head", "jobs", "tree"])
    blocked.set()
    wait_until(lambda: len(sent) == 4)
    worker.close()


def test_a_defect_is_an_answer_and_the_worker_goes_on():
    sent = []

    def steps(asked):
        if asked.slot == "bad":
            raise ZeroDivisionError("a defect")
        yield {}

    worker = RequestQueue(steps, answers_in(sent))
    worker.submit(page("bad"))
    wait_until(lambda: len(sent) == 1)
    assert sent[0]["error"]["class"] == "ZeroDivisionError"
    worker.submit(page("good"))
    wait_until(lambda: len(sent) == 2)
    worker.close()


def test_threads_end_without_work_and_come_back(monkeypatch):
    monkeypatch.setattr(request_queue, "IDLE_S", 0.02)
    sent = []
    worker = RequestQueue(lambda asked: iter([{"n": asked.seq}]), answers_in(sent))

    def alive():
        return [each for each in threading.enumerate() if each.name == "fluss-explorer-rows"]

    before = len(alive())
    for count in (1, 2):
        worker.submit(page("page"))
        wait_until(lambda count=count: len(sent) == count)
        wait_until(lambda: len(alive()) <= before)


def test_a_closed_worker_answers_nothing():
    sent, gate = [], Gate()
    worker = RequestQueue(gate.steps, sent.append)
    worker.submit(page("page"))
    wait_until(lambda: gate.begun)
    worker.close()
    worker.close()
    gate.open.set()
    wait_until(lambda: gate.ended)
    worker.submit(page("page"))
    assert sent == []

"""The queue of a widget's requests: threads that answer them, of each slot of a view the newest only; the one before is superseded.

Answers may be lost on their way: a notebook server drops what a kernel says beyond a limit. So each has a number, and behind the
last a message says which it was; a view that has not heard that one asks the same again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import Answer, Steps, error_answer
from fluss_lab.explorer.explorer_requests import (
    ActionRequest,
    AnyRequest,
    ChangeRequest,
    ChangesRequest,
    CountRequest,
    DiffRequest,
    DiffRowsRequest,
    FactsRequest,
    FollowRequest,
    HealthRequest,
    JobsRequest,
    LakePartRequest,
    LakeRequest,
    LeaveRequest,
    PageRequest,
    RowRequest,
    SnapshotsRequest,
    TailRequest,
    WriteRequest,
)

#: A thread without work ends after so long; the next request starts another.
IDLE_S: Final = 30.0
#: Requests of all views that are under way at once on a thread: of each some slots.
WORK_MAX: Final = 256
#: Reads of rows and of the lake have a thread of their own: a long one does not keep a view from seeing that a server is away.
#: So have the tail, which waits for records, what is typed, what follows an action, and the actions themselves.
_LANES: Final[dict[str, tuple[type[AnyRequest], ...]]] = {
    "rows": (
        PageRequest, CountRequest, FactsRequest, RowRequest, ChangesRequest, ChangeRequest,
        LakeRequest, LakePartRequest, SnapshotsRequest, DiffRequest, DiffRowsRequest,
    ),
    "checks": (WriteRequest,),
    "tail": (TailRequest, LeaveRequest),
    "follow": (FollowRequest,),
    "health": (HealthRequest,),  # a second or two
}  # fmt: skip


#: What is begun here is done, also when the view that wanted it is gone.
_DONE_ALWAYS: Final = ("acts", "jobs")


def refusal(error: BaseException) -> Answer:
    """Return the one answer, and its end, to a message that cannot be submitted."""
    return {"error": error_answer(error), "number": 0, "last": 0}


def _lane_of(request: AnyRequest) -> str:
    if _is_action(request):
        return "acts"
    if isinstance(request, JobsRequest) and request.writes:
        return "jobs"  # a run that is cancelled is waited for
    return next((name for name, kinds in _LANES.items() if isinstance(request, kinds)), "facts")


class RequestQueue:
    """Answers requests on threads of its own; those of different slots take turns, step by step.

    Args:
        steps: Returns what answering a request takes.
        send: Called with each answer, by the queue's threads.
    """

    def __init__(self, steps: Callable[[AnyRequest], Steps], send: Callable[[Answer], None]) -> None:
        self._lanes = {name: _Lane(steps, send, name) for name in (*_LANES, "facts", "acts", "jobs")}

    def submit(self, request: AnyRequest) -> None:
        """Have a request answered. Never waits.

        One of the same slot that is not answered yet is given up; an action never is. The same one, sent again while it is under
        way, is answered once.
        """
        if isinstance(request, LeaveRequest):
            for name, lane in self._lanes.items():
                if name not in _DONE_ALWAYS:
                    lane.forget(request.view)
        self._lanes[_lane_of(request)].submit(request)

    def close(self) -> None:
        """Give up what is under way. Twice is fine; requests after it are not answered."""
        for lane in self._lanes.values():
            lane.close()


@dataclass(slots=True, eq=False)
class _Work:
    """A request under way.

    Attributes:
        steps: What answers it, once it has begun.
        last: The number of its last answer so far.
    """

    request: AnyRequest
    steps: Steps | None = None
    last: int | None = None


class _Lane:
    """A thread and its requests."""

    def __init__(self, steps: Callable[[AnyRequest], Steps], send: Callable[[Answer], None], name: str) -> None:
        self._steps, self._send, self._name = steps, send, name
        self._ready = threading.Condition()
        #: By view and slot: the newest request. The first is next. Each action has a place.
        self._work: dict[tuple[str, str, int], _Work] = {}
        self._numbers = itertools.count(1)
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, request: AnyRequest) -> None:
        with self._ready:
            known = self._work.get(_key(request))
            if self._closed or (known is not None and (_is_action(request) or known.request == request)):
                return
            is_full = len(self._work) >= WORK_MAX and known is None
            if not is_full:
                self._work[_key(request)] = _Work(request)
            self._ready.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"fluss-explorer-{self._name}", daemon=True)
                self._thread.start()
        if is_full:
            error = InvalidRequestError(f"explorer: {WORK_MAX} requests are under way; ask again")
            self._send_last(_Work(request), {"error": error_answer(error)})

    def forget(self, view: str) -> None:
        """Give up what a view has asked, but for what it has done."""
        with self._ready:
            self._work = {key: work for key, work in self._work.items() if key[0] != view}

    def close(self) -> None:
        with self._ready:
            self._closed = True
            self._work.clear()
            self._ready.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if work.steps is None:
                work.steps = self._steps(work.request)
            self._take_a_step(work, work.steps)

    def _next(self) -> _Work | None:
        with self._ready:
            self._ready.wait_for(lambda: self._work or self._closed, IDLE_S)
            if not self._work:
                self._thread = None
                return None
            return next(iter(self._work.values()))

    def _take_a_step(self, work: _Work, steps: Steps) -> None:
        """Take one step; it goes behind the others' then, or is done."""
        answer: Answer | None = None
        is_done = False
        try:
            answer = next(steps)
        except StopIteration:
            is_done = True
        except Exception as error:  # whatever it is, the view shows it
            answer, is_done = {"error": error_answer(error)}, True
        with self._ready:
            key = _key(work.request)
            is_newest = self._work.get(key) is work
            if is_newest:
                del self._work[key]
                if not is_done:
                    self._work[key] = work
        if not is_newest:
            with suppress(Exception):  # a read that is given up
                steps.close()  # type: ignore[attr-defined]
        elif is_done:
            self._send_last(work, answer)
        elif answer is not None:
            self._send_answer(work, answer)

    def _send_answer(self, work: _Work, answer: Answer) -> None:
        work.last = next(self._numbers)
        self._send_message(work.request, {**answer, "number": work.last})

    def _send_last(self, work: _Work, answer: Answer | None) -> None:
        """Send what is left to say, and that it is the end."""
        if answer is not None:
            self._send_answer(work, answer)
        self._send_message(work.request, {"last": work.last})

    def _send_message(self, request: AnyRequest, message: dict[str, Any]) -> None:
        with suppress(Exception):  # the view is gone
            self._send({"slot": request.slot, "seq": request.seq, "view": request.view, **message})


def _is_action(request: AnyRequest) -> bool:
    return isinstance(request, ActionRequest) and request.is_once


def _key(request: AnyRequest) -> tuple[str, str, int]:
    """Return what a request shares with those that replace it; an action is replaced by none."""
    return request.view, request.slot, request.seq if _is_action(request) else 0

"""The queue of a widget's requests: threads that answer them, of each slot of a view the newest only; the one before is superseded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

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
    TailRequest,
    WriteRequest,
)

#: A thread without work ends after so long; the next request starts another.
IDLE_S: Final = 30.0
#: Requests of all views that are under way at once on a thread: of each some slots.
WORK_MAX: Final = 256
#: Reads of rows have a thread of their own: a long one does not keep a view from seeing that a server is away. So have the
#: tail, which waits for records, what is typed, what follows an action, and the actions themselves.
_LANES: Final[dict[str, tuple[type[AnyRequest], ...]]] = {
    "rows": (
        PageRequest, CountRequest, FactsRequest, RowRequest, ChangesRequest, ChangeRequest,
        LakeRequest, LakePartRequest, DiffRequest, DiffRowsRequest,
    ),
    "checks": (WriteRequest,),
    "tail": (TailRequest, LeaveRequest),
    "follow": (FollowRequest,),
    "health": (HealthRequest,),  # a second or two
}  # fmt: skip


#: What is begun here is done, also when the view that wanted it is gone.
_DONE_ALWAYS: Final = ("acts", "jobs")


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
        """Have a request answered. One of the same slot that is not answered yet is given up; an action never is. Never waits."""
        if isinstance(request, LeaveRequest):
            for name, lane in self._lanes.items():
                if name not in _DONE_ALWAYS:
                    lane.forget(request.view)
        self._lanes[_lane_of(request)].submit(request)

    def close(self) -> None:
        """Give up what is under way. Twice is fine; requests after it are not answered."""
        for lane in self._lanes.values():
            lane.close()


class _Lane:
    """A thread and its requests."""

    def __init__(self, steps: Callable[[AnyRequest], Steps], send: Callable[[Answer], None], name: str) -> None:
        self._steps, self._send, self._name = steps, send, name
        self._ready = threading.Condition()
        #: By view and slot: the newest request, and its steps once they have begun. The first is next. Each action has a place.
        self._work: dict[tuple[str, str, int], tuple[AnyRequest, Steps | None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, request: AnyRequest) -> None:
        with self._ready:
            if self._closed or (_is_action(request) and _key(request) in self._work):
                return
            is_full = len(self._work) >= WORK_MAX and _key(request) not in self._work
            if not is_full:
                self._work[_key(request)] = (request, None)
            self._ready.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"fluss-explorer-{self._name}", daemon=True)
                self._thread.start()
        if is_full:
            error = InvalidRequestError(f"explorer: {WORK_MAX} requests are under way; ask again")
            self._answer(request, {"error": error_answer(error)})

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
            request, steps = work
            if steps is None:
                steps = self._steps(request)
            self._take_a_step(request, steps)

    def _next(self) -> tuple[AnyRequest, Steps | None] | None:
        with self._ready:
            self._ready.wait_for(lambda: self._work or self._closed, IDLE_S)
            if not self._work:
                self._thread = None
                return None
            return next(iter(self._work.values()))

    def _take_a_step(self, request: AnyRequest, steps: Steps) -> None:
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
            known = self._work.get(_key(request))
            is_newest = known is not None and known[0] is request
            if is_newest:
                del self._work[_key(request)]
                if not is_done:
                    self._work[_key(request)] = (request, steps)
        if not is_newest:
            with suppress(Exception):  # a read that is given up
                steps.close()  # type: ignore[attr-defined]
            return
        if answer is not None:
            self._answer(request, answer)

    def _answer(self, request: AnyRequest, answer: Answer) -> None:
        with suppress(Exception):  # the view is gone
            self._send({"slot": request.slot, "seq": request.seq, "view": request.view, **answer})


def _is_action(request: AnyRequest) -> bool:
    return isinstance(request, ActionRequest) and request.is_once


def _key(request: AnyRequest) -> tuple[str, str, int]:
    """Return what a request shares with those that replace it; an action is replaced by none."""
    return request.view, request.slot, request.seq if _is_action(request) else 0

"""The scheduler: decides on due times, runs what is queued, and records all of it. One works for a lab."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import FlussError, InvalidError, NotFoundError, UnavailableError
from fluss_lab.failpoints import failpoint
from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.notebook_run import NOTEBOOK_COMMAND, RunPlace
from fluss_lab.jobs.run_execution import RunExecution, failure_text, settle_lost_runs
from fluss_lab.jobs.run_record import ENDED, JobRecord, RunRecord, new_run_id
from fluss_lab.jobs.scheduling.due_plan import LATE_MS, DuePlan, plan_due
from fluss_lab.jobs.scheduling.failure_notice import command_of, send_notice
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.jobs.scheduling.scheduler_lease import SchedulerLease
from fluss_lab.model.times import format_moment

#: Between two looks at clock, store and runs.
POLL_INTERVAL_S: Final = 0.25
#: Runs at the same time; a run with Spark keeps two cores busy.
RUNS_MAX: Final = 2
#: A clock that was set back by no more than that is waited for, as due times of then were decided on; by more, it was wrong before.
SET_BACK_MS: Final = 86_400_000
#: Runs without a job that are kept, of each notebook.
CALLS_KEPT: Final = 50
#: Missed due times of a job that are kept.
MISSED_KEPT: Final = 1_000
#: How long commands for failures may go on when the scheduler ends.
_NOTICE_TIMEOUT_S: Final = 5.0

log = logging.getLogger(__name__)


class Scheduler:
    """Runs a lab's jobs when they are due. It needs no server: notebooks attach to the lab by themselves.

    Args:
        lab: The lab's folder.
        runs_max: Runs at the same time.
        clock: Says what time it is.
        command: Runs a notebook's process.
        poll_interval_s: Between two looks.
        on_event: Called with a line for each thing that happens; what it raises is noted and changes nothing.
        is_detached: Whether ``fluss-lab down`` stops it.
    """

    def __init__(
        self,
        lab: Path,
        *,
        runs_max: int = RUNS_MAX,
        clock: Clock | None = None,
        command: Sequence[str] = NOTEBOOK_COMMAND,
        poll_interval_s: float = POLL_INTERVAL_S,
        on_event: Callable[[str], None] | None = None,
        is_detached: bool = False,
    ) -> None:
        self._lab = lab.absolute()
        self._store = JobStore(self._lab)
        self._runs_max = runs_max
        self._clock = clock or SystemClock()
        self._command = tuple(command)
        self._poll_interval_s = poll_interval_s
        self._on_event = on_event
        self._is_detached = is_detached
        self._active: dict[str, RunExecution] = {}
        #: Failed runs whose command for failures is to be started, and threads that wait for such commands.
        self._due_notices: list[RunRecord] = []
        self._notices: list[threading.Thread] = []
        #: When due times were last decided on.
        self._decided_ms: float = math.inf
        #: What parts of a look failed with last: said once.
        self._said: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Schedule until the event is set; then end the runs under way, which counts as their failure.

        Raises:
            LabLockedError: Another scheduler works for the lab.
            LabError: The lab was removed, or another is in its place.
            FlussError: The store is damaged, or of a newer version.
        """
        with SchedulerLease(self._lab, is_detached=self._is_detached) as lease:
            self._say(f"scheduling {len(self._store.jobs())} jobs of {self._lab}")
            try:
                # On a full disk later looks do it.
                self._try(self._settle_lost.__name__, self._settle_lost)
                # Also of runs that another process recorded as lost.
                failed = self._store.runs(limit=-1, states=("failed",))
                self._due_notices = [run for run in reversed(failed) if run.is_notice_due]
                while not stop.is_set():
                    lease.check()
                    self.step()
                    stop.wait(self._poll_interval_s)
            finally:
                self._end_all()

    def step(self) -> None:
        """Look once: decide what is due, start what is queued, record what has ended."""
        for part in (self._settle_lost, self._decide, self._record_ended, self._send_notices, self._start_queued):
            self._try(part.__name__, part)

    def _try(self, what: str, part: Callable[[], None]) -> bool:
        """Do a part of a look; return whether it was done. What it fails with is said once; other parts, and other jobs, go on."""
        try:
            part()
            self._said.pop(what, None)
            return True
        except (FlussError, OSError) as error:
            # A full disk or a locked file passes; nothing was decided, and the next look decides.
            if str(error) not in self._said.values():
                self._say(f"cannot go on now: {error}")
            self._said[what] = str(error)
            return False

    def _settle_lost(self) -> None:
        """Record what others began, and what a scheduler before this one did, and did not end: their jobs wait for it."""
        for lost in settle_lost_runs(self._store, self._clock):
            self._follow_up(lost)

    # -- what is due ---------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._decided_ms or self._bring_forward(now_ms):
            self._decided_ms = now_ms
        due = [job for job in self._store.jobs() if job.paused_ms is None and job.next_due_ms <= now_ms]
        if not due:
            return
        pending = self._store.runs(limit=-1, states=("queued", "running"))
        for job in due:
            own = [run for run in pending if run.is_of(job)]
            self._try(f"job {job.id}", partial(self._decide_on, job, own, now_ms))

    def _decide_on(self, job: JobRecord, pending: list[RunRecord], now_ms: int) -> None:
        queued = sum(run.state == "queued" for run in pending)
        plan = plan_due(job, now_ms, pending[-1].id if pending else None, queued)
        entries = list(_entries(job, plan, now_ms))
        failpoint("jobs.due.planned")
        if self._store.decide(job, plan, entries):
            failpoint("jobs.due.decided")
            for run in entries:
                if run.state == "missed":
                    self._say(f"{job.name}: missed {format_moment(run.due_ms or 0)}: {run.error}")

    def _bring_forward(self, now_ms: int) -> bool:
        """At the beginning and when the clock was set back: have no job wait for days until the time that the clock had shown.

        Returns:
            False: of some job it could not be done, and the next look does it.
        """
        jobs = self._store.jobs()
        done = [self._try(f"job {job.id}", partial(self._bring_one_forward, job, now_ms)) for job in jobs]
        return all(done)

    def _bring_one_forward(self, job: JobRecord, now_ms: int) -> None:
        next_due_ms = Schedule(job.cron, job.zone).next_due(now_ms)
        if job.paused_ms is None and next_due_ms < job.next_due_ms - SET_BACK_MS:
            self._store.bring_forward(job, now_ms, next_due_ms)
            self._say(f"{job.name}: the clock was set back; next due {format_moment(next_due_ms)}")

    # -- what runs -----------------------------------------------------------------------------------------------------

    def _start_queued(self) -> None:
        queued = self._store.runs(limit=-1, states=("queued",))
        if not queued:
            return
        now_ms = self._clock.now_ms()
        jobs = {job.id: job for job in self._store.jobs()}
        # Also those that were started by hand, or by a job of that name before it was replaced.
        running = [each for each in self._store.runs(limit=-1, states=("running",)) if each.job_id is not None]
        running += [execution.record for execution in self._active.values()]
        busy = {run.job.casefold() for run in running}
        # In the order in which they were due.
        for run in sorted(queued, key=lambda each: (each.due_ms or 0, each.id)):
            job = jobs.get(run.job_id or 0)
            if job is None or run.is_by_hand or len(self._active) >= self._runs_max:
                continue
            if run.is_cancelled:
                self._store.change_run(run.id, state="cancelled", error="cancelled", ended_ms=now_ms)
            elif run.job.casefold() not in busy and _may_begin(run, now_ms) and job.paused_ms is None:
                busy.add(run.job.casefold())
                self._start(run)

    def _start(self, run: RunRecord) -> None:
        execution = RunExecution(self._store, self._lab, run, self._clock, self._command)
        try:
            if execution.begin():
                self._active[run.id] = execution
                self._say(f"{run.job}: run {run.id} begins{_attempt(run)}")
        except FlussError as error:
            can_pass = not isinstance(error, InvalidError | NotFoundError) or isinstance(error, UnavailableError)
            ended = self._store.end_run(
                run.id, can_pass=can_pass, state="failed", error=failure_text(error), ended_ms=self._clock.now_ms()
            )
            if ended is not None:
                self._follow_up(ended)

    def _record_ended(self) -> None:
        for run_id, execution in list(self._active.items()):
            if execution.poll():
                del self._active[run_id]
                self._follow_up(execution.record)

    def _follow_up(self, run: RunRecord) -> None:
        """Say how a run has ended, note that its notice is due, and remove the job's oldest runs."""
        self._say_ended(run)
        if run.is_notice_due:
            self._due_notices.append(run)
        remove_old_runs(self._store, run.job)

    def _say_ended(self, run: RunRecord) -> None:
        seconds = ((run.ended_ms or 0) - (run.started_ms or run.ended_ms or 0)) / 1000
        said = run.error or run.note
        reason = "" if said is None else f": {said}"
        self._say(f"{run.job}: run {run.id} {run.state} after {seconds:.1f} s{_attempt(run)}{reason}")

    def _send_notices(self) -> None:
        """Start the commands for failures that are due: at least once each, also when this process is killed meanwhile."""
        self._notices = [thread for thread in self._notices if thread.is_alive()]
        while self._due_notices:
            job = self._store.job_of_run(self._due_notices[0])
            # Once per process, whatever follows.
            run = self._due_notices.pop(0)
            if job is not None and job.on_failure:
                place = RunPlace.of(self._store.folder, run.job, run.id)
                self._notices.append(send_notice(command_of(job.on_failure, run, place.output, place.log), place.log))
                failpoint("jobs.notice.started")
            self._store.note_notice(run.id)

    def _end_all(self) -> None:
        for execution in self._active.values():
            execution.end("failed", "the scheduler was stopped")
        for part in (self._record_ended, self._send_notices):
            with suppress(FlussError, OSError):
                part()
        for notice in self._notices:
            notice.join(_NOTICE_TIMEOUT_S)
        self._say("the scheduler ended")

    def _say(self, line: str) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(f"{format_moment(self._clock.now_ms())} {line}")
        except Exception:
            log.warning("scheduler: a listener of events failed", exc_info=True)


def remove_old_runs(store: JobStore, name: str) -> None:
    """Remove the oldest ended runs of a name, with their files: of a job beyond those that it keeps, and many missed due times.

    Runs of a notebook that is called as a job is, and has its folder therefore, are kept as those of any notebook; those of a job
    that was removed stay.
    """
    jobs = [job for job in store.jobs() if job.name.casefold() == name.casefold()]
    counted: Counter[tuple[bool, bool]] = Counter()
    old = []
    for run in store.runs(name, limit=-1, states=ENDED):
        kind = (run.job_id is not None, run.state == "missed")
        counted[kind] += 1
        if run.job_id is None:
            kept = CALLS_KEPT
        elif not jobs:
            continue
        else:
            kept = MISSED_KEPT if run.state == "missed" else jobs[0].keep
        if counted[kind] > kept:
            old.append(run)
    if not old:
        return
    for run in old:
        place = RunPlace.of(store.folder, run.job, run.id)
        for path in (place.output, place.log):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    store.drop_runs(old)


def _entries(job: JobRecord, plan: DuePlan, now_ms: int) -> Iterator[RunRecord]:
    for missed in plan.missed:
        yield RunRecord(
            id=new_run_id(now_ms), job=job.name, job_id=job.id, task=job.task, trigger="schedule", attempt=1, state="missed",
            queued_ms=now_ms, due_ms=missed.due_ms, until_ms=missed.until_ms if missed.until_ms > missed.due_ms else None,
            ended_ms=now_ms, error=missed.reason,
        )  # fmt: skip
    for due_ms in plan.runs:
        yield RunRecord(
            id=new_run_id(now_ms), job=job.name, job_id=job.id, task=job.task, trigger="schedule", attempt=1, state="queued",
            queued_ms=now_ms, due_ms=due_ms,
        )  # fmt: skip


def _may_begin(run: RunRecord, now_ms: int) -> bool:
    """Return whether a queued run's pause is over, or cannot be measured: the clock was set back behind its beginning."""
    return run.not_before_ms <= now_ms or now_ms < run.queued_ms - LATE_MS


def _attempt(run: RunRecord) -> str:
    return f" (attempt {run.attempt})" if run.attempt > 1 else ""

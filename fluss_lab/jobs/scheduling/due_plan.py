"""The plan of a job's due times: those that become runs, and those that are recorded as missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fluss_lab.jobs.run_record import CatchUp, JobRecord
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.model.times import format_moment

#: A due time found so late was overdue: nothing looked when it came. A scheduler looks several times a second.
LATE_MS: Final = 60_000
#: Due times of one job that ``catch_up="all"`` makes up for at once; earlier ones are missed.
CATCH_UP_MAX: Final = 100
#: Runs of one job that wait for the one under way (``overlap="queue"``).
QUEUED_MAX: Final = 100
#: Missed due times that get a record each; earlier ones share one.
MISSED_MAX: Final = 500
#: Due times of so long are listed: 10,080 of every minute; of rarer ones as long as it takes to have all that may be made up for.
#: Those before are recorded as one stretch.
_LISTED_MS: Final = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Missed:
    """Due times in ``[due_ms, until_ms]`` that are not run, and why."""

    due_ms: int
    until_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class DuePlan:
    """What becomes of the due times up to now; each is in one of the two.

    Attributes:
        runs: Due times that become runs, ascending.
        missed: The others.
        next_due_ms: The first due time behind now.
    """

    runs: tuple[int, ...]
    missed: tuple[Missed, ...]
    next_due_ms: int


def plan_due(job: JobRecord, now_ms: int, active_run: str | None, queued: int = 0) -> DuePlan:
    """Decide on a job's due times from ``next_due_ms`` to now.

    Args:
        job: The job; not paused.
        now_ms: The time.
        active_run: The id of its run that is queued or under way.
        queued: How many of its runs are queued.
    """
    schedule = Schedule(job.cron, job.zone)
    next_due_ms = schedule.next_due(now_ms)
    if job.next_due_ms > now_ms:
        return DuePlan((), (), job.next_due_ms)
    start_ms, due = _last_due_times(schedule, job.next_due_ms - 1, now_ms)
    missed = []
    if start_ms >= job.next_due_ms:
        reason = f"{_absence(job, job.next_due_ms)}; recorded together"
        missed.append(Missed(job.next_due_ms, start_ms, reason))
    overdue = [due_ms for due_ms in due if now_ms - due_ms > LATE_MS]
    on_time = due[len(overdue) :]
    made_up = _catch_up_times(job.catch_up, overdue, on_time)
    given_up = overdue[: len(overdue) - len(made_up)]
    missed += _missed_times(job, given_up)
    runs = list(made_up)
    for due_ms in on_time:
        # Runs that are made up for wait for each other: that is what was asked for.
        if job.overlap == "skip" and (active_run is not None or runs):
            blocker = f"run {active_run}" if active_run is not None else "the run before it"
            missed.append(Missed(due_ms, due_ms, f"{blocker} was still under way (overlap=skip)"))
        elif queued + len(runs) >= QUEUED_MAX:
            missed.append(Missed(due_ms, due_ms, f"{QUEUED_MAX} runs of the job are queued already"))
        else:
            runs.append(due_ms)
    return DuePlan(tuple(runs), tuple(missed), next_due_ms)


def _last_due_times(schedule: Schedule, since_ms: int, now_ms: int) -> tuple[int, list[int]]:
    """Return the last due times behind a moment, and the moment behind which these are all."""
    length_ms = _LISTED_MS
    while True:
        start_ms = max(since_ms, now_ms - length_ms)
        due = schedule.due_times(start_ms, now_ms)
        # Those of the last minute are on time.
        if start_ms == since_ms or len(due) > CATCH_UP_MAX + LATE_MS // 60_000:
            return start_ms, due
        length_ms *= 8


def _catch_up_times(catch_up: CatchUp, overdue: list[int], on_time: list[int]) -> list[int]:
    """Return the overdue ones that are run: always the last ones."""
    if catch_up == "all":
        return overdue[-CATCH_UP_MAX:]
    if catch_up == "one" and not on_time:
        return overdue[-1:]
    return []


def _missed_times(job: JobRecord, due: list[int]) -> Iterator[Missed]:
    together, single = due[:-MISSED_MAX], due[-MISSED_MAX:]
    if together:
        yield Missed(together[0], together[-1], f"{_absence(job, together[0])}; recorded together")
    for due_ms in single:
        most = f", {CATCH_UP_MAX} at most" if job.catch_up == "all" else ""
        yield Missed(due_ms, due_ms, f"{_absence(job, due_ms)} (catch_up={job.catch_up}{most})")


def _absence(job: JobRecord, due_ms: int) -> str:
    if job.resumed is not None and job.resumed[0] <= due_ms <= job.resumed[1]:
        return f"the job was paused from {format_moment(job.resumed[0])} to {format_moment(job.resumed[1])}"
    return "no scheduler ran"

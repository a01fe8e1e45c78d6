"""What becomes of due times: each is run, or recorded as missed with its reason, once."""

import random
from datetime import datetime

import pytest

from fluss_lab.jobs.scheduling.due_plan import CATCH_UP_MAX, LATE_MS, QUEUED_MAX, plan_due
from fluss_lab.jobs.scheduling.schedule import Schedule
from tests.unit.jobs.job_kit import make_job

NOON = int(datetime.fromisoformat("2026-03-28T12:00:00+00:00").timestamp() * 1000)
MINUTE = 60_000


def hourly(**changes):
    return make_job(cron="0 * * * *", next_due_ms=NOON, **changes)


def test_nothing_is_due_before_its_time():
    plan = plan_due(hourly(), NOON - 1, None)
    assert (plan.runs, plan.missed, plan.next_due_ms) == ((), (), NOON)


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
def test_on_time_it_runs_whatever_the_policy(catch_up):
    plan = plan_due(hourly(catch_up=catch_up), NOON + LATE_MS, None)
    assert (plan.runs, plan.missed, plan.next_due_ms) == ((NOON,), (), NOON + 60 * MINUTE)


@pytest.mark.parametrize(("catch_up", "runs"), [("one", [3]), ("all", [0, 1, 2, 3]), ("none", [])])
def test_after_a_pause_the_policy_says_which_run(catch_up, runs):
    plan = plan_due(hourly(catch_up=catch_up), NOON + 3 * 60 * MINUTE + 10 * MINUTE, None)
    hours = [(due_ms - NOON) // (60 * MINUTE) for due_ms in plan.runs]
    assert hours == runs
    missed = [(each.due_ms - NOON) // (60 * MINUTE) for each in plan.missed]
    assert sorted(hours + missed) == [0, 1, 2, 3]
    assert all(each.reason == f"no scheduler ran (catch_up={catch_up})" for each in plan.missed)


def test_one_that_is_due_now_is_the_one():
    plan = plan_due(hourly(catch_up="one"), NOON + 2 * 60 * MINUTE, None)
    assert plan.runs == (NOON + 2 * 60 * MINUTE,)
    assert len(plan.missed) == 2


def test_while_another_runs_the_policy_decides():
    skipped = plan_due(hourly(overlap="skip"), NOON, "r1")
    assert skipped.runs == ()
    assert skipped.missed[0].reason == "run r1 was still under way (overlap=skip)"
    assert plan_due(hourly(overlap="queue"), NOON, "r1").runs == (NOON,)
    full = plan_due(hourly(overlap="queue"), NOON, "r1", QUEUED_MAX)
    assert full.runs == ()
    assert "queued already" in full.missed[0].reason


def test_a_pause_is_the_reason():
    job = hourly(catch_up="none", resumed=(NOON - 1, NOON + 90 * MINUTE))
    first, second, third = plan_due(job, NOON + 170 * MINUTE, None).missed
    assert "paused from 2026-03-28T11:59:59.999Z to 2026-03-28T13:30" in first.reason
    assert first.reason == second.reason
    assert third.reason == "no scheduler ran (catch_up=none)"


def test_a_year_without_a_scheduler_is_decided_quickly():
    job = make_job(cron="* * * * *", next_due_ms=NOON, catch_up="all")
    now = NOON + 365 * 24 * 60 * MINUTE
    plan = plan_due(job, now, None)
    # The last is on time, and waits for none: those that are made up for come before it.
    assert len(plan.runs) == CATCH_UP_MAX
    assert plan.missed[0].due_ms == NOON
    assert plan.missed[0].until_ms + 1 <= plan.missed[1].due_ms
    assert len(plan.missed) < 1000


@pytest.mark.parametrize(
    ("catch_up", "cron", "days", "runs"),
    [("one", "0 9 1 * *", 40, 1), ("one", "0 9 * * 1", 13, 1), ("all", "0 9 * * *", 60, 60), ("all", "0 9 * * *", 400, 100), ("none", "0 9 1 * *", 40, 0)],
)  # fmt: skip
def test_what_is_due_rarely_is_made_up_for_however_long_ago_it_was(catch_up, cron, days, runs):
    """By a machine that was off for the holidays: of a job of each month the last due time is more than a week ago."""
    now = NOON + days * 24 * 60 * MINUTE
    schedule = Schedule(cron, "UTC")
    job = make_job(cron=cron, catch_up=catch_up, next_due_ms=schedule.next_due(NOON))
    plan = plan_due(job, now, None)
    due = schedule.due_times(NOON, now)
    assert plan.runs == tuple(due[len(due) - runs :])
    assert sorted([*plan.runs, *(each.due_ms for each in plan.missed)]) == due
    assert all(each.due_ms == each.until_ms for each in plan.missed)


@pytest.mark.parametrize("seed", range(20))
def test_every_due_time_is_decided_on_once(seed):
    random_ = random.Random(seed)
    cron = random_.choice(["*/7 * * * *", "0 * * * *", "30 2 * * *", "*/20 1-4 * * *"])
    zone = random_.choice(["Europe/Berlin", "America/New_York", "UTC"])
    job = make_job(
        cron=cron, zone=zone, catch_up=random_.choice(["one", "all", "none"]), overlap=random_.choice(["skip", "queue"]),
        next_due_ms=Schedule(cron, zone).next_due(NOON - 86_400_000),
    )  # fmt: skip
    now, decided = NOON - 86_400_000, []
    while now < NOON + 2 * 86_400_000:
        now += random_.choice([MINUTE, 10 * MINUTE, 5 * 60 * MINUTE])
        plan = plan_due(job, now, random_.choice([None, "r"]))
        decided += [*plan.runs, *(each.due_ms for each in plan.missed)]
        assert all(each.due_ms == each.until_ms for each in plan.missed)
        job = make_job(cron=cron, zone=zone, catch_up=job.catch_up, overlap=job.overlap, next_due_ms=plan.next_due_ms)
    assert sorted(decided) == Schedule(cron, zone).due_times(NOON - 86_400_000, now)

"""The records of jobs and runs, as the store keeps them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from fluss_lab.errors import InvalidNameError
from fluss_lab.model.times import TIMESTAMP_MS_MAX, format_moment

#: The MIME type of a notebook's output for programs.
SUMMARY_MIME: Final = "application/vnd.fluss-lab.summary+json"
#: Characters of a run's summary as JSON, at most.
SUMMARY_LENGTH_MAX: Final = 1 << 18

#: A time that can be shown: before the year 10000.
EpochMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=TIMESTAMP_MS_MAX)]
#: ``missed``: due, and not run, for the reason that its `RunRecord.error` has.
RunState: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled", "missed"]
#: Names of jobs are names of folders.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")

ENDED: Final = ("succeeded", "failed", "cancelled", "missed")
#: Why a run is there.
Trigger: TypeAlias = Literal["schedule", "retry", "call", "rerun"]
Overlap: TypeAlias = Literal["skip", "queue"]
CatchUp: TypeAlias = Literal["one", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """What is run, and how far it may go.

    Attributes:
        notebook: The notebook's file, absolute.
        parameters: Checked values by name.
        secrets: Names of environment variables.
        timeout_ms: Longest time.
        memory_bytes: Most memory of all its processes together.
    """

    notebook: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    timeout_ms: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job and its policies.

    Attributes:
        id: Another job that gets the same name later has another one.
        name: Its name.
        task: What each run does.
        cron: When; in `zone`.
        zone: Name of the time zone.
        retries: Further attempts of a run that failed.
        overlap: What becomes of a due time while a run of the job is under way.
        catch_up: Which of the due times that passed while nothing ran are made up for.
        keep: Ended runs whose files are kept.
        on_failure: A command with arguments; empty: none.
        paused_ms: Since when it is paused; None: it is not.
        resumed: Start and end of the last pause.
        next_due_ms: The first due time that was not decided on.
    """

    id: int
    name: str
    task: RunTask
    cron: str
    zone: str
    retries: int
    overlap: Overlap
    catch_up: CatchUp
    keep: int
    on_failure: tuple[str, ...]
    paused_ms: EpochMs | None = None
    resumed: tuple[EpochMs, EpochMs] | None = None
    next_due_ms: EpochMs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, or the due times that were missed.

    Attributes:
        id: Its id.
        job: The job's name; of a run without a job, after its notebook.
        job_id: The job's id; None for a run without a job. Releases before had None for what was started by hand too.
        task: What it does.
        trigger: Why it is there.
        attempt: From 1.
        state: Its state.
        queued_ms: When it was entered.
        due_ms: When it was due; None for a run without a schedule.
        until_ms: Of due times that are recorded as missed together, the last.
        not_before_ms: When it may start.
        started_ms: When it started.
        ended_ms: When it ended.
        error: Why it failed or was missed.
        cell: The number of the cell that it failed in.
        owner: Identity of the process that runs it; of one that is entered by hand, from the beginning.
        summary: What the notebook reported.
        is_cancelled: Whether it was asked to end.
        is_notice_due: Whether the job's command for failures is still to be run for it.
        note: What is to be said of one that succeeded: which cells were not run.
    """

    id: str
    job: str
    job_id: int | None
    task: RunTask
    trigger: Trigger
    attempt: int
    state: RunState
    queued_ms: EpochMs
    due_ms: EpochMs | None = None
    until_ms: EpochMs | None = None
    not_before_ms: EpochMs = 0
    started_ms: EpochMs | None = None
    ended_ms: EpochMs | None = None
    error: str | None = None
    cell: int | None = None
    owner: str | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    is_cancelled: bool = False
    is_notice_due: bool = False
    note: str | None = None

    @property
    def is_by_hand(self) -> bool:
        """Return whether a person or a program asked for it: whoever enters it runs it, and no policy follows its failure."""
        return self.trigger in {"call", "rerun"}

    def is_of(self, job: JobRecord) -> bool:
        """Return whether it is a run of a job, or of one that had its name before: they share a folder."""
        return self.job_id is not None and self.job.casefold() == job.name.casefold()


def new_run_id(now_ms: int) -> str:
    """Return an id for a run: when it was entered, and random digits."""
    stamp = format_moment(now_ms).replace("-", "").replace(":", "").replace(".", "")
    return f"{stamp}-{secrets.token_hex(3)}"


def check_job_name(name: str) -> str:
    """Return the name of a job, or the id of a run.

    Raises:
        InvalidNameError: It is none; the text has the rule.
    """
    if _NAME.fullmatch(name) is None:
        shown = name if len(name) <= 80 else name[:80] + "..."
        raise InvalidNameError(
            f"job name {shown!r}: expected letters, digits, '_' and '-', not '-' first, at most 64 characters"
        )
    return name

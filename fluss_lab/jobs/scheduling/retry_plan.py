"""The plan of the next attempt of a run that has failed."""

from __future__ import annotations

from typing import Final

from fluss_lab.jobs.run_record import JobRecord, RunRecord, new_run_id

#: Pause before the second attempt, doubled with each further one.
RETRY_PAUSE_MS: Final = 10_000
RETRY_PAUSE_MAX_MS: Final = 600_000


def plan_retry(run: RunRecord, job: JobRecord | None) -> RunRecord | None:
    """Return the next attempt of a run that has ended; None: it did not fail, or its job has no further one for it.

    Args:
        run: The run.
        job: Its job; None: it has none, or that is gone.
    """
    if run.state != "failed" or job is None or run.attempt > job.retries:
        return None
    now_ms = run.ended_ms or 0
    pause_ms = min(RETRY_PAUSE_MS * 2 ** min(run.attempt - 1, 10), RETRY_PAUSE_MAX_MS)
    return RunRecord(
        id=new_run_id(now_ms), job=run.job, job_id=run.job_id, task=run.task, trigger="retry", attempt=run.attempt + 1,
        state="queued", queued_ms=now_ms, due_ms=run.due_ms, not_before_ms=now_ms + pause_ms,
    )  # fmt: skip

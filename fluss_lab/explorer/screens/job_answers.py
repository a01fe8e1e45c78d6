"""The answers about a lab's jobs: what is scheduled, what has run, and what a person does about it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluss_lab.display import short, visible
from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.explorer.explored_lab import ExploredLab
from fluss_lab.explorer.explorer_answers import Answer, cut_to_size, now_ms
from fluss_lab.explorer.explorer_requests import JobsRequest
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.texts import code_lines
from fluss_lab.jobs import Jobs, Run
from fluss_lab.jobs.run_record import ENDED, JobRecord, RunRecord
from fluss_lab.jobs.run_secrets import Redactor
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder

#: Runs that are shown, the newest; and jobs.
RUNS_MAX: Final = 200
JOBS_MAX: Final = 100
#: Runs of a job whose durations are drawn.
DURATIONS_MAX: Final = 12
#: Characters of a parameter, a result, an error in a list; of the end of a log.
_TEXT_MAX: Final = 200
_LOG_MAX: Final = 60_000
_RAN: Final = ("succeeded", "failed", "cancelled")


class JobAnswers:
    """What a view shows of jobs, and does about them. For any thread.

    Args:
        lab: Whose jobs.
        tables: What may be seen of its tables: what runs print may show the same.
    """

    def __init__(self, lab: ExploredLab, tables: ShownTables) -> None:
        self._lab, self._mask = lab, tables.mask

    def count(self) -> dict[str, int] | None:
        """Return how many jobs are entered, and how many of them are paused; None: they are not known here."""
        if self._lab.folder is None:
            return None
        try:
            jobs = self._lab.jobs.store.jobs()
        except FlussError:  # the screen says what it is
            return None
        return {"jobs": len(jobs), "paused": sum(job.paused_ms is not None for job in jobs)}

    def answer(self, request: JobsRequest) -> Answer:
        """Return jobs and runs; of one run its log; or what an action comes to.

        ``unavailable``: why there are none here. ``jobs``: with ``words``, ``next_ms``, ``durations`` of the last runs (milliseconds and
        state, oldest first). ``runs``, the newest first. ``scheduler``: the process that runs what is due, or None.

        Raises:
            NotFoundError: There is no such job or run.
            FlussError: What was asked for cannot be done; nothing was.
        """
        if self._lab.folder is None:
            return {"unavailable": _UNAVAILABLE, "code": []}
        jobs = self._lab.jobs
        if request.op == "show":
            return self._list(jobs, request.name)
        if request.name is None:
            raise InvalidRequestError(f"jobs: {request.op} needs the name of a job, or the id of a run")
        if request.op == "log":
            return self._log(jobs, request.name)
        code = code_lines.job_action_code(request.op, request.name)
        if request.op == "start":
            return {"run": jobs.start(request.name).id, "code": code}
        if request.op == "rerun":
            return {"run": jobs.find_run(request.name).rerun(wait=False).id, "code": code}
        if request.op == "cancel":
            jobs.cancel(request.name)
            return {"state": jobs.find_run(request.name).state, "code": code}
        job = jobs.pause(request.name) if request.op == "pause" else jobs.resume(request.name)
        return {"paused": job.is_paused, "code": code}

    def _list(self, jobs: Jobs, name: str | None) -> Answer:
        entered = jobs.store.jobs()
        if name is not None and all(job.name != name for job in entered):
            name = None  # removed meanwhile
        runs = jobs.history(name, limit=RUNS_MAX + 1)
        holder = lease_holder(jobs.folder)
        return cut_to_size(
            lambda length: {
                "jobs": [self._job(jobs, record, length) for record in entered[:JOBS_MAX]],
                "total": len(entered),
                "of": name,
                "runs": [self._run(run, length) for run in runs[:RUNS_MAX]],
                "older": len(runs) > RUNS_MAX,
                "scheduler": None if holder is None else holder.pid,
                "command": f"fluss-lab up {shlex.quote(str(jobs.folder))} --jobs",
                "code": code_lines.jobs_code(name, RUNS_MAX) if entered or runs else code_lines.first_job_code(),
                "now_ms": now_ms(),
            },
            _TEXT_MAX,
        )

    def _job(self, jobs: Jobs, record: JobRecord, length: int) -> dict[str, Any]:
        ran = jobs.store.runs(record.name, DURATIONS_MAX, _RAN)
        task = record.task
        return {
            "name": record.name,
            "notebook": _end(task.notebook, length),
            "cron": short(record.cron, length),
            "words": _words(record),
            "zone": record.zone,
            "next_ms": None if record.paused_ms is not None else record.next_due_ms,
            "paused": record.paused_ms is not None,
            "parameters": self._parameters(task.parameters, task.secrets, length),
            "secrets": ", ".join(task.secrets[:20]),
            "durations": [
                [(run.ended_ms or 0) - (run.started_ms or run.ended_ms or 0), run.state] for run in reversed(ran)
            ],
        }

    def _run(self, run: Run, length: int) -> dict[str, Any]:
        record = run.record
        return {
            "id": record.id,
            "job": record.job,
            "state": record.state,
            "trigger": record.trigger,
            "attempt": record.attempt,
            "due_ms": record.due_ms,
            "started_ms": record.started_ms,
            "ended_ms": record.ended_ms,
            "parameters": self._parameters(record.task.parameters, record.task.secrets, length),
            "result": short(self._result(record), length),
        }

    def _result(self, record: RunRecord) -> str:
        """Return what came of a run: its error, or what the notebook reported."""
        if record.error is not None:
            return self._run_text(record, record.error)
        reported = (f"{name}: {_plain(value)}" for name, value in record.summary.items())
        return self._run_text(record, ", ".join([*([] if record.note is None else [record.note]), *reported]))

    def _log(self, jobs: Jobs, run_id: str) -> Answer:
        run = jobs.find_run(run_id)
        record = run.record
        log = self._run_text(record, _log_text(run), lines=True)
        return cut_to_size(
            lambda length: {
                "run": self._run(run, _TEXT_MAX),
                "reason": None if record.error is None else short(self._run_text(record, record.error), length),
                "summary": [
                    [short(visible(str(name)), _TEXT_MAX), short(self._run_text(record, _plain(value)), _TEXT_MAX)]
                    for name, value in list(record.summary.items())[:_TEXT_MAX]
                ]
                if not self._mask.hides
                else [],
                "notebook": _end(str(run.notebook), length),
                "output": _end(str(run.output), length) if run.output.exists() else None,
                "log_file": _end(str(run.log_file), length) if run.log_file.exists() else None,
                "log": log[-length:],
                "log_cut": len(log) > length,
                "secrets": ", ".join(record.task.secrets[:20]),
                "has_ended": record.state in ENDED,
                "code": code_lines.run_code(run_id),
            },
            _LOG_MAX,
        )

    def _parameters(self, parameters: Mapping[str, Any], secrets: Sequence[str], length: int) -> str:
        redactor = _redactor(secrets)
        shown = [
            self._mask.visible_text(f"{name}={_plain(redactor.plain(value))}") for name, value in parameters.items()
        ]
        return short(visible(" ".join(shown)), length)

    def _run_text(self, record: RunRecord, text: str, *, lines: bool = False) -> str:
        """Return what a run said, without the values of its secrets; nothing of it where columns are hidden: it may quote them."""
        known = self._mask.foreign_text(_redactor(record.task.secrets).text(text))
        return "\n".join(visible(line) for line in known.split("\n")) if lines else visible(known)


_UNAVAILABLE: Final = "Jobs and their outputs lie in the lab's folder, on the machine of its servers: a lab that is only connected to has none here."


def _log_text(run: Run) -> str:
    try:
        return run.log
    except FlussError as error:  # the rest of the run is shown
        return str(error)


def _redactor(secrets: Sequence[str]) -> Redactor:
    return Redactor([os.environ[name] for name in secrets if name in os.environ])


def _words(job: JobRecord) -> str:
    try:
        return Schedule.parse(job.cron, job.zone).words
    except FlussError:  # entered by another release
        return ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _end(path: str, length: int) -> str:
    """Return a path, cut at its beginning: its end says which file it is."""
    shown = visible(path)
    return shown if len(shown) <= length else "…" + shown[1 - length :]

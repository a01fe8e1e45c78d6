"""The jobs of a lab: notebooks run on a schedule, or now, with their history."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psutil

from fluss_lab.clock import SystemClock
from fluss_lab.display import Waiting, html_table, progress_html
from fluss_lab.errors import (
    FlussError,
    InvalidPropertyError,
    InvalidRequestError,
    NotebookError,
    RequestTimeoutError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.interrupts import Held
from fluss_lab.jobs.job_handle import Job, listed_job
from fluss_lab.jobs.job_store import JobStore, parameter_text
from fluss_lab.jobs.notebook_library import find_notebook, read_notebook
from fluss_lab.jobs.notebook_parameters import check_parameters
from fluss_lab.jobs.notebook_run import NOTEBOOK_COMMAND
from fluss_lab.jobs.run_execution import RunExecution, failure_text, settle_lost_runs
from fluss_lab.jobs.run_handle import Run, RunHistory
from fluss_lab.jobs.run_processes import identity
from fluss_lab.jobs.run_record import ENDED, JobRecord, RunRecord, RunTask, Trigger, check_job_name, new_run_id
from fluss_lab.jobs.run_secrets import check_parameters_hold_none, check_secret_names, secret_values
from fluss_lab.jobs.scheduling.failure_notice import check_command
from fluss_lab.jobs.scheduling.schedule import Schedule
from fluss_lab.jobs.scheduling.scheduler import remove_old_runs
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import format_duration, format_size, parse_duration, parse_size
from fluss_lab.server.folder.lab_folder import make_lab_folder

TIMEOUT_DEFAULT: Final = "1h"
TIMEOUT_MS_MAX: Final = 365 * 86_400_000
#: Of fewer, a number says its unit.
_UNITLESS_MS_MIN: Final = 60_000
RETRIES_MAX: Final = 100
KEEP_MAX: Final = 1_000_000
#: A kernel alone has some 100 MB.
MEMORY_BYTES_MIN: Final = 256 << 20
#: Longest wait for a run that is cancelled to end.
CANCEL_TIMEOUT_S: Final = 60.0
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_POLL_INTERVAL_S: Final = 0.05
_OVERLAPS: Final = ("skip", "queue")
_CATCH_UPS: Final = ("one", "all", "none")


@check_arguments
class Jobs:
    """The jobs of a lab, as ``lab.jobs``. They need no server: what is scheduled is run by ``fluss-lab jobs run``.

    Args:
        folder: The lab's folder.
        command: Runs a notebook's process.
    """

    def __init__(self, folder: Path, command: Sequence[str] = NOTEBOOK_COMMAND) -> None:
        self.folder = folder.absolute()
        self.store = JobStore(self.folder)
        self._command = command
        self._clock = SystemClock()

    # -- schedules -----------------------------------------------------------------------------------------------------

    def schedule(  # noqa: PLR0913  every policy has a name
        self,
        name: str,
        notebook: str | Path,
        *,
        cron: str,
        parameters: Mapping[str, Any] | None = None,
        secrets: Iterable[str] = (),
        retries: int = 0,
        timeout: str | int | timedelta = TIMEOUT_DEFAULT,
        memory: str | int | None = None,
        overlap: str = "skip",
        catch_up: str = "one",
        keep: int = 50,
        on_failure: Sequence[str] = (),
        time_zone: str | None = None,
        replace: bool = False,
    ) -> Job:
        """Enter a job. A scheduler (``fluss-lab jobs run``, ``fluss-lab up --jobs``) runs it from now on.

        Args:
            name: Its name: letters, digits, ``_`` and ``-``.
            notebook: As `run` has it. Its path is kept; the file is read, and checked again, at each run.
            cron: Five fields, as ``"*/5 * * * *"``, or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``.
            parameters: As `run` has them.
            secrets: As `run` has them; each run takes them from the environment of the scheduler.
            retries: Further attempts of a run that failed, after 10 s, 20 s, ... (at most 10 minutes).
            timeout: Longest time of a run, such as ``"10min"``.
            memory: Most memory of a run; None: half of the machine's.
            overlap: When a run is due while another of the job is under way: ``"skip"`` records it as missed, ``"queue"`` runs
                it afterwards.
            catch_up: Of due times that passed while no scheduler ran, or the job was paused, however long ago: ``"one"`` runs the
                last, ``"all"`` each (the last 100), ``"none"`` none. The others are recorded as missed, with the reason.
            keep: Ended runs that are kept with output and log.
            on_failure: A program and its arguments, run when the last attempt failed; ``{name}``, ``{run}``, ``{error}``,
                ``{notebook}``, ``{output}`` and ``{log}`` are filled in. No shell reads it.
            time_zone: IANA name of the zone of `cron`; None: the system's. Times of day that summer time skips are due right behind
                the gap, those that it repeats are due once (again where the minute begins with ``*``); schedules of every hour
                follow real time.
            replace: Whether a job of that name is replaced; its history stays, what is queued is cancelled, a paused one stays paused.

        Raises:
            InvalidError: What cannot be run is refused now; the text names it. Nothing was entered.
            NotFoundError: There is no such notebook.
            AlreadyExistsError: There is a job of that name.
        """
        check_job_name(name)
        when = Schedule.parse(cron, time_zone)
        task = self._task(notebook, parameters, secrets, timeout, memory)
        job = JobRecord(
            id=0, name=name, task=task, cron=when.cron, zone=when.zone,
            retries=_in_range("retries", retries, 0, RETRIES_MAX),
            overlap=_one_of("overlap", overlap, _OVERLAPS), catch_up=_one_of("catch_up", catch_up, _CATCH_UPS),
            keep=_in_range("keep", keep, 1, KEEP_MAX), on_failure=check_command(on_failure),
            next_due_ms=when.next_due(self._clock.now_ms()),
        )  # fmt: skip
        make_lab_folder(self.folder)
        return listed_job(self.store.add_job(job, replaces=replace, now_ms=self._clock.now_ms()))

    def pause(self, name: str) -> Job:
        """Let a job not run until it is resumed; a run under way goes on. Twice is fine.

        Raises:
            NotFoundError: There is no such job.
        """
        return listed_job(self.store.set_paused(name, self._clock.now_ms(), paused=True))

    def resume(self, name: str) -> Job:
        """Let a paused job run again. What was due meanwhile is made up for as its ``catch_up`` says, or recorded as missed.

        Raises:
            NotFoundError: There is no such job.
        """
        return listed_job(self.store.set_paused(name, self._clock.now_ms(), paused=False))

    def remove(self, name: str) -> None:
        """Remove a job and its queued runs. A run under way goes on; history and outputs stay.

        Raises:
            NotFoundError: There is no such job.
        """
        self.store.remove_job(name)

    def job(self, name: str) -> Job:
        """Return a job.

        Raises:
            NotFoundError: There is no such job; the text has those that are.
        """
        return listed_job(self.store.job(name))

    # -- runs ----------------------------------------------------------------------------------------------------------

    def run(
        self,
        notebook: str | Path,
        parameters: Mapping[str, Any] | None = None,
        *,
        secrets: Iterable[str] = (),
        timeout: str | int | timedelta = TIMEOUT_DEFAULT,
        memory: str | int | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Run:
        """Run a notebook now, by papermill, in processes of its own, and wait for its end.

        Its output, ``jobs/<name>/<run id>.ipynb`` in the lab's folder, is written while it runs. It has a home and a working
        directory of its own there, and sees of the environment what programs need, and what `secrets` names. A parameter
        ``lab_folder`` (or ``lab``) of the notebook that is not given is this lab's folder, as is ``FLUSS_LAB_FOLDER`` in its
        environment. When it has ended, none of its processes is left, but servers that others use.

        Args:
            notebook: The path of an ``.ipynb`` file, or the name of one in ``notebooks`` of the lab's folder or of the checkout.
            parameters: Values for what the notebook's cell tagged ``parameters`` assigns, of its types and in its ranges.
            secrets: Names of environment variables that the notebook reads by ``os.environ``. Their values are in no parameter,
                output or log: what prints them shows ``********``.
            timeout: Longest time, such as ``"10min"``.
            memory: Most memory of all its processes together; None: half of the machine's.
            on_line: Called with each line of its log, by a thread. When it raises, it is called no more, the run goes on to its
                end, and what it raised is raised then.

        Raises:
            InvalidError: A parameter, path or secret that cannot be; nothing was started.
            NotFoundError: There is no such notebook.
            NotebookError: It failed, was cancelled, or passed a limit; the text has cell and reason, the history the run.
        """
        task = self._task(notebook, parameters, secrets, timeout, memory)
        secret_values(task.secrets, os.environ)
        make_lab_folder(self.folder)
        return self._run_now(self._run_record(_folder_name(Path(task.notebook)), None, task, "call"), on_line)

    def start(self, name: str) -> Run:
        """Run a job now, in the background of this process, also while it is paused; return the run, which has begun.

        It stands in the history under the job's name, and is one of its runs: while it is under way, what is due is missed or
        waits, as the job's ``overlap`` says. A failure is not tried again, and sends no notice. When this process ends before it,
        it is ended too.

        Raises:
            NotFoundError: There is no such job, or its notebook is gone; nothing was started.
            InvalidError: The notebook's parameters are others now, or a secret is not in this process's environment; nothing
                was started.
        """
        job = self.store.job(name)
        return self._start(self._run_record(job.name, job.id, job.task, "call"))

    def run_again(self, run: RunRecord, *, wait: bool = True) -> Run:
        """Run what a run did once more, now. See `Run.rerun`."""
        again = self._run_record(run.job, run.job_id, run.task, "rerun")
        if not wait:
            return self._start(again)
        _check_again(run.task)
        return self._run_now(again, None)

    def cancel(self, run: Run | str) -> None:
        """End a run, wherever it runs, and wait until it has; a queued one never starts. One that has ended stays as it is.

        Args:
            run: The run, or its id.

        Raises:
            NotFoundError: There is no such run.
            RequestTimeoutError: Whoever runs it has not ended it in a minute.
        """
        run_id = run.id if isinstance(run, Run) else run
        self.store.run(run_id)
        self.store.cancel_run(run_id, self._clock.now_ms())
        deadline = time.monotonic() + CANCEL_TIMEOUT_S
        while self.store.run(run_id).state not in ENDED:
            settle_lost_runs(self.store, self._clock)
            if time.monotonic() > deadline:
                raise RequestTimeoutError(f"run {run_id}: it has not ended in {CANCEL_TIMEOUT_S:.0f} s; see its log")
            time.sleep(_POLL_INTERVAL_S)

    def history(self, name: str | None = None, *, limit: int = 100) -> RunHistory:
        """Return runs, the newest first: those under way, ended, and due times that were missed.

        Args:
            name: Only those of this job, or of a notebook without one, by what its folder is called; None: of all.
            limit: At most so many.

        Raises:
            NotFoundError: There is neither a job nor a run of that name; the text has the jobs that are.
        """
        _in_range("limit", limit, 1, KEEP_MAX)
        with suppress(StorageError):  # on a full or read-only disk the records are read as they are
            settle_lost_runs(self.store, self._clock)
        found = self.store.runs(name, limit)
        if name is not None and not found:
            self.store.job(name)
        return RunHistory([Run(self, record) for record in found])

    def find_run(self, run_id: str) -> Run:
        """Return a run by its id.

        Raises:
            NotFoundError: There is none.
        """
        return Run(self, self.store.run(run_id))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _task(
        self,
        notebook: str | Path,
        parameters: Mapping[str, Any] | None,
        secrets: Iterable[str],
        timeout: str | int | timedelta,
        memory: str | int | None,
    ) -> RunTask:
        path = find_notebook(notebook, self.folder)
        values = check_parameters(read_notebook(path), parameters or {})
        names = check_secret_names(secrets)
        check_parameters_hold_none(values, [os.environ[name] for name in names if name in os.environ])
        return RunTask(
            notebook=str(path),
            parameters=values,
            secrets=names,
            timeout_ms=_timeout_ms(timeout),
            memory_bytes=_memory(memory),
        )

    def _run_record(self, name: str, job_id: int | None, task: RunTask, trigger: Trigger) -> RunRecord:
        now_ms = self._clock.now_ms()
        return RunRecord(
            id=new_run_id(now_ms), job=name, job_id=job_id, task=task, trigger=trigger, attempt=1, state="queued", queued_ms=now_ms,
            owner=identity(os.getpid()),
        )  # fmt: skip

    def _run_now(self, entered: RunRecord, on_line: Callable[[str], None] | None) -> Run:
        execution = self._begin(entered, on_line)
        # Whoever takes the log's lines shows them instead.
        try:
            with nullcontext() if on_line is not None else _waiting(Path(entered.task.notebook).name, execution):
                run = self._follow(execution)
        finally:
            execution.abandon()  # an interrupt comes anywhere, also just before the run is followed
        if run.state != "succeeded":
            raise NotebookError(
                f"notebook {run.notebook.name}: {run.error or run.state}; see {run.output} and {run.log_file}"
            ) from execution.on_line_error
        if (error := execution.on_line_error) is not None:
            error.add_note(f"raised by on_line; run {run.id} itself {run.state}: see {run.output}")
            raise error
        return run

    def _start(self, entered: RunRecord) -> Run:
        _check_again(entered.task)
        execution = self._begin(entered, None)

        def follow() -> None:
            with suppress(FlussError):  # of a store that cannot be written: whoever asks for the run meets it too
                self._follow(execution)

        threading.Thread(target=follow, name=f"fluss-run-{entered.job}", daemon=True).start()
        return Run(self, execution.record)

    def _begin(self, record: RunRecord, on_line: Callable[[str], None] | None) -> RunExecution:
        self.store.add_run(record)
        failpoint("jobs.run.entered")
        execution = RunExecution(self.store, self.folder, record, self._clock, self._command, on_line)
        try:
            has_begun = execution.begin()
        except BaseException as error:
            reason = failure_text(error) if isinstance(error, FlussError) else "interrupted"
            execution.fail(reason)
            raise
        if not has_begun:
            raise NotebookError(f"notebook {Path(record.task.notebook).name}: cancelled before it began")
        return execution

    def _follow(self, execution: RunExecution) -> Run:
        """Return a run once it has ended; an interrupt ends it."""
        try:
            while not _has_ended(execution):
                time.sleep(_POLL_INTERVAL_S)
        except StorageError as error:
            execution.record_later()
            run = Run(self, execution.record)
            error.add_note(
                f"run {run.id} itself {execution.end_text}; this process, while it lives, records that as soon as jobs can be stored: see "
                f"{run.output}"
            )
            raise
        except BaseException:
            execution.abandon()
            raise
        with suppress(StorageError):  # the run has ended, and is recorded; the next one removes them
            remove_old_runs(self.store, execution.record.job)
        return Run(self, execution.record)

    def __iter__(self) -> Iterator[Job]:
        return iter([listed_job(record) for record in self.store.jobs()])

    def __len__(self) -> int:
        return len(self.store.jobs())

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or f"<no jobs in {self.folder}>"

    def _repr_html_(self) -> str:
        headers = ["job", "notebook", "cron", "zone", "next due", "parameters"]
        rows = [
            (job.name, Path(job.notebook).name, job.cron, job.time_zone, job.next_due or "paused", parameter_text(job.parameters))
            for job in self
        ]  # fmt: skip
        return html_table(f"jobs of {self.folder}", headers, rows)


def jobs_of(folder: Path | None) -> Jobs:
    """Return the jobs of the lab in a folder.

    Raises:
        UnsupportedError: The lab was not opened by its folder.
    """
    if folder is None:
        raise UnsupportedError(
            "jobs and their outputs lie in the lab's folder: expected a lab that was opened by it (Lab.open), on its machine"
        )
    return Jobs(folder)


def _has_ended(execution: RunExecution) -> bool:
    """Return whether a run has ended; an interrupt waits for the look, which would leave files of the system open."""
    with Held():
        return execution.poll()


def _waiting(notebook: str, execution: RunExecution) -> Waiting:
    """Return what shows which cell of a run is under way, while its block runs."""
    began_s = time.monotonic()

    def show() -> tuple[str, str]:
        cell, cells = execution.cell or (0, 0)
        where = f"cell {cell} of {cells}" if cells else "starting its kernel"
        line = f"running {notebook}: {where}, {time.monotonic() - began_s:.0f} s"
        return line, progress_html(line, (cell - 1) / cells if cells else 0.0)

    return Waiting(f"running {notebook}", render=show)


def _check_again(task: RunTask) -> None:
    """Check what was entered once: notebook and environment may have changed since.

    Raises:
        InvalidError, NotFoundError: It cannot be run here any more.
    """
    check_parameters(read_notebook(Path(task.notebook)), task.parameters)
    secret_values(task.secrets, os.environ)


def _folder_name(notebook: Path) -> str:
    """Return what the runs of a notebook without a job are called."""
    return (_NO_NAME.sub("_", notebook.stem).lstrip("-") or "notebook")[:64]


def _timeout_ms(timeout: str | int | timedelta) -> int:
    try:
        found_ms = parse_duration(timeout)
    except InvalidPropertyError as error:
        raise InvalidPropertyError(f"timeout: {error}") from None
    if not 1 <= found_ms <= TIMEOUT_MS_MAX:
        raise InvalidPropertyError(f"timeout: expected 1 ms to {format_duration(TIMEOUT_MS_MAX)}, found {timeout!r}")
    # As `parse_moment` does: of a number without a unit, which is milliseconds, seconds are what was meant.
    if found_ms < _UNITLESS_MS_MIN and str(timeout).strip().isdecimal():
        raise InvalidPropertyError(
            f"timeout: expected a duration with a unit, such as '10min' or '{found_ms}s', found {timeout!r}, which is "
            f"{found_ms} milliseconds: write '{found_ms}ms' if they are meant"
        )
    return found_ms


def _memory(memory: str | int | None) -> int:
    if memory is None:
        return max(int(psutil.virtual_memory().total) // 2, MEMORY_BYTES_MIN)
    try:
        size = parse_size(memory)
    except InvalidPropertyError as error:
        raise InvalidPropertyError(f"memory: {error}") from None
    if size < MEMORY_BYTES_MIN:
        raise InvalidPropertyError(
            f"memory: expected at least {format_size(MEMORY_BYTES_MIN)}, found {format_size(size)}"
        )
    return min(size, 2**62)


def _in_range(what: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise InvalidRequestError(f"{what}: expected {low:,} to {high:,}, found {value:,}")
    return value


def _one_of(what: str, value: str, known: Sequence[str]) -> Any:
    if value not in known:
        raise InvalidRequestError(f"{what}: expected one of {', '.join(known)}, found {value[:60]!r}")
    return value

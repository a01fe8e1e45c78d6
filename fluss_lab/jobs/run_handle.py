"""A run in the hand: its state, output and log, as they are now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol, overload

from fluss_lab.clock import SystemClock
from fluss_lab.display import html_table
from fluss_lab.errors import NotFoundError, StorageError
from fluss_lab.jobs.job_store import JobStore, parameter_text
from fluss_lab.jobs.notebook_run import RunPlace
from fluss_lab.jobs.run_record import ENDED, RunRecord
from fluss_lab.model.times import format_moment

#: Of a log that `Run.log` returns: its end.
LOG_SHOWN_BYTES: Final = 1 << 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RunKeeper(Protocol):
    """Who keeps runs, and can run and end them: `fluss_lab.jobs.Jobs`."""

    store: JobStore

    def run_again(self, run: RunRecord, *, wait: bool = True) -> Run:
        """Run what a run did once more."""
        ...

    def cancel(self, run: Run | str) -> None:
        """End a run."""
        ...


class Run:
    """One run of a notebook. What it says of a run under way is as of the moment that it is asked.

    Runs come from `Lab.run_notebook`, `Jobs.run`, `Jobs.history`.
    """

    def __init__(self, jobs: RunKeeper, record: RunRecord) -> None:
        self._jobs = jobs
        self._record = record

    @property
    def record(self) -> RunRecord:
        """Return what is stored of it now."""
        if self._record.state not in ENDED:
            with suppress(NotFoundError):  # removed with its job, while it was queued
                self._record = self._jobs.store.run(self._record.id)
        return self._record

    @property
    def id(self) -> str:
        """Return its id."""
        return self._record.id

    @property
    def job(self) -> str:
        """Return the job's name; of a run without a job, what its folder is called."""
        return self._record.job

    @property
    def notebook(self) -> Path:
        """Return the notebook that is run; it is never written."""
        return Path(self._record.task.notebook)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters that were given."""
        return self._record.task.parameters

    @property
    def state(self) -> str:
        """Return ``queued``, ``running``, ``succeeded``, ``failed``, ``cancelled`` or ``missed``."""
        return self.record.state

    @property
    def error(self) -> str | None:
        """Return why it failed, was cancelled or missed, with the cell that failed; None else."""
        return self.record.error

    @property
    def note(self) -> str | None:
        """Return what is to be said of one that succeeded: which of its cells were not run, as one of them called ``exit()``."""
        return self.record.note

    @property
    def cell(self) -> int | None:
        """Return the number of the cell that failed, counted as Jupyter does; None when none did."""
        return self.record.cell

    @property
    def seconds(self) -> float | None:
        """Return how long it took, or takes by now; None before it starts."""
        record = self.record
        if record.started_ms is None:
            return None
        ended_ms = SystemClock().now_ms() if record.ended_ms is None else record.ended_ms
        return max(0, ended_ms - record.started_ms) / 1000  # the clock may have been set back

    @property
    def due(self) -> datetime | None:
        """Return when it was due; None for a run without a schedule."""
        return None if self._record.due_ms is None else _EPOCH + timedelta(milliseconds=self._record.due_ms)

    @property
    def attempt(self) -> int:
        """Return which attempt it is, from 1."""
        return self._record.attempt

    @property
    def summary(self) -> Mapping[str, Any]:
        """Return what the notebook reported: its outputs of type ``SUMMARY_MIME``, merged."""
        return self.record.summary

    @property
    def output(self) -> Path:
        """Return the executed notebook's file; it is written while the run goes on, and never again."""
        return self._place.output

    @property
    def log_file(self) -> Path:
        """Return the file of its log."""
        return self._place.log

    @property
    def log(self) -> str:
        """Return what it printed until now: the last megabyte of it; empty before it starts.

        Raises:
            NotFoundError: The file is gone.
            StorageError: It cannot be read.
        """
        return read_log(self, -LOG_SHOWN_BYTES).decode("utf-8", "replace")

    def rerun(self, *, wait: bool = True) -> Run:
        """Run it again now, in this process, with the same notebook file, parameters, secrets and limits; return the new run.

        Args:
            wait: Whether to wait for its end; else it goes on in the background of this process.

        Raises:
            InvalidError, NotFoundError: The notebook has changed so that the parameters do not fit, or is gone.
            NotebookError: The new run failed, and its end was waited for.
        """
        return self._jobs.run_again(self.record, wait=wait)

    def cancel(self) -> None:
        """End it, wherever it runs. See `Jobs.cancel`."""
        self._jobs.cancel(self)

    @property
    def _place(self) -> RunPlace:
        return RunPlace.of(self._jobs.store.folder, self._record.job, self._record.id)

    def __repr__(self) -> str:
        record = self.record
        seconds = "" if self.seconds is None else f", {self.seconds:.1f} s"
        said = record.error or record.note
        return f"<Run {record.id} of {record.job}: {record.state}{seconds}{'' if said is None else f': {said}'}>"

    def _repr_html_(self) -> str:
        record = self.record
        rows: list[tuple[str, object]] = [
            ("state", record.state),
            ("notebook", self.notebook),
            ("parameters", parameter_text(record.task.parameters) or None),
            ("due", _moment(record.due_ms)),
            ("started", _moment(record.started_ms)),
            ("seconds", None if self.seconds is None else f"{self.seconds:.1f}"),
            ("error", record.error),
            *([] if record.note is None else [("note", record.note)]),
            ("output", self.output if record.state != "missed" else None),
            *record.summary.items(),
        ]
        return html_table(f"run {record.id} of {record.job}", ["what", "value"], rows)


def read_log(run: Run, start: int) -> bytes:
    """Return what a run's log has from a position on, which counts from its end where it is below zero; nothing before the run starts.

    Raises:
        NotFoundError: The file is gone.
        StorageError: It cannot be read.
    """
    has_begun = run.record.started_ms is not None
    try:
        with run.log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) + start) if start < 0 else start)
            return file.read()
    except FileNotFoundError as error:
        if not has_begun:
            return b""
        raise NotFoundError(
            f"run {run.id}: its log {run.log_file} was removed: what it printed is not known"
        ) from error
    except OSError as error:
        raise StorageError(
            f"run {run.id}: its log {run.log_file} cannot be read: {error.strerror}; mend owner and mode, or the disk"
        ) from error


class RunHistory(Sequence[Run]):
    """Runs, the newest first."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = list(runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> RunHistory: ...
    def __getitem__(self, index: int | slice) -> Run | RunHistory:
        return RunHistory(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._runs)) or "<no runs>"

    def _repr_html_(self) -> str:
        headers = ["run", "job", "state", "due", "started", "seconds", "attempt", "error"]
        rows = [
            (run.id, run.job, run.state, _moment(run.record.due_ms), _moment(run.record.started_ms),
             None if run.seconds is None else f"{run.seconds:.1f}", run.attempt, run.error or run.note)
            for run in self._runs
        ]  # fmt: skip
        return html_table(f"{len(rows)} runs", headers, rows)


def _moment(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_moment(moment_ms)

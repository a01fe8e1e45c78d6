"""A run's way through the store: checked, started, watched, recorded; by whichever process owns it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fluss_lab.clock import Clock
from fluss_lab.errors import FlussError, NotFoundError, StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.interrupts import Held
from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.notebook_library import Notebook, read_notebook
from fluss_lab.jobs.notebook_parameters import NotebookParameter, check_parameters, notebook_parameters
from fluss_lab.jobs.notebook_run import NOTEBOOK_COMMAND, NotebookRun, RunPlace, remove_drafts, remove_scratch
from fluss_lab.jobs.run_processes import identity, is_alive, kill_run
from fluss_lab.jobs.run_record import ENDED, RunRecord
from fluss_lab.jobs.run_secrets import check_secret_names

#: Names of the parameter by which a notebook finds its lab.
LAB_PARAMETERS: Final = ("lab_folder", "lab")
#: Between two looks whether the run was cancelled.
_CANCEL_INTERVAL_S: Final = 0.5
#: Between two tries to record an end in a store that cannot be written, such as one on a full disk.
_RECORD_INTERVAL_S: Final = 1.0
#: Longest from where a run is entered by hand to where its process is recorded.
_BEGINNING_MS: Final = 600_000
_LOST: Final = (
    "whoever ran it (scheduler, command or notebook) ended while it was under way, or before its end could be stored; what was left of "
    "it was ended too"
)
_NEVER_BEGUN: Final = "not started: whoever entered it (command or notebook) ended before it began"


def with_lab(notebook: Notebook, parameters: dict[str, Any], lab: Path) -> dict[str, Any]:
    """Return parameters with the lab's folder, where the notebook has a parameter for it that was not given."""
    known = notebook_parameters(notebook)
    for name in LAB_PARAMETERS:
        found = known.get(name)
        if found is not None and name not in parameters and _takes_text(found):
            return {name: str(lab), **parameters}
    return parameters


def _takes_text(parameter: NotebookParameter) -> bool:
    return isinstance(parameter.default, str) or parameter.type in {"str", "str | None", "Any"}


class RunExecution:
    """One run, executed by this process.

    Args:
        store: Where it is recorded.
        lab: The lab's folder.
        record: The run, as it is queued in the store.
        clock: Stamps its start and end.
        command: Runs the notebook's process.
        on_line: Called with each line of the log.
    """

    def __init__(
        self,
        store: JobStore,
        lab: Path,
        record: RunRecord,
        clock: Clock,
        command: Sequence[str] = NOTEBOOK_COMMAND,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.record = record
        self._store = store
        self._lab = lab
        self._clock = clock
        self._command = command
        self._on_line = on_line
        self._run: NotebookRun | None = None
        self._ended: dict[str, Any] | None = None
        self._recorder: threading.Thread | None = None
        self._looked_s = 0.0
        self._began_ms = 0

    def begin(self) -> bool:
        """Check notebook, parameters and secrets once more, and start the run.

        Returns:
            False when the run was cancelled or removed meanwhile; nothing was started.

        Raises:
            FlussError: It cannot be started; nothing was, and the record is as before.
        """
        task = self.record.task
        # What the store has was checked when it was entered; notebook and environment may have changed, and others may write it.
        notebook = read_notebook(Path(task.notebook))
        check_secret_names(task.secrets)
        parameters = with_lab(notebook, check_parameters(notebook, task.parameters), self._lab)
        place = RunPlace.of(self._store.folder, self.record.job, self.record.id)
        run = NotebookRun(
            self.record.id, task, notebook, parameters, place, self._lab, self._command, self._on_line
        )  # fmt: skip
        run.start()
        changed = None
        try:
            failpoint("jobs.run.started")
            self._began_ms = self._clock.monotonic_ms()
            # Recorded before the notebook begins: a run that nobody knows of never did anything.
            changed = self._store.change_run(
                self.record.id, state="running", owner=identity(os.getpid()),
                started_ms=self._clock.now_ms(),
            )  # fmt: skip
            failpoint("jobs.run.recorded")
            if changed is not None:
                self.record, self._run = changed, run
                run.release()
        except BaseException:
            with Held():
                run.abandon("interrupted before it began")  # else it would go on with nobody to look after it
            raise
        if changed is None:
            run.abandon("removed before it began")
        return changed is not None

    def poll(self) -> bool:
        """Return whether the run has ended; then `record` is its last state, and is stored.

        Raises:
            StorageError: It has ended, and the store cannot be written now: another call, or `record_later`, stores the same.
        """
        if self._ended is None:
            assert self._run is not None
            result = self._run.poll()
            if result is None:
                self._look_whether_cancelled()
                return False
            failpoint("jobs.run.ended")
            # Kept: where the store cannot be written now, the same is recorded later.
            self._ended = {
                "state": result.state, "error": result.error, "cell": result.cell, "summary": result.summary,
                "note": result.note, "ended_ms": self._end_ms(),
            }  # fmt: skip
        self.record = self._store.end_run(self.record.id, **self._ended) or replace(self.record, **self._ended)
        failpoint("jobs.run.settled")
        return True

    def _end_ms(self) -> int:
        """Return the time; where the clock was set back meanwhile, as it would be without: no run ends before it starts."""
        return max(
            self._clock.now_ms(),
            (self.record.started_ms or 0) + self._clock.monotonic_ms() - self._began_ms,
        )

    def _look_whether_cancelled(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s > _CANCEL_INTERVAL_S:
            self._looked_s = now_s
            try:
                if self._store.run(self.record.id).is_cancelled:
                    self.end("cancelled", "cancelled")
            except NotFoundError:
                self.end("failed", f"its record is gone: {self._store.path} was removed while it was under way")
            except StorageError:
                pass  # it passes: no reason to end a run, and the next look asks again

    @property
    def cell(self) -> tuple[int, int] | None:
        """Return the cell under way, from 1, and how many there are; None before the first."""
        return None if self._run is None else self._run.cell

    @property
    def on_line_error(self) -> BaseException | None:
        """Return what `on_line` raised; None when it did not."""
        return None if self._run is None else self._run.on_line_error

    @property
    def end_text(self) -> str:
        """Return how it has ended, stored or not; empty before."""
        if self._ended is None:
            return ""
        return ": ".join(filter(None, (self._ended["state"], self._ended.get("error"))))

    def end(self, state: str, reason: str) -> None:
        """End the run at once; `poll` then records it with this state and reason."""
        if self._run is not None:
            self._run.end(state, reason)

    def abandon(self) -> None:
        """End the run, if it has not ended, as whoever waits for it was interrupted; and record that.

        A second interrupt waits until that is done, some seconds at most.
        """
        with Held():
            if self.record.state not in ENDED:
                self.end("cancelled", "interrupted")
                self._record_end()

    def fail(self, reason: str) -> None:
        """Record a run that could not begin as failed."""
        with Held():
            self._ended = {"state": "failed", "error": reason, "ended_ms": self._clock.now_ms()}
            self._record_end()

    def _record_end(self) -> None:
        try:
            self.poll()
        except StorageError:
            self.record_later()

    def record_later(self) -> None:
        """Record the end of a run as soon as its store can be written again, in the background, while this process lives."""
        if self._recorder is None:
            self._recorder = threading.Thread(target=self._record, name=f"fluss-record-{self.record.job}", daemon=True)
            self._recorder.start()

    def _record(self) -> None:
        while True:
            try:
                self.poll()  # in a lab that was removed meanwhile nothing is made anew
                return
            except StorageError:
                time.sleep(_RECORD_INTERVAL_S)


def settle_lost_runs(store: JobStore, clock: Clock) -> list[RunRecord]:
    """Record runs whose owner has ended as failed, and end what they left; return them.

    Raises:
        FlussError: The store cannot be read or written.
    """
    settled = []
    for run in store.runs(limit=-1, states=("queued", "running")):
        if not _is_lost(run, clock.now_ms()):
            continue
        kill_run(run.id)
        remove_scratch(run.id)
        remove_drafts(RunPlace.of(store.folder, run.job, run.id))
        error = _LOST if run.state == "running" else _NEVER_BEGUN
        ended_ms = max(clock.now_ms(), run.started_ms or 0)
        changed = store.end_run(run.id, state="failed", error=error, ended_ms=ended_ms)
        if changed is not None:
            settled.append(changed)
    return settled


def _is_lost(run: RunRecord, now_ms: int) -> bool:
    if run.owner is not None:
        return not is_alive(run.owner)
    # A queued one without an owner is the scheduler's, or by an older release: that began it in a moment or never.
    return run.state == "running" or (run.is_by_hand and now_ms - run.queued_ms > _BEGINNING_MS)


def failure_text(error: FlussError) -> str:
    """Return what is recorded of a run that could not be started."""
    return f"not started: {error}"

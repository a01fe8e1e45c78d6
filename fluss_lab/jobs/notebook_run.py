"""One run of a notebook: its processes, its limits, its log, and what became of it."""

from __future__ import annotations

import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from fluss_lab import files
from fluss_lab.errors import StorageError
from fluss_lab.files import make_folder
from fluss_lab.jobs.notebook_library import Notebook
from fluss_lab.jobs.run_environment import run_environment
from fluss_lab.jobs.run_log import RunLog, create_file
from fluss_lab.jobs.run_processes import exceeds_memory, kill_run
from fluss_lab.jobs.run_record import RunTask, check_job_name
from fluss_lab.jobs.run_secrets import Redactor, check_parameters_hold_none, option_secrets, secret_values
from fluss_lab.model.config.config_chain import RUN_VARIABLE
from fluss_lab.model.times import format_duration, format_size
from fluss_lab.server.process.discovery import TOKEN_FILE

#: Runs the notebook's process.
NOTEBOOK_COMMAND: Final = (sys.executable, "-m", "fluss_lab.jobs.notebook_process")
SCRATCH_PREFIX: Final = "fluss-run-"
#: Between two looks at how much memory a run holds: it can be filled by some 1 GB meanwhile.
MEMORY_INTERVAL_S: Final = 0.25
#: After the process has ended, its pipes may be kept open by processes that it left: they are killed.
_DRAIN_TIMEOUT_S: Final = 5.0
_FOLDERS_TODO: Final = "expected folders that you can write, on a disk with room"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run leaves what: made of ids, never of parameters.

    Attributes:
        output: The executed notebook.
        log: What it printed.
        work: The working directory, which the runs of a job share.
        home: The home, which the runs of a job share.
    """

    output: Path
    log: Path
    work: Path
    home: Path

    @staticmethod
    def of(jobs_folder: Path, job: str, run_id: str) -> RunPlace:
        """Return the place of a run.

        Raises:
            InvalidNameError: The store has a name that was not checked: another program wrote it.
        """
        folder = jobs_folder / check_job_name(job)
        check_job_name(run_id)
        return RunPlace(folder / f"{run_id}.ipynb", folder / f"{run_id}.log", folder / "files", folder / "home")


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run.

    Attributes:
        state: ``succeeded``, ``failed`` or ``cancelled``.
        error: Why it did not succeed.
        cell: The number of the cell that failed.
        summary: What the notebook reported.
        note: What is to be said of a run that succeeded.
    """

    state: str
    error: str | None = None
    cell: int | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None


class NotebookRun:
    """A run under way, in processes of its own, which end with this one.

    Args:
        run_id: Its id.
        task: What it does.
        notebook: The notebook, as it was when the parameters were checked.
        parameters: The checked parameters, the lab's folder among them.
        place: Where it leaves what.
        lab: The lab's folder.
        command: Runs the notebook's process.
        on_line: Called with each line of the log, in a thread; after it has raised, no more.

    Attributes:
        on_line_error: What `on_line` raised; None when it did not.

    Raises:
        InvalidRequestError: A secret is not in the environment, or is a parameter too.
        InvalidPropertyError, LabError: The lab's options cannot be read: which secrets they hold is not known.
    """

    def __init__(
        self,
        run_id: str,
        task: RunTask,
        notebook: Notebook,
        parameters: Mapping[str, Any],
        place: RunPlace,
        lab: Path,
        command: Sequence[str] = NOTEBOOK_COMMAND,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.id = run_id
        self.place = place
        self._task = task
        self._notebook = notebook
        self._parameters = dict(parameters)
        self._command = list(command)
        self._on_line = on_line
        self.on_line_error: BaseException | None = None
        secrets = secret_values(task.secrets, os.environ)
        self._environment = run_environment(secrets) | {
            RUN_VARIABLE: run_id,
            "FLUSS_LAB_FOLDER": str(lab),
            "HOME": str(place.home),
        }
        self._hidden = [*secrets.values(), *option_secrets(os.environ, lab)]
        check_parameters_hold_none(self._parameters, self._hidden)
        self._token_file = lab / TOKEN_FILE
        self._redactor = Redactor(self._hidden, self._token_file)
        self._cell: tuple[int, int] | None = None
        self._report: dict[str, Any] | None = None
        self._verdict: RunResult | None = None
        self._looked_s = 0.0
        self._threads: list[threading.Thread] = []
        self.scratch = Path()

    def start(self) -> int:
        """Start the process, which waits for its task; return its id.

        Raises:
            StorageError: Its folders and files cannot be made.
        """
        try:
            for folder in (self.place.home, self.place.work):
                make_folder(folder)
            self._remove_leavings()
            self._make_scratch()
            with create_file(self.place.output) as output:
                output.write(self._notebook.text.encode())
            self._log = RunLog(self.place.log)
        except OSError as error:
            with suppress(OSError):  # a notebook that is cut off is no output
                self._remove_leavings()
            raise StorageError(f"{self.place.output.parent}: the run cannot begin: {error}; {_FOLDERS_TODO}") from error
        reader, writer = os.pipe()
        self._writer = writer
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=self._environment | {"TMPDIR": str(self.scratch)}, cwd=str(self.place.work), start_new_session=True,
                pass_fds=(writer,), umask=0o077,
            )  # fmt: skip
        except OSError as error:
            os.close(reader)
            self._log.close()
            with suppress(OSError):
                self._remove_leavings()
            raise StorageError(f"run {self.id}: its process cannot be started: {error}; {_FOLDERS_TODO}") from error
        finally:
            os.close(writer)
        for target, source in ((self._copy_log, self._process.stdout), (self._read_reports, os.fdopen(reader, "rb"))):
            thread = threading.Thread(target=target, args=(source,), name="fluss-run-pipe", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self._process.pid

    def _make_scratch(self) -> None:
        try:
            self.scratch = Path(tempfile.mkdtemp(prefix=_scratch_prefix(self.id)))
            (self.scratch / self._notebook.path.name).write_text(self._notebook.text, encoding="utf-8")
        except OSError as error:
            remove_scratch(self.id)
            raise files.temporary_refusal(files.temporary_root(), error) from error

    def _remove_leavings(self) -> None:
        """Remove what a start of this very run left that was killed before it was recorded: nothing had run."""
        remove_scratch(self.id)
        remove_drafts(self.place)
        for path in (self.place.log, self.place.output):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let the started process begin with the notebook."""
        task = {
            "source": str(self.scratch / self._notebook.path.name), "notebook": str(self._notebook.path),
            "output": str(self.place.output), "cwd": str(self.place.work), "parameters": self._parameters,
            "secrets": self._hidden, "token_file": str(self._token_file), "reports_fd": self._writer,
        }  # fmt: skip
        assert self._process.stdin is not None
        self._started_s = time.monotonic()
        with suppress(OSError):  # it has ended already: `poll` says so
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()

    def poll(self) -> RunResult | None:
        """Return what became of the run, None while it is under way; end it when it is past a limit.

        When this returns a result, no process of the run is left.
        """
        if self._process.poll() is None:
            if (passed := self._passed_limit()) is None:
                return None
            self.end("failed", passed)
        return self._end()

    def end(self, state: str, reason: str) -> None:
        """End the run at once, with this state and reason."""
        if self._verdict is None and self._process.poll() is None:
            self._verdict = RunResult(state, reason, None if self._cell is None else self._cell[0])
        # A process that has just begun has no environment yet by which it is found.
        self._process.kill()
        kill_run(self.id)
        self._process.wait()

    def abandon(self, reason: str) -> None:
        """End a run that has been started, and that nobody will poll."""
        self.end("cancelled", reason)
        self._end()

    @property
    def cell(self) -> tuple[int, int] | None:
        """Return the cell under way, from 1, and how many there are; None before the first."""
        return self._cell

    def _passed_limit(self) -> str | None:
        now_s = time.monotonic()
        if now_s - self._started_s > self._task.timeout_ms / 1000:
            return f"the time limit of {format_duration(self._task.timeout_ms)} has passed{self._at_cell()}"
        if now_s - self._looked_s > MEMORY_INTERVAL_S:
            self._looked_s = now_s
            if exceeds_memory(self._process.pid, self._task.memory_bytes):
                return f"its processes hold more than {format_size(self._task.memory_bytes)} of memory{self._at_cell()}"
        return None

    def _at_cell(self) -> str:
        return "" if self._cell is None else f", in cell {self._cell[0]} of {self._cell[1]}"

    def _end(self) -> RunResult:
        # Also after a good end: a JVM, or whatever else the notebook left running.
        is_clean = kill_run(self.id)
        for thread in self._threads:
            thread.join(_DRAIN_TIMEOUT_S)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        remove_drafts(self.place)
        if self._verdict is not None:
            result = self._verdict
        elif self._report is None:
            result = RunResult("failed", f"its process ended with code {self._process.returncode}{self._at_cell()}")
        elif (error := self._report.get("error")) is not None:
            result = RunResult("failed", str(error), self._report.get("cell"))
        else:
            result = RunResult("succeeded", summary=self._report.get("summary") or {}, note=self._report.get("note"))
        if not is_clean:
            result = RunResult("failed", f"{result.error or 'it ended'}; a process of it cannot be killed", result.cell)
        self._say(": ".join(filter(None, (result.state, result.error or result.note))))
        self._log.close()
        if (lack := self._log.lack) is None:
            return result
        if result.error is None:
            return replace(result, note="; ".join(filter(None, (result.note, lack))))
        return replace(result, error=f"{result.error}; {lack}")

    def _read_reports(self, source: IO[bytes]) -> None:
        with source:
            for line in source:
                try:
                    report = json.loads(line)
                except ValueError:
                    continue  # cut off by its end
                if report.get("end"):
                    self._report = report
                elif "cell" in report:
                    self._cell = (report["cell"], report["of"])

    def _copy_log(self, source: BinaryIO) -> None:
        with io.TextIOWrapper(source, encoding="utf-8", errors="replace", newline="\n") as text:
            for line in self._redactor.lines(text):
                self._say(line)

    def _say(self, line: str) -> None:
        text = self._redactor.text(line)
        self._log.write(text)
        if self._on_line is None:
            return
        try:
            self._on_line(text)
        except BaseException as error:
            # The run goes on, and its lines are read: a pipe that nobody reads ends whoever writes to it.
            self._on_line, self.on_line_error = None, error
            self._log.write(
                self._redactor.text(f"... on_line raised {type(error).__name__}: {error}; it gets no more lines")
            )


def _scratch_prefix(run_id: str) -> str:
    # Short: the kernel's sockets lie there.
    return f"{SCRATCH_PREFIX}{run_id[-6:]}-"


def remove_scratch(run_id: str) -> None:
    """Remove the temporary folder of a run that was killed."""
    for path in files.temporary_root().glob(f"{glob.escape(_scratch_prefix(run_id))}*"):
        shutil.rmtree(path, ignore_errors=True)


def remove_drafts(place: RunPlace) -> None:
    """Remove what a run that was killed was about to save as its output."""
    with suppress(OSError):
        for path in place.output.parent.glob(f".{place.output.name}.*"):
            path.unlink(missing_ok=True)

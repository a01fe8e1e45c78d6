"""The commands of ``fluss-lab`` for notebooks as jobs: run one now, schedule, history, the scheduler."""

from __future__ import annotations

import codecs
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fluss_lab.cli.folder_argument import folder_option, folder_words
from fluss_lab.cli.output import json_option, print_objects
from fluss_lab.errors import InvalidRequestError, ServerUnavailableError, StorageError

if TYPE_CHECKING:
    from fluss_lab.jobs import Job, Jobs, Run

Command = TypeVar("Command", bound=Callable[..., Any])

_FOLLOW_INTERVAL_S: Final = 0.2
#: A scheduler that was started in the background has taken its lease, or failed, by then.
_START_TIMEOUT_S: Final = 30.0
_OUTPUT_FILE: Final = "scheduler.log"

_pairs_option = click.option(
    "--parameter", "-p", "pairs", nargs=2, multiple=True, metavar="NAME VALUE",
    help="Of the notebook's own; a text as it is, else JSON. Repeatable.",
)  # fmt: skip
_secrets_option = click.option(
    "--secret", "secrets", multiple=True, metavar="NAME",
    help="An environment variable that the notebook sees; never its value. Repeatable.",
)  # fmt: skip
_timeout_option = click.option("--timeout", default="1h", show_default=True, help="Longest time of a run.")
_memory_option = click.option(
    "--memory", default=None, help="Most memory of a run, as 4gb. Default: half of the machine's."
)


def _open_jobs(folder: Path) -> Jobs:
    from fluss_lab.jobs import Jobs
    from fluss_lab.server.folder.lab_folder import check_lab_exists

    check_lab_exists(folder.absolute())
    return Jobs(folder)


def _parameters(folder: Path, notebook: str, pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the parameters that texts mean to the notebook; names that it does not have are refused later."""
    from fluss_lab.jobs.notebook_library import find_notebook, read_notebook
    from fluss_lab.jobs.notebook_parameters import notebook_parameters

    known = notebook_parameters(read_notebook(find_notebook(notebook, folder.absolute()))) if pairs else {}
    return {name: known[name].value_of(text) if name in known else text for name, text in pairs}


@click.command()
@click.argument("notebook")
@_pairs_option
@_secrets_option
@_timeout_option
@_memory_option
@click.option("--quiet", "-q", is_flag=True, help="Do not print the log.")
@json_option
@folder_option
def run(
    folder: Path,
    notebook: str,
    pairs: tuple[tuple[str, str], ...],
    secrets: tuple[str, ...],
    timeout: str,
    memory: str | None,
    quiet: bool,
    is_json: bool,
) -> None:
    """Run NOTEBOOK now, by papermill, in processes of its own; its log goes to standard error.

    NOTEBOOK is a file, or the name of one in `notebooks` of the lab's folder or of the checkout. The executed copy is
    jobs/<name>/<run id>.ipynb in the lab's folder.
    """
    opened = _open_jobs(folder)
    values = _parameters(folder, notebook, pairs)
    on_line = None if quiet else _print_line
    done = opened.run(notebook, values, secrets=secrets, timeout=timeout, memory=memory, on_line=on_line)
    if is_json:
        _print_json(_run_json(done))
    else:
        click.echo(repr(done))
        click.echo(f"output notebook: {done.output}")


def _print_line(line: str) -> None:
    with suppress(BrokenPipeError):  # nobody reads the log here any more: the run and what is printed of it go on
        click.echo(line, err=True)


@click.group()
def jobs() -> None:
    """Notebooks that run on a schedule, and the history of runs."""


@jobs.command("list")
@json_option
@folder_option
def list_jobs(folder: Path, is_json: bool) -> None:
    """List the jobs, and which process schedules them."""
    from fluss_lab.cli.text_tables import text_table
    from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder

    opened = _open_jobs(folder)
    found = list(opened)
    holder = lease_holder(opened.folder)
    if is_json:
        _print_json({"jobs": list(map(_job_json, found)), "scheduler": None if holder is None else holder.pid})
        return
    rows = [(job.name, Path(job.notebook).name, job.cron, job.time_zone, job.next_due or "paused") for job in found]
    if rows:
        click.echo(text_table(("job", "notebook", "cron", "zone", "next due"), rows))
    command = f"fluss-lab jobs run{folder_words(folder)}"
    scheduled = f"scheduled by process {holder.pid}" if holder else f"no scheduler runs; `{command}` is one"
    click.echo(f"{len(rows)} jobs; {scheduled}")


@jobs.command()
@click.argument("name")
@click.argument("notebook")
@click.option("--cron", required=True, help="Five fields, as '*/5 * * * *', or @hourly, @daily, @weekly, @monthly.")
@_pairs_option
@_secrets_option
@click.option("--retries", type=int, default=0, show_default=True, help="Further attempts of a failed run.")
@_timeout_option
@_memory_option
@click.option("--overlap", default="skip", show_default=True, help="While a run is under way: skip or queue.")
@click.option("--catch-up", default="one", show_default=True, help="Of what was due while nothing ran: one, all, none.")
@click.option("--keep", type=int, default=50, show_default=True, help="Ended runs that are kept.")
@click.option(
    "--on-failure",
    multiple=True,
    metavar="WORD",
    help="A program, then its arguments ({name}, {run}, {error}). Repeatable.",
)
@click.option("--time-zone", default=None, help="As Europe/Berlin. Default: the system's.")
@click.option("--replace", is_flag=True, help="Replace a job of that name.")
@json_option
@folder_option
def schedule(
    folder: Path, name: str, notebook: str, pairs: tuple[tuple[str, str], ...], is_json: bool, **policies: Any
) -> None:
    """Enter the job NAME, which runs NOTEBOOK."""
    opened = _open_jobs(folder)
    made = opened.schedule(name, notebook, parameters=_parameters(folder, notebook, pairs), **policies)
    _print_job(made, is_json)


def _job_command(verb: str, text: str) -> click.Command:
    @click.argument("name")
    @json_option
    @folder_option
    def command(folder: Path, name: str, is_json: bool) -> None:
        _print_job(getattr(_open_jobs(folder), verb)(name), is_json)

    return click.command("show" if verb == "job" else verb, help=text)(command)


for _verb, _text in (
    ("job", "Show the job NAME."),
    ("pause", "Let the job NAME not run until it is resumed."),
    ("resume", "Let the job NAME run again."),
):
    jobs.add_command(_job_command(_verb, _text))


@jobs.command()
@click.argument("name")
@folder_option
def remove(folder: Path, name: str) -> None:
    """Remove the job NAME; history and outputs stay."""
    _open_jobs(folder).remove(name)
    click.echo(f"removed {name}")


@jobs.command()
@click.argument("name", required=False)
@click.option("--limit", type=int, default=20, show_default=True, help="At most so many.")
@json_option
@folder_option
def history(folder: Path, name: str | None, limit: int, is_json: bool) -> None:
    """List runs, of the job NAME or of all, the newest first."""
    from fluss_lab.cli.text_tables import text_table
    from fluss_lab.model.times import format_moment

    found = _open_jobs(folder).history(name, limit=limit)
    if is_json:
        _print_json(*map(_run_json, found))
        return
    rows = [
        (each.id, each.job, each.state, None if each.record.due_ms is None else format_moment(each.record.due_ms),
         None if each.seconds is None else f"{each.seconds:.1f}", each.attempt, (each.error or each.note or "")[:80])
        for each in found
    ]  # fmt: skip
    click.echo(text_table(("run", "job", "state", "due", "seconds", "attempt", "error"), rows) if rows else "no runs")


@jobs.command("log")
@click.argument("run_id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Until the run ends.")
@folder_option
def print_log(folder: Path, run_id: str, follow: bool) -> None:
    """Print the log of RUN."""
    from fluss_lab.jobs.run_handle import read_log

    opened = _open_jobs(folder)
    found = opened.find_run(run_id)
    shown = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be written in parts
    while True:
        if follow:
            opened.history(limit=1)  # records runs whose process is gone as ended
        has_ended = found.state not in {"queued", "running"}
        said = read_log(found, shown)
        shown += len(said)
        click.echo(decoder.decode(said, final=has_ended or not follow), nl=False)
        if has_ended or not follow:
            return
        time.sleep(_FOLLOW_INTERVAL_S)


@jobs.command()
@click.argument("run_id", metavar="RUN")
@json_option
@folder_option
def cancel(folder: Path, run_id: str, is_json: bool) -> None:
    """End RUN, wherever it runs."""
    opened = _open_jobs(folder)
    opened.cancel(run_id)
    _print_run(opened.find_run(run_id), is_json)


@jobs.command()
@click.argument("run_id", metavar="RUN")
@json_option
@folder_option
def rerun(folder: Path, run_id: str, is_json: bool) -> None:
    """Run once more, now, what RUN did."""
    _print_run(_open_jobs(folder).find_run(run_id).rerun(), is_json)


@jobs.command("run")
@click.option("--runs", "runs_max", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs at a time.")
@click.option("--detached", is_flag=True, hidden=True)
@folder_option
def run_jobs(folder: Path, runs_max: int, detached: bool) -> None:
    """Run the lab's jobs when they are due, in the foreground, until Ctrl-C or SIGTERM.

    One scheduler works for a lab; a second one is refused. It needs no server: the notebooks attach to the lab. Runs under way
    when it ends are ended, and count as failed.
    """
    from fluss_lab.jobs import Scheduler

    opened = _open_jobs(folder)
    ended = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    Scheduler(opened.folder, runs_max=runs_max, on_event=click.echo, is_detached=detached).run(ended)


def start_detached(folder: Path) -> int:
    """Start a scheduler in the background, unless one works for the lab; return the id of its process.

    Raises:
        ServerUnavailableError: It did not start; the text has what it said.
        StorageError: Its log cannot be written.
    """
    from fluss_lab.jobs.job_store import JOBS_FOLDER
    from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder

    if (holder := lease_holder(folder)) is not None:
        return holder.pid
    output = folder / JOBS_FOLDER / _OUTPUT_FILE
    command = [sys.executable, "-m", "fluss_lab.cli", "jobs", "run", "--folder", str(folder), "--detached"]
    try:
        output.parent.mkdir(mode=0o700, exist_ok=True)
        file = output.open("ab")
    except OSError as error:
        raise StorageError(
            f"{output}: no scheduler was started, as what it says cannot be written there: {error.strerror}; make the lab's folder "
            "writable"
        ) from error
    with file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    # A process must be reaped by its parent, or it stays as a zombie.
    threading.Thread(target=process.wait, name="fluss-scheduler-reaper", daemon=True).start()
    deadline = time.monotonic() + _START_TIMEOUT_S
    while (holder := lease_holder(folder)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            said = output.read_text(errors="replace").strip().splitlines()[-1:]
            raise ServerUnavailableError(f"{folder}: the scheduler did not start: {''.join(said)}; see {output}")
        time.sleep(_FOLLOW_INTERVAL_S)
    return holder.pid


def stop_detached(folder: Path) -> None:
    """Stop the scheduler that `start_detached` started, if there is one."""
    from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder, stop_scheduler

    holder = lease_holder(folder)
    if holder is not None and holder.is_detached:
        stop_scheduler(folder, holder)
        click.echo(f"{folder}: the scheduler is stopped")


def _print_job(job: Job, is_json: bool) -> None:
    if is_json:
        _print_json(_job_json(job))
    else:
        click.echo(repr(job))


def _print_run(run: Run, is_json: bool) -> None:
    if is_json:
        _print_json(_run_json(run))
    else:
        click.echo(repr(run))


def _job_json(job: Job) -> dict[str, Any]:
    from fluss_lab.model.json_codec import to_plain

    found: dict[str, Any] = to_plain(job)
    return found


def _run_json(run: Run) -> dict[str, Any]:
    record = run.record
    return {
        "id": run.id, "job": run.job, "notebook": str(run.notebook), "parameters": dict(run.parameters), "state": record.state,
        "trigger": record.trigger, "attempt": record.attempt, "due_ms": record.due_ms, "until_ms": record.until_ms,
        "started_ms": record.started_ms, "ended_ms": record.ended_ms, "seconds": run.seconds, "error": record.error,
        "cell": record.cell, "summary": dict(record.summary), "output": str(run.output), "log": str(run.log_file),
        "note": record.note,
    }  # fmt: skip


def _print_json(*objects: dict[str, Any]) -> None:
    try:
        print_objects(objects)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"the notebook's summary is no JSON: {error}") from error

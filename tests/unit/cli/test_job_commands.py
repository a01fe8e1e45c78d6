"""Jobs from the shell: what is refused, what is listed, and a scheduler that comes and goes with the lab."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fluss_lab.cli.commands import commands
from fluss_lab.cli.job_commands import start_detached
from fluss_lab.errors import FlussError, StorageError
from fluss_lab.jobs import Jobs
from fluss_lab.jobs.run_processes import identity
from fluss_lab.jobs.scheduling.scheduler_lease import SchedulerLease, lease_holder
from fluss_lab.server.process.discovery import DISCOVERY_FILE
from fluss_lab.testing import wait_until
from tests.unit.jobs.job_kit import write_notebook
from tests.unit.jobs.test_job_store import make_run
from tests.unit.jobs.test_lab_jobs import HOSTILE_NAMES
from tests.unit.jobs.test_notebook_library import HOSTILE as HOSTILE_PATHS


@pytest.fixture
def folder(tmp_path):
    """A lab whose server does not run: jobs need none."""
    path = tmp_path / "my lab"
    path.mkdir(mode=0o700)
    (path / "metadata.db").write_text("")
    write_notebook(tmp_path / "x.ipynb", 'n: int = 3  # 1 to 10\ntext: str = ""')
    return path


def call(*arguments):
    return CliRunner().invoke(commands, [str(each) for each in arguments])


def call_json(*arguments):
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def schedule(folder, *more):
    return call_json(
        "jobs", "schedule", "refresh", folder.parent / "x.ipynb", "--cron", "*/5 * * * *", "-f", folder, *more
    )


def test_schedule_list_pause_and_remove(folder):
    made = schedule(
        folder, "-p", "n", "5", "-p", "text", "007", "--secret", "MY_KEY", "--on-failure", "notify", "--on-failure", "{name}",
        "--time-zone", "UTC", "--retries", "2",
    )  # fmt: skip
    assert (made["parameters"], made["secrets"], made["on_failure"]) == (
        {"n": 5, "text": "007"},
        ["MY_KEY"],
        ["notify", "{name}"],
    )
    assert call_json("jobs", "list", "-f", folder) == {"jobs": [made], "scheduler": None}
    assert "no scheduler runs" in call("jobs", "list", "-f", folder).stdout
    assert "x.ipynb" in call("jobs", "list", "-f", folder).stdout
    assert call_json("jobs", "pause", "refresh", "-f", folder)["is_paused"]
    assert call_json("jobs", "show", "refresh", "-f", folder)["next_due"] is None
    assert not call_json("jobs", "resume", "refresh", "-f", folder)["is_paused"]
    assert call("jobs", "remove", "refresh", "-f", folder).stdout == "removed refresh\n"
    assert call_json("jobs", "list", "-f", folder)["jobs"] == []


def test_a_job_is_scheduled_by_the_short_command_too(folder):
    made = call_json("schedule", "refresh", folder.parent / "x.ipynb", "--cron", "@daily", "-p", "n", "4", "-f", folder)
    assert call_json("jobs", "show", "refresh", "-f", folder) == made
    assert made["parameters"] == {"n": 4}


def test_history_log_and_cancel(folder):
    store = Jobs(folder).store
    store.add_run(make_run("r1", due_ms=1_000_000))
    store.add_run(make_run("r2", state="failed", error="cell 2: <b>", cell=2, started_ms=1000, ended_ms=3500))
    (folder / "jobs" / "job").mkdir()
    (folder / "jobs" / "job" / "r2.log").write_text("hello ü\n")
    assert call("jobs", "log", "r2", "--follow", "-f", folder).stdout == "hello ü\n"
    assert call_json("jobs", "cancel", "r1", "-f", folder)["state"] == "cancelled"
    lines = call("jobs", "history", "job", "-f", folder, "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(run["id"], run["state"], run["seconds"], run["cell"]) for run in found] == [
        ("r2", "failed", 2.5, 2),
        ("r1", "cancelled", None, None),
    ]
    assert "cell 2: <b>" in call("jobs", "history", "-f", folder).stdout
    other = call("jobs", "history", "other", "-f", folder)
    assert other.exit_code != 0
    assert "job 'other': there is none of that name" in str(other.exception)


def refused(*arguments):
    done = call(*arguments)
    assert done.exit_code != 0
    assert isinstance(done.exception, FlussError | SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if "\0" not in name])
def test_hostile_names_are_refused(folder, name):
    refused("jobs", "schedule", "-f", folder, "--cron", "@daily", "--", name, folder.parent / "x.ipynb")
    for verb in ("pause", "resume", "remove", "show", "log", "cancel", "rerun"):
        refused("jobs", verb, "-f", folder, "--", name)
    assert list(Jobs(folder)) == []


@pytest.mark.parametrize(
    "path", [path for path in HOSTILE_PATHS if "\0" not in path and path.isascii()], ids=lambda path: repr(path)[:40]
)
def test_hostile_paths_are_refused(folder, monkeypatch, path):
    monkeypatch.chdir(folder.parent)
    refused("run", "-f", folder, "-p", "n", "3", "--", path)
    refused("jobs", "schedule", "x", "-f", folder, "--cron", "@daily", "--", path)
    assert not (folder / "jobs").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "1"), ("n = 1\nimport os #", "1"), ("", "1"), ("class", "1"), ("n;x", "1"), ("n", "x"), ("n", "0"), ("n", "11"), ("n", "1.5"),
        ("n", "true"), ("n", "null"), ("n", "[1]"), ("n", "1e999"), ("n", "NaN"), ("text", "x" * 70_000), ("pm", "{}"),
    ],
)  # fmt: skip
def test_hostile_parameters_are_refused(folder, name, text):
    refused("run", folder.parent / "x.ipynb", "-f", folder, "-p", name, text)
    refused("jobs", "schedule", "x", folder.parent / "x.ipynb", "--cron", "@daily", "-f", folder, "-p", name, text)
    assert not (folder / "jobs").exists()


def test_a_secrets_value_is_no_name(folder):
    done = refused("run", folder.parent / "x.ipynb", "-f", folder, "--secret", "hunter2!hunter2")
    assert "hunter2" not in str(done.exception) + done.output


def start(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fluss_lab.cli", *map(str, arguments), "-f", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)


def test_the_scheduler_in_the_foreground_is_one_and_ends_at_sigterm(folder):
    first = start(folder, "jobs", "run")
    assert first.stdout is not None
    assert "scheduling 0 jobs" in first.stdout.readline()
    assert call_json("jobs", "list", "-f", folder)["scheduler"] == first.pid
    second = start(folder, "jobs", "run")
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert f"process {first.pid} schedules its jobs already" in said
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert said.endswith("the scheduler ended\n")


@pytest.fixture
def up_folder(tmp_path):
    """A folder for a lab that stays up until it is stopped, which it is also where a test fails."""
    yield tmp_path / "lab"
    call("down", tmp_path / "lab")


@pytest.mark.slow
def test_up_with_jobs_and_down(up_folder):
    folder = up_folder
    assert call("up", folder, "--jobs").exit_code == 0
    holder = lease_holder(folder)
    assert holder is not None
    assert holder.is_detached
    assert f"process {holder.pid}" in call("up", folder, "--jobs").stdout, "a second time it is the same"
    os.kill(holder.pid, signal.SIGKILL)
    wait_until(lambda: lease_holder(folder) is None)
    assert call_json("jobs", "list", "-f", folder)["scheduler"] is None
    again = call("up", folder, "--jobs").stdout
    assert "already runs" in again
    after = lease_holder(folder)
    assert after is not None
    assert after.is_detached
    assert after.pid != holder.pid
    assert "the scheduler is stopped" in call("down", folder).stdout
    assert lease_holder(folder) is None
    wait_until(lambda: not (folder / DISCOVERY_FILE).exists())


def test_a_scheduler_whose_files_cannot_be_made_is_refused_by_name(folder):
    (folder / "jobs").write_text("no folder")
    with pytest.raises(StorageError, match=r"scheduler\.log: no scheduler was started.*make the lab's folder writable"):
        start_detached(folder)
    with pytest.raises(StorageError, match=r"scheduler\.lock: .*make the lab's folder writable"):
        SchedulerLease(folder)


def test_a_log_that_is_followed_ends_where_whoever_ran_it_is_gone(folder):
    Jobs(folder).store.add_run(make_run("r1", state="running", owner="999999:1", started_ms=1000))
    gone = call("jobs", "log", "r1", "--follow", "-f", folder)  # it printed nothing, and its exit code was 0
    assert "r1.log was removed: what it printed is not known" in str(gone.exception)
    log = Jobs(folder).find_run("r1").log_file
    log.parent.mkdir(parents=True)
    log.write_text("x\n")
    assert call("jobs", "log", "r1", "--follow", "-f", folder).stdout == "x\n"
    assert Jobs(folder).find_run("r1").state == "failed"


def test_a_log_that_is_followed_has_characters_whole_that_were_written_in_parts(folder, monkeypatch):
    jobs = Jobs(folder)
    jobs.store.add_run(make_run("r1", state="running", owner=identity(os.getpid()), started_ms=1000))
    log, text = jobs.find_run("r1").log_file, "Z\u00fcrich \U0001f600".encode()
    log.parent.mkdir(parents=True)
    log.write_bytes(text[:2])

    def go_on(_seconds):
        length = log.stat().st_size + 3
        log.write_bytes(text[:length])
        if length >= len(text):
            jobs.store.end_run("r1", state="succeeded", ended_ms=2000)

    monkeypatch.setattr("fluss_lab.cli.job_commands.time.sleep", go_on)
    assert call("jobs", "log", "r1", "--follow", "-f", folder).stdout == text.decode()

"""Runs in real processes: limits, log, what is left behind. A script stands in for the notebook's process."""

import os
import subprocess
import sys
import tempfile
import tracemalloc
import uuid

import nbformat
import psutil
import pytest
from nbclient.exceptions import DeadKernelError

from fluss_lab.errors import InvalidRequestError, StorageError
from fluss_lab.jobs.notebook_library import read_notebook
from fluss_lab.jobs.notebook_process import failure_of, summary_of
from fluss_lab.jobs.notebook_run import NotebookRun, RunPlace
from fluss_lab.jobs.run_log import LOG_BYTES_MAX
from fluss_lab.jobs.run_processes import identity, is_alive, kill_run, run_processes
from fluss_lab.jobs.run_record import SUMMARY_LENGTH_MAX, SUMMARY_MIME, RunTask
from fluss_lab.model.config.config_chain import RUN_VARIABLE
from fluss_lab.testing import wait_until
from tests.unit.jobs.job_kit import SCRIPT_PROCESS, write_notebook
from tests.unit.server.disks import fill, small_disk


def test_a_kernel_that_ended_did_so_in_the_cell_begun_last():
    ended = "the kernel ended: killed, out of memory, or crashed"
    assert failure_of(DeadKernelError("Kernel died"), (2, 5)) == (2, f"{ended}, in cell 2 of 5")
    assert failure_of(DeadKernelError("Kernel died"), None) == (None, ended)
    assert failure_of(OSError("no room"), (2, 5)) == (None, "OSError: no room")
    gone = FileNotFoundError(2, "No such file or directory", "/lab/jobs/x/files")
    assert failure_of(gone, (2, 5))[1].startswith(
        "/lab/jobs/x/files: No such file or directory; until a run ends its folders"
    )


def test_a_run_imports_no_more_than_it_uses():
    """Grammars of addresses in schemas took a second and a half of every run."""
    code = (
        "import sys\nfrom fluss_lab.jobs.notebook_process import import_papermill\nimport_papermill()\n"
        "print('jsonschema' in sys.modules, sorted({'lark', 'arrow'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def displayed(*summaries):
    """Return a notebook whose cells have displayed summaries."""
    outputs = [nbformat.v4.new_output("display_data", {SUMMARY_MIME: each}) for each in summaries]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[each]) for each in outputs])


def test_a_summary_that_is_too_long_for_the_history_is_an_error():
    """Whoever lists runs reads all of each."""
    length = len('{"rows": 3, "text": ""}')
    assert summary_of(displayed({"rows": 2, "text": ""}, {"rows": 3}, 5)) == {"rows": 3, "text": ""}
    most = "x" * (SUMMARY_LENGTH_MAX - length)
    assert summary_of(displayed({"rows": 3, "text": most})) == {"rows": 3, "text": most}
    with pytest.raises(
        InvalidRequestError, match=r"summary .* has 262,145 characters .* at most 262,144: write what is long"
    ):
        summary_of(displayed({"rows": 3}, {"text": most + "x"}))


def test_a_log_on_a_full_disk_fails_no_run(tmp_path):
    run = start(tmp_path, "report(end=True)")
    run._log.close()
    run._log._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115  the run closes it
    found = result(run)
    assert (found.state, found.note) == ("succeeded", "its log lacks the last 1 line: No space left on device")


@pytest.mark.parametrize("full", ["tmp", "lab"])
def test_a_run_that_a_full_disk_does_not_take_names_it_and_leaves_nothing(tmp_path, monkeypatch, full):
    """Seen: of a full folder of temporary files the lab's was named, and a notebook that was cut off stayed as the output."""
    with small_disk(tmp_path / full, 1) as disk:
        (tmp_path / "tmp").mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
        run_id = f"r-{uuid.uuid4().hex}"
        fill(disk)
        with pytest.raises(StorageError, match=rf"{disk}.*No space left"):
            start(tmp_path, "report(end=True)", run_id=run_id)
        assert [path.name for path in tmp_path.rglob("*") if run_id[-6:] in path.name] == []


def test_a_process_that_cannot_be_started_leaves_nothing(tmp_path):
    (tmp_path / "nothing").write_text("")
    run_id = f"r-{uuid.uuid4().hex}"
    with pytest.raises(
        StorageError, match=rf"run {run_id}: its process cannot be started: .*; expected folders that you can write"
    ):
        start(tmp_path, "", run_id=run_id, command=(str(tmp_path / "nothing"),))
    assert [path.name for path in tmp_path.rglob("*") if run_id[-6:] in path.name] == []


def test_what_a_killed_run_was_about_to_save_goes(tmp_path):
    code = (
        "import os; open(os.path.join(os.path.dirname(task['output']), '.' + os.path.basename(task['output']) + '.abc'), 'w');"
        "print('saving', flush=True); os._exit(9)"
    )
    run = start(tmp_path, code)
    assert result(run).state == "failed"
    assert "saving" in run.place.log.read_text()
    assert sorted(path.name for path in run.place.output.parent.iterdir() if path.is_file()) == [
        f"{run.id}.ipynb",
        f"{run.id}.log",
    ]


def start(tmp_path, code, timeout_ms=60_000, memory_bytes=1 << 30, secrets=(), run_id=None, command=SCRIPT_PROCESS):
    notebook = write_notebook(tmp_path / "x.ipynb")
    task = RunTask(notebook=str(notebook), secrets=secrets, timeout_ms=timeout_ms, memory_bytes=memory_bytes)
    # Processes are found by the id of their run, those of other tests too.
    run_id = run_id or f"r-{uuid.uuid4().hex}"
    place = RunPlace.of(tmp_path / "lab" / "jobs", "x", run_id)
    run = NotebookRun(run_id, task, read_notebook(notebook), {"code": code}, place, tmp_path / "lab", command)
    run.start()
    return run


def result(run):
    run.release()
    found = []
    wait_until(lambda: bool(found.append(run.poll()) or found[-1]), 30)
    assert run_processes(run.id) == []
    assert not run.scratch.exists()
    return found[-1]


def test_what_it_reports_is_its_result(tmp_path):
    run = start(tmp_path, "print('hello'); report(cell=1, of=2); report(end=True, summary={'rows': 3})")
    found = result(run)
    assert (found.state, found.error, found.summary) == ("succeeded", None, {"rows": 3})
    assert run.place.log.read_text() == "hello\nsucceeded\n"
    assert run.place.log.stat().st_mode & 0o777 == run.place.output.stat().st_mode & 0o777 == 0o600
    assert run.place.home.stat().st_mode & 0o777 == 0o700


def test_what_was_checked_is_what_runs(tmp_path):
    """Its file changes between the look at its parameters and its start."""
    run = start(tmp_path, "report(end=True, summary={'text': open(task['source']).read()})")
    checked = (tmp_path / "x.ipynb").read_text()
    (tmp_path / "x.ipynb").write_text("something else")
    assert result(run).summary == {"text": checked}


def test_a_failure_names_its_cell(tmp_path):
    found = result(start(tmp_path, "report(end=True, error='cell 2: x', cell=2)"))
    assert (found.state, found.error, found.cell) == ("failed", "cell 2: x", 2)


def test_a_process_that_says_nothing_failed(tmp_path):
    found = result(start(tmp_path, "report(cell=3, of=5); os = __import__('os'); os._exit(7)"))
    assert (found.state, found.error) == ("failed", "its process ended with code 7, in cell 3 of 5")


def test_it_sees_the_environment_that_it_is_given_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "not-for-the-run")
    monkeypatch.setenv("MY_SECRET", "for-the-run-only")
    code = (
        "import os; print(sorted(os.environ)); print(os.getcwd(), os.environ['HOME'], os.environ['FLUSS_LAB_FOLDER']);"
        "print('found', os.environ['MY_SECRET'], 'SOME_TOKEN' in os.environ); report(end=True)"
    )
    run = start(tmp_path, code, secrets=("MY_SECRET",))
    (process,) = run_processes(run.id)
    assert "for-the-run-only" not in " ".join(process.cmdline())
    assert result(run).state == "succeeded"
    log = run.place.log.read_text()
    assert "found ******** False" in log
    assert "for-the-run-only" not in log
    assert f"{run.place.work} {run.place.home} {tmp_path / 'lab'}" in log


def test_one_that_hangs_ends_at_its_limit_with_all_its_children(tmp_path):
    code = (
        "import subprocess, sys, time; report(cell=2, of=4);"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True);"
        "print('begun'); time.sleep(600)"
    )
    run = start(tmp_path, code, timeout_ms=3000)
    run.release()
    wait_until(lambda: len(run_processes(run.id)) == 2)
    found = result(run)
    assert found.state == "failed"
    assert found.error == "the time limit of 3s has passed, in cell 2 of 4"


def test_one_that_eats_memory_is_ended(tmp_path):
    """A child eats it: the limit is of all processes together."""
    eater = "x = bytearray(400 << 20); import time; time.sleep(600)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', {eater!r}]); time.sleep(600)"
    found = result(start(tmp_path, code, memory_bytes=256 << 20))
    assert (found.state, found.error) == ("failed", "its processes hold more than 256 MB of memory")


def test_a_good_end_leaves_nothing_running_either(tmp_path):
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True); report(end=True)"
    )
    assert result(start(tmp_path, code)).state == "succeeded"


def test_a_log_has_an_end(tmp_path):
    run = start(
        tmp_path, f"[print('x' * 1_000_000) for _ in range({LOG_BYTES_MAX // 1_000_000 + 5})]; report(end=True)"
    )
    assert result(run).state == "succeeded"
    size = run.place.log.stat().st_size
    assert LOG_BYTES_MAX <= size < LOG_BYTES_MAX + 1_100_000
    assert run.place.log.read_text().splitlines()[-1] == "... the log ends here: more than 32.0 MB"


def test_whoever_runs_it_holds_no_line_that_does_not_end(tmp_path):
    """A progress bar without an end of line, or one that prints for ever: the scheduler held all of it."""
    run = start(tmp_path, "[print('x' * 1_000_000, end='') for _ in range(200)]; report(end=True)")
    tracemalloc.start()
    try:
        assert result(run).state == "succeeded"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 << 20, peak
    assert run.place.log.read_text().splitlines()[-1] == "... the log ends here: more than 32.0 MB"


def test_what_a_start_left_that_was_killed_is_replaced(tmp_path):
    """Its process, files and temporary folder were there, and nothing had run."""
    killed = start(tmp_path, "report(end=True)", run_id="killed")
    kill_run(killed.id)
    killed._process.wait()
    assert killed.place.output.read_text() == (tmp_path / "x.ipynb").read_text()
    killed.place.log.write_text("of the first")
    run = start(tmp_path, "print('again'); report(end=True)", run_id="killed")
    assert not killed.scratch.exists()
    assert result(run).state == "succeeded"
    assert run.place.log.read_text() == "again\nsucceeded\n"
    killed.end("failed", "killed")
    killed.poll()


def test_it_ends_with_its_owner(tmp_path):
    """Whoever started it is killed: nothing goes on."""
    write_notebook(tmp_path / "x.ipynb")
    owner = (
        "import sys; from pathlib import Path; from tests.unit.jobs.test_notebook_run import start;"
        "run = start(Path(sys.argv[1]), 'import time; time.sleep(600)', run_id='orphan'); run.release();"
        "print('begun', flush=True); import time; time.sleep(600)"
    )
    environment = {name: value for name, value in os.environ.items() if name != RUN_VARIABLE}
    process = subprocess.Popen([sys.executable, "-c", owner, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"begun\n"
        assert len(run_processes("orphan")) == 1
        process.kill()
        process.wait()
    wait_until(lambda: run_processes("orphan") == [])
    for left in (path for path in psutil.Process().children() if path.pid == process.pid):
        left.wait()


def test_a_process_id_that_is_used_again_is_another_process():
    me = identity(os.getpid())
    assert is_alive(me)
    assert not is_alive(f"{os.getpid()}:1.00")
    assert not is_alive("")
    assert not is_alive("x:y")
    assert identity(2**22 + 1) == ""
    assert kill_run("nobody-has-this")

"""Notebooks as jobs, with real kernels: outputs, secrets, failures, and the same notebook by papermill and nbclient."""

import json
import os
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime

import nbclient
import nbformat
import papermill
import psutil
import pytest

from fluss_lab.errors import NotebookError
from fluss_lab.jobs import SUMMARY_MIME, Jobs, Scheduler
from fluss_lab.jobs.notebook_process import kernel_sockets
from fluss_lab.jobs.run_processes import run_processes
from fluss_lab.server import cluster
from fluss_lab.testing import MockClock, wait_until
from fluss_lab.workbench import Lab
from tests.unit.jobs.job_kit import write_notebook
from tests.unit.server.disks import small_disk

pytestmark = pytest.mark.slow
SECRET = "hunter2-hunter2-hunter2"
SHOW = f"from IPython.display import display; display({{{SUMMARY_MIME!r}: {{'rows': rows}}}}, raw=True)"
#: Appends rows to a table of the lab, and counts them.
COUNT = [
    "import fluss_lab as fl\nlab = fl.Lab.open(lab_folder)",
    'lab.create_database("db", if_not_exists=True)\n'
    'table = lab.create_table("db.log", {"a": "bigint"}, if_not_exists=True)\n'
    'table.append([{"a": n} for n in range(count)])',
    f"rows = table.scan().count()\n{SHOW}\nlab.close()",
]


def test_secrets_and_tokens_are_in_nothing_that_a_run_leaves(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", SECRET)
    leak = [
        "import os, sys, time\nfrom pathlib import Path\nfrom IPython.display import HTML\nkey = os.environ['MY_KEY']",
        "for part in (key[:8], key[8:]):\n    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.3)\nprint()\n"
        "handle = display('old', display_id=True)",
        "handle.update('new')\nprint(key, {'key': key}, file=sys.stderr)\nos.system('echo from a child: $MY_KEY')\nHTML(f'<b>{key}</b>')",
        "import fluss_lab as fl\nlab = fl.Lab.open(lab_folder)\nprint((Path(lab_folder) / 'token').read_text(), flush=True)\nlab",
        "lab.close()\nprint(Path('here').absolute())\nraise ValueError(key)",
    ]
    notebook = write_notebook(tmp_path / "leak.ipynb", 'lab_folder: str = "lab"', leak)
    before = notebook.read_bytes()
    jobs = Jobs(tmp_path / "a {lab}")
    shown, lines = [], []

    def look(line):
        lines.append(line)
        for process in run_processes(jobs.history()[0].id):
            with suppress(psutil.Error):  # it has ended since
                shown.extend(process.cmdline())

    with pytest.raises(NotebookError, match=r"cell 7 \(lab.close\(\)\): ValueError: \*{8}") as failed:
        jobs.run(notebook, secrets=["MY_KEY"], on_line=look)
    (run,) = jobs.history()
    token = (jobs.folder / "token").read_text()
    assert "ipykernel_launcher" in shown
    texts = [
        str(failed.value), run.output.read_text(), run.log, "\n".join(lines), " ".join(shown), repr(run), run._repr_html_(),
        jobs.store.path.read_bytes().decode("latin1"),
    ]  # fmt: skip
    for text in texts:
        assert SECRET not in text
        assert token not in text
    executed = nbformat.read(run.output, as_version=4)
    printed = "".join(output.get("text", "") for cell in executed.cells for output in cell.get("outputs", ()))
    assert printed.count("********") >= 4, printed
    # A display keeps its place when what was printed before it is joined.
    displays = [output.data for cell in executed.cells for output in cell.get("outputs", ()) if "data" in output]
    assert "'new'" in [data.get("text/plain") for data in displays]
    assert "from a child: ********" in run.log
    assert str(tmp_path / "a {lab}" / "jobs" / "leak" / "files" / "here") in run.log
    assert (run.state, run.cell) == ("failed", 7)
    assert notebook.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a {lab}", "leak.ipynb"], "nothing beside the source"


def test_cells_print_faster_than_outputs_are_processed(tmp_path):
    """While the process that reads the kernel's outputs stands still."""
    cell = (
        "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n"
        "try:\n    for n in range(3_000): print('line', n, flush=True)\n"
        "finally: os.kill(os.getppid(), signal.SIGCONT)"
    )
    run = Jobs(tmp_path / "lab").run(
        write_notebook(tmp_path / "many.ipynb", "", [cell, "print('x' * (65 << 20))"]), timeout="90 s"
    )
    lines = [f"line {n}" for n in range(3_000)]
    executed = nbformat.read(run.output, as_version=4)
    assert executed.cells[1].outputs[0].text.splitlines() == lines
    left_out = "... left out from here: a notebook keeps 64.0 MB of outputs"
    assert [output.text for output in executed.cells[2].outputs] == [f"{left_out}\n"]
    *log, end = run.log_file.read_text().splitlines()
    pieces = [line for line in log if line.startswith("xxx")]
    assert log == ["--- cell 1 of 2", *lines, "--- cell 2 of 2", *pieces]
    assert len("".join(pieces)) > 30_000_000
    assert end == "... the log ends here: more than 32.0 MB"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])", r"ExceptionGroup: two \(2 sub-exceptions\)"),
        ("%%nosuch\nx", "UsageError: Cell magic `%%nosuch` not found."),
        ("raise KeyboardInterrupt", "KeyboardInterrupt;"),
    ],
)
def test_what_ends_a_cell_is_said_whatever_it_leaves_in_it(tmp_path, code, says):
    notebook = write_notebook(tmp_path / "x.ipynb", cells=[code])
    with pytest.raises(NotebookError, match=rf"cell 1 \(.*\): {says}"):
        Jobs(tmp_path / "lab").run(notebook)


@pytest.mark.parametrize("code", ["exit()", "quit()", "import sys; sys.exit(0)"])
def test_a_cell_ends_its_notebook_with_a_word(tmp_path, code):
    """Seen: behind `exit()` the rest of its cell and further cells ran, until the kernel was gone; a run that `sys.exit()` ended said nothing."""
    notebook = write_notebook(tmp_path / "x.ipynb", cells=[f"print('first')\n{code}", "print('rest')", "print('rest')"])
    run = Jobs(tmp_path / "lab").run(notebook)
    said = "cell 1 of 3 ended the notebook (exit): the cells after it were not run"
    assert (run.state, run.note, run.error) == ("succeeded", said, None)
    assert run.log == f"--- cell 1 of 3\nfirst\nsucceeded: {said}\n"
    assert repr(run).endswith(f"s: {said}>")
    assert "cell 1 of 3" in run._repr_html_()


def test_the_end_of_a_kernel_is_no_interrupt(tmp_path):
    """Seen once in 11,000 tests: the kernel was interrupted while it still answered the question behind its last cell, and the log said so."""
    code = """
import time
handlers = get_ipython().kernel.shell_handlers
answer = handlers["kernel_info_request"]
async def answer_slowly(*args):
    await answer(*args)
    time.sleep(1)
handlers["kernel_info_request"] = answer_slowly
print("done")
"""
    run = Jobs(tmp_path / "lab").run(write_notebook(tmp_path / "x.ipynb", cells=[code]))
    assert run.log == "--- cell 1 of 1\ndone\nsucceeded\n"


def test_an_exit_with_a_code_fails_its_run(tmp_path):
    """Seen: `exit(3)` was taken for a wish to keep the kernel, and the run succeeded. In the last cell an end leaves nothing out."""
    with pytest.raises(NotebookError, match=r"cell 1 \(exit\(3\)\): SystemExit: 3;"):
        Jobs(tmp_path / "lab").run(write_notebook(tmp_path / "x.ipynb", cells=["exit(3)", "print('rest')"]))
    run = Jobs(tmp_path / "lab").run(write_notebook(tmp_path / "y.ipynb", cells=["exit()"]))
    assert (run.state, run.note) == ("succeeded", None)


def test_the_same_notebook_by_a_job_by_papermill_and_by_nbclient(tmp_path, monkeypatch):
    """All three attach to one lab: each sees what those before it wrote."""
    notebook = write_notebook(tmp_path / "count.ipynb", 'lab_folder: str = "lab"\ncount: int = 2  # 1 to 100', COUNT)
    monkeypatch.chdir(tmp_path)
    with Lab.open(tmp_path / "lab") as lab:
        run = lab.run_notebook(notebook, count=5)
        assert (run.state, run.summary, run.error) == ("succeeded", {"rows": 5}, None)
        with kernel_sockets() as config:
            done = papermill.execute_notebook(
                str(notebook), str(tmp_path / "out.ipynb"), {"count": 3}, progress_bar=False, cwd=str(tmp_path),
                config=config,
            )  # fmt: skip
            assert _rows(done) == 8
            client = nbclient.NotebookClient(
                nbformat.read(notebook, as_version=4), resources={"metadata": {"path": str(tmp_path)}}, config=config
            )
            assert _rows(client.execute()) == 10
        assert lab.table("db.log").scan().count() == 10
        (recorded,) = lab.jobs.history()
        assert (recorded.id, recorded.state, recorded.parameters) == (run.id, "succeeded", {"count": 5})
        executed = nbformat.read(run.output, as_version=4)
        assert executed.metadata.papermill.input_path == str(notebook)
        assert executed.metadata.papermill.parameters == {"count": 5, "lab_folder": str(tmp_path / "lab")}


def _rows(notebook):
    return notebook.cells[-1].outputs[0]["data"][SUMMARY_MIME]["rows"]


def test_a_run_is_cancelled_from_elsewhere_with_all_that_it_started(tmp_path):
    cell = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print('under way', flush=True)\ntime.sleep(600)"
    )
    jobs = Jobs(tmp_path / "lab")
    errors = []

    def run():
        try:
            jobs.run(write_notebook(tmp_path / "x.ipynb", None, [cell]))
        except NotebookError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: any("under way" in each.log for each in jobs.history()))
    (found,) = jobs.history()
    # Its channels are sockets in a private folder. What ipykernel listens on besides takes the output of its children, if they
    # know a random word.
    listening = [each.laddr.ip for process in run_processes(found.id) for each in process.net_connections("inet")]
    assert listening in ([], ["127.0.0.1"])
    channels = {each.laddr for process in run_processes(found.id) for each in process.net_connections("unix")}
    assert len([path for path in channels if "/fluss-run-" in path]) >= 4
    Jobs(tmp_path / "lab").cancel(found.id)
    thread.join(60)
    assert (found.state, found.error) == ("cancelled", "cancelled")
    assert "cancelled" in str(errors[0])
    assert run_processes(found.id) == []


def test_a_server_that_dies_and_one_that_is_stopped(tmp_path, monkeypatch):
    """Killed, it is started again, and the run goes on; stopped on purpose, the run fails, and its policy tries it again."""
    monkeypatch.setenv("FLUSS_LAB_CLIENT_REQUEST_TIMEOUT", "4s")
    gate = tmp_path / "gate"
    wait = f"import os, time\nprint('ready', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    cells = [*COUNT[:2], wait, *COUNT[2:]]
    notebook = write_notebook(tmp_path / "count.ipynb", 'lab_folder: str = "lab"\ncount: int = 2', cells)
    lab, clock = tmp_path / "lab", MockClock(int(datetime.now(UTC).timestamp() * 1000))
    jobs = Jobs(lab)
    jobs.schedule("count", notebook, cron="* * * * *", time_zone="UTC", retries=1)
    scheduler = Scheduler(lab, clock=clock)
    clock.set_wall(jobs.store.job("count").next_due_ms)

    def look(done):
        def condition():
            scheduler.step()
            return done()

        wait_until(condition, 120)

    def attempt(number):
        return next((run for run in jobs.history("count") if run.attempt == number), None)

    look(lambda: (first := attempt(1)) is not None and "ready" in first.log)
    cluster.stop_server(lab)
    gate.write_text("")
    look(lambda: attempt(1).state == "failed")
    assert "ServerUnavailableError" in attempt(1).error
    gate.unlink()
    # Now a server is started anew: on a busy machine that takes its time.
    monkeypatch.setenv("FLUSS_LAB_CLIENT_REQUEST_TIMEOUT", "90s")
    clock.advance(10_000)
    look(lambda: (second := attempt(2)) is not None and "ready" in second.log)
    killed = cluster.read_discovery(lab).servers[0].pid
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(killed) or psutil.Process(killed).status() == psutil.STATUS_ZOMBIE)
    gate.write_text("")
    look(lambda: attempt(2).state not in {"queued", "running"})
    assert (attempt(2).state, attempt(2).error) == ("succeeded", None)
    assert attempt(2).summary == {"rows": 4}, "two of each attempt: acknowledged rows survive"
    assert json.loads(attempt(2).output.read_text())["nbformat"] == 4
    wait_until(lambda: cluster.running_server(lab) is None, 60)


def test_an_output_that_the_disk_does_not_take_is_whole_as_it_was_before(tmp_path):
    """Seen: cut off at the last page, and the error was `[Errno 28] No space left on device`."""
    notebook = write_notebook(tmp_path / "x.ipynb", "", ["print('kept')", "print('y' * 3_000_000)", "print('never')"])
    jobs = Jobs(tmp_path / "lab")
    folder = jobs.folder / "jobs" / "x"
    folder.parent.mkdir(parents=True)
    with small_disk(folder, 1):
        with pytest.raises(
            NotebookError, match=r"\.ipynb: the output cannot be saved: No space left on device; it is as it was"
        ):
            jobs.run(notebook)
        (run,) = jobs.history()
        executed = nbformat.read(run.output, as_version=4)
        assert [output.text for cell in executed.cells for output in cell.outputs] == ["kept\n"]
        assert sorted(path.name for path in folder.iterdir()) == [run.output.name, run.log_file.name, "files", "home"]

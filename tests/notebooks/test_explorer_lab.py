"""The screens of the whole lab, and the explorer without Jupyter, in a headless browser without a network."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest

import fluss_lab as fl
from tests.notebooks.jupyterlab_server import FLAWS, BrowserUnavailableError, browser, jupyterlab, run_page
from tests.unit.jobs.job_kit import make_job, write_notebook
from tests.unit.jobs.test_job_store import make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Where the pictures go; None: into the test's own folder.
PICTURES = os.environ.get("EXPLORER_PICTURES")
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S+")
IMAGE = "<img src=x onerror='window.wronged=1'>"


def enter_jobs(lab, notebooks):
    """Enter jobs of every kind, with runs of every state; those of `hello` and `endless` are real notebooks."""
    hello = write_notebook(notebooks / "hello.ipynb", 'name = "you"', ["print('hello', name)"])
    endless = write_notebook(notebooks / "endless.ipynb", "", ["import time\nwhile True: time.sleep(0.1)"])
    lab.jobs.schedule("hello", hello, cron="*/5 * * * *", parameters={"name": IMAGE})
    lab.jobs.schedule("endless", endless, cron="0 7 * * 1-5", time_zone="Europe/Berlin")
    lab.jobs.schedule("keyed", hello, cron="30 2 * * *", secrets=["NOT_SET_HERE"])
    task = make_job(parameters={"table": "nyc.flights"}).task
    for number in range(14):
        lab.jobs.store.add_run(
            make_run(f"old-{number}", job="hello", due_ms=number, task=task, state="succeeded", started_ms=number * 1000, ended_ms=number * 1500, summary={"rows": number})
        )  # fmt: skip
    error = f"cell 4: ZeroDivisionError: {IMAGE} " + "long " * 40
    lab.jobs.store.add_run(
        make_run("failed-run", job="hello", due_ms=100, state="failed", started_ms=5, ended_ms=38_200, error=error)
    )
    lab.jobs.store.add_run(make_run("missed-run", job="endless", due_ms=101, state="missed", error="no scheduler ran"))
    log = lab.jobs.find_run("failed-run").log_file
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"--- cell 1 of 4\n{IMAGE}\n\x1b[31mred\n" + "a line of the log\n" * 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    try:
        browser()
    except BrowserUnavailableError as error:
        pytest.skip(str(error))
    place = tmp_path_factory.mktemp("lab")
    with fl.Lab.open(place / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        flights = lab.create_table("shop.flights", {"id": "bigint", "dest": "string"}, buckets=4)
        flights.append([{"id": n, "dest": IMAGE if n % 9 else "ORD"} for n in range(900)])
        enter_jobs(lab, place)
        yield lab.folder


@contextmanager
def explored(folder, *arguments):
    """Yield the link of ``fluss-lab explore`` and its process's id; the page stops it."""
    command = [sys.executable, "-m", "fluss_lab.cli", "explore", "--no-browser", "-f", str(folder), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        try:
            found = LINK.search(serving.stdout.readline())
            assert found, serving.stderr.read()
            yield found[0], serving.pid
        except BaseException:
            serving.terminate()
            raise
        _, said = serving.communicate(timeout=60)
    assert (serving.returncode, said.splitlines()[1:]) == (0, ["ended"])


@pytest.fixture(scope="module", params=["light", "dark", "read-only"])
def seen(request, folder, tmp_path_factory):
    """What a visit in one theme has seen; of an explorer that is read-only, too."""
    pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
    arguments = ["--read-only"] if request.param == "read-only" else []
    with explored(folder, *arguments) as (link, process):
        found = run_page("explorer_lab_page", link, request.param, pictures, process)
    return found | {"asked": request.param}


@pytest.fixture
def used(seen):
    if seen["asked"] != "light":
        pytest.skip("one is used, the others only looked at")
    return seen


def test_nothing_goes_wrong_and_no_policy_is_violated(seen):
    assert {kind: seen.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert seen["violations"] == []
    assert seen["first_ms"] >= 0


def test_no_value_becomes_markup(seen):
    assert seen["markup"] == [None, 0]


def test_every_text_can_be_read(seen):
    assert seen["contrast"][0] >= 4.5, seen["contrast"]


def test_the_link_is_for_one_browser_and_leaves_no_token(seen):
    assert "token" not in seen["address"]
    assert (seen["used_link"], seen["no_cookie"]) == (403, 403)
    assert seen["foreign"] == ["refused", "refused"]


def test_jobs_are_run_followed_paused_and_cancelled(used):
    assert (used["title"], used["tabs_hidden"], used["side_closed"]) == ("Jobs", True, True)
    assert "every fifth minute" in used["words"]
    assert used["start_code"] == 'run = lab.jobs.start("hello")'
    assert used["ran_ms"] >= 0
    assert f"hello {IMAGE}" in used["log"]
    assert "done" in used["row"]
    assert "paused" in used["paused"]
    assert used["pause_code"] == 'lab.jobs.pause("hello")'
    assert used["cancelled_ms"] >= 0
    assert "NOT_SET_HERE" in used["refused"]


def test_a_read_only_explorer_has_nothing_that_changes_something(seen):
    if seen["asked"] != "read-only":
        pytest.skip("this one is not read-only")
    assert seen["actions"] == 0
    assert IMAGE in seen["read_only_log"]


def test_a_page_says_that_its_command_has_ended(seen):
    assert "The command does not answer." in seen["ended"]
    assert "open its new link" in seen["ended"]
    assert seen["ended_path"]


def test_health_is_servers_disk_and_findings(used):
    assert used["health_tables"][-3:] == ["Servers", "Disk", "Doctor"]
    assert used["looked_ms"] >= 0
    assert used["health_code"] == "lab.status()"
    assert (used["back"].replace("\n", ""), used["tab_kept"], used["alt"]) == ("shop.flights", "Data", "Overview")


@pytest.fixture(scope="module")
def cell(folder, tmp_path_factory):
    """What was seen of the screens in a cell of JupyterLab, and in its notebook opened again."""
    home, notebooks = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("notebooks") / "mine"
    with jupyterlab(notebooks, home) as url:
        sources = [f"import fluss_lab as fl\n\nlab = fl.Lab.open({str(folder)!r})", "lab.explore()"]
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        nbformat.write(made, Path(notebooks) / "lab.ipynb")
        pictures = Path(PICTURES or tmp_path_factory.mktemp("pictures"))
        return run_page("explorer_lab_page", url, "lab.ipynb", "light", pictures, "notebook")


def test_in_a_cell_nothing_goes_wrong(cell):
    assert {kind: cell.get(kind) for kind in FLAWS} == dict.fromkeys(FLAWS)
    assert cell["errors"] == []
    assert cell["contrast"][0] >= 4.5, cell["contrast"]


def test_a_saved_notebook_shows_the_jobs_and_does_nothing_about_them(cell):
    assert cell["static_ms"] >= 0
    assert cell["static_title"] == "Jobs"
    assert cell["static_rows"] > 3
    assert cell["static_actions"] == 0

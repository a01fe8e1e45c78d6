"""The jobs of a lab as a view shows them, and what it does about them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import fluss_lab as fl
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.screens.job_answers import RUNS_MAX
from fluss_lab.jobs import Jobs
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.explorer.explorer_kit import answers, ask, refused, request
from tests.unit.jobs.job_kit import SCRIPT_PROCESS, make_job, write_notebook
from tests.unit.jobs.test_job_store import make_run

pytestmark = pytest.mark.slow

IMAGE = "<img src=x onerror=alert(1)>"
DONE = "report(end=True, summary={'rows': 12})"


@pytest.fixture
def place(lab, tmp_path):
    """A lab of this folder, whose notebooks are scripts: the parameter ``code``."""
    jobs = Jobs(tmp_path / "lab", SCRIPT_PROCESS)
    write_notebook(tmp_path / "refresh.ipynb", 'code: str = ""\nemail: str = ""')
    return SimpleNamespace(connection=lab.connection, folder=jobs.folder, jobs=jobs, doctor=lab.doctor)


@pytest.fixture
def refresh(place, tmp_path):
    return place.jobs.schedule(
        "refresh", tmp_path / "refresh.ipynb", cron="*/5 * * * *", time_zone="UTC", parameters={"code": DONE}
    )


@pytest.fixture
def jobs_model(place):
    return ExplorerModel(place, "my lab")


def run_lines(answer, place):
    *before, last = answer["code"]
    names = {"lab": place}
    exec("\n".join(before), names)
    return eval(last, names)


def ended(model, run_id):
    wait_until(lambda: ask(model, "jobs", op="log", name=run_id)["has_ended"])
    return ask(model, "jobs", op="log", name=run_id)


def test_a_lab_without_jobs_has_the_line_that_enters_one(lab, jobs_model):
    shown = ask(jobs_model, "jobs")
    assert (shown["jobs"], shown["runs"], shown["scheduler"]) == ([], [], None)
    (line,) = shown["code"]
    made = eval(line, {"lab": lab})
    assert (made.name, made.cron, made.parameters) == ("refresh", "*/5 * * * *", {"table": "nyc.flights"})
    lab.jobs.remove("refresh")


def test_a_lab_that_is_only_connected_to_has_none(lab):
    elsewhere = ExplorerModel(fl.Lab(lab.connection, folder=None, attachment=None, place={}), "elsewhere")
    assert "only connected to" in ask(elsewhere, "jobs")["unavailable"]
    assert ask(elsewhere, "tree")["jobs"] is None


def test_what_is_scheduled_and_what_has_run(place, refresh, jobs_model):
    first = place.jobs.start("refresh")
    wait_until(lambda: first.state == "succeeded")
    place.jobs.store.add_run(make_run("m1", job="refresh", due_ms=3, state="missed", error="no scheduler ran"))
    shown = ask(jobs_model, "jobs")
    (job,) = shown["jobs"]
    assert (job["cron"], job["words"], job["paused"]) == ("*/5 * * * *", "every fifth minute of every hour", False)
    assert job["next_ms"] % 300_000 == 0
    assert job["parameters"] == f"code={DONE}"
    assert [state for _, state in job["durations"]] == ["succeeded"]
    assert [(run["id"], run["state"], run["result"]) for run in shown["runs"]] == [
        ("m1", "missed", "no scheduler ran"), (first.id, "succeeded", "rows: 12"),
    ]  # fmt: skip
    assert [run.id for run in run_lines(shown, place)] == [run["id"] for run in shown["runs"]]
    assert ask(jobs_model, "tree")["jobs"] == {"jobs": 1, "paused": 0}


def test_the_runs_of_one_job(place, refresh, jobs_model):
    for number in range(3):
        place.jobs.store.add_run(make_run(f"a{number}", job="refresh", due_ms=number, state="succeeded"))
        place.jobs.store.add_run(make_run(f"b{number}", job="other", job_id=7, due_ms=number, state="succeeded"))
    shown = ask(jobs_model, "jobs", name="refresh")
    assert (shown["of"], [run["id"] for run in shown["runs"]]) == ("refresh", ["a2", "a1", "a0"])
    assert [run.id for run in run_lines(shown, place)] == ["a2", "a1", "a0"]
    assert ask(jobs_model, "jobs", name="gone")["of"] is None
    assert len(ask(jobs_model, "jobs")["runs"]) == 6


def test_many_runs_with_long_texts_are_a_bounded_answer(place, refresh, jobs_model):
    for number in range(RUNS_MAX + 5):
        run = make_run(f"r{number}", job="refresh", due_ms=number, state="failed", error="é\0" * 5_000)
        place.jobs.store.add_run(run)
    shown = ask(jobs_model, "jobs")
    assert (len(shown["runs"]), shown["older"]) == (RUNS_MAX, True)
    assert shown["runs"][0]["id"] == f"r{RUNS_MAX + 4}"


def test_run_now_rerun_cancel_pause_and_resume(place, refresh, jobs_model, tmp_path):
    begun = ask(jobs_model, "jobs", op="start", name="refresh")
    assert begun["code"] == ['run = lab.jobs.start("refresh")']
    shown = ended(jobs_model, begun["run"])
    assert (shown["run"]["state"], shown["summary"], shown["log"]) == ("succeeded", [["rows", "12"]], "succeeded\n")
    assert run_lines(shown, place) == shown["log"]
    again = ask(jobs_model, "jobs", op="rerun", name=begun["run"])
    assert ended(jobs_model, again["run"])["run"]["trigger"] == "rerun"
    waits = {"code": "import time\nwhile True: time.sleep(0.1)"}
    place.jobs.schedule("endless", tmp_path / "refresh.ipynb", cron="@daily", parameters=waits)
    endless = ask(jobs_model, "jobs", op="start", name="endless")["run"]
    assert ask(jobs_model, "jobs", op="cancel", name=endless)["state"] == "cancelled"
    assert ask(jobs_model, "jobs", op="pause", name="refresh")["paused"]
    assert ask(jobs_model, "tree")["jobs"] == {"jobs": 2, "paused": 1}
    assert [job["next_ms"] for job in ask(jobs_model, "jobs")["jobs"] if job["paused"]] == [None]
    resumed = ask(jobs_model, "jobs", op="resume", name="refresh")
    assert not resumed["paused"]
    assert eval(resumed["code"][0], {"lab": place}).name == "refresh"


@pytest.mark.parametrize("op", ["start", "rerun"])
def test_what_is_done_about_a_job_is_done_once_also_when_it_is_asked_again(place, refresh, jobs_model, op):
    name = "refresh"
    if op == "rerun":
        name = ask(jobs_model, "jobs", op="start", name="refresh")["run"]
        ended(jobs_model, name)
    before = len(place.jobs.history())
    asked = request("jobs", op=op, name=name, view="one")
    first, again = (list(jobs_model.steps(asked)) for _ in range(2))  # its answer was lost on the way
    assert first == again
    assert len(place.jobs.history()) == before + 1
    ended(jobs_model, first[-1]["run"])
    (other,) = jobs_model.steps(request("jobs", op=op, name=name, view="two"))
    assert other["run"] != first[-1]["run"]
    ended(jobs_model, other["run"])


def test_what_cannot_be_done_is_an_error_and_changes_nothing(jobs_model, refresh):
    for op in ("start", "pause", "resume", "cancel", "rerun", "log"):
        assert refused(jobs_model, "jobs", op=op, name="nothing")["class"] == "NotFoundError"
        assert refused(jobs_model, "jobs", op=op)["class"] == "InvalidRequestError"
    assert ask(jobs_model, "jobs")["runs"] == []


def test_a_read_only_explorer_shows_and_does_nothing(place, refresh):
    model = ExplorerModel(place, "my lab", read_only=True)
    for op in ("start", "pause", "resume", "cancel", "rerun"):
        assert "read-only" in refused(model, "jobs", op=op, name="refresh")["text"]
    assert len(ask(model, "jobs")["jobs"]) == 1
    assert not place.jobs.job("refresh").is_paused


def test_the_values_of_secrets_are_in_no_answer(place, tmp_path, monkeypatch):
    place.jobs.schedule(
        "keyed", tmp_path / "refresh.ipynb", cron="@daily", secrets=["SHOP_KEY"], parameters={"code": DONE, "email": "k-12345678"}
    )  # fmt: skip
    monkeypatch.setenv("SHOP_KEY", "k-12345678")
    record = make_run("r1", job="keyed", state="failed", error="refused k-12345678", summary={"key": "k-12345678"})
    task = place.jobs.store.job("keyed").task
    place.jobs.store.add_run(replace(record, task=task))
    model = ExplorerModel(place, "my lab")
    found = answers(model, "jobs") + answers(model, "jobs", op="log", name="r1") + answers(model, "tree")
    assert "k-12345678" not in json.dumps(found)
    assert "email=********" in found[0]["jobs"][0]["parameters"]
    assert found[1]["secrets"] == "SHOP_KEY"


def test_what_runs_print_is_not_shown_where_columns_are_hidden(place, refresh):
    run = make_run(
        "r1", job="refresh", state="failed", error="KeyError: 'a@example.org'", summary={"top": "a@example.org"}
    )
    place.jobs.store.add_run(run)
    log = place.jobs.find_run("r1").log_file
    log.parent.mkdir(parents=True)
    log.write_text("a@example.org\n")
    model = ExplorerModel(place, "my lab", mask=["email"])
    found = answers(model, "jobs") + answers(model, "jobs", op="log", name="r1")
    assert "example.org" not in json.dumps(found)
    assert "email" not in found[0]["jobs"][0]["parameters"]
    assert found[1]["log"] == "not shown: the text may quote a hidden column"


def test_hostile_texts_stay_text_and_on_their_lines(place, tmp_path, jobs_model):
    place.jobs.store.add_run(make_run("r1", job="x", state="failed", error=f"{IMAGE}\0", summary={IMAGE: "\u202e"}))
    log = place.jobs.find_run("r1").log_file
    log.parent.mkdir(parents=True)
    log.write_bytes(b"one\x1b[31m\ntwo\xff\n")
    shown = ask(jobs_model, "jobs", op="log", name="r1")
    assert shown["reason"] == f"{IMAGE}\\x00"
    assert shown["summary"] == [[IMAGE, "\\u202e"]]
    assert shown["log"] == "one\\x1b[31m\ntwo\ufffd\n"


def test_a_long_log_is_shown_by_its_end(place, jobs_model):
    place.jobs.store.add_run(make_run("r1", job="x", state="succeeded"))
    log = place.jobs.find_run("r1").log_file
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(200_000)))
    shown = ask(jobs_model, "jobs", op="log", name="r1")
    assert shown["log_cut"]
    assert shown["log"].endswith("line 199999\n")


def test_a_log_that_is_gone_is_said_to_be_that(place, jobs_model):
    place.jobs.store.add_run(make_run("r1", job="x", state="failed", error="no", started_ms=5, ended_ms=9))
    shown = ask(jobs_model, "jobs", op="log", name="r1")
    assert (shown["reason"], shown["log_file"]) == ("no", None)
    assert "r1.log was removed: what it printed is not known" in shown["log"]


def test_a_cron_text_that_cannot_be_read_hides_no_job(place, jobs_model):
    place.jobs.store.add_job(make_job(name="odd", cron="not a cron"), replaces=False)
    assert ask(jobs_model, "jobs")["jobs"][0]["words"] == ""

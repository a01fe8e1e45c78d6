"""The health of a lab as a view shows it: what is cheap at once, what is costly rarely and with its time."""

import os
import signal

import pytest

import fluss_lab as fl
from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.explorer_requests import parse_request
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.explorer.explorer_kit import answers, ask

pytestmark = pytest.mark.slow

KNOWN = ("check", "severity")


def test_servers_come_first_then_the_disk_then_what_the_doctor_finds(lab, model):
    first, second, third = answers(model, "health")
    assert (first["looking"], second["looking"], third["looking"]) == (["disk", "doctor"], ["doctor"], [])
    assert (first["disk"], first["doctor"]) == (None, None)
    assert second["disk"] == third["disk"]
    names = {"lab": lab}
    *before, last = third["code"]
    exec("\n".join(before), names)
    status = eval(last, names)
    coordinator, *tablets = third["servers"]["rows"]
    assert [(row["name"], row["state"], row["restarts"]) for row in tablets] == [
        (f"tablet {row['id']}", row["state"], row["restarts"]) for row in status.servers
    ]
    assert coordinator["process"] == status.memory[0]["process"]
    assert coordinator["bytes"] > 1_000_000
    assert [row[0] for row in third["disk"]["rows"]] == [row["store"] for row in status.disk]
    assert int(third["disk"]["free"]) < int(third["disk"]["total"])
    found = names["findings"]
    assert [[row[name] for name in KNOWN] for row in third["doctor"]["rows"]] == [
        [row[name] for name in KNOWN] for row in found
    ]
    assert third["servers"]["epoch"] == status.coordinator_epoch


def test_what_is_costly_is_looked_at_when_it_is_old_and_the_tree_says_what_was_found(lab):
    model = ExplorerModel(lab, "my lab")
    assert ask(model, "tree")["findings"] is None
    looked = answers(model, "health")[-1]
    again = answers(model, "health", age_s=300)
    assert len(again) == 1
    assert again[0]["doctor"] == looked["doctor"]
    findings = ask(model, "tree")["findings"]
    severities = [row["severity"] for row in looked["doctor"]["rows"]]
    assert (findings["problems"], findings["warnings"]) == (severities.count("problem"), severities.count("warning"))
    assert findings["at_ms"] == looked["doctor"]["at_ms"]
    fresh = answers(model, "health", age_s=0)
    assert len(fresh) == 3
    assert fresh[-1]["doctor"]["at_ms"] > looked["doctor"]["at_ms"]


def test_of_a_lab_elsewhere_memory_and_disk_are_not_known_and_said_so(lab):
    model = ExplorerModel(fl.Lab(lab.connection, folder=None, attachment=None, place={}), "elsewhere")
    found = answers(model, "health")[-1]
    assert "on the machine of the lab's folder only" in found["servers"]["memory_error"]
    assert found["disk"]["error"]["class"] == "UnsupportedError"
    assert found["doctor"]["rows"]


def test_a_server_that_is_away_is_a_finding(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "200ms"}) as lab:
        model = ExplorerModel(lab, "lab")
        lab.connection.close()
        found = answers(model, "health")[-1]
    assert "error" in found["servers"]
    assert found["disk"]["error"]["class"] == found["servers"]["error"]["class"]


def test_a_server_that_was_killed_is_there_again_with_another_epoch(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "200ms"}) as lab:
        model = ExplorerModel(lab, "lab")
        before = answers(model, "health")[-1]["servers"]
        os.kill(before["rows"][0]["process"], signal.SIGKILL)
        wait_until(lambda: ask(model, "health", age_s=0)["servers"].get("epoch", 0) > before["epoch"])
        after = answers(model, "health", age_s=0)[-1]
    assert after["servers"]["rows"][0]["process"] != before["rows"][0]["process"]
    assert after["disk"]["rows"]
    assert not [row for row in after["doctor"]["rows"] if row["check"] == "server" and row["severity"] != "ok"]


def test_findings_name_no_hidden_column(lab):
    shown = answers(ExplorerModel(lab, "my lab"), "health")[-1]["doctor"]["rows"]
    assert any("my lab" in row["found"] for row in shown)
    masked = answers(ExplorerModel(lab, "my lab", mask=["LAB"]), "health")[-1]["doctor"]["rows"]
    assert not [row for row in masked if "my lab" in f"{row['check']} {row['found']} {row['command']}"]
    assert len(masked) == len(shown)


@pytest.mark.parametrize("age", ["now", None, 1.5])
def test_an_age_is_a_number_of_seconds(age):
    with pytest.raises(InvalidRequestError):
        parse_request({"kind": "health", "slot": "h", "seq": 1, "age_s": age})

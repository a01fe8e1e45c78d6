"""The live tail: what comes is shown or counted, held in a pause, and never lost."""

import itertools
import json
import time

import pytest

import fluss_lab as fl
from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explorer_answers import ANSWER_BYTES_MAX
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.screens import live_tail
from fluss_lab.explorer.texts.change_rows import COLUMNS_DRAWN
from fluss_lab.testing.clusters import ServerProcess
from fluss_lab.workbench.lab_place import LabPlace
from tests.unit.explorer.explorer_kit import ask, refused, request

pytestmark = pytest.mark.slow


@pytest.fixture
def table(lab, request):
    return lab.create_table(f"shop.tail{abs(hash(request.node.nodeid))}", {"id": "int", "email": "string"}, buckets=2)


@pytest.fixture
def tail(model, table):
    yield lambda op, view="": say(model, table, op, view)
    model.close()


def say(model, table, op, view=""):
    return (each for each in model.steps(request("tail", table=str(table.path), op=op, view=view)) if each is not None)


def until(steps, enough):
    """Return answers up to the first that is enough."""
    found = []
    for answer in itertools.islice(steps, 200):
        assert "error" not in answer, answer
        found.append(answer)
        if enough(answer, found):
            return found
    raise AssertionError(found[-1])


def rows(count, start=0):
    return [{"id": start + n, "email": "a@example.org"} for n in range(count)]


def seen(answers):
    return sum(len(each["types"]) + each["skipped"] for each in answers)


def test_what_comes_is_shown_or_counted(table, tail):
    steps = tail("start")
    first = next(steps)
    assert (first["state"], first["types"]) == ("following", [])
    assert "subscribe" in first["code"][1]
    table.append(rows(1))
    found = until(steps, lambda answer, _: answer["types"])
    assert found[-1]["cells"] == [["0", "a@example.org"]]
    assert found[-1]["types"] == ["+A"]
    begin = time.monotonic()
    table.append(rows(2_000, 1))
    found = until(steps, lambda _, found: seen(found) == 2_000)
    assert found[-1]["total"] == 2_001
    shown = sum(len(each["types"]) for each in found)
    assert 0 < shown <= live_tail.SHOWN_PER_S * (2 + time.monotonic() - begin)
    assert found[-1]["held"] == 0
    assert max(each["rate"] for each in found) > 100


def test_what_one_call_writes_by_hand_is_shown_whole(table, tail):
    steps = tail("start")
    next(steps)
    table.append(rows(12))
    found = until(steps, lambda _, found: seen(found) == 12)
    assert sum(each["skipped"] for each in found) == 0
    assert [row[3] for each in found for row in each["rows"]] == sorted(
        row[3] for each in found for row in each["rows"]
    )


def test_reading_keeps_up_with_more_than_is_held(table, tail, monkeypatch):
    monkeypatch.setattr(live_tail, "HELD_MAX", 100)
    steps = tail("start")
    next(steps)
    for begin in range(0, 20_000, 1_000):
        table.append(rows(1_000, begin))
    found = until(steps, lambda _, found: seen(found) == 20_000)
    assert {each["state"] for each in found} == {"following"}


def test_a_pause_holds_so_many_and_loses_nothing(table, tail, monkeypatch):
    monkeypatch.setattr(live_tail, "HELD_MAX", 1_000)
    next(tail("start"))
    steps = tail("pause")
    table.append(rows(700))
    until(steps, lambda answer, _: answer["held"] == 700)
    for begin in range(700, 20_000, 700):
        table.append(rows(700, begin))
    full = until(steps, lambda answer, _: answer["state"] == "full")[-1]
    assert full["types"] == []
    table.append(rows(700, 20_300))
    assert {next(steps)["held"] for _ in range(4)} == {full["held"]}, "nothing more is read"
    steps = tail("resume")
    found = until(steps, lambda _, found: seen(found) == 21_000)
    assert len(found[0]["types"]) == live_tail.RESUMED_MAX
    assert found[-1]["state"] == "following"


def test_a_pause_holds_so_many_bytes(table, tail, monkeypatch):
    monkeypatch.setattr(live_tail, "HELD_BYTES_MAX", 10_000)
    next(tail("start"))
    steps = tail("pause")
    table.append([{"id": n, "email": "x" * 1_000} for n in range(200)])
    assert until(steps, lambda answer, _: answer["state"] == "full")[-1]["held"] < live_tail.HELD_MAX


def test_a_view_that_says_it_is_there_changes_nothing(table, tail):
    steps = tail("start")
    next(steps)
    table.append(rows(3_000))
    before = until(steps, lambda _, found: seen(found) == 3_000)[-1]
    table.append(rows(3_000, 3_000))
    found = until(tail("resume"), lambda _, found: seen(found) == 3_000)
    assert all(len(each["types"]) <= live_tail.SHOWN_PER_S for each in found)
    assert found[0]["rate"] > before["rate"] / 4, "the rate goes on"


def test_views_follow_each_on_its_own(table, tail, monkeypatch):
    first, second = tail("start", "one"), tail("start", "two")
    next(first), next(second)
    next(tail("pause", "two"))
    table.append(rows(5))
    until(first, lambda _, found: seen(found) == 5)
    assert until(tail("pause", "two"), lambda answer, _: answer["held"] == 5)[-1]["state"] == "paused"
    monkeypatch.setattr(live_tail, "TAILS_MAX", 2)
    assert "2 views follow" in next(tail("start", "three"))["error"]["text"]
    assert [each["state"] for each in tail("stop", "one")] == ["ended"]
    assert next(tail("start", "three"))["state"] == "following"


def test_a_view_that_is_gone_follows_nothing(model, table, tail):
    next(tail("start", "mine"))
    ask(model, "leave", view="mine")
    assert "nothing is followed" in next(tail("resume", "mine"))["error"]["text"]


def test_an_error_ends_it(lab, model, table, tail):
    steps = tail("start")
    next(steps)
    lab.drop_table(table.path)
    error = next(each for each in itertools.islice(steps, 200) if "error" in each)["error"]
    assert error["class"] == "TableNotFoundError"
    assert "nothing is followed" in next(tail("resume"))["error"]["text"]


def test_an_outage_loses_nothing_and_a_pause_stays_one(tmp_path, monkeypatch):
    """It lasts longer than a request waits for a server; what is written then is held, and shown when a person goes on."""
    monkeypatch.setattr(live_tail, "SILENT_S", 300.0)
    with ServerProcess(tmp_path / "lab", client={"client.request-timeout": "2s"}) as server:
        lab = fl.Lab._from_place(LabPlace(server.connection, server.folder, None, {}))
        lab.create_database("shop")
        table = lab.create_table("shop.outlived", {"id": "int", "email": "string"}, buckets=2)
        model = ExplorerModel(lab, "lab")
        steps = say(model, table, "start")
        next(steps)
        table.append(rows(3))
        until(steps, lambda _, found: seen(found) == 3)
        steps = say(model, table, "pause")
        table.append(rows(4, 3))
        until(steps, lambda answer, _: answer["held"] == 4)
        server.kill()
        assert until(steps, lambda answer, _: answer["state"] == "away")[-1]["held"] == 4
        server.start()
        until(steps, lambda answer, _: answer["state"] == "paused")  # before anything is written
        table.append(rows(5, 7))
        until(steps, lambda answer, _: answer["held"] == 9)
        found = until(say(model, table, "resume"), lambda _, found: seen(found) == 9)
        assert sorted(int(cells[0]) for each in found for cells in each["cells"]) == list(range(3, 12))
        assert (found[-1]["total"], found[-1]["state"]) == (12, "following")
        model.close()


def test_what_is_closed_while_it_begins_leaves_no_scanner_open(table):
    tail, opened = live_tail.LiveTail(table.info, ["id"], None), []

    def open_scanner():
        opened.append(table.subscribe("latest"))
        tail.close()
        return opened[0]

    with pytest.raises(InvalidRequestError):
        tail.begin(open_scanner)
    assert "closed" in repr(opened[0])


def test_the_two_records_of_an_update_belong_together(lab, model):
    planes = lab.create_table("shop.followed", {"id": "int", "n": "int"}, primary_key=["id"], buckets=1)
    planes.upsert([{"id": 1, "n": 1}])
    steps = say(model, planes, "start")
    next(steps)
    planes.upsert([{"id": 1, "n": 2}])
    answer = until(steps, lambda answer, _: len(answer["types"]) == 2)[-1]
    assert (answer["types"], answer["pairs"]) == (["-U", "+U"], [[0, 1]])
    model.close()


def test_wide_tables_are_cut_to_what_a_message_holds(lab, model):
    wide = lab.create_table("shop.followed_wide", {f"c{n}": "string" for n in range(130)})
    next(say(model, wide, "start"))
    steps = say(model, wide, "pause")
    wide.append([{f"c{n}": "é" * 190 for n in range(130)} for _ in range(300)])
    until(steps, lambda answer, _: answer["held"] == 300)
    answer = next(say(model, wide, "resume"))
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= ANSWER_BYTES_MAX
    assert len(answer["cells"]) == live_tail.RESUMED_MAX
    assert answer["columns"] == [f"c{n}" for n in range(COLUMNS_DRAWN)]
    assert [0, 0] in answer["cut"]
    model.close()


def test_a_view_that_is_silent_ends_it(table, tail, monkeypatch):
    monkeypatch.setattr(live_tail, "SILENT_S", 0.4)
    assert list(tail("start"))[-1]["state"] == "ended"


def test_it_is_stopped(model, table, tail):
    next(tail("start"))
    assert [each["state"] for each in tail("stop")] == ["ended"]
    assert refused(model, "tail", table=str(table.path), op="resume")["class"] == "InvalidRequestError"


def test_masked_columns_are_not_followed(lab, table):
    model = ExplorerModel(lab, "lab", mask=["email"])
    steps = (each for each in model.steps(request("tail", table=str(table.path), op="start")) if each is not None)
    next(steps)
    table.append(rows(3))
    found = until(steps, lambda answer, _: answer["types"])
    assert found[-1]["columns"] == ["id"]
    assert "example" not in str(found)
    model.close()
    assert ask(model, "head", table=str(table.path))["rows"] == "3"

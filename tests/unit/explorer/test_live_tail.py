"""The live tail: what comes is shown or counted, held in a pause, and never lost."""

import itertools

import pytest

from fluss_lab.explorer.screens import live_tail
from tests.unit.explorer.explorer_kit import ask, refused, request


@pytest.fixture
def table(lab, request):
    return lab.create_table(f"shop.tail{abs(hash(request.node.nodeid))}", {"id": "int", "email": "string"}, buckets=2)


@pytest.fixture
def tail(model, table):
    def say(op):
        return (each for each in model.steps(request("tail", table=str(table.path), op=op)) if each is not None)

    yield say
    model.close()


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
    table.append(rows(2_000, 1))
    found = until(steps, lambda _, found: seen(found) == 2_000)
    assert all(len(each["types"]) <= live_tail.SHOWN_MAX for each in found)
    assert found[-1]["held"] == 0


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
    assert next(steps)["held"] == full["held"], "nothing more is read"
    steps = tail("resume")
    found = until(steps, lambda _, found: seen(found) == 20_300)
    assert len(found[0]["types"]) == live_tail.RESUMED_MAX
    assert found[-1]["state"] == "following"


def test_a_view_that_is_silent_ends_it(table, tail, monkeypatch):
    monkeypatch.setattr(live_tail, "SILENT_S", 0.4)
    assert list(tail("start"))[-1]["state"] == "ended"


def test_it_is_stopped(model, table, tail):
    next(tail("start"))
    assert [each["state"] for each in tail("stop")] == ["ended"]
    assert refused(model, "tail", table=str(table.path), op="resume")["class"] == "InvalidRequestError"


def test_masked_columns_are_not_followed(lab, table):
    from fluss_lab.explorer.explorer_model import ExplorerModel

    model = ExplorerModel(lab, "lab", mask=["email"])
    steps = (each for each in model.steps(request("tail", table=str(table.path), op="start")) if each is not None)
    next(steps)
    table.append(rows(3))
    found = until(steps, lambda answer, _: answer["types"])
    assert found[-1]["columns"] == ["id"]
    assert "example" not in str(found)
    model.close()
    assert ask(model, "head", table=str(table.path))["rows"] == "3"

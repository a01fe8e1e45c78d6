"""The screen Tiering: its answer is what the table's own listings say, and its lines give them."""

import pytest

from fluss_lab.explorer.screens.tiering_answers import ROUNDS_MAX
from fluss_lab.model.times import parse_moment
from tests.unit.explorer.explorer_kit import ask, refused
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clicks(lab):
    table = lab.create_table(
        "shop.clicks", {"id": "int"}, buckets=2, properties={**LAKE, "table.datalake.freshness": "90s"}
    )
    for turn in range(3):
        table.append([{"id": n} for n in range(10 * (turn + 1))])
        tier(table)
    table.append([{"id": 1}])
    return table


def test_state_lag_and_rounds_are_those_of_the_table_and_the_lines_give_them(lab, model, clicks):
    answer = ask(model, "tiering", table="shop.clicks")
    assert answer["enabled"]
    assert answer["state"] in {"Tiered", "Scheduled", "Pending"}
    assert (answer["epoch"], answer["freshness_ms"], answer["trouble"]) == (3, 90_000, None)
    names = {"lab": lab}
    *before, last = answer["code"]
    exec("\n".join(before), names)
    rounds, lag = eval(last, names), names["lag"]
    shown = answer["rounds"][::-1]
    assert [each[0] for each in shown] == rounds["round"].tolist() == [1, 2, 3]
    assert [each[1] for each in shown] == [parse_moment(text) for text in rounds["start"]]
    assert [int(each[4]) for each in shown] == rounds["rows"].tolist() == [10, 20, 30]
    assert [each[9] for each in shown] == [str(each) for each in rounds["snapshot_id"]]
    assert [each[7] for each in shown] == rounds[["plan_s", "write_s", "commit_s", "maintain_s"]].to_numpy().tolist()
    assert [each[3] for each in shown] == ["done"] * 3
    *samples, (_, records, _) = answer["lag"]
    assert [[int(records), ms] for _, records, ms in samples] == lag[["records", "lag_ms"]].to_numpy().tolist()[:-1]
    assert records == str(lag["records"].iloc[-1]) == "1"


def test_a_table_that_is_not_in_the_lake_says_how_it_gets_there(lab, model):
    table = lab.create_table("shop.dry", {"id": "int"})
    answer = ask(model, "tiering", table="shop.dry")
    assert not answer["enabled"]
    assert refused(model, "round", table="shop.dry", action="a", op="cancel")["class"] == "InvalidRequestError"
    exec(answer["todo"], {"dry": table})
    assert ask(model, "tiering", table="shop.dry")["enabled"]
    assert ask(model, "tiering", table="shop.dry")["rounds"] == []


def test_only_the_newest_rounds_come(lab, model, clicks, monkeypatch):
    monkeypatch.setattr("fluss_lab.explorer.screens.tiering_answers.ROUNDS_MAX", 2)
    assert [each[0] for each in ask(model, "tiering", table="shop.clicks")["rounds"]] == [3, 2]
    assert ROUNDS_MAX == 50


def test_a_table_of_the_same_path_made_later_is_another_one(model, clicks):
    for kind, body in (("tiering", {}), ("form", {}), ("round", {"action": "x1", "op": "start"}), ("compact", {"action": "x2"}),
                       ("write", {"action": "x3", "mode": "append", "values": {"id": "1"}})):  # fmt: skip
        error = refused(model, kind, table="shop.clicks", table_id="7", **body)
        assert error["class"] == "TableNotFoundError"
    assert clicks.count() == 61

"""The difference of two moments as a view shows it: counts, the first rows of each kind, and their lines."""

import json

import pytest

from fluss_lab.explorer.explorer_answers import ANSWER_BYTES_MAX
from fluss_lab.explorer.explorer_model import ExplorerModel
from fluss_lab.explorer.request_queue import RequestQueue
from fluss_lab.explorer.screens import diff_answers
from fluss_lab.explorer.screens.diff_answers import COLUMNS_MAX, PAGE_ROWS, ROWS_MAX
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.explorer.explorer_kit import answers, ask, refused, request, run
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow

IMAGE = "<img src=x onerror=alert(1)>"
KINDS = ("added", "removed", "changed")


@pytest.fixture(scope="module")
def planes(lab):
    """A primary-key table, tiered; then 20 rows added, 10 removed and 30 changed."""
    columns = {"tailnum": "string", "model": "string", "seats": "int", "email": "string"}
    table = lab.create_table("shop.compared", columns, primary_key=["tailnum"], buckets=3, properties=LAKE)
    table.upsert([{"tailnum": f"N{n}", "model": "A", "seats": n, "email": f"secret-{n}"} for n in range(300)])
    tier(table)
    table.upsert([{"tailnum": f"M{n}", "model": "B", "seats": n} for n in range(20)])
    table.delete([{"tailnum": f"N{n}"} for n in range(10)])
    table.upsert([{"tailnum": f"N{n}", "model": "A", "seats": -n, "email": f"secret-{n}"} for n in range(100, 120)])
    table.upsert([{"tailnum": f"N{n}", "model": None, "seats": n, "email": "other-secret"} for n in range(200, 210)])
    return table


@pytest.fixture(scope="module")
def flights(lab):
    table = lab.create_table(
        "shop.grown", {"id": "int", "month": "string"}, partitioned_by=["month"], buckets=2, properties=LAKE
    )
    table.append([{"id": n, "month": f"2013-0{1 + n % 3}"} for n in range(60)])
    tier(table)
    table.append([{"id": n, "month": f"2013-0{1 + n % 4}"} for n in range(60, 1_560)])
    return table


def first_snapshot(table):
    return str(table.snapshots()[0]["snapshot_id"])


def compare(model, table, before, after=""):
    return ask(model, "diff", table=str(table.path), op="run", before=before, after=after)


def all_rows(model, table, found, change):
    """Return the pages of a kind as one answer."""
    whole = ask(model, "diff_rows", table=str(table.path), diff=found["diff"], change=change)
    while len(whole["cells"]) < whole["total"]:
        page = ask(
            model, "diff_rows", table=str(table.path), diff=found["diff"], change=change, first=len(whole["cells"])
        )
        assert 0 < len(page["cells"]) <= PAGE_ROWS
        for name in ("cells", "rows", "old"):
            if name in whole:
                whole[name] += page[name]
    return whole


def text(value):
    return None if value is None else str(value)


# -- what it is --------------------------------------------------------------------------------------------------------


def test_the_difference_from_a_snapshot_on(lab, model, planes):
    found = compare(model, planes, first_snapshot(planes))
    assert found["counts"] == {"added": "20", "removed": "10", "changed": "30"}
    assert found["keyed"]
    assert int(found["lake"]) + int(found["log"]) == 20 + 10 + 2 * 30
    for change in ("added", "removed"):
        answer = all_rows(model, planes, found, change)
        exact = run(answer, lab).astype(object).where(lambda each: each.notna(), None)
        assert answer["columns"] == list(exact.columns)
        assert answer["cells"] == [[text(value) for value in row] for row in exact.itertuples(index=False)]
        assert len(answer["rows"]) == len(exact)


def test_changed_rows_say_what_was_and_what_is(lab, model, planes):
    found = compare(model, planes, first_snapshot(planes), "now")
    answer = all_rows(model, planes, found, "changed")
    exact = run(answer, lab).astype(object).where(lambda each: each.notna(), None)
    assert set(answer["columns"]) == {"tailnum", "model", "seats", "email"}
    assert answer["columns"][0] == "tailnum"
    assert len(answer["cells"]) == len(answer["old"]) == len(exact) == 30
    for cells, old, row in zip(answer["cells"], answer["old"], exact.to_dict("records"), strict=True):
        shown = dict(zip(answer["columns"], cells, strict=True))
        before = {answer["columns"][place]: value for place, value in old}
        assert shown["tailnum"] == row["tailnum"]
        differ = {name for name in ("model", "seats", "email") if row[f"before.{name}"] != row[f"after.{name}"]}
        assert set(before) == differ != set()
        for name in ("model", "seats", "email"):
            assert shown[name] == text(row[f"after.{name}"])
            assert before.get(name, shown[name]) == text(row[f"before.{name}"])


def test_backwards_what_was_added_is_removed(lab, model, planes):
    snapshot = first_snapshot(planes)
    found = compare(model, planes, "now", snapshot)
    assert found["counts"] == {"added": "10", "removed": "20", "changed": "30"}
    answer = all_rows(model, planes, found, "removed")
    assert {row[0][0] for row in answer["cells"]} == {"M"}
    assert len(run(answer, lab)) == 20


def test_the_same_moment_has_no_difference(model, planes):
    snapshot = first_snapshot(planes)
    found = compare(model, planes, snapshot, snapshot)
    assert set(found["counts"].values()) == {"0"}
    assert all_rows(model, planes, found, "changed")["cells"] == []


def test_a_log_table_only_grows(lab, model, flights):
    found = compare(model, flights, first_snapshot(flights))
    assert found["counts"] == {"added": "1500", "removed": "0", "changed": "0"}
    assert not found["keyed"]
    answer = all_rows(model, flights, found, "added")
    exact = run(answer, lab)
    assert answer["total"] == ROWS_MAX == len(answer["cells"])
    assert answer["cells"] == [[str(row.id), row.month] for row in exact.head(ROWS_MAX).itertuples()]
    log = flights.changelog().to_pandas()
    places = {
        (r["_partition"], r["_bucket"], r["_log_offset"]): (str(r["id"]), r["month"]) for r in log.to_dict("records")
    }
    assert [places[partition, bucket, int(offset)] for partition, bucket, offset in answer["rows"]] == [
        tuple(row) for row in answer["cells"]
    ]


# -- on the way --------------------------------------------------------------------------------------------------------


def test_how_far_it_is_comes_again_and_again(model, planes, monkeypatch):
    monkeypatch.setattr(diff_answers, "_PROGRESS_S", 0.0)
    *said, last = answers(model, "diff", table="shop.compared", op="run", before=first_snapshot(planes))
    assert "counts" in last
    steps = [(int(records), done, buckets) for records, done, buckets in (each["progress"] for each in said)]
    assert steps == sorted(steps)
    assert steps[-1][1:] == (3, 3)


def test_it_can_be_left_at_any_step(model, planes):
    steps = model.steps(request("diff", table="shop.compared", op="run", before=first_snapshot(planes)))
    assert next(steps) is None
    steps.close()
    assert ask(model, "diff", table="shop.compared", op="stop") == {"kind": "diff", "stopped": True}


def test_a_comparison_that_is_cancelled_gives_no_further_answer(model, planes, monkeypatch):
    monkeypatch.setattr(diff_answers, "_PROGRESS_S", 0.0)
    run_it = request("diff", table="shop.compared", op="run", before=first_snapshot(planes))
    stop = request("diff", table="shop.compared", op="stop")
    seen = []

    def take(answer):
        seen.append(answer)
        if len(seen) == 1:
            worker.submit(stop)

    worker = RequestQueue(model.steps, take)
    worker.submit(run_it)
    wait_until(lambda: any("stopped" in answer for answer in seen))
    worker.close()
    assert "progress" in seen[0]
    assert [answer["seq"] for answer in seen if "last" not in answer] == [run_it.seq, stop.seq]
    assert run_it.seq not in {answer["seq"] for answer in seen if "last" in answer}


def test_rows_of_a_comparison_that_is_not_kept_are_an_error(model, planes):
    found = [compare(model, planes, first_snapshot(planes)) for _ in range(5)]
    assert ask(model, "diff_rows", table="shop.compared", diff=found[1]["diff"], change="added")["cells"]
    error = refused(model, "diff_rows", table="shop.compared", diff=found[0]["diff"], change="added")
    assert error["class"] == "InvalidRequestError"
    assert "compare it again" in error["text"]


def test_rows_of_one_table_are_not_shown_for_another(model, planes, flights):
    found = compare(model, planes, first_snapshot(planes))
    error = refused(model, "diff_rows", table="shop.grown", diff=found["diff"], change="added")
    assert error["class"] == "InvalidRequestError"


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("", "InvalidRequestError"), ("never", "InvalidTimestampError"), ("1999-01-01", "InvalidTimestampError"),
        ("9223372036854775807", "LakeSnapshotNotFoundError"), (IMAGE, "InvalidTimestampError"),
    ],
)  # fmt: skip
def test_a_moment_that_is_none_is_an_error(model, planes, before, error):
    assert refused(model, "diff", table="shop.compared", op="run", before=before)["class"] == error


# -- bounds, and what is hidden ----------------------------------------------------------------------------------------


def test_wide_rows_are_cut_and_the_columns_that_changed_come_first(lab, model):
    columns = {"id": "int", **{f"c{n}": "string" for n in range(60)}}
    table = lab.create_table("shop.broad", columns, primary_key=["id"], properties=LAKE)
    row = dict.fromkeys(columns, "ü" * 210) | {"id": 0}
    table.upsert([row | {"id": n} for n in range(210)])
    tier(table)
    table.upsert([row | {"id": n, "c50": "changed"} for n in range(210)])
    found = compare(model, table, first_snapshot(table))
    answer = ask(model, "diff_rows", table="shop.broad", diff=found["diff"], change="changed")
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= ANSWER_BYTES_MAX
    assert answer["columns"][:2] == ["id", "c50"]
    assert (len(answer["columns"]), answer["columns_left_out"]) == (COLUMNS_MAX, 31)
    assert len(answer["cells"]) == PAGE_ROWS
    assert all([place for place, _ in old] == [1] for old in answer["old"])
    lab.drop_table("shop.broad")


def test_hostile_values_come_as_text(lab, model):
    table = lab.create_table("shop.rude", {"id": "int", "text": "string"}, primary_key=["id"], properties=LAKE)
    table.upsert([{"id": 1, "text": IMAGE}, {"id": 2, "text": ""}])
    tier(table)
    table.upsert([{"id": 1, "text": "a\x00\u202e"}, {"id": 2, "text": None}])
    found = compare(model, table, first_snapshot(table))
    answer = ask(model, "diff_rows", table="shop.rude", diff=found["diff"], change="changed")
    assert sorted(zip([cells[1] for cells in answer["cells"]], answer["old"], strict=True), key=str) == [
        ("a\\x00\\u202e", [[1, IMAGE]]), (None, [[1, ""]]),
    ]  # fmt: skip
    lab.drop_table("shop.rude")


def test_masked_columns_are_in_no_difference(lab, planes):
    model = ExplorerModel(lab, "my lab", mask=["EMAIL"])
    found = compare(model, planes, first_snapshot(planes))
    assert found["hidden"]
    assert found["counts"]["changed"] == "30"
    reported = [all_rows(model, planes, found, change) for change in KINDS]
    shown = json.dumps(
        [found, *reported, *answers(model, "diff", table="shop.compared", op="run", before="never")]
    ).lower()
    assert "email" not in shown
    assert "secret" not in shown
    for answer in reported:
        frame = run(answer, lab)
        assert "email" not in "".join(frame.columns)
        assert len(frame) == len(answer["cells"])


def test_a_partition_column_cannot_be_hidden_here_either(lab, flights):
    model = ExplorerModel(lab, "my lab", mask=["month"])
    assert refused(model, "diff", table="shop.grown", op="run", before="now")["class"] == "InvalidRequestError"


def test_a_table_that_is_another_one_now_is_not_compared(model, planes):
    error = refused(model, "diff", table="shop.compared", table_id="999999", op="run", before="now")
    assert error["class"] == "TableNotFoundError"

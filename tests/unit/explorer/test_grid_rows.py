"""The rows of a grid: in steps between which another request can take over, bounded in rows and bytes."""

import sys

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.explorer.screens import grid_rows, row_answers
from fluss_lab.explorer.screens.column_facts import SAMPLE_BYTES
from fluss_lab.explorer.screens.grid_rows import GridRows
from fluss_lab.read.union import lake_rows, row_pages
from tests.unit.explorer.explorer_kit import answers, ask, refused, request
from tests.unit.workbench.lab_kit import LAKE, tier

pytestmark = pytest.mark.slow

COUNT = 200_000


@pytest.fixture(scope="module")
def large(lab):
    """A log table of which no more is in the lake than in the log."""
    table = lab.create_table("shop.large", {"id": "bigint", "name": "string"}, buckets=2, properties=LAKE)
    rows = pa.table({"id": np.arange(COUNT), "name": pa.array(["name"] * COUNT)})
    table.append(rows.slice(0, COUNT // 2))
    tier(table)
    table.append(rows.slice(COUNT // 2))
    return table


@pytest.fixture
def small_steps(monkeypatch):
    """So few rows are read at once that a table of some ten thousands takes many steps, as a large one does."""
    for module, name in ((row_pages, "STEP_ROWS"), (row_pages, "STEP_ROWS_MAX"), (lake_rows, "STEP_ROWS_MAX")):
        monkeypatch.setattr(module, name, 4_000)


def last(steps):
    found = [None, *steps]
    return found[-1]


def test_a_search_for_what_is_not_there_takes_many_steps(model, large, small_steps):
    steps = list(model.steps(request("page", table="shop.large", where="id < 0")))
    assert steps[-1]["cells"] == []
    assert (steps[-1]["total"], steps[-1]["point"]["records"]) == (0, str(COUNT))
    assert len(steps) > 15


def test_a_row_is_found_without_sql_which_takes_long_to_import(model, large, monkeypatch):
    page = ask(model, "page", table="shop.large", count=3)
    partition, bucket, offset, _ = page["rows"][2]
    monkeypatch.setitem(sys.modules, "fluss_lab.read.filter.where_clause", None)
    asked = {"table": "shop.large", "point": page["point"]["name"], "partition": partition, "bucket": bucket}
    assert [text for _, text, _ in ask(model, "row", **asked, offset=offset)["values"]] == page["cells"][2]


def test_rows_that_come_early_are_there_before_the_rest_is_read(model, large):
    page = ask(model, "page", table="shop.large", where="name = 'name'", count=200)
    assert len(page["cells"]) == 200
    assert page["total"] is None
    assert 200 <= page["at_least"] < COUNT // 2


def test_rows_that_are_found_are_shown_while_more_are_looked_for(lab, model, monkeypatch):
    monkeypatch.setattr(row_answers, "_PART_AFTER_S", 0)
    table = lab.create_table("shop.sparse", {"id": "bigint"}, buckets=1)
    table.append(pa.table({"id": np.arange(60_000)}))
    *parts, page = answers(model, "page", table="shop.sparse", where="id % 10000 = 7")
    exact = [[str(10_000 * n + 7)] for n in range(6)]
    assert page["cells"] == exact
    assert "partial" not in page
    assert parts
    for part in parts:
        assert part["partial"]
        assert part["cells"] == exact[: len(part["cells"])] != []
        assert part["total"] is None
        assert part["point"] == page["point"]
    lab.drop_table("shop.sparse")


def test_a_read_that_was_given_up_goes_on_from_there(model, large, small_steps):
    asked = {"table": "shop.large", "where": "id % 1000 = 999"}
    point = ask(model, "page", **asked, count=1)["point"]["name"]
    steps = model.steps(request("count", **asked, point=point))
    for _ in range(8):
        next(steps)
    steps.close()
    grid = model.rows.grids[point]
    known = grid.at_least
    assert known > 1
    assert grid.total is None
    assert ask(model, "count", **asked, point=point)["total"] == COUNT // 1000


def test_a_grid_shows_any_columns_of_its_rows(lab, large):
    grid = GridRows(large, "id % 3 = 0", None)
    for _ in grid.count():
        pass
    exact = large.scan(["name", "id"], "id % 3 = 0", read_point=grid.point).to_arrow()
    assert grid.total == len(exact)
    for columns in (["id"], ["name", "id"], ["name"], [], ["id", "name"], ["id"]):
        page = last(grid.page(30_000, 40, columns))
        assert page.rows.select(columns).equals(exact.slice(30_000, 40).select(columns))
    assert len(grid._open) <= grid_rows._OPEN_MAX
    grid.close()
    grid.close()


@pytest.mark.parametrize("tiered", [False, True])
def test_a_sample_of_wide_rows_is_bounded_in_bytes(lab, model, tiered):
    table = lab.create_table("shop.huge", {"id": "int", "text": "string"}, buckets=1, properties=LAKE)
    for n in range(60):
        table.append([{"id": n, "text": "x" * 1_000_000}])
    if tiered:
        tier(table)
    point = ask(model, "page", table="shop.huge", count=1)["point"]["name"]
    facts = ask(model, "facts", table="shop.huge", point=point, columns=["text", "id"])
    assert 4 <= facts["rows"] <= 1 + SAMPLE_BYTES // 1_000_000
    assert all(each["rows"] == facts["rows"] and each["sampled"] for each in facts["columns"])
    narrow = ask(model, "facts", table="shop.huge", point=point, columns=["id"])
    assert narrow["rows"] == 60
    assert not narrow["columns"][0]["sampled"]
    lab.drop_table("shop.huge")


def test_what_came_after_the_read_point_is_no_row_of_it(lab, model):
    table = lab.create_table("shop.parted", {"id": "int", "month": "string"}, partitioned_by=["month"], buckets=1)
    table.append([{"id": 1, "month": "2013-01"}])
    point = ask(model, "page", table="shop.parted")["point"]["name"]
    table.append([{"id": 2, "month": "2013-02"}, {"id": 3, "month": "2013-01"}])
    asked = {"table": "shop.parted", "point": point}
    for partition, bucket, offset in (("2013-02", 0, "0"), ("2013-01", 0, "1"), ("2013-01", 7, "0"), (None, 0, "0")):
        found = refused(model, "row", **asked, partition=partition, bucket=bucket, offset=offset)
        assert "is no row" in found["text"]
    assert ask(model, "row", **asked, partition="2013-01", bucket=0, offset="0")["values"][0] == ["id", "1", False]
    for offset in ("ten", "-1", "1.5", ""):
        found = refused(model, "row", **asked, partition="2013-01", bucket=0, offset=offset)
        assert "expected an offset such as 1,234" in found["text"]
    lab.drop_table("shop.parted")


def test_rows_keep_the_columns_of_their_read_point_when_the_table_is_altered(lab, model):
    table = lab.create_table("shop.altered", {"id": "int"}, buckets=1)
    table.append([{"id": n} for n in range(3)])
    point = ask(model, "page", table="shop.altered", count=1)["point"]
    table.alter(add_columns={"added": "string"})
    asked = {"table": "shop.altered", "point": point["name"]}
    page = ask(model, "page", **asked, columns=["id", "added"])
    assert (page["columns"], page["cells"]) == (["id"], [["0"], ["1"], ["2"]])
    assert [each["name"] for each in ask(model, "facts", **asked, columns=["id", "added"])["columns"]] == ["id"]
    row = ask(model, "row", **asked, partition=None, bucket=0, offset="1")
    assert row["values"] == [["id", "1", False]]
    assert point["schema_id"] != ask(model, "schema", table="shop.altered")["schema_id"]
    again = ask(model, "page", table="shop.altered", columns=["added"])
    assert again["cells"] == [[None]] * 3
    lab.drop_table("shop.altered")

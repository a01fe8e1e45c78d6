"""The table of a card: it fits, whatever is in it."""

import itertools

import pytest

from fluss_lab.display.card_table import Cell, Grid, grid_html
from fluss_lab.display.marks import LAKE
from tests.unit.display.card_rules import HOSTILE, Card


def texts(found):
    return [[cell[0] for cell in row] for row in Card(f'<div style="max-width:640px">{found.html}</div>').tables[0]]


def test_numbers_stand_right_and_in_groups_identifiers_as_they_are():
    found = grid_html(Grid(["n", "snapshot_id", "name"], [[1234567, 8295196795998498829, "a"], [None, 5, "b"]]))
    assert texts(found)[1:] == [["1,234,567", "8295196795998498829", "a"], ["–", "5", "b"]]
    assert found.html.count("text-align:right") == 6
    assert found.left_out == []


def test_texts_are_cut_before_columns_are_left_out():
    found = grid_html(Grid(["a", "b"], [["x" * 80, "y" * 80]]))
    assert [len(each) for each in texts(found)[1]] == pytest.approx([43, 43], abs=3)
    assert found.left_out == []


def test_columns_that_do_not_fit_are_named():
    headers = [f"column_{index}" for index in range(200)]
    found = grid_html(Grid(headers, [list(range(10**9, 10**9 + 200))], kept=["column_3"], minor=["column_0"]))
    shown = texts(found)[0]
    assert "column_3" in shown
    assert "column_0" not in shown
    assert sorted(shown + found.left_out) == sorted(headers)


def test_an_amount_is_never_cut_an_identifier_in_the_middle():
    row = [10**12, 10**12, 10**12, 8295196795998498829, 10**11]
    found = grid_html(Grid(["a", "b", "c", "snapshot_id", "a longer name"], [row]))
    assert texts(found)[1] == ["1,000,000,000,000"] * 3 + ["829519…8498829", "100,000,000,000"]


def test_times_of_one_day_are_shown_without_it():
    rows = [["2026-11-20T12:00:00.412Z", None], ["2026-11-20T12:00:01Z", "2026-11-20T00:00:00Z"]]
    found = grid_html(Grid(["first", "last"], rows))
    assert found.date == "2026-11-20"
    assert texts(found)[1:] == [["12:00:00.412", "–"], ["12:00:01", "00:00:00"]]
    found = grid_html(Grid(["first"], [["2026-11-20T12:00:00Z"], ["2026-11-21T12:00:00Z"]]))
    assert (found.date, texts(found)[1]) == ("", ["2026-11-20T12:00:00Z"])


def test_a_table_without_partitions_has_no_column_for_them():
    assert texts(grid_html(Grid(["partition", "n"], [[None, 1], [None, 2]])))[0] == ["n"]
    assert texts(grid_html(Grid(["partition", "n"], [[None, 1], ["a", 2]])))[0] == ["partition", "n"]
    assert grid_html(Grid(["partition", "n"], [[None, 1]])).left_out == []


def test_marks_of_a_cell():
    row = [Cell("lake", LAKE), Cell(5, struck=True), Cell(6, changed=True), Cell("null", is_word=True)]
    html = grid_html(Grid(list("abcd"), [row])).html
    assert f"background:{LAKE}" in html
    assert '<s style="opacity:.72">5</s>' in html
    assert "background:rgba(227,160,40,.28)" in html
    assert "<i>null</i>" in html


@pytest.mark.parametrize(("name", "value"), list(itertools.permutations(range(len(HOSTILE)), 2)))
def test_hostile_names_and_values_are_text(name, value):
    name, value = HOSTILE[name], HOSTILE[value]
    grid = Grid([name, "n", f"{name}2"], [[value, 1, None], [None, 2, value]])
    for each in itertools.chain.from_iterable(texts(grid_html(grid))):
        assert each.isprintable()
        assert len(each) <= 200

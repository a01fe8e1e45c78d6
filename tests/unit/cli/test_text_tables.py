"""Tables of text: aligned, and harmless to a terminal."""

import pytest

from fluss_lab.cli.text_tables import CELL_WIDTH_MAX, DataTable, text_table, text_width
from fluss_lab.display.shown_text import visible


def test_numbers_stand_to_the_right_and_nulls_are_dashes():
    assert text_table(("name", "rows"), [("a", 1234567), ("bb", None)]).splitlines() == [
        "name       rows",
        "a     1,234,567",
        "bb            -",
    ]
    assert text_table(("name",), []) == "name"


def test_data_is_printed_as_it_is_read_with_one_header():
    table = DataTable(["id", "s"])
    assert table.lines([[1, 1000], ["x", None]]) == ["  id  s", "   1  x", "1000  -"]
    assert table.lines([[20000], ["y"]]) == ["20000  y"]
    assert DataTable(["b"]).lines([[True, False]]) == ["b", "true", "false"]
    assert DataTable(["l"]).lines([[[1, "ä"], {"a": None}]])[1:] == ['[1, "ä"]', '{"a": null}']


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "\r", "\x9b31m", "\u202eabc", "\u2028", "\ud800", "\x00"])
def test_no_value_reaches_the_terminal_as_a_command(hostile):
    assert visible(hostile).isprintable()
    for line in (*DataTable([hostile]).lines([[hostile]]), *text_table(("x",), [(hostile,)]).split("\n")):
        assert line.isprintable()


def test_long_values_are_cut():
    assert DataTable(["s"]).lines([["x" * 10_000]])[1] == "x" * (CELL_WIDTH_MAX - 1) + "…"


def test_wide_letters_take_two_columns():
    assert [text_width(text) for text in ("ab", "é", "e\u0301", "日本")] == [2, 1, 1, 4]
    assert DataTable(["s", "n"]).lines([["日本", "abcd"], [1, 2]]) == ["s     n", "日本  1", "abcd  2"]

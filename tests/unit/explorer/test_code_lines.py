"""Lines that are Python whatever the names and values are."""

import ast

import pytest

from fluss_lab.explorer.texts import code_lines
from fluss_lab.model import TablePath
from tests.unit.display.card_rules import HOSTILE, IDS

PATH = TablePath("nyc", "flights")


@pytest.mark.parametrize("text", [each for each in HOSTILE if "\ud800" not in each], ids=IDS[:-4] + IDS[-3:])
def test_any_text_is_one_literal(text):
    literal = code_lines.quoted(text)
    assert ast.literal_eval(literal) == text
    assert literal.isprintable()


@pytest.mark.parametrize(("name", "variable"), [("flights", "flights"), ("class", "class_table"), ("lab", "lab_table")])
def test_a_name_that_python_or_the_lines_need_is_not_taken(name, variable):
    path = TablePath("nyc", name)
    assert code_lines.variable(path) == variable
    ast.parse("\n".join(code_lines.buckets_code(path)))


def test_only_what_is_set_stands_in_a_line():
    assert code_lines.rows_code(PATH, None, "", None)[1] == "flights.scan(with_source=True).to_pandas()"
    full = code_lines.rows_code(PATH, ["id", "dest"], "dest = 'ATL'", 8295)[1]
    assert (
        full
        == """flights.scan(columns=["id", "dest"], where="dest = 'ATL'", as_of=8295, with_source=True).to_pandas()"""
    )
    assert 'as_of="yesterday"' in code_lines.rows_code(PATH, None, "", "yesterday")[1]

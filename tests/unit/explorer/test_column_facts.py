"""What is said of a column, from a sample: exact for what was looked at."""

import math

import pyarrow as pa
import pytest

from fluss_lab.explorer.screens.column_facts import column_facts
from fluss_lab.model import make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter


def facts(kind, values, of=None):
    return column_facts("c", kind, pa.chunked_array([pa.array(values, of)]), is_sample=False)


def fitting(condition, values, of):
    """Return how many values a condition lets pass, as a read has it."""
    schema = make_descriptor({"c": of}).schema
    made = compile_filter(condition, schema)
    return made.apply(pa.record_batch({"c": pa.array(values, schema.arrow_schema.field("c").type)})).num_rows


@pytest.mark.parametrize(
    ("values", "of"),
    [
        ([*range(1_000)], "bigint"),
        ([-20, 180, 0, 0, 0, 5], "int"),
        ([1, 2], "int"),
        ([0.001 * n for n in range(500)], "double"),
        ([1e-9, 2e-9, 5e-9], "double"),
        ([1e12, 1e15], "double"),
    ],
)
def test_the_bins_hold_every_value_and_their_conditions_find_them(values, of):
    found = facts("number", values)["bins"]
    assert sum(found["counts"]) == len(values)
    assert len(found["conditions"]) == len(found["counts"]) <= 14
    assert [fitting(condition, values, of) for condition in found["conditions"]] == found["counts"]


def test_few_values_have_shares_and_conditions_that_find_them():
    values = ["ATL"] * 6 + ["O'Hare"] * 3 + [""] + [None] * 10
    found = facts("text", values)
    assert found["nulls"] == 0.5
    assert [(text, share) for text, share, _ in found["values"]] == [("ATL", 0.6), ("O'Hare", 0.3), ("", 0.1)]
    assert [fitting(condition, values, "string") for *_, condition in found["values"]] == [6, 3, 1]


def test_many_values_are_counted():
    assert facts("text", [str(n) for n in range(50)])["distinct"] == 50
    assert "values" not in facts("text", [str(n) for n in range(50)])


def test_booleans():
    found = facts("bool", [True, True, False, None])
    assert [(text, condition) for text, _, condition in found["values"]] == [("true", "c"), ("false", "not c")]


@pytest.mark.parametrize("values", [[], [None, None], [math.nan], [math.inf, -math.inf]])
def test_nothing_to_spread(values):
    found = facts("number", values, pa.float64())
    assert not {"bins", "values"} & found.keys()


def test_a_text_that_nobody_types_has_no_condition():
    assert facts("text", ["a\x00b"])["values"][0][2] is None

"""What is said of a column, from a sample: exact for what was looked at."""

import math
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from fluss_lab.explorer.screens.column_facts import column_facts
from fluss_lab.model import make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.filter.sql_parser import _WORDS


def facts(kind, values, of=None):
    return column_facts("c", kind, pa.chunked_array([pa.array(values, of)]), is_sample=False)


def fitting(condition, values, of, name="c"):
    """Return how many values a condition lets pass, as a read has it."""
    schema = make_descriptor({name: of}).schema
    made = compile_filter(condition, schema)
    return made.apply(pa.record_batch({name: pa.array(values, schema.arrow_schema.field(name).type)})).num_rows


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


#: Numbers that no float tells apart, by type.
EXACT = [
    ([2**53, 2**53 + 1], "bigint"),
    ([2**60 + n for n in range(40)], "bigint"),
    ([-(2**63), 0, 2**63 - 1], "bigint"),
    ([2**63 - 1 - n for n in range(3)], "bigint"),
    ([Decimal("12345678901234567890.12"), Decimal("12345678901234567890.13")], "decimal(38, 2)"),
    ([Decimal(10**37 + n) for n in range(30)], "decimal(38, 0)"),
    ([Decimal("-99999999999999999999999999999999999999"), Decimal("99999999999999999999999999999999999999")], "decimal(38, 0)"),
    ([Decimal("0.10"), Decimal("0.25"), Decimal("99.99")], "decimal(10, 2)"),
    ([Decimal(f"0.{'0' * 35}{n:03}") for n in range(100)], "decimal(38, 38)"),
    ([127, -128], "tinyint"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "of"), EXACT)
def test_whole_numbers_and_decimals_are_spread_exactly(values, of):
    kind = make_descriptor({"c": of}).schema.arrow_schema.field("c").type
    found = facts("number", values, kind)["bins"]
    assert [fitting(condition, values, of) for condition in found["conditions"]] == found["counts"]
    assert sum(found["counts"]) == len(values)
    assert len(found["counts"]) == min(
        14,
        int(
            (max(values) - min(values)).scaleb(kind.scale)
            if isinstance(values[0], Decimal)
            else max(values) - min(values)
        )
        + 1,
    )
    assert (
        (found["lo"], found["hi"]) == (f"{min(values):f}", f"{max(values):f}")
        if isinstance(values[0], Decimal)
        else (str(min(values)), str(max(values)))
    )


@pytest.mark.parametrize("digits", [9, 30])
def test_decimals_of_parts_with_nulls_are_all_counted(digits, rng):
    kind = pa.decimal128(38, 4)
    values = [
        rng.choice([None, Decimal(rng.randrange(-(10**digits), 10**digits)).scaleb(-4, Context(prec=60))])
        for _ in range(300)
    ]
    parts = [pa.array(values[:100], kind).slice(7), pa.array(values[100:], kind).slice(0, 150)]
    looked = [value for value in [*values[7:100], *values[100:250]] if value is not None]
    found = column_facts("c", "number", pa.chunked_array(parts), is_sample=False)["bins"]
    assert sum(found["counts"]) == len(looked)
    assert (found["lo"], found["hi"]) == (f"{min(looked):f}", f"{max(looked):f}")
    assert [fitting(each, looked, "decimal(38, 4)") for each in found["conditions"]] == found["counts"]


@pytest.mark.parametrize("of", ["float", "double"])
@pytest.mark.parametrize("others", [[math.nan], [math.inf], [-math.inf], [math.nan, math.inf, -math.inf]])
def test_what_is_no_number_is_in_no_bin_and_no_condition_finds_it(of, others):
    values = [0.1, 0.2, 0.7, 3.0, *others]
    kind = make_descriptor({"c": of}).schema.arrow_schema.field("c").type
    found = facts("number", values, kind)["bins"]
    assert sum(found["counts"]) == 4
    assert [fitting(condition, values, of) for condition in found["conditions"]] == found["counts"]
    assert (found["lo"], found["hi"]) == ("0.1", "3.0")
    assert facts("number", [5.0, 5.0, *others], kind)["distinct"] == 1 + len(others)


@pytest.mark.parametrize("of", ["float", "double"])
def test_the_least_and_the_greatest_number_beside_none_are_found(of):
    values = [-0.1, 0.0, 0.3, math.nan]  # as FLOAT the first is less than -0.1, the third more than 0.3
    found = facts("number", values, make_descriptor({"c": of}).schema.arrow_schema.field("c").type)["bins"]
    assert (found["counts"][0], found["counts"][-1], sum(found["counts"])) == (1, 1, 3)
    assert [fitting(condition, values, of) for condition in found["conditions"]] == found["counts"]


@pytest.mark.parametrize("values", [[1e300, 2e300, 5e299], [-1e20, 1e20], [1e-300, 5e-300]])
def test_numbers_far_from_one_have_short_conditions(values):
    found = facts("number", values)["bins"]
    assert [fitting(condition, values, "double") for condition in found["conditions"]] == found["counts"]
    assert max(map(len, found["conditions"])) < 80
    assert sum(count > 0 for count in found["counts"]) == len(values)


@pytest.mark.parametrize("name", sorted(word.lower() for word in _WORDS))
@pytest.mark.parametrize(
    ("kind", "values", "of"),
    [("number", [1, 2, 3], "bigint"), ("text", ["a", "b"], "string"), ("bool", [True, False], "boolean")],
)
def test_columns_that_are_called_as_a_word_of_conditions_are_quoted(name, kind, values, of):
    found = column_facts(name, kind, pa.chunked_array([pa.array(values)]), is_sample=False)
    conditions = found["bins"]["conditions"] if "bins" in found else [condition for *_, condition in found["values"]]
    assert [fitting(condition, values, of, name) for condition in conditions] == [1] * len(values)


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

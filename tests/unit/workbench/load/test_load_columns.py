"""Names and types of what is loaded."""

import pytest

from fluss_lab.errors import InvalidNameError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.schema import make_schema
from fluss_lab.workbench.load.load_columns import ColumnPlan, suggested_names

NAMES = ["id", "Order ID", "x"]


def planned(plan, names=NAMES):
    return [(column.position, column.source_name, column.name) for column in plan.of(names, "a.csv")]


def test_columns_are_renamed_and_chosen():
    everything = [(0, "id", "id"), (1, "Order ID", "order"), (2, "x", "x")]
    assert planned(ColumnPlan(rename={"Order ID": "order"})) == everything
    assert planned(ColumnPlan(rename=["id", "order", "x"])) == everything
    assert planned(ColumnPlan(["x", "id"])) == [(2, "x", "x"), (0, "id", "id")]
    assert planned(ColumnPlan(["order"], {"Order ID": "order"})) == [(1, "Order ID", "order")]
    assert planned(ColumnPlan(["b"], ["a", "b"]), ["", ""]) == [(1, "", "b")]


@pytest.mark.parametrize(
    ("plan", "error", "words"),
    [
        (
            ColumnPlan(rename={"nope": "a"}),
            InvalidSchemaError,
            "no column 'nope'; the columns are 'id', 'Order ID', 'x'",
        ),
        (ColumnPlan(rename=["a"]), InvalidSchemaError, "expected a name for each of its 3 columns"),
        (ColumnPlan(rename=["a", "a", "b"]), InvalidNameError, "the name 'a' is there 2 times"),
        (ColumnPlan(), InvalidNameError, "rename={'Order ID': 'order_id'}"),
        (ColumnPlan(["nope"]), InvalidSchemaError, "no column 'nope'"),
        (ColumnPlan([]), InvalidSchemaError, "expected at least one"),
        (ColumnPlan(["id", "id"]), InvalidNameError, "is there 2 times"),
        (ColumnPlan(["id"], types={"x": DataType("INT")}), InvalidSchemaError, "no column 'x'"),
        (ColumnPlan(["id"], required=frozenset({"k"})), InvalidSchemaError, "no column 'k'"),
        (ColumnPlan(["id", "x"], existing=make_schema({"id": "int"})), InvalidSchemaError, r"columns=['id']"),
        (
            ColumnPlan(["x"], existing=make_schema({"x": "int", "k": "int not null"})),
            InvalidSchemaError,
            "'k' is missing",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(plan, error, words):
    with pytest.raises(error) as raised:
        planned(plan)
    assert words in str(raised.value)


def test_names_that_cannot_be_are_counted_and_all_are_in_the_remedy():
    names = [f"a {number}" for number in range(40)]
    with pytest.raises(InvalidNameError) as raised:
        planned(ColumnPlan(), names)
    assert "'a 4', 35 more cannot be" in str(raised.value)
    assert "'a 39': 'a_39'" in str(raised.value)
    suggested = eval(str(raised.value).split("rename=")[1])
    assert len(planned(ColumnPlan(rename=suggested), names)) == 40


@pytest.mark.parametrize(
    "name", ["", " ", "1", "a b", "é", "__offset", "_R1", "x" * 300, "\0", "日本", None, 3, "a" * 127 + "é"]
)
def test_a_suggested_name_can_be_a_column(name):
    (suggested,) = suggested_names([name])
    assert planned(ColumnPlan(rename=[suggested]), ["a"]) == [(0, "a", suggested)]


def test_suggested_names_differ():
    names = ["a", "A", "a_2", "a!", "a?", "", ""]
    assert len({name.lower() for name in suggested_names(names)}) == len(names)

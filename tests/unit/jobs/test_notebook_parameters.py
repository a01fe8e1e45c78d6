"""Parameters are checked against the notebook's own cell: names, types, ranges, sizes."""

import json
import math
from enum import Enum, IntEnum
from pathlib import Path

import numpy as np
import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.jobs.notebook_library import read_notebook
from fluss_lab.jobs.notebook_parameters import check_parameters, notebook_parameters
from tests.unit.jobs.job_kit import write_notebook

CELL = """
# What is counted, and how far.
table: str = "nyc.flights"
days: int = 7  # 1 to 365, how many days
share: float = 0.5  # 0 to 1
how = "inner"  # one of inner, left
dry = False
columns: list[str] = ["dest"]
limits: dict[str, int] = {}
since: str | None = None
many: list[dict[str, float | None]] = []
anything = None
import os
x.y = 3
a, b = 1, 2
"""


@pytest.fixture
def notebook(tmp_path):
    return read_notebook(write_notebook(tmp_path / "x.ipynb", CELL))


class Colour(str, Enum):  # noqa: UP042  its `str` is what is tested
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Shown(str):
    __slots__ = ()

    def __str__(self):
        return "shown"


def test_members_of_enums_and_texts_of_other_classes_are_their_values(notebook):
    """`str` of a member is ``Colour.RED``: the notebook would be given that."""
    given = {
        "table": Colour.RED,
        "days": Level.LOW,
        "columns": [Colour.BLUE],
        "since": Shown("x"),
        "limits": {Colour.RED: Level.LOW},
    }
    found = check_parameters(notebook, given)
    assert found == {"table": "red", "days": 1, "columns": ["blue"], "since": "x", "limits": {"red": 1}}
    assert {type(found["table"]), type(found["since"])} == {str}
    assert type(found["days"]) is int
    with pytest.raises(InvalidRequestError, match="expected one of inner, left"):
        check_parameters(notebook, {"how": Colour.RED})


@pytest.mark.parametrize(
    ("line", "fits", "not_"),
    [
        ("x: int = 1  # one of 1, 2, 3", [1, 2, np.int64(3), Level.LOW], [0, 4, "1", True]),
        ("x: float = 0.5  # one of 0.5, 1, 2e1", [0.5, 1, 1.0, 20], [0.25]),
        ("x: int | None = -1  # one of -1, 1", [-1, 1, None], [0]),
        ("x: str = '1'  # one of 1, 2", ["1", "2"], ["3", 1]),
        ("x = None  # one of 1, a", [1, "1", "a", None], [True, "b", 2]),
        ("x: bool = True  # one of True", [True], [False, 1]),
        ("x: list[int] = []  # one of 1, 2", [[], [1], [2, 1, 2]], [[1, 3], ["1"]]),
        ("x: str = 'a b'  # one of 'a b', \"c\", d", ["a b", "c", "d"], ["a", "b", "'c'"]),
    ],
)  # fmt: skip
def test_choices_are_values_of_the_type(tmp_path, line, fits, not_):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", line))
    for value in fits:
        assert check_parameters(notebook, {"x": value}) == {"x": value}
    for value in not_:
        with pytest.raises(InvalidRequestError, match="parameter x: expected"):
            check_parameters(notebook, {"x": value})


def test_types_ranges_and_defaults_come_from_the_cell(notebook):
    found = notebook_parameters(notebook)
    assert list(map(str, found.values())) == [
        "table: str", "days: int, 1 to 365", "share: float, 0 to 1", "how: str, one of inner, left", "dry: bool",
        "columns: list[str]", "limits: dict[str, int]", "since: str | None", "many: list[dict[str, float | None]]", "anything: Any",
    ]  # fmt: skip
    assert (found["days"].default, found["dry"].default, found["since"].default) == (7, False, None)


@pytest.mark.parametrize(
    ("line", "shown", "fits", "not_"),
    [
        ("x: int = 7  # 1 to 1_000_000", "1 to 1000000", 1_000_000, 1_000_001),
        ("x: int = 7  # 0 to 9007199254740993", "0 to 9007199254740993", 2**53 + 1, 2**53 + 2),
        ("x: float = 1  # 0.0 to 1e7", "0 to 10000000", 9_999_999.5, 10_000_001),
        ("x: float = 0.5  # .25 to 0.75", "0.25 to 0.75", 0.75, 0.7500001),
    ],
)
def test_limits_are_exact_and_shown_in_full(tmp_path, line, shown, fits, not_):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", line))
    assert str(notebook_parameters(notebook)["x"]).endswith(f", {shown}")
    assert check_parameters(notebook, {"x": fits}) == {"x": fits}
    with pytest.raises(InvalidRequestError, match=f"parameter x: expected {shown}, found {not_}"):
        check_parameters(notebook, {"x": not_})


@pytest.mark.parametrize(
    ("line", "found", "limit", "fits"),
    [
        ("x: int = 500  # 1 to 365", "500", "1 to 365", 365),
        ("x: str = 'outer'  # one of inner, left", "'outer'", "one of inner, left", "left"),
        ("x: list[int] = (1, 9)  # 1 to 5", r"\(1, 9\)", "1 to 5", [1]),
    ],
)
def test_a_default_outside_of_its_own_limits_is_refused_where_it_would_count(tmp_path, line, found, limit, fits):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", line))
    with pytest.raises(InvalidRequestError, match=f"parameter x: its default is {found}, and its comment says {limit}"):
        check_parameters(notebook, {})
    assert check_parameters(notebook, {"x": fits}) == {"x": fits}


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("table", "a.b", "a.b"), ("table", 'x"\n\'\\', 'x"\n\'\\'), ("table", Path("a/b"), "a/b"), ("days", 1, 1), ("days", 365, 365),
        ("days", np.int64(3), 3), ("share", 1, 1), ("share", np.float64(0.25), 0.25), ("how", "left", "left"), ("dry", True, True),
        ("columns", ("a", "b"), ["a", "b"]), ("columns", [], []), ("limits", {"a": 1}, {"a": 1}), ("since", None, None),
        ("since", "now", "now"), ("many", [{"a": None, "b": 1.5}], [{"a": None, "b": 1.5}]), ("anything", [1, "x"], [1, "x"]),
    ],
)  # fmt: skip
def test_values_that_fit(notebook, name, value, plain):
    found = check_parameters(notebook, {name: value})
    assert found == {name: plain}
    assert json.loads(json.dumps(found)) == found


#: Also used at the other entries: what a notebook with ``n: int = 3  # 1 to 10`` and ``text: str = ""`` refuses.
HOSTILE = [
    {"nope": 1}, {"n = 1\nimport os; os.system('x') #": 1}, {"n\n": 1}, {"": 1}, {"class": 1}, {"__builtins__": 1}, {"n; x": 1},
    {"os.environ": {}}, {"n": "3"}, {"n": True}, {"n": 0}, {"n": 11}, {"n": 10**30}, {"n": None}, {"n": [1]}, {"n": {"a": 1}},
    {"text": 3}, {"text": "a\0b"}, {"text": "\ud800"}, {"text": "x" * 100_000}, {"text": b"x"}, {"pm": 1}, {"ｎ": 1},
]  # fmt: skip


@pytest.mark.parametrize("values", HOSTILE, ids=lambda values: repr(values)[:40])
def test_hostile_ones_are_refused(tmp_path, values):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", 'n: int = 3  # 1 to 10\ntext: str = ""'))
    with pytest.raises(InvalidRequestError) as refused:
        check_parameters(notebook, values)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("values", "says"),
    [({"n": 10**30}, "whole numbers of 64 bits"), ({"n": math.nan}, "finite numbers"), ({"text": "a\0b"}, "without the character of code 0"),
     ({"text": "\ud800"}, "or half of one")],
)  # fmt: skip
def test_what_of_a_text_or_number_cannot_be_is_said(tmp_path, values, says):
    """It said "expected text, numbers, ..., found 1000000000000000000000"."""
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", 'n: int = 3\ntext: str = ""'))
    with pytest.raises(InvalidRequestError, match=says):
        check_parameters(notebook, values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("days", 366), ("days", 1.5), ("share", 1.01), ("share", math.nan), ("share", math.inf), ("how", "right"), ("how", ""),
        ("dry", 1), ("columns", "dest"), ("columns", [1]), ("columns", [None]), ("limits", {"a": "b"}), ("limits", {1: 2}),
        ("since", 3), ("many", [{"a": "x"}]), ("anything", object()), ("anything", {1, 2}), ("anything", lambda: 1), (1, 2),
        ("anything", [[[[[[[[[[1]]]]]]]]]]), ("anything", np.array([1, 2])),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(notebook, name, value):
    with pytest.raises(InvalidRequestError, match="parameter"):
        check_parameters(notebook, {name: value})


def test_a_secret_is_no_parameter(tmp_path):
    cell = 'password: str = ""\napi_key = ""\ntoken_file: str = ""\ntoken_count: int = 0'
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", cell))
    for name in ("password", "api_key"):
        with pytest.raises(InvalidRequestError, match="name of an environment variable") as refused:
            check_parameters(notebook, {name: "hunter2-hunter2"})
        assert "hunter2" not in str(refused.value)
    assert check_parameters(notebook, {"token_file": "x", "token_count": 3}) == {"token_file": "x", "token_count": 3}


@pytest.mark.parametrize(
    "cell",
    [
        "%load_ext x", "n: int = ", "n = os.environ", "n: SparkSession = None", "n = [x for x in y]", "n: list[Foo] = []",
        "n = __import__('os')", "(" * 5000, "n: dict[int] = {}", "n: 'int' = 3", "n = 1\n  m = 2", "\0",
    ],
)  # fmt: skip
def test_a_cell_that_declares_no_plain_values_is_refused(tmp_path, cell):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", cell))
    with pytest.raises(InvalidRequestError, match="parameter"):
        check_parameters(notebook, {"n": 1})


def test_without_such_a_cell_there_are_none(tmp_path):
    notebook = read_notebook(write_notebook(tmp_path / "x.ipynb", None, ["n = 1"]))
    assert check_parameters(notebook, {}) == {}
    with pytest.raises(InvalidRequestError, match="no cell tagged 'parameters'"):
        check_parameters(notebook, {"n": 1})


def test_texts_of_a_command_line_are_read_by_type(notebook):
    known = notebook_parameters(notebook)
    read = {
        name: known[name].value_of(text)
        for name, text in {
            "table": "007", "days": "30", "share": "0.5", "dry": "true", "columns": '["a"]', "since": "null", "limits": "{oops",
            "anything": "3",
        }.items()
    }  # fmt: skip
    assert read == {
        "table": "007", "days": 30, "share": 0.5, "dry": True, "columns": ["a"], "since": None, "limits": "{oops", "anything": "3",
    }  # fmt: skip


def tagged(path, *cells):
    """Write a notebook of cells: kind, tags, source."""
    made = [{"cell_type": kind, "metadata": {"tags": tags}, "source": source} for kind, tags, source in cells]
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    return read_notebook(path)


def test_a_tag_before_the_cell_of_parameters_is_refused(tmp_path):
    """papermill would set the values there, and the cell's own would count."""
    cell = ("code", ["parameters"], "n = 1")
    heading, earlier = ("markdown", ["parameters"], "# n"), ("code", ["injected-parameters"], "n = 2")
    with pytest.raises(
        InvalidRequestError, match="cell 1, which is no code, is tagged 'parameters' before the code cell"
    ):
        check_parameters(tagged(tmp_path / "x.ipynb", heading, cell), {})
    with pytest.raises(InvalidRequestError, match="'injected-parameters', left by an earlier run, stands before"):
        check_parameters(tagged(tmp_path / "x.ipynb", earlier, cell), {"n": 3})
    assert check_parameters(tagged(tmp_path / "x.ipynb", cell, heading, earlier), {"n": 3}) == {"n": 3}
    assert notebook_parameters(tagged(tmp_path / "x.ipynb", heading)) == {}


@pytest.mark.parametrize(
    ("line", "taken", "refused"),
    [
        ("n: list[int] = []  # 1 to 3", [1, 3], [1, 4]), ("n: float = 1.0  # .5 to 1e3", 1000.0, 1001.0),
        ("n: int = 1  # 1 to 10.", 10, 11), ("n: list[list[float]] = []  # -1 to 1", [[0.5], []], [[0.5, -1.5]]),
        ("n: int | None = 1  # 1 to 1_000", None, 1001),
    ],
)  # fmt: skip
def test_ranges_hold_for_members_of_lists_and_in_any_form_of_a_number(tmp_path, line, taken, refused):
    notebook = tagged(tmp_path / "x.ipynb", ("code", ["parameters"], line))
    assert check_parameters(notebook, {"n": taken}) == {"n": taken}
    with pytest.raises(InvalidRequestError, match=r"parameter n: expected \S+ to \S+, found"):
        check_parameters(notebook, {"n": refused})

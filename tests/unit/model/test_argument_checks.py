"""What a class marked as checked does with its arguments, by their annotations alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fluss_lab.errors import FlussError, InvalidNameError, InvalidRequestError, InvalidSchemaError
from fluss_lab.model import TableBucket, TablePath
from fluss_lab.model.argument_checks import check_arguments


@check_arguments
class Subject:
    def take(
        self,
        path: TablePath | str = "a.b",
        *,
        count: int | None = None,
        flag: bool = False,
        seconds: float = 0,
        columns: Sequence[str] | None = None,
        numbers: Iterable[int] = (),
        options: Mapping[str, int] | None = None,
        bucket: TableBucket | None = None,
        call: Callable[[], int] | None = None,
        free: Any = None,
    ) -> dict[str, Any]:
        """Return what was given."""
        return {name: value for name, value in locals().items() if name != "self"}

    def take_others(self, path: str, **others: Any) -> dict[str, Any]:
        """Return what was given beside the path."""
        return others

    @staticmethod
    def make(rows_max: int = 1) -> int:
        return rows_max

    def values(self, **values: str) -> dict[str, str]:
        return values

    def placed(self, first: Mapping[str, str] | None = None, /, *, flag: bool = False, **others: str) -> Any:
        """Return what was given."""
        return first, flag, others

    def _inner(self, count: int) -> int:
        return count


def test_what_is_of_another_type_but_means_the_same_is_taken():
    frame = pd.DataFrame({"a": pd.array([1, 2], "Int64"), "b": [1.5, 2.5]})
    found = Subject().take(
        "x.y", count=frame["a"].max(), flag=np.bool_(True), seconds=np.float32(0.5), columns=frame.columns, numbers=frame["a"],
        options={"a": np.int8(1)}, bucket=TableBucket(1, None, 0), free=frame,
    )  # fmt: skip
    assert found["path"] == TablePath("x", "y")
    assert (type(found["count"]), found["count"]) == (int, 2)
    assert found["flag"] is True
    assert (found["seconds"], found["columns"], found["numbers"], found["options"]) == (
        0.5,
        ["a", "b"],
        [1, 2],
        {"a": 1},
    )
    assert all(type(number) is int for number in found["numbers"])
    assert found["free"] is frame
    assert Subject().take(count=None, columns=None, options=None) == Subject().take()
    assert Subject.make(np.int64(7)) == Subject.make(rows_max=7) == 7
    assert Subject().values(p="a") == {"p": "a"}
    assert Subject()._inner("x") == "x"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"path": 5}, InvalidNameError, "Subject.take: path: expected a path 'database.table' or a text, found 5"),
        ({"path": "x"}, InvalidNameError, "database.table"),
        ({"count": True}, InvalidRequestError, "count: expected a whole number or None, found True"),
        (
            {"count": 2**63},
            InvalidRequestError,
            f"count: expected a whole number in [{-(2**63)}, {2**63 - 1}] or None, found {2**63}",
        ),
        ({"count": 1.0}, InvalidRequestError, "a whole number"),
        ({"count": 2**63}, InvalidRequestError, "a whole number"),
        ({"flag": 1}, InvalidRequestError, "True or False"),
        ({"seconds": float("nan")}, InvalidRequestError, "a number of at least 0"),
        ({"seconds": -1}, InvalidRequestError, "a number of at least 0"),
        ({"seconds": "1"}, InvalidRequestError, "a number of at least 0"),
        ({"columns": "ab"}, InvalidSchemaError, "columns: expected a list of names or None, found 'ab'"),
        ({"columns": ["a", 1]}, InvalidSchemaError, "a list of names"),
        ({"columns": pd.DataFrame({"a": [1]})}, InvalidSchemaError, "a list of names"),
        ({"numbers": [1, "a"]}, InvalidRequestError, "a list of int"),
        ({"options": [1]}, FlussError, "a dict"),
        ({"options": {"a": "b"}}, FlussError, "a dict"),
        ({"bucket": 0}, InvalidRequestError, "a TableBucket or None"),
        ({"call": 5}, InvalidRequestError, "a function"),
    ],
    ids=repr,
)
def test_what_is_not_of_the_type_is_refused_by_name(given, error, words):
    with pytest.raises(error) as caught:
        Subject().take(**given)
    assert words in str(caught.value)


def test_bounds_others_and_unknown_names():
    for wrong in (0, -1, 2**31, "1", None):
        with pytest.raises(InvalidRequestError, match=r"Subject\.make: rows_max"):
            Subject.make(wrong)
    with pytest.raises(InvalidRequestError, match=r"Subject\.values: values"):
        Subject().values(p=1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        Subject().take(nonsense=1)
    assert inspect.signature(Subject.take).parameters["count"].annotation == "int | None"


def test_a_name_that_the_call_has_itself_is_none_of_the_others():
    """Python's own error is a `TypeError`, and does not say what to do."""
    subject = Subject()
    assert subject.take_others(path="x", other=1) == {"other": 1}
    for name in ("path", "self"):
        with pytest.raises(
            InvalidRequestError, match=f"Subject.take_others: '{name}' is an argument of the call itself"
        ):
            subject.take_others("x", **{name: 3})


def test_what_is_given_by_its_place_alone_leaves_its_name_to_the_others():
    subject = Subject()
    assert subject.placed({"flag": "x"}, flag=True, self="a", first="b") == (
        {"flag": "x"},
        True,
        {"self": "a", "first": "b"},
    )
    for wrong in ("x", {"a": 1}):
        with pytest.raises(InvalidRequestError, match=r"Subject\.placed: first: expected a dict"):
            subject.placed(wrong)
    with pytest.raises(InvalidRequestError, match=r"Subject\.placed: others"):
        subject.placed(first=1)


def test_half_of_a_character_makes_a_text_none_and_a_text_of_numpy_is_python_s():
    with pytest.raises(InvalidRequestError, match="expected a text"):
        Subject().values(a="\ud800")
    with pytest.raises(InvalidSchemaError, match="expected a list of names"):
        Subject().take(columns=["é", "\ud800"])
    found = Subject().values(a=np.str_("é"), b="\U0001f600")
    assert (found, type(found["a"])) == ({"a": "é", "b": "\U0001f600"}, str)

"""What partitioners and lookup functions return is checked."""

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidError, UnsupportedError
from fluss_lab.lookup import InputDataPartitioner, LookupFunction, LookupRows
from fluss_lab.lookup.contract_checks import check_partitions, partitions_of, rows_of, with_keys

KEYS = pa.record_batch({"a": pa.array([1, None, 3, 4]), "b": pa.array(["x", "y", None, "z"])})
WHOLE = pa.record_batch({"a": pa.array([1, 2, 3])})


class Answering(InputDataPartitioner):
    """Returns, or raises, what a test wants, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    to_json = from_json = None  # type: ignore[assignment]

    def partition(self, join_keys, num_partitions):
        self.asked.append(join_keys.to_pylist())
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Finding(LookupFunction):
    """Finds what a test wants."""

    to_json = from_json = None  # type: ignore[assignment]

    def __init__(self, answer):
        self.answer = answer

    def open(self, context):
        """Nothing to open."""

    def close(self):
        """Nothing to close."""

    def lookup(self, keys):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def int32(*values):
    return pa.array(values, pa.int32())


def found(positions, names=None):
    rows = pa.record_batch({"name": pa.array(names or ["n"] * len(positions), pa.string())})
    return LookupRows(np.array(positions, np.int64), rows)


# -- partitions --------------------------------------------------------------------------------------------------------


def test_rows_with_a_null_among_their_keys_go_to_partition_0_and_are_not_asked_for():
    partitioner = Answering(int32(2, 1))
    assert partitions_of(partitioner, KEYS, 3).tolist() == [2, 0, 0, 1]
    assert partitioner.asked == [[{"a": 1, "b": "x"}, {"a": 4, "b": "z"}]]
    assert with_keys(KEYS).to_pylist() == [True, False, False, True]


def test_without_rows_or_keys_nothing_is_asked():
    partitioner = Answering()
    assert partitions_of(partitioner, KEYS.slice(0, 0), 3).tolist() == []
    assert partitions_of(partitioner, KEYS.slice(1, 2), 3).tolist() == [0, 0]
    assert partitions_of(partitioner, WHOLE.slice(0, 0), 3).dtype == np.int32


def test_whole_keys_are_asked_for_as_they_are():
    assert partitions_of(Answering(int32(0, 2, 1)), WHOLE, 3).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (int32(0, 3, 1), r"expected partitions in \[0, 3\), found 3 for row 1"),
        (int32(0, 1, -1), r"expected partitions in \[0, 3\), found -1 for row 2"),
        (int32(0, 1), "expected the partitions of 3 rows, found 2"),
        (int32(0, 1, 2, 0), "expected the partitions of 3 rows, found 4"),
        (int32(0, None, 1), "expected no nulls, found one in row 1"),
        (pa.array([0, 1, 2]), "expected an Arrow array of int32, found an array of int64"),
        ([0, 1, 2], "expected an Arrow array of int32, found list"),
        (None, "expected an Arrow array of int32, found NoneType"),
        (ZeroDivisionError("by zero"), "raised ZeroDivisionError: by zero"),
    ],
)
def test_a_wrong_partition_is_an_error_that_names_the_partitioner(answer, text):
    with pytest.raises(InvalidError, match=r"test_contract_checks\.Answering\.partition:? " + text):
        partitions_of(Answering(answer), WHOLE, 3)


def test_an_error_of_the_house_passes():
    with pytest.raises(UnsupportedError, match=r"^not now$"):
        partitions_of(Answering(UnsupportedError("not now")), WHOLE, 3)


def test_a_partitioner_that_lies_about_determinism_is_named():
    check_partitions(Answering(int32(0, 2, 1)), WHOLE, 3, np.array([0, 2, 1], np.int32))
    text = r"Answering says that it is deterministic, and gave the same join keys partition 1, then 2 \(of 3\)"
    with pytest.raises(InvalidError, match=text):
        check_partitions(Answering(int32(0, 2, 1)), WHOLE, 3, np.array([0, 1, 1], np.int32))


# -- rows --------------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False)])


@pytest.mark.parametrize(
    ("answer", "is_unique"), [(found([]), True), (found([0, 2]), True), (found([1, 1, 1, 2]), False)]
)
def test_right_rows_are_returned(answer, is_unique):
    assert rows_of(Finding(answer), WHOLE, SCHEMA, is_unique=is_unique) is answer


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (found([0, 3]), r"expected positions in \[0, 3\), found 0 to 3"),
        (found([-1, 2]), r"expected positions in \[0, 3\), found -1 to 2"),
        (found([0, 2, 1]), "expected ascending positions, found 2 before a smaller one"),
        (found([0, 1, 1]), "expected one row at most for a key, as is_unique says, found several at position 1"),
        (found([0, 1], ["one"]), "expected a row for each of 2 positions, found 1"),
        (LookupRows(np.array([0]), pa.record_batch({"x": ["n"]})), r"expected .*\(name string\), found \(x string\)"),
        (
            LookupRows(np.array([0]), pa.record_batch({"name": [1]})),
            r"expected .*\(name string\), found \(name int64\)",
        ),
        (
            LookupRows(np.array([0]), pa.table({"name": ["n"]})),
            "expected LookupRows with a record batch, found .*Table",
        ),
        (LookupRows(np.array([0], np.int32), found([0]).rows), "expected positions as an array of int64, found int32"),
        (LookupRows(np.array([[0]]), found([0]).rows), "expected positions as an array of int64"),
        (LookupRows([0], found([0]).rows), "expected positions as an array of int64, found <class 'list'>"),
        (None, "expected LookupRows with a record batch, found NoneType"),
        (TimeoutError("too late"), "raised TimeoutError: too late"),
    ],
)
def test_wrong_rows_are_an_error_that_names_the_function(answer, text):
    with pytest.raises(InvalidError, match=r"test_contract_checks\.Finding\.lookup:? " + text):
        rows_of(Finding(answer), WHOLE, SCHEMA, is_unique=True)

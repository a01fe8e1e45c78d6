"""What a notebook shows of an error of Spark."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

from fluss_lab.spark.session.spark_errors import folded_errors, spark_message

WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
  File "/x/batch_reader.py", line 2, in read

    raise OffsetOutOfRangeError("no longer available")
fluss_lab.errors.OffsetOutOfRangeError: no longer available (retained from offset 7)
\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (WORKER, "fluss_lab.errors.OffsetOutOfRangeError: no longer available (retained from offset 7)"),
        ("[X] A column `a`; line 1 pos 7;\n'Project ['a]\n+- OneRowRelation\n", "[X] A column `a`; line 1 pos 7"),
        ("[X] no such thing\n\tat a.b.C$.d(E.scala:3)\n\tat f.g(H.java:4)", "[X] no such thing"),
        ("[X] bad\n\n== SQL ==\nselec 1\n^^^\n", "[X] bad\n\n== SQL ==\nselec 1\n^^^"),
        ("", ""),
    ],
)
def test_it_is_what_spark_says_without_plans_and_frames(text, shown):
    assert spark_message(PySparkException(text)) == shown


def rendered(raised):
    return raised.value._render_traceback_()[0]


def test_names_of_views_are_those_of_tables_and_the_error_stays_what_it_is():
    error = AnalysisException("no column in __view")
    with pytest.raises(AnalysisException) as raised, folded_errors({"__view": "nyc.flights"}):
        raise error
    assert raised.value is error
    assert "no column in nyc.flights" in rendered(raised)


def test_a_block_around_another_says_nothing_new_unless_a_table_is_missing():
    with pytest.raises(AnalysisException) as raised, folded_errors({"a": "b"}), folded_errors({"__v": "x.y"}):
        raise AnalysisException("in __v: a")
    assert "in x.y: a" in rendered(raised)
    missing = ["table x.y does not exist; is x.z meant?"]
    with pytest.raises(AnalysisException) as raised, folded_errors(missing=missing), folded_errors():
        raise AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table `x`.`y` cannot be found. Verify the spelling.")
    assert rendered(raised).endswith("cannot be found. table x.y does not exist; is x.z meant?")


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError) as raised, folded_errors():
        raise ZeroDivisionError
    assert not hasattr(raised.value, "_render_traceback_")

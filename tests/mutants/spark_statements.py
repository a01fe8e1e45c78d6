"""Mutants of what a lab's Spark is asked for: statements that write, and starts of streams."""

from tests.mutants.mutant import Mutant

IN_SQL = "tests/spark/test_lab_sql.py"

#: P4: what is not offered is refused, with the way that works.
SPARK_STATEMENTS = (
    Mutant(
        "statements_that_write_go_to_spark", "P4", "fluss_lab/spark/source/spark_sql.py",
        "        if resolve(list(path)) is not None:",
        "        if not path:",
        (f"{IN_SQL}::test_statements_that_write_to_a_table_say_how_it_is_done",),
    ),
    Mutant(
        "starts_of_streams_checked_by_the_query", "P4", "fluss_lab/spark/source/table_frame.py",
        "        reader.starts(start)\n",
        "        str(reader)\n",
        (f"{IN_SQL}::test_a_stream_s_start_is_checked_when_it_is_given",),
    ),
)  # fmt: skip

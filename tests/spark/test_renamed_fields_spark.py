"""Columns that another engine widened, and fields within them that it calls otherwise: others than Spark's own reader read such files."""

import random

import pytest
from pyiceberg.types import LongType

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.readers import foreign
from tests.readers.audit import load_table
from tests.unit.read.kit import OPTIONS

pytestmark = pytest.mark.spark

COLUMNS = {"id": "int not null", "s": "row<a int, b string>", "l": "array<row<x int, y string>>", "n": "int"}


def row(number: int) -> dict:
    return {"id": number, "s": {"a": number, "b": f"b{number}"}, "l": [{"x": number, "y": "y"}], "n": -number}


@pytest.mark.parametrize("kind", ["log", "keyed"])
def test_renamed_fields_of_files_that_others_wrote_are_found(spark, tmp_path, kind):
    """Seen: null in every row of a file that somebody had compacted, without a word; where two names were exchanged, an error of Java's."""
    with EmbeddedCluster(tmp_path / "lab", OPTIONS) as cluster:
        connection, path = cluster.connection, TablePath("db", "t")
        connection.admin().create_database("db")
        key = ["id"] if kind == "keyed" else None
        descriptor = make_descriptor(
            COLUMNS, primary_key=key, buckets=1, properties={"table.datalake.enabled": True}
        )  # fmt: skip
        info = connection.admin().create_table(path, descriptor)

        def write(first: int) -> None:
            rows = [row(number) for number in range(first, first + 10)]
            if key is None:
                with connection.append_writer(path) as appender:
                    appender.append(rows).result()
            else:
                with connection.upsert_writer(path) as upserter:
                    upserter.upsert(rows)

        def tier() -> None:
            run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)

        write(0)
        tier()
        lake = load_table(connection, path)
        with lake.update_schema() as update:
            update.rename_column(("s", "a"), "a1").rename_column(("s", "b"), "a").rename_column(
                ("l", "element", "x"), "z"
            )
            update.update_column("n", LongType())
        foreign.compact(load_table(connection, path), random.Random(0))
        write(10)
        tier()
        write(20)
        reader = TableReader(connection, path)
        expected = [row(number) for number in range(30)]
        assert sorted(reader.scan().to_arrow().to_pylist(), key=lambda each: each["id"]) == expected
        frames = [scan_to_spark(spark, reader.scan()), scan_to_spark(spark, reader.scan(where="s.a < 100"))]
        for frame in [*frames, changelog_to_spark(spark, reader.changelog())]:
            found = frame.select(*COLUMNS).toArrow().to_pylist()
            assert sorted(found, key=lambda each: each["id"]) == expected
        # Seen: Spark's PARQUET_COLUMN_DATA_TYPE_MISMATCH, of a column that somebody had widened.
        narrow = scan_to_spark(spark, reader.scan(["n"], where="n < 0"))
        assert sorted(narrow.toArrow().column("n").to_pylist()) == sorted(-number for number in range(1, 30))
        # What nobody changed is the JVM's to read.
        assert "BatchScan" not in scan_to_spark(spark, reader.scan(["id"]))._jdf.queryExecution().toString()


@pytest.mark.parametrize("kind", ["log", "keyed"])
def test_no_column_has_the_name_under_which_another_is_read(spark, tmp_path, kind):
    """Seen: Spark's AnalysisException, for numbers were read under a name that another column has."""
    with EmbeddedCluster(tmp_path / "lab", OPTIONS) as cluster:
        connection, path = cluster.connection, TablePath("db", "t")
        connection.admin().create_database("db")
        columns = {"id": "int", "v": "double", "__f2": "int"}
        key = ["id"] if kind == "keyed" else None
        descriptor = make_descriptor(columns, primary_key=key, properties={"table.datalake.enabled": True})
        info = connection.admin().create_table(path, descriptor)
        wanted = {"id": 1, "v": 0.5, "__f2": 7}
        if key is None:
            with connection.append_writer(path) as appender:
                appender.append([wanted])
        else:
            with connection.upsert_writer(path) as upserter:
                upserter.upsert([wanted])
        run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
        frame = scan_to_spark(spark, TableReader(connection, path).scan(where="v < 1"))
        assert frame.toArrow().to_pylist() == [wanted]
        assert "BatchScan" not in frame._jdf.queryExecution().toString(), "files are the JVM's to read"

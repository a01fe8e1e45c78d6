"""A table whose columns grow, in Spark: old files and old batches lack a column, and read it as null."""

import random

import pytest

from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_by_tasks, scan_to_spark
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS, SYSTEM, ModelTable, rows_of, same
from tests.unit.read.test_altered import Growing

pytestmark = pytest.mark.spark

KEYS = [("id", "ascending")]


def agree(session, scan, way=scan_to_spark):
    """Check that Spark gives the scan's rows."""
    found, expected = way(session, scan).toArrow(), scan.to_arrow()
    assert found.column_names == expected.column_names
    same(rows_of(found.sort_by(KEYS)), rows_of(expected.sort_by(KEYS)))
    return found.num_rows


@pytest.fixture
def lake():
    """Options of the lake: one on this machine."""
    return {}


def test_spark_equals_arrow_on_a_table_that_grows(spark, tmp_path, lake):
    clock = MockClock()
    with EmbeddedCluster(tmp_path / "lab", options=OPTIONS | lake, clock=clock) as cluster:
        growing = Growing(ModelTable(cluster, clock, "t"), random.Random(3))
        growing.append(40)
        growing.table.tier()
        point = growing.reader().read_point()
        growing.append(20)
        growing.alter(note="string", number="int")
        growing.append(40)
        growing.table.tier()
        growing.append(20)
        growing.alter(place="row<x int, y array<string>>")
        growing.append(20)
        names = [*growing.kinds, *SYSTEM]
        wheres = [
            None, "note is null", "note is not null", "number >= 70", "not (number >= 70)", "note = 'note70'",
            "number = 7", "number is null and delay < 50",
        ]  # fmt: skip
        assert [agree(spark, growing.reader().scan(names, where)) for where in wheres] == [
            140, 60, 80, 70, 10, 1, 0, 50,
        ]  # fmt: skip
        assert agree(spark, growing.reader().scan(["number", "id"])) == 140
        assert agree(spark, growing.reader().scan(names, "number >= 70"), scan_by_tasks) == 70
        assert agree(spark, growing.reader().scan(read_point=point)) == 40
        log = growing.reader().changelog()
        found = rows_of(changelog_to_spark(spark, log).toArrow().sort_by(KEYS))
        same([{key: row[key] for key in growing.kinds} for row in found], growing.expected())

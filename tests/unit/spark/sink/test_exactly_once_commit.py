"""Batches of a sink into a table that the lake has more partitions of than the cluster."""

from __future__ import annotations

import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.spark.sink.sink_kit import CHANGES, KINDS, OPTIONS, Sink, changes, rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("whole", [False, True], ids=["changes", "complete"])
def test_rows_that_only_the_lake_has_are_not_said_to_be_deleted(tmp_path, whole):
    """Of a batch that cannot delete all of its rows nothing is written; it is, when the lake has them no more."""
    with EmbeddedCluster(options=OPTIONS) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        kind = KINDS["partitioned keyed"] | {"properties": {"table.datalake.enabled": True}}
        sink = Sink(cluster, tmp_path / "first", **kind)
        sink.run(0, [[rows(1, 2, month="m0"), rows(3, month="m1")]])
        storage = cluster.connection.lake_storage()
        run_round(cluster.connection, storage, LocalTieringExecutor(), table_id=sink.info.table_id)
        admin.drop_partition(sink.path, {"month": "m0"})
        sink.whole, sink.schema = whole, sink.schema if whole else CHANGES
        batch = [rows(4, month="m1")] if whole else [changes(("-D", 1, None), ("-D", 9, None))]
        held = sorted(row["id"] for row in _rows(cluster, sink))
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"'m0' was dropped.*still read from the lake.*nothing was"):
                sink.run(1, [batch])
            assert sorted(row["id"] for row in _rows(cluster, sink)) == held == [1, 2, 3]
        admin.drop_partition(sink.path, {"month": "m0"}, lake=True)
        sink.run(1, [batch])
        assert [row["id"] for row in _rows(cluster, sink)] == ([4] if whole else [3])


def _rows(cluster, sink):
    return TableReader(cluster.connection, sink.path).scan().to_arrow().to_pylist()

"""A lab that an older release made (commit 5d5e66e) is opened, read, written and tiered on by this one."""

import tarfile
from pathlib import Path

import pytest

from fluss_lab.cli.table_commands import relocate_lab
from fluss_lab.errors import LabMovedError
from fluss_lab.model import TablePath
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

#: A partitioned log table and a primary-key table, each partly in the lake, and a table without a lake; with index
#: files, key-value snapshots and remote segments as that release left them.
KEPT = Path(__file__).parents[2] / "data" / "lab-of-5d5e66e.tar.gz"
FLIGHTS = [[number, f"2013-0{1 + number % 2}", number % 7] for number in range(60)]
PLANES = [[number, f"{'q' if 5 <= number < 10 else 'p'}{number}", number] for number in range(1, 20)]


@pytest.fixture
def lab(tmp_path):
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "lab"


def _rows(cluster, table):
    rows = TableReader(cluster.connection, TablePath("db", table)).scan().to_arrow().to_pylist()
    return sorted(list(row.values()) for row in rows)


def test_a_lab_of_an_older_release_goes_on(lab):
    with pytest.raises(LabMovedError, match="--relocate"), EmbeddedCluster(lab):
        pass
    relocate_lab(lab)
    with EmbeddedCluster(lab) as cluster:
        connection = cluster.connection
        assert _rows(cluster, "flights") == FLIGHTS
        assert _rows(cluster, "planes") == PLANES
        assert TableReader(connection, TablePath("db", "plain")).scan().count() == 10
        changes = TableReader(connection, TablePath("db", "planes")).changelog().to_arrow()
        assert changes.column("_change_type").to_pylist().count("-U") == 5
        assert changes.num_rows == 31
        with connection.upsert_writer("db.planes") as writer:
            writer.upsert([{"id": 1, "name": "new", "seats": 1}])
        planes = [[1, "new", 1], *PLANES[1:]]
        assert _rows(cluster, "planes") == planes
        for table in ("flights", "planes"):
            info = connection.table_info(TablePath("db", table))
            report = run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
            assert report is not None
            assert report.rows
            # The file of that release had no history; it begins with this round.
            assert [each.rows for each in connection.admin().tiering_rounds(info.path)] == [report.rows]
        assert _rows(cluster, "planes") == planes
        assert _rows(cluster, "flights") == FLIGHTS

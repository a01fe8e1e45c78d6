"""The format of a lab with lake tables does not change, whatever the options say."""

import pytest

from fluss_lab.errors import LabError, TableNotFoundError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

PATH = TablePath("db", "events")


def tiered(cluster: EmbeddedCluster) -> int:
    """Make a table with rows in the lake; return its id."""
    admin = cluster.connection.admin()
    admin.create_database("db")
    info = admin.create_table(PATH, make_descriptor({"x": "int"}, properties={"table.datalake.enabled": True}))
    with cluster.connection.append_writer(PATH) as writer:
        writer.append([{"x": 1}, {"x": 2}])
    run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    return info.table_id


def test_a_lab_with_tiered_data_keeps_its_lake_when_one_option_is_added(tmp_path):
    with EmbeddedCluster(tmp_path / "lab") as cluster:
        tiered(cluster)
    with EmbeddedCluster(tmp_path / "lab", {"datalake.iceberg.s3.endpoint": "http://localhost:9"}) as cluster:
        storage = cluster.connection.lake_storage()
        assert storage.properties["s3.endpoint"] == "http://localhost:9"
        table = storage.create_lake_catalog()._access.load_table(PATH)
        assert table.scan().to_arrow().num_rows == 2


def test_another_format_is_refused_while_there_are_lake_tables(tmp_path):
    folder = tmp_path / "lab"
    parquet = {"datalake.format": "parquet", "datalake.parquet.warehouse": str(tmp_path / "parquet")}
    with EmbeddedCluster(folder) as cluster:
        tiered(cluster)
    with pytest.raises(LabError, match=r"1 lake tables \(db.events\) in format 'iceberg'.*found parquet"):
        EmbeddedCluster(folder, parquet).start()
    with EmbeddedCluster(folder) as cluster:
        cluster.connection.admin().drop_table(PATH)
        with pytest.raises(TableNotFoundError):
            cluster.connection.table_info(PATH)
    with EmbeddedCluster(folder, parquet) as cluster:
        assert cluster.connection.lake_storage().format_name == "parquet"

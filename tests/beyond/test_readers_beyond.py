"""Other people's engines read tables through a REST catalog and S3, with nothing of ours between."""

import pytest
from pyiceberg.catalog import load_catalog

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.readers import duckdb_connection
from tests.crash.scene import TAKEOVER, Scene
from tests.readers.engines import reach_s3

pytestmark = [pytest.mark.beyond, pytest.mark.slow]


@pytest.fixture(scope="module", params=["rest", "nessie"])
def lake(request, backends, tmp_path_factory):
    if request.param == "nessie":
        # Its main branch: DuckDB does not follow the address that Nessie gives for others.
        return request.getfixturevalue("nessie").lake_options()
    return backends.lake(request.param, tmp_path_factory.mktemp("beyond"))


@pytest.fixture(scope="module")
def cluster(lake):
    options = {f"datalake.iceberg.{key}": value for key, value in lake.items()}
    with EmbeddedCluster(options={**TAKEOVER, **options}) as embedded:
        yield embedded


@pytest.fixture(params=["log_parts", "pk_parts", "pk"])
def scene(request, cluster, seed):
    scene = Scene(cluster, request.param, seed, f"{request.param}_{request.node.originalname.split('_')[1]}")
    for _ in range(4):
        scene.write()
        scene.tier()
    return scene


def held(scene):
    """Return bucket, offset and partition of each row that lives, as the log says."""
    found = []
    for (partition, bucket), log in scene.history.read().items():
        found += [(partition or "", bucket, offset) for offset in log.live(len(log.events))]
    assert found
    return sorted(found)


def rows(scene, table):
    columns = [table[name].to_pylist() for name in scene.history.kind.partitioned_by]
    partitions = ["$".join(each) for each in zip(*columns, strict=True)] if columns else [""] * len(table)
    return sorted(zip(partitions, table["__bucket"].to_pylist(), table["__offset"].to_pylist(), strict=True))


def test_pyiceberg_reads_by_the_catalog_alone(scene, lake):
    path = scene.history.path
    table = load_catalog("theirs", **lake).load_table((path.database, path.table))
    assert rows(scene, table.scan().to_arrow()) == held(scene)


def test_duckdb_reads_by_the_catalog_alone(scene, lake):
    path = scene.history.path
    with duckdb_connection() as connection:
        reach_s3(connection, lake)
        connection.execute(
            f"attach '{lake.get('warehouse', 'lab')}' as theirs "
            f"(type iceberg, endpoint '{lake['uri'].rstrip('/')}', authorization_type 'none', access_delegation_mode 'none')"
        )
        try:
            found = connection.execute(f'select * from theirs."{path.database}"."{path.table}"').to_arrow_table()
        finally:
            connection.execute("detach theirs")
    assert rows(scene, found) == held(scene)

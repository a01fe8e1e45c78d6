"""Other people's engines read tables through a REST catalog and S3, with nothing of ours between."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFileContent

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.readers import duckdb_connection
from fluss_lab.testing.seeds import seed_named
from tests.crash.scene import TAKEOVER, Scene
from tests.readers.engines import reach_s3
from tests.readers.lake_files import tiered_ends

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

#: A table as four rounds leave it, with deletes if it has a primary key; and after a compaction of these, and a round more.
STATES = ("rounds", "compacted", "compacted_and_changed")


@pytest.fixture(scope="module", params=["rest", "iceberg", "nessie"])
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


@pytest.fixture(scope="module", params=["log_parts", "pk_parts", "pk"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=STATES)
def scene(request, cluster, kind):
    name = f"{kind}_{request.param}"
    scene = Scene(cluster, kind, seed_named(name), name)
    for _ in range(4):
        scene.write()
        scene.tier()
    has_deletes = kind != "log_parts"
    assert deletes(scene) == has_deletes
    if request.param != "rounds":
        scene.maintain("compact")
        assert not deletes(scene)
    if request.param == "compacted_and_changed":
        for _ in range(2):
            scene.write()
            scene.tier()
        assert deletes(scene) == has_deletes
    return scene


def deletes(scene) -> bool:
    """Return whether rows of the table's files are deleted by other files of it."""
    table = scene.audit.table()
    snapshot = table.current_snapshot()
    entries = [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]
    return any(entry.data_file.content != DataFileContent.DATA for entry in entries)


def check(scene, found: pa.Table):
    """Check all rows and values that an engine found in the table as it is now."""
    table, logs = scene.audit.table(), scene.history.read()
    assert len(found)
    scene.audit.check_state(table, logs, tiered_ends(table), {"found": lambda _: found})


def test_pyiceberg_reads_by_the_catalog_alone(scene, lake):
    path = scene.history.path
    table = load_catalog("theirs", **lake).load_table((path.database, path.table))
    check(scene, table.scan().to_arrow())


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
    check(scene, found)


def test_stock_spark_reads_by_the_catalog_alone(scene, lake, stock):
    path = scene.history.path
    check(scene, stock.sql({**lake, "name": "theirs"}, f"select * from theirs.`{path.database}`.`{path.table}`"))

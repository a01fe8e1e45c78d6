"""Random histories of lake tables as Polars, Daft and ClickHouse read them."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import TAKEOVER, Scene
from tests.readers.pypi_engines import pypi_engine
from tests.readers.walk import Walk

pytestmark = [pytest.mark.maven, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


@pytest.mark.parametrize("kind", ["log_types", "pk_types", "pk_parts"])
def test_polars_and_daft_read_what_the_model_has(cluster, seed, kind):
    engines = {name: pypi_engine(name) for name in ("polars", "daft")}
    Walk(Scene(cluster, kind, seed, f"{kind}_others"), engines).run(8)


def test_clickhouse_reads_rows_that_were_deleted_by_equality(cluster, seed):
    """It is the one that is no Spark. Texts are all that it does not take for something else."""
    properties = {"table.datalake.delete-mode": "equality"}
    scene = Scene(cluster, "pk_parts", seed, "pk_parts_clickhouse", properties)
    Walk(scene, {"clickhouse": pypi_engine("clickhouse")}, without=["foreign compaction"]).run(8)

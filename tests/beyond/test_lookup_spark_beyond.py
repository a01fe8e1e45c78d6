"""Lookup joins with a table whose lake is in MinIO: static ones, in each mode, with rows in the lake and in the log."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.spark.test_lab_lookup import (  # noqa: F401
    flights,
    lab,
    test_conditions_and_columns,
    test_equals_sparks_own_join,
)

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, backends):
    folder = tmp_path_factory.mktemp("a lab")
    with EmbeddedCluster(folder / "lab", backends.cluster("sqlite", folder)) as running:
        yield running


@pytest.fixture(scope="module")
def planes(lab):  # noqa: F811
    rows = [{"tailnum": f"N{i}", "year": None if i % 7 == 0 else 1980 + i, "model": f"m{i % 5}"} for i in range(200)]
    schema = {"tailnum": "string", "year": "int", "model": "string"}
    table = lab.create_table(
        "nyc.planes", schema, rows=rows[:150], primary_key=["tailnum"], buckets=4,
        properties={"table.datalake.enabled": True},
    )  # fmt: skip
    run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)
    table.upsert(rows[100:])
    return table

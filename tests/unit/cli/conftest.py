"""A running lab that tests of commands read."""

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def shell_lab(tmp_path_factory):
    """A log table of two buckets, 6 rows, one with a primary key, 5 records, and an empty one; its folder's name has a space."""
    path = tmp_path_factory.mktemp("shell") / "my lab"
    with EmbeddedCluster(path) as running:
        admin = running.connection.admin()
        admin.create_database("nyc")
        enabled = {"table.datalake.enabled": True}
        columns = {"a": "bigint", "s": "string"}
        admin.create_table(TablePath("nyc", "flights"), make_descriptor(columns, buckets=2, properties=enabled))
        with running.connection.append_writer("nyc.flights") as writer:
            writer.append([{"a": a, "s": None if a == 1 else f"ä{a}\n\x1b[2J"} for a in range(6)]).result()
        admin.create_table(TablePath("nyc", "planes"), make_descriptor({"k": "int", "v": "double"}, primary_key=["k"]))
        with running.connection.upsert_writer("nyc.planes") as writer:
            writer.upsert([{"k": 1, "v": 1.5}]).result()
            writer.upsert([{"k": 1, "v": float("nan")}]).result()
            writer.upsert([{"k": 2, "v": None}]).result()
            writer.delete([{"k": 2}]).result()
        admin.create_table(TablePath("nyc", "empty"), make_descriptor({"a": "bigint"}))
        yield running

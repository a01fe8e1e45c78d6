"""A lab, and a table in it."""

import pytest

import fluss_lab as fl
from tests.unit.workbench.lab_kit import LAKE, SCHEMA


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with fl.Lab.open(tmp_path_factory.mktemp("lab") / "my lab", config={"server.grace": "200ms"}) as lab:
        lab.create_database("shop")
        yield lab


@pytest.fixture
def table(lab, request):
    path = f"shop.t{abs(hash(request.node.nodeid))}"
    return lab.create_table(path, SCHEMA, partitioned_by=["month"], buckets=2, properties=LAKE)

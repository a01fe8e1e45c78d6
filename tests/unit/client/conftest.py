"""One cluster for all tests of the client that do not restart it; every test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_lab.client import Connection
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster

MakeTable = Callable[..., TableInfo]


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[EmbeddedCluster]:
    options = {"log.segment.file-size": "64kb"}
    client = {"client.request-timeout": "10s", "client.scanner.log.fetch.wait-max-time": "100ms"}
    with EmbeddedCluster(lake=False, options=options, client=client) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def database_names() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def connection(shared_cluster: EmbeddedCluster) -> Connection:
    return shared_cluster.connection


@pytest.fixture
def stranger(shared_cluster: EmbeddedCluster) -> Iterator[Connection]:
    """Somebody else's connection: what it changes, `connection` does not know of."""
    with Connection(lambda: shared_cluster.address) as other:
        yield other


@pytest.fixture
def database(connection: Connection, database_names: Iterator[int]) -> str:
    name = f"db{next(database_names)}"
    connection.admin().create_database(name)
    return name


@pytest.fixture
def make_table(connection: Connection, database: str) -> MakeTable:
    def make(columns: Any = None, name: str = "t", **definition: Any) -> TableInfo:
        schema = columns if columns is not None else {"id": "bigint", "name": "string"}
        return connection.admin().create_table(TablePath(database, name), make_descriptor(schema, **definition))

    return make

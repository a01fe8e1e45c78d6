"""Other people's servers, started once for a file of tests; where one cannot be had, its tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.beyond.backends import Backends
from tools.beyond.iceberg_rest_server import IcebergRestServer
from tools.beyond.minio_server import MinioServer
from tools.beyond.nessie_server import NessieServer
from tools.beyond.pinned_parts import PartUnavailableError
from tools.beyond.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def minio() -> Iterator[MinioServer]:
    try:
        server = MinioServer()
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="module")
def nessie(minio) -> Iterator[NessieServer]:
    try:
        server = NessieServer(minio, minio.make_bucket("nessie"))
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="module")
def iceberg_rest(minio) -> Iterator[IcebergRestServer]:
    try:
        server = IcebergRestServer(minio, minio.make_bucket("iceberg-rest"))
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="module")
def backends(request) -> Iterator[Backends]:
    with Backends(request) as found:
        yield found

"""Other people's servers, started once for a file of tests; where one cannot be had, its tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from fluss_lab.closing import Closing
from tests.beyond.backends import Backends
from tests.beyond.proxied import ProxiedLake
from tools.beyond.iceberg_rest_server import IcebergRestServer
from tools.beyond.minio_server import MinioServer
from tools.beyond.nessie_server import NessieServer
from tools.beyond.pinned_parts import PartUnavailableError
from tools.beyond.postgres_server import PostgresServer

Server = TypeVar("Server", bound=Closing)


@pytest.fixture(scope="module")
def minio() -> Iterator[MinioServer]:
    yield from _served(MinioServer)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    yield from _served(PostgresServer)


@pytest.fixture(scope="module")
def nessie(minio) -> Iterator[NessieServer]:
    yield from _served(lambda: NessieServer(minio, minio.make_bucket("nessie")))


@pytest.fixture(scope="module")
def iceberg_rest(minio) -> Iterator[IcebergRestServer]:
    yield from _served(lambda: IcebergRestServer(minio, minio.make_bucket("iceberg-rest")))


@pytest.fixture(scope="module")
def backends(request) -> Iterator[Backends]:
    with Backends(request) as found:
        yield found


@pytest.fixture(scope="module")
def lake(backends, tmp_path_factory) -> Iterator[ProxiedLake]:
    """Whose requests are counted, and harmed where a test says so."""
    with ProxiedLake(backends, "rest", tmp_path_factory.mktemp("beyond")) as found:
        yield found


def _served(make: Callable[[], Server]) -> Iterator[Server]:
    try:
        server = make()
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        yield server

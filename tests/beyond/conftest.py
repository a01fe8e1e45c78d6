"""Other people's servers, started once for a file of tests; where one cannot be had, its tests are skipped with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from fluss_lab.closing import Closing
from tests.beyond.backends import Backends
from tests.beyond.proxied import ProxiedLake
from tests.readers.stock_spark import StockSpark, StockSparkUnavailableError, prepare_stock_spark, stock_spark
from tools.beyond.iceberg_rest_server import IcebergRestServer, iceberg_rest_jars
from tools.beyond.minio_server import MinioServer
from tools.beyond.nessie_server import NessieServer
from tools.beyond.pinned_parts import PartUnavailableError, minio_program, nessie_jar, nessie_java
from tools.beyond.postgres_server import PostgresServer

Server = TypeVar("Server", bound=Closing)

#: What is fetched or built where it is not there: minutes, once.
FETCHED = (minio_program, nessie_jar, nessie_java, iceberg_rest_jars)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch parts before the first test: a test that took so long would look as if it hung, and what is said not be seen."""
    chosen = [each for each in session.items if isinstance(each, pytest.Function) and each.get_closest_marker("beyond")]
    if session.config.option.collectonly or not chosen:
        return
    # Stock Spark is more than all the rest.
    stock = (prepare_stock_spark,) if any("stock" in each.fixturenames for each in chosen) else ()
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for fetch in (*FETCHED, *stock):
            try:
                fetch()
            except (PartUnavailableError, StockSparkUnavailableError) as error:
                print(f"tests that need it are skipped: {error}", file=sys.stderr, flush=True)


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
def stock() -> Iterator[StockSpark]:
    """Stock Spark with Iceberg's runtime."""
    with stock_spark() as spark:
        yield spark


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

"""Other people's readers, those that take long to start once for the whole run."""

from collections.abc import Iterator

import pytest

from tests.readers.stock_spark import StockSpark, stock_spark


@pytest.fixture(scope="session")
def stock() -> Iterator[StockSpark]:
    """Stock Spark with Iceberg's runtime; the test is skipped where it cannot be had."""
    with stock_spark() as spark:
        yield spark

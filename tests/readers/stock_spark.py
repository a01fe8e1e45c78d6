"""Stock Spark with Iceberg's own runtime, from a Maven repository, in an environment of its own beside the checkout's.

The runtime is built for a Spark that this package does not use, so it has a virtual environment of its own
(``.venv-maven``, made on first use, kept between runs) and runs in a process of its own, which stays for a whole run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_lab.closing import Closing
from fluss_lab.spark.session.java_home import find_java
from tests.readers.own_environment import EnvironmentUnavailableError, make_environment

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = ROOT / ".venv-maven"
#: The newest Spark that Iceberg's newest runtime is built for.
REQUIREMENTS: Final = ("pyspark==4.1.4", "pyarrow>=18", "pandas>=2.2,<3", "setuptools")
PACKAGES: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
#: The catalog's name where the lake's properties have none.
CATALOG: Final = "fluss_lab"
_MARK: Final = "stock.json"


class StockSparkUnavailableError(Exception):
    """The environment cannot be made here, or the jars cannot be fetched; the text says why. Tests skip."""


class StockSpark(Closing):
    """A running Spark 4.1 with Iceberg 1.11. Used by one thread; start it once per run: it takes some ten seconds.

    Raises:
        StockSparkUnavailableError: Nothing can be fetched here.
    """

    def __init__(self) -> None:
        python = environment()
        self._folder = tempfile.TemporaryDirectory(prefix="stock-spark-")
        folder = Path(self._folder.name)
        self._log = (folder / "spark.log").open("w+")
        worker = Path(__file__).with_name("stock_worker.py")
        self._process = subprocess.Popen(
            [str(python), str(worker), json.dumps(_settings(folder))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=folder, env=_environment(python),
        )  # fmt: skip
        self._count = 0
        answer = self._answer()
        if "version" not in answer:
            text = self._log_text()
            self.close()
            raise StockSparkUnavailableError(f"stock Spark did not start: {text[-2000:]}")
        self.version = str(answer["version"])

    def rows(self, metadata_location: str, query: str | None = None, **options: str) -> pa.Table:
        """Return rows of an Iceberg table by the place of its metadata file, without a catalog.

        Args:
            metadata_location: A path or ``file:`` location.
            query: Spark SQL over the table, which is called ``lake``; None: all rows.
            options: Of Iceberg's reader, for instance ``versionAsOf``.
        """
        return self._ask({"load": metadata_location, "sql": query, "options": options})

    def sql(self, storage_properties: Mapping[str, str], query: str) -> pa.Table:
        """Return what a statement gives, run against a lake's own catalog: see `catalog_settings`.

        Args:
            storage_properties: Of the lake storage. Tables are ``<name>.<database>.<table>``, where the name is the
                property ``name``, or `CATALOG`.
            query: A statement.
        """
        return self._ask({"sql": query, "catalog": catalog_settings(storage_properties)})

    def call(
        self, storage_properties: Mapping[str, str], procedure: str, table: str, **arguments: Any
    ) -> dict[str, Any]:
        """Call one of Iceberg's procedures on a table, and return the first row of its answer.

        Args:
            storage_properties: As for `sql`.
            procedure: ``rewrite_data_files``, ``rewrite_position_delete_files``, ``rewrite_manifests``,
                ``remove_orphan_files``, ``expire_snapshots``, ...
            table: ``database.table``.
            arguments: Further ones by name: numbers, booleans, strings (``2026-01-01 00:00:00`` becomes a timestamp for
                ``older_than``), and dicts, which become maps of strings.
        """
        name = storage_properties.get("name", CATALOG)
        given = "".join(f", {key} => {_literal(key, value)}" for key, value in arguments.items())
        found = self.sql(storage_properties, f"call {name}.system.{procedure}(table => '{table}'{given})").to_pylist()
        return found[0] if found else {}

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, request: dict[str, Any]) -> pa.Table:
        assert self._process.stdin is not None
        self._count += 1
        into = Path(self._folder.name) / f"{self._count}.arrow"
        self._process.stdin.write(json.dumps({**request, "into": str(into)}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "rows" not in answer:
            raise AssertionError(f"stock Spark: {answer.get('error') or self._log_text()[-4000:]}")
        with pa.OSFile(str(into)) as file:
            rows = pa.ipc.open_file(file).read_all()
        into.unlink()
        return rows

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # Its JVM says things there, too: that its cache of compiled code is full.
        line = next((line for line in self._process.stdout if line.startswith("{")), "")
        return dict(json.loads(line)) if line else {}

    def _log_text(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text(errors="replace")


def catalog_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a lake's catalog.

    Args:
        properties: Of pyiceberg: a REST catalog with files in an object store, or the SQLite catalog of its own, which
            Iceberg's JdbcCatalog reads too.
    """
    settings = _rest_settings(properties) if properties.get("type") == "rest" else _sqlite_settings(properties)
    prefix = f"spark.sql.catalog.{properties.get('name', CATALOG)}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in settings.items()},
        f"{prefix}.cache-enabled": "false",
    }


def _sqlite_settings(properties: Mapping[str, str]) -> dict[str, str]:
    place = properties["uri"].removeprefix("sqlite:///").partition("?")[0]
    return {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{place}",
        "warehouse": properties["warehouse"],
        # pyiceberg writes the newer of the two layouts that the JDBC catalog knows.
        "jdbc.schema-version": "V1",
    }


def _rest_settings(properties: Mapping[str, str]) -> dict[str, str]:
    same = ("uri", "warehouse", "s3.endpoint", "s3.access-key-id", "s3.secret-access-key")
    return {
        "type": "rest",
        **{key: properties[key] for key in same if key in properties},
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.path-style-access": "true",
        "client.region": properties["s3.region"],
    }


def prepare_stock_spark() -> None:
    """Fetch all that it needs, and say so; nothing happens when that was done before.

    Raises:
        StockSparkUnavailableError: It cannot be fetched.
    """
    if not (ENVIRONMENT / _MARK).exists():
        what = f"{', '.join((*REQUIREMENTS[:1], *PACKAGES))} from PyPI and Maven Central"
        print(f"fetching stock Spark: {what}; 600 MB, once, some minutes ...", file=sys.stderr, flush=True)
        StockSpark().close()


def environment() -> Path:
    """Return the Python of the stock environment; it is made when it is not there yet.

    Raises:
        StockSparkUnavailableError: It cannot be made.
    """
    try:
        return make_environment(ENVIRONMENT, _MARK, REQUIREMENTS)
    except EnvironmentUnavailableError as error:
        raise StockSparkUnavailableError(str(error)) from error


@contextmanager
def stock_spark() -> Iterator[StockSpark]:
    """Give a running stock Spark for a block; skip the test where it cannot be had."""
    import pytest

    try:
        spark = StockSpark()
    except StockSparkUnavailableError as error:
        pytest.skip(str(error))
    with spark:
        yield spark


def _settings(folder: Path) -> dict[str, str]:
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }


def _environment(python: Path) -> dict[str, str]:
    strange = {"SPARK_HOME", "SPARK_REMOTE", "PYTHONPATH", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"}
    kept = {name: value for name, value in os.environ.items() if name not in strange}
    return {
        **kept,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _literal(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "map(" + ", ".join(f"'{name}', '{each}'" for name, each in value.items()) + ")"
    if isinstance(value, str):
        return f"timestamp '{value}'" if key == "older_than" else f"'{value}'"
    return str(value)

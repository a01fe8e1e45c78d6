"""Readers of lake tables by another engine, to compare with."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb


def duckdb_rows(metadata_location: str, query: str = "select * from lake") -> pa.Table:
    """Return rows of an Iceberg table as DuckDB's own Iceberg extension reads them.

    Needs the packages ``duckdb``, ``duckdb-extension-iceberg`` and ``duckdb-extension-avro``; nothing is downloaded.

    Args:
        metadata_location: The table's metadata file, a path or a ``file://`` location.
        query: SQL over the table, which is called ``lake``.
    """
    with duckdb_connection() as connection:
        lake = connection.table_function("iceberg_scan", [metadata_location.removeprefix("file://")])
        return lake.query("lake", query).to_arrow_table()


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """Return a connection of this process's DuckDB, which reads Iceberg; close it, or use it as a context manager.

    What connections create stays and is seen by the others, unless it is temporary. Nothing of files is kept.

    Cost: the first one loads the extensions, 0.2 s of the processor; further ones take 1 ms.
    """
    connection = _database().cursor()
    connection.execute("set timezone = 'UTC'")
    return connection


@cache
def _database() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    try:
        for name in ("avro", "iceberg"):
            connection.load_extension(str(_extension(name)))
        connection.execute("set enable_external_file_cache = false")
    except BaseException:
        connection.close()
        raise
    return connection


def _extension(name: str) -> Path:
    folder = Path(str(resources.files(f"duckdb_extension_{name}"))) / "extensions"
    return next(folder.rglob(f"{name}.duckdb_extension"))

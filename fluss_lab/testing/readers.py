"""Readers of lake tables by another engine, to compare with."""

from __future__ import annotations

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
        location = metadata_location.removeprefix("file://")
        connection.table_function("iceberg_scan", [location]).create_view("lake")
        return connection.execute(query).to_arrow_table()


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB of its own that reads Iceberg; close it, or use it as a context manager. It takes some 50 ms to make."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    try:
        for name in ("avro", "iceberg"):
            connection.load_extension(str(_extension(name)))
        connection.execute("set timezone = 'UTC'")
    except BaseException:
        connection.close()
        raise
    return connection


def _extension(name: str) -> Path:
    folder = Path(str(resources.files(f"duckdb_extension_{name}"))) / "extensions"
    return next(folder.rglob(f"{name}.duckdb_extension"))

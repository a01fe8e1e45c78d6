"""Rows of a lake table as other people's engines read them, as plain values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from pyiceberg.table import StaticTable, Table

from fluss_lab.testing.readers import duckdb_connection
from tests.readers.lake_files import is_local, local_path

Row = dict[str, Any]
#: From a table, of which only the place of its metadata and the credentials of its files are used, to its rows.
Engine = Callable[[Table], pa.Table]
#: DuckDB's own package for HTTP and S3.
HTTPFS: Final = "duckdb_extension_httpfs"


def duckdb(table: Table) -> pa.Table:
    with duckdb_connection() as connection:
        metadata = table.metadata_location
        if is_local(metadata):
            metadata = local_path(metadata)
        else:
            reach_s3(connection, table.io.properties)
        return connection.table_function("iceberg_scan", [metadata]).to_arrow_table()


def reach_s3(connection: DuckDBPyConnection, properties: Mapping[str, str]) -> None:
    """Have DuckDB read from an object store; skip the test where its package for that is not installed.

    Args:
        connection: Of DuckDB; all of this process reach the same store then.
        properties: ``s3.*``, as pyiceberg names them.
    """
    if find_spec(HTTPFS) is None:
        pytest.skip(f"DuckDB's package for S3 is not installed (pip install {HTTPFS.replace('_', '-')})")
    folder = Path(str(resources.files(HTTPFS))) / "extensions"
    connection.load_extension(str(next(folder.rglob("httpfs.duckdb_extension"))))
    key, secret, region = (properties[f"s3.{name}"] for name in ("access-key-id", "secret-access-key", "region"))
    place = urlsplit(properties["s3.endpoint"])
    connection.execute(
        f"create or replace temporary secret lake (type s3, key_id '{key}', secret '{secret}', region '{region}', "
        f"endpoint '{place.netloc}', url_style 'path', use_ssl {str(place.scheme == 'https').lower()})"
    )


def pyiceberg(table: Table) -> pa.Table:
    """Read through pyiceberg's public scan. Not for filters: those prune delete files by mistake (and are not tested)."""
    return StaticTable.from_metadata(table.metadata_location, table.io.properties).scan().to_arrow()


def datafusion(table: Table) -> pa.Table:
    """Read through DataFusion and iceberg-rust, in a process of their own: a mismatch of the two ends in a crash."""
    code = (
        "import json, sys, pyarrow as pa, datafusion\n"
        "from pyiceberg.table import StaticTable\n"
        "context = datafusion.SessionContext()\n"
        "context.register_table('lake', StaticTable.from_metadata(*json.load(sys.stdin)))\n"
        "found = pa.Table.from_batches(context.sql('select * from lake').collect(), "
        "context.sql('select * from lake').schema())\n"
        "with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as sink: sink.write_table(found)\n"
    )
    place = json.dumps([table.metadata_location, dict(table.io.properties)]).encode()
    done = subprocess.run([sys.executable, "-c", code], input=place, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return pa.ipc.open_stream(done.stdout).read_all()


FASTEST: Final[dict[str, Engine]] = {"duckdb": duckdb}
#: Those that cost milliseconds.
QUICK: Final[dict[str, Engine]] = {**FASTEST, "pyiceberg": pyiceberg}
ENGINES: Final[dict[str, Engine]] = {**QUICK, "datafusion": datafusion}

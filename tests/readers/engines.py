"""Rows of a lake table as other people's engines read them, as plain values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table import StaticTable

from fluss_lab.testing.readers import duckdb_connection
from tests.readers.lake_files import local_path

Row = dict[str, Any]
#: From the place of a table's metadata to its rows.
Engine = Callable[[str], pa.Table]


def duckdb(metadata: str) -> pa.Table:
    with duckdb_connection() as connection:
        return connection.table_function("iceberg_scan", [local_path(metadata)]).to_arrow_table()


def pyiceberg(metadata: str) -> pa.Table:
    """Read through pyiceberg's public scan. Not for filters: those prune delete files by mistake (and are not tested)."""
    return StaticTable.from_metadata(metadata).scan().to_arrow()


def datafusion(metadata: str) -> pa.Table:
    """Read through DataFusion and iceberg-rust, in a process of their own: a mismatch of the two ends in a crash."""
    code = (
        "import sys, pyarrow as pa, datafusion\n"
        "from pyiceberg.table import StaticTable\n"
        "context = datafusion.SessionContext()\n"
        "context.register_table('lake', StaticTable.from_metadata(sys.argv[1]))\n"
        "found = pa.Table.from_batches(context.sql('select * from lake').collect(), "
        "context.sql('select * from lake').schema())\n"
        "with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as sink: sink.write_table(found)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, metadata], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return pa.ipc.open_stream(done.stdout).read_all()


FASTEST: Final[dict[str, Engine]] = {"duckdb": duckdb}
#: Those that cost milliseconds.
QUICK: Final[dict[str, Engine]] = {**FASTEST, "pyiceberg": pyiceberg}
ENGINES: Final[dict[str, Engine]] = {**QUICK, "datafusion": datafusion}

"""Rows of a lake table as Polars, Daft and ClickHouse read them, each in a process of an environment of its own."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.readers.engines import Engine
from tests.readers.lake_files import local_path
from tests.readers.own_environment import EnvironmentUnavailableError, make_environment

ENVIRONMENT: Final = Path(__file__).parents[2] / ".venv-readers"
REQUIREMENTS: Final = ("polars==2.1.0", "daft==0.7.26", "chdb==4.4.0", "pyiceberg[pyarrow]==0.12.0")
_READ: Final = """
import json, pathlib, sys, pyarrow as pa
engine, metadata = json.load(sys.stdin)
if engine == "polars":
    import polars
    found = polars.scan_iceberg(metadata).collect().to_arrow()
elif engine == "daft":
    import daft
    from pyiceberg.table import StaticTable
    found = daft.read_iceberg(StaticTable.from_metadata(metadata)).to_arrow()
else:
    import chdb
    folder = pathlib.Path(metadata).parents[1]
    found = chdb.query(f"select * from icebergLocal('{folder}')", "ArrowTable")
with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as sink:
    sink.write_table(found)
"""
_TIMEOUT_S: Final = 300


def pypi_engine(name: str) -> Engine:
    """Return an engine by its name; the test is skipped where it cannot be had."""
    try:
        python = make_environment(ENVIRONMENT, "readers.json", REQUIREMENTS)
    except EnvironmentUnavailableError as error:
        pytest.skip(str(error))
    return functools.partial(_read, python, name)


def _read(python: Path, name: str, table: Table) -> pa.Table:
    metadata = local_path(table.metadata_location)
    # ClickHouse reads below its working directory only.
    done = subprocess.run(
        [str(python), "-c", _READ], input=json.dumps([name, metadata]).encode(), capture_output=True, timeout=_TIMEOUT_S,
        check=False, cwd=Path(metadata).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return pa.ipc.open_stream(done.stdout).read_all()

"""What Spark's planning processes import to make a data source, before any task: little, for each query pays for it."""

import subprocess
import sys

import pytest

HEAVY = {
    "fluss_lab.client",
    "fluss_lab.lake",
    "fluss_lab.model",
    "fluss_lab.read",
    "fluss_lab.server",
    "grpc",
    "msgspec",
    "pyiceberg",
}


@pytest.mark.parametrize("module", ["fluss_lab.spark.data_source", "fluss_lab.spark.log_source"])
def test_making_a_source_imports_nothing_that_tasks_need(module):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded & HEAVY

"""The tiny format keeps every promise of a lake format: the seam is real."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fluss_lab.testing.conformance import LakeConformance
from fluss_lab.testing.parquet_lake import read_state

pytestmark = pytest.mark.slow


class TestParquetLake(LakeConformance):
    format_name = "parquet"
    replays_changes = True
    kill_points = ("lake.write.after_file", "lake.commit.before", "lake.commit.after")

    def properties(self, folder: Path) -> Mapping[str, str]:
        return {"warehouse": str(folder)}

    def read_state(self, storage, table):
        return read_state(storage, table)

"""Iceberg keeps every promise of a lake format."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fluss_lab.testing.conformance import LakeConformance
from fluss_lab.testing.conformance.kit import records
from fluss_lab.testing.readers import duckdb_rows

pytestmark = pytest.mark.slow


class TestIceberg(LakeConformance):
    format_name = "iceberg"
    replays_changes = True
    kill_points = ("lake.write.after_file", "lake.commit.after_metadata", "lake.commit.after")
    table_properties = {  # noqa: RUF012
        "iceberg.commit.retry.min-wait-ms": "1",
        "iceberg.commit.status-check.min-wait-ms": "1",
    }

    def properties(self, folder: Path) -> Mapping[str, str]:
        return {
            "name": "test",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog/lake.db",
            "warehouse": f"file://{folder}/warehouse",
        }

    def read_state(self, storage, table):
        return duckdb_rows(storage.access.load_table(table.path).metadata_location)

    def read_properties(self, rng):
        return {"table.datalake.delete-mode": rng.choice(["position", "equality"])}

    def test_write_results_of_the_release_before_are_read(self, kit):
        """Version 1 had data files only."""
        info = kit.table()
        serializer = kit.factory.write_result_serializer()
        written = kit.write(info, [records(info, 3)])
        plain = json.loads(serializer.serialize(written.result))
        assert plain.pop("deletes") == plain.pop("unplaced") == []
        assert serializer.deserialize(1, json.dumps(plain).encode()) == written.result

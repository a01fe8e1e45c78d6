"""Iceberg keeps every promise of a lake format, whatever catalog it is in, with its files in an object store."""

from pathlib import Path

import pytest

from fluss_lab.testing.conformance import LakeConformance
from tests.beyond.backends import KINDS
from tests.readers.engines import duckdb

HISTORY = "Nessie tells of a table's newest snapshot alone, and keeps no tags"
NESTED = "Nessie gives nested fields other ids than it is asked for"
#: What is not asked of Nessie, and why.
NOT_OF_NESSIE = {
    **dict.fromkeys(
        (
            "test_columns_are_added",
            "test_any_range_of_a_changelog_comes_back",
            "test_what_the_lake_does_not_hold_of_a_changelog_is_reported",
            "test_the_changelog_of_a_partition_made_again",
            "test_rows_of_a_snapshot",
            "test_every_stop_of_a_bucket",
            "test_what_the_lake_does_not_hold_is_reported",
            "test_where_the_lake_begins",
            "test_random_rounds",
            "test_older_snapshots_stay_as_they_were",
            "test_a_partition_is_dropped",
            "test_the_same_commit_again_is_the_snapshot_that_it_made",
            "test_what_the_cluster_does_not_know_is_found",
            # Nothing is lost; but what all of them committed is asked for at the end.
            "test_concurrent_committers_make_one_line",
            "test_the_newest_of_ours_is_found_for_repair",
            "test_random_histories_at_random_stops",
            "test_a_partition_made_again_is_another_one",
        ),
        HISTORY,
    ),
    **dict.fromkeys(
        (
            "test_changes_of_every_type",
            "test_every_type_in_rows_and_events",
            "test_every_type",
            "test_every_type_comes_back",
        ),
        NESTED,
    ),
}

pytestmark = [pytest.mark.beyond, pytest.mark.slow]


class TestIcebergBeyond(LakeConformance):
    format_name = "iceberg"
    replays_changes = True
    kill_points = ("lake.write.after_file", "lake.commit.after")
    table_properties = {  # noqa: RUF012
        "iceberg.commit.retry.min-wait-ms": "1",
        "iceberg.commit.status-check.min-wait-ms": "1",
    }

    @pytest.fixture(params=KINDS, autouse=True)
    def _backend(self, request, backends):
        if request.param == "nessie" and (reason := NOT_OF_NESSIE.get(request.node.originalname)) is not None:
            pytest.skip(reason)
        self.backends, self.kind = backends, request.param

    def properties(self, folder: Path):
        return self.backends.lake(self.kind, folder)

    def read_state(self, storage, table):
        return duckdb(storage.access.load_table(table.path))

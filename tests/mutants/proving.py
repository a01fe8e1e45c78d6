"""Mutants that kills, stops and random histories of lake tables must notice, whatever else does."""

from tests.mutants.mutant import Mutant

EXPIRY = "fluss_lab/lake/iceberg/maintenance/snapshot_expiry.py"
EXPIRY_PLAN = "fluss_lab/lake/iceberg/maintenance/expiry_plan.py"
MANIFEST_FILES = "fluss_lab/lake/iceberg/metadata/merging_manifest_writer.py"
ROW_DELTA = "fluss_lab/lake/iceberg/commit/round_commit.py"
REPLAY = "fluss_lab/lake/iceberg/commit/replay_start_tags.py"
IN_DROPPED = "tests/readers/test_dropped_partitions.py"
IN_STOPS = "tests/crash/test_lake_stop.py"
IN_REPLACE = "tests/unit/lake/iceberg/metadata/test_snapshot_builder.py"

#: P2: each offset reaches the lake once; P4: a union read equals the model.
PROVING = (
    Mutant(
        "replay_start_of_a_namesake", "P2", EXPIRY,
        "if partition is not None and (partition not in partitions.ids or not partitions.has(partition, snapshot)):",
        "if partition is not None and partition not in partitions.ids:",
        (
            f"{IN_DROPPED}::test_another_partition_of_the_name_does_not_get_the_replay_start_of_the_first",
            "tests/unit/lake/iceberg/metadata/test_replay_chain.py"
            "::test_a_drop_is_remembered_while_a_tag_keeps_the_dropped_rows",
        ),
    ),
    Mutant(
        "offsets_expired", "P2", EXPIRY_PLAN,
        "            protected |= {anchor}\n",
        "            pass\n",
        (f"{IN_DROPPED}::test_expiry_leaves_a_snapshot_that_tells_how_far_each_bucket_is_tiered",),
    ),
    Mutant(
        "deletes_left_where_the_rows_were", "P4", ROW_DELTA,
        "moved = base != self._planned and not by_equality",
        "moved = base != base and not by_equality",
        (f"{IN_STOPS}::test_somebody_compacts_while_a_round_is_under_way",),
    ),
    Mutant(
        "foreign_compaction_under_way_not_tagged", "P2", REPLAY,
        "            tags.append(replay_tag(parent_id, retention_ms))",
        "            pass",
        (f"{IN_STOPS}::test_somebody_compacts_while_a_round_is_under_way",),
    ),
    Mutant(
        "emptied_manifests_stay_mixed", "P4", MANIFEST_FILES,
        "        if not self.deleted or not (self.added or self.existing):",
        "        if not self.deleted or self.deleted:",
        (f"{IN_REPLACE}::test_a_compaction_leaves_one_manifest_and_one_of_all_that_it_emptied",),
    ),
)  # fmt: skip

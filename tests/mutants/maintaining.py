"""Mutants of what maintenance must never do: lose rows, deletes or replay, or take away what somebody uses."""

from tests.mutants.mutant import Mutant

EXPIRY_PLAN = "fluss_lab/lake/iceberg/maintenance/expiry_plan.py"
SNAPSHOT_HISTORY = "fluss_lab/lake/iceberg/metadata/snapshot_history.py"
REACHABILITY = "fluss_lab/lake/iceberg/maintenance/snapshot_expiry.py"
ORPHANS = "fluss_lab/lake/iceberg/maintenance/orphans.py"
COMPACTION = "fluss_lab/lake/iceberg/maintenance/compaction.py"
COMPACTION_PLAN = "fluss_lab/lake/iceberg/maintenance/compaction_plan.py"
REPLACE = "fluss_lab/lake/iceberg/maintenance/compaction_commit.py"
LAKE_MAINTENANCE = "fluss_lab/lake/iceberg/maintenance/iceberg_maintenance.py"
EQUALITY_DELETES = "fluss_lab/lake/iceberg/read/equality_deletes.py"
MAINTENANCE = "fluss_lab/tiering/maintenance/automatic_maintenance.py"

IN_COMPACTION = "tests/unit/lake/iceberg/maintenance/test_compaction.py"
IN_EXPIRY = "tests/unit/lake/iceberg/maintenance/test_snapshot_expiry.py"
IN_ORPHANS = "tests/unit/lake/iceberg/maintenance/test_orphans.py"
IN_MERGE_READ = "tests/unit/lake/iceberg/read/test_merge_reader.py"
IN_MAINTENANCE = "tests/unit/tiering/maintenance/test_automatic_maintenance.py"

MAINTAINING = (
    Mutant(
        "snapshots_of_the_last_hour_expired", "P3", EXPIRY_PLAN,
        "min(older_than_ms, now_ms - READING_MS)",
        "older_than_ms",
        (f"{IN_EXPIRY}::test_an_hour_is_never_touched",),
    ),
    Mutant(
        "newest_within_the_hour_expired", "P3", EXPIRY_PLAN,
        "was_newest = at > 0 and",
        "was_newest = at > len(line) and",
        (f"{IN_EXPIRY}::test_what_was_the_newest_within_the_hour_stays_however_old",),
    ),
    Mutant(
        "snapshots_stay_until_a_time_that_a_wrong_clock_showed", "P9", SNAPSHOT_HISTORY,
        "after_ms = said_ms if said_ms <= now_ms else after_ms",
        "after_ms = said_ms",
        (f"{IN_EXPIRY}::test_a_clock_that_was_ahead_keeps_no_snapshots_until_that_time",),
    ),
    Mutant(
        "snapshots_of_a_slow_clock_are_old", "P3", SNAPSHOT_HISTORY,
        "if said_ms > now_ms and (text :=",
        "if (text :=",
        (f"{IN_EXPIRY}::test_what_a_slow_clock_says_makes_no_snapshot_older",),
    ),
    Mutant(
        "compaction_that_may_arrive_late_not_fenced", "P5", "fluss_lab/server/coordinator/tiering/tiering_manager.py",
        "done = replace(self._tables[table_id], unfinished=unfinished, failures=0, last_error=None)",
        "done = replace(self._tables[table_id], unfinished=False, failures=0, last_error=None)",
        (f"{IN_MAINTENANCE}::test_a_compaction_that_may_still_arrive_is_fenced_before_the_table_is_worked_on_again",),
    ),
    Mutant(
        "upkeep_counts_as_a_round", "P4", "fluss_lab/server/coordinator/tiering/tiering_manager.py",
        "            if not is_upkeep:\n                done = replace(",
        "            if done:\n                done = replace(",
        ("tests/unit/server/coordinator/tiering/test_tiering_manager.py::test_upkeep_does_not_change_when_the_last_round_was",),
    ),
    Mutant(
        "orphans_wait_for_a_clock_that_was_ahead", "P9", LAKE_MAINTENANCE,
        "return abs(self._clock.now_ms() - last_ms) >= interval_ms",
        "return self._clock.now_ms() - last_ms >= interval_ms",
        (f"{IN_ORPHANS}::test_a_clock_that_was_ahead_puts_them_off_no_longer_than_a_day",),
    ),
    Mutant(
        "known_snapshot_expired", "P6", EXPIRY_PLAN,
        "if at >= limits.keep and at > oldest_protected and",
        "if at >= limits.keep and",
        (f"{IN_EXPIRY}::test_what_the_cluster_knows_stays_and_all_after_it",),
    ),
    Mutant(
        "tag_made_meanwhile_ignored", "P3", EXPIRY_PLAN,
        "if base_metadata is None or base_metadata.refs != self.refs:",
        "if base_metadata is None:",
        ("tests/unit/lake/iceberg/maintenance/test_expiry_conflicts.py::test_a_tag_made_in_between_keeps_its_snapshot",),
    ),
    Mutant(
        "files_in_use_removed_with_old_snapshots", "P2", REACHABILITY,
        "unused.data.pop(entry.data_file.file_path, None)",
        "unused.data.get(entry.data_file.file_path, None)",
        (f"{IN_EXPIRY}::test_files_in_rewritten_manifests_stay",),
    ),
    Mutant(
        "manifests_in_use_removed_with_old_snapshots", "P2", REACHABILITY,
        "if path not in kept and manifest.added_snapshot_id not in staying",
        "if path not in kept",
        (f"{IN_EXPIRY}::test_manifests_that_only_snapshots_in_the_middle_have_stay",),
    ),
    Mutant(
        "young_files_removed_as_orphans", "P2", ORPHANS,
        "if file.modified_ms >= older_than_ms or name == _HINT or",
        "if name == _HINT or",
        (f"{IN_ORPHANS}::test_files_younger_than_the_grace_stay",),
    ),
    Mutant(
        "statistics_removed_as_orphans", "P3", ORPHANS,
        "for each in (*metadata.statistics, *metadata.partition_statistics))",
        "for each in ())",
        (f"{IN_ORPHANS}::test_statistics_files_and_the_metadata_log_are_in_use",),
    ),
    Mutant(
        "compacted_rows_escape_later_deletes", "P4", REPLACE,
        "added = [(file, each.sequence_number) for each",
        "added = [(file, None) for each",
        (f"{IN_COMPACTION}::test_an_equality_delete_that_comes_later_still_applies_to_rewritten_rows",),
    ),
    Mutant(
        "compaction_without_a_tag", "P2", REPLACE,
        "            tags.append(self._tag)\n",
        "            pass\n",
        (f"{IN_COMPACTION}::test_deleted_rows_are_dropped_and_a_tag_keeps_them_for_replay",),
    ),
    Mutant(
        "aborted_compaction_removes_committed_files", "P2", LAKE_MAINTENANCE,
        "if file not in used and not delete_quietly(lake.io, file):",
        "if not delete_quietly(lake.io, file):",
        (f"{IN_COMPACTION}::test_giving_up_never_removes_what_a_snapshot_refers_to",),
    ),
    Mutant(
        "files_with_foreign_deletes_rewritten_whole", "P4", COMPACTION,
        "for found in self._positions.files if not found.has_events for path in found.counts}",
        "for found in self._positions.files if False for path in found.counts}",
        (f"{IN_COMPACTION}::test_foreign_position_deletes_are_applied_and_kept_as_long_as_they_are_needed",),
    ),
    Mutant(
        "delete_without_a_row_becomes_an_equality_delete", "P7", COMPACTION,
        "if bool((file_of < 0).any()):",
        "if bool((file_of < -9).any()):",
        (f"{IN_COMPACTION}::test_a_delete_whose_row_nobody_has_stops_the_compaction",),
    ),
    Mutant(
        "rows_deleted_by_key_written_again", "P4", COMPACTION_PLAN,
        "        if by_key and not drops:\n",
        "        if not by_key and not drops and self.force:\n",
        (f"{IN_COMPACTION}::test_rows_that_a_key_deletes_do_not_come_back",),
    ),
    Mutant(
        "equality_deletes_of_the_same_commit_applied", "P4", EQUALITY_DELETES,
        "dead |= index.sequence_numbers(rows) > data_sequence_number",
        "dead |= index.sequence_numbers(rows) >= data_sequence_number",
        (f"{IN_MERGE_READ}::test_an_equality_delete_of_the_same_commit_does_not_apply",),
    ),
    Mutant(
        "compaction_of_a_lost_table_committed", "P5", MAINTENANCE,
        "            scene.check_held()\n        except BaseException:",
        "            pass\n        except BaseException:",
        (f"{IN_MAINTENANCE}::test_a_holder_that_lost_the_table_commits_nothing",),
    ),
)  # fmt: skip

"""Mutants of the coordinator's side of tiering, of primary-key tables' lake layout, and of repairs."""

from tests.mutants.mutant import Mutant

STATES = "fluss_lab/server/coordinator/tiering/tiering_manager.py"
TABLE_TIERING = "fluss_lab/server/coordinator/tiering/table_tiering.py"
LEDGER = "fluss_lab/server/coordinator/tiering/lake_snapshots.py"
LAYOUT = "fluss_lab/lake/iceberg/table/layout.py"
PROPERTIES = "fluss_lab/lake/iceberg/table/table_properties.py"
REMOVAL = "fluss_lab/lake/iceberg/commit/bucket_removal.py"
PLAN = "fluss_lab/tiering/repair/lake_repair_plan.py"
ROW_CHECK = "fluss_lab/tiering/repair/row_check.py"
REPAIR = "fluss_lab/tiering/repair/lake_repair.py"
RELOCATION = "fluss_lab/lake/iceberg/maintenance/warehouse_relocation.py"
COMMITTER = "fluss_lab/lake/iceberg/commit/round_commit.py"
LAKE_DDL = "fluss_lab/server/coordinator/ddl/lake_table_ddl.py"
PLACE = "fluss_lab/server/folder/metadata_checks.py"

IN_STATES = "tests/unit/server/coordinator/tiering/test_tiering_manager.py"
IN_STARTS = "tests/unit/server/coordinator/tiering/test_lake_starts.py"
IN_LAYOUT = "tests/unit/lake/iceberg/table/test_keyed_layout.py"
IN_CHANGES = "tests/unit/tiering/round/test_tiering_keyed_changes.py"
IN_REPAIR = "tests/unit/tiering/repair/test_lake_repair.py"
IN_ROWS = "tests/unit/tiering/repair/test_row_check.py"
IN_ENABLE = "tests/unit/tiering/round/test_tiering_enable.py"
IN_RELOCATION = "tests/unit/cli/test_relocation.py"
IN_RECOVERY = "tests/unit/server/tablet/buckets/test_kv_replay.py"

REPAIRING = (
    Mutant(
        "lab_relocated_without_its_catalog", "P11", RELOCATION,
        "    if not catalog.exists() and any(",
        "    if not folder.exists() and any(",
        (f"{IN_RELOCATION}::test_a_catalog_that_is_gone_or_damaged_is_brought_back_first",),
    ),
    Mutant(
        "file_that_is_gone_planned_again_for_ever", "P11", "fluss_lab/tiering/round/tiering_round.py",
        "                    self._check_files()\n",
        "",
        ("tests/unit/workbench/health/test_lake_findings.py::test_a_file_of_the_lake_that_is_gone_is_found_with_what_mends_it",),
    ),
    Mutant(
        "delete_files_not_looked_for", "P11", "fluss_lab/lake/iceberg/read/row_source.py",
        "                        check_footer(path)\n",
        "                        pass\n",
        ("tests/unit/workbench/health/test_lake_findings.py::test_a_file_of_the_lake_that_is_gone_is_found_with_what_mends_it",),
    ),
    Mutant(
        "another_lake_table_planned_with", "P13", COMMITTER,
        "        check_owner(self._context.table, lake)\n",
        "",
        (f"{IN_ENABLE}::test_a_lake_table_that_another_one_replaced_is_renamed_and_made_anew_as_its_error_says",),
    ),
    Mutant(
        "lake_table_made_anew_while_it_is_tiered", "P13", LAKE_DDL,
        "                if old.descriptor.lake_enabled or not new.descriptor.lake_enabled:\n",
        "                if not new.descriptor.lake_enabled:\n",
        (f"{IN_ENABLE}::test_a_lake_table_that_is_gone_is_made_anew_by_enabling_only",),
    ),
    Mutant(
        "person_asked_every_two_seconds", "P6", TABLE_TIERING,
        "        if error in FOR_A_PERSON:\n",
        "        if error in ():\n",
        (f"{IN_STATES}::test_what_only_a_person_mends_is_tried_as_seldom_as_any",),
    ),
    Mutant(
        "altered_table_waits", "P6", STATES,
        "                if info.table_id in self._queue:\n",
        "                if info.table_id not in self._tables:\n",
        (f"{IN_STATES}::test_an_altered_table_waits_no_longer",),
    ),
    Mutant(
        "start_in_the_ledger_goes_back", "P2", LEDGER,
        "start = max(old.start or 0, new.start) if new.start is not None else old.start",
        "start = new.start if new.start is not None else old.start",
        (f"{IN_STARTS}::test_a_start_never_goes_back",),
    ),
    Mutant(
        "offsets_of_a_version_that_was_taken_back", "P2", LEDGER,
        "if kept is None or kept[0] != latest[0]:",
        "if kept is None:",
        ("tests/unit/server/coordinator/metadata/test_lake_ledger.py::test_what_was_taken_back_is_not_remembered",),
    ),
    Mutant(
        "offsets_of_a_dropped_partition_remembered", "P2", LEDGER,
        "            self._latest.pop(drop.table_id, None)\n",
        "",
        ("tests/unit/server/coordinator/metadata/test_lake_ledger.py::test_a_dropped_partition_is_held_by_the_snapshots_from_before_alone",),
    ),
    Mutant(
        "repair_keeps_what_it_does_not_name", "P2", LEDGER,
        "        changed |= dict.fromkeys(set(current) - set(wanted), _NOTHING)\n",
        "",
        (f"{IN_STARTS}::test_a_repair_says_all_that_there_is",),
    ),
    Mutant(
        "tablet_remembers_what_a_repair_took_back", "P2", "fluss_lab/server/tablet/buckets/bucket_store.py",
        "                self._lakes.pop(bucket, None)\n            else:\n",
        "                return\n            else:\n",
        (f"{IN_STARTS}::test_a_repair_takes_offsets_back_and_tablets_forget",),
    ),
    Mutant(
        "changelog_before_replay_kept_for_ever", "P2", "fluss_lab/server/tablet/buckets/segment_retention.py",
        "if lake is None or (bucket.kv is None and lake.start > bucket.start):",
        "if lake is None or lake.start > bucket.start:",
        (f"{IN_RECOVERY}::test_what_the_lake_can_not_replay_goes_like_the_rest_of_a_changelog",),
    ),
    Mutant(
        "identifier_fields_not_checked", "P4", LAYOUT,
        "    if wanted and wanted != present:\n",
        "    if wanted and not present:\n        return\n    if wanted and wanted < present:\n",
        (f"{IN_LAYOUT}::test_identifier_fields_that_somebody_changed_are_refused",),
    ),
    Mutant(
        "copy_on_write_allowed", "P4", PROPERTIES,
        "        if (found := forwarded.get(name, mode)) != mode:\n",
        "        if (found := forwarded.get(name, mode)) is None:\n",
        (f"{IN_LAYOUT}::test_the_modes_cannot_be_changed_through_fluss",),
    ),
    Mutant(
        "delete_files_of_a_dropped_partition_stay", "P3", REMOVAL,
        "    return [*(each.file for each in state.data), *deletes]\n",
        "    return [each.file for each in state.data if deletes is not None]\n",
        (f"{IN_CHANGES}::test_a_dropped_partition_takes_its_delete_files_along",),
    ),
    Mutant(
        "repair_cut_off_passed_over", "P2", "fluss_lab/lake/snapshot_summary.py",
        "    if summary.is_adoption:\n        raise",
        "    if summary.properties.get(ADOPTED_KEY) == '':\n        raise",
        (f"{IN_REPAIR}::test_a_repair_cut_off_is_finished_by_the_next",),
    ),
    Mutant(
        "gap_accepted_without_a_word", "P2", REPAIR,
        "        if plan.lost and not accept_gaps:\n",
        "        if plan.lost and accept_gaps is None:\n",
        (f"{IN_REPAIR}::test_a_gap_is_named_and_accepted_only_by_a_word",),
    ),
    Mutant(
        "rows_that_others_changed_accepted", "P4", PLAN,
        "        if wrong:\n",
        "        if len(wrong) > 1000:\n",
        (f"{IN_ROWS}::test_rows_that_others_changed_are_not_accepted",),
    ),
    Mutant(
        "values_that_others_changed_accepted", "P4", ROW_CHECK,
        "            key, np.setdiff1d(wanted, both, True), both[~same]",
        "            key, np.setdiff1d(wanted, both, True), both[:0]",
        (f"{IN_ROWS}::test_rows_that_others_changed_are_not_accepted",),
    ),
    Mutant(
        "changelog_promised_that_others_took_away", "P11", PLAN,
        "            is_whole = is_held and (bool(wrong) or check.can_replay(key, each.start, end))\n",
        "            is_whole = is_held\n",
        (f"{IN_ROWS}::test_the_same_rows_in_other_files_are_accepted_and_what_is_gone_of_the_log_is_said",),
    ),
    Mutant(
        "rows_behind_a_gap_of_a_primary_key_table_kept", "P4", PLAN,
        "            return replace(kept, offset=None, start=status.start_offset, empties=True)\n",
        "            return replace(kept, offset=None, start=status.start_offset)\n",
        (f"{IN_REPAIR}::test_buckets_of_a_primary_key_table_are_written_anew_behind_a_gap",),
    ),
    Mutant(
        "rows_of_a_dropped_partition_lost_unsaid", "P2", PLAN,
        "            return kept if before is None or before.end <= end else replace(kept, lost=(end, before.end))\n",
        "            return kept\n",
        (f"{IN_REPAIR}::test_a_partition_that_only_the_lake_had_is_lost_when_it_is_rolled_back",),
    ),
    Mutant(
        "lake_ahead_of_the_cluster_accepted", "P2", PLAN,
        "        if end > status.end_offset:\n",
        "        if end > status.end_offset + (1 << 40):\n",
        (f"{IN_REPAIR}::test_a_lake_ahead_of_the_cluster_cannot_be_accepted",),
    ),
    Mutant(
        "position_deletes_left_behind", "P4", RELOCATION,
        "        count += _relocate_positions(path, places)\n",
        "        count += path is None\n",
        (f"{IN_RELOCATION}::test_a_moved_lab_is_relocated",),
    ),
    Mutant(
        "sizes_of_rewritten_files_left", "P4", RELOCATION,
        "        changes.append(_resize(record, ",
        "        changes.append(record is None and _resize(record, ",
        (f"{IN_RELOCATION}::test_sizes_are_those_of_the_files",),
    ),
    Mutant(
        "half_relocated_lab_opened", "P6", PLACE,
        "    if is_here and store.meta(_PLACES_KEY) is None:\n",
        "    if is_here:\n",
        (f"{IN_RELOCATION}::test_cut_off_around_the_catalog_and_moved_again_or_back",),
    ),
)  # fmt: skip

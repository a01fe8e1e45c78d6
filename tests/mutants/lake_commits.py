"""Mutants of commits to primary-key tables in the lake: what they are made of, and what they are made on top of."""

from tests.mutants.mutant import COMMITS, IN_COMMITTER, Mutant

SQL_CATALOG = "fluss_lab/lake/iceberg/table/caching_sql_catalog.py"
SNAPSHOT = "fluss_lab/lake/iceberg/metadata/snapshot_builder.py"
MANIFEST_FILES = "fluss_lab/lake/iceberg/metadata/merging_manifest_writer.py"
ROW_DELTA = "fluss_lab/lake/iceberg/commit/round_commit.py"
LAKE_COMMITTER = "fluss_lab/lake/iceberg/commit/round_commit.py"
REPLAY = "fluss_lab/lake/iceberg/commit/replay_start_tags.py"
SUMMARY = "fluss_lab/lake/snapshot_summary.py"
MANIFESTS = "fluss_lab/lake/iceberg/metadata/snapshot_files.py"
IN_ROW_DELTA = "tests/unit/lake/iceberg/commit/test_row_delta.py"
IN_REPLACE = "tests/unit/lake/iceberg/metadata/test_snapshot_builder.py"
IN_COMPACTION_COMMIT = "tests/unit/lake/iceberg/maintenance/test_compaction_commit.py"
IN_CONFLICTS = "tests/unit/tiering/round/test_tiering_conflicts.py"
IN_COMMITS = "tests/unit/lake/iceberg/commit/test_commit_attempts.py"

#: P2: each offset reaches the lake once; P3: a round is seen whole; P4: a union read equals the model.
LAKE_COMMITS = (
    Mutant(
        "sequence_number_taken_that_another_branch_has",
        "P6",
        SNAPSHOT,
        "        requirements.append(_AssertSameSequence(number=metadata.next_sequence_number()))\n",
        "        requirements += []\n",
        (f"{IN_CONFLICTS}::test_a_commit_to_another_branch_is_none_of_tiering_s_business",),
    ),
    Mutant(
        "failed_commits_left_open",
        "P5",
        SQL_CATALOG,
        "context.is_disconnect, context.invalidate_pool_on_disconnect = True, False",
        "context.is_disconnect, context.invalidate_pool_on_disconnect = False, False",
        (f"{IN_COMMITTER}::test_a_commit_waits_for_a_reader_of_the_catalogs_file",),
    ),
    Mutant(
        "equality_ids_as_longs",
        "P4",
        MANIFEST_FILES,
        "    if found.field_id == _EQUALITY_IDS_ID:",
        "    if found.field_id == -_EQUALITY_IDS_ID:",
        (f"{IN_ROW_DELTA}::test_manifests_are_as_java_reads_them",),
    ),
    Mutant(
        "delete_manifests_called_data",
        "P4",
        MANIFEST_FILES,
        'content = "deletes" if self._content == ManifestContent.DELETES else "data"',
        'content = "data"',
        (f"{IN_ROW_DELTA}::test_manifests_are_as_java_reads_them",),
    ),
    Mutant(
        "delete_files_among_data_files",
        "P4",
        MANIFEST_FILES,
        "is_data = file.content == DataFileContent.DATA",
        "is_data = file.content in DataFileContent",
        (
            f"{IN_ROW_DELTA}::test_manifests_are_as_java_reads_them",
            f"{IN_REPLACE}::test_delete_manifests_are_listed_as_such",
        ),
    ),
    Mutant(
        "sequence_numbers_lost_in_what_is_kept",
        "P4",
        MANIFEST_FILES,
        "            sequence_number=self._place.sequence_number if number is None else number,\n            file_sequence",
        "            sequence_number=self._place.sequence_number,\n            file_sequence",
        (f"{IN_ROW_DELTA}::test_what_was_written_is_kept_as_it_would_be_read",),
    ),
    Mutant(
        "rewritten_rows_as_new",
        "P4",
        SNAPSHOT,
        "changes = FileChanges(added, {file.file_path for file in removed})",
        "changes = FileChanges([(file, None) for file, _ in added], {file.file_path for file in removed})",
        (f"{IN_REPLACE}::test_an_equality_delete_since_the_plan_applies_to_rewritten_rows",),
    ),
    Mutant(
        "removed_files_said_by_no_snapshot",
        "P4",
        SNAPSHOT,
        "*(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots),",
        "AddSnapshotUpdate(snapshot=snapshots[-1]),",
        (f"{IN_COMPACTION_COMMIT}::test_what_was_removed_is_in_the_snapshot_before_for_writers_who_look_for_it",),
    ),
    Mutant(
        "compaction_not_followed_where_history_is_hidden",
        "P6",
        SNAPSHOT,
        "own[PARENTS_KEY] = next_parents(first.snapshot_id, given[PARENTS_KEY])",
        'own[PARENTS_KEY] = next_parents(first.snapshot_id, "")',
        (f"{IN_COMPACTION_COMMIT}::test_a_catalog_that_shows_the_newest_only_is_followed_across_both",),
    ),
    Mutant(
        "missing_file_replaced",
        "P2",
        MANIFEST_FILES,
        "        if missing:\n            raise KeyError",
        "        if len(missing) < 0:\n            raise KeyError",
        (f"{IN_REPLACE}::test_a_file_that_is_not_there_cannot_be_replaced",),
    ),
    Mutant(
        "replace_not_conditional",
        "P2",
        COMMITS,
        "        check_no_foreign(self._path, lake, newer)\n        raise moved_on_error(self._what, newer)\n",
        "        check_no_foreign(self._path, lake, newer)\n",
        (f"{IN_REPLACE}::test_a_replace_is_conditional_on_its_plan",),
    ),
    Mutant(
        "rounds_of_others_followed",
        "P5",
        LAKE_COMMITTER,
        "if any(is_ours(snapshot) for snapshot in newer):",
        "if not newer:",
        (f"{IN_COMMITS}::test_commits_of_ours_in_between_are_conflicts",),
    ),
    Mutant(
        "foreign_changes_followed",
        "P2",
        LAKE_COMMITTER,
        "        check_no_foreign(self._path, lake, newer)\n        if any(",
        "        if any(",
        (f"{IN_COMMITS}::test_foreign_changes_of_rows_stop_the_round",),
    ),
    Mutant(
        "replace_that_loses_rows_let_pass",
        "P2",
        "fluss_lab/lake/iceberg/metadata/foreign_commits.py",
        "        elif (lost := _rows_lost(lake, snapshot)) is not None:",
        "        elif (lost := _rows_lost(lake, snapshot)) == 0:",
        (f"{IN_COMMITS}::test_a_replace_that_changes_rows_is_a_foreign_change",),
    ),
    Mutant(
        "deletes_left_in_files_that_are_gone",
        "P4",
        ROW_DELTA,
        "moved = base != self._planned and not by_equality and",
        "moved = base == -1 and not by_equality and",
        (f"{IN_COMMITS}::test_deletes_are_placed_again_after_somebody_elses_compaction",),
    ),
    Mutant(
        "unplaced_deletes_committed",
        "P4",
        ROW_DELTA,
        "        if not moved and not self._committable.unplaced:",
        "        if not moved:",
        (f"{IN_ROW_DELTA}::test_deletes_of_cut_splits_are_placed_and_nothing_else_is_left",),
    ),
    Mutant(
        "rows_of_the_round_not_sought",
        "P4",
        ROW_DELTA,
        "return offset_files([*(state.data if state is not None else ()), *own])",
        "return offset_files(state.data if state is not None else ())",
        (
            f"{IN_ROW_DELTA}::test_random_histories_read_the_same_everywhere",
            f"{IN_COMMITS}::test_deletes_are_placed_again_after_somebody_elses_compaction",
        ),
    ),
    Mutant(
        "delete_files_of_the_commit_removed",
        "P2",
        ROW_DELTA,
        "[file for file in self._delete_files() if file.file_path not in kept]",
        "self._delete_files()",
        (f"{IN_COMMITS}::test_compactions_that_come_while_the_commit_is_on_its_way",),
    ),
    Mutant(
        "foreign_compaction_not_tagged",
        "P2",
        REPLAY,
        "tags = tags_for_foreign(lake, changelog_retention_ms(table))",
        "tags = tags_for_foreign(lake, changelog_retention_ms(table))[:0]",
        (
            f"{IN_COMMITS}::test_deletes_are_placed_again_after_somebody_elses_compaction",
            f"{IN_COMMITS}::test_a_compaction_between_two_rounds_is_tagged_by_the_next_commit",
        ),
    ),
    Mutant(
        "properties_of_others_overwritten",
        "P2",
        SNAPSHOT,
        "        if sets_properties:\n            requirements.append(",
        "        if lake.catalog is None:\n            requirements.append(",
        (f"{IN_COMMITS}::test_a_property_that_others_set_in_between_is_not_lost",),
    ),
    Mutant(
        "replay_start_goes_back",
        "P2",
        SUMMARY,
        "if key not in merged or merged[key].offset < start.offset:",
        "if key is not merged:",
        (f"{IN_ROW_DELTA}::test_an_empty_row_delta_carries_offsets_and_starts",),
    ),
    Mutant(
        "landed_commit_sought_in_known_history_only",
        "P2",
        COMMITS,
        "        newer = itertools.takewhile(lambda snapshot: snapshot.snapshot_id != planned, main_line(lake.metadata))\n",
        "        line = list(main_line(lake.metadata))\n"
        "        newer = line if planned is None or planned in [each.snapshot_id for each in line] else []\n",
        (f"{IN_COMMITS}::test_a_landed_commit_is_found_though_the_planned_snapshot_has_expired",),
    ),
    Mutant(
        "deletion_vectors_taken_for_parquet",
        "P4",
        MANIFESTS,
        "    if file.file_format != FileFormat.PARQUET:",
        "    if file.file_format not in FileFormat:",
        (f"{IN_REPLACE}::test_deletion_vectors_are_refused",),
    ),
    Mutant(
        "upgraded_table_read",
        "P4",
        MANIFESTS,
        "    if (version := lake.format_version) != FORMAT_VERSION:",
        "    if (version := lake.format_version) < FORMAT_VERSION:",
        (f"{IN_REPLACE}::test_a_table_that_somebody_upgraded_is_refused",),
    ),
    Mutant(
        "refused_commit_leaves_its_files",
        "P9",
        "fluss_lab/tiering/round/tiering_committer.py",
        "        except FlussError:\n            self._lake.abort(results)\n            raise\n",
        "        except FlussError:\n            raise\n",
        ("tests/unit/tiering/round/test_tiering_conflicts.py::test_a_commit_that_certainly_failed_leaves_no_files",),
    ),
    Mutant(
        "replay_start_of_an_older_snapshot_forgotten",
        "P11",
        "fluss_lab/lake/snapshot_summary.py",
        "        starts = merge_starts(starts, summary.replay_starts())\n",
        "        starts = summary.replay_starts()\n",
        (
            "tests/unit/tiering/round/test_tiering_enable.py"
            "::test_where_it_begins_is_known_though_a_partition_was_dropped_before_it_was_registered",
        ),
    ),
)

"""Mutants of what reads a primary-key table's log back from the lake, and of how manifests are decoded for it."""

from tests.mutants.mutant import LOG_SOURCE, Mutant

CHAIN = "fluss_lab/lake/iceberg/metadata/replay_chain.py"
PARTITION_HISTORY = "fluss_lab/lake/iceberg/metadata/partition_history.py"
KEYED_LOG = "fluss_lab/lake/iceberg/read/pk_log.py"
EVENT_FILES = "fluss_lab/lake/iceberg/read/delete_event_reader.py"
MERGE_READER = "fluss_lab/lake/iceberg/read/merge_reader.py"
METADATA_FILES = "fluss_lab/lake/iceberg/metadata/metadata_files.py"
IN_KEYED_LOG = "tests/unit/lake/iceberg/read/test_pk_log.py"
IN_LAKE_LOG = "tests/unit/lake/iceberg/read/test_lake_log.py"
IN_CHAIN = "tests/unit/lake/iceberg/metadata/test_replay_chain.py"
IN_METADATA_FILES = "tests/unit/lake/iceberg/metadata/test_metadata_files.py"
IN_ICEBERG = "tests/unit/lake/iceberg/test_conformance_iceberg.py::TestIceberg"
IN_PARQUET = "tests/unit/lake/test_conformance_parquet.py::TestParquetLake"

LAKE_LOG = (
    Mutant(
        "null_arrays_of_rows_read_as_empty_ones", "P4", "fluss_lab/lake/iceberg/table/schema_projection.py",
        "    visitor = _Projection(",
        "    visitor = ArrowProjectionVisitor(",
        ("tests/unit/lake/iceberg/table/test_schema_projection.py::test_nulls_of_a_renamed_column_stay_null",),
    ),
    Mutant(
        "rows_held_for_files_without_any_left_out", "P4", MERGE_READER,
        "    if held is not None:\n        yield held\n",
        "",
        (f"{IN_LAKE_LOG}::test_a_file_that_reaches_over_a_range_and_has_none_of_it_hides_no_record",),
    ),
    Mutant(
        "log_of_a_namesake_partition", "P2", CHAIN,
        "if is_asked or partitions.has(key[0], snapshot):",
        "if is_asked or snapshot is not None:",
        (f"{IN_CHAIN}::test_a_partition_made_again_under_its_name_has_a_log_of_its_own",),
    ),
    Mutant(
        "drops_forgotten_with_their_snapshots", "P2", PARTITION_HISTORY,
        "[(number, {name: None}) for number in numbers if number <= last]",
        "[(number, {name: None}) for number in numbers if number < 0]",
        (f"{IN_CHAIN}::test_a_drop_is_remembered_while_a_tag_keeps_the_dropped_rows",),
    ),
    Mutant(
        "replay_start_of_a_dropped_partition_kept", "P2", "fluss_lab/lake/iceberg/commit/replay_start_tags.py",
        "if dropped is None or key[0] != dropped}",
        "if dropped != ()}",
        (f"{IN_CHAIN}::test_where_replay_of_a_dropped_partition_began_goes_with_it",),
    ),
    Mutant(
        "drop_noted_by_our_expiry_alone", "P2", "fluss_lab/lake/iceberg/commit/bucket_removal.py",
        "{name: [lake.metadata.next_sequence_number()]}",
        "{name: []}",
        (f"{IN_CHAIN}::test_a_drop_is_remembered_while_a_tag_keeps_the_dropped_rows",),
    ),
    Mutant(
        "newer_snapshots_in_the_chain", "P4", CHAIN,
        "each.snapshot_id in ids and number_of(each) < number_of(asked)",
        "each.snapshot_id in ids and each is not asked",
        (f"{IN_CHAIN}::test_an_older_snapshot_has_nothing_of_newer_ones",),
    ),
    Mutant(
        "foreign_compaction_not_yet_tagged", "P2", CHAIN,
        "                ids.add(snapshot.parent_snapshot_id)\n",
        "                continue\n",
        (f"{IN_CHAIN}::test_what_others_compacted_is_read_before_a_round_tagged_it",),
    ),
    Mutant(
        "unnamed_delete_files_passed_over", "P2", EVENT_FILES,
        "            self._known[path] = event_range(path) or self._read(path)\n",
        "            self._known[path] = event_range(path)\n",
        (f"{IN_CHAIN}::test_delete_files_without_a_telling_name_are_opened",),
    ),
    Mutant(
        "replayed_below_the_replay_start", "P2", LOG_SOURCE,
        "        if start < replay_start:\n",
        "        if start < 0:\n",
        (f"{IN_ICEBERG}::test_a_changelog_begins_where_a_snapshot_was_tiered",),
    ),
    Mutant(
        "time_leads_below_the_replay_start", "P4", LOG_SOURCE,
        "            span = (max(link.start, start), link.stop)\n",
        "            span = (link.start, link.stop)\n",
        (f"{IN_ICEBERG}::test_a_changelog_begins_where_a_snapshot_was_tiered",),
    ),
    Mutant(
        "changelog_with_gaps_or_doubles", "P2", KEYED_LOG,
        "if count != stop - start or bool((order < 0).any()):",
        "if count < 0:",
        (
            f"{IN_KEYED_LOG}::test_events_that_are_missing_are_named",
            f"{IN_KEYED_LOG}::test_records_that_are_there_twice_are_named",
        ),
    ),
    Mutant(
        "changelog_ends_early", "P2", LOG_SOURCE,
        "        if stop > links[-1].stop:\n",
        "        if stop < 0:\n",
        (f"{IN_ICEBERG}::test_what_the_lake_does_not_hold_of_a_changelog_is_reported",),
    ),
    Mutant(
        "second_half_of_an_update_taken_for_an_insert", "P2", KEYED_LOG,
        "(span[0] - 1 if span[0] > link.start else span[0], span[1])",
        "(span[0], span[1])",
        (f"{IN_KEYED_LOG}::test_a_range_may_begin_in_the_middle_of_an_update",),
    ),
    Mutant(
        "times_of_events_passed_over", "P4", LOG_SOURCE,
        "for min_offset, file in sorted([*rows, *events],",
        "for min_offset, file in sorted([*rows, *events[:0]],",
        (f"{IN_KEYED_LOG}::test_a_seek_opens_one_data_file_and_one_delete_file",),
    ),
    Mutant(
        "removed_files_taken_for_live", "P3", METADATA_FILES,
        "if entry.status != ManifestEntryStatus.DELETED)",
        "if entry.status is not None)",
        (f"{IN_METADATA_FILES}::test_live_entries_are_those_of_pyiceberg",),
    ),
    Mutant(
        "format_replays_before_its_start", "P2", "fluss_lab/testing/parquet_lake/parquet_source.py",
        "if start < min(earliest, stop):",
        "if start < 0:",
        (f"{IN_PARQUET}::test_a_changelog_begins_where_a_snapshot_was_tiered",),
    ),
)  # fmt: skip

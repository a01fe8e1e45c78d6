"""Mutants of the rows that a lake snapshot holds: which are dead, which files may be read how, whose columns are whose."""

from tests.mutants.mutant import Mutant

SOURCE = "fluss_lab/lake/iceberg/read/row_source.py"
BUCKET_DELETES = "fluss_lab/lake/iceberg/read/bucket_deletes.py"
ROW_REMOVAL = "fluss_lab/records/row_removal.py"
FILE_SCAN = "fluss_lab/lake/iceberg/read/data_file_scan.py"
SMALL_FILES = "fluss_lab/lake/iceberg/read/small_files.py"
PARQUET_INPUT = "fluss_lab/lake/iceberg/files/parquet_input.py"
LAYOUT = "fluss_lab/lake/iceberg/table/layout.py"
LAKE_TABLE = "fluss_lab/lake/iceberg/read/lake_table.py"
SNAPSHOT_FILES = "fluss_lab/lake/iceberg/metadata/snapshot_files.py"
IN_STATE = "tests/unit/lake/iceberg/read/test_lake_state.py"
IN_DEAD_ROWS = "tests/unit/lake/iceberg/read/test_dead_rows.py"
IN_SMALL_FILES = "tests/unit/lake/iceberg/read/test_small_files.py"
IN_SCHEMAS = "tests/unit/lake/iceberg/commit/test_foreign_schemas.py"
IN_SNAPSHOT_FILES = "tests/unit/lake/iceberg/metadata/test_snapshot_files.py"

#: P4: a union read equals the model at its read point.
LAKE_STATE = (
    Mutant(
        "replay_start_not_looked_at", "P4", SOURCE,
        "if stop < (start := chain.replay_start(snapshot_id, key)):",
        "if stop < min(0, (start := chain.replay_start(snapshot_id, key))):",
        (f"{IN_STATE}::test_a_stop_before_a_compaction_that_dropped_rows",),
    ),
    Mutant(
        "gaps_between_offsets_counted_as_rows", "P4", SOURCE,
        "    if split.rows != split.max_offset - split.min_offset + 1:\n        return None\n",
        "",
        (f"{IN_STATE}::test_every_stop_of_both_delete_modes",),
    ),
    Mutant(
        "rows_deleted_by_others_counted", "P4", SOURCE,
        "    if dead.keys is not None or len(dead.positions):\n        return None\n",
        "",
        (
            f"{IN_STATE}::test_what_others_delete_by_position_is_gone_at_every_stop",
            f"{IN_STATE}::test_what_others_delete_by_key_is_gone_at_every_stop_from_older_files",
        ),
    ),
    Mutant(
        "deletes_of_another_bucket_kept", "P4", SOURCE,
        "if kept is None or kept[0] != split.deletes or kept[1] != stop:",
        "if kept is None or kept[1] != stop:",
        (f"{IN_STATE}::test_buckets_have_deletes_of_their_own",),
    ),
    Mutant(
        "deletes_of_another_stop_kept", "P4", SOURCE,
        "if kept is None or kept[0] != split.deletes or kept[1] != stop:",
        "if kept is None or kept[0] != split.deletes:",
        (f"{IN_STATE}::test_every_stop_of_both_delete_modes", f"{IN_STATE}::test_deletes_are_loaded_for_each_stop"),
    ),
    Mutant(
        "neighbour_of_an_ended_row_dropped", "P4", ROW_REMOVAL,
        "places[values[places] == within]",
        "places[values[places] >= within]",
        (f"{IN_STATE}::test_offsets_that_are_no_rows_end_none",),
    ),
    Mutant(
        "another_delete_file_under_a_name_taken_for_the_kept_one", "P11", PARQUET_INPUT,
        "    return found.st_size, found.st_mtime_ns, found.st_ino\n",
        "    return ()\n",
        (f"{IN_STATE}::test_sources_share_what_delete_files_end_until_a_file_is_another",),
    ),
    Mutant(
        "events_after_the_stop_count", "P4", BUCKET_DELETES,
        "return ended if event is None or before is None else ended[rows.column(event).to_numpy() < before.stop]",
        "return ended",
        (f"{IN_STATE}::test_every_stop_of_both_delete_modes",),
    ),
    Mutant(
        "older_events_end_rows_of_newer_files", "P4", BUCKET_DELETES,
        "            return found if ends.smallest >= number else NO_NUMBERS\n",
        "            return found\n",
        (f"{IN_STATE}::test_an_event_ends_no_row_of_a_file_that_came_later",),
    ),
    Mutant(
        "every_file_taken_for_clean_of_equality_deletes", "P4", BUCKET_DELETES,
        "last_number(each) >= file.data_sequence_number and (each.is_equality or _admits(each.file, file))",
        "last_number(each) >= file.data_sequence_number and _admits(each.file, file) and not each.is_equality",
        (f"{IN_STATE}::test_a_file_of_which_equality_deletes_alone_delete",),
    ),
    Mutant(
        "positions_counted_in_filtered_rows", "P4", FILE_SCAN,
        "        if not file.ascends or file.positions is not None:\n",
        "        if not file.ascends:\n",
        (f"{IN_STATE}::test_what_others_delete_by_position_is_gone_at_every_stop",),
    ),
    Mutant(
        "renamed_columns_read_by_name", "P4", FILE_SCAN,
        "return found if needed <= self._columns.match(physical).direct else None",
        "return found",
        (f"{IN_SCHEMAS}::test_what_somebody_changed_is_read_right",),
    ),
    Mutant(
        "order_of_a_file_believed", "P4", SMALL_FILES,
        "    if not ascends.all():",
        "    if not len(ascends) >= 0:",
        (
            f"{IN_STATE}::test_a_file_that_claims_an_order_it_has_not_is_corruption",
            f"{IN_SMALL_FILES}::test_what_is_wrong_with_one_file_is_said_of_it",
        ),
    ),
    Mutant(
        "dead_rows_of_a_small_file_looked_for_in_the_first_of_its_pack", "P4", SMALL_FILES,
        "            alive[low + file.dead.places(own)] = False",
        "            alive[file.dead.places(own)] = False",
        (
            f"{IN_SMALL_FILES}::test_files_read_together_have_the_rows_of_each",
            f"{IN_STATE}::test_every_stop_of_both_delete_modes",
        ),
    ),
    Mutant(
        "neighbour_of_one_of_few_dead_rows_dropped", "P4", ROW_REMOVAL,
        "pieces = [rows.slice(low + 1, high - low - 1) for",
        "pieces = [rows.slice(low + 1, high - low - 2) for",
        (f"{IN_DEAD_ROWS}::test_rows_are_left_out_by_their_offsets",),
    ),
    Mutant(
        "rows_after_the_stop_in_a_small_file_shown", "P4", SMALL_FILES,
        "alive[low + int(own.searchsorted(file.dead.stop)) : high] = False",
        "alive[low + int(own.searchsorted(file.dead.stop + 1)) : high] = False",
        (f"{IN_SMALL_FILES}::test_files_read_together_have_the_rows_of_each",),
    ),
    Mutant(
        "deletes_kept_whatever_files_they_apply_to", "P4", BUCKET_DELETES,
        "        found.append((path, number, stamp))",
        "        found.append((path, min(number, _ALONE), stamp))",
        (f"{IN_STATE}::test_what_files_end_together_is_kept_with_what_each_applies_to",),
    ),
    Mutant(
        "layout_kept_though_the_schema_changed", "P2", SNAPSHOT_FILES,
        "metadata.table_uuid, metadata.current_schema_id, lake.properties.get(FIELD_IDS_PROPERTY),",
        "metadata.table_uuid, lake.properties.get(FIELD_IDS_PROPERTY),",
        (f"{IN_SNAPSHOT_FILES}::test_what_others_change_is_refused_though_the_layout_was_checked_before",),
    ),
    Mutant(
        "layout_kept_though_the_spec_changed", "P2", SNAPSHOT_FILES,
        "table.table_id, owner, metadata.format_version, metadata.default_spec_id)",
        "table.table_id, owner, metadata.format_version)",
        (f"{IN_SNAPSHOT_FILES}::test_what_others_change_is_refused_though_the_layout_was_checked_before",),
    ),
    Mutant(
        "layout_kept_for_another_owner", "P2", SNAPSHOT_FILES,
        "        owner = lake.properties.get(TABLE_ID_PROPERTY)\n",
        "        owner = None\n",
        (f"{IN_SNAPSHOT_FILES}::test_what_others_change_is_refused_though_the_layout_was_checked_before",),
    ),
    Mutant(
        "fields_of_a_row_taken_to_be_called_as_ever", "P4", LAKE_TABLE,
        "        ):\n            return False\n    return all(",
        "        ):\n            break\n    return all(",
        (f"{IN_SCHEMAS}::test_fields_that_others_write_otherwise_are_not_found_by_name",),
    ),
    Mutant(
        "fields_that_others_added_lost_in_a_compaction", "P4", "fluss_lab/lake/iceberg/maintenance/compaction_task.py",
        "        ours = [lake.schema().find_field(field.field_id) for field in target.schema.fields]\n",
        "        ours = list(target.schema.fields)\n",
        (f"{IN_SCHEMAS}::test_what_others_wrote_within_a_column_is_still_there_after_a_compaction",),
    ),
    Mutant(
        "field_made_required_written_as_null", "P11", LAYOUT,
        "        if (now := current[inner.field_id]).required and not inner.required:\n",
        "        if (now := current[inner.field_id]).required and now.field_id < 0:\n",
        (f"{IN_SCHEMAS}::test_a_field_made_required_inside_a_column_is_refused",),
    ),
    Mutant(
        "dropped_column_read_as_null", "P4", LAYOUT,
        "        _check_readable(f\"lake table {table.path}: column {field.name!r}\", field, current)\n    return layout",
        "        assert field is not None and current is not None\n    return layout",
        (f"{IN_SCHEMAS}::test_a_dropped_column_is_refused_with_what_to_do",),
    ),
    Mutant(
        "names_of_a_mapping_forgotten", "P4", LAKE_TABLE,
        "            for name in each.names\n            if each.field_id is not None\n",
        "            for name in each.names\n            if each.field_id is None\n",
        (f"{IN_SCHEMAS}::test_names_that_others_write_otherwise_are_not_pushed_to_them",),
    ),
)  # fmt: skip

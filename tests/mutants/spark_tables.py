"""Mutants of what Spark reads of tables: how a read is divided among tasks, and what is told of a cluster."""

from tests.mutants.mutant import Mutant

SHARES = "fluss_lab/spark/source/input_partitions.py"
IN_SHARES = "tests/unit/spark/source/test_input_partitions.py"
OPTIONS = "fluss_lab/spark/source/source_options.py"
IN_OPTIONS = "tests/unit/spark/source/test_source_options.py"
FILTER_JSON = "fluss_lab/read/filter/filter_json.py"
UNION = "fluss_lab/spark/source/table_frame.py"
FILES = "fluss_lab/spark/source/parquet_frame.py"
KEYED = "fluss_lab/spark/source/keyed_frame.py"
WHOLE = "fluss_lab/read/union/whole_files.py"
IN_WHOLE = "tests/unit/read/union/test_whole_files.py"
IN_KEYED = "tests/spark/test_table_source.py"
IN_UNION = "tests/spark/test_union_spark.py"
TAILS = "fluss_lab/spark/source/tail_files.py"
IN_TAILS = "tests/unit/spark/source/test_tail_files.py"
TAIL_FRAMES = "tests/spark/test_tail_frames.py"
PINNED = "fluss_lab/lake/iceberg/table/pinned_table.py"
IN_TASK_LAKE = "tests/unit/spark/source/test_task_lake.py"

#: P4: a union read equals the model at its read point; P7: corrupt bytes are never served; P10: who has no token reads
#: nothing.
SPARK_TABLES = (
    Mutant(
        "wider_types_of_others_taken_for_ones_own", "P4", "fluss_lab/lake/iceberg/read/lake_table.py",
        "        if theirs != field.field_type:\n",
        "        if theirs == field.field_id:\n",
        (
            "tests/unit/lake/iceberg/commit/test_foreign_schemas.py::"
            "test_what_others_widened_is_not_for_readers_of_the_tables_own_types",
        ),
    ),
    Mutant(
        "catalog_secrets_sent_to_tasks", "P10", PINNED,
        "    return file_properties({key: str(value) for key, value in lake.io.properties.items()})\n",
        "    return {key: str(value) for key, value in lake.io.properties.items()}\n",
        (f"{IN_TASK_LAKE}::test_what_is_sent_to_tasks_has_the_files_secrets_and_no_catalog_s",),
    ),
    Mutant(
        "catalog_made_on_an_executor", "P4", PINNED,
        "        if file is not None and not file.exists():\n",
        "        if file is None:\n",
        (f"{IN_TASK_LAKE}::test_a_table_that_moved_on_is_read_by_the_catalog_that_the_cluster_has",),
    ),
    Mutant(
        "catalog_made_by_a_reader", "P4", "fluss_lab/lake/iceberg/table/catalog_access.py",
        "        if self._catalog is None:\n            self._check_file(path)\n",
        "",
        ("tests/unit/lake/iceberg/table/test_catalog_access.py::test_the_file_of_a_catalog_that_is_elsewhere_is_not_made_by_a_reader",),
    ),
    Mutant(
        "ended_credentials_not_renewed", "P4", PINNED,
        "                except (AuthenticationError, StorageError) as error:\n",
        "                except UnavailableError as error:\n",
        (f"{IN_TASK_LAKE}::test_a_metadata_file_that_is_refused_is_had_of_the_catalog",),
    ),
    Mutant(
        "pinned_table_taken_for_the_newest", "P4", "fluss_lab/lake/iceberg/read/lake_table.py",
        "        if lake is None or (snapshot_id is not None and lake.metadata.snapshot_by_id(snapshot_id) is None):\n",
        "        if lake is None:\n",
        (f"{IN_TASK_LAKE}::test_a_snapshot_that_came_later_is_had_of_the_catalog_at_once",),
    ),
    Mutant(
        "rows_pruned_under_a_name_that_no_file_has", "P4", FILES,
        "        columns[each.name] = jvm.keep_whole(column) if is_found_whole else column\n",
        "        columns[each.name] = jvm.keep_whole(column) if is_found_whole and not fields else column\n",
        (f"{IN_UNION}::test_fields_of_a_row_are_what_they_are_in_the_whole_row[log]",),
    ),
    Mutant(
        "unions_under_correlated_subqueries_fail", "P4", "fluss_lab/spark/session/spark_session.py",
        "    _EXCLUDED_RULES: _FAILING_RULE,\n",
        "",
        ("tests/spark/test_keyed_frames.py::test_a_subquery_may_look_at_each_row[mixed]",),
    ),
    Mutant(
        "object_store_left_to_the_jvm", "P4", UNION,
        "        return source.storage.local_folder is not None\n",
        "        return source.storage is not None\n",
        (f"{IN_UNION}::test_a_lake_in_an_object_store_is_read_by_tasks",),
    ),
    Mutant(
        "files_asked_for_days_of_java_sql_date", "P4", "fluss_lab/spark/session/spark_session.py",
        '    "spark.sql.datetime.java8API.enabled": "true",\n',
        "",
        (f"{IN_UNION}::test_days_that_no_java_sql_date_has_are_found_in_files",),
    ),
    Mutant(
        "share_without_row_stop", "P4", SHARES,
        "            row_stop=part.row_stop if stop == edges[-1] else stop,",
        "            row_stop=part.row_stop,",
        (f"{IN_SHARES}::test_the_shares_of_a_scan_come_to_the_scan",),
    ),
    Mutant(
        "share_of_a_log_with_the_whole_lake_part", "P4", SHARES,
        "    lake_stop = min(max(part.lake_stop, start), stop)",
        "    lake_stop = part.lake_stop",
        (f"{IN_SHARES}::test_the_shares_of_a_scan_come_to_the_scan",),
    ),
    Mutant(
        "long_tail_read_by_every_task", "P4", SHARES,
        "    edges = _row_edges(part, min(count, max(1, lake // max(1, tail))))",
        "    edges = _row_edges(part, count)",
        (f"{IN_SHARES}::test_a_bucket_with_a_long_tail_stays_whole",),
    ),
    Mutant(
        "net_changes_of_pieces", "P4", SHARES,
        "        count = 1 if whole else -(-(each.stop - each.start) // size)",
        "        count = -(-(each.stop - each.start) // size)",
        (f"{IN_SHARES}::test_the_shares_of_a_changelog_come_to_the_changelog",),
    ),
    Mutant(
        "null_among_values_forgotten", "P4", FILTER_JSON,
        "tuple(literals[each] for each in value[2]), bool(value[3]), bool(value[4]))",
        "tuple(literals[each] for each in value[2]), False, bool(value[4]))",
        ("tests/unit/read/filter/test_filter_json.py::test_a_filter_goes_through_text_and_is_the_same",),
    ),
    Mutant(
        "token_kept_in_a_catalog", "P10", OPTIONS,
        "if name != TOKEN and not _is_of_catalog(name)}",
        "if not _is_of_catalog(name)}",
        (f"{IN_OPTIONS}::test_a_path_names_the_table_and_what_a_catalog_adds_is_passed_over",),
    ),
    Mutant(
        "files_not_looked_at_before_spark_opens_them", "P7", UNION,
        "        source.lake_source.check_files([*whole, *clipped])\n",
        "        pass\n",
        ("tests/spark/test_union_damage_spark.py::test_a_file_that_is_not_what_was_written_is_refused_before_spark_opens_it",),
    ),
    Mutant(
        "clipped_files_not_looked_at", "P7", UNION,
        "        source.lake_source.check_files([*whole, *clipped])\n",
        "        source.lake_source.check_files(whole)\n",
        ("tests/spark/test_union_damage_spark.py::test_a_file_of_which_a_part_is_read_is_looked_at_too",),
    ),
    Mutant(
        "files_that_spark_left_out_not_missed", "P7", FILES,
        "        if int(frame._jdf.logicalPlan().relation().location().allFiles().size()) == count:\n",
        "        if frame is not None:\n",
        ("tests/spark/test_union_damage_spark.py::test_a_file_that_goes_while_spark_looks_for_it_is_not_left_out",),
    ),
    Mutant(
        "frames_of_replaced_files_are_errors", "P7", UNION,
        "        with suppress(LakeSnapshotNotFoundError):\n            return _scan_frame",
        "        with suppress():\n            return _scan_frame",
        ("tests/spark/test_union_damage_spark.py::test_files_that_are_replaced_while_spark_looks_for_them_are_read_in_their_new_places",),
    ),
    Mutant(
        "length_of_lake_files_not_compared", "P7", "fluss_lab/lake/iceberg/files/parquet_input.py",
        "    if (found := path.stat().st_size) != size_bytes:",
        "    if (found := path.stat().st_size) < 0:",
        ("tests/spark/test_union_damage_spark.py::test_a_file_that_is_not_what_was_written_is_refused_before_spark_opens_it",),
    ),
    Mutant(
        "pages_not_compared_by_spark", "P7", FILES,
        '    "parquet.page.verify-checksum.enabled": "true",\n',
        "",
        ("tests/spark/test_union_damage_spark.py::test_a_page_that_is_not_what_was_written_is_refused_by_spark_s_reader",),
    ),
    Mutant(
        "damage_passed_over_as_the_session_says", "P7", FILES,
        '    "ignoreCorruptFiles": "false",\n',
        "",
        ("tests/spark/test_union_damage_spark.py::test_a_session_that_passes_over_damage_does_not_do_so_here",),
    ),
    Mutant(
        "filters_of_floats_pushed_to_files", "P4", FILES,
        "(place.named and not _misleads(field.dataType))",
        "place.named",
        (f"{IN_UNION}::test_a_zero_s_sign_and_nan_mislead_nobody_who_filters_a_frame",),
    ),
    Mutant(
        "rows_of_a_lab_written_into_the_one_that_came_last", "P13", "fluss_lab/spark/registration.py",
        "    register(session, {SEVERAL: \", \".join(sorted({_name(place), *others}))} if others else place)\n",
        "    register(session, place)\n",
        ("tests/spark/test_lab_sql.py::test_open_labs_share_spark_and_are_not_taken_for_each_other",),
    ),
    Mutant(
        "ids_of_columns_left_to_the_session", "P4", "fluss_lab/spark/registration.py",
        "        session.conf.set(key, value)  #",
        "        session.conf.get(key)  #",
        ("tests/spark/test_lab_sql.py::test_a_session_that_finds_columns_by_name_gives_the_same_rows",),
    ),
    Mutant(
        "dead_rows_of_files_given_by_spark", "P4", KEYED,
        "read.splits, schema, tail, where=is_alive, helpers=read.helpers)",
        "read.splits, schema, tail)",
        (f"{IN_KEYED}::test_spark_equals_arrow_at_every_moment",),
    ),
    Mutant(
        "dead_rows_of_files_looked_for_among_the_log_s", "P4", KEYED,
        "apart = with_source or (first.holed and not first.helpers.fields)",
        "apart = with_source",
        ("tests/spark/test_keyed_frames.py::test_the_log_s_end_is_read_with_the_first_of_the_lake_s_files",),
    ),
    Mutant(
        "keyed_files_not_looked_at_before_spark_opens_them", "P7", KEYED,
        "        source.lake_source.check_files([split for each in files for split in each.part.splits])\n",
        "",
        (f"{IN_KEYED}::test_an_empty_file_is_no_table_without_rows",),
    ),
    Mutant(
        "rows_of_files_that_the_log_ended_given", "P4", WHOLE,
        "{part.key: tails.ended_offsets(part)}",
        "{part.key: tails.ended_offsets(part)[:0]}",
        (f"{IN_WHOLE}::test_files_and_offsets_come_to_the_rows_at_every_moment",),
    ),
    Mutant(
        "tails_of_all_buckets_kept_without_bound", "P14", WHOLE,
        "        self._room -= self._room if tail.kept_bytes is None else tail.kept_bytes\n",
        "",
        (f"{IN_WHOLE}::test_all_buckets_rows_together_have_no_more_than_the_room",),
    ),
    Mutant(
        "rows_before_the_first_one_wanted_given", "P4", WHOLE,
        "    return all(part.start <= split.min_offset for split in part.splits)\n",
        "    return True\n",
        (f"{IN_WHOLE}::test_a_range_of_offsets_is_left_to_a_reader_of_rows",),
    ),
    Mutant(
        "rows_after_a_stop_within_a_file_given", "P4", "fluss_lab/lake/iceberg/read/row_source.py",
        "len(dead.positions) or dead.stop is not None:",
        "len(dead.positions):",
        (f"{IN_WHOLE}::test_offsets_are_reported_file_by_file_and_not_where_a_stop_lies_within_one",),
    ),
    Mutant(
        "tail_file_for_executors_elsewhere", "P4", TAILS,
        "    if not is_one_process(str(context.master)):\n        return None\n",
        "",
        (f"{IN_TAILS}::test_there_are_none_where_executors_are_other_processes",),
    ),
    Mutant(
        "tail_file_without_bound", "P14", TAILS,
        "                if expected > self.size_bytes:\n                    return False\n",
        "",
        (f"{IN_TAILS}::test_a_file_does_not_become_larger_than_it_may",),
    ),
    Mutant(
        "tail_file_for_everybody_to_read", "P10", TAILS,
        "os.O_CLOEXEC, 0o600))",
        "os.O_CLOEXEC, 0o644))",
        (f"{IN_TAILS}::test_file_and_folder_are_of_this_user_only",),
    ),
    Mutant(
        "tail_files_without_bound_in_all", "P14", TAILS,
        "                return False\n            self._files.append(file)\n",
        "                pass\n            self._files.append(file)\n",
        (f"{IN_TAILS}::test_files_in_use_stay_and_others_make_room",),
    ),
    Mutant(
        "tail_file_of_a_frame_removed", "P4", TAILS,
        "        return self._plan is None or not self._plan.refersTo(None)\n",
        "        return self._plan is None\n",
        (f"{TAIL_FRAMES}::test_files_go_when_no_plan_has_them_and_room_is_needed",),
    ),
    Mutant(
        "tail_file_of_no_frame_left", "P12", TAILS,
        "            if not file.is_kept:\n                self._remove([file])\n",
        "            pass\n",
        (f"{IN_TAILS}::test_an_interrupt_leaves_nothing",),
    ),
    Mutant(
        "pages_of_tail_files_without_sums", "P7", TAILS,
        "write_page_checksum=True",
        "write_page_checksum=False",
        (f"{TAIL_FRAMES}::test_a_page_that_is_not_what_was_written_is_an_error",),
    ),
    Mutant(
        "columns_of_tail_files_without_ids", "P4", TAILS,
        "    return stored.with_metadata({_ARROW_ID: str(field.metadata[FIELD_ID]).encode()})\n",
        "    return stored\n",
        (f"{IN_UNION}::test_a_column_that_somebody_renamed_in_the_lake_is_found_by_its_id",),
    ),
    Mutant(
        "tail_file_that_a_full_disk_cut_read", "P9", TAILS,
        "        return False  # tasks need no disk\n",
        "        return True\n",
        (f"{TAIL_FRAMES}::test_a_full_disk_leaves_nothing_and_tasks_read",),
    ),
    Mutant(
        "tail_file_with_rows_of_the_lake", "P4", UNION,
        "        LogRange(part.bucket, part.partition, part.log_start, part.stop)\n",
        "        LogRange(part.bucket, part.partition, part.start, part.stop)\n",
        (f"{TAIL_FRAMES}::test_the_lake_and_a_small_tail_are_one_scan",),
    ),
    Mutant(
        "rows_of_the_log_said_to_be_the_lake_s", "P4", UNION,
        "    apart = with_source or not whole\n",
        "    apart = not whole\n",
        (f"{TAIL_FRAMES}::test_lake_and_log_are_distinguished",),
    ),
)  # fmt: skip

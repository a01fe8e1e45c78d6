"""Mutants of what is checked of the lake's files before they are believed, and of rows that others wrote."""

from tests.mutants.mutant import Mutant

IN_SEALS = "tests/unit/lake/iceberg/files/test_file_seals.py"
IN_DAMAGE = "tests/unit/lake/test_damage.py"
IN_SUMMARIES = "tests/unit/lake/test_snapshot_summary.py"
IN_STORES = "tests/unit/lake/iceberg/files/test_lake_errors.py"
IN_EXPIRY = "tests/unit/lake/iceberg/maintenance/test_snapshot_expiry.py"
IN_ORPHANS = "tests/unit/lake/iceberg/maintenance/test_orphans.py"
IN_LAYOUT = "tests/unit/lake/iceberg/table/test_layout.py"
IN_COMPACTION = "tests/unit/lake/iceberg/maintenance/test_compaction.py"
IN_REPAIR = "tests/unit/tiering/repair/test_lake_repair.py"

#: P7: corrupt bytes are never served. P11: what is not known is an error.
LAKE_DAMAGE = (
    Mutant(
        "seal_of_avro_files_not_checked",
        "P7",
        "fluss_lab/lake/iceberg/metadata/avro_file.py",
        "    check_avro(data, header, sync)\n",
        "",
        (f"{IN_SEALS}::test_a_manifest", f"{IN_SEALS}::test_a_manifest_list"),
    ),
    Mutant(
        "seal_of_table_metadata_not_checked",
        "P7",
        "fluss_lab/lake/iceberg/metadata/metadata_files.py",
        "        check_json(text)\n",
        "",
        (f"{IN_SEALS}::test_table_metadata",),
    ),
    Mutant(
        "seal_of_footers_not_filled_in",
        "P7",
        "fluss_lab/lake/iceberg/files/parquet_output.py",
        "                seal_parquet(path, self._name)\n",
        "                pass\n",
        (f"{IN_SEALS}::test_the_footer_of_a_data_file",),
    ),
    Mutant(
        "checksums_of_pages_not_compared",
        "P7",
        "fluss_lab/lake/iceberg/files/parquet_input.py",
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        (f"{IN_SEALS}::test_pages_of_data_files_have_checksums",),
    ),
    Mutant(
        "seal_of_another_file_believed",
        "P7",
        "fluss_lab/lake/iceberg/files/file_seals.py",
        "    return _MARK.format(name) + _OPEN.decode()",
        "    return _MARK.format('') + _OPEN.decode()",
        (f"{IN_SEALS}::test_the_footer_of_a_data_file",),
    ),
    Mutant(
        "rows_of_one_offset_merged",
        "P7",
        "fluss_lab/lake/iceberg/maintenance/compaction.py",
        "            if len(wrong):\n",
        "            if len(wrong) > len(offsets):\n",
        (f"{IN_COMPACTION}::test_rows_of_one_offset_are_not_merged_into_a_file_that_nobody_reads",),
    ),
    Mutant(
        "repeated_offsets_adopted",
        "P2",
        "fluss_lab/tiering/repair/lake_repair_plan.py",
        "        self._check_offsets(repairs)\n",
        "",
        (f"{IN_REPAIR}::test_rows_of_somebody_else_with_offsets_of_other_records_are_not_accepted",),
    ),
    Mutant(
        "offsets_still_to_come_adopted",
        "P2",
        "fluss_lab/lake/iceberg/commit/adopted_offsets.py",
        "theirs[theirs >= end]",
        "theirs[theirs >= 2**62]",
        (f"{IN_REPAIR}::test_rows_of_somebody_else_with_offsets_of_other_records_are_not_accepted",),
    ),
    Mutant(
        "offsets_below_zero_adopted",
        "P11",
        "fluss_lab/lake/iceberg/commit/adopted_offsets.py",
        "theirs[theirs < 0]",
        "theirs[:0]",
        (f"{IN_REPAIR}::test_rows_of_somebody_else_with_offsets_of_other_records_are_not_accepted",),
    ),
    Mutant(
        "offsets_of_a_bucket_that_was_never_tiered_adopted",
        "P2",
        "fluss_lab/tiering/repair/lake_repair_plan.py",
        "            if not each.empties\n",
        "            if each.offset is not None\n",
        (f"{IN_REPAIR}::test_rows_of_somebody_else_in_a_bucket_that_was_never_tiered_are_not_accepted",),
    ),
    Mutant(
        "orphans_looked_for_in_a_location_that_others_have_too",
        "P13",
        "fluss_lab/lake/iceberg/maintenance/iceberg_maintenance.py",
        "        if not is_own(self._access, self._table.path, lake):\n            raise",
        "        if lake is None:\n            raise",
        (f"{IN_ORPHANS}::test_a_location_that_the_catalog_chose_is_not_cleared",),
    ),
    Mutant(
        "buckets_left_out_though_nobody_names_them",
        "P6",
        "fluss_lab/lake/snapshot_summary.py",
        "    if not since or len(since) >= COMPLETE_EVERY:\n        return dict(properties)\n",
        '    if not since:\n        return dict(properties) | {SINCE_KEY: "0"}\n',
        (f"{IN_SUMMARIES}::test_a_line_that_others_cut_is_not_taken_for_the_whole",),
    ),
    Mutant(
        "a_bucket_that_is_gone_stays_named",
        "P6",
        "fluss_lab/lake/snapshot_summary.py",
        "    if known.keys() - given.keys():\n        return dict(properties)\n",
        "",
        (f"{IN_SUMMARIES}::test_a_bucket_that_is_gone_is_not_named_any_more",),
    ),
    Mutant(
        "expiry_cuts_off_what_names_all_buckets",
        "P6",
        "fluss_lab/lake/snapshot_summary.py",
        "next((each for each in naming if each.is_complete), naming[0] if naming else None)",
        "naming[0] if naming else None",
        (f"{IN_SUMMARIES}::test_expiry_keeps_what_names_all",),
    ),
    Mutant(
        "packed_buckets_fill_the_memory",
        "P11",
        "fluss_lab/lake/bucket_entries.py",
        "b64decode(packed, validate=True), _UNPACKED_BYTES_MAX)",
        "b64decode(packed, validate=True))",
        ("tests/unit/lake/test_bucket_entries.py::test_a_text_that_would_fill_the_memory_is_refused",),
    ),
    Mutant(
        "packed_buckets_cut_off_taken_for_all",
        "P11",
        "fluss_lab/lake/bucket_entries.py",
        "    if not unpacker.eof or unpacker.unused_data:",
        "    if unpacker.unused_data:",
        ("tests/unit/lake/test_bucket_entries.py::test_what_was_not_written_so_is_an_error",),
    ),
    Mutant(
        "packed_buckets_of_a_newer_version_read",
        "P11",
        "fluss_lab/lake/bucket_entries.py",
        "decode(_Packed, text, where, version=VERSION, shown=True)",
        "decode(_Packed, text, where, shown=True)",
        ("tests/unit/lake/test_bucket_entries.py::test_what_a_newer_version_packed_is_refused_with_that_word",),
    ),
    Mutant(
        "a_store_that_fails_called_damage",
        "P11",
        "fluss_lab/lake/iceberg/files/lake_errors.py",
        "    if (found := store_error(what, error)) is not None:\n        return found\n    kind",
        "    kind",
        (f"{IN_STORES}::test_what_a_store_fails_with_is_no_damage",),
    ),
    Mutant(
        "a_service_that_is_away_called_broken",
        "P11",
        "fluss_lab/lake/iceberg/files/lake_errors.py",
        "    if _NO_ANSWER.search(kind) or status >= _HTTP_FAILED:\n",
        "    if False:\n",
        (f"{IN_STORES}::test_what_a_library_below_fails_with",),
    ),
    Mutant(
        "a_commit_that_may_be_on_the_device_called_unmade",
        "P5",
        "fluss_lab/lake/iceberg/files/lake_errors.py",
        "_SQLITE_UNCHANGED: Final = frozenset({sqlite3.SQLITE_FULL,",
        "_SQLITE_UNCHANGED: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,",
        (f"{IN_STORES}::test_a_commit_is_said_not_to_be_made_only_where_that_is_certain",),
    ),
    Mutant(
        "what_cannot_be_written_never_tried_again",
        "P9",
        "fluss_lab/lake/iceberg/files/lake_errors.py",
        "if isinstance(found, UnavailableError) or",
        "if",
        (f"{IN_STORES}::test_what_cannot_be_written_says_whether_to_try_again",),
    ),
    Mutant(
        "expiry_removes_files_of_others",
        "P13",
        "fluss_lab/lake/iceberg/maintenance/snapshot_expiry.py",
        "own = [path for path in paths if is_within(lake, path, folders)]",
        "own = list(paths)",
        (f"{IN_EXPIRY}::test_a_file_outside_of_the_tables_folders_stays",),
    ),
    Mutant(
        "names_that_nobody_knows_forwarded",
        "P11",
        "fluss_lab/lake/iceberg/table/table_properties.py",
        "    check_name(ICEBERG_PREFIX + name, name)\n",
        "",
        (f"{IN_LAYOUT}::test_a_misspelt_property_is_answered_with_what_it_may_have_meant",),
    ),
    Mutant(
        "tables_share_a_data_path",
        "P13",
        "fluss_lab/lake/iceberg/table/table_properties.py",
        "    forwarded |= own_folders(table, forwarded)\n",
        "",
        (f"{IN_LAYOUT}::test_files_in_places_that_properties_name_are_the_tables_own",),
    ),
)

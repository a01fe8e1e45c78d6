"""Mutants of the rows of primary-key tables: the store in memory."""

from tests.mutants.mutant import Mutant

CHANGE = "fluss_lab/server/kv/change_derivation.py"
CHECKS = "fluss_lab/server/kv/row_checks.py"
CHUNKS = "fluss_lab/server/kv/row_chunks.py"
INDEX = "fluss_lab/server/kv/keys/key_index.py"
MERGE = "fluss_lab/server/kv/merge_engines.py"
SLOTS = "fluss_lab/server/kv/keys/slot_table.py"
STORE = "fluss_lab/server/kv/kv_store.py"

ROW_MEMORY = "fluss_lab/server/kv/row_memory.py"
REPLAY = "fluss_lab/server/tablet/buckets/kv_replay.py"

IN_MEMORY = "tests/unit/server/kv/test_row_memory.py"
IN_ROW_FILES = "tests/unit/server/tablet/buckets/test_kv_row_files.py"
IN_MODEL = "tests/unit/server/kv/test_kv_model.py"
IN_STORE = "tests/unit/server/kv/test_kv_store.py"
IN_INDEX = "tests/unit/server/kv/keys/test_key_index.py"

EVERY_KEY = f"{IN_MODEL}::test_every_key_type_does_as_a_dict_does"
LONG_WORK = f"{IN_MODEL}::test_long_work_with_partial_updates_and_new_columns"

#: P1 and P4: what was acknowledged is there, and what is read is what was written.
KV = (
    Mutant(
        "kv_real_keys_not_compared", "P4", STORE,
        "rest = rest[~self._are_keys(key, rest, offsets[rest])]",
        "rest = rest[:0]",
        (EVERY_KEY,),
    ),
    Mutant(
        "kv_keys_of_a_batch_not_compared", "P4", "fluss_lab/server/kv/keys/row_equality.py",
        "others = others[~equal_rows(columns, others, led)]",
        "others = others[:0]",
        (EVERY_KEY,),
    ),
    Mutant(
        "kv_prefixes_not_compared", "P4", "fluss_lab/server/kv/keys/key_index.py",
        "owner, rows = owner[same], rows[same]",
        "assert same.size >= 0",
        (EVERY_KEY,),
    ),
    Mutant(
        "kv_offset_off_by_one", "P4", CHANGE,
        "offsets = base_offset + self._record",
        "offsets = base_offset + self._record + 1",
        (f"{IN_STORE}::test_duplicates_in_a_batch_are_worked_off_in_order",),
    ),
    Mutant(
        "kv_dead_rows_visible", "P4", "fluss_lab/server/kv/store_view.py",
        "rows = live[start : start + rows_max].nonzero()[0] + start",
        "rows = (live[start : start + rows_max] >= 0).nonzero()[0] + start",
        (LONG_WORK,),
    ),
    Mutant(
        "kv_identical_upsert_logged", "P4", CHANGE,
        "works[candidates] = ~equal_rows(columns, operations.rows[candidates], met.rows[candidates])",
        "works[candidates] = True",
        (f"{IN_STORE}::test_what_changes_nothing_is_no_change",),
    ),
    Mutant(
        "kv_views_share_what_changes", "P4", CHUNKS,
        "self.live = self.live.copy()",
        "self.live = self.live[:]",
        (f"{IN_STORE}::test_a_view_stays_as_it_was", f"{IN_STORE}::test_an_image_never_changes_and_a_restored_store_goes_on"),
    ),
    Mutant(
        "kv_stale_change_committed", "P1", STORE,
        "if change.state != self._state:",
        "if change.state < 0:",
        (f"{IN_STORE}::test_a_change_fits_one_state_only",),
    ),
    Mutant(
        "kv_not_null_not_checked", "P8", CHECKS,
        "if (wrong := nulls & upserts).any():",
        "if (wrong := nulls & False).any():",
        (f"{IN_STORE}::test_batches_that_do_not_fit_are_refused_with_column_and_row",),
    ),
    Mutant(
        "kv_partial_row_without_value", "P8", MERGE,
        "            if wrong.any():",
        "            if wrong.size < 0:",
        (f"{IN_STORE}::test_partial_updates_never_leave_a_column_that_is_not_null_without_a_value",),
    ),
    Mutant(
        "kv_wide_rows_gathered_however_often_they_are_named", "P8", CHUNKS,
        "        check_gathered(found, bytes_max)\n",
        "",
        (
            "tests/unit/server/tablet/requests/test_put_kv.py::"
            "test_wide_rows_that_a_small_batch_deletes_are_counted_before_they_are_gathered",
        ),
    ),
    Mutant(
        "kv_few_wide_rows_sliced_however_often_they_are_named", "P8", CHUNKS,
        "            check_gathered(few)\n",
        "",
        ("tests/unit/server/kv/test_row_chunks.py::test_one_wide_row_that_is_named_often_is_counted_before_it_is_copied",),
    ),
    Mutant(
        "kv_few_rows_come_in_the_order_of_their_offsets", "P4", CHUNKS,
        "        placed[place] = row\n",
        "        placed[len(placed) - 1 - place] = row\n",
        ("tests/unit/server/kv/test_row_chunks.py::test_few_rows_are_sliced_as_they_are_taken",),
    ),
    Mutant(
        "kv_many_rows_come_in_the_order_of_their_chunks", "P4", CHUNKS,
        "            asked[order] = np.arange(order.size)\n",
        "            asked[:] = np.arange(order.size)\n",
        ("tests/unit/server/kv/test_row_chunks.py::test_few_rows_are_sliced_as_they_are_taken",),
    ),
    Mutant(
        "kv_wide_rows_completed_however_often_they_are_named", "P8", MERGE,
        "        check_rows(partial.others(old), met_at[met_at >= 0], bytes_max)\n",
        "",
        ("tests/unit/server/tablet/requests/test_put_kv.py::test_one_wide_row_that_a_batch_updates_often_is_not_copied_as_often",),
    ),
    Mutant(
        "kv_one_key_not_found_while_a_table_is_left", "P4", INDEX,
        "leaving is None or leaving.has_moved(hash) else leaving.table",
        "leaving is None or hash else leaving.table",
        (f"{IN_INDEX}::test_a_key_that_is_not_there_is_not_found_while_a_table_is_left",),
    ),
    Mutant(
        "kv_rewriting_revives_the_dead", "P4", "fluss_lab/server/kv/chunk_compaction.py",
        "lives.append(source.live[rows])",
        "lives.append(np.ones_like(source.live[rows]))",
        (f"{IN_MODEL}::test_rows_that_die_while_they_are_rewritten_stay_dead",),
    ),
    Mutant(
        "kv_rows_go_to_the_other_table", "P1", INDEX,
        "        leaving.table.insert(hashes[~moved], offsets[~moved] + 1)\n",
        "        self._table.insert(hashes[~moved], offsets[~moved] + 1)\n",
        (f"{IN_INDEX}::test_rows_are_found_while_the_table_grows_and_rows_come_and_go",),
    ),
    Mutant(
        "kv_entries_behind_their_homes_are_left_behind", "P1", INDEX,
        "        count += table.run((first + count) % table.size)\n",
        "",
        (f"{IN_INDEX}::test_rows_are_found_while_the_table_grows_and_rows_come_and_go",),
    ),
    Mutant(
        "kv_entries_are_moved_before_their_homes", "P1", INDEX,
        "        due = leaving.have_moved(hashes)\n",
        "        due = leaving.have_moved(hashes) | True\n",
        (f"{IN_INDEX}::test_rows_that_do_not_fit_at_the_end_of_a_table_that_is_left_are_found_at_its_beginning",),
    ),
    Mutant(
        "kv_slot_fights_not_noticed", "P1", SLOTS,
        "lost = np.flatnonzero(self._entries(places) != entries)",
        "lost = np.flatnonzero(self._entries(places) < GONE)",
        (f"{IN_INDEX}::test_rows_are_found_while_the_table_grows_and_rows_come_and_go",),
    ),
    Mutant(
        "kv_replay_of_anything", "P7", "fluss_lab/server/kv/change_derivation.py",
        "if (wrong := expected != (ended >= 0)).any():",
        "if (wrong := expected != expected).any():",
        (f"{IN_STORE}::test_a_changelog_that_does_not_fit_is_refused_whole",),
    ),
    Mutant(
        "kv_rows_lie_in_the_request", "P7", CHANGE,
        "return pa.concat_batches([pa.RecordBatch.from_arrays(batch, schema=source.schema)])",
        "return pa.RecordBatch.from_arrays(batch, schema=source.schema)",
        (f"{IN_STORE}::test_rows_do_not_hold_on_to_the_request_that_brought_them",),
    ),
    Mutant(
        "rows_in_files_are_not_read_back", "P7", "fluss_lab/records/kv_files.py",
        "    check_file(path, mark)\n    if not mark.size_bytes:",
        "    if not mark.size_bytes:",
        (f"{IN_MEMORY}::test_a_file_that_is_not_what_was_written_is_not_mapped[changed]",),
    ),
    Mutant(
        "files_of_rows_keep_their_names", "P7", ROW_MEMORY,
        "            path.unlink()\n",
        "            pass\n",
        (f"{IN_MEMORY}::test_the_files_have_no_names_so_that_nobody_cuts_them_and_none_is_left",),
    ),
    Mutant(
        "files_of_rows_are_left_after_a_kill", "P6", ROW_MEMORY,
        "        shutil.rmtree(folder, ignore_errors=True)\n",
        "",
        (
            f"{IN_MEMORY}::test_what_a_killed_process_left_is_removed",
            f"{IN_ROW_FILES}::test_a_server_killed_while_rows_go_to_files_has_them_all_and_leaves_no_file[kv.rows.written]",
        ),
    ),
    Mutant(
        "rows_leave_memory_on_a_disk_that_is_short", "P9", ROW_MEMORY,
        '        self._check_disk("rows stay in memory")\n',
        "",
        (f"{IN_MEMORY}::test_nothing_is_written_while_the_disks_reserve_is_short",),
    ),
    Mutant(
        "rows_that_a_disk_refuses_are_not_named", "P9", "fluss_lab/server/tablet/buckets/bucket_description.py",
        "    if kv.memory_problem:\n",
        "    if not kv.store:\n",
        (f"{IN_ROW_FILES}::test_a_disk_that_refuses_rows_is_seen_and_the_bucket_serves",),
    ),
    Mutant(
        "a_full_disk_is_asked_for_rows_again_and_again", "P9", ROW_MEMORY,
        "            if self._closed or time.monotonic() < self._retry_s:\n",
        "            if self._closed:\n",
        (f"{IN_MEMORY}::test_after_a_refusal_the_disk_is_left_alone_for_a_while",),
    ),
    Mutant(
        "writers_outrun_the_disk", "P14", ROW_MEMORY,
        "                self._room.clear()\n",
        "                self._room.set()\n",
        (f"{IN_MEMORY}::test_writers_that_are_far_faster_than_the_disk_wait_for_it",),
    ),
    Mutant(
        "puts_do_not_wait_for_the_disk", "P14", "fluss_lab/server/tablet/buckets/kv_bucket.py",
        "        self._memory.wait()\n",
        "",
        (f"{IN_ROW_FILES}::test_a_put_waits_where_rows_come_faster_than_the_disk_takes_them",),
    ),
    Mutant(
        "rows_in_files_are_held_in_memory_too", "P14", CHUNKS,
        "        self.places.settle(data.offsets)\n        self._selected = None\n",
        "        self.places.settle(data.offsets)\n",
        (f"{IN_MEMORY}::test_memory_is_given_up_whatever_was_looked_up_before",),
    ),
    Mutant(
        "a_replay_fills_the_memory", "P14", REPLAY,
        "            self._pace(sum(rows.nbytes for rows in group.rows))\n",
        "",
        (f"{IN_ROW_FILES}::test_a_replay_of_more_rows_than_memory_may_have_leaves_them_in_files",),
    ),
)  # fmt: skip

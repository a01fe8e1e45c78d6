"""Mutants of lookups in tables: rows are those of the read point, of the task's buckets, and of the table that was planned."""

from tests.mutants.mutant import Mutant

CHANGES = "fluss_lab/lookup/rows/point_changes.py"
INDEX = "fluss_lab/lookup/rows/keyed_rows.py"
CACHE = "fluss_lab/lookup/rows/lookup_cache.py"
KEPT = "fluss_lab/lookup/rows/kept_rows.py"
PLANNED = "fluss_lab/lookup/planned_lookup.py"
REMOTE = "fluss_lab/lookup/remote_lookup.py"
FULL = "fluss_lab/lookup/full_lookup.py"
IN_CHANGES = "tests/unit/lookup/rows/test_point_changes.py"
IN_CACHE = "tests/unit/lookup/rows/test_lookup_cache.py"
IN_REMOTE = "tests/unit/lookup/test_remote_lookup.py"
IN_FULL = "tests/unit/lookup/test_full_lookup.py"
IN_TABLE = "tests/unit/lookup/test_table_lookup.py"
IN_EXACT = "tests/unit/lookup/test_exact_lookups.py"
FIRST_CHANGE = f"{IN_REMOTE}::test_the_first_change_since_the_point_says_what_there_was"
KEPT_CACHE = f"{IN_REMOTE}::test_a_cache_is_kept_between_micro_batches_without_the_keys_that_have_changed"

#: P4: a lookup equals the model at its read point.
EXACT_LOOKUPS = (
    Mutant(
        "live_rows_taken_for_those_of_the_point", "P4", REMOTE,
        "        positions, rows = self._undo.undo(named, positions, rows)\n", "",
        (FIRST_CHANGE,),
    ),
    Mutant(
        "last_change_undone_instead_of_the_first", "P4", CHANGES,
        "firsts[codes[::-1]] = fresh[::-1]", "firsts[codes] = fresh",
        (FIRST_CHANGE,),
    ),
    Mutant(
        "later_changes_undone_too", "P4", CHANGES,
        "        fresh = np.flatnonzero(self._changed.find(rows.select(self._key)) < 0)\n",
        "        fresh = np.arange(rows.num_rows)\n",
        (FIRST_CHANGE,),
    ),
    Mutant(
        "log_read_once_for_all_batches", "P4", REMOTE,
        "        self._undo.extend(asked if self._partitions else None)\n",
        "        if not len(self._undo):\n            self._undo.extend(asked if self._partitions else None)\n",
        (f"{IN_REMOTE}::test_what_changes_between_batches_is_undone_too",),
    ),
    Mutant(
        "any_number_of_changes_held", "P14", CHANGES,
        "                    self._check_room()\n", "",
        (f"{IN_REMOTE}::test_more_changes_than_a_task_may_hold_are_an_error",),
    ),
    Mutant(
        "updates_taken_for_inserts", "P4", CHANGES,
        "_ENDS: Final = (int(ChangeType.UPDATE_BEFORE), ", "_ENDS: Final = (",
        (FIRST_CHANGE,),
    ),
    Mutant(
        "changed_keys_left_in_the_kept_cache", "P4", REMOTE,
        "                cache.drop(changed)\n", "                assert changed\n",
        (KEPT_CACHE,),
    ),
    Mutant(
        "kept_rows_used_at_an_older_point", "P4", CHANGES,
        "        if each.stop < start:\n            return None\n", "",
        (f"{IN_CHANGES}::test_no_records_lead_back_or_to_where_a_partition_is_missing",
         f"{IN_FULL}::test_a_micro_batch_reads_only_what_has_changed_since_the_last"),
    ),
    Mutant(
        "rows_of_a_partition_that_has_gone_kept", "P4", CHANGES,
        "    return None if before else found\n", "    return found\n",
        (f"{IN_FULL}::test_rows_of_a_partition_that_has_gone_go",),
    ),
    Mutant(
        "rows_that_changed_found_twice", "P4", FULL,
        "        self._dead[found[found >= 0]] = True\n", "        self._dead[found[found >= 0]] = False\n",
        (f"{IN_FULL}::test_changes_are_merged_into_the_rows_when_they_are_many",),
    ),
    Mutant(
        "rows_of_every_bucket_loaded", "P4", FULL,
        "buckets=self._numbers(context))", "buckets=None)",
        (f"{IN_EXACT}::test_each_task_of_a_custom_shuffle_finds_the_rows_of_its_keys",),
    ),
    Mutant(
        "join_keys_beside_the_primary_key_not_compared", "P4", REMOTE,
        "        return at[same], rows.filter(pa.array(same))\n", "        return at, rows\n",
        (f"{IN_EXACT}::test_lookups_at_a_point_that_lies_back_equal_the_model_there[pk]",),
    ),
    Mutant(
        "keys_of_one_hash_taken_for_one", "P4", INDEX,
        "                same[at] = self._equal(rows[at], keys, asked[at])\n", "                assert len(at) >= 0\n",
        ("tests/unit/lookup/rows/test_keyed_rows.py::test_keys_with_the_same_hash_are_distinguished",),
    ),
    Mutant(
        "partitions_made_since_the_point_asked", "P4", REMOTE,
        "            whose = np.flatnonzero(found >= 0)\n", "            whose = np.arange(keys.num_rows)\n",
        (f"{IN_REMOTE}::test_what_came_with_a_partition_made_since_has_no_row",),
    ),
    Mutant(
        "expired_rows_found", "P4", CACHE,
        "            found[(found >= 0) & expired[found]] = -1\n", "            assert len(expired)\n",
        (f"{IN_CACHE}::test_entries_expire_by_the_clock", f"{IN_REMOTE}::test_cached_rows_expire_by_the_clock"),
    ),
    Mutant(
        "cache_without_bounds", "P14", CACHE,
        "        self._make_room(int(weights.sum()))\n", "",
        (f"{IN_REMOTE}::test_a_cache_has_at_most_the_rows_that_it_may",),
    ),
    Mutant(
        "any_number_of_partitions_asked", "P14", REMOTE,
        "    if absent and len(found) > most:\n", "    if absent and len(found) < 0:\n",
        (f"{IN_REMOTE}::test_more_partitions_than_allowed_are_an_error",),
    ),
    Mutant(
        "partitions_that_have_gone_taken_for_empty", "P11", CHANGES,
        "            if present is None or present.is_dropped:\n",
        "            if present is None or present.is_dropped:\n                continue\n            if not present:\n",
        (f"{IN_REMOTE}::test_a_partition_that_nobody_has_any_more_is_an_error_where_it_is_asked",),
    ),
    Mutant(
        "log_shorter_than_the_point_not_noticed", "P11", CHANGES,
        "            if stop < start:\n                raise CorruptDataError(",
        "            if stop < 0:\n                raise CorruptDataError(",
        (f"{IN_REMOTE}::test_a_log_that_has_lost_its_end_is_an_error",),
    ),
    Mutant(
        "unknown_buckets_taken_for_empty", "P11", CHANGES,
        "            raise unknown.error\n", "            continue\n",
        (f"{IN_CHANGES}::test_a_bucket_that_was_not_known_is_an_error_of_those_who_want_it",),
    ),
    Mutant(
        "kept_rows_not_checked", "P7", KEPT,
        "    if _checksum(data) != checksum:\n", "    if checksum < 0:\n",
        (f"{IN_FULL}::test_damaged_rows_are_loaded_anew[bytes]",
         "tests/unit/lookup/rows/test_kept_rows.py::test_damaged_files_are_not_used"),
    ),
    Mutant(
        "kept_rows_of_another_join_used", "P13", KEPT,
        "            if head is None or head.of != self._of:\n", "            if head is None:\n",
        (f"{IN_FULL}::test_rows_of_another_join_are_not_used",),
    ),
    Mutant(
        "points_of_other_tables_looked_up_at", "P13", PLANNED,
        '        source.check_table(point.path, point.table_id, point.created_ms, "read point")\n', "",
        (f"{IN_TABLE}::test_a_point_of_another_table_is_refused_in_tasks",),
    ),
    Mutant(
        "points_taken_of_a_table_made_again", "P13", PLANNED,
        "            check_table_id(point.path, self.plan.table.table_id, point.table_id)\n", "",
        (f"{IN_REMOTE}::test_a_table_made_again_is_never_taken_for_the_first",),
    ),
    Mutant(
        "tasks_of_another_number_served", "P4", PLANNED,
        "        if info.parallelism != self.plan.tasks:\n", "        if info.parallelism < 0:\n",
        (f"{IN_TABLE}::test_tasks_of_another_number_are_refused",),
    ),
)  # fmt: skip

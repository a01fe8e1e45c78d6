"""Mutants of primary-key tables on their way into the lake: where the rows are that deletes end, and that none is lost."""

from tests.mutants.mutant import Mutant

IN_PK_SPLIT_FAILURES = "tests/unit/lake/iceberg/write/test_pk_split_failures.py"
POSITIONS = "fluss_lab/lake/iceberg/write/row_locator.py"
KEYED_WRITER = "fluss_lab/lake/iceberg/write/pk_split_writer.py"
DELETE_FILES = "fluss_lab/lake/iceberg/write/delete_writer.py"
IN_POSITIONS = "tests/unit/lake/iceberg/write/test_row_locator.py"
IN_KEYED_WRITER = "tests/unit/lake/iceberg/write/test_pk_split_writer.py"
IN_DELETE_FILES = "tests/unit/lake/iceberg/write/test_delete_writer.py"

#: P2: each offset reaches the lake once; P4: a union read equals the model.
KEYED_LAKE = (
    Mutant(
        "last_offset_of_a_file_not_sought_in_it", "P4", POSITIONS,
        'return int(low), int(np.searchsorted(ascending, largest, side="right"))',
        'return int(low), int(np.searchsorted(ascending, largest, side="left"))',
        (f"{IN_POSITIONS}::test_offsets_at_the_edges_of_files_and_row_groups",),
    ),
    Mutant(
        "file_that_overlaps_not_tried", "P4", POSITIONS,
        "            if low < high:\n                self._search(",
        "            if low < high and bool((found[low:high] == NOWHERE).all()):\n                self._search(",
        (f"{IN_POSITIONS}::test_random_files_that_overlap_and_are_out_of_order",),
    ),
    Mutant(
        "rows_taken_for_ascending", "P4", POSITIONS,
        "ascends = bool((values[1:] > values[:-1]).all())",
        "ascends = bool(len(values) >= 0)",
        (
            f"{IN_POSITIONS}::test_random_files_that_overlap_and_are_out_of_order",
            f"{IN_DELETE_FILES}::test_deletes_follow_rows_that_somebody_moved",
        ),
    ),
    Mutant(
        "row_in_two_files_not_noticed", "P4", POSITIONS,
        "            if len(twice):\n",
        "            if len(twice) < 0:\n",
        (
            f"{IN_POSITIONS}::test_a_row_in_two_live_files_is_an_error_that_names_both",
            f"{IN_POSITIONS}::test_a_row_twice_in_one_file_is_an_error",
            f"{IN_KEYED_WRITER}::test_a_row_in_two_live_files_stops_the_round",
        ),
    ),
    Mutant(
        "rows_of_a_file_not_counted", "P4", POSITIONS,
        "if footer.num_rows != file.rows:",
        "if footer.num_rows < 0:",
        (f"{IN_POSITIONS}::test_a_file_with_other_rows_than_the_lake_says",),
    ),
    Mutant(
        "own_row_placed_in_the_file_before", "P4", KEYED_WRITER,
        'number = np.searchsorted(firsts, ordinals[is_own], side="right") - 1',
        'number = np.maximum(np.searchsorted(firsts, ordinals[is_own], side="left") - 1, 0)',
        (f"{IN_KEYED_WRITER}::test_readers_see_the_model_after_every_round",),
    ),
    Mutant(
        "row_of_another_split_deleted_by_key", "P4", KEYED_WRITER,
        "if not self._context.alone:",
        "if self._context.split_index < 0:",
        (
            f"{IN_KEYED_WRITER}::test_cut_splits_and_a_snapshot_split_with_its_log",
            f"{IN_KEYED_WRITER}::test_a_split_that_is_not_alone_leaves_only_rows_of_other_splits_unplaced",
        ),
    ),
    Mutant(
        "records_that_are_no_changes_taken", "P2", KEYED_WRITER,
        "        if wrong.any():\n",
        "        if wrong.sum() < 0:\n",
        (f"{IN_PK_SPLIT_FAILURES}::test_records_that_are_no_changes_are_refused",),
    ),
    Mutant(
        "events_of_lost_rows_dropped", "P2", DELETE_FILES,
        "self._write_equality(events, np.flatnonzero(file_of == BY_KEY))",
        "self._write_equality(events, np.flatnonzero(file_of < PLACED_LATER))",
        (f"{IN_KEYED_WRITER}::test_events_whose_row_is_gone_from_the_lake_are_kept_as_deletes_by_key",),
    ),
    Mutant(
        "deletes_not_sorted", "P4", DELETE_FILES,
        "return np.argsort(ranks * rows + positions)",
        "return np.argsort(ranks * rows, kind='stable')",
        (f"{IN_DELETE_FILES}::test_rows_are_sorted_by_file_and_position",),
    ),
    Mutant(
        "equality_deletes_pruned_by_any_column", "P4", DELETE_FILES,
        "            plan.only(ids),\n",
        "            plan,\n",
        (f"{IN_DELETE_FILES}::test_equality_delete_files_of_events_whose_row_is_gone",),
    ),
    Mutant(
        "files_of_a_failed_placing_left", "P2", DELETE_FILES,
        "    except BaseException:\n        writer.abort()\n",
        "    except BaseException:\n",
        (f"{IN_DELETE_FILES}::test_placing_is_bounded_and_leaves_nothing_behind_when_it_fails",),
    ),
)  # fmt: skip

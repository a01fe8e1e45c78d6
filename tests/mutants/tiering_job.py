"""Mutants of what rounds of primary-key tables, cut splits and limits go by."""

from tests.mutants.mutant import RECOVERY_OF_COMMITS, ROUND, Mutant

READER = "fluss_lab/tiering/task/split_reader.py"
IN_SPLITS = "tests/unit/tiering/round/test_keyed_splits.py"
HISTORY = "fluss_lab/server/coordinator/tiering/round_history.py"
IN_HISTORY_OF_ROUNDS = "tests/unit/server/coordinator/tiering/test_round_history.py"
IN_KEYED = "tests/unit/tiering/round/test_keyed_round.py"

TIERING_JOB = (
    Mutant(
        "half_updates_let_pass",
        "P2",
        READER,
        "        if not np.array_equal(after, expected):",
        "        if len(after) != len(expected):",
        (f"{IN_SPLITS}::test_changes_that_cannot_be_are_refused",),
    ),
    Mutant(
        "updates_of_another_row_let_pass",
        "P2",
        READER,
        "        if (wrong := after & (previous != replaced)).any():",
        "        if (wrong := after & (previous != replaced)).all() and not len(wrong):",
        (f"{IN_SPLITS}::test_changes_that_cannot_be_are_refused",),
    ),
    Mutant(
        "previous_offsets_not_checked",
        "P2",
        READER,
        "(previous < 0) | (previous >= offsets))",
        "previous < NO_ROW)",
        (f"{IN_SPLITS}::test_changes_that_cannot_be_are_refused",),
    ),
    Mutant(
        "updates_cut_in_two",
        "P3",
        READER,
        "        if self._open is not None:\n            for records in self._after():",
        "        if self._open is not None and self.start < 0:\n            for records in self._after():",
        (f"{IN_SPLITS}::test_cut_splits_give_every_record_once_and_no_update_in_two",),
    ),
    Mutant(
        "updates_given_twice",
        "P2",
        READER,
        "        if self._begun or not self._split.follows:",
        "        if self._begun or self._split.follows or not self._begun:",
        (f"{IN_SPLITS}::test_cut_splits_give_every_record_once_and_no_update_in_two",),
    ),
    Mutant(
        "snapshot_rows_out_of_order_let_pass",
        "P2",
        READER,
        "if offsets[0] < position or offsets[-1] >= split.log_offset or (np.diff(offsets) <= 0).any():",
        "if offsets[0] < 0:",
        (f"{IN_SPLITS}::test_rows_of_a_snapshot_out_of_order_are_refused",),
    ),
    Mutant(
        "splits_behind_a_left_one_committed",
        "P2",
        "fluss_lab/tiering/round/tiering_committer.py",
        "        if joins and each.begin < each.end <= each.split.end + 1:",
        "        if each.result is not None:",
        (f"{IN_SPLITS}::test_what_was_left_to_a_later_round_ends_its_bucket",),
    ),
    Mutant(
        "limited_round_not_followed_at_once",
        "P4",
        "fluss_lab/tiering/round/source_enumerator.py",
        "forced = [event.assignment.table_id] if event.is_forced else []",
        "forced = [event.assignment.table_id][:0]",
        (
            f"{IN_KEYED}::test_a_round_that_runs_out_of_time_is_followed_by_the_next_at_once",
            f"{IN_KEYED}::test_a_round_beyond_its_bytes_is_followed_by_the_next_at_once",
        ),
    ),
    Mutant(
        "tasks_begun_after_the_deadline",
        "P4",
        "fluss_lab/tiering/task/tiering_task.py",
        "if task.deadline_ms is not None and SystemClock().now_ms() >= task.deadline_ms:",
        "if task.deadline_ms is not None and SystemClock().now_ms() < 0:",
        (f"{IN_KEYED}::test_a_round_that_runs_out_of_time_is_followed_by_the_next_at_once",),
    ),
    Mutant(
        "round_that_gets_nowhere",
        "P4",
        "fluss_lab/tiering/round/round_planner.py",
        "deadline_ms=None if split.split_index < parallelism else deadline_ms,",
        "deadline_ms=deadline_ms,",
        (f"{IN_KEYED}::test_a_round_that_runs_out_of_time_is_followed_by_the_next_at_once",),
    ),
    Mutant(
        "cut_splits_placed_by_themselves",
        "P2",
        "fluss_lab/tiering/round/round_planner.py",
        "alone=plan.table.is_log_table or splits_of[split.table_bucket] == 1,",
        "alone=True,",
        (f"{IN_KEYED}::test_updates_between_the_splits_of_a_bucket",),
    ),
    Mutant(
        "cut_off_bucket_without_its_snapshot",
        "P2",
        "fluss_lab/tiering/round/split_generator.py",
        "return not self._table.is_log_table and lag.start > 0",
        "return not self._table.is_log_table and lag.start < 0",
        (f"{IN_KEYED}::test_a_bucket_whose_log_was_cut_off_begins_with_its_snapshot",),
    ),
    Mutant(
        "start_of_replay_forgotten",
        "P2",
        RECOVERY_OF_COMMITS,
        "self._fluss.commit(missing.snapshot_id, newer, committed_starts(missing, first))",
        "self._fluss.commit(missing.snapshot_id, newer, committed_starts(missing, {}) and first)",
        (f"{IN_KEYED}::test_the_start_of_replay_survives_a_round_that_does_not_live_to_tell",),
    ),
    Mutant(
        "vanished_snapshot_ends_the_round",
        "P6",
        ROUND,
        "except (CommitConflictError, PartitionNotFoundError, KvSnapshotNotFoundError) as error:",
        "except (CommitConflictError, PartitionNotFoundError) as error:",
        (f"{IN_KEYED}::test_a_snapshot_that_goes_before_it_is_read_is_replaced_by_the_next",),
    ),
    Mutant(
        "round_cut_off_by_a_restart_shown_as_under_way",
        "P11",
        HISTORY,
        "    elif ended_ms is None and epoch != held_epoch:",
        "    elif ended_ms is None and held_epoch == -1:",
        (f"{IN_HISTORY_OF_ROUNDS}::test_how_a_round_ended_that_was_cut_off_by_a_restart_is_said_to_be_unknown",),
    ),
    Mutant(
        "history_of_rounds_without_a_bound",
        "P14",
        HISTORY,
        '            "DELETE FROM tiering_rounds WHERE table_id = ? AND epoch <= "',
        '            "DELETE FROM tiering_rounds WHERE table_id = ? AND epoch < 0 AND epoch <= "',
        (f"{IN_HISTORY_OF_ROUNDS}::test_no_more_rounds_are_kept_than_asked_for",),
    ),
)

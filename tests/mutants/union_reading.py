"""Mutants of union reads of primary-key tables: where rows come from, what ends them, and where a read goes on."""

from tests.mutants.mutant import Mutant

IN_PK_MERGE = "tests/unit/read/union/test_pk_merge.py"
IN_PK_UNDO = "tests/unit/read/union/test_pk_undo.py"
KEYED_ROWS = "fluss_lab/read/union/pk_merge.py"
KEYED_PLAN = "fluss_lab/read/union/pk_plan.py"
LIVE_ROWS = "fluss_lab/read/union/pk_undo.py"
TAILS_AHEAD = "fluss_lab/read/union/tails_ahead.py"
TAKING = "fluss_lab/read/moment/as_of.py"
PLAN = "fluss_lab/read/union/read_plan.py"
COLUMNS = "fluss_lab/read/union/read_columns.py"
IN_COLUMNS = "tests/unit/read/union/test_read_columns.py"
IN_KEYED = "tests/unit/read/union/test_keyed_boundaries.py"
IN_WHOLE = "tests/unit/read/union/test_whole_files.py"
IN_TAILS_AHEAD = "tests/unit/read/union/test_tails_ahead.py"

LEDGER = "fluss_lab/server/coordinator/tiering/lake_snapshots.py"
IN_DROPPED = "tests/unit/read/test_dropped_partitions.py"
IN_LEDGER = "tests/unit/server/coordinator/metadata/test_lake_ledger.py"
OF_A_DROP = f"{IN_DROPPED}::test_a_lake_snapshot_from_before_a_partition_went_from_the_lake_too"

#: P4: a union read equals the model at its read point.
UNION_READING = (
    Mutant(
        "offsets_counted_as_rows_by_a_limit",
        "P4",
        "fluss_lab/read/union/scan.py",
        "            if _is_all(cut, parts) or sum(part.record_count or 0 for part in plan.parts) >= self.limit:\n                return plan\n",
        "            return plan\n",
        (
            "tests/unit/read/union/test_read_plan.py::test_a_limit_counts_rows_and_not_those_that_others_deleted_in_the_lake",
        ),
    ),
    Mutant(
        "large_rows_joined_beyond_what_a_column_takes",
        "P11",
        COLUMNS,
        "if count == rows_max or size >= BATCH_BYTES:",
        "if count == rows_max:",
        (f"{IN_COLUMNS}::test_large_rows_come_in_batches_of_as_many_bytes",),
    ),
    Mutant(
        "large_records_joined_by_their_number",
        "P14",
        COLUMNS,
        "if count >= enough or size >= GATHERED_BYTES:",
        "if count >= enough:",
        (f"{IN_COLUMNS}::test_records_are_joined_up_to_so_many_bytes",),
    ),
    Mutant(
        "rows_that_the_log_ended_read_from_the_lake",
        "P4",
        KEYED_ROWS,
        "yield from lake_rows(source, part, request, tail.ended_offsets(part.lake_stop))",
        "yield from lake_rows(source, part, request, tail.ended_offsets(part.start))",
        (f"{IN_KEYED}::test_what_the_log_ends_is_not_read_from_the_lake",),
    ),
    Mutant(
        "tail_half_looked_at_ahead_taken",
        "P4",
        TAILS_AHEAD,
        "return each.tail if each.is_whole else None",
        "return each.tail",
        (f"{IN_TAILS_AHEAD}::test_an_error_met_ahead_is_the_reader_s_to_meet_again",),
    ),
    Mutant(
        "tail_taken_for_that_of_a_part_planned_again",
        "P4",
        TAILS_AHEAD,
        "return tail if tail is not None and tail.part is part else None",
        "return tail",
        (f"{IN_WHOLE}::test_what_was_looked_at_comes_to_the_same_rows_whatever_moves_then[0]",),
    ),
    Mutant(
        "tails_read_ahead_without_end",
        "P8",
        TAILS_AHEAD,
        "            self._room.get()\n",
        "",
        (f"{IN_TAILS_AHEAD}::test_no_more_tails_are_kept_than_a_few",),
    ),
    Mutant(
        "work_on_files_given_out_of_order",
        "P4",
        "fluss_lab/lake/iceberg/files/parquet_input.py",
        "                yield under_way.popleft().result()\n        while",
        "                yield under_way.pop().result()\n        while",
        (
            "tests/unit/lake/iceberg/files/test_parquet_input.py::test_work_in_order_gives_its_results_in_order_and_asks_only_a_few_ahead",
        ),
    ),
    Mutant(
        "rows_that_the_log_ended_itself_kept",
        "P4",
        KEYED_ROWS,
        "member_places(batch.column(OFFSET).to_numpy(), self._ended)",
        "member_places(batch.column(OFFSET).to_numpy(), self._ended[:0])",
        (f"{IN_KEYED}::test_what_the_log_ends_is_not_read_from_the_lake",),
    ),
    Mutant(
        "ended_rows_distinguished_from_filtered_records",
        "P4",
        KEYED_ROWS,
        "                found.append(ended_offsets(records))\n",
        "                found.append(ended_offsets(records)[: self._own(records, self._write_mask(records)).num_rows])\n",
        (f"{IN_KEYED}::test_every_row_of_a_point_comes_once_wherever_the_lake_ends_by_then",),
    ),
    Mutant(
        "offset_filter_taken_for_a_stop",
        "P4",
        PLAN,
        "    if info.is_log_table or stop == each.stop:\n",
        "    if info.is_log_table or stop <= each.stop:\n",
        (f"{IN_KEYED}::test_an_offset_filter_does_not_bring_ended_rows_back",),
    ),
    Mutant(
        "gap_between_lake_and_log_read_over",
        "P4",
        KEYED_PLAN,
        "if lake_stop == part.stop or source.may_hold(",
        "if lake_stop <= part.stop or source.may_hold(",
        (f"{IN_KEYED}::test_a_lake_that_was_switched_off_does_not_hide_what_came_after",),
    ),
    Mutant(
        "rows_below_the_replay_start_asked_of_the_lake",
        "P4",
        KEYED_PLAN,
        "    if end and start <= part.stop:\n",
        "    if end and start <= end:\n",
        (f"{IN_KEYED}::test_a_bucket_tiered_late_is_reported_from_before_by_the_cluster",),
    ),
    Mutant(
        "rows_of_the_lake_that_a_long_log_ends_kept",
        "P4",
        KEYED_ROWS,
        "        self._ended = ended\n        if",
        "        self._ended = ended[:0]\n        if",
        (f"{IN_PK_MERGE}::test_rows_of_any_moment_are_those_of_the_model",),
    ),
    Mutant(
        "live_rows_that_were_kept_read_again",
        "P4",
        KEYED_ROWS,
        "                self._rest = _rest_of(part, position)\n",
        "                self._rest = part\n",
        (f"{IN_PK_MERGE}::test_rows_of_any_moment_are_those_of_the_model",),
    ),
    Mutant(
        "live_rows_read_however_much_came_after",
        "P4",
        LIVE_ROWS,
        "moment - part.stop > back_max:\n",
        "moment < 0:\n",
        (f"{IN_PK_MERGE}::test_a_moment_far_behind_the_live_rows_is_read_by_the_log",),
    ),
    Mutant(
        "live_rows_waited_for_though_there_is_the_log",
        "P14",
        LIVE_ROWS,
        "begin_ms = None if back_max is None else 0\n",
        "begin_ms = None\n",
        ("tests/unit/read/union/test_crowded_scans.py::test_a_reader_that_has_the_log_does_not_wait_for_a_place",),
    ),
    Mutant(
        "previous_offsets_cut_within_a_batch",
        "P4",
        "fluss_lab/server/tablet/requests/fetch_log.py",
        "    stop = header.next_offset if fits else header.base_offset\n",
        "    stop = last + 1\n",
        ("tests/unit/server/tablet/requests/test_fetch_log.py::test_they_are_those_of_the_whole_batches_up_to_a_stop",),
    ),
    Mutant(
        "previous_offsets_of_other_records_taken",
        "P4",
        "fluss_lab/client/log/previous_offset_reader.py",
        "        if not begin <= offset < begin + len(values):\n",
        "        if not len(values):\n",
        ("tests/unit/client/log/test_previous_offset_reader.py::test_an_answer_of_other_records_is_an_error",),
    ),
    Mutant(
        "live_rows_from_an_offset_on_begin_behind_it",
        "P4",
        "fluss_lab/server/kv/store_view.py",
        "chunk.data.offsets.searchsorted(start_offset)",
        "chunk.data.offsets.searchsorted(start_offset, side='right')",
        (
            "tests/unit/server/tablet/requests/test_bucket_scans.py::test_a_scan_from_an_offset_on_has_the_rows_that_changed_since",
        ),
    ),
    Mutant(
        "live_rows_of_later_taken",
        "P4",
        LIVE_ROWS,
        "np.searchsorted(offsets, [self._part.log_start, self._row_stop])",
        "np.searchsorted(offsets, [self._part.log_start, 1 << 62])",
        (f"{IN_PK_UNDO}::test_many_rows_taken_back_are_taken_in_order",),
    ),
    Mutant(
        "what_came_after_the_scan_began_not_taken_back",
        "P4",
        LIVE_ROWS,
        "        yield from request.pauses(rows.take_back(moment), part.log_start)\n",
        "",
        (f"{IN_KEYED}::test_what_is_written_between_a_look_and_a_scan_is_taken_back",),
    ),
    Mutant(
        "time_before_all_that_is_held_answered",
        "P4",
        TAKING,
        "    if answer.offset > earliest or not earliest:\n",
        "    if answer.offset >= earliest or not earliest:\n",
        (f"{IN_KEYED}::test_a_time_before_all_that_is_known_is_refused_at_once",),
    ),
    Mutant(
        "snapshot_of_a_moment_forgotten",
        "P4",
        TAKING,
        "            stops[key] = place.stop\n",
        "            stops[key] = known[key].end\n",
        (f"{IN_KEYED}::test_a_moment_is_a_lake_snapshot",),
    ),
    Mutant(
        "read_begins_again_where_it_was",
        "P4",
        "fluss_lab/read/union/read_plan.py",
        "                pending[0] = part = replace(part, start=position)\n",
        "",
        (
            f"{IN_KEYED}::test_a_read_that_has_begun_ends_right_whatever_moves_under_it",
            f"{IN_PK_UNDO}::test_a_scan_of_live_rows_that_the_server_lost_goes_on_where_it_was",
        ),
    ),
    Mutant(
        "snapshot_without_the_partitions_dropped_since",
        "P11",
        LEDGER,
        "                offsets = {**_offsets(db, table_id, first), **offsets}\n",
        "                pass\n",
        (
            f"{IN_LEDGER}::test_a_dropped_partition_is_held_by_the_snapshots_from_before_alone",
            OF_A_DROP,
        ),
    ),
    Mutant(
        "first_version_of_a_snapshot_pruned_alone",
        "P11",
        LEDGER,
        "    newest_gone = newest_gone if row is None else min(newest_gone, _first_version(db, table_id, row[0]) - 1)\n",
        "",
        (f"{IN_LEDGER}::test_what_dropped_partitions_leave_behind_goes_with_the_last_snapshot_that_held_them",),
    ),
    Mutant(
        "snapshot_asked_for_taken_from_the_last_look",
        "P11",
        TAKING,
        "source.snapshot(number, whole=True)",
        "source.snapshot(number)",
        (OF_A_DROP,),
    ),
)

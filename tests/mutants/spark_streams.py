"""Mutants of streams in Spark: the source's offsets, and the sink that writes every batch once."""

from tests.mutants.mutant import Mutant

IN_STREAM_LOSSES = "tests/unit/spark/source/test_stream_losses.py"
IN_SINK_JOURNAL = "tests/unit/spark/sink/test_sink_journal.py"
OFFSETS = "fluss_lab/read/changelog/stream_offsets.py"
ADMISSION = "fluss_lab/read/changelog/admission_control.py"
STREAM = "fluss_lab/read/changelog/table_stream.py"
COMMIT = "fluss_lab/spark/sink/exactly_once_commit.py"
SENDING = "fluss_lab/spark/sink/sink_resend.py"
JOURNAL = "fluss_lab/spark/sink/sink_journal.py"
ROWS = "fluss_lab/spark/sink/sink_rows.py"
REGISTRATION = "fluss_lab/spark/registration.py"

IN_OFFSETS = "tests/unit/spark/source/test_stream_offsets.py"
IN_SPARK = "tests/spark/test_stream_spark.py"
IN_SOURCE = "tests/unit/spark/source/test_stream_source.py"
IN_SINK = "tests/unit/spark/sink/test_table_sink.py"
IN_SINK_DAMAGE = "tests/unit/spark/sink/test_sink_damage.py"

#: P4: a reader gets every record once, and none that is not his.
SOURCE = (
    Mutant(
        "starting_stream_breaks_tasks_of_another",
        "P4",
        REGISTRATION,
        "jvm.java.util.concurrent.ConcurrentHashMap(made.envVars())",
        "jvm.java.util.HashMap(made.envVars())",
        (f"{IN_SPARK}::test_a_stream_may_start_while_tasks_of_another_one_are_serialized",),
    ),
    Mutant(
        "changed_notes_of_a_sink_believed",
        "P11",
        JOURNAL,
        "            check_checksum(path, json.loads(data))\n",
        "            pass\n",
        (f"{IN_SINK_DAMAGE}::test_a_flipped_bit_in_a_sink_s_notes_is_refused_or_means_nothing[sink.json]",),
    ),
    Mutant(
        "sink_without_its_notes_begins_anew",
        "P11",
        COMMIT,
        "        if state is None and batch_id > FIRST_BATCH:\n",
        "        if state is None and batch_id < FIRST_BATCH:\n",
        (f"{IN_SINK_DAMAGE}::test_without_notes_of_the_batches_before_none_is_written",),
    ),
    Mutant(
        "changed_offsets_of_a_checkpoint_believed",
        "P11",
        OFFSETS,
        "            _check_unchanged(value)\n",
        "",
        (f"{IN_OFFSETS}::test_an_offset_in_which_a_byte_was_changed_is_refused_or_the_same",),
    ),
    Mutant(
        "streams_take_old_partitions_for_new",
        "P4",
        OFFSETS,
        "is_new = bucket.partition_id is not None and bucket.partition_id > self.newest_partition",
        "is_new = bucket.partition_id is not None",
        (f"{IN_SOURCE}::test_buckets_that_offsets_leave_out_are_never_read_and_new_partitions_are",),
    ),
    Mutant(
        "first_batches_begin_where_the_query_would_now",
        "P4",
        STREAM,
        "        begins = start.offsets if end.origin is None else end.origin\n",
        "        begins = start.offsets\n",
        (
            f"{IN_SOURCE}::test_a_first_batch_that_is_run_again_is_what_it_was_wherever_the_query_would_start_now",
            f"{IN_SPARK}::test_a_first_batch_that_failed_comes_again_whole_wherever_the_query_is_said_to_start_by_then",
        ),
    ),
    Mutant(
        "small_limits_serve_the_first_bucket",
        "P4",
        ADMISSION,
        "hungry.sort(key=lambda index: (index - turn) % len(backlogs))",
        "hungry.sort(key=lambda index: index)",
        ("tests/unit/read/changelog/test_admission_control.py::test_every_bucket_gets_on_with_the_smallest_limit",),
    ),
    Mutant(
        "stream_goes_on_in_another_table",
        "P4",
        STREAM,
        "        if info.table_id != expected:",
        "        if info.table_id < 0:",
        (f"{IN_STREAM_LOSSES}::test_a_table_made_again_is_refused",),
    ),
    Mutant(
        "stream_goes_on_in_another_lab",
        "P13",
        STREAM,
        "        if made_ms is not None and made_ms != info.created_ms:\n",
        "        if made_ms is not None and made_ms < 0:\n",
        (f"{IN_STREAM_LOSSES}::test_a_table_of_a_lab_that_was_made_anew_is_refused",),
    ),
    Mutant(
        "stream_starts_in_another_lab",
        "P13",
        "fluss_lab/spark/source/stream_source.py",
        "    if info.created_ms != expected_ms:\n",
        "    if info.created_ms < 0:\n",
        (f"{IN_STREAM_LOSSES}::test_a_stream_that_had_not_begun_when_its_lab_was_made_anew_is_refused",),
    ),
    Mutant(
        "stream_starts_in_another_partition",
        "P13",
        "fluss_lab/spark/source/stream_source.py",
        "        if number not in meant:\n",
        "        if number < 0:\n",
        (
            f"{IN_STREAM_LOSSES}::test_a_stream_that_had_not_begun_when_a_partition_of_its_start_was_made_again_is_refused",
        ),
    ),
    Mutant(
        "available_now_follows_the_table",
        "P4",
        STREAM,
        "end = each.end if self._pinned is None else min(each.end, self._pinned.get(each.bucket, begin))",
        "end = each.end",
        (f"{IN_SOURCE}::test_available_now_ends_at_what_there_was",),
    ),
    Mutant(
        "records_lost_with_their_partition_go_unnoticed",
        "P4",
        STREAM,
        "        self._loss.report_drops(found.lost, start)\n",
        "",
        (f"{IN_STREAM_LOSSES}::test_records_that_go_with_their_partition_end_a_stream_unless_they_may_be_lost",),
    ),
    Mutant(
        "read_records_of_a_dropped_partition_said_to_be_lost",
        "P4",
        "fluss_lab/read/changelog/data_loss.py",
        " or not each.reach(begin)",
        "",
        (f"{IN_STREAM_LOSSES}::test_a_partition_made_again_is_another_one",),
    ),
    Mutant(
        "losses_hidden_by_a_first_offset_asked_for_again",
        "P4",
        STREAM,
        "        drops = newest_lossy_drop(self._source.connection, self._source.info)\n",
        "        drops = self._drops_seen = newest_lossy_drop(self._source.connection, self._source.info)\n",
        (f"{IN_STREAM_LOSSES}::test_a_loss_is_not_forgotten_where_the_first_offset_is_asked_for_again",),
    ),
    Mutant(
        "lost_records_go_unnoticed",
        "P4",
        "fluss_lab/read/changelog/data_loss.py",
        "        if self.fails:\n            raise error",
        "        if False:\n            raise error",
        (f"{IN_STREAM_LOSSES}::test_records_that_are_gone_end_a_stream_unless_they_may_be_lost",),
    ),
)

#: P14: a stream that waits costs next to nothing.
WAITING = (
    Mutant(
        "waiting_streams_ask_all_the_time",
        "P14",
        "fluss_lab/spark/source/stream_source.py",
        "        is_quiet = stream.wait(_IDLE_S)\n",
        "        is_quiet = True\n",
        (f"{IN_SOURCE}::test_a_stream_that_waits_asks_seldom_and_hears_of_records_at_once",),
    ),
    Mutant(
        "waiting_streams_see_no_new_partitions",
        "P14",
        "fluss_lab/spark/source/stream_source.py",
        "        return is_quiet and not self._info.descriptor.partitioned_by and",
        "        return is_quiet and",
        (f"{IN_SOURCE}::test_a_stream_that_waits_sees_new_partitions",),
    ),
    Mutant(
        "waiting_streams_take_errors_for_silence",
        "P14",
        "fluss_lab/client/log/range_reader.py",
        "    return has_come is False\n",
        "    return not has_come\n",
        (f"{IN_SOURCE}::test_a_stream_that_waits_sees_that_its_table_is_gone",),
    ),
)

#: P6: a batch can be interrupted anywhere and repeated; it is written once.
SINK = (
    Mutant(
        "done_batch_is_written_again",
        "P6",
        COMMIT,
        "            if batch_id > state.done:",
        "            if batch_id >= 0:",
        (f"{IN_SINK}::test_a_batch_without_rows_is_done_too",),
    ),
    Mutant(
        "what_was_written_down_is_not_the_batch",
        "P6",
        COMMIT,
        "intent = self._folder.intent(self._info.table_id)",
        "intent = None",
        (f"{IN_SINK}::test_what_was_written_down_is_the_batch_whatever_tasks_bring_later",),
    ),
    Mutant(
        "writer_of_a_sink_decided_with_its_first_rows",
        "P6",
        COMMIT,
        "            return state.writer_id\n",
        "            return new_writer_id(self._connection, self._info)\n",
        (f"{IN_SINK_JOURNAL}::test_a_checkpoint_from_before_the_first_rows_is_refused_when_there_are_some",),
    ),
    Mutant(
        "batch_done_whatever_it_is_made_of",
        "P6",
        COMMIT,
        "        known = state.extent if batch_id == state.done else None\n",
        "        known = None\n",
        (
            f"{IN_SINK_JOURNAL}::test_a_batch_that_spark_plans_anew_is_not_taken_for_the_one_that_was_written[sink.done.after]",
        ),
    ),
    Mutant(
        "batch_under_way_whatever_it_is_made_of",
        "P6",
        COMMIT,
        "            known = intent.extent\n",
        "            pass\n",
        (
            f"{IN_SINK_JOURNAL}::test_a_batch_that_spark_plans_anew_is_not_taken_for_the_one_that_was_written[sink.intent.after]",
        ),
    ),
    Mutant(
        "batches_of_before_the_last_one_passed_over",
        "P6",
        COMMIT,
        "        if batch_id < state.done:\n",
        "        if batch_id < -1:\n",
        (
            f"{IN_SINK_JOURNAL}::test_a_batch_that_spark_plans_anew_is_not_taken_for_the_one_that_was_written[sink.done.after]",
        ),
    ),
    Mutant(
        "sink_of_another_query",
        "P6",
        COMMIT,
        "        if state.query != query:",
        "        if not query:",
        (f"{IN_SINK_JOURNAL}::test_another_query_is_refused",),
    ),
    Mutant(
        "sink_of_another_table",
        "P6",
        COMMIT,
        "        if table_id is not None and table_id != self._info.table_id:",
        "        if table_id is not None and not table_id:",
        (f"{IN_SINK_JOURNAL}::test_a_table_made_again_is_refused",),
    ),
    Mutant(
        "sink_of_another_lab",
        "P13",
        COMMIT,
        "        if created_ms is not None and created_ms != self._info.created_ms:\n",
        "        if created_ms is not None and created_ms < 0:\n",
        (f"{IN_SINK_JOURNAL}::test_a_table_of_a_lab_that_was_made_anew_is_refused",),
    ),
    Mutant(
        "first_batch_goes_on_in_another_table",
        "P13",
        COMMIT,
        "                self._check_table(intent.table_id, intent.created_ms)\n",
        "                pass\n",
        (f"{IN_SINK_JOURNAL}::test_a_first_batch_under_way_is_of_the_table_that_it_was_written_down_for",),
    ),
    Mutant(
        "progress_of_the_batch_before",
        "P6",
        JOURNAL,
        "if found is None or found.batch_id != intent.batch_id:",
        "if found is None:",
        (f"{IN_SINK_JOURNAL}::test_progress_of_another_batch_is_not_taken",),
    ),
    Mutant(
        "first_number_not_noted",
        "P6",
        SENDING,
        "            return not position.sequence",
        "            return False",
        (f"{IN_SINK}::test_a_forgotten_writer_is_found_in_the_log",),
    ),
    Mutant(
        "forgotten_writer_begins_anew",
        "P6",
        SENDING,
        "        ahead = self._find_written(each.bucket, position) if position.sequence else {}",
        "        ahead: dict[int, int] = {}",
        (f"{IN_SINK}::test_a_forgotten_writer_is_found_in_the_log",),
    ),
    Mutant(
        "abort_takes_what_was_written_down",
        "P6",
        JOURNAL,
        "                self.remove(set(names) - kept)",
        "                self.remove(set(names))",
        (f"{IN_SINK}::test_a_batch_is_written_once_whichever_step_fails",),
    ),
    Mutant(
        "two_processes_write_at_once",
        "P6",
        JOURNAL,
        "            while not try_lock(fd):",
        "            while False:",
        (f"{IN_SINK_JOURNAL}::test_two_processes_do_not_write_at_once",),
    ),
    Mutant(
        "deletes_after_all_upserts",
        "P6",
        ROWS,
        "            body = body.take(pa.array(back))",
        "            body = body.take(pa.array(np.arange(len(back))))",
        (f"{IN_SINK}::test_change_types_say_what_is_done_with_a_row",),
    ),
    Mutant(
        "rows_that_a_whole_result_lacks_stay",
        "P4",
        COMMIT,
        "            if self._is_whole:\n",
        "            if self._is_whole and not batch_id:\n",
        (f"{IN_SINK}::test_a_whole_result_takes_the_place_of_the_one_before_whichever_step_fails[keyed-None]",),
    ),
    Mutant(
        "whole_result_into_a_table_that_ignores_deletes",
        "P4",
        "fluss_lab/spark/sink/complete_mode.py",
        'in {"ignore", "disable"}',
        'in {"disable"}',
        (f"{IN_SINK}::test_tables_that_cannot_be_made_equal_to_a_result_say_so",),
    ),
    Mutant(
        "staged_rows_of_a_full_disk_stay_on_it",
        "P9",
        "fluss_lab/spark/sink/sink_staging.py",
        "        with suppress(OSError):  # a full disk takes no end of the file either\n",
        "        with suppress(ValueError):\n",
        (f"{IN_SINK_JOURNAL}::test_rows_that_the_disk_does_not_take_leave_nothing_and_it_is_said",),
    ),
)

SPARK_STREAMS = SOURCE + WAITING + SINK

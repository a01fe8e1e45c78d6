"""Mutants of the client of primary-key tables: what is sent, what is taken for an answer, schemas by their ids."""

from tests.mutants.mutant import Mutant

WRITER = "fluss_lab/client/write/table_writer.py"
KINDS = "fluss_lab/client/write/write_requests.py"
QUEUES = "fluss_lab/client/write/bucket_queue.py"
SENDER = "fluss_lab/client/write/batch_sender.py"
UPSERT = "fluss_lab/client/write/upsert_writer.py"
LOOKUP = "fluss_lab/client/kv/lookuper.py"
LOOKUP_WIRE = "fluss_lab/client/kv/lookup_codec.py"
QUEUE = "fluss_lab/client/kv/single_key_queue.py"
KEPT = "fluss_lab/client/kv/kept_lookupers.py"
KV_SCAN = "fluss_lab/client/kv/kv_scan.py"
FETCHING = "fluss_lab/client/log/fetch_codec.py"
EVOLVE = "fluss_lab/records/log_records.py"

IN_UPSERT = "tests/unit/client/write/test_upsert_writer.py"
IN_INTERRUPTED = "tests/unit/client/write/test_interrupted_writes.py"
IN_WRITING = "tests/unit/client/write/test_writing.py"
IN_GATHERED = "tests/unit/client/write/test_linger.py"
IN_LOOKUP = "tests/unit/client/kv/test_lookuper.py"
IN_QUEUE = "tests/unit/client/kv/test_single_key_queue.py"
IN_KEPT = "tests/unit/client/kv/test_kept_lookupers.py"
IN_KV_SCAN = "tests/unit/client/kv/test_kv_scan.py"
IN_SCHEMAS = "tests/unit/client/cluster/test_schemas.py"
IN_FETCHING = "tests/unit/client/log/test_fetch_codec.py"

#: P1: what was acknowledged is there, once, as it was sent. P4: what is read is what is there. P7: nothing corrupt is
#: taken for an answer. P8: what is wrong is refused before it is sent.
CLIENT_KV = (
    Mutant(
        "left_out_column_of_a_partial_update_erased", "P8", "fluss_lab/model/values/row_input.py",
        "        if self.complete and (missing := [name for name, _ in self.wanted if name not in taken]):",
        "        if not taken and (missing := [name for name, _ in self.wanted if name not in taken]):",
        (f"{IN_UPSERT}::test_a_partial_update_needs_every_column_it_names",),
    ),
    Mutant(
        "made_of_another_value_at_a_glance", "P8", "fluss_lab/model/values/plain_rows.py",
        "            if getattr(found, own) is not row.get(name):",
        "            if getattr(found, own) is row:",
        ("tests/unit/model/values/test_plain_rows.py::test_what_passes_becomes_what_the_long_way_makes_of_it",),
    ),
    Mutant(
        "made_of_another_value_of_the_first_columns", "P8", "fluss_lab/model/values/plain_rows.py",
        "if found.made0 is not row.get(self._made0) or found.made1 is not row.get(self._made1):",
        "if found.made0 is not row.get(self._made0) or found.made1 is row:",
        ("tests/unit/model/values/test_plain_rows.py::test_what_passes_becomes_what_the_long_way_makes_of_it",),
    ),
    Mutant(
        "text_without_bytes_let_through", "P8", "fluss_lab/model/values/plain_rows.py",
        "        text = found.text\n        if text is not None and not text.isascii() and not is_unicode(text):",
        "        text = found.text\n        if text is not None and text.isascii() and not is_unicode(text):",
        (f"{IN_GATHERED}::test_a_wrong_row_is_refused_when_it_is_given_and_no_other_is",),
    ),
    Mutant(
        "further_text_without_bytes_let_through", "P8", "fluss_lab/model/values/plain_rows.py",
        "            if text is not None and not text.isascii() and not is_unicode(text):",
        "            if text is not None and text.isascii() and not is_unicode(text):",
        ("tests/unit/model/values/test_plain_rows.py::test_what_passes_becomes_what_the_long_way_makes_of_it",),
    ),
    Mutant(
        "single_rows_overtaken_by_calls", "P4", WRITER,
        "            if self._single is not None:\n                self._single.drain()\n            self._queue_rows",
        "            self._queue_rows",
        (f"{IN_GATHERED}::test_rows_keep_their_order_among_calls_of_other_forms",),
    ),
    Mutant(
        "single_row_that_came_late_left_behind", "P1", "fluss_lab/client/write/linger.py",
        "                    if 0 <= gathering.place_of(row) < (gathering.taken or 0):",
        "                    if 0 <= gathering.place_of(row):",
        (f"{IN_GATHERED}::test_a_row_that_comes_late_goes_with_the_next",),
    ),
    Mutant(
        "batches_of_a_request_that_the_answer_does_not_cover", "P1", KINDS,
        "        if edges[-1] != end:\n            return None\n    found",
        "        if not edges:\n            return None\n    found",
        (f"{IN_WRITING}::test_the_batches_of_a_request_share_its_offsets_and_only_all_of_them",),
    ),
    Mutant(
        "more_batches_together_than_the_server_remembers", "P1", QUEUES,
        "not self.waiting or len(self.unacked) >= UNACKED_MAX:",
        "not self.waiting:",
        (f"{IN_WRITING}::test_no_more_batches_travel_together_than_the_server_remembers",),
    ),
    Mutant(
        "gathered_rows_not_reported", "P12", WRITER,
        "unsent=progress.unsent + gathered)",
        "unsent=progress.unsent)",
        (f"{IN_GATHERED}::test_gathered_rows_are_reported_settled_and_abandoned",),
    ),
    Mutant(
        "partial_update_without_its_key", "P8", UPSERT,
        "if absent := [name for name in schema.primary_key if name not in given]:",
        "if absent := [name for name in schema.primary_key if not given]:",
        (f"{IN_UPSERT}::test_partial_updates_that_cannot_be_are_refused",),
    ),
    Mutant(
        "forbidden_delete_sent", "P8", UPSERT,
        'if DELETE_BEHAVIOR.of(self._info.descriptor.properties) == "disable":',
        'if DELETE_BEHAVIOR.of(self._info.descriptor.properties) == "":',
        (f"{IN_UPSERT}::test_deletes_that_a_table_forbids_are_refused_and_its_other_rows_go_on",),
    ),
    Mutant(
        "partition_made_for_a_delete", "P8", WRITER,
        "create=change is not ChangeType.DELETE",
        "create=change is not None",
        (f"{IN_UPSERT}::test_partitions_are_made_for_upserts_and_not_for_deletes",),
    ),
    Mutant(
        "delete_sent_as_upsert", "P1", KINDS,
        "[piece.change] * piece.rows.num_rows",
        "[batch.pieces[0].change] * piece.rows.num_rows",
        (
            f"{IN_WRITING}::test_the_order_and_change_of_every_row_survive_the_cuts",
            f"{IN_UPSERT}::test_calls_keep_their_order_also_mixed_in_one_batch",
        ),
    ),
    Mutant(
        "any_changelog_taken_for_an_answer", "P1", KINDS,
        "if not base <= end <= base + CHANGES_PER_ROW_MAX * batch.rows:",
        "if base < 0:",
        (f"{IN_WRITING}::test_a_changelog_that_cannot_be_is_not_taken_for_an_answer",),
    ),
    Mutant(
        "doubtful_batch_cut", "P1", QUEUES,
        "batch.rows <= rows_max or batch.doubtful:",
        "batch.rows <= rows_max:",
        (f"{IN_WRITING}::test_a_batch_that_may_be_in_the_log_is_not_cut",),
    ),
    Mutant(
        "cut_batches_keep_their_numbers", "P1", QUEUES,
        "        self._number(batch.sequence)\n",
        "        self.unacked[0].sequence = batch.sequence\n",
        (f"{IN_WRITING}::test_a_batch_found_too_large_is_cut_and_what_follows_numbered_anew",),
    ),
    Mutant(
        "batch_that_may_be_written_cut_unread", "P1", SENDER,
        "        too_large = too_large and not (is_unread and batch.doubtful)\n",
        "",
        (
            "tests/unit/client/write/test_upsert_writer.py"
            "::test_rows_that_may_be_written_are_not_cut_when_a_request_is_refused_unread",
        ),
    ),
    Mutant(
        "retry_refused_where_the_limit_was_lowered", "P1", "fluss_lab/server/tablet/requests/write_payloads.py",
        "    if not isinstance(error, RecordTooLargeError):\n",
        "    if error:\n",
        (
            "tests/unit/server/tablet/requests/test_put_kv.py"
            "::test_a_retry_is_known_though_the_limit_was_lowered_since",
        ),
    ),
    Mutant(
        "failed_upsert_of_a_dropped_partition_hidden", "P1", QUEUES,
        "failed = not (self.change is ChangeType.DELETE and isinstance(error, PartitionNotFoundError))",
        "failed = not isinstance(error, PartitionNotFoundError)",
        (f"{IN_WRITING}::test_only_a_delete_is_done_when_its_partition_is_gone",),
    ),
    Mutant(
        "prefix_silently_shortened", "P4", LOOKUP,
        "names, others=False)",
        "names, others=bool(names))",
        ("tests/unit/client/kv/test_prefix_lookups.py::test_a_prefix_is_exactly_the_bucket_key",),
    ),
    Mutant(
        "rows_and_marks_not_compared", "P7", LOOKUP_WIRE,
        "if len(marks) != len(part.positions) or not _are_counts(marks, rows.num_rows):",
        "if marks.size < 0:",
        (f"{IN_LOOKUP}::test_an_answer_that_cannot_be_is_refused",),
    ),
    Mutant(
        "many_marks_not_added_up", "P7", LOOKUP_WIRE,
        "    return int(marks.min()) >= 0 and int(marks.sum(dtype=np.int64)) == total\n",
        "    return int(marks.min()) >= 0\n",
        (f"{IN_LOOKUP}::test_an_answer_about_many_keys_that_cannot_be_is_refused",),
    ),
    Mutant(
        "stale_partition_looked_up", "P4", LOOKUP,
        "                self._connection.forget_partitions(self._info)\n",
        "                self._connection.forget_leaders()\n",
        (f"{IN_LOOKUP}::test_keys_of_partitions_that_do_not_exist_are_absent",),
    ),
    Mutant(
        "rows_of_a_shared_call_given_to_others", "P4", LOOKUP,
        "            place += 1\n",
        "            place += 0\n",
        (f"{IN_LOOKUP}::test_rows_of_one_call_go_each_to_its_lookup",),
    ),
    Mutant(
        "key_out_of_range_shared", "P8", LOOKUP_WIRE,
        "    return lambda value: -half <= value < half\n",
        "    return lambda value: half > 0\n",
        (f"{IN_LOOKUP}::test_lookups_at_once_of_keys_that_cannot_be_fail_by_themselves",),
    ),
    Mutant(
        "waiting_lookups_try_a_server_that_is_away_one_call_after_another", "P12", QUEUE,
        "            self._let_go(lane, calls=0)\n",
        "            lane.calls -= 0\n",
        (f"{IN_QUEUE}::test_when_no_server_answers_those_that_wait_try_by_themselves",),
    ),
    Mutant(
        "interrupted_lookup_trusted_to_wake_the_next", "P12", QUEUE,
        "        if each.is_interruptible:\n",
        "        if each is None:\n",
        (f"{IN_QUEUE}::test_who_is_interrupted_while_the_call_is_made_leaves_nobody_waiting",),
    ),
    Mutant(
        "kept_lookuper_outlives_the_drop", "P13", "fluss_lab/client/admin.py",
        "            self._connection.kept_lookupers.forget(path.database, path.table)\n",
        "            assert self._connection\n",
        (f"{IN_KEPT}::test_a_drop_by_the_same_client_forgets_what_is_kept",),
    ),
    Mutant(
        "lookuper_opened_before_a_drop_kept_after_it", "P13", KEPT,
        "                if era != self._era:\n",
        "                if era < 0:\n",
        (f"{IN_KEPT}::test_what_was_opened_before_a_drop_is_not_kept_after",),
    ),
    Mutant(
        "kept_lookuper_misses_new_columns", "P4", KEPT,
        "                if not (columns is None and kept.lookuper.is_outdated):",
        "                if columns is None or not kept.lookuper.is_outdated:",
        (f"{IN_KEPT}::test_columns_that_another_client_added_are_found",),
    ),
    Mutant(
        "kept_lookuper_refuses_what_fits_now", "P13", KEPT,
        "            except (InvalidError, NotFoundError):",
        "            except ZeroDivisionError:",
        (f"{IN_KEPT}::test_a_kept_one_of_a_table_made_anew_does_not_answer_for_it",),
    ),
    Mutant(
        "lost_scan_begun_again_in_the_middle", "P4", KV_SCAN,
        "            except _ScanLostError as lost:\n                raise UnavailableError(",
        "            except _ScanLostError as lost:\n                answer = self._begin()\n                continue\n"
        "                raise UnavailableError(",
        (f"{IN_KV_SCAN}::test_a_scan_begins_after_a_restart_and_one_that_began_before_it_fails",),
    ),
    Mutant(
        "schema_of_another_table_taken", "P4", "fluss_lab/client/cluster/metadata_cache.py",
        "if (mine.name, mine.type) != (theirs.name, theirs.type):",
        "if mine.name is theirs:",
        (f"{IN_SCHEMAS}::test_the_schema_of_another_table_of_the_path_is_not_taken",),
    ),
    Mutant(
        "old_batch_read_by_the_present_schema", "P4", FETCHING,
        "            found = self._full[schema_id] = self._schema_of(schema_id).arrow_schema\n",
        "            found = self._full[schema_id] = self._full[self.schema_id]\n",
        (f"{IN_SCHEMAS}::test_every_batch_is_brought_to_the_readers_schema",),
    ),
    Mutant(
        "previous_offsets_not_counted", "P7", FETCHING,
        "        if len(taken) != count:\n",
        "        if len(taken) > count:\n",
        (f"{IN_FETCHING}::test_previous_offsets_are_as_many_as_records",),
    ),
    Mutant(
        "padding_lets_nulls_in", "P8", EVOLVE,
        "    if not field.nullable and column.null_count:\n",
        "    if field is column:\n",
        (f"{IN_SCHEMAS}::test_padding_refuses_what_would_change_or_lose_values",),
    ),
    Mutant(
        "rows_given_up_without_an_error", "P1", "fluss_lab/client/write/record_accumulator.py",
        "            if (error := self._unread_failure()) is not None:\n                raise error\n",
        "",
        (f"{IN_WRITING}::test_a_call_that_waited_for_room_is_not_queued_behind_one_that_failed_meanwhile",),
    ),
    Mutant(
        "given_up_rows_reported_as_written", "P12", "fluss_lab/client/write/record_accumulator.py",
        "queues, refusals, self._given_up)",
        "queues, refusals, 0)",
        (f"{IN_INTERRUPTED}::test_rows_that_were_given_up_before_are_never_reported_as_written",),
    ),
    Mutant(
        "rows_given_up_for_another_partition", "P1", SENDER,
        "                if len(unknown) > 1:",
        "                if not unknown:",
        (f"{IN_UPSERT}::test_what_another_partition_was_dropped_for_is_done_all_the_same",),
    ),
    Mutant(
        "delete_from_a_partition_made_again_taken_for_done", "P1", SENDER,
        "        if again is None or again.partition_id == batch.queue.bucket.partition_id:\n",
        "        if again or not again:\n",
        (f"{IN_UPSERT}::test_a_delete_from_a_partition_that_was_made_again_is_refused_not_taken_for_done",),
    ),
    Mutant(
        "rows_of_a_partition_dropped_at_once_acknowledged", "P1", "fluss_lab/client/write/dynamic_partitions.py",
        "        if gone := sorted(names - known.keys()):\n",
        "        if gone := sorted(names - names):\n",
        (f"{IN_UPSERT}::test_a_partition_that_is_dropped_as_soon_as_it_is_made_takes_no_rows",),
    ),
    Mutant(
        "records_from_behind_damage_returned", "P7", "fluss_lab/client/log/log_scanner.py",
        "        if position.damage is not None:",
        "        if position.damage is content:",
        ("tests/unit/client/log/test_log_scanner.py::test_nothing_from_behind_damage_comes_before_its_error",),
    ),
    Mutant(
        "another_table_taken_for_the_one_asked_for", "P13", "fluss_lab/client/admin.py",
        "        if found is not None and not _is_as_asked(info.descriptor, descriptor):\n",
        "        if found is not None and not info:\n",
        ("tests/unit/client/test_admin.py::test_another_table_is_not_taken_for_the_one_that_an_outage_may_have_made",),
    ),
)  # fmt: skip

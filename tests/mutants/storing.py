"""Mutants of what keeps bytes: the log, its files, its writers."""

from tests.mutants.mutant import (
    BATCH,
    BUCKET,
    CHECKS,
    IN_FILES,
    IN_LOG,
    IN_OFFSETS,
    IN_RECORDS,
    IN_RECOVERY,
    IN_RETENTION,
    IN_SERVICE,
    IN_WRITERS,
    LOG,
    RECOVERY,
    RETENTION,
    SEGMENT,
    SEGMENTS,
    Mutant,
)

#: P7: corrupt bytes are never served: they stop the bucket, with a message.
BYTES = (
    Mutant(
        "decode_without_crc", "P7", BATCH,
        "    if (found := checksum(whole[CRC_START:])) != header.crc:",
        "    if (found := header.crc) != header.crc:",
        (f"{IN_RECORDS}::test_every_flipped_byte_is_noticed",),
    ),
    Mutant(
        "arrow_not_validated_in_full", "P7", BATCH,
        "rows.validate(full=True)",
        "rows.validate()",
        (f"{IN_RECORDS}::test_what_the_crc_cannot_see_is_still_checked",),
    ),
    Mutant(
        "nulls_not_checked", "P7", BATCH,
        "if rows.column(index).null_count:",
        "if index < 0:",
        (f"{IN_RECORDS}::test_what_the_crc_cannot_see_is_still_checked",),
    ),
    Mutant(
        "record_count_not_checked", "P7", BATCH,
        "if rows.num_rows != header.record_count:",
        "if rows.num_rows < 0:",
        (f"{IN_RECORDS}::test_what_the_crc_cannot_see_is_still_checked",),
    ),
    Mutant(
        "payload_without_crc", "P7", CHECKS,
        "    if (found := checksum(data[CRC_START:])) != header.crc:",
        "    if (found := header.crc) != header.crc:",
        (f"{IN_SERVICE}::test_a_bad_payload_is_refused_whole_and_the_others_are_appended",),
    ),
    Mutant(
        "recovery_without_crc", "P7", RECOVERY,
        "        if (found := checksum(whole[CRC_START:])) != header.crc:",
        "        if (found := header.crc) != header.crc:",
        (f"{IN_RECOVERY}::test_damage_before_a_valid_batch_stops_the_bucket_with_a_message",),
    ),
    Mutant(
        "index_trusted", "P7", "fluss_lab/server/tablet/log/sparse_index.py",
        "if google_crc32c.value(offsets) != mark.offsets_crc or google_crc32c.value(times) != mark.times_crc:",
        "if mark.entries < 0:",
        (f"{IN_RECOVERY}::test_an_index_cut_or_flipped_anywhere_changes_no_answer",),
    ),
    Mutant(
        "recovery_point_trusted", "P7", "fluss_lab/records/checksummed_json.py",
        "return body if seal_content(body) == data else None",
        "return body",
        (f"{IN_RECOVERY}::test_a_recovery_point_cut_or_flipped_anywhere_changes_nothing",),
    ),
    Mutant(
        "corruption_taken_for_a_torn_tail", "P7", RECOVERY,
        "valid = find_batch(segment.path, segment.size + 1, segment.end_offset)",
        "valid = find_batch(segment.path, 1 << 62, segment.end_offset)",
        (
            f"{IN_RECOVERY}::test_damage_before_a_valid_batch_stops_the_bucket_with_a_message",
            f"{IN_RECOVERY}::test_a_valid_batch_is_found_behind_garbage_of_any_length",
        ),
    ),
    Mutant(
        "damage_below_the_recovery_point_is_cut_off", "P7", RECOVERY,
        "        if segment.end_offset < self._floor:\n",
        "        if segment.end_offset < 0:\n",
        (f"{IN_RECOVERY}::test_bytes_missing_below_the_recovery_point_stop_the_bucket",),
    ),
    Mutant(
        "torn_segment_before_another_is_cut_off", "P7", RECOVERY,
        "elif after is not None:",
        "elif segment.size < 0:",
        (f"{IN_RECOVERY}::test_a_torn_segment_before_another_one_is_damage",),
    ),
    Mutant(
        "gap_between_segments_passed_over", "P7", RECOVERY,
        "if result.segments and (expected := result.segments[-1].end_offset) != base_offset:",
        "if result.segments and (expected := result.segments[-1].end_offset) > base_offset:",
        (f"{IN_RECOVERY}::test_missing_segments_stop_the_bucket",),
    ),
    Mutant(
        "read_headers_not_chained", "P7", SEGMENT,
        "bad = base != offset or not floor_ms <= timestamp <= mark_ms or magic != MAGIC or count < 0",
        "bad = magic != MAGIC or count < 0",
        (f"{IN_RECOVERY}::test_a_segment_with_any_byte_flipped_is_never_read_wrong",),
    ),
    Mutant(
        "damage_that_a_reader_finds_goes_unheeded", "P7", "fluss_lab/server/tablet/log/log_reader.py",
        "        self._stop(kind(text))\n",
        "",
        (f"{IN_RECOVERY}::test_damage_that_a_reader_finds_stops_the_bucket",),
    ),
)  # fmt: skip

#: P1: an acknowledged record survives, and is there once. P6: recovery can be repeated. P9: a full disk heals.
KEEPING = (
    Mutant(
        "acknowledged_before_the_write", "P1", SEGMENT,
        "            _write_all(handle.fd, buffers, self.size)\n",
        "            late = (os.dup(handle.fd), [bytes(each) for each in buffers], self.size)\n"
        "            threading.Timer(0.5, _write_all, late).start()\n",
        ("tests/unit/server/tablet/test_tablet_crashes.py::test_nothing_acknowledged_is_lost[tablet.append.after_write]",),
    ),
    Mutant(
        "acknowledged_before_the_fsync", "P1", "fluss_lab/server/tablet/requests/write_payloads.py",
        "            bucket.log.acknowledge(appended)\n",
        "            bucket.log.high_watermark\n",
        (f"{IN_SERVICE}::test_with_fsync_what_is_acknowledged_is_durable",),
    ),
    Mutant(
        "fsync_does_nothing", "P1", "fluss_lab/files.py",
        "    os.fdatasync(fd)\n",
        "    os.fstat(fd)\n",
        (f"{IN_FILES}::test_the_device_is_asked_for_what_is_to_be_durable",),
    ),
    Mutant(
        "folder_not_made_durable", "P1", "fluss_lab/files.py",
        "    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n        os.fsync(fd)\n",
        "    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n        os.fstat(fd)\n",
        (f"{IN_FILES}::test_the_device_is_asked_for_what_is_to_be_durable",),
    ),
    Mutant(
        "content_swapped_in_before_it_is_durable", "P1", "fluss_lab/files.py",
        "                os.fsync(file.fileno())\n",
        "                os.fstat(file.fileno())\n",
        (f"{IN_FILES}::test_content_is_on_the_device_before_its_name_and_the_name_before_the_return",),
    ),
    Mutant(
        "segment_not_durable_before_the_next", "P1", SEGMENTS,
        "        self.active.sync(self.active.size)\n",
        "",
        (f"{IN_LOG}::test_a_segment_is_on_the_device_before_the_next_one_is_and_that_before_its_records",),
    ),
    Mutant(
        "high_watermark_ignored", "P1", LOG,
        "frontier = self._durable if self._options.fsync else self.segments.frontier",
        "frontier = self.segments.frontier",
        (f"{IN_RETENTION}::test_with_fsync_dropping_segments_shows_no_record_that_is_not_durable",),
    ),
    Mutant(
        "durable_offset_without_fsync", "P1", BUCKET,
        "self.log.sync() if durable else self.log.high_watermark",
        "self.log.high_watermark",
        (f"{IN_OFFSETS}::test_latest_durable_is_made_durable_first",),
    ),
    Mutant(
        "written_on_after_a_failed_fsync", "P1", LOG,
        "                reason = self._stop(error)\n",
        "                reason = error\n",
        (f"{IN_LOG}::test_after_a_failed_fsync_the_log_is_never_written_again",),
    ),
    Mutant(
        "fsync_believed_after_one_that_failed", "P1", "fluss_lab/server/tablet/log/fsync_guard.py",
        "            if self.failure is None:\n                try:",
        "            self.failure = None\n            if self.failure is None:\n                try:",
        (
            f"{IN_LOG}::test_after_a_failed_fsync_nothing_is_called_durable_whatever_stopped_the_log_before",
            "tests/unit/server/tablet/log/test_fsync_guard.py::test_one_that_waited_for_another_which_failed_fails_too",
        ),
    ),
    Mutant(
        "rows_in_a_log_that_is_not_durable_called_unsent", "P1", "fluss_lab/client/write/batch_sender.py",
        "doubtful = is_in_log or isinstance(",
        "doubtful = isinstance(",
        (
            "tests/unit/client/write/test_interrupted_writes.py::"
            "test_rows_in_a_log_whose_fsync_failed_are_in_doubt_and_settled_once_after_a_restart[False]",
        ),
    ),
    Mutant(
        "pages_of_a_failed_fsync_believed", "P1", RECOVERY,
        "if result.corruption is None and (self._folder / SUSPECT_FILE).exists():",
        "if result.corruption is not None and (self._folder / SUSPECT_FILE).exists():",
        (f"{IN_LOG}::test_after_a_restart_the_pages_of_a_failed_fsync_are_written_again",),
    ),
    Mutant(
        "recovered_records_not_made_durable", "P1", LOG,
        "            if segment.synced_size < segment.size:\n",
        "            if segment.size < 0:\n",
        (f"{IN_RECOVERY}::test_what_recovery_found_is_durable_before_it_is_served",),
    ),
    Mutant(
        "missing_end_of_the_log_unnoticed", "P1", RECOVERY,
        "if result.corruption is None and end < self._floor:",
        "if result.corruption is None and end < 0:",
        (f"{IN_RECOVERY}::test_bytes_missing_below_the_recovery_point_stop_the_bucket",),
    ),
    Mutant(
        "recovery_one_offset_short", "P1", RECOVERY,
        "segment.admit(header.size, header.next_offset, header.timestamp_ms)",
        "segment.admit(header.size, header.base_offset + header.last_offset_delta, header.timestamp_ms)",
        (f"{IN_RECOVERY}::test_garbage_behind_the_last_batch_is_cut_off",),
    ),
    Mutant(
        "restored_one_offset_short", "P1", SEGMENT,
        "self.end_offset = mark.end_offset",
        "self.end_offset = mark.end_offset - 1",
        (f"{IN_RECOVERY}::test_recovery_reads_only_what_lies_behind_the_recovery_point",),
    ),
    Mutant(
        "timestamps_go_back", "P1", LOG,
        "timestamp_ms = max(self._clock.now_ms(), self.floor_ms)",
        "timestamp_ms = self._clock.now_ms()",
        (f"{IN_LOG}::test_timestamps_never_go_back_when_the_clock_does",),
    ),
    Mutant(
        "raised_floor_forgotten", "P4", "fluss_lab/server/tablet/log/recovery_point.py",
        "FILE_NAME, checkpoint, version",
        "FILE_NAME, Checkpoint(checkpoint.recovery_point, 0, checkpoint.segments, checkpoint.writers), version",
        (f"{IN_LOG}::test_a_raised_floor_holds_after_a_clean_and_an_unclean_restart",),
    ),
    Mutant(
        "retries_appended_again", "P1", "fluss_lab/server/tablet/log/batch_admission.py",
        "            if writer_id < 0:\n                found.append(None)\n",
        "            if sequence >= -1:\n                found.append(None)\n",
        (f"{IN_WRITERS}::test_a_retry_is_answered_with_the_first_offsets",),
    ),
    Mutant(
        "writers_forgotten_by_a_step_of_the_clock", "P1", "fluss_lab/server/tablet/log/batch_admission.py",
        "                writer.idle_since_ms = now_ms\n",
        "                old.append(writer_id)\n",
        (f"{IN_WRITERS}::test_a_step_of_the_clock_is_no_idleness",),
    ),
    Mutant(
        "gaps_between_batches_let_pass", "P1", "fluss_lab/server/tablet/log/batch_admission.py",
        "if sequence != expected:",
        "if sequence < expected:",
        (f"{IN_WRITERS}::test_a_predecessor_that_does_not_come_is_asked_for",),
    ),
    Mutant(
        "writers_not_checkpointed", "P1", "fluss_lab/server/tablet/log/recovery_point.py",
        "(WriterStates.to_json, WriterStates.from_json)",
        "(lambda _: [], WriterStates.from_json)",
        (f"{IN_WRITERS}::test_writers_are_remembered_across_restarts",),
    ),
    Mutant(
        "writers_not_recovered", "P1", RECOVERY,
        "            writers.add(writer_id, batch, header.timestamp_ms)\n",
        "            str(batch)\n",
        (f"{IN_WRITERS}::test_writers_are_remembered_across_restarts",),
    ),
    Mutant(
        "resent_under_a_new_sequence", "P1", "fluss_lab/client/write/bucket_queue.py",
        "            batch = self.unacked[0]\n",
        "            batch = self.unacked[0]\n"
        "            self.writer_id = (self.writer_id or 0) + 1\n"
        "            self.renumber(self.writer_id)\n",
        ("tests/unit/client/test_outages.py::test_a_batch_whose_answer_was_lost_is_there_once[tablet.append.after_write]",),
    ),
    Mutant(
        "torn_tail_left_standing", "P6", RECOVERY,
        "            segment.cut()\n",
        "            segment.draft()\n",
        (
            f"{IN_RECOVERY}::test_garbage_behind_the_last_batch_is_cut_off",
            f"{IN_RECOVERY}::test_a_segment_cut_anywhere_reads_as_its_whole_batches_and_is_written_on",
        ),
    ),
    Mutant(
        "files_not_replaced_at_once", "P6", "fluss_lab/files.py",
        "    with _temporary(path, data, mode, durable=durable) as temporary:\n        os.replace(temporary, path)\n",
        "    with _temporary(path, data, mode, durable=durable) as temporary:\n        path.write_bytes(data)\n        os.unlink(temporary)\n",
        (f"{IN_FILES}::test_whoever_has_the_file_open_sees_the_old_content_whole",),
    ),
    Mutant(
        "transaction_not_rolled_back", "P6", "fluss_lab/server/coordinator/metadata/metadata_store.py",
        'self._db.execute("ROLLBACK")',
        'self._db.execute("COMMIT")',
        ("tests/unit/server/coordinator/metadata/test_metadata_store.py::test_a_transaction_that_raises_leaves_nothing_and_the_next_one_works",),
    ),
    Mutant(
        "metadata_not_synchronous", "P1", "fluss_lab/server/coordinator/metadata/metadata_store.py",
        'self._db.execute("PRAGMA synchronous = FULL")',
        'self._db.execute("PRAGMA synchronous = OFF")',
        ("tests/unit/server/coordinator/metadata/test_metadata_store.py::test_the_file_is_in_wal_mode_and_synchronous_full",),
    ),
    Mutant(
        "writers_of_dropped_segments_forgotten", "P6", LOG,
        "                self.checkpoint(durable=True)\n",
        "                bool(self.segments.has_dropped)\n",
        (f"{IN_RETENTION}::test_writers_are_known_though_the_segments_that_named_them_are_gone",),
    ),
    Mutant(
        "half_a_write_left_standing", "P9", SEGMENT,
        "            try:\n                os.ftruncate(handle.fd, self.size)\n",
        "            try:\n                os.fstat(handle.fd)\n",
        (f"{IN_LOG}::test_a_short_write_that_then_fails_is_cut_off",),
    ),
    Mutant(
        "full_disk_never_heals", "P9", LOG,
        'self._log.error("nothing was appended: %s", error)',
        'self._stop(StorageError(f"nothing was appended: {error}"))',
        (f"{IN_LOG}::test_a_full_disk_refuses_appends_keeps_reads_and_heals",),
    ),
    Mutant(
        "retention_before_the_ttl", "P1", LOG,
        "return segment.max_timestamp_ms < time_ms and below",
        "return segment.max_timestamp_ms <= time_ms and below",
        (f"{IN_RETENTION}::test_segments_go_when_their_last_record_is_past_the_ttl",),
    ),
    Mutant(
        "retention_ignores_the_lake", "P2", RETENTION,
        "    if bucket.table.lake_enabled:\n",
        "    if bucket.table.lake_enabled and bucket.lake is not None and bucket.lake.end < 0:\n",
        (f"{IN_RETENTION}::test_a_lake_enabled_table_keeps_what_the_lake_does_not_hold",),
    ),
    Mutant(
        "retention_one_past_the_lake", "P2", LOG,
        "segment.end_offset <= offset_max",
        "segment.end_offset <= offset_max + 1",
        (f"{IN_RETENTION}::test_a_lake_enabled_table_keeps_what_the_lake_does_not_hold",),
    ),
    Mutant(
        "retention_behind_a_hole_in_the_lake", "P2", RETENTION,
        "if lake is None or (bucket.kv is None and lake.start > bucket.start):",
        "if lake is None:",
        (f"{IN_RETENTION}::test_a_lake_that_begins_behind_the_log_lets_nothing_go",),
    ),
)  # fmt: skip

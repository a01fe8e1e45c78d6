"""Mutants of primary-key buckets in the tablet server: log before rows, previous offsets, reads, what is refused."""

from tests.mutants.mutant import CHECKS, LOG, RETENTION, SEGMENT, SEGMENTS, Mutant

IN_BUCKET_SCANS = "tests/unit/server/tablet/requests/test_bucket_scans.py"
KV_BUCKET = "fluss_lab/server/tablet/buckets/kv_bucket.py"
PREVIOUS = "fluss_lab/server/tablet/log/previous_offsets.py"
REPLAY = "fluss_lab/server/tablet/buckets/kv_replay.py"
PAYLOADS = "fluss_lab/server/tablet/requests/write_payloads.py"
LOOKUP = "fluss_lab/server/tablet/requests/lookup_rows.py"
SCANS = "fluss_lab/server/tablet/requests/bucket_scans.py"

IN_CATCHING_UP = "tests/unit/server/tablet/buckets/test_kv_catching_up.py"
IN_PUT = "tests/unit/server/tablet/requests/test_put_kv.py"
IN_READS = "tests/unit/server/tablet/requests/test_lookup_rows.py"
IN_RECOVERY = "tests/unit/server/tablet/buckets/test_kv_replay.py"

#: P1: what was acknowledged stays. P6: recovery finds rows and changelog that agree. P7: nothing corrupt is served.
#: P8: no input ends the server.
KV_TABLET = (
    Mutant(
        "rows_before_log", "P1", LOG,
        "                timestamp_ms = self._append([derived.entry])\n"
        "                derived.commit(timestamp_ms)\n",
        "                derived.commit(self._clock.now_ms())\n"
        "                self._append([derived.entry])\n",
        (
            f"{IN_PUT}::test_the_changelog_is_in_the_log_before_the_rows_change",
            f"{IN_PUT}::test_a_write_that_fails_changes_nothing_and_the_next_one_goes_on",
        ),
    ),
    Mutant(
        "put_acknowledged_before_it_is_durable", "P1", PAYLOADS,
        "            bucket.log.acknowledge(appended)\n",
        "            bucket.log.reader.wake()\n",
        (f"{IN_RECOVERY}::test_with_fsync_a_put_is_acknowledged_when_it_is_durable",),
    ),
    Mutant(
        "put_done_twice", "P1", LOG,
        "            if known is not None:\n",
        "            if known is not None and wait_ms < 0:\n",
        (f"{IN_PUT}::test_a_retry_is_answered_with_the_offsets_of_the_changelog",),
    ),
    Mutant(
        "sequence_of_no_change_lost", "P1", KV_BUCKET,
        "if not change.rows.num_rows and header.writer_id == NO_WRITER:",
        "if not change.rows.num_rows:",
        (f"{IN_PUT}::test_a_batch_that_changes_nothing_uses_no_offset_and_its_sequence_survives",),
    ),
    Mutant(
        "changelog_one_offset_further", "P6", KV_BUCKET,
        "base_offset=base_offset, columns=names",
        "base_offset=base_offset + 1, columns=names",
        (f"{IN_PUT}::test_duplicates_in_a_batch_follow_one_another",),
    ),
    Mutant(
        "rows_written_on_after_a_failed_commit", "P6", KV_BUCKET,
        "        self._catch_up()\n        self._memory.wait()\n",
        "        self._behind = None\n        self._memory.wait()\n",
        (f"{IN_CATCHING_UP}::test_until_the_rows_have_followed_nothing_is_said_of_them",),
    ),
    Mutant(
        "rows_read_though_they_do_not_agree", "P7", KV_BUCKET,
        "        if self._failure is not None:\n",
        "        if self._failure is None:\n            return\n        if self._schema_id < 0:\n",
        (
            f"{IN_RECOVERY}::test_without_the_snapshots_that_a_shortened_log_needs_the_rows_are_refused",
        ),
    ),
    Mutant(
        "previous_offsets_behind_their_batch", "P6", SEGMENT,
        "        if self.previous is not None and previous is not None:\n"
        "            self.previous.write(self.end_offset - self.base_offset, previous)\n"
        "        handle = self._pool.get(self.path)\n"
        "        try:\n"
        '            failpoint("tablet.append.before_write")\n',
        "        handle = self._pool.get(self.path)\n"
        "        try:\n"
        '            failpoint("tablet.append.before_write")\n'
        "            if self.previous is not None and previous is not None:\n"
        "                self.previous.write(self.end_offset - self.base_offset, previous)\n",
        (f"{IN_PUT}::test_previous_offsets_are_written_before_their_batch",),
    ),
    Mutant(
        "previous_offsets_without_crc", "P7", PREVIOUS,
        "if count <= 0 or found[mark : mark + _MARK.size] != _mark(relative, batch):",
        "if count <= 0 or found[mark : mark + _SPAN.size] != _mark(relative, batch)[: _SPAN.size]:",
        (f"{IN_READS}::test_damaged_previous_offsets_are_rebuilt_and_writes_go_on",),
    ),
    Mutant(
        "previous_offsets_of_one_record_before", "P7", PREVIOUS,
        "        _write_at(self._pool, self.values_path, relative_offset * VALUE_BYTES, data)\n",
        "        _write_at(self._pool, self.values_path, max(relative_offset - 1, 0) * VALUE_BYTES, data)\n",
        (f"{IN_READS}::test_previous_offsets_are_beside_every_record_from_any_offset",),
    ),
    Mutant(
        "previous_offsets_not_durable_for_a_snapshot", "P6", LOG,
        "            if ticket is None:\n                self._fsync(self.segments.sync_previous)\n",
        "            if ticket == -1:\n                self._fsync(self.segments.sync_previous)\n",
        (f"{IN_RECOVERY}::test_previous_offsets_are_durable_before_a_snapshot_and_when_a_segment_is_rolled",),
    ),
    Mutant(
        "previous_offsets_rebuilt_up_to_what_is_durable", "P11", "fluss_lab/server/tablet/buckets/kv_bucket.py",
        "view, table = self.log.whole(), self.table",
        "view, table = self.log.reader.view, self.table",
        (f"{IN_RECOVERY}::test_previous_offsets_are_rebuilt_beside_a_put_that_is_not_durable_yet",),
    ),
    Mutant(
        "previous_offsets_not_durable_when_rolled", "P6", SEGMENTS,
        "        self.active.sync(self.active.size)\n        self.sync_previous()\n",
        "        self.active.sync(self.active.size)\n",
        (f"{IN_RECOVERY}::test_previous_offsets_are_durable_before_a_snapshot_and_when_a_segment_is_rolled",),
    ),
    Mutant(
        "replay_not_held_against_previous_offsets", "P7", PREVIOUS,
        "        if there == _mark(relative_offset, before) and len(before) == len(data):\n",
        "        if len(before) < 0:\n",
        (f"{IN_RECOVERY}::test_previous_offsets_that_are_whole_and_others_than_the_replays_stop_the_bucket",),
    ),
    Mutant(
        "torn_previous_offsets_not_mended", "P6", REPLAY,
        "            self.mended += not previous.confirm(header.base_offset - segment_base, values)\n",
        "            previous.admit()\n",
        (f"{IN_RECOVERY}::test_files_of_any_segment_may_be_lost_or_torn_beside_the_log",),
    ),
    Mutant(
        "log_that_does_not_reach_the_snapshot", "P7", REPLAY,
        "        if not self._view.start <= start <= end:\n",
        "        if not self._view.start <= start <= end:\n            return\n        if start < 0:\n",
        (
            f"{IN_RECOVERY}::test_without_the_snapshots_that_a_shortened_log_needs_the_rows_are_refused",
            f"{IN_RECOVERY}::test_a_log_that_ends_before_the_snapshot_is_refused",
        ),
    ),
    Mutant(
        "writers_of_the_snapshot_forgotten", "P1", KV_BUCKET,
        "        log.adopt_writers(WriterStates.from_json(completed.writers))\n",
        "        WriterStates.from_json(completed.writers)\n",
        (f"{IN_RECOVERY}::test_writers_are_known_from_the_snapshot_where_the_log_is_gone",),
    ),
    Mutant(
        "log_dropped_before_its_snapshot", "P6", RETENTION,
        "    if bucket.kv is None:\n        return offset_max\n",
        "    if bucket.kv is None or offset_max is None:\n        return offset_max\n",
        (f"{IN_RECOVERY}::test_nothing_of_the_log_is_dropped_before_there_is_a_snapshot",),
    ),
    Mutant(
        "lookup_not_settled", "P1", LOOKUP,
        "    kv.log.settle()\n",
        "    kv.check_readable()\n",
        (f"{IN_READS}::test_with_fsync_rows_that_are_read_are_durable",),
    ),
    Mutant(
        "scan_not_settled", "P1", SCANS,
        "                bucket.log.settle()\n",
        "                kv.check_readable()\n",
        (f"{IN_READS}::test_with_fsync_rows_that_are_read_are_durable",),
    ),
    Mutant(
        "any_change_type_taken", "P8", CHECKS,
        "    if wrong := set(changes) - _PUT_TYPES:\n",
        "    if wrong := set(changes) - _PUT_TYPES - {1}:\n",
        (f"{IN_PUT}::test_a_bad_payload_is_refused_whole",),
    ),
    Mutant(
        "changelog_of_any_size", "P8", KV_BUCKET,
        "entry.header.record_count) > self._size_max:",
        "entry.header.record_count) < 0:",
        (f"{IN_PUT}::test_a_changelog_too_large_for_an_answer_is_refused_whole",),
    ),
    Mutant(
        "single_key_known_by_its_size", "P8", "fluss_lab/records/single_key.py",
        "        if not data.startswith(self._head) or not data.endswith(self._tail):\n",
        "        if not data:\n",
        (
            "tests/unit/records/test_single_key.py::test_other_bytes_are_left_to_arrow",
            f"{IN_READS}::test_a_single_key_that_is_none_is_refused",
        ),
    ),
    Mutant(
        "single_lookup_of_any_size", "P8", LOOKUP,
        "        self._count_bytes(rows.size, keys)\n",
        "        self._count_bytes(0, keys)\n",
        (f"{IN_READS}::test_single_keys_of_many_buckets_share_the_limit_of_an_answer",),
    ),
    Mutant(
        "single_lookup_not_settled", "P1", LOOKUP,
        "            row = kv.lookup_one(bits, columns)\n            _settle(kv)\n",
        "            row = kv.lookup_one(bits, columns)\n",
        (f"{IN_READS}::test_with_fsync_rows_that_are_read_are_durable",),
    ),
    Mutant(
        "any_number_of_keys", "P8", LOOKUP,
        "        if self._keys > self._limits.keys_max:\n",
        "        if self._keys < 0:\n",
        (f"{IN_READS}::test_too_many_keys_in_a_call_are_refused",),
    ),
    Mutant(
        "lookup_answer_of_any_size", "P8", LOOKUP,
        "        if self._bytes > self._limits.bytes_max:\n",
        "        if self._bytes < 0:\n",
        (f"{IN_READS}::test_an_answer_too_large_is_refused_before_it_is_made",),
    ),
    Mutant(
        "any_number_of_scans", "P8", SCANS,
        "            if len(self._sessions) >= self._scanners_max and",
        "            if len(self._sessions) < 0 and",
        (f"{IN_BUCKET_SCANS}::test_there_are_no_more_scans_than_allowed",),
    ),
    Mutant(
        "unread_scans_keep_others_out", "P8", SCANS,
        "if scanner_id is None or used_ms >",
        "if scanner_id is not None or used_ms >",
        (f"{IN_BUCKET_SCANS}::test_scans_left_unread_make_room_for_others_and_those_in_use_do_not",),
    ),
    Mutant(
        "scans_that_nobody_knows_of_stay", "P8", "fluss_lab/server/process/listener.py",
        ", unawaited=tablet.note_unawaited)", ")",
        (f"{IN_BUCKET_SCANS}::test_a_scan_whose_caller_has_left_before_it_began_takes_no_place",),
    ),
    Mutant(
        "scans_in_use_lose_their_place", "P8", SCANS,
        "if scanner_id is None or used_ms > self._clock.monotonic_ms() - self._crowded_ttl_ms:",
        "if scanner_id is None:",
        (f"{IN_BUCKET_SCANS}::test_scans_left_unread_make_room_for_others_and_those_in_use_do_not",),
    ),
    Mutant(
        "finished_scans_take_places", "P8", SCANS,
        "            if coming is None:\n",
        "            if coming is ...:\n",
        (f"{IN_BUCKET_SCANS}::test_scans_that_were_read_to_their_end_take_no_place",),
    ),
    Mutant(
        "finished_scans_kept_for_good", "P8", SCANS,
        "            while len(self._finished) > self._scanners_max or",
        "            while",
        (f"{IN_BUCKET_SCANS}::test_of_finished_scans_the_latest_may_be_asked_again",),
    ),
    Mutant(
        "scan_called_out_of_turn", "P4", SCANS,
        "        elif call != session.call:\n",
        "        elif call > session.call:\n",
        (f"{IN_BUCKET_SCANS}::test_the_last_call_may_be_repeated_and_no_other",),
    ),
    Mutant(
        "scan_goes_on_over_another_bucket", "P4", SCANS,
        "        if session is None or self._store.get(session.bucket.id) is not session.bucket:\n",
        "        if session is None:\n",
        (f"{IN_BUCKET_SCANS}::test_a_scan_does_not_go_on_when_its_bucket_was_opened_again",),
    ),
)  # fmt: skip

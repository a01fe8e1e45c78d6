"""Mutants of what a server says of a bucket whose range it does not know."""

from tests.mutants.mutant import BUCKET, RECOVERY, Mutant

READING = "fluss_lab/server/tablet/log/log_reader.py"
STORE = "fluss_lab/server/tablet/buckets/bucket_store.py"
IN_RANGE = "tests/unit/server/tablet/test_tablet_range.py"
IN_DOCTOR = "tests/unit/workbench/health/test_doctor.py"
IN_ABSENT = "tests/unit/server/tablet/remote/test_remote_absent.py"
IN_LOST = "tests/unit/server/folder/test_lost_folders.py"
IN_REOPENING = "tests/unit/server/tablet/buckets/test_tablet_reopening.py"

#: P7: corrupt bytes stop the bucket. P1: what was acknowledged is there, or its absence is an error.
INTEGRITY = (
    Mutant(
        "shortened_end_reported_as_latest", "P7", BUCKET,
        "        self.log.reader.check_end()\n        if durable:",
        "        if durable:",
        (f"{IN_RANGE}::test_the_end_of_a_log_that_lost_durable_records_is_an_error",),
    ),
    Mutant(
        "shortened_end_reported_by_time", "P7", READING,
        "        if found_ms is None:\n            self.check_end(offset)\n",
        "",
        (f"{IN_RANGE}::test_the_end_of_a_log_that_lost_durable_records_is_an_error",),
    ),
    Mutant(
        "lost_start_not_noticed", "P7", RECOVERY,
        "        if first > expected:\n",
        "        if first < 0:\n",
        (f"{IN_RANGE}::test_a_log_without_its_first_segments_does_not_begin_later",),
    ),
    Mutant(
        "lost_start_reported_as_earliest", "P7", BUCKET,
        "        self.log.reader.check_start()\n        start = self.log.start\n        before",
        "        start = self.log.start\n        before",
        (f"{IN_RANGE}::test_a_log_without_its_first_segments_does_not_begin_later",),
    ),
    Mutant(
        "start_not_noted_before_deleting", "P7", "fluss_lab/server/tablet/log/log_segments.py",
        "            recovery_point.save_start(self._folder, self.held[0].base_offset)\n",
        "            pass\n",
        (f"{IN_RANGE}::test_a_log_that_dropped_its_first_segments_begins_later",),
    ),
    Mutant(
        "newer_batch_cut_off_as_torn", "P7", RECOVERY,
        "        if (newer := self._other_format(segment)) is not None:\n",
        "        if (newer := self._other_format(segment)) is not None and segment.size < 0:\n",
        (f"{IN_RANGE}::test_a_batch_of_a_newer_format_is_neither_damage_nor_cut_off",),
    ),
    Mutant(
        "copied_from_a_log_with_a_hole", "P7", "fluss_lab/server/tablet/remote/remote_task.py",
        "            if held.stopped is not None:\n",
        "            if held.end < 0:\n",
        (f"{IN_RANGE}::test_nothing_is_dropped_of_a_bucket_whose_range_is_not_known",),
    ),
    Mutant(
        "unopened_bucket_not_tried_again", "P6", "fluss_lab/server/tablet/tablet_service.py",
        "            Ticker(\"tablet-reopen\", min(FIRST_WAIT_MS, reopen_max_ms), self.reopen),\n",
        "",
        (f"{IN_REOPENING}::test_it_is_tried_again_by_a_thread_of_the_server",),
    ),
    Mutant(
        "unopened_bucket_called_elsewhere", "P7", STORE,
        "            self._unopened.check(bucket)\n",
        "",
        (f"{IN_REOPENING}::test_all_that_touches_it_is_an_error_and_it_comes_back_by_itself",),
    ),
    Mutant(
        "dropped_bucket_opened_again", "P6", STORE,
        "            if again and bucket not in self._unopened:\n",
        "            if again and bucket in self._buckets:\n",
        (f"{IN_REOPENING}::test_one_that_was_dropped_meanwhile_is_not_made_anew",),
    ),
    Mutant(
        "lost_definition_not_taken_over", "P6", STORE,
        "            self.define(list(self._undefined.values()))\n",
        "            pass\n",
        (f"{IN_REOPENING}::test_a_definition_that_could_not_be_kept_is_taken_over_later",),
    ),
    Mutant(
        "absent_remote_dir_claimed_anew", "P1", "fluss_lab/server/folder/remote_storage.py",
        "    if (known := store.meta(META_KEY)) is not None:\n",
        "    if (known := store.meta(META_KEY)) == \"\":\n",
        (f"{IN_ABSENT}::test_a_lab_that_had_one_claims_no_other",),
    ),
    Mutant(
        "doctor_passes_over_a_foreign_remote_dir", "P13", "fluss_lab/server/folder/remote_storage.py",
        "    if found is not None and found != values.get(CLAIM_KEY):\n",
        "    if found is not None and found == values.get(CLAIM_KEY):\n",
        (f"{IN_DOCTOR}::test_remote_storage_that_is_gone_or_another_lab_s_is_reported",),
    ),
    Mutant(
        "doctor_passes_over_an_absent_remote_dir", "P13", "fluss_lab/server/folder/remote_storage.py",
        "        RemoteDir(remote, known).check()\n        return True\n",
        "        return True\n",
        (f"{IN_DOCTOR}::test_remote_storage_is_looked_at_beside_a_running_server",),
    ),
    Mutant(
        "unknown_remote_taken_for_nothing", "P7", BUCKET,
        "held = None if self.remote is None or not start else self.remote.manifest",
        "held = None if self.remote is None or not start else self.remote.known",
        (f"{IN_ABSENT}::test_without_its_manifest_the_start_is_an_error",),
    ),
    Mutant(
        "remote_manifest_looked_for_where_nothing_is", "P7", "fluss_lab/server/tablet/remote/remote_log.py",
        "        self._check_there()\n        try:\n            found = self._file.load",
        "        try:\n            found = self._file.load",
        (f"{IN_ABSENT}::test_what_is_not_mounted_is_an_error_until_it_is",),
    ),
    Mutant(
        "copied_to_where_nothing_is", "P1", "fluss_lab/server/tablet/remote/remote_log.py",
        "        self._check_there()\n        try:\n            self._store.make_folder",
        "        try:\n            self._store.make_folder",
        (f"{IN_ABSENT}::test_what_goes_away_under_the_server_is_not_written_to",),
    ),
    Mutant(
        "snapshots_looked_for_where_nothing_is", "P7", "fluss_lab/server/kv/kv_snapshot.py",
        "        check()\n",
        "",
        (f"{IN_ABSENT}::test_what_is_not_mounted_is_an_error_until_it_is",),
    ),
    Mutant(
        "damaged_mark_passed_over", "P7", "fluss_lab/server/tablet/remote/remote_log.py",
        "            if not leads and self._log_start:\n",
        "            if not leads and not self._log_start:\n",
        (f"{IN_ABSENT}::test_without_its_mark_the_manifest_is_enough_and_without_both_nothing_is",),
    ),
    Mutant(
        "bucket_begun_anew", "P1", "fluss_lab/server/coordinator/tablets/leadership.py",
        "durable_offset=durable_offsets.get((group.partition_id, bucket)),",
        "durable_offset=None,",
        (f"{IN_LOST}::test_a_bucket_whose_folder_is_gone_is_an_error_until_it_is_back",),
    ),
    Mutant(
        "empty_folder_of_a_lost_bucket_marked", "P1", STORE,
        "(request.durable_offset > 0 and not any(folder.iterdir()))",
        "(request.durable_offset < 0 and not any(folder.iterdir()))",
        (f"{IN_LOST}::test_a_bucket_whose_folder_is_gone_is_an_error_until_it_is_back",),
    ),
    Mutant(
        "known_end_not_looked_at", "P7", RECOVERY,
        "self._floor = max(result.recovery_point, self._durable_offset or 0)",
        "self._floor = result.recovery_point",
        (f"{IN_LOST}::test_a_log_that_ends_before_what_is_known_is_damaged_not_torn",),
    ),
    Mutant(
        "durable_offset_goes_back", "P1", "fluss_lab/server/coordinator/tablets/durable_offsets.py",
        " WHERE excluded.durable_offset > durable_offset",
        "",
        (f"{IN_LOST}::test_durable_offsets_follow_and_never_go_back",),
    ),
    Mutant(
        "no_last_report", "P1", "fluss_lab/server/tablet/tablet_service.py",
        "        self._store.close(save=not is_read_only)\n        self._reporter.report()\n",
        "        self._store.close(save=not is_read_only)\n",
        (f"{IN_LOST}::test_durable_offsets_follow_and_never_go_back",),
    ),
    Mutant(
        "bucket_unknown_before_its_first_report", "P1", "fluss_lab/server/coordinator/tablets/leadership.py",
        "            self._durables.note_opened(info.table_id, [(partition_key(each), each.bucket_id) for each in opened])\n",
        "            del opened\n",
        (f"{IN_LOST}::test_a_bucket_is_known_before_its_first_record_and_forgotten_with_its_table",),
    ),
    Mutant(
        "lost_start_not_inspected", "P7", "fluss_lab/server/tablet/buckets/bucket_inspection.py",
        "    if bases and bases[0] > expected:\n",
        "    if bases and bases[0] < 0:\n",
        ("tests/unit/server/folder/test_lab_inspection.py::test_a_log_without_its_first_segment_is_found",),
    ),
    Mutant(
        "last_rows_before_the_damage", "P7", "fluss_lab/server/tablet/requests/bucket_scans.py",
        "    reader.check_end()\n",
        "",
        (f"{IN_RANGE}::test_the_end_of_a_log_that_lost_durable_records_is_an_error",),
    ),
    Mutant(
        "definition_of_then_brought_again", "P1", STORE,
        "self._define(bucket, self._newest(request))",
        "self._define(bucket, request)",
        (f"{IN_REOPENING}::test_a_bucket_that_is_tried_again_does_not_bring_the_definition_of_then",),
    ),
    Mutant(
        "older_definition_taken_over_after_a_newer_one", "P1", STORE,
        "        with self._lock:  # a newer definition comes before or after, never in between\n",
        "        if True:\n",
        (f"{IN_REOPENING}::test_a_newer_definition_does_not_come_between_a_look_at_the_older_one_and_its_use",),
    ),
)  # fmt: skip

"""Mutants of giving up what cannot be read of a log: nothing else may be lost, and a crash at any step be outlived."""

from tests.mutants.mutant import Mutant

GIVING_UP_FILE = "fluss_lab/server/tablet/damage/bucket_damage.py"
DESK = "fluss_lab/server/tablet/damage/damage_requests.py"
TAIL = "fluss_lab/server/tablet/damage/damaged_ranges.py"
SENT_ROWS = "fluss_lab/server/tablet/damage/damage_requests.py"
STORE = "fluss_lab/server/tablet/buckets/bucket_store.py"
NOTES = "fluss_lab/server/tablet/damage/log_cut.py"
REPAIR = "fluss_lab/tiering/repair/damage_repair.py"
IN_DAMAGE = "tests/unit/server/tablet/damage/test_bucket_damage.py"
IN_RANGES = "tests/unit/server/tablet/damage/test_damaged_ranges.py"
IN_CUTS = "tests/unit/server/tablet/damage/test_log_cut.py"
IN_LOST = "tests/unit/server/tablet/damage/test_lost_log.py"
IN_LOST_REPAIRS = "tests/unit/tiering/repair/test_lost_logs.py"
IN_SENT = "tests/unit/server/tablet/damage/test_damage_requests.py"
IN_REPAIRS = "tests/unit/tiering/repair/test_damage_repair.py"

SOUND = (f"{IN_DAMAGE}::test_sound_records_before_the_damage_are_given_up_only_by_a_word",)
ABSENT = (f"{IN_DAMAGE}::test_a_lake_that_begins_later_or_is_switched_off_holds_nothing",)
REMOTE = (f"{IN_DAMAGE}::test_what_remote_storage_holds_is_missed_after_a_cut_that_was_cut_off",)
TOLD = (f"{IN_CUTS}::test_what_was_given_up_is_reported_or_an_error",)
LOST_LOG = "fluss_lab/server/tablet/damage/lost_log.py"
KNOWN = f"{IN_LOST}::test_offsets_that_somebody_knows_are_not_given_again"
UNFIT = f"{IN_SENT}::test_rows_that_the_log_does_not_go_on_from_change_nothing"
UNSENT = (f"{IN_SENT}::test_rows_that_did_not_all_come_are_not_used",)
FOUND = (
    "tests/unit/tiering/repair/test_damage_found.py::test_damage_that_is_read_is_named_with_its_place_and_stops_the_bucket",
)

GIVING_UP = (
    Mutant(
        "sound_records_before_damage_given_up_without_a_word", "P2", GIVING_UP_FILE,
        "    if held < damaged.start and not discard:\n",
        "    if held < 0 and not discard:\n",
        SOUND,
    ),
    Mutant(
        "another_range_given_up_than_was_looked_at", "P7", GIVING_UP_FILE,
        "    if damaged is None or (damaged.start, damaged.stop) != (start, stop):\n",
        "    if damaged is None:\n",
        SOUND,
    ),
    Mutant(
        "range_given_up_once_more_when_asked_again", "P6", DESK,
        "is_done = any(each.start == request.start_offset for each in bucket.given_up)\n",
        "is_done = False\n",
        SOUND,
    ),
    Mutant(
        "lake_with_a_later_start_taken_to_hold_what_is_before", "P2", GIVING_UP_FILE,
        "    if lake is None or (found.rows_offset is None and lake.start > found.start):\n",
        "    if lake is None:\n",
        ABSENT,
    ),
    Mutant(
        "lake_that_is_switched_off_taken_to_hold_records", "P2", GIVING_UP_FILE,
        "bucket.lake if bucket.table.lake_enabled else None",
        "bucket.lake",
        ABSENT,
    ),
    Mutant(
        "log_served_behind_its_damage", "P7", "fluss_lab/server/tablet/log/bucket_log.py",
        "            self._sound = sound or self._sound\n",
        "            self._sound = self._sound if sound else None\n",
        (f"{IN_DAMAGE}::test_a_bucket_that_is_found_damaged_is_served_up_to_there",),
    ),
    Mutant(
        "lost_offsets_at_the_end_given_again", "P13", GIVING_UP_FILE,
        "ranges[-1]._replace(stop=max(ranges[-1].stop, *elsewhere))",
        "ranges[-1]",
        (f"{IN_DAMAGE}::test_offsets_at_the_end_that_somebody_knows_are_not_given_again",),
    ),
    Mutant(
        "rows_made_without_what_was_given_up", "P4", GIVING_UP_FILE,
        "    elif rows_offset is not None and rows_offset < to:\n",
        "    elif rows_offset is not None and rows_offset < 0:\n",
        (f"{IN_DAMAGE}::test_rows_that_need_what_is_damaged_are_not_given_up",),
    ),
    Mutant(
        "rows_in_memory_not_kept_before_their_log_goes", "P4", DESK,
        "        if bucket.kv.is_live:\n",
        "        if not bucket.kv.is_live:\n",
        (f"{IN_CUTS}::test_rows_in_memory_are_kept_when_the_log_cannot_give_them_any_more",),
    ),
    Mutant(
        "cut_that_was_cut_off_not_finished", "P6", STORE,
        "        given_up = log_cut.finish(place)\n",
        "        given_up = log_cut.load_given_up(place)\n",
        (f"{IN_CUTS}::test_a_cut_that_ended_anywhere_is_finished_or_begun_again",),
    ),
    Mutant(
        "writers_of_given_up_batches_forgotten", "P2", "fluss_lab/server/tablet/damage/log_cut.py",
        "    recovery_point.save(folder, checkpoint, durable=True)\n",
        "    (folder / recovery_point.FILE_NAME).unlink(missing_ok=True)\n",
        (f"{IN_CUTS}::test_writers_of_batches_that_went_are_known_behind_the_cut",),
    ),
    Mutant(
        "segments_dropped_for_remote_storage_without_a_mark", "P11", DESK,
        "            bucket.remote.note_dropped(cut.start)\n",
        "            bucket.remote.note_dropped(0)\n",
        REMOTE,
    ),
    Mutant(
        "remote_storage_refused_where_a_log_ended_early", "P7", STORE,
        "            end = opened.end if opened.reader.ended_by is None else OFFSET_MAX\n",
        "            end = opened.end\n",
        (f"{IN_DAMAGE}::test_a_part_that_remote_storage_holds_goes_first",),
    ),
    Mutant(
        "previous_offsets_behind_damage_dropped", "P2", "fluss_lab/server/tablet/log/previous_offsets.py",
        "            if relative >= relative_offset and self._is_right(relative, count, crc):\n",
        "            if relative < 0 and self._is_right(relative, count, crc):\n",
        (f"{IN_CUTS}::test_previous_offsets_behind_the_damage_in_its_segment_are_kept",),
    ),
    Mutant(
        "newer_format_taken_for_damage", "P7", GIVING_UP_FILE,
        "    if isinstance(log.stopped, UnsupportedError):\n",
        "    if isinstance(log.stopped, KeyError):\n",
        (f"{IN_RANGES}::test_a_newer_format_is_no_damage",),
    ),
    Mutant(
        "note_of_another_bucket_believed", "P13", NOTES,
        "    if noted.identity != (identity := folder_identity(folder)):\n",
        "    if (identity := folder_identity(folder)) is None:\n",
        TOLD,
    ),
    Mutant(
        "damaged_note_of_what_was_given_up_believed", "P11", "fluss_lab/records/checksummed_json.py",
        "    if (body := unseal_content(data)) is None:\n",
        '    if (body := data.rpartition(b"\\n")[0]) is None:\n',
        TOLD,
    ),
    Mutant(
        "newer_note_of_what_was_given_up_read", "P7", NOTES,
        "_Noted, path, version=VERSION, remedy",
        "_Noted, path, version=None, remedy",
        TOLD,
    ),
    Mutant(
        "gap_that_damage_has_not_made_accepted_on_the_way", "P2", REPAIR,
        "        if others or lake.reason != LEFT_UNTIERED:\n",
        "        if lake.reason != LEFT_UNTIERED:\n",
        (f"{IN_REPAIRS}::test_a_gap_that_damage_has_not_made_is_not_accepted_on_the_way",),
    ),
    Mutant(
        "damage_given_up_under_a_living_tierer", "P5", REPAIR,
        "        if self._info.descriptor.lake_enabled:\n            with",
        "        if self._info.descriptor.lake_enabled and not damaged:\n            with",
        (f"{IN_REPAIRS}::test_a_table_that_a_tierer_works_on_is_left_alone",),
    ),
    Mutant(
        "changelog_in_the_lake_lost_without_a_word", "P2", "fluss_lab/tiering/repair/damage_repair_plan.py",
        "        if words and not discard_before:\n",
        "        if words and discard_before is None:\n",
        (f"{IN_REPAIRS}::test_a_tiered_primary_key_table_keeps_every_row[part-False]",),
    ),
    Mutant(
        "damage_that_a_read_finds_stops_nothing", "P7", "fluss_lab/client/log/range_reader.py",
        "            raise damage_error(self._connection, self._info, self._bucket, self._partition, error) from error\n",
        "            raise CorruptDataError(str(error)) from error\n",
        FOUND,
    ),
    Mutant(
        "damage_that_a_scanner_finds_stops_nothing", "P7", "fluss_lab/client/log/log_scanner.py",
        "position, damage_error(self._connection, self._info, position.bucket, position.partition, error)\n",
        "position, CorruptDataError(str(error))\n",
        FOUND,
    ),
    Mutant(
        "damage_that_a_projection_finds_stops_nothing", "P7", "fluss_lab/server/tablet/requests/fetch_log.py",
        "                raise self._confirm_damage(bucket, error) from error\n",
        "                raise error\n",
        (
            "tests/unit/tiering/repair/test_damage_found.py::test_damage_of_batches_that_the_server_projects_is_found_there",
        ),
    ),
    Mutant(
        "append_under_way_taken_for_damage", "P1", GIVING_UP_FILE,
        "        until = bucket.log.reader.view.frontier if bucket.log.stopped is None else None\n",
        "        until = None\n",
        (f"{IN_RANGES}::test_what_is_being_written_is_no_damage",),
    ),
    Mutant(
        "lake_rows_taken_inside_a_batch", "P4", TAIL,
        "            if header.next_offset > offset_max:\n",
        "            if header.base_offset > offset_max:\n",
        (f"{IN_SENT}::test_rows_are_those_sent_and_what_the_log_made_of_them[inside-1]",),
    ),
    Mutant(
        "rows_of_a_lake_that_ends_before_the_damage_does", "P4", TAIL,
        "        found = self.offset if self.offset <= offset_max else None\n",
        "        found = self.offset\n",
        (f"{IN_SENT}::test_a_lake_that_ends_before_the_damage_does_gives_no_rows",),
    ),
    Mutant(
        "changes_behind_sent_rows_not_tried", "P4", SENT_ROWS,
        "        store.replay(rows, ",
        "        store.replay(rows.slice(0, 0), b\"\" and ",
        (f"{UNFIT}[_missing]", f"{UNFIT}[_another]"),
    ),
    Mutant(
        "key_sent_twice_taken", "P4", SENT_ROWS,
        "    _check_unique(image, table.descriptor.schema.primary_key)\n",
        "",
        (f"{IN_SENT}::test_a_key_is_not_taken_twice",),
    ),
    Mutant(
        "sent_rows_used_that_did_not_all_come", "P4", SENT_ROWS,
        "            if sent.row_count != row_count:\n",
        "            if sent.row_count > row_count:\n",
        UNSENT,
    ),
    Mutant(
        "part_of_sent_rows_left_out", "P4", SENT_ROWS,
        "            if sent.parts != message.part:\n",
        "            if sent.parts > message.part:\n",
        UNSENT,
    ),
    Mutant(
        "sent_rows_of_another_moment_used", "P4", SENT_ROWS,
        "(sent.bucket, sent.log_offset) != (bucket, log_offset)",
        "sent.bucket != bucket",
        UNSENT,
    ),
    Mutant(
        "sent_rows_beyond_their_moment_taken", "P4", SENT_ROWS,
        " or int(offsets[-1]) >= within.stop",
        "",
        UNSENT,
    ),
    Mutant(
        "rows_of_the_lake_read_at_its_end", "P4", "fluss_lab/tiering/repair/row_check.py",
        "    stops = {key: stop}\n",
        "    stops = {key: stop - 1}\n",
        (f"{IN_REPAIRS}::test_rows_are_made_from_those_that_the_lake_has[2]",),
    ),
    Mutant(
        "lost_log_begun_anew_without_a_word", "P2", GIVING_UP_FILE,
        "    if lost_start < stop and not discard:\n",
        "    if lost_start < 0 and not discard:\n",
        (f"{KNOWN}[coordinator]",),
    ),
    Mutant(
        "lost_log_laid_before_it_may_be", "P2", DESK,
        "            self._cut_of(self._find_lost(bucket, folder), request)\n",
        "            self._find_lost(bucket, folder)\n",
        (f"{KNOWN}[coordinator]",),
    ),
    Mutant(
        "offsets_given_again_that_the_coordinator_knows", "P13", LOST_LOG,
        "        ends = [start, durable_offset, ",
        "        ends = [start, ",
        (f"{KNOWN}[coordinator]",),
    ),
    Mutant(
        "offsets_given_again_that_remote_storage_has", "P13", LOST_LOG,
        "            ends.append(held.copied_offset)\n",
        "            ends.append(0)\n",
        (f"{KNOWN}[expired]",),
    ),
    Mutant(
        "offsets_given_again_that_the_recovery_point_knows", "P13", LOST_LOG,
        "            ends.append(known.recovery_point)\n",
        "            ends.append(0)\n",
        (f"{KNOWN}[checkpoint]",),
    ),
    Mutant(
        "closed_bucket_with_files_taken_for_a_lost_one", "P7", STORE,
        "and not segment_bases(self.folder(bucket))\n",
        "and bucket.bucket >= 0\n",
        (f"{IN_LOST}::test_a_bucket_that_is_closed_for_another_reason_is_not_begun_anew",),
    ),
    Mutant(
        "lost_log_looked_at_in_its_own_place", "P7", STORE,
        "            lost.note(place)\n",
        "            lost.note(self.folder(bucket) if self.folder(bucket).exists() else place)\n",
        (f"{KNOWN}[checkpoint]",),
    ),
    Mutant(
        "loss_of_all_of_a_log_not_reported_to_need_a_word", "P2", "fluss_lab/tiering/repair/damage_repair_plan.py",
        "        is_missed = self.is_gone and ",
        "        is_missed = False and ",
        (f"{IN_LOST_REPAIRS}::test_a_log_table_begins_anew_behind_what_is_gone[part]",),
    ),
    Mutant(
        "older_rows_of_a_lost_bucket_not_reported", "P2", "fluss_lab/tiering/repair/damage_repair_plan.py",
        "return None if self.rows_until is None else _range(self.rows_until, self.damage.stop)\n",
        "return None\n",
        (f"{IN_LOST_REPAIRS}::test_a_primary_key_table_has_the_newest_rows_that_anybody_knows[part-False]",),
    ),
    Mutant(
        "rows_of_a_lost_bucket_from_an_older_snapshot_than_the_lake", "P4", GIVING_UP_FILE,
        "    if is_gone:\n        return min(",
        "    if is_gone and not lake.end:\n        return min(",
        (f"{IN_LOST_REPAIRS}::test_a_primary_key_table_has_the_newest_rows_that_anybody_knows[part-False]",),
    ),
)  # fmt: skip

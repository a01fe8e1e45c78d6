"""Mutants of the remote log: copying, forgetting, and reading what was copied."""

from tests.mutants.mutant import BUCKET, RETENTION, Mutant

BLOCKS = "fluss_lab/records/remote_segment.py"
COPY = "fluss_lab/server/tablet/remote/segment_copy.py"
REMOTE_LOG = "fluss_lab/server/tablet/remote/remote_log.py"
MANIFEST = "fluss_lab/server/tablet/remote/remote_manifest.py"
CLIENT = "fluss_lab/client/log/remote_reader.py"

GUARDED = "fluss_lab/storage/single_writer.py"
OBJECTS = "fluss_lab/storage/object_store.py"

IN_OBJECTS = "tests/unit/server/tablet/remote/test_remote_objects.py"
IN_LABS = "tests/unit/server/tablet/remote/test_remote_labs.py"
IN_ANSWERS = "tests/unit/server/tablet/remote/test_remote_answers.py"
IN_CHANGELOG = "tests/unit/server/tablet/remote/test_remote_changelog.py"
IN_ABSENT = "tests/unit/server/tablet/remote/test_remote_absent.py"
IN_COPY = "tests/unit/server/tablet/remote/test_remote_copy.py"
IN_DIR = "tests/unit/server/tablet/remote/test_remote_dir.py"
IN_REMOTE_RETENTION = "tests/unit/server/tablet/remote/test_remote_retention.py"
IN_TORN = "tests/unit/server/tablet/remote/test_remote_torn.py"

REMOTE = (
    Mutant(
        "deleted_here_before_the_manifest_is_durable", "P1", REMOTE_LOG,
        "        self._is_unsure = True\n        self._save(after)\n",
        "        self._is_unsure, self._manifest = True, after\n        self._save(after)\n",
        (f"{IN_REMOTE_RETENTION}::test_nothing_leaves_the_disk_before_the_manifest_that_names_it_is_durable",),
    ),
    Mutant(
        "deleted_here_though_not_copied", "P1", RETENTION,
        "return bucket.log.drop_copied(beyond[-1].end_offset, keep)",
        "return bucket.log.drop_copied(bucket.log.end, keep)",
        (f"{IN_CHANGELOG}::test_no_segment_leaves_the_disk_that_a_snapshot_needs",),
    ),
    Mutant(
        "deleted_here_though_a_snapshot_needs_it", "P6", RETENTION,
        "floor = bucket.kv.snapshots.retained_floor() or 0",
        "floor = bucket.log.end",
        (f"{IN_CHANGELOG}::test_no_segment_leaves_the_disk_that_a_snapshot_needs",),
    ),
    Mutant(
        "missing_remote_log_unnoticed", "P1", RETENTION,
        "    bucket.remote.note_dropped(beyond[-1].end_offset)\n",
        "",
        (f"{IN_COPY}::test_a_remote_log_that_is_missing_as_a_whole_is_noticed",),
    ),
    Mutant(
        "older_server_folder_unnoticed", "P1", REMOTE_LOG,
        "self._is_ahead = manifest.copied_offset > log_end",
        "self._is_ahead = False",
        (f"{IN_COPY}::test_offsets_that_a_remote_log_has_are_not_given_to_other_records",),
    ),
    Mutant(
        "log_grown_without_its_newer_remote_log_unnoticed", "P1", REMOTE_LOG,
        "            self._note_unseen()\n",
        "            pass\n",
        (f"{IN_ABSENT}::test_a_folder_restored_while_remote_storage_was_away_is_still_older_than_it",),
    ),
    Mutant(
        "remote_log_that_was_seen_taken_for_another", "P1", REMOTE_LOG,
        "            self._mark.note_seen()  #",
        "            pass  #",
        (f"{IN_ABSENT}::test_a_log_that_grew_while_remote_storage_was_away_is_copied_when_it_is_back",),
    ),
    Mutant(
        "offsets_of_a_newer_remote_log_given_again", "P1", REMOTE_LOG,
        "            self._stop(self._problem)\n",
        "            pass\n",
        (f"{IN_COPY}::test_offsets_that_a_remote_log_has_are_not_given_to_other_records",),
    ),
    Mutant(
        "copied_before_it_is_durable", "P1", REMOTE_LOG,
        "segment.end_offset > durable_offset:",
        "segment.end_offset < 0:",
        (f"{IN_COPY}::test_nothing_above_the_durable_offset_is_copied",),
    ),
    Mutant(
        "manifest_before_its_files_are_durable", "P1", COPY,
        "        store.settle(place)\n        store.settle(folder)\n",
        "",
        (f"{IN_COPY}::test_files_are_on_the_device_before_the_manifest_that_names_them",),
    ),
    Mutant(
        "tidied_by_a_manifest_that_is_not_the_devices", "P6", REMOTE_LOG,
        "self._is_tidy or self._is_unsure or self._closed.is_set()",
        "self._is_tidy or self._closed.is_set()",
        (f"{IN_COPY}::test_a_manifest_that_may_have_been_replaced_is_replaced_again_before_anything_is_removed",),
    ),
    Mutant(
        "remote_ttl_ignores_the_lake", "P2", RETENTION,
        "bucket.remote.expire(time_ms, offset_max)",
        "bucket.remote.expire(time_ms, None)",
        (f"{IN_REMOTE_RETENTION}::test_a_lake_enabled_table_loses_nothing_that_the_lake_does_not_hold",),
    ),
    Mutant(
        "remote_retention_one_past_the_lake", "P2", REMOTE_LOG,
        "segment.end_offset > offset_max",
        "segment.end_offset > offset_max + 30",
        (f"{IN_REMOTE_RETENTION}::test_a_lake_enabled_table_loses_nothing_that_the_lake_does_not_hold",),
    ),
    Mutant(
        "off_by_one_between_disk_and_remote_storage", "P4", BUCKET,
        "        if offset >= self.log.start:\n            return None\n",
        "        if offset > self.log.start:\n            return None\n",
        (f"{IN_ANSWERS}::test_at_the_boundary_the_disk_is_first",),
    ),
    Mutant(
        "time_looked_for_on_the_disk_only", "P4", BUCKET,
        "if self.remote is None or not 0 < local <= self.log.start:",
        "if self.remote is None or not 0 < local < self.log.start:",
        (f"{IN_ANSWERS}::test_every_time_gives_the_exact_first_offset_across_the_boundary",),
    ),
    Mutant(
        "hole_taken_for_a_beginning", "P4", BUCKET,
        "held.segments and held.start < start <= held.end else None",
        "held.segments and held.start < start else None",
        (f"{IN_REMOTE_RETENTION}::test_a_hole_between_remote_storage_and_the_log_is_no_beginning",),
    ),
    Mutant(
        "remote_block_without_crc", "P7", BLOCKS,
        "if len(data) != stop - start or google_crc32c.value(data) != crc:",
        "if len(data) != stop - start:",
        (f"{IN_TORN}::test_a_file_with_any_byte_flipped_gives_a_prefix[.log]",),
    ),
    Mutant(
        "remote_index_without_crc", "P7", BLOCKS,
        "if (found := google_crc32c.value(body)) != crc or len(body)",
        "if (found := crc) != crc or len(body)",
        (f"{IN_TORN}::test_a_file_with_any_byte_flipped_gives_a_prefix[.blocks]",),
    ),
    Mutant(
        "index_of_another_segment_taken", "P7", BLOCKS,
        "if self.index.key != key:",
        "if self.index.key.base_offset < 0:",
        (f"{IN_TORN}::test_what_a_server_may_not_answer_is_refused",),
    ),
    Mutant(
        "manifest_without_crc", "P7", "fluss_lab/records/checksummed_json.py",
        "return body if seal_content(body) == data else None",
        "return body",
        (f"{IN_COPY}::test_a_manifest_cut_or_flipped_anywhere_is_refused_and_nothing_is_lost[False]",),
    ),
    Mutant(
        "manifest_with_a_hole_taken", "P7", MANIFEST,
        "if before.end_offset != after.base_offset:",
        "if before.end_offset > after.base_offset:",
        (f"{IN_COPY}::test_a_manifest_with_a_hole_is_refused",),
    ),
    Mutant(
        "damaged_segment_copied", "P7", COPY,
        "if (found := checksum(whole[CRC_START:])) != header.crc:",
        "if (found := header.crc) != header.crc:",
        (f"{IN_COPY}::test_a_damaged_local_segment_is_not_copied",),
    ),
    Mutant(
        "lost_segment_asked_for_again_and_again", "P8", CLIENT,
        "if gone.segment_id != self._segment_id:",
        "if gone.segment_id:",
        (f"{IN_TORN}::test_a_segment_that_is_lost_is_reported_by_name_at_the_second_try",),
    ),
    Mutant(
        "segment_id_becomes_any_path", "P8", CLIENT,
        "if not _SEGMENT_ID.fullmatch(each.remote_log_segment_id):",
        "if not each.remote_log_segment_id:",
        (f"{IN_TORN}::test_what_a_server_may_not_answer_is_refused",),
    ),
    Mutant(
        "prefix_claimed_over_another_lab", "P1", "fluss_lab/server/folder/remote_storage.py",
        '.encode(), ABSENT)\n',
        ".encode())\n",
        (f"{IN_OBJECTS}::test_of_two_labs_that_claim_one_at_once_one_has_it",),
    ),
    Mutant(
        "manifest_of_another_server_replaced", "P13", GUARDED,
        "            return self._store.put(self.place, data, self._version)\n",
        "            return self._store.put(self.place, data)\n",
        (f"{IN_OBJECTS}::test_of_two_servers_on_copies_of_one_folder_the_second_replaces_nothing",),
    ),
    Mutant(
        "manifest_of_another_server_taken_for_ones_own", "P13", GUARDED,
        "            if found not in self._unanswered:\n",
        "            if not found:\n",
        (f"{IN_OBJECTS}::test_of_two_servers_on_copies_of_one_folder_the_second_replaces_nothing",),
    ),
    Mutant(
        "unanswered_manifest_forgotten", "P6", GUARDED,
        "            self._unanswered.append(data)\n",
        "",
        (f"{IN_OBJECTS}::test_a_manifest_whose_answer_is_lost_counts_once[True]",),
    ),
    Mutant(
        "copies_of_another_server_taken_for_leftovers", "P1", REMOTE_LOG,
        "                if left:\n                    self._save(manifest, holds=True)\n",
        "",
        (
            f"{IN_OBJECTS}::test_of_two_servers_on_copies_of_one_folder_the_second_replaces_nothing",
            f"{IN_OBJECTS}::test_what_another_server_copied_is_no_leftover",
        ),
    ),
    Mutant(
        "snapshots_of_another_server_swept", "P1", "fluss_lab/server/kv/kv_snapshot.py",
        "        \"\"\"\n        self._hold.keep()\n",
        "        \"\"\"\n",
        (f"{IN_LABS}::test_of_two_servers_on_copies_of_one_folder_the_first_sweeps_nothing",),
    ),
    Mutant(
        "new_object_written_over_another", "P13", OBJECTS,
        'self.put(place, b"".join(draft.pieces), ABSENT)',
        'self.put(place, b"".join(draft.pieces))',
        ("tests/unit/storage/test_file_stores.py::test_a_new_file_replaces_none",),
    ),
    Mutant(
        "object_of_another_taken_for_a_lost_answer", "P13", OBJECTS,
        "return version if found == data else None",
        "return version",
        ("tests/unit/storage/test_object_store.py::test_a_version_that_is_not_there_is_not_replaced",),
    ),
    Mutant(
        "absent_bucket_taken_for_an_empty_one", "P11", OBJECTS,
        'if code == "NoSuchBucket":',
        'if code == "NoSuchBucke":',
        (f"{IN_OBJECTS}::test_a_bucket_that_is_not_there_is_not_an_empty_one",),
    ),
    Mutant(
        "credentials_of_remote_storage_described", "P10", "fluss_lab/server/coordinator/remote_access.py",
        "        if key not in hidden:\n",
        "        if key:\n",
        (f"{IN_LABS}::test_credentials_are_in_no_description",),
    ),
    Mutant(
        "two_labs_in_one_remote_folder", "P1", "fluss_lab/server/folder/remote_storage.py",
        "if found is not None and found != begun:",
        "if found is not None and not found:",
        (f"{IN_DIR}::test_two_labs_cannot_have_one",),
    ),
)  # fmt: skip

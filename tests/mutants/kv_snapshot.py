"""Mutants of key-value snapshots: written in order, checked when read, with one to fall back to."""

from tests.mutants.mutant import Mutant

SNAPSHOT = "fluss_lab/server/kv/kv_snapshot.py"
FOLDER = "fluss_lab/server/kv/snapshot_folder.py"
KV_FILES = "fluss_lab/records/kv_files.py"
MANIFEST = "fluss_lab/records/kv_manifest.py"
SNAPSHOTS = "fluss_lab/server/tablet/buckets/kv_snapshotter.py"
COORDINATOR = "fluss_lab/server/coordinator/tablets/kv_snapshot_registry.py"

IN_STORE = "tests/unit/server/kv/test_kv_snapshot.py"
IN_DAMAGE = "tests/unit/server/kv/test_snapshot_damage.py"
IN_CRASHES = "tests/unit/server/kv/test_snapshot_crashes.py"
IN_FILES = "tests/unit/server/kv/test_file_changes.py"
IN_TABLET = "tests/unit/server/tablet/buckets/test_kv_snapshotter.py"
IN_COORDINATOR = "tests/unit/server/coordinator/tablets/test_kv_snapshot_registry.py"

#: P6: recovery finds a snapshot that is whole. P7: corrupt bytes are never served. P9: a full disk leaves what was.
KV_SNAPSHOTS = (
    Mutant(
        "snapshot_manifest_before_its_files", "P6", SNAPSHOT,
        '        failpoint("kv.snapshot.before_live")\n',
        '        early = SnapshotManifest(self._bucket, snapshot_id, image.log_offset, 0, 0, 0, (), (), write_live('
        'self.folder / f"{snapshot_id:010d}-9.live", []), None)\n'
        "        store_of(self.folder).put(self.folder / early.name, early.to_bytes())\n"
        '        failpoint("kv.snapshot.before_live")\n',
        (f"{IN_CRASHES}::test_what_was_complete_is_read[kv.snapshot.before_live]",),
    ),
    Mutant(
        "snapshot_file_without_crc", "P7", KV_FILES,
        "    if crc != mark.crc:\n",
        "    if crc < 0:\n",
        (f"{IN_DAMAGE}::test_a_damaged_file_is_refused[0000000001-0.chunks]",),
    ),
    Mutant(
        "rows_of_a_file_that_was_changed_under_the_server", "P7", "fluss_lab/server/tablet/buckets/kv_bucket.py",
        "        if self._behind is None and (changed := self.store.files.find_changed()) is not None:\n",
        "        if (changed := None) is not None:\n",
        (f"{IN_FILES}::test_rows_are_made_again_from_the_log[_lookup]",),
    ),
    Mutant(
        "scan_of_a_file_that_was_changed_under_it", "P7", "fluss_lab/server/tablet/requests/bucket_scans.py",
        "                if (changed := session.files.find_changed()) is not None:\n",
        "                if (changed := None) is not None:\n",
        (f"{IN_FILES}::test_a_scan_under_way_ends_instead_of_giving_what_was_changed",),
    ),
    Mutant(
        "snapshot_built_on_a_file_that_was_changed", "P6", SNAPSHOT,
        "        return known is None or not known.is_changed()\n",
        "        return True or known is None\n",
        (f"{IN_FILES}::test_no_snapshot_is_built_on_a_file_that_was_changed",),
    ),
    Mutant(
        "file_that_was_touched_taken_for_changed", "P8", "fluss_lab/server/kv/file_changes.py",
        "            check_file(self.path, self.mark)\n",
        "            raise OSError\n",
        (f"{IN_FILES}::test_what_is_touched_but_not_changed_is_read_on",),
    ),
    Mutant(
        "snapshot_manifest_without_crc", "P7", "fluss_lab/records/checksummed_json.py",
        "return body if seal_content(body) == data else None",
        "return body",
        (f"{IN_DAMAGE}::test_a_damaged_file_is_refused[0000000001.manifest]",),
    ),
    Mutant(
        "snapshot_without_fall_back", "P6", SNAPSHOT,
        "        for manifest in self._manifests:\n",
        "        for manifest in self._manifests[:1]:\n",
        (f"{IN_STORE}::test_a_broken_snapshot_is_set_aside_and_the_one_before_is_read",),
    ),
    Mutant(
        "broken_snapshot_still_retained", "P6", SNAPSHOT,
        "                self._manifests = tuple(each for each in self._manifests if each is not manifest)\n",
        "",
        (f"{IN_STORE}::test_a_broken_snapshot_is_set_aside_and_the_one_before_is_read",),
    ),
    Mutant(
        "snapshots_deleted_before_the_new_manifest", "P6", SNAPSHOT,
        '        failpoint("kv.snapshot.before_manifest")\n',
        "        self._folder.remove_manifests(())\n"
        '        failpoint("kv.snapshot.before_manifest")\n',
        (f"{IN_CRASHES}::test_what_was_complete_is_read[kv.snapshot.before_manifest]",),
    ),
    Mutant(
        "shared_files_deleted", "P6", SNAPSHOT,
        "{name for manifest in self._manifests for name in manifest.file_names}",
        "self._manifests[0].file_names if self._manifests else set()",
        (f"{IN_STORE}::test_the_retained_ones_stay_and_what_they_need",),
    ),
    Mutant(
        "retained_floor_too_high", "P1", SNAPSHOT,
        "        return min((manifest.log_offset for manifest in self._manifests[: self._retained]), default=None)\n",
        "        return max((manifest.log_offset for manifest in self._manifests[: self._retained]), default=None)\n",
        (f"{IN_STORE}::test_the_retained_ones_stay_and_what_they_need",),
    ),
    Mutant(
        "chunks_shared_with_a_snapshot_not_loaded", "P7", SNAPSHOT,
        "        self._base: SnapshotManifest | None = None\n",
        "        self._base: SnapshotManifest | None = next(iter(SnapshotFolder(folder, bucket).manifests()), None)\n",
        (
            f"{IN_STORE}::test_a_state_that_was_not_loaded_shares_nothing",
            f"{IN_STORE}::test_chunk_ids_used_again_after_a_fall_back_are_other_chunks",
        ),
    ),
    Mutant(
        "snapshot_id_used_again", "P6", SNAPSHOT,
        "            snapshot_id = max(self._folder.id_max() + 1, self._id_min)\n",
        "            snapshot_id = max((each.snapshot_id + 1 for each in self._manifests), default=0)\n",
        (f"{IN_STORE}::test_a_broken_snapshot_is_set_aside_and_the_one_before_is_read",),
    ),
    Mutant(
        "failed_snapshot_leaves_its_files", "P9", SNAPSHOT,
        "                self._abandon(snapshot_id)\n",
        "                log.debug('%d', snapshot_id)\n",
        (f"{IN_STORE}::test_an_attempt_that_fails_leaves_nothing",),
    ),
    Mutant(
        "live_rows_not_counted", "P7", KV_FILES,
        "or rows_live != manifest.row_count:\n",
        "or rows_live < 0:\n",
        (f"{IN_DAMAGE}::test_what_the_sums_cannot_see_is_still_checked",),
    ),
    Mutant(
        "snapshot_of_another_bucket_taken", "P7", FOLDER,
        "        if manifest.bucket != self._bucket:\n",
        "        if manifest.bucket is None:\n",
        (f"{IN_STORE}::test_a_snapshot_of_another_bucket_is_refused",),
    ),
    Mutant(
        "snapshot_ahead_of_the_durable_log", "P1", SNAPSHOTS,
        "            bucket.log.sync()\n",
        "",
        (f"{IN_TABLET}::test_a_snapshot_never_knows_more_than_the_durable_log",),
    ),
    Mutant(
        "snapshot_report_of_an_old_coordinator_taken", "P5", COORDINATOR,
        "        if request.coordinator_epoch != self._coordinator_epoch:\n",
        "        if request.coordinator_epoch < 0:\n",
        (f"{IN_COORDINATOR}::test_a_report_for_another_coordinator_or_leader_is_refused",),
    ),
    Mutant(
        "older_snapshot_takes_the_place_of_a_newer_one", "P6", COORDINATOR,
        "        if completed.snapshot_id < newest and newest not in completed.broken:\n",
        "        if completed.snapshot_id < 0:\n",
        (f"{IN_COORDINATOR}::test_an_id_is_never_taken_for_another_snapshot",),
    ),
)  # fmt: skip

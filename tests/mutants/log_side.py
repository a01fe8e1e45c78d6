"""Mutants of what follows, replays and compares the log across cluster and lake."""

from tests.mutants.mutant import BUCKET, IN_OFFSETS, Mutant

FETCHER = "fluss_lab/client/log/log_fetcher.py"
OFFSETS = "fluss_lab/client/cluster/list_offsets.py"
NET = "fluss_lab/read/changelog/net_changes.py"
RANGES = "fluss_lab/read/changelog/offset_ranges.py"
IN_NEWS = "tests/unit/server/test_lake_news.py"
IN_LAKE_LOG = "tests/unit/client/log/test_lake_log.py"
IN_FETCHING = "tests/unit/client/log/test_fetch_codec.py"
IN_COUNTED = "tests/unit/read/changelog/test_counted_diff.py"
IN_REPLAY = "tests/unit/read/changelog/test_replay.py"
IN_EDGES = "tests/unit/read/changelog/test_edges.py"

LOG_SIDE = (
    Mutant(
        "late_lake_news_believed", "P2", "fluss_lab/server/tablet/buckets/bucket_store.py",
        "if sequence < self._lake_sequences.get(bucket, sequence):",
        "if sequence < 0:",
        (f"{IN_NEWS}::test_a_late_word_of_an_older_commit_changes_nothing",),
    ),
    Mutant(
        "lake_news_without_their_order", "P2", "fluss_lab/server/coordinator/coordinator_messages.py",
        "snapshot_id=snapshot.snapshot_id, commit_sequence=snapshot.sequence",
        "snapshot_id=snapshot.snapshot_id",
        (f"{IN_NEWS}::test_a_commit_is_reported_with_its_place_in_the_order",),
    ),
    Mutant(
        "lake_with_a_hole_behind_it_offered", "P4", BUCKET,
        "return self.start < offset <= self.end",
        "return self.start < offset",
        (f"{IN_OFFSETS}::test_a_lake_with_a_hole_behind_it_is_passed_over",),
    ),
    Mutant(
        "records_that_leave_in_the_middle_of_a_fetch_refused", "P4", "fluss_lab/server/tablet/requests/fetch_log.py",
        "            if want.request.fetch_offset >= bucket.log.start:",
        "            if want.request.fetch_offset >= 0:",
        (
            "tests/unit/read/changelog/test_following.py"
            "::test_records_that_leave_the_log_before_their_previous_offsets_are_read_come_from_the_lake",
        ),
    ),
    Mutant(
        "earliest_offset_by_the_lake_of_before", "P4", BUCKET,
        "        lake = self.lake  # once more, after the start",
        "        # once more, after the start",
        (f"{IN_OFFSETS}::test_what_leaves_for_the_lake_while_an_offset_is_looked_for_is_not_passed_over",),
    ),
    Mutant(
        "offset_by_time_by_the_lake_of_before", "P4", BUCKET,
        "        failpoint(\"tablet.offsets.before_log\")\n",
        "        seen = self.lake\n        failpoint(\"tablet.offsets.before_log\")\n        self.lake = seen\n",
        (f"{IN_OFFSETS}::test_what_leaves_for_the_lake_while_an_offset_is_looked_for_is_not_passed_over",),
    ),
    Mutant(
        "before_the_replay_start_sent_to_the_lake", "P4", BUCKET,
        "lake.start <= offset < lake.end:",
        "offset < lake.end:",
        (f"{IN_NEWS}::test_an_offset_before_the_replay_start_is_out_of_range_and_the_earliest_is_named",),
    ),
    Mutant(
        "warned_again_and_again", "P8", "fluss_lab/client/cluster/cluster_client.py",
        "        if not known:\n            log.warning(",
        "        if info:\n            log.warning(",
        (f"{IN_LAKE_LOG}::test_without_the_plug_in_the_client_goes_on_as_before_and_says_so_once",),
    ),
    Mutant(
        "expired_snapshot_answered_by_the_cluster", "P4", OFFSETS,
        "answer = _call_leaders(connection, [bucket], query, enable_lake=True)[bucket]",
        "answer = _call_leaders(connection, [bucket], query, enable_lake=False)[bucket]",
        (f"{IN_LAKE_LOG}::test_a_time_is_looked_for_in_the_snapshot_that_took_the_place_of_an_expired_one",),
    ),
    Mutant(
        "address_kept_behind_the_last_attempt", "P11", "fluss_lab/client/cluster/cluster_client.py",
        "                self._address = None\n                tries.wait_after(failure, str(used or \"an unknown address\"))\n",
        "                tries.wait_after(failure, str(used or \"an unknown address\"))\n                self._address = None\n",
        ("tests/unit/client/test_connection.py::test_single_attempts_find_a_server_that_came_back_elsewhere",),
    ),
    Mutant(
        "scanner_spins_on_an_expired_snapshot", "P8", FETCHER,
        "if fetched.lake is None or fetched.lake.snapshot_id != position.lake_gone:",
        "if fetched.lake is None or fetched.lake:",
        (f"{IN_LAKE_LOG}::test_a_snapshot_that_is_named_again_and_again_though_it_is_gone_ends_the_question",),
    ),
    Mutant(
        "changelog_without_change_types_taken", "P7", "fluss_lab/client/log/range_reader.py",
        "if keyed and (records.change_types is None",
        "if not keyed and (records.change_types is None",
        (f"{IN_FETCHING}::test_a_changelog_from_the_lake_has_change_types_and_previous_offsets",),
    ),
    Mutant(
        "time_before_the_replay_start_taken", "P4", RANGES,
        "if moment_ms <= next_ms:",
        "if moment_ms < 0:",
        (f"{IN_REPLAY}::test_replay_begins_at_the_replay_start_and_says_so",),
    ),
    Mutant(
        "time_of_the_earliest_record_taken", "P4", RANGES,
        "if moment_ms <= next_ms:",
        "if moment_ms < next_ms:",
        (f"{IN_REPLAY}::test_replay_begins_at_the_replay_start_and_says_so",),
    ),
    Mutant(
        "remade_partition_taken_for_the_first", "P4", RANGES,
        "if now.get((partition, bucket), -1) == partition_id",
        "if (partition, bucket) in now",
        (f"{IN_EDGES}::test_what_was_planned_of_a_partition_is_not_read_from_one_made_again_under_its_name",),
    ),
    Mutant(
        "earliest_behind_a_hole", "P4", "fluss_lab/read/moment/log_retention.py",
        "return bucket.is_dropped or surely_holds(bucket, bucket.lake_end)",
        "return bucket.lake_end > 0",
        (f"{IN_EDGES}::test_a_lake_with_a_hole_behind_it_is_not_where_a_table_begins",),
    ),
    Mutant(
        "net_of_events_astray", "P7", NET,
        "np.flatnonzero(rows >= offsets)",
        "np.flatnonzero(rows < -1)",
        (f"{IN_REPLAY}::test_events_that_contradict_each_other_are_noticed",),
    ),
    Mutant(
        "net_with_a_key_twice", "P7", NET,
        "for each in (one, other)) > 1:",
        "for each in (one, other)) > 9:",
        (f"{IN_REPLAY}::test_events_that_contradict_each_other_are_noticed",),
    ),
    Mutant(
        "net_holds_wide_rows", "P8", NET,
        "if size_bytes > HELD_BYTES_MAX:\n                held = None",
        "if size_bytes > HELD_BYTES_MAX:\n                held = []",
        (f"{IN_REPLAY}::test_wide_rows_are_not_held_for_a_second_look",),
    ),
    Mutant(
        "net_takes_zeros_for_equal", "P4", NET,
        "return column.view(widths[column.type]) if column.type in widths else column",
        "return column",
        (f"{IN_REPLAY}::test_every_way_in_which_a_key_can_change",),
    ),
    Mutant(
        "net_slices_of_any_size", "P8", NET,
        "if (rows > HELD_RECORDS_MAX or size_bytes > HELD_BYTES_MAX) and count < SLICES_MAX:",
        "if rows < 0:",
        (f"{IN_COUNTED}::test_wide_rows_make_slices_too",),
    ),
    Mutant(
        "net_slice_with_some_of_a_key", "P4", NET,
        "keys = [records.rows.column(name) for name in source.info.schema.primary_key]",
        "keys = [records.offsets]",
        (f"{IN_COUNTED}::test_it_is_the_difference_forward_and_back",),
    ),
    Mutant(
        "counts_reported_forward_only", "P4", "fluss_lab/read/changelog/counted_diff.py",
        "shown = name if is_forward else _REVERSED[name]",
        "shown = name",
        (f"{IN_COUNTED}::test_it_is_the_difference_forward_and_back",),
    ),
    Mutant(
        "difference_reported_forward_only", "P4", "fluss_lab/read/changelog/table_diff.py",
        "changes.append((part, change if is_forward else change.reverse()))",
        "changes.append((part, change))",
        (f"{IN_REPLAY}::test_a_difference_shows_what_was_added_removed_and_changed",),
    ),
)  # fmt: skip

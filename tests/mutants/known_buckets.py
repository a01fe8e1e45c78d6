"""Mutants of what takes a bucket that is not known for an empty or a shorter one."""

from tests.mutants.mutant import Mutant

IN_UNKNOWN = "tests/unit/read/moment/test_unknown_buckets.py"
IN_GAPS = "tests/unit/read/moment/test_log_retention.py"
SCAN = "fluss_lab/read/union/scan.py"
GENERATOR = "fluss_lab/tiering/round/split_generator.py"
HISTORY = "fluss_lab/read/changelog/row_history.py"
IN_HISTORY = "tests/unit/read/changelog/test_row_history.py"
IN_PLACES = "tests/unit/read/moment/test_record_place.py"

KNOWN_BUCKETS = (
    Mutant(
        "ended_log_described_as_shorter", "P7", "fluss_lab/server/tablet/buckets/bucket_description.py",
        "if stopped is not None and not isinstance(stopped, StorageError):",
        "if stopped is not None and isinstance(stopped, StorageError):",
        (f"{IN_UNKNOWN}::test_a_log_that_was_ended_early_is_not_taken_for_a_shorter_one",),
    ),
    Mutant(
        "round_passes_over_unknown_buckets", "P2", GENERATOR,
        "                found[bucket.partition_id].append(status.require())",
        "                if isinstance(status, KnownBucket):\n                    found[bucket.partition_id].append(status)",
        (f"{IN_UNKNOWN}::test_a_round_over_an_unknown_bucket_fails_with_its_error",),
    ),
    Mutant(
        "table_begun_at_an_unconfirmed_start", "P2", GENERATOR,
        "            return status.start_offset\n        where",
        "            return status.local_start_offset\n        where",
        (f"{IN_UNKNOWN}::test_a_table_is_not_begun_in_the_lake_at_a_start_that_nobody_confirmed",),
    ),
    Mutant(
        "unknown_buckets_left_out_of_a_scan", "P4", "fluss_lab/read/union/read_plan.py",
        "            raise missing.error",
        "            continue",
        (f"{IN_UNKNOWN}::test_a_read_that_touches_an_unknown_bucket_is_refused",),
    ),
    Mutant(
        "changelog_begins_where_the_start_is_not_known", "P4", "fluss_lab/read/changelog/offset_ranges.py",
        "return _Edge({each.key: known_start(each, low) for each in state.buckets})",
        "return _Edge({each.key: low[each.key] for each in state.buckets if each.key in low})",
        (f"{IN_UNKNOWN}::test_a_table_is_not_begun_in_the_lake_at_a_start_that_nobody_confirmed",),
    ),
    Mutant(
        "healthy_buckets_refused_with_others", "P4", "fluss_lab/read/table_reader.py",
        "take = self._read_point if fixed is None else lambda: fixed",
        "take = self.read_point if fixed is None else lambda: fixed",
        (f"{IN_UNKNOWN}::test_what_does_not_touch_an_unknown_bucket_goes_on",),
    ),
    Mutant(
        "good_records_lost_to_damage_behind_them", "P7", "fluss_lab/server/tablet/requests/fetch_log.py",
        "            except CorruptDataError:\n                if not payload:",
        "            except UnsupportedError:\n                if not payload:",
        ("tests/unit/server/tablet/log/test_tablet_fetch.py::test_good_batches_before_a_damaged_one_are_served",),
    ),
    Mutant(
        "gaps_counted", "P4", SCAN,
        "if (known := part.record_count) is not None and is_vouched(self.source, part):",
        "if (known := part.record_count) is not None:",
        (f"{IN_UNKNOWN}::test_a_count_at_a_point_reads_what_nobody_vouches_for",),
    ),
    Mutant(
        "gaps_planned_over", "P4", "fluss_lab/read/union/read_plan.py",
        "    if source.info.is_log_table and not _is_whole(source, divided, snapshot):\n        check_gaps",
        "    if source.info.is_log_table and source.is_looked_at:\n        check_gaps",
        (f"{IN_GAPS}::test_a_point_from_before_the_lakes_first_record_is_refused_and_never_read_as_empty",),
    ),
    Mutant(
        "lake_taken_for_whole", "P4", "fluss_lab/read/union/read_plan.py",
        "lake_starts.get(part.bucket, 0) <= part.start and source.cluster_holds(",
        "source.cluster_holds(",
        (f"{IN_GAPS}::test_a_point_from_before_the_lakes_first_record_is_refused_and_never_read_as_empty",),
    ),
    Mutant(
        "log_taken_for_whole", "P4", "fluss_lab/read/union/read_plan.py",
        " and source.cluster_holds(part.bucket, part.log_start, part.stop)\n",
        "\n",
        (f"{IN_GAPS}::test_a_gap_is_named_by_every_read_that_touches_it",),
    ),
    Mutant(
        "gaps_of_the_cluster_planned_over", "P4", "fluss_lab/read/moment/log_retention.py",
        "if (gap := early or gap_of(source, part)) is not None:",
        "if (gap := early) is not None:",
        (f"{IN_GAPS}::test_a_gap_is_named_by_every_read_that_touches_it",),
    ),
    Mutant(
        "gaps_before_the_lake_read_as_empty", "P4", "fluss_lab/read/moment/log_retention.py",
        "if each.start < start}",
        "if each.start > start}",
        (f"{IN_GAPS}::test_a_point_from_before_the_lakes_first_record_is_refused_and_never_read_as_empty",),
    ),
    Mutant(
        "gaps_skipped_in_silence", "P4", SCAN,
        "        if gaps:\n            warn_of_gaps(self.source, gaps)\n",
        "",
        (f"{IN_GAPS}::test_a_gap_is_skipped_only_on_request_and_loudly",),
    ),
    Mutant(
        "times_before_a_gap_read_behind_it", "P4", "fluss_lab/read/moment/table_state.py",
        "if not each.is_dropped and self._has_rows_before_a_gap(each, state):",
        "if each.is_dropped and self._has_rows_before_a_gap(each, state):",
        (f"{IN_GAPS}::test_what_the_lake_has_from_before_an_accepted_gap_stays_readable",),
    ),
    Mutant(
        "ranges_before_a_gap_taken_for_lost", "P4", "fluss_lab/read/changelog/offset_ranges.py",
        "ranges = [] if each.stop is None else held_ranges(source, state, each.bucket)",
        "ranges: list[tuple[int, int]] = []",
        (f"{IN_GAPS}::test_both_sides_of_a_gap_are_read",),
    ),
    Mutant(
        "keyed_rows_behind_a_gap_given_for_those_before", "P11", "fluss_lab/read/moment/as_of.py",
        "<= local_start and not bucket.holds_from(bucket.lake_end)",
        "<= local_start and not bucket.holds_from(bucket.end)",
        ("tests/unit/read/union/test_keyed_boundaries.py::test_a_time_within_the_gap_behind_a_lake_that_was_switched_off_is_refused",),
    ),
    Mutant(
        "changes_since_a_time_within_a_gap_without_the_gap", "P11", "fluss_lab/read/changelog/offset_ranges.py",
        " or (known is not None and _follows_gap(source, state, known, each.stop))",
        "",
        (f"{IN_GAPS}::test_what_happened_from_a_time_within_a_gap_on_is_refused",),
    ),
    Mutant(
        "empty_log_taken_for_one_where_nothing_happened", "P11", "fluss_lab/read/changelog/offset_ranges.py",
        "next_ms = last_time(state, each) if answer.timestamp_ms is None",
        "next_ms = -1 if answer.timestamp_ms is None",
        (f"{IN_GAPS}::test_a_log_that_is_empty_by_now_does_not_say_that_nothing_happened",),
    ),
    Mutant(
        "unsaid_start_in_the_lake_passed_over", "P11", "fluss_lab/client/cluster/bucket_status.py",
        "return self.lake_end_offset is not None and self.lake_start_offset is None",
        "return False",
        (
            "tests/unit/client/cluster/test_bucket_status.py"
            "::test_a_server_that_does_not_say_where_the_lake_begins_leaves_it_unknown",
            "tests/unit/workbench/health/test_bucket_findings.py"
            "::test_a_server_of_an_older_version_is_one_warning_and_no_table_has_failed",
        ),
    ),
    Mutant(
        "record_that_is_nowhere_given_a_place", "P11", "fluss_lab/read/moment/record_place.py",
        "    if not times:\n        return None\n",
        "    times = times or [0]\n",
        (f"{IN_PLACES}::test_a_record_that_is_held_nowhere_any_more_says_what_is",),
    ),
    Mutant(
        "record_that_moved_into_the_lake_called_gone", "P11", "fluss_lab/read/moment/record_place.py",
        "        before = state.snapshot_id\n        found, state = source.answer(look)\n",
        "        before = state.snapshot_id\n",
        (f"{IN_PLACES}::test_a_record_that_moves_into_the_lake_meanwhile_is_found_there",),
    ),
    Mutant(
        "remote_storage_that_cannot_be_read_taken_for_empty", "P11", "fluss_lab/server/tablet/requests/record_location.py",
        "        remote, response.remote_error = None, str(error)\n",
        "        remote = None\n",
        (
            "tests/unit/server/tablet/requests/test_record_location.py"
            "::test_a_damaged_block_of_remote_storage_is_said_where_only_that_has_the_record",
        ),
    ),
    Mutant(
        "history_with_a_change_missing", "P11", HISTORY,
        "                if self._live != (previous if previous >= self._part.start else None):",
        "                if False:",
        (f"{IN_HISTORY}::test_a_change_that_is_missing_is_seen",),
    ),
    Mutant(
        "history_that_begins_late_taken_for_whole", "P11", HISTORY,
        "        if start > 0:\n",
        "        if start < 0:\n",
        (f"{IN_HISTORY}::test_a_history_that_begins_late_says_from_where",),
    ),
    Mutant(
        "pages_end_where_a_read_failed", "P11", "fluss_lab/read/union/row_pages.py",
        "        except BaseException:\n            self._restart(None)\n            raise\n",
        "        except ArithmeticError:\n            raise\n",
        ("tests/unit/read/union/test_row_pages.py::test_a_read_that_fails_is_begun_again",),
    ),
)  # fmt: skip

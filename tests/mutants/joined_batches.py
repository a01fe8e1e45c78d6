"""Mutants of small batches that are decoded together, and of answers that are asked for together."""

from tests.mutants.mutant import Mutant

RUNS = "fluss_lab/records/batch_runs.py"
IN_RUNS = "tests/unit/records/test_batch_runs.py"
AHEAD = "fluss_lab/client/log/read_ahead.py"
LOG_READER = "fluss_lab/server/tablet/log/log_reader.py"
IN_RANGES = "tests/unit/client/log/test_range_reader.py"
IN_LOG = "tests/unit/server/tablet/log/test_bucket_log.py"

#: P4: what is read is what is there. P7: corrupt bytes are never served.
JOINED_BATCHES = (
    Mutant(
        "answer_behind_which_one_is_already_taken_for_the_next", "P4", AHEAD,
        "return None if (end := found.next_offset) is not None and end <= offset else found",
        "return found",
        (f"{IN_RANGES}::test_any_range_of_batches_of_any_size_is_read_whole",),
    ),
    Mutant(
        "gap_before_an_answer_under_way_left_out", "P4", AHEAD,
        "if not self._under_way or self._under_way[0].offset > offset:",
        "if not self._under_way:",
        (f"{IN_RANGES}::test_any_range_of_batches_of_any_size_is_read_whole",),
    ),
    Mutant(
        "batch_that_holds_the_stop_left_out", "P4", LOG_READER,
        "return place.position + (segment.header(place, limit).size if place.base_offset < stop else 0)",
        "return place.position",
        (f"{IN_LOG}::test_a_read_that_stops_has_all_batches_that_begin_before_and_no_other",),
    ),
    Mutant(
        "next_segment_read_behind_the_stop", "P4", LOG_READER,
        "            if stop is not None and offset >= stop:\n",
        "            if stop is not None and offset > stop + 1_000:\n",
        (f"{IN_LOG}::test_a_read_that_stops_has_all_batches_that_begin_before_and_no_other",),
    ),
    Mutant(
        "damage_at_the_stop_hides_what_is_good", "P7", LOG_READER,
        "        except UNREADABLE:\n            return limit  # what is good",
        "        except UNREADABLE:\n            raise  # what is good",
        (f"{IN_LOG}::test_a_read_that_stops_at_damage_has_what_is_good_before_it",),
    ),
    Mutant(
        "crcs_of_joined_batches_not_compared", "P7", RUNS,
        "        if not self._crcs_agree():\n",
        "        if self._headers is None:\n",
        (f"{IN_RUNS}::test_a_flipped_byte_is_noticed_and_what_came_before_it_is_right",),
    ),
    Mutant(
        "gap_joined_over", "P4", RUNS,
        " & (base[1:] == base[:-1] + count[:-1])\n",
        "\n",
        (f"{IN_RUNS}::test_a_gap_between_batches_stays_one",),
    ),
    Mutant(
        "batches_of_another_schema_joined", "P4", RUNS,
        "    follows &= (schema[1:] == schema[:-1]) & (kind[1:] == kind[:-1])\n",
        "    follows &= kind[1:] == kind[:-1]\n",
        (f"{IN_RUNS}::test_small_batches_are_joined_up_to_a_change_of_schema_or_kind",),
    ),
    Mutant(
        "message_reaches_into_the_next_batch", "P7", RUNS,
        "        if not self._are_messages(begins, ends):\n",
        "        if ends is None:\n",
        (f"{IN_RUNS}::test_a_message_ends_with_its_batch",),
    ),
    Mutant(
        "rows_of_joined_batches_counted_only_together", "P7", RUNS,
        "        if [each.num_rows for each in found] != self._counts.tolist():\n",
        "        if not found:\n",
        (f"{IN_RUNS}::test_batches_that_do_not_have_their_own_rows_are_refused",),
    ),
    Mutant(
        "joined_batches_not_validated", "P7", RUNS,
        "            table.validate(full=True)\n",
        "",
        (f"{IN_RUNS}::test_what_a_crc_cannot_see_is_checked_of_each_batch",),
    ),
    Mutant(
        "nulls_in_joined_batches_let_in", "P7", RUNS,
        "            if table.column(index).null_count:\n",
        "            if table.column(index) is None:\n",
        (f"{IN_RUNS}::test_what_a_crc_cannot_see_is_checked_of_each_batch",),
    ),
    Mutant(
        "all_columns_taken_for_some", "P4", "fluss_lab/server/tablet/requests/fetch_log.py",
        "            found, projection, answer.all_columns = small, None, True\n",
        "            found, projection = small, None\n",
        ("tests/unit/server/tablet/log/test_tablet_fetch.py::test_small_batches_come_with_all_columns_where_that_was_allowed",),
    ),
)  # fmt: skip

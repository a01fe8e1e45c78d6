"""Mutants of small batches that are decoded together."""

from tests.mutants.mutant import Mutant

RUNS = "fluss_lab/records/batch_runs.py"
IN_RUNS = "tests/unit/records/test_batch_runs.py"

#: P4: what is read is what is there. P7: corrupt bytes are never served.
JOINED_BATCHES = (
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

"""Mutants of what takes a table for another one of its name, or lets a subscription wait in vain."""

from tests.mutants.mutant import Mutant

IN_IDENTITY = "tests/unit/read/test_table_identity.py"
POSITIONS = "fluss_lab/client/log/fetch_buffer.py"

TABLE_IDENTITY = (
    Mutant(
        "points_and_seeks_of_another_lab_taken", "P13", "fluss_lab/read/moment/table_state.py",
        "        if created_ms is not None and created_ms != self.info.created_ms:\n",
        "        if created_ms == -1:\n",
        (f"{IN_IDENTITY}::test_a_point_or_a_seek_of_another_labs_table_is_refused",),
    ),
    Mutant(
        "partitions_of_another_table_taken", "P4", "fluss_lab/client/cluster/cluster_client.py",
        "            check_table_id(info.path, info.table_id, response.table_id)\n",
        "",
        (f"{IN_IDENTITY}::test_reads_of_a_table_that_was_made_again_say_so",),
    ),
    Mutant(
        "changelog_of_another_table_read_by_spark", "P13", "fluss_lab/spark/source/batch_reader.py",
        "        check_table_id(source.info.path, each.bucket.table_id, source.info.table_id)\n",
        "        str(each)\n",
        ("tests/spark/test_table_source.py::test_a_changelog_of_what_was_made_again_says_so",),
    ),
    Mutant(
        "stream_of_another_table_begun", "P13", "fluss_lab/spark/source/stream_source.py",
        "                check_table_id(info.path, expected, info.table_id)\n",
        "                str(info)\n",
        ("tests/unit/spark/source/test_stream_losses.py::"
         "test_a_stream_that_had_not_begun_when_its_table_was_made_again_is_refused",),
    ),
    Mutant(
        "subscription_silent_for_ever", "P4", POSITIONS,
        "            self._ended = error\n",
        "            self._ended = None\n",
        (f"{IN_IDENTITY}::test_a_subscription_of_a_table_that_was_made_again_ends_with_an_error",),
    ),
    Mutant(
        "point_of_another_table_called_dropped", "P4", "fluss_lab/read/moment/table_state.py",
        "        if path != self.info.path:",
        "        if not path:",
        (f"{IN_IDENTITY}::test_a_point_or_a_seek_of_another_table_is_called_that",),
    ),
    Mutant(
        "partitions_fetched_one_after_another", "P4", "fluss_lab/client/log/log_scanner.py",
        "        self._put(self._positions_of_partitions(known.values(), spec))\n",
        "        for each in known.values():\n            self._put(self._positions_of_partitions([each], spec))\n",
        (f"{IN_IDENTITY}::test_all_partitions_are_fetched_at_once",),
    ),
    Mutant(
        "subscription_from_the_beginning_whatever_the_start", "P4", "fluss_lab/client/log/log_scanner.py",
        "self._position(partitions[bucket.partition_id], bucket.bucket, offset, found=True)",
        "self._position(partitions[bucket.partition_id], bucket.bucket, 0, found=True)",
        (f"{IN_IDENTITY}::test_a_subscription_takes_what_a_changelog_takes",),
    ),
)  # fmt: skip

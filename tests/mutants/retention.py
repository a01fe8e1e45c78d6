"""Mutants of what the cluster may forget: partitions past their time, or dropped by hand."""

from tests.mutants.mutant import LOG, Mutant

DEPARTURES = "fluss_lab/server/coordinator/ddl/partition_drop_check.py"
PARTITIONS = "fluss_lab/server/coordinator/ddl/partition_ddl.py"
DROPPED = "fluss_lab/read/changelog/dropped_records.py"
TABLETS = "fluss_lab/server/coordinator/tablets/leadership.py"
AUTO = "fluss_lab/server/coordinator/ddl/auto_partitioner.py"
MARKS = "fluss_lab/server/coordinator/ddl/partition_records.py"
ADMISSION = "fluss_lab/server/tablet/log/batch_admission.py"
TAKING = "fluss_lab/read/moment/as_of.py"
TIERING = "fluss_lab/server/coordinator/tiering/tiering_manager.py"

IN_DEPARTURES = "tests/unit/server/coordinator/ddl/test_partition_drop_check.py"
IN_CLOCK = "tests/unit/server/coordinator/ddl/test_auto_partitioner.py"
IN_DROPPED = "tests/unit/read/test_dropped_partitions.py"
IN_DROPPED_RECORDS = "tests/unit/read/changelog/test_dropped_records.py"
IN_UNKNOWN = "tests/unit/client/write/test_older_writers.py"
IN_STATES = "tests/unit/server/coordinator/tiering/test_tiering_manager.py"

_KEPT = f"{IN_DROPPED}::test_rows_that_only_the_lake_has_are_not_said_to_be_deleted"
_WAITS = f"{IN_DEPARTURES}::test_retention_waits_until_the_lake_holds_every_bucket"
_BETWEEN = f"{IN_DEPARTURES}::test_no_append_comes_between_the_check_and_the_drop"
_BACK = f"{IN_CLOCK}::test_a_clock_set_back_brings_nothing_back"

RETENTION = (
    Mutant(
        "partition_dropped_before_the_lake_holds_it", "P11", DEPARTURES,
        "        if end.offset > lake_end:\n",
        "        if end.offset > lake_end and not lake_end:\n",
        (f"{IN_DEPARTURES}::test_a_drop_says_what_would_be_lost",),
    ),
    Mutant(
        "retention_does_not_ask_the_lake", "P11", DEPARTURES,
        "return info.descriptor.lake_enabled or",
        "return False and",
        (_WAITS,),
    ),
    Mutant(
        "partition_of_a_switched_off_lake_goes", "P4", DEPARTURES,
        " or bool(self.tiered_offsets(info, partition))",
        "",
        (f"{IN_DEPARTURES}::test_a_lake_that_was_switched_off_still_shows_what_it_holds",),
    ),
    Mutant(
        "bucket_not_closed_while_its_partition_is_dropped", "P1", LOG,
        "                self.seal.close(number)\n",
        "                pass\n",
        (_BETWEEN,),
    ),
    Mutant(
        "appends_to_a_closed_bucket_taken", "P1", ADMISSION,
        "        if None in found:\n",
        "        if not found:\n",
        (_BETWEEN,),
    ),
    Mutant(
        "bucket_stays_closed_when_its_partition_stays", "P9", DEPARTURES,
        "                self._tablets.unseal(group, number)\n",
        "                pass\n",
        (_BETWEEN,),
    ),
    Mutant(
        "seal_of_a_server_that_was_started_again_trusted", "P1", DEPARTURES,
        "if not may_lose and self._tablets.terms() != terms",
        "if not may_lose and self._tablets.terms() is terms",
        (f"{IN_DEPARTURES}::test_a_server_that_was_started_again_in_between_has_no_seal",),
    ),
    Mutant(
        "late_seal_closes_a_bucket_for_ever", "P9", ADMISSION,
        "        if number <= self._opened:\n",
        "        if number < 0:\n",
        (f"{IN_DEPARTURES}::test_a_seal_that_comes_after_it_was_taken_back_is_refused",),
    ),
    Mutant(
        "end_of_a_stopped_bucket_trusted", "P7", LOG,
        "            if self.stopped is not None:\n                raise type(self.stopped)(str(self.stopped))\n",
        "",
        (f"{IN_DEPARTURES}::test_a_bucket_that_stopped_keeps_the_partition",),
    ),
    Mutant(
        "discarded_records_not_noted", "P4", PARTITIONS,
        "if allowed.lost_from_ms is not None:",
        "if allowed.lost_from_ms == -2:",
        (f"{IN_DROPPED}::test_as_of_between_the_end_of_the_lake_and_the_drop_is_refused",),
    ),
    Mutant(
        "partition_dropped_from_the_lake_not_noted", "P4", DEPARTURES,
        "            if not (lost or loses_all):\n",
        "            if not lost or loses_all:\n",
        (f"{IN_DROPPED}::test_as_of_before_a_partition_went_from_the_lake_too",),
    ),
    Mutant(
        "as_of_before_a_loss_answered_short", "P11", TAKING,
        "        _check_losses(source, as_of_ms)\n",
        "        pass\n",
        (f"{IN_DROPPED}::test_as_of_before_a_partition_went_that_was_never_tiered",),
    ),
    Mutant(
        "clock_set_back_makes_partitions_again", "P6", AUTO,
        "if name >= mark.present]",
        "if name >= '']",
        (_BACK,),
    ),
    Mutant(
        "dropped_partition_made_again_by_a_writer", "P6", PARTITIONS,
        "    if value <= mark.dropped:\n",
        "    if value < mark.dropped[:0]:\n",
        (_BACK,),
    ),
    Mutant(
        "mark_goes_back", "P6", MARKS,
        "AutoPartitionMark(max(old.present, mark.present), max(old.dropped, mark.dropped))",
        "AutoPartitionMark(mark.present or old.present, mark.dropped or old.dropped)",
        (_BACK,),
    ),
    Mutant(
        "servers_notified_of_all_partitions", "P8", TABLETS,
        'self._pending.setdefault(("buckets", table_id), set())',
        'self._pending.setdefault(("buckets", table_id), None)',
        (f"{IN_DEPARTURES}::test_servers_hear_of_new_partitions_only",),
    ),
    Mutant(
        "columns_that_a_writer_does_not_know_made_null", "P4", "fluss_lab/server/tablet/buckets/kv_bucket.py",
        "if not columns and header.schema_id != self._schema_id else None",
        "if not columns and header.schema_id > self._schema_id else None",
        (f"{IN_UNKNOWN}::test_a_writer_of_an_older_schema_leaves_columns_alone_that_it_does_not_know",),
    ),
    Mutant(
        "columns_of_a_deleted_row_come_back", "P4", "fluss_lab/server/kv/merge_engines.py",
        "    held[order[before > 0]] = -1\n",
        "    held[order[before < 0]] = -1\n",
        (f"{IN_UNKNOWN}::test_batches_of_an_older_schema_agree_with_a_model",),
    ),
    Mutant(
        "renewal_forgets_or_keeps_the_wrong_session", "P5", TIERING,
        "            if session_id is not None:\n                lease.session_id = session_id\n",
        "            if session_id is None:\n                lease.session_id = session_id\n",
        (f"{IN_STATES}::test_a_hold_is_of_the_session_that_renewed_it_last",),
    ),
    Mutant(
        "partition_dropped_by_a_retention_of_before", "P1", "fluss_lab/server/coordinator/ddl/partition_ddl.py",
        "            if past and not _is_past(info, name, self._clock.now_ms()):\n",
        "            if False:\n",
        (f"{IN_CLOCK}::test_a_partition_that_an_alteration_kept_is_not_dropped_by_a_look_that_began_before",),
    ),
    Mutant(
        "deletes_of_what_only_the_lake_has_said_to_be_done", "P4", "fluss_lab/client/write/dynamic_partitions.py",
        "        if not create:\n            check_absence",
        "        if create:\n            check_absence",
        (f"{_KEPT}[before]",),
    ),
    Mutant(
        "deletes_of_what_only_the_lake_has_done_meanwhile", "P4", "fluss_lab/client/write/batch_sender.py",
        "self._kept_error(batch, name) or error",
        "error",
        (f"{_KEPT}[meanwhile]",),
    ),
    Mutant(
        "deletes_of_what_only_the_lake_has_skipped_by_a_sink", "P4", "fluss_lab/spark/sink/exactly_once_commit.py",
        "        deleted = names - known.keys() - written\n",
        "        deleted: set[str] = set()\n",
        ("tests/unit/spark/sink/test_exactly_once_commit.py::test_rows_that_only_the_lake_has_are_not_said_to_be_deleted",),
    ),
    Mutant(
        "rows_that_only_the_lake_has_looked_up_as_absent", "P4", "fluss_lab/client/kv/lookuper.py",
        "        if kept := lake_partitions(self._connection, self._info, names - known.keys()):\n",
        "        if kept := lake_partitions(self._connection, self._info, set()):\n",
        (f"{IN_DROPPED}::test_rows_that_only_the_lake_has_are_not_looked_up_as_absent",),
    ),
    Mutant(
        "records_lost_with_a_partition_not_remembered", "P4", PARTITIONS,
        "                if lost := allowed.lost():\n",
        "                if (lost := allowed.lost()) and discard:\n",
        (f"{IN_DEPARTURES}::test_the_records_of_a_partition_without_a_lake_are_lost_with_it",),
    ),
    Mutant(
        "changelogs_leave_records_of_dropped_partitions_out", "P4", DROPPED,
        "    if lost:\n        raise",
        "    if not first.offsets and lost:\n        raise",
        (f"{IN_DROPPED_RECORDS}::test_records_lost_with_a_partition_are_not_left_out",),
    ),
    Mutant(
        "histories_do_not_say_what_was_lost_behind_them", "P4", "fluss_lab/read/changelog/row_history.py",
        "if bucket.is_dropped else",
        "if not bucket.is_dropped else",
        ("tests/unit/read/changelog/test_row_history.py::test_changes_lost_with_a_partition_are_said_to_be",),
    ),
    Mutant(
        "changelogs_leave_partitions_out_that_came_and_went", "P4", DROPPED,
        "            return lost.number > self.drops\n",
        "            return False\n",
        (f"{IN_DROPPED_RECORDS}::test_a_partition_that_came_and_went_is_missed_from_a_point_before_it",),
    ),
    Mutant(
        "changelogs_miss_older_records_than_their_start", "P9", DROPPED,
        "        return lost.last_ms is None or lost.last_ms >= self.from_ms\n",
        "        return True\n",
        (f"{IN_DROPPED_RECORDS}::test_records_from_before_the_start_are_not_missed",),
    ),
    Mutant(
        "bucket_not_closed_where_it_ends", "P4", DEPARTURES,
        "            found, tried = self._tablets.seal(group, ends, number), ends\n",
        "            found = tried = ends\n",
        (f"{IN_DEPARTURES}::test_no_append_comes_between_the_ends_and_a_drop_that_loses_records",),
    ),
    Mutant(
        "bucket_of_a_lossy_drop_stays_closed", "P9", DEPARTURES,
        "            if may_lose or not found or sealed:\n",
        "            if discard or not found or sealed:\n",
        (f"{IN_DEPARTURES}::test_no_append_comes_between_the_ends_and_a_drop_that_loses_records[True-lake]",),
    ),
    Mutant(
        "bucket_of_discarded_records_stays_closed", "P9", DEPARTURES,
        "            if may_lose or not found or sealed:\n",
        "            if loses_all or not found or sealed:\n",
        (f"{IN_DEPARTURES}::test_no_append_comes_between_the_ends_and_a_drop_that_loses_records[True-discard]",),
    ),
    Mutant(
        "ends_of_a_server_without_its_seal_believed", "P4", DEPARTURES,
        "        if self._tablets.terms() != terms:\n            ends =",
        "        if False:\n            ends =",
        (f"{IN_DEPARTURES}::test_what_a_server_without_its_seal_has_taken_is_not_known",),
    ),
)  # fmt: skip

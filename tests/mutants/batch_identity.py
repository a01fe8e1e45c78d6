"""Mutants of what tells a writer's batch from another one of the same number."""

from tests.mutants.mutant import IN_WRITERS, RECOVERY, Mutant

IN_SINK_JOURNAL = "tests/unit/spark/sink/test_sink_journal.py"
ADMISSION = "fluss_lab/server/tablet/log/batch_admission.py"
IN_PUT = "tests/unit/server/tablet/requests/test_put_kv.py"
IN_SINK = "tests/unit/spark/sink/test_table_sink.py"
REFUSED = "test_another_batch_of_a_number_that_was_used_is_refused"

#: P1: an acknowledged row is there.
BATCH_IDENTITY = (
    Mutant(
        "another_batch_taken_for_a_retry", "P1", ADMISSION,
        "before.crc not in (None, batch.header.crc)",
        "before.crc == -1",
        (f"{IN_WRITERS}::{REFUSED}", f"{IN_PUT}::{REFUSED}"),
    ),
    Mutant(
        "crc_of_the_changelog_taken_for_the_writers", "P1", "fluss_lab/server/tablet/log/log_segments.py",
        "return LogEntry(read_header(head), sent_crc,",
        "return LogEntry(read_header(head), read_header(head).crc,",
        (f"{IN_PUT}::{REFUSED}",),
    ),
    Mutant(
        "crc_of_the_changelog_recovered", "P1", RECOVERY,
        "crc = None if self._changelog else header.crc",
        "crc = header.crc",
        (f"{IN_PUT}::test_a_retry_is_known_after_a_restart",),
    ),
    Mutant(
        "crcs_not_recovered", "P1", RECOVERY,
        "crc = None if self._changelog else header.crc",
        "crc = None",
        (f"{IN_WRITERS}::{REFUSED}",),
    ),
    Mutant(
        "checkpoints_without_crcs_not_read", "P6", "fluss_lab/server/tablet/log/batch_admission.py",
        "    crc: int | None = None\n",
        "    crc: int | None\n",
        (f"{IN_WRITERS}::test_batches_of_checkpoints_without_crcs_are_accepted",),
    ),
    Mutant(
        "numbers_too_old_look_like_a_forgotten_writer", "P6", ADMISSION,
        '            return DuplicateSequenceError(\n                f"{text}; it is older',
        '            return OutOfOrderSequenceError(\n                f"{text}; it is older',
        (f"{IN_SINK_JOURNAL}::test_a_checkpoint_that_was_restored_from_a_backup_is_refused[log-3-False]",),
    ),
    Mutant(
        "answers_before_the_batch_believed", "P6", "fluss_lab/spark/sink/sink_resend.py",
        "            if answer.base < position.log_end:\n",
        "            if answer.base < 0:\n",
        (f"{IN_SINK_JOURNAL}::test_rows_that_were_sent_before_the_batch_was_written_down_are_a_contradiction[log]",),
    ),
    Mutant(
        "the_log_s_last_batch_taken_for_one_that_changed_nothing", "P6", "fluss_lab/spark/sink/sink_resend.py",
        "            if answer.base < position.log_end:\n",
        "            if answer.end < position.log_end:\n",
        (
            f"{IN_SINK_JOURNAL}::test_a_checkpoint_that_was_restored_from_a_backup_is_refused_behind_a_server_that_was_killed",
        ),
    ),
)  # fmt: skip

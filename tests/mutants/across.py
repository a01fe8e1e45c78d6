"""Mutants of reading across: which files hold a moment, which rows are over, where an interrupted read goes on."""

from tests.mutants.mutant import Mutant

PARTITION_HISTORY = "fluss_lab/lake/iceberg/metadata/partition_history.py"
SOURCE = "fluss_lab/lake/iceberg/read/row_source.py"
KEYED_LOG = "fluss_lab/lake/iceberg/read/pk_log.py"
KEYED_ROWS = "fluss_lab/read/union/pk_merge.py"
KEYED_PLAN = "fluss_lab/read/union/pk_plan.py"
TAKING = "fluss_lab/read/moment/as_of.py"
NET = "fluss_lab/read/changelog/net_changes.py"

EVERY = "tests/across/test_every_offset.py"
BOUNDARIES = "tests/across/test_boundaries.py"
EVERY_ROW = f"{EVERY}::test_the_rows_at_every_offset[pk]"
EVERY_MOMENT = f"{EVERY}::test_the_rows_at_every_moment[pk]"
EVERY_RECORD = f"{EVERY}::test_the_log_from_every_offset[pk]"
EVERY_NET = f"{EVERY}::test_the_net_changes_between_any_two_offsets[pk]"
REFUSED = f"{EVERY}::test_what_nothing_is_known_of_any_more_is_refused_and_the_rest_is_still_right"
REMADE = f"{BOUNDARIES}::test_a_partition_only_in_the_lake_and_one_of_its_name[pk_parts]"
MUCH_LEFT = f"{BOUNDARIES}::test_whatever_comes_while_much_is_still_to_be_read"

ACROSS = (
    Mutant(
        "newest_snapshot_for_every_moment", "P4", SOURCE,
        "link = [link for link in links if link.start <= stop][-1]",
        "link = links[-1]",
        (EVERY_ROW,),
    ),
    Mutant(
        "events_after_the_stop_end_rows", "P4", "fluss_lab/lake/iceberg/read/bucket_deletes.py",
        "EventsBefore(stop, columns.layout.system_ids[1])",
        "EventsBefore(1 << 62, columns.layout.system_ids[1])",
        (EVERY_ROW,),
    ),
    Mutant(
        "rows_after_the_stop_shown", "P4", SOURCE,
        "        if stop is not None and stop <= split.max_offset:\n            dead =",
        "        if stop is not None and stop <= split.min_offset:\n            dead =",
        (EVERY_ROW,),
    ),
    Mutant(
        "rows_that_the_log_ended_shown", "P4", KEYED_ROWS,
        "        return slice_ascending(self._ended, 0, stop)\n\n    def rows(",
        "        return self._ended[:0]\n\n    def rows(",
        (EVERY_ROW,),
    ),
    Mutant(
        "rows_that_the_tail_ended_itself_shown", "P4", KEYED_ROWS,
        "            live = without_rows(batch, member_places(batch.column(OFFSET).to_numpy(), self._ended))\n",
        "            live = batch\n",
        (EVERY_ROW,),
    ),
    Mutant(
        "interrupted_read_begins_again", "P4", "fluss_lab/read/union/read_plan.py",
        "pending[0] = part = replace(part, start=position)",
        "pending[0] = part = replace(part, start=part.start)",
        (MUCH_LEFT,),
    ),
    Mutant(
        "interrupted_replay_begins_again", "P4", "fluss_lab/read/changelog/changelog.py",
        "for records in read_once(part, position):",
        "for records in read_once(part, part.start):",
        (MUCH_LEFT,),
    ),
    Mutant(
        "files_of_the_partition_that_went", "P4", PARTITION_HISTORY,
        "return name is None or self.changed.get(name, -1) <= number_of(snapshot)",
        "return name is None or number_of(snapshot) >= 0",
        (REMADE,),
    ),
    Mutant(
        "moments_before_the_replay_start_read", "P4", KEYED_PLAN,
        "    if end and start <= part.stop:\n",
        "    if end and start >= 0:\n",
        (REFUSED,),
    ),
    Mutant(
        "long_tail_read_again_without_its_ends", "P4", KEYED_ROWS,
        "kept = self._kept if self._kept is not None else self._again()",
        "kept = self._kept or []",
        (f"{EVERY}::test_the_rows_at_every_offset[pk small]",),
    ),
    Mutant(
        "update_cut_in_two_read_as_an_insert", "P2", KEYED_LOG,
        "self._reach = (span[0] - 1 if span[0] > link.start else span[0], span[1])",
        "self._reach = (span[0], span[1])",
        (EVERY_RECORD,),
    ),
    Mutant(
        "net_changes_of_rows_that_came_and_went", "P4", NET,
        "before = records.previous_offsets.to_numpy() < part.start",
        "before = records.previous_offsets.to_numpy() < part.stop",
        (EVERY_NET,),
    ),
    Mutant(
        "a_moment_without_its_own_records", "P4", TAKING,
        "answers = source.offsets_by_time(known, as_of_ms + 1, raise_clock=True)",
        "answers = source.offsets_by_time(known, as_of_ms, raise_clock=True)",
        (EVERY_MOMENT,),
    ),
)  # fmt: skip

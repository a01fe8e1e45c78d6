"""Mutants of what is said of damage: table, bucket, file and offsets."""

from tests.mutants.mutant import RECOVERY, Mutant

IN_RANGE = "tests/unit/server/tablet/test_tablet_range.py"
IN_DOCTOR = "tests/unit/workbench/health/test_doctor.py"
IN_INSPECTION = "tests/unit/server/folder/test_lab_inspection.py"
LOSSES = "fluss_lab/server/folder/lab_inspection.py"
KNOWN = "fluss_lab/server/folder/known_buckets.py"
LOST = (f"{IN_INSPECTION}::test_damaged_offsets_are_reported_exactly_and_who_else_holds_them",)
TOLD = (f"{IN_RANGE}::test_damage_is_reported_with_table_bucket_file_and_offsets",)

DAMAGE_RANGES = (
    Mutant(
        "damage_said_to_last_to_the_recovery_point", "P7", RECOVERY,
        "stop = valid.base_offset if valid is not None else after if after is not None else self._floor",
        "stop = self._floor",
        TOLD,
    ),
    Mutant(
        "file_of_damage_found_by_a_reader_not_named", "P7", "fluss_lab/server/tablet/log/log_reader.py",
        '        return type(error)(f"{self.describe(segment.path)}: {error}")\n',
        "        return error\n",
        TOLD,
    ),
    Mutant(
        "status_cuts_what_is_wrong_with_a_bucket", "P7", "fluss_lab/cli/status_text.py",
        "        shown = troubles[:TROUBLES_MAX]\n",
        "        shown = [each[:80] for each in troubles]\n",
        (f"{IN_DOCTOR}::test_damage_of_a_bucket_is_shown_by_status_and_doctor",),
    ),
    Mutant(
        "damage_reported_once_a_segment", "P7", "fluss_lab/server/tablet/damage/damaged_ranges.py",
        "            walked = walk(path, header.base_offset, -1, schemas, behind, size_max, keeps_places=False)\n",
        "            break\n",
        LOST,
    ),
    Mutant(
        "end_that_only_the_coordinator_knows_not_missed", "P11", "fluss_lab/server/tablet/damage/damaged_ranges.py",
        "    floor = max(durable_offset, 0 if known is None else known.recovery_point) if",
        "    floor = (0 if known is None else known.recovery_point) if",
        LOST,
    ),
    Mutant(
        "offsets_that_the_lake_held_before_reported_as_held", "P11", KNOWN,
        "coalesce(start_offset, 0), end_offset, max(version) FROM",
        "coalesce(start_offset, 0), end_offset, min(version) FROM",
        LOST,
    ),
    Mutant(
        "lake_taken_to_hold_nothing_when_it_is_not_known", "P11", LOSSES,
        '            unknown.append(f"what {who} holds is not known")\n',
        "            continue\n",
        LOST,
    ),
    Mutant(
        "lost_folder_of_a_copy_not_found", "P11", LOSSES,
        "        if durable > 0 and bucket not in seen:\n",
        "        if durable < 0 and bucket not in seen:\n",
        (f"{IN_INSPECTION}::test_a_bucket_whose_folder_or_mark_is_gone_is_found",),
    ),
    Mutant(
        "newer_format_reported_as_lost", "P7", "fluss_lab/server/tablet/damage/damaged_ranges.py",
        "        if walked.is_newer:\n            return\n",
        "",
        (f"{IN_INSPECTION}::test_a_batch_of_a_newer_format_is_found_as_such",),
    ),
)  # fmt: skip

"""Mutants of what is said of damage: table, bucket, file and offsets."""

from tests.mutants.mutant import RECOVERY, Mutant

IN_RANGE = "tests/unit/server/tablet/test_tablet_range.py"
IN_DOCTOR = "tests/unit/cli/test_doctor.py"
TOLD = (f"{IN_RANGE}::test_damage_is_told_with_table_bucket_file_and_offsets",)

DAMAGE_RANGES = (
    Mutant(
        "damage_said_to_last_to_the_recovery_point", "P7", RECOVERY,
        "stop = valid.base_offset if valid is not None else after if after is not None else self._floor",
        "stop = self._floor",
        TOLD,
    ),
    Mutant(
        "file_of_damage_found_by_a_reader_not_named", "P7", "fluss_lab/server/tablet/view.py",
        '        return type(error)(f"{self.described(segment.path)}: {error}")\n',
        "        return error\n",
        TOLD,
    ),
    Mutant(
        "status_cuts_what_is_wrong_with_a_bucket", "P7", "fluss_lab/cli/inspection.py",
        "        shown = troubles[:TROUBLES_MAX]\n",
        "        shown = [each[:80] for each in troubles]\n",
        (f"{IN_DOCTOR}::test_damage_of_a_bucket_is_shown_by_status_and_doctor",),
    ),
)  # fmt: skip

"""Mutants of the seam to the lake, shown on the tiny format: what the conformance suite must notice."""

from tests.mutants.mutant import IN_FILES, Mutant

COMMITTER = "fluss_lab/testing/parquet_lake/parquet_writer.py"
IN_PARQUET = "tests/unit/lake/test_conformance_parquet.py::TestParquetLake"

#: P2: each offset reaches the lake once; P5: only the newest holder commits; P7: bytes of unknown form are refused.
LAKE_SEAM = (
    Mutant(
        "format_commits_on_whatever_is_there", "P5", COMMITTER,
        "            if newer:\n",
        "            if not newest:\n",
        (f"{IN_PARQUET}::test_a_stale_plan_is_refused", f"{IN_PARQUET}::test_an_empty_commit_fences"),
    ),
    Mutant(
        "format_repeats_a_commit", "P2", COMMITTER,
        "if landed := [each for each in newer if each.properties.get(COMMIT_ID_KEY) == commit_id]:",
        "if landed := [each for each in newer if each.properties is properties]:",
        (f"{IN_PARQUET}::test_the_same_commit_again_is_the_snapshot_that_it_made",),
    ),
    Mutant(
        "format_aborts_files_in_use", "P2", COMMITTER,
        "if file.name not in used:",
        "if file.name or used:",
        (f"{IN_PARQUET}::test_abort_removes_no_file_in_use",),
    ),
    Mutant(
        "format_replaces_a_version", "P5", "fluss_lab/files.py",
        "        os.link(temporary, path)\n",
        "        os.replace(temporary, path)\n",
        (f"{IN_FILES}::test_of_many_that_make_one_file_one_succeeds_and_nobody_sees_half_of_it",),
    ),
    Mutant(
        "format_serves_a_log_with_gaps", "P4", "fluss_lab/testing/parquet_lake/parquet_source.py",
        "if expected < stop:",
        "if expected < start:",
        (f"{IN_PARQUET}::test_what_the_lake_does_not_hold_is_reported",),
    ),
    Mutant(
        "format_guesses_newer_bytes", "P7", "fluss_lab/testing/parquet_lake/parquet_writer.py",
        "if not 1 <= version <= VERSION:",
        "if version < VERSION:",
        (f"{IN_PARQUET}::test_unknown_bytes_are_refused",),
    ),
    Mutant(
        "tables_of_another_format_taken", "P4", "fluss_lab/server/coordinator/ddl/lake_table_ddl.py",
        'if asked not in {"", format_name}:',
        'if asked is None:',
        (f"{IN_PARQUET}::test_a_table_without_format_gets_the_clusters",),
    ),
)  # fmt: skip

"""Mutants of what Spark reads of tables: how a read is divided among tasks, and what is told of a cluster."""

from tests.mutants.mutant import Mutant

SHARES = "fluss_lab/spark/shares.py"
IN_SHARES = "tests/unit/spark/test_shares.py"
OPTIONS = "fluss_lab/spark/source_options.py"
IN_OPTIONS = "tests/unit/spark/test_source_options.py"
FILTER_JSON = "fluss_lab/read/filter_json.py"

#: P4: a union read equals the model at its read point; P10: who has no token reads nothing.
SPARK_TABLES = (
    Mutant(
        "share_without_row_stop", "P4", SHARES,
        "            row_stop=part.row_stop if stop == edges[-1] else stop,",
        "            row_stop=part.row_stop,",
        (f"{IN_SHARES}::test_the_shares_of_a_scan_come_to_the_scan",),
    ),
    Mutant(
        "share_of_a_log_with_the_whole_lake_part", "P4", SHARES,
        "    lake_stop = min(max(part.lake_stop, start), stop)",
        "    lake_stop = part.lake_stop",
        (f"{IN_SHARES}::test_the_shares_of_a_scan_come_to_the_scan",),
    ),
    Mutant(
        "long_tail_read_by_every_task", "P4", SHARES,
        "    edges = _row_edges(part, min(count, max(1, lake // max(1, tail))))",
        "    edges = _row_edges(part, count)",
        (f"{IN_SHARES}::test_a_bucket_with_a_long_tail_stays_whole",),
    ),
    Mutant(
        "net_changes_of_pieces", "P4", SHARES,
        "        count = 1 if whole else -(-(each.stop - each.start) // size)",
        "        count = -(-(each.stop - each.start) // size)",
        (f"{IN_SHARES}::test_the_shares_of_a_changelog_come_to_the_changelog",),
    ),
    Mutant(
        "null_among_values_forgotten", "P4", FILTER_JSON,
        "tuple(literals[each] for each in value[2]), bool(value[3]), bool(value[4]))",
        "tuple(literals[each] for each in value[2]), False, bool(value[4]))",
        ("tests/unit/read/test_filter_json.py::test_a_filter_goes_through_text_and_is_the_same",),
    ),
    Mutant(
        "token_kept_in_a_catalog", "P10", OPTIONS,
        "if name != TOKEN and not _is_of_catalog(name)}",
        "if not _is_of_catalog(name)}",
        (f"{IN_OPTIONS}::test_a_path_names_the_table_and_what_a_catalog_adds_is_passed_over",),
    ),
)  # fmt: skip

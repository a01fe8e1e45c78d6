"""Mutants of what is kept of tables between reads: it is used only while it is what would be found anew."""

from tests.mutants.mutant import Mutant

CATALOG = "fluss_lab/lake/iceberg/table/catalog_access.py"
LAKE_TABLE = "fluss_lab/lake/iceberg/read/lake_table.py"
IN_CATALOG = "tests/unit/lake/iceberg/table/test_catalog_access.py"
IN_LAKE_TABLE = "tests/unit/lake/iceberg/read/test_lake_table.py"

#: P4: a read is what is there. P11: what is not known is an error. P13: a table is never taken for another one.
KNOWN_TABLES = (
    Mutant(
        "table_kept_though_the_catalog_changed", "P11", CATALOG,
        "        if known is not None and known[0] == version:\n",
        "        if known is not None:\n",
        (f"{IN_CATALOG}::test_every_change_by_another_connection_is_seen_at_once",),
    ),
    Mutant(
        "catalog_counted_anew_by_each_connection", "P11", CATALOG,
        "        if self._open is None or self._open[:2] != (device, number):\n",
        "        if True:\n",
        (f"{IN_CATALOG}::test_every_change_by_another_connection_is_seen_at_once",),
    ),
    Mutant(
        "committed_to_a_file_that_was_replaced", "P13", CATALOG,
        "        if record.info[_IDENTITY] != _identity(name, file):\n",
        "        if _IDENTITY not in record.info:\n",
        (
            f"{IN_CATALOG}::test_a_file_that_was_replaced_is_the_one_that_is_read_and_committed_to",
            f"{IN_CATALOG}::test_a_file_that_is_gone_takes_no_commits_and_is_not_made",
        ),
    ),
    Mutant(
        "one_table_for_all_who_load_it", "P4", CATALOG,
        "            return copy(known[1])\n",
        "            return known[1]\n",
        (f"{IN_CATALOG}::test_who_changes_a_table_that_he_loaded_changes_no_other_s",),
    ),
    Mutant(
        "another_state_of_a_table_shared", "P11", LAKE_TABLE,
        "found.lake.metadata is not lake.metadata or ",
        "",
        (f"{IN_LAKE_TABLE}::test_what_others_did_to_a_table_is_noticed_though_the_snapshot_stays",),
    ),
    Mutant(
        "columns_of_another_schema_shared", "P4", LAKE_TABLE,
        " or found.schema != info.schema:",
        ":",
        (f"{IN_LAKE_TABLE}::test_readers_with_other_columns_share_nothing",),
    ),
    Mutant(
        "ranges_divided_as_they_were_once", "P4", "fluss_lab/read/changelog/changelog.py",
        "        return divide(self.source, self.offset_ranges, looks=not is_new)\n",
        "        return divide(self.source, self.offset_ranges, looks=is_new)\n",
        ("tests/unit/read/changelog/test_changelog.py::test_a_plan_that_is_made_later_knows_what_has_moved_to_the_lake",),
    ),
    Mutant(
        "log_taken_for_whole_because_of_one_bucket", "P11", "fluss_lab/read/moment/table_state.py",
        "        return all(surely_holds(each, 0) for each in self.buckets)\n",
        "        return any(surely_holds(each, 0) for each in self.buckets)\n",
        ("tests/unit/read/moment/test_table_state.py::test_a_log_is_whole_only_where_the_cluster_surely_has_all_of_every_bucket",),
    ),
)  # fmt: skip

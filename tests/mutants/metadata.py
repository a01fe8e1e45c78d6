"""Mutants of what believes the coordinator's metadata."""

from tests.mutants.mutant import Mutant

STORE = "fluss_lab/server/coordinator/metadata/metadata_store.py"
CATALOG = "fluss_lab/server/coordinator/metadata/table_catalog.py"
IN_METADATA = "tests/damage/test_metadata_damage.py"


def _named(case: str) -> tuple[str, ...]:
    return (f"{IN_METADATA}::test_rows_that_nobody_wrote_are_named_and_nothing_is_done_to_the_lake[{case}]",)


METADATA = (
    Mutant(
        "changed_rows_of_metadata_believed",
        "P11",
        STORE,
        "row_checksums.has_sums(self._db)) and (",
        "row_checksums.has_sums(self._db)) and version < 0 and (",
        (f"{IN_METADATA}::test_a_flipped_byte_of_the_metadata_is_noticed_or_means_nothing",),
    ),
    Mutant(
        "sums_of_metadata_not_compared",
        "P11",
        "fluss_lab/server/coordinator/metadata/row_checksums.py",
        "        if noted.get(name) != found.get(name):\n",
        "        if noted.get(name) is None:\n",
        (f"{IN_METADATA}::test_a_flipped_byte_of_the_metadata_is_noticed_or_means_nothing",),
    ),
    Mutant(
        "replaced_rows_left_in_the_sums",
        "P11",
        "fluss_lab/server/coordinator/metadata/row_checksums.py",
        '    db.execute("PRAGMA recursive_triggers = ON")\n',
        "",
        (
            "tests/unit/server/coordinator/metadata/test_metadata_store.py::test_rows_that_are_replaced_or_go_with_others_leave_the_sums_right",
        ),
    ),
    Mutant(
        "emptied_metadata_taken_for_a_new_lab",
        "P11",
        STORE,
        "        if is_there and not self.path.stat().st_size:\n",
        "        if is_there and self.path.stat().st_size < 0:\n",
        (f"{IN_METADATA}::test_a_lab_without_its_metadata_is_no_new_lab[emptied]",),
    ),
    Mutant(
        "deleted_metadata_made_anew",
        "P11",
        "fluss_lab/server/process/server_node.py",
        "        check_metadata_is_there(self._home)\n",
        "",
        (f"{IN_METADATA}::test_a_lab_without_its_metadata_is_no_new_lab[deleted]",),
    ),
    Mutant(
        "metadata_only_in_the_log_beside_it",
        "P1",
        "fluss_lab/server/process/server_node.py",
        "    store.merge()\n",
        "",
        (f"{IN_METADATA}::test_a_server_merges_its_metadata_by_itself",),
    ),
    Mutant(
        "merged_log_of_metadata_left_behind",
        "P11",
        STORE,
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA wal_checkpoint(PASSIVE)",
        (f"{IN_METADATA}::test_what_was_merged_needs_no_log_beside_it_and_leaves_none_to_be_damaged",),
    ),
    Mutant(
        "impossible_definition_raw",
        "P11",
        CATALOG,
        '        with self._store.parse_guard(f"table {database}.{name}"):\n',
        "        if row:\n",
        _named("tables-descriptor-{"),
    ),
    Mutant(
        "impossible_leaders_believed",
        "P11",
        CATALOG,
        "if not isinstance(found, list) or not all(type(each) is int and each >= 0 for each in found):",
        "if not isinstance(found, list):",
        _named('assignments-leaders-[-1, "a"]'),
    ),
    Mutant(
        "lake_table_in_an_unknown_state_dropped",
        "P11",
        "fluss_lab/server/coordinator/tiering/lake_snapshots.py",
        "            if state not in _STATES:\n",
        "            if state is None:\n",
        _named("lake_tables-state-liwe"),
    ),
    Mutant(
        "damaged_token_taken",
        "P11",
        "fluss_lab/rpc/access/token.py",
        "    if not token.isascii() or not token.isprintable():\n",
        "    if token.isspace():\n",
        ("tests/unit/rpc/access/test_token.py::test_a_damaged_file_is_another_token_or_refused",),
    ),
)

"""Mutants of lakes in REST catalogs: what is asked how often, and what becomes of answers that fail or do not come."""

from tests.mutants.mutant import COMMITS, Mutant

CATALOG_ACCESS = "fluss_lab/lake/iceberg/table/catalog_access.py"
REST = "fluss_lab/lake/iceberg/table/caching_rest_catalog.py"
ROUND_COMMIT = "fluss_lab/lake/iceberg/commit/round_commit.py"
IN_REST = "tests/unit/lake/iceberg/table/test_caching_rest_catalog.py"
IN_REST_COMMITS = "tests/unit/lake/iceberg/commit/test_rest_commits.py"
EXPIRY = "fluss_lab/lake/iceberg/maintenance/snapshot_expiry.py"
FOLDERS = "fluss_lab/lake/iceberg/table/table_folders.py"
IN_EXPIRY = "tests/unit/lake/iceberg/maintenance/test_rest_expiry.py"
HISTORY = "fluss_lab/lake/iceberg/metadata/snapshot_history.py"
RECOVERY = "fluss_lab/tiering/round/commit_recovery.py"
IN_KILL = "tests/crash/test_rest_kill.py"
MAINTENANCE = "fluss_lab/lake/iceberg/maintenance/iceberg_maintenance.py"
IN_FOLDERS = "tests/unit/lake/iceberg/table/test_table_folders.py"
STORE_ERRORS = "fluss_lab/lake/iceberg/files/lake_errors.py"
IN_STORES = "tests/unit/lake/iceberg/files/test_lake_errors.py"
IN_CALLS = "tests/unit/tiering/round/test_catalog_calls.py"

FIRST = "fluss_lab/lake/iceberg/commit/first_snapshot.py"
IN_FIRST = "tests/unit/lake/iceberg/commit/test_first_snapshot.py"

REST_CATALOGS = (
    Mutant(
        "a_snapshot_follows_any_that_is_not_shown",
        "P11",
        HISTORY,
        "(newer and str(known_snapshot_id) in _parents(newer[-1]))",
        "(newer and _parents(newer[-1]))",
        (f"{IN_FIRST}::test_a_snapshot_that_is_not_shown_is_followed_where_the_next_one_says_so",),
    ),
    Mutant(
        "what_was_committed_is_hidden_by_the_fence",
        "P6",
        RECOVERY,
        "        _, known = self._registered_snapshot(table, lake, self._partitions(table))",
        "        known_id, found = self._known_snapshot(table)\n"
        "        _, known = self._missing_snapshot(table, lake, self._partitions(table), known_id, found)",
        (f"{IN_KILL}::test_a_tierer_killed_anywhere_around_its_commit_over_a_catalog_that_hides_history",),
    ),
    Mutant(
        "a_late_note_forgets_a_compaction",
        "P11",
        MAINTENANCE,
        "(AssertTableUUID(uuid=lake.metadata.table_uuid), AssertRefSnapshotId.model_validate(newest))",
        "(AssertTableUUID(uuid=lake.metadata.table_uuid),)",
        (f"{IN_EXPIRY}::test_that_orphans_were_looked_for_is_not_noted_over_a_compaction_that_came_in_between",),
    ),
    Mutant(
        "a_file_that_was_not_written_of_unknown_outcome",
        "P12",
        CATALOG_ACCESS,
        "ResourceExhaustedError, StorageError, UnwrittenError)",
        "ResourceExhaustedError, StorageError)",
        (
            "tests/unit/lake/iceberg/files/test_durable_io.py::test_metadata_that_the_store_does_not_take_was_certainly_not_committed",
        ),
    ),
    Mutant(
        "files_of_a_bucket_that_is_gone_called_damaged",
        "P11",
        "fluss_lab/lake/iceberg/files/file_faults.py",
        "        return absent\n",
        "        pass\n",
        ("tests/unit/lake/iceberg/files/test_file_faults.py::test_files_of_a_bucket_that_is_gone_are_not_damaged",),
    ),
    Mutant(
        "a_first_commit_trusts_that_there_is_none",
        "P6",
        FIRST,
        "if not access.is_rest or lake.metadata.current_snapshot_id is not None:",
        "if lake is not None:",
        (f"{IN_FIRST}::test_the_second_of_two_first_rounds_is_refused",),
    ),
    Mutant(
        "a_hidden_history_taken_for_none",
        "P11",
        ROUND_COMMIT,
        "            check_shown(lake, self._path)",
        "            pass",
        (f"{IN_FIRST}::test_what_a_hidden_history_may_say_is_not_taken_for_nothing",),
    ),
    Mutant(
        "a_refused_request_of_unknown_outcome",
        "P11",
        CATALOG_ACCESS,
        "NOT_DONE: Final = (AuthenticationError, InvalidRequestError,",
        "NOT_DONE: Final = (AuthenticationError,",
        (f"{IN_REST_COMMITS}::test_a_request_that_is_refused_was_not_done",),
    ),
    Mutant(
        "rounds_begin_without_a_snapshot",
        "P6",
        COMMITS,
        "            lake = with_first_snapshot(self._access, self._path, loaded)",
        "            lake = loaded",
        (f"{IN_FIRST}::test_a_table_without_a_snapshot_gets_an_empty_one_before_the_first_round",),
    ),
    Mutant(
        "a_commit_is_sent_again_by_itself",
        "P2",
        REST,
        'allowed_methods=("GET", "HEAD"),',
        'allowed_methods=("GET", "HEAD", "POST"),',
        (f"{IN_REST_COMMITS}::test_a_commit_of_unknown_outcome_is_never_sent_again_by_itself",),
    ),
    Mutant(
        "a_rest_server_is_waited_for_without_an_end",
        "P12",
        REST,
        "partial(session.request, timeout=(connect_s, answer_s))",
        "partial(session.request, timeout=None)",
        (f"{IN_REST}::test_a_server_that_does_not_answer_is_waited_for_as_long_as_was_said",),
    ),
    Mutant(
        "an_ended_token_is_not_renewed",
        "P10",
        REST,
        "            self._refresh_token()\n            return ask()",
        "            return ask()",
        (f"{IN_REST}::test_a_token_that_ends_is_renewed_by_the_credentials",),
    ),
    Mutant(
        "properties_made_of_those_that_the_table_had",
        "P6",
        COMMITS,
        "        if any(isinstance(each, SetPropertiesUpdate) for each in staged.updates):",
        "        if not staged.updates:",
        (f"{IN_REST_COMMITS}::test_properties_that_others_set_since_the_plan_are_not_lost",),
    ),
    Mutant(
        "what_expired_since_the_plan_taken_for_damage",
        "P6",
        COMMITS,
        '            _LOG.info("%s: the table is loaded again: %s", self._what, error)\n            return None\n',
        "            raise error\n",
        (f"{IN_REST_COMMITS}::test_files_of_the_planned_table_that_are_gone_are_looked_at_in_the_table_of_now",),
    ),
    Mutant(
        "each_step_of_a_round_asks_the_catalog",
        "P12",
        ROUND_COMMIT,
        "        self._access.rounds.plan(self._path, lake)\n",
        "",
        (f"{IN_CALLS}::test_a_round_of_one_row_loads_the_table_twice_and_commits_once",),
    ),
    Mutant(
        "a_location_that_a_rest_catalog_chose_taken_for_own",
        "P13",
        FOLDERS,
        "        return lake.properties.get(LOCATION_PROPERTY) == location\n",
        "        return LOCATION_PROPERTY in lake.properties\n",
        (f"{IN_FOLDERS}::test_where_the_catalog_chooses_nothing_is_cleared",),
    ),
    Mutant(
        "tables_of_one_name_and_id_share_a_location",
        "P13",
        FOLDERS,
        "-{secrets.token_hex(4)}",
        "",
        (f"{IN_FOLDERS}::test_a_table_of_a_rest_catalog_is_put_where_no_other_one_is",),
    ),
    Mutant(
        "files_that_a_catalog_has_uses_for_removed",
        "P13",
        FOLDERS,
        'return lake.properties.get(GC_PROPERTY, "true").lower() != "false"',
        "return GC_PROPERTY != lake.properties",
        (f"{IN_FOLDERS}::test_files_of_a_table_whose_catalog_removes_them_itself_stay",),
    ),
    Mutant(
        "a_new_tag_does_not_count",
        "P3",
        EXPIRY,
        "        return now if now.metadata.refs == lake.metadata.refs else None\n",
        "        return now\n",
        (f"{IN_EXPIRY}::test_a_tag_that_came_since_the_table_was_loaded_keeps_its_snapshot",),
    ),
    Mutant(
        "files_removed_though_a_tag_came_with_the_expiry",
        "P3",
        EXPIRY,
        "        if log and log[-1].metadata_file == before.metadata_location:",
        "        if log:",
        (f"{IN_EXPIRY}::test_a_tag_that_comes_with_the_commit_keeps_the_files",),
    ),
    Mutant(
        "an_expiry_of_unknown_outcome_taken_for_done",
        "P2",
        EXPIRY,
        "            left.isdisjoint(plan.snapshot_ids)\n",
        "            left is not None\n",
        (f"{IN_EXPIRY}::test_an_expiry_that_is_not_found_may_still_come",),
    ),
    Mutant(
        "ended_tokens_of_a_store_taken_for_its_failure",
        "P10",
        STORE_ERRORS,
        "|EXPIRED_?TOKEN|INVALID_?TOKEN",
        "",
        (f"{IN_STORES}::test_what_arrow_says_of_a_store",),
    ),
    Mutant(
        "a_full_store_said_to_be_away",
        "P9",
        STORE_ERRORS,
        "    if _STORE.search(text) and _FULL.search(text):",
        "    if not text:",
        (f"{IN_STORES}::test_what_arrow_says_of_a_store",),
    ),
    Mutant(
        "passwords_in_addresses_shown",
        "P10",
        STORE_ERRORS,
        'mask_secret("", str(error))',
        "str(error)",
        (f"{IN_STORES}::test_a_page_of_a_proxy_and_a_password_are_not_shown",),
    ),
    Mutant(
        "a_rolled_back_statement_not_tried_again",
        "P12",
        "fluss_lab/lake/iceberg/table/catalog_access.py",
        "return sql_state(cause) in _IN_THE_WAY or ",
        "return ",
        (f"{IN_STORES}::test_a_database_that_rolled_back_for_another_one_is_tried_again",),
    ),
    Mutant(
        "ways_of_authentication_accepted_and_not_taken",
        "P10",
        "fluss_lab/lake/iceberg/table/catalog_access.py",
        "settings = _nest_settings({**settings, CATALOG_PROPERTY: REST_CATALOG})",
        "settings = {**settings, CATALOG_PROPERTY: REST_CATALOG}",
        (f"{IN_REST}::test_ways_of_authentication_are_taken_from_flat_options",),
    ),
)

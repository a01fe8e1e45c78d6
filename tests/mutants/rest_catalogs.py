"""Mutants of lakes in REST catalogs: what is asked how often, and what becomes of answers that fail or do not come."""

from tests.mutants.mutant import COMMITS, Mutant

REST = "fluss_lab/lake/iceberg/table/caching_rest_catalog.py"
ROUND_COMMIT = "fluss_lab/lake/iceberg/commit/round_commit.py"
IN_REST = "tests/unit/lake/iceberg/table/test_caching_rest_catalog.py"
IN_REST_COMMITS = "tests/unit/lake/iceberg/commit/test_rest_commits.py"
IN_CALLS = "tests/unit/tiering/round/test_catalog_calls.py"

REST_CATALOGS = (
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
        "            self._refresh_token()\n",
        "",
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
)

"""Mutants of the table explorer's actions: what is done once, what is hidden and kept, what is typed exactly."""

from tests.mutants.mutant import Mutant

ACTIONS = "fluss_lab/explorer/table_actions.py"
WORKER = "fluss_lab/explorer/request_queue.py"
FORM = "fluss_lab/explorer/screens/record_form.py"
VALUES = "fluss_lab/explorer/texts/typed_values.py"
REQUESTS = "fluss_lab/explorer/explorer_requests.py"

IN_ACTIONS = "tests/unit/explorer/test_table_actions.py"
IN_WORKER = "tests/unit/explorer/test_request_queue.py"
IN_JOBS = "tests/unit/explorer/test_job_answers.py"
IN_FORM = "tests/unit/explorer/test_record_form.py"
IN_VALUES = "tests/unit/explorer/test_typed_values.py"

ACTING = (
    Mutant(
        "clicks_are_acted_on_again", "P12", ACTIONS,
        "        if click not in self._done:\n",
        "        if click:\n",
        (
            f"{IN_ACTIONS}::test_a_click_is_acted_on_once_also_when_it_failed",
            f"{IN_FORM}::test_a_click_is_written_once_however_often_it_is_said",
        ),
    ),
    Mutant(
        "clicks_that_failed_are_acted_on_again", "P12", ACTIONS,
        "                self._done[click] = error\n",
        "                raise error\n",
        (f"{IN_ACTIONS}::test_a_click_is_acted_on_once_also_when_it_failed",),
    ),
    Mutant(
        "rounds_are_begun_beside_each_other", "P12", ACTIONS,
        "        if action is None:\n            action = self._actions",
        "        if action is None or action.kind == kind:\n            action = self._actions",
        (f"{IN_ACTIONS}::test_another_click_follows_the_round_and_cancels_it",),
    ),
    Mutant(
        "actions_are_given_up_for_others", "P12", WORKER,
        "request.seq if _is_action(request) else 0",
        "0",
        (f"{IN_WORKER}::test_an_action_is_given_up_for_no_other_and_begun_once",),
    ),
    Mutant(
        "requests_sent_again_are_begun_again", "P12", WORKER,
        "(_is_action(request) or known.request == request)",
        "_is_action(request)",
        (f"{IN_WORKER}::test_the_same_request_sent_again_is_answered_once_while_it_is_under_way_and_anew_afterwards",),
    ),
    Mutant(
        "ends_that_do_not_say_which_answer_was_the_last", "P11", WORKER,
        '{"last": work.last}',
        '{"last": None}',
        (f"{IN_WORKER}::test_each_answer_has_a_number_and_the_end_says_which_was_the_last",),
    ),
    Mutant(
        "half_characters_are_sent_back", "P12", REQUESTS,
        "    if not _is_text(sent_back):\n",
        "    if sent_back is None:\n",
        ("tests/unit/explorer/test_explorer_model.py::test_what_is_no_request_is_refused",),
    ),
    Mutant(
        "runs_are_begun_again", "P12", REQUESTS,
        'return f"{self.view} {self.seq}" if self.writes else None',
        "return None",
        (f"{IN_JOBS}::test_what_is_done_about_a_job_is_done_once_also_when_it_is_asked_again",),
    ),
    Mutant(
        "upserts_erase_what_is_hidden", "P12", FORM,
        "        return list(names) if request.columns is not None or writes.hides else None\n",
        "        return list(names) if request.columns is not None else None\n",
        (f"{IN_FORM}::test_masked_columns_are_in_no_message_and_keep_what_they_hold",),
    ),
    Mutant(
        "records_with_errors_are_written", "P11", FORM,
        "        if not (request.check or errors):\n",
        "        if not request.check and len(errors) < len(names):\n",
        (f"{IN_FORM}::test_wrong_texts_of_every_type_are_an_error_of_their_field_and_nothing_is_written",),
    ),
    Mutant(
        "decimals_are_rounded", "P11", VALUES,
        "traps=[Inexact, InvalidOperation]",
        "traps=[InvalidOperation]",
        (f"{IN_VALUES}::test_what_is_no_value_is_refused_with_what_was_expected",),
    ),
    Mutant(
        "times_that_a_zone_has_twice_are_guessed", "P11", VALUES,
        "    if len(offsets) > 1:\n",
        "    if len(offsets) > 2:\n",
        (f"{IN_VALUES}::test_a_time_that_the_zone_has_twice_or_not_needs_its_offset",),
    ),
)  # fmt: skip

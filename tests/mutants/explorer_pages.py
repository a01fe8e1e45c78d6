"""Mutants of what an explorer shows of jobs, and of whom `fluss-lab explore` answers."""

from tests.mutants.mutant import Mutant

ACCESS = "fluss_lab/explorer/loopback/page_access.py"
HANDLERS = "fluss_lab/explorer/loopback/page_handlers.py"
HOST = "fluss_lab/explorer/loopback/loopback_host.py"
COMMAND = "fluss_lab/cli/browser_commands.py"
JOBS = "fluss_lab/explorer/screens/job_answers.py"
MODEL = "fluss_lab/explorer/explorer_model.py"

IN_ACCESS = "tests/unit/explorer/loopback/test_page_access.py"
IN_HOST = "tests/unit/explorer/loopback/test_loopback_host.py"
IN_COMMAND = "tests/unit/cli/test_browser_commands.py"
IN_JOBS = "tests/unit/explorer/test_job_answers.py"

EXPLORER_PAGES = (
    Mutant(
        "pages_by_any_name", "P10", ACCESS,
        "        if host != self.host:\n",
        "        if host is None:\n",
        (f"{IN_HOST}::test_other_names_and_pages_get_nothing_with_the_cookie_either",),
    ),
    Mutant(
        "pages_for_other_pages", "P10", ACCESS,
        "        if origin is not None and origin != self.origin:\n",
        "        if origin is not None and not origin:\n",
        (f"{IN_HOST}::test_other_names_and_pages_get_nothing_with_the_cookie_either",),
    ),
    Mutant(
        "links_open_again", "P10", ACCESS,
        "            self._used = self._used or is_right\n",
        "            self._used = False\n",
        (f"{IN_ACCESS}::test_a_link_gives_access_once",),
    ),
    Mutant(
        "cookies_of_any_value", "P10", ACCESS,
        "        return any(_equal(value, self._session) for name, _, value in given if name == _COOKIE)\n",
        "        return any(bool(value) for name, _, value in given if name == _COOKIE)\n",
        (f"{IN_HOST}::test_without_the_cookie_nothing_is_served",),
    ),
    Mutant(
        "cookies_for_every_path", "P10", ACCESS,
        "; Path={self.place}; ",
        "; Path=/; ",
        (f"{IN_ACCESS}::test_a_cookie_is_for_scripts_of_nobody_and_for_a_path_of_its_own",),
    ),
    Mutant(
        "pages_without_a_cookie", "P10", HANDLERS,
        "        if self.needs_cookie and not self.access.knows(",
        "        if self.needs_cookie and self.access.knows(",
        (f"{IN_HOST}::test_without_the_cookie_nothing_is_served",),
    ),
    Mutant(
        "sockets_of_no_page", "P10", HANDLERS,
        "        if self.request.headers.get(\"Origin\") != self.access.origin:\n",
        "        if self.request.headers.get(\"Origin\") == \"\":\n",
        (f"{IN_HOST}::test_a_socket_is_opened_by_the_page_alone",),
    ),
    Mutant(
        "links_in_the_log", "P10", HANDLERS,
        "        if not isinstance(value, HTTPError):\n",
        "        super().log_exception(typ, value, tb)\n        if not isinstance(value, HTTPError):\n",
        (f"{IN_HOST}::test_no_secret_is_written_to_a_log",),
    ),
    Mutant(
        "pages_beyond_loopback", "P10", HOST,
        "socket.create_server((ADDRESS, port)",
        "socket.create_server((\"0.0.0.0\", port)",
        (f"{IN_HOST}::test_nothing_but_loopback_is_bound",),
    ),
    Mutant(
        "messages_of_any_size", "P14", HOST,
        "websocket_max_message_size=REQUEST_BYTES_MAX",
        "websocket_max_message_size=100 * REQUEST_BYTES_MAX",
        (f"{IN_HOST}::test_a_message_that_is_too_large_ends_its_socket_only",),
    ),
    Mutant(
        "answers_pile_up_for_pages", "P14", HANDLERS,
        "        if self._unsent_bytes + size_bytes > UNSENT_BYTES_MAX:\n",
        "        if size_bytes < 0:\n",
        (f"{IN_HOST}::test_answers_that_a_page_has_not_taken_are_bounded",),
    ),
    Mutant(
        "links_on_command_lines", "P10", COMMAND,
        "args=(page.as_uri(),)",
        "args=(link,)",
        (f"{IN_COMMAND}::test_the_link_reaches_the_browser_in_a_file_of_ones_own",),
    ),
    Mutant(
        "secrets_of_runs_are_shown", "P10", JOBS,
        "self._mask.foreign_text(_redactor(record.task.secrets).text(text))",
        "self._mask.foreign_text(text)",
        (f"{IN_JOBS}::test_the_values_of_secrets_are_in_no_answer",),
    ),
    Mutant(
        "secrets_in_parameters_are_shown", "P10", JOBS,
        "_plain(redactor.plain(value))",
        "_plain(value)",
        (f"{IN_JOBS}::test_the_values_of_secrets_are_in_no_answer",),
    ),
    Mutant(
        "runs_quote_hidden_columns", "P10", JOBS,
        "self._mask.foreign_text(_redactor(record.task.secrets).text(text))",
        "_redactor(record.task.secrets).text(text)",
        (f"{IN_JOBS}::test_what_runs_print_is_not_shown_where_columns_are_hidden",),
    ),
    Mutant(
        "read_only_explorers_write", "P10", MODEL,
        "        if self._read_only and request.writes:\n",
        "        if self._read_only and not request.writes:\n",
        (f"{IN_JOBS}::test_a_read_only_explorer_shows_and_does_nothing",),
    ),
)  # fmt: skip

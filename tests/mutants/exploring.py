"""Mutants of the explorer: which records a window has, whose answers they are, what is hidden, and how much is held for views."""

from tests.mutants.mutant import Mutant

PAGES = "fluss_lab/read/changelog/change_pages.py"
ANSWERS = "fluss_lab/explorer/explorer_answers.py"
CHANGES = "fluss_lab/explorer/screens/change_answers.py"
DIFF = "fluss_lab/explorer/screens/diff_answers.py"
FACTS = "fluss_lab/explorer/screens/column_facts.py"
GRID = "fluss_lab/explorer/screens/grid_rows.py"
ROWS = "fluss_lab/explorer/screens/row_answers.py"
TABLES = "fluss_lab/explorer/screens/shown_tables.py"
TABLE_ANSWERS = "fluss_lab/explorer/screens/table_answers.py"
TAIL = "fluss_lab/explorer/screens/live_tail.py"
WORKER = "fluss_lab/explorer/request_queue.py"

IN_PAGES = "tests/unit/read/changelog/test_change_pages.py"
IN_CHANGES = "tests/unit/explorer/test_changes.py"
IN_DIFF = "tests/unit/explorer/test_diff_answers.py"
IN_FACTS = "tests/unit/explorer/test_column_facts.py"
IN_GRID = "tests/unit/explorer/test_grid_rows.py"
IN_MODEL = "tests/unit/explorer/test_explorer_model.py"
IN_TAIL = "tests/unit/explorer/test_live_tail.py"
IN_WORKER = "tests/unit/explorer/test_request_queue.py"

EXPLORING = (
    # P11: no record is missing between those that are shown.
    Mutant(
        "pages_without_the_rest_of_a_busy_bucket", "P11", PAGES,
        "        due = [key for key, (start, stop) in rest.items() if start < stop]",
        "        due = []",
        (f"{IN_PAGES}::test_a_window_slides_over_exactly_the_records_in_their_order",),
    ),
    Mutant(
        "windows_go_on_from_where_the_first_page_was", "P11", PAGES,
        "                low |= {key: stop for key, (_, stop) in gone.items()}",
        "                pass",
        (f"{IN_PAGES}::test_a_window_slides_over_exactly_the_records_in_their_order",),
    ),
    Mutant(
        "tails_that_end_with_an_outage", "P11", TAIL,
        "            except UnavailableError:",
        "            except NotImplementedError:",
        (f"{IN_TAIL}::test_an_outage_loses_nothing_and_a_pause_stays_one",),
    ),
    # P13: what is shown of one table is not gone on with in another.
    Mutant(
        "windows_of_any_table", "P13", CHANGES,
        "if kept is None or kept.table_id != table_id:",
        "if kept is None:",
        (f"{IN_CHANGES}::test_a_window_is_of_its_own_table",),
    ),
    Mutant(
        "differences_of_any_table", "P13", DIFF,
        "if compared is None or compared.info.table_id != info.table_id:",
        "if compared is None:",
        (f"{IN_DIFF}::test_rows_of_one_table_are_not_shown_for_another",),
    ),
    # P14: views hold a bounded part of the memory and of the connections.
    Mutant(
        "pauses_that_hold_everything", "P14", TAIL,
        "            if kept is None and self._is_full:",
        "            if kept is None and self._closed:",
        (f"{IN_TAIL}::test_a_pause_holds_so_many_and_loses_nothing",),
    ),
    Mutant(
        "scanner_of_a_closed_tail_left_open", "P14", TAIL,
        "            if not self._closed:\n                self._scanner = scanner\n                return\n",
        "            self._scanner = scanner\n            return\n",
        (f"{IN_TAIL}::test_what_is_closed_while_it_begins_leaves_no_scanner_open",),
    ),
    Mutant(
        "tails_without_limit", "P14", TAIL,
        "            if self._closed or len(self._tails) >= TAILS_MAX:",
        "            if self._closed:",
        (f"{IN_TAIL}::test_views_follow_each_on_its_own",),
    ),
    Mutant(
        "requests_of_views_without_limit", "P14", WORKER,
        "            is_full = len(self._work) >= WORK_MAX and known is None",
        "            is_full = False",
        (f"{IN_WORKER}::test_requests_under_way_are_bounded",),
    ),
    Mutant(
        "views_share_slots", "P13", WORKER,
        "    return request.view, request.slot",
        '    return "", request.slot',
        (f"{IN_WORKER}::test_slots_of_different_views_are_apart",),
    ),
    Mutant(
        "views_of_the_next_table_of_a_path", "P13", TABLES,
        "        if request.table_id is not None and request.table_id != table_id:",
        "        if request.table_id is not None and not table_id:",
        (f"{IN_MODEL}::test_a_dropped_table_is_not_the_next_one_of_its_path",),
    ),
    Mutant(
        "rows_with_the_columns_of_now", "P13", ROWS,
        "        columns = self._columns(grid.info, request.columns)",
        "        columns = self._columns(grid.table.info, request.columns)",
        (f"{IN_GRID}::test_rows_keep_the_columns_of_their_read_point_when_the_table_is_altered",),
    ),
    Mutant(
        "pages_of_any_size", "P14", ANSWERS,
        "    while size_bytes(answer := made(length)) > ANSWER_BYTES_MAX - _ENVELOPE_BYTES and length > 1:",
        "    while size_bytes(answer := made(length)) < 0 and length > 1:",
        (f"{IN_MODEL}::test_a_message_is_bounded_however_large_the_cells_are",),
    ),
    Mutant(
        "read_points_without_limit", "P14", ROWS,
        "        while len(self.grids) > GRIDS_MAX:",
        "        while len(self.grids) > 100 * GRIDS_MAX:",
        (f"{IN_MODEL}::test_a_point_that_is_no_longer_known_is_taken_anew",),
    ),
    # P4: what a click on the head of a column asks for is what the head counted.
    Mutant(
        "large_integers_in_floats", "P4", FACTS,
        "np.asarray(values).astype(np.int64)",
        "np.asarray(values).astype(np.float64)",
        (f"{IN_FACTS}::test_whole_numbers_and_decimals_are_spread_exactly",),
    ),
    Mutant(
        "decimals_by_their_low_half", "P4", FACTS,
        "    if (high == low.view(np.int64) >> 63).all():",
        "    if (high == high).all():",
        (f"{IN_FACTS}::test_whole_numbers_and_decimals_are_spread_exactly",),
    ),
    Mutant(
        "conditions_that_find_nan", "P4", FACTS,
        "    if len(known) < len(values):",
        "    if len(known) < 0:",
        (f"{IN_FACTS}::test_what_is_no_number_is_in_no_bin_and_no_condition_finds_it",),
    ),
    Mutant(
        "words_of_conditions_as_columns", "P4", FACTS,
        "if name.upper() in _WORDS else name",
        "if name in _WORDS else name",
        (f"{IN_FACTS}::test_columns_that_are_called_as_a_word_of_conditions_are_quoted",),
    ),
    # P10: what is hidden leaves the process in no answer, and no condition finds it out.
    Mutant(
        "conditions_look_at_what_is_hidden", "P10", ROWS,
        "self._tables.mask.visible_schema(info.schema)",
        "info.schema",
        (f"{IN_MODEL}::test_a_condition_does_not_look_at_what_is_masked",),
    ),
    Mutant(
        "pages_with_any_column_that_is_named", "P10", ROWS,
        "        known = set(names)\n",
        "        known = {column.name for column in info.schema.columns}\n",
        (f"{IN_MODEL}::test_a_masked_column_is_in_no_message",),
    ),
    Mutant(
        "details_with_every_column", "P10", ROWS,
        "        columns = self._tables.visible_names(info)\n",
        "        columns = [column.name for column in info.schema.columns]\n",
        (f"{IN_MODEL}::test_a_masked_column_is_in_no_message",),
    ),
    Mutant(
        "properties_that_name_what_is_hidden", "P10", TABLE_ANSWERS,
        "if name in TABLE_OPTIONS or not self._mask.is_named_in(name)]",
        "if name in TABLE_OPTIONS or name]",
        (f"{IN_MODEL}::test_no_property_names_what_is_masked",),
    ),
)  # fmt: skip

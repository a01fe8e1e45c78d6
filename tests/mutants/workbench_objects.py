"""Mutants of what notebooks have in the hand: loads, exports, cards, progress, SQL in cells."""

from tests.mutants.mutant import Mutant

LOAD = "fluss_lab/workbench/load/table_load.py"
CSV = "fluss_lab/workbench/load/csv_file.py"
JSON = "fluss_lab/workbench/load/json_file.py"
JSON_VALUES = "fluss_lab/workbench/load/json_values.py"
TEXTS = "fluss_lab/workbench/load/text_types.py"
EXPORT = "fluss_lab/read/row_export.py"
CARD = "fluss_lab/display/card.py"
WAITING = "fluss_lab/display/waiting.py"
CELLS = "fluss_lab/workbench/notebook/sql_magic.py"

IN_LOAD = "tests/unit/workbench/load/test_table_load.py"
IN_CSV = "tests/unit/workbench/load/test_csv_file.py"
IN_JSON = "tests/unit/workbench/load/test_json_file.py"
IN_EXPORT = "tests/unit/read/test_row_export.py"
IN_CARD = "tests/unit/display/test_card.py"
IN_TABLE = "tests/unit/display/test_card_table.py"
IN_TEXT = "tests/unit/display/test_shown_text.py"
IN_WAITING = "tests/unit/display/test_waiting.py"
IN_CELLS = "tests/unit/workbench/notebook/test_sql_magic.py"

#: Nothing is made before all is examined, and a type is that of all values.
_LOADS = (
    Mutant(
        "loads_into_a_table_that_is_there", "P13", LOAD,
        "    if request.if_exists == \"fail\":\n",
        "    if request.if_exists == \"replace\":\n",
        (f"{IN_LOAD}::test_what_is_there_is_added_to_when_that_is_asked_for",),
    ),
    Mutant(
        "loads_into_a_table_with_another_key", "P13", LOAD,
        "        if wanted is not None and tuple(wanted) != tuple(found):\n",
        "        if wanted is not None and len(tuple(found)) > len(tuple(wanted)):\n",
        (f"{IN_LOAD}::test_a_table_that_is_another_one_is_not_added_to",),
    ),
    Mutant(
        "empty_lines_of_one_column_are_no_rows", "P11", CSV,
        "ignore_empty_lines=len(names) > 1,",
        "ignore_empty_lines=True,",
        (f"{IN_CSV}::test_files_as_programs_write_them",),
    ),
    Mutant(
        "nulls_of_keys_are_found_when_rows_are_written", "P11", CSV,
        "        if any(column.required and judge is not None for",
        "        if any(column.required and judge is None for",
        (f"{IN_CSV}::test_a_null_in_a_key_is_found_before_anything_is_written",),
    ),
    Mutant(
        "rows_that_nest_without_end_are_read", "P11", "fluss_lab/workbench/load/json_nesting.py",
        "ROW_NESTING_MAX: Final = 100\n",
        "ROW_NESTING_MAX: Final = 100_000\n",
        (f"{IN_JSON}::test_a_row_that_nests_too_deeply_is_named",),
    ),
    Mutant(
        "misfits_of_json_are_found_when_rows_are_written", "P11", JSON,
        "        if any(column.type or column.required for column in columns) or any(large):\n",
        "        if any(column.required for column in columns) or any(large):\n",
        (f"{IN_JSON}::test_types_named_columns_and_names",),
    ),
    Mutant(
        "misfits_of_parquet_are_found_when_rows_are_written", "P11", "fluss_lab/workbench/load/arrow_rows.py",
        "    return column.required or column.known_type.arrow() != found\n",
        "    return column.required\n",
        (f"{IN_LOAD}::test_what_cannot_be_loaded_leaves_nothing",),
    ),
    Mutant(
        "postal_codes_are_numbers", "P11", TEXTS,
        "        if _some(values, _LEADING_ZERO):\n",
        "        if not len(values):\n",
        (f"{IN_CSV}::test_a_column_has_the_type_of_all_its_values",),
    ),
    Mutant(
        "long_numbers_are_rounded", "P11", TEXTS,
        "        if \"DOUBLE\" in self._left and _some(values, _LONG_DIGITS):\n",
        "        if \"DOUBLE\" in self._left and not len(values):\n",
        (f"{IN_CSV}::test_a_column_has_the_type_of_all_its_values",),
    ),
    Mutant(
        "numbers_beyond_floats_are_infinite", "P11", TEXTS,
        "    return name != \"DOUBLE\" or _first_lost(values, made) is None\n",
        "    return name != \"DOUBLE\" or bool(len(made))\n",
        (f"{IN_CSV}::test_a_column_has_the_type_of_all_its_values",),
    ),
    Mutant(
        "texts_of_floats_are_rounded", "P11", TEXTS,
        "    if pa.types.is_floating(made.type) and (lost",
        "    if pa.types.is_boolean(made.type) and (lost",
        (f"{IN_CSV}::test_a_text_that_is_not_of_the_type_named_is_refused",),
    ),
    Mutant(
        "whole_numbers_of_json_are_rounded", "P11", JSON_VALUES,
        "    if not suspects:\n",
        "    if len(suspects) < 1_000:\n",
        (f"{IN_JSON}::test_what_a_given_type_would_change_is_refused_by_row_and_path",),
    ),
    Mutant(
        "decimals_of_csv_are_wrapped", "P11", TEXTS,
        "        return partial(_decimals, dtype=dtype)\n",
        "        return lambda part: pc.cast(part, to)\n",
        (f"{IN_CSV}::test_a_text_that_is_not_of_the_type_named_is_refused",),
    ),
    Mutant(
        "decimals_of_json_are_wrapped", "P11", JSON_VALUES,
        "        return pa.decimal256(_WIDE_PRECISION, dtype.parameters[1])\n",
        "        return pa.decimal128(*dtype.parameters)\n",
        (f"{IN_JSON}::test_what_a_given_type_would_change_is_refused_by_row_and_path",),
    ),
    Mutant(
        "long_decimals_of_json_are_wrapped", "P11", JSON_VALUES,
        "        if pa.types.is_decimal(leaf.type) and _may_have_long(data):\n",
        "        if pa.types.is_boolean(leaf.type) and _may_have_long(data):\n",
        (f"{IN_JSON}::test_what_a_given_type_would_change_is_refused_by_row_and_path",),
    ),
    Mutant(
        "whole_numbers_beside_others_are_rounded", "P11", JSON,
        "        if any(column.type or column.required for column in columns) or any(large):\n",
        "        if any(column.type or column.required for column in columns):\n",
        (f"{IN_JSON}::test_whole_numbers_beside_others_are_not_rounded",),
    ),
    Mutant(
        "zones_of_json_s_times_are_lost", "P11", JSON_VALUES,
        "            plain = _untimed_type(field.type)\n",
        "            plain = field.type\n",
        (f"{IN_JSON}::test_times_keep_their_zones",),
    ),
    Mutant(
        "times_of_json_without_a_zone_are_utc", "P11", JSON_VALUES,
        "    if dtype.name in _TIMES:\n        return pa.string()\n",
        "    if dtype.name in _TIMES:\n        return dtype.arrow()\n",
        (f"{IN_JSON}::test_what_a_given_type_would_change_is_refused_by_row_and_path",),
    ),
    Mutant(
        "keys_of_json_that_a_type_does_not_name_are_left_out", "P11", JSON,
        "            if (path := found.unknown(column.source_name, column.known_type)) is None:\n",
        "            if (path := found.unknown(column.source_name, column.known_type)) is None or path:\n",
        (f"{IN_JSON}::test_what_a_given_type_would_change_is_refused_by_row_and_path",),
    ),
    Mutant(
        "headers_are_rows", "P11", CSV,
        "                    yield batch.slice(header_rows)\n",
        "                    yield batch\n",
        (f"{IN_CSV}::test_files_as_programs_write_them",),
    ),
    Mutant(
        "open_quotation_marks_take_the_rest_of_a_file", "P11", CSV,
        "        if count % 2 and last in",
        "        if count < 0 and last in",
        (f"{IN_CSV}::test_what_is_no_table_is_refused_by_row_and_column",),
    ),
    Mutant(
        "loads_go_on_at_the_wrong_row", "P12", LOAD,
        "{_rest(writer, info, start_row)}\", error) from error\n",
        "{_rest(writer, info, 0 * start_row + 1)}\", error) from error\n",
        (f"{IN_LOAD}::test_an_interrupted_load_says_what_is_written_and_goes_on",),
    ),
    Mutant(
        "loads_that_begin_behind_the_end_succeed", "P11", LOAD,
        "    if 0 < source.count.total < request.options.start_row:\n",
        "    if 0 < source.count.total < 0:\n",
        (f"{IN_LOAD}::test_a_start_behind_the_last_row_is_refused_and_makes_no_table",),
    ),
    Mutant(
        "durability_that_a_running_server_lacks_goes_unsaid", "P1", "fluss_lab/workbench/lab_place.py",
        "    if named and (different",
        "    if not named and (different",
        ("tests/unit/workbench/test_lab_servers.py::test_arguments_that_a_running_server_does_not_have_are_warned_of",),
    ),
    Mutant(
        "refused_settings_of_spark_count_on", "P6", "fluss_lab/workbench/lab_spark.py",
        "                self._session, self._master, self._config = before\n",
        "                before = None\n",
        ("tests/unit/workbench/test_lab_spark.py::test_a_master_that_is_not_the_active_session_s_is_refused",),
    ),
)  # fmt: skip

#: Files are written whole or not at all, and only over what was written so.
_EXPORTS = (
    Mutant(
        "exports_leave_a_part_behind", "P12", EXPORT,
        "        with Held():\n            _remove(temporary)\n        raise\n",
        "        raise\n",
        (f"{IN_EXPORT}::test_nothing_half_written_is_left",),
    ),
    Mutant(
        "exports_are_written_in_place", "P1", EXPORT,
        "    temporary = part_of(target)\n",
        "    temporary = target\n",
        (f"{IN_EXPORT}::test_a_killed_process_leaves_no_file_of_that_name",),
    ),
    Mutant(
        "exports_remove_what_is_being_written", "P13", "fluss_lab/read/export_part.py",
        "            return  # its process lives\n",
        "            pass\n",
        (f"{IN_EXPORT}::test_an_export_removes_what_killed_ones_left_and_nothing_that_is_being_written",),
    ),
    Mutant(
        "exports_replace_other_people_s_files", "P13", EXPORT,
        "        if is_file or others:\n",
        "        if is_file:\n",
        (f"{IN_EXPORT}::test_what_is_not_ours_is_never_replaced",),
    ),
    Mutant(
        "exports_replace_unasked", "P13", EXPORT,
        "    if not overwrite and (is_file or any(target.iterdir())):\n",
        "    if not overwrite and is_file:\n",
        (f"{IN_EXPORT}::test_what_is_there_is_replaced_only_when_asked_for",),
    ),
    Mutant(
        "exports_are_not_synced", "P1", EXPORT,
        "    files.fsync_path(path)\n",
        "    path.stat()\n",
        (f"{IN_EXPORT}::test_a_full_disk_leaves_nothing",),
    ),
    Mutant(
        "exports_replace_a_folder_in_two_steps", "P1", EXPORT,
        "    files.exchange(temporary, target)\n    shutil.rmtree(temporary, ignore_errors=True)\n",
        "    shutil.rmtree(target)\n    files.replace(temporary, target)\n",
        (f"{IN_EXPORT}::test_a_folder_is_there_all_the_time_that_it_is_replaced",),
    ),
)  # fmt: skip

#: What is shown is text, and nothing of progress is kept.
_SHOWN = (
    Mutant(
        "titles_are_markup", "P8", CARD,
        "{escape(short(name, _NAME_LENGTH_MAX))}",
        "{short(name, _NAME_LENGTH_MAX)}",
        (f"{IN_CARD}::test_no_part_of_a_card_is_taken_for_markup",),
    ),
    Mutant(
        "facts_are_markup", "P8", CARD,
        "    text = escape(short(display_text(value), _FACT_LENGTH_MAX))\n",
        "    text = short(display_text(value), _FACT_LENGTH_MAX)\n",
        (f"{IN_CARD}::test_no_part_of_a_card_is_taken_for_markup",),
    ),
    Mutant(
        "notes_are_markup", "P8", CARD,
        "<div>◆ {escape(each)}</div>",
        "<div>◆ {each}</div>",
        (f"{IN_CARD}::test_no_part_of_a_card_is_taken_for_markup",),
    ),
    Mutant(
        "values_of_cells_are_markup", "P8", "fluss_lab/display/card_table.py",
        "    inner = escape(text)\n",
        "    inner = str(text)\n",
        (f"{IN_TABLE}::test_hostile_names_and_values_are_text",),
    ),
    Mutant(
        "names_of_columns_are_markup", "P8", "fluss_lab/display/card_table.py",
        "{escape(each.header)}",
        "{each.header}",
        (f"{IN_TABLE}::test_hostile_names_and_values_are_text",),
    ),
    Mutant(
        "texts_control_terminals", "P8", "fluss_lab/display/shown_text.py",
        "    if text.isprintable():\n        return text\n",
        "    if text:\n        return text\n",
        (f"{IN_TEXT}::test_whatever_is_shown_is_short_and_printable",),
    ),
    Mutant(
        "progress_is_markup", "P8", WAITING,
        "{escape(short(line, 200))}",
        "{short(line, 200)}",
        (f"{IN_WAITING}::test_a_line_is_text",),
    ),
    Mutant(
        "progress_in_notebooks_run_as_jobs", "P12", WAITING,
        "        return NotebookView() if _is_live() else None\n",
        "        return NotebookView()\n",
        (f"{IN_WAITING}::test_a_notebook_run_as_a_job_shows_nothing",),
    ),
    Mutant(
        "progress_stays_in_stored_outputs", "P12", WAITING,
        "            self._publish({}, transient=self._transient, update=True)\n",
        "            self._transient = {}\n",
        (f"{IN_WAITING}::test_what_is_stored_of_a_notebook_has_no_content",),
    ),
)  # fmt: skip

#: SQL in cells: of one lab, into a variable that is free, and never fewer rows without a word.
_CELLS = (
    Mutant(
        "results_replace_the_lab", "P13", CELLS,
        "    if asked.into is not None and names.get(asked.into) is lab:\n",
        "    if asked.into is not None and asked.into not in names:\n",
        (f"{IN_CELLS}::test_the_lab_is_the_one_that_is_open",),
    ),
    Mutant(
        "any_of_several_labs", "P13", CELLS,
        "    if len({id(lab) for lab in still_open.values()}) > 1:\n",
        "    if not still_open:\n",
        (f"{IN_CELLS}::test_the_lab_is_the_one_that_is_open",),
    ),
    Mutant(
        "labs_that_are_closed", "P13", CELLS,
        "if not lab.connection.closed.is_set()}",
        "if lab}",
        (f"{IN_CELLS}::test_a_closed_lab_is_not_meant",),
    ),
    Mutant(
        "results_into_any_expression", "P8", CELLS,
        "(not given[name].isidentifier() or keyword.iskeyword(given[name]))",
        "keyword.iskeyword(given[name])",
        (f"{IN_CELLS}::test_what_cannot_be_is_refused_before_anything_runs",),
    ),
    Mutant(
        "results_are_cut_without_a_word", "P11", CELLS,
        "frame.limit(asked.limit + 1)",
        "frame.limit(asked.limit)",
        ("tests/spark/test_lab_sql.py::test_sql_in_a_cell_is_a_frame_shown_and_kept",),
    ),
    Mutant(
        "the_session_s_own_sql_writes_to_tables", "P4", "fluss_lab/spark/source/known_tables.py",
        "or not _may_name(sqlQuery)",
        "or \"insert\" in sqlQuery",
        ("tests/spark/test_lab_sql.py::test_the_session_s_own_sql_knows_tables_by_their_paths_as_they_are_now",),
    ),
    Mutant(
        "the_session_s_own_sql_makes_databases", "P4", "fluss_lab/spark/source/known_tables.py",
        " or _OF_DATABASES.match(text) is not None",
        "",
        ("tests/spark/test_refused_commands.py::test_statements_that_make_alter_or_drop_say_how_it_is_done",),
    ),
)  # fmt: skip

WORKBENCH_OBJECTS = _LOADS + _EXPORTS + _SHOWN + _CELLS

"""Mutants of what a lab's Spark is asked for: statements that write, and starts of streams."""

from tests.mutants.mutant import Mutant

IN_SQL = "tests/spark/test_lab_sql.py"
IN_COMMANDS = "tests/spark/test_refused_commands.py"
SQL = "tests/spark/test_sql_spark.py"
IN_SOURCE = "tests/spark/test_table_source.py"
LOOKUPS = "tests/unit/spark/lookup/test_lookup_sql.py"
COLUMNS = "tests/unit/spark/lookup/test_join_columns.py"
LOOKED_UP = "tests/spark/test_lookup_sql_spark.py"

#: P4: what is not offered is refused, with the way that works.
SPARK_STATEMENTS = (
    Mutant(
        "statements_that_write_go_to_spark", "P4", "fluss_lab/spark/refused_commands.py",
        "        elif len(path) == 2 and (has_table(path) or",
        "        elif len(path) == 2 and kind not in _WRITES and (has_table(path) or",
        (f"{IN_SQL}::test_statements_that_write_to_a_table_say_how_it_is_done",),
    ),
    Mutant(
        "statements_about_tables_go_to_spark", "P4", "fluss_lab/spark/refused_commands.py",
        "        elif len(path) == 2 and (has_table(path) or",
        "        elif len(path) == 2 and kind in _WRITES and (has_table(path) or",
        (f"{IN_COMMANDS}::test_statements_that_make_alter_or_drop_say_how_it_is_done",),
    ),
    Mutant(
        "statements_about_databases_go_to_spark", "P4", "fluss_lab/spark/refused_commands.py",
        "            if len(path) == 1 and has_database(path[0]):",
        "            if not path:",
        (f"{IN_COMMANDS}::test_statements_that_make_alter_or_drop_say_how_it_is_done",),
    ),
    Mutant(
        "files_that_are_gone_are_traces_of_java", "P4", "fluss_lab/spark/session/file_errors.py",
        "return found if unread is None else FileReadException(unread)",
        "return found",
        ("tests/spark/test_tail_frames.py::test_a_frame_whose_file_is_gone_says_so_in_a_paragraph",),
    ),
    Mutant(
        "versions_taken_for_times", "P4", "fluss_lab/spark/source/lab_sql.py",
        "return SnapshotId(literal or text)",
        "return int(literal or text)",
        (f"{IN_SQL}::test_a_version_is_a_snapshot_and_never_a_time",),
    ),
    Mutant(
        "tables_of_one_name_taken_for_each_other", "P4", "fluss_lab/spark/source/lab_sql.py",
        "    contested = found.contested_paths()\n",
        "    contested = found.contested_paths() & set()\n",
        (f"{SQL}::test_tables_of_one_name_in_several_databases_are_distinguished",),
    ),
    Mutant(
        "variables_of_lambdas_taken_for_tables", "P4", "fluss_lab/spark/statement_names.py",
        "            or not self.variables.isdisjoint(_lower_case(path))\n",
        "",
        (f"{SQL}::test_tables_are_known_by_their_paths",),
    ),
    Mutant(
        "streams_read_as_tables", "P11", "fluss_lab/spark/source/lab_sql.py",
        "for path in found.streams if",
        "for path in found.streams[:0] if",
        (f"{IN_SQL}::test_a_table_that_is_asked_for_as_a_stream_is_not_read_as_it_is",),
    ),
    Mutant(
        "rows_written_into_the_table_that_they_came_from", "P13", "fluss_lab/spark/data_source.py",
        "FlussBatchWriter(self._write_options(), schema, overwrite)",
        "FlussBatchWriter(self._parse(schema), schema, overwrite)",
        (f"{IN_SOURCE}::test_rows_of_one_table_are_never_written_into_it_where_another_was_meant",),
    ),
    Mutant(
        "days_read_as_the_session_says", "P4", "fluss_lab/spark/source/parquet_frame.py",
        '    "datetimeRebaseMode": "CORRECTED",\n',
        "",
        (f"{IN_SQL}::test_days_and_times_are_the_same_in_a_session_that_takes_them_for_others",),
    ),
    Mutant(
        "variables_read_after_names_were_found", "P4", "fluss_lab/spark/source/lab_sql.py",
        "    text = substitute(session, text)\n",
        "",
        (f"{IN_SQL}::test_variables_of_a_statement_move_no_name",),
    ),
    Mutant(
        "starts_of_streams_checked_by_the_query", "P4", "fluss_lab/spark/source/table_frame.py",
        "        starts = reader.starts(start)\n",
        "        starts = {}\n",
        (f"{IN_SQL}::test_a_stream_s_start_is_checked_when_it_is_given",),
    ),
    Mutant(
        "every_kind_of_join_is_a_lookup_join", "P11", "fluss_lab/spark/lookup/lookup_sql.py",
        '        if kind not in {"", "INNER", "LEFT", "LEFT OUTER"}:',
        "        if not kind.isprintable():",
        (f"{LOOKUPS}::test_joins_that_cannot_be_are_refused",),
    ),
    Mutant(
        "a_time_of_a_column_is_looked_up_as_of_now", "P11", "fluss_lab/spark/lookup/lookup_sql.py",
        "        if _has_time_of_column(table):",
        "        if not table:",
        (f"{LOOKUPS}::test_joins_that_cannot_be_are_refused",),
    ),
    Mutant(
        "a_name_of_both_sides_means_the_stream", "P11", "fluss_lab/spark/lookup/join_columns.py",
        "            if len(found) > 1:",
        "            if len(found) > len(self._stream):",
        (f"{COLUMNS}::test_conditions_that_cannot_be_are_refused",),
    ),
    Mutant(
        "the_rest_of_on_is_forgotten", "P11", "fluss_lab/spark/lookup/join_columns.py",
        '        return JoinColumns(keys, " and ".join(f"({each})" for each in conditions) or None)',
        "        return JoinColumns(keys, None)",
        (f"{COLUMNS}::test_equalities_with_the_table_s_columns_are_keys",),
    ),
    Mutant(
        "each_part_of_a_statement_at_a_moment_of_its_own", "P4", "fluss_lab/spark/source/lab_sql.py",
        "        if moment_of is None and path in self._known:",
        "        if moment_of is not None and path in self._known:",
        (f"{LOOKED_UP}::test_moments_of_a_statement_are_those_of_its_lookups",),
    ),
    Mutant(
        "a_spark_that_is_gone_is_a_socket_s_error", "P11", "fluss_lab/spark/session/spark_errors.py",
        "        if is_alive(session):\n            raise\n",
        "        if not is_alive(session):\n            raise\n",
        ("tests/unit/workbench/test_spark_loss.py::test_a_killed_jvm_is_said_and_replaced",),
    ),
    Mutant(
        "a_spark_that_cannot_be_asked_is_ended", "P14", "fluss_lab/spark/session/jvm_launch.py",
        "        return error.errno in NO_DESCRIPTOR\n",
        "        return error.errno in NO_DESCRIPTOR - {errno.EMFILE}\n",
        ("tests/unit/spark/session/test_spark_session.py::test_a_jvm_that_cannot_be_asked_for_want_of_a_descriptor_is_no_dead_one",),
    ),
)  # fmt: skip

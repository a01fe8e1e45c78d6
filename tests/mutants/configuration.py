"""Mutants of configuration: options that are lost, secrets that are shown, folders that others can write."""

from tests.mutants.mutant import Mutant

LAKE_OPTIONS = "fluss_lab/model/config/lake_options.py"
FOLDER = "fluss_lab/server/folder/lab_folder.py"
COMMANDS = "fluss_lab/cli/commands.py"
TABLES = "fluss_lab/cli/table_commands.py"

IN_OPTIONS = "tests/unit/model/config/test_lake_options.py"
IN_FOLDER = "tests/unit/server/folder/test_lab_folder.py"
IN_COMMANDS = "tests/unit/cli/test_commands.py"
IN_TABLES = "tests/unit/cli/test_table_commands.py"
IN_RUNS = "tests/unit/jobs/test_run_secrets.py"
IN_SECRETS = "tests/unit/tiering/task/test_task_secrets.py"

CONFIGURATION = (
    Mutant(
        "one_lake_option_turns_the_default_lake_off", "P11", LAKE_OPTIONS,
        "    return {**values, **{key: value for key, value in filled.items() if key not in values}}",
        "    return {**values} if any(key.startswith(LAKE_PREFIX) for key in values) else {**values, **filled}",
        (f"{IN_OPTIONS}::test_one_key_keeps_the_rest_of_the_default_lake",),
    ),
    Mutant(
        "misspelt_lake_options_are_taken", "P11", LAKE_OPTIONS,
        "        if own == _ICEBERG_PREFIX and not _is_known(key, values):",
        "        if own == _ICEBERG_PREFIX and not key:",
        (f"{IN_OPTIONS}::test_a_misspelt_key_is_refused_with_the_one_that_was_meant",),
    ),
    Mutant(
        "options_of_another_format_are_taken", "P11", LAKE_OPTIONS,
        "        if not key.startswith(own) or key == own:",
        "        if key == own:",
        (f"{IN_OPTIONS}::test_options_of_another_format_are_refused_and_a_format_of_its_own_has_any",),
    ),
    Mutant(
        "the_format_of_a_lab_changes_silently", "P13", "fluss_lab/server/folder/metadata_checks.py",
        "    if tables and kept is not None and configured not in {None, kept}:",
        "    if tables and kept is not None and configured not in {configured}:",
        ("tests/unit/server/folder/test_metadata_checks.py::test_another_format_is_refused_while_there_are_lake_tables",),
    ),
    Mutant(
        "secrets_are_shown_by_config", "P10", COMMANDS,
        "[(each.key, each.shown, each.source) for each in settings]",
        "[(each.key, each.value, each.source) for each in settings]",
        (f"{IN_COMMANDS}::test_a_secret_stands_on_no_command_line_and_is_never_shown",),
    ),
    Mutant(
        "passwords_of_addresses_are_shown_by_runs", "P10", "fluss_lab/jobs/run_secrets.py",
        "for key, value in (*given, *filed, *read_options(folder).items()) for part in secrets_of(key, value)]",
        "for key, value in (*given, *filed, *read_options(folder).items()) for part in [value]]",
        (f"{IN_RUNS}::test_passwords_within_addresses_and_secrets_of_unknown_options_are_masked",),
    ),
    Mutant(
        "secrets_of_the_lab_s_file_are_shown_by_runs", "P10", "fluss_lab/jobs/run_secrets.py",
        "(*given, *filed, *read_options(folder).items())",
        "given",
        (f"{IN_RUNS}::test_secrets_in_the_lab_s_files_are_masked_too",),
    ),
    Mutant(
        "secrets_are_logged", "P10", "fluss_lab/server/process/process_setup.py",
        "            line = self._secrets.sub(MASK, line)",
        "            pass",
        ("tests/unit/server/process/test_process_setup.py::test_what_libraries_say_has_no_secret_of_the_options",),
    ),
    Mutant(
        "errors_of_a_catalog_quote_passwords", "P10", "fluss_lab/lake/iceberg/table/catalog_access.py",
        "            conceal(error, self._secrets)",
        "            del error",
        ("tests/unit/lake/iceberg/table/test_catalog_access.py::test_no_error_of_a_catalog_quotes_a_password",),
    ),
    Mutant(
        "options_stand_on_the_command_line", "P10", "fluss_lab/server/process/server_process.py",
        "            [*arguments, \"--ready-fd\",",
        "            [*arguments, *(f\"--option={key}={value}\" for key, value in options.items()), \"--ready-fd\",",
        (f"{IN_COMMANDS}::test_a_secret_stands_on_no_command_line_and_is_never_shown",),
    ),
    Mutant(
        "secrets_are_taken_from_the_command_line", "P10", COMMANDS,
        "        if mask_secret(key.strip(), value) != value:",
        "        if mask_secret(separator, value) != value:",
        (f"{IN_COMMANDS}::test_a_secret_stands_on_no_command_line_and_is_never_shown",),
    ),
    Mutant(
        "tasks_get_the_catalog_s_secrets", "P10", "fluss_lab/lake/iceberg/storage.py",
        '        return {"name": self._access.name, **file_properties(self._access.properties)}',
        '        return {"name": self._access.name, **self._access.properties}',
        (f"{IN_SECRETS}::test_tasks_of_rounds_and_compactions_hold_no_secret_of_the_catalog",),
    ),
    Mutant(
        "write_targets_hold_the_catalog_s_secrets", "P10", "fluss_lab/lake/iceberg/write/write_target.py",
        "file_properties({key: str(value) for key, value in lake.io.properties.items()})",
        "{key: str(value) for key, value in lake.io.properties.items()}",
        (f"{IN_SECRETS}::test_tasks_of_rounds_and_compactions_hold_no_secret_of_the_catalog",),
    ),
    Mutant(
        "folders_of_labs_with_paths_too_long_for_sqlite", "P12", FOLDER,
        ") > PATH_BYTES_MAX:", ") > 4_096:",
        (f"{IN_FOLDER}::test_a_path_that_sqlite_does_not_open_is_refused_before_anything_is_made",),
    ),
    Mutant(
        "others_may_write_in_a_lab", "P10", FOLDER,
        "    if found.st_mode & stat.S_IWOTH or",
        "    if",
        (f"{IN_FOLDER}::test_a_folder_that_others_may_write_is_refused",),
    ),
    Mutant(
        "planted_links_are_followed", "P10", FOLDER,
        "        if stat.S_ISLNK(entry.st_mode):",
        "        if stat.S_ISDIR(entry.st_mode):",
        (f"{IN_FOLDER}::test_a_planted_link_is_refused_and_what_it_leads_to_is_left",),
    ),
    Mutant(
        "a_mistyped_folder_becomes_a_lab", "P13", "fluss_lab/cli/folder_argument.py",
        "    check_lab_exists(folder.absolute())\n",
        "",
        (f"{IN_TABLES}::test_no_command_but_up_makes_a_lab",),
    ),
)  # fmt: skip

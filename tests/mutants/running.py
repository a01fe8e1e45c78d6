"""Mutants of what runs rounds: Spark on any master, and the service that runs for days."""

from tests.mutants.mutant import Mutant

REACH = "fluss_lab/spark/tiering/cluster_preflight.py"
IN_REACH = "tests/unit/spark/tiering/test_cluster_preflight.py"
IN_MASTERS = "tests/unit/spark/session/test_worker_placement.py"
EARLY = "fluss_lab/spark/session/early_spark.py"
IN_EARLY = "tests/unit/spark/session/test_early_spark.py"
ARCHIVE = "fluss_lab/spark/session/class_archive.py"
IN_ARCHIVE = "tests/unit/spark/session/test_class_archive.py"
IN_COMPUTE = "tests/unit/workbench/test_lab_spark.py"
IN_TIERING_SERVICE = "tests/unit/tiering/service/test_tiering_service.py"

RUNNING = (
    Mutant(
        "executors_elsewhere_without_tls", "P10", REACH,
        "    if not server.tls:\n",
        "    if not server.host:\n",
        (f"{IN_REACH}::test_a_server_in_clear_is_not_for_other_machines",),
    ),
    Mutant(
        "executors_elsewhere_not_looked_at", "P10", REACH,
        "    if missing:\n",
        "    if missing is None:\n",
        (f"{IN_REACH}::test_everything_that_is_missing_is_named",),
    ),
    Mutant(
        "store_not_tried_before_a_round", "P10", REACH,
        "    if (failed := trial()) is not None:\n",
        "    if (failed := None) is not None:\n",
        (f"{IN_REACH}::test_a_store_that_does_not_serve_is_found_before_a_round",),
    ),
    Mutant(
        "store_not_tried_by_executors", "P10", REACH,
        "partial(store_problems, trial))",
        "partial(store_problems, lambda: None))",
        (f"{IN_REACH}::test_a_store_that_does_not_serve_executors_is_found_before_a_round",),
    ),
    Mutant(
        "trial_left_in_the_store", "P10", "fluss_lab/lake/iceberg/files/store_probe.py",
        "        \"deleted\": lambda: io.delete(place),\n",
        "        \"deleted\": lambda: None,\n",
        ("tests/unit/lake/iceberg/files/test_store_probe.py::test_nothing_is_left_of_a_trial",),
    ),
    Mutant(
        "one_loopback_address_makes_a_master_local", "P10", "fluss_lab/spark/session/worker_placement.py",
        "and all(_host(place) in LOOPBACK",
        "and any(_host(place) in LOOPBACK",
        (f"{IN_MASTERS}::test_where_a_master_runs",),
    ),
    Mutant(
        "socket_whose_path_is_too_long", "P6", "fluss_lab/spark/session/worker_placement.py",
        "len(os.fsencode(folder)) > SOCKET_PATH_BYTES_MAX - _SOCKET_NAME_BYTES:",
        "not folder:",
        (f"{IN_MASTERS}::test_a_folder_too_long_for_a_socket_has_none",),
    ),
    Mutant(
        "workers_of_any_release", "P2", "fluss_lab/spark/tiering/spark_executor.py",
        "    if (found := release()) != expected:\n",
        "    if not (found := release()):\n",
        ("tests/unit/spark/session/test_worker_placement.py::test_workers_of_another_release_are_refused",),
    ),
    Mutant(
        "spark_started_where_a_variable_says", "P10", "fluss_lab/spark/session/jvm_surroundings.py",
        "    return [*kept, \"--master\", master,",
        "    return [*words[:at], *words[at:]] if kept else [*kept, \"--master\", master,",
        ("tests/unit/spark/session/test_jvm_surroundings.py::test_a_person_s_arguments_are_kept_and_say_not_where_spark_runs",),
    ),
    Mutant(
        "jvm_started_by_a_fork", "P6", "fluss_lab/spark/session/jvm_launch.py",
        "start_new_session=True",
        "preexec_fn=lambda: None",
        ("tests/unit/spark/session/test_jvm_launch.py::test_a_jvm_that_ends_twice_is_an_error_with_what_it_said",),
    ),
    Mutant(
        "process_started_while_the_maker_of_an_archive_ends", "P12", "fluss_lab/spark/session/class_archive_maker.py",
        '        if event == "subprocess.Popen" and ends.is_set():\n',
        "        if False:\n",
        (f"{IN_ARCHIVE}::test_what_is_started_while_it_ends_ends_too",),
    ),
    Mutant(
        "class_archive_cut_short", "P6", ARCHIVE,
        "path.stat().st_size, _crc32(path))",
        'path.stat().st_size, manifest["crc32"])',
        (f"{IN_ARCHIVE}::test_one_that_is_not_whole_is_not_used",),
    ),
    Mutant(
        "class_archive_of_anybody", "P10", ARCHIVE,
        "            check_private(path)\n",
        "",
        (f"{IN_ARCHIVE}::test_one_that_is_not_whole_is_not_used",),
    ),
    Mutant(
        "class_archive_of_other_jars", "P6", ARCHIVE,
        "{status.st_size} {status.st_mtime_ns}",
        "{jar.exists()}",
        (f"{IN_ARCHIVE}::test_whatever_an_archive_depends_on_has_a_place_of_its_own",),
    ),
    Mutant(
        "class_archive_made_again_and_again", "P12", ARCHIVE,
        " or self._has_failed():",
        ":",
        (f"{IN_ARCHIVE}::test_one_that_failed_leaves_nothing_and_is_not_begun_again_that_day",),
    ),
    Mutant(
        "class_archive_that_a_jvm_died_of", "P6", "fluss_lab/spark/session/jvm_launch.py",
        "        archive.drop()\n",
        "        pass\n",
        ("tests/unit/spark/session/test_jvm_launch.py::test_a_jvm_that_ends_twice_is_an_error_with_what_it_said",),
    ),
    Mutant(
        "early_spark_of_another_environment", "P13", EARLY,
        "        serves = start.fits(key) and ",
        "        serves = ",
        (f"{IN_EARLY}::test_one_of_another_master_or_environment_or_folder_is_ended_and_not_waited_for",),
    ),
    Mutant(
        "early_spark_that_died_is_used", "P6", EARLY,
        " or self._jvm.process.poll() is not None:",
        ":",
        (f"{IN_EARLY}::test_the_next_call_uses_it_if_it_lives_and_there_is_one_jvm",),
    ),
    Mutant(
        "threads_of_the_parent_in_a_forked_child", "P12", "fluss_lab/client/cluster/open_resources.py",
        "            leave()\n",
        "            pass\n",
        ("tests/unit/client/test_forks.py::test_a_forked_child_does_not_wait_for_threads_of_its_parent_nor_lose_rows",),
    ),
    Mutant(
        "early_spark_kept_by_a_forked_child", "P6", EARLY,
        "                self._process.stdin.close()\n",
        "                pass\n",
        (f"{IN_EARLY}::test_a_forked_child_leaves_it_alone_and_does_not_keep_it",),
    ),
    Mutant(
        "early_spark_ended_under_another_lab", "P6", EARLY,
        "            if self._owners or self._start is None:",
        "            if self._start is None:",
        (f"{IN_EARLY}::test_it_is_gone_with_the_last_that_may_need_it",),
    ),
    Mutant(
        "early_spark_started_after_it_was_left", "P6", EARLY,
        "        if is_cancelled:\n            end(process)",
        "        if is_cancelled:\n            pass",
        (f"{IN_EARLY}::test_it_is_gone_with_the_last_that_may_need_it",),
    ),
    Mutant(
        "early_spark_heard_before_it_is_used", "P12", EARLY,
        "[Ear(1, is_silent=True), Ear(2, is_silent=True)]",
        "[Ear(1), Ear(2)]",
        (f"{IN_EARLY}::test_a_failure_is_silent_until_spark_is_used",),
    ),
    Mutant(
        "early_spark_on_other_machines", "P10", "fluss_lab/spark/session/spark_session.py",
        "    if is_one_process(master) and not has_jvm()",
        "    if not has_jvm()",
        (f"{IN_EARLY}::test_it_is_gone_with_the_last_that_may_need_it",),
    ),
    Mutant(
        "early_spark_of_other_arguments", "P10", "fluss_lab/spark/session/spark_session.py",
        "    return ARGUMENTS in os.environ or ",
        "    return ",
        (f"{IN_EARLY}::test_it_is_gone_with_the_last_that_may_need_it",),
    ),
    Mutant(
        "early_spark_in_jobs_and_scripts", "P12", "fluss_lab/workbench/lab_spark.py",
        '(chosen == "interactive" and is_interactive())',
        '(chosen == "interactive")',
        (f"{IN_COMPUTE}::test_spark_starts_early_where_a_person_types_or_it_is_asked_for",),
    ),
    Mutant(
        "early_spark_outlives_its_lab", "P6", "fluss_lab/workbench/lab_spark.py",
        "                self._connection.open_resources.add(self, self._leave)\n",
        "",
        (f"{IN_COMPUTE}::test_a_table_of_the_lake_that_is_opened_made_or_enabled_starts_it_and_it_goes_with_the_lab",),
    ),
    Mutant(
        "dead_executor_used_again", "P6", "fluss_lab/tiering/service/tiering_service.py",
        "        if executor is not None and executor.is_alive:\n",
        "        if executor is not None:\n",
        (f"{IN_TIERING_SERVICE}::test_an_executor_that_died_is_replaced",),
    ),
    Mutant(
        "context_of_a_killed_jvm_taken_again", "P6", "fluss_lab/spark/session/jvm_launch.py",
        "            SparkContext._active_spark_context = None\n            _forget_gateway()\n            code",
        "            _forget_gateway()\n            code",
        (
            "tests/unit/spark/session/test_jvm_launch.py::"
            "test_a_session_is_made_after_one_whose_jvm_was_killed_when_its_context_was_there",
        ),
    ),
    Mutant(
        "service_without_a_server_looks_well", "P11", "fluss_lab/tiering/service/tiering_service.py",
        "            error = error or session.trouble\n",
        "            error = error or None\n",
        (f"{IN_TIERING_SERVICE}::test_an_idle_service_says_that_its_server_is_away",),
    ),
    Mutant(
        "rounds_go_on_after_stop", "P5", "fluss_lab/tiering/service/tiering_service.py",
        "            executor.cancel()\n",
        "            executor.is_alive\n",
        (f"{IN_TIERING_SERVICE}::test_stopping_during_a_round_tells_the_coordinator",),
    ),
)  # fmt: skip

"""Mutants of jobs: parameters, names and secrets that are not checked, due times run twice or lost, limits that end nothing."""

from tests.mutants.mutant import Mutant

PARAMETERS = "fluss_lab/jobs/notebook_parameters.py"
LIBRARY = "fluss_lab/jobs/notebook_library.py"
EXECUTION = "fluss_lab/jobs/run_execution.py"
RECORD = "fluss_lab/jobs/run_record.py"
RUN = "fluss_lab/jobs/notebook_run.py"
PROCESS = "fluss_lab/jobs/notebook_process.py"
OPTION_SECRETS = "fluss_lab/model/config/option_secrets.py"
SECRETS = "fluss_lab/jobs/run_secrets.py"
STORE = "fluss_lab/jobs/job_store.py"
DUE = "fluss_lab/jobs/scheduling/due_plan.py"
PROCESSES = "fluss_lab/jobs/run_processes.py"
SCHEDULER = "fluss_lab/jobs/scheduling/scheduler.py"
SCHEDULE = "fluss_lab/jobs/scheduling/schedule.py"
NOTICE = "fluss_lab/jobs/scheduling/failure_notice.py"

IN_PARAMETERS = "tests/unit/jobs/test_notebook_parameters.py"
IN_LIBRARY = "tests/unit/jobs/test_notebook_library.py"
IN_JOBS = "tests/unit/jobs/test_lab_jobs.py"
IN_RUN = "tests/unit/jobs/test_notebook_run.py"
IN_SECRETS = "tests/unit/jobs/test_run_secrets.py"
IN_STORE = "tests/unit/jobs/test_job_store.py"
IN_DUE = "tests/unit/jobs/scheduling/test_due_plan.py"
IN_SCHEDULE = "tests/unit/jobs/scheduling/test_schedule.py"
IN_NOTICE = "tests/unit/jobs/scheduling/test_failure_notice.py"
IN_PROCESSES = "tests/unit/jobs/test_run_processes.py"
IN_SCHEDULER = "tests/unit/jobs/scheduling/test_scheduler.py"
IN_HOSTILE_STORE = "tests/unit/jobs/scheduling/test_hostile_store.py"
IN_KERNELS = "tests/notebooks/test_notebook_jobs.py"

#: What a notebook is given.
_GIVEN = (
    Mutant(
        "parameters_of_any_name", "P8", PARAMETERS,
        "        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name not in known:\n",
        "        known.setdefault(name, NotebookParameter(name, \"Any\", None))\n        if not isinstance(name, str):\n",
        (f"{IN_PARAMETERS}::test_hostile_ones_are_refused",),
    ),
    Mutant(
        "parameters_of_any_type", "P8", PARAMETERS,
        "        if test is None or not test(plain):\n",
        "        if test is None:\n",
        (f"{IN_PARAMETERS}::test_values_that_do_not_fit",),
    ),
    Mutant(
        "parameters_set_before_the_cell_of_defaults", "P11", PARAMETERS,
        "    if place != tagged[0][0]:\n",
        "    if place < tagged[0][0]:\n",
        (f"{IN_PARAMETERS}::test_a_tag_before_the_cell_of_parameters_is_refused",),
    ),
    Mutant(
        "defaults_out_of_their_own_range", "P11", PARAMETERS,
        "            parameter.check_default()\n",
        "            pass\n",
        (f"{IN_PARAMETERS}::test_a_default_outside_of_its_own_limits_is_refused_where_it_would_count",),
    ),
    Mutant(
        "limits_of_parameters_as_floats", "P11", PARAMETERS,
        "        return int(text)\n    except ValueError:\n",
        "        return float(text)\n    except ValueError:\n",
        (f"{IN_PARAMETERS}::test_limits_are_exact_and_shown_in_full",),
    ),
    Mutant(
        "parameters_out_of_range", "P8", PARAMETERS,
        " or self.low <= value <= self.high\n",
        " or self.low <= self.high\n",
        (f"{IN_PARAMETERS}::test_values_that_do_not_fit",),
    ),
    Mutant(
        "parameters_of_any_choice", "P8", PARAMETERS,
        " and value is not None and not self._is_choice(value):\n",
        " and value is None and not self._is_choice(value):\n",
        (f"{IN_PARAMETERS}::test_choices_are_values_of_the_type",),
    ),
    Mutant(
        "members_of_enums_become_texts", "P11", PARAMETERS,
        "    if isinstance(value, Enum):\n        value = value.value\n",
        "    if isinstance(value, Enum):\n        value = str(value)\n",
        (f"{IN_PARAMETERS}::test_members_of_enums_and_texts_of_other_classes_are_their_values",),
    ),
    Mutant(
        "parameters_of_any_length", "P8", PARAMETERS,
        "json.dumps(found))) > VALUES_LENGTH_MAX:\n",
        "json.dumps(found))) < 0:\n",
        (f"{IN_PARAMETERS}::test_hostile_ones_are_refused",),
    ),
    Mutant(
        "parameters_that_are_called_secrets", "P10", PARAMETERS,
        "        if isinstance(plain, str) and plain and _SECRET_NAME.search(self.name)",
        "        if isinstance(plain, str) and not plain and _SECRET_NAME.search(self.name)",
        (f"{IN_PARAMETERS}::test_a_secret_is_no_parameter",),
    ),
    Mutant(
        "parameters_of_the_store_are_trusted", "P8", EXECUTION,
        "with_lab(notebook, check_parameters(notebook, task.parameters), self._lab)",
        "with_lab(notebook, dict(task.parameters), self._lab)",
        (f"{IN_HOSTILE_STORE}::test_hostile_parameters_in_the_store_are_refused",),
    ),
    Mutant(
        "secrets_of_the_store_are_trusted", "P10", EXECUTION,
        "        check_secret_names(task.secrets)\n",
        "        tuple(task.secrets)\n",
        (f"{IN_HOSTILE_STORE}::test_hostile_secrets_in_the_store_are_refused",),
    ),
    Mutant(
        "names_of_the_store_are_trusted", "P8", RUN,
        "        folder = jobs_folder / check_job_name(job)\n",
        "        folder = jobs_folder / job\n",
        (f"{IN_HOSTILE_STORE}::test_hostile_names_in_the_store_are_refused",),
    ),
    Mutant(
        "jobs_of_any_name", "P8", "fluss_lab/jobs/lab_jobs.py",
        "        check_job_name(name)\n        when",
        "        when",
        (f"{IN_JOBS}::test_hostile_names_are_refused",),
    ),
    Mutant(
        "links_lead_out_of_the_notebooks", "P8", LIBRARY,
        "        if path.is_file() and path.is_relative_to(place.resolve()):\n",
        "        if path.is_file():\n",
        (f"{IN_LIBRARY}::test_a_link_leads_out_of_no_place",),
    ),
    Mutant(
        "pipes_are_notebooks", "P8", LIBRARY,
        "        if path.suffix == SUFFIX and path.is_file():\n",
        "        if path.suffix == SUFFIX and path.exists():\n",
        (f"{IN_LIBRARY}::test_a_pipe_or_folder_is_no_notebook",),
    ),
    Mutant(
        "what_runs_is_not_what_was_checked", "P13", RUN,
        "            \"source\": str(self.scratch / self._notebook.path.name), ",
        "            \"source\": str(self._notebook.path), ",
        (f"{IN_RUN}::test_what_was_checked_is_what_runs",),
    ),
)  # fmt: skip

#: What a run leaves, and what it may take.
_LEFT = (
    Mutant(
        "runs_share_an_output", "P13", RECORD,
        "    return f\"{stamp}-{secrets.token_hex(3)}\"\n",
        "    return f\"run-{len(stamp)}\"\n",
        (f"{IN_JOBS}::test_a_run_is_recorded_and_run_again",),
    ),
    Mutant(
        "secrets_in_logs", "P10", RUN,
        "        text = self._redactor.text(line)\n",
        "        text = line\n",
        (f"{IN_RUN}::test_it_sees_the_environment_that_it_is_given_and_no_more",),
    ),
    Mutant(
        "secrets_in_pieces_of_output", "P10", PROCESS,
        "                self.running.outputs[:] = [redactor.plain(each) for each in self.running.outputs]\n",
        "",
        (f"{IN_KERNELS}::test_secrets_and_tokens_are_in_nothing_that_a_run_leaves",),
    ),
    Mutant(
        "secrets_masked_as_they_are_only", "P10", OPTION_SECRETS,
        "(part, repr(part)[1:-1], json.dumps(part)[1:-1])",
        "(part,)",
        (f"{IN_SECRETS}::test_every_form_is_masked",),
    ),
    Mutant(
        "half_of_a_secret_stays", "P10", OPTION_SECRETS,
        "key=len, reverse=True)",
        "key=len)",
        (f"{IN_SECRETS}::test_of_two_the_longer_is_masked_whole",),
    ),
    Mutant(
        "long_lines_are_cut_within_secrets", "P10", SECRETS,
        "        end = max(0, len(line) - len(self._pattern.pattern))\n",
        "        return len(line)\n",
        (f"{IN_SECRETS}::test_a_line_without_an_end_comes_in_pieces_that_cut_no_secret",),
    ),
    Mutant(
        "pieces_of_lines_end_within_the_last_secret", "P10", SECRETS,
        "        return max([end, *(found.end() for found in begun)])\n",
        "        return end\n",
        (f"{IN_SECRETS}::test_a_line_without_an_end_comes_in_pieces_that_cut_no_secret",),
    ),
    Mutant(
        "tokens_that_come_later_are_shown", "P10", SECRETS,
        "        if self._token_file is not None and self._token_file.exists():\n",
        "        if self._token_file is None:\n",
        (f"{IN_SECRETS}::test_a_token_that_comes_later_is_masked",),
    ),
    Mutant(
        "values_of_secrets_are_parameters", "P10", SECRETS,
        "        if redactor.plain(value) != value:\n",
        "        if redactor.plain(value) is None:\n",
        (f"{IN_JOBS}::test_a_secret_is_no_parameter_either",),
    ),
    Mutant(
        "outputs_that_wait_are_dropped", "P8", PROCESS,
        "_KEEP_OUTPUTS.format(option=int(zmq.SNDHWM))",
        "'pass'",
        (f"{IN_KERNELS}::test_cells_print_faster_than_outputs_are_processed",),
    ),
    Mutant(
        "runs_end_with_whoever_reads_their_lines", "P8", RUN,
        "            self._on_line, self.on_line_error = None, error\n",
        "            raise\n",
        (f"{IN_JOBS}::test_a_run_outlives_whoever_reads_its_lines",),
    ),
    Mutant(
        "runs_see_the_whole_environment", "P10", "fluss_lab/jobs/run_environment.py",
        "for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}",
        "for name, value in os.environ.items() if name}",
        (f"{IN_RUN}::test_it_sees_the_environment_that_it_is_given_and_no_more",),
    ),
    Mutant(
        "commands_for_failures_see_the_whole_environment", "P10", NOTICE,
        "for name, value in os.environ.items() if name in _PASSED}",
        "for name, value in os.environ.items() if name}",
        (f"{IN_NOTICE}::test_what_it_prints_and_how_it_ends_is_in_the_log",),
    ),
    Mutant(
        "errors_control_terminals_by_commands", "P8", NOTICE,
        "            filled += _printable(values[name]) + rest",
        "            filled += values[name] + rest",
        (f"{IN_NOTICE}::test_fields_are_filled_in_once_and_stay_in_their_word",),
    ),
    Mutant(
        "runs_without_a_time_limit", "P14", RUN,
        "        if now_s - self._started_s > self._task.timeout_ms / 1000:\n",
        "        if now_s - self._started_s > self._task.timeout_ms * 1000:\n",
        (f"{IN_RUN}::test_one_that_hangs_ends_at_its_limit_with_all_its_children",),
    ),
    Mutant(
        "runs_without_a_memory_limit", "P14", RUN,
        "            if exceeds_memory(self._process.pid, self._task.memory_bytes):\n",
        "            if exceeds_memory(self._process.pid, self._task.memory_bytes << 20):\n",
        (f"{IN_RUN}::test_one_that_eats_memory_is_ended",),
    ),
    Mutant(
        "children_outlive_their_run", "P6", RUN,
        "        is_clean = kill_run(self.id)\n",
        "        is_clean = self._process.poll() is not None\n",
        (f"{IN_RUN}::test_a_good_end_leaves_nothing_running_either",),
    ),
)  # fmt: skip

#: When it runs.
_DUE = (
    Mutant(
        "due_while_another_runs", "P6", DUE,
        "(active_run is not None or runs):\n",
        "runs:\n",
        (f"{IN_DUE}::test_while_another_runs_the_policy_decides",),
    ),
    Mutant(
        "one_that_is_made_up_for_is_all", "P6", DUE,
        "        return overdue[-1:]\n",
        "        return overdue\n",
        (f"{IN_DUE}::test_after_a_pause_the_policy_says_which_run",),
    ),
    Mutant(
        "rare_due_times_are_made_up_for_a_week_only", "P6", DUE,
        "        if start_ms == since_ms or len(due) > CATCH_UP_MAX + LATE_MS // 60_000:\n",
        "        if start_ms <= now_ms:\n",
        (f"{IN_DUE}::test_what_is_due_rarely_is_made_up_for_however_long_ago_it_was",),
    ),
    Mutant(
        "due_times_in_a_gap_are_lost", "P6", SCHEDULE,
        "            if is_of_every_hour:\n                continue\n            first",
        "            if comes_again:\n                continue\n            first",
        (f"{IN_SCHEDULE}::test_nothing_is_lost_or_doubled_where_clocks_change",),
    ),
    Mutant(
        "due_times_before_they_come_again_are_lost", "P6", SCHEDULE,
        "    return local - (before - behind) if moment.fold == 0 else local\n",
        "    return local if moment.fold == 0 else local - (before - behind)\n",
        (f"{IN_SCHEDULE}::test_what_comes_again_is_found_from_within_its_first_time",),
    ),
    Mutant(
        "zones_without_a_name_are_another_one", "P11", SCHEDULE,
        "        names = [given]\n",
        "        names = [given, \"UTC\"]\n",
        (f"{IN_SCHEDULE}::test_the_systems_zone_is_found_by_its_name_or_refused",),
    ),
    Mutant(
        "due_times_come_twice", "P6", SCHEDULE,
        "        if behind < before and comes_again:\n",
        "        if behind < before:\n",
        (f"{IN_SCHEDULE}::test_nothing_is_lost_or_doubled_where_clocks_change",),
    ),
    Mutant(
        "missed_due_times_are_not_recorded", "P11", DUE,
        "    missed += _missed_times(job, given_up)\n",
        "    missed += _missed_times(job, given_up[:0])\n",
        (f"{IN_DUE}::test_every_due_time_is_decided_on_once",),
    ),
    Mutant(
        "decisions_on_jobs_that_were_changed", "P6", STORE,
        "            if _job(db, job.name) != job:\n",
        "            if _job(db, job.name) is None:\n",
        (f"{IN_STORE}::test_a_decision_on_a_changed_job_is_not_entered",),
    ),
    Mutant(
        "a_due_time_entered_twice", "P6", STORE,
        "UNIQUE (job_id, due_ms, attempt)",
        "UNIQUE (id)",
        (f"{IN_STORE}::test_a_due_time_is_entered_once_whatever_happens",),
    ),
    Mutant(
        "runs_that_ended_change", "P6", STORE,
        "    return None if run is None or run.state in ENDED else run\n",
        "    return run\n",
        (f"{IN_STORE}::test_what_is_entered_is_there",),
    ),
    Mutant(
        "two_schedulers_of_a_lab", "P5", "fluss_lab/jobs/scheduling/scheduler_lease.py",
        "        if not _lock(fd):\n",
        "        if not _lock(fd) and lease_holder(lab) is None:\n",
        ("tests/unit/jobs/scheduling/test_scheduler_lease.py::test_a_second_one_is_refused_and_named_until_the_first_ends",),
    ),
    Mutant(
        "holder_of_the_last_lease_taken_for_the_present_one", "P13", "fluss_lab/jobs/scheduling/scheduler_lease.py",
        "            if process is not None and is_alive(process):\n",
        "            if holder.pid:\n",
        ("tests/unit/jobs/scheduling/test_scheduler_lease.py::test_one_that_has_just_taken_the_lock_is_known_once_it_has_said_who_it_is",),
    ),
    Mutant(
        "process_of_a_lease_that_is_gone_is_stopped", "P13", "fluss_lab/jobs/scheduling/scheduler_lease.py",
        "return holder if process is None else _UNKNOWN",
        "return holder",
        ("tests/unit/jobs/scheduling/test_scheduler_lease.py::test_a_process_that_is_gone_is_not_stopped_for_one_that_does_not_say_who_it_is",),
    ),
    Mutant(
        "lock_of_a_scheduler_that_cannot_be_seen_is_none", "P13", "fluss_lab/jobs/scheduling/scheduler_lease.py",
        "    except (FileNotFoundError, NotADirectoryError):\n",
        "    except OSError:\n",
        ("tests/unit/jobs/scheduling/test_scheduler_lease.py::test_a_lock_that_cannot_be_opened_is_not_taken_for_no_scheduler",),
    ),
    Mutant(
        "runs_of_a_killed_scheduler_go_on_in_the_history", "P6", SCHEDULER,
        "        for lost in settle_lost_runs(self._store, self._clock):\n",
        "        for lost in self._store.runs(\"\"):\n",
        (f"{IN_SCHEDULER}::test_it_takes_up_what_a_killed_one_left",),
    ),
    Mutant(
        "retries_of_lost_runs_are_forgotten", "P6", STORE,
        "            if retry is not None:\n",
        "            if retry is not None and run.owner is None:\n",
        (f"{IN_SCHEDULER}::test_a_history_that_records_a_lost_run_takes_no_retry_and_no_notice_from_it",),
    ),
    Mutant(
        "jobs_wait_for_a_clock_that_was_ahead", "P6", SCHEDULER,
        "        if now_ms >= self._decided_ms or self._bring_forward(now_ms):\n",
        "        if now_ms >= 0:\n",
        (
            f"{IN_SCHEDULER}::test_a_clock_that_was_ahead_for_a_moment_stops_nothing_and_nothing_runs_twice",
            f"{IN_SCHEDULER}::test_after_a_restart_too",
        ),
    ),
    Mutant(
        "due_time_run_again_after_the_clock_was_set_back", "P6", STORE,
        "                if not _has_run(db, run):\n",
        "                if run:\n",
        (f"{IN_SCHEDULER}::test_a_due_time_that_ran_under_a_clock_ahead_does_not_run_again",),
    ),
    Mutant(
        "notices_of_a_killed_scheduler_are_lost", "P6", SCHEDULER,
        "[run for run in reversed(failed) if run.is_notice_due]",
        "[]",
        (f"{IN_SCHEDULER}::test_a_history_that_records_a_lost_run_takes_no_retry_and_no_notice_from_it",),
    ),
)  # fmt: skip

#: Which runs are under way, and whose.
_OWNED = (
    Mutant(
        "owners_are_known_by_the_clock", "P13", PROCESSES,
        "            return f\"{pid}:{ticks}:{_boot_id()}\" if ticks >= 0 else",
        "            return f\"{pid}:{ticks}:{_boot_id()}\" if ticks < -1 else",
        (f"{IN_PROCESSES}::test_a_process_is_itself_whatever_the_clock_says",),
    ),
    Mutant(
        "owners_are_known_by_their_id", "P13", PROCESSES,
        "    return found == process_identity if \".\" not in started else",
        "    return True if \".\" not in started else",
        (f"{IN_PROCESSES}::test_a_process_that_is_gone_and_others_with_its_id_are_not_it",),
    ),
    Mutant(
        "runs_by_hand_are_none_of_their_job", "P6", RECORD,
        "        return self.job_id is not None and self.job.casefold()",
        "        return not self.is_by_hand and self.job.casefold()",
        (f"{IN_SCHEDULER}::test_one_that_was_started_by_hand_is_under_way_too",),
    ),
    Mutant(
        "runs_of_a_replaced_job_are_none_of_it", "P6", RECORD,
        " and self.job.casefold() == job.name.casefold()\n",
        " and self.job_id == job.id\n",
        (f"{IN_SCHEDULER}::test_a_run_of_a_replaced_job_is_under_way_still",),
    ),
    Mutant(
        "runs_that_wait_pass_those_by_hand", "P6", SCHEDULER,
        "        busy = {run.job.casefold() for run in running}\n",
        "        busy = {run.job.casefold() for run in running if not run.is_by_hand}\n",
        (f"{IN_SCHEDULER}::test_one_that_was_started_by_hand_is_under_way_too",),
    ),
    Mutant(
        "outputs_go_by_what_a_job_of_their_name_keeps", "P13", SCHEDULER,
        "        if run.job_id is None:\n            kept = CALLS_KEPT\n        elif",
        "        if run.job_id is None and not jobs:\n            kept = CALLS_KEPT\n        elif",
        (f"{IN_SCHEDULER}::test_runs_of_a_notebook_that_is_called_as_a_job_are_kept",),
    ),
    Mutant(
        "one_job_stops_all", "P6", SCHEDULER,
        "            self._try(f\"job {job.id}\", partial(self._decide_on, job, own, now_ms))\n",
        "            self._decide_on(job, own, now_ms)\n",
        (f"{IN_SCHEDULER}::test_a_job_whose_zone_is_not_known_here_stops_no_other",),
    ),
    Mutant(
        "queued_runs_go_with_a_replaced_job", "P11", STORE,
        "                _cancel_queued(db, present, now_ms)\n",
        "                pass\n",
        (f"{IN_STORE}::test_a_replaced_job_leaves_its_queued_runs_in_the_history",),
    ),
    Mutant(
        "runs_that_began_are_cancelled_as_queued", "P6", STORE,
        "            if run.state == \"queued\":\n",
        "            if run.state != \"succeeded\":\n",
        (f"{IN_STORE}::test_a_run_that_has_begun_is_not_ended_by_its_record",),
    ),
    Mutant(
        "a_store_that_cannot_be_read_ends_runs", "P6", EXECUTION,
        "            except StorageError:\n                pass  # it passes",
        "            except ValueError:\n                pass  # it passes",
        ("tests/unit/jobs/test_run_stops.py::test_a_store_that_cannot_be_read_for_a_while_ends_no_run",),
    ),
    Mutant(
        "runs_end_before_they_begin", "P6", EXECUTION,
        "(self.record.started_ms or 0) + self._clock.monotonic_ms() - self._began_ms,",
        "0,",
        (f"{IN_SCHEDULER}::test_a_run_takes_as_long_as_it_does_whatever_the_clock_is_set_to",),
    ),
    Mutant(
        "schedulers_of_removed_labs_go_on", "P6", SCHEDULER,
        "                    lease.check()\n", "",
        (f"{IN_SCHEDULER}::test_a_scheduler_whose_lab_is_removed_ends_its_runs_and_itself",),
    ),
    Mutant(
        "a_store_that_was_removed_is_made_anew", "P6", STORE,
        "            if not makes_file:",
        "            if self.path.is_symlink():",
        (f"{IN_STORE}::test_a_store_that_is_removed_meanwhile_is_not_made_anew",),
    ),
    Mutant(
        "jobs_that_cannot_be_seen_are_none", "P8", STORE,
        "        except FileNotFoundError:\n            return False\n        except OSError as error:\n            raise",
        "        except OSError:\n            return False\n        except ValueError as error:\n            raise",
        (f"{IN_STORE}::test_a_folder_that_cannot_be_looked_at_is_an_error",),
    ),
    Mutant(
        "lines_that_a_log_lacks_are_not_said", "P8", "fluss_lab/jobs/run_log.py",
        "        if self._missing:\n            text =",
        "        if room < 0:\n            text =",
        ("tests/unit/jobs/test_run_log.py::test_lines_that_a_full_disk_did_not_take_are_named",),
    ),
    Mutant(
        "outputs_are_written_over", "P6", PROCESS,
        "            write_atomic(Path(path), text.encode(), durable=False)\n",
        "            Path(path).write_text(text)\n",
        (f"{IN_KERNELS}::test_an_output_that_the_disk_does_not_take_is_whole_as_it_was_before",),
    ),
    Mutant(
        "runs_go_on_after_an_interrupt", "P12", "fluss_lab/jobs/lab_jobs.py",
        "        finally:\n            execution.abandon()",
        "        finally:\n            execution.cell",
        ("tests/unit/jobs/test_run_stops.py::test_an_interrupt_before_a_run_is_followed_ends_it_too",),
    ),
    Mutant(
        "runs_by_hand_are_started_twice", "P6", SCHEDULER,
        "            if job is None or run.is_by_hand or len",
        "            if job is None or len",
        (f"{IN_SCHEDULER}::test_what_is_entered_by_hand_is_not_for_the_scheduler",),
    ),
    Mutant(
        "failures_of_runs_by_hand_are_tried_again", "P6", STORE,
        "            job = None if run.is_by_hand else _job_of_run(db, run)\n",
        "            job = _job_of_run(db, run)\n",
        (f"{IN_JOBS}::test_a_failure_by_hand_is_tried_no_more_and_sends_no_notice",),
    ),
    Mutant(
        "runs_that_never_began_wait_for_ever", "P6", EXECUTION,
        "    if run.owner is not None:\n        return not is_alive",
        "    if run.owner is not None:\n        return run.state == \"running\" and not is_alive",
        (f"{IN_JOBS}::test_a_run_whose_caller_was_killed_before_it_began_is_recorded",),
    ),
)  # fmt: skip

NOTEBOOK_JOBS = _GIVEN + _LEFT + _DUE + _OWNED

"""Mutants of what holds interrupts back, and of what an interrupted write says and does."""

from tests.mutants.mutant import Mutant

IN_NODE_HOST = "tests/unit/server/process/test_node_host.py"
IN_LAB_LIFETIME = "tests/unit/workbench/test_lab_lifetime.py"
INTERRUPTS = "fluss_lab/interrupts.py"
WORK_POOL = "fluss_lab/work_pool.py"
IN_WORK_POOL = "tests/unit/test_work_pool.py"
CHANNEL = "fluss_lab/rpc/channel.py"
ACCUMULATOR = "fluss_lab/client/write/record_accumulator.py"
WRITER = "fluss_lab/client/write/table_writer.py"
QUEUES = "fluss_lab/client/write/bucket_queue.py"
RESULTS = "fluss_lab/client/write/write_result.py"

IN_INTERRUPTS = "tests/unit/test_interrupts.py"
IN_WRITES = "tests/unit/client/write/test_interrupted_writes.py"
IN_LAB = "tests/unit/workbench/test_lab.py"

#: P12: whoever presses stop waits for nothing, and knows what was written.
STOPPING = (
    Mutant(
        "waits_that_look_for_no_signal", "P12", INTERRUPTS,
        "_WAIT_MAX_S: Final = 0.1\n",
        "_WAIT_MAX_S: Final = 3600.0\n",
        (f"{IN_INTERRUPTS}::test_an_interrupt_that_another_thread_gets_ends_the_wait_too",),
    ),
    Mutant(
        "interrupt_swallowed_by_its_block", "P12", INTERRUPTS,
        "                recorder.before(SIGINT, None)\n\n    @property",
        "                pass\n\n    @property",
        (f"{IN_INTERRUPTS}::test_an_interrupt_takes_effect_at_the_end_of_the_block",),
    ),
    Mutant(
        "second_interrupt_in_the_place_of_the_first", "P12", INTERRUPTS,
        "if isinstance(error, KeyboardInterrupt) else nullcontext()",
        "if error is self else nullcontext()",
        (f"{IN_INTERRUPTS}::test_a_second_interrupt_leaves_the_first_one_with_what_it_says",),
    ),
    Mutant(
        "handler_of_somebody_else_put_back", "P12", INTERRUPTS,
        "        if _signal.getsignal(SIGINT) is recorder:",
        "        if _signal.getsignal(SIGINT) is not None:",
        (f"{IN_INTERRUPTS}::test_a_handler_set_within_the_block_stays",),
    ),
    Mutant(
        "pool_where_an_interrupt_breaks_it", "P12", WORK_POOL,
        "        with Held():\n            return Work(",
        "        if True:\n            return Work(",
        (f"{IN_WORK_POOL}::test_no_lock_of_a_pool_is_taken_where_an_interrupt_could_break_it",),
    ),
    Mutant(
        "dropped_work_of_a_closed_pool_done", "P12", WORK_POOL,
        "wait=False, cancel_futures=True",
        "wait=False",
        (f"{IN_WORK_POOL}::test_a_pool_that_is_closed_ends_what_runs_and_drops_the_rest",),
    ),
    Mutant(
        "grpc_where_an_interrupt_breaks_it", "P12", CHANNEL,
        "            with Held() as held:\n                try:\n                    timeout_s",
        "            for held in (Held(),):\n                try:\n                    timeout_s",
        (f"{IN_LAB}::test_no_lock_of_grpc_or_of_the_library_is_taken_where_an_interrupt_could_break_it",),
    ),
    Mutant(
        "question_that_no_interrupt_ends", "P12", CHANNEL,
        "_BRIEFLY_S: Final = 0.5\n",
        "_BRIEFLY_S: Final = 60.0\n",
        ("tests/unit/rpc/test_channel.py::test_a_short_question_to_a_server_that_does_not_answer_ends_soon_when_it_is_interrupted",),
    ),
    Mutant(
        "future_whose_lock_an_interrupt_keeps", "P12", RESULTS,
        "        with Held():\n            if not self.done():",
        "        for _ in (0,):\n            if not self.done():",
        (f"{IN_LAB}::test_no_lock_of_grpc_or_of_the_library_is_taken_where_an_interrupt_could_break_it",),
    ),
    Mutant(
        "stopped_write_goes_on", "P12", WRITER,
        "        self._closed = True\n        self._accumulator.close()\n        if self._sender is not None:\n            with suppress",
        "        self._closed = True\n        self._accumulator.wait_settled()\n        if self._sender is not None:\n            with suppress",
        (f"{IN_WRITES}::test_a_stopped_append_tells_exactly_what_is_written_and_settling_writes_each_row_once",),
    ),
    Mutant(
        "stopped_write_says_nothing", "P12", WRITER,
        "        if progress.rows:\n            raise WriteStoppedError",
        "        if not progress.rows:\n            raise WriteStoppedError",
        (f"{IN_WRITES}::test_an_interrupt_after_the_last_acknowledgement_says_that_all_is_written",),
    ),
    Mutant(
        "partial_failure_looks_whole", "P12", WRITER,
        "        if progress.is_partial and not isinstance",
        "        if not progress.rows and not isinstance",
        (f"{IN_WRITES}::test_a_write_that_fails_in_one_bucket_says_so_and_is_settled_when_its_server_is_back",),
    ),
    Mutant(
        "settled_under_other_numbers", "P12", QUEUES,
        "            resending=bool(self.unacked), given_up=self.given_up, rows_max=self.rows_max,\n        )  # fmt: skip\n",
        "            resending=bool(self.unacked), given_up=self.given_up, rows_max=self.rows_max,\n        )  # fmt: skip\n"
        "        parked._number(7)\n",
        (f"{IN_WRITES}::test_settling_does_not_write_again_what_was_written_without_an_answer",),
    ),
    Mutant(
        "in_flight_reported_as_not_written", "P12", QUEUES,
        "if batch.in_flight or batch.doubtful)",
        "if batch.in_flight)",
        (f"{IN_WRITES}::test_settling_does_not_write_again_what_was_written_without_an_answer",),
    ),
    Mutant(
        "abandoned_rows_sent", "P12", WRITER,
        "            self._accumulator.abandon(WriteInterruptedError(f\"{self._what}: abandoned\"))",
        "            self._accumulator.reopen()",
        (f"{IN_WRITES}::test_a_stopped_upsert_can_be_abandoned",),
    ),
    Mutant(
        "interrupted_poll_drops_what_it_took", "P12", "fluss_lab/client/log/log_scanner.py",
        "                    self._positions.put_back(taken, offsets)\n                    held.deliver()\n",
        "                    held.deliver()\n",
        (f"{IN_LAB_LIFETIME}::test_a_poll_that_is_interrupted_loses_no_record",),
    ),
    Mutant(
        "forgotten_scanner_fetches_on", "P12", "fluss_lab/client/log/log_scanner.py",
        "        weakref.finalize(self, self._positions.abandon).atexit = False\n",
        "        weakref.finalize(self, int).atexit = False\n",
        (f"{IN_LAB_LIFETIME}::test_a_scanner_that_nobody_holds_ends_its_threads",),
    ),
    Mutant(
        "closed_lab_leaves_threads", "P12", "fluss_lab/client/cluster/open_resources.py",
        "                end()\n",
        "                del end\n",
        (f"{IN_LAB_LIFETIME}::test_a_lab_ends_what_it_began_and_leaves_a_quiet_folder",),
    ),
    Mutant(
        "lab_closed_while_its_server_writes", "P12", "fluss_lab/server/cluster.py",
        "        if ending is not None:\n            wait_until_gone(ending)",
        "        if ending is None:\n            wait_until_gone(ending)",
        (f"{IN_LAB_LIFETIME}::test_a_lab_ends_what_it_began_and_leaves_a_quiet_folder",),
    ),
    Mutant(
        "server_ended_under_another_lab", "P12", "fluss_lab/server/coordinator/client_sessions.py",
        "            if not set(session_ids).issuperset(self._open):\n",
        "            if not session_ids:\n",
        (
            "tests/unit/server/coordinator/test_client_sessions.py::test_whoever_is_the_last_ends_the_server_and_whoever_comes_later_learns_it",
            f"{IN_LAB_LIFETIME}::test_a_lab_ends_what_it_began_and_leaves_a_quiet_folder",
        ),
    ),
    Mutant(
        "stopped_round_commits", "P12", "fluss_lab/tiering/round/tiering_round.py",
        "        if self._is_stopped():\n",
        "        if self._is_stopped() and self._lost is not None:\n",
        (
            "tests/unit/tiering/task/test_interruptible_work.py::test_a_round_that_is_stopped_at_any_stage_leaves_nothing_half_done",
            "tests/unit/tiering/task/test_interruptible_work.py::test_a_round_that_another_thread_cancels_at_any_stage_leaves_nothing_half_done",
        ),
    ),
    Mutant(
        "spark_started_for_a_closed_lab", "P12", "fluss_lab/workbench/lab_spark.py",
        "        self._connection.check_open(\"Spark is not started\")\n        with self._lock:\n            if self._session is None",
        "        with self._lock:\n            if self._session is None",
        (f"{IN_LAB_LIFETIME}::test_a_closed_lab_says_so_and_starts_no_spark",),
    ),
    Mutant(
        "run_that_a_further_interrupt_leaves", "P12", "fluss_lab/jobs/run_execution.py",
        "        with Held():\n            if self.record.state not in ENDED:",
        "        if True:\n            if self.record.state not in ENDED:",
        ("tests/unit/jobs/test_run_stops.py::test_further_interrupts_wait_until_the_run_has_ended",),
    ),
    Mutant(
        "upkeep_of_a_restarted_server_done_twice", "P5", "fluss_lab/tiering/maintenance/manual_maintenance.py",
        "                if error.has_changed or not left",
        "                if not left",
        ("tests/unit/tiering/maintenance/test_manual_maintenance.py::test_what_was_committed_before_the_restart_stays_and_is_reported",),
    ),
    Mutant(
        "servers_without_a_folder_stay", "P12", "fluss_lab/server/process/node_host.py",
        "            if now_s - since_s >= abandoned_max_s:\n",
        "            if now_s < since_s:\n",
        (f"{IN_NODE_HOST}::test_a_server_whose_folder_is_gone_ends_with_all_its_processes",),
    ),
    Mutant(
        "attached_labs_lose_their_server_with_the_folder", "P12", "fluss_lab/server/process/server_node.py",
        "describe_cluster(pb.DescribeClusterRequest()).attached == 0",
        "describe_cluster(pb.DescribeClusterRequest()).attached >= 0",
        (f"{IN_NODE_HOST}::test_a_server_with_an_attached_lab_stays_until_its_folder_is_back",),
    ),
    Mutant(
        "interrupted_changes_are_done_later", "P12", CHANNEL,
        "_SETTLE_S if method.name in DDL else 0.0",
        "0.0",
        ("tests/unit/rpc/test_channel.py::test_a_change_that_is_interrupted_is_done_and_a_second_interrupt_leaves_it",),
    ),
    Mutant(
        "a_second_interrupt_waits_too", "P12", CHANNEL,
        "delays_s.pop() if delays_s else 0.0",
        "settle_s",
        ("tests/unit/rpc/test_channel.py::test_a_change_that_is_interrupted_is_done_and_a_second_interrupt_leaves_it",),
    ),
    Mutant(
        "kernels_are_interrupted_at_their_end", "P6", "fluss_lab/jobs/notebook_process.py",
        "kernel_manager_class=_kernel_manager(),", "",
        ("tests/notebooks/test_notebook_jobs.py::test_the_end_of_a_kernel_is_no_interrupt",),
    ),
    Mutant(
        "dropped_table_cannot_be_shown", "P12", "fluss_lab/workbench/cards/table_card.py",
        "    except Exception as error:  # what is shown must not fail\n",
        "    except ValueError as error:\n",
        (f"{IN_LAB}::test_what_is_dropped_or_closed_is_shown_all_the_same",),
    ),
    Mutant(
        "forgotten_lab_stays_attached", "P12", "fluss_lab/server/cluster.py",
        "        weakref.finalize(owner, _thread.start_new_thread, self.close, ()).atexit = False\n",
        "        weakref.finalize(owner, int).atexit = False\n",
        (f"{IN_LAB_LIFETIME}::test_a_lab_that_nobody_holds_lets_go_of_its_server",),
    ),
)  # fmt: skip

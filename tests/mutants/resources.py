"""Mutants of what one client can cost the others: memory, connections, threads; and of what comes back."""

from tests.mutants.mutant import Mutant

UNREAD = "fluss_lab/rpc/serving/unread_answers.py"
STRANGERS = "fluss_lab/rpc/serving/anonymous_connections.py"
SERVING = "fluss_lab/rpc/serving/grpc_server.py"
MEMORY = "fluss_lab/rpc/malloc_settings.py"
KV_BUCKET = "fluss_lab/server/tablet/buckets/kv_bucket.py"
PAGE = "fluss_lab/server/server_metrics.py"

IN_UNREAD = "tests/unit/rpc/serving/test_unread_answers.py"
IN_MEMORY = "tests/unit/rpc/test_malloc_settings.py"
IN_CLIENT = "tests/unit/rpc/test_client_memory.py"
IN_RESIDENT = "tests/unit/server/test_unread_memory.py"
IN_SUPERVISOR = "tests/unit/server/process/test_supervisor.py"
IN_CATCHING_UP = "tests/unit/server/tablet/buckets/test_kv_catching_up.py"
IN_METRICS = "tests/unit/server/test_server_metrics.py"

RESOURCES = (
    Mutant(
        "unread_answers_of_a_connection_without_limit", "P14", UNREAD,
        "        if mine and mine + held > self._connection_bytes_max:",
        "        if mine and mine + held < 0:",
        (f"{IN_UNREAD}::test_an_answer_that_a_connection_has_no_room_for_is_not_held",),
    ),
    Mutant(
        "answers_without_room_are_made_first", "P14", UNREAD,
        "        if connection is not None and connection.size >= limit:",
        "        if connection is not None and connection.size < 0:",
        (f"{IN_UNREAD}::test_answers_that_a_connection_does_not_take_are_bounded_and_their_room_comes_back",),
    ),
    Mutant(
        "unread_answers_of_a_server_without_limit", "P14", UNREAD,
        "        if self._size and self._size + held > limit:",
        "        if self._size and self._size + held < 0:",
        (f"{IN_UNREAD}::test_connections_that_take_nothing_make_room_for_those_that_do",),
    ),
    Mutant(
        "who_takes_nothing_keeps_the_room_of_others", "P14", UNREAD,
        "            self._make_room(peer)\n",
        "",
        (f"{IN_UNREAD}::test_connections_that_take_nothing_make_room_for_those_that_do",),
    ),
    Mutant(
        "answers_never_given_up", "P14", SERVING,
        "            self.unread.expire()\n",
        "",
        (f"{IN_UNREAD}::test_a_client_that_takes_nothing_loses_its_answers",),
    ),
    Mutant(
        "room_of_an_answer_never_comes_back", "P14", UNREAD,
        "            self._size -= held\n",
        "",
        (f"{IN_UNREAD}::test_an_answer_that_was_taken_needs_no_room",),
    ),
    Mutant(
        "pings_may_stay_unanswered", "P14", UNREAD,
        '            ("grpc.http2.ping_timeout_ms", self.client_timeout_ms),\n',
        "",
        (f"{IN_UNREAD}::test_a_client_that_is_gone_without_a_word_is_closed",),
    ),
    Mutant(
        "answers_are_made_without_room", "P14", UNREAD,
        "lambda: not self._size or self._size + size <= self._bytes_max, _BUILD_WAIT_S",
        "lambda: not self._size or self._size + size > 0, _BUILD_WAIT_S",
        (f"{IN_UNREAD}::test_answers_are_made_only_where_there_is_room",),
    ),
    Mutant(
        "strangers_may_stay", "P14", SERVING,
        "                self._anonymous.close_expired()\n",
        "                pass\n",
        (f"{IN_UNREAD}::test_connections_that_say_nothing_are_closed_and_others_get_in",),
    ),
    Mutant(
        "silent_clients_with_the_token_are_expelled", "P14", STRANGERS,
        "                if place in known:",
        "                if place in known and not known:",
        (f"{IN_UNREAD}::test_connections_that_say_nothing_are_closed_and_others_get_in",),
    ),
    Mutant(
        "first_requests_must_be_short", "P14", STRANGERS,
        "(silent_ms or 0) >= self._silence_ms",
        "(silent_ms or 0) >= 0",
        (f"{IN_UNREAD}::test_a_connection_that_speaks_has_time_for_its_first_request",),
    ),
    Mutant(
        "freed_memory_is_kept", "P14", "fluss_lab/server/process/process_setup.py",
        "MemoryRelease().look",
        "MemoryRelease().__repr__",
        (f"{IN_RESIDENT}::test_unread_answers_do_not_fill_the_memory_and_others_go_on",),
    ),
    Mutant(
        "memory_given_back_again_and_again", "P14", MEMORY,
        "            self._released, self._left_bytes = now, self._resident()",
        "            self._released = now",
        (f"{IN_MEMORY}::test_growth_that_stays_is_not_tried_again",),
    ),
    Mutant(
        "memory_of_a_client_at_rest_kept", "P14", MEMORY,
        'Ticker("memory-release", look_ms, MemoryRelease().look)',
        'Ticker("memory-release", look_ms, MemoryRelease)',
        (f"{IN_CLIENT}::test_arrow_allocates_where_freed_memory_is_kept_and_it_is_returned_once_the_process_rests",),
    ),
    Mutant(
        "arrows_pool_taken_from_who_chose_it", "P14", MEMORY,
        "    if not os.environ.get(_POOL_VARIABLE):",
        "    if True:",
        (f"{IN_CLIENT}::test_a_pool_that_the_user_chose_stays",),
    ),
    Mutant(
        "metrics_drip_for_ever", "P14", PAGE,
        "                if began_s <= oldest_s:",
        "                if began_s < 0:",
        (f"{IN_METRICS}::test_callers_that_drip_hold_up_nobody_and_end",),
    ),
    Mutant(
        "metrics_threads_without_limit", "P14", PAGE,
        "            for each in list(self._began_s)[: max(0, len(self._began_s) - _REQUESTS_MAX + 1)]:\n"
        "                _hang_up(each)\n"
        "            self._changed.wait_for(lambda: len(self._began_s) < _REQUESTS_MAX, _REQUEST_TIMEOUT_S)\n",
        "",
        (f"{IN_METRICS}::test_callers_that_drip_hold_up_nobody_and_end",),
    ),
    Mutant(
        "hung_tablet_servers_stay", "P14", "fluss_lab/server/process/supervisor.py",
        "                    child.kill_hung(self._session_ms)",
        "                    pass",
        (f"{IN_SUPERVISOR}::test_a_tablet_server_that_hangs_is_noticed_and_started_again",),
    ),
    # P14: what failed in memory is made good from the log, and nobody is shown anything else until then.
    Mutant(
        "rows_never_follow_their_log", "P14", KV_BUCKET,
        "            self._behind = _Behind(f\"{type(error).__name__}: {error}\")\n",
        "",
        (f"{IN_CATCHING_UP}::test_rows_follow_a_change_that_could_not_be_made_in_them",),
    ),
    Mutant(
        "rows_are_read_while_they_are_made_again", "P14", KV_BUCKET,
        "        invalid.invalidate()\n",
        "",
        (f"{IN_CATCHING_UP}::test_until_the_rows_have_followed_nothing_is_said_of_them",),
    ),
    Mutant(
        "rows_behind_their_log_are_described", "P14", "fluss_lab/server/tablet/buckets/bucket_description.py",
        "    kv.check_readable()\n",
        "",
        (f"{IN_CATCHING_UP}::test_until_the_rows_have_followed_nothing_is_said_of_them",),
    ),
    Mutant(
        "temporary_folders_of_living_processes_removed", "P14", "fluss_lab/files.py",
        "            if try_lock(fd):\n                shutil.rmtree(folder",
        "            if fd >= 0:\n                shutil.rmtree(folder",
        ("tests/unit/test_files.py::test_what_killed_processes_left_goes_with_the_next_one_that_makes_such_a_folder",),
    ),
    Mutant(
        "few_threads_for_a_jvm_not_looked_at", "P14", "fluss_lab/spark/session/jvm_surroundings.py",
        " or most - begun >= needed:",
        " or most - begun >= -needed:",
        ("tests/unit/spark/session/test_jvm_surroundings.py::test_too_few_threads_for_a_jvm_are_said_before_it_starts",),
    ),
)  # fmt: skip

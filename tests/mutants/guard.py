"""Mutants of the guard and of operations: what is let in, how much of it, and what is told about the server."""

from tests.mutants.mutant import Mutant

SERVING = "fluss_lab/rpc/serving/grpc_server.py"
LIMITS = "fluss_lab/rpc/rpc_methods.py"
INSPECTION = "fluss_lab/server/tablet/buckets/bucket_inspection.py"

IN_GUARD = "tests/unit/rpc/serving/test_guard.py"
IN_METRICS = "tests/unit/server/test_server_metrics.py"
IN_INSPECTION = "tests/unit/server/folder/test_lab_inspection.py"
IN_FAULTS = "tests/unit/server/folder/test_disk_faults.py"
IN_HOSTILE = "tests/unit/server/test_hostile_requests.py"

GUARD = (
    # P10: nobody is heard who has not shown the token.
    Mutant(
        "strangers_are_read_before_they_are_refused", "P10", SERVING,
        "        return grpc.stream_unary_rpc_method_handler(behaviour)",
        "        return grpc.unary_unary_rpc_method_handler(behaviour)",
        (f"{IN_GUARD}::test_without_the_token_nothing_is_read",),
    ),
    Mutant(
        "metrics_reported_to_anybody", "P10", "fluss_lab/server/server_metrics.py",
        "if not token.is_valid(given, self.server.secret):",
        "if given is None:",
        (f"{IN_METRICS}::test_the_page_wants_the_token",),
    ),
    # P8: no input ends the server, nor makes it wait or swell without end.
    Mutant(
        "crowds_are_let_in", "P8", SERVING,
        "if self._pool_of(details.method).is_full:",
        "if self._pool_of(details.method).calls < 0:",
        (f"{IN_GUARD}::test_one_long_poll_too_many_is_refused_at_once_and_short_calls_go_on",),
    ),
    Mutant(
        "room_of_a_call_never_given_back", "P8", SERVING,
        "        future.add_done_callback(self._note_end)\n",
        "",
        (f"{IN_GUARD}::test_a_caller_who_gives_up_makes_room_again",),
    ),
    Mutant(
        "connections_without_limit", "P8", SERVING,
        '            ("grpc.max_allowed_incoming_connections", connections_max),\n',
        "",
        (f"{IN_GUARD}::test_connections_are_limited_and_one_that_ends_makes_room",),
    ),
    Mutant(
        "another_port_than_the_chosen_one", "P13", "fluss_lab/server/process/listener.py",
        "for port in ports if chosen else (*ports, 0):",
        "for port in (*ports, 0):",
        ("tests/unit/server/process/test_chosen_ports.py::test_a_port_that_is_taken_is_an_error_and_never_another_one",),
    ),
    Mutant(
        "limit_of_connections_that_was_set_forgotten", "P14", "fluss_lab/server/process/listener.py",
        "connections_max=SERVER_CONNECTIONS_MAX.of(options), ",
        "",
        ("tests/unit/server/process/test_connections_max.py::test_connections_beyond_the_limit_are_closed_and_find_room_later",),
    ),
    Mutant(
        "lists_without_limit", "P8", LIMITS,
        "            if left < 0:",
        "            if left < -(10**12):",
        (f"{IN_GUARD}::test_lists_longer_than_the_limit_are_refused",),
    ),
    Mutant(
        "requests_of_any_length", "P8", LIMITS,
        "    if size > MESSAGE_BYTES_MAX:",
        "    if size < 0:",
        (f"{IN_GUARD}::test_a_request_that_is_long_without_records_is_refused_before_it_is_parsed",),
    ),
    Mutant(
        "text_that_is_none", "P8", LIMITS,
        "elif field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):",
        "elif field.type == field.TYPE_STRING and not values:",
        (f"{IN_GUARD}::test_text_that_is_none_is_refused",),
    ),
    Mutant(
        "requests_with_holes", "P8", LIMITS,
        "    if not message.IsInitialized():",
        "    if message is None:",
        (f"{IN_GUARD}::test_a_request_without_what_it_must_have_is_refused_also_deep_inside",),
    ),
    Mutant(
        "keys_that_are_no_names", "P8", "fluss_lab/model/schema.py",
        "    if missing := [name for name in [*key, *further] if name not in names]:",
        "    if missing := [name for name in {*key, *further} if name not in names]:",
        (f"{IN_HOSTILE}::test_definitions_that_cannot_be_are_refused",),
    ),
    Mutant(
        "fields_that_differ_by_case", "P8", "fluss_lab/model/schema.py",
        '    if dtype.name == "ROW":\n',
        '    if dtype.name == "":\n',
        ("tests/unit/model/test_descriptor.py::test_fields_that_other_readers_take_for_one_are_refused",),
    ),
    Mutant(
        "any_tablet_server_registers", "P8", "fluss_lab/server/coordinator/coordinator_service.py",
        "if not 0 <= request.server_id < self.tablet_servers:",
        "if request.server_id is None:",
        (f"{IN_HOSTILE}::test_a_tablet_server_that_the_cluster_does_not_have_cannot_register",),
    ),
    # P9: what the system refuses today it may grant tomorrow.
    Mutant(
        "open_files_without_measure", "P9", "fluss_lab/server/tablet/log/file_handles.py",
        "max(1, min(self._limit, allowed // _SHARE))",
        "max(1, self._limit)",
        (f"{IN_FAULTS}::test_few_open_files_are_enough_for_many_buckets",),
    ),
    # P7: what is sent is what was read; what is looked at is told as it is.
    Mutant(
        "doctor_skips_checksums", "P7", INSPECTION,
        "    if (found := checksum(whole[CRC_START:])) != header.crc:",
        "    if (found := header.crc) != header.crc:",
        (f"{IN_INSPECTION}::test_a_finding_says_what_where_and_what_to_do",),
    ),
    Mutant(
        "doctor_looks_while_a_server_writes", "P7", "fluss_lab/server/folder/folder_lock.py",
        "            if not try_lock(fd):",
        "            if not try_lock(fd, shared=True) and not fd:",
        (f"{IN_INSPECTION}::test_a_lab_whose_server_runs_is_not_looked_at",),
    ),
)  # fmt: skip

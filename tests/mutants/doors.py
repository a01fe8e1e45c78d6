"""Mutants of the doors: who gets in, and input that would end a server."""

from tests.mutants.mutant import (
    CHECKS,
    IN_DESCRIPTOR,
    IN_NODE,
    IN_SERVICE,
    IN_TOKENS,
    NAMES,
    Mutant,
)

#: P8: no input ends the server. P10: nobody gets in who should not.
DOORS = (
    Mutant(
        "token_not_checked", "P10", "fluss_lab/rpc/serving/grpc_server.py",
        "if not token.is_valid(given, self._secret):",
        "if self._secret is None:",
        (f"{IN_TOKENS}::test_no_method_is_answered_without_the_right_token",),
    ),
    Mutant(
        "token_checked_only_when_there_is_one", "P10", "fluss_lab/rpc/serving/grpc_server.py",
        "if not token.is_valid(given, self._secret):",
        "if given is not None and not token.is_valid(given, self._secret):",
        (f"{IN_TOKENS}::test_no_method_is_answered_without_the_right_token",),
    ),
    Mutant(
        "token_compared_by_its_beginning", "P10", "fluss_lab/rpc/access/token.py",
        "return hmac.compare_digest(given, (_SCHEME + token).encode())",
        "return given.startswith((_SCHEME + token).encode())",
        (f"{IN_TOKENS}::test_no_method_is_answered_without_the_right_token",),
    ),
    Mutant(
        "token_file_readable_by_others", "P10", "fluss_lab/rpc/access/token.py",
        "write_atomic(path, token.encode(), mode=0o600)",
        "write_atomic(path, token.encode(), mode=0o644)",
        (f"{IN_NODE}::test_the_folder_and_what_tells_the_way_are_the_owners_alone",),
    ),
    Mutant(
        "token_file_of_others_taken", "P10", "fluss_lab/rpc/access/token.py",
        "if mode & (stat.S_IRWXG | stat.S_IRWXO):",
        "if mode < 0:",
        ("tests/unit/rpc/access/test_token.py::test_a_file_that_others_may_touch_is_refused",),
    ),
    Mutant(
        "listens_beyond_loopback", "P10", "fluss_lab/rpc/serving/grpc_server.py",
        "        place = target(host, port)",
        '        place = target("0.0.0.0", port)',
        (f"{IN_NODE}::test_only_loopback_is_listened_on",),
    ),
    Mutant(
        "host_off_loopback_taken", "P10", "fluss_lab/rpc/serving/grpc_server.py",
        "if identity is None and host not in LOOPBACK:",
        "if host is None:",
        ("tests/unit/rpc/serving/test_grpc_server.py::test_a_place_beyond_loopback_is_refused",),
    ),
    Mutant(
        "key_told_with_the_certificates", "P10", "fluss_lab/rpc/access/tls.py",
        "found = [match[0] for match in _CERTIFICATE.finditer(_read_text(path))]",
        "found = [_read_text(path)]",
        ("tests/unit/rpc/access/test_tls.py::test_a_key_beside_the_certificates_is_told_nobody",),
    ),
    Mutant(
        "server_lock_not_taken", "P1", "fluss_lab/server/folder/folder_lock.py",
        "            while not try_lock(fd):",
        "            while not try_lock(fd, shared=True):",
        (f"{IN_NODE}::test_a_second_server_on_the_same_folder_is_refused_and_the_first_lives_on",),
    ),
    Mutant(
        "names_not_checked", "P8", NAMES,
        "if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:",
        "if not isinstance(name, str):",
        (f"{IN_DESCRIPTOR}::test_bad_names_are_refused_everywhere",),
    ),
    Mutant(
        "reserved_columns_let_pass", "P4", NAMES,
        "    if is_reserved_column(checked):\n",
        "    if not checked:\n",
        (f"{IN_DESCRIPTOR}::test_reserved_columns_are_refused",),
    ),
    Mutant(
        "partition_values_not_checked", "P8", NAMES,
        "if PARTITION_SEPARATOR in value or not value.isprintable():",
        "if not value:",
        (f"{IN_DESCRIPTOR}::test_partition_names_keep_values_apart",),
    ),
    Mutant(
        "partition_values_of_requests_not_checked", "P8", "fluss_lab/server/coordinator/ddl/partition_ddl.py",
        "return partition_name(tuple(values[column] for column in columns))",
        'return "$".join(values[column] for column in columns)',
        ("tests/unit/server/coordinator/ddl/test_table_ddl.py::test_partition_values_that_cannot_be",),
    ),
    Mutant(
        "compressed_bodies_unpacked", "P8", CHECKS,
        "    check_body(data[HEADER_BYTES:])\n",
        "",
        (f"{IN_SERVICE}::test_a_bad_payload_is_refused_whole_and_the_others_are_appended",),
    ),
    Mutant(
        "payload_of_any_size_taken", "P8", CHECKS,
        "if size > size_max:",
        "if size < 0:",
        (f"{IN_SERVICE}::test_a_payload_over_the_limit_is_refused",),
    ),
    Mutant(
        "payload_of_another_schema_taken", "P8", CHECKS,
        "if header.schema_id > current_schema_id:",
        "if header.schema_id > current_schema_id + 1:",
        (f"{IN_SERVICE}::test_a_batch_of_a_schema_that_is_not_known_yet_is_sent_again",),
    ),
    Mutant(
        "rows_not_validated_before_the_log", "P8", CHECKS,
        "        rows = decode_checked(header, data, schemas[header.schema_id]).rows\n",
        "        rows = pa.RecordBatch.from_pylist([], schemas[header.schema_id])\n",
        (f"{IN_SERVICE}::test_a_bad_payload_is_refused_whole_and_the_others_are_appended",),
    ),
)  # fmt: skip

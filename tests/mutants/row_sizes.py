"""Mutants of how large a row may be."""

from tests.mutants.mutant import Mutant

ROW_SIZES_MODULE = "fluss_lab/records/row_sizes.py"
WRITER = "fluss_lab/client/write/table_writer.py"
ACCUMULATOR = "fluss_lab/client/write/record_accumulator.py"
CHECKS = "fluss_lab/server/tablet/log/payload_validation.py"
KV_BUCKET = "fluss_lab/server/tablet/buckets/kv_bucket.py"
SCANS = "fluss_lab/server/tablet/requests/bucket_scans.py"

IN_CLIENT = "tests/unit/records/test_row_sizes.py"
IN_SERVER = "tests/unit/server/tablet/log/test_row_limit.py"

ROW_SIZES = (
    Mutant(
        "rows_that_can_be_inserted_but_not_updated",
        "P14",
        ROW_SIZES_MODULE,
        "True: (7, 16)}",
        "True: (7, 8)}",
        (f"{IN_SERVER}::test_a_row_of_the_limit_can_be_updated_deleted_and_looked_up",),
    ),
    Mutant(
        "what_a_change_replaces_counts_against_the_limit",
        "P14",
        ROW_SIZES_MODULE,
        "        if change_types is not None:\n",
        "        if change_types is None:\n",
        (f"{IN_SERVER}::test_a_row_over_the_limit_of_today_can_be_deleted_and_made_smaller",),
    ),
    Mutant(
        "inner_columns_have_no_place",
        "P14",
        ROW_SIZES_MODULE,
        "    return 1 + sum(_columns(kind.field(index).type) for index in range(kind.num_fields))",
        "    return 1",
        (f"{IN_SERVER}::test_inner_columns_count",),
    ),
    Mutant(
        "a_row_is_as_large_as_a_batch_at_most",
        "P14",
        WRITER,
        "            self._check_row(rows)\n",
        "            raise RecordTooLargeError(self._what)\n",
        (f"{IN_CLIENT}::test_the_largest_rows_of_a_log_are_appended_and_read",),
    ),
    Mutant(
        "too_large_rows_are_sent",
        "P14",
        WRITER,
        "            self._check_row(rows)\n",
        "",
        (f"{IN_CLIENT}::test_a_row_larger_than_the_limit_is_refused_before_it_is_sent",),
    ),
    Mutant(
        "batches_larger_than_a_request",
        "P14",
        WRITER,
        "        self._batch_bytes = min(self._batch_bytes, self._row_limit.bytes_max)\n",
        "",
        (f"{IN_CLIENT}::test_a_row_larger_than_the_limit_is_refused_before_it_is_sent",),
    ),
    Mutant(
        "buckets_share_requests_that_are_too_large",
        "P14",
        ACCUMULATOR,
        "            self._request_bytes = min(REQUEST_BYTES, request_bytes // 2)\n",
        "",
        (f"{IN_CLIENT}::test_small_rows_of_many_buckets_share_requests_that_the_server_takes",),
    ),
    Mutant(
        "logs_take_any_row",
        "P14",
        CHECKS,
        "    limit.check(rows)\n",
        "",
        (f"{IN_SERVER}::test_a_row_over_the_limit_is_not_appended",),
    ),
    Mutant(
        "rows_grow_by_partial_updates",
        "P14",
        KV_BUCKET,
        "        self._row_limit.check(change.rows, bytes(change.change_types))\n",
        "",
        (
            f"{IN_CLIENT}::test_a_partial_update_cannot_make_a_row_too_large",
            f"{IN_SERVER}::test_a_row_over_the_limit_is_not_put",
        ),
    ),
    Mutant(
        "the_last_batch_of_a_log_is_too_large_to_be_shown",
        "P14",
        SCANS,
        "        if size > bytes_max and (start > first or found.next_offset < end):",
        "        if size > bytes_max:",
        (f"{IN_CLIENT}::test_the_largest_rows_of_a_log_are_appended_and_read",),
    ),
)

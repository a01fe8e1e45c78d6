"""Rows of any size up to the limit: what is accepted can also be updated, deleted, looked up, fetched and scanned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.client.write.record_accumulator import RecordAccumulator
from fluss_lab.client.write.table_writer import AppendWriter
from fluss_lab.errors import RecordTooLargeError
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.records.row_sizes import RowLimit, around_bytes
from fluss_lab.testing import EmbeddedCluster

pytestmark = pytest.mark.slow

REQUEST_BYTES = 1 << 20
COLUMNS = {"k": "int", "id": "int", "n": "int", "b": "bytes", "c": "bytes"}
FORMS: dict[str, dict[str, Any]] = {
    "log": {},
    "partitioned_log": {"columns": {**COLUMNS, "p": "string"}, "partitioned_by": ["p"]},
    "keyed": {"primary_key": ["k", "id"], "bucket_key": ["k"]},
    "partitioned": {
        "columns": {**COLUMNS, "p": "string"}, "primary_key": ["k", "id", "p"], "bucket_key": ["k"],
        "partitioned_by": ["p"],
    },
}  # fmt: skip
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(lake=False, options={"server.request-size-max": str(REQUEST_BYTES)}) as running:
        running.connection.admin().create_database("db")
        yield running


@pytest.fixture(params=["1kb", "8mb", "64mb"])
def connection(cluster: EmbeddedCluster, request: Any) -> Iterator[Connection]:
    """Whatever a writer's batches are: one larger row is a batch of its own, and no batch is larger than a request."""
    options = {"client.writer.batch-size": request.param, "client.request-timeout": "10s"}
    with Connection(lambda: cluster.address, options) as made:
        yield made


def make(connection: Connection, *, columns: Any = None, buckets: int = 1, **definition: Any) -> TableInfo:
    path = TablePath("db", f"t{next(NUMBERS)}")
    return connection.admin().create_table(path, make_descriptor(columns or COLUMNS, buckets=buckets, **definition))


def limit_of(info: TableInfo) -> RowLimit:
    return RowLimit.of(REQUEST_BYTES, keyed=not info.is_log_table)


def row(info: TableInfo, number: int, fill: bytes, more: int = 0) -> dict[str, Any]:
    """A row exactly as large as may be, or larger."""
    partitioned = {"p": "x"} if info.descriptor.partitioned_by else {}
    given: dict[str, Any] = {"k": 1, "id": number, "n": 1, "b": b"", "c": b"", **partitioned}
    empty: int = sum(4 + (0 if isinstance(value, int) else len(value)) for value in given.values())
    size = limit_of(info).bytes_max - around_bytes(info.schema.arrow_schema) - empty + more
    return {**given, "b": fill * size}


def place(connection: Connection, info: TableInfo) -> tuple[TableBucket, str | None]:
    if not info.descriptor.partitioned_by:
        return TableBucket(info.table_id, None, 0), None
    ((name, each),) = connection.partitions(info).items()
    return TableBucket(info.table_id, each.partition_id, 0), name


def read(connection: Connection, info: TableInfo, end: int) -> list[dict[str, Any]]:
    """The records up to an end, by a fetch, by a projecting one, and by a subscription: all the same."""
    bucket, partition = place(connection, info)
    runs = list(read_range(connection, info, bucket, 0, end, partition=partition))
    found = [each for run in runs for each in run.rows.to_pylist()]
    narrow = read_range(connection, info, bucket, 0, end, partition=partition, projection=["b"])
    assert [each["b"] for run in narrow for each in run.rows.to_pylist()] == [each["b"] for each in found]
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        polled: list[Any] = []
        for _ in range(100):
            polled += [each for batch in scanner.poll(0.2) for each in batch.records.rows.to_pylist()]
            if len(polled) >= end:
                break
    assert polled == found
    return found


def live(connection: Connection, info: TableInfo) -> list[dict[str, Any]]:
    """The rows of a primary-key table, by a scan, by look-ups of each key, all keys and a prefix: all the same."""
    bucket, _ = place(connection, info)
    found = [each for run in connection.scan_kv(info, bucket) for each in run.rows.to_pylist()]
    key = info.schema.primary_key
    keys = [{name: each[name] for name in key} for each in found]
    with connection.lookuper(info.path) as lookuper:
        assert [each for one in keys for each in lookuper.lookup([one]).to_pylist()] == found
        assert lookuper.lookup(keys).to_pylist() == found
        for one in keys[:1]:
            if len(found) == 1:
                prefix = {name: value for name, value in one.items() if name != "id"}
                assert lookuper.prefix_lookup(prefix).to_pylist() == found
    return found


@pytest.mark.parametrize("form", ["log", "partitioned_log"])
def test_the_largest_rows_of_a_log_are_appended_and_read(connection: Connection, form: str) -> None:
    info = make(connection, **FORMS[form])
    rows = [row(info, number, b"x") for number in range(3)]
    with connection.append_writer(info.path) as writer:
        assert writer.append(rows).result().rows == 3
        assert writer.append([{**rows[0], "b": b"small"}] * 2).result().rows == 2
    assert read(connection, info, 5) == rows + [{**rows[0], "b": b"small"}] * 2
    with connection.append_writer(info.path) as writer:
        writer.append(rows[:1]).result()
    found = connection.limit_scan(info.path, 1, ["x"] if info.descriptor.partitioned_by else None)
    assert found.to_pylist() == rows[:1]


@pytest.mark.parametrize("form", ["keyed", "partitioned"])
def test_the_largest_rows_of_a_primary_key_table_can_be_changed_and_read(connection: Connection, form: str) -> None:
    info = make(connection, **FORMS[form])
    old, new = row(info, 1, b"x"), row(info, 1, b"y")
    names = [*info.schema.primary_key, "n"]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([old]).result()
        assert live(connection, info) == [old]
        writer.upsert([new]).result()
        assert live(connection, info) == [new]
        with connection.upsert_writer(info.path, columns=names) as partly:
            partly.upsert([{**{name: new[name] for name in names}, "n": 7}]).result()
        assert live(connection, info) == [new | {"n": 7}]
        assert connection.limit_scan(info.path, 1).to_pylist() == [new | {"n": 7}]
        writer.delete([new]).result()
        assert live(connection, info) == []
        writer.upsert([new]).result()
    assert [each["b"][:1] for each in read(connection, info, 7)] == [b"x", b"x", b"y", b"y", b"y", b"y", b"y"]


@pytest.mark.parametrize("form", FORMS)
def test_a_row_larger_than_the_limit_is_refused_before_it_is_sent(connection: Connection, form: str) -> None:
    info = make(connection, **FORMS[form])
    limit = limit_of(info).bytes_max
    kind, share = ("without", "7/8") if info.is_log_table else ("with", "7/16")
    says = rf"a row of {limit + 1:,} bytes, expected at most {limit:,} in a table {kind} a primary key \({share} of server\."
    given = [{**row(info, 1, b""), "b": b"small"}, row(info, 2, b"x", more=1)]
    with connection.append_writer(info.path) if info.is_log_table else connection.upsert_writer(info.path) as writer:
        write = writer.append if isinstance(writer, AppendWriter) else writer.upsert
        with pytest.raises(RecordTooLargeError, match=says + ".*nothing was sent"):
            write(given)
        assert write(given[:1]).result().rows == 1, "nothing else was queued"
    assert len(read(connection, info, 1)) == 1


def test_a_partial_update_cannot_make_a_row_too_large(connection: Connection) -> None:
    info = make(connection, **FORMS["keyed"])
    whole = row(info, 1, b"x")
    half = len(whole["b"]) // 2
    kept = {**whole, "b": b"b" * half}
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([kept, {**kept, "id": 2, "b": b""}]).result()
    with connection.upsert_writer(info.path, columns=["k", "id", "c"]) as partly:
        change: dict[str, Any] = {"k": 1, "id": 1, "c": b"c" * (len(whole["b"]) - half)}
        partly.upsert([change]).result()
        over = {**change, "c": change["c"] + b"c"}
        limit = limit_of(info).bytes_max
        with pytest.raises(RecordTooLargeError, match=rf"a row of {limit + 1:,} bytes, expected at most {limit:,}"):
            partly.upsert([over]).result()
    assert [each["c"] for each in live(connection, info)] in ([change["c"], b""], [b"", change["c"]])


def test_many_of_the_largest_rows_in_one_call(cluster: EmbeddedCluster) -> None:
    connection = cluster.connection
    info = make(connection, buckets=3, primary_key=["id"])
    rows = [row(info, number, b"x") for number in range(12)]
    keys = [{"id": each["id"]} for each in rows]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(rows).result()
        writer.upsert(pa.Table.from_pylist([{**each, "n": 2} for each in rows], info.schema.arrow_schema)).result()
        with connection.lookuper(info.path) as lookuper:
            assert lookuper.lookup(keys).to_pylist() == [{**each, "n": 2} for each in rows]
            with connection.upsert_writer(info.path, columns=["id", "n"]) as partly:
                partly.upsert([{**key, "n": 3} for key in keys]).result()
            assert lookuper.lookup(keys).to_pylist() == [{**each, "n": 3} for each in rows]
            writer.delete(keys).result()
            assert lookuper.lookup(keys).num_rows == 12
            assert lookuper.lookup(keys)["b"].null_count == 12


def test_small_rows_of_many_buckets_share_requests_that_the_server_takes(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, real = [], RecordAccumulator.halve_requests

    def halve(accumulator: RecordAccumulator) -> None:
        refused.append(accumulator)
        real(accumulator)

    monkeypatch.setattr(RecordAccumulator, "halve_requests", halve)
    connection = cluster.connection
    info = make(connection, buckets=12)
    with connection.append_writer(info.path) as writer:
        futures = [writer.append([{**row(info, number, b""), "b": b"x" * 400_000}]) for number in range(48)]
        assert sum(future.result().rows for future in futures) == 48
    assert not refused

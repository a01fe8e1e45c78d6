"""Looking up: answers are aligned with what was asked, whatever the types, buckets, partitions and sizes."""

from __future__ import annotations

import datetime as dt
import random
import threading
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.client import Lookuper
from fluss_lab.client.kv import lookuper as lookup
from fluss_lab.client.kv.lookup_codec import BucketKeys, LookupCall, nullable
from fluss_lab.client.kv.single_key_queue import CALLS_AT_ONCE
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    InternalError,
    InvalidPartitionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    NotLeaderError,
    RecordTooLargeError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.testing import EmbeddedCluster, wait_until

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint", "name": "string", "n": "int"}
NOTHING = {"id": None, "name": None, "n": None}


@pytest.fixture
def filled(connection, make_table):
    """A table of three buckets with the even numbers below 1,000."""
    info = make_table(COLUMNS, primary_key=["id"], buckets=3)
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([row(key) for key in range(0, 1000, 2)])
    return info


def row(key):
    return {"id": key, "name": None if key % 10 == 0 else f"name {key}", "n": key * 7}


def test_parts_of_a_lookup_are_as_large_as_each_other():
    for count in (0, 1, 63, 64, 65, 10_000):
        edges = lookup.even_edges(count, 64)
        sizes = [stop - start for start, stop in pairwise(edges)]
        assert (edges[0], edges[-1]) == (0, count)
        assert len(sizes) == -(-count // 64)
        assert not sizes or (max(sizes) <= 64 and max(sizes) - min(sizes) <= 1)


def test_rows_come_in_the_order_asked_with_nulls_where_there_is_none(connection, filled):
    with connection.lookuper(filled.path) as lookuper:
        keys = [998, 1, 0, 500, 500, 77, 2]
        found = lookuper.lookup([{"id": key} for key in keys])
        assert found.to_pylist() == [NOTHING if key % 2 else row(key) for key in keys]
        assert found.schema == pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])
        assert lookuper.lookup([]).num_rows == 0
        assert lookuper.lookup([{"id": 1}]).to_pylist() == [NOTHING]
        assert lookuper.lookup([{"id": 1}, {"id": 3}]).to_pylist() == [NOTHING, NOTHING]


@pytest.mark.parametrize(
    "keys",
    [
        {"id": 4},
        {"id": [4]},
        [{"id": 4, "name": "not looked at"}],
        pa.table({"id": [4], "n": ["not looked at"]}),
        pa.record_batch({"id": pa.array([4], pa.int8())}),
        {"id": np.array([4])},
    ],
)
def test_keys_come_in_many_forms(connection, filled, keys):
    with connection.lookuper(filled.path) as lookuper:
        assert lookuper.lookup(keys).to_pylist() == [row(4)]


@pytest.mark.parametrize(
    "keys", [[{"id": None}], [{"name": "a"}], [{"id": "a"}], [{"id": 1, "x": 1}], [5], {"id": None}]
)
def test_keys_that_cannot_be_are_refused(connection, filled, keys):
    with connection.lookuper(filled.path) as lookuper, pytest.raises(InvalidRecordError, match="nothing was sent"):
        lookuper.lookup(keys)


def test_columns_are_projected_in_the_order_wanted(connection, filled):
    with connection.lookuper(filled.path, columns=["n", "id"]) as lookuper:
        assert lookuper.lookup([{"id": 8}, {"id": 9}]).to_pylist() == [{"n": 56, "id": 8}, {"n": None, "id": None}]
        assert lookuper.schema.names == ["n", "id"]
    with connection.lookuper(filled.path, columns=[1]) as lookuper:
        assert lookuper.lookup({"id": 8}).to_pylist() == [{"name": "name 8"}]
    with pytest.raises(InvalidSchemaError, match="nothing"):
        connection.lookuper(filled.path, columns=["nothing"])


def test_thousands_of_keys_are_asked_in_many_calls(connection, filled, monkeypatch, seed):
    monkeypatch.setattr(lookup, "KEYS_PER_CALL", 64)
    keys = [random.Random(seed).randrange(-10, 1010) for _ in range(3000)]
    batches = [pa.record_batch({"id": keys[at : at + 700]}) for at in range(0, 3000, 700)]
    with connection.lookuper(filled.path) as lookuper:
        found = lookuper.lookup(pa.Table.from_batches(batches))
    assert found.to_pylist() == [row(key) if key % 2 == 0 and 0 <= key < 1000 else NOTHING for key in keys]


def test_changes_are_seen_by_the_next_lookup(connection, filled):
    with connection.lookuper(filled.path) as lookuper, connection.upsert_writer(filled.path) as writer:
        for number in range(20):
            writer.upsert([{"id": 6, "n": number}]).result()
            assert lookuper.lookup({"id": 6})["n"].to_pylist() == [number]
            writer.delete([{"id": 6}]).result()
            assert lookuper.lookup({"id": 6})["n"].to_pylist() == [None]


KEYS = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-1, 300],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [0.5, -1.25],
    "double": [1e300, -0.5],
    "char(3)": ["abc", "xyz"],
    "string": ["", "ünïcode", "x" * 300],
    "binary(2)": [b"ab", b"\0\xff"],
    "bytes": [b"", b"\0", b"long" * 100],
    "decimal(5,2)": [Decimal("1.25"), Decimal("-999.99")],
    "decimal(38,3)": [Decimal("1.250"), Decimal("-12345678901234567890.999")],
    "date": [dt.date(1969, 12, 31), dt.date(2026, 1, 1)],
    "time": [dt.time(0), dt.time(23, 59, 59)],
    "timestamp(3)": [dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 1, 1, 1, 1)],
    "timestamp_ltz(6)": [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 1, 1, 1, 5, tzinfo=dt.UTC)],
}


def test_every_type_can_be_a_key(connection, make_table):
    columns = {f"k{number}": name for number, name in enumerate(KEYS)}
    info = make_table({**columns, "v": "int"}, primary_key=list(columns), buckets=2)
    short = min(map(len, KEYS.values()))
    rows = [
        {**{f"k{number}": values[index] for number, values in enumerate(KEYS.values())}, "v": index}
        for index in range(short)
    ]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(rows)
    with connection.lookuper(info.path) as lookuper:
        assert lookuper.lookup(rows[::-1]).to_pylist() == rows[::-1]
        mixed = {**rows[0], "k0": rows[1]["k0"]}
        assert lookuper.lookup([mixed])["v"].to_pylist() == [None]


@pytest.mark.parametrize("name", sorted(KEYS))
def test_each_type_can_be_the_key(connection, make_table, name):
    info = make_table({"k": name, "v": "int"}, primary_key=["k"], buckets=3)
    rows = [{"k": value, "v": index} for index, value in enumerate(KEYS[name])]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(rows)
    with connection.lookuper(info.path) as lookuper:
        assert lookuper.lookup(rows).to_pylist() == rows


def test_keys_of_partitions_that_do_not_exist_are_absent(connection, stranger, make_table):
    info = make_table(
        {"id": "bigint", "p": "string", "v": "int"}, primary_key=["p", "id"], partitioned_by=["p"], buckets=2
    )
    nothing = dict.fromkeys(["id", "p", "v"])
    keys = [{"id": index % 4, "p": "ab"[index // 4]} for index in range(8)]
    with connection.lookuper(info.path) as lookuper:
        assert lookuper.lookup(keys).to_pylist() == [nothing] * 8
        with connection.upsert_writer(info.path) as writer:
            writer.upsert([{**key, "v": 1} for key in keys[:4]]).result()
            # Made since: it is looked for again.
            assert lookuper.lookup(keys)["v"].to_pylist() == [1] * 4 + [None] * 4
            stranger.admin().drop_partition(info.path, {"p": "a"})
            assert lookuper.lookup(keys[:4]).to_pylist() == [nothing] * 4
            assert lookuper.lookup(keys).to_pylist() == [nothing] * 8
            writer.upsert([{**keys[5], "v": 2}]).result()
            stranger.admin().create_partition(info.path, {"p": "a"})
            assert lookuper.lookup(keys)["v"].to_pylist() == [None] * 5 + [2] + [None] * 2
        with pytest.raises(InvalidPartitionError, match="row 1"):
            lookuper.lookup([keys[0], {"id": 1, "p": "a$b"}])
    assert [each.name for each in stranger.admin().partitions(info.path)] == ["a", "b"]


# -- many at once ------------------------------------------------------------------------------------------------------


def looked_up_at_once(look, keys, threads=16):
    """Look keys up by many threads, each key by itself; return the rows in the order of the keys."""
    found = [None] * len(keys)
    ready = threading.Barrier(threads)

    def run(first):
        ready.wait()
        for index in range(first, len(keys), threads):
            try:
                found[index] = look(keys[index]).to_pylist()
            except FlussError as error:
                found[index] = type(error)

    running = [threading.Thread(target=run, args=(first,)) for first in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def test_lookups_at_once_have_each_its_own_row(connection, filled, seed):
    keys = [random.Random(seed).randrange(-10, 1010) for _ in range(2000)]
    with connection.lookuper(filled.path, columns=["n", "id", "name"]) as lookuper:
        found = looked_up_at_once(lookuper.lookup, [{"id": key} for key in keys])
        assert found == [[row(key) if key % 2 == 0 and 0 <= key < 1000 else NOTHING] for key in keys]
        assert lookuper.lookup({"id": 4}).schema == lookuper.schema


def test_rows_of_one_call_go_each_to_its_lookup(connection, filled, monkeypatch):
    threads, send, sizes, all_wait = 16, LookupCall.send, [], threading.Event()
    with connection.lookuper(filled.path) as lookuper:

        def do_all_wait():
            return all_wait.is_set() or len(lookuper._queue._lanes[None].waiting) == threads - CALLS_AT_ONCE

        def when_all_wait(self, gateway, parts):
            wait_until(do_all_wait, 30)
            all_wait.set()
            sizes.append(sum(len(part.positions) for part in parts))
            return send(self, gateway, parts)

        monkeypatch.setattr(LookupCall, "send", when_all_wait)
        keys = [2, 4, 6, 8, 10, 12, 14, 16, 3, 18, 20, 22, 24, 26, 28, 5]
        found = looked_up_at_once(lookuper.lookup, [{"id": key} for key in keys], threads)
    assert found == [[NOTHING if key % 2 else row(key)] for key in keys]
    assert sorted(sizes) == [1, 1, threads - CALLS_AT_ONCE]


def test_lookups_at_once_of_keys_that_cannot_be_fail_by_themselves(connection, filled, seed):
    keys = [random.Random(seed).choice([{"id": 2}, {"id": 2**63}, {"id": "a"}, {"id": 3}, {}]) for _ in range(400)]
    with connection.lookuper(filled.path) as lookuper:
        found = looked_up_at_once(lookuper.lookup, keys)
    expected = {2: [row(2)], 3: [NOTHING]}
    assert found == [expected.get(key.get("id"), InvalidRecordError) for key in keys]


def test_lookups_at_once_in_partitions_and_of_texts(connection, stranger, make_table, seed):
    info = make_table(
        {"id": "string", "b": "bytes", "p": "string", "v": "smallint"},
        primary_key=["p", "id", "b"], partitioned_by=["p"], bucket_key=["id"], buckets=2,
    )  # fmt: skip
    texts = ["", "x" * 5000, "ünï", "a\0b", "plain"]
    rows = [{"id": text, "b": text.encode(), "p": p, "v": at} for at, text in enumerate(texts) for p in "ab"]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(rows)
    keys = [{name: each[name] for name in ("id", "b", "p")} for each in rows] * 30
    keys += [{"id": "plain", "b": b"", "p": "a"}, {"id": "plain", "b": b"plain", "p": "c"}] * 30
    random.Random(seed).shuffle(keys)
    with connection.lookuper(info.path, columns=["v"]) as lookuper:
        found = looked_up_at_once(lookuper.lookup, keys)
        stranger.admin().drop_partition(info.path, {"p": "a"})
        later = looked_up_at_once(lookuper.lookup, keys)
    there = {(each["id"], each["b"], each["p"]): each["v"] for each in rows}
    assert found == [[{"v": there.get((key["id"], key["b"], key["p"]))}] for key in keys]
    assert later == [[{"v": there.get((key["id"], key["b"], key["p"])) if key["p"] != "a" else None}] for key in keys]


# -- what goes wrong ----------------------------------------------------------------------------------------------------


def test_log_tables_and_dropped_ones_are_reported(connection, make_table, filled):
    log_table = make_table(name="log")
    with pytest.raises(UnsupportedError, match="no primary key"):
        Lookuper(connection, log_table)
    with connection.lookuper(filled.path) as lookuper:
        connection.admin().drop_table(filled.path)
        with pytest.raises(TableNotFoundError):
            lookuper.lookup({"id": 1})


def test_a_closed_lookuper_refuses(connection, filled):
    lookuper = connection.lookuper(filled.path)
    assert "closed" not in repr(lookuper)
    lookuper.close()
    lookuper.close()
    assert "closed" in repr(lookuper)
    with pytest.raises(InvalidRequestError, match="closed"):
        lookuper.lookup({"id": 1})


def test_rows_too_large_for_one_answer_are_asked_for_by_fewer_keys():
    with EmbeddedCluster(lake=False, options={"server.request-size-max": "64kb"}) as cluster:
        connection = cluster.connection
        connection.admin().create_database("db")
        descriptor = make_descriptor(
            {"g": "int", "id": "int", "t": "string"}, primary_key=["g", "id"], bucket_key=["g"]
        )
        info = connection.admin().create_table(TablePath("db", "t"), descriptor)
        rows = [{"g": index % 10, "id": index, "t": f"{index:05d}" * 400} for index in range(100)]
        with connection.upsert_writer(info.path) as writer:
            for at in range(0, 100, 5):
                writer.upsert(rows[at : at + 5]).result()
        with connection.lookuper(info.path) as lookuper:
            assert lookuper.lookup(rows[::-1]).to_pylist() == rows[::-1]
            single = [{"g": each["g"], "id": each["id"]} for each in rows] * 3
            assert looked_up_at_once(lookuper.lookup, single) == [[each] for each in rows] * 3
            found = lookuper.prefix_lookup({"g": list(range(10))})
            assert found["g"].to_pylist() == [group for group in range(10) for _ in range(10)]
            with connection.upsert_writer(info.path) as writer:
                for index in range(1000, 1040):
                    writer.upsert([{"g": 3, "id": index, "t": "x" * 2000}]).result()
            with pytest.raises(RecordTooLargeError):
                lookuper.prefix_lookup({"g": 3})


def test_more_keys_than_a_server_takes_at_once_are_asked_in_parts():
    with EmbeddedCluster(lake=False, options={"server.lookup-keys-max": 7}) as cluster:
        connection = cluster.connection
        connection.admin().create_database("db")
        info = connection.admin().create_table(
            TablePath("db", "t"), make_descriptor({"id": "bigint", "n": "bigint"}, primary_key=["id"], buckets=3)
        )
        with connection.upsert_writer(info.path) as writer:
            writer.upsert({"id": np.arange(50), "n": np.arange(50) * 3})
        with connection.lookuper(info.path) as lookuper:
            assert lookuper.lookup({"id": np.arange(50)})["n"].to_pylist() == [3 * key for key in range(50)]
            found = looked_up_at_once(lookuper.lookup, [{"id": key} for key in range(50)] * 5, threads=30)
            assert found == [[{"id": key, "n": 3 * key}] for key in range(50)] * 5


def test_lookups_outlive_a_restart_and_threads_share_a_lookuper():
    with EmbeddedCluster(lake=False) as cluster:
        connection = cluster.connection
        connection.admin().create_database("db")
        descriptor = make_descriptor({"id": "bigint", "n": "bigint"}, primary_key=["id"], buckets=4)
        info = connection.admin().create_table(TablePath("db", "t"), descriptor)
        with connection.upsert_writer(info.path) as writer:
            writer.upsert({"id": np.arange(1000), "n": np.arange(1000) * 3})
        wrong: list[object] = []
        done = threading.Event()
        counts = [0] * 3

        def look(thread: int) -> None:
            keys = np.arange(thread, 1100, 7)
            expected = [key * 3 if key < 1000 else None for key in keys.tolist()]
            while not done.is_set() and not wrong:
                try:
                    if (found := lookuper.lookup({"id": keys})["n"].to_pylist()) != expected:
                        wrong.append(found)
                except BaseException as error:
                    wrong.append(error)
                counts[thread] += 1

        with connection.lookuper(info.path) as lookuper:
            threads = [threading.Thread(target=look, args=(thread,)) for thread in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(2):
                cluster.restart()
                before = list(counts)
                wait_until(lambda before=before: all(map(int.__gt__, counts, before)) or bool(wrong), 60)
            done.set()
            for thread in threads:
                thread.join()
        assert wrong == []


# -- answers that cannot be ---------------------------------------------------------------------------------------------


class _Answers:
    """A server that answers these."""

    def __init__(self, *entries, payloads):
        self._frame = Frame(pb.LookupResponse(buckets_resp=entries), payloads)

    def lookup(self, _request):
        return self._frame


INFO = TableInfo(TablePath("db", "t"), 7, 1, make_descriptor(COLUMNS, primary_key=["id"]), 0, 0)
ONE_ROW = pa.RecordBatch.from_pylist([row(4)], schema=INFO.schema.arrow_schema)


def answered(found=b"\1\0", rows=ONE_ROW, bucket=0, error_code=0, keys=2):
    entry = pb.PbLookupRespForBucket(bucket_id=bucket, found=found, records=b"", schema_id=1)
    if error_code:
        entry = pb.PbLookupRespForBucket(bucket_id=bucket, error_code=error_code, error_message="no")
    asked = pa.record_batch({"id": range(4, 4 + keys)})
    part = BucketKeys(TableBucket(7, None, 0), asked.serialize(), np.arange(keys))
    data = rows if isinstance(rows, bytes) else rows.serialize()
    call = LookupCall(INFO, Projection(INFO, None), nullable(INFO.schema.arrow_schema))
    (answer,) = call.send(_Answers(entry, payloads=[[data]]), [part])
    return answer


def test_an_answer_is_taken_when_rows_and_marks_agree():
    assert answered().rows.to_pylist() == [row(4)]
    assert answered(b"\0\0", ONE_ROW.slice(0, 0)).rows.num_rows == 0
    assert isinstance(answered(error_code=12), NotLeaderError)
    assert isinstance(answered(bucket=1), InternalError)


@pytest.mark.parametrize(
    ("found", "rows"),
    [
        (b"\1", ONE_ROW),
        (b"\1\0\0", ONE_ROW),
        (b"\1\1", ONE_ROW),
        (b"\0\0", ONE_ROW),
        (b"\1\0", b"nonsense"),
        (b"\1\0", pa.record_batch({"id": pa.array([None], pa.int64()), "name": ["a"], "n": pa.array([1], pa.int32())})),
        (b"\1\0", pa.record_batch({"id": [4]})),
    ],
)
def test_an_answer_that_cannot_be_is_refused(found, rows):
    with pytest.raises(CorruptDataError):
        answered(found, rows)


def test_an_answer_about_many_keys_that_cannot_be_is_refused():
    found = b"\1" + bytes(99)
    assert answered(found, keys=100).marks.tolist() == list(found)
    for wrong in (bytes(100), b"\1\1" + bytes(98), found + b"\0"):
        with pytest.raises(CorruptDataError):
            answered(wrong, keys=100)


def test_rows_that_no_column_takes_together_are_refused(connection, make_table):
    info = make_table({"id": "bigint", "name": "string"}, primary_key=["id"])
    # Pages that nobody touches take no memory.
    size, text = 900 << 20, np.zeros(900 << 20, dtype=np.uint8)
    offsets = pa.py_buffer(np.array([0, size], dtype=np.int32))
    large = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(text)])
    found = [pa.record_batch({"id": [key], "name": large}) for key in range(3)]
    with (
        connection.lookuper(info.path) as lookuper,
        pytest.raises(
            RecordTooLargeError, match=r"db.*\.t: the 3 rows have more than the 2 GB .* fewer keys up at a time"
        ),
    ):
        lookuper._take(found, np.arange(3))

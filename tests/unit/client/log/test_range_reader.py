"""Reading a range of a bucket: exactly that, or an error that says what is missing."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.client.log.fetch_codec import fetched_buckets
from fluss_lab.client.log.range_reader import FirstAnswers, first_answers
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableNotFoundError,
)
from fluss_lab.model import OffsetSpec, TableBucket
from fluss_lab.records.batch import split_headers
from tests.unit.client.log.fetch_hook import hook_fetches, watch_fetches

#: Rows of the largest batch of random ones.
BATCH_MAX = 900


@pytest.fixture
def table(connection, make_table):
    info = make_table({"id": "bigint", "s": "string"})
    with connection.append_writer(info.path) as writer:
        for start in range(0, 1000, 100):
            writer.append({"id": np.arange(start, start + 100), "s": ["x"] * 100}).result()
    return info, TableBucket(info.table_id, None, 0)


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (0, 1), (50, 150), (999, 1000), (100, 200), (5, 5), (7, 3)])
def test_exactly_the_range(connection, table, start, stop):
    info, bucket = table
    runs = list(read_range(connection, info, bucket, start, stop))
    offsets = [offset for run in runs for offset in run.offsets.to_pylist()]
    assert offsets == list(range(start, stop))
    assert [row for run in runs for row in run.rows.column("id").to_pylist()] == offsets


def test_small_answers_and_projection(shared_cluster, table):
    info, bucket = table
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": "1kb"}) as connection:
        runs = list(read_range(connection, info, bucket, 10, 990, projection=["s", "id"]))
    assert runs[0].rows.schema.names == ["s", "id"]
    assert [value for run in runs for value in run.rows.column("id").to_pylist()] == list(range(10, 990))


def test_a_range_beyond_the_end_is_an_error_after_what_there_is(connection, table):
    info, bucket = table
    found = []
    runs = read_range(connection, info, bucket, 900, 1100)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[1000, 1100\)"):
        found.extend(run.offsets.to_pylist() for run in runs)
    found = [offset for offsets in found for offset in offsets]
    assert found == list(range(900, 1000))


def test_buckets_that_are_gone(connection, table, make_table):
    info, bucket = table
    with pytest.raises(BucketNotFoundError):
        list(read_range(connection, info, TableBucket(info.table_id, None, 5), 0, 1))
    with pytest.raises(PartitionNotFoundError):
        list(read_range(connection, info, TableBucket(info.table_id, 99_999, 0), 0, 1))
    connection.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        list(read_range(connection, info, bucket, 0, 1))


@pytest.fixture
def watched(shared_cluster, monkeypatch):
    """A connection of small answers, and the offsets that were asked for with it."""
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": "2kb"}) as connection:
        asked: list[int] = []

        def watching(fetch, request):
            asked.append(request.tables_req[0].buckets_req[0].fetch_offset)
            return fetch(request)

        hook_fetches(monkeypatch, connection, watching)
        yield connection, asked


def ahead_threads():
    return [each for each in threading.enumerate() if each.name == "read-ahead"]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_the_next_answer_is_asked_for_while_one_is_read(watched, table):
    connection, asked = watched
    info, bucket = table
    runs = read_range(connection, info, bucket, 0, 1000)
    first = next(runs)
    assert asked == [0]
    found = list(first.offsets.to_pylist())
    found += next(runs).offsets.to_pylist()
    # Nobody has asked for the third and fourth answer yet.
    wait_until(lambda: len(asked) == 4)
    found += [offset for run in runs for offset in run.offsets.to_pylist()]
    assert found == list(range(1000))
    assert len(asked) == len(set(asked)) == 10
    assert not ahead_threads()


@pytest.mark.parametrize("knows_stops", [True, False], ids=["", "a server of an older version"])
def test_any_range_of_batches_of_any_size_is_read_whole(
    shared_cluster, connection, make_table, monkeypatch, rng, knows_stops
):
    info = make_table({"id": "bigint", "s": "string"})
    with connection.append_writer(info.path) as writer:
        end = 0
        while end < 20_000:
            # Some stretches have small batches, some large ones: answers have room for few records, then for many.
            count = rng.choice((1, 5, 40)) if (end // 4_000) % 2 else rng.randint(100, BATCH_MAX)
            writer.append({"id": np.arange(end, end + count), "s": ["x" * rng.randrange(20)] * count}).result()
            end += count
    sent: list[int] = []
    together: list[int] = []

    def watching(fetch, request):
        (wanted,) = request.tables_req[0].buckets_req
        assert wanted.stop_offset > wanted.fetch_offset
        if not knows_stops:
            wanted.ClearField("stop_offset")
        together.append(len(ahead_threads()))
        answer = fetch(request)
        sent.append(
            sum(header.record_count for each in fetched_buckets(answer) for header, _ in split_headers(each.data))
        )
        return answer

    for _ in range(12):
        start, stop = sorted(rng.sample(range(end + 1), 2))
        size, columns = rng.choice(("2kb", "16kb", "64kb")), rng.choice((None, ["id"]))
        with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": size}) as reading:
            hook_fetches(monkeypatch, reading, watching)
            sent.clear()
            runs = list(read_range(reading, info, TableBucket(info.table_id, None, 0), start, stop, projection=columns))
        assert [row for run in runs for row in run.rows.column("id").to_pylist()] == list(range(start, stop))
        if knows_stops:  # of one batch at each edge of an answer more may come than is wanted
            assert sum(sent) <= stop - start + BATCH_MAX * len(sent)
    assert max(together) >= 2


def test_a_reader_that_goes_away_leaves_no_thread(watched, table):
    connection, asked = watched
    info, bucket = table
    runs = read_range(connection, info, bucket, 0, 1000)
    for _ in range(3):
        next(runs)
    runs.close()
    wait_until(lambda: not ahead_threads())
    assert len(asked) <= 5


def test_an_answer_ahead_that_fails_is_asked_for_again(watched, table, monkeypatch):
    """Its error is nobody's: the reader has attempts, and it has none."""
    connection, asked = watched
    info, bucket = table
    failed: list[int] = []

    def failing(fetch, request):
        if threading.current_thread().name == "read-ahead":
            failed.append(request.tables_req[0].buckets_req[0].fetch_offset)
            raise ServerUnavailableError("gone for a moment")
        return fetch(request)

    hook_fetches(monkeypatch, connection, failing)
    runs = read_range(connection, info, bucket, 0, 1000)
    assert [offset for run in runs for offset in run.offsets.to_pylist()] == list(range(1000))
    assert failed
    assert set(failed) <= set(asked)


def test_damage_ends_the_range_where_it_lies_whoever_asked(watched, table, monkeypatch):
    connection, _ = watched
    info, bucket = table

    def damaging(fetch, request):
        frame = fetch(request)
        offset = request.tables_req[0].buckets_req[0].fetch_offset
        if offset >= 500:
            data = bytearray(b"".join(bytes(part) for part in frame.payloads[0]))
            data[100] ^= 1
            frame.payloads[0] = [memoryview(bytes(data))]
        return frame

    hook_fetches(monkeypatch, connection, damaging)
    found = []
    with pytest.raises(CorruptDataError, match="CRC"):
        found.extend(read_range(connection, info, bucket, 0, 1000))
    assert [offset for run in found for offset in run.offsets.to_pylist()] == list(range(500))


# -- the first answers of several buckets ------------------------------------------------------------------------------


@pytest.fixture
def buckets(connection, make_table):
    """A table of eight buckets with a few rows in each, and the records of each, read one by one."""
    info = make_table({"id": "bigint", "s": "string"}, buckets=8, bucket_key=["id"])
    with connection.append_writer(info.path) as writer:
        for start in range(0, 400, 100):
            writer.append({"id": np.arange(start, start + 100), "s": ["x"] * 100}).result()
    found = connection.admin().list_offsets(info, OffsetSpec.latest())
    ends = {TableBucket(info.table_id, None, number): each.offset for number, each in found.items()}
    return info, ends


def rows(connection, info, bucket, stop, first=None, start=0):
    return [
        row for run in read_range(connection, info, bucket, start, stop, first=first) for row in run.rows.to_pylist()
    ]


def test_one_call_has_the_beginnings_of_all_buckets(connection, buckets, monkeypatch):
    info, ends = buckets
    expected = {bucket: rows(connection, info, bucket, stop) for bucket, stop in ends.items()}
    found = first_answers(connection, info, dict.fromkeys(ends, 0))
    assert found.keys() == ends.keys()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "gateway", lambda server_id: pytest.fail("asked once more"))
        assert {
            bucket: rows(connection, info, bucket, stop, found[bucket]) for bucket, stop in ends.items()
        } == expected


def test_a_first_answer_is_of_use_at_its_own_offset_only(connection, buckets):
    info, ends = buckets
    bucket, stop = next(iter(ends.items()))
    expected = rows(connection, info, bucket, stop)
    start = stop - 2
    first = first_answers(connection, info, {bucket: start})[bucket]
    assert rows(connection, info, bucket, stop, first) == expected
    assert rows(connection, info, bucket, stop, first, start=start) == expected[start:]
    whole = first_answers(connection, info, {bucket: 0})[bucket]
    assert rows(connection, info, bucket, stop, whole, start=0) == expected


def test_buckets_without_room_or_with_errors_are_left_to_their_reader(shared_cluster, buckets):
    info, ends = buckets
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": "1kb"}) as connection:
        found = first_answers(connection, info, dict.fromkeys(ends, 0))
        assert 0 < len(found) < len(ends)
        for bucket, stop in ends.items():
            assert rows(connection, info, bucket, stop, found.get(bucket)) == rows(connection, info, bucket, stop)
        low, *others = ends
        beyond = first_answers(connection, info, {low: 10**9} | dict.fromkeys(others[:1], 0))
        assert low not in beyond
        with pytest.raises(OffsetOutOfRangeError):
            rows(connection, info, low, 10**9 + 1, beyond.get(low), start=10**9)
        gone = TableBucket(info.table_id, None, 99)
        with_gone = first_answers(connection, info, {gone: 0, others[0]: 0})
        assert gone not in with_gone
        with pytest.raises(BucketNotFoundError):
            rows(connection, info, gone, 1, with_gone.get(gone))


@pytest.fixture
def few_at_once(shared_cluster, monkeypatch):
    """A connection whose answers are of 1 kB, and how many buckets each fetch by it has asked for."""
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": "1kb"}) as connection:
        yield connection, watch_fetches(monkeypatch, connection)


def read_in_turn(connection, info, ends, answers):
    return {bucket: rows(connection, info, bucket, stop, answers.take(bucket)) for bucket, stop in ends.items()}


@pytest.fixture
def short(connection, make_table):
    """A table of many buckets, and the ends of those that have rows."""
    info = make_table({"id": "bigint"}, buckets=64, bucket_key=["id"])
    with connection.append_writer(info.path) as writer:
        writer.append({"id": np.arange(200)}).result()
    offsets = connection.admin().list_offsets(info, OffsetSpec.latest())
    return info, {
        TableBucket(info.table_id, None, number): each.offset for number, each in offsets.items() if each.offset
    }


def test_buckets_read_one_after_another_have_their_answers_by_groups(few_at_once, connection, short):
    few, asked = few_at_once
    info, ends = short
    expected = {bucket: rows(connection, info, bucket, stop) for bucket, stop in ends.items()}
    answers = FirstAnswers(few, info, dict.fromkeys(ends, 0))
    assert read_in_turn(few, info, ends, answers) == expected
    # Each call has the next ones; what has no room is not requested with all that follow, again and again.
    assert 1 < len(asked) < len(ends) / 3, asked
    assert sum(asked) < 4 * len(ends), asked
    # An answer is given once: what is kept goes with it.
    assert {answers.take(bucket) for bucket in ends} == {None}


def test_a_long_log_is_followed_by_groups_of_short_ones(few_at_once, connection, short):
    few, asked = few_at_once
    info, ends = short
    with connection.append_writer(info.path) as writer:
        writer.append({"id": np.full(1_000, 7)}).result()
    offsets = connection.admin().list_offsets(info, OffsetSpec.latest())
    in_turn = sorted(ends, key=lambda bucket: -offsets[bucket.bucket].offset)
    ends = {bucket: offsets[bucket.bucket].offset for bucket in in_turn}
    assert ends[in_turn[0]] >= 1_000 > ends[in_turn[1]] * 10
    expected = {bucket: rows(connection, info, bucket, stop) for bucket, stop in ends.items()}
    answers = FirstAnswers(few, info, dict.fromkeys(ends, 0))
    first = in_turn[0]
    assert rows(few, info, first, ends[first], answers.take(first)) == expected.pop(first)
    asked.clear()
    assert read_in_turn(few, info, {bucket: ends[bucket] for bucket in expected}, answers) == expected
    assert len(asked) < len(expected) / 3, asked


def test_a_group_that_no_server_answers_is_requested_again(shared_cluster, connection, short, monkeypatch):
    info, ends = short
    options = {"client.scanner.log.fetch.max-bytes": "1kb", "client.request-timeout": "300ms"}
    with Connection(lambda: shared_cluster.address, options) as few:
        answers = FirstAnswers(few, info, dict.fromkeys(ends, 0))
        with monkeypatch.context() as patch:
            hook_fetches(patch, few, refuse)
            with pytest.raises(ServerUnavailableError):
                [answers.take(bucket) for bucket in ends]
        found = [answers.take(bucket) for bucket in ends]
        assert found[0] is None  # taken before
        assert found[-1] is not None


def test_first_answers_need_a_server(shared_cluster, table, monkeypatch):
    info, bucket = table
    config = {"client.request-timeout": "300ms"}
    with Connection(lambda: shared_cluster.address, config) as connection:
        hook_fetches(monkeypatch, connection, refuse)
        with pytest.raises(ServerUnavailableError):
            first_answers(connection, info, {bucket: 0})


def refuse(fetch, request):
    raise ServerUnavailableError("away")

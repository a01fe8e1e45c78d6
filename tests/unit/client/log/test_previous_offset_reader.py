"""The offsets that a range of a changelog ends, fetched without its records: those that its records name."""

from __future__ import annotations

import numpy as np
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.client.log.previous_offset_reader import fetch_ended_offsets
from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError, TableNotFoundError
from fluss_lab.model import TableBucket
from tests.unit.client.log.fetch_hook import hook_fetches


@pytest.fixture
def changed(connection, make_table, rng):
    """A primary-key table of one bucket, and where its log ends."""
    info = make_table({"id": "bigint", "n": "int"}, primary_key=["id"])
    end = 0
    with connection.upsert_writer(info.path) as writer:
        for turn in range(40):
            keys = rng.sample(range(300), rng.randint(1, 200))
            if turn % 4 == 3:
                writer.delete({"id": keys}).result()
            else:
                writer.upsert({"id": keys, "n": [turn] * len(keys)}).result()
    end = connection.admin().buckets(info)[0].end_offset
    return info, TableBucket(info.table_id, None, 0), end


def by_records(connection, changed, start, stop):
    info, bucket, _ = changed
    found = {
        offset
        for run in read_range(connection, info, bucket, start, stop, previous_offsets=True)
        for offset in run.previous_offsets.to_pylist()
        if offset >= 0
    }
    return sorted(found)


@pytest.mark.parametrize("size", ["512b", "4mb"])
def test_they_are_those_that_the_records_of_any_range_name(shared_cluster, connection, changed, rng, size):
    info, bucket, end = changed
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": size}) as reading:
        for start, stop in [(0, end), (5, 5), *(sorted(rng.sample(range(end + 1), 2)) for _ in range(12))]:
            ended = fetch_ended_offsets(reading, info, bucket, start, stop)
            assert ended is not None
            assert ended.dtype == np.int64
            assert ended.tolist() == by_records(connection, changed, start, stop)


def test_a_server_that_does_not_know_how_has_none(connection, changed, monkeypatch):
    info, bucket, end = changed

    def older(fetch, request):
        request.tables_req[0].ClearField("previous_offsets_only")
        return fetch(request)

    hook_fetches(monkeypatch, connection, older)
    assert fetch_ended_offsets(connection, info, bucket, 0, end) is None


def test_beyond_the_end_there_are_none(connection, changed):
    info, bucket, end = changed
    assert fetch_ended_offsets(connection, info, bucket, 0, end + 1) is None
    with pytest.raises(OffsetOutOfRangeError):
        fetch_ended_offsets(connection, info, bucket, end + 1, end + 2)


def test_an_answer_of_other_records_is_an_error(connection, changed, monkeypatch):
    info, bucket, end = changed

    def elsewhere(fetch, request):
        answer = fetch(request)
        answer.message.tables_resp[0].buckets_resp[0].previous_offsets_start += 1
        return answer

    hook_fetches(monkeypatch, connection, elsewhere)
    with pytest.raises(CorruptDataError, match=rf"expected them from offset 0, found \[1, {end + 1}\)"):
        fetch_ended_offsets(connection, info, bucket, 0, end)


def test_those_of_a_table_that_was_dropped_are_an_error(connection, changed):
    info, bucket, end = changed
    connection.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        fetch_ended_offsets(connection, info, bucket, 0, end)

"""Rows given one at a time: each checked when it is given, all written in their order, whoever gives them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.client.write import linger
from fluss_lab.errors import InvalidRecordError, InvalidRequestError, TableNotFoundError, WriteInterruptedError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.testing.mock_clock import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 60.0


def rows_in(connection: Connection, info: TableInfo) -> list[dict[str, Any]]:
    (status,) = connection.admin().buckets(info)
    bucket, end = TableBucket(info.table_id, None, 0), status.require().end_offset
    return [row for run in read_range(connection, info, bucket, 0, end) for row in run.rows.to_pylist()]


def test_rows_given_one_at_a_time_are_written_in_their_order_and_share_futures(connection, make_table):
    info = make_table()
    rows = [{"id": index, "name": f"n{index}"} for index in range(3 * linger.ROWS_MAX + 5)]
    with connection.append_writer(info.path) as writer:
        futures = [writer.append(row) for row in rows]
        writer.flush()
        assert writer.progress().rows == writer.progress().rows_acknowledged == len(rows)
    assert rows_in(connection, info) == rows
    results = {id(future): future.result() for future in futures}
    assert len(results) < len(rows) // 100
    assert sum(each.rows for each in results.values()) == len(rows)
    assert sorted(offsets for each in results.values() for offsets in each.offsets[None, 0])[-1][1] == len(rows)


def test_a_row_is_written_soon_though_none_follows(connection, make_table):
    info = make_table()
    with connection.append_writer(info.path) as writer:
        for index in range(3):
            assert writer.append({"id": index}).result(WAIT_S).offsets == {(None, 0): ((index, index + 1),)}
        future = writer.append({"id": 3})
        wait_until(future.done, WAIT_S)
    assert [row["id"] for row in rows_in(connection, info)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"id": "x"}, "column 'id', row 0: expected BIGINT, found 'x'"),
        ({"id": 2**63}, "column 'id', row 0: expected BIGINT, found 9223372036854775808"),
        ({"id": 1, "name": "\ud800"}, "column 'name', row 0"),
        ({"id": 1, "nam": "a"}, "column 'nam' is unknown; expected id, name"),
        ({"id": True}, "found True"),
    ],
)
def test_a_wrong_row_is_refused_when_it_is_given_and_no_other_is(connection, make_table, row, text):
    info = make_table()
    with connection.append_writer(info.path) as writer:
        writer.append({"id": 0})
        with pytest.raises(InvalidRecordError, match=text):
            writer.append(row)
        writer.append({"id": 1})
    assert [each["id"] for each in rows_in(connection, info)] == [0, 1]


def test_rows_keep_their_order_among_calls_of_other_forms(connection, make_table):
    info = make_table()
    with connection.append_writer(info.path) as writer:
        for index in range(0, 60, 6):
            writer.append({"id": index})
            writer.append([{"id": index + 1}])
            writer.append({"id": [index + 2]})
            writer.append({"id": index + 3, "name": "y" * 1000})  # too long to be gathered
            writer.append({"id": index + 4, "name": None})
            writer.append({"id": index + 5})
    assert [row["id"] for row in rows_in(connection, info)] == list(range(60))


def test_upserts_and_deletes_keep_their_order(connection, make_table):
    info = make_table({"id": "int not null", "name": "string"}, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        for turn in range(20):
            for key in range(3):
                writer.upsert({"id": key, "name": f"{turn}"})
            writer.delete([{"id": 1}])
            writer.upsert({"id": 2, "name": "last"})
        writer.flush()
        with pytest.raises(InvalidRecordError, match="'id'"):
            writer.upsert({"name": "x"})
    with connection.lookuper(info.path) as lookuper:
        found = lookuper.lookup([{"id": 0}, {"id": 1}, {"id": 2}]).column("name").to_pylist()
    assert found == ["19", None, "last"]


def test_threads_give_rows_to_one_writer_and_each_is_written_once(connection, make_table, monkeypatch):
    monkeypatch.setattr(linger, "ROWS_MAX", 50)
    info = make_table()
    with connection.append_writer(info.path) as writer:

        def work(thread: int) -> None:
            for index in range(2000):
                writer.append({"id": index, "name": str(thread)})
                if index % 100 == thread:
                    writer.flush()

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = rows_in(connection, info)
    for thread in range(4):
        assert [row["id"] for row in rows if row["name"] == str(thread)] == list(range(2000))


def test_a_row_that_comes_late_goes_with_the_next(connection, make_table, monkeypatch):
    """Between the moment that a thread finds some rows and that in which it adds its own, they may be taken."""
    monkeypatch.setattr(linger, "LINGER_S", 60.0)
    info = make_table()
    with connection.append_writer(info.path) as writer:
        first = writer.append({"id": 0})
        single = writer._single
        assert single is not None
        taken = single._open
        writer.flush()
        late = single._look_at({"id": 1})
        taken.rows.append(late)
        future = single._note_added_row(taken, late)
        assert future is not first
        assert taken.rows[1:] == []
        assert writer.append({"id": 2}) is future
    assert [row["id"] for row in rows_in(connection, info)] == [0, 1, 2]


def test_a_row_that_cannot_be_queued_is_let_go_of_and_those_before_stay(connection, make_table, monkeypatch):
    monkeypatch.setattr(linger, "ROWS_MAX", 3)
    info = make_table()
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 0}]).result(WAIT_S)
        queue, writer._queue_rows = writer._queue_rows, fail
        writer.append({"id": 1})
        writer.append({"id": 2})
        with pytest.raises(InvalidRequestError, match="not now"):
            writer.append({"id": 3})
        assert writer.progress().unsent == 2
        writer._queue_rows = queue
        writer.append({"id": 4})
    assert [row["id"] for row in rows_in(connection, info)] == [0, 1, 2, 4]


def fail(*_arguments: object) -> None:
    raise InvalidRequestError("not now")


def test_a_closed_writer_takes_no_row(connection, make_table):
    info = make_table()
    writer = connection.append_writer(info.path)
    future = writer.append({"id": 1})
    writer.close()
    assert future.done()
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.append({"id": 2})
    assert [row["id"] for row in rows_in(connection, info)] == [1]


def test_an_error_in_the_block_leaves_no_row_behind(connection, make_table):
    info = make_table()

    def fail() -> None:
        with connection.append_writer(info.path) as writer:
            writer.append({"id": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [row["id"] for row in rows_in(connection, info)] == [1]


def test_rows_that_no_server_takes_fail_and_flush_says_so(connection, make_table):
    info = make_table()
    writer = connection.append_writer(info.path)
    writer.append({"id": 1}).result(WAIT_S)
    connection.admin().drop_table(info.path)
    writer.append({"id": 2})
    with pytest.raises(TableNotFoundError):
        writer.flush()
    writer.close()


def test_gathered_rows_are_reported_settled_and_abandoned(connection, make_table, monkeypatch):
    monkeypatch.setattr(linger, "LINGER_S", 5.0)
    info = make_table()
    writers = [connection.append_writer(info.path) for _ in range(2)]
    futures = []
    for writer in writers:
        futures += [writer.append({"id": 1}), writer.append({"id": 2})]
        with pytest.raises(KeyboardInterrupt) as caught:
            writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert "0 of 2 rows acknowledged; in flight: none; not written: 2" in str(caught.value)
    assert writers[0].settle().rows == 2
    writers[1].abandon()
    with pytest.raises(WriteInterruptedError):
        futures[2].result(WAIT_S)
    assert futures[0].result(WAIT_S).rows == 2
    assert [row["id"] for row in rows_in(connection, info)] == [1, 2]


def test_an_empty_dict_is_no_row(connection, make_table):
    info = make_table()
    with connection.append_writer(info.path) as writer:
        assert writer.append({}).result(WAIT_S).rows == 0
    assert rows_in(connection, info) == []


def test_rows_of_a_table_with_partitions_are_calls_like_any_others(connection, make_table):
    info = make_table({"id": "int", "month": "string"}, partitioned_by=["month"])
    with connection.append_writer(info.path) as writer:
        assert writer.append({"id": 1, "month": "a"}).result(WAIT_S).offsets == {("a", 0): ((0, 1),)}

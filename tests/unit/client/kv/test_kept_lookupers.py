"""Kept lookupers find what new ones would: after changes of the table by others too."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from fluss_lab.client import Lookuper
from fluss_lab.client.kv import kept_lookupers, lookuper
from fluss_lab.errors import ConnectionClosedError, InvalidRecordError, TableNotFoundError, UnsupportedError

COLUMNS = {"id": "bigint", "v": "int"}


@pytest.fixture
def filled(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"], buckets=2)
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": number, "v": number * 2} for number in range(50)])
    return info


@pytest.fixture
def look(connection, filled):
    def looking(keys, columns=None, call=Lookuper.lookup):
        return connection.kept_lookupers.lookup(connection.lookuper, filled.path, columns, keys, call)

    return looking


@pytest.fixture
def opened(connection, monkeypatch):
    """What was opened since the test began."""
    made, make = [], type(connection).lookuper

    def counting(self, path, columns=None):
        made.append(make(self, path, columns))
        return made[-1]

    monkeypatch.setattr(type(connection), "lookuper", counting)
    return made


def test_one_is_kept_for_each_choice_of_columns(look, opened):
    for number in range(5):
        assert look({"id": number}).to_pylist() == [{"id": number, "v": number * 2}]
        assert look([{"id": number}], ["v"]).to_pylist() == [{"v": number * 2}]
        assert look(pa.table({"id": [number, 70]}), ("v",)).to_pylist() == [{"v": number * 2}, {"v": None}]
    assert len(opened) == 2


def test_a_reader_of_keys_is_gone_through_once(look):
    table = pa.table({"id": [1, 2]})
    for _ in range(2):
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
        assert look(reader)["v"].to_pylist() == [2, 4]


def test_columns_that_another_client_added_are_found(look, stranger, filled, opened):
    look({"id": 1})
    stranger.admin().alter_table(filled.path, add_columns={"more": "string"})
    assert look({"id": 1}).to_pylist() == [{"id": 1, "v": 2, "more": None}]
    assert look({"id": -1}).to_pylist() == [{"id": None, "v": None, "more": None}]
    assert look({"id": 1, "more": "not looked at"}, ["v"]).to_pylist() == [{"v": 2}]
    assert len(opened) == 3, "and the new one is kept"
    stranger.admin().alter_table(filled.path, add_columns={"again": "int"})
    assert look([{"id": 1, "again": 3}]).column_names == ["id", "v", "more", "again"]


@pytest.mark.parametrize("keys", [[], [{"id": 1, "p": "nowhere"}]])
@pytest.mark.parametrize("call", [Lookuper.lookup, Lookuper.prefix_lookup])
def test_columns_are_those_of_now_where_no_server_is_asked(connection, stranger, make_table, keys, call):
    columns = {"id": "bigint", "n": "int", "p": "string"}
    info = make_table(columns, primary_key=["id", "n", "p"], bucket_key=["id"], partitioned_by=["p"])
    whole = [each | {"n": 1} for each in keys] if call is Lookuper.lookup else keys

    def look():
        return connection.kept_lookupers.lookup(connection.lookuper, info.path, None, whole, call)

    assert look().column_names == list(columns)
    stranger.admin().alter_table(info.path, add_columns={"more": "string"})
    assert look().column_names == [*columns, "more"]
    stranger.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        look()
    make_table({"id": "bigint", "n": "int", "p": "string"}, name=info.path.table, primary_key=["id", "n", "p"],
               bucket_key=["id"], partitioned_by=["p"])  # fmt: skip
    assert look().column_names == list(columns)


def test_a_table_that_another_client_made_anew_is_found(look, stranger, filled, make_table):
    look({"id": 1})
    stranger.admin().drop_table(filled.path)
    for _ in range(2):
        with pytest.raises(TableNotFoundError):
            look({"id": 1})
    make_table({"name": "string", "w": "int"}, name=filled.path.table, primary_key=["name"])
    with stranger.upsert_writer(filled.path) as writer:
        writer.upsert([{"name": "a", "w": 9}])
    assert look({"name": "a"}).to_pylist() == [{"name": "a", "w": 9}]
    with pytest.raises(InvalidRecordError, match="'id' is unknown"):
        look({"id": 1})


def test_a_kept_one_of_a_table_made_anew_does_not_answer_for_it(look, stranger, filled, make_table):
    assert look({"id": 1})["v"].to_pylist() == [2]
    stranger.admin().drop_table(filled.path)
    make_table(COLUMNS, name=filled.path.table, primary_key=["id"], buckets=2)
    assert look({"id": 1})["v"].to_pylist() == [None]


@pytest.mark.parametrize("drops_database", [False, True])
def test_a_drop_by_the_same_client_forgets_what_is_kept(look, connection, filled, make_table, drops_database):
    asked = []

    def asking(kept, keys):
        asked.append(kept)
        return kept.lookup(keys)

    assert look({"id": 1}, call=asking)["v"].to_pylist() == [2]
    if drops_database:
        connection.admin().drop_database(filled.path.database, cascade=True)
        connection.admin().create_database(filled.path.database)
    else:
        connection.admin().drop_table(filled.path)
    make_table(COLUMNS, name=filled.path.table, primary_key=["id"], buckets=2)
    # The server may not know of the drop yet: the old one must not even be asked.
    assert look({"id": 1}, call=asking)["v"].to_pylist() == [None]
    first, second = asked
    assert "closed" in repr(first)
    assert first is not second


def test_what_was_opened_before_a_drop_is_not_kept_after(look, connection, filled, opened):
    def dropped_meanwhile(path, columns):
        lookuper = connection.lookuper(path, columns)
        connection.kept_lookupers.forget(path.database, path.table)
        return lookuper

    found = connection.kept_lookupers.lookup(dropped_meanwhile, filled.path, None, {"id": 1}, Lookuper.lookup)
    assert found["v"].to_pylist() == [2]
    assert look({"id": 1})["v"].to_pylist() == [2]
    assert ["closed" in repr(each) for each in opened] == [True, False]
    connection.kept_lookupers.forget(filled.path.database, "another")
    look({"id": 1})
    assert len(opened) == 2


def test_what_cannot_be_is_reported_each_time(look):
    for _ in range(2):
        with pytest.raises(InvalidRecordError, match="nothing was sent"):
            look({"id": "a"})
        with pytest.raises(UnsupportedError, match="proper prefix"):
            look({"id": 1}, call=Lookuper.prefix_lookup)
    assert look({"id": 2})["v"].to_pylist() == [4]


def test_so_many_are_kept_and_one_that_is_in_use_is_not_closed(look, opened, monkeypatch):
    monkeypatch.setattr(kept_lookupers, "_KEPT_MAX", 1)
    inside, go_on, answers = threading.Event(), threading.Event(), []

    def slowly(kept, keys):
        inside.set()
        assert go_on.wait(30)
        return kept.lookup(keys)

    thread = threading.Thread(target=lambda: answers.append(look({"id": 3}, call=slowly)))
    thread.start()
    assert inside.wait(30)
    assert look({"id": 4}, ["v"]).to_pylist() == [{"v": 8}]
    assert "closed" not in repr(opened[0])
    go_on.set()
    thread.join(30)
    assert answers[0].to_pylist() == [{"id": 3, "v": 6}]
    assert ["closed" in repr(each) for each in opened] == [True, False]


def test_the_end_of_the_connection_ends_them(stranger, filled, monkeypatch):
    monkeypatch.setattr(lookuper, "KEYS_PER_CALL", 8)
    keys = {"id": list(range(40))}
    found = stranger.kept_lookupers.lookup(stranger.lookuper, filled.path, None, keys, Lookuper.lookup)
    assert found["v"].to_pylist() == [2 * number for number in range(40)]
    assert len(stranger.open_resources) == 1, "its threads"
    stranger.close()
    assert len(stranger.open_resources) == 0
    with pytest.raises(ConnectionClosedError, match="closed"):
        stranger.kept_lookupers.lookup(stranger.lookuper, filled.path, None, {"id": 1}, Lookuper.lookup)

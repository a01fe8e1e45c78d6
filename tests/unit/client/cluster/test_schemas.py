"""Reading and writing across ALTER: each batch is read by the schema that it was written in."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from fluss_lab.client import Connection, LogScanner, read_range
from fluss_lab.errors import (
    CorruptDataError,
    InvalidNameError,
    InvalidRecordError,
    InvalidSchemaError,
    TableNotFoundError,
)
from fluss_lab.model import OffsetSpec, TableBucket
from fluss_lab.records import fit_to_schema

COLUMNS = {"id": "bigint", "name": "string"}


def read(connection, info, stop, projection=None):
    runs = read_range(connection, info, TableBucket(info.table_id, None, 0), 0, stop, projection=projection)
    return [row for run in runs for row in run.rows.to_pylist()]


@pytest.fixture
def altered(connection, make_table):
    """A log table altered twice, written to in each schema; its infos from old to new."""
    infos = [make_table(COLUMNS)]
    admin = connection.admin()
    with connection.append_writer(infos[0].path) as writer:
        writer.append([{"id": 0, "name": "a"}]).result()
    infos.append(admin.alter_table(infos[0].path, add_columns={"x": "int"}))
    with connection.append_writer(infos[0].path) as writer:
        writer.append([{"id": 1, "name": "b", "x": 1}]).result()
    infos.append(admin.alter_table(infos[0].path, add_columns={"y": pa.string(), "z": "array<int>"}))
    with connection.append_writer(infos[0].path) as writer:
        writer.append([{"id": 2, "x": 2, "y": "y", "z": [1, None]}]).result()
    return infos


ROWS = [
    {"id": 0, "name": "a", "x": None, "y": None, "z": None},
    {"id": 1, "name": "b", "x": 1, "y": None, "z": None},
    {"id": 2, "name": None, "x": 2, "y": "y", "z": [1, None]},
]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_batch_is_brought_to_the_readers_schema(connection, altered, version):
    info = altered[version]
    names = info.schema.names
    assert names == list(ROWS[0])[: len(names)]
    assert read(connection, info, 3) == [{name: row[name] for name in names} for row in ROWS]


@pytest.mark.parametrize("projection", [["x"], ["y", "id"], ["z", "y"], ["name", "z", "x"], [4]])
def test_projections_of_columns_that_old_batches_lack(connection, altered, projection):
    names = [altered[2].schema.names[each] if isinstance(each, int) else each for each in projection]
    found = read(connection, altered[2], 3, projection)
    assert found == [{name: row[name] for name in names} for row in ROWS]
    assert [list(row) for row in found] == [names] * 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_scanner_reads_in_the_schema_it_was_made_with(connection, altered, version):
    names = altered[version].schema.names
    with LogScanner(connection, altered[version]) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        found = []
        while len(found) < 3:
            found += [row for batch in scanner.poll(30) for row in batch.rows.to_pylist()]
    assert found == [{name: row[name] for name in names} for row in ROWS]


def test_a_scanner_goes_on_while_the_table_is_altered(connection, make_table):
    info = make_table(COLUMNS)
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        found = []
        for number in range(3):
            with connection.append_writer(info.path) as writer:
                columns = connection.table_info(info.path).schema.names
                writer.append([{**dict.fromkeys(columns), "id": number}]).result()
            while len(found) == number:
                found += [row for batch in scanner.poll(30) for row in batch.rows.to_pylist()]
            connection.admin().alter_table(info.path, add_columns={f"c{number}": "int"})
        assert found == [{"id": number, "name": None} for number in range(3)]


def test_writers_made_before_go_on_in_their_schema(connection, make_table):
    info = make_table(COLUMNS)
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 0}]).result()
        now = connection.admin().alter_table(info.path, add_columns={"x": "int"})
        writer.append([{"id": 1}]).result()
        with pytest.raises(InvalidRecordError, match="'x' is unknown"):
            writer.append([{"id": 1, "x": 2}])
        with connection.append_writer(info.path) as other:
            other.append([{"id": 2, "x": 2}]).result()
        writer.append([{"id": 3}]).result()
    assert [(row["id"], row["x"]) for row in read(connection, now, 4)] == [(0, None), (1, None), (2, 2), (3, None)]


def test_rows_of_a_primary_key_table_have_nulls_in_new_columns(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    old_lookuper = connection.lookuper(info.path)
    with connection.upsert_writer(info.path) as old:
        old.upsert([{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]).result()
        now = connection.admin().alter_table(info.path, add_columns={"x": "int"})
        with connection.upsert_writer(info.path) as new:
            new.upsert([{"id": 1, "name": "c", "x": 5}, {"id": 2, "x": 6}]).result()
        old.upsert([{"id": 3, "name": "d"}]).result()
        with connection.upsert_writer(info.path, columns=["id", "x"]) as partial:
            partial.upsert([{"id": 0, "x": 9}]).result()
    expected = [
        {"id": 0, "name": "a", "x": 9},
        {"id": 1, "name": "c", "x": 5},
        {"id": 2, "name": None, "x": 6},
        {"id": 3, "name": "d", "x": None},
    ]
    cut = [{"id": row["id"], "name": row["name"]} for row in expected]
    keys = {"id": list(range(4))}
    with connection.lookuper(info.path) as lookuper, old_lookuper:
        assert lookuper.lookup(keys).to_pylist() == expected
        assert old_lookuper.lookup(keys).to_pylist() == cut
    with connection.lookuper(info.path, columns=["x"]) as lookuper:
        assert lookuper.lookup(keys)["x"].to_pylist() == [9, 5, 6, None]
    place = TableBucket(info.table_id, None, 0)
    for reader, rows in [(now, expected), (info, cut)]:
        found = [row for run in connection.scan_kv(reader, place) for row in run.rows.to_pylist()]
        assert sorted(found, key=lambda row: row["id"]) == rows
    assert sorted(connection.limit_scan(info.path, 9).to_pylist(), key=lambda row: row["id"]) == expected
    log = [row for run in read_range(connection, now, place, 0, 8) for row in run.rows.to_pylist()]
    assert log[:2] == [{"id": 0, "name": "a", "x": None}, {"id": 1, "name": "b", "x": None}]
    assert log[2:4] == [{"id": 1, "name": "b", "x": None}, expected[1]]


def test_previous_offsets_come_beside_the_changelog_when_asked_for(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 0}, {"id": 1}]).result()
        writer.upsert([{"id": 1, "name": "b"}]).result()
        writer.delete([{"id": 0}]).result()
    place = TableBucket(info.table_id, None, 0)

    def previous(start, **options):
        runs = list(read_range(connection, info, place, start, 5, **options))
        return [None if run.previous_offsets is None else run.previous_offsets.to_pylist() for run in runs]

    flat = [offset for run in previous(0, previous_offsets=True) for offset in run]
    assert flat == [-1, -1, 1, 1, 0]
    assert [offset for run in previous(3, previous_offsets=True) for offset in run] == [1, 0]
    assert set(previous(0)) == {None}
    with connection.log_scanner(info.path, previous_offsets=True) as scanner:
        scanner.subscribe(0, 1)
        found = []
        while len(found) < 4:
            found += [offset for each in scanner.poll(30) for offset in each.records.previous_offsets.to_pylist()]
    assert found == [-1, 1, 1, 0]
    log_table = make_table(COLUMNS, name="log")
    with connection.append_writer(log_table.path) as writer:
        writer.append([{"id": 1}]).result()
    place = TableBucket(log_table.table_id, None, 0)
    (run,) = read_range(connection, log_table, place, 0, 1, previous_offsets=True)
    assert run.previous_offsets is None


# -- altering -----------------------------------------------------------------------------------------------------------


def test_columns_that_cannot_be_added_are_refused_and_nothing_changes(connection, make_table):
    info = make_table(COLUMNS)
    admin = connection.admin()
    for added, error in [
        ({"name": "int"}, InvalidSchemaError),
        ({"must": "int not null"}, InvalidSchemaError),
        ({"a": "nonsense"}, InvalidSchemaError),
        ({"__offset": "int"}, InvalidNameError),
    ]:
        with pytest.raises(error):
            admin.alter_table(info.path, set={"table.log.ttl": "3d"}, add_columns=added)
    assert admin.table_info(info.path) == info
    assert admin.alter_table(info.path) == info


def test_columns_and_properties_are_changed_at_once(connection, make_table):
    info = make_table(COLUMNS)
    now = connection.admin().alter_table(info.path, set={"table.log.ttl": "3d"}, add_columns={"b": "int", "a": "date"})
    assert now.schema.names == ["id", "name", "b", "a"]
    assert now.descriptor.properties["table.log.ttl"] == "3d"
    assert now.schema_id > info.schema_id


def test_schemas_are_known_by_their_id(connection, altered):
    for info in altered:
        for other in altered:
            assert connection.schema(info, other.schema_id) == other.schema
    with pytest.raises(CorruptDataError, match="schema id 99"):
        connection.schema(altered[0], 99)


def test_the_schema_of_another_table_of_the_path_is_not_taken(shared_cluster, connection, make_table):
    info = make_table(COLUMNS)
    connection.admin().drop_table(info.path)
    again = make_table({"other": "int"})
    connection.admin().alter_table(again.path, add_columns={"x": "int"})
    with Connection(lambda: shared_cluster.address) as fresh, pytest.raises(TableNotFoundError, match="dropped"):
        fresh.schema(info, 2)


def test_altering_beside_writers_and_readers_loses_nothing(connection, make_table):
    info = make_table(COLUMNS)
    done = threading.Event()
    futures = []

    def write():
        while not done.is_set():
            with connection.append_writer(info.path) as writer:
                for _ in range(5):
                    futures.append(writer.append([{"id": len(futures)}]))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(5):
            connection.admin().alter_table(info.path, add_columns={f"c{number}": "int"})
    finally:
        done.set()
        thread.join()
    assert all(future.result().rows == 1 for future in futures)
    now = connection.table_info(info.path)
    assert [row["id"] for row in read(connection, now, len(futures))] == list(range(len(futures)))


# -- padding, alone -----------------------------------------------------------------------------------------------------

OLD = pa.record_batch({"a": pa.array([1, 2]), "b": pa.array(["x", None])})


def test_padding_adds_nulls_orders_and_shares_the_values():
    wanted = pa.schema([("new", pa.list_(pa.int8())), ("b", pa.string()), pa.field("a", pa.int64(), nullable=False)])
    found = fit_to_schema(OLD, wanted)
    assert found.schema == wanted
    assert found.to_pylist() == [{"new": None, "b": "x", "a": 1}, {"new": None, "b": None, "a": 2}]
    assert found.column("a").buffers()[1].address == OLD.column("a").buffers()[1].address
    assert fit_to_schema(OLD, OLD.schema) is OLD


def test_padding_refuses_what_would_change_or_lose_values():
    for wanted, says in [
        (pa.schema([("a", pa.int64())]), "'b' is unknown"),
        (pa.schema([("a", pa.int32()), ("b", pa.string())]), "'a': expected int32, found int64"),
        (pa.schema([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]), "'b' is NOT NULL: 1 of 2"),
        (pa.schema([*OLD.schema, pa.field("c", pa.string(), nullable=False)]), "'c' is NOT NULL and missing"),
    ]:
        with pytest.raises(InvalidRecordError, match=says):
            fit_to_schema(OLD, wanted)
    assert fit_to_schema(OLD, pa.schema([("a", pa.int64())]), cut=True).schema.names == ["a"]
    assert fit_to_schema(OLD, pa.schema([]), cut=True).num_rows == 2

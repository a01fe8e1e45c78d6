"""A lab as a person uses it, over a server process of its own; Spark is in tests/spark."""

import pickle
import time

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluss_lab as fl
from fluss_lab import errors
from fluss_lab.testing import wait_until
from tests.unit.open_steps import watched_steps
from tests.unit.workbench.lab_kit import LAKE, SCHEMA, rows, tier

pytestmark = pytest.mark.slow

# -- tables ----------------------------------------------------------------------------------------------------------


def test_databases_and_tables_come_and_go(lab):
    lab.create_database("temp")
    with pytest.raises(errors.DatabaseExistsError):
        lab.create_database("temp")
    lab.create_database("temp", if_not_exists=True)
    lab.create_table("temp.one", {"a": "int"})
    with pytest.raises(errors.TableExistsError):
        lab.create_table("temp.one", {"b": "int"})
    assert lab.create_table("temp.one", {"b": "int"}, if_not_exists=True).schema.names == ["a"]
    assert lab.tables("temp") == ["one"]
    with pytest.raises(errors.DatabaseNotEmptyError):
        lab.drop_database("temp")
    lab.drop_database("temp", cascade=True)
    assert "temp" not in lab.databases()
    with pytest.raises(errors.DatabaseNotFoundError):
        lab.drop_database("temp")
    lab.drop_database("temp", if_exists=True)


@pytest.mark.parametrize(
    ("path", "arguments", "error"),
    [
        ("nowhere.t", {}, errors.DatabaseNotFoundError),
        ("t", {}, errors.InvalidNameError),
        ("shop.1", {}, errors.InvalidNameError),
        ("shop.x", {"buckets": 0}, errors.InvalidBucketsError),
        ("shop.x", {"buckets": 5000}, errors.InvalidBucketsError),
        ("shop.x", {"properties": {"table.nope": "1"}}, errors.InvalidPropertyError),
        ("shop.x", {"primary_key": ["id", "price"], "properties": LAKE}, errors.UnsupportedError),
        ("shop.x", {"bucket_key": ["id", "price"], "properties": LAKE}, errors.UnsupportedError),
    ],
)
def test_a_table_that_cannot_be_is_not_made(lab, path, arguments, error):
    before = lab.tables("shop")
    with pytest.raises(error):
        lab.create_table(path, SCHEMA, **arguments)
    assert lab.tables("shop") == before


@pytest.mark.parametrize("text", ["", " ;\n;", "-- only a comment", "/* one */ ; -- and another\n"])
def test_a_text_without_a_statement_is_refused_before_spark_starts(lab, text):
    with pytest.raises(errors.InvalidRequestError, match=r"Lab\.sql: expected a SQL statement, found "):
        lab.sql(text)


def test_what_is_not_there_is_said(lab):
    with pytest.raises(errors.TableNotFoundError, match=r"shop\.none"):
        lab.table("shop.none")
    with pytest.raises(errors.TableNotFoundError):
        lab.drop_table("shop.none")
    lab.drop_table("shop.none", if_exists=True)
    with pytest.raises(errors.DatabaseNotFoundError):
        lab.tables("none")


def test_a_table_describes_itself(table):
    assert table.schema.field("id").type == pa.int64()
    assert table.descriptor.partitioned_by == ("month",)
    assert "log table, 3 columns, 2 buckets, in the lake" in repr(table)
    assert "decimal(10,2)" in table._repr_html_()
    table.add_partition(month="2013-05")
    with pytest.raises(errors.PartitionExistsError):
        table.add_partition(month="2013-05")
    with pytest.raises(errors.InvalidPartitionError):
        table.add_partition(day="2013-05")
    assert table.partitions() == ["2013-05"]
    table.alter(set={"table.log.ttl": "1d"})
    assert table.descriptor.properties["table.log.ttl"] == "1d"
    table.alter(reset=["table.log.ttl"])
    assert "table.log.ttl" not in table.descriptor.properties
    table.drop_partition(month="2013-05")
    assert table.partitions() == []


def test_partition_columns_called_as_arguments_are_given_as_a_dict(lab):
    columns = {"id": "bigint", "lake": "string", "self": "string", "day": "string"}
    table = lab.create_table("shop.odd", columns, partitioned_by=["lake", "self", "day"])
    table.add_partition({"lake": "a", "self": "b"}, day="c")
    table.add_partition({"lake": "a", "self": "b", "day": "c"}, if_not_exists=True)
    with pytest.raises(errors.InvalidPartitionError, match=r"shop\.odd: expected one value of day, found two"):
        table.drop_partition({"lake": "a", "self": "b", "day": "c"}, day="c")
    (name,) = table.partitions()
    assert name == "a$b$c"
    table.drop_partition({"lake": "a", "self": "b", "day": "c"}, lake=True)
    assert table.partitions() == []
    lab.drop_table("shop.odd")


def test_buckets_say_where_each_part_of_them_begins(table):
    table.append(rows(6))
    names = ("start", "local_start", "remote_start", "end", "lake_start", "lake_end")
    before = [tuple(bucket[name] for name in names) for bucket in table.buckets()]
    assert [each[:3] + each[4:] for each in before] == [(0, 0, None, None, None)] * 2
    tier(table)
    after = [tuple(bucket[name] for name in names) for bucket in table.buckets()]
    assert after == [(0, 0, None, end, 0 if end else None, end or None) for _, _, _, end, *_ in before]
    assert [table.buckets().to_arrow().schema.field(name).type for name in names] == [pa.int64()] * 6


def test_a_record_is_located_and_rows_come_by_pages(table):
    result = table.append(rows(6))
    (partition, bucket), ((base, _), *_) = next(iter(result.offsets.items()))
    place = table.locate(partition, bucket, base)
    assert (place.lake, place.local.base_offset, place.remote) == (None, 0, None)
    tier(table)
    assert table.locate(partition, bucket, base).lake.content == "data"
    with table.scan(["id"]).pages() as pages:
        page = pages.page(2, 3)
        assert page.rows == table.scan(["id"]).to_arrow().slice(2, 3)
        assert pages.total == 6
    with pytest.raises(errors.UnsupportedError, match="history: it has no primary key"):
        table.history({"id": 1})


# -- writing and reading ---------------------------------------------------------------------------------------------


def test_rows_of_every_form_are_appended(table):
    given = [
        rows(2),
        pa.Table.from_pylist(rows(2, start=2)),
        pd.DataFrame(rows(2, start=4)),
        {"id": [6, 7], "month": ["2013-02"] * 2},
    ]
    results = [table.append(each) for each in given]
    assert [result.rows for result in results] == [2, 2, 2, 2]
    ends: dict = {}
    for result in results:
        for bucket, ranges in result.offsets.items():
            for base, end in ranges:
                assert base == ends.get(bucket, 0)
                ends[bucket] = end
    assert sum(ends.values()) == table.scan().count() == 8
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == list(range(8))
    assert sum(bucket["end"] for bucket in table.buckets()) == 8


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([{"id": "seven", "month": "2013-01"}], "'id'"),
        ([{"id": 1}], "'month'"),
        ([{"id": 1, "month": "2013-01", "colour": "red"}], "colour"),
        ([{"id": 1, "month": "2013-01"}, {"id": 2, "month": None}], "'month'"),
        ([{"id": 1, "month": "2013-01", "price": "1.234"}], "'price'"),
        (pa.table({"id": pa.array([2.5]), "month": ["2013-01"]}), "'id'"),
    ],
)
def test_bad_rows_name_the_column_and_append_nothing(table, bad, says):
    with pytest.raises(errors.InvalidRecordError, match=says):
        table.append(bad)
    with pytest.raises(errors.InvalidRecordError, match=says), table.writer() as writer:
        writer.append(bad)
    assert table.scan().count() == 0


def test_an_oversized_row_is_refused(lab):
    notes = lab.create_table("shop.notes", {"id": "int", "note": "string"})
    with pytest.raises(errors.RecordTooLargeError, match="at most 29,360,128 in a table without a primary key"):
        notes.append([{"id": 1, "note": "small"}, {"id": 2, "note": "x" * 29_360_000}])
    assert notes.scan().count() == 0
    notes.append([{"id": 3, "note": "x" * 29_000_000}])
    assert notes.scan().count() == 1


def test_reading_across(table):
    table.append(rows(10))
    first = table.read_point()
    assert tier(table).rows == 10
    table.append(rows(5, "2013-02", start=10))
    scan = table.scan(columns=["id"], where="id >= 8", with_source=True)
    assert sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": number, "_source": "lake" if number < 10 else "log"} for number in range(8, 15)
    ]
    assert table.scan(read_point=first).to_arrow().num_rows == table.scan(read_point=first).count() == 10
    assert table.scan(where=pc.field("id") > 12).count() == 2
    assert table.scan(limit=3).to_pandas().shape == (3, 3)
    assert table.scan(partitions=["2013-02"]).count() == 5
    assert "lake" in repr(scan.explain())
    assert len(table.snapshots()) == 1
    assert sum(row["rows"] for row in table.files()) == 10
    assert table.lake_schemas()[0]["columns"]["__offset"] == "long"
    assert table.lab.iceberg(str(table.path)).scan().to_arrow().num_rows == 10
    with pytest.raises(errors.InvalidFilterError):
        table.scan(where="nope > 1")


def test_seek_changelog_and_subscription_agree(table):
    table.append(rows(6))
    between = (
        max(row for row in table.changelog().to_arrow()["_commit_timestamp"].cast("int64").to_pylist()) // 1000 + 1
    )
    wait_until(lambda: _now_ms() > between + 1, 5)
    tier(table)
    table.append(rows(4, start=6))
    seek = table.seek(between)
    later = table.changelog(start=seek).to_arrow()
    assert sorted(later["id"].to_pylist()) == [6, 7, 8, 9]
    assert set(later["_change_type"].to_pylist()) == {"+A"}
    assert table.scan(as_of=between).count() == 6
    got: list[int] = []
    with table.subscribe(start="earliest") as scanner:
        wait_until(lambda: got.extend(_ids(scanner)) or len(got) >= 10, 20)
    assert sorted(got) == list(range(10))


def _ids(scanner):
    return [value for batch in scanner.poll(0.2) for value in batch.records.rows.column("id").to_pylist()]


def _now_ms():

    return time.time_ns() // 1_000_000


def test_status_counts(lab, table):
    table.append(rows(7))
    status = lab.status()
    row = next(row for row in status.tables if row["table"] == str(table.path))
    assert (row["end"], row["lag"], row["lake_end"]) == (7, 7, 0)
    tier(table)
    row = next(row for row in lab.status().tables if row["table"] == str(table.path))
    assert (row["end"], row["lag"], row["lake_end"]) == (7, 0, 7)
    assert str(table.path) in repr(status)
    assert str(table.path) in status._repr_html_()
    assert f"{len(lab.tables()):,} in " in lab._repr_html_()  # a card has ten tables, those first that need attention


def test_a_table_outside_the_lake_cannot_be_tiered(lab):
    plain = lab.create_table("shop.plain", {"a": "int"}, if_not_exists=True)
    for call in (plain.tier, plain.snapshots, lambda: lab.iceberg("shop.plain")):
        with pytest.raises(errors.LakeNotConfiguredError, match=r"shop\.plain"):
            call()


# -- tables of frames ------------------------------------------------------------------------------------------------


def test_a_table_is_made_and_filled_of_a_frame(lab):
    times = pd.to_datetime(["2026-01-01", None]).astype("datetime64[ns]")
    frame = pd.DataFrame({"id": [1, 2], "amount": [1.5, None], "note": ["a", None], "at": times})
    made = lab.create_table(
        "shop.of_frame", frame, primary_key=["id"], partitioned_by=None, bucket_key=None, properties=LAKE
    )
    assert [str(column.type) for column in made.descriptor.schema.columns] == [
        "BIGINT NOT NULL", "DOUBLE", "STRING", "TIMESTAMP(6)",
    ]  # fmt: skip
    made.upsert(frame)
    filled = lab.create_table("shop.filled", rows=frame, primary_key=None)
    assert filled.scan().to_arrow().num_rows == made.scan().count() == 2
    again = lab.create_table("shop.filled", rows=frame, if_not_exists=True)
    assert again.scan().count() == 2
    assert lab.create_table("shop.typed", {"id": "int", "amount": "double"}, rows=[{"id": 1}]).scan().count() == 1
    with pytest.raises(errors.TableExistsError):
        lab.create_table("shop.filled", rows=frame)


def test_a_table_is_not_made_when_its_rows_cannot_be(lab):
    with pytest.raises(errors.InvalidRecordError):
        lab.create_table("shop.unmade", {"id": "int"}, rows=[{"id": "x"}])
    with pytest.raises(errors.InvalidSchemaError):
        lab.create_table("shop.unmade")
    assert "unmade" not in lab.tables("shop")


# -- interrupts and what is shown ---------------------------------------------------------------------------------------


def test_no_lock_of_grpc_or_of_the_library_is_taken_where_an_interrupt_could_break_it(lab):
    """Every step of theirs on the main thread is watched: each must lie in a block that holds interrupts back."""
    with watched_steps() as steps, fl.Lab.open(lab.folder) as other:
        log = other.create_table("shop.watched_log", {"id": "bigint"}, buckets=2)
        keyed = other.create_table("shop.watched", {"id": "bigint"}, primary_key=["id"], buckets=2)
        log.append({"id": [*range(100)]})
        keyed.upsert({"id": [*range(100)]})
        with log.writer() as writer:
            writer.append({"id": [*range(5)]}).result()
            writer.flush()
        assert log.scan().count() == 105
        assert keyed.scan().to_arrow().num_rows == keyed.lookup({"id": [*range(100)]}).num_rows == 100
        assert keyed.lookup({"id": 7}).num_rows == 1
        with log.subscribe("earliest") as scanner:
            assert len(scanner.poll(10.0)) > 0
        assert log.changelog().to_arrow().num_rows == 105
        next(iter(keyed.scan().to_batches(5)))
        other.status()
        log.buckets()
    assert steps.seen > 1000
    assert steps.open == []


def test_what_is_dropped_or_closed_is_shown_all_the_same(lab):
    table = lab.create_table("shop.gone", {"id": "bigint"})
    other = fl.Lab.open(lab.folder)
    theirs = other.table("shop.gone")
    scan, writer, scanner = theirs.scan(), theirs.writer(), theirs.subscribe("latest")
    things = [table, theirs, scan, theirs.changelog(), writer, scanner]
    lab.drop_table("shop.gone")
    for thing in things:
        assert "shop.gone" in repr(thing)
        assert "shop.gone" in getattr(thing, "_repr_html_", thing.__repr__)()
    assert "does not exist" in repr(table)
    status = other.status()
    other.close()
    for thing in [*things, other, status, other.connection]:
        assert repr(thing)
        assert getattr(thing, "_repr_html_", thing.__repr__)()
    assert "closed" in other._repr_html_()


def test_labs_and_tables_are_not_pickled_and_it_is_said_what_to_do(lab, table):
    """As in a function of Spark that names one."""
    for each in (lab, table, table.scan(), table.changelog(), lab.connection):
        with pytest.raises(errors.UnsupportedError, match="is of the process that opened it"):
            pickle.dumps(each)
    point = table.read_point()
    assert pickle.loads(pickle.dumps(point)).to_json() == point.to_json()

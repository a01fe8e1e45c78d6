"""What Spark reads of primary-key tables, and by the data source `fluss` of any table, equals what Arrow reads."""

import os
import random
import re
import signal
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.compute as pc
import pytest

from fluss_lab.client import Connection
from fluss_lab.lake import lake_storage  # noqa: F401  # entry points are found before Spark's processes need them
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark import register
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.testing import EmbeddedCluster
from tests.spark.keyed_tables import COLUMNS, MONTHS, SYSTEM, Flights, agree
from tests.unit.read.kit import ModelTable, rows_of, same
from tests.unit.read.types import ALL_TYPES, all_types_rows

pytestmark = pytest.mark.spark

WANTED = [*COLUMNS, *SYSTEM]
CHANGE_ORDER = [("_partition", "ascending"), ("_bucket", "ascending"), ("_log_offset", "ascending")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock):
    with EmbeddedCluster(tmp_path_factory.mktemp("a lab [x] {y}") / "l ab", clock=clock) as running:
        yield running


@pytest.fixture(scope="module")
def session(spark, cluster):
    register(spark, place_options(cluster.connection.address))
    return spark


@pytest.fixture(scope="module")
def history(cluster, clock):
    """A table with rows in several lake snapshots and in the log, and the moments in between."""
    rng = random.Random(7)
    table = Flights(cluster, clock, "history")
    points, times = [], []
    for _ in range(3):
        table.write(rng, 60)
        points.append(table.reader().read_point())
        times.append(clock.now_ms() - 1)
        table.tier()
    table.write(rng, 50)
    points.append(table.reader().read_point())
    return table, points, times


def load(session, **options):
    return session.read.format("fluss").options(**{name.replace("_", "."): text for name, text in options.items()})


# -- primary-key tables -----------------------------------------------------------------------------------------------


def test_spark_equals_arrow_at_every_moment(session, history):
    table, points, times = history
    for point in (points[0], points[2], points[3]):
        agree(session, table.reader().scan(WANTED, read_point=point, with_source=True))
    agree(session, table.reader().scan(WANTED, as_of=times[1]))


@pytest.mark.parametrize(
    "asked",
    [
        {"where": "delay > 60 or not (ratio > 0) or dest like 'a''%'"},
        {"where": "ratio is nan or ratio = 0 or month = '2013/01 é' and dest is null", "partitions": ["2013/01 é"]},
        {"where": pc.field("dest").isin(["ATL", "BOS"]) & (pc.field("ratio") < float("inf")), "buckets": [1]},
        {"limit": 25},
        {"limit": 10, "where": "delay > 0"},
        {"limit": 0},
        {"where": "id < 0"},
        {"partitions": [], "buckets": []},
    ],
    ids=str,
)
def test_filters_limits_partitions_and_buckets(session, history, asked):
    agree(session, history[0].reader().scan(WANTED, **asked))


@pytest.mark.parametrize(("size_max", "in_file"), [("64mb", True), ("0b", False)])
def test_files_of_the_lake_are_the_jvm_s_to_read(session, cluster, history, size_max, in_file):
    table, points, _ = history
    options = {"client.spark.tail-file-size-max": size_max}
    with Connection(lambda: cluster.address, options) as connection:
        frame = agree(session, TableReader(connection, table.path).scan(WANTED, with_source=True))
    text = frame.where("delay > 60 and month = '2013-02'").select("dest")._jdf.queryExecution().toString()
    assert "GreaterThan(delay,60)" in text
    read = text.split("== Physical Plan ==")[1].split("ReadSchema: ")[1].splitlines()[0]
    assert "dest" in read
    assert "ratio" not in read
    # Rows that ended are left out by offset; the log's end is in a file, or read by tasks.
    assert "getbit" in text
    assert ("BatchScan fluss_lab_log" not in text) is in_file
    assert "BatchScan fluss[" not in text
    # What neither files nor the log's end have alone is merged by tasks.
    whole = scan_to_spark(session, table.reader().scan(WANTED, read_point=points[0]))
    assert "fluss_lab_log" not in whole._jdf.queryExecution().toString()


def test_a_frame_of_files_and_log_is_joined_cached_and_grouped_as_any_other(session, history):
    scan = history[0].reader().scan(["id", "month", "delay"])
    frame, rows = scan_to_spark(session, scan), scan.to_arrow().to_pylist()
    assert frame.join(frame, ["id", "month"]).count() == len(rows)
    found = {row["month"]: row["count"] for row in frame.groupBy("month").count().collect()}
    assert found == {month: sum(row["month"] == month for row in rows) for month in {row["month"] for row in rows}}
    kept = frame.cache()
    try:
        assert kept.count() == frame.where("true").count() == len(rows)
    finally:
        kept.unpersist()
    frame.createOrReplaceTempView("some_flights")
    assert session.sql("select count(*) from some_flights where id in (select id from some_flights)").first()[0] == len(
        rows
    )


def test_an_empty_file_is_no_table_without_rows(session, cluster, clock):
    table = Flights(cluster, clock, "emptied")
    table.write(random.Random(6), 40)
    table.tier()
    split = table.reader().scan().plan().splits[0]
    path = Path(unquote(urlsplit(split.path).path))
    data = path.read_bytes()
    path.write_bytes(b"")
    try:
        with pytest.raises(Exception, match=path.name):  # Spark's own, around ours
            scan_to_spark(session, table.reader().scan()).count()
    finally:
        path.write_bytes(data)


def test_narrow_scans_and_counts(session, history):
    reader = history[0].reader()
    frame = scan_to_spark(session, reader.scan(["dest"], "delay > 60"))
    assert sorted(map(str, frame.toArrow()["dest"].to_pylist())) == sorted(
        map(str, reader.scan(["dest"], "delay > 60").to_arrow()["dest"].to_pylist())
    )
    assert scan_to_spark(session, reader.scan(["__offset"])).count() == reader.scan().count()


@pytest.mark.parametrize("where", [pc.field("delay") + 1 > 5, "delay % 2 = 1 or upper(dest) = 'A'"], ids=str)
def test_what_a_filter_computes_is_sent_to_tasks(session, history, where):
    agree(session, history[0].reader().scan(WANTED, where))


def test_changelogs_of_every_change_and_net(session, history):
    table, points, _ = history
    reader = table.reader()
    for log in (
        reader.changelog(),
        reader.changelog(points[0], points[2], columns=["dest", "id"]),
        reader.changelog(points[1], net=True),
        reader.changelog("latest"),
    ):
        frame = changelog_to_spark(session, log)
        found, expected = frame.toArrow().sort_by(CHANGE_ORDER), log.to_arrow().sort_by(CHANGE_ORDER)
        assert found.column_names == expected.column_names
        assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in expected.to_pylist()]


@pytest.mark.parametrize("what", ["table", "partition"])
def test_a_changelog_of_what_was_made_again_says_so(session, cluster, clock, what):
    table, admin = Flights(cluster, clock, f"again_{what}"), cluster.connection.admin()
    table.write(random.Random(8), 40)
    table.tier()
    reader = table.reader()
    frames = [changelog_to_spark(session, reader.changelog(net=net)) for net in (False, True)]
    if what == "table":
        definition = table.info.descriptor
        admin.drop_table(table.path)
        admin.create_table(table.path, definition)
    else:
        admin.drop_partition(table.path, {"month": MONTHS[0]}, lake=True, discard_untiered=True)
    with cluster.connection.upsert_writer(table.path) as writer:
        writer.upsert(
            [dict.fromkeys(COLUMNS) | {"id": number, "month": month} for number in range(99) for month in MONTHS]
        )
    for frame in frames:
        with pytest.raises(Exception, match=f"{what.capitalize()}NotFoundError"):  # Spark's own, around ours
            frame.count()


def test_a_table_without_a_lake(session, cluster, clock):
    table = Flights(cluster, clock, "lakeless", lake=False)
    assert agree(session, table.reader().scan(WANTED)).count() == 0
    table.write(random.Random(2), 80)
    agree(session, table.reader().scan(WANTED, with_source=True))


def test_a_frame_gives_the_same_rows_when_all_has_moved(session, cluster, clock):
    rng = random.Random(3)
    table = Flights(cluster, clock, "moving")
    table.write(rng, 60)
    table.tier()
    table.write(rng, 40)
    scan = table.reader().scan(WANTED)
    expected = rows_of(scan.to_arrow())
    planned, unplanned = scan_to_spark(session, scan), scan_to_spark(session, scan)
    planned.count()
    for _ in range(2):
        table.tier()
        table.write(rng, 60)
    service = cluster.tablet()
    for status in cluster.connection.admin().buckets(table.info):
        service.snapshot_now(status.bucket)
    service.apply_retention(clock.now_ms() + 400 * 86_400_000)
    order = [("month", "ascending"), ("__bucket", "ascending"), ("__offset", "ascending")]
    for frame in (planned, unplanned):
        same(rows_of(frame.toArrow().sort_by(order)), expected)


def test_every_type_is_the_tables_own(session, cluster):
    path = TablePath("db", "keyed_types")
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    info = admin.create_table(
        path, make_descriptor(ALL_TYPES, primary_key=["id"], properties={"table.datalake.enabled": True})
    )
    with cluster.connection.upsert_writer(path) as writer:
        writer.upsert(all_types_rows(info, 30))
    Flights.tier(_Tierable(cluster, info))
    with cluster.connection.upsert_writer(path) as writer:
        writer.upsert(all_types_rows(info, 50).slice(20))
    scan = TableReader(cluster.connection, path).scan([*ALL_TYPES, *SYSTEM])
    frame = scan_to_spark(session, scan)
    order = [("__bucket", "ascending"), ("__offset", "ascending")]
    same(rows_of(frame.toArrow().sort_by(order)), rows_of(scan.to_arrow()))
    types = dict(frame.dtypes)
    assert (types["tiny"], types["chr"], types["tod0"], types["at3"]) == ("tinyint", "string", "time(0)", "timestamp")
    assert types["rec"] == "struct<x:tinyint,y:timestamp,z:array<time(0)>>"
    # The source itself gives TIME as Spark takes it from Arrow.
    plain = load(session, table=str(path)).load()
    assert dict(plain.dtypes)["tod0"] == "time(6)"
    assert plain.count() == 50


class _Tierable:
    def __init__(self, cluster, info):
        self.cluster = cluster
        self.info = info


def test_a_worker_that_dies_in_the_middle_changes_nothing(session, cluster, history):
    expected = history[0].reader().scan(WANTED).to_arrow()
    session.dataSource.register(dying(place_options(cluster.connection.address)))
    frame = session.read.format("dying").options(table=str(history[0].path), columns=",".join(WANTED)).load()
    found = frame.toArrow()
    order = [("month", "ascending"), ("__bucket", "ascending"), ("__offset", "ascending")]
    same(rows_of(found.sort_by(order)), rows_of(expected.sort_by(order)))


def dying(place):
    """Return the data source whose first attempts of tasks end by SIGKILL after their first batch."""
    from fluss_lab.spark.data_source import FlussDataSource
    from fluss_lab.spark.source.batch_reader import TableRowsReader

    class Dying(TableRowsReader):
        def read(self, partition):
            from pyspark import TaskContext

            for batch in super().read(partition):
                yield batch.slice(0, 1)
                if TaskContext.get().attemptNumber() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch.slice(1)

    class Source(FlussDataSource):
        defaults = place

        @classmethod
        def name(cls):
            return "dying"

        def reader(self, schema):
            return Dying(self._parse(schema), schema)

    return Source


# -- the data source --------------------------------------------------------------------------------------------------


def test_options_say_what_is_read(session, history):
    table, points, times = history
    name, reader = str(table.path), table.reader()
    frames = [
        (load(session).load(name), reader.scan()),
        (load(session, table=name, where="delay > 20 and dest = 'ATL'").load(), reader.scan(where="delay > 20 and dest = 'ATL'")),
        (load(session, table=name, columns="dest, __offset", with_source="true").load(), reader.scan(["dest", "__offset"], with_source=True)),
        (load(session, table=name, as_of=str(times[1])).load(), reader.scan(as_of=times[1])),
        (load(session, table=name, read_point=points[0].to_json()).load(), reader.scan(read_point=points[0])),
        (load(session, table=name, partitions='["2013-02"]', buckets="1", limit="7").load(), reader.scan(partitions=["2013-02"], buckets=[1], limit=7)),
        (load(session, table=name).schema("dest string, delay int").load(), reader.scan(["dest", "delay"])),
    ]  # fmt: skip
    for frame, scan in frames:
        expected = scan.to_arrow()
        assert frame.columns == expected.column_names
        assert sorted(map(repr, frame.toArrow().to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_a_log_table_and_its_changelog(session, cluster, clock):
    table = ModelTable(cluster, clock, "plain_log")
    table.append_random(random.Random(1), 80, ["2013-01", "2013-02"])
    table.tier()
    table.append_random(random.Random(2), 40, ["2013-02"])
    columns = ["id", "dest", *SYSTEM]
    found = load(session, table="db.plain_log", columns=",".join(columns)).load().toArrow()
    assert sorted(map(repr, found.to_pylist())) == sorted(
        map(repr, table.reader().scan(columns).to_arrow().to_pylist())
    )
    start = '{"2013-02/0": 1, "2013-02/2": 0}'
    log = table.reader().changelog({("2013-02", 0): 1, ("2013-02", 2): 0})
    changes = load(session, table="db.plain_log", changelog="true", start=start).load().toArrow()
    assert sorted(map(repr, changes.to_pylist())) == sorted(map(repr, log.to_arrow().to_pylist()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected the option table"),
        ({"table": "db.nothing"}, "TableNotFoundError"),
        ({"table": "db.history", "colums": "id"}, "no option 'colums'"),
        ({"table": "db.history", "columns": "nothing"}, "no column 'nothing'"),
        ({"table": "db.history", "where": "delay >"}, "InvalidFilterError"),
        ({"table": "db.history", "start": "earliest"}, "no option 'start'"),
        ({"table": "db.history", "changelog": "true", "where": "id = 1"}, "no option 'where'"),
        ({"table": "db.history", "changelog": "perhaps"}, "true or false"),
        ({"table": "db.history", "server": "127.0.0.1:1"}, "token.file"),
        ({"table": "db.history", "as.of": "soon"}, "ISO-8601"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_is_wrong_with_options_is_said(session, history, options, message):
    with pytest.raises(Exception, match=re.escape(message)):  # Spark's own, around ours
        session.read.format("fluss").options(**options).load().count()


def test_nothing_shows_the_token(session, cluster, history):
    token = cluster.connection.address.token
    frame = load(session, table="db.history").load()
    other = scan_to_spark(session, history[0].reader().scan())
    session.sql("create or replace temporary view shown using fluss options (table 'db.history')")
    named = load(session, table="db.history", server=str(cluster.connection.address), token=token).load()
    for each in (frame, other, named, session.table("shown")):
        assert token not in each._jdf.queryExecution().toString()
        assert token not in each._jdf.queryExecution().analyzed().toJSON()
    assert token not in str(session.sparkContext.getConf().getAll())
    assert token not in str(session.sql("set").collect())


def test_a_frame_s_rows_do_not_depend_on_what_was_asked_of_it_before(session, history):
    frame = load(session, table="db.history").load()
    total = history[0].reader().scan().count()
    some = history[0].reader().scan(where="delay > 60").count()
    assert frame.where("delay > 60").count() == some
    assert frame.count() == total
    assert frame.where("delay > 60").union(frame).count() == some + total


def test_tables_of_sparks_catalog_are_fresh_and_frames_stay(session, cluster, clock):
    table = Flights(cluster, clock, "fresh")
    table.write(random.Random(4), 50)
    session.sql("create table fresh_flights using fluss options (table 'db.fresh')")
    session.sql("create or replace temporary view fresh_view as select * from fresh_flights")
    session.sql("create or replace temporary view pinned_view using fluss options (table 'db.fresh')")
    before = table.reader().scan().count()
    names = ("fresh_flights", "fresh_view", "pinned_view")
    try:
        assert [_count(session, name) for name in names] == [before] * 3
        table.write(random.Random(5), 50)
        now = table.reader().scan().count()
        assert now != before
        assert [_count(session, name) for name in names] == [now, now, before]
        assert (
            session.sql("select count(*) from fresh_flights a join fresh_flights b using (id, month)").first()[0] == now
        )
    finally:
        session.sql("drop table fresh_flights")


def test_rows_of_one_table_are_never_written_into_it_where_another_was_meant(session, cluster, clock):
    source, target = Flights(cluster, clock, "insert_from"), Flights(cluster, clock, "insert_into")
    source.write(random.Random(6), 20)
    before, rows = source.reader().read_point(), source.reader().scan().count()
    session.sql("create table from_flights using fluss options (table 'db.insert_from')")
    session.sql("create table into_flights using fluss options (table 'db.insert_into')")
    session.sql("create or replace temporary view into_view using fluss options (table 'db.insert_into')")
    try:
        for write in (
            lambda: session.sql("insert into into_flights select * from from_flights"),
            lambda: session.sql("insert into into_flights values (1, '2013-02', 1, 1, 'ATL')"),
            lambda: session.table("from_flights").write.insertInto("into_flights"),
            lambda: session.table("from_flights").write.format("fluss").mode("append").save(),
        ):
            with pytest.raises(Exception, match=r"expected the option table.*found no options.*Write a frame"):
                write()
        session.sql("insert into into_view select * from from_flights")
        assert source.reader().read_point().stops == before.stops
        assert target.reader().scan().count() == rows
    finally:
        session.sql("drop table from_flights")
        session.sql("drop table into_flights")


def test_a_read_of_a_table_of_sparks_catalog_has_options_of_its_own(session, history):
    table, _, times = history
    session.sql("create table known_flights using fluss options (table 'db.history', where 'delay > 60')")
    try:
        found = session.read.option("as.of", str(times[0])).table("known_flights").count()
        assert found == table.reader().scan(as_of=times[0], where="delay > 60").count()
        assert (
            session.read.option("where", "id < 5").table("known_flights").count()
            == table.reader().scan(where="id < 5").count()
        )
        with pytest.raises(Exception, match="no option 'nope'"):
            session.read.option("nope", "1").table("known_flights").count()
    finally:
        session.sql("drop table known_flights")


def test_a_table_of_sparks_catalog_with_columns_of_its_own_is_refused_with_what_to_do(session, history):
    session.sql("create table with_columns (id int) using fluss options (table 'db.history')")
    try:
        with pytest.raises(Exception, match=r"CREATE TABLE with columns; leave the columns out"):
            _count(session, "with_columns")
    finally:
        session.sql("drop table with_columns")


def test_a_table_of_sparks_catalog_that_is_altered_there_says_what_to_do(session, history):
    session.sql("create table altered_there using fluss options (table 'db.history')")
    try:
        session.sql("alter table altered_there add column nowhere int")
        with pytest.raises(
            Exception, match=r"no column 'nowhere'.*changes Spark's catalog alone: drop that table there"
        ):
            session.table("altered_there").collect()
    finally:
        session.sql("drop table altered_there")


def _count(session, name):
    return session.sql(f"select count(*) from {name}").first()[0]

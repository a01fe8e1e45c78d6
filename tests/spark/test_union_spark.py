"""What Spark reads of a table equals what Arrow reads at the same point, types included."""

import math
import random
from datetime import UTC, date, datetime, time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import UnsupportedError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source.log_range_source import divide_ranges
from fluss_lab.spark.source.table_frame import changelog_by_tasks, changelog_to_spark, scan_by_tasks, scan_to_spark
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.repair.lake_repair import adopt
from fluss_lab.tiering.round.tiering_round import run_round
from tests.readers.audit import load_table
from tests.unit.read.kit import OPTIONS, SYSTEM, ModelTable, rows_of, same
from tests.unit.read.types import ALL_TYPES, all_types_rows

pytestmark = pytest.mark.spark

COLUMNS = ["id", "month", "delay", "ratio", "dest", *SYSTEM]


@pytest.fixture(scope="module")
def session(spark):
    return spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock):
    # Spark takes paths for patterns, and splits some at spaces.
    folder = tmp_path_factory.mktemp("a lab [x] {y}") / "l ab"
    with EmbeddedCluster(folder, options=OPTIONS, clock=clock) as running:
        yield running


def tier(cluster, info):
    run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)


def agree(session, scan, keys=("month", "__bucket", "__offset"), way=scan_to_spark, *, counts=True):
    """Check that Spark gives the scan's rows: values, order of columns, and types as Spark has them; and their number alone."""
    frame = way(session, scan)
    expected = scan.to_arrow()
    assert frame.columns == expected.column_names
    found = frame.toArrow()
    if all(key in found.column_names for key in keys):
        order = [(key, "ascending") for key in keys]
        found, expected = found.sort_by(order), expected.sort_by(order)
        same(rows_of(found), rows_of(expected))
    assert found.num_rows == expected.num_rows
    assert not counts or frame.count() == expected.num_rows
    return frame


def tasks_only(cluster):
    """A connection by which no tail of a log is short enough to be a file."""
    return Connection(lambda: cluster.address, {"client.spark.tail-file-size-max": "0b"})


@pytest.fixture(scope="module")
def history(cluster, clock):
    """A table with rows in whole files, in files that reach beyond a point, in two snapshots, and in the log."""
    rng = random.Random(20)
    table = ModelTable(cluster, clock, "history")
    months = ["2013/01 é", "2013-02"]
    points = []
    for _ in range(3):
        table.append_random(rng, 60, months)
        clock.advance(10)
        points.append(table.reader().read_point())
        table.append_random(rng, 40, months)
        clock.advance(10)
        table.tier()
    table.append_random(rng, 50, months)
    clock.advance(10)
    points.append(table.reader().read_point())
    return table, points


def test_spark_equals_arrow_at_every_read_point(session, history):
    table, points = history
    for point in points:
        agree(session, table.reader().scan(COLUMNS, read_point=point, with_source=True))
        agree(session, table.reader().scan(COLUMNS, read_point=point))


def test_tasks_that_read_the_log_give_the_same(session, history, cluster):
    table, points = history
    with tasks_only(cluster) as connection:
        for point in points[1:]:
            frame = agree(session, TableReader(connection, table.path).scan(COLUMNS, read_point=point))
        assert "fluss_lab_log" in frame._jdf.queryExecution().toString()
        log = TableReader(connection, table.path).changelog(points[0])
        assert changelog_to_spark(session, log).count() == log.to_arrow().num_rows


def test_a_limit_counts_rows_and_not_those_that_others_deleted_in_the_lake(session, tmp_path):
    with EmbeddedCluster(tmp_path / "lab", OPTIONS) as cluster:
        connection, path = cluster.connection, TablePath("db", "shorter")
        connection.admin().create_database("db")
        descriptor = make_descriptor({"id": "int"}, buckets=1, properties={"table.datalake.enabled": True})
        info = connection.admin().create_table(path, descriptor)
        for first in (0, 10):
            with connection.append_writer(path) as writer:
                writer.append([{"id": number} for number in range(first, first + 10)]).result()
            if first == 0:
                run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
        load_table(connection, path).delete("id < 4")
        adopt(connection, connection.lake_storage(), path)
        reader = TableReader(connection, path)
        for limit in (0, 3, 8, 16, 20):
            frame = agree(session, reader.scan(limit=limit))
            assert sorted(frame.toArrow()["id"].to_pylist()) == list(range(4, 20))[:limit]


@pytest.mark.parametrize(
    "where",
    [
        "delay > 60",
        "not (delay > 60) or dest is null",
        "ratio > 0",
        "not (ratio > 0)",
        "ratio != 2.25",
        "ratio not in (2.25, 0)",
        "ratio = 0",
        "ratio in (0, 2.25)",
        "ratio >= 0 and ratio <= 0",
        "ratio is nan",
        "ratio is not nan",
        "dest like 'A%' and month = '2013/01 é'",
        "dest not in ('A', 'B', null)",
        "dest not in ('A', 'B')",
        "delay < 20.5 and __offset >= 3 and __bucket != 1",
        "__timestamp < '2026-01-01T00:00:00.025Z'",
        pc.field("delay") > 60,
        pc.field("dest").isin(["A", "B"]) & (pc.field("ratio") < 1.0),
    ],
    ids=str,
)
def test_a_filtered_scan_gives_the_same_rows(session, history, where):
    table, points = history
    agree(session, table.reader().scan(COLUMNS, where, read_point=points[1]))
    agree(session, table.reader().scan(COLUMNS, where), counts=False)


@pytest.mark.parametrize(
    ("where", "count"),
    [("v = 0", 3), ("v in (0, 7)", 3), ("v >= 0", 3), ("v <= 0", 3), ("v != 0", 1), ("v not in (0)", 1), ("v != 1", 4)],
)
def test_a_zero_s_sign_and_nan_mislead_nobody_in_a_file(session, cluster, where, count):
    path = TablePath("db", "zeros")
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    definition = make_descriptor({"v": "double"}, properties={"table.datalake.enabled": True})
    info = admin.create_table(path, definition, if_not_exists=True)
    reader = TableReader(cluster.connection, path)
    if not reader.scan().count():
        with cluster.connection.append_writer(path) as writer:
            writer.append(pa.table({"v": [-0.0, -0.0, -0.0, float("nan"), None]}))
        tier(cluster, info)
    assert reader.scan(where=where).count() == count
    assert scan_to_spark(session, reader.scan(where=where)).count() == count


#: Zeros and NaN among nulls, and NaN beside one number: of each, a file.
ODD = [[-0.0, -0.0, -0.0, math.nan, None], [1.0, math.nan]]
#: By which statistics and dictionaries of files would leave rows out.
MISLEADING = ["{} > 5", "{} != 1", "{} = double('NaN')", "{} = 0", "{} in (0, 7)", "not ({} <= 1)", "{} is not null"]


ODD_SCHEMA = "id int, v double, f float, s struct<x: double, n: int, q: struct<y: float, t: string>>"
#: Fields of a row, and conditions of some; of each Spark reads no others.
FIELDS = ["s.n", "s.x", "s.q.t", "s.q.y, s.n", "s.q.t from {0} where s.n > 0", "id from {0} where s.q.t is null",
          "id from {0} where s is not null", "count(s.q.t)", "id from {0} where s.q.y > 0 and s.n < 2"]  # fmt: skip


def _odd_row(value, number):
    return {"x": value, "n": number, "q": {"y": value, "t": f"t{number}"} if number else None} if number < 4 else None


@pytest.fixture(scope="module", params=["log", "keyed"])
def odd_numbers(request, cluster):
    """The rows, and a reader of a table that has them in the lake."""
    path, key = TablePath("db", f"odd_{request.param}"), ["id"] if request.param == "keyed" else None
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    columns = {"id": "int", "v": "double", "f": "float", "s": "row<x double, n int, q row<y float, t string>>"}
    info = admin.create_table(
        path, make_descriptor(columns, primary_key=key, properties={"table.datalake.enabled": True})
    )
    rows = [
        [{"id": 10 * part + n, "v": v, "f": v, "s": _odd_row(v, n)} for n, v in enumerate(ODD[part])]
        for part in range(2)
    ]
    for part in rows:
        if key is None:
            with cluster.connection.append_writer(path) as appender:
                appender.append(part)
        else:
            with cluster.connection.upsert_writer(path) as upserter:
                upserter.upsert(part)
        tier(cluster, info)
    return rows[0] + rows[1], TableReader(cluster.connection, path)


@pytest.mark.parametrize("column", ["v", "f", "s.x"])
def test_a_zero_s_sign_and_nan_mislead_nobody_who_filters_a_frame(session, odd_numbers, column):
    rows, reader = odd_numbers
    expected = session.createDataFrame(rows, ODD_SCHEMA)
    frame = scan_to_spark(session, reader.scan())
    for condition in MISLEADING:
        found = frame.where(condition.format(column))
        assert found.count() == expected.where(condition.format(column)).count(), condition
        assert "BatchScan" not in found._jdf.queryExecution().toString(), "files are the JVM's to read"


def test_fields_of_a_row_are_what_they_are_in_the_whole_row(session, odd_numbers):
    """Rows with such numbers are read under a name of their own, which a scan of some fields alone would look for in the files."""
    rows, reader = odd_numbers
    scan_to_spark(session, reader.scan()).createOrReplaceTempView("odd")
    session.createDataFrame(rows, ODD_SCHEMA).createOrReplaceTempView("even")
    for fields in FIELDS:
        text = f"select {fields if ' from ' in fields else fields + ' from {0}'}"
        found, expected = (session.sql(text.format(name)).collect() for name in ("odd", "even"))
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), fields
    for name in ("odd", "even"):
        session.catalog.dropTempView(name)


@pytest.mark.parametrize(
    ("point", "asked"),
    [
        (3, {"where": "ratio != 2.25 and not (delay > 60) or dest is null", "with_source": True}),
        (1, {"where": "dest like 'A%' and month = '2013/01 é' and __offset >= 3"}),
        (3, {"partitions": ["2013-02"], "buckets": [0, 2], "limit": 25}),
    ],
    ids=str,
)
def test_tasks_read_a_log_table_as_the_jvm_does(session, history, point, asked):
    """As they do where the lake is an object store, which the JVM cannot open."""
    table, points = history
    agree(session, table.reader().scan(COLUMNS, read_point=points[point], **asked), way=scan_by_tasks)


def test_a_lake_in_an_object_store_is_read_by_tasks(session, tmp_path):
    """No JVM from PyPI opens one. The store is asked when something of it is read, which here is nothing."""
    with EmbeddedCluster(tmp_path / "lab", OPTIONS | {"datalake.iceberg.warehouse": "s3://nowhere/lake"}) as cluster:
        admin, path = cluster.connection.admin(), TablePath("db", "t")
        admin.create_database("db")
        admin.create_table(path, make_descriptor({"id": "int"}))
        with cluster.connection.append_writer(path) as writer:
            writer.append(pa.table({"id": pa.array([1, 2], pa.int32())}))
        reader = TableReader(cluster.connection, path)
        for frame in (scan_to_spark(session, reader.scan()), changelog_to_spark(session, reader.changelog())):
            assert "BatchScan fluss[" in frame._jdf.queryExecution().toString()
            assert sorted(frame.toArrow()["id"].to_pylist()) == [1, 2]


def test_days_that_no_java_sql_date_has_are_found_in_files(session, tmp_path):
    """Each in a file of its own. Seen: Spark asked files for 15 October 1582 where the 10th was wanted, and found no row."""
    days = [date(1582, 10, day) for day in (4, 5, 10, 14, 15)]
    with EmbeddedCluster(tmp_path / "lab", OPTIONS) as cluster:
        connection, path = cluster.connection, TablePath("db", "t")
        connection.admin().create_database("db")
        columns = {"id": "int", "d": "date", "l": "timestamp_ltz(6)", "r": "row<d date>"}
        lake = {"table.datalake.enabled": True, "table.datalake.auto-maintenance": False}
        info = connection.admin().create_table(path, make_descriptor(columns, properties=lake))
        for number, day in enumerate(days):
            moment = datetime.combine(day, time(1), UTC)
            with connection.append_writer(path) as writer:
                writer.append([{"id": number, "d": day, "l": moment, "r": {"d": day}}])
            tier(cluster, info)
        frame = scan_to_spark(session, TableReader(connection, path).scan())
        for number, day in enumerate(days):
            for column, value in ("d", f"date'{day}'"), ("r.d", f"date'{day}'"), ("l", f"timestamp'{day} 01:00:00Z'"):
                found = frame.where(f"{column} = {value}").toArrow()["id"].to_pylist()
                assert found == [number], (column, value)
                later = frame.where(f"{column} >= {value}").toArrow()["id"].to_pylist()
                assert sorted(later) == list(range(number, len(days))), (column, value)


def test_limits_columns_partitions_and_buckets(session, history):
    table, _ = history
    reader = table.reader()
    agree(session, reader.scan(COLUMNS, limit=75))
    agree(session, reader.scan(COLUMNS, "delay > 0", limit=40))
    agree(session, reader.scan(COLUMNS, limit=0))
    agree(session, reader.scan(COLUMNS, partitions=["2013-02"], buckets=[0, 2]))
    narrow = agree(session, reader.scan(["dest"], "delay > 100"))
    assert narrow.columns == ["dest"]
    assert agree(session, reader.scan(where="id < 0")).columns == COLUMNS[:5]


@pytest.mark.parametrize(
    "where",
    [
        pc.field("delay") + 1 > 5,
        ~(pc.utf8_length(pc.field("dest")) == 1) | (pc.field("delay") > 60),
        "delay + id > 20 and upper(dest) = 'A'",
        "not (delay % 2 = 0) or coalesce(ratio, 0) < delay",
        " or ".join(f"id = {n} or delay > {n + 50} and dest = 'A'" for n in range(120)),
    ],
    ids=lambda where: str(where)[:30],
)
def test_what_a_filter_computes_is_the_same_in_spark(session, history, where):
    table, _ = history
    agree(session, table.reader().scan(COLUMNS, where))


def test_what_is_computed_of_times_within_a_row_is_in_utc_whatever_the_session_s_zone(spark, cluster):
    session, path = spark.newSession(), TablePath("db", "inner_times")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    row = "row<at timestamp_ltz(3), tod time(0), x binary(2) not null>"
    info = admin.create_table(path, make_descriptor({"at": "timestamp_ltz(6)", "r": row, "m": f"map<int, {row}>"}))
    inner = [
        None if hour == 3 else {"at": datetime(2024, 3, 10, hour), "tod": time(hour), "x": b"ab"} for hour in range(24)
    ]
    rows = [{"at": each and each["at"], "r": each, "m": {1: each}} for each in inner]
    with cluster.connection.append_writer(path) as writer:
        writer.append(pa.Table.from_pylist(rows, info.schema.arrow_schema))
    reader, hour = TableReader(cluster.connection, path), pc.hour(pc.field("r", "at"))
    for where in (
        "day(r.at) = 10",
        "r.at = at",
        "cast(r.at as date) = '2024-03-10'",
        hour < 30,
        hour == pc.hour(pc.field("at")),
    ):
        assert scan_to_spark(session, reader.scan(where=where)).toArrow().num_rows == 23, where
    found = pc.map_lookup(pc.field("m"), pa.scalar(1, pa.int32()), "first").is_valid()
    assert scan_to_spark(session, reader.scan(where=found)).toArrow().num_rows == 23


@pytest.mark.parametrize(
    ("where", "count"),
    [("f = 1e999", 1), ("f >= 1e39", 1), ("f in (1, 'Infinity')", 2), ("f <= -1e39", 1),
     ("f = 16777217", 0), ("f >= 16777217", 2), ("f < 16777217", 4), ("f != 0.1", 7), ("f = cast(0.1 as float)", 1)],
)  # fmt: skip
def test_infinities_and_numbers_between_floats_are_compared_exactly(session, cluster, where, count):
    path = TablePath("db", "floats")
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    definition = make_descriptor({"f": "float"}, properties={"table.datalake.enabled": True})
    info = admin.create_table(path, definition, if_not_exists=True)
    reader = TableReader(cluster.connection, path)
    if not reader.scan().count():
        with cluster.connection.append_writer(path) as writer:
            values = [math.inf, -math.inf, math.nan, 0.1, 1.0, 2.0**24, 2.0**24 + 2, None]
            writer.append(pa.table({"f": pa.array(values, pa.float32())}))
        tier(cluster, info)
    assert reader.scan(where=where).count() == count
    assert scan_to_spark(session, reader.scan(where=where)).count() == count


def test_what_the_user_adds_is_pushed_to_the_files(session, history):
    table, _ = history
    plan = scan_to_spark(session, table.reader().scan()).where("id > 5 and month = '2013-02'").select("dest")
    text = plan._jdf.queryExecution().toString()
    assert "GreaterThan(id,5)" in text
    read = text.split("== Physical Plan ==")[1].split("ReadSchema: ")[1]
    assert "dest" in read.splitlines()[0]
    assert "ratio" not in read.splitlines()[0]


@pytest.mark.parametrize("readers", ["", "csv,orc"])
def test_files_are_read_whichever_readers_the_session_prefers(session, history, readers):
    table, _ = history
    expected = scan_to_spark(session, table.reader().scan()).count()
    before = session.conf.get("spark.sql.sources.useV1SourceList")
    session.conf.set("spark.sql.sources.useV1SourceList", readers)
    try:
        frame = scan_to_spark(session, table.reader().scan())
        assert session.conf.get("spark.sql.sources.useV1SourceList") == readers
        assert frame.count() == expected
    finally:
        session.conf.set("spark.sql.sources.useV1SourceList", before)


def test_records_that_leave_the_cluster_are_read_from_the_lake_by_the_same_frame(session, cluster, clock):
    table = ModelTable(cluster, clock, "leaving", partitioned=False)
    table.append_random(random.Random(1), 300, ["2013-01"])
    scan = table.reader().scan(COLUMNS)
    frame = scan_to_spark(session, scan)
    with tasks_only(cluster) as connection:
        other = scan_to_spark(session, TableReader(connection, table.path).scan(COLUMNS))
        table.tier()
        table.expire()
        assert all(status.start_offset > 0 for status in table.connection.admin().buckets(table.info))
        for each in (frame, other):
            found = each.toArrow().sort_by([("__bucket", "ascending"), ("__offset", "ascending")])
            same(rows_of(found), table.expected(table.ends))


def test_every_type_is_the_tables_own_from_files_and_log(session, cluster):
    path = TablePath("db", "types")
    cluster.connection.admin().create_database("db", if_not_exists=True)
    info = cluster.connection.admin().create_table(
        path, make_descriptor(ALL_TYPES, properties={"table.datalake.enabled": True})
    )
    reader = TableReader(cluster.connection, path)
    for count in (40, 20):
        with cluster.connection.append_writer(path) as writer:
            writer.append(all_types_rows(info, count))
        if count == 40:
            tier(cluster, info)
    frame = agree(session, reader.scan([*ALL_TYPES, *SYSTEM], with_source=True), ("__bucket", "__offset"))
    with tasks_only(cluster) as connection:
        scan = TableReader(connection, path).scan([*ALL_TYPES, *SYSTEM], with_source=True)
        assert agree(session, scan, ("__bucket", "__offset")).dtypes == frame.dtypes
    types = dict(frame.dtypes)
    assert {name: types[name] for name in ("tiny", "small", "chr", "fixed", "dec", "tod0", "ts0", "at3", "arr", "map")} == {
        "tiny": "tinyint", "small": "smallint", "chr": "string", "fixed": "binary", "dec": "decimal(10,2)",
        "tod0": "time(0)", "ts0": "timestamp_ntz", "at3": "timestamp", "arr": "array<tinyint>",
        "map": "map<string,smallint>",
    }  # fmt: skip
    assert types["rec"] == "struct<x:tinyint,y:timestamp,z:array<time(0)>>"
    by_tasks = agree(
        session, reader.scan([*ALL_TYPES, *SYSTEM], with_source=True), ("__bucket", "__offset"), scan_by_tasks
    )
    assert by_tasks.dtypes == frame.dtypes
    order = ["__bucket", "__offset"]
    same(rows_of(by_tasks.orderBy(*order).toArrow()), rows_of(frame.orderBy(*order).toArrow()))
    assert not any(field.metadata for field in frame.schema.fields)
    for where in ("tiny < 5", "tod0 > '12:00:00'", "dec = -99999999.99", "fixed > X'0a00'", "at < '1990-01-01T00:00:00Z'",
                  "ts0 = '2013-01-02T00:00:01'", "day < '2000-01-01'", "rec.x = 3", "flt >= 2", "flag",
                  "coalesce(at3, rec.y, '2013-01-05T00:00:00Z') < '2013-01-09T00:00:00Z' and ts >= ts0 and year(at) > 1961",
        "coalesce(tod, '12:00:00') > '11:00:00' and coalesce(tod0, '12:00:00') > '11:00:00' or dec * 2 > wide or "
        "rec.x + tiny > 120 or coalesce(fixed, X'0000') = X'0000' or flt + dbl is nan or bin < coalesce(bin, bin)",
    ):  # fmt: skip
        agree(session, reader.scan([*ALL_TYPES, *SYSTEM], where), ("__bucket", "__offset"), counts=False)


def test_times_finer_than_sparks_are_refused_by_name(session, cluster):
    path = TablePath("db", "fine")
    cluster.connection.admin().create_database("db", if_not_exists=True)
    cluster.connection.admin().create_table(path, make_descriptor({"id": "int", "t": "timestamp(9)"}))
    reader = TableReader(cluster.connection, path)
    with pytest.raises(UnsupportedError, match=r"column 't': TIMESTAMP\(9\)"):
        scan_to_spark(session, reader.scan())
    assert scan_to_spark(session, reader.scan(["id"])).count() == 0


def test_a_changelog_in_spark_equals_the_one_in_arrow(session, history):
    table, points = history
    for log in (
        table.reader().changelog(),
        table.reader().changelog(points[0], points[2], columns=["dest", "id"]),
        table.reader().changelog("latest"),
    ):
        expected = log.to_arrow()
        order = [("_partition", "ascending"), ("_bucket", "ascending"), ("_log_offset", "ascending")]
        frames = [way(session, log) for way in (changelog_to_spark, changelog_by_tasks)]
        assert frames[0].dtypes == frames[1].dtypes
        for frame in frames:
            assert frame.columns == expected.column_names
            found = frame.toArrow().sort_by(order)
            assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in expected.to_pylist()]


def test_a_column_that_somebody_renamed_in_the_lake_is_found_by_its_id(session, cluster, clock):
    table = ModelTable(cluster, clock, "renamed", partitioned=False)
    table.append_random(random.Random(5), 80, ["2013-01"])
    table.tier()
    lake = _iceberg(cluster, table.path)
    # Afterwards `dest` is called as `spot` was never called before, and another column takes its name.
    with lake.update_schema() as update:
        update.rename_column("dest", "spot")
    with lake.update_schema() as update:
        update.rename_column("delay", "dest")
    table.append_random(random.Random(6), 40, ["2013-01"])
    table.tier()
    table.append_random(random.Random(7), 20, ["2013-01"])
    for where in (None, "dest = 'A'", "delay > 60", "dest is null and delay is not null"):
        scan = table.reader().scan(COLUMNS, where)
        agree(session, scan, ("__bucket", "__offset"))
    places = table.reader().scan().source.lake_source.file_columns()
    assert not places["dest"].named
    assert not places["delay"].named
    assert places["id"].named


def _iceberg(cluster, path):
    from pyiceberg.catalog import load_catalog

    properties = dict(cluster.connection.lake_storage().properties)
    return load_catalog(properties.pop("name"), **properties).load_table((path.database, path.table))


def test_the_token_is_shown_nowhere(session, history, cluster):
    table, _ = history
    with tasks_only(cluster) as connection:
        frame = scan_to_spark(session, TableReader(connection, table.path).scan())
        text = frame._jdf.queryExecution().toString()
    assert "fluss_lab_log" in text
    assert cluster.address.token not in text


def test_ranges_are_packed_into_tasks():
    bucket = object()
    ranges = [LogRange(bucket, None, 0, 10), LogRange(bucket, None, 5, 3_000_000), LogRange(bucket, None, 0, 1)]
    tasks = divide_ranges(ranges, 2)
    assert sum(each.records for task in tasks for each in task) == 10 + 2_999_995 + 1
    assert max(sum(each.records for each in task) for task in tasks) <= 2_000_000
    assert len(tasks) == 2
    assert divide_ranges([], 2) == []
    assert [len(task) for task in divide_ranges([LogRange(bucket, None, 0, 10)] * 50, 4)] == [50]

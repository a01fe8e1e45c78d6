"""Lookup joins in SQL: any place of a statement, its names as they are, the same rows as Spark's own join gives."""

import contextlib
import io
import re

import pytest
from pyspark.errors import AnalysisException

from fluss_lab.errors import InvalidRequestError, NotFoundError, UnsupportedError
from fluss_lab.spark.source.lab_sql import run_statement, sql
from fluss_lab.workbench import Lab
from fluss_lab.workbench.notebook.sql_magic import run_cell

pytestmark = pytest.mark.spark

NOW = "for system_time as of proctime()"


def flight(number):
    tailnum = None if number % 11 == 0 else f"N{number % 70}"
    return {"id": number, "tailnum": tailnum, "year": 1990 + number % 7, "origin": ("JFK", "EWR", None)[number % 3]}


#: Columns, primary key, buckets, rows.
TABLES = {
    "nyc.planes": (
        {"tailnum": "string", "year": "int", "model": "string"}, ["tailnum"], 3,
        [{"tailnum": f"N{n}", "year": 1990 + n % 20, "model": f"m{n % 5}"} for n in range(0, 60, 2)],
    ),
    "nyc.airports": (
        {"faa": "string", "name": "string"}, ["faa"], 2, [{"faa": code, "name": f"airport {code}"} for code in ("JFK", "LGA")],
    ),
    "nyc.flights": (
        {"id": "int", "tailnum": "string", "year": "int", "origin": "string"}, None, 1, [flight(number) for number in range(100)],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    with Lab.open(tmp_path_factory.mktemp("sql") / "lab") as lab:
        lab.create_database("nyc")
        for path, (columns, key, buckets, given) in TABLES.items():
            table = lab.create_table(path, columns, primary_key=key, buckets=buckets)
            (table.append if key is None else table.upsert)(given)
        yield lab


@pytest.fixture(scope="module")
def joined_by_spark(spark):
    """Return the rows of a statement with Spark's own joins in place of lookup joins."""
    frames = {}
    for path, (columns, _, _, given) in TABLES.items():
        schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        frames[path] = spark.createDataFrame([tuple(row.values()) for row in given], schema)

    def run(text):
        text = re.sub(r"/\*\+.*?\*/", "", text.replace(NOW, ""), flags=re.DOTALL)
        return rows(sql(spark, text, lambda parts: frames.get(".".join(parts))))

    return run


def rows(frame):
    return frame.columns, sorted(map(tuple, frame.collect()), key=repr)


def functions(lab):
    return {row[0] for row in lab.spark.sql("show functions").collect()}


def plan(frame):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


SHUFFLED = "/*+ LOOKUP('table'='p', 'shuffle'='true') */"


@pytest.mark.parametrize(
    "text",
    [
        f"select {SHUFFLED} f.*, p.model from nyc.flights f left join nyc.planes {NOW} as p on f.tailnum = p.tailnum",
        # What ON says of the match, beside the key.
        f"select * from nyc.flights f left join nyc.planes {NOW} p on p.tailnum = f.tailnum and (p.year < f.year + 5 or model = 'm1')",
        f"select {SHUFFLED} * from nyc.flights f join nyc.planes {NOW} p on (p.tailnum) = f.tailnum and p.year <=> f.year where f.id > 3",
        # Tables without an alias are known by their paths.
        f"select nyc.flights.id, planes.*, nyc.planes.year y from nyc.flights left join nyc.planes {NOW} on nyc.flights.tailnum = planes.tailnum",
        # Names that only one side has need no qualifier.
        f"select id, model, count(*) from nyc.flights f join nyc.planes {NOW} p on concat('N', id) = p.tailnum group by id, model",
        # Several lookup joins, each with a shuffle of its own, and another join behind them.
        f"""select /*+ LOOKUP('table'='p', 'shuffle'='true'), LOOKUP('table'='a', 'shuffle'='true'), BROADCAST(o) */ f.id, p.model, a.*, o.year
            from nyc.flights f left join nyc.planes {NOW} p on f.tailnum = p.tailnum left join nyc.airports {NOW} a on a.faa = f.origin
            join nyc.planes o on o.tailnum = p.tailnum and o.model = p.model order by 1""",
        # The left side is a query, with what WITH names; the result is joined with itself.
        f"""with g as (select id, tailnum as t from nyc.flights where id < 50), unused as (select 1),
            h as (select {SHUFFLED} g.t, model from g join nyc.planes {NOW} p on g.t = p.tailnum)
            select h.*, i.model from h join h i using (t)""",
        f"select count(*), max(name) from (select upper(origin) o from nyc.flights) f left join nyc.airports {NOW} a(code, name) on code = o",
        # Several tables left of it, two with columns of one name; a comma begins a new left side.
        f"""select f.id, g.id, model from nyc.airports b, nyc.flights f join nyc.flights g on f.id = g.id + 1
            left join nyc.planes {NOW} p on f.tailnum = p.tailnum and g.year > p.year where b.faa = f.origin""",
        # In a subquery that knows the outer query's columns, in a union, and in brackets.
        f"select id from nyc.flights o where exists (select 1 from nyc.flights f join nyc.planes {NOW} p on f.tailnum = p.tailnum where f.id = o.id)",
        f"""select model from nyc.flights f join nyc.planes {NOW} p on f.tailnum = p.tailnum union
            select name from (nyc.flights f join nyc.airports {NOW} a on a.faa = f.origin)""",
        # A key that is no column alone, and conditions alone on either side.
        f"select f.id, p.year from nyc.flights f left join nyc.planes {NOW} p on p.tailnum = 'N4' and f.id < 50 and p.year > 1900 and f.year = p.year",
        # Keys that are not unique: some rows of the table for each row of the stream, or none.
        f"select f.id, p.tailnum from nyc.flights f left join nyc.planes {NOW} p on f.year = p.year and p.model > 'm' || f.id % 5",
    ],
)  # fmt: skip
def test_rows_are_those_of_spark_s_own_join(lab, joined_by_spark, text):
    before = functions(lab)
    found = lab.sql(text)
    assert functions(lab) == before
    assert "lookup nyc." in plan(found)
    assert rows(found) == joined_by_spark(text)


def test_a_plan_says_how_each_join_is_distributed_and_why(lab):
    text = f"select {{}} p.model, a.name from nyc.flights f join nyc.planes {NOW} p on f.tailnum = p.tailnum join nyc.airports {NOW} a on f.origin = a.faa"
    shown = plan(
        lab.sql(
            text.format("/*+ LOOKUP('table'='p', 'shuffle'='true', 'mode'='remote', 'lookup.cache.max-rows'='5') */")
        )
    )
    assert "lookup nyc.planes by tailnum [custom shuffle" in shown
    assert "remote" in shown
    assert "lookup nyc.airports by faa [no shuffle" in shown or "lookup nyc.airports by faa [shuffle not asked" in shown


def test_a_hint_or_the_session_says_how_a_stream_of_changes_is_distributed(lab):
    lab.table("nyc.flights").stream().createOrReplaceTempView("changes")
    strategy = "table.optimizer.non-deterministic-update.strategy"
    text = f"select /*+ LOOKUP('table'='p', 'shuffle'='true', 'tasks'='3'{{}}) */ p.model from changes f join nyc.planes {NOW} p on f.tailnum = p.tailnum"

    def shown(option=""):
        return re.search(r"lookup nyc.planes by tailnum \[(\w+) shuffle", plan(lab.sql(text.format(option))))[1]

    assert shown() == "custom"
    assert shown(f", '{strategy}'='TRY_RESOLVE'") == "hash"
    lab.sql(f"set `{strategy}`=TRY_RESOLVE")
    try:
        assert shown() == "hash"
        assert shown(f", '{strategy}'='IGNORE'") == "custom"
    finally:
        lab.spark.conf.unset(strategy)


def test_what_is_ignored_of_a_hint_is_said_to_who_wrote_it(lab):
    text = f"""select /*+ LOOKUP('table'='p', 'shufle'='true', 'mode'='fast'), LOOKUP('table'='q') */ count(p.model)
        from nyc.flights f join nyc.planes {NOW} p on f.tailnum = p.tailnum"""
    with pytest.warns(UserWarning, match="LOOKUP") as warned:
        found = lab.sql(text)
    assert [each.filename for each in warned] == [__file__] * 3
    assert "those known are table, shuffle, " in str(warned[0].message)
    assert "lookup.cache.max-rows" in str(warned[0].message)
    assert found.first()[0] == lab.sql(text[text.index("*/") + 2 :].join(["select", ""])).first()[0]
    with pytest.warns(UserWarning, match="there is no lookup join beside it"):
        assert (
            lab.spark.sql("select /*+ LOOKUP('table'='p'), COALESCE(1) */ count(*) from nyc.flights").first()[0] == 100
        )


def test_moments_of_a_statement_are_those_of_its_lookups(lab):
    table = lab.create_table("nyc.moved", {"tailnum": "string", "model": "string"}, primary_key=["tailnum"])
    table.upsert([{"tailnum": "N1", "model": "old"}])
    point = table.read_point()
    text = f"select p.model from nyc.flights f join nyc.moved {NOW} p on f.tailnum = p.tailnum where f.id = 1"
    first = lab.sql(text)
    table.upsert([{"tailnum": "N1", "model": "new"}])
    assert first.collect() == [("old",)]
    assert lab.sql(text).collect() == [("new",)]
    assert lab.sql(text, read_points={"nyc.moved": point}).collect() == [("old",)]
    assert lab.sql(text, as_of=point.moment_ms).collect() == [("old",)]
    at = f"for system_time as of timestamp_millis({point.moment_ms})"
    hinted = text.replace(NOW, at).replace("select", "select /*+ LOOKUP('table'='p') */")
    found = lab.sql(hinted)
    assert "lookup nyc.moved" in plan(found)
    assert found.collect() == [("old",)]
    asked = []

    def scan_of(path):
        asked.append(str(path))
        return lab.table(path).scan

    twice = f"select * from nyc.moved m join nyc.moved {NOW} p on m.tailnum = p.tailnum"
    run_statement(scan_of, lab.spark, twice, None, {})
    assert asked == ["nyc.moved"]
    with pytest.raises(InvalidRequestError, match=r"nyc\.airports, which the statement does not name"):
        lab.sql(text, read_points={"nyc.airports": point})


def test_streams_are_joined(lab, tmp_path):
    flights = lab.create_table("nyc.stream", {"id": "int", "tailnum": "string"})
    flights.append([{"id": number, "tailnum": f"N{number}"} for number in range(10)])
    flights.stream().createOrReplaceTempView("incoming")
    text = f"""create or replace temporary view enriched as select {SHUFFLED} f.id, p.model from incoming f
        left join nyc.planes {NOW} p on f.tailnum = p.tailnum and p.year > 1991"""
    lab.sql(text)
    found = []
    query = lab.spark.table("enriched").writeStream.foreachBatch(
        lambda batch, _: found.extend(map(tuple, batch.collect()))
    )
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert sorted(found) == [(n, f"m{n % 5}" if n % 2 == 0 and 1990 + n % 20 > 1991 else None) for n in range(10)]


def test_a_view_of_lookup_joins_that_is_made_anew_leaves_no_functions(lab):
    session = lab.spark
    registry = session._jsparkSession.sessionState().tableFunctionRegistry()
    text = f"""create or replace temporary view twice as select f.id, q.model from nyc.flights f
        join nyc.planes {NOW} p on concat(f.tailnum, '') = p.tailnum join nyc.planes {NOW} q on p.tailnum = q.tailnum"""
    before = registry.listFunction().size()
    counts = []
    for _ in range(2):
        lab.sql(text)
        counts.append((session.table("twice").count(), registry.listFunction().size()))
    assert counts[0] == counts[1]
    lab.sql("create or replace temporary view twice as select 1 as id")
    assert registry.listFunction().size() == before
    session.catalog.dropTempView("twice")


def test_every_way_to_run_a_statement_knows_lookup_joins(lab):
    text = (
        f"select count(p.model) n from nyc.flights f join nyc.planes {NOW} p on f.tailnum = p.tailnum and f.id < {{}}"
    )
    expected = lab.sql(text.format(50)).first()[0]
    assert lab.spark.sql(text.format("50")).first()[0] == expected
    where = text.replace(" and f.id < {}", " where f.id < :most")
    assert lab.spark.sql(where, args={"most": 50}).first()[0] == expected
    inner = where.replace("nyc.flights f", "(select * from nyc.flights where id < ?) f").replace(
        "f.id < :most", "f.id >= ?"
    )
    assert lab.spark.sql(inner, args=[50, 0]).first()[0] == expected
    assert lab.spark.sql(inner, args=[50, 50]).first()[0] == 0
    assert run_cell("", text.format(50), {"lab": lab})["n"].tolist() == [expected]
    assert "lookup nyc.planes" in lab.sql(f"explain {text.format(50)}").first()[0]


@pytest.mark.parametrize(
    ("join", "error", "words"),
    [
        ("left join nyc.planes {} p on f.year < p.year", InvalidRequestError,
         r"nyc\.planes: ON has no equality .*ON stream\.column = p\.tailnum, found f\.year < p\.year"),
        ("join nyc.planes {} p on f.tailnum = p.nope", InvalidRequestError, "no column 'nope'; its columns are tailnum, year, model"),
        ("join nyc.planes {} p on tailnum = p.tailnum", InvalidRequestError, "tailnum may be a column of f or of p; write which"),
        ("join nyc.planes {} p on f.tailnum = p.tailnum and p.year in (select 1)", UnsupportedError, "a subquery in ON is not offered"),
        ("join nyc.planes {} p(a, b) on f.tailnum = p.a", InvalidRequestError, "its alias names 2 columns; it has 3: tailnum, year, model"),
        ("join nyc.nothing {} p on f.tailnum = p.tailnum", NotFoundError, r"nyc\.nothing"),
        ("join planes {} p on f.tailnum = p.tailnum", InvalidRequestError, r"lookup join with planes: expected a table of the lab"),
        ("join nyc.flights {} p on f.tailnum = p.tailnum", UnsupportedError, r"nyc\.flights has no primary key"),
        ("join nyc.planes {} p on f.id = p.tailnum", UnsupportedError, "cast"),
        ("join nyc.planes {} p on f.nope = p.tailnum", AnalysisException, "UNRESOLVED_COLUMN.*f`.`nope"),
    ],
)  # fmt: skip
def test_a_join_that_cannot_be_has_one_clear_error(lab, join, error, words):
    before = functions(lab)
    with pytest.raises(error, match=words):
        lab.sql(f"select * from nyc.flights f {join.format(NOW)}")
    assert functions(lab) == before

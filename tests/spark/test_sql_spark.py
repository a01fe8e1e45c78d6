"""Spark SQL over tables that only `resolve` knows, written in every way that SQL allows."""

import pytest
from pyspark.errors import AnalysisException

from fluss_lab.spark.source.lab_sql import sql
from fluss_lab.spark.temporary_relations import each_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark):
    return spark


@pytest.fixture
def asked():
    return []


@pytest.fixture
def run(session, asked):
    frames = {
        ("nyc", "flights"): session.createDataFrame([(1, "JFK"), (2, "LGA"), (3, "JFK")], "id int, origin string"),
        ("nyc", "planes"): session.createDataFrame([(1, "Boeing"), (3, "Airbus")], "id int, maker string"),
        ("old", "flights"): session.createDataFrame([(2, "BOS"), (4, "SFO")], "id int, origin string"),
    }

    def resolve(parts):
        asked.append(tuple(parts))
        return frames.get(tuple(parts))

    return lambda text: [tuple(row) for row in sql(session, text, resolve).collect()]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select count(*) from nyc.flights", [(3,)]),
        ("select * from nyc.flights where id = 2", [(2, "LGA")]),
        ("select flights.id from nyc.flights where flights.origin = 'LGA'", [(2,)]),
        ("select nyc.flights.id from nyc.flights where nyc.flights.origin = 'LGA'", [(2,)]),
        ("select nyc.flights.* from nyc.flights where nyc.flights.id = 2", [(2, "LGA")]),
        ("select f.id from nyc.flights f where f.id = 2", [(2,)]),
        ("select f.id from nyc.flights as f where f.id = 2", [(2,)]),
        ("select x.a from nyc.flights as x(a, b) where b = 'LGA'", [(2,)]),
        ("select `flights`.id from `nyc`.`flights` where `nyc`.flights.`id` = 2", [(2,)]),
        ("select id from nyc . flights where id = 2", [(2,)]),
        ("select 'nyc.flights' as e, count(*) -- nyc.flights\nfrom /* nyc.flights 😀 */ nyc.flights", [("nyc.flights", 3)]),
        ("select '😀', id from nyc.flights where id = 2", [("😀", 2)]),
        ("select f.id, maker from nyc.flights f join nyc.planes p on f.id = p.id order by 1", [(1, "Boeing"), (3, "Airbus")]),
        ("select flights.id from nyc.flights join nyc.planes on flights.id = planes.id order by 1", [(1,), (3,)]),
        ("select count(*) from nyc.flights a, nyc.flights b", [(9,)]),
        ("select id from nyc.flights where id in (select id from nyc.planes) order by 1", [(1,), (3,)]),
        ("select (select max(id) from nyc.planes), exists (select 1 from nyc.planes where maker = 'x')", [(3, False)]),
        ("with t as (select * from nyc.flights) select count(*) from t join nyc.planes using (id)", [(2,)]),
        ("with t as (with u as (select id from nyc.flights) select * from u) select max(id) from t", [(3,)]),
        ("select count(*) from (select id from nyc.flights union all select id from nyc.planes)", [(5,)]),
        ("select count(*) from nyc.flights tablesample (2 rows)", [(2,)]),
        ("select flights.id from nyc.flights tablesample (100 percent) repeatable (3) where id = 2", [(2,)]),
        ("select count(*) from nyc.flights tablesample (100 percent) f", [(3,)]),
        ("select s.maker from nyc.flights f, lateral (select maker from nyc.planes p where p.id = f.id) s order by 1",
         [("Airbus",), ("Boeing",)]),
        ("select id, count(*) over () from nyc.flights order by nyc.flights.id limit 1", [(1, 3)]),
        ("table nyc.planes", [(1, "Boeing"), (3, "Airbus")]),
        ("from nyc.flights |> where id = 2 |> select id", [(2,)]),
        ("select nyc.flights.* except (origin), p.* except (id) from nyc.flights join nyc.planes p using (id) order by 1",
         [(1, "Boeing"), (3, "Airbus")]),
        ("select transform(array(1), x -> x + nyc.flights.id) from nyc.flights where id = 2", [([3],)]),
        ("select sum(id) over w s from nyc.flights window w as (partition by nyc.flights.origin order by nyc.flights.id) order by s",
         [(1,), (2,), (4,)]),
        ("select id from nyc.flights where nyc.flights.id = 2 cluster by nyc.flights.id", [(2,)]),
        ("select id from nyc.flights where nyc.flights.origin like any ('x%', 'L%')", [(2,)]),
        ("select ( /* ( */ nyc /* . */ . flights.origin) from nyc.flights where (nyc.flights.id) = 2", [("LGA",)]),
        ("from nyc.flights |> aggregate count(*) as n group by nyc.flights.origin |> order by n", [("LGA", 1), ("JFK", 2)]),
        ("from nyc.flights |> set origin = nyc.flights.id + 1 |> where id = 2", [(2, 3)]),
        ("from nyc.flights |> set id = (select max(nyc.planes.id) from nyc.planes) |> where origin = 'LGA'", [(3, "LGA")]),
        ("select sum(id) over w from nyc.flights window w as (order by (select max(nyc.planes.id) from nyc.planes)) limit 1", [(6,)]),
        ("select * except (nyc.flights.id) from nyc.flights where id = 2", [("LGA",)]),
        ("select * except (nyc.flights.id, p.id) from nyc.flights join nyc.planes p on nyc.flights.id = p.id where p.id = 3",
         [("JFK", "Airbus")]),
        ("select transform(array(1), flights -> flights + nyc.flights.id) from nyc.flights where id = 2", [([3],)]),
        ("select transform(array(struct(struct(7 as id) as flights)), nyc -> nyc.flights.id) from nyc.flights where id = 2", [([7],)]),
        ("select NYC.Flights.id from nyc.flights where nyc.FLIGHTS.origin = 'LGA'", [(2,)]),
        ("select 1", [(1,)]),
    ],
)  # fmt: skip
def test_tables_are_known_by_their_paths(session, run, text, rows):
    before = {each.name for each in session.catalog.listTables()}
    assert run(text) == rows
    assert {each.name for each in session.catalog.listTables()} == before


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select nyc.flights.id from nyc.flights where exists (select 1 from old.flights where old.flights.id = nyc.flights.id)",
         [(2,)]),
        ("select nyc.flights.id from nyc.flights where nyc.flights.id in (select old.flights.id from old.flights where "
         "old.flights.origin <> nyc.flights.origin)", [(2,)]),
        ("select nyc.flights.origin, old.flights.origin from nyc.flights join old.flights on nyc.flights.id = old.flights.id",
         [("LGA", "BOS")]),
        ("select old.flights.*, o.id from nyc.flights join old.flights using (id) join old.flights o using (id)", [(2, "BOS", 2)]),
        ("select id from nyc.flights where exists (select 1 from nyc.planes as flights where flights.id = nyc.flights.id) order by 1",
         [(1,), (3,)]),
        ("with flights as (select 3 as id) select nyc.flights.origin from nyc.flights where nyc.flights.id in (select flights.id from flights)",
         [("JFK",)]),
        ("select flights.id from nyc.flights where nyc.flights.id = 1 union all select flights.id from old.flights where "
         "old.flights.id = 4 order by 1", [(1,), (4,)]),
        ("select count(*) from nyc.flights where nyc.flights.id = (select max(nyc.flights.id) from nyc.flights, old.flights)", [(1,)]),
        ("select nyc.flights.id from nyc.flights as flights where nyc.flights.id = 2", [(2,)]),
        ("select nyc.flights.id, old.flights.id from nyc.flights tablesample (100 percent) repeatable (3) join old.flights "
         "on nyc.flights.id = old.flights.id", [(2, 2)]),
        ("select count(nyc.flights.id), count(distinct old.flights.id) from nyc.flights tablesample (2 rows), "
         "old.flights tablesample /* ( */ (1 rows)", [(2, 1)]),
    ],
)  # fmt: skip
def test_tables_of_one_name_in_several_databases_are_distinguished(session, run, text, rows):
    before = {each.name for each in session.catalog.listTables()}
    assert run(text) == rows
    assert {each.name for each in session.catalog.listTables()} == before


@pytest.mark.parametrize(
    "text",
    [
        "select nyc.flights.id from nyc.flights f, old.flights",
        "select nyc.flights.id from old.flights where exists (select 1 from nyc.flights)",
        "select nyc.flights.nope from nyc.flights tablesample (2 rows), old.flights",
        "select flights.id from nyc.flights, old.flights where nyc.flights.id = old.flights.id",
    ],
)
def test_a_column_of_no_table_or_of_two_is_an_error(run, text):
    with pytest.raises(AnalysisException, match=r"UNRESOLVED_COLUMN|AMBIGUOUS_REFERENCE"):
        run(text)


def test_a_table_is_asked_for_once(run, asked):
    run("select * from nyc.flights a join nyc.flights b on a.id = b.id where a.id in (select id from nyc.flights)")
    assert asked == [("nyc", "flights")]


def test_tables_are_described_and_explained(run):
    for text in ("describe nyc.flights", "describe query select * from nyc.flights"):
        assert [row[:2] for row in run(text)] == [("id", "int"), ("origin", "string")]
    for text in ("show columns in nyc.flights", "show columns from flights in nyc"):
        assert run(text) == [("id",), ("origin",)]
    assert "Physical Plan" in run("explain select * from nyc.flights")[0][0]


def test_tables_are_cached_and_no_more(run):
    for text in ("cache lazy table nyc.flights", "uncache table nyc.flights", "uncache table if exists nyc.flights"):
        assert run(text) == []


def test_scripts_read_tables(run):
    assert run("begin declare x int default 2; select origin from nyc.flights where nyc.flights.id = x; end") == [
        ("LGA",)
    ]


def test_a_view_made_of_a_table_goes_on_working(session, run):
    run("create or replace temporary view mine as select id from nyc.flights where nyc.flights.id > 1")
    try:
        assert sorted(run("select id from mine")) == [(2,), (3,)]
        assert run("select count(*) from mine join nyc.planes using (id)") == [(1,)]
    finally:
        session.catalog.dropTempView("mine")
        for each in session.catalog.listTables():
            if each.name.startswith("__fluss_lab_"):
                session.catalog.dropTempView(each.name)


def _private_views(session):
    return [each.name for each in session.catalog.listTables() if each.name.startswith("__fluss_lab_")]


def test_a_view_made_anew_leaves_nothing_of_what_it_was(session, run):
    other = "create temporary view other as select o.id from old.flights o, nyc.flights where nyc.flights.id = 2"
    try:
        run(other)
        for text in ("select id from nyc.flights", "select p.id from nyc.planes p, nyc.flights f where p.id = f.id"):
            run(f"create or replace temporary view mine as {text}")
            found = run("select count(*) from mine")
        assert found == [(2,)]
        with pytest.raises(AnalysisException):
            run("create temporary view mine as select id from old.flights")
        assert len(_private_views(session)) == 4
        run("create or replace temporary view mine as select 1 as id")
        assert len(_private_views(session)) == 2
        assert run("select * from other order by 1") == [(2,), (4,)]
    finally:
        for name in ("mine", "other", *_private_views(session)):
            session.catalog.dropTempView(name)


def _private_functions(session):
    names = (
        str(each.funcName())
        for each in each_of(session._jsparkSession.sessionState().tableFunctionRegistry().listFunction())
    )
    return [name for name in names if name.startswith("__fluss_lab_")]


def test_a_view_of_tables_of_one_name_that_is_made_anew_leaves_no_functions(session, run):
    text = "select nyc.flights.id from nyc.flights join old.flights on nyc.flights.id = old.flights.id"
    before = len(_private_functions(session))
    try:
        for _ in range(3):
            run(f"create or replace temporary view mine as {text}")
            assert run("select * from mine") == [(2,)]
        assert len(_private_functions(session)) == before + 2
        run("create or replace temporary view mine as select 1 as id")
        assert len(_private_functions(session)) == before
    finally:
        for name in ("mine", *_private_views(session)):
            session.catalog.dropTempView(name)


def test_what_resolve_does_not_know_goes_to_spark(session, run, asked):
    session.range(3).createOrReplaceTempView("numbers")
    try:
        assert run("select count(*) from numbers") == [(3,)]
        assert run("select count(*) from numbers join nyc.flights using (id)") == [(2,)]
    finally:
        session.catalog.dropTempView("numbers")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        run("select * from nyc.nothing")
    assert ("nyc", "nothing") in asked


@pytest.mark.parametrize(
    ("text", "words"),
    [("select (1 from nyc.flights", "PARSE_SYNTAX_ERROR"), ("select nope from nyc.flights", "UNRESOLVED_COLUMN")],
)
def test_errors_are_sparks_own_and_leave_nothing_behind(session, run, text, words):
    with pytest.raises(Exception, match=words):
        run(text)
    assert not [each.name for each in session.catalog.listTables() if each.name.startswith("__fluss_lab_")]

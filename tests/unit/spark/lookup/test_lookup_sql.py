"""Statements with lookup joins, as written in many ways: what is found in them, and that the rest stays as it is typed."""

import ast
import functools
import re
from pathlib import Path

import pytest

from fluss_lab.errors import InvalidRequestError, UnsupportedError
from fluss_lab.spark.lookup.lookup_sql import parse_statement, with_named_parameters

NOW = "for system_time as of proctime()"
TESTS = Path(__file__).parents[3]


def parts(text):
    """Return each join's left side and the statement, with the joins made before it as J1(), J2()..."""
    statement = parse_statement(text)
    made = []
    lefts = []
    for number, join in enumerate(statement.joins, start=1):
        lefts.append(statement.render(join.left, made))
        made.append((join.place, f"J{number}()"))
    return lefts, statement.render(None, made)


@pytest.mark.parametrize(
    ("text", "lefts", "rest"),
    [
        (f"select f.*, p.model from f left join nyc.planes {NOW} as p on f.tailnum = p.tailnum", ["f"], "select f.*, p.model from J1()"),
        (f"select * from nyc.flights f JOIN nyc.planes {NOW.upper()} p ON (f.t = p.t) where x", ["nyc.flights f"], "select * from J1() where x"),
        (f"select * from (select * from g) f inner join nyc.p {NOW} on f.t = p.t and (p.x or p.y) order by 1",
         ["(select * from g) f"], "select * from J1() order by 1"),
        (f"select * from f join nyc.p {NOW} p on f.t = p.t left outer join nyc.q {NOW} q on p.z = q.z limit 3", ["f", "J1()"], "select * from J2() limit 3"),
        (f"select * from f join c on f.c = c.c join nyc.p {NOW} on f.t = p.t join d using (d)",
         ["f join c on f.c = c.c"], "select * from J1() join d using (d)"),
        (f"select * from a, f join nyc.p {NOW} on f.t = p.t, b", ["f"], "select * from a, J1(), b"),
        (f"select * from (f join nyc.p {NOW} on f.t = p.t) join c on c.x = p.x", ["f"], "select * from (J1()) join c on c.x = p.x"),
        (f"select * from c join (f join nyc.p {NOW} on f.t = p.t) on c.x = p.x", ["f"], "select * from c join (J1()) on c.x = p.x"),
        (f"select * from c join f join nyc.p {NOW} on f.t = p.t on c.x = p.x", ["f"], "select * from c join J1() on c.x = p.x"),
        (f"from f join nyc.p {NOW} on f.t = p.t select p.x", ["f"], "from J1() select p.x"),
        (f"select x from (select * from f join nyc.p {NOW} on f.t = p.t) g join nyc.q {NOW} on g.z = q.z",
         ["f", "(select * from J1()) g"], "select x from J2()"),
        (f"select 1 from f join nyc.p {NOW} on f.t = p.t union all select 2 from g join nyc.p {NOW} on g.t = p.t",
         ["f", "g"], "select 1 from J1() union all select 2 from J2()"),
        (f"with g as (select * from f join nyc.p {NOW} on f.t = p.t) select * from g", ["f"], "with g as (select * from J1()) select * from g"),
        (f"select * from x where exists (select 1 from f join nyc.p {NOW} on f.t = p.t where f.a = x.a)", ["f"],
         "select * from x where exists (select 1 from J1() where f.a = x.a)"),
        (f"explain formatted select * from f join nyc.p {NOW} on f.t = p.t", ["f"], "explain formatted select * from J1()"),
        (f"create temporary view v as select * from f join nyc.p {NOW} on f.t = p.t", ["f"], "create temporary view v as select * from J1()"),
        (f"cache lazy table v options ('a' 'b') as with g as (select 1 t) select * from g join nyc.p {NOW} on g.t = p.t", ["g"],
         "cache lazy table v options ('a' 'b') as with g as (select 1 t) select * from J1()"),
        (f"insert into spark_table select * from f join nyc.p {NOW} on f.t = p.t;", ["f"], "insert into spark_table select * from J1();"),
        (f"select * from f tablesample (10 percent) g cross join h join nyc.`p``q` {NOW} as `a b` on g.`t t` = `a b`.t -- {NOW}",
         ["f tablesample (10 percent) g cross join h"], f"select * from J1() -- {NOW}"),
        (f"select '{NOW}', \"LOOKUP('table'='p')\" /* from */ from /* {NOW} */ f -- left\n join nyc.p {NOW} on f.t = p.t /* z */",
         ["f"], f"select '{NOW}', \"LOOKUP('table'='p')\" /* from */ from /* {NOW} */ J1() /* z */"),
        (f"select '😀' from f join nyc.p {NOW} p on f.t = p.t and p.x = '😀' where '😀' = f.x", ["f"], "select '😀' from J1() where '😀' = f.x"),
        ("select * from f join nyc.p TIMESTAMP AS OF PROCTIME() p on f.t = p.t", ["f"], "select * from J1()"),
        (f"select * from f join nyc.p {NOW} on f.t = p.t lateral view explode(f.x) e as y where y > 1", ["f"],
         "select * from J1() lateral view explode(f.x) e as y where y > 1"),
        (f"select * from values (1) as f(t) join nyc.p {NOW} on f.t = p.t pivot (sum(p.x) for y in (1, 2))", ["values (1) as f(t)"],
         "select * from J1() pivot (sum(p.x) for y in (1, 2))"),
        (f"select * from stream f join lateral explode(f.x) e on true join nyc.p {NOW} on e.col = p.t",
         ["stream f join lateral explode(f.x) e on true"], "select * from J1()"),
    ],
)  # fmt: skip
def test_joins_are_found_wherever_they_stand(text, lefts, rest):
    assert parts(text) == (lefts, rest)


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "select 'LOOKUP' from proctime",
        f"select '{NOW}'",
        f"select 1 -- {NOW}",
        "select 1 /* /*+ LOOKUP('table'='p') */ */",
        "select 1 /*+ LOOKUP('table'='p') */",
        "select * from f join nyc.p for system_time as of '2013-01-01' p on f.t = p.t -- LOOKUP",
        "select proctime() as lookup",
        "select lookup(1), proctime from t timestamp as of current_timestamp()",
        "select `LOOKUP('table'='p')` from t",
        "select 'it is not closed, LOOKUP",
        "select a.proctime as of from a",
    ],
)
def test_what_has_no_lookup_join_is_spark_s_alone(text):
    assert parse_statement(text) is None


def test_a_join_is_described_whole():
    text = (
        "select /*+ LOOKUP('table'='p', 'shuffle'='true') */ f.x, p.model, p.`Seats` from nyc.flights left join nyc.planes "
        f"{NOW} p on upper(flights.tailnum) = p.tailnum and (p.year < 3 or year = flights.year) and 5 = p.e and p.a is null"
    )
    (join,) = parse_statement(text).joins
    assert (join.path, join.alias, join.renamed, join.is_outer) == (("nyc", "planes"), "p", (), True)
    assert (join.bare, join.moment, join.hint.shuffle) == ((("nyc", "flights"),), (None, None), True)
    written = [
        (
            text[slice(each.place.start, each.place.stop)],
            each.sides and [text[place.start : place.stop] for place in each.sides],
        )
        for each in join.on
    ]
    assert written == [
        ("upper(flights.tailnum) = p.tailnum", ["upper(flights.tailnum)", "p.tailnum"]),
        ("p.year < 3 or year = flights.year", None),
        ("5 = p.e", ["5", "p.e"]),
        ("p.a is null", None),
    ]
    assert [each.parts for each in join.on[1].columns] == [("p", "year"), ("year",), ("flights", "year")]
    assert {"model", "seats", "tailnum", "year"} <= join.names
    assert "carrier" not in join.names


@pytest.mark.parametrize(
    ("select", "is_any"),
    [
        ("select * from", True),
        ("select p.* from", True),
        ("select P.* except (x) from", True),
        ("select struct(p.*) from", True),
        ("select f.*, p.x * 2, count(*) from", False),
        ("select x, (select max(y) from (select * from g)) from", False),
        ("from", True),
    ],
)
def test_a_star_may_mean_any_column(select, is_any):
    (join,) = parse_statement(f"{select} f join nyc.p {NOW} as p on f.t = p.t").joins
    assert (join.names is None) == is_any


@pytest.mark.parametrize("rest", ["natural join g", "pivot (sum(x) for y in (1))"])
def test_columns_may_be_meant_without_being_named(rest):
    (join,) = parse_statement(f"select x from f join nyc.p {NOW} as p on f.t = p.t {rest}").joins
    assert join.names is None


def test_a_left_side_has_what_it_needs_of_with_clauses():
    text = (
        "with a as (select 1 t), b as (select 2 t), c(t) as (select t from a) "
        f"select * from (with d as (select * from c) select * from d join b on d.t = b.t join nyc.p {NOW} on d.t = p.t)"
    )
    (join,) = parse_statement(text).joins
    assert [text[each.start : each.stop] for each in join.ctes] == [
        "a as (select 1 t)", "b as (select 2 t)", "c(t) as (select t from a)", "d as (select * from c)",
    ]  # fmt: skip
    inner = (
        f"with a as (select 1 t), b as (select * from a join nyc.p {NOW} on a.t = p.t), c as (select 3) select * from b"
    )
    assert [inner[each.start : each.stop] for each in parse_statement(inner).joins[0].ctes] == ["a as (select 1 t)"]
    other = f"with a as (select 1 t) select * from x.a join nyc.p {NOW} on a.t = p.t"
    assert parse_statement(other).joins[0].ctes == ()
    with pytest.raises(UnsupportedError, match="two WITH clauses around a lookup join have a: give one another name"):
        parse_statement(
            f"with a as (select 1 t) select * from (with a as (select 2 t) select * from a join nyc.p {NOW} on a.t = p.t)"
        )


def test_each_select_has_its_own_hints():
    text = (
        f"select /*+ BROADCAST(c), LOOKUP('table'='p', 'mode'='full') */ * from f join nyc.p {NOW} on f.t = p.t union all "
        f"select /* LOOKUP('table'='p', 'mode'='remote') */ /*+ LOOKUP('table'='p', 'shuffle'='true') */ /*+ MERGE(c) */ * "
        f"from (select * from f join nyc.p {NOW} on f.t = p.t) g join nyc.p {NOW} on g.t = p.t"
    )
    statement = parse_statement(text)
    assert [(each.hint.mode, each.hint.shuffle) for each in statement.joins] == [
        ("full", False),
        (None, False),
        (None, True),
    ]
    assert statement.warnings == ()
    assert re.findall(r"/\*.*?\*/", statement.render()) == [
        "/*+ BROADCAST(c) */", "/* LOOKUP('table'='p', 'mode'='remote') */", "/*+ MERGE(c) */",
    ]  # fmt: skip


def test_a_hint_makes_a_lookup_of_a_join_at_one_time():
    for clause, moment in (
        ("for system_time as of '2013-01-01 12:00:00'", ("'2013-01-01 12:00:00'", None)),
        ("TIMESTAMP AS OF current_timestamp() - interval 1 day", ("current_timestamp() - interval 1 day", None)),
        ("version as of 5", (None, "5")),
    ):
        text = f"select /*+ LOOKUP('table'='p') */ * from f join nyc.planes {clause} p on f.t = p.t"
        assert parse_statement(text).joins[0].moment == moment
        without = parse_statement(text.replace("='p'", "='q'"))
        assert without.joins == ()
        assert "'q' is not joined" in without.warnings[0]


@pytest.mark.parametrize(
    ("hints", "rest"),
    [
        ("/*+ LOOKUP('table'='p') */", "select  1 from p"),
        ("/*+ LOOKUP('table'='p'), COALESCE(1) */", "select /*+ COALESCE(1) */1 from p"),
    ],
)
def test_a_hint_beside_no_lookup_join_goes_and_is_said(hints, rest):
    statement = parse_statement(f"select {hints}1 from p")
    assert statement.render() == rest
    assert statement.joins == ()
    assert "there is no lookup join beside it" in statement.warnings[0]
    broken = parse_statement(f"select {hints} (( from p")
    assert broken.render().endswith(" (( from p")
    assert "LOOKUP" not in broken.render()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (f"select * from f right join nyc.p {NOW} on f.t = p.t", UnsupportedError, "nyc.p can be INNER or LEFT, found RIGHT JOIN"),
        (f"select * from f full outer join nyc.p {NOW} on f.t = p.t", UnsupportedError, "found FULL OUTER JOIN"),
        (f"select * from f left semi join nyc.p {NOW} on f.t = p.t", UnsupportedError, "found LEFT SEMI JOIN"),
        (f"select * from f left anti join nyc.p {NOW} on f.t = p.t", UnsupportedError, "found LEFT ANTI JOIN"),
        (f"select * from f natural join nyc.p {NOW}", InvalidRequestError, r"nyc.p .* needs ON: \[LEFT\] JOIN table FOR SYSTEM_TIME"),
        (f"select * from f cross join nyc.p {NOW}", InvalidRequestError, "needs ON"),
        (f"select * from f join nyc.p {NOW} using (t)", InvalidRequestError, "needs ON"),
        (f"select * from f, nyc.p {NOW} where f.t = p.t", InvalidRequestError, "needs ON"),
        (f"select * from nyc.p {NOW}", InvalidRequestError, "needs ON"),
        (f"select * from f join nyc.p {NOW} tablesample (1 percent) p on f.t = p.t", UnsupportedError, "takes an alias and nothing else"),
        ("select * from f join nyc.p for system_time as of f.proc as p on f.t = p.t", UnsupportedError,
         r"nyc.p FOR SYSTEM_TIME AS OF f.proc: the time of a column is not offered; .*PROCTIME\(\)"),
        ("select /*+ LOOKUP('table'='p') */ * from f join nyc.p for system_time as of proc as p on f.t = p.t", UnsupportedError, "AS OF proc:"),
        (f"select ( from f join nyc.p {NOW} on f.t = p.t", InvalidRequestError, "cannot be read: "),
    ],
)  # fmt: skip
def test_joins_that_cannot_be_are_refused(text, error, words):
    with pytest.raises(error, match=words):
        parse_statement(text)


def test_a_deep_statement_is_read_or_refused():
    for depth in (20, 5_000):
        text = f"select * from f join nyc.p {NOW} on f.t = p.t where {'(' * depth}1{')' * depth} = 1"
        try:
            assert parts(text)[0] == ["f"]
        except InvalidRequestError as error:
            assert "too deep" in str(error) or "cannot be read" in str(error)  # noqa: PT017


def test_parameters_get_names_in_the_order_of_the_text():
    text = (
        f"select ?, '?', `?` -- ?\n from (select * from f where a = ?) g join nyc.p {NOW} on g.t = p.t where b in (?,?)"
    )
    named, args = with_named_parameters(text, [1, "two", 3, 4])
    for number, name in enumerate(args):
        named = named.replace(f":{name}", f"<{number}>")
    assert named == (
        f"select <0>, '?', `?` -- ?\n from (select * from f where a = <1>) g join nyc.p {NOW} on g.t = p.t where b in (<2>,<3>)"
    )
    assert list(args.values()) == [1, "two", 3, 4]
    assert list(with_named_parameters(text, [1])[1].values()) == [1]
    assert list(with_named_parameters("select 1", [1, 2])[1].values()) == [1, 2]


# -- statements of others ---------------------------------------------------------------------------------------------


@functools.cache
def statements():
    """Return every SQL text of this project's tests, and much that is none."""
    found = set()
    for path in TESTS.rglob("*.py"):
        source = path.read_text()
        if "lookup" in str(path.relative_to(TESTS)) or "select " not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.search(r"\b(select|from|with)\b", node.value, re.I)
            ):
                found.add(node.value)
    return sorted(found)


def test_statements_without_lookup_joins_are_never_changed():
    texts = statements()
    assert len(texts) > 100
    assert [text for text in texts if parse_statement(text) is not None] == []


def test_a_lookup_join_in_any_statement_changes_nothing_around_it(rng):
    """Statements of the tests as left sides, before and behind lookup joins, in comments and texts."""
    # One whose quotes do not end would end them in what stands around it.
    texts = [
        text
        for text in statements()
        if text.lower().startswith("select")
        and ";" not in text
        and "--" not in text
        and not any(text.count(quote) % 2 for quote in "'\"`")
    ]
    join = f"join nyc.p {NOW} p on g.t = p.t"
    read = 0
    for text in rng.sample(texts, min(len(texts), 60)):
        quoted = "'" + text.replace("\\", "").replace("'", "") + "'"
        for whole, left, rest in (
            (
                f"select * from ({text}) g {join} where x = {quoted}",
                f"({text}) g",
                f"select * from J1() where x = {quoted}",
            ),
            (f"select {quoted} from g {join} union all {text}", "g", f"select {quoted} from J1() union all {text}"),
        ):
            try:
                found = parts(whole)
            except InvalidRequestError as error:
                assert "cannot be read" in str(error)  # noqa: PT017
                continue
            assert found == ([left], rest)
            read += 1
    assert read > 60

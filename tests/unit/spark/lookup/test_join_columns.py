"""What ON means once both sides' columns are known: keys by the names that Spark would find, and all else as a condition of the match."""

import pytest

from fluss_lab.errors import InvalidRequestError, UnsupportedError
from fluss_lab.spark.lookup.join_columns import JoinReader, StreamColumn
from fluss_lab.spark.lookup.lookup_sql import parse_statement

NOW = "for system_time as of proctime()"
STREAM = [
    StreamColumn(("f",), "id", "id"),
    StreamColumn(("f",), "tailnum", "tailnum"),
    StreamColumn(("f",), "info", "info"),
    StreamColumn(("nyc", "g"), "id", "id_2"),
    StreamColumn(("nyc", "g"), "Year", "Year"),
]
TABLE = ["tailnum", "year", "model", "a`b"]


def read(on, *, alias="p", keys=("tailnum",), select="*"):
    statement = parse_statement(f"select {select} from f join nyc.planes {NOW} {alias} on {on}")
    (join,) = statement.joins
    return JoinReader(join, statement.render, STREAM, TABLE, keys, "row")


def columns(on, **options):
    found = read(on, **options).columns()
    return found.keys, found.where


@pytest.mark.parametrize(
    ("on", "keys", "where"),
    [
        ("f.tailnum = p.tailnum", {"tailnum": ("tailnum", True)}, None),
        ("P.TAILNUM = F.TailNum", {"tailnum": ("tailnum", True)}, None),
        ("(((p.tailnum)) = (f.tailnum))", {"tailnum": ("tailnum", True)}, None),
        ("upper(f.tailnum) = p.tailnum", {"tailnum": ("upper(f.tailnum)", False)}, None),
        ("p.tailnum = 'N' || g.id", {"tailnum": ("'N' || g.id", False)}, None),
        ("p.tailnum = 'N1'", {"tailnum": ("'N1'", False)}, None),
        ("f.info.tail = p.tailnum", {"tailnum": ("f.info.tail", False)}, None),
        ("info.tail = p.tailnum", {"tailnum": ("info.tail", False)}, None),
        ("f.tailnum = p.tailnum and nyc.g.year = p.year", {"tailnum": ("tailnum", True)}, "(`Year` = `row`.`year`)"),
        ("f.tailnum = p.tailnum and g.id = p.tailnum", {"tailnum": ("tailnum", True)}, "(`id_2` = `row`.`tailnum`)"),
        ("f.tailnum = p.tailnum and (model is null or not p.year > f.id) and true", {"tailnum": ("tailnum", True)},
         "(`row`.`model` is null or not `row`.`year` > `id`) and (true)"),
        ("f.tailnum = p.tailnum and p.`a``b` = g.id", {"tailnum": ("tailnum", True)}, "(`row`.`a``b` = `id_2`)"),
        ("f.tailnum = p.tailnum and p.model.x = f.info.y", {"tailnum": ("tailnum", True)}, "(`row`.`model`.x = `info`.y)"),
        ("f.tailnum = p.tailnum and p.model = lower(p.model) -- p.year\n and '😀' = p.model", {"tailnum": ("tailnum", True)},
         "(`row`.`model` = lower(`row`.`model`)) and ('😀' = `row`.`model`)"),
        ("f.tailnum = p.tailnum and unknown.x < 3", {"tailnum": ("tailnum", True)}, "(unknown.x < 3)"),
        # Without a column that rows are found by best, all that are equal to the stream's are keys.
        ("f.id = p.year and f.tailnum = p.model", {"year": ("id", True), "model": ("tailnum", True)}, None),
        # A frame's column is the key of one column.
        ("f.id = p.year and f.id = p.model", {"year": ("id", True), "model": ("f.id", False)}, None),
    ],
)  # fmt: skip
def test_equalities_with_the_table_s_columns_are_keys(on, keys, where):
    assert columns(on) == (keys, where)


def test_both_of_a_key_are_keys_in_any_order():
    assert columns("p.model = f.tailnum and g.id = p.year", keys=("year", "model"))[0] == {
        "model": ("tailnum", True), "year": ("id_2", True),
    }  # fmt: skip


def test_names_of_an_alias_are_the_table_s():
    reader = read("f.tailnum = p.w and x > 3", alias="p(w, x, y, z)", select="y, f.id")
    assert reader.columns().keys == {"tailnum": ("tailnum", True)}
    assert reader.columns().where == "(`row`.`year` > 3)"
    assert reader.wanted == dict(zip("wxyz", TABLE, strict=True))


def test_a_table_without_an_alias_is_known_by_name_and_path():
    for name in ("planes", "nyc.planes", "NYC.Planes"):
        assert columns(f"f.tailnum = {name}.tailnum", alias="")[0] == {"tailnum": ("tailnum", True)}
    with pytest.raises(InvalidRequestError, match="no equality"):
        columns("f.tailnum = planes.tailnum")


def test_columns_that_no_word_of_the_statement_means_are_not_wanted():
    assert list(read("f.tailnum = p.tailnum", select="p.MODEL").wanted) == ["tailnum", "model"]
    assert list(read("f.tailnum = p.tailnum").wanted) == TABLE


@pytest.mark.parametrize(
    ("on", "error", "words"),
    [
        ("f.id < p.year", InvalidRequestError, r"expected ON stream.column = p.tailnum, found f.id < p.year"),
        ("p.year = p.tailnum", InvalidRequestError, "no equality"),
        ("f.tailnum <=> p.tailnum", InvalidRequestError, "no equality"),
        ("f.tailnum = p.tailnum or f.id = p.year", InvalidRequestError, "no equality"),
        ("not f.tailnum = p.tailnum", InvalidRequestError, "no equality"),
        ("upper(p.tailnum) = f.tailnum", InvalidRequestError, "no equality"),
        ("tailnum = 'x'", InvalidRequestError, "ON: tailnum may be a column of f or of p; write which"),
        ("id = p.tailnum", InvalidRequestError, "id may be a column of f or of nyc.g"),
        ("f.tailnum = p.tail", InvalidRequestError, "it has no column 'tail'; its columns are tailnum, year, model"),
        (
            "f.tailnum = p.tailnum and p.year in (select 1)",
            UnsupportedError,
            r"p.year in \(select 1\): a subquery in ON is not offered",
        ),
    ],
)
def test_conditions_that_cannot_be_are_refused(on, error, words):
    with pytest.raises(error, match=words):
        columns(on)


def test_an_alias_has_a_name_for_each_column():
    with pytest.raises(InvalidRequestError, match="its alias names 2 columns; it has 4: tailnum, year"):
        read("f.tailnum = p.x", alias="p(x, y)")

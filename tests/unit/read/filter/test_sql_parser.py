"""SQL text as sqlglot's tree: what is refused is named with its place, and nothing of a text is lost."""

import subprocess
import sys

import pytest
from sqlglot import exp
from sqlglot.parser import Parser

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter import sql_parser
from fluss_lab.read.filter.sql_parser import DEPTH_MAX, parse_condition, span


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a or b and not c = 1", "Or(Column, And(Column, Not(EQ(Column, Literal))))"),
        ("a || b + c * -d = 1", "EQ(DPipe(Column, Add(Column, Mul(Column, Neg(Column)))), Literal)"),
        ("a - b - c = 5 % 3", "EQ(Sub(Sub(Column, Column), Column), Mod(Literal, Literal))"),
        ("not a between 1 and 2", "Not(Between(Column, Literal, Literal))"),
        ("a = 1 -- 2", "EQ(Column, Sub(Literal, Neg(Literal)))"),
        ("case = date and end is nan", "And(EQ(Column, Column), Is(Column, Var))"),
        ("day >= DATE '2013-01-01'", "GTE(Column, Literal)"),
        ("a.b.c.d.e.f", "Dot(Dot(Column, Identifier), Identifier)"),
        ("cast(a as decimal(5, 1)) in (x'00', null, f())", "In(Cast(Column, Var), HexString, Null, Anonymous)"),
    ],
)
def test_text_is_a_tree_of_sqlglot(text, shape):
    assert shape_of(parse_condition(text)) == shape


def shape_of(node):
    name = type(node).__name__
    if isinstance(node, exp.Column | exp.Identifier | exp.Literal | exp.Var | exp.HexString):
        return name
    inner = ", ".join(shape_of(each) for each in node.iter_expressions())
    return f"{name}({inner})" if inner else name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a is distinct from b", "character 6 at 'distinct': expected NULL, NAN, TRUE or FALSE, found 'distinct'"),
        ("a between 1, 2", "character 12 at ',': expected AND, found ','"),
        ("a in b", r"character 6 at 'b': expected '\(', found 'b'"),
        ("a in (1,)", r"character 9 at '\)': expected a column or a value, found '\)'"),
        ("(a, b) = (1, 2)", r"character 3 at ',': expected '\)', found ','"),
        ("a = 'x' 'y'", "character 9 at \"'y'\": expected AND, OR or the end"),
        ("a like 'x' escape '!'", "character 12 at 'escape': expected AND, OR or the end, found 'escape'"),
        ("a = case when b then 1 end", "character 10 at 'when': expected AND, OR or the end, found 'when'"),
        ("exists (select 1)", r"character 16 at '1': expected '\)', found '1'"),
        ("a = 1 /* b */", "character 8 at .*expected a column or a value"),
        ("a = 1 {# b #}", "character 7 at '{# b #}': cannot be read: no part of SQL"),
        ("a = n'x'", "character 6 at \"'x'\": expected AND, OR or the end"),
        ("a = 0x1f", "character 5 at '0x1f': cannot be read"),
        ("a = \u0663", "character 5 at '\u0663': cannot be read"),
        ("a = 1 and sum(b) over (c) > 1", "character 18 at 'over': expected AND, OR or the end, found 'over'"),
        ("cast(a as ", "character 11: expected a type, found the end"),
        ("nan = 1", "character 1 at 'nan': expected a column or a value, found 'nan'"),
    ],
)
def test_what_no_condition_has_is_refused_with_its_place(text, words):
    with pytest.raises(InvalidFilterError, match=words):
        parse_condition(text)


def test_a_part_knows_where_it_stands():
    text = "k = 1 and not (lower(s) in ('a', 'b')) or -x is null"
    tree = parse_condition(text)
    assert text[slice(*span(text, tree.this.expression))] == "lower(s) in ('a', 'b')"
    assert text[slice(*span(text, tree.expression))] == "-x is null"


@pytest.mark.parametrize(("start", "end"), [("(", ")"), ("lower(", ")"), ("cast(", " as int)"), ("b or not (", ")")])
def test_texts_are_read_to_the_depth_allowed_whatever_the_callers_limit(start, end):
    limit = sys.getrecursionlimit()
    levels = DEPTH_MAX // (start.count("(") + start.count("not"))
    assert parse_condition(start * levels + "b" + end * levels) is not None
    with pytest.raises(InvalidFilterError, match="levels"):
        parse_condition(start * (levels + 1) + "b" + end * (levels + 1))
    assert sys.getrecursionlimit() == limit


def test_sqlglot_still_has_the_methods_that_the_grammar_overrides():
    # The names are sqlglot's own: if its next version renames one, the grammar there is no longer ours.
    own = {"_parse_minus", "_parse_plus", "_parse_typed"}
    overridden = {name for name in vars(sql_parser._ConditionParser) if name.startswith(("_parse", "raise"))} - own
    assert overridden <= set(dir(Parser))


def test_sqlglot_is_imported_where_a_text_is_given_only():
    code = "import sys, fluss_lab, fluss_lab.read.table_reader; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

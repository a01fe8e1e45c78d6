"""LOOKUP hints: Flink's names and values; what cannot be is ignored, said, and takes nothing else with it."""

import re

import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.spark.lookup.lookup_hint import LookupHint, parse_block, read_hints

TABLES = {"p": 0, "planes": 0, "nyc.planes": 0, "a": 1}


def rows_of(value):
    if not value.isdecimal():
        raise InvalidPropertyError("expected a number of rows")


def hints(*texts, tables=TABLES):
    return read_hints([parse_block(text) for text in texts], tables, {"lookup.cache.max-rows": rows_of})


@pytest.mark.parametrize(
    ("text", "rest", "lookups"),
    [
        (" LOOKUP('table'='p', 'shuffle' = 'true') ", "", [(("table", "p"), ("shuffle", "true"))]),
        ('lookup("table"="p")', "", [(("table", "p"),)]),
        ("LOOKUP(table=p, lookup.cache.max-rows=5, `mode`='full')", "",
         [(("table", "p"), ("lookup.cache.max-rows", "5"), ("mode", "full"))]),
        ("LOOKUP('table'='it''s')", "", [(("table", "it's"),)]),
        ("BROADCAST(f), LOOKUP('table'='p'), MERGE(a, b)", "/*+ BROADCAST(f), MERGE(a, b) */", [(("table", "p"),)]),
        ("LOOKUP('table'='p') COALESCE(3) LOOKUP('table'='a')", "/*+ COALESCE(3) */", [(("table", "p"),), (("table", "a"),)]),
        ("REPARTITION", "/*+ REPARTITION */", []),
        ("SHUFFLE_HASH(lookup), x('LOOKUP(')", "/*+ SHUFFLE_HASH(lookup), x('LOOKUP(') */", []),
        ("LOOKUP", "", [None]),
        ("LOOKUP()", "", [None]),
        ("LOOKUP('table'='p'", "", [None]),
        ("LOOKUP('table'='p',)", "", [None]),
        ("LOOKUP('table','p')", "", [None]),
        ("LOOKUP('table'='p' 'shuffle'='true')", "", [None]),
        ("LOOKUP('table'=(p))", "", [None]),
        ("LOOKUP('table'='p)", "", [None]),
        ("LOOKUP(f(x), 'table'='p'), COALESCE(3)", "/*+ COALESCE(3) */", [None]),
        ("", "", []),
    ],
)  # fmt: skip
def test_a_block_is_taken_apart(text, rest, lookups):
    block = parse_block(text)
    assert (block.rest, list(block.lookups)) == (rest, lookups)
    assert len(block.texts) == len(lookups)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("LOOKUP('table'='p')", LookupHint()),
        ("LOOKUP('table'='P', 'SHUFFLE'='TRUE')", LookupHint(shuffle=True)),
        ("LOOKUP('table'='nyc.planes', 'mode'='Full')", LookupHint(mode="full")),
        ("LOOKUP('table'='p', 'shuffle'='true', 'shuffle'='false')", LookupHint()),
        ("LOOKUP('table'='p', 'tasks'='7')", LookupHint(tasks=7)),
        (
            "LOOKUP('table'='p', 'table.optimizer.non-deterministic-update.strategy'='TRY_RESOLVE')",
            LookupHint(updates="try_resolve"),
        ),
        ("LOOKUP('table'='p', 'lookup.cache.max-rows'='5')", LookupHint(options={"lookup.cache.max-rows": "5"})),
        (
            "LOOKUP('table'='p', 'async'='true', 'output-mode'='allow_unordered', 'capacity'='100', 'timeout'='180s')",
            LookupHint(),
        ),
        (
            "LOOKUP('table'='p', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='10s', 'max-attempts'='3')",
            LookupHint(),
        ),
    ],
)
def test_what_is_accepted(text, hint):
    assert hints(text) == ({0: hint}, [])


def test_hints_of_one_table_are_taken_together_and_the_last_value_counts():
    found, ignored = hints(
        "LOOKUP('table'='p', 'shuffle'='true', 'mode'='full'), LOOKUP('table'='a')",
        "LOOKUP('table'='planes', 'mode'='remote')",
    )
    assert found == {0: LookupHint(shuffle=True, mode="remote"), 1: LookupHint()}
    assert ignored == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("'shuffle'='yes'", "'shuffle'='yes' is ignored: expected true or false"),
        ("'async'='1'", "expected true or false"),
        ("'output-mode'='sorted'", "expected ordered or allow_unordered"),
        ("'capacity'='0'", "expected a whole number of at least 1"),
        ("'capacity'='1e3'", "expected a whole number"),
        ("'timeout'='soon'", "expected a duration above 0, such as 10s"),
        ("'timeout'='0s'", "expected a duration above 0"),
        ("'mode'='fast'", "expected auto or full or remote"),
        ("'lookup.cache.max-rows'='many'", "expected a number of rows"),
        ("'shufle'='true'", "'shufle'='true' is ignored: no such option; those known are table, shuffle, async.*lookup.cache.max-rows"),
        ("'max-attempts'='3'", "max-attempts without retry-predicate, retry-strategy, fixed-delay is ignored: all four or none"),
        ("'retry-predicate'='always'", "expected lookup_miss"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_ignored_alone(option, words):
    found, ignored = hints(f"LOOKUP('table'='a', {option}, 'shuffle'='true')" if "'shuffle'" not in option else
                           f"LOOKUP('table'='a', 'mode'='full', {option})")  # fmt: skip
    assert found[1] in (LookupHint(shuffle=True), LookupHint(mode="full"))
    (text,) = ignored
    assert text.startswith("LOOKUP hint of a: ")
    assert re.search(words, text), text


@pytest.mark.parametrize(
    ("text", "tables", "words"),
    [
        ("LOOKUP('shuffle'='true')", TABLES, "it names no 'table'"),
        (
            "LOOKUP('table'='x')",
            TABLES,
            "'x' is not joined in this SELECT .*; expected one of a, nyc.planes, p, planes",
        ),
        ("LOOKUP('table'='x')", {}, "there is no lookup join beside it"),
        ("LOOKUP(p)", TABLES, r"the hint LOOKUP\(p\) is ignored: expected LOOKUP\('table'='name'"),
    ],
)
def test_a_hint_of_no_table_is_ignored(text, tables, words):
    found, ignored = hints(text, tables=tables)
    assert found == {}
    (shown,) = ignored
    assert re.search(words, shown), shown


def test_a_long_hint_is_shown_by_its_beginning():
    _, (shown,) = hints(f"LOOKUP({'x' * 10_000})")
    assert len(shown) < 300

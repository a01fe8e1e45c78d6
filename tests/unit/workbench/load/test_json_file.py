"""JSON as rows to be loaded: lines and arrays, types over all of a file, bad rows by number."""

import datetime as dt
import gzip
import json
from decimal import Decimal

import pytest

from fluss_lab.errors import InvalidError, InvalidRecordError
from fluss_lab.model import DataType
from fluss_lab.workbench.load import json_file
from fluss_lab.workbench.load.json_file import JsonFiles
from fluss_lab.workbench.load.load_columns import ColumnPlan


def source(folder, text, name="a.json"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return JsonFiles([path])


def read(rows, plan=None):
    columns = rows.examine(plan or ColumnPlan())
    return {c.name: str(c.type) for c in columns}, [row for batch in rows.batches(columns) for row in batch.to_pylist()]


ROWS = [
    {"id": 1, "x": 1, "s": "é\n", "t": "2013-01-01 05:00:00", "l": [1], "o": {"a": 1}},
    {"id": 2, "x": 0.5, "b": True, "t": None, "o": {"a": None}},
]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, ROWS)), json.dumps(ROWS), json.dumps(ROWS, indent=2), json.dumps(ROWS, ensure_ascii=False),
        "\n\n" + "\n\n".join(map(json.dumps, ROWS)) + "\n\n", "\ufeff" + json.dumps(ROWS), json.dumps(ROWS, indent="\t").replace("\n", "\r\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_lines_and_arrays_are_the_same_rows(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    types, rows = read(source(tmp_path, text))
    assert types == {
        "id": "BIGINT", "x": "DOUBLE", "s": "STRING", "t": "TIMESTAMP(6)", "l": "ARRAY<BIGINT>", "o": "ROW<a BIGINT>",
        "b": "BOOLEAN",
    }  # fmt: skip
    assert rows == [
        {**ROWS[0], "x": 1.0, "b": None, "t": dt.datetime(2013, 1, 1, 5)},
        {"id": 2, "x": 0.5, "s": None, "t": None, "l": None, "o": {"a": None}, "b": True},
    ]


def test_types_are_those_of_all_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", 64)
    lines = [{"i": i, "t": "2013-01-01", "n": None} for i in range(50)] + [
        {"i": 0.5, "t": "soon", "l": [None]},
        {"l": ["a"]},
    ]
    types, rows = read(source(tmp_path, "\n".join(map(json.dumps, lines))))
    assert types == {"i": "DOUBLE", "t": "STRING", "n": "STRING", "l": "ARRAY<STRING>"}
    assert [rows[0]["t"], rows[50]["i"], rows[51]["l"]] == ["2013-01-01", 0.5, ["a"]]


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize(
    ("values", "type", "wanted"),
    [
        ([1.5, "NaN", "Infinity", "-Infinity", None], "DOUBLE", "[1.5, nan, inf, -inf, None]"),
        (["NaN", 1], "DOUBLE", "[nan, 1.0]"),
        (["NaN", None, "Infinity"], "STRING", "['NaN', None, 'Infinity']"),
        (["NaN", "NaN", "x"], "STRING", "['NaN', 'NaN', 'x']"),
        (["NaN", "2013-01-01"], "STRING", "['NaN', '2013-01-01']"),
        ([["NaN", None], [1], []], "ARRAY<DOUBLE>", "[[nan, None], [1.0], []]"),
        ([{"x": "NaN"}, None, {"x": 2}], "ROW<x DOUBLE>", "[{'x': nan}, None, {'x': 2.0}]"),
    ],
)
def test_what_json_has_no_numbers_for_is_a_number_beside_numbers(tmp_path, monkeypatch, values, type, wanted, block):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    text = "\n".join(json.dumps({"v": value, "s": '"NaN"'}) for value in values)
    types, rows = read(source(tmp_path, text))
    assert (types["v"], str([row["v"] for row in rows])) == (type, wanted)
    assert {row["s"] for row in rows} == {'"NaN"'}


def test_a_float_column_takes_the_texts_and_keeps_the_digits_of_others(tmp_path):
    digits = "12345678901234567890.123456789012345678"
    text = f'{{"v": "NaN", "d": {digits}, "s": "\\u00e9"}}\n{{"v": "-Infinity", "d": 1, "s": "NaN"}}\n'
    types = {"v": DataType.parse("FLOAT"), "d": DataType.parse("DECIMAL(38,18)")}
    rows = read(source(tmp_path, text), ColumnPlan(types=types))[1]
    assert str([row["v"] for row in rows]) == "[nan, -inf]"
    assert (rows[0]["d"], rows[0]["s"]) == (Decimal(digits), "é")
    for lines, words in (
        ('{"v": 1, "v": 2}\n{"v": "NaN"}\n', "specified twice"), ('{"v": 1}\n{"v": "NaN"\n', "in row 1"),
        ('{"v": 1}\n{"v": "NaN"}\n{"v": "x"}\n', "row 1"), ('{"v": "NaN"}\n{"v": true}', "string before row 1 and bool after"),
    ):  # fmt: skip
        with pytest.raises(InvalidError, match=words):
            source(tmp_path, lines).examine(ColumnPlan())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rows"), ("[]", "has no rows"), ("  ", "has no rows"), ("3", "it begins with '3'"),
        ('"a"', "it begins with"), ("[1]", "row 0: expected an object, found '1'"), ('[{"a":1}, 2]', "row 1: expected an object"),
        ('[{"a":1} {"a":2}]', "row 1: expected ',' or ']'"), ('[{"a":1}', "the file ends where"), ("[", "the file ends where"),
        ('[{"a":1}] x', "expected the end of the file"), ('[{"a":1},]', "expected an object, found ']'"), ('[{"a":}]', "row 0: no JSON"),
        ('{"a":1}\n{"a"\n', "in row 1"), ('{"a":1}\n[1]\n', "in row 1"), ('{"a":1}\n{"a":"x"}\n', "Column(/a) changed from number to string in row 1"),
        ('{"a":1,"a":2}', "specified twice in row 0"), (b'{"a":"\xff"}', "a.json"), (b'[{"a":"\xff"}]', "a.json"),
        ('{"a":{}}', "column 'a'"), ('{"a b":1}', "rename={'a b': 'a_b'}"), ('{"a":{"b c":1}}', "column 'a'"),
        ('[{"a":' + "[" * 3000 + "]" * 3000 + "}]", "row 0"), ("{}", "has no rows"),
        ('{"a":0}\n{"a":7035796958682404522967902992701536351E300}', "column 'a', row 1: expected DOUBLE"),  # infinite to Arrow
        ('{"a":0.5}\n{"a":0.' + "0" * 400 + "1}", "column 'a', row 1: expected DOUBLE"),
        ('{"a":0.0}\n{"a":1e-400}', "column 'a', row 1: expected DOUBLE, found Decimal('1E-400'): as a float it would be 0.0"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_by_row(tmp_path, text, words):
    with pytest.raises(InvalidError) as raised:
        read(source(tmp_path, text))
    assert words in str(raised.value)


DEEP = {
    "lists": ("[" * 1_500, "]" * 1_500),
    "objects": ('{"x":' * 1_500 + "1", "}" * 1_500),
    "mixed": ('[{"x":' * 750, "1" + "}]" * 750),
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("[", "]")], ids=["lines", "array"])
def test_a_row_that_nests_too_deeply_is_named(tmp_path, kind, before, after):
    """Deeper ones end the process within Arrow's reader."""
    rows = ['{"a":1}', '{"a":2}', '{{"b":{}{}}}'.format(*DEEP[kind]), '{"a":3}']
    with pytest.raises(
        InvalidError, match=r"a\.json: row 2: its values nest deeper than 100; nothing of it was loaded"
    ):
        read(source(tmp_path, before + (",\n" if before else "\n").join(rows) + after))


def test_what_is_not_loaded_may_nest_deeper_than_a_table_may(tmp_path):
    text = '{{"a":1,"b":{}{}}}\n{{"a":2}}'.format("[" * 98, "]" * 98)
    assert read(source(tmp_path, text), ColumnPlan(["a"]))[1] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_a_type_that_changes_is_named(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    with pytest.raises(InvalidError, match=r"row 3"):
        read(source(tmp_path, '{"a":1}\n{"a":2}\n{"a":3}\n{"a":"x"}\n'))


def test_a_row_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(json_file, "_ROW_BYTES_MAX", 1000)
    for text in ('{"a":"' + "x" * 2000, '[{"a":"' + "x" * 2000):
        with pytest.raises(InvalidRecordError):
            read(source(tmp_path, text))


def test_types_named_columns_and_names(tmp_path):
    rows = source(tmp_path, gzip.compress(b'{"A b":"2013-01-01","c":{}}\n'), name="a.json.gz")
    plan = ColumnPlan(["a"], {"A b": "a"}, {"a": DataType.parse("string")})
    assert read(rows, plan) == ({"a": "STRING"}, [{"a": "2013-01-01"}])
    with pytest.raises(InvalidRecordError, match="row 0"):
        source(tmp_path, '{"a":1.5}').examine(ColumnPlan(types={"a": DataType.parse("int")}))


ZONED, UTC_ZONED, LOCAL = "2020-01-01T00:30:00+01:00", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00.5"
AT, NEXT = dt.datetime(2019, 12, 31, 23, 30, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("values", "type", "made"),
    [
        ([ZONED, None, UTC_ZONED], "TIMESTAMP_LTZ(6)", [AT, None, NEXT]),
        ([LOCAL, "2020-01-02"], "TIMESTAMP(6)", [dt.datetime(2020, 1, 1, 0, 0, 0, 500_000), dt.datetime(2020, 1, 2)]),
        ([ZONED, LOCAL], "STRING", [ZONED, LOCAL]),
        ([LOCAL, UTC_ZONED, "soon"], "STRING", [LOCAL, UTC_ZONED, "soon"]),
        ([[ZONED], [], None, [None, UTC_ZONED]], "ARRAY<TIMESTAMP_LTZ(6)>", [[AT], [], None, [None, NEXT]]),
        ([[ZONED], [LOCAL]], "ARRAY<STRING>", [[ZONED], [LOCAL]]),
        ([{"a": [ZONED]}, None, {"a": None}], "ROW<a ARRAY<TIMESTAMP_LTZ(6)>>", [{"a": [AT]}, None, {"a": None}]),
    ],
)
@pytest.mark.parametrize("block", [20, 1 << 20])
def test_times_keep_their_zones(tmp_path, monkeypatch, block, values, type, made):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    types, rows = read(source(tmp_path, "\n".join(json.dumps({"v": value}) for value in values)))
    assert types == {"v": type}
    assert [row["v"] for row in rows] == made


@pytest.mark.parametrize(
    ("type", "value", "words"),
    [
        ("TIMESTAMP(6)", ZONED, "column 'v', row 1: expected TIMESTAMP(6), found '2020-01-01T00:30:00+01:00'"),
        ("TIMESTAMP_LTZ(6)", LOCAL, "column 'v', row 1: expected TIMESTAMP_LTZ(6)"),
        ("ROW<t TIMESTAMP_LTZ(6)>", {"t": LOCAL}, "column 'v.t', row 1: expected TIMESTAMP_LTZ(6)"),
        ("ARRAY<DATE>", ["2020-01-01", "x"], "column 'v.element', row 1: expected DATE, found 'x'"),
        ("DATE", 18_000, "in row 1"),  # no number is a date
        ("TIME(3)", 5, "in row 1"),
        ("DOUBLE", 2**53 + 1, "column 'v', row 1: expected DOUBLE, found 9007199254740993: as a float it would be 9007199254740992.0"),
        ("DOUBLE", 2**64 + 1, "row 1: expected DOUBLE, found 18446744073709551617"),
        ("FLOAT", 2**24 + 1, "row 1: expected FLOAT, found 16777217"),
        ("FLOAT", 1e39, "row 1: expected FLOAT, found Decimal('1E+39'): as a float it would be inf"),
        ("FLOAT", 1e-46, "row 1: expected FLOAT, found Decimal('1E-46'): as a float it would be 0.0"),
        ("DECIMAL(38,0)", 10**39 - 1, "column 'v', row 1: expected DECIMAL(38,0), found 999999999999999999999999999999999999999"),
        ("DECIMAL(38,10)", 36167603917771099631312893992819897947, "column 'v', row 1: expected DECIMAL(38,10)"),
        ("ARRAY<DECIMAL(38,0)>", ["1", "9" * 60], "column 'v.element', row 1: expected DECIMAL(38,0)"),
        ("DECIMAL(5,2)", "58e-40", "in row 1"),
        ("DECIMAL(38,0)", 1e39, "column 'v', row 1: expected DECIMAL(38,0), found Decimal('1E+39')"),
        ("DECIMAL(5,2)", 1.125, "in row 1"),
        ("ARRAY<ROW<x DOUBLE>>", [{"x": 1}, {"x": -(2**53) - 1}], "column 'v.element.x', row 1: expected DOUBLE"),
        ("ROW<a INT>", {"a": 1, "b": None}, "column 'v.b', row 1: expected one of the fields a of 'ROW<a INT>'"),
        ("ARRAY<ROW<a INT>>", [{"a": 1}, {"b": 1}], "column 'v.element.b', row 1: expected one of the fields a"),
        ("ROW<a ROW<b INT>>", {"a": {"b": 1, "c": [2]}}, "column 'v.a.c', row 1: expected one of the fields b"),
        ("ROW<a INT NOT NULL>", {}, "column 'v.a', row 1: expected INT NOT NULL"),
        ("MAP<STRING,INT>", {"a": 1}, "column 'v': JSON has no values of type MAP"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [20, 1 << 20])
def test_what_a_given_type_would_change_is_refused_by_row_and_path(tmp_path, monkeypatch, block, type, value, words):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    text = "\n".join(json.dumps({"w": 2**60, "v": each}) for each in (None, value, value))
    with pytest.raises(InvalidError) as raised:
        source(tmp_path, text).examine(ColumnPlan(["v"], types={"v": DataType.parse(type)}))
    assert words in str(raised.value)


def test_given_types_of_times_and_numbers(tmp_path):
    types = {
        "d": "date",
        "t": "time(3)",
        "z": "timestamp_ltz(0)",
        "n": "decimal(20,1)",
        "m": "decimal(5,2)",
        "o": "row<a decimal(38,38)>",
        "f": "float",
        "x": "double",
        "b": "binary(2)",
    }
    row = {
        "d": "2020-01-01",
        "t": "05:00:00.125",
        "z": UTC_ZONED,
        "n": 2**60 + 1,
        "m": "1e2",
        "f": 0.1,
        "x": 2**60,
        "b": "ab",
    }
    row["o"] = {"a": "0." + "7" * 38}
    made = {
        "d": dt.date(2020, 1, 1),
        "t": dt.time(5, 0, 0, 125_000),
        "z": NEXT,
        "n": 2**60 + 1,
        "m": 100,
        "o": {"a": Decimal("0." + "7" * 38)},
        "x": 2.0**60,
        "b": b"ab",
    }
    plan = ColumnPlan(types={name: DataType.parse(text) for name, text in types.items()})
    (read_row,) = read(source(tmp_path, json.dumps(row)), plan)[1]
    assert read_row.pop("f") == pytest.approx(0.1)
    assert read_row == made


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63 + 1])
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_whole_numbers_beside_others_are_not_rounded(tmp_path, monkeypatch, block, number):
    monkeypatch.setattr(json_file, "_BLOCK_BYTES", block)
    text = "\n".join(json.dumps({"v": each}) for each in (0.5, number))
    with pytest.raises(InvalidRecordError, match=rf"column 'v', row 1: expected DOUBLE, found {number}"):
        source(tmp_path, text).examine(ColumnPlan())
    exact = json.dumps({"v": 0.5}) + "\n" + json.dumps({"v": 2**60})
    assert read(source(tmp_path, exact))[1] == [{"v": 0.5}, {"v": 2.0**60}]

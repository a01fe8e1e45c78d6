"""JSON as rows to be loaded: lines and arrays, types over all of a file, bad rows by number."""

import datetime as dt
import gzip
import json

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

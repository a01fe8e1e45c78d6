"""CSV as rows to be loaded: types that every value has, and what is refused, by row and column."""

import contextlib
import csv
import datetime as dt
import encodings
import gzip
import io
import pkgutil
from decimal import Decimal

import pytest

from fluss_lab.errors import InvalidNameError, InvalidRecordError, InvalidRequestError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.workbench.load import csv_file
from fluss_lab.workbench.load.csv_file import CsvFiles
from fluss_lab.workbench.load.load_columns import ColumnPlan


def source(folder, text, *, name="a.csv", delimiter=None, encoding="utf-8", nulls=None):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return CsvFiles([path], delimiter, encoding, nulls)


def read(rows, plan=None):
    columns = rows.examine(plan or ColumnPlan())
    return [str(column.type) for column in columns], [
        row for batch in rows.batches(columns) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("values", "type", "made"),
    [
        (["1", "-2", ""], "BIGINT", [1, -2, None]),
        ([" 1", "2 "], "BIGINT", [1, 2]),
        (["1", "NA", "NULL"], "BIGINT", [1, None, None]),
        (["1", "2.5"], "DOUBLE", [1.0, 2.5]),
        (["1e3", "-.5"], "DOUBLE", [1000.0, -0.5]),
        (["01234", "1"], "STRING", ["01234", "1"]),  # a postal code is no number
        (["-07", "1.5"], "STRING", ["-07", "1.5"]),
        (["0x1F", "0xFFFFFFFFFFFFFFFF"], "STRING", ["0x1F", "0xFFFFFFFFFFFFFFFF"]),  # Arrow would read it, and wrap it
        (["0", "0.5"], "DOUBLE", [0.0, 0.5]),
        (["9223372036854775807", "1"], "BIGINT", [2**63 - 1, 1]),
        (["9223372036854775808", "1"], "STRING", ["9223372036854775808", "1"]),  # no float holds it
        (["9007199254740993", "0.5"], "STRING", ["9007199254740993", "0.5"]),
        (["true", "FALSE", ""], "BOOLEAN", [True, False, None]),
        (["true", "1"], "STRING", ["true", "1"]),
        (["2013-01-01", "2013-02-28"], "DATE", [dt.date(2013, 1, 1), dt.date(2013, 2, 28)]),
        (["2013-01-01", "2013-02-30"], "STRING", ["2013-01-01", "2013-02-30"]),
        (["2013-01-01 05:00:00", "2013-01-01"], "TIMESTAMP(6)", [dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 1)]),
        (["2013-01-01T05:00:00Z"], "TIMESTAMP_LTZ(6)", [dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)]),
        (["2013-01-01T05:00:00Z", "2013-01-01 05:00:00"], "STRING", ["2013-01-01T05:00:00Z", "2013-01-01 05:00:00"]),
        (["05:00", "06:00"], "STRING", ["05:00", "06:00"]),
        (["NA", "a"], "STRING", ["NA", "a"]),  # a text that is there stays
        (["a", ""], "STRING", ["a", None]),
        (["", ""], "STRING", [None, None]),
        (["NaN", "inf"], "DOUBLE", [None, float("inf")]),
        (["2013-01-01", "nan"], "DATE", [dt.date(2013, 1, 1), None]),
        (["1e400", "1"], "STRING", ["1e400", "1"]),  # no float is near it
        (["-1e400"], "STRING", ["-1e400"]),
        (["1e-400", "0.0"], "STRING", ["1e-400", "0.0"]),
        (["1e308", "0e5"], "DOUBLE", [1e308, 0.0]),
    ],
)
def test_a_column_has_the_type_of_all_its_values(tmp_path, values, type, made):
    text = "k,v\n" + "".join(f'x,"{value}"\n' if " " in value else f"x,{value}\n" for value in values)
    types, rows = read(source(tmp_path, text))
    assert types[1] == type
    assert [row["v"] for row in rows] == made


def test_types_are_those_of_all_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 64)
    lines = [f"{number},2013-01-01,a" for number in range(100)]
    types, rows = read(source(tmp_path, "\n".join(["i,d,t", *lines, "0.5,2013-01-01 00:00:01,"])))
    assert types == ["DOUBLE", "TIMESTAMP(6)", "STRING"]
    assert [row["i"] for row in rows] == [*map(float, range(100)), 0.5]
    assert rows[-1]["t"] is None


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\r\n1,2\r\n", [{"a": 1, "b": 2}]),
        ("\ufeffa,b\n1,2", [{"a": 1, "b": 2}]),
        ("a;b\n1;2,5\n", [{"a": 1, "b": "2,5"}]),
        ("a\tb\n1\tx\n", [{"a": 1, "b": "x"}]),
        ("a|b\n1|x\n", [{"a": 1, "b": "x"}]),
        ('a,b\n1,"x\ny, ""z"""\n', [{"a": 1, "b": 'x\ny, "z"'}]),
        ('"a","b"\n1,5" pipe\n', [{"a": 1, "b": '5" pipe'}]),
        ('a,b\n1,"x,"\n', [{"a": 1, "b": "x,"}]),
        ("a,b\n1,2\n\n3,4\n", [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        (" a , b \n1,2\n", [{"a": 1, "b": 2}]),
        ("a,b\n", []),
        ("a,b", []),
        ('a,"b"', []),
        ("\na,b\n1,2\n", [{"a": 1, "b": 2}]),
        ("\n\n\na;b\n\n1;2", [{"a": 1, "b": 2}]),
        ("\r\n\r\na,b\r\n1,2\r\n", [{"a": 1, "b": 2}]),
        ("\ufeff\na,b\n1,2\n", [{"a": 1, "b": 2}]),
        ("\ra,b\r1,2\r", [{"a": 1, "b": 2}]),
        ("a\n1\n", [{"a": 1}]),
        ("\n\na\n1\n\n3\n\n", [{"a": 1}, {"a": None}, {"a": 3}, {"a": None}]),
        ("\r\na\r\n\r\nx\r\n", [{"a": None}, {"a": "x"}]),
        ('a\n""\n\n', [{"a": ""}, {"a": None}]),
        ('a,b\n"",1\n,""\n', [{"a": "", "b": 1}, {"a": None, "b": None}]),
    ],
)
def test_files_as_programs_write_them(tmp_path, text, rows):
    assert read(source(tmp_path, text))[1] == rows


def test_a_nan_makes_floats_of_numbers_and_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 16)
    for values in (["1", "nan", ""], ["nan", "1.5", ""], ["1", "2", "3", "4", "nan"], ["nan", "inf", "-inf"]):
        types, rows = read(source(tmp_path, "k,v\n" + "".join(f"x,{value}\n" for value in values)))
        assert types[1] == "DOUBLE"
        assert [str(row["v"]) for row in rows] == [str(float(value)) if value else "None" for value in values]
    types, rows = read(source(tmp_path, "k,v\nx,nan\n"), ColumnPlan(types={"v": DataType.parse("BIGINT")}))
    assert (types[1], rows[0]["v"]) == ("BIGINT", None)


def test_compressed_other_bytes_and_nulls_of_ones_own(tmp_path):
    assert read(source(tmp_path, gzip.compress(b"a\n1\n"), name="a.csv.gz"))[1] == [{"a": 1}]
    assert read(source(tmp_path, "a,ü\n1,ö\n".encode("latin-1"), encoding="latin-1"), ColumnPlan(["a"]))[1] == [
        {"a": 1}
    ]
    assert read(source(tmp_path, "a,b\n1,ö\n".encode("utf-16"), encoding="utf-16"))[1] == [{"a": 1, "b": "ö"}]
    assert read(source(tmp_path, "a,b\n?,?\n1,x\n", nulls=["?"]))[1] == [{"a": None, "b": None}, {"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", InvalidRecordError, "a.csv is empty"),
        ("\n\n", InvalidRecordError, "a.csv is empty"),
        ("a,b\n1,2\n1,2,3\n", InvalidRecordError, "row 1 has 3 values, expected 2 (columns between ',')"),
        ("a,b\n1\n", InvalidRecordError, "row 0 has 1 values, expected 2"),
        ("\n\na,b\n1,2\n\n1,2,3\n", InvalidRecordError, "row 1 has 3 values, expected 2"),
        ("\n\na\n1\n\n1,2\n", InvalidRecordError, "row 2 has 2 values, expected 1"),
        ('a,b\n1,2\n1,"2\n3,4\n', InvalidRecordError, "a quotation mark is opened and not closed"),
        (b"a,b\n1,\xff\n", InvalidRecordError, "encoding='latin-1'"),
        (b"a,\xff\n1,2\n", InvalidRecordError, "encoding='latin-1'"),
        ("a,a\n1,2\n", InvalidNameError, "the name 'a' is there 2 times"),
        ("a,A\n1,2\n", InvalidNameError, "rename=['a', 'A_2']"),
        ("a,\n1,2\n", InvalidNameError, "column 2 has no name; give names, for instance rename=['a', 'column_2']"),
        ("Order ID,2nd\n1,2\n", InvalidNameError, "rename={'Order ID': 'order_id', '2nd': '_2nd'}"),
        ("__offset,b\n1,2\n", InvalidNameError, "'__offset' cannot be the name of a column"),
        ("a" * 200 + ",b\n1,2\n", InvalidNameError, "cannot be the name of a column"),
        ("a,b;drop table\n1,2\n", InvalidNameError, "'b;drop table'"),
        ("<img src=x onerror=alert(1)>,b\n1,2\n", InvalidNameError, "img_src_x_onerror_alert_1"),
    ],
)
def test_what_is_no_table_is_refused_by_row_and_column(tmp_path, text, error, words):
    with pytest.raises(error) as raised:
        source(tmp_path, text).examine(ColumnPlan())
    assert words in str(raised.value)


@pytest.mark.parametrize("encoding", ["nope", "", "a\0b", "\ud800", "hex", "punycode", "idna", "undefined"])
def test_what_is_no_encoding_is_refused_by_its_name(tmp_path, encoding):
    with pytest.raises(InvalidRequestError, match="encoding '"):
        source(tmp_path, "a,b\n1,2\n", encoding=encoding).examine(ColumnPlan())


#: What each encoding of Python is tried with, as far as it has it; the last one has the byte of a quotation mark in one of its ways.
TEXTS = ("plain", "co,mma", 'a "quoted" one', "li\nne", "é", "ж", "€", "漢字", "한국", "│")


@pytest.mark.parametrize("block_bytes", [64, 4 << 20])
def test_every_encoding_that_python_has_is_read_right_or_refused_by_its_name(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", block_bytes)
    names = {each.name for each in pkgutil.iter_modules(encodings.__path__)} | {"U8", "UTF8", "Latin-1", "utf-16LE"}
    refused = set()
    for name in sorted(names):
        rows = [{"a": at, "b": text} for at, text in enumerate(each for each in TEXTS * 3 if keeps(name, each))]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([["a", "b"], *(row.values() for row in rows)])
        try:
            found = source(tmp_path, encoded(file.getvalue(), name), encoding=name)
        except InvalidRequestError:
            refused.add(name)
        else:
            assert read(found)[1] == rows, name
    assert refused & {"utf_7", "cp037", "utf_8_sig", "shift_jis", "iso2022_kr", "utf_16_be", "unicode_escape"} == set()
    assert len(refused) < len(names) / 4, refused


def encoded(text, encoding):
    with contextlib.suppress(Exception):
        return text.encode(encoding)
    return text.encode()


def keeps(encoding, text):
    """Return whether an encoding has a text; of what is none for text files, False."""
    with contextlib.suppress(Exception):
        return text.encode(encoding).decode(encoding) == text
    return False


def test_a_mark_that_nothing_closes_is_found_in_any_encoding(tmp_path):
    text = 'a,b\n1,"x\n' + "2,y\n" * 10
    for encoding in ("utf-8", "latin-1", "utf-16", "cp037", "utf_7", "iso2022_jp"):
        with pytest.raises(InvalidRecordError, match="opened and not closed"):
            source(tmp_path, text.encode(encoding), encoding=encoding).examine(ColumnPlan())


def test_the_mark_of_a_file_s_beginning_is_left_out_by_any_name_of_utf_8(tmp_path):
    for encoding in ("utf-8", "UTF8", "utf_8", "U8"):
        assert read(source(tmp_path, "\ufeffa,b\n1,2\n".encode(), encoding=encoding))[1] == [{"a": 1, "b": 2}]


def test_a_row_that_never_ends_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK_BYTES", 1 << 16)
    with pytest.raises(InvalidRecordError, match=r"longer than|not closed"):
        source(tmp_path, 'a,b\n1,"' + "x\n" * 200_000 + '",2"\n').examine(ColumnPlan())


@pytest.mark.parametrize(
    ("type", "text", "words"),
    [
        ("INT", "x", "column 'v', row 1: expected INT, found 'x'"),
        ("INT", "1.5", "row 1: expected INT"),
        ("TINYINT", "300", "row 1: expected TINYINT, found '300'"),
        ("BOOLEAN", "maybe", "row 1: expected BOOLEAN"),
        ("DATE", "1.1.2013", "row 1: expected DATE"),
        ("TIMESTAMP", "2013-01-01T00:00:00Z", "row 1: expected TIMESTAMP(6)"),
        ("TIMESTAMP_LTZ", "2013-01-01T00:00:00", "row 1: expected TIMESTAMP_LTZ(6)"),
        ("DECIMAL(4,2)", "1.234", "row 1: expected DECIMAL(4,2)"),
        ("CHAR(2)", "abc", "row 1"),
        (
            "DOUBLE",
            "9007199254740993",
            "row 1: expected DOUBLE, found '9007199254740993': as a float it would be 9007199254740992.0",
        ),
        ("DOUBLE", "1e400", "row 1: expected DOUBLE, found '1e400': as a float it would be inf"),
        ("FLOAT", "16777217", "row 1: expected FLOAT, found '16777217'"),
        ("FLOAT", "1e39", "row 1: expected FLOAT, found '1e39'"),
        ("FLOAT", "1e-50", "row 1: expected FLOAT, found '1e-50': as a float it would be 0.0"),
        # Arrow wraps these, and makes 0 of the last two.
        ("DECIMAL(38,0)", "9" * 39, f"row 1: expected DECIMAL(38,0), found '{'9' * 39}'"),
        ("DECIMAL(38,10)", "36167603917771099631312893992819897947", "row 1: expected DECIMAL(38,10)"),
        ("DECIMAL(38,0)", "541851227885224109501122047650783827899e+1", "row 1: expected DECIMAL(38,0)"),
        ("DECIMAL(1,1)", "58E-40", "row 1: expected DECIMAL(1,1)"),
        ("DECIMAL(4,2)", "1e999999999999", "row 1: expected DECIMAL(4,2)"),
        ("DECIMAL(4,2)", "1e-999999999", "row 1: expected DECIMAL(4,2)"),
        ("DECIMAL(4,2)", "1_0", "row 1: expected DECIMAL(4,2)"),
        ("DECIMAL(4,2)", "Infinity", "row 1: expected DECIMAL(4,2)"),
        ("INT", "0xFFFFFFFF", "row 1: expected INT, found '0xFFFFFFFF'"),
        ("ARRAY<INT>", "[1]", "CSV has no values of type ARRAY"),
    ],
)
def test_a_text_that_is_not_of_the_type_named_is_refused(tmp_path, type, text, words):
    first = {
        "DATE": "2013-01-01",
        "DECIMAL(1,1)": "0",
        "TIMESTAMP": "2013-01-01",
        "TIMESTAMP_LTZ": "2013-01-01T00:00:00Z",
        "BOOLEAN": "true",
    }
    rows = source(tmp_path, f"k,v\n1,{first.get(type, '1')}\n1,{text}\n")
    with pytest.raises((InvalidRecordError, InvalidSchemaError)) as raised:
        rows.examine(ColumnPlan(types={"v": DataType.parse(type)}))
    assert words in str(raised.value)


def test_types_named_are_taken(tmp_path):
    wanted = {"a": "STRING", "b": "DECIMAL(6,2)", "c": "TINYINT", "d": "TIME", "e": "BYTES", "f": "FLOAT"}
    rows = source(tmp_path, "a,b,c,d,e,f\n1,1.5,7,05:06:07,xy,0.5\n,,,,,\n")
    types, made = read(rows, ColumnPlan(types={name: DataType.parse(text) for name, text in wanted.items()}))
    assert types == ["STRING", "DECIMAL(6,2)", "TINYINT", "TIME(0)", "BYTES", "FLOAT"]
    assert [str(made[0][name]) for name in wanted] == ["1", "1.50", "7", "05:06:07", "b'xy'", "0.5"]
    assert set(made[1].values()) == {None}


def test_decimals_are_exact_however_they_are_written(tmp_path):
    texts = ["1.5", "-.5", "5.", "1e2", "1.50E1", "000012.50", "1.25000", "0e99", "+3", "", "12345678.12"]
    rows = source(tmp_path, "k,v\n" + "".join(f"1,{text}\n" for text in texts))
    _, made = read(rows, ColumnPlan(types={"v": DataType.parse("DECIMAL(10,2)")}))
    assert [row["v"] for row in made] == [Decimal(text) if text else None for text in texts]
    wide = source(tmp_path, "k,v\n1,0." + "7" * 38 + "\n", name="b.csv")
    assert read(wide, ColumnPlan(types={"v": DataType.parse("DECIMAL(38,38)")}))[1][0]["v"] == Decimal("0." + "7" * 38)


def test_a_null_in_a_key_is_found_before_anything_is_written(tmp_path):
    rows = source(tmp_path, "k,v\n1,2\n,3\n")
    with pytest.raises(InvalidRecordError, match=r"a\.csv: column 'k', row 1: .*null"):
        rows.examine(ColumnPlan(required=frozenset({"k"})))


@pytest.mark.parametrize("delimiter", ["", ",,", "\n", '"', "é"])
def test_a_delimiter_is_one_character(tmp_path, delimiter):
    with pytest.raises(InvalidRequestError, match="delimiter"):
        source(tmp_path, "a,b\n1,2\n", delimiter=delimiter)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, encoding):
    packed = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(50_000)))
    cut = source(tmp_path, packed[:-1000], name="cut.csv.gz", encoding=encoding)
    gone = source(tmp_path, "a,b\n1,2\n", name="gone.csv", encoding=encoding)
    (tmp_path / "gone.csv").unlink()
    for rows, name in ((cut, "cut.csv.gz"), (gone, "gone.csv")):
        with pytest.raises(InvalidRecordError, match=rf"{name}: .*; nothing of it was loaded"):
            read(rows)


def test_files_with_other_columns_are_not_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a,c\n1,2\n")
    with pytest.raises(InvalidSchemaError, match=r"b\.csv: its columns are a, c, those of a\.csv a, b"):
        CsvFiles([tmp_path / "a.csv", tmp_path / "b.csv"], None, "utf-8", None).examine(ColumnPlan())

"""Which keys are equal: of every pair of types that can be looked up, those for which Spark's = is true."""

from itertools import product

import pyarrow as pa
import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.spark.source.spark_types import allow_time

pytestmark = pytest.mark.spark

NUMBERS = {
    "types": [
        "tinyint", "smallint", "int", "bigint", "decimal(2,2)", "decimal(4,2)", "decimal(9,0)",
        "decimal(19,0)", "decimal(20,5)", "decimal(38,0)", "decimal(38,10)", "decimal(38,18)", "decimal(38,37)",
    ],
    "texts": [
        "0", "-0.00", "1", "-1", "1.5", "1.50001", "0.05", "0.99", "9.9999999999", "99.99", "100", "127", "128", "-128", "-129", "32767",
        "32768", "2147483647", "2147483648", "-2147483649", "999999999", "1000000000", "9223372036854775807", "-9223372036854775808",
        "9223372036854775808", "999999999999999999.5", "99999999999999999999999999999999999999", "0.000000000000000001", "null",
    ],
}  # fmt: skip
TIMES = {
    "types": ["date", "timestamp", "timestamp_ntz", "time(6)", "time(3)"],
    "texts": [
        "1969-12-31", "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-10-27T02:30:00.000001", "0001-01-01", "9999-12-31 23:59:59.999999",
        "00:00:00", "23:59:59.999", "23:59:59.999999", "02:30:00", "2024-10-27 02:30:00Z", "null",
    ],
}  # fmt: skip
OTHERS = {
    "types": ["string", "binary", "boolean"],
    "texts": ["", " ", "a", "A", "a ", "é", "e\u0301", "true", "false", "TRUE", "1", "null"],
}


def typed(spark, kinds):
    """Return the values of each type that the texts are, one column a type; null where they are none."""
    frame = spark.createDataFrame([*enumerate(kinds["texts"])], "number int, x string")
    casts = (f"try_cast(x as {kind}) as `{kind}`" for kind in kinds["types"])
    return frame.coalesce(1).selectExpr("number", *casts).sort("number").toArrow()


def spark_equal(spark, values, pairs):
    """Return, for each pair of types, the numbers of the values that Spark finds equal."""
    frame = spark.createDataFrame(values).coalesce(1)
    both = frame.alias("x").crossJoin(frame.alias("y"))
    terms = [f"x.`{one}` = y.`{other}` as e{at}" for at, (one, other) in enumerate(pairs)]
    rows = both.selectExpr("x.number as i", "y.number as j", *terms).toArrow().to_pylist()
    return {pair: {(row["i"], row["j"]) for row in rows if row[f"e{at}"]} for at, pair in enumerate(pairs)}


@pytest.mark.parametrize("kinds", [NUMBERS, TIMES, OTHERS], ids=["numbers", "times", "others"])
def test_keys_match_where_spark_finds_them_equal(spark, kinds):
    allow_time(spark)
    values = typed(spark, kinds)
    pairs, found = [], {}
    for pair in product(kinds["types"], kinds["types"]):
        stream, table = (values.column(kind).combine_chunks() for kind in pair)
        try:
            casts = KeyCasts.of(pa.schema([("c", stream.type)]), pa.schema([("k", table.type)]))
        except UnsupportedError:
            continue
        pairs.append(pair)
        keys = casts.cast([stream]).column("k")
        assert not casts.is_lossless or keys.null_count == stream.null_count
        indexed = [*product(enumerate(keys.to_pylist()), enumerate(table.to_pylist()))]
        found[pair] = {(i, j) for (i, key), (j, value) in indexed if key is not None and key == value}
    assert found == spark_equal(spark, values, pairs)
    # All of a kind but those numbers that Spark would round.
    if kinds is NUMBERS:
        refused = {*product(kinds["types"], kinds["types"])} - {*pairs}
        assert {pair for pair in refused if "decimal(38,37)" not in pair and "decimal(38,18)" not in pair} == {
            ("decimal(38,0)", other) for other in ("decimal(2,2)", "decimal(4,2)", "decimal(20,5)", "decimal(38,10)")
        } | {(other, "decimal(38,0)") for other in ("decimal(2,2)", "decimal(4,2)", "decimal(20,5)", "decimal(38,10)")}
        assert len(pairs) > 120
    assert all((kind, kind) in pairs for kind in kinds["types"])

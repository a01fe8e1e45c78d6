"""Every Fluss type through writer, commit and source, and through other people's readers."""

# TIMESTAMP has no time zone.

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.conftest import EPOCH_MS, records

UTC = dt.UTC
#: Type -> values that show its ends.
TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127, 0],
    "smallint": [-32768, 32767],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [1.5, -0.0, math.inf, -math.inf],
    "double": [2.25, -0.0, math.inf, 5e-324],
    "string": ["", "héllo", "𝄞" * 20, "a" * 100],
    "char(3)": ["abc", ""],
    "bytes": [b"", b"\x00\xff", b"z" * 40],
    "binary(2)": [b"ab", b"\x00\x00"],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.01")],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10")],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
    "time(0)": [dt.time(0, 0, 0), dt.time(23, 59, 59)],
    "time(3)": [dt.time(12, 30, 1, 5000)],
    "time(6)": [dt.time(23, 59, 59, 999999)],
    "timestamp(0)": [dt.datetime(1969, 12, 31, 23, 59, 59)],
    "timestamp(3)": [dt.datetime(2020, 2, 29, 1, 2, 3, 4000)],
    "timestamp(6)": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "timestamp_ltz(0)": [dt.datetime(2020, 1, 1, tzinfo=UTC)],
    "timestamp_ltz(3)": [dt.datetime(2020, 1, 1, 0, 0, 0, 1000, UTC)],
    "timestamp_ltz(6)": [dt.datetime(2020, 1, 1, 0, 0, 0, 1, UTC)],
    "array<tinyint>": [[], [1, None, -128]],
    "array<array<string not null>>": [[["a"], [], None], []],
    "map<string, timestamp(3)>": [[("k", dt.datetime(2020, 1, 1)), ("l", None)], []],
    "map<binary(2), decimal(5,1)>": [[(b"xy", Decimal("1.5"))]],
    "row<a int not null, b row<c smallint, d array<char(2)>>>": [
        {"a": 1, "b": {"c": -1, "d": ["ab", None]}},
        {"a": 2, "b": None},
    ],
}


def column_name(index: int) -> str:
    return f"c{index}"


def sample(info, rows: int, rng: random.Random) -> pa.RecordBatch:
    """Rows of every type, a third of the values null."""
    arrays = []
    for column, values in zip(info.schema.columns, TYPES.values(), strict=True):
        chosen = [None if rng.random() < 0.3 else rng.choice(values) for _ in range(rows)]
        arrays.append(pa.array(chosen, column.type.arrow()))
    return pa.RecordBatch.from_arrays(arrays, schema=info.schema.arrow_schema)


@pytest.fixture
def table(lake):
    return lake.table({column_name(index): dtype for index, dtype in enumerate(TYPES)})


def test_every_type_comes_back_as_it_was(lake, table, seed):
    rows = sample(table, 300, random.Random(seed))
    snapshot = lake.append(table, rows)
    found = lake.rows(table, snapshot, [*table.schema.names, *SYSTEM_COLUMNS])
    assert found.select(table.schema.names).equals(pa.Table.from_batches([rows]))
    assert found.schema.field("__bucket").type == pa.int32()
    assert found.column("__offset").to_pylist() == list(range(300))
    assert found.column("__timestamp").cast(pa.int64()).to_pylist() == [(EPOCH_MS + i) * 1000 for i in range(300)]


def test_pyiceberg_reads_every_type(lake, table, seed):
    rows = sample(table, 100, random.Random(seed))
    lake.append(table, rows)
    found = lake.load(table).scan().to_arrow().sort_by("__offset")
    for name in table.schema.names:
        assert found.column(name).cast(rows.schema.field(name).type).to_pylist() == rows.column(name).to_pylist(), name


def test_duckdb_reads_every_type(lake, table, seed):
    rows = sample(table, 100, random.Random(seed))
    lake.append(table, rows)
    found = duckdb_rows(lake.load(table).metadata_location, "select * from lake order by __offset")
    for column in table.schema.columns:
        read = found.column(column.name)
        # Arrow does not cast a null struct whose fields are NOT NULL; its values compare as they are.
        read = read if column.type.name == "ROW" else read.cast(column.type.arrow())
        assert read.to_pylist() == rows.column(column.name).to_pylist(), column
    assert found.column("__offset").to_pylist() == list(range(100))


def test_files_carry_the_field_ids(lake, table, seed):
    lake.append(table, sample(table, 10, random.Random(seed)))
    schema = lake.load(table).schema()
    for task in lake.load(table).scan().plan_files():
        for field in pq.read_schema(task.file.file_path.removeprefix("file://")):
            assert schema.find_field(int(field.metadata[b"PARQUET:field_id"])).name == field.name


def test_metrics_are_those_of_the_rows(lake):
    table = lake.table({"k": "int", "s": "string", "d": "decimal(5,2)", "l": "array<int>"}, bucket_key=["k"], buckets=1)
    rows = pa.RecordBatch.from_pylist(
        [{"k": 5, "s": "b" * 40, "d": Decimal("1.25"), "l": [1, 2]}, {"k": -3, "s": "a", "d": None, "l": None}],
        schema=table.schema.arrow_schema,
    )
    (file,) = lake.write(table, records(rows, 100)).files
    assert file.record_count == 2
    assert file.lower_bounds[1] == (-3).to_bytes(4, "little", signed=True)
    assert file.upper_bounds[1] == (5).to_bytes(4, "little")
    assert file.upper_bounds[2] == b"b" * 15 + b"c"
    assert file.null_value_counts[3] == 1
    assert file.lower_bounds[6] == (100).to_bytes(8, "little")
    assert file.upper_bounds[6] == (101).to_bytes(8, "little")
    assert file.upper_bounds[7] == ((EPOCH_MS + 101) * 1000).to_bytes(8, "little")
    assert file.sort_order_id == 1
    assert file.spec_id == 0
    assert list(file.partition._data) == [0]


def test_dates_beyond_what_python_can_hold(lake):
    table = lake.table({"d": "date", "t": "timestamp(6)"})
    far = pa.array([2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32())
    farther = pa.array([2**63 - 1, -(2**63), 0], pa.int64()).cast(pa.timestamp("us"))
    rows = pa.RecordBatch.from_arrays([far, farther], schema=table.schema.arrow_schema)
    snapshot = lake.append(table, rows)
    found = lake.rows(table, snapshot)
    assert found.column("d").cast(pa.int32()).to_pylist() == [2**31 - 1, -(2**31), None]
    assert found.column("t").cast(pa.int64()).to_pylist() == [2**63 - 1, -(2**63), 0]


def test_a_time_that_microseconds_cannot_hold_is_refused_by_name(lake):
    table = lake.table({"fine": "int", "far": "timestamp(0)"})
    rows = pa.RecordBatch.from_arrays([pa.array([1]).cast(pa.int32()), pa.array([2**60]).cast(pa.timestamp("s"))],
                                      schema=table.schema.arrow_schema)  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"bucket 0, offsets \[5, 6\): column 'far'"):
        lake.write(table, records(rows, 5))


@pytest.mark.parametrize(
    "dtype",
    ["tinyint", "smallint", "int", "bigint", "decimal(5,2)", "decimal(38,10)", "date", "time(0)", "time(6)", "timestamp(3)",
     "timestamp(6)", "timestamp_ltz(6)", "string", "char(3)", "bytes", "binary(2)"],
)  # fmt: skip
def test_the_bucket_is_the_partition_value_that_iceberg_computes(lake, dtype):
    buckets = 7
    table = lake.table({"k": dtype}, bucket_key=["k"], buckets=buckets)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(TYPES[dtype], table.schema.columns[0].type.arrow())], schema=table.schema.arrow_schema
    )
    ids = iceberg_bucket_ids(rows.column(0), buckets).to_pylist()
    results = []
    for bucket in sorted(set(ids)):
        mine = rows.filter(pa.array([found == bucket for found in ids]))
        results.append(lake.write(table, records(mine), bucket=bucket))
    lake.commit(table, *results)
    loaded = lake.load(table)
    transform = BucketTransform(buckets).transform(loaded.schema().find_field("k").field_type)
    stored = BucketTransform(buckets).pyarrow_transform(loaded.schema().find_field("k").field_type)
    for task in loaded.scan().plan_files():
        read = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read(columns=["k"]).column("k")
        assert set(stored(read).to_pylist()) == {task.file.partition[0]}
    assert callable(transform)


def test_not_null_columns_are_required(lake):
    table = lake.table({"a": "int not null", "b": "row<c int not null>"})
    fields = {field.name: field for field in lake.load(table).schema().fields}
    assert fields["a"].required
    assert not fields["b"].required
    assert fields["b"].field_type.fields[0].required
    rows = pa.RecordBatch.from_pylist([{"a": 1, "b": {"c": 2}}, {"a": 2, "b": None}], schema=table.schema.arrow_schema)
    assert lake.rows(table, lake.append(table, rows)).equals(pa.Table.from_batches([rows]))

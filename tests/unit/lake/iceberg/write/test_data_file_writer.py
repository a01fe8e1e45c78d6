"""The writer: files, row groups, encodings, properties, names, abort, and the bytes of its results."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile

from fluss_lab import failpoints
from fluss_lab.errors import CorruptDataError, InternalError, StorageError, UnsupportedError
from fluss_lab.failpoints import FailpointError
from fluss_lab.model import make_schema
from tests.unit.lake.conftest import EPOCH_MS, records

COLUMNS = {"id": "bigint", "city": "string", "note": "string"}


def some_rows(count: int, first: int = 0) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids),
            pa.array([f"city {i % 10}" for i in ids]),
            pa.array([f"note {i * 7919 % 100003}" for i in ids]),
        ],
        schema=make_schema(COLUMNS).arrow_schema,
    )


def parquet(file: DataFile) -> pq.ParquetFile:
    return pq.ParquetFile(file.file_path.removeprefix("file://"))


def chunk(file: DataFile, column: str, group: int = 0):
    found = parquet(file).metadata.row_group(group)
    return next(found.column(i) for i in range(found.num_columns) if found.column(i).path_in_schema == column)


def test_small_batches_make_one_file_with_row_groups_of_the_limit(lake):
    table = lake.table(COLUMNS, properties={"iceberg.write.parquet.row-group-limit": "1000"})
    writer = lake.writer(table)
    for first in range(0, 3500, 70):
        writer.write(records(some_rows(70, first), first))
    result = writer.complete()
    (file,) = result.files
    groups = parquet(file).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [1000, 1000, 1000, 500]
    assert (result.start_offset, result.end_offset, result.max_timestamp_ms) == (0, 3500, EPOCH_MS + 3499)
    assert (result.row_count, result.file_count, result.size_bytes) == (3500, 1, file.file_size_in_bytes)
    assert parquet(file).read(columns=["id"]).column("id").to_pylist() == list(range(3500))


def test_a_batch_larger_than_a_row_group_is_cut(lake):
    table = lake.table(COLUMNS, properties={"iceberg.write.parquet.row-group-limit": "1000"})
    (file,) = lake.write(table, records(some_rows(300)), records(some_rows(4000, 300), 300)).files
    groups = parquet(file).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [1000, 1000, 1000, 1000, 300]
    assert parquet(file).read(columns=["__offset"]).column(0).to_pylist() == list(range(4300))


def test_files_roll_at_the_target_size_with_ascending_offsets(lake):
    table = lake.table(COLUMNS, properties={"iceberg.write.target-file-size-bytes": "20000"})
    runs = [records(some_rows(500, first), first) for first in range(0, 40000, 500)]
    result = lake.write(table, *runs)
    assert result.file_count > 3
    edges = [parquet(file).read(columns=["__offset"]).column(0).to_pylist() for file in result.files]
    assert [offset for file in edges for offset in file] == list(range(40000))
    assert all(file.file_size_in_bytes < 40_000 for file in result.files)
    assert lake.rows(table, lake.commit(table, result)).num_rows == 40000


def test_wide_rows_end_a_row_group_early(lake):
    table = lake.table({"b": "bytes"}, properties={"iceberg.write.parquet.row-group-size-bytes": "1000000"})
    writer = lake.writer(table)
    for first in range(50):
        rows = pa.RecordBatch.from_arrays([pa.array([bytes([first]) * 100_000])], schema=table.schema.arrow_schema)
        writer.write(records(rows, first))
    (file,) = writer.complete().files
    assert parquet(file).metadata.num_row_groups == 5


def test_encodings_follow_the_first_rows(lake):
    table = lake.table(COLUMNS | {"at": "timestamp(3)", "tags": "array<string>", "any": "bigint", "small": "bigint"})
    count = 5000
    rows = some_rows(count)
    rng = np.random.default_rng(1)
    at = pa.array(np.arange(count) * 17 + EPOCH_MS).cast(pa.timestamp("ms"))
    tags = pa.array([["x", "y"]] * count)
    wide = pa.array(rng.integers(-(2**63), 2**63 - 1, count))
    small = pa.array(rng.integers(0, 10**6, count))
    rows = pa.RecordBatch.from_arrays([*rows.columns, at, tags, wide, small], schema=table.schema.arrow_schema)
    (file,) = lake.write(table, records(rows)).files
    for column in ("__offset", "__timestamp", "at", "id", "small"):
        assert "DELTA_BINARY_PACKED" in chunk(file, column).encodings, column
    for column in ("city", "__bucket", "tags.list.element"):
        assert "RLE_DICTIONARY" in chunk(file, column).encodings, column
    for column in ("note", "any"):
        assert not {"RLE_DICTIONARY", "DELTA_BINARY_PACKED"} & set(chunk(file, column).encodings), column
    found = pq.read_table(file.file_path.removeprefix("file://"), columns=["any", "small"])
    assert found.equals(pa.Table.from_arrays([wide, small], schema=found.schema))


@pytest.mark.parametrize(
    ("codec", "expected"), [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED")]
)
def test_the_compression_asked_for(lake, codec, expected):
    table = lake.table(COLUMNS, properties={"iceberg.write.parquet.compression-codec": codec})
    (file,) = lake.write(table, records(some_rows(100))).files
    assert chunk(file, "note").compression == expected


def test_a_compression_level_makes_a_difference(lake):
    sizes = []
    for level in ("1", "9"):
        given = {"iceberg.write.parquet.compression-codec": "gzip", "iceberg.write.parquet.compression-level": level}
        table = lake.table(COLUMNS, name=f"t{level}", properties=given)
        sizes.append(lake.write(table, records(some_rows(20000))).size_bytes)
    assert sizes[1] < sizes[0]


def test_metrics_modes_are_honoured(lake):
    given = {"iceberg.write.metadata.metrics.default": "none", "iceberg.write.metadata.metrics.column.city": "counts"}
    table = lake.table(COLUMNS, properties=given)
    (file,) = lake.write(table, records(some_rows(100))).files
    assert set(file.lower_bounds) == {4, 5, 6}
    assert set(file.value_counts) == {2, 4, 5, 6}


@pytest.mark.parametrize("long", ["b" * 5000, "z" * 5000])
@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_a_value_too_long_for_the_statistics_of_its_row_group_leaves_its_column_without_bounds(lake, long, kind):
    table = lake.table({"id": "int", "s": kind}, properties={"iceberg.write.parquet.row-group-limit": "2"})
    values = ["a", "a", long, "y"] if kind == "string" else [b"a", b"a", long.encode(), b"y"]
    rows = pa.RecordBatch.from_pydict({"id": range(4), "s": values}, schema=table.schema.arrow_schema)
    result = lake.write(table, records(rows))
    (file,) = result.files
    assert set(file.lower_bounds) == set(file.upper_bounds) == {1, 3, 4, 5}
    assert (file.value_counts[2], file.null_value_counts[2]) == (4, 0)
    lake.commit(table, result)
    found = lake.load(table).scan(row_filter=EqualTo("s", values[3])).to_arrow()
    assert found["id"].to_pylist() == [3]


def test_a_row_group_of_nulls_alone_leaves_its_column_its_bounds(lake):
    table = lake.table({"id": "int", "s": "string"}, properties={"iceberg.write.parquet.row-group-limit": "2"})
    rows = pa.RecordBatch.from_pydict({"id": range(4), "s": ["a", "b", None, None]}, schema=table.schema.arrow_schema)
    (file,) = lake.write(table, records(rows)).files
    assert (file.lower_bounds[2], file.upper_bounds[2]) == (b"a", b"b")


def test_a_text_whose_upper_bound_would_end_in_half_a_surrogate_leaves_its_column_without_bounds(lake):
    table = lake.table({"id": "int", "s": "string", "whole": "string"})
    text = "a" * 15 + "\ud7ff"
    rows = pa.RecordBatch.from_pylist([{"id": 0, "s": f"{text}tail", "whole": text}], schema=table.schema.arrow_schema)
    result = lake.write(table, records(rows))
    (file,) = result.files
    assert set(file.lower_bounds) == set(file.upper_bounds) == {1, 3, 4, 5, 6}
    assert (file.value_counts[2], file.null_value_counts[2], file.upper_bounds[3]) == (1, 0, text.encode())
    assert lake.rows(table, lake.commit(table, result)).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("row<x int not null>", [{"x": 1}, None, {"x": 2}]),
        ("row<x int not null, s string not null, b boolean not null>", [None, {"x": 1, "s": "a", "b": True}]),
        ("row<r row<x int not null> not null>", [{"r": {"x": 1}}, None]),
        ("row<r row<x int not null>>", [{"r": {"x": 1}}, {"r": None}, None]),
        ("row<a array<row<x int not null>> not null, y int>", [{"a": [{"x": 1}, None], "y": None}, None, {"a": []}]),
        ("row<m map<string, row<x int not null>> not null>", [{"m": {"k": {"x": 1}, "n": None}}, None, {"m": {}}]),
        ("array<row<x int not null>>", [[{"x": 1}, None], None, [], [None]]),
        ("map<string, row<x int not null>>", [{"k": {"x": 1}, "n": None}, None]),
    ],
)
def test_a_null_row_with_fields_that_are_not_null_is_written(lake, kind, values):
    table = lake.table({"r": kind})
    column = pa.array([*values, *values], table.schema.arrow_schema.field("r").type)
    for part in (column, column[1:]):
        rows = pa.RecordBatch.from_arrays([part], schema=table.schema.arrow_schema)
        (file,) = lake.write(table, records(rows)).files
        assert parquet(file).read(columns=["r"]).column("r").to_pylist() == part.to_pylist()


def test_a_null_field_that_is_not_null_of_a_row_that_is_there_is_refused(lake):
    table = lake.table({"r": "row<x int not null>"})
    column = pa.StructArray.from_arrays([pa.array([1, None, None], pa.int32())],
                                        fields=list(table.schema.arrow_schema.field("r").type),
                                        mask=pa.array([False, True, False]))  # fmt: skip
    rows = pa.RecordBatch.from_arrays([column], schema=table.schema.arrow_schema)
    with pytest.raises(UnsupportedError, match=r"column 'r' holds a value.*to another one"):
        lake.write(table, records(rows))


def test_data_path_and_object_storage_layout(lake):
    given = {
        "iceberg.write.data.path": f"file://{lake.folder}/data here",
        "iceberg.write.object-storage.enabled": "true",
    }
    table = lake.table(COLUMNS, properties=given)
    result = lake.write(table, records(some_rows(10)))
    assert result.files[0].file_path.startswith(f"file://{lake.folder}/data here/")
    assert lake.rows(table, lake.commit(table, result)).num_rows == 10


def test_names_of_files_tell_round_bucket_split_and_first_offset(lake):
    table = lake.table(COLUMNS, buckets=4)
    lake.rounds = 12
    writer = lake.writer(table, bucket=3, split=2)
    writer.write(records(some_rows(5), 40))
    (file,) = writer.complete().files
    name = file.file_path.rpartition("/")[2]
    assert name.startswith("round12-b00003-s00002-o0000000000000000040-")
    assert file.file_path.rpartition("/")[0].endswith("/data/__bucket=3")


def test_partition_values_of_any_length_and_alphabet(lake):
    table = lake.table({"p": "string", "v": "int"}, partitioned_by=["p"])
    for value in ("ü" * 127, "a b/c=d%e", "..", "日本"):
        rows = pa.RecordBatch.from_pylist([{"p": value, "v": 1}], schema=table.schema.arrow_schema)
        snapshot = lake.append(table, rows, partition=value)
        found = lake.storage.create_lake_source(table).plan(snapshot)
        assert value in {split.partition for split in found}
    assert lake.load(table).scan().to_arrow().num_rows == 4


def test_without_records_there_is_no_file(lake):
    result = lake.writer(lake.table(COLUMNS)).complete()
    assert result.files == ()
    assert result.start_offset == result.end_offset
    assert not list(lake.folder.rglob("*.parquet"))


def test_offsets_must_ascend(lake):
    writer = lake.writer(lake.table(COLUMNS))
    writer.write(records(some_rows(10), 5))
    with pytest.raises(InternalError, match="expected offsets from 15, found 14"):
        writer.write(records(some_rows(10), 14))


def test_abort_removes_finished_and_unfinished_files(lake):
    table = lake.table(COLUMNS, properties={"iceberg.write.target-file-size-bytes": "70000",
                                            "iceberg.write.parquet.row-group-limit": "1000"})  # fmt: skip
    writer = lake.writer(table)
    for first in range(0, 20500, 100):
        writer.write(records(some_rows(100, first), first))
    assert list(lake.folder.rglob("*.parquet"))
    writer.abort()
    assert not list(lake.folder.rglob("*.parquet"))


def test_abort_after_a_failure_removes_what_was_written(lake):
    writer = lake.writer(lake.table(COLUMNS))
    writer.write(records(some_rows(10)))
    failpoints.arm("lake.write.after_file", "error")
    with pytest.raises(FailpointError):
        writer.complete()
    writer.abort()
    assert not list(lake.folder.rglob("*.parquet"))


def test_abort_never_raises_even_when_the_disk_is_gone(lake):
    writer = lake.writer(lake.table(COLUMNS, properties={"iceberg.write.parquet.row-group-limit": "10"}))
    writer.write(records(some_rows(25)))
    (path,) = lake.folder.rglob("*.parquet")
    path.unlink()
    path.parent.rmdir()
    writer.abort()


def test_a_folder_that_cannot_be_written_is_a_storage_error(lake):
    table = lake.table(COLUMNS)
    writer = lake.writer(table)
    (lake.folder / "warehouse" / "db" / "t-7" / "data").write_text("a file in the way")
    writer.write(records(some_rows(10)))
    with pytest.raises(StorageError, match="Not a directory"):
        writer.complete()


def test_tasks_need_nothing_but_json(lake):
    """The description goes through JSON, and no catalog is asked: its file is gone."""
    table = lake.table(COLUMNS)
    target = json.loads(json.dumps(lake.factory.describe_table(table)))
    assert "catalog" not in json.dumps(target["io_properties"])
    hidden = lake.folder / "catalog"
    hidden.rename(lake.folder / "hidden")
    writer = lake.writer(table, target=target)
    writer.write(records(some_rows(10)))
    assert writer.complete().row_count == 10
    (lake.folder / "hidden").rename(hidden)


def test_write_results_come_back_from_their_bytes(lake, seed):
    rng = random.Random(seed)
    table = lake.table(
        COLUMNS | {"p": "string"}, partitioned_by=["p"], properties={"iceberg.write.target-file-size-bytes": "70000"}
    )
    count = rng.randrange(1, 20000)
    rows = some_rows(count)
    rows = pa.RecordBatch.from_arrays([*rows.columns, pa.array(["a ü"] * count)], schema=table.schema.arrow_schema)
    result = lake.write(table, records(rows, rng.randrange(2**40)), partition="a ü")
    serializer = lake.factory.write_result_serializer()
    again = serializer.deserialize(serializer.version, serializer.serialize(result))
    assert again == result
    for before, after in zip(result.files, again.files, strict=True):
        for field in DATA_FILE_TYPE[2].fields:
            found, expected = getattr(after, field.name), getattr(before, field.name)
            assert found == expected, field.name
            assert type(found) is type(expected), field.name
        assert before.spec_id == after.spec_id
    committables = lake.factory.committable_serializer()
    whole = lake.committer(table).to_committable([result])
    assert committables.deserialize(committables.version, committables.serialize(whole)) == whole


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"files":[{}]}', b'{"files":[],"what":1}'])
def test_bytes_that_are_no_write_result(lake, data):
    with pytest.raises(CorruptDataError):
        lake.factory.write_result_serializer().deserialize(2, data)
    with pytest.raises(CorruptDataError, match="version"):
        lake.factory.write_result_serializer().deserialize(3, data)

"""Planning and reading a table's snapshots: order, filters, types, and files that others wrote."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, StringType

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS
from tests.unit.lake.conftest import EPOCH_MS, records

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint", "small": "tinyint", "text": "string", "score": "double", "at": "timestamp(3)"}


def rows(info, count, first=0, **fixed):
    ids = np.arange(first, first + count)
    columns = {
        "id": pa.array(ids),
        "small": pa.array(ids % 100 - 50).cast(pa.int8()),
        "text": pa.array([None if i % 7 == 0 else f"t{i % 13}" for i in ids], pa.string()),
        "score": pa.array(ids / 4.0),
        "at": pa.array(EPOCH_MS + ids * 1000).cast(pa.timestamp("ms")),
        "p": pa.array([fixed.get("p", "")] * count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in info.schema.names], schema=info.schema.arrow_schema)


@pytest.fixture
def table(lake):
    return lake.table(COLUMNS, buckets=2, properties={"iceberg.write.parquet.row-group-limit": "100"})


def planned(lake, info, snapshot, **options):
    splits = lake.storage.create_lake_source(info).plan(snapshot, **options)
    return [(split.partition, split.bucket, split.min_offset, split.max_offset) for split in splits]


def test_files_come_by_partition_bucket_and_offset(lake):
    table = lake.table({"id": "bigint", "p": "string"}, partitioned_by=["p"], buckets=2)
    for p, bucket, first in [("b", 0, 0), ("a", 1, 5), ("a", 1, 0), ("a", 0, 0), ("b", 0, 5)]:
        snapshot = lake.append(table, rows(table, 5, first, p=p), first, bucket=bucket, partition=p)
    expected = [("a", 0, 0, 4), ("a", 1, 0, 4), ("a", 1, 5, 9), ("b", 0, 0, 4), ("b", 0, 5, 9)]
    assert planned(lake, table, snapshot) == expected
    assert planned(lake, table, snapshot, stops={("a", 1): 5, ("b", 0): 100}) == [expected[1], *expected[3:]]
    assert planned(lake, table, snapshot, stops={("a", 1): 0}) == []
    assert planned(lake, table, snapshot, where=EqualTo("p", "b")) == expected[3:]
    assert planned(lake, table, snapshot, where=GreaterThan("id", 4)) == [expected[2], expected[4]]
    split = lake.storage.create_lake_source(table).plan(snapshot)[0]
    assert split.rows == 5
    assert split.path.startswith("file://")
    assert split.size_bytes > 0


def test_columns_in_the_order_asked_and_filters_on_others(lake, table):
    snapshot = lake.append(table, rows(table, 500), 1000, bucket=1)
    where = (pc.field("__offset") >= 1490) & (pc.field("small") != 45)
    found = lake.rows(table, snapshot, ["__bucket", "text"], where=where)
    assert found.schema.names == ["__bucket", "text"]
    assert found.num_rows == 9
    assert set(found.column("__bucket").to_pylist()) == {1}
    everything = lake.rows(table, snapshot, [*SYSTEM_COLUMNS, *reversed(table.schema.names)])
    assert everything.schema.names == [*SYSTEM_COLUMNS, *reversed(table.schema.names)]
    assert lake.rows(table, snapshot, ["id"], where=pc.field("id") < 0).num_rows == 0


def test_filters_compute_in_the_tables_own_types(lake, table):
    """TINYINT arithmetic wraps in the log; it must do the same in the lake, where the column is wider."""
    snapshot = lake.append(table, rows(table, 300))
    where = pc.multiply(pc.field("small"), pa.scalar(3, pa.int8())) > pa.scalar(50, pa.int8())
    expected = pa.Table.from_batches([rows(table, 300)]).filter(where)
    assert 0 < expected.num_rows < 300
    assert lake.rows(table, snapshot, where=where).equals(expected)
    moment = pa.scalar(EPOCH_MS + 7000, pa.int64()).cast(pa.timestamp("ms"))
    assert lake.rows(table, snapshot, where=pc.field("at") <= moment).num_rows == 8


def test_stops_cut_within_a_file(lake, table):
    snapshot = lake.append(table, rows(table, 350))
    snapshot = lake.append(table, rows(table, 10), bucket=1)
    found = lake.rows(table, snapshot, stops={(None, 0): 217})
    assert found.column("id").to_pylist() == list(range(217))
    source = lake.storage.create_lake_source(table)
    splits = source.plan(snapshot)
    Path(next(split.path for split in splits if split.bucket == 0).removeprefix("file://")).unlink()
    assert [split.bucket for split, _ in source.read(splits, ["id"], stops={(None, 1): 3})] == [1], (
        "bucket 0 is not opened"
    )


def test_row_groups_that_cannot_match_are_not_read(lake, table):
    """Broken bytes in the first row groups do not matter to a filter that asks for the last."""
    snapshot = lake.append(table, rows(table, 500))
    (split,) = lake.storage.create_lake_source(table).plan(snapshot)
    path = split.path.removeprefix("file://")
    starts = pq.ParquetFile(path).metadata.row_group(4).column(0).data_page_offset
    with open(path, "r+b") as file:
        file.seek(4)
        file.write(b"\xff" * (starts - 100))
    assert lake.rows(table, snapshot, where=pc.field("id") == 450).num_rows == 1
    with pytest.raises(CorruptDataError, match=r"not the .* that it should be"):
        lake.rows(table, snapshot)


def test_a_snapshot_that_is_not_there(lake, table):
    with pytest.raises(LakeSnapshotNotFoundError, match="no snapshot 99"):
        lake.storage.create_lake_source(table).plan(99)


def test_a_missing_file_is_named(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    source = lake.storage.create_lake_source(table)
    (split,) = source.plan(snapshot)
    next(lake.folder.rglob("*.parquet")).unlink()
    with pytest.raises(CorruptDataError, match="is missing"):
        list(source.read([split], ["id"]))


def test_a_file_that_is_no_parquet(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    next(lake.folder.rglob("*.parquet")).write_bytes(b"not parquet at all")
    with pytest.raises(CorruptDataError, match="not the Parquet file"):
        lake.rows(table, snapshot)


def test_older_snapshots_stay_readable(lake, table):
    snapshots = [lake.append(table, rows(table, 10, first), first) for first in (0, 10, 20)]
    source = lake.storage.create_lake_source(table)
    for index, snapshot in enumerate(snapshots):
        assert sum(split.rows for split in source.plan(snapshot)) == 10 * (index + 1)


# ── what others do to the table ─────────────────────────────────────────────────────────────────────────────────────


def others_file(
    lake, info, write, *, bucket=0, min_offset=0, max_offset=0, metrics=True, file_format=FileFormat.PARQUET
):
    """Put a file that somebody else wrote into the table."""
    loaded = lake.load(info)
    path = lake.folder / f"other-{bucket}-{min_offset}.parquet"
    rows = write(path)
    offset_id, timestamp_id = (loaded.schema().find_field(name).field_id for name in ("__offset", "__timestamp"))
    lower = {offset_id: min_offset.to_bytes(8, "little")} if metrics else {}
    upper = (
        {offset_id: max_offset.to_bytes(8, "little"), timestamp_id: (2**60).to_bytes(8, "little")} if metrics else {}
    )
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file://{path}", file_format=file_format, partition=Record(bucket), record_count=rows,
        file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={}, null_value_counts={}, nan_value_counts={},
        lower_bounds=lower, upper_bounds=upper, key_metadata=None, split_offsets=None, equality_ids=None, sort_order_id=None,
    )  # fmt: skip
    file.spec_id = 0
    with loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    return lake.load(info).current_snapshot().snapshot_id


def as_in_the_lake(lake, info, batch, offsets) -> pa.Table:
    """Rows with the lake's columns, names and ids."""
    from fluss_lab.lake.iceberg.table.type_mapping import arrow_field

    fields = [arrow_field(field) for field in lake.load(info).schema().fields]
    millis = pa.array((EPOCH_MS + np.asarray(offsets)) * 1000).view(pa.timestamp("us", "UTC"))
    system = [pa.array(np.zeros(len(offsets), np.int32)), pa.array(np.asarray(offsets, np.int64)), millis]
    columns = [column.cast(field.type) for column, field in zip([*batch.columns, *system], fields, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def test_a_renamed_column_is_read_by_its_id(lake, table):
    lake.append(table, rows(table, 150))
    with lake.load(table).update_schema() as update:
        update.rename_column("text", "id2")
        update.rename_column("score", "text")
    snapshot = lake.append(table, rows(table, 150, 150), 150)
    expected = pa.Table.from_batches([rows(table, 300)])
    assert lake.rows(table, snapshot).equals(expected)
    where = (pc.field("text") == "t3") & (pc.field("score") > 10)
    assert lake.rows(table, snapshot, where=where).equals(expected.filter(where))
    assert len(planned(lake, table, snapshot, where=GreaterThan("score", 60.0))) == 1


def test_a_widened_column_keeps_its_type_here(lake):
    table = lake.table({"n": "int", "f": "float", "d": "decimal(5,2)"})
    first = pa.RecordBatch.from_pylist([{"n": 1, "f": 1.5, "d": None}], schema=table.schema.arrow_schema)
    lake.append(table, first)
    with lake.load(table).update_schema() as update:
        update.update_column("n", LongType())
    snapshot = lake.append(table, first, 1)
    assert lake.rows(table, snapshot).equals(pa.Table.from_batches([first, first]))
    assert len(planned(lake, table, snapshot, where=EqualTo("n", 1))) == 2
    assert planned(lake, table, snapshot, where=EqualTo("n", 2)) == []


def test_what_is_widened_within_a_column_keeps_its_type_here(lake):
    table = lake.table({"a": "array<int>", "m": "map<int, float>", "r": "row<x int, l array<int>>", "s": "string"})
    row = {"a": [1, None], "m": [(1, 1.5)], "r": {"x": 2, "l": [3]}, "s": "s"}
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema=table.schema.arrow_schema)
    lake.append(table, batch)
    with lake.load(table).update_schema() as update:
        update.update_column(("a", "element"), LongType())
        update.update_column(("m", "value"), DoubleType())
        update.update_column(("r", "x"), LongType())
        update.update_column(("r", "l", "element"), LongType())
        update.rename_column("s", "renamed")
    snapshot = lake.append(table, batch, 2)
    expected = pa.Table.from_batches([batch, batch])
    assert lake.rows(table, snapshot).equals(expected)
    where = pc.field("s") == "s"
    assert lake.rows(table, snapshot, where=where).equals(expected.filter(where))


def test_a_column_of_another_type_is_corruption(lake):
    table = lake.table({"a": "array<int>", "s": "string"})
    batch = pa.RecordBatch.from_pylist([{"a": [1], "s": "s"}], schema=table.schema.arrow_schema)
    with lake.load(table).update_schema() as update:
        update.rename_column("a", "renamed")
    file = as_in_the_lake(lake, table, batch, [0])
    inner = file.schema.field(0).type.value_field.with_type(pa.string())
    texts = pa.array([["x"]], pa.list_(inner))
    file = file.set_column(0, file.schema.field(0).with_type(texts.type), texts)
    snapshot = others_file(lake, table, lambda path: pq.write_table(file, path) or 1)
    with pytest.raises(CorruptDataError, match=r"other-0.*promote an string to int"):
        lake.rows(table, snapshot)


def test_values_that_the_type_cannot_hold_are_corruption(lake, table):
    wide = as_in_the_lake(lake, table, rows(table, 3), range(3))
    wide = wide.set_column(1, wide.schema.field(1), pa.array([1, 2, 300], pa.int32()))
    snapshot = others_file(lake, table, lambda path: pq.write_table(wide, path) or 3, max_offset=2)
    with pytest.raises(CorruptDataError, match=r"other-0.*300"):
        lake.rows(table, snapshot)


def test_nulls_in_a_column_that_has_none_are_corruption(lake):
    table = lake.table({"a": "int not null", "b": "int"})
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": 2}], schema=table.schema.arrow_schema)
    whole = as_in_the_lake(lake, table, batch, [0])
    hollow = whole.set_column(0, whole.schema.field(0).with_nullable(True), pa.array([None], pa.int32()))
    snapshot = others_file(lake, table, lambda path: pq.write_table(hollow, path) or 1)
    with pytest.raises(CorruptDataError, match="NOT NULL"):
        lake.rows(table, snapshot)


def test_columns_that_others_added_are_not_seen(lake, table):
    lake.append(table, rows(table, 10))
    with lake.load(table).update_schema() as update:
        update.add_column("extra", StringType())
    assert lake.rows(table, lake.append(table, rows(table, 10, 10), 10)).num_rows == 20


def test_a_file_without_some_column_gives_nulls(lake, table):
    partial = as_in_the_lake(lake, table, rows(table, 5), range(5)).drop_columns(["text"])
    snapshot = others_file(lake, table, lambda path: pq.write_table(partial, path) or 5, max_offset=4)
    found = lake.rows(table, snapshot, where=pc.field("text").is_null())
    assert found.column("text").to_pylist() == [None] * 5
    assert found.column("id").to_pylist() == list(range(5))


@pytest.mark.parametrize("metrics", [True, False])
def test_files_whose_offsets_do_not_ascend_are_sorted(lake, table, seed, metrics):
    order = np.random.default_rng(seed).permutation(250)
    batch = pa.Table.from_batches([rows(table, 250)]).take(pa.array(order)).combine_chunks().to_batches()[0]
    shuffled = as_in_the_lake(lake, table, batch, order)
    snapshot = others_file(
        lake,
        table,
        lambda path: pq.write_table(shuffled, path, row_group_size=60) or 250,
        max_offset=249,
        metrics=metrics,
    )
    found = lake.rows(table, snapshot, [*table.schema.names, "__offset"])
    assert found.column("__offset").to_pylist() == list(range(250))
    assert found.column("id").to_pylist() == list(range(250))
    assert planned(lake, table, snapshot) == [(None, 0, 0, 249)]
    assert lake.rows(table, snapshot, stops={(None, 0): 100}).column("id").to_pylist() == list(range(100))


def test_files_without_statistics_and_with_other_list_names(lake):
    table = lake.table({"l": "array<int>", "m": "map<string, int>"})
    batch = pa.RecordBatch.from_pylist(
        [{"l": [1, None], "m": [("a", 1)]}, {"l": None, "m": None}], schema=table.schema.arrow_schema
    )
    whole = as_in_the_lake(lake, table, batch, range(2))

    def write(path):
        pq.write_table(whole, path, write_statistics=False, use_compliant_nested_type=False)
        return 2

    snapshot = others_file(lake, table, write, max_offset=1)
    assert lake.rows(table, snapshot).equals(pa.Table.from_batches([batch]))


def test_files_with_deletes_are_refused_not_ignored(lake, table):
    from pyiceberg.manifest import ManifestContent, ManifestWriterV2
    from pyiceberg.table.update.snapshot import _FastAppendFiles

    class DeleteManifestWriter(ManifestWriterV2):
        def content(self):
            return ManifestContent.DELETES

    class Deletes(_FastAppendFiles):
        def new_manifest_writer(self, spec):
            return DeleteManifestWriter(
                spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
            )

    lake.append(table, rows(table, 10))
    (split,) = lake.storage.create_lake_source(table).plan(lake.load(table).current_snapshot().snapshot_id)
    loaded = lake.load(table)
    deletes = pa.table({"file_path": [split.path], "pos": pa.array([3], pa.int64())})
    path = lake.folder / "deletes.parquet"
    pq.write_table(deletes, path)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=Record(0),
        record_count=1, file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    file.spec_id = 0
    from pyiceberg.table.snapshots import Operation

    with loaded.transaction() as transaction:
        producer = Deletes(operation=Operation.OVERWRITE, transaction=transaction, io=loaded.io)
        producer.append_data_file(file).commit()
    with pytest.raises(UnsupportedError, match="another engine deleted rows"):
        lake.storage.create_lake_source(table).plan(lake.load(table).current_snapshot().snapshot_id)


def test_files_of_another_partition_spec_are_refused(lake, table):
    from pyiceberg.transforms import IdentityTransform

    lake.append(table, rows(table, 10))
    lake.load(table).update_spec().add_field("small", IdentityTransform(), "small_part").commit()
    whole = as_in_the_lake(lake, table, rows(table, 10, 10), range(10, 20))
    lake.load(table).append(whole.replace_schema_metadata(None))
    with pytest.raises(UnsupportedError, match="partition spec"):
        lake.storage.create_lake_source(table).plan(lake.load(table).current_snapshot().snapshot_id)


def test_files_of_another_format_are_refused(lake, table):
    def write(path):
        path.write_bytes(b"ORC")
        return 1

    snapshot = others_file(lake, table, write, file_format=FileFormat.ORC)
    with pytest.raises(UnsupportedError, match="ORC"):
        lake.storage.create_lake_source(table).plan(snapshot)


def test_equal_snapshots_share_decoded_manifests(lake, table):
    from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache

    for first in range(0, 30, 10):
        lake.append(table, rows(table, 10, first), first)
    loaded = lake.load(table)
    cache = EntryCache(entries_max=2)
    manifests = loaded.current_snapshot().manifests(loaded.io)
    assert [len(cache.entries(loaded.io, manifest)) for manifest in manifests] == [1, 1, 1]
    assert cache.entries(loaded.io, manifests[-1]) is cache.entries(loaded.io, manifests[-1])
    assert len(cache._kept) == 2


def test_records_helper_is_what_the_log_gives(lake, table):
    run = records(rows(table, 3), 5)
    assert (run.base_offset, run.next_offset) == (5, 8)

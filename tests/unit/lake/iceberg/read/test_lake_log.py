"""The log read back: seeks by time against brute force, ranges of offsets, gaps, doubles, overlaps, expired snapshots."""

import mmap
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, LakeSnapshotNotFoundError
from fluss_lab.lake import FetchContext, LookupContext
from fluss_lab.lake.iceberg.read import lake_log
from tests.unit.lake.conftest import EPOCH_MS
from tests.unit.lake.iceberg.read.test_row_source import as_in_the_lake, others_file

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint", "text": "string"}


def rows(info, count, first=0):
    ids = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array([f"t{i}" for i in ids])], schema=info.schema.arrow_schema
    )


def fetch(lake, info, snapshot, start, stop, *, projection=None, partition=None, bucket=0):
    source = lake.storage.create_fluss_log_source(info)
    return list(source.fetch_log_records(FetchContext(start, stop, partition, bucket, snapshot, projection)))


def offsets(runs):
    return [offset for run in runs for offset in run.offsets.to_pylist()]


@pytest.fixture
def table(lake):
    return lake.table(COLUMNS, buckets=2, properties={"iceberg.write.parquet.row-group-limit": "50"})


def test_seeks_find_what_brute_force_finds(lake, table, seed):
    rng = random.Random(seed)
    moments, first = [], 0
    for _ in range(rng.randrange(2, 8)):
        count = rng.randrange(1, 300)
        # Timestamps never go back, often stand still, sometimes jump.
        steps = rng.choices([0, 0, 0, 1, 5, 1000], k=count)
        start = moments[-1] if moments else EPOCH_MS
        times = (start + np.cumsum(steps)).tolist()
        snapshot = lake.append(table, rows(table, count, first), first, timestamps_ms=times)
        moments += times
        first += count
    lake.append(table, rows(table, 10), bucket=1, timestamps_ms=[EPOCH_MS - 5] * 10)
    source = lake.storage.create_fluss_log_source(table)
    asked = [
        0,
        moments[0],
        moments[-1],
        moments[-1] + 1,
        *(rng.choice(moments) + rng.randrange(-2, 3) for _ in range(60)),
    ]
    for moment in asked:
        context = LookupContext(None, 0, moment, snapshot)
        expected = next((offset for offset, found in enumerate(moments) if found >= moment), None)
        if expected is None:
            with pytest.raises(InvalidTimestampError, match="no record"):
                source.lookup_log_offset_by_timestamp(context)
        else:
            assert source.lookup_log_offset_by_timestamp(context) == (expected, moments[expected]), moment


def test_a_seek_opens_one_file_and_reads_one_row_group(lake, table):
    for first in range(0, 2000, 200):
        snapshot = lake.append(table, rows(table, 200, first), first)
    source = lake.storage.create_fluss_log_source(table)
    for path in lake.folder.rglob("*.parquet"):
        # Only the file and row group that hold the answer are left whole.
        if "o0000000000000001200" in path.name:
            begin = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
            with path.open("r+b") as file:
                file.seek(4)
                file.write(b"\xff" * (begin - 64))
        else:
            path.write_bytes(b"broken")
    assert source.lookup_log_offset_by_timestamp(LookupContext(None, 0, EPOCH_MS + 1320, snapshot)) == (
        1320,
        EPOCH_MS + 1320,
    )


def test_seeks_where_there_is_nothing(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    source = lake.storage.create_fluss_log_source(table)
    with pytest.raises(InvalidTimestampError, match="bucket 1"):
        source.lookup_log_offset_by_timestamp(LookupContext(None, 1, 0, snapshot))
    assert source.earliest_offset(None, 1, snapshot) is None
    assert source.earliest_offset(None, 0, snapshot) == 0
    assert fetch(lake, table, snapshot, 0, 0) == []


def test_any_range_comes_back_in_order(lake, table, seed):
    rng = random.Random(seed)
    first = 100
    for _ in range(6):
        count = rng.randrange(1, 200)
        snapshot = lake.append(table, rows(table, count, first), first)
        first += count
    source = lake.storage.create_fluss_log_source(table)
    assert source.earliest_offset(None, 0, snapshot) == 100
    for _ in range(40):
        start = rng.randrange(100, first)
        stop = rng.randrange(start, first + 1)
        runs = fetch(lake, table, snapshot, start, stop)
        assert offsets(runs) == list(range(start, stop))
        for run in runs:
            assert run.rows.column("id").to_pylist() == run.offsets.to_pylist()
            assert run.timestamps_ms.to_pylist() == [EPOCH_MS + offset for offset in run.offsets.to_pylist()]
            assert run.rows.schema == table.schema.arrow_schema
            assert run.change_types is None
            assert len(run) <= 50


def test_projections_in_the_order_asked(lake):
    table = lake.table({"a": "tinyint", "b": "string", "c": "char(2)"})
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": "x", "c": "yz"}], schema=table.schema.arrow_schema)
    snapshot = lake.append(table, batch)
    (run,) = fetch(lake, table, snapshot, 0, 1, projection=("c", "a"))
    assert run.rows.schema.names == ["c", "a"]
    assert run.rows.to_pylist() == [{"c": "yz", "a": 1}]
    (nothing,) = fetch(lake, table, snapshot, 0, 1, projection=())
    assert len(nothing.offsets) == 1


def test_partitions_do_not_mix(lake):
    table = lake.table({"id": "bigint", "p": "string"}, partitioned_by=["p"])
    for p in ("x", "y"):
        batch = pa.RecordBatch.from_pylist([{"id": ord(p), "p": p}], schema=table.schema.arrow_schema)
        snapshot = lake.append(table, batch, partition=p)
    (run,) = fetch(lake, table, snapshot, 0, 1, partition="y")
    assert run.rows.to_pylist() == [{"id": ord("y"), "p": "y"}]


def test_gaps_are_named(lake, table):
    lake.append(table, rows(table, 10))
    snapshot = lake.append(table, rows(table, 10, 15), 15)
    assert offsets(fetch(lake, table, snapshot, 0, 10)) == list(range(10))
    with pytest.raises(CorruptDataError, match=r"\[10, 15\) are missing"):
        fetch(lake, table, snapshot, 5, 25)
    with pytest.raises(CorruptDataError, match=r"\[25, 30\) are missing"):
        fetch(lake, table, snapshot, 15, 30)
    with pytest.raises(CorruptDataError, match=r"\[12, 15\) are missing"):
        fetch(lake, table, snapshot, 12, 20)


def test_doubles_are_named(lake, table):
    lake.append(table, rows(table, 10))
    snapshot = lake.append(table, rows(table, 10, 5), 5)
    with pytest.raises(CorruptDataError, match="offset 5 is there more than once"):
        fetch(lake, table, snapshot, 0, 15)


def test_overlapping_files_are_merged(lake, table, seed):
    """As stock bin-packing leaves them: each file sorted, their ranges interleaved."""
    rng = random.Random(seed)
    lake.append(table, rows(table, 20))
    files: dict[int, list[int]] = {}
    for offset in range(20, 600):
        files.setdefault(rng.randrange(3), []).append(offset)
    for mine in files.values():
        batch = pa.Table.from_batches([rows(table, 600)]).take(pa.array(mine)).combine_chunks().to_batches()[0]
        whole = as_in_the_lake(lake, table, batch, mine)
        group = rng.randrange(7, 90)
        snapshot = others_file(
            lake, table, lambda path, whole=whole, group=group: pq.write_table(whole, path, row_group_size=group) or len(whole),
            min_offset=mine[0], max_offset=mine[-1],
        )  # fmt: skip
    for start, stop in [(0, 600), (10, 25), (100, 101), (333, 580)]:
        runs = fetch(lake, table, snapshot, start, stop)
        assert offsets(runs) == list(range(start, stop))
        assert [i for run in runs for i in run.rows.column("id").to_pylist()] == list(range(start, stop))
    source = lake.storage.create_fluss_log_source(table)
    for offset in rng.sample(range(600), 40):
        context = LookupContext(None, 0, EPOCH_MS + offset, snapshot)
        assert source.lookup_log_offset_by_timestamp(context) == (offset, EPOCH_MS + offset)


@pytest.mark.parametrize("late", [1, 9])
def test_a_file_that_reaches_over_a_range_and_has_none_of_it_hides_no_record(lake, table, late):
    """The range lies between two row groups of the file that is opened last."""
    apart = [late, late + 1, 28, 29]
    for mine, group in (([0, *range(10, 20)], 50), (apart, 2)):
        batch = pa.Table.from_batches([rows(table, 30)]).take(pa.array(mine)).combine_chunks().to_batches()[0]
        whole = as_in_the_lake(lake, table, batch, mine)
        snapshot = others_file(
            lake, table, lambda path, whole=whole, group=group: pq.write_table(whole, path, row_group_size=group) or len(whole),
            min_offset=mine[0], max_offset=mine[-1],
        )  # fmt: skip
    for start, stop in [(11, 20), (12, 13), (19, 20)]:
        runs = fetch(lake, table, snapshot, start, stop)
        assert offsets(runs) == list(range(start, stop))


def test_files_that_do_not_ascend_are_read_in_order(lake, table, seed):
    order = np.random.default_rng(seed).permutation(200)
    batch = pa.Table.from_batches([rows(table, 200)]).take(pa.array(order)).combine_chunks().to_batches()[0]
    whole = as_in_the_lake(lake, table, batch, order)
    snapshot = others_file(
        lake, table, lambda path: pq.write_table(whole, path, row_group_size=40) or 200, max_offset=199
    )
    assert offsets(fetch(lake, table, snapshot, 30, 170)) == list(range(30, 170))
    source = lake.storage.create_fluss_log_source(table)
    assert source.lookup_log_offset_by_timestamp(LookupContext(None, 0, EPOCH_MS + 77, snapshot))[0] == 77


def test_fetching_holds_one_row_group(lake):
    """The records come while the file is read, not after it."""
    table = lake.table({"b": "bytes"}, properties={"iceberg.write.parquet.row-group-limit": "10"})
    batch = pa.RecordBatch.from_arrays(
        [pa.array([bytes([i]) * 100_000 for i in range(100)])], schema=table.schema.arrow_schema
    )
    snapshot = lake.append(table, batch)
    before = pa.total_allocated_bytes()
    source = lake.storage.create_fluss_log_source(table)
    for run in source.fetch_log_records(FetchContext(0, 100, None, 0, snapshot)):
        assert len(run) == 10
        assert pa.total_allocated_bytes() - before < 5_000_000


def test_leaving_a_fetch_closes_its_files(lake, table):
    snapshot = lake.append(table, rows(table, 200))
    source = lake.storage.create_fluss_log_source(table)
    fetched = source.fetch_log_records(FetchContext(0, 200, None, 0, snapshot))
    assert next(fetched).base_offset == 0
    fetched.close()


def test_a_snapshot_that_was_expired(lake, table):
    first = lake.append(table, rows(table, 5))
    second = lake.append(table, rows(table, 5, 5), 5)
    source = lake.storage.create_fluss_log_source(table)
    with pytest.raises(LakeSnapshotNotFoundError, match="77"):
        source.earliest_offset(None, 0, 77)
    assert source.earliest_offset(None, 0, first) == 0
    lake.load(table).maintenance.expire_snapshots().by_ids([first]).commit()
    fresh = lake.storage.create_fluss_log_source(table)
    with pytest.raises(LakeSnapshotNotFoundError):
        fresh.earliest_offset(None, 0, first)
    assert offsets(fetch(lake, table, second, 0, 10)) == list(range(10))


def test_a_snapshot_that_is_expired_while_it_is_read(lake, table):
    first = lake.append(table, rows(table, 5))
    lake.append(table, rows(table, 5, 5), 5)
    source = lake.storage.create_fluss_log_source(table)
    assert source.earliest_offset(None, 0, first) == 0
    lake.load(table).maintenance.expire_snapshots().by_ids([first]).commit()
    for path in lake.folder.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(LakeSnapshotNotFoundError, match="plan the read again"):
        list(source.fetch_log_records(FetchContext(0, 5, None, 0, first)))


def test_a_file_that_somebody_removed(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    next(lake.folder.rglob("*.parquet")).unlink()
    with pytest.raises(CorruptDataError, match="another program removed"):
        fetch(lake, table, snapshot, 0, 5)


def test_a_table_that_was_replaced(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    lake.catalog.drop_table(table.path, 7, keep=True)
    lake.table(COLUMNS, table_id=8)
    with pytest.raises(LakeSnapshotNotFoundError, match="another table"):
        fetch(lake, table, snapshot, 0, 5)


def _long_texts(first: int, count: int, size: int) -> pa.Table:
    """Rows with texts of zero bytes: pages of memory that nobody wrote to take no room."""
    ends = pa.py_buffer(np.arange(0, count * size + 1, size, dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(mmap.mmap(-1, count * size))])
    times = pa.array(np.zeros(count, dtype=np.int64), pa.timestamp("us"))
    return pa.table({"text": texts, "__offset": np.arange(first, first + count), "__timestamp": times})


@pytest.mark.campaign  # it takes 5 GB of memory
def test_of_a_row_group_with_more_than_2_gb_in_a_column_no_row_is_left_out():
    """Others write such: 128 MB of a file may be many times as much. Seen: the first 2 GB came, and nothing was said."""
    rows = pa.concat_tables([_long_texts(0, 64, 18 << 20), _long_texts(64, 64, 18 << 20)])
    found = list(lake_log._records(rows, ["text"]))
    assert [len(each.rows) for each in found] == [64, 64]
    assert [offset for each in found for offset in each.offsets.to_pylist()] == list(range(128))

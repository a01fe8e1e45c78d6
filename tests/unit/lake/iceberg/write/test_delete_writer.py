"""Delete files that carry rows: their columns, order, names and bounds; placing them anew; reading events back."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from fluss_lab import failpoints
from fluss_lab.errors import CommitConflictError, CorruptDataError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.files.parquet_output import ParquetSettings
from fluss_lab.lake.iceberg.table.layout import checked_layout
from fluss_lab.lake.iceberg.write import delete_writer
from fluss_lab.lake.iceberg.write.delete_schema import (
    EventRange,
    delete_schema,
    equality_schema,
    event_range,
    read_events,
)
from fluss_lab.lake.iceberg.write.delete_writer import place_again
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.model import TableInfo
from fluss_lab.model.schema import make_schema
from tests.unit.lake.changelogs import (
    Changelog,
    commit_cut,
    commit_results,
    events_of,
    expected_rows,
    result_files,
    same_rows,
    state_of,
    written,
)
from tests.unit.lake.conftest import EPOCH_MS

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint not null", "v": "string", "tags": "array<string>"}


def keyed(lake, columns=None, **definition) -> TableInfo:
    return lake.table(columns or COLUMNS, primary_key=["id"], buckets=1, **definition)


def filled(info, count=100, changes=60, seed=1) -> tuple[Changelog, int]:
    """Return a changelog and where its second half, with all kinds of changes, begins."""
    rng = random.Random(seed)
    log = Changelog(info.schema.arrow_schema, ("id",))
    for key in range(count):
        log.upsert({"id": key, "v": f"v{key}", "tags": ["a", None]})
    middle = log.end
    for _ in range(changes):
        if rng.random() < 0.3:
            log.delete((rng.randrange(count),))
        else:
            log.upsert({"id": rng.randrange(count), "v": f"w{rng.random()}", "tags": None})
    return log, middle


def table_of(file) -> pq.ParquetFile:
    return pq.ParquetFile(file.file_path.removeprefix("file://"))


def ids_of(schema: pa.Schema) -> dict[str, int]:
    return {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}


def test_columns_of_a_position_delete_file(lake):
    info = keyed(lake)
    log, middle = filled(info)
    first = written(lake, info, log.run(0, middle))
    assert (first.deletes, first.unplaced, first.event_count) == ((), (), 0)
    commit_results(lake, info, first)
    result = written(lake, info, log.run(middle, log.end))
    (file,) = result.deletes
    assert ids_of(table_of(file).schema_arrow) == {
        "file_path": 2147483546, "pos": 2147483545, "_change_type": 2147483543, "_previous_offset": 2147482647,
        "_r1": 1, "_r2": 2, "_r3": 3, "_r4": 4, "_r5": 5, "_r6": 6,
    }  # fmt: skip
    schema = lake.load(info).schema()
    assert table_of(file).schema_arrow.field("_r3").type == delete_schema(schema).field("_r3").type
    assert table_of(file).schema_arrow.names == delete_schema(schema).names
    # Bounds of the paths, exact, and nothing else that a reader could prune by.
    paths = table_of(file).read(columns=["file_path"]).column(0).to_pylist()
    assert file.lower_bounds == {2147483546: min(paths).encode()}
    assert file.upper_bounds == {2147483546: max(paths).encode()}
    assert len(set(paths)) == 2
    for metric in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "equality_ids"):
        assert getattr(file, metric) is None, metric
    assert file.content == DataFileContent.POSITION_DELETES
    assert (file.record_count, result.event_count) == (len(log.ends(middle, log.end)),) * 2


def test_rows_are_sorted_by_file_and_position(lake):
    info = keyed(
        lake, properties={"iceberg.write.target-file-size-bytes": "1", "iceberg.write.parquet.row-group-limit": "40"}
    )
    log, middle = filled(info, 400, 500)
    commit_results(lake, info, written(lake, info, log.run(0, middle)))
    result = written(lake, info, log.run(middle, log.end))
    (file,) = result.deletes
    rows = table_of(file).read(columns=["file_path", "pos"])
    places = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert len({path for path, _ in places}) > 5


def test_the_dictionary_has_the_paths_alone_that_are_deleted_from(lake):
    """pyiceberg looks for each of them in every row: of a bucket with many files, most are not touched by a round."""
    info = keyed(lake)
    log, _ = filled(info, 0, 0)
    for key in range(12):
        log.upsert({"id": key, "v": "v", "tags": None})
        commit_results(lake, info, written(lake, info, log.run(log.end - 1, log.end)))
    start = log.end
    for key in (3, 7):
        log.delete((key,))
    result = written(lake, info, log.run(start, log.end))
    (file,) = result.deletes
    location = file.file_path.removeprefix("file://")
    column = pq.read_table(location, columns=["file_path"], read_dictionary=["file_path"]).column(0)
    assert len(state_of(lake, info)[(None, 0)].data) == 12
    assert sorted(column.chunk(0).dictionary.to_pylist()) == sorted(set(column.to_pylist()))
    assert len(set(column.to_pylist())) == 2


def test_names_tell_the_ranges_of_offsets_and_times(lake):
    info = keyed(lake)
    log, middle = filled(info)
    lake.rounds = 3
    (file,) = written(lake, info, log.run(0, log.end)).deletes
    offsets = [offset for offset, *_ in log.ends(middle, log.end)]
    low, high = offsets[0], offsets[-1]
    name = file.file_path.rpartition("/")[2]
    assert name.startswith("round3-b00000-s00000-e")
    assert event_range(file.file_path) == EventRange(low, high, EPOCH_MS + low * 3, EPOCH_MS + high * 3)
    assert event_range("file:///a/data/00000-1-deletes.parquet") is None


def test_names_of_extreme_ranges():
    tail = f"{'0' * 32}.parquet"
    found = event_range(f"s3://b/x-b00000-s00000-e0_{2**63 - 1}-t-62135596800000_{2**63 - 1}-{tail}")
    assert found == EventRange(0, 2**63 - 1, -62135596800000, 2**63 - 1)


def test_events_come_back_whole(lake):
    info = keyed(lake)
    log, middle = filled(info)
    commit_results(lake, info, written(lake, info, log.run(0, middle)))
    result = written(lake, info, log.run(middle, log.end))
    assert events_of(lake, info, result.deletes) == log.ends(middle, log.end)


def test_many_events_go_to_several_files_each_sorted(lake, monkeypatch):
    monkeypatch.setattr(delete_writer, "EVENTS_MAX", 50)
    info = keyed(lake)
    log, _ = filled(info, 100, 400)
    result = written(lake, info, *(log.run(start, start + 20) for start in range(0, log.end - 20, 20)))
    assert len(result.deletes) > 4
    for file in result.deletes:
        rows = table_of(file).read(columns=["file_path", "pos"])
        places = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert places == sorted(places)
    found = events_of(lake, info, result.deletes)
    assert found == [each for each in log.ends(0, log.end) if each[0] < result.end_offset]


def test_delete_files_roll_at_their_own_target_size(lake):
    given = {"iceberg.write.delete.target-file-size-bytes": "2000", "iceberg.write.parquet.row-group-limit": "50"}
    info = keyed(lake, properties=given)
    log, _ = filled(info, 200, 600)
    result = written(lake, info, log.run(0, log.end))
    assert len(result.deletes) > 2
    for file in result.deletes:
        found = event_range(file.file_path)
        offsets = [offset for offset, *_ in events_of(lake, info, [file])]
        assert found.min_offset <= min(offsets) <= max(offsets) <= found.max_offset
        paths = table_of(file).read(columns=["file_path"]).column(0).to_pylist()
        assert file.lower_bounds == {2147483546: min(paths).encode()}
    assert events_of(lake, info, result.deletes) == log.ends(0, log.end)


@pytest.mark.parametrize(
    ("given", "data", "deletes"),
    [
        ({}, "ZSTD", "ZSTD"),
        ({"write.parquet.compression-codec": "snappy"}, "SNAPPY", "SNAPPY"),
        ({"write.delete.parquet.compression-codec": "gzip"}, "ZSTD", "GZIP"),
    ],
)
def test_delete_files_have_a_compression_of_their_own(lake, given, data, deletes):
    info = keyed(lake, properties={f"iceberg.{key}": value for key, value in given.items()})
    log, _ = filled(info)
    result = written(lake, info, log.run(0, log.end))
    for file, expected in ((result.files[0], data), (result.deletes[0], deletes)):
        group = table_of(file).metadata.row_group(0)
        assert {group.column(index).compression for index in range(group.num_columns)} == {expected}


def test_settings_of_delete_files():
    settings = ParquetSettings.of_deletes
    assert settings({}).file_bytes == 64 << 20
    assert settings({"write.target-file-size-bytes": "1000"}).file_bytes == 64 << 20
    assert settings({"write.delete.target-file-size-bytes": "1000"}).file_bytes == 1000
    zstd = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "19"}
    assert settings(zstd).level == 19
    gzip = settings(zstd | {"write.delete.parquet.compression-codec": "gzip"})
    assert (gzip.codec, gzip.level) == ("gzip", None)
    assert settings(zstd | {"write.delete.parquet.compression-level": "3"}).level == 3
    assert settings({"write.delete.parquet.row-group-size-bytes": "70000"}).row_group_bytes == 70_000
    assert settings({"write.delete.mode": "merge-on-read"}) == settings({})


def test_equality_delete_files_of_events_whose_row_is_gone(lake):
    info = keyed(lake)
    log, middle = filled(info)
    result = written(lake, info, log.run(middle, log.end), files=[])
    own, others = sorted(result.deletes, key=lambda file: int(file.content.value))
    assert (own.content, others.content) == (DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES)
    assert others.equality_ids == [1]
    schema = table_of(others).schema_arrow
    assert schema.names == equality_schema(lake.load(info).schema()).names
    assert schema.names == [
        "id",
        "v",
        "tags",
        "__bucket",
        "__offset",
        "__timestamp",
        "_change_type",
        "_previous_offset",
    ]
    assert ids_of(schema)["id"] == 1
    # Bounds of the key only: by any other column a reader would prune deletes that it needs.
    assert set(others.lower_bounds) == set(others.upper_bounds) == set(others.value_counts) == {1}
    ends = log.ends(middle, log.end)
    assert events_of(lake, info, result.deletes) == ends
    assert events_of(lake, info, [others]) == [each for each in ends if each[2] < middle]
    assert event_range(others.file_path).min_offset == ends[0][0]


def test_a_file_without_events_yields_none(lake, tmp_path):
    info = keyed(lake)
    log, _ = filled(info)
    (file,) = written(lake, info, log.run(0, log.end)).deletes
    bare = table_of(file).read(columns=["file_path", "pos"])
    pq.write_table(bare.replace_schema_metadata(), file.file_path.removeprefix("file://"))
    assert list(read_events(lake.load(info).io, file)) == []


def test_delete_files_that_cannot_be_read(lake):
    info = keyed(lake)
    log, _ = filled(info)
    (file,) = written(lake, info, log.run(0, log.end)).deletes
    path = file.file_path.removeprefix("file://")
    with open(path, "r+b") as stream:
        stream.truncate(100)
    with pytest.raises(CorruptDataError, match="delete file"):
        list(read_events(lake.load(info).io, file))
    lake.load(info).io.delete(file.file_path)
    with pytest.raises(FileNotFoundError):
        list(read_events(lake.load(info).io, file))


# -- placing again -----------------------------------------------------------------------------------------------------


def placed_again(lake, info, deletes, files, **options):
    table = lake.load(info)
    target = WriteTarget.of(checked_layout(info, table), table)
    return place_again(target, table.io, deletes, files, options.get("partition"), 0, "again")


def test_events_of_cut_splits_are_placed_when_all_files_are_known(lake):
    info = keyed(lake)
    log, middle = filled(info, 100, 300)
    commit_results(lake, info, written(lake, info, log.run(0, middle)))
    cuts = [middle, middle + 150, middle + 151, log.end]
    splits = [
        written(lake, info, log.run(low, high), split=number, alone=False)
        for number, (low, high) in enumerate(pairwise(cuts))
    ]
    unplaced = [file for result in splits for file in result.unplaced]
    assert unplaced
    for file in unplaced:
        rows = table_of(file).read(columns=["file_path", "pos"]).to_pylist()
        assert {(row["file_path"], row["pos"]) for row in rows} == {("", -1)}
    deletes = commit_cut(lake, info, splits)
    assert {file.content for file in deletes} == {DataFileContent.POSITION_DELETES}
    assert events_of(lake, info, deletes) == log.ends(middle, log.end)
    assert same_rows(lake.load(info).scan().to_arrow(), expected_rows(lake, info, log))


def test_deletes_follow_rows_that_somebody_moved(lake):
    """A compaction by others came in between: other files, one of them in no order."""
    info = keyed(lake)
    log, middle = filled(info, 100, 200)
    first = written(lake, info, log.run(0, middle))
    late = written(lake, info, log.run(middle, log.end), files=result_files(first))
    rows = table_of(first.files[0]).read()
    folder = first.files[0].file_path.removeprefix("file://").rpartition("/")[0]
    moved = []
    for number, part in enumerate((rows.slice(60).take(list(reversed(range(40)))), rows.slice(0, 60))):
        path = f"{folder}/moved-{number}.parquet"
        pq.write_table(part, path)
        offsets = part.column("__offset").to_numpy()
        moved.append(OffsetFile(f"file://{path}", int(offsets.min()), int(offsets.max()), len(part)))
    placed = placed_again(lake, info, late.deletes, [*moved, *result_files(late)])
    assert events_of(lake, info, placed) == log.ends(middle, log.end)
    by_path = {file.path: table_of_path(file.path) for file in (*moved, *result_files(late))}
    for file in placed:
        for row in table_of(file).read(columns=["file_path", "pos", "_previous_offset"]).to_pylist():
            assert by_path[row["file_path"]][row["pos"]] == row["_previous_offset"]


def table_of_path(location: str) -> list[int]:
    return pq.read_table(location.removeprefix("file://"), columns=["__offset"]).column(0).to_pylist()


def test_events_whose_row_is_gone_become_equality_deletes_and_back(lake):
    info = keyed(lake)
    log, middle = filled(info)
    first = written(lake, info, log.run(0, middle))
    late = written(lake, info, log.run(middle, log.end), files=result_files(first))
    by_key = placed_again(lake, info, late.deletes, result_files(late))
    assert {file.content.name for file in by_key} == {"POSITION_DELETES", "EQUALITY_DELETES"}
    assert events_of(lake, info, by_key) == log.ends(middle, log.end)
    back = placed_again(lake, info, by_key, [*result_files(first), *result_files(late)])
    assert {file.content.name for file in back} == {"POSITION_DELETES"}
    assert events_of(lake, info, back) == log.ends(middle, log.end)


@pytest.mark.parametrize("kind", ["row<a int>", "row<a int not null>", "row<r row<a binary(3) not null> not null>"])
def test_columns_added_since_the_deletes_were_written_are_null(lake, kind):
    info = keyed(lake)
    log, middle = filled(info)
    first = written(lake, info, log.run(0, middle))
    late = written(lake, info, log.run(middle, log.end), files=result_files(first))
    schema = make_schema(COLUMNS | {"more": kind}, primary_key=["id"])
    wider = lake.info(COLUMNS | {"more": kind}, primary_key=["id"], buckets=1)
    assert wider.schema.names == schema.names
    lake.catalog.alter_table(wider)
    placed = placed_again(lake, wider, late.deletes, [*result_files(first), *result_files(late)])
    expected = [(*head, row | {"more": None}) for *head, row in log.ends(middle, log.end)]
    assert [tuple(each) for each in events_of(lake, wider, placed)] == [tuple(each) for each in expected]


def test_placing_is_bounded_and_leaves_nothing_behind_when_it_fails(lake, monkeypatch):
    monkeypatch.setattr(delete_writer, "EVENTS_MAX", 50)
    info = keyed(lake)
    log, middle = filled(info, 100, 300)
    first = written(lake, info, log.run(0, middle))
    late = written(lake, info, log.run(middle, log.end), files=result_files(first))
    before = set(lake.folder.rglob("*.parquet"))
    gone = OffsetFile(first.files[0].file_path + "x", 0, middle - 1, 100)
    with pytest.raises(CommitConflictError):
        placed_again(lake, info, late.deletes, [gone, *result_files(late)])
    assert set(lake.folder.rglob("*.parquet")) == before
    failpoints.arm("lake.write.after_delete_file", "error")
    with pytest.raises(FailpointError):
        placed_again(lake, info, late.deletes, [*result_files(first), *result_files(late)])
    failpoints.disarm()
    assert set(lake.folder.rglob("*.parquet")) == before


def test_wide_events_are_written_a_few_at_a_time(lake, monkeypatch):
    monkeypatch.setattr(delete_writer, "EVENT_BYTES_MAX", 200_000)
    info = keyed(lake, {"id": "bigint not null", "b": "bytes"})
    log = Changelog(info.schema.arrow_schema, ("id",))
    rng = np.random.default_rng(3)
    for number in range(60):
        log.upsert({"id": number % 10, "b": rng.bytes(20_000)})
    result = written(lake, info, *(log.run(start, start + 1) for start in range(log.end)))
    assert len(result.deletes) >= 5
    assert events_of(lake, info, result.deletes) == log.ends(0, log.end)
    commit_results(lake, info, result)
    assert len(state_of(lake, info)[None, 0].deletes) == len(result.deletes)

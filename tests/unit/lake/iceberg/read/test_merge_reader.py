"""Rows of a bucket without the deleted ones, whoever deleted them and however."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.read.equality_deletes import EqualityDeletes
from fluss_lab.lake.iceberg.read.position_deletes import PositionDeletes
from fluss_lab.lake.iceberg.table.layout import LakeColumns, known_layout
from tests.unit.lake.changelogs import commit_files, same_rows, state_of
from tests.unit.lake.conftest import records
from tests.unit.lake.foreign import bare_position_deletes, equality_deletes
from tests.unit.lake.upkeep import COLUMNS, Upkeep, keyed_lake

pytestmark = pytest.mark.slow

WIDE = {"id": "bigint not null", "a": "string", "b": "int", "name": "string"}


def batch(info, values):
    return pa.RecordBatch.from_pylist(values, schema=info.schema.arrow_schema)


def appended(lake, info, count, first=0, size=None):
    """Append rows, `size` of them a file."""
    for start in range(first, first + count, size or count):
        stop = min(start + (size or count), first + count)
        values = [{"id": n, "name": f"v{n}"} for n in range(start, stop)]
        lake.append(info, batch(info, values), start)


def offsets(upkeep, **options) -> list[int]:
    return upkeep.rows(names=["__offset"], **options)["__offset"].to_pylist()


@pytest.fixture
def info(lake):
    return lake.table(COLUMNS, buckets=1, properties={"iceberg.write.parquet.row-group-limit": "4"})


def test_rows_are_the_models_after_every_round(lake, seed):
    rng = random.Random(seed)
    keyed = keyed_lake(lake, properties={"iceberg.write.parquet.row-group-limit": "5"})
    upkeep = Upkeep(lake, keyed.info)
    for _ in range(8):
        keyed.change(rng, rng.randrange(1, 30))
        keyed.round(splits=rng.randrange(1, 3))
        assert same_rows(upkeep.rows(), keyed.rows(0))
    low, high = sorted(rng.sample(range(keyed.tiered[0] + 1), 2))
    wanted = [offset for offset in keyed.rows(0)["__offset"].to_pylist() if low <= offset < high]
    assert offsets(upkeep, span=(low, high)) == wanted


@pytest.mark.parametrize("ids", [True, False])
def test_position_deletes_of_others_need_no_field_ids(lake, info, ids):
    appended(lake, info, 11)
    (file,) = state_of(lake, info)[(None, 0)].data
    places = [(file.file.file_path, at) for at in (0, 3, 4, 10)]
    commit_files(lake, info, [], [bare_position_deletes(lake.load(info), info, places, ids=ids)])
    assert offsets(Upkeep(lake, info)) == [1, 2, 5, 6, 7, 8, 9]


def test_a_row_that_is_deleted_twice_is_gone_once(lake, info):
    appended(lake, info, 6)
    (file,) = state_of(lake, info)[(None, 0)].data
    for places in ([1, 2], [2, 3]):
        deletes = bare_position_deletes(lake.load(info), info, [(file.file.file_path, at) for at in places])
        commit_files(lake, info, [], [deletes])
    assert offsets(Upkeep(lake, info)) == [0, 4, 5]


def test_deletes_of_other_files_do_not_matter(lake, info):
    appended(lake, info, 8, size=4)
    first, second = (each.file.file_path for each in state_of(lake, info)[(None, 0)].data)
    places = [(second, 0), ("file:///elsewhere.parquet", 1), (first, 2)]
    commit_files(lake, info, [], [bare_position_deletes(lake.load(info), info, places)])
    assert offsets(Upkeep(lake, info)) == [0, 1, 3, 5, 6, 7]


def test_an_equality_delete_applies_to_older_files_only(lake, info):
    appended(lake, info, 3)
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"id": [1]})])
    lake.append(info, batch(info, [{"id": 1, "name": "again"}]), 3)
    assert offsets(Upkeep(lake, info)) == [0, 2, 3]
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"id": [1, 2]})])
    assert offsets(Upkeep(lake, info)) == [0]


def test_an_equality_delete_of_the_same_commit_does_not_apply(lake, info):
    result = lake.write(info, records(batch(info, [{"id": 5, "name": "x"}])))
    commit_files(lake, info, list(result.files), [equality_deletes(lake.load(info), info, {"id": [5]})])
    assert offsets(Upkeep(lake, info)) == [0]


def test_null_equals_null_and_every_column_must_match(lake):
    info = lake.table(WIDE, buckets=1)
    values = [(None, None), (None, 1), ("x", None), ("x", 1), ("y", 1), ("", 0)]
    rows = [{"id": n, "a": a, "b": b, "name": "n"} for n, (a, b) in enumerate(values)]
    lake.append(info, batch(info, rows))
    gone = {"a": [None, "x", "z", ""], "b": [None, 1, 1, 1]}
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, gone)])
    assert offsets(Upkeep(lake, info)) == [1, 2, 4, 5]


def test_keys_are_compared_as_python_compares_them(lake, seed):
    rng = random.Random(seed)
    info = lake.table(WIDE, buckets=1)
    pool = [(rng.choice([None, "a", "b", "c"]), rng.choice([None, 0, 1, 2])) for _ in range(60)]
    rows = [{"id": n, "a": a, "b": b, "name": "n"} for n, (a, b) in enumerate(pool)]
    lake.append(info, batch(info, rows))
    expected = set(range(len(pool)))
    for _ in range(3):
        pairs = [(rng.choice([None, "a", "b", "d"]), rng.choice([None, 0, 1, 5])) for _ in range(rng.randrange(1, 5))]
        columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}
        commit_files(lake, info, [], [equality_deletes(lake.load(info), info, columns)])
        expected -= {n for n in expected if pool[n] in pairs}
    by_one = [rng.choice([0, 1, 2])]
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"b": by_one})])
    expected -= {n for n in expected if pool[n][1] in by_one}
    assert offsets(Upkeep(lake, info)) == sorted(expected)


def test_columns_beside_the_key_do_not_decide(lake, info):
    """The specs' full-row equality deletes have all columns; the fields named in the metadata count."""
    appended(lake, info, 3)
    deletes = equality_deletes(lake.load(info), info, {"id": [1], "name": ["another"]}, names=["id"])
    commit_files(lake, info, [], [deletes])
    assert offsets(Upkeep(lake, info)) == [0, 2]


def test_deletes_by_a_column_that_the_table_does_not_have_are_refused(lake, info):
    appended(lake, info, 3)
    deletes = equality_deletes(lake.load(info), info, {"id": [1]})
    deletes._data[[f.name for f in deletes_fields()].index("equality_ids")] = [999]
    commit_files(lake, info, [], [deletes])
    with pytest.raises(UnsupportedError, match="999"):
        Upkeep(lake, info).rows()


def deletes_fields():
    from pyiceberg.manifest import DATA_FILE_TYPE, DEFAULT_READ_VERSION

    return DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields


def test_files_that_overlap_are_merged_by_offset(lake, info):
    run = records(batch(info, [{"id": n, "name": "n"} for n in range(6)]))
    for given in ([0, 3, 6, 9, 12, 15], [1, 4, 7, 10, 13, 16], [2, 5, 8, 11, 14, 17]):
        lake.commit(info, lake.write(info, type(run)(run.rows, pa.array(given, pa.int64()), run.timestamps_ms)))
    first = state_of(lake, info)[(None, 0)].data[0].file.file_path
    commit_files(lake, info, [], [bare_position_deletes(lake.load(info), info, [(first, 1), (first, 5)])])
    expected = sorted(set(range(18)) - {3, 15})
    assert offsets(Upkeep(lake, info)) == expected
    assert offsets(Upkeep(lake, info), span=(4, 15)) == [each for each in expected if 4 <= each < 15]


def test_positions_count_in_the_files_own_order(lake, info):
    """A file that somebody wrote in another order: positions are of the file, rows come ascending all the same."""
    appended(lake, info, 9)
    (file,) = state_of(lake, info)[(None, 0)].data
    path = file.file.file_path.removeprefix("file://")
    rows = pq.read_table(path)
    order = [4, 2, 8, 0, 6, 1, 7, 3, 5]
    with pq.ParquetWriter(path, rows.schema.remove_metadata()) as writer:
        writer.write_table(rows.take(pa.array(order)), row_group_size=4)
    commit_files(
        lake, info, [], [bare_position_deletes(lake.load(info), info, [(file.file.file_path, at) for at in (0, 5)])]
    )
    assert offsets(Upkeep(lake, info)) == [0, 2, 3, 5, 6, 7, 8]


def test_a_filter_never_shifts_positions(lake, info):
    appended(lake, info, 20)
    (file,) = state_of(lake, info)[(None, 0)].data
    places = [(file.file.file_path, at) for at in (2, 9, 10, 17)]
    commit_files(lake, info, [], [bare_position_deletes(lake.load(info), info, places)])
    where = pc.field("id") >= 8
    assert offsets(Upkeep(lake, info), where=where) == [8, *range(11, 17), 18, 19]


def test_columns_are_found_by_field_id_after_a_rename(lake, info):
    appended(lake, info, 4)
    with lake.load(info).update_schema() as update:
        update.rename_column("name", "title")
    lake.append(info, batch(info, [{"id": 4, "name": "v4"}]), 4)
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"title": ["v1", "v4"]})])
    found = Upkeep(lake, info).rows(names=["name", "id"])
    assert found.to_pydict() == {"name": ["v0", "v2", "v3"], "id": [0, 2, 3]}


def test_a_file_with_another_number_of_rows_than_the_metadata_says_is_refused(lake, info):
    appended(lake, info, 4)
    (file,) = state_of(lake, info)[(None, 0)].data
    path = file.file.file_path.removeprefix("file://")
    pq.write_table(pq.read_table(path).slice(1).replace_schema_metadata(), path)
    with pytest.raises(CorruptDataError, match="expected 4 rows, found 3"):
        Upkeep(lake, info).rows()


def test_a_delete_file_that_is_none_is_refused(lake, info):
    appended(lake, info, 2)
    (file,) = state_of(lake, info)[(None, 0)].data
    deletes = bare_position_deletes(lake.load(info), info, [(file.file.file_path, 0)])
    commit_files(lake, info, [], [deletes])
    with open(deletes.file_path.removeprefix("file://"), "wb") as stream:
        stream.write(b"nonsense")
    with pytest.raises(CorruptDataError, match="not the delete file"):
        Upkeep(lake, info).rows()


def test_a_gone_file_is_reported_as_such(lake, info):
    appended(lake, info, 2)
    (file,) = state_of(lake, info)[(None, 0)].data
    lake.load(info).io.delete(file.file.file_path)
    with pytest.raises(FileNotFoundError):
        Upkeep(lake, info).rows()


def test_positions_of_files_that_are_not_asked_for_are_counted_and_not_kept(lake, info):
    appended(lake, info, 8, size=4)
    first, second = (each.file.file_path for each in state_of(lake, info)[(None, 0)].data)
    table = lake.load(info)
    deletes = bare_position_deletes(table, info, [(first, 0), (first, 3), (second, 1)])
    found = PositionDeletes(table.io, [deletes.file_path], {second})
    assert found.of(second).tolist() == [1]
    assert found.of(first).tolist() == []
    assert found.files[0].counts == {first: 2, second: 1}
    assert not found.files[0].has_events


def test_no_keys_delete_nothing(lake, info):
    appended(lake, info, 2)
    commit_files(lake, info, [], [equality_deletes(lake.load(info), info, {"id": []})])
    assert offsets(Upkeep(lake, info)) == [0, 1]
    table = lake.load(info)
    keys = EqualityDeletes(table.io, [], LakeColumns.of(info, known_layout(info, table)))
    assert keys.names == []
    assert not keys.deleted_mask(pa.table({"id": np.arange(3)}), 0).any()

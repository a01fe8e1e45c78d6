"""Where rows lie, by offset: in one file or several, in order or not, once, twice or not at all."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from fluss_lab.errors import CommitConflictError, CorruptDataError
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile, RowLocator
from fluss_lab.model.json_codec import from_plain, to_plain

OFFSET_ID = 9
HUGE = 2**63 - 10


class CountingIO(PyArrowFileIO):
    """Real file access that knows what was opened."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def new_input(self, location):
        self.opened.append(location)
        return super().new_input(location)


def write(folder, name, offsets, *, group=1000, field_id=OFFSET_ID, column="__offset", **options) -> OffsetFile:
    """Write a file with some offsets, among other columns, and return it as rows are sought in it."""
    offsets = np.asarray(offsets, dtype=np.int64)
    metadata = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    other = None if field_id is None else {"PARQUET:field_id": "1"}
    inner = pa.struct([pa.field("a", pa.int64()), pa.field("__offset", pa.int64())])
    schema = pa.schema(
        [
            pa.field("nested", inner, metadata=other),
            pa.field(column, pa.int64(), metadata=metadata),
            pa.field("v", pa.string(), metadata=None if other is None else {"PARQUET:field_id": "2"}),
        ]
    )
    nested = pa.array([{"a": 1, "__offset": 7}] * len(offsets), inner)
    table = pa.Table.from_arrays([nested, pa.array(offsets), pa.array(["x"] * len(offsets))], schema=schema)
    path = str(folder / f"{name}.parquet")
    encoding = {"use_dictionary": False, "column_encoding": {column: "DELTA_BINARY_PACKED"}}
    pq.write_table(table, path, row_group_size=group, **(encoding | options))
    return OffsetFile(path, int(offsets.min()), int(offsets.max()), len(offsets))


def found(files, offsets, io=None, offset_id=OFFSET_ID):
    """Return (file, position) of each offset as pairs."""
    index, position = RowLocator(io or PyArrowFileIO(), files, offset_id).locate(np.array(offsets, dtype=np.int64))
    assert (index.dtype, position.dtype) == (np.int32, np.int64)
    return list(zip(index.tolist(), position.tolist(), strict=True))


def test_rows_are_found_in_ascending_files_and_gaps_are_nowhere(tmp_path):
    files = [write(tmp_path, "a", range(0, 5000, 2)), write(tmp_path, "b", range(6000, 9000))]
    asked = [4998, 0, 1, 6000, 8999, 9000, 5500, -1, 0, 2000]
    assert found(files, asked) == [(0, 2499), (0, 0), (-1, -1), (1, 0), (1, 2999), (-1, -1), (-1, -1), (-1, -1), (0, 0), (0, 1000)]  # fmt: skip


def test_random_files_that_overlap_and_are_out_of_order(tmp_path, seed):
    rng = np.random.default_rng(seed)
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        universe = np.sort(rng.choice(20_000, size=6000, replace=False)) + (HUGE - 20_000 if attempt % 2 else 0)
        owner = rng.integers(0, 5, size=len(universe))
        files, where = [], {}
        for number in range(5):
            offsets = universe[owner == number]
            if number == 3:
                offsets = rng.permutation(offsets)
            files.append(write(folder, str(number), offsets, group=int(rng.integers(50, 2000))))
            where |= {int(offset): (number, position) for position, offset in enumerate(offsets)}
        asked = rng.choice(np.arange(universe[0], universe[-1] + 1), size=3000)
        assert found(files, asked) == [where.get(int(offset), (-1, -1)) for offset in asked]


def test_offsets_at_the_edges_of_files_and_row_groups(tmp_path):
    files = [write(tmp_path, "a", range(100, 200), group=10), write(tmp_path, "b", [HUGE, HUGE + 9])]
    edges = [offset for first in range(100, 200, 10) for offset in (first, first + 9)]
    assert found(files, edges) == [(0, offset - 100) for offset in edges]
    assert found(files, [HUGE, HUGE + 1, HUGE + 9]) == [(1, 0), (-1, -1), (1, 1)]


def test_nothing_asked_or_no_files(tmp_path):
    assert found([write(tmp_path, "a", range(10))], []) == []
    assert found([], [1, 2]) == [(-1, -1)] * 2


def test_files_that_cannot_hold_an_offset_are_not_opened_and_others_once(tmp_path):
    files = [write(tmp_path, str(number), range(number * 100, number * 100 + 100), group=10) for number in range(5)]
    io = CountingIO()
    found(files, [150, 101, 199, 350, 150, 102], io)
    assert io.opened == [files[1].path, files[3].path]


def test_a_row_in_two_live_files_is_an_error_that_names_both(tmp_path):
    files = [write(tmp_path, "a", range(100)), write(tmp_path, "b", [50, 70, 150])]
    with pytest.raises(CorruptDataError, match=r"offset 50: .*a\.parquet and in .*b\.parquet"):
        found(files, [50])
    assert found(files, [51, 150]) == [(0, 51), (1, 2)]


@pytest.mark.parametrize("group", [1000, 2])
def test_a_row_twice_in_one_file_is_an_error(tmp_path, group):
    file = write(tmp_path, "a", [1, 2, 3, 2], group=group)
    with pytest.raises(CorruptDataError, match=r"offset 2: .*twice in .*a\.parquet"):
        found([file], [2])
    assert found([file], [3]) == [(0, 2)]


def test_without_statistics_every_row_group_is_read(tmp_path):
    file = write(tmp_path, "a", random.Random(3).sample(range(5000), 5000), group=100, write_statistics=False)
    index, position = zip(*found([file], range(5000)), strict=True)
    assert set(index) == {0}
    assert sorted(position) == list(range(5000))


def test_the_column_is_known_by_its_id_whatever_it_is_called(tmp_path):
    assert found([write(tmp_path, "a", range(10), column="renamed")], [7]) == [(0, 7)]


def test_a_file_without_ids_is_read_by_name(tmp_path):
    assert found([write(tmp_path, "a", range(10), field_id=None)], [7]) == [(0, 7)]


def test_a_file_without_the_column(tmp_path):
    with pytest.raises(CorruptDataError, match="field id 11"):
        found([write(tmp_path, "a", range(10))], [7], offset_id=11)


def test_a_file_with_other_rows_than_the_lake_says(tmp_path):
    file = write(tmp_path, "a", range(10))
    with pytest.raises(CorruptDataError, match="expected 11 rows, found 10"):
        found([OffsetFile(file.path, 0, 9, 11)], [7])


def test_a_file_that_is_gone_means_planning_again(tmp_path):
    with pytest.raises(CommitConflictError, match="plan the round again"):
        found([OffsetFile(str(tmp_path / "gone.parquet"), 0, 9, 10)], [7])


def test_a_file_that_is_no_parquet(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"x" * 100)
    with pytest.raises(CorruptDataError, match=r"a\.parquet"):
        found([OffsetFile(str(tmp_path / "a.parquet"), 0, 9, 10)], [7])


def test_json_and_what_is_none():
    file = OffsetFile("s3://bucket/a b.parquet", 0, HUGE, 12)
    assert from_plain(OffsetFile, to_plain(file), "a file") == file
    for bad in ([], ["a", 1, 2], ["a", 1, 2, "x"], ["a", 1, 2, 3, 4], None):
        with pytest.raises(CorruptDataError):
            from_plain(OffsetFile, bad, "a file")

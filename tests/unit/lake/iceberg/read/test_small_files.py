"""Small files that are decoded one by one and finished together: the same rows as file by file, the fault that of its file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.read import small_files
from fluss_lab.lake.iceberg.read.dead_rows import DeadRows
from fluss_lab.lake.iceberg.read.small_files import SmallFile, SmallFileReader, packs
from fluss_lab.lake.iceberg.table.layout import LakeColumns, new_layout
from fluss_lab.model import TableInfo, TablePath, make_descriptor

TABLE = {"id": "bigint NOT NULL", "small": "tinyint", "text": "string"}
INFO = TableInfo(TablePath("db", "t"), 7, 1, make_descriptor(TABLE), 0, 0)
COLUMNS = LakeColumns.of(INFO, new_layout(INFO))
NAMES = ["text", "id", "small"]


def rows(offsets: list[int], *, ids: list[int | None] | None = None) -> pa.Table:
    """Return rows as they lie in a file."""
    wide = pa.array(np.array(offsets, dtype=np.int64))
    found = {
        "id": wide if ids is None else pa.array(ids, pa.int64()),
        "small": pa.array([number % 100 for number in offsets], COLUMNS.stored["small"].type),
        "text": pa.array([None if number % 3 == 0 else f"t{number}" for number in offsets], pa.string()),
        "__offset": wide,
    }
    return pa.table(found)


def small_file(place: int, table: pa.Table, dead: DeadRows | None = None) -> SmallFile:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue()
    return SmallFile(place, f"file:///f{place}", data.size, dead, pq.ParquetFile(pa.BufferReader(data)))


def expected(files: list[tuple[list[int], DeadRows | None]], where: pc.Expression | None = None) -> list[tuple]:
    found = []
    for place, (offsets, dead) in enumerate(files):
        gone = set() if dead is None else {int(each) for array in dead.offsets for each in array}
        stop = None if dead is None else dead.stop
        left = [each for each in offsets if each not in gone and (stop is None or each < stop)]
        table = rows(left).cast(
            pa.schema([rows([]).schema.field(0), pa.field("small", pa.int8()), *list(rows([]).schema)[2:]])
        )
        table = table if where is None else table.filter(where)
        if len(table):
            found.append((place, table.select(NAMES).to_pylist()))
    return found


def read(pack: list[SmallFile], where: pc.Expression | None = None) -> list[tuple]:
    reader = SmallFileReader(COLUMNS, NAMES, [] if where is None else ["id", "small"], where)
    found = []
    for place, batch in reader.read(pack):
        assert batch.schema.names == NAMES
        assert batch.schema.field("small").type == pa.int8()
        batch.validate(full=True)
        found.append((place, batch.to_pylist()))
    return found


def test_files_read_together_have_the_rows_of_each(rng):
    for _ in range(40):
        files: list[tuple[list[int], DeadRows | None]] = []
        begin = 0
        for _ in range(rng.randrange(1, 7)):
            # Files of another engine's compaction may overlap.
            begin = begin + rng.randrange(40) if rng.random() < 0.7 else rng.randrange(60)
            offsets = sorted(rng.sample(range(begin, begin + 40), rng.randrange(30)))
            dead = None
            if rng.random() < 0.7:
                arrays = [
                    np.array(sorted(rng.sample(range(130), rng.randrange(60))), dtype=np.int64)
                    for _ in range(rng.randrange(3))
                ]
                dead = DeadRows(tuple(arrays), stop=rng.choice([None, rng.randrange(130)]))
            files.append((offsets, dead))
        pack = [small_file(place, rows(offsets), dead) for place, (offsets, dead) in enumerate(files)]
        for where in (None, pc.field("small") < 50, pc.field("id") > 1000):
            assert read(pack, where) == expected(files, where)


def test_a_column_that_a_file_lacks_is_null_in_its_rows():
    pack = [small_file(0, rows([1, 2])), small_file(1, rows([4, 5]).drop_columns(["text"])), small_file(2, rows([7]))]
    texts = [row["text"] for _, found in read(pack) for row in found]
    assert texts == ["t1", "t2", None, None, "t7"]


def test_what_is_wrong_with_one_file_is_said_of_it():
    good = [small_file(0, rows([1, 2])), small_file(2, rows([8, 9]), DeadRows((np.array([8]),)))]
    unsorted = small_file(1, rows([5, 4]), DeadRows((np.array([5]),)))
    twice = small_file(1, rows([5, 5]), DeadRows((np.array([7]),)))
    null = small_file(1, rows([4, 5], ids=[4, None]))
    for bad, what in ((unsorted, "sorted by"), (twice, "sorted by"), (null, "NOT NULL")):
        for pack in ([bad, *good], [good[0], bad, good[1]], [*good, bad]):
            with pytest.raises(CorruptDataError, match=f"/f1: .*{what}"):
                read(pack)
    # The offsets of another file may be smaller.
    assert [place for place, _ in read([good[1], good[0]])] == [2, 0]


def test_packs_are_bounded_and_keep_the_order(monkeypatch):
    monkeypatch.setattr(small_files, "PACK_ROWS", 10)
    files = [small_file(place, rows(list(range(count)))) for place, count in enumerate([4, 6, 1, 30, 2, 2])]
    assert [[each.place for each in pack] for pack in packs(files)] == [[0, 1], [2], [3], [4, 5]]
    monkeypatch.setattr(small_files, "PACK_ROWS", 1000)
    monkeypatch.setattr(small_files, "PACK_BYTES", 25)
    sized = [replace(each, size_bytes=10) for each in files]
    assert [[each.place for each in pack] for pack in packs(sized)] == [[0, 1], [2, 3], [4, 5]]
    assert list(packs([])) == []

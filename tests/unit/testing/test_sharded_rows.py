"""The small lookup source of a third party."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    NotFoundError,
    UnsupportedError,
)
from fluss_lab.lookup import FunctionContext, LookupJoinContext, TaskInfo
from fluss_lab.lookup.contract_checks import partitions_of, rows_of
from fluss_lab.lookup.portable import function_of, partitioner_of, portable_text
from fluss_lab.testing.sharded_rows import ShardedRows, shards_of

ROWS = pa.table(
    {"id": pa.array([1, 2, 3, None, 2], pa.int64()), "name": ["a", "b", "c", "d", None], "x": [0.5, 1.0, 1.5, 2.0, 2.5]}
)


def task(index=0, parallelism=1):
    return TaskInfo(index, parallelism, parallelism, 0)


def found(source, keys, columns=("name", "x"), *, point=None, is_stream=False, shuffled=False, at=None):
    context = LookupJoinContext(tuple(keys.schema.names), columns, shuffled, None, is_stream)
    function = function_of(portable_text(source.lookup_function(context)))
    function.open(FunctionContext(at or task(), point))
    schema = pa.schema([source.schema.field(name) for name in columns])
    rows = rows_of(function, keys, schema, is_unique=source.is_unique(context.join_keys))
    counters = dict(function.counters())
    function.close()
    return list(zip(rows.positions.tolist(), rows.rows.to_pylist(), strict=True)), counters


def ids(*values):
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def test_rows_are_found_by_any_columns(tmp_path):
    source = ShardedRows.create(tmp_path / "letters", ROWS, shard_by=["id"], shards=3)
    rows, counters = found(source, ids(2, 9, 1, 2))
    two = [{"name": "b", "x": 1.0}, {"name": None, "x": 2.5}]
    assert [row for at, row in rows if at == 0] == two
    assert [row for at, row in rows if at == 3] == two
    assert [(at, row) for at, row in rows if at in (1, 2)] == [(2, {"name": "a", "x": 0.5})]
    assert counters == {"rows_cached": 5, "shards": 3, "hits": 3, "misses": 1}
    assert found(source, pa.record_batch({"name": ["c"]}), ("id",))[0] == [(0, {"id": 3})]
    assert found(source, ids())[0] == []


def test_each_task_loads_its_shards_and_finds_what_one_task_finds(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = pa.table({"id": rng.integers(0, 200, 300), "name": [f"n{i}" for i in range(300)]})
    source = ShardedRows.create(tmp_path / "rows", rows, shard_by=["id"], shards=5)
    keys = ids(*rng.integers(0, 220, 500).tolist())
    alone = sorted((keys["id"][at].as_py(), row["name"]) for at, row in found(source, keys, ("name",))[0])
    partitioner = partitioner_of(portable_text(source.get_partitioner()))
    for tasks in (1, 2, 5, 7):
        parts = partitions_of(partitioner, keys, tasks)
        together, cached = [], 0
        for index in range(tasks):
            mine = keys.filter(pa.array(parts == index))
            answer, counters = found(source, mine, ("name",), shuffled=True, at=task(index, tasks))
            together += [(mine["id"][at].as_py(), row["name"]) for at, row in answer]
            cached += counters["rows_cached"]
        assert sorted(together) == alone
        assert cached == 300


def test_keys_of_another_task_are_an_error_not_a_miss(tmp_path):
    source = ShardedRows.create(tmp_path / "letters", ROWS, shard_by=["id"], shards=3)
    shard = int(shards_of(ids(1), ["id"], 3)[0])
    with pytest.raises(
        InvalidRequestError, match=rf"letters: row 0 is of shard {shard}, expected one of \[{(shard + 1) % 3}\]"
    ):
        found(source, ids(1), shuffled=True, at=task((shard + 1) % 3, 3))


def test_older_versions_stay_readable(tmp_path):
    source = ShardedRows.create(tmp_path / "letters", ROWS, shard_by=["id"], shards=3)
    batch = source.lookup_function(LookupJoinContext(("id",), ("name",)))
    stream = source.lookup_function(LookupJoinContext(("id",), ("name",), is_stream=True))
    assert stream.present_point() == "1"
    assert source.put(ROWS.slice(2, 1)) == "2"
    assert (
        stream.present_point()
        == ShardedRows(tmp_path / "letters").lookup_function(LookupJoinContext(("id",), ("name",))).present_point()
        == "2"
    )
    keys = ids(1, 3)
    for function, point, names in [(batch, None, "ac"), (batch, "2", "c"), (stream, None, "c"), (stream, "1", "ac")]:
        function.open(FunctionContext(task(), point))
        assert function.lookup(keys).rows.column("name").to_pylist() == list(names)
        function.close()


def test_a_folder_made_again_is_another_source(tmp_path):
    context = LookupJoinContext(("id",), ("name",))
    identities = []
    for _ in range(2):
        source = ShardedRows.create(tmp_path / "letters", ROWS, shard_by=["id"], shards=3)
        identities.append(source.lookup_function(context).identity())
        source.put(ROWS.slice(1))
        assert ShardedRows(tmp_path / "letters").lookup_function(context).identity() == identities[-1]
        shutil.rmtree(tmp_path / "letters")
    assert identities[0] != identities[1]


def test_what_it_says_of_itself(tmp_path):
    source = ShardedRows.create(tmp_path / "letters", ROWS, shard_by=["id", "name"], shards=3, unique=["id", "name"])
    assert (source.name, source.bucket_keys()) == ("letters", ("id", "name"))
    assert source.schema.equals(ROWS.schema)
    assert [source.is_unique(keys) for keys in (("id",), ("name", "x", "id"), ())] == [False, True, False]
    shuffled = source.lookup_function(LookupJoinContext(("id",), ("name",), True, 2))
    assert source.describe(shuffled) == "own shards"
    assert source.describe(source.lookup_function(LookupJoinContext(("id",), ("name",)))) == "all shards"
    one = ShardedRows.create(tmp_path / "one", ROWS, shard_by=["id"], shards=1)
    assert (one.get_partitioner(), one.is_unique(["id"])) == (None, False)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match=r"no sharded rows; write them by ShardedRows\.create"):
        ShardedRows(tmp_path)
    with pytest.raises(InvalidSchemaError, match="no column 'nr'; the rows have id, name, x"):
        ShardedRows.create(tmp_path / "a", ROWS, shard_by=["nr"], shards=2)
    with pytest.raises(InvalidRequestError, match="expected at least one shard"):
        ShardedRows.create(tmp_path / "a", ROWS, shard_by=["id"], shards=0)
    with pytest.raises(InvalidRecordError, match="two rows have the same id; nothing was written"):
        ShardedRows.create(tmp_path / "a", ROWS, shard_by=["id"], shards=2, unique=["id"])
    assert not (tmp_path / "a").exists()
    source = ShardedRows.create(tmp_path / "a", ROWS, shard_by=["id"], shards=2)
    with pytest.raises(InvalidSchemaError, match="expected the columns"):
        source.put(ROWS.select(["id"]))
    with pytest.raises(UnsupportedError, match="cannot be looked up by 'x', a floating-point number"):
        source.lookup_function(LookupJoinContext(("x",), ("name",)))
    with pytest.raises(InvalidSchemaError, match="no column 'y'; it has id, name, x"):
        source.lookup_function(LookupJoinContext(("id",), ("y",)))
    function = source.lookup_function(LookupJoinContext(("id",), ("name",)))
    with pytest.raises(InvalidRequestError, match="is not open"):
        function.lookup(ids(1))

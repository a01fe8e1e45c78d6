"""Rows beyond the memory that they may have are in mapped files; what the disk refuses stays in memory, and is read."""

import gc
import threading

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import StorageError
from fluss_lab.model.descriptor import make_descriptor
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_memory import RowMemory

pytestmark = pytest.mark.slow

DESCRIPTOR = make_descriptor({"k": "bigint", "v": "string"}, primary_key=["k"])
SCHEMA = DESCRIPTOR.schema.arrow_schema
#: Rows of a batch: a chunk of some 160 kB.
ROWS = 4000
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "rows"


def batch(first, count=ROWS, text="value"):
    keys = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array([f"{text}-{key:012d}" for key in keys])], schema=SCHEMA)


def put(store, rows):
    store.commit(store.prepare(rows, b"\3" * rows.num_rows, base_offset=store.log_offset), 1000 + store.log_offset)


def filled(memory, batches=3):
    store = memory.watch(KvStore(DESCRIPTOR, 1, {1: SCHEMA}))
    for number in range(batches):
        put(store, batch(number * ROWS))
    return store


def content(store):
    """All rows with their places, as one."""
    parts = list(store.view().batches())
    places = [np.concatenate(each).tolist() for each in zip(*((o, t) for _, o, t in parts), strict=True)]
    return pa.Table.from_batches([rows for rows, *_ in parts]).combine_chunks().to_pydict(), places


def files_in(folder):
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def test_little_stays_in_memory(folder):
    memory = RowMemory(folder, 1 << 30, chunk_bytes_min=0)
    store = filled(memory)
    assert memory.look() == 0
    assert store.mapped_bytes == 0
    assert not folder.exists()


def test_what_is_too_much_goes_to_files_the_largest_first_and_reads_the_same(folder):
    memory = RowMemory(folder, 600_000, chunk_bytes_min=0)
    store = filled(memory, 2)
    put(store, batch(50_000, 2 * ROWS))
    before, held = content(store), store.memory_bytes
    moved = memory.look()
    assert moved == store.mapped_bytes > 0
    assert store.memory_bytes == held - moved
    assert [len(chunk) for chunk in store.unmapped_chunks()] == [ROWS, ROWS], (
        "the smaller ones are merged next, and stay"
    )
    assert content(store) == before
    # And it goes on: what is mapped is updated, merged and restored as what is not.
    put(store, batch(0, text="newer"))
    found, rows = store.lookup(pa.record_batch([pa.array([0, ROWS, 50_000, 10**9])], names=["k"]))
    assert found.tolist() == [True, True, True, False]
    assert rows.column(1).to_pylist() == ["newer-000000000000", f"value-{ROWS:012d}", "value-000000050000"]
    assert content(KvStore.restore(DESCRIPTOR, 1, {1: SCHEMA}, store.image())) == content(store)


def test_the_files_have_no_names_so_that_nobody_cuts_them_and_none_is_left(folder):
    memory = RowMemory(folder, 0, chunk_bytes_min=0)
    store = filled(memory)
    assert memory.look()
    assert not store.unmapped_chunks()
    assert files_in(folder) == []


def test_what_a_killed_process_left_is_removed(folder):
    folder.mkdir(parents=True)
    (folder / "17-3").write_bytes(b"half a file")
    RowMemory(folder, 1 << 20)
    assert files_in(folder) == []


def test_memory_is_given_up_whatever_was_looked_up_before(folder):
    memory = RowMemory(folder, 0, chunk_bytes_min=0)
    store = filled(memory)
    store.lookup(pa.record_batch([pa.array([1, ROWS + 1])], names=["k"]), [1])
    gc.collect()
    before = pa.total_allocated_bytes()
    size = sum(chunk.row_bytes for chunk in store.unmapped_chunks())
    memory.look()
    gc.collect()
    assert before - pa.total_allocated_bytes() > size * 0.9


def test_a_view_from_before_reads_on(folder):
    memory = RowMemory(folder, 0, chunk_bytes_min=0)
    store = filled(memory)
    seen = store.view()
    expected = [rows.to_pydict() for rows, *_ in seen.batches()]
    memory.look()
    put(store, batch(0, text="newer"))
    assert [rows.to_pydict() for rows, *_ in seen.batches()] == expected


@pytest.mark.parametrize("point", ["kv.rows.before_write", "kv.rows.written"])
@pytest.mark.parametrize("action", ["enospc", "eio"])
def test_what_the_disk_refuses_stays_in_memory_and_goes_when_there_is_room(folder, point, action):
    memory = RowMemory(folder, 0, chunk_bytes_min=0, retry_s=0.0)
    store = filled(memory)
    before = content(store)
    failpoints.arm(point, action)
    assert memory.look() == 0
    assert "kv.rows-memory-max" in memory.problem
    assert files_in(folder) == []
    assert content(store) == before
    put(store, batch(70_000, 5))
    memory.wait()
    failpoints.disarm()
    assert memory.look() > 0
    assert (memory.problem, store.unmapped_chunks()) == ("", [])
    assert store.row_count == 3 * ROWS + 5


def test_nothing_is_written_while_the_disks_reserve_is_short(folder):
    refused = ["full"]

    def check(what):
        if refused:
            raise StorageError(f"{what}: {refused[0]}")

    memory = RowMemory(folder, 0, check, chunk_bytes_min=0, retry_s=0.0)
    store = filled(memory)
    memory.look()
    assert memory.problem.endswith("rows stay in memory: full")
    assert store.mapped_bytes == 0
    refused.clear()
    assert memory.look() == store.mapped_bytes > 0


def test_after_a_refusal_the_disk_is_left_alone_for_a_while(folder):
    memory = RowMemory(folder, 0, chunk_bytes_min=0)
    store = filled(memory)
    failpoints.arm("kv.rows.before_write", "enospc@1")
    memory.look()
    failpoints.disarm()
    assert memory.look() == store.mapped_bytes == 0
    assert memory.problem


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_file_that_is_not_what_was_written_is_not_mapped(folder, damage):
    memory = RowMemory(folder, 0, chunk_bytes_min=0, retry_s=0.0)
    store = filled(memory, 1)
    before = content(store)

    def harm():
        (path,) = folder.iterdir()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if damage == "changed" else data[: len(data) // 2])

    failpoints.arm("kv.rows.written", harm)
    assert memory.look() == 0
    assert "expected" in memory.problem
    assert store.mapped_bytes == 0
    assert files_in(folder) == []
    assert content(store) == before


def test_writers_that_are_far_faster_than_the_disk_wait_for_it(folder):
    memory = RowMemory(folder, 100_000, chunk_bytes_min=0)
    store = filled(memory, 4)
    writing, go, passed = threading.Event(), threading.Event(), threading.Event()

    def slow():
        writing.set()
        assert go.wait(PATIENCE_S)

    failpoints.arm("kv.rows.before_write", slow)
    disk = threading.Thread(target=memory.look)
    disk.start()
    assert writing.wait(PATIENCE_S)

    def write():
        memory.wait()
        passed.set()

    writer = threading.Thread(target=write)
    writer.start()
    is_early = passed.wait(0.2)
    go.set()
    disk.join(PATIENCE_S)
    writer.join(PATIENCE_S)
    assert passed.is_set()
    assert not is_early
    assert store.mapped_bytes > 0


def test_a_server_that_stops_waits_for_one_chunk_at_most(folder):
    memory = RowMemory(folder, 0, chunk_bytes_min=0)
    store = filled(memory)
    failpoints.arm("kv.rows.written", memory.close)
    assert memory.look() == store.mapped_bytes > 0
    assert len(store.unmapped_chunks()) == 2
    assert memory.look() == 0
    memory.wait()


def test_a_store_that_is_gone_counts_no_more(folder):
    memory = RowMemory(folder, 300_000, chunk_bytes_min=0)
    gc.disable()
    try:
        store = filled(memory, 3)
        del store
        filled(memory, 1)
        assert memory.look() == 0, "the rows of a dropped table are held"
    finally:
        gc.enable()

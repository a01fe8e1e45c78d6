"""The rows of a primary-key bucket, in process and without a log; beside it rocksdict doing the same, when it is there.

The peer does the same work: Arrow rows in, an Arrow changelog with the old values out, which it gets by one multi-get and
writes by one write batch. Beside that stands what it does when keys and values are bytes already and stay bytes.
"""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.model.descriptor import make_descriptor
from fluss_lab.rpc.malloc_settings import keep_arrow_memory
from fluss_lab.server.kv.kv_store import KvStore

KEYS = 1_000_000
GROWN_KEYS = 10_000_000
#: Rows a batch, batches measured, and the goals: rows a second, times the peer.
UPSERTS = ((1_000, 1_000, "1.0 M; 5 x"), (10_000, 200, "2 M; 5 x"), (100_000, 20, "2 M; 5 x"))
DESCRIPTOR = make_descriptor(SCHEMA, primary_key=["id"])
ROWS_SCHEMA = DESCRIPTOR.schema.arrow_schema
UPSERT = b"\3"
#: What a virtual machine hands out for the first time is slow to touch; that is not what is measured.
WARM_BYTES = 3 << 30

Keys = npt.NDArray[np.int64]


def run() -> None:
    """Measure and print."""
    keep_arrow_memory()  # as a server does
    np.ones(WARM_BYTES // 8)
    pool = rows(200_000)
    figures = Figures(f"primary-key rows in memory: 6 columns of some 65 bytes, {KEYS:,} keys, half of the rows update")
    for batch_rows, calls, goal in UPSERTS:
        store = _loaded(KEYS, pool)
        taken = _upserts(store, pool, batch_rows, calls)
        rate = batch_rows * calls / taken.sum()
        peer = _peer(pool, batch_rows, max(1, calls // 10))
        beside = (
            f"rocksdict {millions(peer[0])}, of bytes {millions(peer[1])}" if peer else "rocksdict is not installed"
        )
        name = f"upsert to changelog, batches of {batch_rows:,}"
        figures.add(name, millions(rate), beside, rate / peer[0] if peer else None, goal)
        figures.add("  a call: median, p99, longest", _times(taken))
    figures.add("memory of it", _memory(store))
    _reading(figures, store)
    _growing(figures, pool)
    figures.print()


def _batch(pool: pa.RecordBatch, keys: Keys, at: int) -> pa.RecordBatch:
    """Return rows of these keys, their other values from somewhere in the pool."""
    start = at * 7919 % (pool.num_rows - keys.size + 1)
    values = pool.slice(start, keys.size).columns[1:]
    return pa.RecordBatch.from_arrays([pa.array(keys), *values], schema=ROWS_SCHEMA)


def _put(store: KvStore, batch: pa.RecordBatch) -> float:
    started = time.perf_counter()
    change = store.prepare(batch, UPSERT * batch.num_rows, base_offset=store.log_offset)
    store.commit(change, 1_700_000_000_000)
    return time.perf_counter() - started


def _loaded(keys: int, pool: pa.RecordBatch) -> KvStore:
    store = KvStore(DESCRIPTOR, 1, {1: ROWS_SCHEMA})
    for start in range(0, keys, 50_000):
        _put(store, _batch(pool, np.arange(start, start + 50_000), start))
    return store


def _key_batches(known: int, batch_rows: int, calls: int) -> Iterator[Keys]:
    """Yield keys half of which are known, in random order."""
    random = np.random.default_rng(11)
    half = batch_rows // 2
    for _ in range(calls):
        old = random.integers(0, known, half)
        keys = np.concatenate([old, np.arange(known, known + batch_rows - half)])
        random.shuffle(keys)
        yield keys
        known += batch_rows - half


def _upserts(store: KvStore, pool: pa.RecordBatch, batch_rows: int, calls: int) -> npt.NDArray[np.float64]:
    batches = enumerate(_key_batches(store.row_count, batch_rows, calls))
    return np.array([_put(store, _batch(pool, keys, at)) for at, keys in batches])


def _times(taken: npt.NDArray[np.float64]) -> str:
    median, high = np.quantile(taken, [0.5, 0.99])
    return f"{median * 1e3:.2f}, {high * 1e3:.2f}, {taken.max() * 1e3:.1f} ms"


def _memory(store: KvStore) -> str:
    index = store._index.memory_bytes
    data = store.memory_bytes - index
    return f"{index / store.row_count:.0f} B a key and {data / store.row_count:.0f} B a row, dead versions included"


def _reading(figures: Figures, store: KvStore) -> None:
    random = np.random.default_rng(5)
    keys = [pa.record_batch([pa.array(random.integers(0, store.row_count, 10_000))], names=["id"]) for _ in range(50)]
    rate = 10_000 / min(_seconds(lambda each=each: store.lookup(each)) for each in keys)
    figures.add("lookup, 10,000 keys a call", f"{rate / 1e6:.2f} M keys/s", goal="1 M")
    single = [_seconds(lambda each=each: store.lookup(each.slice(0, 1))) for each in keys]
    figures.add("lookup, one key, median", f"{np.median(single) * 1e6:.0f} us")
    figures.add("view", f"{min(_seconds(store.view) for _ in range(20)) * 1e6:.0f} us")
    scan = _seconds(lambda: sum(part.num_rows for part, *_ in store.view().batches()))
    figures.add("full scan of a view", millions(store.row_count / scan))
    _prefixes(figures)


def _prefixes(figures: Figures) -> None:
    descriptor = make_descriptor({"a": "bigint", "b": "int", "v": "string"}, primary_key=["a", "b"], bucket_key=["a"])
    schema = descriptor.schema.arrow_schema
    store = KvStore(descriptor, 1, {1: schema})
    for start in range(0, KEYS, 100_000):
        number = np.arange(start, start + 100_000)
        columns = [pa.array(number // 10), pa.array((number % 10).astype(np.int32)), pa.array(["value"] * number.size)]
        _put(store, pa.RecordBatch.from_arrays(columns, schema=schema))
    random = np.random.default_rng(6)
    asked = [pa.record_batch([pa.array(random.integers(0, KEYS // 10, 1_000))], names=["a"]) for _ in range(20)]
    first = _seconds(lambda: store.prefix_lookup(asked[0]))
    rate = 1_000 / min(_seconds(lambda each=each: store.prefix_lookup(each)) for each in asked)
    figures.add("prefix lookup, 1,000 prefixes of 10 rows", f"{rate / 1e6:.2f} M prefixes/s", f"first {first:.2f} s")


def _growing(figures: Figures, pool: pa.RecordBatch) -> None:
    store = KvStore(DESCRIPTOR, 1, {1: ROWS_SCHEMA})
    random = np.random.default_rng(3)
    keys = random.permutation(GROWN_KEYS)
    taken = np.array([
        _put(store, _batch(pool, keys[start : start + 1_000], start)) for start in range(0, GROWN_KEYS, 1_000)
    ])  # fmt: skip
    ratio = float(np.quantile(taken, 0.99) / np.median(taken))
    name = f"growing to {GROWN_KEYS:,} keys by 1,000: median, p99, longest"
    figures.add(name, _times(taken), "p99 by median", ratio, "at most 20")
    figures.add("memory of it", _memory(store))
    taken = _upserts(store, pool, 1_000, 500)
    figures.add("upsert to changelog there, batches of 1,000", millions(500_000 / taken.sum()))
    image: Any = None

    def imaged() -> None:
        nonlocal image
        image = store.image()

    figures.add("image", f"{_seconds(imaged) * 1e3:.2f} ms")
    restored = min(_seconds(lambda: KvStore.restore(DESCRIPTOR, 1, {1: ROWS_SCHEMA}, image)) for _ in range(3))
    figures.add("restore from it", f"{restored:.2f} s", goal="at most 2 s")


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


#: A row's value for the peer: moment, price, amount, length of the symbol; then symbol and note.
_FIXED = struct.Struct("<qdih")


def _encoded(batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
    raw = batch.column(0).to_numpy().astype(">i8").tobytes()
    names = [raw[at : at + 8] for at in range(0, len(raw), 8)]
    moments = batch.column(1).view(pa.int64()).to_pylist()
    symbols, notes = (batch.column(place).cast(pa.binary()).to_pylist() for place in (4, 5))
    fixed = zip(moments, batch.column(2).to_pylist(), batch.column(3).to_pylist(), map(len, symbols), strict=True)
    return names, [_FIXED.pack(*each) + symbol + note for each, symbol, note in zip(fixed, symbols, notes, strict=True)]


def _changelog(names: list[bytes], old: list[bytes | None], new: list[bytes]) -> tuple[pa.RecordBatch, bytes]:
    kinds = bytearray()
    values: list[bytes] = []
    keys: list[bytes] = []
    for name, before, after in zip(names, old, new, strict=True):
        if before is None:
            kinds.append(1)
        else:
            kinds += b"\2\3"
            keys.append(name)
            values.append(before)
        keys.append(name)
        values.append(after)
    moments, prices, amounts, lengths = zip(*map(_FIXED.unpack_from, values), strict=True)
    size = _FIXED.size
    columns = [
        pa.array(np.frombuffer(b"".join(keys), ">i8").astype(np.int64)),
        pa.array(moments, pa.int64()).view(SCHEMA.field(1).type),
        pa.array(prices, pa.float64()),
        pa.array(amounts, pa.int32()),
        pa.array([row[size : size + length] for row, length in zip(values, lengths, strict=True)]).cast(pa.string()),
        pa.array([row[size + length :] for row, length in zip(values, lengths, strict=True)]).cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA), bytes(kinds)


def _peer(pool: pa.RecordBatch, batch_rows: int, calls: int) -> tuple[float, float] | None:
    """Return rows a second of rocksdict, from Arrow to Arrow, and from bytes to bytes; None when it is not there."""
    if find_spec("rocksdict") is None:
        return None
    rocks = import_module("rocksdict")

    def write(database: Any, names: list[bytes], values: list[bytes]) -> None:
        batch = rocks.WriteBatch(raw_mode=True)
        for name, value in zip(names, values, strict=True):
            batch.put(name, value)
        database.write(batch)

    with tempfile.TemporaryDirectory() as folder:
        options = rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        database = rocks.Rdict(folder, options)
        try:
            for start in range(0, KEYS, 50_000):
                write(database, *_encoded(_batch(pool, np.arange(start, start + 50_000), start)))
            database.flush()
            whole = inner = 0.0
            for at, keys in enumerate(_key_batches(KEYS, batch_rows, calls)):
                batch = _batch(pool, keys, at)
                started = time.perf_counter()
                names, values = _encoded(batch)
                encoded = time.perf_counter()
                old = database[names]
                got = time.perf_counter()
                changelog, _kinds = _changelog(names, old, values)
                made = time.perf_counter()
                write(database, names, values)
                ended = time.perf_counter()
                whole += ended - started
                inner += (got - encoded) + (ended - made)
                assert changelog.num_rows >= batch_rows
            return calls * batch_rows / whole, calls * batch_rows / inner
        finally:
            database.close()


if __name__ == "__main__":
    run()

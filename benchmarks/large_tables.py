"""Primary-key rows that outgrow memory: what is the process's own, how fast they are written and found, and a restart.

Each size runs in a process of its own. The memory is that which the system cannot take back (``RssAnon``), after what was freed
was given back. Rows are some 100 bytes; half of the rows of an upsert are updates, as in ``kv``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.report import Figures, millions
from fluss_lab.model.descriptor import make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc.malloc_settings import keep_arrow_memory, release_free_memory
from fluss_lab.server.kv.kv_snapshot import SnapshotStore
from fluss_lab.server.kv.kv_store import KvStore

KEYS: Final = (1_000_000, 10_000_000)
BATCH_ROWS: Final = 10_000
UPSERTS: Final = 100
LOOKUPS: Final = 50
BUCKET: Final = TableBucket(1, None, 0)
COLUMNS: Final = {"id": "bigint", "moment": "bigint", "price": "double", "symbol": "string", "note": "string"}
DESCRIPTOR: Final = make_descriptor(COLUMNS, primary_key=["id"])
SCHEMA: Final = DESCRIPTOR.schema.arrow_schema
_MOMENT_MS: Final = 1_700_000_000_000

Keys = npt.NDArray[np.int64]


def run() -> None:
    """Measure and print."""
    figures = Figures("primary-key rows of some 100 bytes, one bucket, rows beyond 64 MB in mapped files")
    for keys in KEYS:
        found = measured(keys, 64 << 20)
        figures.add(
            f"{keys:,} keys: memory of the process", f"{found['private_mb']:.0f} MB, {found['private_key']:.0f} B a key"
        )
        figures.add(
            "  upsert to changelog, batches of 10,000",
            millions(found["upserts"]),
            f"CPU {found['upserts_cpu_s']:.2f} s",
        )
        figures.add("  lookup, 10,000 keys a call, warm", f"{found['lookups'] / 1e6:.2f} M keys/s")
        figures.add("  back from a snapshot", f"{found['restart_s']:.2f} s, {found['restart_mb']:.0f} MB")
    figures.print()


def measured(keys: int, bytes_max: int) -> dict[str, float]:
    """Return what a process of its own finds with so many keys; rows beyond some bytes are in files, 0 for none."""
    command = [sys.executable, "-m", "benchmarks.large_tables", str(keys), str(bytes_max)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _own_mb() -> float:
    release_free_memory()
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon"))


def _batch(keys: Keys, at: int) -> pa.RecordBatch:
    texts = pa.array([f"symbol-{at % 1000:04d}-{'x' * 12}"] * keys.size)
    notes = pa.array([f"a note of a row, which has some bytes {at:09d}"] * keys.size)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(keys * 7 + at), pa.array(keys * 0.5 + at), texts, notes], schema=SCHEMA
    )


def _put(store: KvStore, batch: pa.RecordBatch) -> None:
    store.commit(store.prepare(batch, b"\3" * batch.num_rows, base_offset=store.log_offset), _MOMENT_MS)


def _measure(keys: int, bytes_max: int) -> dict[str, float]:
    keep_arrow_memory()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        empty_mb = _own_mb()
        store, memory = _store(folder, bytes_max)
        started, cpu = time.perf_counter(), time.process_time()
        order = np.random.default_rng(3).permutation(keys)
        for start in range(0, keys, BATCH_ROWS):
            _put(store, _batch(order[start : start + BATCH_ROWS], start))
            if memory is not None:
                memory.wait()
        found = {"load": keys / (time.perf_counter() - started), "load_cpu_s": time.process_time() - cpu}
        del order
        _look(memory)
        found["private_mb"] = _own_mb() - empty_mb
        found["private_key"] = found["private_mb"] * (1 << 20) / store.row_count
        found["index_key"] = store._index.memory_bytes / store.row_count
        _upserts(found, store)
        _look(memory)
        found["after_mb"] = _own_mb() - empty_mb
        _lookups(found, store)
        started = time.perf_counter()
        assert sum(part.num_rows for part, *_ in store.view().batches()) == store.row_count
        found["scan"] = store.row_count / (time.perf_counter() - started)
        found["scanned_mb"] = _own_mb() - empty_mb
        _restart(found, store, folder)
        return found


def _store(folder: Path, bytes_max: int) -> tuple[KvStore, Any]:
    store = KvStore(DESCRIPTOR, 1, {1: SCHEMA})
    if not bytes_max:
        return store, None
    from fluss_lab.periodic_work import Ticker
    from fluss_lab.server.kv.row_memory import RowMemory

    memory = RowMemory(folder / "rows", bytes_max)
    ticker = Ticker("rows", 100, memory.look)
    ticker.start()
    return memory.watch(store), memory


def _look(memory: Any) -> None:
    if memory is not None:
        memory.look()


def _upserts(found: dict[str, float], store: KvStore) -> None:
    random, known, taken, cpu = np.random.default_rng(11), store.row_count, 0.0, time.process_time()
    half = BATCH_ROWS // 2
    for at in range(UPSERTS):
        keys = np.concatenate([random.integers(0, known, half), np.arange(known, known + half)])
        random.shuffle(keys)
        batch = _batch(keys, at + 7)
        started = time.perf_counter()
        _put(store, batch)
        taken += time.perf_counter() - started
        known += half
    found["upserts"], found["upserts_cpu_s"] = BATCH_ROWS * UPSERTS / taken, time.process_time() - cpu


def _lookups(found: dict[str, float], store: KvStore) -> None:
    random = np.random.default_rng(5)
    asked = [
        pa.record_batch([pa.array(random.integers(0, store.row_count, BATCH_ROWS))], names=["id"])
        for _ in range(LOOKUPS)
    ]
    for name in ("lookups_first", "lookups"):
        taken, cpu = [], time.process_time()
        for each in asked:
            started = time.perf_counter()
            store.lookup(each)
            taken.append(time.perf_counter() - started)
        found[name] = BATCH_ROWS / float(np.median(taken))
        found[f"{name}_cpu_s"] = time.process_time() - cpu


def _restart(found: dict[str, float], store: KvStore, folder: Path) -> None:
    snapshots = SnapshotStore(folder / "kv", retained=1, bucket=BUCKET)
    snapshots.write(store.image(), writers=[], created_ms=0)
    before = _own_mb()
    started, cpu = time.perf_counter(), time.process_time()
    loaded = SnapshotStore(folder / "kv", retained=1, bucket=BUCKET).load({1: SCHEMA})
    assert loaded is not None
    again = KvStore.restore(DESCRIPTOR, 1, {1: SCHEMA}, loaded[1])
    found["restart_s"], found["restart_cpu_s"] = time.perf_counter() - started, time.process_time() - cpu
    found["restart_mb"] = _own_mb() - before
    assert again.row_count == store.row_count


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))

"""The log read back out of the lake: ours beside pyarrow reading the same files and sorting them by ``__offset``.

A log table, and a primary-key table whose rows are updated and deleted in many rounds, as the rounds left it and after a
compaction that dropped what is dead. Each measurement is a process of its own, for its peak memory.
``python -m benchmarks.replay --rows 200000 --rounds 5`` tries it small.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.lake import FetchContext
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, COMMIT_USER, COMMIT_USER_KEY
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.kit import EPOCH_MS, LakeKit

RUNS: Final = 3
#: Records that a round's split reader hands to the writer at a time.
BATCH: Final = 64 * 1024
PEER_GOAL: Final = "0.5"
RATE_GOAL: Final = 5e6
FORMS: Final = ("log table", "primary-key table", "primary-key table, compacted")


@dataclass(frozen=True)
class Size:
    """How much is written."""

    rows: int = 3_000_000
    rounds: int = 20


DEFAULT: Final = Size()


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    figures = Figures(f"replay: {size.rows:,} records of one bucket, {size.rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="fluss-replay-") as folder:
        kit = _kit(Path(folder))
        for form in FORMS:
            snapshot_id, end = _written(kit, size, form)
            ours, peer = (_in_new_processes(mode, folder, form, snapshot_id, end) for mode in ("ours", "peer"))
            assert ours["records"] == end
            figures.add(f"{form}: pyarrow read + sort", millions(peer["rate"]))
            ratio = ours["rate"] / peer["rate"]
            figures.add(f"{form}: ours", millions(ours["rate"]), "pyarrow read + sort", ratio, PEER_GOAL)
            figures.add(f"{form}: ours", millions(ours["rate"]), millions(RATE_GOAL), ours["rate"] / RATE_GOAL, "1.0")
            figures.add(f"{form}: peak memory", f"{ours['peak_mb']:.0f} MB", f"pyarrow {peer['peak_mb']:.0f} MB")
    figures.print()


def _kit(folder: Path) -> LakeKit:
    properties = {
        "name": "bench",
        "type": "sql",
        "uri": f"sqlite:///{folder}/lake.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return LakeKit("iceberg", properties, {})


def _info(kit: LakeKit, form: str) -> TableInfo:
    number = FORMS.index(form)
    schema = SCHEMA if not number else _keyed_schema()
    key: dict[str, Any] = {"primary_key": ["id"]} if number else {}
    return kit.info(schema, name=f"t{min(number, 1)}", table_id=7 + min(number, 1), buckets=1, **key)


def _keyed_schema() -> pa.Schema:
    return pa.schema([field.with_nullable(False) if field.name == "id" else field for field in SCHEMA])


# -- what is written ---------------------------------------------------------------------------------------------------


def _written(kit: LakeKit, size: Size, form: str) -> tuple[int, int]:
    """Write the table in its form; return the newest snapshot and the log's end."""
    info = _info(kit, form)
    if form == FORMS[2]:
        _compact(kit, info)
        newest = kit.newest(info)
        assert newest is not None
        return newest, size.rows
    kit.catalog.create_table(info)
    share, snapshot_id = size.rows // size.rounds, -1
    changes = _Changes(info, share) if form == FORMS[1] else None
    for number in range(size.rounds):
        start, stop = number * share, size.rows if number == size.rounds - 1 else (number + 1) * share
        records = _appends(start, stop) if changes is None else changes.upto(stop)
        runs = [run for at in range(start, stop, BATCH) if (run := records.clip(at, at + BATCH)) is not None]
        snapshot_id = kit.commit(info, kit.write(info, runs))
    return snapshot_id, size.rows


def _appends(start: int, stop: int) -> LogRecords:
    offsets = np.arange(start, stop, dtype=np.int64)
    return LogRecords(rows(stop - start), pa.array(offsets), pa.array(EPOCH_MS + offsets))


class _Changes:
    """The log of a bucket: inserts, and later of what there is a third updated and some deleted, at random."""

    def __init__(self, info: TableInfo, share: int) -> None:
        self._schema = info.schema.arrow_schema
        self._random = np.random.default_rng(3)
        self._base = rows(share)
        self._live = np.empty(0, np.int64)
        self._end = 0

    def upto(self, stop: int) -> LogRecords:
        """Return the next records, up to an offset."""
        count = stop - self._end
        updates = min(count // 6, len(self._live) // 2)
        deletes = min(count // 12, len(self._live) // 4)
        chosen = self._random.permutation(self._live)
        updated, deleted = chosen[:updates], chosen[updates : updates + deletes]
        inserts = count - 2 * updates - deletes
        kinds = np.concatenate(
            [
                np.tile(np.array([ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER], np.int8), updates),
                np.full(deletes, ChangeType.DELETE, np.int8),
                np.full(inserts, ChangeType.INSERT, np.int8),
            ]
        )
        previous = np.concatenate([np.repeat(updated, 2), deleted, np.full(inserts, -1, np.int64)])
        offsets = np.arange(self._end, stop, dtype=np.int64)
        is_row = (kinds == ChangeType.INSERT) | (kinds == ChangeType.UPDATE_AFTER)
        self._live = np.concatenate([chosen[updates + deletes :], offsets[is_row]])
        self._end = stop
        taken = self._base.take(pa.array(offsets % len(self._base)))
        batch = pa.RecordBatch.from_arrays(taken.columns, schema=self._schema)
        times = pa.array(EPOCH_MS + offsets)
        return LogRecords(batch, pa.array(offsets), times, pa.array(kinds), pa.array(previous))


def _compact(kit: LakeKit, info: TableInfo) -> None:
    """Compact a table whole, dropping what is dead."""
    from fluss_lab.lake.maintenance_interfaces import SupportsMaintenance

    storage = kit.storage
    assert isinstance(storage, SupportsMaintenance)
    maintenance = storage.create_lake_maintenance(info)
    plan = maintenance.plan_compaction(force=True)
    assert plan is not None
    done = [storage.compact(info, task) for task in plan.tasks]
    summary = {COMMIT_USER_KEY: COMMIT_USER, COMMIT_ID_KEY: "compact", BUCKET_OFFSET_KEY: "[]"}
    maintenance.commit_compaction(plan, done, summary)


# -- what is measured --------------------------------------------------------------------------------------------------


def _in_new_processes(mode: str, *asked: Any) -> dict[str, float]:
    """Return the fastest of some runs, each in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.replay", "--one", json.dumps([mode, *asked])]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(RUNS)]
    best: dict[str, float] = max(found, key=lambda each: each["rate"])
    return best | {"peak_mb": max(each["peak_mb"] for each in found)}


def _one(mode: str, folder: str, form: str, snapshot_id: int, end: int) -> dict[str, float]:
    kit = _kit(Path(folder))
    info = _info(kit, form)
    files = list(_files(kit, info, snapshot_id))
    started = time.perf_counter()
    records = _ours(kit, info, snapshot_id, end) if mode == "ours" else _peer(info, files)
    seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"records": records, "rate": records / seconds, "peak_mb": peak_mb}


def _ours(kit: LakeKit, info: TableInfo, snapshot_id: int, end: int) -> int:
    return sum(map(len, kit.log_source(info).fetch_log_records(FetchContext(0, end, None, 0, snapshot_id))))


def _peer(info: TableInfo, files: list[DataFile]) -> int:
    """Return how many records pyarrow reads and sorts: of copies all, of what only deletes bare nothing."""
    names = [*info.schema.names, "__offset", "__timestamp", "_change_type", "_previous_offset"]
    parts = []
    for file in files:
        path = file.file_path.removeprefix("file://")
        if file.content is DataFileContent.DATA:
            parts.append(pq.read_table(path, columns=names[:-2]))
        else:
            known = [name for name in pq.read_schema(path).names if name not in {"file_path", "pos"}]
            found = pq.read_table(path, columns=known)
            # The change, then the columns in the table's order: user's, bucket, offset, timestamp.
            order = [*known[2 : 2 + len(info.schema.names)], *known[-2:], *known[:2]]
            parts.append(found.select(order).rename_columns(names))
    return len(pa.concat_tables(parts, promote_options="permissive").sort_by("__offset"))


def _files(kit: LakeKit, info: TableInfo, snapshot_id: int) -> Iterator[DataFile]:
    """Yield the files that hold the log: of the snapshot that a tag keeps, where there is one."""
    from pyiceberg.catalog import load_catalog

    properties = dict(kit.properties)
    table = load_catalog(properties.pop("name"), **properties).load_table((info.path.database, info.path.table))
    kept = [ref.snapshot_id for name, ref in table.metadata.refs.items() if name != "main"]
    snapshot = table.snapshot_by_id(kept[0] if kept else snapshot_id)
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in asdict(DEFAULT).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = vars(parser.parse_args())
    if (asked := chosen.pop("one")) is not None:
        print(json.dumps(_one(*json.loads(asked))))
        return
    run(Size(**chosen))


if __name__ == "__main__":
    main()

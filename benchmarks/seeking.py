"""Offsets by time out of the lake: 2,000 files in 200 snapshots of one bucket, of a log table and of a primary-key table.

Cold is the first look-up of a new process that has loaded the table; warm is any after it.
``python -m benchmarks.seeking --files 200 --snapshots 20`` tries it small.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.report import Figures
from fluss_lab.lake import LookupContext
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.kit import EPOCH_MS, LakeKit, LakeWrite

COLD_RUNS: Final = 5
WARM_LOOKUPS: Final = 40
#: Columns of the table, besides its key: what manifests hold metrics of.
WIDTH: Final = 10
COLD_GOAL_S: Final = 0.3
WARM_GOAL_S: Final = 0.03
KEYED: Final = {False: "log table", True: "primary-key table"}


@dataclass(frozen=True)
class Size:
    """How much is written."""

    files: int = 2_000
    snapshots: int = 200
    rows: int = 200


DEFAULT: Final = Size()


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    figures = Figures(
        f"seek by time in the lake: {size.files:,} files of {size.rows} rows in {size.snapshots} snapshots"
    )
    with tempfile.TemporaryDirectory(prefix="fluss-seek-") as folder:
        kit = _kit(Path(folder))
        for is_keyed in (False, True):
            info, snapshot_id, end = _written(kit, size, is_keyed=is_keyed)
            colds, warms, peaks = [], [], []
            for number in range(COLD_RUNS):
                found = _in_new_process(folder, info, snapshot_id, end, number)
                colds.append(found["cold_s"])
                warms.append(found["warm_s"])
                peaks.append(found["peak_mb"])
            name = KEYED[is_keyed]
            cold_s, warm_s = median(colds), median(warms)
            figures.add(
                f"{name}: cold", f"{cold_s * 1000:.0f} ms", f"{COLD_GOAL_S * 1000:.0f} ms", cold_s / COLD_GOAL_S, "1.0"
            )
            figures.add(
                f"{name}: warm", f"{warm_s * 1000:.1f} ms", f"{WARM_GOAL_S * 1000:.0f} ms", warm_s / WARM_GOAL_S, "1.0"
            )
            figures.add(f"{name}: peak memory of the process", f"{max(peaks):.0f} MB")
    figures.print()


def _kit(folder: Path) -> LakeKit:
    properties = {
        "name": "bench",
        "type": "sql",
        "uri": f"sqlite:///{folder}/lake.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return LakeKit("iceberg", properties, {})


def _info(kit: LakeKit, *, is_keyed: bool) -> TableInfo:
    columns = {"id": "bigint not null", **{f"c{number}": "bigint" for number in range(WIDTH)}}
    key: dict[str, Any] = {"primary_key": ["id"]} if is_keyed else {}
    return kit.info(columns, name="keyed" if is_keyed else "plain", table_id=8 if is_keyed else 7, buckets=1, **key)


def _written(kit: LakeKit, size: Size, *, is_keyed: bool) -> tuple[TableInfo, int, int]:
    """Write the table; return the newest snapshot and the log's end. A file of deletes beside each file of rows."""
    info = _info(kit, is_keyed=is_keyed)
    kit.catalog.create_table(info)
    splits = size.files // size.snapshots // (2 if is_keyed else 1)
    end, snapshot_id = 0, -1
    for _ in range(size.snapshots):
        written: list[LakeWrite] = []
        for _ in range(splits):
            records = _changes(info, end, size.rows) if is_keyed else _appends(info, end, size.rows)
            written.append(kit.write(info, [records]))
            end = records.next_offset
        snapshot_id = kit.commit(info, *written)
    return info, snapshot_id, end


def _rows(info: TableInfo, ids: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    values = pa.array(ids)
    return pa.RecordBatch.from_arrays([values] * (WIDTH + 1), schema=info.schema.arrow_schema)


def _appends(info: TableInfo, first: int, count: int) -> LogRecords:
    offsets = np.arange(first, first + count, dtype=np.int64)
    return LogRecords(_rows(info, offsets), pa.array(offsets), pa.array(EPOCH_MS + offsets))


def _changes(info: TableInfo, first: int, count: int) -> LogRecords:
    """Return inserts, and then the end of every second of them."""
    inserts = count * 2 // 3
    offsets = np.arange(first, first + count, dtype=np.int64)
    ended = offsets[: 2 * (count - inserts) : 2]
    kinds = np.where(offsets < first + inserts, ChangeType.INSERT, ChangeType.DELETE).astype(np.int8)
    ids = np.concatenate([offsets[:inserts], ended])
    previous = np.concatenate([np.full(inserts, -1, np.int64), ended])
    times = pa.array(EPOCH_MS + offsets)
    return LogRecords(_rows(info, ids), pa.array(offsets), times, pa.array(kinds), pa.array(previous))


def _in_new_process(folder: str, info: TableInfo, snapshot_id: int, end: int, seed: int) -> dict[str, float]:
    asked = json.dumps([folder, not info.is_log_table, snapshot_id, end, seed])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.seeking", "--look-up", asked], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _look_up(folder: str, is_keyed: bool, snapshot_id: int, end: int, seed: int) -> dict[str, float]:
    import resource

    rng = random.Random(seed)
    kit = _kit(Path(folder))
    info = _info(kit, is_keyed=is_keyed)
    source = kit.log_source(info)
    kit.newest(info)  # the table is loaded

    def look_up() -> float:
        offset = rng.randrange(end)
        context = LookupContext(None, 0, EPOCH_MS + offset, snapshot_id)
        started = time.perf_counter()
        found = source.lookup_log_offset_by_timestamp(context)
        seconds = time.perf_counter() - started
        assert found == (offset, EPOCH_MS + offset)
        return seconds

    cold_s = look_up()
    warm_s = median(look_up() for _ in range(WARM_LOOKUPS))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold_s": cold_s, "warm_s": warm_s, "peak_mb": peak_mb}


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in asdict(DEFAULT).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--look-up", help=argparse.SUPPRESS)
    chosen = vars(parser.parse_args())
    if (asked := chosen.pop("look_up")) is not None:
        print(json.dumps(_look_up(*json.loads(asked))))
        return
    run(Size(**chosen))


if __name__ == "__main__":
    main()

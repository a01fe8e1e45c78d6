"""Commits to a lake table that has more and more snapshots, with expiry and without, beside pyiceberg's own append."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from benchmarks.report import Figures
from fluss_lab.clock import SystemClock
from fluss_lab.lake import CommitterInitContext
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergWriteResult
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, COMMIT_USER, COMMIT_USER_KEY
from fluss_lab.model import TableInfo, TablePath, make_descriptor

SNAPSHOTS: Final = (10, 100, 1000)
#: A round of a small table: so many buckets, in each a data and a delete file. Only metadata is written.
BUCKETS: Final = 4
COLUMNS: Final = 10
#: Commits that are timed at each number of snapshots; every twentieth merges manifests, so the slowest of them is shown.
TIMED: Final = 21
#: With expiry: how often it is run, and how many snapshots it leaves.
EXPIRED_EVERY: Final = 20
KEPT: Final = 100
GOAL_MS: Final = 250


class _TwoHoursAhead(SystemClock):
    """Expiry leaves snapshots that are younger than an hour."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * 3_600_000


class _Table:
    """A primary-key table that is committed to."""

    def __init__(self, folder: Path) -> None:
        self._properties = {
            "name": "bench",
            "type": "sql",
            "uri": f"sqlite:///{folder}/lake.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        columns = {"id": "bigint"} | {f"c{number}": "double" for number in range(COLUMNS - 1)}
        descriptor = make_descriptor(
            columns, primary_key=["id"], buckets=BUCKETS, properties={"table.datalake.enabled": True}
        )
        self._info = TableInfo(TablePath("bench", "t"), 1, 1, descriptor, 0, 0)
        self._storage = IcebergLakeStorage(self._properties)
        self._storage.create_lake_catalog().create_table(self._info)
        factory = self._storage.create_lake_tiering_factory()
        self._committer: Any = factory.create_lake_committer(CommitterInitContext(self._info, "round"))
        self._maintenance = self._storage.create_lake_maintenance(self._info, _TwoHoursAhead())
        self._rounds = 0

    def commit_s(self) -> float:
        """Commit a round; return its seconds."""
        self._rounds += 1
        results = [self._result(bucket) for bucket in range(BUCKETS)]
        planned = self._committer.current_snapshot_id()
        started = time.perf_counter()
        self._committer.commit(self._committer.to_committable(results), planned, self._summary())
        return time.perf_counter() - started

    def stock_s(self) -> float:
        """Append the same data files by pyiceberg's own means; return the seconds."""
        files = [file for bucket in range(BUCKETS) for file in self._result(bucket).files]
        stock = load_catalog(**self._properties).load_table(("bench", "t"))
        started = time.perf_counter()
        with stock.transaction() as transaction:
            append = transaction.update_snapshot(snapshot_properties=self._summary()).merge_append()
            for file in files:
                append.append_data_file(file)
            append.commit()
        return time.perf_counter() - started

    def expire(self) -> None:
        """Leave the newest snapshots."""
        now_ms = _TwoHoursAhead().now_ms()
        self._maintenance.expire_snapshots(older_than_ms=now_ms, keep=KEPT, protected=frozenset(), partition_ids={})

    def _summary(self) -> dict[str, str]:
        ends = [{"bucket": bucket, "offset": self._rounds * 100, "max_timestamp": 1} for bucket in range(BUCKETS)]
        return {
            COMMIT_USER_KEY: COMMIT_USER,
            COMMIT_ID_KEY: uuid.uuid4().hex,
            BUCKET_OFFSET_KEY: json.dumps(ends),
        }

    def _result(self, bucket: int) -> IcebergWriteResult:
        data, deletes = (self._file(bucket, content) for content in list(DataFileContent)[:2])
        end = self._rounds * 100
        return IcebergWriteResult(1, None, bucket, end - 100, end, 1, (data,), (deletes,))

    def _file(self, bucket: int, content: DataFileContent) -> DataFile:
        """Return a file that only metadata knows of, with the metrics that one of a hundred rows has."""
        ids = range(1, COLUMNS + 4)
        is_data = content == DataFileContent.DATA
        bounds = {number: uuid.uuid4().bytes[:8] for number in ids} if is_data else None
        file = DataFile.from_args(
            content=content,
            file_path=f"{self._properties['warehouse']}/bench/t/data/{uuid.uuid4().hex}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(bucket),
            record_count=100,
            file_size_in_bytes=4000,
            column_sizes=dict.fromkeys(ids, 400) if is_data else None,
            value_counts=dict.fromkeys(ids, 100) if is_data else None,
            null_value_counts=dict.fromkeys(ids, 0) if is_data else None,
            lower_bounds=bounds,
            upper_bounds=bounds,
        )
        file.spec_id = 0
        return file


def run() -> None:
    """Measure and print."""
    figures = Figures(f"commit of a round: {BUCKETS} buckets, each a data and a delete file of {COLUMNS} columns")
    for expires in (False, True):
        with tempfile.TemporaryDirectory() as name:
            _measure(figures, _Table(Path(name)), expires)
    figures.print()


def _measure(figures: Figures, table: _Table, expires: bool) -> None:
    done = 0

    def commit() -> float:
        nonlocal done
        done += 1
        seconds = table.commit_s()
        if expires and done % EXPIRED_EVERY == 0:
            table.expire()
        return seconds

    for count in SNAPSHOTS:
        # Those before the count, so that there are so many in the end.
        while done < count - min(TIMED, count // 2):
            commit()
        ours = [commit() for _ in range(count - done)]
        middle = statistics.median(ours)
        shown = f"{_ms(middle)} (slowest {_ms(max(ours))})"
        goal = f"{GOAL_MS} ms" if count == max(SNAPSHOTS) else ""
        if expires:
            figures.add(f"{count:,} commits, {KEPT} snapshots kept by expiry", shown, goal=goal)
        else:
            stock = statistics.median(_several(table.stock_s))
            figures.add(f"{count:,} commits", shown, f"{_ms(stock)} by pyiceberg", middle / stock, goal)


def _several(work: Callable[[], float]) -> list[float]:
    return [work() for _ in range(3)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"

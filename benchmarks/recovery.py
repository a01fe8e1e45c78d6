"""Opening a gigabyte of log after a kill: with its recovery point, and without, when every byte is read and checked."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.clock import SystemClock
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import encode
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.server.tablet.log.payload_validation import check_payload

LOG_BYTES = 1 << 30
OPTIONS = LogOptions(segment_bytes=256 << 20, index_interval_bytes=4096, fsync=False, writer_expiration_ms=3_600_000)
RUNS = 3


def run() -> None:
    """Measure and print."""
    figures = Figures(f"recovery of {LOG_BYTES >> 20} MB of log, one bucket; seconds until it can be read and written")
    for batch_rows in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _fill(folder, batch_rows)
            mark = folder / recovery_point.FILE_NAME
            kept = mark.read_bytes()
            for what, has_mark in (("recovery point at the end", True), ("no recovery point", False)):
                cold = min(_opened_s(folder, kept if has_mark else None, cold=True) for _ in range(RUNS))
                warm = min(_opened_s(folder, kept if has_mark else None, cold=False) for _ in range(RUNS))
                figures.add(
                    f"{batch_rows:,} rows a batch, {what}", f"{cold:.2f} s cold", f"{warm:.2f} s warm", goal="2 cold"
                )
    figures.print()


def _open(folder: Path) -> BucketLog:
    logger = BucketLogger(logging.getLogger("benchmarks"), "bench.log", None, TableBucket(1, None, 0))
    return BucketLog(folder, OPTIONS, HandlePool(64), SystemClock(), logger, threading.Semaphore(8))


def _fill(folder: Path, batch_rows: int) -> None:
    log = _open(folder)
    data = b"".join(bytes(memoryview(part)) for part in encode(rows(batch_rows), schema_id=1))
    payload = check_payload([data], {1: SCHEMA}, current_schema_id=1, size_max=1 << 30)
    while log.segments.size_bytes < LOG_BYTES:
        log.append(payload)
    log.close()


def _opened_s(folder: Path, mark: bytes | None, *, cold: bool) -> float:
    path = folder / recovery_point.FILE_NAME
    path.unlink(missing_ok=True)
    if mark is not None:
        path.write_bytes(mark)
    for each in folder.iterdir():
        fd = os.open(each, os.O_RDONLY)
        # What is not on the device cannot be dropped from memory.
        os.fdatasync(fd)
        if cold:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    started = time.perf_counter()
    log = _open(folder)
    took = time.perf_counter() - started
    assert log.stopped is None
    assert log.segments.size_bytes >= LOG_BYTES
    log.close(save=False)
    return took


if __name__ == "__main__":
    run()

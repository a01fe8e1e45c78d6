"""A tablet server that is killed while rows go to files: see test_kv_row_files."""

from pathlib import Path

from fluss_lab import failpoints
from fluss_lab.model.names import TableBucket
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, upserts

ROWS = 20_000


def main(folder: Path, point: str) -> None:
    """Put rows, some before a snapshot and some after it; all are acknowledged when the kill comes."""
    tablet = KvTablet(folder, kv__rows_memory_max="1mb").open()
    tablet.put(upserts(0, ROWS))
    tablet.service.snapshot_now(TableBucket(TABLE_ID, None, 0))
    tablet.put(upserts(0, ROWS, "newer"))
    tablet.put(upserts(ROWS, ROWS))
    failpoints.arm(point, "kill")
    tablet.service.look_after_rows()

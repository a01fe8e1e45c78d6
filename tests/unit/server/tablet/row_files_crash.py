"""A tablet server that is killed while rows go to files: see test_kv_row_files.

Run as ``python -m tests.unit.server.tablet.row_files_crash FOLDER POINT``.
"""

import sys
from pathlib import Path

from fluss_lab import failpoints
from fluss_lab.model.names import TableBucket
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, upserts

ROWS = 20_000


def main() -> None:
    """Put rows, some before a snapshot and some after it; all are acknowledged when the kill comes."""
    folder, point = Path(sys.argv[1]), sys.argv[2]
    tablet = KvTablet(folder, kv__rows_memory_max="1mb").open()
    tablet.put(upserts(0, ROWS))
    tablet.service.snapshot_now(TableBucket(TABLE_ID, None, 0))
    tablet.put(upserts(0, ROWS, "newer"))
    tablet.put(upserts(ROWS, ROWS))
    failpoints.arm(point, "kill")
    tablet.service.look_after_rows()


if __name__ == "__main__":
    main()

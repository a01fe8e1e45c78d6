"""Tables whose snapshots expire, and what tests look at after it."""

from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files
from fluss_lab.lake.iceberg.metadata.snapshot_history import main_line
from tests.unit.lake.iceberg.maintenance.test_compaction import rows
from tests.unit.lake.upkeep import COLUMNS, Upkeep

WAITS = {"iceberg.commit.retry.min-wait-ms": "1"}


def expiring_table(lake):
    """Return a table of one bucket of which at least three snapshots stay."""
    return lake.table(COLUMNS, buckets=1, properties={"table.datalake.snapshots-min": 3} | WAITS)


def appended(lake, info, count) -> list[int]:
    first = len(lake.load(info).metadata.snapshots)
    return [lake.append(info, rows(info, 2, 2 * n), 2 * n) for n in range(first, first + count)]


def left(lake, info) -> list[int]:
    return [snapshot.snapshot_id for snapshot in reversed(list(main_line(lake.load(info).metadata)))]


def in_use(lake, info) -> set[str]:
    """Return every file that the table's metadata refers to."""
    table = lake.load(info)
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
    found |= referenced_files(table, EntryCache())
    return {path.removeprefix("file://") for path in found}


def check_no_orphan(lake, info) -> None:
    assert Upkeep(lake, info).files() == in_use(lake, info)

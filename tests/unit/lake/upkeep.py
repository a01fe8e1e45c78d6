"""Maintenance of a lake table step by step, without a cluster: what tests of compaction, expiry and orphans share."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa

from fluss_lab.lake.iceberg.read.merge_reader import read_live
from fluss_lab.lake.iceberg.table.layout import LakeColumns, known_layout
from fluss_lab.lake.maintenance_interfaces import ExpiredSnapshots
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY
from fluss_lab.testing import MockClock
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.changelogs import same_rows, state_of
from tests.unit.lake.conftest import summary
from tests.unit.lake.rounds import KeyedLake

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COLUMNS = {"id": "bigint not null", "name": "string"}


def clock_at_now() -> MockClock:
    return MockClock(int(time.time() * 1000))


def keyed_lake(lake, buckets: int = 1, **definition) -> KeyedLake:
    info = lake.table(COLUMNS, primary_key=["id"], buckets=buckets, **definition)
    return KeyedLake(lake, info, buckets)


class Upkeep:
    """Maintenance of one table, by a clock that tests move."""

    def __init__(self, lake, info, clock: MockClock | None = None) -> None:
        self.lake = lake
        self.info = info
        self.clock = clock or clock_at_now()

    @property
    def maintenance(self):
        return self.lake.storage.create_lake_maintenance(self.info, self.clock)

    def plan(self, *, force: bool = True):
        return self.maintenance.plan_compaction(force=force)

    def run(self, plan) -> list[bytes]:
        """Run a plan's tasks; they travel as JSON."""
        return [self.lake.storage.compact(self.info, json.loads(json.dumps(task))) for task in plan.tasks]

    def carried(self) -> dict[str, str]:
        """Return the summary of a compaction: it says what the newest snapshot of ours says."""
        found = self.lake.load(self.info).current_snapshot().summary
        return summary() | {BUCKET_OFFSET_KEY: found[BUCKET_OFFSET_KEY] or "[]"}

    def commit(self, plan, results):
        return self.maintenance.commit_compaction(plan, results, self.carried())

    def compact(self, *, force: bool = True):
        """Compact; return what was done, None when nothing was planned."""
        plan = self.plan(force=force)
        return None if plan is None else self.commit(plan, self.run(plan))

    def expire(self, **options):
        given = {"older_than_ms": None, "keep": None, "protected": frozenset(), "partition_ids": {}} | options
        is_due = self.maintenance.expiry_due(given.get("fewest", 1))
        done = self.maintenance.expire_snapshots(**given)
        if given["older_than_ms"] is None and given["keep"] is None and not is_due:
            assert done == ExpiredSnapshots((), 0, 0, {}), "what was not due was done"
        return done

    def orphans(self, *, age_ms: int = 0, dry_run: bool = True, **options) -> list[str]:
        moment = self.clock.now_ms() - age_ms
        return self.maintenance.remove_orphan_files(older_than_ms=moment, dry_run=dry_run, **options)

    def rows(self, bucket: int = 0, **options) -> pa.Table:
        """Return a bucket's rows as our own reader reads them."""
        table = self.lake.load(self.info)
        columns = LakeColumns.of(self.info, known_layout(self.info, table))
        state = state_of(self.lake, self.info).get((None, bucket))
        names = options.pop("names", columns.schema.names)
        schema = pa.schema([columns.schema.field(name) for name in names])
        if state is None:
            return schema.empty_table()
        return pa.Table.from_batches(read_live(table.io, columns, state, names, **options), schema)

    def files(self) -> set[str]:
        """Return every file in the table's folder."""
        folder = Path(self.lake.load(self.info).location().removeprefix("file://"))
        return {str(path) for path in folder.rglob("*") if path.is_file()}


def check(keyed: KeyedLake, upkeep: Upkeep, *, replay: bool = True) -> None:
    """Check rows, by our reader and by DuckDB, and that replay has every offset."""
    for bucket in keyed.logs:
        assert same_rows(upkeep.rows(bucket), keyed.rows(bucket))
    metadata = keyed.lake.load(keyed.info).metadata_location
    assert same_rows(duckdb_rows(metadata), keyed.all_rows().sort_by("__offset")) if len(keyed.logs) == 1 else True
    if len(keyed.logs) > 1:
        found = duckdb_rows(metadata)
        for bucket in keyed.logs:
            assert same_rows(found.filter(pa.compute.field("__bucket") == bucket), keyed.rows(bucket))
    if replay:
        assert keyed.replayed() == {bucket: list(range(end)) for bucket, end in keyed.tiered.items()}


def data_files(upkeep: Upkeep, content: str = "data"):
    return [file for file in upkeep.maintenance.files() if file.content == content]

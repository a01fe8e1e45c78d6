"""What a hundred rounds leave behind: the coordinator's offsets of each bucket, and the summaries of the lake's snapshots."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.data import SCHEMA
from benchmarks.scale import BUCKETS, PARTITIONS, Costs
from fluss_lab.lake.iceberg.maintenance.expiry_plan import SNAPSHOTS_MAX
from fluss_lab.lake.snapshot_summary import SnapshotSummary, commit_properties, newest_committed, thin_summary
from fluss_lab.model import LakeOffset, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog
from fluss_lab.server.coordinator.tiering.lake_snapshots import SNAPSHOTS_KEPT, LakeLedger, TieredOffset

_PATH: Final = TablePath("scale", "large")
_NOW_MS: Final = 1_800_000_000_000
_TABLE: Final = 1
#: Rounds that the coordinator has had when it is measured: it keeps so many.
_ROUNDS: Final = SNAPSHOTS_KEPT
#: Snapshots whose summaries are read to write the next one.
_SUMMARIES: Final = 50
_ROUND_MS: Final = 180_000


def measure(costs: Costs, part: int) -> None:
    """Measure a table of 1,000 partitions of 10 buckets, or a part of them, each of which moves with each round."""
    buckets = [(partition, bucket) for partition in range(PARTITIONS // part) for bucket in range(BUCKETS)]
    with tempfile.TemporaryDirectory() as name:
        _ledger(costs, part, Path(name) / "metadata.db", buckets)
    _summaries(costs, part, buckets)


def _ledger(costs: Costs, part: int, path: Path, buckets: list[tuple[int, int]]) -> None:
    store = MetadataStore(path)
    catalog, ledger = TableCatalog(store), LakeLedger(store)
    catalog.add_database(_PATH.database, _NOW_MS)
    descriptor = make_descriptor(SCHEMA, buckets=BUCKETS, properties={"table.datalake.enabled": True})
    catalog.add_table(TableInfo(_PATH, _TABLE, 1, descriptor, _NOW_MS, _NOW_MS), [])
    for number in range(1, _ROUNDS):
        ledger.commit(_TABLE, number, _offsets(buckets, number), _NOW_MS)
    with costs.timed(f"the coordinator notes a round, after {_ROUNDS} of all buckets", part):
        ledger.commit(_TABLE, _ROUNDS, _offsets(buckets, _ROUNDS), _NOW_MS)
    with costs.timed("  the next one, of which the oldest is deleted", part):
        ledger.commit(_TABLE, _ROUNDS + 1, _offsets(buckets, _ROUNDS + 1), _NOW_MS)
    with costs.timed("  how far each bucket is tiered, in the coordinator", part):
        ledger.snapshot(_TABLE)
    store.merge()
    store.close()
    costs.add("  `metadata.db` then", part, path.stat().st_size, "bytes")
    with costs.timed("  it is opened, all rows checked", part):
        MetadataStore(path).close()


def _offsets(buckets: list[tuple[int, int]], number: int) -> dict[tuple[int, int], TieredOffset]:
    return {key: TieredOffset(0, number * 1_000, _NOW_MS + number) for key in buckets}


def _summaries(costs: Costs, part: int, buckets: list[tuple[int, int]]) -> None:
    newest_first: list[SnapshotSummary] = []
    chance = random.Random(part)
    known: dict[TableBucket, LakeOffset] = {}
    for number in range(_SUMMARIES):
        offsets = {
            TableBucket(_TABLE, partition, bucket): LakeOffset(
                number * 10**7 + chance.randrange(10**7),
                _NOW_MS + number * _ROUND_MS + chance.randrange(_ROUND_MS),
                f"d{partition:05d}",
            )
            for partition, bucket in buckets
        }
        properties = commit_properties(f"{number:032x}", _TABLE, 1, offsets, known)
        newest_first.insert(0, SnapshotSummary(str(_PATH), number, properties))
        known = offsets
    size = sum(map(len, properties.values()))
    costs.add("summary of a snapshot, all buckets moved", part, size, "bytes")
    costs.add(
        f"  of {SNAPSHOTS_MAX} snapshots, in the metadata that each commit writes", part, size * SNAPSHOTS_MAX, "bytes"
    )
    with costs.timed("  made thin, after 50 others", part):
        thin_summary(newest_first[1:], properties)
    with costs.timed("  50 of them read: what a round after a dead one does", part):
        newest_committed(newest_first)

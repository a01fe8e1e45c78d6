"""The coordinator's metrics, collected from its metadata when a metrics page is requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.ddl.partition_records import KeptPartition
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, TableCatalog
from fluss_lab.server.coordinator.tiering.round_metrics import TieringStats
from fluss_lab.server.coordinator.tiering.table_tiering import TableTiering, TieringState
from fluss_lab.server.server_metrics import Family, single


def cluster_families(catalog: TableCatalog, servers: Sequence[pb.PbServerNode], *, attached: int) -> Iterator[Family]:
    """Yield the metrics of the cluster.

    Args:
        catalog: Its tables, partitions and buckets.
        servers: The registered tablet servers.
        attached: Attached processes.
    """
    infos, groups = catalog.all_tables(), catalog.bucket_groups()
    there = {server.node_id for server in servers}
    offline = sum(1 for group in groups for leader in group.leaders if leader not in there)
    partitions = sum(1 for group in groups if group.partition_id != NO_PARTITION)
    lake_tables = sum(info.descriptor.lake_enabled for info in infos)
    yield single("coordinator_activeCoordinatorCount", "gauge", "Always 1: there is one coordinator.", 1)
    yield single("coordinator_aliveCoordinatorCount", "gauge", "Always 1: there is one coordinator.", 1)
    yield single("coordinator_activeTabletServerCount", "gauge", "Tablet servers that answer.", len(there))
    yield single("coordinator_tableCount", "gauge", "Tables.", len(infos))
    yield single("coordinator_lakeTableCount", "gauge", "Lake-enabled tables.", lake_tables)
    yield single("coordinator_partitionCount", "gauge", "Partitions.", partitions)
    yield single("coordinator_bucketCount", "gauge", "Buckets.", sum(len(group.leaders) for group in groups))
    yield single("coordinator_offlineBucketCount", "gauge", "Buckets whose tablet server is not registered.", offline)
    yield single("coordinator_attachedCount", "gauge", "Attached processes.", attached)


def kept_families(kept: Sequence[KeptPartition], now_ms: int) -> Iterator[Family]:
    """Yield how many partitions each table keeps past their retention, and for how long the first of them."""
    count = Family(
        "coordinator_keptPartitionCount", "gauge", "Partitions past retention that the lake does not hold whole."
    )
    longest = Family("coordinator_keptPartitionAge", "gauge", "Milliseconds since the first one's retention ended.")
    for table_id in sorted({each.table_id for each in kept}):
        found = [each for each in kept if each.table_id == table_id]
        labels = {"database": found[0].path.database, "table": found[0].path.table}
        count.add(len(found), labels)
        longest.add(max(0, now_ms - min(each.since_ms for each in found)), labels)
    yield from (count, longest)


def tiering_families(states: list[TableTiering], stats: TieringStats, now_ms: int) -> Iterator[Family]:
    """Yield the metrics of each table's tiering.

    `stats` begins with the start of the coordinator; until its first round a metric has no value. Apache Fluss's
    ``fileSize`` and ``recordCount`` count the whole lake table; here they count what the last round wrote.
    """
    pending = sum(1 for table in states if table.state is TieringState.PENDING)
    running = sum(1 for table in states if table.state is TieringState.TIERING)
    yield single("coordinator_lakeTiering_pendingTablesCount", "gauge", "Tables that wait for a tierer.", pending)
    yield single("coordinator_lakeTiering_runningTablesCount", "gauge", "Tables that are being tiered.", running)
    scope = "coordinator_lakeTiering_table"
    lag = Family(f"{scope}_tierLag", "gauge", "Milliseconds since the last round ended; before the first, since then.")
    tiered = Family(f"{scope}_tieredTimestamp", "gauge", "When the last round ended, epoch milliseconds.")
    failures = Family(f"{scope}_failures", "gauge", "Rounds that failed since the last that did not.")
    duration = Family(f"{scope}_tierDuration", "gauge", "Milliseconds that the last round took.")
    waiting = Family(
        f"{scope}_pendingTime", "gauge", "Milliseconds that the table has waited for a tierer; 0: it does not."
    )
    failed = Family(f"{scope}_failuresTotal", "gauge", "Rounds that failed.")
    size = Family(f"{scope}_fileSize", "gauge", "Bytes of the files that the last round wrote.")
    records = Family(f"{scope}_recordCount", "gauge", "Rows that the last round wrote.")
    freshness = Family(f"{scope}_freshness", "gauge", "How far the lake may lag, milliseconds.")
    state = Family(f"{scope}_state", "gauge", "1 for the state that the table is in.")
    for table in states:
        labels = {"database": table.path.database, "table": table.path.table}
        lag.add(max(0, now_ms - (table.last_tiered_ms or table.since_ms)), labels)
        tiered.add(table.last_tiered_ms, labels)
        failures.add(table.failures, labels)
        seen = stats.of(table.table_id)
        duration.add(seen.duration_ms, labels)
        waiting.add(stats.pending_time_ms(table.table_id), labels)
        failed.add(seen.failures, labels)
        size.add(seen.size_bytes, labels)
        records.add(seen.records, labels)
        freshness.add(table.freshness_ms, labels)
        state.add(1, {**labels, "state": table.state.value})
    yield from (lag, tiered, duration, waiting, failures, failed, size, records, freshness, state)

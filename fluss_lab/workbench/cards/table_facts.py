"""The facts of a table as cards show them: records in lake and log, lag, state. Servers that are away are not waited for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.display import ago, plural
from fluss_lab.display.marks import ABSENT, BEHIND, FAILED, WELL
from fluss_lab.errors import FlussError, LakeSnapshotNotFoundError
from fluss_lab.model import LakeSnapshot, TableBucket, TableInfo, TablePath
from fluss_lab.model.times import format_duration
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.table_lag import TableLag, lag_of


@dataclass(frozen=True, slots=True)
class TableFacts:
    """How a table is now.

    Attributes:
        info: Its definition.
        buckets: How many buckets it has in the cluster, and in how many partitions.
        partitions: None without partition columns.
        lake_records: Records whose offsets the lake holds, of buckets that are known.
        log_records: Those that only the log holds.
        held_records: Those that the log holds; None when that is not known of a bucket.
        size_bytes: Of its logs.
        lag: How far the lake lags; None of a table that is not in the lake.
        error: Why something of it is not known, or why its last round failed; None when all is well.
        has_failed: Whether its last round failed.
    """

    info: TableInfo
    buckets: int
    partitions: int | None
    lake_records: int
    log_records: int
    held_records: int | None
    size_bytes: int
    lag: TableLag | None
    error: str | None
    has_failed: bool

    @property
    def records(self) -> int:
        """Return how many records there are: of a log table, its rows; of a primary-key table, its changes."""
        return self.lake_records + self.log_records

    @property
    def kind(self) -> str:
        """Return ``log`` or ``primary key``."""
        return "log" if self.info.is_log_table else "primary key"

    @property
    def rank(self) -> int:
        """Return how soon a person should look at it: 0 first."""
        if self.has_failed or self.error is not None:
            return 0
        if self.lag is None:
            return 3
        return 1 if self.lag.is_late else 2

    @property
    def state(self) -> str:
        """Return its state, in words with a sign."""
        if self.has_failed:
            return f"{FAILED} failed"
        if self.error is not None:
            return f"{FAILED} not known"
        return (f"{BEHIND} behind", f"{WELL} within freshness", f"{ABSENT} not in the lake")[self.rank - 1]

    @property
    def lag_text(self) -> str | None:
        """Return the lag, in words; None of a table that is not in the lake."""
        if self.lag is None:
            return None
        least = "" if self.lag.is_complete else "at least "
        may = "" if self.lag.freshness_ms is None else f" of {format_duration(self.lag.freshness_ms)}"
        late = f", {ago(self.lag.ms)}{may}" if self.lag.records else ""
        return f"{least}{plural(self.lag.records, 'record')}{late}"

    @property
    def buckets_text(self) -> str:
        """Return how many buckets it has."""
        if self.partitions is None:
            return f"{self.buckets:,}"
        return f"{self.buckets:,} in {plural(self.partitions, 'partition')}"


def table_facts(connection: Connection, path: TablePath, state: pb.PbTieringState | None = None) -> TableFacts:
    """Return how a table is now.

    Args:
        connection: To the cluster.
        path: The table.
        state: What the coordinator says of its tiering, if it was asked.

    Raises:
        TableNotFoundError: It was dropped.
        UnavailableError: The coordinator is away.

    Cost: three small calls, and one for each server that holds buckets.
    """
    info = connection.table_info(path, connection.attempts(f"show {path}", 0))
    lake = None
    if info.descriptor.lake_enabled:
        try:
            lake = connection.admin().lake_snapshot(path, table_id=info.table_id)
        except LakeSnapshotNotFoundError:
            lake = None
    statuses = connection.admin().buckets(info, patient=False)
    known = [each for each in statuses if isinstance(each, KnownBucket)]
    lag = None
    if info.descriptor.lake_enabled:
        tiered_ms = state.last_tiered_time if state is not None and state.last_tiered_time else None
        lag = lag_of(info, statuses, {} if lake is None else lake.offsets, _now_ms(), tiered_ms)
    errors = [str(each.error) for each in statuses if each.error is not None]
    failure = state.last_error if state is not None and state.last_error else None
    lake_records, log_records = _records(known, lake)
    partitions = {each.partition for each in statuses} if info.descriptor.partitioned_by else None
    return TableFacts(
        info,
        len(statuses),
        None if partitions is None else len(partitions),
        lake_records,
        log_records,
        None if errors else sum(each.end_offset - each.start_offset for each in known),
        sum(each.size_bytes + each.remote_size_bytes for each in known),
        lag,
        next(iter(errors), failure),
        failure is not None,
    )


def _records(known: list[KnownBucket], lake: LakeSnapshot | None) -> tuple[int, int]:
    """Return how many records the lake holds, and how many only the log."""
    offsets = {} if lake is None else {bucket: each.end for bucket, each in lake.offsets.items()}
    starts: Mapping[TableBucket, int] = {} if lake is None else lake.starts
    in_lake = sum(max(0, end - starts.get(bucket, 0)) for bucket, end in offsets.items())
    in_log = 0
    for each in known:
        start = each.local_start_offset if isinstance(each.start, FlussError) else each.start
        in_log += max(0, each.end_offset - max(start, offsets.get(each.bucket, 0)))
    return in_lake, in_log


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def tiering_states(connection: Connection, what: str) -> dict[str, pb.PbTieringState]:
    """Return what the coordinator says of the tiering of each table, by path. It is not waited for.

    Raises:
        UnavailableError: It is away.
    """
    coordinator = connection.coordinator(connection.attempts(what, 0))
    described = coordinator.describe_cluster(pb.DescribeClusterRequest())
    return states_by_path(described)


def states_by_path(described: pb.DescribeClusterResponse) -> dict[str, pb.PbTieringState]:
    """Return how the coordinator says that each table is tiered, by path."""
    return {f"{each.table_path.database_name}.{each.table_path.table_name}": each for each in described.tiering_states}

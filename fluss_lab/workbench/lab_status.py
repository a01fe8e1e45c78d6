"""The state of a lab as people see it: servers, tables, lag, tiering, disk use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.displays import Listing
from fluss_lab.workbench.table import Table

_TABLE_COLUMNS: Final = {
    "table": pa.string(),
    "buckets": pa.int64(),
    "rows_in_cluster": pa.int64(),
    "bytes": pa.int64(),
    "end": pa.int64(),
    "lake_end": pa.int64(),
    "lag": pa.int64(),
    "state": pa.string(),
    "last_error": pa.string(),
}
_SERVER_COLUMNS: Final = {
    "id": pa.int32(),
    "state": pa.string(),
    "host": pa.string(),
    "port": pa.int32(),
    "process": pa.int64(),
    "restarts": pa.int64(),
    "last_error": pa.string(),
}


class LabStatus:
    """The state of a lab at one moment.

    Attributes:
        servers: One row a tablet server: where it is, how often it was started again, why it ended last.
        tables: One row a table: buckets, rows and bytes in the cluster, end offsets, lag in records, tiering state.
        attached: Processes attached to the cluster.
        ephemeral: Whether the cluster ends when no process is attached any more.
        coordinator_epoch: Starts of the coordinator so far.
        kept_partitions: One row a partition that stays past its retention, because the lake does not hold all of it.
    """

    def __init__(self, folder: Path | None, described: pb.DescribeClusterResponse, tables: Iterable[Table]) -> None:
        states = {state.table_id: state for state in described.tiering_states}
        self.folder = folder
        self.tables = Listing("tables", [_table_row(table, states) for table in tables], _TABLE_COLUMNS)
        self.attached = described.attached
        self.ephemeral = described.ephemeral
        self.coordinator_epoch = described.coordinator_epoch
        self.started = format_moment(described.started_time)
        self.servers = Listing(
            "servers", [_server_row(each) for each in described.tablet_server_status], _SERVER_COLUMNS
        )

        self.kept_partitions = Listing(
            "partitions kept past their retention",
            [_kept_row(each) for each in described.kept_partitions],
            ("table", "partition", "since", "reason"),
        )

    def __repr__(self) -> str:
        kind = "ephemeral" if self.ephemeral else "permanent"
        head = f"lab {self.folder or ''} · {kind} · {self.attached} attached · since {self.started}"
        kept = f"\n{self.kept_partitions!r}" if self.kept_partitions else ""
        return f"{head}\n{self.servers!r}\n{self.tables!r}{kept}"

    def _repr_html_(self) -> str:
        kept = self.kept_partitions._repr_html_() if self.kept_partitions else ""
        return self.servers._repr_html_() + self.tables._repr_html_() + kept


def _table_row(table: Table, states: Mapping[int, pb.PbTieringState]) -> dict[str, Any]:
    info = table.info
    buckets = table.buckets(patient=False)
    state = states.get(info.table_id)
    lake = info.descriptor.lake_enabled
    troubles = [row[kind] for kind in ("error", "warning") for row in buckets if row[kind]]
    return {
        "table": str(table.path),
        "buckets": len(buckets),
        "rows_in_cluster": _sum(None if row["start"] is None else row["end"] - row["start"] for row in buckets),
        "bytes": _sum(row["bytes"] for row in buckets),
        "end": _sum(row["end"] for row in buckets),
        "lake_end": _sum(None if row["end"] is None else row["lake_end"] or 0 for row in buckets) if lake else None,
        "lag": _sum(row["lag"] for row in buckets) if lake else None,
        "state": state.state if state is not None else None,
        "last_error": next(iter(troubles), None) or (state.last_error or None if state is not None else None),
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """Return a sum; None when a part of it is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _kept_row(kept: pb.PbKeptPartition) -> dict[str, Any]:
    return {
        "table": f"{kept.table_path.database_name}.{kept.table_path.table_name}",
        "partition": kept.partition_name,
        "since": format_moment(kept.since_time),
        "reason": kept.reason,
    }


def _server_row(status: pb.PbTabletServerStatus) -> dict[str, Any]:
    return {
        "id": status.server_id,
        "state": status.state,
        "host": status.host or None,
        "port": status.port or None,
        "process": status.process_id or None,
        "restarts": status.restarts,
        "last_error": status.last_error or None,
    }

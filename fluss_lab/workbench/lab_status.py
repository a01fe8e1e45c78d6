"""The state of a lab as people see it: servers, tables, lag, tiering, disk use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.client.table_listing import look_at_tables
from fluss_lab.display import Grid, card, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.display.marks import FAILED
from fluss_lab.errors import FlussError
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DISK_USAGE_TIME
from fluss_lab.model.times import format_moment, format_size
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.cards.lab_card import lab_name
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.cards.table_listings import bucket_listing
from fluss_lab.workbench.health.disk_usage import disk_listing, memory_listing

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

    def __init__(
        self,
        folder: Path | None,
        described: pb.DescribeClusterResponse,
        connection: Connection,
    ) -> None:
        states = {state.table_id: state for state in described.tiering_states}
        self.folder = folder
        self._name = lab_name(connection, folder)
        self.tables = Listing(
            "tables", [*look_at_tables(connection.admin(), partial(_table_row, connection, states))], _TABLE_COLUMNS
        )
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

        self._described = described
        self._disk_limit_ms = DISK_USAGE_TIME.of(connection.options)

    @cached_property
    def disk(self) -> Listing:
        """Return the disk that the lab takes, the largest store first; counted when first asked for.

        Returns:
            ``store``: ``log`` (a tablet server's: segments and indexes), ``remote log``, ``key-value snapshots``, ``lake
            data``, ``lake metadata`` (with the catalog), ``metadata`` (the coordinator's), ``jobs`` (outputs and history),
            ``server logs``, ``reserve`` (room kept for a full disk), ``other``; ``server``: the tablet server whose it is;
            ``bytes`` on the disk, in whole blocks (None: the lake is not on this machine's disks); ``files``; ``complete``:
            whether all was counted, else it is at least so much; ``place``. The title has the room that is left.

        Raises:
            UnsupportedError: The lab's folder is on another machine.

        Cost: a look at each file, some 100,000 a second, for at most ``client.disk-usage.time-max``.
        """
        options = {each.key: each.value for each in self._described.options}
        return disk_listing(self.folder, options, self._disk_limit_ms)

    @cached_property
    def memory(self) -> Listing:
        """Return the resident memory of each server process: ``server`` (which are in it), ``process``, ``bytes``.

        Raises:
            UnsupportedError: The servers are on another machine.
        """
        return memory_listing(self.folder, self._described.tablet_server_status)

    def __repr__(self) -> str:
        kind = "ephemeral" if self.ephemeral else "permanent"
        head = f"lab {short(self.folder or self._name, 200)} · {kind} · {self.attached} attached · since {self.started}"
        kept = f"\n{self.kept_partitions!r}" if self.kept_partitions else ""
        room, unknown = self._room()
        shown = [head, repr(self.servers), f"{self.tables!r}{kept}", *map(repr, room), *([unknown] if unknown else [])]
        return "\n".join(shown)

    def _room(self) -> tuple[list[Listing], str]:
        """Return the listings of memory and disk, and a sentence when they cannot be had."""
        try:
            return ([self.memory, self.disk] if self.folder is not None else []), ""
        except FlussError as error:
            return [], f"memory and disk are not known: {error}"

    def _repr_html_(self) -> str:
        tables = sorted(self.tables, key=lambda row: (not row["last_error"], -(row["lag"] or 0), row["table"]))
        names = ("table", "buckets", "rows_in_cluster", "bytes", "lag", "state")
        rows = [
            [*(row[name] for name in names[:3]), None if row["bytes"] is None else format_size(row["bytes"]),
             row["lag"], f"{FAILED} failed" if row["last_error"] else row["state"]]
            for row in tables[:CARD_ROWS_MAX]
        ]  # fmt: skip
        running = sum(row["state"] == "running" for row in self.servers)
        sizes = [row["bytes"] for row in tables if row["bytes"] is not None]
        notes = [f"server {row['id']} is {row['state']}: {row['last_error'] or 'no reason is known'}"
                 for row in self.servers if row["state"] != "running"]  # fmt: skip
        notes += [f"{row['table']}: {row['last_error']}" for row in tables if row["last_error"]]
        room, unknown = self._room()
        notes += [unknown] if unknown else []
        status = card(
            "LabStatus",
            self._name,
            [
                ("servers", f"{running} of {len(self.servers)} running"),
                ("tables", len(tables)),
                ("logs", format_size(sum(sizes))),
                ("attached", self.attached),
                ("", "ends with the last process attached" if self.ephemeral else "permanent"),
                ("since", self.started),
            ],
            notes=notes,
            grid=Grid([name.replace("_", " ") for name in names], rows, right=("bytes",), kept=("table", "lag", "state")) if rows else None,
            total=len(tables),
            noun="table",
            last="Those that need attention first." if len(tables) > CARD_ROWS_MAX else "",
            calls=[".tables", ".servers"],
        )  # fmt: skip
        kept = [self.kept_partitions] if self.kept_partitions else []
        return status + "".join(each._repr_html_() for each in (*kept, self.servers, *room))


def _table_row(connection: Connection, states: Mapping[int, pb.PbTieringState], info: TableInfo) -> dict[str, Any]:
    buckets = bucket_listing(connection, info, patient=False)
    state = states.get(info.table_id)
    lake = info.descriptor.lake_enabled
    troubles = [row[kind] for kind in ("error", "warning") for row in buckets if row[kind]]
    return {
        "table": str(info.path),
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

"""The text of ``fluss-lab status``, for a person or a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fluss_lab.cli.text_tables import text_table
from fluss_lab.client import BucketStatus, KnownBucket
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import DISK_USAGE_TIME
from fluss_lab.model.times import format_moment, format_size
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.process.discovery import Discovery
from fluss_lab.server.server_metrics import HOST, PATH
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.health.bucket_findings import TROUBLES_MAX, given_up_lines, table_statuses, troubles_of
from fluss_lab.workbench.health.disk_usage import disk_listing, memory_listing
from fluss_lab.workbench.lab_place import running_connection

_SERVER_COLUMNS: Final = ("server", "process", "address", "state", "restarts", "last error")
_TABLE_COLUMNS: Final = (
    "table", "buckets", "records", "bytes", "end", "lake end", "lag", "state", "failures", "last error",
)  # fmt: skip
_KEPT_COLUMNS: Final = ("table", "partition", "since", "reason")


def status_object(folder: Path, found: Discovery) -> dict[str, Any]:
    """Return the status of a running lab as an object of JSON: what `status_text` says, and nothing cut off.

    Raises:
        FlussError: The server does not answer.
    """
    described, tables, statuses, _ = asked = _ask_servers(folder)
    servers = _objects(_SERVER_COLUMNS, _server_rows(found, described.tablet_server_status))
    for each in servers:
        each["process"] = each["process"] and int(str(each["process"]))
    return {
        "folder": str(folder),
        "running": True,
        "ephemeral": described.ephemeral,
        "started": format_moment(described.started_time),
        "attached": described.attached,
        "coordinator_epoch": described.coordinator_epoch,
        "metrics": [_page(each) for each in described.metrics_pages],
        "servers": servers,
        "memory": list(memory_listing(folder, described.tablet_server_status)),
        "disk": list(_disk(folder, asked)),
        "tables": _objects(_TABLE_COLUMNS, tables),
        "kept_partitions": _objects(_KEPT_COLUMNS, _kept_rows(described.kept_partitions)),
        "problems": troubles_of(statuses),
        "given_up": given_up_lines(statuses),
    }


def _objects(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    names = [column.replace(" ", "_") for column in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


class _Asked(NamedTuple):
    """What the servers of a lab said."""

    described: pb.DescribeClusterResponse
    tables: list[tuple[object, ...]]
    statuses: list[tuple[TableInfo, list[BucketStatus]]]
    limit_ms: int


def _ask_servers(folder: Path) -> _Asked:
    with running_connection(folder) as connection:
        described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        states = {state.table_id: state for state in described.tiering_states}
        statuses = table_statuses(connection)
        limit_ms = DISK_USAGE_TIME.of(connection.options)
    return _Asked(described, [_table_row(info, buckets, states) for info, buckets in statuses], statuses, limit_ms)


def _memory(folder: Path, asked: _Asked) -> str:
    """Return the memory of the server processes, as one line: the rows of servers have their own."""
    found = memory_listing(folder, asked.described.tablet_server_status)
    known = [f"{row['server']}: {format_size(row['bytes'])}" for row in found if row["bytes"] is not None]
    return f"{found.title} ({'; '.join(known)})"


def _disk(folder: Path, asked: _Asked) -> Listing:
    return disk_listing(folder, {each.key: each.value for each in asked.described.options}, asked.limit_ms)


def status_text(folder: Path, found: Discovery) -> str:
    """Return servers, tables, lag and tiering states of a running lab.

    Raises:
        FlussError: The server does not answer.
    """
    described, tables, statuses, _ = asked = _ask_servers(folder)
    kind = "ephemeral" if described.ephemeral else "permanent"
    head = (
        f"{folder}: {kind}, up since {format_moment(described.started_time)}, {described.attached} attached, coordinator "
        f"epoch {described.coordinator_epoch}"
    )
    if described.metrics_pages:
        head += f"\nmetrics, with the token in {found.servers[0].token_file}: {_pages(described.metrics_pages)}"
    parts = [head, text_table(_SERVER_COLUMNS, _server_rows(found, described.tablet_server_status))]
    parts.append(text_table(_TABLE_COLUMNS, _cut(tables)) if tables else "no tables")
    disk = _disk(folder, asked)
    stores = text_table(disk.columns, [list(row.values()) for row in disk])
    parts += [_memory(folder, asked), f"{disk.title}\n{stores}"]
    if described.kept_partitions:
        kept = _kept_rows(described.kept_partitions)
        parts.append("kept past their retention:\n" + text_table(_KEPT_COLUMNS, kept))
    if troubles := troubles_of(statuses):
        shown = troubles[:TROUBLES_MAX]
        more = [f"and {len(troubles) - len(shown)} more"] if len(troubles) > len(shown) else []
        parts.append("buckets with problems:\n" + "\n".join([*shown, *more]))
    if given_up := given_up_lines(statuses):
        parts.append("given up because it could not be read:\n" + "\n".join(given_up))
    return "\n\n".join(parts)


def _cut(tables: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the rows of tables with the beginning of their errors."""
    return [(*row[:-1], str(row[-1])[:80] if row[-1] else None) for row in tables]


def _kept_rows(kept: Iterable[pb.PbKeptPartition]) -> list[tuple[object, ...]]:
    return [(*_kept_place(each), format_moment(each.since_time), each.reason) for each in kept]


def _kept_place(kept: pb.PbKeptPartition) -> tuple[str, str]:
    return f"{kept.table_path.database_name}.{kept.table_path.table_name}", kept.partition_name


def _pages(pages: Iterable[pb.PbMetricsPage]) -> str:
    """Return the addresses of each process's metrics page."""
    return ", ".join(
        (f"tablet {page.server_id} " if page.HasField("server_id") else "") + _page(page) for page in pages
    )


def _page(page: pb.PbMetricsPage) -> str:
    return f"http://{HOST}:{page.port}{PATH}"


def _server_rows(found: Discovery, states: Iterable[pb.PbTabletServerStatus]) -> list[tuple[object, ...]]:
    """Return the coordinator's process and each tablet server, running or not."""
    first = found.servers[0]
    rows: list[tuple[object, ...]] = [
        ("coordinator", str(first.pid), f"{first.host}:{first.port}", "running", None, None)
    ]
    for each in states:
        # The message leaves out the process of a tablet server inside the coordinator's.
        process_id = each.process_id or (first.pid if each.host else None)
        address = f"{each.host}:{each.port}" if each.host else None
        error = each.last_error.splitlines()[0][:120] if each.last_error else None
        shown = None if process_id is None else str(process_id)
        rows.append((f"tablet {each.server_id}", shown, address, each.state, each.restarts, error))
    return rows


def _table_row(
    info: TableInfo, buckets: Sequence[BucketStatus], states: Mapping[int, pb.PbTieringState]
) -> tuple[object, ...]:
    state = states.get(info.table_id)
    known = [each for each in buckets if isinstance(each, KnownBucket)]
    errors = [str(each.error) for each in buckets if each.error is not None]
    warnings = [each.warning for each in known if each.warning is not None]
    error = next(iter([*errors, *warnings]), None) or (state.last_error if state is not None else None) or None
    records = size_bytes = end = lake_end = None  # a sum with an unknown part is not shown
    if len(known) == len(buckets):
        end, size_bytes = sum(each.end_offset for each in known), sum(_size_bytes(each) for each in known)
        lake_end = sum(each.lake_end_offset or 0 for each in known) if info.descriptor.lake_enabled else None
        records = None if errors else sum(each.end_offset - each.start_offset for each in known)
    lag = None if end is None or lake_end is None else end - lake_end
    return (
        str(info.path), len(buckets), records, size_bytes, end, lake_end, lag,
        state.state if state is not None else None, state.failures if state is not None else None,
        error.splitlines()[0] if error else None,
    )  # fmt: skip


def _size_bytes(bucket: KnownBucket) -> int:
    return bucket.size_bytes + bucket.remote_size_bytes

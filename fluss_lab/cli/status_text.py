"""The text of ``fluss-lab status``, for a person or a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fluss_lab.client import BucketStatus, Connection, KnownBucket, ServerAddress
from fluss_lab.model import TableInfo
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.process.discovery import Discovery
from fluss_lab.server.server_metrics import HOST, PATH
from fluss_lab.workbench.bucket_findings import TROUBLES_MAX, given_up_of, table_statuses, troubles_of


def text_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as aligned columns; numbers to the right, None as a dash."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(headers))]
    numeric = [bool(rows) and all(isinstance(row[i], int | None) for row in rows) for i in range(len(headers))]
    lines = []
    for row in cells:
        shown = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(shown).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def status_text(folder: Path, found: Discovery) -> str:
    """Return servers, tables, lag and tiering states of a running lab.

    Raises:
        FlussError: The server does not answer.
    """
    place = cluster.locate(folder)
    with Connection(lambda: ServerAddress.of(place.host, place.port, place.token, place.trust)) as connection:
        described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        states = {state.table_id: state for state in described.tiering_states}
        statuses = table_statuses(connection)
    tables = [_table_row(info, buckets, states) for info, buckets in statuses]
    kind = "ephemeral" if described.ephemeral else "permanent"
    head = (
        f"{folder}: {kind}, up since {format_moment(described.started_time)}, {described.attached} attached, coordinator "
        f"epoch {described.coordinator_epoch}"
    )
    if described.metrics_pages:
        head += f"\nmetrics, with the token in {found.servers[0].token_file}: {_pages(described.metrics_pages)}"
    columns = ("table", "buckets", "records", "bytes", "end", "lake end", "lag", "state", "failures", "last error")
    parts = [head, _servers_table(found, described.tablet_server_status)]
    parts.append(text_table(columns, tables) if tables else "no tables")
    if described.kept_partitions:
        kept = [(*_kept_place(each), format_moment(each.since_time), each.reason) for each in described.kept_partitions]
        parts.append("kept past their retention:\n" + text_table(("table", "partition", "since", "reason"), kept))
    if troubles := troubles_of(statuses):
        shown = troubles[:TROUBLES_MAX]
        more = [f"and {len(troubles) - len(shown)} more"] if len(troubles) > len(shown) else []
        parts.append("buckets with problems:\n" + "\n".join([*shown, *more]))
    if given_up := given_up_of(statuses):
        parts.append("given up because it could not be read:\n" + "\n".join(given_up))
    return "\n\n".join(parts)


def _kept_place(kept: pb.PbKeptPartition) -> tuple[str, str]:
    return f"{kept.table_path.database_name}.{kept.table_path.table_name}", kept.partition_name


def _pages(pages: Iterable[pb.PbMetricsPage]) -> str:
    """Return the addresses of each process's metrics page."""
    shown = []
    for page in pages:
        who = f"tablet {page.server_id} " if page.HasField("server_id") else ""
        shown.append(f"{who}http://{HOST}:{page.port}{PATH}")
    return ", ".join(shown)


def _servers_table(found: Discovery, states: Iterable[pb.PbTabletServerStatus]) -> str:
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
    return text_table(("server", "process", "address", "state", "restarts", "last error"), rows)


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
        error.splitlines()[0][:80] if error else None,
    )  # fmt: skip


def _size_bytes(bucket: KnownBucket) -> int:
    return bucket.size_bytes + bucket.remote_size_bytes

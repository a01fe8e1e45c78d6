"""What ``fluss-lab status`` and ``fluss-lab doctor`` tell: plain text, for a person or a script."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import FlussError
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.discovery import DISCOVERY_FILE, TOKEN_FILE, Discovery

PACKAGES: Final = ("pyarrow", "pyspark", "pyiceberg", "grpcio", "protobuf", "google-crc32c", "jupyterlab", "papermill")
#: A segment of each of a few buckets, and a round's files.
FREE_BYTES_MIN: Final = 1 << 30


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
    with Connection(lambda: ServerAddress(place.host, place.port, place.token)) as connection:
        described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        states = {state.table_id: state for state in described.tiering_states}
        admin = connection.admin()
        infos = [admin.table_info(TablePath(db, name)) for db in admin.databases() for name in admin.tables(db)]
        tables = [_table_row(connection, info, states) for info in infos]
    kind = "ephemeral" if described.ephemeral else "permanent"
    head = (
        f"{folder}: {kind}, up since {format_moment(described.started_time)}, {described.attached} attached, coordinator "
        f"epoch {described.coordinator_epoch}"
    )
    servers = [
        (each.server_id, str(each.pid), f"{each.host}:{each.port}", ", ".join(each.roles)) for each in found.servers
    ]
    columns = ("table", "buckets", "records", "bytes", "end", "lake end", "lag", "state", "failures", "last error")
    parts = [head, text_table(("server", "process", "address", "roles"), servers)]
    parts.append(text_table(columns, tables) if tables else "no tables")
    return "\n\n".join(parts)


def _table_row(connection: Connection, info: TableInfo, states: Mapping[int, pb.PbTieringState]) -> tuple[object, ...]:
    buckets = connection.admin().buckets(info)
    state = states.get(info.table_id)
    end = sum(each.end_offset for each in buckets)
    lake_end = sum(each.lake_end_offset or 0 for each in buckets) if info.descriptor.lake_enabled else None
    stopped = next((each.error for each in buckets if each.error), None)
    error = stopped or (state.last_error if state is not None else None) or None
    return (
        str(info.path), len(buckets), sum(each.end_offset - each.start_offset for each in buckets),
        sum(each.size_bytes for each in buckets), end, lake_end, None if lake_end is None else end - lake_end,
        state.state if state is not None else None, state.failures if state is not None else None,
        error.splitlines()[0][:80] if error else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and what was found."""

    name: str
    is_well: bool
    found: str


def checks(folder: Path) -> Iterator[Check]:
    """Yield what this machine and a lab's folder need, as found."""
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package in PACKAGES:
        yield _package(package)
    yield _asked("java", _java)
    if not folder.exists():
        yield Check("folder", True, f"{folder} does not exist yet; it is made when a server starts")
        return
    yield _private(folder)
    for name in (DISCOVERY_FILE, TOKEN_FILE):
        if (folder / name).exists():
            yield _private(folder / name)
    free = shutil.disk_usage(folder).free
    yield Check("disk", free >= FREE_BYTES_MIN, f"{free / 2**30:.1f} GB free, expected at least {FREE_BYTES_MIN >> 30}")
    yield _asked("server", lambda: _server(folder))


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, f"not installed; `pip install {name}`")


def _asked(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except (FlussError, OSError) as error:
        return Check(name, False, str(error))


def _java() -> str:
    from fluss_lab.spark.java import find_java

    return str(find_java())


def _private(path: Path) -> Check:
    mode = stat.S_IMODE(path.stat().st_mode)
    is_private = path.stat().st_uid == os.getuid() and not mode & 0o077
    return Check(
        path.name, is_private, f"{path} has mode {mode:o}" + ("" if is_private else ", expected none for others")
    )


def _server(folder: Path) -> str:
    found = cluster.read_discovery(folder)
    if found is None:
        return "none runs"
    if cluster.running_server(folder) is None:
        return f"process {found.servers[0].pid} was killed; the next to open the lab starts it again"
    status_text(folder, found)
    return f"process {found.servers[0].pid} answers"

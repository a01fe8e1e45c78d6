"""The doctor: what this machine and a lab need, checked: packages, Java, folder, disks, clock, server, buckets."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.display import plural
from fluss_lab.errors import FlussError
from fluss_lab.files import try_lock
from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder
from fluss_lab.model.config.config_chain import resolve, unknown_variables
from fluss_lab.model.config.options import METRICS_PORT
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.folder.folder_lock import LOCK_FILE
from fluss_lab.server.folder.remote_storage import remote_root
from fluss_lab.server.process.discovery import DISCOVERY_FILE, TOKEN_FILE
from fluss_lab.server.process.server_process import LOG_FILE
from fluss_lab.server.tablet.log.log_recovery import SUSPECT_FILE
from fluss_lab.workbench.displays import Listing
from fluss_lab.workbench.health.bucket_findings import TROUBLES_MAX, findings_of, table_statuses
from fluss_lab.workbench.lab_place import running_connection

PACKAGES: Final = ("pyarrow", "pyspark", "pyiceberg", "grpcio", "protobuf", "google-crc32c", "jupyterlab", "papermill")
#: A segment of each of a few buckets, and a round's files.
FREE_BYTES_MIN: Final = 1 << 30
#: The log keeps 512 files open; sockets, SQLite and the JVM's pipes come on top.
OPEN_FILES_MIN: Final = 1024
#: Files newer than this machine's clock were written by another clock.
CLOCK_AHEAD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result."""

    name: str
    is_ok: bool
    found: str


def findings(folder: Path | None, connection: Connection) -> Listing:
    """Return the checks of a lab that is open, as `Lab.doctor` does.

    Args:
        folder: The lab's; None: its server runs elsewhere, and only this machine and the buckets are checked.
        connection: To its server.
    """
    known = None if connection.closed.is_set() else connection
    found = list(checks(folder, known) if folder is not None else [*_machine(), *_bucket_checks(connection)])
    found.sort(key=lambda check: check.is_ok)  # what needs attention comes first
    bad = sum(not check.is_ok for check in found)
    title = f"doctor: {bad} of {len(found)} checks failed" if bad else f"doctor: all {len(found)} checks passed"
    rows = [{"check": check.name, "ok": check.is_ok, "found": check.found} for check in found]
    return Listing(title, rows, {"check": pa.string(), "ok": pa.bool_(), "found": pa.string()})


def checks(folder: Path, connection: Connection | None = None) -> Iterator[Check]:
    """Yield the checks of this machine and of a lab's folder.

    Args:
        folder: The lab's; it need not exist.
        connection: To its server, if there is one already.
    """
    yield from _machine()
    yield _checked("options", lambda: _options(folder))
    if not folder.exists():
        yield Check("folder", True, f"{folder} does not exist yet; it is created when a server starts")
        return
    yield _private(folder)
    for name in (DISCOVERY_FILE, TOKEN_FILE):
        if (folder / name).exists():
            yield _private(folder / name)
    yield from _disks(folder)
    yield _clock(folder)
    yield from _leftovers(folder)
    yield from _server(folder, connection)
    yield from _scheduler(folder)


def _checked(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except (FlussError, OSError) as error:
        return Check(name, False, str(error))


# -- the machine -----------------------------------------------------------------------------------------------------


def _machine() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package in PACKAGES:
        yield _package(package)
    yield _checked("java", _java)
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = open_files in {resource.RLIM_INFINITY} or open_files >= OPEN_FILES_MIN
    yield Check("open files", enough, f"at most {open_files}, expected at least {OPEN_FILES_MIN} (ulimit -n)")


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, f"not installed; `pip install {name}`")


def _java() -> str:
    from fluss_lab.spark.session.java_home import find_java

    found = find_java()
    return f"{found.home} (version {found.version})"


def _options(folder: Path) -> str:
    """Return the options that are set, with their sources; an unknown name is an error."""
    found = resolve({}, os.environ, [Path.cwd(), folder]).values()
    given = [f"{each.key} ({each.source})" for each in found if not each.is_default]
    if unknown := unknown_variables(os.environ):
        raise FlussError(
            f"{', '.join(unknown)}: set in the environment, but there is no such option; see `fluss-lab config`"
        )
    return ", ".join(given) or "all are the defaults"


# -- the folder ------------------------------------------------------------------------------------------------------


def _private(path: Path) -> Check:
    mode = stat.S_IMODE(path.stat().st_mode)
    is_private = path.stat().st_uid == os.getuid() and not mode & 0o077
    return Check(
        path.name, is_private, f"{path} has mode {mode:o}" + ("" if is_private else ", expected none for others")
    )


def _disks(folder: Path) -> Iterator[Check]:
    remote = _remote(folder)
    for name, place in (("disk", folder), ("remote disk", remote)):
        if place is None or not place.exists() or (name != "disk" and place.stat().st_dev == folder.stat().st_dev):
            continue
        free = shutil.disk_usage(place).free
        found = f"{place}: {free / 2**30:.1f} GB free, expected at least {FREE_BYTES_MIN >> 30}"
        yield Check(name, free >= FREE_BYTES_MIN and os.access(place, os.W_OK), found)


def _remote(folder: Path) -> Path | None:
    try:
        return remote_root(cluster.read_options(folder), folder)
    except FlussError:
        return None  # the check of the options reports it


def _clock(folder: Path) -> Check:
    newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    ahead_s = newest - time.time()
    if ahead_s <= CLOCK_AHEAD_S:
        return Check("clock", True, format_moment(int(time.time() * 1000)))
    return Check(
        "clock", False, f"the folder was written {ahead_s:.0f} s in the future: the clock was set back, or is wrong. "
        "Records get the time of the last one until the clock has caught up",
    )  # fmt: skip


def _leftovers(folder: Path) -> Iterator[Check]:
    for path in sorted(folder.glob(f"tablet*/data/**/{SUSPECT_FILE}")):
        yield Check(
            "disk fault", False, f"{path.parent}: fsync failed here; the next start writes the log's end again. Check "
            f"the disk, then see {folder / LOG_FILE}",
        )  # fmt: skip
    spilled = [path.name for path in folder.iterdir() if path.name.startswith(".") and path.is_file()]
    if spilled:
        yield Check(
            "leftovers", True, f"incomplete files of a killed server, which may be deleted: {', '.join(spilled)}"
        )


# -- the server ------------------------------------------------------------------------------------------------------


def _server(folder: Path, connection: Connection | None) -> Iterator[Check]:
    yield _checked("server", lambda: _answering(folder, connection))
    try:
        found, running = cluster.read_discovery(folder), cluster.running_server(folder)
    except FlussError:
        return  # reported above
    holder = _holder(folder)
    if running is None and holder is not None:
        yield Check(
            "lock", found is None, f"process {holder} holds the folder, and is starting or stopping; if that takes "
            f"minutes, see {folder / LOG_FILE} and end it",
        )  # fmt: skip
    if running is not None:
        try:
            with _connected(folder, connection) as connected:
                yield from _bucket_checks(connected)
        except FlussError as error:  # it ended meanwhile
            yield Check("buckets", False, str(error))
        return
    if found is not None:
        yield _port("port", found.servers[0].host, found.servers[0].port, "the next server uses another one")
    metrics_port = METRICS_PORT.of(_options_of(folder))
    if metrics_port > 0:
        yield _port(
            "metrics port", "127.0.0.1", metrics_port, f"no server can start; choose another {METRICS_PORT.key}"
        )


def _connected(folder: Path, connection: Connection | None) -> AbstractContextManager[Connection]:
    return running_connection(folder) if connection is None else nullcontext(connection)


def _bucket_checks(connection: Connection) -> Iterator[Check]:
    try:
        troubles, given_up = findings_of(table_statuses(connection))
    except FlussError as error:
        troubles, given_up = [str(error)], []
    for each in given_up:
        yield Check("buckets", True, f"given up because it could not be read: {each}")
    if not troubles:
        yield Check("buckets", True, "all are available")
    for trouble in troubles[:TROUBLES_MAX]:
        yield Check("buckets", False, trouble)
    if len(troubles) > TROUBLES_MAX:
        yield Check("buckets", False, f"and {len(troubles) - TROUBLES_MAX} more")


def _options_of(folder: Path) -> dict[str, str]:
    try:
        found = resolve({}, os.environ, [Path.cwd(), folder])
        return {**{key: setting.value for key, setting in found.items()}, **cluster.read_options(folder)}
    except FlussError:
        return {}


def _answering(folder: Path, connection: Connection | None) -> str:
    found = cluster.read_discovery(folder)
    if found is None:
        return "none runs"
    if cluster.running_server(folder) is None:
        return f"process {found.servers[0].pid} was killed; the next process that opens the lab restarts it, and it recovers"
    with _connected(folder, connection) as connected:
        connected.coordinator().describe_cluster(pb.DescribeClusterRequest())
    return f"process {found.servers[0].pid} answers"


def _scheduler(folder: Path) -> Iterator[Check]:
    """Check that jobs which are entered are run."""
    try:
        waiting = sum(job.paused_ms is None for job in JobStore(folder).jobs())
    except FlussError as error:
        yield Check("jobs", False, str(error))
        return
    holder = lease_holder(folder)
    if holder is not None:
        yield Check("jobs", True, f"{plural(waiting, 'job')}, scheduled by process {holder.pid}")
    elif waiting:
        yield Check(
            "jobs", False, f"{plural(waiting, 'job')}, and no scheduler runs: none is run until `fluss-lab up --jobs` or "
            "`fluss-lab jobs run` starts one",
        )  # fmt: skip


def _holder(folder: Path) -> str | None:
    """Return the process that holds the folder's lock; None when it is free."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if try_lock(fd, shared=True):
            return None
        return os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(fd)


def _port(name: str, host: str, port: int, otherwise: str) -> Check:
    """Check that a port is free."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return Check(name, False, f"{host}:{port} is not free ({error.strerror or error}): {otherwise}")
    return Check(name, True, f"{host}:{port} is free")

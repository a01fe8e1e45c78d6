"""The doctor: what this machine and a lab need, checked: packages, Java, folder, disks, clock, server, buckets."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import BucketStatus, Connection
from fluss_lab.display import plural
from fluss_lab.errors import FlussError, StorageError
from fluss_lab.files import try_lock
from fluss_lab.jobs.job_store import JobStore
from fluss_lab.jobs.scheduling.scheduler_lease import lease_holder
from fluss_lab.model import TableInfo
from fluss_lab.model.config.config_chain import (
    FILE_NAME,
    file_values,
    resolve,
    text_of,
    unknown_variables,
    working_folders,
)
from fluss_lab.model.config.option_secrets import secrets_among
from fluss_lab.model.config.options import METRICS_PORT
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.folder.folder_lock import LOCK_FILE, tablet_folders
from fluss_lab.server.folder.metadata_values import metadata_values
from fluss_lab.server.folder.remote_storage import is_claimed, remote_root
from fluss_lab.server.process.discovery import DISCOVERY_FILE, TOKEN_FILE
from fluss_lab.server.process.server_process import LOG_FILE
from fluss_lab.server.tablet.log.fsync_guard import SUSPECT_FILE
from fluss_lab.storage.file_store import ObjectPath, Place
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.health.bucket_findings import TROUBLES_MAX, bucket_troubles, given_up_lines, table_statuses
from fluss_lab.workbench.health.lake_findings import look_at_lake
from fluss_lab.workbench.health.remedies import remedy_of
from fluss_lab.workbench.health.tiering_findings import tiering_troubles
from fluss_lab.workbench.lab_place import running_connection

PACKAGES: Final = ("pyarrow", "pyspark", "pyiceberg", "grpcio", "protobuf", "google-crc32c", "jupyterlab", "papermill")
#: A segment of each of a few buckets, and a round's files.
FREE_BYTES_MIN: Final = 1 << 30
#: The log keeps 512 files open; sockets, SQLite and the JVM's pipes come on top.
OPEN_FILES_MIN: Final = 1024
#: Of findings, the gravest first: what does not work; what works so far, and needs a person; what to know; the rest.
SEVERITIES: Final = ("problem", "warning", "note", "ok")
COLUMNS: Final = {
    "check": pa.string(), "ok": pa.bool_(), "severity": pa.string(), "found": pa.string(), "command": pa.string(),
    "error_class": pa.string(), "table": pa.string(),
}  # fmt: skip
#: Files newer than this machine's clock were written by another clock.
CLOCK_AHEAD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    Attributes:
        name: What was checked.
        is_ok: Whether nothing needs to be done.
        found: What was found, and what to do.
        command: A command of the shell that mends it, or shows what mending it comes to; None: there is none.
        error_class: Name of the class of the error that was found; None: it is none of the house's.
        table: The table that it is about.
        is_passing: Of a check that is not `is_ok`: whether everything works so far.
        is_note: Of one that is: whether a person should know of it all the same.
    """

    name: str
    is_ok: bool
    found: str
    command: str | None = None
    error_class: str | None = None
    table: str | None = None
    is_passing: bool = False
    is_note: bool = False

    @property
    def severity(self) -> str:
        """Return ``problem``, ``warning``, ``note`` or ``ok``: see `SEVERITIES`."""
        if self.is_ok:
            return "note" if self.is_note else "ok"
        return "warning" if self.is_passing else "problem"

    def row(self) -> dict[str, Any]:
        """Return the check as `Lab.doctor` lists it, and as JSON."""
        values = (
            self.name, self.is_ok, self.severity, self.found, self.command, self.error_class, self.table,
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


def findings(folder: Path | None, connection: Connection) -> Listing:
    """Return the checks of a lab that is open, as `Lab.doctor` does.

    Args:
        folder: The lab's; None: its server runs elsewhere, and only this machine and the buckets are checked.
        connection: To its server.
    """
    known = None if connection.closed.is_set() else connection
    found = list(checks(folder, known) if folder is not None else [*_machine(), *_cluster_checks(connection, None)])
    found.sort(key=lambda check: SEVERITIES.index(check.severity))  # what needs attention comes first
    bad = sum(not check.is_ok for check in found)
    title = f"doctor: {bad} of {len(found)} checks failed" if bad else f"doctor: all {len(found)} checks passed"
    return Listing(title, [check.row() for check in found], COLUMNS)


def checks(folder: Path, connection: Connection | None = None) -> Iterator[Check]:
    """Yield the checks of this machine and of a lab's folder.

    Args:
        folder: The lab's; it need not exist.
        connection: To its server, if there is one already.
    """
    yield from _machine()
    if connection is not None and (trouble := _folder_trouble(connection)) is not None:
        yield Check("folder", False, trouble, error_class=StorageError.__name__)
        yield from _cluster_checks(connection, folder)  # whatever is at its path now is not the lab's
        return
    yield _check("options", lambda: _options(folder))
    yield from _files_with_secrets(folder)
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


def _folder_trouble(connection: Connection) -> str | None:
    """Return why the folder of a lab that is open is not the one at its path; None: it is, or its server does not say."""
    try:
        once = connection.attempts("describe the cluster", 0)  # the check of the server waits for one that is away
        described = connection.coordinator(once).describe_cluster(pb.DescribeClusterRequest())
    except FlussError:
        return None
    return described.folder_trouble if described.HasField("folder_trouble") else None


def _check(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except FlussError as error:
        return Check(name, False, str(error), error_class=type(error).__name__)
    except OSError as error:
        return Check(name, False, str(error))


# -- the machine -----------------------------------------------------------------------------------------------------


def _machine() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package in PACKAGES:
        yield _package(package)
    yield _check("java", _java)
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = open_files in {resource.RLIM_INFINITY} or open_files >= OPEN_FILES_MIN
    yield Check("open files", enough, f"at most {open_files}, expected at least {OPEN_FILES_MIN} (ulimit -n)")


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "not installed", f"pip install {name}")


def _java() -> str:
    from fluss_lab.spark.session.java_home import find_java
    from fluss_lab.spark.session.jvm_surroundings import check_user

    found = find_java()
    check_user()
    return f"{found.home} (version {found.version})"


def _options(folder: Path) -> str:
    """Return the options that are set, with their sources, also those that the lab's server was started with; an unknown name is an error."""
    found = resolve({}, os.environ, [*working_folders(), folder])
    given = [f"{each.key} ({each.source})" for each in found.values() if not each.is_default]
    own = {key for key, value in cluster.read_options(folder).items() if key not in found or found[key].value != value}
    given += [f"{key} (its server's, as it was started)" for key in sorted(own)]
    if unknown := unknown_variables(os.environ):
        raise FlussError(
            f"{', '.join(unknown)}: set in the environment, but there is no such option; see `fluss-lab config`"
        )
    return ", ".join(given) or "all are the defaults"


def _files_with_secrets(folder: Path) -> Iterator[Check]:
    """Check that files of options that hold secrets are their owner's alone."""
    for path in dict.fromkeys(each.absolute() / FILE_NAME for each in (*working_folders(), folder)):
        try:
            values = {key: text_of(value) for key, value in file_values(path).items()}
        except FlussError:
            continue  # the check of the options reports it
        if secrets_among(values):
            yield _private(path)


# -- the folder ------------------------------------------------------------------------------------------------------


def _private(path: Path) -> Check:
    mode = stat.S_IMODE(path.stat().st_mode)
    is_private = path.stat().st_uid == os.getuid() and not mode & 0o077
    expected = "" if is_private else ", expected none for others"
    command = None if is_private else f"chmod go= {shlex.quote(str(path))}"
    return Check(path.name, is_private, f"{path} has mode {mode:o}{expected}", command)


def _disks(folder: Path) -> Iterator[Check]:
    remote = _remote(folder)
    if remote is not None:
        yield _check("remote storage", lambda: _check_owner(folder, remote))
    for name, place in (("disk", folder), ("remote disk", remote)):
        if (
            not isinstance(place, Path)
            or not place.exists()
            or (name != "disk" and place.stat().st_dev == folder.stat().st_dev)
        ):
            continue
        free = shutil.disk_usage(place).free
        found = f"{place}: {free / 2**30:.1f} GB free, expected at least {FREE_BYTES_MIN >> 30}"
        if os.access(place, os.W_OK):
            yield Check(name, free >= FREE_BYTES_MIN, found)
            continue
        found += "; it cannot be written: the lab is read, and takes no writes, changes of tables or tiering. Mount it for writing"
        is_own = place.stat().st_uid == os.getuid() and not place.stat().st_mode & stat.S_IWUSR
        command = f"chmod u+w {shlex.quote(str(place))}" if is_own else None
        yield Check(name, False, f"{found}, or give its owner the right to" if is_own else found, command)


def _check_owner(folder: Path, remote: Place) -> str:
    """Return that remote storage is there and the lab's own; whatever else it is, is an error."""
    values = metadata_values(folder, is_served=_holder(folder) is not None)
    if is_claimed(remote, values):
        return f"{remote} is there, and this lab's"
    answers = f"{remote} answers; " if isinstance(remote, ObjectPath) else ""
    return f"{answers}no lab has claimed it yet"


def _remote(folder: Path) -> Place | None:
    try:
        return remote_root(cluster.read_options(folder), folder)
    except FlussError:
        return None  # the check of the options reports it


def _clock(folder: Path) -> Check:
    newest = max(_times(folder), default=0.0)
    ahead_s = newest - time.time()
    if ahead_s <= CLOCK_AHEAD_S:
        return Check("clock", True, format_moment(int(time.time() * 1000)))
    return Check(
        "clock", False, f"the folder was written {ahead_s:.0f} s in the future: the clock was set back, or is wrong. "
        "Records get the time of the last one until the clock has caught up",
    )  # fmt: skip


def _times(folder: Path) -> Iterator[float]:
    """Yield when each file of a folder was written; of links themselves, such as editors leave that lead nowhere."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # removed meanwhile: servers and editors make files for a moment
            yield path.lstat().st_mtime


def _leftovers(folder: Path) -> Iterator[Check]:
    unread: list[OSError] = []
    found = (
        place
        for tablet in tablet_folders(folder)
        for place, _, names in os.walk(tablet / "data", onerror=unread.append)
        if SUSPECT_FILE in names
    )
    for place in sorted(found):
        yield Check(
            "disk fault", False, f"{place}: fsync failed here; the next start writes the log's end again. Check "
            f"the disk, then see {folder / LOG_FILE}",
        )  # fmt: skip
    for error in unread:
        if not isinstance(error, FileNotFoundError):  # a bucket that was dropped meanwhile
            yield Check("disk fault", False, f"{error.filename} cannot be looked at: {error.strerror}")
    spilled = [path.name for path in folder.iterdir() if path.name.startswith(".") and path.is_file()]
    if spilled:
        yield Check(
            "leftovers", True, f"incomplete files of a killed server, which may be deleted: {', '.join(spilled)}",
            is_note=True,
        )  # fmt: skip


# -- the server ------------------------------------------------------------------------------------------------------


def _server(folder: Path, connection: Connection | None) -> Iterator[Check]:
    answer = _check("server", lambda: _answering(folder, connection))
    yield answer
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
        if not answer.is_ok:
            return  # one that does not answer is waited for once
        try:
            with _connect(folder, connection) as connected:
                yield from _cluster_checks(connected, folder)
        except FlussError as error:  # it ended meanwhile
            yield Check("buckets", False, str(error), error_class=type(error).__name__)
        return
    if found is not None:
        yield _port("port", found.servers[0].host, found.servers[0].port, "the next server uses another one")
    metrics_port = METRICS_PORT.of(_options_of(folder))
    if metrics_port > 0:
        yield _port(
            "metrics port", "127.0.0.1", metrics_port, f"no server can start; choose another {METRICS_PORT.key}"
        )


def _connect(folder: Path, connection: Connection | None) -> AbstractContextManager[Connection]:
    return running_connection(folder) if connection is None else nullcontext(connection)


def _cluster_checks(connection: Connection, folder: Path | None) -> Iterator[Check]:
    """Check the servers, every bucket, and the tiering of every table.

    Args:
        connection: To the cluster.
        folder: The lab's, for commands; None: it is on another machine.
    """
    try:
        described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    except FlussError as error:
        yield Check("server", False, str(error), error_class=type(error).__name__)
        return
    tables: list[TableInfo] = []
    try:
        statuses = table_statuses(connection)
    except FlussError as error:
        yield Check("buckets", False, str(error), error_class=type(error).__name__)
    else:
        tables = [info for info, _ in statuses]
        yield from _bucket_checks(statuses, folder)
    for each in described.tablet_server_status:
        if each.state != "running":
            why = each.last_error or "no reason is known"
            yield Check("tablet server", False, f"tablet server {each.server_id} is {each.state}: {why}")
    states = described.tiering_states
    troubles = tiering_troubles(connection, states, folder)
    if states and not troubles:
        yield Check("tiering", True, f"{plural(len(states), 'table')}, none with a round that failed last")
    for trouble in troubles[:TROUBLES_MAX]:
        found = f"{trouble}. What to do: {trouble.todo}"
        yield Check("tiering", False, found, trouble.command, trouble.error_class, str(trouble.table))
    if len(troubles) > TROUBLES_MAX:
        yield Check("tiering", False, f"and {len(troubles) - TROUBLES_MAX} more")
    yield from _lake_checks(connection, tables, folder)


def _bucket_checks(statuses: Sequence[tuple[TableInfo, list[BucketStatus]]], folder: Path | None) -> Iterator[Check]:
    for given_up in given_up_lines(statuses):
        yield Check("buckets", True, f"given up because it could not be read: {given_up}", is_note=True)
    troubles = bucket_troubles(statuses)
    if not troubles:
        yield Check("buckets", True, "all are available")
    for each in troubles[:TROUBLES_MAX]:
        table, is_warning = str(each.table), each.error_class is None
        command = (
            None if each.error_class is None else remedy_of(each.error_class, each.text, each.table, folder).command
        )
        yield Check("buckets", False, each.text, command, each.error_class, table, is_passing=is_warning)
    if len(troubles) > TROUBLES_MAX:
        yield Check("buckets", False, f"and {len(troubles) - TROUBLES_MAX} more")


def _lake_checks(connection: Connection, tables: Sequence[TableInfo], folder: Path | None) -> Iterator[Check]:
    """Check that what the lake holds can be read, before a round or a read runs into it."""
    try:
        look = look_at_lake(connection, tables)
    except FlussError as error:  # a format that is not installed
        yield Check("lake", False, str(error), error_class=type(error).__name__)
        return
    for info, trouble in look.troubles[:TROUBLES_MAX]:
        name, text = type(trouble).__name__, f"table {info.path}: {trouble}"
        todo, command = remedy_of(name, str(trouble), info.path, folder)
        yield Check("lake", False, f"{text}. What to do: {todo}" if todo else text, command, name, str(info.path))
    if len(look.troubles) > TROUBLES_MAX:
        yield Check("lake", False, f"and {len(look.troubles) - TROUBLES_MAX} more")
    if look.left:
        yield Check("lake", True, f"{plural(look.left, 'table')} not looked at: the lake takes too long", is_note=True)
    elif look.seen and not look.troubles:
        yield Check("lake", True, f"{plural(look.seen, 'table')}, whose newest snapshots can be read")


def _options_of(folder: Path) -> dict[str, str]:
    try:
        found = resolve({}, os.environ, [*working_folders(), folder])
        return {**{key: setting.value for key, setting in found.items()}, **cluster.read_options(folder)}
    except FlussError:
        return {}


def _answering(folder: Path, connection: Connection | None) -> str:
    found = cluster.read_discovery(folder)
    if found is None:
        return "none runs"
    if cluster.running_server(folder) is None:
        return f"process {found.servers[0].pid} was killed; the next process that opens the lab restarts it, and it recovers"
    with _connect(folder, connection) as connected:
        connected.coordinator().describe_cluster(pb.DescribeClusterRequest())
    return f"process {found.servers[0].pid} answers"


def _scheduler(folder: Path) -> Iterator[Check]:
    """Check that jobs which are entered are run."""
    try:
        waiting = sum(job.paused_ms is None for job in JobStore(folder).jobs())
        holder = lease_holder(folder)
    except FlussError as error:
        yield Check("jobs", False, str(error), error_class=type(error).__name__)
        return
    if holder is not None:
        yield Check("jobs", True, f"{plural(waiting, 'job')}, scheduled by process {holder.pid}")
    elif waiting:
        yield Check(
            "jobs", False, f"{plural(waiting, 'job')}, and no scheduler runs: none is run until `fluss-lab up --jobs` or "
            "`fluss-lab jobs run` starts one", f"fluss-lab up {shlex.quote(str(folder))} --jobs", is_passing=True,
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

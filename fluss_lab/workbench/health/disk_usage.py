"""The room that a lab takes: on the disk by what it holds, in memory by server process.

Both are looked up from the lab's folder, on the machine of its servers. Every file is looked at once, without reading it:
some 100,000 a second where the system has its folders in memory. It ends after ``client.disk-usage.time-max``; what was not
counted by then is said.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from fluss_lab.errors import StorageError, UnsupportedError
from fluss_lab.jobs.job_store import JOBS_FOLDER
from fluss_lab.model.config.lake_options import FORMAT_KEY, LAKE_PREFIX
from fluss_lab.model.times import format_size
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE
from fluss_lab.server.folder.disk_reserve import RESERVE_FILE
from fluss_lab.server.folder.remote_storage import KV, LOG, remote_root
from fluss_lab.workbench.cards.listing import Listing

DISK_COLUMNS: Final = {
    "store": pa.string(), "server": pa.int32(), "bytes": pa.int64(), "files": pa.int64(), "complete": pa.bool_(),
    "place": pa.string(),
}  # fmt: skip
MEMORY_COLUMNS: Final = {"server": pa.string(), "process": pa.int64(), "bytes": pa.int64()}

_TABLET: Final = re.compile(r"tablet(?:-(\d+))?")
_WAREHOUSE: Final = f"{LAKE_PREFIX}iceberg.warehouse"
_LAKE_DATA: Final = "lake data"
_LAKE_METADATA: Final = "lake metadata"
_METADATA: Final = "metadata"
_REMOTE_LOG: Final = "remote log"
_SNAPSHOTS: Final = "key-value snapshots"
_RESERVE: Final = "reserve"
_OTHER: Final = "other"
#: The unit of `st_blocks`, whatever the file system's blocks are.
_STAT_BLOCK_BYTES: Final = 512
#: Entries of a folder between two looks at the clock: some 3 ms.
_LOOK_ENTRIES: Final = 1_000


@dataclass(slots=True)
class StoreUsage:
    """The disk that one store takes.

    Attributes:
        store: ``log`` (of a tablet server: segments and indexes on its disk), ``remote log``, ``key-value snapshots``,
            ``lake data``, ``lake metadata`` (with the catalog), ``metadata`` (the coordinator's), ``jobs`` (their outputs and
            history), ``server logs``, ``reserve`` (room kept for a full disk), ``other``.
        server: The tablet server whose it is; None: the lab's.
        place: The folder that it is in.
        size_bytes: On the disk, in whole blocks; None: it is not on this machine's disks.
        files: How many.
        is_complete: Whether all of it was counted; else there are at least so many bytes.
    """

    store: str
    server: int | None
    place: str
    size_bytes: int | None = 0
    files: int = 0
    is_complete: bool = True

    def row(self) -> dict[str, Any]:
        """Return what is shown of it."""
        values = self.store, self.server, self.size_bytes, self.files, self.is_complete, self.place
        return dict(zip(DISK_COLUMNS, values, strict=True))


def disk_listing(folder: Path | None, options: Mapping[str, str], limit_ms: int) -> Listing:
    """Return the disk that a lab takes, by store; its title has the room that is left.

    Args:
        folder: The lab's; None: it is on another machine.
        options: The cluster's.
        limit_ms: How long it may take.

    Raises:
        UnsupportedError: The folder is on another machine.
        StorageError: The folder cannot be read.
    """
    folder = _here(folder, "the disk that it takes")
    try:
        found, room = disk_usage(folder, options, limit_ms), shutil.disk_usage(folder)
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror or error}; mount or mend it") from error
    known = sum(each.size_bytes or 0 for each in found)
    least = "" if all(each.is_complete for each in found) else "at least "
    title = f"disk: {least}{format_size(known)}; {format_size(room.free)} free of {format_size(room.total)}"
    return Listing(title, [each.row() for each in found], DISK_COLUMNS)


def disk_usage(folder: Path, options: Mapping[str, str], limit_ms: int) -> list[StoreUsage]:
    """Return the disk that a lab takes, by store, the largest first. Each file counts once, links are not followed."""
    found: dict[tuple[str, int | None], StoreUsage] = {}
    roots = [*_roots(folder, options)]
    seen = {os.path.realpath(place) for place, _, _ in roots}
    deadline_s = time.monotonic() + limit_ms / 1000
    for left, (place, store, server) in zip(range(len(roots), 0, -1), roots, strict=True):
        # Each has its share of the time that is left: a large one does not hide the others.
        now_s = time.monotonic()
        walk = _Walk(found, store, server, seen - {os.path.realpath(place)}, now_s + (deadline_s - now_s) / left)
        walk.count(place)
    if (elsewhere := _lake_elsewhere(options)) is not None:
        found[_LAKE_DATA, None] = StoreUsage(_LAKE_DATA, None, elsewhere, None, 0, is_complete=False)
    remote = remote_root(options, folder)
    if not isinstance(remote, Path):
        for store, kind in ((_REMOTE_LOG, LOG), (_SNAPSHOTS, KV)):
            found[store, None] = StoreUsage(store, None, str(remote / kind), None, 0, is_complete=False)
    return sorted(found.values(), key=lambda each: (-(each.size_bytes or 0), each.store, each.server or 0))


def memory_listing(folder: Path | None, states: Sequence[pb.PbTabletServerStatus]) -> Listing:
    """Return the memory of each server process: what of it lies in the machine's memory now. None: it has just ended.

    Raises:
        UnsupportedError: The servers are on another machine.
    """
    folder = _here(folder, "the memory of its servers")
    running = cluster.running_server(folder)
    inside = [each.server_id for each in states if each.host and not each.process_id]
    processes = {}
    if running is not None:
        processes[", ".join(["coordinator", *(f"tablet {each}" for each in inside)])] = running.servers[0].pid
    processes |= {f"tablet {each.server_id}": each.process_id for each in states if each.process_id}
    rows: list[dict[str, Any]] = [
        {"server": name, "process": pid, "bytes": _resident_bytes(pid)} for name, pid in processes.items()
    ]
    total = sum(row["bytes"] or 0 for row in rows)
    return Listing(f"memory of {len(rows)} server processes: {format_size(total)}", rows, MEMORY_COLUMNS)


def _here(folder: Path | None, what: str) -> Path:
    if folder is None:
        raise UnsupportedError(f"{what} is known on the machine of the lab's folder only: see `fluss-lab status` there")
    return folder


def _resident_bytes(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _roots(folder: Path, options: Mapping[str, str]) -> list[tuple[Path, str, int | None]]:
    """Return the folders in which stores lie, and the lab's own last: what is in none of the others is its."""
    tablets = [
        (each, "log", int(match[1] or 0))
        for each in sorted(folder.iterdir())
        if (match := _TABLET.fullmatch(each.name))
    ]
    remote = remote_root(options, folder)
    lake = _local_folder(options.get(_WAREHOUSE, ""))
    places = [
        *tablets,
        *([(remote / LOG, _REMOTE_LOG, None), (remote / KV, _SNAPSHOTS, None)] if isinstance(remote, Path) else []),
        *([(lake, _LAKE_DATA, None)] if lake is not None else []),
        (folder / "lake", _LAKE_METADATA, None),
        (folder / JOBS_FOLDER, "jobs", None),
        (folder, _OTHER, None),
    ]
    first = {os.path.realpath(place): (place, store, server) for place, store, server in reversed(places)}
    return [each for each in places if each[0].is_dir() and each in first.values()]


def _local_folder(place: str) -> Path | None:
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.path and parts.scheme in {"", "file"} else None


def _lake_elsewhere(options: Mapping[str, str]) -> str | None:
    """Return where the lake is if it is not in a folder that is known here; None: it is, or there is no lake."""
    place = options.get(_WAREHOUSE, "")
    if not any(key.startswith(LAKE_PREFIX) for key in options) or _local_folder(place) is not None:
        return None
    return place or f"as the catalog of format {options.get(FORMAT_KEY, 'iceberg')!r} decides"


class _Walk:
    """Counts the files below a folder.

    Args:
        found: What was counted so far, by store and server.
        store: Whose the files are, unless their names say otherwise.
        server: Likewise.
        others: Folders below that are counted by themselves.
        deadline_s: When it ends, by the monotonic clock.
    """

    def __init__(
        self,
        found: dict[tuple[str, int | None], StoreUsage],
        store: str,
        server: int | None,
        others: set[str],
        deadline_s: float,
    ) -> None:
        self._found = found
        self._store = store
        self._server = server
        self._others = others
        self._deadline_s = deadline_s
        self._top = ""

    def count(self, root: Path) -> None:
        """Count what is below a folder, as far as there is time."""
        self._top = os.path.realpath(root)
        own, waiting = self._usage(self._store), [self._top]
        while waiting:
            place = waiting.pop()
            try:
                with os.scandir(place) as entries:
                    is_whole = self._count_entries(entries, place == self._top, waiting)
            except FileNotFoundError:
                continue  # it went meanwhile
            except OSError:
                is_whole = None
            if not is_whole:
                for each in [own, *([self._usage(_LAKE_METADATA)] if own.store == _LAKE_DATA else [])]:
                    each.is_complete = False
            if is_whole is False:
                return

    def _count_entries(self, entries: Iterator[os.DirEntry[str]], is_top: bool, waiting: list[str]) -> bool:
        """Count a folder's files, and add its folders to those that wait; return False when the time is up."""
        for number, entry in enumerate(entries):
            if not number % _LOOK_ENTRIES and time.monotonic() > self._deadline_s:
                return False
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in self._others:
                    waiting.append(entry.path)
                continue
            try:
                blocks = entry.stat(follow_symlinks=False).st_blocks
            except FileNotFoundError:
                continue  # it went meanwhile
            usage = self._usage(self._store_of(entry.name, is_top))
            usage.size_bytes = (usage.size_bytes or 0) + blocks * _STAT_BLOCK_BYTES
            usage.files += 1
        return True

    def _store_of(self, name: str, is_top: bool) -> str:
        if self._store == _LAKE_DATA:
            return _LAKE_DATA if name.endswith(".parquet") else _LAKE_METADATA
        if self._store != _OTHER or not is_top:
            return self._store
        if name.startswith(DATABASE_FILE):
            return _METADATA
        return _RESERVE if name == RESERVE_FILE else "server logs" if name.endswith((".log", ".out")) else _OTHER

    def _usage(self, store: str) -> StoreUsage:
        return self._found.setdefault((store, self._server), StoreUsage(store, self._server, self._top))

"""``server.json``: the processes of a lab's servers, and where they listen.

The file names its folder by device and inode: a copy of the folder must not use it, or whoever opens the copy would change,
or stop, the original.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from fluss_lab.errors import LabError
from fluss_lab.files import write_json_atomic
from fluss_lab.model.json_codec import decode
from fluss_lab.rpc.access.tls import Trust
from fluss_lab.server.folder.read_only_lab import home_of

DISCOVERY_FILE: Final = "server.json"
TOKEN_FILE: Final = "token"  # noqa: S105  # the name of a file
VERSION: Final = 1
#: Exists where the system has the files that `_stat` reads.
_OWN_STAT: Final = Path("/proc/self/stat")
#: The server id of a process without a tablet server.
NO_TABLET: Final = -1


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server process.

    Attributes:
        pid: Its process id.
        token_file: Absolute path of the file with the secret that calls must bring.
        roles: ``coordinator``, ``tablet``, or both.
        started: When the process started, in the system's ticks: distinguishes it from a later one with the same id; -1
            where that is not known.
        trust: The certificate authority for callers on this machine; None: it serves without TLS.
    """

    pid: int
    host: str
    port: int
    token_file: str
    roles: tuple[str, ...]
    server_id: int
    started: int = -1
    trust: Trust | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """The content of the file: the coordinator's process first."""

    ephemeral: bool
    servers: tuple[ServerEntry, ...]


class _File(msgspec.Struct):
    ephemeral: bool
    servers: Annotated[tuple[ServerEntry, ...], msgspec.Meta(min_length=1)]
    #: Device and inode; older releases wrote none.
    folder: list[int] | None = None


def write(folder: Path, *servers: ServerEntry, ephemeral: bool) -> None:
    """Write the file, readable by its owner only."""
    folder = home_of(folder)
    value = {
        "version": VERSION,
        "ephemeral": ephemeral,
        "folder": _folder_id(folder),
        "servers": [asdict(server) for server in servers],
    }
    write_json_atomic(folder / DISCOVERY_FILE, value, mode=0o600)


def remove(folder: Path, own: ServerEntry | None = None) -> None:
    """Remove the file: the servers end on request.

    Args:
        folder: The lab's folder.
        own: The coordinator's process that ends; the file of another one, whose folder took the place of this one's, stays.
            None: whoever's it is.
    """
    home = home_of(folder)
    if own is not None:
        with suppress(LabError):
            if (found := _read(home)) is None or (found.servers[0].pid, found.servers[0].port) != (own.pid, own.port):
                return
    (home / DISCOVERY_FILE).unlink(missing_ok=True)


def read(folder: Path) -> Discovery | None:
    """Return the file's content; None when it does not exist, or was copied from another folder.

    For a read-only lab it is the file of a live server that can write the lab, or else that of its shadow.

    Raises:
        LabError: It cannot be parsed.
        UnsupportedError: A newer version wrote it.
    """
    return _read(home_in_use(folder))


def home_in_use(folder: Path) -> Path:
    """Return where the servers of a lab write now: of a read-only lab its shadow, unless a live server can write the lab itself."""
    if (home := home_of(folder)) == folder:
        return folder
    with suppress(LabError):
        if (found := _read(folder)) is not None and is_alive(found.servers[0]):
            return folder
    return home


def _read(folder: Path) -> Discovery | None:
    path = folder / DISCOVERY_FILE
    remedy = "expected a discovery file; remove it"
    try:
        found = decode(_File, path.read_bytes(), path, version=VERSION, error=LabError, remedy=remedy)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LabError(
            f"{path}: it cannot be read: {error.strerror or error}; make it a file that this user may read"
        ) from error
    is_copy = found.folder is not None and found.folder != _folder_id(folder)
    return None if is_copy else Discovery(found.ephemeral, found.servers)


def _folder_id(folder: Path) -> list[int]:
    found = folder.stat()
    return [found.st_dev, found.st_ino]


def is_alive(server: ServerEntry) -> bool:
    """Return whether a server's process is alive: not a later process with its id, and not a zombie."""
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's process: the id was reused
    found = _stat(server.pid)
    if found is None:
        # Without `/proc` nothing more is known; with it, the process was reaped meanwhile.
        return not _OWN_STAT.exists()
    state, started = found
    return state not in {"Z", "X"} and server.started in {-1, started}


def process_start_ticks(pid: int) -> int:
    """Return when a process started, in the system's ticks; -1 where that is not known."""
    found = _stat(pid)
    return -1 if found is None else found[1]


def _stat(pid: int) -> tuple[str, int] | None:
    """Return state and start of a process on Linux; None elsewhere, and of one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])

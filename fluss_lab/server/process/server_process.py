"""The start of detached server processes, the report of their start, and the wait for their end."""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from fluss_lab.errors import (
    FlussError,
    InvalidRequestError,
    LabError,
    LabLockedError,
    RequestTimeoutError,
    ServerUnavailableError,
    StorageError,
    error_code,
    error_from_code,
)
from fluss_lab.files import try_lock, write_json_atomic
from fluss_lab.model.format_versions import check_format
from fluss_lab.server.folder.lab_folder import make_lab_folder
from fluss_lab.server.folder.read_only_lab import make_home
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import Discovery

log = logging.getLogger(__name__)

START_LOCK_FILE: Final = "start.lock"
OPTIONS_FILE: Final = "server-options.json"
OPTIONS_FORMAT: Final = 1
LOG_FILE: Final = "server.log"
#: What the process prints before it logs, and the output of C libraries.
OUTPUT_FILE: Final = "server.out"
#: Importing takes 1 s on two busy cores; recovery of a log that was never flushed takes seconds a gigabyte.
START_TIMEOUT_S: Final = 120.0
#: A graceful stop waits 5 s for calls under way, and for one flush of every bucket.
STOP_TIMEOUT_S: Final = 60.0
#: How often a lock or a process is polled.
LOOK_INTERVAL_S: Final = 0.02
LOG_TAIL_BYTES: Final = 2_000
#: Whoever started a server may be killed before it is ready: so long is one that has the folder waited for. Recovery may
#: take longer; then the error names the process.
UNREPORTED_START_S: Final = 15.0
#: A report is one line of JSON.
_REPORT_BYTES_MAX: Final = 64 * 1024


def start_server(
    folder: Path,
    command: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    ephemeral: bool,
    env: Mapping[str, str] | None = None,
) -> Discovery:
    """Start a server process on a folder, unless one runs; return when it is ready.

    Concurrent callers start one server. The process is detached: it has its own session and no standard input, and outlives
    the caller.

    Args:
        folder: The lab's folder; created when absent, for its owner only.
        command: Runs ``fluss-lab server``; the folder and options are added.
        options: Its options; None: those of its last run.
        ephemeral: Whether it ends with the last attached process.
        env: Its environment; None: the caller's.

    Raises:
        LabError: The folder is a file, another user's, or others may write in it.
        FlussError: The error that the process reported (LabLockedError, LabMovedError, ...).
        ServerUnavailableError: It died without a report; the message has the end of its log.
        RequestTimeoutError: It is not ready in time; it keeps running.
        StorageError: Files of its start in the folder cannot be written.
    """
    make_lab_folder(folder)
    home = make_home(folder)
    deadline = time.monotonic() + START_TIMEOUT_S
    with _start_lock(home, deadline):
        if (running := running_server(folder)) is not None:
            return running
        given = read_options(folder) if options is None else options
        arguments = [*command, "--folder", str(folder), *(["--ephemeral"] if ephemeral else [])]
        try:
            _spawn(home, arguments, given, env, deadline)
        except LabLockedError:
            # Nobody else starts one now: one that has the folder was begun by a process that was killed meanwhile.
            if (begun := _await_running(folder)) is None:
                raise
            return begun
        if (found := running_server(folder)) is None:
            raise ServerUnavailableError(f"{folder}: the server ended right after its start{_tail_of(home)}")
        return found


def running_server(folder: Path) -> Discovery | None:
    """Return the content of the folder's discovery file if the coordinator's process is alive; None otherwise.

    Tablet servers may come and go: the coordinator's process restarts them.
    """
    found = discovery.read(folder)
    return found if found is not None and discovery.is_alive(found.servers[0]) else None


def _await_running(folder: Path) -> Discovery | None:
    """Return what a server says that is starting; None when there is none in time."""
    deadline = time.monotonic() + UNREPORTED_START_S
    while (found := running_server(folder)) is None and time.monotonic() < deadline:
        time.sleep(LOOK_INTERVAL_S)
    return found


def wait_until_gone(found: Discovery, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Wait until the processes of a discovery file are gone.

    Raises:
        RequestTimeoutError: One is still alive at the time-out.
    """
    deadline = time.monotonic() + timeout_s
    while alive := [server.pid for server in found.servers if discovery.is_alive(server)]:
        if time.monotonic() > deadline:
            raise RequestTimeoutError(
                f"server process {alive[0]} is still there after {timeout_s:.0f} s; see {LOG_FILE}"
            )
        time.sleep(LOOK_INTERVAL_S)


def save_options(folder: Path, options: Mapping[str, str]) -> None:
    """Store the options of a running server, so that a restart uses the same."""
    write_json_atomic(folder / OPTIONS_FILE, {"version": OPTIONS_FORMAT, "options": dict(options)})


def check_options(folder: Path) -> None:
    """Check that stored options may be replaced: any may, unless a newer version wrote them.

    Raises:
        UnsupportedError: A newer version wrote them.
    """
    with suppress(LabError):
        read_options(folder)


def read_options(folder: Path) -> dict[str, str]:
    """Return the options of the folder's last server; empty when there was none.

    Of a read-only lab they are those of the server that reads it, or read it last; before the first one, the lab's own.

    Raises:
        LabError: The file cannot be parsed.
        UnsupportedError: A newer version wrote it.
    """
    found = _stored_options(discovery.home_in_use(folder) / OPTIONS_FILE)
    return found if found is not None else _stored_options(folder / OPTIONS_FILE) or {}


def _stored_options(path: Path) -> dict[str, str] | None:
    try:
        value: Any = json.loads(path.read_text())
        check_format(path, value["version"], OPTIONS_FORMAT)
        return {str(key): str(each) for key, each in value["options"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LabError(f"{path}: expected a server's options, found something else ({error!r}); remove it") from error


def report(fd: int | None, error: FlussError | None, **more: int) -> None:
    """Report the outcome of the start, and more, to the process that started this one; it may have ended."""
    if fd is None:
        return
    code, message = (0, "") if error is None else (error_code(error), str(error))
    value = {"code": code, "message": message, **more}
    try:
        os.write(fd, (json.dumps(value) + "\n").encode())
        os.close(fd)
    except OSError as failure:
        log.info("event=start_report_unread error=%s", failure)


@contextmanager
def _start_lock(folder: Path, deadline: float) -> Iterator[None]:
    """Hold the lock for starting a server on a folder."""
    fd = _private(str(folder / START_LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        while not try_lock(fd):
            if time.monotonic() > deadline:
                raise RequestTimeoutError(f"{folder}: another process has been starting a server all the time")
            time.sleep(LOOK_INTERVAL_S)
        yield
    finally:
        os.close(fd)


def _spawn(
    folder: Path, arguments: Sequence[str], options: Mapping[str, str], env: Mapping[str, str] | None, deadline: float
) -> None:
    """Start the process, send it its options and wait for its report.

    The options go through a pipe: they may hold secrets, and every user of a machine can read its command lines.
    """
    with ExitStack() as ends:
        options_reader, options_writer = _pipe(ends)
        reader, writer = _pipe(ends)
        output = ends.enter_context(open(folder / OUTPUT_FILE, "wb", opener=_private))
        process = subprocess.Popen(
            [*arguments, "--ready-fd", str(writer.fileno()), "--options-fd", str(options_reader.fileno())],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            pass_fds=(writer.fileno(), options_reader.fileno()), start_new_session=True,
            env=None if env is None else dict(env),
        )  # fmt: skip
        # A process must be reaped by its parent, or it stays as a zombie that looks alive.
        threading.Thread(target=process.wait, name="fluss-server-reaper", daemon=True).start()
        writer.close()
        options_reader.close()
        # Broken when the process has ended; then its report, or the lack of it, gives the reason.
        with suppress(BrokenPipeError), options_writer:
            options_writer.write(json.dumps(dict(options)).encode())
        reported = read_report(reader.fileno(), deadline)
    if reported is None:
        raise RequestTimeoutError(f"{folder}: the server is not ready yet; see {folder / LOG_FILE}")
    try:
        value = json.loads(reported)
    except ValueError:
        raise ServerUnavailableError(f"{folder}: the server died while it started{_tail_of(folder)}") from None
    if value["code"]:
        raise error_from_code(int(value["code"]), str(value["message"]))


def _pipe(ends: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Return the ends of a new pipe, unbuffered, which are closed with the stack."""
    reader, writer = os.pipe()
    return (ends.enter_context(open(reader, "rb", buffering=0)), ends.enter_context(open(writer, "wb", buffering=0)))


def receive_options(fd: int) -> dict[str, str]:
    """Read the options that the starting process sends through a pipe, and close it.

    Raises:
        InvalidRequestError: They cannot be parsed.
    """
    with open(fd, "rb") as pipe:
        data = pipe.read()
    try:
        return {str(key): str(value) for key, value in json.loads(data).items()}
    except (ValueError, AttributeError) as error:
        raise InvalidRequestError(
            f"expected a server's options on descriptor {fd}, found {len(data)} bytes of something else; start servers by "
            "`fluss-lab up` or `fluss-lab server`"
        ) from error


def read_report(fd: int, deadline: float | None = None) -> bytes | None:
    """Return the `report` of a process; empty when it ended without one; None when the time is up."""
    found = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while selector.select(None if deadline is None else max(0.0, deadline - time.monotonic())):
            chunk = os.read(fd, _REPORT_BYTES_MAX)
            found += chunk
            if not chunk or found.endswith(b"\n"):
                return found
    return None


def _private(path: str, flags: int) -> int:
    """Open a file of this user's alone.

    Raises:
        StorageError: It cannot be opened, as one that another user's server has left.
    """
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise StorageError(
            f"{path}: no server can be started: {error.strerror}; mend the file's owner and mode, or its disk"
        ) from error


def _tail_of(folder: Path) -> str:
    """Return the end of the server's last output."""
    for name in (OUTPUT_FILE, LOG_FILE):
        try:
            data = (folder / name).read_bytes()[-LOG_TAIL_BYTES:]
        except OSError:
            continue
        if text := data.decode("utf-8", "replace").strip():
            return f"; the end of {folder / name}:\n{text}"
    return f"; see {folder / LOG_FILE}"


def server_command() -> list[str]:
    """Return the command that runs a server in a process of its own."""
    return [sys.executable, "-m", "fluss_lab.cli", "server"]


def tablet_command() -> list[str]:
    """Return the command that runs a tablet server in a process of its own."""
    return [sys.executable, "-m", "fluss_lab.cli", "tablet-server"]

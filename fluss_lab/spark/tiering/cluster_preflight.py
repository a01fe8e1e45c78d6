"""The preflight of executors: checked before the first round, and what is missing is named.

A lake in a store is tried, from here and from executors, wherever they are: its catalog answers, and with the properties that
tasks get a small object is written, read and deleted.

Executors on other machines need three things more, which one machine has of itself: a server address that they reach (with TLS: token and records
cross a network), the lake's files, and ``remote.data.dir``, from which readers take what has left the servers' disks.
Where all of Spark runs on this machine (`runs_here` decides by the master's address) none of them is to be checked, and a
server on loopback without TLS is fine.

What stands in addresses is judged here. Whether a folder is shared does not follow from its path, so tasks look: the driver puts a
file into each folder, and every task says whether it sees it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import FlussError, UnavailableError, UnsupportedError
from fluss_lab.lake import LakeStorage, StorePlace, SupportsStoreTrial, lake_storage
from fluss_lab.model import TablePath
from fluss_lab.model.config.options import REMOTE_DATA_DIR, SERVER_HOST
from fluss_lab.rpc.access.tls import LOOPBACK
from fluss_lab.spark.session.worker_placement import runs_here
from fluss_lab.spark.tiering.spark_executor import one_line
from fluss_lab.storage.store_location import location_of

if TYPE_CHECKING:
    from pyspark import SparkContext

    from fluss_lab.client import ServerAddress

log = logging.getLogger(__name__)

#: Tasks that look: twice as many as run at once, so that each executor has one very likely; no more than so many.
_LOOKERS_MAX: Final = 64
_CONNECT_TIMEOUT_S: Final = 5.0


def check_reach(
    context: SparkContext, master: str, server: ServerAddress, folders: Callable[[], Mapping[str, Path]]
) -> None:
    """Check that a Spark's executors can do tiering rounds and read across. On this machine: nothing is asked.

    Args:
        context: A running Spark.
        server: How this process calls the cluster; tasks call it likewise.
        folders: Asked for what must be shared, by its name in messages; not on this machine.

    Raises:
        UnsupportedError: Something is missing; the text names all of it.
        UnavailableError: The look itself failed, for instance because executors have no Python.

    Cost: nothing on this machine; elsewhere a Spark job, which starts the executors' Python workers.
    """
    if runs_here(master):
        return
    missing = [*address_problems(server), *_look(context, server, folders())]
    if missing:
        raise UnsupportedError(
            f"Spark master {master} may run tasks on other machines; what they need is missing: " + "; ".join(missing)
        )
    if (context.getConf().get("spark.authenticate") or "false") != "true":
        log.warning(
            "tasks carry the cluster's token: without spark.authenticate and spark.network.crypto.enabled, Spark %s sends "
            "it unencrypted",
            master,
        )


def check_store(context: SparkContext, master: str, storage: LakeStorage, tables: Iterable[TablePath]) -> None:
    """Check that a lake's catalog answers, and that its store takes objects from here and from a Spark's executors.

    Args:
        context: A running Spark.
        storage: The lake. One in a file system, or of a format that does not say, is not asked.
        tables: Some that are in the lake, taken as far as needed.

    Raises:
        UnavailableError, AuthenticationError, StorageError: It does not serve from here.
        UnsupportedError: It does not serve from executors.

    Cost: of a store, a call of the catalog, a few requests from here and from each task that looks, and a Spark job.
    """
    place = storage.store_place(tables) if isinstance(storage, SupportsStoreTrial) else None
    if place is not None:
        check_trial(context, master, partial(try_place, storage.format_name, place))


def check_trial(context: SparkContext, master: str, trial: Callable[[], FlussError | None]) -> None:
    """Check that what is tried succeeds here and in workers; see `check_store`.

    Args:
        trial: Returns why it failed, in words that are the same for all workers of a machine.
    """
    if (failed := trial()) is not None:
        raise failed
    found = _ask_workers(context, 1 if runs_here(master) else _lookers(context), partial(store_problems, trial))
    if found:
        raise UnsupportedError(
            f"Spark master {master}: executors do not reach the lake as this machine does: {'; '.join(found)}"
        )


def try_place(format_name: str, place: StorePlace) -> FlussError | None:
    """Try a store with what tasks get; return why it does not serve."""
    storage = lake_storage(format_name, place.properties)
    assert isinstance(storage, SupportsStoreTrial)
    try:
        storage.try_store(place.location)
    except FlussError as error:
        return error
    return None


def store_problems(trial: Callable[[], FlussError | None], _numbers: Iterable[int]) -> list[str]:
    """Return why a store does not serve this worker, in words that are the same for all workers of a machine."""
    failed = trial()
    return [] if failed is None else [str(failed)]


def address_problems(server: ServerAddress) -> Iterator[str]:
    """Yield what is wrong with a server's address for callers on other machines."""
    if server.host in LOOPBACK:
        yield (
            f"a server address that they reach: {server.host} is each machine's own (start the server with "
            f"{SERVER_HOST.key} and TLS, and connect by that address)"
        )
    if not server.tls:
        yield "TLS of the server (server.tls.certificate, server.tls.key): token and records would cross the network in clear"


def shared_folders(lake_folder: Path | None, options: dict[str, str]) -> dict[str, Path]:
    """Return what must be shared, by its name in messages.

    Args:
        lake_folder: Of the lake, if it lies in a file system.
        options: The cluster's, as it describes itself.
    """
    folders = {} if lake_folder is None else {"the lake's warehouse": lake_folder}
    # An object store needs no sharing: what tasks read there they ask the servers for.
    if (remote := REMOTE_DATA_DIR.of(options)) and isinstance(place := location_of(remote, REMOTE_DATA_DIR.key), Path):
        folders[REMOTE_DATA_DIR.key] = place
    return folders


def _look(context: SparkContext, server: ServerAddress, folders: Mapping[str, Path]) -> list[str]:
    place = None if server.host in LOOPBACK else (server.host, server.port)
    with _mark(folders) as marks:
        return _ask_workers(context, _lookers(context), partial(look, marks, place))


def _lookers(context: SparkContext) -> int:
    return min(_LOOKERS_MAX, 2 * max(1, int(context.defaultParallelism)))


def _ask_workers(context: SparkContext, count: int, ask: Callable[[Iterable[int]], list[str]]) -> list[str]:
    """Return what workers answer, each answer once."""
    try:
        found = context.parallelize(range(count), count).mapPartitions(ask).collect()
    except Exception as error:
        raise UnavailableError(f"Spark's executors cannot run fluss_lab: {one_line(error)}") from None
    return sorted(set(found))


def look(marks: Sequence[tuple[str, str]], place: tuple[str, int] | None, _numbers: Iterable[int]) -> list[str]:
    """Return what this worker misses, in words that are the same for all workers of a machine.

    Args:
        marks: Name and path of each file that it should see, in a folder that it should be able to write into.
        place: Host and port that it should reach; None: not asked.
    """
    me, missing = socket.gethostname(), []
    for name, path in marks:
        if not Path(path).exists():
            missing.append(f"{name}: executors on {me} do not see {Path(path).parent} as this machine has it")
        elif not os.access(Path(path).parent, os.W_OK):
            missing.append(f"{name}: executors on {me} may not write into {Path(path).parent}")
    if place is not None:
        try:
            socket.create_connection(place, _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            missing.append(f"the server: executors on {me} do not reach {place[0]}:{place[1]}: {error}")
    return missing


@contextlib.contextmanager
def _mark(folders: Mapping[str, Path]) -> Iterator[list[tuple[str, str]]]:
    """Put a file into each folder while the block runs; one that cannot be written here is found missing by everybody."""
    marks = {name: folder / f".fluss-lab-{uuid.uuid4().hex}" for name, folder in folders.items()}
    for mark in marks.values():
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    try:
        yield [(name, str(mark)) for name, mark in marks.items()]
    finally:
        for mark in marks.values():
            with contextlib.suppress(OSError):
                mark.unlink()

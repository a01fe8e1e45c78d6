"""The place of a lab: the connection to its cluster, and how other processes find the same one."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.display import Waiting
from fluss_lab.errors import InvalidRequestError
from fluss_lab.interrupts import Held
from fluss_lab.model.config.options import CLIENT_TLS_CA, LOG_DURABILITY, TABLET_SERVERS
from fluss_lab.model.named_paths import absolute_path, name_fault
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import LOOPBACK
from fluss_lab.rpc.access.token import read_token
from fluss_lab.server import cluster
from fluss_lab.server.process.server_process import server_command
from fluss_lab.server.server_options import other_options
from fluss_lab.tracebacks import levels_to_caller


@dataclass(frozen=True, slots=True)
class LabPlace:
    """Where a lab is.

    Attributes:
        connection: To its cluster.
        folder: Its folder; None: the server runs elsewhere.
        attachment: What keeps the folder's server alive; None: nothing here does.
        options: How processes of Spark find the cluster: options of the data source ``fluss``.
    """

    connection: Connection
    folder: Path | None
    attachment: cluster.Attachment | None
    options: Mapping[str, str]


def folder_place(
    folder: str | Path, tablet_servers: int | None, durability: str | None, config: Mapping[str, object] | None
) -> LabPlace:
    """Return the place of a folder, whose server runs; see `fluss_lab.Lab.open`."""
    named: dict[str, object] = {TABLET_SERVERS.key: tablet_servers, LOG_DURABILITY.key: durability}
    named = {key: value for key, value in named.items() if value is not None}
    given: dict[str, object] = {**(config or {}), **named}
    path = _absolute("folder: expected the path of one ('.' is the present one)", folder)
    settings = cluster.split_options(given)
    with Held():
        with Waiting(f"starting the servers of {path.name}"):
            attachment = cluster.ensure_server(path, server_command(), settings.server)

        def address() -> ServerAddress:
            place = attachment.address()
            return ServerAddress.of(place.host, place.port, place.token, place.trust)

        connection = Connection(address, settings.client, folder=path)
        # Whatever still reads or writes holds the connection.
        attachment.ends_with(connection)
        _warn_of_others({key: settings.server[key] for key in named}, path)
        return LabPlace(connection, path, attachment, {"lab": str(path), **settings.client})


def _warn_of_others(named: Mapping[str, str], folder: Path) -> None:
    """Warn of arguments that are not so, because a server ran on the folder already: the caller may rely on them."""
    if named and (different := other_options(named, cluster.read_options(folder), folder)):
        warnings.warn(
            f"{folder}: a server runs already and keeps its options, which are others: {', '.join(different)}; close its "
            f"labs, or `fluss-lab down {shlex.quote(str(folder))}`, then open it again",
            stacklevel=levels_to_caller(),
        )


def _absolute(expected: str, given: str | Path) -> Path:
    """Return the place of a file or folder that a person named; ``~`` is the home.

    Raises:
        InvalidRequestError: It names none: no text, a user who does not exist, or a relative path where the working directory
            was removed.
    """
    if fault := name_fault(str(given)):
        raise InvalidRequestError(f"{expected}, found {str(given)!r}: {fault}")
    return absolute_path(given, f"{expected}, found {str(given)!r}")


def running_connection(folder: Path) -> Connection:
    """Return a connection to the server that runs on a folder, to be closed; it starts none and is no attachment.

    Raises:
        FlussError: None runs.
    """
    place = cluster.locate(folder)
    return Connection(lambda: ServerAddress.of(place.host, place.port, place.token, place.trust), folder=folder)


def server_place(
    address: str,
    token_file: str | Path,
    tls: bool | None,
    tls_ca: str | Path | None,
    config: Mapping[str, object] | None,
) -> LabPlace:
    """Return the place of a server elsewhere, which has answered; see `fluss_lab.Lab.connect`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InvalidRequestError(f"address {address!r}: expected 'host:port'")
    token = _absolute("token_file: expected the path of one", token_file)
    options = cluster.split_options(config or {}).client
    if tls_ca is not None:
        options[CLIENT_TLS_CA.key] = str(tls_ca)
    if ca := options.get(CLIENT_TLS_CA.key):
        # It is read again with each new address, and by Spark, whatever the working directory is by then.
        options[CLIENT_TLS_CA.key] = str(_absolute("tls_ca: expected the path of a file with certificates", ca))
    name = host.removeprefix("[").removesuffix("]")
    speaks_tls = tls if tls is not None else CLIENT_TLS_CA.key in options or name not in LOOPBACK
    server = ServerAddress(name, int(port), read_token(token), speaks_tls)
    connection = Connection(lambda: server, options)
    connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    place = {
        "server": address,
        "token.file": str(token),
        "tls": str(speaks_tls).lower(),
        **options,
    }
    return LabPlace(connection, None, None, place)

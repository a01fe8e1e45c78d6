"""The listener of a server: address, certificate, ports, threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from fluss_lab.errors import InvalidPropertyError, LabError
from fluss_lab.model.config.option_kinds import PORT_MAX
from fluss_lab.model.config.options import (
    REQUEST_SIZE_MAX,
    SERVER_CONNECTIONS_MAX,
    SERVER_FETCH_THREADS,
    SERVER_HOST,
    SERVER_PORT,
    SERVER_THREADS,
    TLS_CERTIFICATE,
    TLS_KEY,
)
from fluss_lab.rpc.access.tls import LOOPBACK, Identity, load_identity
from fluss_lab.rpc.rpc_methods import TABLET_SERVER
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.rpc.serving.unread_answers import ConnectionLimits
from fluss_lab.server.tablet.tablet_service import TabletService

log = logging.getLogger(__name__)

#: The coordinator calls its tablet server from threads of the common pool; these answer it when all of that pool wait.
NOTIFY_THREADS = 2


def server_identity(options: Mapping[str, str], folder: Path) -> Identity | None:
    """Return the certificate of the servers; None: they serve without TLS, on loopback.

    Args:
        options: Cluster options.
        folder: The lab's; relative paths are relative to it.

    Raises:
        InvalidPropertyError: A host other than loopback without TLS, a certificate without key, or unusable files.
    """
    host, certificate, key = SERVER_HOST.of(options), TLS_CERTIFICATE.of(options), TLS_KEY.of(options)
    if bool(certificate) != bool(key):
        given, missing = (TLS_CERTIFICATE, TLS_KEY) if certificate else (TLS_KEY, TLS_CERTIFICATE)
        raise InvalidPropertyError(f"{given.key} is set, and {missing.key} is not: TLS needs both")
    if certificate:
        return load_identity(folder / _expand(certificate), folder / _expand(key))
    if host not in LOOPBACK:
        raise InvalidPropertyError(
            f"{SERVER_HOST.key}={host}: TLS is required on other hosts than loopback: set {TLS_CERTIFICATE.key} and {TLS_KEY.key}, "
            f"or listen on {LOOPBACK[0]}"
        )
    return None


def _expand(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)  # of no user: the file is reported as missing


def listen(options: Mapping[str, str], secret: str, identity: Identity | None, ports: Iterable[int]) -> Server:
    """Return a server, not yet started.

    Args:
        options: Cluster options.
        secret: The token that every call must have.
        identity: Its certificate; None: it serves without TLS.
        ports: Ports to try in order: that of the previous run, so that clients find it again. Then any free one, unless
            ``server.port`` says which there are.

    Raises:
        LabError: No port is free.
    """
    host, chosen = SERVER_HOST.of(options), SERVER_PORT.of(options)
    refusal: Exception | None = None
    for port in ports if chosen else (*ports, 0):
        try:
            return Server(
                host, port, secret,
                threads=SERVER_THREADS.of(options), request_bytes_max=REQUEST_SIZE_MAX.of(options), identity=identity,
                connections_max=SERVER_CONNECTIONS_MAX.of(options), limits=ConnectionLimits.of(options),
            )  # fmt: skip
        except RuntimeError as error:  # gRPC's error for a port that is not free
            log.info("event=port_taken port=%d error=%s", port, error)
            refusal = error
    which = f" from {SERVER_PORT.key}={chosen} on" if chosen else ""
    raise LabError(f"{SERVER_HOST.key}={host}: expected an address of this machine with a free port{which} ({refusal})")


def chosen_ports(options: Mapping[str, str], tablet_servers: int) -> dict[int, int]:
    """Return the ports that ``server.port`` gives the coordinator (-1) and several tablet servers; nothing without it.

    Raises:
        InvalidPropertyError: There are not so many behind it.
    """
    first = SERVER_PORT.of(options)
    if first and tablet_servers > 1 and first + tablet_servers > PORT_MAX:
        raise InvalidPropertyError(
            f"{SERVER_PORT.key}={first}: expected at most {PORT_MAX - tablet_servers}: each of {tablet_servers} tablet servers has a "
            "port behind it"
        )
    return {server_id: first + 1 + server_id for server_id in range(-1, tablet_servers)} if first else {}


def serve_tablet(server: Server, tablet: TabletService, options: Mapping[str, str]) -> None:
    """Serve a tablet server's calls."""
    pools = dict.fromkeys(("notify_leader_and_isr", "stop_replica", "notify_lake_table_offset"), NOTIFY_THREADS)
    pools = {**pools, "fetch_log": SERVER_FETCH_THREADS.of(options)}
    server.add(TABLET_SERVER, tablet, pools, answered=tablet.note_answer, unawaited=tablet.note_unawaited)

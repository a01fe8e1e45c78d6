"""Connections that never showed the token: closed after a while, so that they cannot take everybody's place.

gRPC closes a connection that does not finish its handshake, but not one that says nothing afterwards: what it calls
idle are also connections whose answers are taken slowly. So the sockets of a server are looked at from outside.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias
from urllib.parse import unquote

log = logging.getLogger(__name__)

#: One that speaks, but brings no token, has so many times as long: its first request may be long, and its line slow.
_SPEAKING_FACTOR: Final = 12
_DESCRIPTORS: Final = "/dev/fd"
#: Linux's ``struct tcp_info``, up to the milliseconds since something was received.
_INFO_BYTES: Final = 104
_LAST_RECEIVED: Final = struct.Struct("=52xI")

_PeerAddress: TypeAlias = tuple[str, int]


class AnonymousConnections:
    """The connections of one server that have not brought the token yet. `close_expired` is for one thread at a time.

    Args:
        port: Of the server.
        silence_ms: How long such a connection may say nothing.
        clock: Seconds, monotonic.
    """

    def __init__(self, port: int, silence_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._port, self._silence_ms, self._clock = port, silence_ms, clock
        self._known: set[str] = set()
        self._seen_s: dict[_PeerAddress, float] = {}

    def note_authenticated(self, peer: str) -> None:
        """Note that a connection, by gRPC's name of its peer, has brought the token."""
        if peer not in self._known:
            self._known.add(peer)

    def close_expired(self) -> int:
        """Close the connections that had their time; return how many.

        Cost: some 3 us for each descriptor of the process.
        """
        now_s = self._clock()
        seen_s: dict[_PeerAddress, float] = {}
        known = {_parse_peer(peer): peer for peer in tuple(self._known)}
        here: set[str] = set()
        closed = 0
        for descriptor in _sockets():
            # A copy of the descriptor, which stays the same connection when the number is used again.
            with socket.socket(fileno=descriptor) as connection:
                place = _peer_of(connection, self._port)
                if place is None:
                    continue
                if place in known:
                    here.add(known[place])
                    continue
                seen_s[place] = first_s = self._seen_s.get(place, now_s)
                if self._is_due(connection, (now_s - first_s) * 1000):
                    closed += _close(connection, place)
        self._seen_s = seen_s
        # Those that came in the meantime stay; the others have gone.
        self._known -= {peer for peer in known.values() if peer not in here}
        return closed

    def _is_due(self, connection: socket.socket, age_ms: float) -> bool:
        if age_ms < self._silence_ms:
            return False
        silent_ms = _silent_ms(connection)
        return age_ms >= _SPEAKING_FACTOR * self._silence_ms or (silent_ms or 0) >= self._silence_ms


def _sockets() -> list[int]:
    """Return copies of the descriptors of all sockets of this process."""
    copies = []
    try:
        for name in os.listdir(_DESCRIPTORS):
            try:
                if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    continue
                copy = os.dup(int(name))
            except OSError:
                continue  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(copy).st_mode):
                copies.append(copy)
            else:
                os.close(copy)  # closed between the two steps, and its number given to another file
    except OSError as error:
        log.warning("event=connections_not_seen error=%s", error)
    return copies


def _peer_of(connection: socket.socket, port: int) -> _PeerAddress | None:
    """Return where a connection comes from; None when it is not one of a server's at a port."""
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    try:
        if connection.getsockname()[1] != port:
            return None
        host, other, *_ = connection.getpeername()
    except OSError:
        return None  # it listens, or has gone
    return _plain(host), other


def _parse_peer(peer: str) -> _PeerAddress:
    """Return the place that gRPC means: ``ipv4:127.0.0.1:80``, ``ipv6:%5B::1%5D:80``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]")), int(port) if port.isdigit() else -1


def _plain(host: str) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _silent_ms(connection: socket.socket) -> int | None:
    """Return since when nothing was received; None where the system has no such figure."""
    info = getattr(socket, "TCP_INFO", None)
    if info is None:
        return None
    try:
        found = connection.getsockopt(socket.IPPROTO_TCP, info, _INFO_BYTES)
        return int(_LAST_RECEIVED.unpack_from(found)[0])
    except (OSError, struct.error):
        return None


def _close(connection: socket.socket, place: _PeerAddress) -> bool:
    log.info("event=anonymous_connection_closed client=%s:%d", *place)
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # the client closed it
    return True

"""Answers that their callers have not taken yet: counted in bytes, bounded, and given up when nobody takes them.

HTTP/2 lets a caller decide when it takes an answer, and until then the server holds it. So every answer is counted until
its call has ended: its bytes were sent, or it was cancelled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_lab.errors import ResourceExhaustedError
from fluss_lab.model.config.options import (
    CLIENT_TIMEOUT,
    CONNECTION_UNREAD_SIZE_MAX,
    HANDSHAKE_TIMEOUT,
    UNREAD_SIZE_MAX,
)
from fluss_lab.rpc.grpc_module import grpc

log = logging.getLogger(__name__)

#: gRPC holds an answer twice until it is sent: as Python's bytes, and as its own.
COPIES: Final = 2
#: Answers up to this size find room above the limit of the server, so that one client's scans do not stop the others'
#: small calls.
SMALL_BYTES: Final = 64 << 10
_SMALL_SHARE: Final = 4
#: Of the limit of a connection: from there on its answers are not even made, as they would hardly find room.
_MADE_SHARE: Final = 0.75
#: A connection that took nothing for this long loses its answers first where there is no room for the answers of others.
YIELD_S: Final = 2.0
#: How long building an answer waits for room; that is given back by building, which waits for no client.
_BUILD_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What clients may cost a server: see the cluster options of these names.

    Attributes:
        unread_bytes_max: ``server.unread-size-max``.
        connection_unread_bytes_max: ``server.connection-unread-size-max``.
        client_timeout_ms: ``server.client-timeout``.
        handshake_timeout_ms: ``server.handshake-timeout``.
    """

    unread_bytes_max: int
    connection_unread_bytes_max: int
    client_timeout_ms: int
    handshake_timeout_ms: int

    @staticmethod
    def of(options: Mapping[str, str]) -> ConnectionLimits:
        """Return what cluster options say."""
        return ConnectionLimits(
            UNREAD_SIZE_MAX.of(options), CONNECTION_UNREAD_SIZE_MAX.of(options), CLIENT_TIMEOUT.of(options),
            HANDSHAKE_TIMEOUT.of(options),
        )  # fmt: skip

    def channel_options(self) -> tuple[tuple[str, int], ...]:
        """Return what gRPC itself sees to: connections that do not shake hands, or whose client is gone."""
        return (
            ("grpc.server_handshake_timeout_ms", self.handshake_timeout_ms),
            ("grpc.keepalive_time_ms", max(1, self.client_timeout_ms // 2)),
            ("grpc.keepalive_timeout_ms", self.client_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.client_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
        )


@dataclass(slots=True)
class _Connection:
    """What one connection has not taken yet.

    Attributes:
        taken_s: When it took an answer last, or the first of these was given to it.
    """

    taken_s: float
    size: int = 0
    calls: dict[int, Any] = field(default_factory=dict)


class UnreadAnswers:
    """Counts the answers of one server that are under way. Safe for threads.

    Args:
        bytes_max: Of all answers, as memory holds them; one alone may have more.
        connection_bytes_max: Of the answers of one connection; one alone may have more.
        stall_s: A connection that takes nothing for this long loses its answers.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        bytes_max: int,
        connection_bytes_max: int,
        stall_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_max, self._connection_bytes_max, self._stall_s = bytes_max, connection_bytes_max, stall_s
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: dict[str, _Connection] = {}
        self._size = self._number = 0

    @property
    def size(self) -> int:
        """Return the bytes that are held for answers at the moment."""
        return self._size

    def check(self, peer: str) -> None:
        """Raise `ResourceExhaustedError` where a connection's next answer would find no room, before it is made."""
        connection = self._connections.get(peer)
        limit = int(_MADE_SHARE * self._connection_bytes_max)
        if connection is not None and connection.size >= limit:
            raise self._refusal(connection.size, limit, CONNECTION_UNREAD_SIZE_MAX.key, 0)

    def hold(self, context: grpc.ServicerContext, peer: str, size: int) -> None:
        """Count an answer until its call has ended.

        Args:
            context: Of the call.
            peer: Who called.
            size: Bytes of the answer.

        Raises:
            ResourceExhaustedError: There is no room for it.
        """
        held = COPIES * size
        with self._lock:
            reason = self._add(peer, held, context)
            number = self._number
        if reason is not None:
            self._make_room(peer)
            # Made here: an error that is kept in a variable would keep the answer until the next garbage collection.
            raise self._refusal(*reason, held)
        if not context.add_callback(lambda: self._ended(peer, number, held)):
            self._ended(peer, number, held)

    def _add(self, peer: str, held: int, context: grpc.ServicerContext) -> tuple[int, int, str] | None:
        """Count an answer; or return what there is already, how much there may be, and by which option."""
        connection = self._connections.get(peer)
        mine = 0 if connection is None else connection.size
        if mine and mine + held > self._connection_bytes_max:
            return mine, self._connection_bytes_max, CONNECTION_UNREAD_SIZE_MAX.key
        limit = self._bytes_max + (self._bytes_max // _SMALL_SHARE if held <= COPIES * SMALL_BYTES else 0)
        if self._size and self._size + held > limit:
            return self._size, limit, UNREAD_SIZE_MAX.key
        if connection is None:
            self._connections[peer] = connection = _Connection(self._clock())
        self._number += 1
        self._size += held
        connection.size += held
        connection.calls[self._number] = context
        return None

    def _refusal(self, found: int, limit: int, option: str, more: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"answers that were not taken yet: expected at most {limit} bytes of memory ({option}), found {found} and "
            f"{more} more; take the answers that were asked for, then ask again"
        )

    def _ended(self, peer: str, number: int, held: int) -> None:
        with self._lock:
            connection = self._connections[peer]
            del connection.calls[number]
            self._size -= held
            connection.size -= held
            connection.taken_s = self._clock()
            if not connection.calls:
                del self._connections[peer]

    def _make_room(self, asking: str) -> None:
        """Give up the answers of the connection, other than the asking one, that has taken nothing for the longest time."""
        with self._lock:
            others = [(each.taken_s, peer) for peer, each in self._connections.items() if peer != asking]
        if others:
            taken_s, peer = min(others)
            if self._clock() - taken_s >= YIELD_S:
                self._give_up(peer)

    def expire(self) -> None:
        """Give up the answers of each connection that has taken nothing for too long."""
        oldest_s = self._clock() - self._stall_s
        with self._lock:
            stalled = [peer for peer, each in self._connections.items() if each.taken_s <= oldest_s]
        for peer in stalled:
            self._give_up(peer)

    def _give_up(self, peer: str) -> None:
        with self._lock:
            connection = self._connections.get(peer)
            contexts = [] if connection is None else list(connection.calls.values())
            held = 0 if connection is None else connection.size
        if contexts:
            log.warning("event=answers_given_up client=%s answers=%d bytes=%d", peer, len(contexts), held)
        for context in contexts:
            context.cancel()


class AnswerMemory:
    """Bounds what answers take while they are made, whoever asks for them. Safe for threads.

    Args:
        bytes_max: Of all answers that are made at the same moment; one alone may have more.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._size = 0

    def room(self, size: int) -> MemoryReservation:
        """Wait for room for an answer; it is given back when nobody has what is returned any more.

        Raises:
            ResourceExhaustedError: There was none for long: a disk hangs.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._size or self._size + size <= self._bytes_max, _BUILD_WAIT_S
            ):
                raise ResourceExhaustedError(
                    f"{self._size} bytes of answers are being made, and no room came free for {size} more; try again"
                )
            self._size += size
        return MemoryReservation(self, size)

    def give_back(self, size: int) -> None:
        """Take note that an answer is made, or was given up."""
        with self._changed:
            self._size -= size
            self._changed.notify_all()


class MemoryReservation:
    """Room for one answer, for as long as somebody has it: it goes with the answer, whichever way that takes."""

    __slots__ = ("_building", "_size")

    def __init__(self, building: AnswerMemory, size: int) -> None:
        self._building, self._size = building, size

    def shrink(self, size: int) -> None:
        """Give back what the answer did not need: it has so many bytes."""
        if size < self._size:
            spare, self._size = self._size - size, size
            self._building.give_back(spare)

    def __del__(self) -> None:
        self._building.give_back(self._size)

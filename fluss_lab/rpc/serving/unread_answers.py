"""Answers that their callers have not read yet: counted in bytes, bounded, and cancelled when a client stops reading.

HTTP/2 lets a caller decide when it reads an answer, and until then the server holds it. So every answer counts until its
call has ended: its bytes were sent, or it was cancelled.
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
#: Answers up to this size may exceed the server's limit by a quarter, so that one client's scans do not stop the small
#: calls of others.
SMALL_BYTES: Final = 64 << 10
_SMALL_SHARE: Final = 4
#: Share of a connection's limit from which on its answers are refused before they are made: they would hardly fit.
_MADE_SHARE: Final = 0.75
#: A connection that read nothing for this long loses its answers first when the answers of others do not fit.
YIELD_S: Final = 2.0
#: How long making an answer waits for memory; that is released by other answers being made, which wait for no client.
_BUILD_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a server's connections: the cluster options of these names.

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
        """Return the limits that cluster options set."""
        return ConnectionLimits(
            UNREAD_SIZE_MAX.of(options), CONNECTION_UNREAD_SIZE_MAX.of(options), CLIENT_TIMEOUT.of(options),
            HANDSHAKE_TIMEOUT.of(options),
        )  # fmt: skip

    def channel_options(self) -> tuple[tuple[str, int], ...]:
        """Return the options by which gRPC closes connections that do not finish their handshake, or whose client is gone."""
        return (
            ("grpc.server_handshake_timeout_ms", self.handshake_timeout_ms),
            ("grpc.keepalive_time_ms", max(1, self.client_timeout_ms // 2)),
            ("grpc.keepalive_timeout_ms", self.client_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.client_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
        )


@dataclass(slots=True)
class _Connection:
    """The answers that one connection has not read yet.

    Attributes:
        taken_s: When it read an answer last, or the first of these was sent.
    """

    taken_s: float
    size: int = 0
    calls: dict[int, Any] = field(default_factory=dict)


class UnreadAnswers:
    """Counts the answers of one server that are under way. Safe for threads.

    Args:
        bytes_max: Of all answers, as memory holds them; one alone may have more.
        connection_bytes_max: Of the answers of one connection; one alone may have more.
        stall_s: A connection that reads nothing for this long loses its answers.
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
        """Check, before an answer is made, that the connection may have one more.

        Raises:
            ResourceExhaustedError: Its unread answers are at the limit.
        """
        connection = self._connections.get(peer)
        limit = int(_MADE_SHARE * self._connection_bytes_max)
        if connection is not None and connection.size >= limit:
            raise self._refusal(connection.size, limit, CONNECTION_UNREAD_SIZE_MAX.key, 0)

    def hold(self, context: grpc.ServicerContext, peer: str, size: int) -> bool:
        """Count an answer until its call has ended; return whether the call goes on: who cancelled it awaits nothing.

        Args:
            context: Of the call.
            peer: Who called.
            size: Bytes of the answer.

        Raises:
            ResourceExhaustedError: It exceeds a limit.
        """
        held = COPIES * size
        with self._lock:
            reason = self._add(peer, held, context)
            number = self._number
        if reason is not None:
            self._make_room(peer)
            # Made here: an error that is kept in a variable would keep the answer until the next garbage collection.
            raise self._refusal(*reason, held)
        is_awaited: bool = context.add_callback(lambda: self._note_end(peer, number, held))
        if not is_awaited:
            self._note_end(peer, number, held)
        return is_awaited

    def _add(self, peer: str, held: int, context: grpc.ServicerContext) -> tuple[int, int, str] | None:
        """Count an answer; or return the bytes found, the limit, and the option that sets it."""
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
            f"unread answers: expected at most {limit} bytes of memory ({option}), found {found} and "
            f"{more} more; read the answers of earlier calls, then repeat the call"
        )

    def _note_end(self, peer: str, number: int, held: int) -> None:
        with self._lock:
            connection = self._connections[peer]
            del connection.calls[number]
            self._size -= held
            connection.size -= held
            connection.taken_s = self._clock()
            if not connection.calls:
                del self._connections[peer]

    def _make_room(self, caller: str) -> None:
        """Cancel the answers of the connection, other than the calling one, that has read nothing for the longest time."""
        with self._lock:
            others = [(each.taken_s, peer) for peer, each in self._connections.items() if peer != caller]
        if others:
            taken_s, peer = min(others)
            if self._clock() - taken_s >= YIELD_S:
                self._give_up(peer)

    def expire(self) -> None:
        """Cancel the answers of each connection that has read nothing for too long."""
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
    """Bounds the memory of answers while they are made, over all clients. Safe for threads.

    Args:
        bytes_max: Of all answers that are made at the same moment; one alone may have more.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._size = 0

    def reserve(self, size: int) -> MemoryReservation:
        """Wait for memory for an answer; it is released when the last reference to the reservation goes.

        Raises:
            ResourceExhaustedError: None came free in time: a disk hangs.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._size or self._size + size <= self._bytes_max, _BUILD_WAIT_S
            ):
                raise ResourceExhaustedError(
                    f"{self._size} bytes of answers are being made, and memory for {size} more did not come free in time; try again"
                )
            self._size += size
        return MemoryReservation(self, size)

    def release(self, size: int) -> None:
        """Release memory of an answer that is sent or given up."""
        with self._changed:
            self._size -= size
            self._changed.notify_all()


class MemoryReservation:
    """Memory of one answer, released when the last reference to it goes."""

    __slots__ = ("_memory", "_size")

    def __init__(self, memory: AnswerMemory, size: int) -> None:
        self._memory, self._size = memory, size

    def shrink(self, size: int) -> None:
        """Release what the answer does not need: it has `size` bytes."""
        if size < self._size:
            spare, self._size = self._size - size, size
            self._memory.release(spare)

    def __del__(self) -> None:
        self._memory.release(self._size)

"""HTTP/1.1 messages on a socket, passed on byte by byte as they are."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CHUNK_BYTES: Final = 64 * 1024
_HEAD_BYTES_MAX: Final = 256 * 1024
_END_OF_HEAD: Final = b"\r\n\r\n"


class WireClosedError(Exception):
    """The other side closed the connection in the middle of a message."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the headers of a message.

    Attributes:
        data: Its bytes, with the empty line.
        first: The words of the first line.
        headers: By name in lower case.
    """

    data: bytes
    first: tuple[str, ...]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        """Return the status of an answer."""
        return int(self.first[1])

    @property
    def size(self) -> int | None:
        """Return how long the body is; None: it is in chunks, or ends with the connection."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return None
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def is_chunked(self) -> bool:
        """Return whether the body is in chunks."""
        return "chunked" in self.headers.get("transfer-encoding", "").lower()


class Wire:
    """One side of a connection, read message by message."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._held = b""

    def head(self) -> Head | None:
        """Return the next message's head; None: the connection ended before it.

        Raises:
            WireClosedError: It ended within it.
        """
        while (end := self._held.find(_END_OF_HEAD)) < 0:
            if len(self._held) > _HEAD_BYTES_MAX:
                raise WireClosedError("the head of a message is longer than any")
            if not (data := self.connection.recv(_CHUNK_BYTES)):
                if self._held:
                    raise WireClosedError("the connection ended within the head of a message")
                return None
            self._held += data
        data, self._held = self._held[: end + len(_END_OF_HEAD)], self._held[end + len(_END_OF_HEAD) :]
        lines = data.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return Head(data, tuple(lines[0].split(" ", 2)), {name.lower(): value.strip() for name, _, value in pairs})

    def body(self, head: Head, *, until_closed: bool = False) -> Iterator[bytes]:
        """Yield the body of the message of a head, as it lies on the wire.

        Args:
            head: Of the message.
            until_closed: Whether a body of unknown length ends with the connection, as an answer's does, and is not empty.
        """
        if head.is_chunked:
            yield from self._chunks()
        elif head.size is not None:
            yield from self._bytes(head.size)
        elif until_closed:
            while data := self._some():
                yield data

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            if not (size := int(re.split(rb"[;\r]", line, maxsplit=1)[0], 16)):
                break
            yield from self._bytes(size + 2)
        while True:
            trailer = self._line()
            yield trailer
            if trailer == b"\r\n":
                return

    def _bytes(self, size: int) -> Iterator[bytes]:
        while size > 0:
            if not (data := self._some(size)):
                raise WireClosedError("the connection ended within the body of a message")
            size -= len(data)
            yield data

    def _line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            if not (data := self.connection.recv(_CHUNK_BYTES)):
                raise WireClosedError("the connection ended within the body of a message")
            self._held += data
        line, self._held = self._held[: end + 1], self._held[end + 1 :]
        return line

    def _some(self, most: int = _CHUNK_BYTES) -> bytes:
        if not self._held:
            return self.connection.recv(min(most, _CHUNK_BYTES))
        data, self._held = self._held[:most], self._held[most:]
        return data

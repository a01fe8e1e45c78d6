"""Peers that speak HTTP/2 by hand: they take nothing of what they are sent, or say nothing at all."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
FRAME_BYTES = 9
WINDOW_SIZE = 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


#: Of a kind that HTTP/2 does not know, and so ignores.
ANY_FRAME = _frame(0x7F, 0, 0, b"x")


def _text(value):
    data = value.encode()
    length, more = bytes([min(len(data), 127)]), len(data) - 127
    if more >= 0:
        while more > 127:
            length, more = length + bytes([more & 127 | 128]), more >> 7
        length += bytes([more])
    return length + data


def _headers(path, token):
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {token}",
    }
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in named.items())


class RawPeer:
    """One connection. Use it as a context manager.

    Args:
        host: Of the server.
        port: Of the server.
    """

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self._stream = 1
        self._read = b""

    def greet(self):
        """Say what HTTP/2 wants at first, and that nothing of an answer may be sent."""
        window = struct.pack(">HI", WINDOW_SIZE, 0)
        self.socket.sendall(PREFACE + _frame(SETTINGS, 0, 0, window) + _frame(SETTINGS, ACK, 0))
        return self

    def call(self, path, token, request):
        """Call a method; its answer is not taken."""
        message = b"\0" + struct.pack(">I", len(request)) + request
        self.socket.sendall(
            _frame(HEADERS, END_HEADERS, self._stream, _headers(path, token))
            + _frame(DATA, END_STREAM, self._stream, message)
        )
        self._stream += 2

    def is_closed(self, *, answering=False):
        """Return whether the server has closed the connection; its pings are answered if wanted."""
        self.socket.setblocking(False)
        try:
            while more := self.socket.recv(1 << 16):
                self._read += more
        except BlockingIOError:
            return answering and self._answer_pings()
        except OSError:
            return True
        return True

    def _answer_pings(self):
        while len(self._read) >= FRAME_BYTES:
            end = FRAME_BYTES + int.from_bytes(self._read[:3], "big")
            if len(self._read) < end:
                break
            if self._read[3] == PING and not self._read[4] & ACK:
                self.socket.sendall(_frame(PING, ACK, 0, self._read[FRAME_BYTES:end]))
            self._read = self._read[end:]
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

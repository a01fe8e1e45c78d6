"""The limit for fetches: a bare, tuned gRPC server that answers 4 MB of new data each time, in a process of its own.

The data lies in its memory; nothing is looked up, read from a file, checked or parsed on either side.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from fluss_lab.rpc.malloc_settings import tune_allocator

PAYLOAD_BYTES = 4 << 20
#: As much as the log that the benchmark fetches from: data that nobody has in a cache.
DATA_BYTES = 256 << 20
METHOD = "/peer.Peer/Fetch"
EMPTY_METHOD = "/peer.Peer/Empty"


def serve() -> None:
    """Serve until standard input closes; print the port first."""
    tune_allocator()
    import grpc

    data = memoryview(os.urandom(DATA_BYTES))
    head = b"\x0a\x04test"
    places = itertools.cycle(range(0, DATA_BYTES, PAYLOAD_BYTES))

    def fetch(_request: bytes, _context: object) -> bytes:
        at = next(places)
        return b"".join((head, data[at : at + PAYLOAD_BYTES]))

    handlers = {
        "Fetch": grpc.unary_unary_rpc_method_handler(fetch),
        "Empty": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
    }
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Peer", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


@contextmanager
def channel() -> Iterator[Any]:
    """Give a channel to such a server."""
    import grpc

    process = subprocess.Popen([sys.executable, "-m", "benchmarks.peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as made:
            yield made
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    serve()

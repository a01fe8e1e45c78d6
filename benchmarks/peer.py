"""The limit for fetches: a bare, tuned gRPC server that answers 4 MB of new data each time, in a process of its own.

The data lies in its memory; nothing is looked up, read from a file, checked or parsed on either side.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from fluss_lab.rpc.memory import tune_allocator

PAYLOAD_BYTES = 4 << 20
#: As much as the log that the benchmark fetches from: data that nobody has in a cache.
DATA_BYTES = 256 << 20
METHOD = "/peer.Peer/Fetch"


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

    handlers = {"Fetch": grpc.unary_unary_rpc_method_handler(fetch)}
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Peer", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


def bytes_a_second(seconds: float = 2.0) -> float:
    """Return what one client gets from such a server, one call after another."""
    import grpc

    process = subprocess.Popen([sys.executable, "-m", "benchmarks.peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            call = channel.unary_unary(METHOD, response_deserializer=memoryview)
            for _ in range(10):
                call(b"x")
            got, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                got += len(call(b"x"))
            return got / (time.perf_counter() - started)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    serve()

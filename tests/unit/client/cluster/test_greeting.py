"""A server that is slow to greet: a machine under load takes seconds to answer a new connection."""

import socket
import threading

from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel

HELD_S = 1.5


class SlowGreeter:
    """Passes bytes on to a server, but the server's first ones only after a while."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self._lines: list[threading.Thread] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(self._server)
            self._lines.append(threading.Thread(target=_join, args=(caller, server), daemon=True))
            self._lines[-1].start()

    def close(self) -> None:
        """Return when the connections have ended too."""
        self._listener.close()
        for line in self._lines:
            line.join(timeout=60)


def _join(caller: socket.socket, server: socket.socket) -> None:
    with caller, server:
        answers = threading.Timer(HELD_S, _pass_on, args=(server, caller))
        answers.start()
        _pass_on(caller, server)
        answers.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_server_that_is_slow_to_greet_is_waited_for(shared_cluster):
    address = shared_cluster.address
    greeter = SlowGreeter(address.port)
    channel = Channel("127.0.0.1", greeter.port, address.token)
    try:
        channel.coordinator().list_databases(pb.ListDatabasesRequest())
        assert greeter.connections == 1
    finally:
        channel.close()
        greeter.close()

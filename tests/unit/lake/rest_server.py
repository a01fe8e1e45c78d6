"""The REST catalog of our own, counting what it is asked, and failing where it is told to."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.beyond.rest_catalog_server import RestCatalogServer, error_text

#: Kinds of requests, by method and path.
KINDS = {
    "GET config": "config", "POST oauth/tokens": "token", "POST namespaces": "create namespace",
    "GET namespaces/x": "load namespace", "POST namespaces/x/tables": "create table",
    "GET namespaces/x/tables/x": "load table", "POST namespaces/x/tables/x": "commit",
    "DELETE namespaces/x/tables/x": "drop table", "POST tables/rename": "rename table",
}  # fmt: skip


@dataclass
class Fault:
    """How a request fails, once.

    Attributes:
        kind: Of `KINDS`.
        status: What is answered; None: the connection is reset; -1: what is answered always.
        done: Whether what was asked for is done all the same.
        wait_s: How long nothing is answered before.
        then: Called first.
    """

    kind: str
    status: int | None = None
    done: bool = False
    wait_s: float = 0.0
    then: Callable[[], object] | None = None


class RestServer(RestCatalogServer):
    """A catalog whose database and warehouse are in a folder.

    Attributes:
        chooses_location: Whether a location that a client asks for is disregarded.
        namespace_location: Whether namespaces have a location.
        vended: Returns the credentials that go with a table's metadata.
        counts: Of requests, by kind.
        faults: Of requests to come.
        seen: Headers of the requests.
    """

    def __init__(self, folder: Path, *, warehouse: str | None = None, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.warehouse = warehouse or f"file://{folder}/warehouse"
        self.chooses_location = False
        self.namespace_location = True
        self.vended: Callable[[], dict[str, str]] | None = None
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.seen: list[dict[str, str]] = []
        properties = options.pop("properties", {})
        super().__init__({"uri": f"sqlite:///{folder}/rest.db", "warehouse": self.warehouse} | properties, **options)
        self._server.RequestHandlerClass = _faulty(self, self._server.RequestHandlerClass)

    def client(self, **more: str) -> dict[str, str]:
        """Return a client's properties."""
        return {"name": "rest", **self.lake_options(), **more}

    def answer(self, method: str, path: list[str], body: bytes) -> tuple[int, str]:
        """Answer as the catalog does, with the location that it is to have, and with credentials."""
        if method == "POST" and path[2:] == ["tables"] and self.chooses_location:
            body = json.dumps(json.loads(body) | {"location": None}).encode()
        status, text = super().answer(method, path, body)
        if status == 200 and self.namespace_location and method == "GET" and len(path) == 2:
            found = json.loads(text)
            found["properties"]["location"] = f"{self.warehouse}/{path[1]}/"
            text = json.dumps(found)
        if status == 200 and self.vended is not None and "metadata-location" in text:
            found = json.loads(text)
            prefix = found["metadata-location"].partition("/metadata/")[0]
            found["storage-credentials"] = [{"prefix": prefix, "config": self.vended()}]
            text = json.dumps(found)
        return status, text

    def fault(self, kind: str, headers: dict[str, str]) -> Fault | None:
        """Count a request; return how it fails, which it does once."""
        with self.lock:
            self.counts[kind] += 1
            self.seen.append(headers)
            found = next((each for each in self.faults if each.kind == kind), None)
            if found is not None:
                self.faults.remove(found)
            return found


def _faulty(rest: RestServer, honest: type[BaseHTTPRequestHandler]) -> type[BaseHTTPRequestHandler]:
    class Handler(honest):  # type: ignore[misc,valid-type]
        def _failing(self) -> None:
            path = urlsplit(self.path).path.removeprefix("/v1/").removeprefix(f"{rest.prefix}/" if rest.prefix else "")
            asked = f"{self.command} {re.sub(r'(?<=namespaces/)[^/]+|(?<=tables/)(?!rename)[^/]+', 'x', path)}"
            kind = KINDS.get(asked, asked)
            fault = rest.fault(kind, dict(self.headers))
            if fault is not None and fault.then is not None:
                fault.then()
            if fault is None or fault.status == -1:
                self._answer()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if fault.done:
                self._outcome([each for each in path.split("/") if each], body)
            threading.Event().wait(fault.wait_s)
            if fault.status is None:
                # With nothing to linger for: a reset, not an end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            data = error_text(fault.status, "TestError", f"told to fail {kind}").encode()
            self.send_response(fault.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do_HEAD = _failing  # noqa: N815

    return Handler

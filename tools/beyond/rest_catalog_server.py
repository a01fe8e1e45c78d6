"""An Iceberg REST catalog in this process, over pyiceberg's SQL catalog: for what other people's cannot be made to do."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from fluss_lab.closing import Closing

_STATUS: Final[dict[type[Exception], int]] = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    NamespaceNotEmptyError: 409,
    CommitFailedException: 409,
}
_TOKEN_SECONDS: Final = 3600


class RestCatalogServer(Closing):
    """A catalog's server on loopback. Use it as a context manager.

    Args:
        properties: Of pyiceberg's SQL catalog behind it: ``uri``, ``warehouse``, and how files are reached.
        prefix: Of its paths, as catalogs of several warehouses give it to their clients; empty: none.
        credential: ``id:secret`` for which it gives tokens, and without such a token refuses; None: it asks for none.
        table_config: What it says with each table that is loaded: vended credentials, for instance.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        prefix: str = "",
        credential: str | None = None,
        table_config: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.catalog = SqlCatalog(**{"name": "rest", **properties})
        self.prefix = prefix
        self.credential = credential
        self.table_config = table_config
        self.tokens: set[str] = set()
        #: One request at a time.
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rest-catalog", daemon=True
        )
        self._thread.start()

    @property
    def uri(self) -> str:
        """Return its URL."""
        return f"http://127.0.0.1:{self.port}/"

    def lake_options(self, uri: str | None = None) -> dict[str, str]:
        """Return the properties of the catalog for pyiceberg, without those of the store.

        Args:
            uri: Of a proxy before it; None: its own.
        """
        place = (uri or self.uri).rstrip("/")
        options = {"type": "rest", "uri": place}
        if self.credential is not None:
            options |= {"credential": self.credential, "oauth2-server-uri": f"{place}/v1/oauth/tokens"}
        return options

    def expire_tokens(self) -> None:
        """Refuse all tokens that were given so far."""
        self.tokens.clear()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.catalog.close()

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: list[str], body: bytes) -> tuple[int, str]:
        """Return status and text of the answer to a request below ``/v1``, without the prefix.

        Raises:
            Exception: pyiceberg's; `_STATUS` has what they mean.
        """
        match (method, *path):
            case ("GET", "config"):
                return 200, json.dumps({"defaults": {}, "overrides": {"prefix": self.prefix} if self.prefix else {}})
            case ("POST", "oauth", "tokens"):
                return self._token(body)
            case (_, "namespaces"):
                return self._namespaces(method, body)
            case (_, "namespaces", namespace):
                return self._namespace(method, _levels(namespace))
            case (_, "namespaces", namespace, "tables"):
                return self._tables(method, _levels(namespace), body)
            case (_, "namespaces", namespace, "tables", name):
                return self._table(method, (*_levels(namespace), name), body)
            case ("POST", "tables", "rename"):
                asked = json.loads(body)
                old, new = ((*asked[side]["namespace"], asked[side]["name"]) for side in ("source", "destination"))
                self.catalog.rename_table(old, new)
                return 204, ""
            case ("POST", "namespaces", _, "tables", _, "metrics"):
                return 204, ""
        return 501, error_text(501, "UnsupportedOperationException", f"{method} {'/'.join(path)}")

    def _token(self, body: bytes) -> tuple[int, str]:
        asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if f"{asked.get('client_id')}:{asked.get('client_secret')}" != self.credential:
            return 401, json.dumps({"error": "invalid_client", "error_description": "unknown client"})
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return 200, json.dumps({"access_token": token, "token_type": "bearer", "expires_in": _TOKEN_SECONDS})

    def _namespaces(self, method: str, body: bytes) -> tuple[int, str]:
        if method == "GET":
            return 200, json.dumps({"namespaces": [list(each) for each in self.catalog.list_namespaces()]})
        asked = json.loads(body)
        properties = asked.get("properties") or {}
        self.catalog.create_namespace(tuple(asked["namespace"]), properties)
        return 200, json.dumps({"namespace": asked["namespace"], "properties": properties})

    def _namespace(self, method: str, namespace: tuple[str, ...]) -> tuple[int, str]:
        properties = self.catalog.load_namespace_properties(namespace)
        if method == "DELETE":
            self.catalog.drop_namespace(namespace)
        if method in {"DELETE", "HEAD"}:
            return 204, ""
        return 200, json.dumps({"namespace": list(namespace), "properties": properties})

    def _tables(self, method: str, namespace: tuple[str, ...], body: bytes) -> tuple[int, str]:
        if method == "GET":
            found = [{"namespace": list(each[:-1]), "name": each[-1]} for each in self.catalog.list_tables(namespace)]
            return 200, json.dumps({"identifiers": found})
        absent = {"location": None, "partition-spec": None, "write-order": None}
        asked = CreateTableRequest.model_validate({**absent, **json.loads(body)})
        if asked.stage_create:
            return 501, error_text(501, "UnsupportedOperationException", "tables are created at once here")
        made = self.catalog.create_table(
            (*namespace, asked.name), asked.table_schema, asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC, asked.write_order or UNSORTED_SORT_ORDER,
            asked.properties or {},
        )  # fmt: skip
        return 200, self._table_text(made)

    def _table(self, method: str, name: tuple[str, ...], body: bytes) -> tuple[int, str]:
        if method == "DELETE":
            self.catalog.drop_table(name)
            return 204, ""
        table = self.catalog.load_table(name)
        if method == "HEAD":
            return 204, ""
        if method == "GET":
            return 200, self._table_text(table)
        asked = CommitTableRequest.model_validate_json(body)
        done = self.catalog.commit_table(table, asked.requirements, asked.updates)
        location, metadata = json.dumps(done.metadata_location), done.metadata.model_dump_json()
        return 200, f'{{"metadata-location": {location}, "metadata": {metadata}}}'

    def _table_text(self, table: Table) -> str:
        location, metadata = json.dumps(table.metadata_location), table.metadata.model_dump_json()
        config = json.dumps(dict(self.table_config()))
        return f'{{"metadata-location": {location}, "metadata": {metadata}, "config": {config}}}'


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a test breaks."""


def error_text(code: int, kind: str, message: str) -> str:
    """Return an error as REST catalogs write it."""
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split("\x1f"))


def _handler(server: RestCatalogServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = [unquote(each) for each in urlsplit(self.path).path.strip("/").split("/")][1:]
            if server.prefix and path[:1] == [server.prefix]:
                path = path[1:]
            status, text = self._outcome(path, body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if status != 204 and self.command != "HEAD":
                self.wfile.write(data)

        def _outcome(self, path: list[str], body: bytes) -> tuple[int, str]:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            with server.lock:
                if server.credential is not None and path != ["oauth", "tokens"] and token not in server.tokens:
                    return 401, error_text(401, "NotAuthorizedException", "the token has expired, or is none of these")
                try:
                    return server.answer(self.command, path, body)
                except tuple(_STATUS) as error:
                    return _STATUS[type(error)], error_text(_STATUS[type(error)], type(error).__name__, str(error))
                except Exception as error:
                    return 500, error_text(500, type(error).__name__, str(error))

        do_GET = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler

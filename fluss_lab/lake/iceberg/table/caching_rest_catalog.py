"""pyiceberg's REST catalog without its repeated work, and with an end to every wait.

Every answer has a table's whole metadata, with a thousand snapshots a megabyte, which pyiceberg parses anew. The metadata of
one location never changes, so it is parsed once, whether it came with a load or with a commit. And pyiceberg waits for a
server without an end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from cachetools import LRUCache
from pyiceberg.catalog.rest import Capability, Endpoints, RestCatalog, TableResponse
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse, TableIdentifier
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import AddSchemaUpdate
from requests import HTTPError
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from fluss_lab.errors import ServerUnavailableError
from fluss_lab.lake.iceberg.table.caching_sql_catalog import KEPT
from fluss_lab.model.config.lake_options import REST_ANSWER_MS, REST_CONNECT_MS
from fluss_lab.model.config.option_secrets import mask_secret
from fluss_lab.model.json_codec import known_type

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier
    from requests import Response, Session

T = TypeVar("T")

#: What only reads is asked again twice, after 0.2 and 0.4 s, when the connection breaks or the server says that it is
#: overloaded or away. A commit is sent once: whether it happened must be looked up first.
RETRIES: Final = Retry(
    total=2, backoff_factor=0.2, status_forcelist=(429, 502, 503, 504), allowed_methods=("GET", "HEAD"),
    raise_on_status=False,
)  # fmt: skip


class _Loaded(msgspec.Struct):
    """The answer to the loading of a table, its metadata not yet parsed."""

    metadata: msgspec.Raw
    location: str | None = msgspec.field(name="metadata-location", default=None)
    config: dict[str, str] | None = None
    credentials: list[dict[str, Any]] | None = msgspec.field(name="storage-credentials", default=None)


class CachingRestCatalog(RestCatalog):
    """A REST catalog that keeps the metadata of tables by its location. Safe in any thread."""

    def __init__(self, name: str, **properties: str) -> None:
        self._kept: LRUCache[str, TableMetadata] = LRUCache(KEPT)
        self._kept_lock = threading.Lock()
        super().__init__(name, **properties)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table with all of its snapshots, whatever the server's default is: what commits go by is among them.

        Raises:
            ServerUnavailableError: What answers is no catalog.
        """
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        url = self.url(Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(identifier))
        answer = self._with_token(lambda: self._get(url))
        try:
            loaded = msgspec.json.decode(answer.content, type=known_type(_Loaded))
        except msgspec.DecodeError as error:
            raise ServerUnavailableError(
                f"lake table {'.'.join(self.identifier_to_tuple(identifier))}: what answers at {mask_secret('', self.uri)} is no "
                f"catalog: expected a table in JSON, found {answer.headers.get('Content-Type')}: {error}; is the address right, "
                "or does a proxy answer in the catalog's place? Nothing is damaged; try again when the catalog runs"
            ) from error
        found = TableResponse.model_construct(
            metadata_location=loaded.location,
            metadata=self._parse_metadata(loaded),
            config=loaded.config or {},
            storage_credentials=[StorageCredential.model_validate(each) for each in loaded.credentials or ()],
        )
        return self._response_to_table(self.identifier_to_tuple(identifier), found)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, and keep the metadata that the server answers with."""
        done: CommitTableResponse
        if any(isinstance(each, AddSchemaUpdate) for each in updates):
            done = self._with_token(lambda: self._commit_schema(table, requirements, updates))
        else:
            done = super().commit_table(table, requirements, updates)
        self._keep(done.metadata_location, done.metadata)
        return done

    def _commit_schema(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit as pyiceberg does, with the last column's id, which it leaves out: some servers (Nessie 0.99) refuse that."""
        namespace, name = table.name()[:-1], table.name()[-1]
        place = TableIdentifier.model_validate({"namespace": namespace, "name": name})
        request = CommitTableRequest(identifier=place, requirements=requirements, updates=updates)
        body = msgspec.json.decode(request.model_dump_json())
        for given, sent in zip(updates, body["updates"], strict=True):
            if isinstance(given, AddSchemaUpdate):
                sent["last-column-id"] = max(table.metadata.last_column_id, given.schema_.highest_field_id)
        token = table.config.get("token")
        answer = self._session.post(
            self.url(Endpoints.update_table, prefixed=True, **self._split_identifier_for_path(place)),
            data=msgspec.json.encode(body),
            headers={"Authorization": f"Bearer {token}"} if token else None,
        )
        try:
            answer.raise_for_status()
        except HTTPError as error:
            unknown = dict.fromkeys((500, 502, 504), CommitStateUnknownException)
            _handle_non_200_response(error, {409: CommitFailedException, **unknown})
        return CommitTableResponse.model_validate_json(answer.text)

    def _config_headers(self, session: Session) -> None:
        # Where a session is set up first, before a token is asked for by it.
        super()._config_headers(session)
        connect_s, answer_s = (
            int(self.properties.get(name, default)) / 1000 for name, default in (REST_CONNECT_MS, REST_ANSWER_MS)
        )
        session.request = partial(session.request, timeout=(connect_s, answer_s))  # type: ignore[method-assign]
        for start in ("https://", "http://"):
            session.mount(start, HTTPAdapter(max_retries=RETRIES))

    def _with_token(self, ask: Callable[[], T]) -> T:
        """Return what the server answers; when the token has ended, to one that is had anew."""
        try:
            return ask()
        except (AuthorizationExpiredError, UnauthorizedError):
            self._refresh_token()
            return ask()

    def _get(self, url: str) -> Response:
        answer = self._session.get(url)
        try:
            answer.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {404: NoSuchTableError})
        return answer

    def _parse_metadata(self, loaded: _Loaded) -> TableMetadata:
        with self._kept_lock:
            kept = None if loaded.location is None else self._kept.get(loaded.location)
        if kept is not None:
            return kept
        metadata = TableMetadataUtil.parse_raw(bytes(loaded.metadata).decode())
        self._keep(loaded.location, metadata)
        return metadata

    def _keep(self, location: str | None, metadata: TableMetadata) -> None:
        if location is not None:
            with self._kept_lock:
                self._kept[location] = metadata

"""Errors of catalogs and stores: the house's, by which a caller knows whether to wait, to fix, or to restore."""

import sqlite3
import sys
import threading
import types
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fluss_lab.errors import (
    AuthenticationError,
    CorruptDataError,
    FlussError,
    InvalidPropertyError,
    InvalidRequestError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
    TableNotFoundError,
)
from fluss_lab.lake.iceberg.files.store_errors import (
    catalog_error,
    library_errors,
    read_error,
    store_error,
    write_error,
)
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.model import TablePath
from tests.unit.lake.conftest import Lake

PATH = TablePath("db", "t")


class Rest:
    """A REST catalog that answers every question about tables with one status."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        rest = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args) -> None:
                pass

            def do_GET(self) -> None:
                status, body = (
                    (200, b'{"defaults": {}, "overrides": {}}') if "config" in self.path else (rest.status, rest.body)
                )
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def access(self) -> CatalogAccess:
        return CatalogAccess({"name": "r", "type": "rest", "uri": f"http://127.0.0.1:{self.server.server_port}"})


@pytest.fixture
def rest():
    found = Rest()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequestError),
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, TableNotFoundError),
        (419, AuthenticationError),
        (429, ResourceExhaustedError),
        (500, ServerUnavailableError),
        (502, ServerUnavailableError),
        (503, ServerUnavailableError),
    ],
)
def test_what_a_rest_catalog_refuses(rest, status, error):
    rest.status = status
    with pytest.raises(error, match=r"db\.t"):
        rest.access.load_table(PATH)


def test_a_rest_catalog_whose_answer_is_no_table(rest):
    rest.body = b'{"metadata": {"format-version": 2}}'
    with pytest.raises(CorruptDataError, match="metadata"):
        rest.access.load_table(PATH)


def test_a_rest_catalog_that_does_not_answer(rest):
    access = rest.access
    access.catalog()
    rest.server.shutdown()
    rest.server.server_close()
    with pytest.raises(ServerUnavailableError) as caught:
        access.load_table(PATH)
    assert caught.value.retriable
    with pytest.raises(ServerUnavailableError):
        rest.access.load_table(PATH)


def test_a_sql_catalog_that_cannot_be_used(tmp_path):
    def access(**properties: str) -> CatalogAccess:
        return CatalogAccess({"name": "s", "type": "sql", "warehouse": f"file://{tmp_path}/w"} | properties)

    (tmp_path / "junk.db").write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptDataError, match="SQLite file is damaged"):
        access(uri=f"sqlite:///{tmp_path}/junk.db").load_table(PATH)
    access(uri=f"sqlite:///{tmp_path}/other.db").catalog()
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("ALTER TABLE iceberg_tables RENAME COLUMN metadata_location TO other")
    with pytest.raises(CorruptDataError, match="metadata_location"):
        access(uri=f"sqlite:///{tmp_path}/other.db").load_table(PATH)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StorageError, match="SQLite file cannot be used"):
        access(uri=f"sqlite:///{tmp_path}/folder.db").load_table(PATH)
    with pytest.raises(InvalidPropertyError):
        access(uri="postgresql+nodriver://127.0.0.1/x").load_table(PATH)


def test_metadata_that_is_missing_names_the_file_and_what_is_left(lake: Lake):
    info = lake.table({"id": "bigint"})
    where = Path(lake.load(info).metadata_location.removeprefix("file://"))
    where.unlink()
    with pytest.raises(
        CorruptDataError, match=f"missing.*{where.name}.*snapshots that do not need the file can be read"
    ):
        Lake(lake.folder).load(info)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "no"), AuthenticationError),
        (OSError("When reading: AWS Error ACCESS_DENIED during GetObject"), AuthenticationError),
        (ConnectionResetError(104, "reset"), ServerUnavailableError),
        (
            OSError("AWS Error NETWORK_CONNECTION during HeadObject: curlCode: 7, Couldn't connect to server"),
            ServerUnavailableError,
        ),
        (OSError("AWS Error SLOW_DOWN during PutObject"), ServerUnavailableError),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2"), StorageError),
        (OSError(5, "Input/output error"), StorageError),
        (TimeoutError("timed out"), ServerUnavailableError),
    ],
)
def test_what_a_store_fails_with_is_no_damage(error, expected):
    assert type(store_error("x", error)) is expected
    assert type(read_error("x", "file", error)) is expected


@pytest.mark.parametrize(
    "error", [OSError("Couldn't deserialize thrift: TProtocolException"), ValueError("bad"), EOFError()]
)
def test_what_a_files_bytes_lead_to_is_damage(error):
    found = read_error("lake file x", "Parquet file", error)
    assert isinstance(found, CorruptDataError)
    assert isinstance(found, FlussError)
    assert "lake file x" in str(found)


class LibraryError(Exception):
    """Stands for the errors of botocore, which is not installed here: with an answer, or with a name that tells."""

    def __init__(self, code: str = "", status: int = 0) -> None:
        super().__init__(f"({code}) when calling the GetTable operation")
        if code:
            self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class NoCredentialsError(LibraryError): ...


class ReadTimeoutError(LibraryError): ...


@pytest.fixture
def library(monkeypatch):
    """Have botocore's module, whether it is installed or not."""
    module = types.ModuleType("botocore.exceptions")
    module.ClientError = module.BotoCoreError = LibraryError
    monkeypatch.setitem(sys.modules, "botocore.exceptions", module)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("error", "expected", "retriable"),
    [
        (NoCredentialsError(), AuthenticationError, False),
        (LibraryError("ExpiredToken", 400), AuthenticationError, False),
        (LibraryError("AccessDeniedException", 400), AuthenticationError, False),
        (LibraryError("Other", 403), AuthenticationError, False),
        (LibraryError("ThrottlingException", 400), ResourceExhaustedError, True),
        (LibraryError("InternalServiceException", 500), ServerUnavailableError, True),
        (LibraryError("Other", 503), ServerUnavailableError, True),
        (ReadTimeoutError(), ServerUnavailableError, True),
        (LibraryError("NoSuchBucket", 404), StorageError, False),
    ],
)
def test_what_a_library_below_fails_with(error, expected, retriable):
    assert isinstance(error, library_errors(OSError))
    for found in (
        store_error("x", error), read_error("x", "file", error), write_error("x", error), catalog_error("x", error),
    ):  # fmt: skip
        assert type(found) is expected
        assert found.retriable is retriable
        assert str(found).startswith("x: ")


def test_without_a_library_nothing_is_of_it(monkeypatch):
    for name in ("botocore.exceptions", "aiohttp", "azure.core.exceptions", "google.auth.exceptions"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert library_errors(OSError) == (OSError,)
    assert catalog_error("x", LibraryError("AccessDenied", 403)) is None


def test_what_cannot_be_written_says_whether_to_try_again():
    away = write_error("lake file x", OSError("AWS Error NETWORK_CONNECTION during PutObject operation"))
    assert isinstance(away, ServerUnavailableError)
    assert "nothing of it was committed" in str(away)
    for error in (OSError(28, "No space left on device"), PermissionError(13, "no")):
        assert type(write_error("lake file x", error)) is StorageError

"""Errors of catalogs and stores: the house's, by which a caller knows whether to wait, to fix, or to restore."""

import importlib.util
import re
import sqlite3
import sys
import threading
import types
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

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
from fluss_lab.lake.iceberg.files.lake_errors import (
    catalog_error,
    library_errors,
    read_error,
    safe_text,
    store_error,
    unchanged_error,
    write_error,
)
from fluss_lab.lake.iceberg.table import catalog_access
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.model import TablePath
from tests.unit.lake.conftest import Lake

PATH = TablePath("db", "t")


@pytest.mark.parametrize(
    ("code", "is_unchanged"),
    [
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_CANTOPEN, True),
        (sqlite3.SQLITE_READONLY_DBMOVED, True),
        (sqlite3.SQLITE_IOERR, False),
        (sqlite3.SQLITE_IOERR_FSYNC, False),  # it may be on the device all the same
        (sqlite3.SQLITE_CORRUPT, False),
        (None, False),
    ],
)
def test_a_commit_is_said_not_to_be_made_only_where_that_is_certain(code, is_unchanged):
    error = sqlite3.OperationalError("the catalog's")
    if code is not None:
        error.sqlite_errorcode = code
    for each in (error, OperationalError("INSERT", {}, error)):
        assert (unchanged_error("commit", each) is not None) == is_unchanged
    assert unchanged_error("commit", OSError(28, "No space left on device")) is None


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


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"", b"[]", b"{}", b'{"metadata": ', b"\xff"])
def test_what_is_no_rest_catalog_is_asked_for_its_address(rest, body):
    rest.body = body
    access = rest.access
    with pytest.raises(ServerUnavailableError, match=r"db\.t: what answers at .* is the address right") as caught:
        access.load_table(PATH)
    assert f"http://127.0.0.1:{rest.server.server_port}" in str(caught.value)
    assert "restore" not in str(caught.value)


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


#: What Arrow said of a MinIO, and of a server that answered as one that is full or overloaded.
REAL = {
    "When initiating multiple part upload for key 'x' in bucket 'b': AWS Error NO_SUCH_BUCKET during CreateMultipartUpload "
    "operation: The specified bucket does not exist (Request ID: 18EA)": (StorageError, "no such bucket"),
    "When listing objects under key '' in bucket 'b': AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: The specified "
    "bucket does not exist": (StorageError, "no such bucket"),
    "When reading information for key 'x' in bucket 'lake': AWS Error ACCESS_DENIED during HeadObject operation: No response "
    "body.": (AuthenticationError, "refused access"),
    "When initiating multiple part upload for key 'y' in bucket 'lake': AWS Error INVALID_ACCESS_KEY_ID during "
    "CreateMultipartUpload operation: The Access Key Id you provided does not exist in our records.": (
        AuthenticationError, "refused access",
    ),
    "When listing objects under key '' in bucket 'lake': AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: The "
    "request signature we calculated does not match": (AuthenticationError, "refused access"),
    "When listing objects under key '' in bucket 'lake': AWS Error UNKNOWN (HTTP status 403) during ListObjectsV2 operation: "
    "Unable to parse ExceptionName: InvalidTokenId Message: The security token included in the request is invalid": (
        AuthenticationError, "refused access",
    ),
    "When listing objects under key '' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during ListObjectsV2 operation: "
    "Unable to parse ExceptionName: ExpiredToken Message: The provided token has expired.": (
        AuthenticationError, "refused access",
    ),
    "When reading information for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No "
    "response body.": (AuthenticationError, "refused access"),
    "When uploading object with key 'y' in bucket 'lake': AWS Error UNKNOWN (HTTP status 411) during PutObject operation: Unable "
    "to parse ExceptionName: MissingContentLength Message: You must provide the Content-Length HTTP header.": (
        AuthenticationError, "refused access",
    ),
    "When listing objects under key '' in bucket 'lake': AWS Error REQUEST_TIME_TOO_SKEWED during ListObjectsV2 operation: x": (
        AuthenticationError, "refused access",
    ),
    "When initiating multiple part upload for key 'y' in bucket 'lake': AWS Error SLOW_DOWN during CreateMultipartUpload "
    "operation: Please reduce your request rate": (ServerUnavailableError, "does not answer"),
    "When reading information for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No "
    "response body.": (ServerUnavailableError, "does not answer"),
    "When listing objects under key '' in bucket 'lake': AWS Error INTERNAL_FAILURE during ListObjectsV2 operation: x": (
        ServerUnavailableError, "does not answer",
    ),
    "When initiating multiple part upload for key 'y' in bucket 'lake': AWS Error UNKNOWN (HTTP status 502) during "
    "CreateMultipartUpload operation: ": (ServerUnavailableError, "does not answer"),
    "When listing objects under key '' in bucket 'lake': AWS Error UNKNOWN (HTTP status 429) during ListObjectsV2 operation: "
    "Unable to parse ExceptionName: TooManyRequests Message: x": (ResourceExhaustedError, "too often"),
    "When initiating multiple part upload for key 'y' in bucket 'lake': AWS Error UNKNOWN (HTTP status 507) during "
    "CreateMultipartUpload operation: Unable to parse ExceptionName: XMinioStorageFull Message: Storage backend has reached its "
    "minimum free drive threshold.": (StorageError, "is full"),
    "When reading information for key 'x' in bucket 'lake': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: "
    "7, Could not connect to server; Details: Failed to connect to 127.0.0.1:1 after 0 ms": (
        ServerUnavailableError, "does not answer",
    ),
    "When initiating multiple part upload for key 'y' in bucket 'lake': AWS Error NETWORK_CONNECTION during "
    "CreateMultipartUpload operation: curlCode: 6, Could not resolve hostname; Details: Could not resolve host: no.such.host": (
        ServerUnavailableError, "does not answer",
    ),
    "When reading information for key 'x' in bucket 'lake': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: "
    "28, Timeout was reached; Details: Operation too slow.": (ServerUnavailableError, "does not answer"),
}  # fmt: skip


@pytest.mark.parametrize("text", REAL)
def test_what_arrow_says_of_a_store(text):
    expected, words = REAL[text]
    for found in (
        store_error("lake file s3://lake/x", OSError(text)),
        read_error("lake file s3://lake/x", "Parquet file", OSError(text)),
    ):
        assert type(found) is expected
        assert words in str(found)
        assert "s3://lake/x" in str(found)
    written = write_error("lake file s3://lake/x", OSError(text))
    assert type(written) is expected
    assert str(written).endswith("nothing of it was committed")


class PostgresError(Exception):
    """Stands for the errors of PostgreSQL's drivers: with the state that the server answered, or with the driver's words."""

    def __init__(self, text: str, state: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = state


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PostgresError("server closed the connection unexpectedly"), ServerUnavailableError),
        (PostgresError("terminating connection due to administrator command", "57P01"), ServerUnavailableError),
        (PostgresError('password authentication failed for user "x"'), AuthenticationError),
        (PostgresError("permission denied for table iceberg_tables", "42501"), AuthenticationError),
        (PostgresError('database "lake" does not exist'), InvalidPropertyError),
        (PostgresError("too many clients already", "53300"), ResourceExhaustedError),
        (PostgresError("could not extend file: No space left on device", "53100"), ResourceExhaustedError),
        (PostgresError('relation "iceberg_tables" does not exist', "42P01"), StorageError),
    ],
)
def test_what_a_database_server_answers(error, expected):
    from sqlalchemy.exc import OperationalError

    found = catalog_error("load lake table db.t", OperationalError("SELECT 1", {"p": "hidden"}, error))
    assert type(found) is expected
    assert str(error) in str(found)
    assert "hidden" not in str(found)


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_a_database_that_rolled_back_for_another_one_is_tried_again(tmp_path, monkeypatch, state):
    from sqlalchemy.exc import OperationalError

    monkeypatch.setattr(catalog_access, "LOCKED_PAUSE_S", 0.001)
    access = CatalogAccess(
        {"name": "s", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{tmp_path}"}
    )
    left = [OperationalError("UPDATE", {}, PostgresError("could not serialize access", state)) for _ in range(2)]

    def action(_catalog: object) -> str:
        if left:
            raise left.pop()
        return "done"

    assert access.call("x", action) == "done"


@pytest.mark.parametrize(
    ("uri", "package"),
    [("postgresql+psycopg://h/d", "psycopg[binary]"), ("postgresql+psycopg2://h/d", "psycopg2-binary")],
)
def test_a_driver_that_is_absent_is_named_with_what_to_install(uri, package):
    module = package.partition("[")[0].removesuffix("-binary")
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(InvalidPropertyError, match=re.escape(f"pip install '{package}'")):
        CatalogAccess({"type": "sql", "uri": uri, "warehouse": "/w"}).catalog()


def test_a_page_of_a_proxy_and_a_password_are_not_shown(rest):
    rest.status, rest.body = 502, b"<html>" + b"x" * 5000 + b"</html>"
    with pytest.raises(ServerUnavailableError) as caught:
        rest.access.load_table(PATH)
    assert len(str(caught.value)) < 1000
    assert safe_text(ValueError("at postgresql://me:secret@host/db")) == "at postgresql://me:********@host/db"

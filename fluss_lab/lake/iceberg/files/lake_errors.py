"""The errors of file systems, object stores and catalogs, mapped to the classes by which callers act.

Arrow reports a damaged file and a store that does not answer with the same class, ``OSError``; here they are distinguished.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from typing import Any, Final

from fluss_lab.errors import (
    AuthenticationError,
    CorruptDataError,
    FlussError,
    InvalidPropertyError,
    InvalidRequestError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
    UnavailableError,
)
from fluss_lab.model.config.option_secrets import mask_secret

#: What can be done about a damaged file of the lake.
REMEDY: Final = (
    "restore it from a copy. Until then snapshots that do not need the file can be read (`as_of`), and what the cluster still "
    "holds of the log (`changelog`, `seek`); the files of the lake are left as they are"
)
#: SQLite's codes for a file that is none of its own, or damaged; or whose tables are not those of a catalog.
_SQLITE_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
#: SQLite's codes for a change that found no room for its journal or its pages, or could not begin: none of it is in the file.
_SQLITE_UNCHANGED: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
#: Marks of errors that come from a store and not from the bytes of a file.
_STORE: Final = re.compile(r"AWS Error|GCS|Azure|HTTP status|curlCode|Errno|errno|\[Windows error")
#: A question for a file's head is answered without a text: of tokens that have expired by nothing but status 400. What is
#: written without any keys is not signed, and MinIO misses its length before it misses them.
_ACCESS: Final = re.compile(
    r"ACCESS_DENIED|code 15\b|INVALID_ACCESS_KEY|SIGNATURE|HTTP status 40[13]|Forbidden|EXPIRED_?TOKEN|INVALID_?TOKEN"
    r"|TOO_SKEWED|MissingContentLength|HTTP status 400\) during Head",
    re.I,
)
#: A file that was there when it was opened, and is not amid its reading.
_GONE: Final = re.compile(r"AWS Error (NO_SUCH_KEY|RESOURCE_NOT_FOUND)\b|HTTP status 404\) during GetObject")
_FULL: Final = re.compile(r"HTTP status 507|StorageFull|QuotaExceeded|InsufficientStorage", re.I)
_OFTEN: Final = re.compile(r"HTTP status 429|TooManyRequests", re.I)
_LATER: Final = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|THROTTL|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|curlCode|HTTP status 5\d\d"
    r"|timed? ?out|Could ?n.t connect|connection (reset|refused|aborted)",
    re.I,
)
#: Libraries by which fsspec and catalogs reach stores, and the bases of their errors that are no `OSError`.
_LIBRARIES: Final = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("azure.core.exceptions", "AzureError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
#: Words in what these call themselves, or in the code that a service answered.
_NO_ACCESS: Final = re.compile(
    r"Credential|Token|Auth|AccessDenied|Forbidden|UnrecognizedClient|InvalidAccessKey|Signature"
)
_TOO_OFTEN: Final = re.compile(r"Throttl|TooManyRequests|SlowDown|RequestLimitExceeded")
_NO_ANSWER: Final = re.compile(r"Connect|Timeout|TimedOut|ServiceUnavailable|Internal|HTTPClient|ServerDisconnected")
_HTTP_FAILED: Final = 500
#: Connections that a PostgreSQL server refuses have no SQLSTATE, but its words.
_PASSWORD: Final = re.compile(r"authentication failed|no password supplied|no pg_hba.conf entry", re.I)
_NO_DATABASE: Final = re.compile(r'database ".*" does not exist', re.I)
#: Characters of another program's error in a message: it may be a page of HTML.
SAID_MAX: Final = 600


def library_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of the libraries by which stores may be reached, of those that are loaded, and others."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in _LIBRARIES)
    return (*others, *(each for each in found if each is not None))


def is_missing(error: BaseException) -> bool:
    """Return whether an error of reading a file says that it is not there, or not any more."""
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and _GONE.search(str(error)) is not None)


def store_error(what: str, error: BaseException) -> FlussError | None:
    """Return what an error of reading or writing means when it is a store's; None when the file's bytes may be to blame.

    Args:
        what: What was read or written, for the message.
        error: Of Arrow, fsspec, a library below it, or the operating system.
    """
    if isinstance(error, library_errors()):
        return _library_error(f"{what}: the store", error)
    if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
        return None
    text = str(error)
    if isinstance(error, PermissionError) or _ACCESS.search(text):
        return AuthenticationError(f"{what}: the store refused access: {error}; check the credentials and permissions")
    if _STORE.search(text) and _FULL.search(text):
        return StorageError(f"{what}: the store is full: {error}; free space there and try again")
    if _STORE.search(text) and _OFTEN.search(text):
        return ResourceExhaustedError(f"{what}: the store is asked too often: {error}; try again later")
    if "NO_SUCH_BUCKET" in text:
        return StorageError(
            f"{what}: the store has no such bucket: {error}; make it, or correct the warehouse or endpoint"
        )
    if isinstance(error, ConnectionError | TimeoutError) or (_STORE.search(text) and _LATER.search(text)):
        return ServerUnavailableError(f"{what}: the store does not answer: {error}; try again")
    if error.errno is not None or _STORE.search(text):
        return StorageError(f"{what}: the store failed: {error}; mend the storage and try again")
    return None


class UnwrittenError(ServerUnavailableError):
    """A file that a commit needs could not be written, and may be later. Nothing was committed."""


def write_error(what: str, error: Exception) -> FlussError:
    """Return the error for a file, or files, that could not be written; nothing refers to them.

    Args:
        what: What was to be written, for the message.
        error: An `OSError`, or one of `library_errors`.
    """
    found = store_error(what, error)
    is_remote = not isinstance(error, OSError) or error.errno is None
    says_why = (AuthenticationError, ResourceExhaustedError, StorageError)
    if isinstance(found, UnavailableError) or (isinstance(found, says_why) and is_remote):
        return type(found)(f"{found}; nothing of it was committed")
    return StorageError(f"{what}: {error}; free space or mend the storage, nothing of it was committed")


def read_error(what: str, expected: str, error: BaseException) -> FlussError:
    """Return the error for a file that is there but could not be read as what it should be.

    Args:
        what: The file, for the message.
        expected: What it should be.
        error: What reading it ended in.
    """
    if (found := store_error(what, error)) is not None:
        return found
    kind = "" if isinstance(error, OSError | ValueError) and str(error) else f"{type(error).__name__}: "
    return CorruptDataError(f"{what}: not the {expected} that it should be: {kind}{error}; {REMEDY}")


def catalog_error(what: str, error: Exception) -> FlussError | None:
    """Return what an error of a catalog's own machinery means: of SQLAlchemy, requests, botocore; None for any other.

    Args:
        what: What the catalog was asked for.
        error: What it ended in.
    """
    from requests.exceptions import RequestException
    from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

    if isinstance(error, UnicodeDecodeError):
        return CorruptDataError(
            f"{what}: the catalog's answer is no text: {error}; its file is damaged, restore it from a copy"
        )
    if isinstance(error, library_errors()):
        return _library_error(f"{what}: the catalog", error)
    if isinstance(error, RequestException):
        return ServerUnavailableError(
            f"{what}: the catalog does not answer: {safe_text(error)}; try again when it runs"
        )
    if isinstance(error, DBAPIError):
        return _database_error(what, database_cause(error))
    if isinstance(error, ArgumentError):
        return InvalidPropertyError(f"{what}: the catalog's properties describe no database: {safe_text(error)}")
    if isinstance(error, SQLAlchemyError):
        return StorageError(f"{what}: the catalog's database failed: {safe_text(error)}")
    return _rest_error(what, error)


def unchanged_error(what: str, error: Exception) -> StorageError | None:
    """Return the error for a commit that a catalog's SQLite file certainly did not take; None: it may have, or it is none.

    Args:
        what: The change, for the message.
        error: What it ended in.
    """
    cause = database_cause(error)
    if sqlite_code(cause) not in _SQLITE_UNCHANGED:
        return None
    return StorageError(
        f"{what}: the catalog's SQLite file cannot be written: {cause}; nothing was committed: mend the storage and try again"
    )


def _library_error(who: str, error: Any) -> FlussError:
    """Return what an error of botocore, aiohttp, ... means, by its class and by what the service answered."""
    answer = getattr(error, "response", None)
    answer = answer if isinstance(answer, dict) else {}
    kind = str(answer.get("Error", {}).get("Code") or type(error).__name__)
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") or getattr(error, "status", None) or 0
    if _NO_ACCESS.search(kind) or status in {401, 403}:
        return AuthenticationError(f"{who} refused access ({kind}): {error}; check the credentials and permissions")
    if _TOO_OFTEN.search(kind) or status == 429:
        return ResourceExhaustedError(f"{who} is asked too often ({kind}): {error}; try again later")
    if _NO_ANSWER.search(kind) or status >= _HTTP_FAILED:
        return ServerUnavailableError(f"{who} does not answer ({kind}): {error}; try again when it runs")
    return StorageError(f"{who} failed ({kind}): {error}; mend the storage and try again")


def database_cause(error: BaseException) -> BaseException:
    """Return the error of the database's driver that SQLAlchemy wrapped; any other as it is."""
    from sqlalchemy.exc import DBAPIError

    return (error.orig or error) if isinstance(error, DBAPIError) else error


def sqlite_code(cause: BaseException) -> int | None:
    """Return the primary code of an error of SQLite's; None: it is none, or has none."""
    code = getattr(cause, "sqlite_errorcode", None) if isinstance(cause, sqlite3.Error) else None
    return None if code is None else code & 0xFF


def sql_state(cause: BaseException) -> str:
    """Return the SQLSTATE that a database answered with, as drivers of PostgreSQL keep it; empty: it answered nothing."""
    return str(getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or "")


def _database_error(what: str, cause: BaseException) -> FlussError:
    if not isinstance(cause, sqlite3.Error):
        return _server_error(what, sql_state(cause), safe_text(cause))
    # Without a code: text that is none.
    if (code := sqlite_code(cause)) is None or code in _SQLITE_DAMAGED:
        return CorruptDataError(
            f"{what}: the catalog's SQLite file is damaged: {cause}; restore it from a copy. The tables' own files are left "
            "as they are"
        )
    return StorageError(f"{what}: the catalog's SQLite file cannot be used: {cause}; mend the storage and try again")


def _server_error(what: str, state: str, text: str) -> FlussError:
    """Return what an error of a database server means, by the class of its SQLSTATE."""
    who = f"{what}: the catalog's database"
    if state.startswith("28") or state == "42501" or (not state and _PASSWORD.search(text)):
        return AuthenticationError(f"{who} refused access: {text}; check user, password and privileges")
    if state.startswith("53"):
        return ResourceExhaustedError(f"{who} has no room for it: {text}; try again later")
    if state.startswith("3D") or (not state and _NO_DATABASE.search(text)):
        return InvalidPropertyError(f"{who} is not there: {text}; make it, or correct the catalog's uri")
    if state.startswith(("22", "42")):
        return StorageError(f"{who} refused the statement: {text}; its tables are not those of a catalog")
    return ServerUnavailableError(f"{who} does not answer: {text}; try again when it runs")


def safe_text(error: BaseException) -> str:
    """Return an error's text as messages have it: without passwords in addresses, and no whole page of a proxy."""
    text = " ".join(mask_secret("", str(error)).split())
    return text if len(text) <= SAID_MAX else f"{text[:SAID_MAX]}..."


def _rest_error(what: str, error: Exception) -> FlussError | None:
    from pyiceberg import exceptions

    if isinstance(error, exceptions.CommitFailedException | exceptions.CommitStateUnknownException):
        return None
    if isinstance(error, exceptions.AuthorizationExpiredError):
        return AuthenticationError(f"{what}: the catalog's credentials have expired: {safe_text(error)}")
    if isinstance(error, exceptions.TooManyRequestsError):
        return ResourceExhaustedError(f"{what}: the catalog is asked too often: {safe_text(error)}; try again later")
    if isinstance(error, exceptions.BadRequestError):
        return InvalidRequestError(f"{what}: the catalog refused the request: {safe_text(error)}")
    if isinstance(error, exceptions.RESTError):
        return ServerUnavailableError(
            f"{what}: the catalog failed: {type(error).__name__}: {safe_text(error)}; try again"
        )
    return None

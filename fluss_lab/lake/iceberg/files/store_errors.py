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

#: What can be done about a damaged metadata file.
REMEDY: Final = (
    "restore it from a copy. Until then snapshots that do not need the file can be read (`as_of`), and what the cluster still "
    "holds of the log (`changelog`, `seek`); the files of the lake are left as they are"
)
#: SQLite's codes for a file that is none of its own, or damaged; or whose tables are not those of a catalog.
_SQLITE_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
#: Marks of errors that come from a store and not from the bytes of a file.
_STORE: Final = re.compile(r"AWS Error|GCS|Azure|HTTP status|curlCode|Errno|errno|\[Windows error")
_ACCESS: Final = re.compile(r"ACCESS_DENIED|code 15\b|INVALID_ACCESS_KEY|SIGNATURE|HTTP status 40[13]|Forbidden", re.I)
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


def library_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of the libraries by which stores may be reached, of those that are loaded, and others."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in _LIBRARIES)
    return (*others, *(each for each in found if each is not None))


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
    if isinstance(error, ConnectionError | TimeoutError) or (_STORE.search(text) and _LATER.search(text)):
        return ServerUnavailableError(f"{what}: the store does not answer: {error}; try again")
    if error.errno is not None or _STORE.search(text):
        return StorageError(f"{what}: the store failed: {error}; mend the storage and try again")
    return None


def write_error(what: str, error: Exception) -> FlussError:
    """Return the error for a file, or files, that could not be written; nothing refers to them.

    Args:
        what: What was to be written, for the message.
        error: An `OSError`, or one of `library_errors`.
    """
    found = store_error(what, error)
    is_remote = not isinstance(error, OSError) or error.errno is None
    if isinstance(found, UnavailableError) or (isinstance(found, AuthenticationError) and is_remote):
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
    return CorruptDataError(f"{what}: not the {expected} that it should be: {kind}{error}")


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
        return ServerUnavailableError(f"{what}: the catalog does not answer: {error}; try again when it runs")
    if isinstance(error, DBAPIError):
        return _database_error(what, error.orig or error)
    if isinstance(error, ArgumentError):
        return InvalidPropertyError(f"{what}: the catalog's properties describe no database: {error}")
    if isinstance(error, SQLAlchemyError):
        return StorageError(f"{what}: the catalog's database failed: {error}")
    return _rest_error(what, error)


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


def _database_error(what: str, cause: BaseException) -> FlussError:
    if not isinstance(cause, sqlite3.Error):
        return ServerUnavailableError(
            f"{what}: the catalog's database does not answer: {cause}; try again when it runs"
        )
    # Without a code: text that is none.
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if (code & 0xFF) in _SQLITE_DAMAGED:
        return CorruptDataError(
            f"{what}: the catalog's SQLite file is damaged: {cause}; restore it from a copy. The tables' own files are left "
            "as they are"
        )
    return StorageError(f"{what}: the catalog's SQLite file cannot be used: {cause}; mend the storage and try again")


def _rest_error(what: str, error: Exception) -> FlussError | None:
    from pyiceberg import exceptions

    if isinstance(error, exceptions.CommitFailedException | exceptions.CommitStateUnknownException):
        return None
    if isinstance(error, exceptions.AuthorizationExpiredError):
        return AuthenticationError(f"{what}: the catalog's credentials have expired: {error}")
    if isinstance(error, exceptions.TooManyRequestsError):
        return ResourceExhaustedError(f"{what}: the catalog is asked too often: {error}; try again later")
    if isinstance(error, exceptions.BadRequestError):
        return InvalidRequestError(f"{what}: the catalog refused the request: {error}")
    if isinstance(error, exceptions.RESTError):
        return ServerUnavailableError(f"{what}: the catalog failed: {type(error).__name__}: {error}; try again")
    return None

"""What errors of file systems, object stores and catalogs mean: the house's class for each, by which callers act.

Arrow reports a damaged file and a store that does not answer with the same class, ``OSError``; here they are told apart.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from fluss_lab.errors import (
    AuthenticationError,
    CorruptDataError,
    FlussError,
    InvalidPropertyError,
    InvalidRequestError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
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


def store_error(what: str, error: OSError) -> FlussError | None:
    """Return what an error of reading or writing means when it is a store's; None when the file's bytes may be to blame.

    Args:
        what: What was read or written, for the message.
        error: Of Arrow, fsspec or the operating system.
    """
    if isinstance(error, FileNotFoundError):
        return None
    text = str(error)
    if isinstance(error, PermissionError) or _ACCESS.search(text):
        return AuthenticationError(f"{what}: the store refused access: {error}; check the credentials and permissions")
    if isinstance(error, ConnectionError | TimeoutError) or (_STORE.search(text) and _LATER.search(text)):
        return ServerUnavailableError(f"{what}: the store does not answer: {error}; try again")
    if error.errno is not None or _STORE.search(text):
        return StorageError(f"{what}: the store failed: {error}; mend the storage and try again")
    return None


def unread(what: str, expected: str, error: BaseException) -> FlussError:
    """Return the error for a file that is there but could not be read as what it should be.

    Args:
        what: The file, for the message.
        expected: What it should be.
        error: What reading it ended in.
    """
    if isinstance(error, OSError) and (found := store_error(what, error)) is not None:
        return found
    kind = "" if isinstance(error, OSError | ValueError) and str(error) else f"{type(error).__name__}: "
    return CorruptDataError(f"{what}: not the {expected} that it should be: {kind}{error}")


def catalog_error(what: str, error: Exception) -> FlussError | None:
    """Return what an error of a catalog's own machinery means: of SQLAlchemy, of requests; None for any other.

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
    if isinstance(error, RequestException):
        return ServerUnavailableError(f"{what}: the catalog does not answer: {error}; try again when it runs")
    if isinstance(error, DBAPIError):
        return _database_error(what, error.orig or error)
    if isinstance(error, ArgumentError):
        return InvalidPropertyError(f"{what}: the catalog's properties describe no database: {error}")
    if isinstance(error, SQLAlchemyError):
        return StorageError(f"{what}: the catalog's database failed: {error}")
    return _rest_error(what, error)


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

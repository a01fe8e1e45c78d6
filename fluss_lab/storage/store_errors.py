"""The errors of remote storage, mapped to the classes by which callers act.

Failures of a store are `OSError` and its kinds, as `fluss_lab.storage.file_store` names them; `store_failure` makes the
house's of them.
"""

from __future__ import annotations

import errno

from fluss_lab.errors import (
    AuthenticationError,
    FlussError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
)


def store_failure(what: str, error: OSError) -> FlussError:
    """Return the house's error for a store's, with the store's words, which have place, endpoint and remedy but no secret.

    A local file system's is a `StorageError`, as it always was.

    Args:
        what: What could not be done.
    """
    text = f"{what}: {reason_of(error)}"
    if not isinstance(error, StoreError):
        return StorageError(text)
    if isinstance(error, PermissionError):
        return AuthenticationError(text)
    if isinstance(error, ConnectionError | TimeoutError):
        return ServerUnavailableError(text)
    if isinstance(error, BlockingIOError) or error.errno == errno.ENOSPC:
        return ResourceExhaustedError(text)
    return StorageError(text)


def reason_of(error: OSError) -> str:
    """Return what an error says in words, with the place where it is an object."""
    return f"{error.strerror}: {error.filename}" if isinstance(error, StoreError) else str(error)


class StoreError(OSError):
    """A failure of an object store; beside it, it is of one of the kinds that the module names."""


class ObjectAbsentError(StoreError, FileNotFoundError):
    """It is not there."""


class ObjectExistsError(StoreError, FileExistsError):
    """Another writer was there first."""


class AccessRefusedError(StoreError, PermissionError):
    """Credentials are missing, wrong, or not enough."""


class StoreUnreachableError(StoreError, ConnectionError):
    """No answer, or none that says anything; whether a write was done is not known."""


class StoreBusyError(StoreError, BlockingIOError):
    """The store asks to slow down."""

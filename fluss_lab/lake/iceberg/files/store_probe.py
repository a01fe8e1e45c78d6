"""A trial of the store that holds a lake's files: a small object written, read and deleted."""

from __future__ import annotations

import re
import secrets
import socket
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.errors import FlussError, StorageError
from fluss_lab.lake.iceberg.files.file_locations import endpoint_of
from fluss_lab.lake.iceberg.files.lake_errors import library_errors, store_error

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_PREFIX: Final = ".fluss-lab-trial-"
#: More than a store's words for why it refuses to be read: into less, Arrow reads no more of these than that it failed.
_TRIAL_BYTES: Final = 4096
#: The names of trial objects, and what a store calls a request.
_CHANGING: Final = re.compile(r"\b[0-9A-F]{16,}\b|\b[0-9a-f]{32}\b")


def try_store(io: FileIO, location: str) -> None:
    """Write a small object under a location, read it and delete it.

    Raises:
        AuthenticationError: The store refused one of the three.
        ServerUnavailableError: It does not answer.
        StorageError: There is no such bucket, or the store failed otherwise.

    Cost: three requests or so.
    """
    place, content = f"{location.rstrip('/')}/{_PREFIX}{uuid.uuid4().hex}", secrets.token_bytes(_TRIAL_BYTES)
    steps: dict[str, Callable[[], object]] = {
        "written": lambda: _write(io, place, content),
        "read": lambda: _read(io, place, content),
        "deleted": lambda: io.delete(place),
    }
    failed: FlussError | None = None
    for step, work in steps.items():
        if failed is not None and step == "read":
            continue
        try:
            work()
        except library_errors(FlussError, OSError, pa.ArrowException) as error:
            failed = failed or _error(io, place, step, error)
    if failed is not None:
        raise failed


def _write(io: FileIO, place: str, content: bytes) -> None:
    with io.new_output(place).create(overwrite=True) as stream:
        stream.write(content)


def _read(io: FileIO, place: str, content: bytes) -> None:
    with io.new_input(place).open() as stream:
        found = stream.read()
    if found != content:
        raise StorageError(
            f"the lake's store: object {place}: expected the {len(content)} bytes written, found {len(found)} others"
        )


def _error(io: FileIO, place: str, step: str, error: Exception) -> FlussError:
    """Return the error in words that are the same for each trial from one machine."""
    endpoint = endpoint_of(io.properties, place)
    # What the house makes of an error of writing speaks of commits.
    error = error.__cause__ if isinstance(error, FlussError) and isinstance(error.__cause__, OSError) else error
    what = (
        f"the lake's store{f' at {endpoint}' if endpoint else ''}: {place} cannot be {step} from {socket.gethostname()}"
    )
    found = error if isinstance(error, FlussError) else store_error(what, error) or StorageError(f"{what}: {error}")
    text = (
        f"{found}; expected a bucket that exists, and credentials by which objects under the warehouse are written, read and "
        "deleted: make the bucket, or correct the options datalake.iceberg.warehouse and datalake.iceberg.s3.* (endpoint, "
        "region, keys)"
    )
    return type(found)(_CHANGING.sub("...", text))

"""Object stores as file stores, by obstore, the Python binding of Rust's object_store: S3 and what speaks its protocol.

Chosen for conditional puts (``If-Match``, ``If-None-Match``), which pyarrow's and fsspec's file systems do not have and
without which two servers could replace each other's manifests; it retries with back-off, and needs no other package. Only
what uses an object store imports this module: obstore is 20 MB of library.

Google's and Azure's stores come with the same library and are taken by their schemes, with credentials from the
environment; they are not tested.

* A file up to `_SINGLE_BYTES_MAX` is one conditional put: it is whole or not there, is never written over, and a server that
  is killed leaves nothing. Only larger ones, and large ones of unique names, go in parts. What a killed server leaves of those
  no listing shows and no reader sees; the store removes it, by its own rule (`AbortIncompleteMultipartUpload`): the library cannot
  list it.
* When the answer of a put is lost, what is there is read back and compared: the same bytes were put by this call.
* The library's errors have whole responses in them. What is said of one here is its status and code, the endpoint, and the
  place; never a key or a token.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore as Library
from obstore.store import S3Store, from_url

from fluss_lab.model.config import options as opt
from fluss_lab.storage.file_store import ABSENT, Content, FileReader, FileWriter, ObjectPath, Version
from fluss_lab.storage.store_errors import (
    AccessRefusedError,
    ObjectAbsentError,
    ObjectExistsError,
    StoreBusyError,
    StoreError,
    StoreUnreachableError,
)

T = TypeVar("T")

#: A new file up to this size is one put. Key-value snapshots make files of 64 MB and a chunk; at 3.2 MB/s it is sent within the
#: request's default time-out of 30 s.
_SINGLE_BYTES_MAX: Final = 96 << 20
#: Of unique names, from this size on in parts of this size, four at once: a part that fails is sent again alone.
_PART_BYTES: Final = 16 << 20
_PARTS_AT_ONCE: Final = 4
#: What is fetched at once of a file that is read on and on: the first request, doubled up to the last.
_AHEAD_FIRST_BYTES: Final = 1 << 20
_AHEAD_MAX_BYTES: Final = 8 << 20
#: Pauses between retries grow from the first to the last, with jitter.
_BACKOFF_FIRST_MS: Final = 100
_BACKOFF_MAX_MS: Final = 5_000

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_KIND: Final = re.compile(r"kind: (\w{1,32})")
_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_FULL: Final = 507
_RANGE_PAST_END: Final = 416


def open_store(scheme: str, bucket: str, options: Mapping[str, str]) -> ObjectFiles:
    """Return a bucket as a file store; nothing is asked of it yet.

    Args:
        scheme: ``s3``; or ``gs``, ``az``, ``abfs``, ``abfss``, reached by the environment's credentials.
        options: Cluster options: those of ``remote.s3.*`` count.
    """
    location = f"{scheme}://{bucket}"
    timing: dict[str, Any] = {
        "client_options": {
            "allow_http": opt.REMOTE_S3_ALLOW_HTTP.of(options),
            "connect_timeout": _span(opt.REMOTE_S3_CONNECT_TIMEOUT.of(options)),
            "timeout": _span(opt.REMOTE_S3_REQUEST_TIMEOUT.of(options)),
        },
        "retry_config": {
            "max_retries": opt.REMOTE_S3_RETRIES_MAX.of(options),
            "retry_timeout": _span(opt.REMOTE_S3_RETRY_TIME_MAX.of(options)),
            "backoff": {
                "init_backoff": _span(_BACKOFF_FIRST_MS), "max_backoff": _span(_BACKOFF_MAX_MS), "base": 2,
            },
        },
    }  # fmt: skip
    if scheme != "s3":
        return ObjectFiles(from_url(location, **timing), location, f"the endpoint of {scheme}")
    endpoint = opt.REMOTE_S3_ENDPOINT.of(options)
    given: dict[str, Any] = {
        "endpoint": endpoint,
        "region": opt.REMOTE_S3_REGION.of(options),
        "access_key_id": opt.REMOTE_S3_ACCESS_KEY_ID.of(options),
        "secret_access_key": opt.REMOTE_S3_SECRET_ACCESS_KEY.of(options),
        "session_token": opt.REMOTE_S3_SESSION_TOKEN.of(options),
    }
    given = {key: value for key, value in given.items() if value}
    store = S3Store(
        bucket, virtual_hosted_style_request=opt.REMOTE_S3_VIRTUAL_ADDRESSING.of(options), **given, **timing
    )
    return ObjectFiles(store, location, endpoint or "its own endpoint")


def _span(duration_ms: int) -> timedelta:
    return timedelta(milliseconds=duration_ms)


class ObjectFiles:
    """The files of a bucket: see `FileStore`. Folders are the parts of keys before a slash.

    Args:
        library: The bucket, as obstore knows it.
        location: As places in it begin: ``s3://bucket``.
        endpoint: Where it is reached, for messages.
    """

    def __init__(self, library: Library, location: str, endpoint: str) -> None:
        self._library = library
        self.location = location
        self._endpoint = endpoint

    def __repr__(self) -> str:
        return f"<ObjectFiles {self.location}>"

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, place: ObjectPath) -> bytes:
        """See `FileStore.read`."""
        return self.load(place)[0]

    def load(self, place: ObjectPath) -> tuple[bytes, Version]:
        """See `FileStore.load`."""

        def load() -> tuple[bytes, Version]:
            found = obstore.get(self._library, place.key)
            return bytes(found.bytes()), Version(found.meta["e_tag"], found.meta["version"])

        return self._run(place, load)

    def open(self, place: ObjectPath, size: int) -> FileReader:
        """See `FileStore.open`."""
        return _ObjectReader(self, place, size)

    def read_range(self, place: ObjectPath, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of a file, fewer where it ends before: one request."""
        if start >= stop:
            return b""
        try:
            return bytes(self._run(place, lambda: obstore.get_range(self._library, place.key, start=start, end=stop)))
        except StoreError as error:
            if error.errno == errno.ERANGE:
                return b""
            raise

    def size(self, place: ObjectPath) -> int | None:
        """See `FileStore.size`."""
        try:
            return int(self._run(place, lambda: obstore.head(self._library, place.key)["size"]))
        except FileNotFoundError:
            return None

    def names(self, folder: ObjectPath) -> list[str]:
        """See `FileStore.names`."""
        found = self._run(folder, lambda: obstore.list_with_delimiter(self._library, folder.key or None))
        keys = [*(each["path"] for each in found["objects"]), *found["common_prefixes"]]
        return sorted(str(key).rstrip("/").rpartition("/")[2] for key in keys)

    def is_folder(self, place: ObjectPath) -> bool:
        """See `FileStore.is_folder`."""
        self._run(place, lambda: obstore.list_with_delimiter(self._library, place.key or None))
        return True

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, place: ObjectPath, data: bytes, expected: Version | None = None) -> Version:
        """See `FileStore.put`."""
        mode: Any = "overwrite"
        if expected is not None:
            found = zip(("e_tag", "version"), (expected.e_tag, expected.number), strict=True)
            mode = {key: value for key, value in found if value is not None} or "create"
        try:
            return self._put(place, data, mode)
        except (StoreUnreachableError, StoreBusyError, ObjectExistsError):
            if expected is None:
                raise
            if (version := self._landed_version(place, data)) is None:
                raise
            return version

    def _put(self, place: ObjectPath, data: bytes, mode: Any) -> Version:
        result = self._run(place, lambda: obstore.put(self._library, place.key, data, mode=mode, use_multipart=False))
        return Version(result["e_tag"], result["version"])

    def _landed_version(self, place: ObjectPath, data: bytes) -> Version | None:
        """Return the version of a content that was put without an answer; None when something else is there, or nothing."""
        try:
            found, version = self.load(place)
        except FileNotFoundError:
            return None
        return version if found == data else None

    @contextmanager
    def create(self, place: ObjectPath, *, is_unique: bool = False) -> Iterator[FileWriter]:
        """See `FileStore.create`."""
        draft = _Draft([])
        yield draft
        size = sum(len(each) for each in draft.pieces)
        if size <= (_PART_BYTES if is_unique else _SINGLE_BYTES_MAX):
            self.put(place, b"".join(draft.pieces), ABSENT)
            return
        if not is_unique and self.size(place) is not None:
            raise ObjectExistsError(errno.EEXIST, f"a file of that name is there ({self._endpoint})", str(place))
        self._run(place, lambda: obstore.put(
            self._library, place.key, iter(draft.pieces), use_multipart=True, chunk_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        ))  # fmt: skip

    def make_folder(self, folder: ObjectPath, *, is_new: bool = False) -> None:
        """Do nothing: its first file makes it."""

    def settle(self, folder: ObjectPath) -> None:
        """Do nothing: what was answered is durable."""

    def rename(self, place: ObjectPath, name: str) -> None:
        """See `FileStore.rename`."""
        self.put(place.with_name(name), self.read(place))
        self.remove(place)

    def remove(self, place: ObjectPath) -> None:
        """See `FileStore.remove`."""
        self._delete(place, [place.key])

    def remove_folder(self, folder: ObjectPath) -> None:
        """See `FileStore.remove_folder`."""

        def keys() -> list[str]:
            return [each["path"] for some in obstore.list(self._library, folder.key) for each in some]

        self._delete(folder, self._run(folder, keys))

    def _delete(self, place: ObjectPath, keys: list[str]) -> None:
        if not keys:
            return
        try:
            self._run(place, lambda: obstore.delete(self._library, keys))
        except FileNotFoundError:
            if len(keys) > 1:  # which of them is not known: each by itself
                for key in keys:
                    self._delete(ObjectPath(self, key), [key])

    # -- failures ------------------------------------------------------------------------------------------------------

    def _run(self, place: ObjectPath, call: Callable[[], T]) -> T:
        """Return what the library returns.

        Raises:
            OSError: As the module of the interface says.
        """
        try:
            return call()
        except (BaseError, FileNotFoundError) as error:
            raise self._failure(place, error) from None

    def _failure(self, place: ObjectPath, error: Exception) -> OSError:
        text, where = str(error), f"({self._endpoint})"
        code = found[1] if (found := _CODE.search(text)) else ""
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        said = " ".join(filter(None, [f"HTTP {status}" if status else "", code])) or type(error).__name__
        if code == "NoSuchBucket":
            return StoreError(
                errno.ENODEV, f"the bucket is not there {where}; make it, or mend remote.data.dir", str(place)
            )
        if isinstance(error, FileNotFoundError):
            return ObjectAbsentError(errno.ENOENT, f"no such object {where}", str(place))
        if isinstance(error, AlreadyExistsError | PreconditionError):
            return ObjectExistsError(errno.EEXIST, f"another writer was there first {where}", str(place))
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            remedy = "check remote.s3.access-key-id, its secret, and what it may do in the bucket"
            return AccessRefusedError(errno.EACCES, f"access refused, {said} {where}; {remedy}", str(place))
        if status == _FULL or code in {"XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"}:
            return StoreError(errno.ENOSPC, f"the store is full, {said} {where}", str(place))
        if status in {_TOO_MANY, _UNAVAILABLE}:
            return StoreBusyError(errno.EAGAIN, f"the store is too busy, {said} {where}; try again later", str(place))
        if status == _RANGE_PAST_END or "StartTooLarge" in text:
            return StoreError(errno.ERANGE, f"the file ends before {where}", str(place))
        if status and status < _UNAVAILABLE - 3:
            return StoreError(errno.EREMOTEIO, f"the store refused the request, {said} {where}", str(place))
        kind = f" ({found[1].lower()})" if not status and (found := _KIND.search(text)) else f", {said}"
        return StoreUnreachableError(
            errno.EHOSTUNREACH,
            f"the store does not answer{kind} {where}; check remote.s3.endpoint, or try again",
            str(place),
        )


@dataclass(slots=True)
class _Draft:
    """A new file in memory: a store takes it whole."""

    pieces: list[bytes]

    def write(self, data: Content) -> None:
        if len(view := memoryview(data)):
            self.pieces.append(bytes(view))


class _ObjectReader:
    """Reads ranges; what is read on and on is fetched ahead, so that many blocks cost few requests."""

    def __init__(self, files: ObjectFiles, place: ObjectPath, size: int) -> None:
        self._files, self._place, self._size = files, place, size
        self._start, self._held = 0, b""
        self._ahead_bytes = _AHEAD_FIRST_BYTES

    def read(self, start: int, stop: int, until: int) -> bytes:
        end = self._start + len(self._held)
        if not self._start <= start <= stop <= end:
            self._fetch(start, stop, min(until, self._size), end)
        at = start - self._start
        return self._held[at : at + stop - start]

    def _fetch(self, start: int, stop: int, until: int, end: int) -> None:
        # A block that begins in what is held is fetched only from where that ends.
        kept = self._held[start - self._start :] if self._start <= start < end else b""
        if start > end or start < self._start:
            self._ahead_bytes = _AHEAD_FIRST_BYTES
        first = start + len(kept)
        last = max(stop, min(until, first + self._ahead_bytes))
        self._held = kept + self._files.read_range(self._place, first, last)
        self._start = start
        self._ahead_bytes = min(2 * self._ahead_bytes, _AHEAD_MAX_BYTES)

    def close(self) -> None:
        self._held = b""

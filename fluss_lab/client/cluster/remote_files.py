"""Remote storage as clients reach it: paths as they are, object stores by what the servers answer, kept in memory only.

As Apache Fluss's clients do, a client asks the coordinator by an authenticated call (``GetFileSystemSecurityToken``) how the
store is reached and with which credentials, the first time that it is to read there. The answer is used until it expires or
the store refuses it; it is in no repr, message or log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab.errors import UnsupportedError
from fluss_lab.model.config import options as opt
from fluss_lab.model.json_codec import decode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.storage.file_store import ObjectPath, Place
from fluss_lab.storage.store_location import location_of, place_of

_KEYS: Final = {option.key for option in opt.REMOTE_S3_OPTIONS}


class Credentials(msgspec.Struct, frozen=True):
    """What a token of the servers holds, in Apache Fluss's names; all empty: the client's own environment has it."""

    access_key_id: str = ""
    access_key_secret: str = ""
    security_token: str = ""

    def __repr__(self) -> str:
        return "<Credentials>"

    def options(self) -> dict[str, str]:
        """Return them as cluster options."""
        values = (self.access_key_id, self.access_key_secret, self.security_token)
        return {option.key: value for option, value in zip(opt.REMOTE_S3_SECRETS, values, strict=True) if value}


class RemoteFiles:
    """The places of remote storage as this process reaches them. Safe for threads.

    Args:
        coordinator: Returns the coordinator.
    """

    def __init__(self, coordinator: Callable[[], CoordinatorGateway]) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._root: ObjectPath | None = None
        self._expires_ms: int | None = None

    def place(self, location: str) -> Place:
        """Return the place at a location that a server named.

        Raises:
            InvalidPropertyError: It is no location.
            UnsupportedError: The servers say another store than they name.
            FlussError: The coordinator does not answer.
        """
        found = location_of(location, opt.REMOTE_DATA_DIR.key)
        if isinstance(found, Path):
            return found
        bucket = f"{found.scheme}://{found.bucket}"
        with self._lock:
            is_over = self._expires_ms is not None and time.time() * 1000 >= self._expires_ms
            if self._root is None or is_over or self._root.store.location != bucket:
                self._root = self._reach(location, found.scheme)
            return ObjectPath(self._root.store, found.prefix)

    def renew(self, place: Place) -> bool:
        """Forget by which credentials a place was reached, which the store refused; return whether others may be had.

        False: it is a path, and needs none.
        """
        if not isinstance(place, ObjectPath):
            return False
        with self._lock:
            if self._root is not None and self._root.store is place.store:
                self._root = None
            return True

    def _reach(self, location: str, scheme: str) -> ObjectPath:
        answer = self._coordinator().get_file_system_security_token(pb.GetFileSystemSecurityTokenRequest())
        if answer.schema != scheme:
            raise UnsupportedError(
                f"{location}: expected a token for {scheme}, found one for {answer.schema or 'no store'}"
            )
        options = {each.key: each.value for each in answer.addition_info if each.key in _KEYS}
        if answer.token:
            options |= decode(Credentials, answer.token, "the token for remote storage", shown=False).options()
        self._expires_ms = answer.expiration_time if answer.HasField("expiration_time") else None
        place = place_of(location, options)
        assert isinstance(place, ObjectPath)
        return place

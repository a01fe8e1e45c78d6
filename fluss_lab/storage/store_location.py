"""Locations of remote storage, and what they mean: a path, ``file:`` with one, or scheme, bucket and prefix of an object store.

The only module of remote storage that looks at schemes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.storage.file_store import FileStore, ObjectPath, P, Place
from fluss_lab.storage.local_store import LocalStore

_SCHEMES: Final = ("s3", "gs", "az", "abfs", "abfss")
_LOCAL: Final = LocalStore()


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A place in an object store, by name.

    Attributes:
        scheme: Of the store.
        bucket: Or container, as the scheme has it.
        prefix: What all keys begin with; without slashes at its ends, and not empty.
    """

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}"


def location_of(given: str, name: str) -> Path | StoreLocation:
    """Return what a location means.

    Args:
        given: A path, ``file:`` and a path, or ``s3://bucket/prefix``.
        name: The option that it is the value of, for messages.

    Raises:
        InvalidPropertyError: It is none of them.
    """
    scheme, host, path, query, fragment = urlsplit(given)
    # One letter is no scheme; a path may contain a colon, but not before two slashes.
    if "://" not in given and scheme != "file":
        try:
            return Path(given).expanduser()
        except RuntimeError as error:
            raise _invalid(name, given) from error  # of no user
    if scheme == "file":
        if host not in {"", "localhost"} or not path.startswith("/"):
            raise _invalid(name, given)
        return Path(unquote(path))
    prefix = path.strip("/")
    is_plain = all(part not in {"", ".", ".."} for part in prefix.split("/")) and not query and not fragment
    has_secret = ":" in host or ("@" in host and not scheme.startswith("abfs"))
    if scheme not in _SCHEMES or not host or not is_plain or has_secret or not prefix.isprintable():
        raise _invalid(name, given)
    return StoreLocation(scheme, host, prefix)


def _invalid(name: str, given: str) -> InvalidPropertyError:
    # What comes before an @ may be a password.
    shown = given if "@" not in given else f"...@{given.rpartition('@')[2]}"
    return InvalidPropertyError(
        f"property {name!r}: expected a path, file:///path, or s3://bucket/prefix (also {', '.join(_SCHEMES[1:])}; "
        f"credentials go into remote.s3.*), found {shown!r}"
    )


def place_of(location: str, options: Mapping[str, str]) -> Place:
    """Return the place at a location that `location_of` has taken: of an object store, with a connection pool of its own.

    Args:
        options: Of the cluster: how the store is reached.
    """
    found = location_of(location, "remote.data.dir")
    if isinstance(found, Path):
        return found
    # Only where there is one: obstore is not among what starts a server on a laptop.
    from fluss_lab.storage.object_store import open_store

    return ObjectPath(open_store(found.scheme, found.bucket, options), found.prefix)


def local_place(location: str) -> Place:
    """Return the place at a location without options: a path, or an object store by the environment's credentials."""
    return place_of(location, {})


def store_of(place: P) -> FileStore[P]:
    """Return the store that a place is in."""
    return cast(FileStore[P], place.store if isinstance(place, ObjectPath) else _LOCAL)

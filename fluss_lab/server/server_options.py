"""The options of a server: which there are, and how they are split from those of a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.config_chain import resolve, text_of
from fluss_lab.model.config.lake_options import LAKE_PREFIX, check_lake_options, with_defaults
from fluss_lab.model.config.options import CLIENT_OPTIONS, CLUSTER_OPTIONS, REMOTE_DATA_DIR, check_options

#: Of the lab's folder, where nobody configured ``remote.data.dir``.
REMOTE_FOLDER: Final = "remote"


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Options by whose they are, as strings."""

    server: dict[str, str]
    client: dict[str, str]


def check_server_options(values: Mapping[str, object]) -> dict[str, str]:
    """Return server options as strings.

    Raises:
        InvalidPropertyError: One is unknown or ill-typed.
    """
    own = {key: value for key, value in values.items() if not key.startswith(LAKE_PREFIX)}
    check_options(own, CLUSTER_OPTIONS, "cluster option")
    for key, value in values.items():
        if not isinstance(value, str | int | float):
            raise InvalidPropertyError(
                f"cluster option {key!r}: expected a string, number or boolean, found {type(value).__name__}"
            )
    checked = {key: text_of(value) for key, value in values.items()}
    check_lake_options(checked)
    return checked


def split_options(values: Mapping[str, object]) -> SplitOptions:
    """Return options that a person gave together, checked, by whose they are.

    Client options that the person did not give are looked up in the environment and in the working directory's file;
    a server looks its own up when it starts.

    Raises:
        InvalidPropertyError: One is neither a cluster's nor a client's, or ill-typed.
    """
    found = resolve(values, os.environ, [Path.cwd()])
    client = {key: found[key].value for key in CLIENT_OPTIONS if not found[key].is_default}
    return SplitOptions({key: text_of(value) for key, value in values.items() if key not in CLIENT_OPTIONS}, client)


def resolve_server_options(given: Mapping[str, object], folder: Path) -> dict[str, str]:
    """Return the server options that anything in the configuration chain sets, for a server on a folder.

    Args:
        given: Options given as arguments.
        folder: The lab's folder; its file counts after the working directory's.

    Raises:
        InvalidPropertyError: One is unknown or ill-typed; the text says where it stands.
    """
    found = resolve(given, os.environ, [Path.cwd(), folder])
    chosen = {
        key: setting.value for key, setting in found.items() if not setting.is_default and key not in CLIENT_OPTIONS
    }
    return check_server_options(chosen)


def default_lake_options(folder: Path) -> dict[str, str]:
    """Return the lake that a lab has when nobody configured one: a SQLite catalog and a warehouse in its folder."""
    lake = folder.absolute() / "lake"
    return {
        "datalake.format": "iceberg",
        "datalake.iceberg.name": "fluss_lab",
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{lake / 'catalog.db'}",
        "datalake.iceberg.warehouse": f"file://{lake / 'warehouse'}",
    }


def with_lake(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options with the default lake filled in where they leave it open: see `with_defaults`."""
    return with_defaults(options, default_lake_options(folder))


def with_remote_dir(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options with ``remote.data.dir`` as an absolute path: the given one, or the lab's folder ``remote``.

    Args:
        options: Cluster options.
        folder: The lab's folder; a relative path counts from there, so that it means the same after every restart.

    Raises:
        InvalidPropertyError: It is not a place in the local file system.
    """
    given = REMOTE_DATA_DIR.of(options).strip()
    found = folder.absolute() / (_local_path(given) if given else REMOTE_FOLDER)
    return {**options, REMOTE_DATA_DIR.key: os.path.normpath(found)}


def _local_path(given: str) -> Path:
    scheme, host, path, _, _ = urlsplit(given)
    # One letter is no scheme; and a path may well have a colon, but not before two slashes.
    if "://" not in given and scheme != "file":
        return Path(given).expanduser()
    if scheme != "file" or host not in {"", "localhost"} or not path.startswith("/"):
        raise InvalidPropertyError(
            f"property {REMOTE_DATA_DIR.key!r}: expected a path or file:///path, found {given!r}; object stores are "
            "reached by mounting them: servers and readers then use the mount's path"
        )
    return Path(unquote(path))

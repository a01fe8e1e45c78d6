"""The options of a server, and their separation from those of a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.config_chain import resolve, text_of, working_folders
from fluss_lab.model.config.lake_options import LAKE_PREFIX, check_lake_options, with_defaults
from fluss_lab.model.config.options import CLIENT_OPTIONS, CLUSTER_OPTIONS, REMOTE_DATA_DIR, check_options
from fluss_lab.storage.store_location import location_of

#: In the lab's folder, where ``remote.data.dir`` is not configured.
REMOTE_FOLDER: Final = "remote"


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The options of the server and of the client, as strings."""

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
    """Return the given options, checked, as those of the server and of the client.

    Client options that are not given are read from the environment and from the working directory's file; a server
    reads its own when it starts.

    Raises:
        InvalidPropertyError: One is neither the cluster's nor the client's, or ill-typed.
    """
    found = resolve(values, os.environ, working_folders())
    client = {key: found[key].value for key in CLIENT_OPTIONS if not found[key].is_default}
    return SplitOptions({key: text_of(value) for key, value in values.items() if key not in CLIENT_OPTIONS}, client)


def resolve_server_options(given: Mapping[str, object], folder: Path) -> dict[str, str]:
    """Return the server options set in the configuration chain, for a server on a folder.

    Args:
        given: Options given as arguments.
        folder: The lab's folder; its file counts after the working directory's.

    Raises:
        InvalidPropertyError: One is unknown or ill-typed; the message names its source.
    """
    found = resolve(given, os.environ, [*working_folders(), folder])
    chosen = {
        key: setting.value for key, setting in found.items() if not setting.is_default and key not in CLIENT_OPTIONS
    }
    return check_server_options(chosen)


def default_lake_options(folder: Path) -> dict[str, str]:
    """Return the default lake of a lab: a SQLite catalog and a warehouse in its folder."""
    lake = folder.absolute() / "lake"
    return {
        "datalake.format": "iceberg",
        "datalake.iceberg.name": "fluss_lab",
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{lake / 'catalog.db'}",
        "datalake.iceberg.warehouse": f"file://{lake / 'warehouse'}",
    }


def with_lake(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options with the default lake where they configure none: see `with_defaults`."""
    return with_defaults(options, default_lake_options(folder))


def with_remote_dir(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options with ``remote.data.dir`` as a location for every process: an absolute path, or an object store's.

    Not given, it is the lab's folder ``remote``.

    Args:
        options: Cluster options.
        folder: The lab's folder; a relative path counts from there, so that it means the same after every restart.

    Raises:
        InvalidPropertyError: It is no location.
    """
    given = REMOTE_DATA_DIR.of(options).strip()
    found = location_of(given, REMOTE_DATA_DIR.key) if given else Path(REMOTE_FOLDER)
    if isinstance(found, Path):
        return {**options, REMOTE_DATA_DIR.key: os.path.normpath(folder.absolute() / found)}
    return {**options, REMOTE_DATA_DIR.key: str(found)}


def options_in_force(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the value that each option has in a server on a folder: as it was set, or its default.

    Values of one meaning are one text: ``1mb`` and ``1024kb``.

    Args:
        options: Those that are set, checked.
        folder: The lab's folder.
    """
    own = with_remote_dir(with_lake(options, folder), folder)
    parsed = {key: text_of(option.of(own)) for key, option in CLUSTER_OPTIONS.items()}
    return {**own, **parsed}


def other_options(given: Mapping[str, str], present: Mapping[str, str], folder: Path) -> list[str]:
    """Return, for each option that was given and that a server runs without, its name with both values.

    Args:
        given: Options of the cluster, as they were given.
        present: Those that the server on the folder was started with.
        folder: The lab's folder.
    """
    has = options_in_force(present, folder)
    wanted = options_in_force(check_server_options({**present, **given}), folder)
    return [
        f"{key} (expected {text}, found {present.get(key, has.get(key, 'none'))})"
        for key, text in given.items()
        if wanted[key] != has.get(key)
    ]

"""The configuration chain: arguments, then ``FLUSS_LAB_*`` environment, then ``fluss-lab.toml``, then defaults.

Each value comes with its source. In the environment ``log.segment.file-size`` is called
``FLUSS_LAB_LOG_SEGMENT_FILE_SIZE``; so are lake options. Of a lake format other than Iceberg, ``datalake.<format>.<key>`` is
``FLUSS_LAB_DATALAKE_<FORMAT>_<KEY>`` with a dot for each underscore of the key (other keys go into the file). In the file, keys are
written as they are, or nested: ``log.segment.file-size = "64mb"``.

Secrets (`fluss_lab.model.config.option_secrets`) belong into the file or the environment, never onto a command line, which every
user of a machine can read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.lake_options import (
    ICEBERG_OPTIONS,
    LAKE_PREFIX,
    check_lake_options,
)
from fluss_lab.model.config.option_kinds import Option, is_storable
from fluss_lab.model.config.option_secrets import mask_secret
from fluss_lab.model.config.options import CLIENT_OPTIONS, CLUSTER_OPTIONS, check_options
from fluss_lab.model.times import format_duration

FILE_NAME: Final = "fluss-lab.toml"
ENVIRONMENT_PREFIX: Final = "FLUSS_LAB_"
#: In the environment of a job's run: its id.
RUN_VARIABLE: Final = "FLUSS_LAB_RUN"
#: Variables of this prefix that are no options.
OTHER_VARIABLES: Final = frozenset(
    {"FLUSS_LAB_DEBUG", "FLUSS_LAB_FAILPOINTS", "FLUSS_LAB_FOLDER", RUN_VARIABLE, "FLUSS_LAB_SEED"}
)

OPTIONS: Final[dict[str, Option[Any]]] = {**CLUSTER_OPTIONS, **CLIENT_OPTIONS}


@dataclass(frozen=True, slots=True)
class Setting:
    """An option's value, as text, and where it came from.

    Attributes:
        source: ``argument``, ``environment NAME``, ``file PATH`` or ``default``.
    """

    key: str
    value: str
    source: str

    @property
    def is_default(self) -> bool:
        """Return whether it is not set."""
        return self.source == "default"

    @property
    def shown(self) -> str:
        """Return the value as it may be shown: a secret is hidden."""
        return mask_secret(self.key, self.value)


def resolve(
    arguments: Mapping[str, object], environment: Mapping[str, str], folders: Iterable[Path]
) -> dict[str, Setting]:
    """Return every option of cluster and client, and every lake option that is set, sorted by key.

    Args:
        arguments: What a person gave to the call.
        environment: Usually `os.environ`.
        folders: Where a file of the chain may lie, the first one counting most: working directory, lab folder.

    Raises:
        InvalidPropertyError: A key that does not exist, or an ill-typed value; the text says where it stands.
    """
    found = {option.key: Setting(option.key, _default_text(option), "default") for option in OPTIONS.values()}
    for folder in reversed(list(dict.fromkeys(folder.absolute() for folder in folders))):
        path = folder / FILE_NAME
        found.update(_settings(file_values(path), f"file {path}"))
    for name, key in option_variables(environment):
        found.update(_settings({key: environment[name]}, f"environment {name}"))
    found.update(_settings(arguments, "argument"))
    check_lake_options(
        {key: each.value for key, each in found.items()}, {key: each.source for key, each in found.items()}
    )
    return dict(sorted(found.items()))


def working_folders() -> list[Path]:
    """Return the working directory, for `resolve`; none where it was removed: then it has no file."""
    try:
        return [Path.cwd()]
    except FileNotFoundError:
        return []


def text_of(value: object) -> str:
    """Return an option's value as it travels."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def environment_name(key: str) -> str:
    """Return what an option is called in the environment."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_").replace("-", "_")


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that look like ours and mean nothing: mistyped ones, most likely."""
    known = {name for name, _ in option_variables(environment)} | OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(ENVIRONMENT_PREFIX) and name not in known)


def option_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that set options, by name, each with its option's key."""
    names = {environment_name(key): key for key in (*OPTIONS, *ICEBERG_OPTIONS)}
    lake = environment_name(LAKE_PREFIX)
    for name in sorted(environment):
        if (key := names.get(name)) is not None:
            yield name, key
        elif name.startswith(lake) and len(name) > len(lake):
            yield name, LAKE_PREFIX + name.removeprefix(lake).lower().replace("_", ".")


def _settings(values: Mapping[str, object], source: str) -> dict[str, Setting]:
    try:
        own = {key: value for key, value in values.items() if not str(key).startswith(LAKE_PREFIX)}
        check_options(own, OPTIONS, "option")
        for key, value in values.items():
            if not isinstance(value, str | int | float):
                raise InvalidPropertyError(
                    f"option {key!r}: expected a string, number or boolean, found {type(value).__name__}"
                )
            if not is_storable(str(value)):
                raise InvalidPropertyError(
                    f"option {key!r}: expected text without NUL and halves of characters, found others"
                )
    except InvalidPropertyError as error:
        raise InvalidPropertyError(f"{source}: {error}") from error
    return {key: Setting(key, text_of(value), source) for key, value in values.items()}


def file_values(path: Path) -> dict[str, object]:
    """Return what a file of the chain sets, by key, not checked; nothing when it does not exist.

    Raises:
        InvalidPropertyError: It cannot be read, or is no TOML.
    """
    try:
        parsed = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidPropertyError(f"file {path}: {error}") from error
    return dict(_flat(parsed, ""))


def _flat(values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _default_text(option: Option[Any]) -> str:
    if option.kind.startswith("a duration"):
        return format_duration(option.default)
    return text_of(option.default)

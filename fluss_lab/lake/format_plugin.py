"""The lookup of a lake format by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.format_interfaces import LakeCatalog, LakeStorage

GROUP: Final = "fluss_lab.lake"


def installed_formats() -> list[str]:
    """Return the names of the lake formats that installed packages offer, sorted."""
    return sorted(_format_entry_points())


def check_format(format_name: str) -> None:
    """Check that a lake format is installed here.

    Raises:
        UnsupportedError: It is not; the text lists those that are.
    """
    if format_name not in _format_entry_points():
        # Installed since?
        _format_entry_points.cache_clear()
        if format_name not in _format_entry_points():
            raise UnsupportedError(
                f"lake format {format_name!r}: not installed; installed are {', '.join(installed_formats())}. Install the "
                f"package that offers it (entry point group {GROUP!r}), or choose one of these"
            )


def lake_storage(format_name: str, properties: Mapping[str, str]) -> LakeStorage:
    """Return the storage of a lake format.

    Args:
        format_name: As in ``table.datalake.format``.
        properties: The format's own configuration (for Iceberg: catalog properties as pyiceberg takes them,
            with the catalog's name under ``name``). It travels to tasks, so it is plain strings.

    Raises:
        UnsupportedError: No installed package offers the format; the text lists those that are.
    """
    check_format(format_name)
    factory = _format_entry_points()[format_name].load()
    return cast(LakeStorage, factory(dict(properties)))


@cache
def _format_entry_points() -> dict[str, EntryPoint]:
    """Return the installed formats. Looking through all packages takes 5 ms, which every tiering task would pay."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_lake(format_name: str, properties: Mapping[str, str]) -> LakeCatalog:
    """Return the catalog of a lake format; the first time takes a second, for its libraries.

    Raises:
        UnsupportedError: No installed package offers the format.
    """
    return lake_storage(format_name, properties).create_lake_catalog()

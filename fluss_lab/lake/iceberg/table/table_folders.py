"""The folders of a lake table, and which of them are its alone: only there may files be removed that nothing refers to.

A location that was chosen here ends in the table's id. One that a catalog chose is that of the name, and a name may come to
mean another table: one that was dropped and kept has its files there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFileIO

from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.table_properties import PLACES, folders_elsewhere
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table


def location_prefix(access: CatalogAccess, path: TablePath) -> str | None:
    """Return where a table is put, but for its id at the end; None when the catalog decides."""
    return None if access.warehouse is None else f"{access.warehouse.rstrip('/')}/{path.database}/{path.table}-"


def is_own(access: CatalogAccess, path: TablePath, location: str) -> bool:
    """Tell whether a location is one that was chosen here, so that nothing but the table is in it."""
    prefix = location_prefix(access, path)
    return prefix is not None and location.startswith(prefix) and location.removeprefix(prefix).isdecimal()


def table_folders(lake: Table) -> list[str]:
    """Return the folders where a table's files are put, its alone or not."""
    places = (lake.properties.get(name) for name in PLACES)
    return [lake.location(), *(place for place in places if place)]


def is_within(lake: Table, location: str, folders: Sequence[str]) -> bool:
    """Tell whether a file lies below one of some folders, however the engine that wrote it spells its location."""
    path = _path(lake, location)
    return ".." not in path.split("/") and any(path.startswith(f"{_path(lake, each)}/") for each in folders)


def _path(lake: Table, location: str) -> str:
    _, netloc, path = PyArrowFileIO.parse_location(location, lake.io.properties)
    return f"{netloc}/{path.strip('/')}"


def own_folders(access: CatalogAccess, path: TablePath, lake: Table) -> list[str]:
    """Return the folders in which nothing but a table is: its location, if it was chosen here, and those of properties."""
    location = lake.location().rstrip("/")
    return ([location] if is_own(access, path, location) else []) + folders_elsewhere(lake)

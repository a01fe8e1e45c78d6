"""The lake that cluster options configure: its format, which every table's must be, and its catalog, loaded when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.model.config.lake_options import FORMAT_KEY, LAKE_PREFIX
from fluss_lab.server.coordinator.ddl.lake_table_ddl import LakeTables, check_lake_format

#: Makes the catalog of a lake format (its name) with the format's own configuration.
LoadLake: TypeAlias = Callable[[str, Mapping[str, str]], LakeTables]


class LazyLakeTables:
    """The lake's catalog, loaded with the first table that needs it: its libraries take a second to import.

    Args:
        load: Makes the catalog.
        folder: Made before that; None where the lake lies elsewhere.
        format_name: The format of this lake: tables of another one are refused.
    """

    def __init__(self, load: Callable[[], LakeTables], folder: Path | None, format_name: str) -> None:
        self._load = load
        self._format_name = format_name
        self._folder = folder
        self._tables: LakeTables | None = None
        self._lock = threading.Lock()

    def _load_once(self) -> LakeTables:
        with self._lock:
            if self._tables is None:
                if self._folder is not None:
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                self._tables = self._load()
            return self._tables

    def create_table(self, table: TableInfo) -> None:
        """Create the lake table: see `LakeCatalog`.

        Raises:
            InvalidPropertyError: The table's format is not that of the cluster's lake.
        """
        check_lake_format(table, self._format_name)
        self._load_once().create_table(table)

    def alter_table(self, table: TableInfo) -> None:
        """Set the lake table's columns and properties to those of the table: see `LakeCatalog`."""
        self._load_once().alter_table(table)

    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop or rename the lake table: see `LakeCatalog`."""
        self._load_once().drop_table(path, table_id, keep)

    def discard_table(self, path: TablePath, table_id: int) -> None:
        """Drop the lake table of a creation that was not finished: see `LakeCatalog`."""
        self._load_once().discard_table(path, table_id)

    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Delete the rows of a partition: see `LakeCatalog`."""
        self._load_once().drop_partition(table, partition)


def lake_tables_of(options: Mapping[str, str], folder: Path, load_lake: LoadLake) -> LazyLakeTables | None:
    """Return the lake that cluster options configure; None when they configure none."""
    if (format_name := options.get(FORMAT_KEY)) is None:
        return None
    prefix = f"{LAKE_PREFIX}{format_name}."
    properties = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    lake = folder.absolute() / "lake"
    is_own = any(str(lake) in value for value in properties.values())
    return LazyLakeTables(lambda: load_lake(format_name, properties), lake if is_own else None, format_name)

"""The lake as the command line and the tests hand it to a server."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_lab.lake import LakeCatalog, lake_storage


def load_lake(format_name: str, properties: Mapping[str, str]) -> LakeCatalog:
    """Return the catalog of a lake format; the first time takes a second, for its libraries.

    Raises:
        UnsupportedError: No installed package offers the format.
    """
    return lake_storage(format_name, properties).create_lake_catalog()

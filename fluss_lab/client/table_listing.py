"""The tables of a cluster, listed and looked at while others make and drop some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from fluss_lab.client.admin import Admin
from fluss_lab.errors import DatabaseNotFoundError, TableNotFoundError
from fluss_lab.model import TableInfo, TablePath

T = TypeVar("T")


def tables_by_database(admin: Admin) -> dict[str, list[str]]:
    """Return the names of all tables by that of their database, both sorted; a database without tables has an empty list.

    A database that is dropped meanwhile is left out.
    """
    found = {}
    for database in sorted(admin.databases()):
        with suppress(DatabaseNotFoundError):
            found[database] = sorted(admin.tables(database))
    return found


def table_paths(admin: Admin) -> list[TablePath]:
    """Return the paths of all tables, sorted."""
    return [TablePath(database, name) for database, names in tables_by_database(admin).items() for name in names]


def look_at_tables(admin: Admin, look: Callable[[TableInfo], T]) -> Iterator[T]:
    """Return what a look at each table gives, in the order of their paths, one after another as they are asked for.

    A table that is dropped before or during the look is left out; one that is made again meanwhile is looked at anew.

    Args:
        admin: Of the cluster.
        look: Called with a table as it is now; it may raise TableNotFoundError of that table, and of no other.
    """
    for path in table_paths(admin):
        info = _present_info(admin, path)
        while info is not None:
            try:
                found = look(info)
            except TableNotFoundError:
                failed_id, info = info.table_id, _present_info(admin, path)
                if info is not None and info.table_id == failed_id:
                    raise  # it is there: whoever says otherwise is wrong
            else:
                yield found
                break


def lake_tables(admin: Admin) -> Iterator[TableInfo]:
    """Return the tables whose lake is enabled, in the order of their paths, as `look_at_tables` does."""
    return (info for info in look_at_tables(admin, lambda info: info) if info.descriptor.lake_enabled)


def _present_info(admin: Admin, path: TablePath) -> TableInfo | None:
    try:
        return admin.table_info(path)
    except (DatabaseNotFoundError, TableNotFoundError):
        return None

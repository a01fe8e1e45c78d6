"""The method of labs that shows the explorer: light, since whoever imports a lab imports it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from fluss_lab.errors import DatabaseNotFoundError, FlussError, TableNotFoundError
from fluss_lab.model import TablePath
from fluss_lab.tracebacks import levels_to_caller

if TYPE_CHECKING:
    from fluss_lab.client import Connection
    from fluss_lab.explorer.explored_lab import ExploredLab
    from fluss_lab.explorer.explorer_widget import ExplorerWidget


def explore(
    self: ExploredLab, table: str | TablePath | None = None, *, mask: Iterable[str] = (), read_only: bool = False
) -> ExplorerWidget:
    """Return the table explorer; a cell that ends with it shows it. It goes on while cells run, and cells while it reads.

    Args:
        table: The table that it opens on; None: the first.
        mask: Names of columns that are hidden in every table: neither they nor their values leave this process. One that no table
            has is warned of.
        read_only: Whether whatever changes something is left out.

    Raises:
        TableNotFoundError: There is no such table.
        InvalidRequestError: A mask that is no list of names.
    """
    from fluss_lab.explorer.explorer_widget import ExplorerWidget

    path = None if table is None else TablePath.parse(table)
    if path is not None:
        self.connection.table_info(path)
    name = self.folder.name if self.folder is not None else repr(self.connection).strip("<>")
    hidden = mask if isinstance(mask, str) else list(mask)
    shown = ExplorerWidget(self, name, table=path, mask=hidden, read_only=read_only)
    if (text := unknown_mask(self.connection, hidden)) is not None:
        warnings.warn(text, stacklevel=levels_to_caller())
    return shown


def unknown_mask(connection: Connection, mask: Iterable[str]) -> str | None:
    """Return a warning of names in a mask that are of no column of any table: what was to be hidden is shown then.

    Args:
        connection: To the cluster; where it does not answer, the explorer says so itself, and nothing is warned of.
        mask: The names, in any case of letters.

    Cost: where there are names, a call for each table until all of them are found.
    """
    left = {name.lower(): name for name in mask}
    with suppress(FlussError):
        admin = connection.admin()
        for database in admin.databases() if left else ():
            with suppress(DatabaseNotFoundError):
                for table in admin.tables(database):
                    with suppress(TableNotFoundError):
                        for column in connection.table_info(TablePath(database, table)).schema.columns:
                            left.pop(column.name.lower(), None)
                    if not left:
                        return None
        if left:
            names = ", ".join(repr(name) for name in sorted(left.values()))
            return (
                f"explore: mask: no table has a column {names}: expected names of whole columns; nothing that is there now is hidden "
                "by it"
            )
    return None

"""The method of labs that shows the explorer: light, since whoever imports a lab imports it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from fluss_lab.explorer.explored_lab import ExploredLab
    from fluss_lab.explorer.explorer_widget import ExplorerWidget


def explore(
    self: ExploredLab, table: str | TablePath | None = None, *, mask: Iterable[str] = (), read_only: bool = False
) -> ExplorerWidget:
    """Return the table explorer; a cell that ends with it shows it. It goes on while cells run, and cells while it reads.

    Args:
        table: The table that it opens on; None: the first.
        mask: Names of columns that are hidden in every table: neither they nor their values leave this process.
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
    return ExplorerWidget(self, name, table=path, mask=mask, read_only=read_only)

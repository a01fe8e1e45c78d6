"""The tables that requests mean, with what a mask lets be seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss_lab.errors import TableNotFoundError
from fluss_lab.explorer.explorer_answers import Answer, error_answer
from fluss_lab.explorer.explorer_requests import PAGE_COLUMNS_MAX, TableRequest
from fluss_lab.explorer.texts.column_mask import ColumnMask
from fluss_lab.explorer.texts.typed_numbers import typed_number
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.workbench.lake_upkeep import TableContext
from fluss_lab.workbench.table import Table


class ShownTables:
    """The tables of one lab as one explorer shows them.

    Args:
        lab: Whose tables.
        mask: What is hidden.
    """

    def __init__(self, lab: TableContext, mask: ColumnMask) -> None:
        self.lab, self.mask = lab, mask

    @property
    def time_zone(self) -> Any:
        """The zone in which times are shown."""
        return self.lab.connection.time_zone

    def info(self, request: TableRequest) -> TableInfo:
        """Return the table that a request means.

        Raises:
            TableNotFoundError: There is none of the path, or it is another one than the view shows.
            InvalidRequestError: Its values cannot be hidden as the mask wants it.
        """
        connection = self.lab.connection
        info = connection.table_info(TablePath.parse(request.table), connection.attempts(f"show {request.table}", 0))
        self.check_id(request, str(info.table_id))
        self.mask.check(info)
        return info

    @staticmethod
    def check_id(request: TableRequest, table_id: str) -> None:
        """Check that a table is the one that the view shows.

        Raises:
            TableNotFoundError: It is another one of the same path.
        """
        if request.table_id is not None and request.table_id != table_id:
            raise TableNotFoundError(f"table {request.table} was dropped; the one of that path now is another")

    def error_answer(self, error: BaseException) -> Answer:
        """Return an error as a view shows it, with nothing of what is hidden."""
        answer = error_answer(error)
        return answer | {"text": self.mask.visible_error(error, answer["text"])}

    def table(self, info: TableInfo) -> Table:
        """Return a table to read or write."""
        return Table(self.lab, info.path)

    def visible_names(self, info: TableInfo) -> list[str]:
        """Return the names of the columns that are not hidden."""
        return [column.name for column in self.mask.columns(info.schema)]

    def drawn_names(self, info: TableInfo) -> list[str]:
        """Return the names of the columns that are drawn where nobody has chosen any: the first that are not hidden."""
        return self.visible_names(info)[:PAGE_COLUMNS_MAX]

    def code_columns(self, info: TableInfo, chosen: Sequence[str] | None = None) -> list[str] | None:
        """Return the columns that Python lines name; None where all are shown.

        Args:
            info: The table.
            chosen: Those that the person has chosen; None: all.
        """
        if chosen is None and not self.mask.hides_any(info.schema):
            return None
        names = self.visible_names(info)
        if chosen is not None:
            names = [name for name in names if name in set(chosen)]
        return None if len(names) == len(info.schema.columns) else names


def given_moment(text: str | None) -> str | int | None:
    """Return a moment as reads take it: digits are a snapshot's id or epoch milliseconds; None for none."""
    if text is None or not text.strip():
        return None
    number = typed_number(text)
    return text.strip() if number is None else number

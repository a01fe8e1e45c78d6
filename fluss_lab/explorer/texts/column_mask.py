"""The mask of an explorer: columns that no answer of it names or shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.model import Column, Schema, TableInfo

_HIDDEN_TEXT: Final = "not shown: the text may name a hidden column"
_FOREIGN_TEXT: Final = "not shown: the text may quote a hidden column"
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]+")


class ColumnMask:
    """Names of columns that are hidden in every table that has them, in any case of letters.

    Args:
        names: Of columns.

    Raises:
        InvalidRequestError: One is no name.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise InvalidRequestError(f"explore: mask: expected a list of names of columns, found {names!r}")
        listed = list(names)
        for name in listed:
            if not isinstance(name, str) or not name:
                raise InvalidRequestError(f"explore: mask: expected names of columns, found {name!r}")
        self._names = frozenset(name.lower() for name in listed)

    @property
    def hides(self) -> bool:
        """Whether any column is hidden."""
        return bool(self._names)

    def shows(self, name: str) -> bool:
        """Return whether a column is not hidden."""
        return name.lower() not in self._names

    def columns(self, schema: Schema) -> Sequence[Column]:
        """Return the columns that are not hidden, in order."""
        return [column for column in schema.columns if self.shows(column.name)]

    def hides_any(self, schema: Schema) -> bool:
        """Return whether a table has columns that are hidden."""
        return any(not self.shows(column.name) for column in schema.columns)

    def visible_schema(self, schema: Schema) -> Schema:
        """Return a schema without what is hidden: a condition that it refuses may look at something hidden."""
        return replace(
            schema,
            columns=tuple(self.columns(schema)),
            primary_key=tuple(name for name in schema.primary_key if self.shows(name)),
        )

    def is_named_in(self, text: str) -> bool:
        """Return whether a text has the name of a hidden column as a word, or as Iceberg names what is spread by it."""
        words = (word.lower() for word in _NO_WORD.split(text))
        return any(word in self._names or word.removesuffix("_bucket") in self._names for word in words)

    def visible_text(self, text: str) -> str:
        """Return a text of a person or an error, or a sentence in its place when it names a hidden column."""
        return _HIDDEN_TEXT if self.is_named_in(text) else text

    def foreign_text(self, text: str) -> str:
        """Return a text of other programs, or a sentence in its place where columns are hidden: it may quote their values."""
        return _FOREIGN_TEXT if self._names and text else text

    def visible_error(self, error: BaseException, text: str) -> str:
        """Return an error's text, or a sentence in its place when it names a hidden column, or could quote a value of one."""
        return self.visible_text(text) if isinstance(error, FlussError) or not self._names else _HIDDEN_TEXT

    def check(self, info: TableInfo) -> None:
        """Check that a table's values can be hidden.

        Raises:
            InvalidRequestError: A partition column is to be: its values are the names of the partitions.
        """
        if not all(self.shows(name) for name in info.descriptor.partitioned_by):
            raise InvalidRequestError(
                f"explore: table {info.path} cannot be shown with this mask: it hides a partition column, whose values are "
                "the names of the partitions"
            )

"""A short list of things, as a notebook shows it and as a program uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

import pyarrow as pa

from fluss_lab.display import ROWS_MAX, html_table
from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.argument_checks import checked
from fluss_lab.model.values.pandas_frames import to_pandas

#: Longer texts are cut where they are shown; programs get them whole.
CELL_LENGTH_MAX: Final = 60


@checked
class Listing(Sequence[Mapping[str, Any]]):
    """Rows of named values: a sequence of dicts that shows itself as a table.

    Args:
        title: What is listed.
        rows: Dicts with the same keys in the same order.
        columns: The keys, needed where there may be no rows; with their Arrow types, where these must not depend on the
            rows. A type of None is that of the values.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str] | Mapping[str, pa.DataType | None] = (),
    ) -> None:
        self.title = title
        self._rows = [dict(row) for row in rows]
        self.columns = list(self._rows[0]) if self._rows else list(columns)
        self._types = dict(columns) if isinstance(columns, Mapping) else {}

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> list[Any]:
        """Return one column's values, in order of the rows.

        Raises:
            InvalidRequestError: There is none of that name.
        """
        if name not in self.columns:
            raise InvalidRequestError(f"{self.title}: no column {name!r}; the columns are {', '.join(self.columns)}")
        return [row[name] for row in self._rows]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.table({name: self._array(name) for name in self.columns})

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame, integers and booleans in their nullable types; lists and dicts stay."""
        import pandas as pd

        arrays = {name: self._array(name) for name in self.columns}
        flat = {name: array for name, array in arrays.items() if not pa.types.is_nested(array.type)}
        frame = to_pandas(pa.table(flat))
        series = {name: frame[name] if name in flat else pd.Series(self.column(name), dtype=object) for name in arrays}
        return pd.DataFrame(series, columns=self.columns, index=range(len(self)))

    def _array(self, name: str) -> pa.Array:
        return pa.array(self.column(name), self._types.get(name))

    def __repr__(self) -> str:
        cells = [[_shown(name, row[name]) for name in self.columns] for row in self._rows[:ROWS_MAX]]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)] if self.columns else []
        lines = [self.title, *("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip()
                               for row in [self.columns, *cells])]  # fmt: skip
        if len(self._rows) > ROWS_MAX:
            lines.append(f"... and {len(self._rows) - ROWS_MAX} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = [[_shown(name, row[name]) for name in self.columns] for row in self._rows]
        return html_table(self.title, self.columns, cells)


def _shown(name: str, value: object) -> str:
    """Return a value as people read it: identifiers as they are, other numbers in groups, long texts cut."""
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith(("id", "bucket", "leader", "port")):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 1] + "…"

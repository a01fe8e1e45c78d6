"""Short lists of things: a sequence of dicts for a program, a table for whoever sees it in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, overload

import pyarrow as pa

from fluss_lab.display import ROWS_MAX, Grid, card, plural, short
from fluss_lab.display.card_table import is_identifier
from fluss_lab.display.shown_text import display_text
from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.values.pandas_frames import to_pandas

#: Columns of a text; a card has as many as it has room for.
_COLUMNS_MAX: Final = 20
#: Columns that a card does not leave out for others.
_KEPT: Final = ("error_class", "error", "warning", "last_error", "given_up", "path")
#: Columns that it leaves out first.
_MINOR: Final = (
    "last_time", "first_time", "high_watermark", "local_start", "remote_start", "lake_start", "total_files", "deletes", "ours",
    "idle_before", "maintain_s", "plan_s", "commit_s", "write_s", "events", "end",
)  # fmt: skip


@check_arguments
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
        names = self._filled_columns()[:_COLUMNS_MAX]
        cells = [[_text(name, row[name]) for name in names] for row in self._rows[:ROWS_MAX]]
        heads = [short(name) for name in names]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)] if names else []
        lines = [short(self.title, 200), *("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip()
                                           for row in [heads, *cells])]  # fmt: skip
        if len(self._rows) > ROWS_MAX:
            lines.append(f"... and {len(self._rows) - ROWS_MAX} more")
        if left := self._filled_columns()[_COLUMNS_MAX:]:
            lines.append(f"... and {len(left)} columns: {short(', '.join(map(short, left)), 200)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        names = self._filled_columns()
        rows = [[_summary(row[name]) for name in names] for row in self._rows[:ROWS_MAX]]
        empty = [name for name in self.columns if name not in names]
        return card(
            "Listing",
            self.title,
            grid=Grid(names, rows, kept=_KEPT, minor=_MINOR) if names else None,
            total=len(self._rows),
            last=f"Empty: {', '.join(map(short, empty[:6]))}{', …' if len(empty) > 6 else ''}." if empty else "",
            calls=[".to_pandas()"] if len(self._rows) > ROWS_MAX else [],
        )

    def _filled_columns(self) -> list[str]:
        """Return the columns that have a value somewhere; without rows, all."""
        if not self._rows:
            return self.columns
        return [name for name in self.columns if any(row[name] is not None and row[name] != [] for row in self._rows)]


def _text(name: str, value: object) -> str:
    return short(display_text(_summary(value), grouped=not is_identifier(name)))


def _summary(value: object) -> object:
    """Return a value as it fits a cell: of a list of what each bucket has, how many, and how far they go."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{short(key, 24)}: {short(each, 24)}' for key, each in list(value.items())[:4])}" + (
            f", … {len(value)} in all}}" if len(value) > 4 else "}"
        )
    if not isinstance(value, list | tuple):
        return value
    if value and all(isinstance(each, Mapping) and "offset" in each for each in value):
        return f"{plural(len(value), 'bucket')}, up to {max(each['offset'] for each in value):,}"
    return ", ".join(short(each, 24) for each in value[:3]) + (f", … {len(value)} in all" if len(value) > 3 else "")

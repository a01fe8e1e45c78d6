"""The displays of the workbench: lists of things, the definition of a table, and the progress of a round."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, overload

import pyarrow as pa

from fluss_lab.client import BucketStatus, Connection, UnknownBucket
from fluss_lab.display import ROWS_MAX, html_table
from fluss_lab.errors import InvalidRequestError
from fluss_lab.lake import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.model import TableDescriptor, TableInfo, TablePath
from fluss_lab.model.argument_checks import checked
from fluss_lab.model.times import format_moment
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.tiering.task.round_progress import BucketProgress, RoundState

_INT, _LONG, _TEXT = pa.int32(), pa.int64(), pa.string()
SNAPSHOT_COLUMNS: Final = {
    "snapshot_id": _LONG, "time": _TEXT, "operation": _TEXT, "ours": pa.bool_(), "rows": _LONG, "files": _LONG,
    "total_rows": _LONG, "total_files": _LONG, "deletes": _LONG, "tags": pa.list_(_TEXT),
    "offsets": pa.list_(
        pa.struct({"partition_name": _TEXT, "bucket": _INT, "offset": _LONG, "max_timestamp": _LONG})
    ),
}  # fmt: skip
FILE_COLUMNS: Final = {
    "content": _TEXT, "partition": _TEXT, "bucket": _INT, "first_offset": _LONG, "last_offset": _LONG,
    "first_time": _TEXT, "last_time": _TEXT, "rows": _LONG, "bytes": _LONG, "path": _TEXT,
}  # fmt: skip
SCHEMA_COLUMNS: Final = {"schema_id": _INT, "current": pa.bool_(), "columns": None}
#: What is shown of a bucket.
BUCKET_COLUMNS: Final = {
    "partition": _TEXT,
    "bucket": _INT,
    "start": _LONG,
    "end": _LONG,
    "high_watermark": _LONG,
    "lake_end": _LONG,
    "lag": _LONG,
    "bytes": _LONG,
    "leader": _INT,
    "error": _TEXT,
    "warning": _TEXT,
    "given_up": _TEXT,
}
#: Longer texts are cut where they are shown; programs get them whole.
CELL_LENGTH_MAX: Final = 60
_COLUMNS: Final = ("partition", "bucket", "", "rows", "of", "MB")
#: Characters of a bucket's bar: an eighth of a split of four is still seen.
_BAR_LENGTH: Final = 20


def bucket_listing(connection: Connection, info: TableInfo, *, patient: bool) -> Listing:
    """Return what is shown of a table's buckets; without patience those of servers that are away are not known."""
    in_lake = info.descriptor.lake_enabled
    rows = [bucket_row(status, in_lake) for status in connection.admin().buckets(info, patient=patient)]
    rows.sort(key=lambda row: (str(row["partition"] or ""), row["bucket"]))
    return Listing(f"buckets of {info.path}", rows, BUCKET_COLUMNS)


def bucket_row(status: BucketStatus, in_lake: bool) -> dict[str, Any]:
    """Return what is shown of a bucket: None for whatever is not known, and why."""
    row: dict[str, Any] = dict.fromkeys(BUCKET_COLUMNS)
    row |= {"partition": status.partition, "bucket": status.bucket.bucket, "leader": status.leader}
    row["error"] = None if status.error is None else str(status.error)
    if isinstance(status, UnknownBucket):
        return row
    start = None if status.error is not None else status.start_offset
    tiered_to = start if status.lake_end_offset is None else status.lake_end_offset
    return row | {
        "start": start,
        "end": status.end_offset,
        "high_watermark": status.high_watermark,
        "lake_end": status.lake_end_offset,
        "lag": status.end_offset - tiered_to if in_lake and tiered_to is not None else None,
        "bytes": status.size_bytes + status.remote_size_bytes,
        "warning": status.warning,
        "given_up": ", ".join(map(str, status.given_up)) or None,
    }


def snapshot_row(snapshot: LakeSnapshotInfo) -> dict[str, Any]:
    """Return what is shown of a lake snapshot."""
    offsets = [
        {"partition_name": partition, "bucket": bucket, "offset": offset.end, "max_timestamp": offset.max_timestamp_ms}
        for (partition, bucket), offset in snapshot.offsets.items()
    ]
    values = (
        snapshot.snapshot_id, format_moment(snapshot.time_ms), snapshot.operation, snapshot.ours, snapshot.added_rows,
        snapshot.added_files, snapshot.rows, snapshot.files, snapshot.deletes, list(snapshot.tags), offsets,
    )  # fmt: skip
    return dict(zip(SNAPSHOT_COLUMNS, values, strict=True))


def file_row(file: LakeFileInfo) -> dict[str, Any]:
    """Return what is shown of a file of the lake."""
    times = [None if each is None else format_moment(each) for each in (file.min_timestamp_ms, file.max_timestamp_ms)]
    values = (
        file.content, file.partition, file.bucket, file.min_offset, file.max_offset, *times, file.rows,
        file.size_bytes, file.path,
    )  # fmt: skip
    return dict(zip(FILE_COLUMNS, values, strict=True))


def table_text(connection: Connection, path: TablePath) -> str:
    """Return a table's definition as one line; where it cannot be had at once, why."""
    found = _definition(connection, path)
    return f"Table {path}: {found}" if isinstance(found, str) else _line(path, found)


def table_html(connection: Connection, path: TablePath) -> str:
    """Return a table's definition as HTML, a row for each column; where it cannot be had at once, why."""
    found = _definition(connection, path)
    if isinstance(found, str):
        return html_table(f"Table {path}: {found}", [], [])
    rows = [
        [column.name, column.type, ", ".join(_roles(found, column.name)), column.comment or ""]
        for column in found.schema.columns
    ]
    return html_table(_line(path, found), ["column", "type", "role", "comment"], rows, rows_max=200)


def table_row(connection: Connection, path: TablePath) -> tuple[str, object, object]:
    """Return path, buckets and whether the table is in the lake; of a table that is gone, why."""
    found = _definition(connection, path)
    return (str(path), found, None) if isinstance(found, str) else (str(path), found.buckets, found.lake_enabled)


def known_columns(connection: Connection, path: TablePath) -> list[str]:
    """Return the columns' names for a person who types; none where they cannot be had at once."""
    found = _definition(connection, path)
    return [] if isinstance(found, str) else found.schema.names


def _definition(connection: Connection, path: TablePath) -> TableDescriptor | str:
    try:
        return connection.table_info(path, connection.attempts(f"show {path}", 0)).descriptor
    except Exception as error:  # what is shown must not fail
        return str(error) or type(error).__name__


def _line(path: TablePath, definition: TableDescriptor) -> str:
    key = definition.schema.primary_key
    kind = f"primary-key table ({', '.join(key)})" if key else "log table"
    lake = ", in the lake" if definition.lake_enabled else ""
    return f"Table {path}: {kind}, {len(definition.schema.columns)} columns, {definition.buckets} buckets{lake}"


def _roles(descriptor: TableDescriptor, column: str) -> list[str]:
    roles = {
        "primary key": descriptor.schema.primary_key,
        "partition": descriptor.partitioned_by,
        "bucket key": descriptor.bucket_key,
    }
    return [role for role, columns in roles.items() if column in columns]


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


class RoundProgress:
    """Shows how far a tiering round is: rows and bytes. Nothing is shown outside of notebooks and terminals. Use it as a context manager.

    It is given to a round as its listener; calls may come from any thread. In a notebook it is plain HTML that is replaced
    as the round goes on, and goes when it has ended: no widget, so it looks the same in every front end.

    Args:
        title: What the round is of.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._lock = threading.Lock()
        self._view: _NotebookView | _TerminalView | None = None

    def __enter__(self) -> Self:
        if "ipykernel" in sys.modules:
            self._view = _NotebookView(self._title)
        elif sys.stderr.isatty():
            self._view = _TerminalView(self._title)
        return self

    def __call__(self, state: RoundState) -> None:
        """Take news of the round."""
        with self._lock:
            if self._view is not None:
                self._view.show(state)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            view, self._view = self._view, None
        if view is not None:
            view.close()


class _NotebookView:
    """HTML that is replaced."""

    def __init__(self, title: str) -> None:
        from IPython import display

        self._title = title
        self._page: Any = display
        self._handle: Any = None

    def show(self, state: RoundState) -> None:
        shown = self._page.HTML(progress_html(self._title, state))
        if self._handle is None:
            self._handle = self._page.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(self._page.HTML(""))


class _TerminalView:
    """A bar of rows."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def show(self, state: RoundState) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc=self._title, unit=" rows", unit_scale=True, leave=False)
        self._bar.total = max(state.planned, state.rows)
        self._bar.n = state.rows
        self._bar.set_postfix_str(f"{state.stage}, {state.size_bytes / 1e6:,.1f} MB", refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def progress_html(title: str, state: RoundState) -> str:
    """Return a round's state as HTML: what it does, and a bar for each bucket that lags."""
    rate = f", {state.rows / state.seconds:,.0f} rows/s" if state.rows and state.seconds else ""
    heading = f"{title}: {state}, {state.seconds:.1f} s{rate}"
    rows = [
        [each.partition, str(each.bucket), _bar(each), each.rows, each.planned or None, f"{each.size_bytes / 1e6:,.1f}"]
        for each in state.buckets
    ]
    return html_table(heading, _COLUMNS, rows)


def _bar(bucket: BucketProgress) -> str:
    done = bucket.rows * _BAR_LENGTH // bucket.planned if bucket.planned else 0
    done = min(done, _BAR_LENGTH)
    return "█" * done + "░" * (_BAR_LENGTH - done)

"""The display of tables, and of short lists of things, as a notebook shows them and as a program uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import pyarrow as pa

from fluss_lab.client import BucketStatus, Connection, TieringRoundRecord, UnknownBucket
from fluss_lab.display import LAKE, LOG, ROWS_MAX, Grid, Key, card, plural, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.display.card_table import is_identifier
from fluss_lab.display.shown_text import display_text
from fluss_lab.errors import InvalidRequestError
from fluss_lab.lake import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.model import TableDescriptor, TableInfo, TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import format_moment
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.table_lag import LagSample
from fluss_lab.workbench.table_facts import table_facts

T = TypeVar("T")

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
ROUND_COLUMNS: Final = {
    "round": _LONG, "start": _TEXT, "end": _TEXT, "state": _TEXT, "rows": _LONG, "events": _LONG, "files": _LONG,
    "bytes": _LONG, "seconds": pa.float64(), "plan_s": pa.float64(), "write_s": pa.float64(), "commit_s": pa.float64(),
    "maintain_s": pa.float64(), "lag_records": _LONG, "lag_ms": _LONG, "snapshot_id": _LONG, "idle_before": _LONG,
    "error_class": _TEXT, "error": _TEXT,
}  # fmt: skip
LAG_COLUMNS: Final = {"time": _TEXT, "records": _LONG, "lag_ms": _LONG, "round": _LONG}
#: What is shown of a bucket.
BUCKET_COLUMNS: Final = {
    "partition": _TEXT,
    "bucket": _INT,
    "start": _LONG,
    "local_start": _LONG,
    "remote_start": _LONG,
    "end": _LONG,
    "high_watermark": _LONG,
    "lake_start": _LONG,
    "lake_end": _LONG,
    "lag": _LONG,
    "bytes": _LONG,
    "leader": _INT,
    "error": _TEXT,
    "warning": _TEXT,
    "given_up": _TEXT,
}

#: Columns of a text; a card has as many as it has room for.
_COLUMNS_MAX: Final = 20
#: Columns that a card does not leave out for others.
_KEPT: Final = ("error_class", "error", "warning", "last_error", "given_up", "path")
#: Columns that it leaves out first.
_MINOR: Final = (
    "last_time", "first_time", "high_watermark", "local_start", "remote_start", "lake_start", "total_files", "deletes", "ours",
    "idle_before", "maintain_s", "plan_s", "commit_s", "write_s", "events", "end",
)  # fmt: skip


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
        "local_start": status.local_start_offset,
        "remote_start": status.remote_start_offset,
        "end": status.end_offset,
        "high_watermark": status.high_watermark,
        "lake_start": status.lake_start_offset,
        "lake_end": status.lake_end_offset,
        "lag": status.end_offset - tiered_to if in_lake and tiered_to is not None else None,
        "bytes": status.size_bytes + status.remote_size_bytes,
        "warning": status.warning,
        "given_up": ", ".join(map(str, status.given_up)) or None,
    }


def round_listing(connection: Connection, path: TablePath) -> Listing:
    """Return what is shown of a table's last tiering rounds, oldest first."""
    rows = [round_row(each) for each in connection.admin().tiering_rounds(path)]
    return Listing(f"rounds of {path}", rows, ROUND_COLUMNS)


def round_row(record: TieringRoundRecord) -> dict[str, Any]:
    """Return what is shown of a round. One whose tierer reported no time took as long as the coordinator waited for it."""
    total = record.seconds.get("total")
    if total is None and record.end_ms is not None:
        total = (record.end_ms - record.start_ms) / 1000
    stages = [record.seconds.get(stage) for stage in ("plan", "write", "commit", "maintain")]
    lag = (None, None) if record.after is None else (record.after.records, record.after.ms)
    values = (
        record.epoch, format_moment(record.start_ms), None if record.end_ms is None else format_moment(record.end_ms),
        record.state, record.rows, record.events, record.files, record.size_bytes, total, *stages, *lag,
        record.snapshot_id, record.idle_before, record.error_class, record.error,
    )  # fmt: skip
    return dict(zip(ROUND_COLUMNS, values, strict=True))


def lag_listing(path: TablePath, samples: Sequence[LagSample]) -> Listing:
    """Return what is shown of how far the lake lagged behind a table over time."""
    rows = [
        {"time": format_moment(each.time_ms), "records": each.records, "lag_ms": each.ms, "round": each.round}
        for each in samples
    ]
    return Listing(f"lag of {path}", rows, LAG_COLUMNS)


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
    return f"Table {path}: {short(found, 300)}" if isinstance(found, str) else _line(path, found)


def table_html(connection: Connection, path: TablePath) -> str:
    """Return a table as a card: where its records are, and its columns; where it cannot be had at once, why."""
    facts = _find(lambda: table_facts(connection, path, tiering_states(connection, f"show {path}").get(str(path))))
    if isinstance(facts, str):
        return card("Table", path, notes=[facts])
    definition = facts.info.descriptor
    columns = definition.schema.columns
    has_comments = any(column.comment for column in columns)
    rows = [
        [
            column.name,
            _type_text(str(column.type)),
            ", ".join(_roles(definition, column.name)) or "",
            column.comment or "",
        ]
        for column in columns[:CARD_ROWS_MAX]
    ]
    headers = ["column", "type", "role", "comment"] if has_comments else ["column", "type", "role"]
    key = definition.schema.primary_key
    keys = []
    if definition.lake_enabled:
        keys = [
            Key(LAKE, f"lake {facts.lake_records:,}", facts.lake_records),
            Key(LOG, f"only in the log {facts.log_records:,}", facts.log_records),
        ]
    return card(
        "Table",
        path,
        [
            ("", "primary-key table" if key else "log table"),
            ("key", ", ".join(key) or None),
            ("changes" if key else "rows", facts.records),
            ("buckets", facts.buckets_text),
            ("lag", facts.lag_text),
            ("lake", None if definition.lake_enabled else "not in the lake"),
            ("", definition.comment or None),
        ],
        notes=[facts.error],
        keys=keys,
        grid=Grid(headers, [row[: len(headers)] for row in rows]),
        total=len(columns),
        noun="column",
        calls=[".scan()", ".schema", ".buckets()"] if len(columns) > CARD_ROWS_MAX else [".scan()", ".buckets()"],
    )


def _type_text(text: str) -> str:
    """Return a type as it is written in a schema: names of nested fields stay as they are."""
    return text if "<" in text else text.lower()


def tiering_states(connection: Connection, what: str) -> dict[str, pb.PbTieringState]:
    """Return what the coordinator says of the tiering of each table, by path. It is not waited for.

    Raises:
        UnavailableError: It is away.
    """
    coordinator = connection.coordinator(connection.attempts(what, 0))
    described = coordinator.describe_cluster(pb.DescribeClusterRequest())
    return {f"{each.table_path.database_name}.{each.table_path.table_name}": each for each in described.tiering_states}


def known_columns(connection: Connection, path: TablePath) -> list[str]:
    """Return the columns' names for a person who types; none where they cannot be had at once."""
    found = _definition(connection, path)
    return [] if isinstance(found, str) else found.schema.names


def _definition(connection: Connection, path: TablePath) -> TableDescriptor | str:
    return _find(lambda: connection.table_info(path, connection.attempts(f"show {path}", 0)).descriptor)


def _find(look: Callable[[], T]) -> T | str:
    """Return what a look finds, or why it finds nothing."""
    try:
        return look()
    except Exception as error:  # what is shown must not fail
        return str(error) or type(error).__name__


def _line(path: TablePath, definition: TableDescriptor) -> str:
    return f"Table {path}: {definition.summary}"


def _roles(descriptor: TableDescriptor, column: str) -> list[str]:
    roles = {
        "primary key": descriptor.schema.primary_key,
        "partition": descriptor.partitioned_by,
        "bucket key": descriptor.bucket_key,
    }
    return [role for role, columns in roles.items() if column in columns]


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

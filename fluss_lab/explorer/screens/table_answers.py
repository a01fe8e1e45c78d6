"""The answers about a table as it is now: its head, its schema, its buckets, its snapshots in the lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from fluss_lab.errors import TableNotFoundError
from fluss_lab.explorer.explorer_answers import Answer, cut_text, cut_to_size, now_ms
from fluss_lab.explorer.explorer_requests import (
    BucketRequest,
    BucketsRequest,
    HeadRequest,
    SchemaRequest,
    SnapshotsRequest,
)
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.screens.table_tree import STATES, TableTree, table_kind
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import WHOLE_LENGTH_MAX
from fluss_lab.explorer.texts.column_mask import ColumnMask
from fluss_lab.explorer.texts.typed_numbers import typed_number
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import TABLE_OPTIONS
from fluss_lab.model.times import format_duration, parse_moment
from fluss_lab.workbench.cards.table_facts import tiering_states
from fluss_lab.workbench.cards.table_listings import bucket_listing

#: Buckets that a view draws; of more, sums.
BUCKETS_MAX: Final = 400
#: Snapshots of the lake that are shown.
SNAPSHOTS_MAX: Final = 500
#: Columns of a schema that are shown.
COLUMNS_MAX: Final = 2_000
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_TIMES: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_TEXTS: Final = ("STRING", "CHAR")
#: Properties that are shown whether or not they are set; of a table in the lake, those of `_LAKE_SHOWN` too.
_SHOWN: Final = ("table.log.ttl",)
_LAKE_SHOWN: Final = ("table.datalake.freshness", "table.datalake.auto-maintenance")


class TableAnswers:
    """What a view shows of one table. For one thread, but for `snapshots`, which may have another one.

    Args:
        tables: Those that requests mean.
        tree: What it shows of a table is what a head was last found to be.
    """

    def __init__(self, tables: ShownTables, tree: TableTree) -> None:
        self._tables, self._tree = tables, tree
        self._connection, self._mask = tables.lab.connection, tables.mask

    def head(self, request: HeadRequest) -> Answer:
        """Return how a table is now.

        Raises:
            TableNotFoundError: It was dropped; one made since of its path is another one.
            UnavailableError: The coordinator is away; it is not waited for.
        """
        path = request.table
        state = tiering_states(self._connection, f"show {path}").get(path)
        facts = self._tree.look(path, state)
        if facts is None:
            raise TableNotFoundError(f"table {path} does not exist")
        info, lag = facts.info, facts.lag
        self._tables.check_id(request, str(info.table_id))
        self._mask.check(info)
        key = info.schema.primary_key
        return {
            "path": path,
            "table_id": str(info.table_id),
            "schema_id": info.schema_id,
            "modified_ms": info.modified_ms,
            "kind": table_kind(info),
            "key": [name for name in key if self._mask.shows(name)],
            "state": STATES[facts.rank],
            "trouble": None if facts.error is None else self._mask.visible_text(facts.error),
            "rows": str(facts.records),
            "lake_rows": str(facts.lake_records),
            "log_records": None if facts.held_records is None else str(facts.held_records),
            "lag_records": None if lag is None else str(lag.records),
            "lag_complete": lag is None or lag.is_complete,
            "lag_ms": None if lag is None else lag.ms,
            "freshness_ms": None if lag is None else lag.freshness_ms,
            "tiering": None if state is None else state.state,
            "last_round_ms": state.last_tiered_time if state is not None and state.last_tiered_time else None,
            "lake_enabled": info.descriptor.lake_enabled,
            "buckets": facts.buckets,
            "partitions": facts.partitions,
            "now_ms": now_ms(),
        }

    def schema(self, request: SchemaRequest) -> Answer:
        """Return columns and properties of a table; long types, comments and values cut to what a message holds."""
        info = self._tables.info(request)
        columns = self._mask.columns(info.schema)
        shown = [
            {
                "name": column.name,
                "type": _type_text(str(column.type.with_nullable(True))),
                "kind": column_kind(column.type.name),
                "role": _role(info, column.name),
                "comment": self._comment(column.comment),
            }
            for column in columns[:COLUMNS_MAX]
        ]
        comment, properties = self._comment(info.descriptor.comment), self._properties(info)

        def make(length: int) -> Answer:
            return {
                "columns": [
                    each | {name: cut_text(each[name], length) for name in ("type", "comment")} for each in shown
                ],
                "total": len(columns),
                "masked": len(info.schema.columns) - len(columns),
                "comment": cut_text(comment, length),
                "properties": [[cut_text(value, length) for value in row] for row in properties],
                "schema_id": info.schema_id,
            }

        return cut_to_size(make, WHOLE_LENGTH_MAX)

    def _comment(self, text: str | None) -> str | None:
        return None if text is None else self._mask.visible_text(text)

    def _properties(self, info: TableInfo) -> list[list[Any]]:
        definition = info.descriptor
        bucket_key = [name for name in definition.bucket_key if self._mask.shows(name)]
        spread = ", ".join(bucket_key) if bucket_key else "hidden" if definition.bucket_key else "none: rows are spread"
        names = [*_SHOWN, *(_LAKE_SHOWN if definition.lake_enabled else ()), *definition.properties]
        # Names that this package knows name no column; an Iceberg property for one column ends in its name.
        names = [name for name in names if name in TABLE_OPTIONS or not self._mask.is_named_in(name)]
        rows: list[list[Any]] = [["bucket key", spread, False]]
        for name in dict.fromkeys(names):
            value = definition.properties.get(name)
            if value is not None and self._mask.is_named_in(value):
                value = "hidden"
            option = TABLE_OPTIONS.get(name)
            shown = value if value is not None else _default(option)
            rows.append([name.removeprefix("table."), shown, value is None])
        return rows

    def buckets(self, request: BucketsRequest) -> Answer:
        """Return where the records of each bucket are; of more than `BUCKETS_MAX`, of partitions or of neighbours.

        ``rows``: partition, bucket, start, local start, end, high watermark, lake start, lake end, bytes, leader, error.
        """
        info = self._tables.info(request)
        listed = bucket_listing(self._connection, info, patient=False)
        rows = [_bucket_row(row, self._mask) for row in listed]
        summed = len(rows) > BUCKETS_MAX
        return {
            "rows": _sums(rows) if summed else rows,
            "summed": summed,
            "total": len(rows),
            "in_lake": info.descriptor.lake_enabled,
            "code": code_lines.buckets_code(info.path),
            "now_ms": now_ms(),
        }

    def bucket(self, request: BucketRequest) -> Answer:
        """Return the lines for the records of one bucket that the lake does not hold."""
        info = self._tables.info(request)
        columns, start = self._tables.code_columns(info), typed_number(request.start, f"bucket {request.bucket}")
        return {"code": code_lines.fresh_code(info.path, request.partition, request.bucket, start, columns)}

    def snapshots(self, request: SnapshotsRequest) -> Answer:
        """Return the newest snapshots of the lake, oldest first; of a table that was never tiered, none.

        ``snapshots``: id, time in epoch milliseconds, operation, whether it is of a round, rows, files, total rows, total
        files, tags.
        """
        rows = self._tables.table(self._tables.info(request)).snapshots()
        names = ("operation", "ours", "rows", "files", "total_rows", "total_files", "tags")
        return {
            "snapshots": [
                [str(row["snapshot_id"]), parse_moment(row["time"]), *(row[name] for name in names)]
                for row in rows[max(0, len(rows) - SNAPSHOTS_MAX) :]
            ],
            "left_out": max(0, len(rows) - SNAPSHOTS_MAX),
        }


def column_kind(type_name: str) -> str:
    """Return how a column is shown, by the name of its type: ``number``, ``text``, ``time``, ``bool`` or ``other``."""
    if type_name in _NUMBERS:
        return "number"
    if type_name in _TIMES:
        return "time"
    return "text" if type_name in _TEXTS else "bool" if type_name == "BOOLEAN" else "other"


def _role(info: TableInfo, name: str) -> str:
    definition = info.descriptor
    roles = (
        ("key", info.schema.primary_key),
        ("partition", definition.partitioned_by),
        ("bucket key", definition.bucket_key),
    )
    return ", ".join(role for role, names in roles if name in names)


def _type_text(text: str) -> str:
    """Return a type as it is written in a schema: names of nested fields stay as they are."""
    return text if "<" in text else text.lower()


def _default(option: Any) -> str:
    if option is None or option.default in {"", None}:
        return "–"
    if option.kind.startswith("a duration"):
        return format_duration(option.default)
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)


def _bucket_row(row: Mapping[str, Any], mask: ColumnMask) -> list[Any]:
    """Return what is drawn of a bucket; offsets as text."""
    start, end = row["start"], row["end"]
    error = None if row["error"] is None else mask.visible_text(row["error"])
    local = row.get("local_start", start)
    offsets = [start, local, end, row["high_watermark"], row.get("lake_start"), row["lake_end"]]
    texts = [None if each is None else str(each) for each in offsets]
    return [row["partition"], row["bucket"], *texts, row["bytes"], row["leader"], error]


def _sums(rows: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the sums of partitions; without partitions, or with too many, of neighbours."""
    by_partition = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    if len(by_partition) == 1 or len(by_partition) > BUCKETS_MAX:
        size = -(-len(rows) // BUCKETS_MAX)
        by_partition = [list(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
    return [_sum(group) for group in by_partition]


def _sum(group: Sequence[list[Any]]) -> list[Any]:
    first = group[0]
    known = [row for row in group if row[4] is not None]
    offsets = [_column_sum([row[place] for row in known]) for place in range(2, 8)]
    errors = [row[10] for row in group if row[10]]
    return [first[0], first[1], *offsets, sum(row[8] or 0 for row in known), None, errors[0] if errors else None]


def _column_sum(values: Sequence[str | None]) -> str | None:
    known = [int(value) for value in values if value is not None]
    return str(sum(known)) if known else None

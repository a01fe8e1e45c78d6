"""The difference of a table between two moments: rows added, removed, and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fluss_lab.display import Cell, Grid, card, plural
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.changes import CHANGE_SYMBOLS
from fluss_lab.model.times import format_moment
from fluss_lab.model.values.pandas_frames import for_pandas, to_pandas
from fluss_lab.read.changelog.changelog import (
    BUCKET,
    LOG_OFFSET,
    PARTITION,
    ChangelogRange,
    changelog_batch,
    changelog_schema,
    divide,
    read_changes,
)
from fluss_lab.read.changelog.net_changes import NetChange, net_change, no_records
from fluss_lab.read.changelog.offset_ranges import ranges_between
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.records import LogRecords, concat_records

if TYPE_CHECKING:
    import pandas as pd

#: How columns of changed rows are called beside the key: ``before.delay``, ``after.delay``. No column has a dot in its name.
BEFORE: Final = "before"
AFTER: Final = "after"
#: Lines of a card that added, and removed, rows are given where others are more.
_SHARE_MIN: Final = 2


class Diff:
    """What changed in a table from one moment to another. Rows that are the same at both are left out.

    Made by `diff`, which has read everything: the object holds what changed and makes no call.

    Attributes:
        before: The one moment.
        after: The other one, earlier or later.
        added: The rows that are there after and whose key had none before: the user's columns.
        removed: The rows that were there before and whose key has none after.
        changed: The keys whose row is another one: the key's columns, then every other column before and after, as
            ``before.<column>`` and ``after.<column>``. Empty for log tables.
    """

    def __init__(
        self,
        info: TableInfo,
        before: ReadPoint,
        after: ReadPoint,
        changes: Sequence[tuple[ChangelogRange, NetChange]],
    ) -> None:
        self.before = before
        self.after = after
        self._info = info
        self._changes = _as_changelog(info, changes)
        self.added = _rows(info, [change.inserted for _, change in changes])
        self.removed = _rows(info, [change.deleted for _, change in changes])
        old = _rows(info, [change.before for _, change in changes])
        new = _rows(info, [change.after for _, change in changes])
        key = info.schema.primary_key
        columns = {name: new[name] for name in key}
        for name in info.schema.names if key else ():
            if name not in key:
                columns |= {f"{BEFORE}.{name}": old[name], f"{AFTER}.{name}": new[name]}
        changed = pa.table(columns)
        self.changed = changed.replace_schema_metadata(for_pandas(changed.schema).metadata)

    def to_arrow(self) -> pa.Table:
        """Return all changes as a net changelog has them, by partition, bucket and offset.

        ``_change_type`` is ``INSERT``, ``DELETE``, or ``UPDATE_BEFORE`` and ``UPDATE_AFTER`` of one key, as seen going from
        before to after; every row has the offset and the time of its record in the log.
        """
        return self._changes

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_arrow` as a pandas frame."""
        return to_pandas(self._changes)

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self._changes.num_rows)

    def __repr__(self) -> str:
        return (
            f"<Diff {self._info.path} from {format_moment(self.before.moment_ms)} to {format_moment(self.after.moment_ms)}: "
            f"{self.added.num_rows:,} added, {self.removed.num_rows:,} removed, {self.changed.num_rows:,} changed>"
        )

    def _repr_html_(self) -> str:
        counts = [(name, getattr(self, name).num_rows) for name in ("added", "removed", "changed")]
        columns, lines, count = self._lines()
        total = sum(number for _, number in counts)
        key = self._info.schema.primary_key
        nulls = 0 if key else len(self._info.schema.names) - len(columns)
        said = [
            f"{count:,} of {total:,} changes." if total else "Nothing changed.",
            f"{plural(nulls, 'column')} without a value." if nulls and total else "",
        ]
        return card(
            "Diff",
            f"{self._info.path} from {format_moment(self.before.moment_ms)} to {format_moment(self.after.moment_ms)}",
            counts,
            grid=Grid(
                ["change", *columns], lines, right=(BEFORE, AFTER) if key else (), kept=("column", BEFORE, AFTER)
            ),
            last=" ".join(filter(None, said)),
            calls=[".added", ".removed", ".changed"],
        )

    def _lines(self) -> tuple[list[str], list[list[object]], int]:
        """Return columns and lines of a card, and of how many changes they are.

        Of a log table they are the rows themselves; of others what identifies a row, and a line for each column that changed.
        """
        key = self._info.schema.primary_key
        if not key:
            rows = self.added.slice(0, CARD_ROWS_MAX).to_pylist() or self.removed.slice(0, CARD_ROWS_MAX).to_pylist()
            sign = CHANGE_SYMBOLS[0] if self.added.num_rows else CHANGE_SYMBOLS[-1]
            names = [name for name in self._info.schema.names if any(row[name] is not None for row in rows)]
            return names, [[sign, *(_cell(row[name]) for name in names)] for row in rows], len(rows)
        added, removed = self.added.num_rows, self.removed.num_rows
        lines: list[list[object]] = []
        count = 0
        room = CARD_ROWS_MAX - min(added, _SHARE_MIN) - min(removed, _SHARE_MIN)
        for row in self.changed.slice(0, CARD_ROWS_MAX).to_pylist():
            found = self._changed_lines(row)
            if lines and len(lines) + len(found) > room:
                break
            lines += found[: max(1, room)]
            count += 1
        blank: list[object] = ["", "", ""]
        for sign, table, others in (("+I", self.added, min(removed, _SHARE_MIN)), ("-D", self.removed, 0)):
            rows = table.select(key).slice(0, max(0, CARD_ROWS_MAX - len(lines) - others)).to_pylist()
            lines += [[sign, *map(_cell, row.values()), *blank] for row in rows]
            count += len(rows)
        return [*key, "column", BEFORE, AFTER], lines, count

    def _changed_lines(self, row: Mapping[str, Any]) -> list[list[object]]:
        """Return a line for each column that a row changed: the old value struck, the new one marked."""
        key = self._info.schema.primary_key
        lines: list[list[object]] = []
        for name in self._info.schema.names:
            old, new = row.get(f"{BEFORE}.{name}"), row.get(f"{AFTER}.{name}")
            # By their texts: two NaN are no change.
            if name not in key and repr(old) != repr(new):
                head = ["", *("" for _ in key)] if lines else ["+U", *(_cell(row[each]) for each in key)]
                lines.append([*head, name, _cell(old, struck=True), _cell(new, changed=True)])
        return lines or [["+U", *(_cell(row[each]) for each in key), "", "", ""]]


def _cell(value: object, *, struck: bool = False, changed: bool = False) -> Cell:
    """Return a value of a row as it is shown: nothing, and an empty text, by words."""
    word = "null" if value is None else "empty" if value == "" else None
    return Cell(value if word is None else word, changed=changed, struck=struck, is_word=word is not None)


def diff(source: TableSource, before: ReadPoint, after: ReadPoint) -> Diff:
    """Return what changed in a table from one moment to another one, earlier or later.

    Raises:
        OffsetOutOfRangeError: What happened in between is no longer all available; the text names the earliest that is.
        PartitionNotFoundError: A partition of one of the two moments was dropped with its rows.
        TableNotFoundError: One of the moments is of another table, dropped since.
        CorruptDataError, StorageError, UnavailableError: Bytes failed their checks; or of a bucket it was not known how far
            it went at one of the moments.

    Cost: the log between the two is read, short ranges once, long ones twice. Memory: what changed.
    """
    changes = []
    with source.watch("comparing {} at two moments"):
        for part, is_forward in parts_between(source, before, after):
            change = _growth(source, part) if source.info.is_log_table else net_change(source, part)
            changes.append((part, change if is_forward else change.reverse()))
    return Diff(source.info, before, after, changes)


def parts_between(source: TableSource, before: ReadPoint, after: ReadPoint) -> list[tuple[ChangelogRange, bool]]:
    """Return the range of each bucket between two moments, and whether it leads from the first to the second.

    Raises:
        FlussError: As `diff`.
    """
    for point in (before, after):
        source.check_table(point.path, point.table_id, point.created_ms, "read point")
        point.check_known()  # such a bucket would pass for one that had nothing
    stops = [
        {TableBucket(point.table_id, each.partition_id, each.bucket): each.stop for each in point.buckets}
        for point in (before, after)
    ]
    # A bucket that a moment does not have was made later: it had nothing then.
    edges = {bucket: (stops[0].get(bucket, 0), stops[1].get(bucket, 0)) for bucket in {**stops[0], **stops[1]}}
    wanted = {bucket: (min(edge), max(edge)) for bucket, edge in edges.items()}
    what = f"the changes between {before!r} and {after!r}"
    points = (before, after) if before != after else ()
    return [
        (part, edges[part.bucket][0] < edges[part.bucket][1])
        for part in divide(source, ranges_between(source, wanted, what, points), looks=False)
    ]


def _growth(source: TableSource, part: ChangelogRange) -> NetChange:
    """Return what a log table's bucket has got: it only grows."""
    nothing = no_records(source.info)
    records = concat_records(list(read_changes(source, part, source.info.schema.names)))
    return NetChange(records, nothing, nothing, nothing)


def _rows(info: TableInfo, records: Sequence[LogRecords]) -> pa.Table:
    found = pa.Table.from_batches([each.rows for each in records if len(each)], info.schema.arrow_schema)
    return found.replace_schema_metadata(for_pandas(found.schema).metadata)


def _as_changelog(info: TableInfo, changes: Sequence[tuple[ChangelogRange, NetChange]]) -> pa.Table:
    schema = changelog_schema(info, info.schema.names)
    found = [
        changelog_batch(records, part, schema, word)
        for part, change in changes
        for word, records in change.labelled_parts()
        if len(records)
    ]
    order = [name for name in (PARTITION, BUCKET, LOG_OFFSET) if name in schema.names]
    return pa.Table.from_batches(found, schema).sort_by([(name, "ascending") for name in order])

"""The difference of a table between two moments: rows added, removed, and changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.display import html_table
from fluss_lab.model import TableBucket, TableInfo
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
from fluss_lab.read.changelog.offset_ranges import ranges_between, unsure_buckets
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.records import LogRecords, concat_records

if TYPE_CHECKING:
    import pandas as pd

#: How columns of changed rows are called beside the key: ``before.delay``, ``after.delay``. No column has a dot in its name.
BEFORE: Final = "before"
AFTER: Final = "after"
#: Changes that a notebook shows: more than it does of any table, as two rows are one change.
_SHOWN_MAX: Final = 100


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
        title, total = repr(self).strip("<>"), self._changes.num_rows
        if total > _SHOWN_MAX:
            title += f"; the first {_SHOWN_MAX} rows of {total:,}"
        shown = self._changes.slice(0, _SHOWN_MAX)
        return html_table(title, shown.column_names, [list(row.values()) for row in shown.to_pylist()], _SHOWN_MAX)


def diff(source: TableSource, before: ReadPoint, after: ReadPoint) -> Diff:
    """Return what changed in a table from one moment to another one, earlier or later.

    Raises:
        OffsetOutOfRangeError: What happened in between is no longer all available; the text names the earliest that is.
        PartitionNotFoundError: A partition of one of the two moments was dropped with its rows.
        TableNotFoundError: One of the moments is of another table, dropped since.
        CorruptDataError: Bytes failed their checks.

    Cost: the log between the two is read, short ranges once, long ones twice. Memory: what changed.
    """
    for point in (before, after):
        source.check_table(point.path, point.table_id, "read point")
    stops = [
        {TableBucket(point.table_id, each.partition_id, each.bucket): each.stop for each in point.buckets}
        for point in (before, after)
    ]
    # A bucket that a moment does not have was made later: it had nothing then.
    edges = {bucket: (stops[0].get(bucket, 0), stops[1].get(bucket, 0)) for bucket in {**stops[0], **stops[1]}}
    wanted = {bucket: (min(edge), max(edge)) for bucket, edge in edges.items()}
    changes = []
    what = f"the changes between {before!r} and {after!r}"
    unsure = unsure_buckets(source, before) | unsure_buckets(source, after) if before != after else frozenset()
    for part in divide(source, ranges_between(source, wanted, what, unsure)):
        change = _grown(source, part) if source.info.is_log_table else net_change(source, part)
        is_forward = edges[part.bucket][0] < edges[part.bucket][1]
        changes.append((part, change if is_forward else change.reversed()))
    return Diff(source.info, before, after, changes)


def _grown(source: TableSource, part: ChangelogRange) -> NetChange:
    """Return what a log table's bucket has got: it only grows."""
    nothing = no_records(source.info)
    records = concat_records(list(read_changes(source, part, source.info.schema.names)))
    return NetChange(records, nothing, nothing, nothing)


def _rows(info: TableInfo, records: Sequence[LogRecords]) -> pa.Table:
    found = pa.Table.from_batches([each.rows for each in records if len(each)], info.schema.arrow())
    return found.replace_schema_metadata(for_pandas(found.schema).metadata)


def _as_changelog(info: TableInfo, changes: Sequence[tuple[ChangelogRange, NetChange]]) -> pa.Table:
    schema = changelog_schema(info, info.schema.names)
    found = [
        changelog_batch(records, part, schema, word)
        for part, change in changes
        for word, records in change.labelled()
        if len(records)
    ]
    order = [name for name in (PARTITION, BUCKET, LOG_OFFSET) if name in schema.names]
    return pa.Table.from_batches(found, schema).sort_by([(name, "ascending") for name in order])

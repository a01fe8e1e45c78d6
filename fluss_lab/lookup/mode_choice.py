"""The choice of how a lookup join of mode ``auto`` looks rows up: whether tasks load them, or the servers are asked."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_lab.client import Connection
from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup.lookup_interfaces import LookupJoinContext
from fluss_lab.lookup.lookup_options import CHANGES_MAX, FULL, FULL_ROWS_MAX, REMOTE
from fluss_lab.lookup.remote_lookup import remote_columns
from fluss_lab.model import TableInfo
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader


def choose_mode(
    connection: Connection,
    info: TableInfo,
    context: LookupJoinContext,
    point: ReadPoint | None,
    options: Mapping[str, str],
) -> tuple[str, str]:
    """Return ``full`` or ``remote``, and why.

    Args:
        connection: To the cluster.
        info: The table.
        context: The planned join.
        point: The moment of which rows are looked up; None: the present one.
        options: Of the lookup.

    Raises:
        OffsetOutOfRangeError, CorruptDataError, StorageError, UnavailableError: The rows cannot be counted.

    Cost: two or three calls, and where the log is longer than ``lookup.full.max-rows``, a count of the table.
    """
    try:
        remote_columns(info, context.join_keys)
    except UnsupportedError:
        return FULL, "the keys are not those that servers look rows up by"
    reader = TableReader(connection, info.path)
    point = point or reader.read_point()
    tasks = context.parallelism if context.is_custom_shuffle_enabled and context.parallelism else 1
    share = max(1, -(-info.descriptor.buckets // tasks)) / info.descriptor.buckets
    most = FULL_ROWS_MAX.of(options)
    rows = point.records
    if rows * share > most:
        rows = reader.scan(read_point=point).count()
    if rows * share <= most:
        return FULL, f"at most {round(rows * share):,} rows a task"
    behind = _changes_since(connection, info, point)
    if behind is None:
        return FULL, "the lake alone has a partition"
    if behind > CHANGES_MAX.of(options):
        return FULL, f"{behind:,} changes since the read point"
    return REMOTE, f"{round(rows * share):,} rows a task"


def _changes_since(connection: Connection, info: TableInfo, point: ReadPoint) -> int | None:
    """Return how many changes there are since a point; None where the cluster does not have all of its buckets."""
    present = {
        (each.bucket.partition_id, each.bucket.bucket): each.require().high_watermark
        for each in connection.admin().buckets(info)
    }
    if any((each.partition_id, each.bucket) not in present for each in point.buckets):
        return None
    return sum(present[each.partition_id, each.bucket] - each.stop for each in point.buckets)

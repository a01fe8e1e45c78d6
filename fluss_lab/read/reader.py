"""Reading a table across cluster and lake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from fluss_lab.client import Connection
from fluss_lab.errors import InvalidRequestError, InvalidTimestampError, PartitionNotFoundError, UnsupportedError
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.times import parse_moment
from fluss_lab.read.changelog import Changelog
from fluss_lab.read.columns import make_columns
from fluss_lab.read.filters import compile_filter
from fluss_lab.read.plan import Selection, check_selection
from fluss_lab.read.points import BucketKey, PointBucket, ReadPoint
from fluss_lab.read.scan import Scan
from fluss_lab.read.seek import Seek, seek
from fluss_lab.read.state import LOOKS_MAX, TableSource

Moment = datetime | str | int

#: A time in the present millisecond is past after one: two waits of more than that.
_PRESENT_WAITS: Final = 2
_PRESENT_WAIT_S: Final = 0.0015


class TableReader:
    """Reads one table across cluster and lake: union reads, seeks, the changelog. Cheap to make.

    Args:
        connection: To the cluster.
        path: The table.
        storage: The lake; None: the one that the cluster is configured with, if it is needed.
        spark: Makes a Spark DataFrame of a scan or changelog; None: ``to_spark`` is refused.

    Raises:
        TableNotFoundError: There is no such table.
    """

    def __init__(
        self,
        connection: Connection,
        path: TablePath,
        storage: LakeStorage | None = None,
        *,
        spark: Callable[[Any], Any] | None = None,
    ) -> None:
        self._source = TableSource(connection, connection.table_info(path), storage)
        self._spark = spark

    @property
    def info(self) -> TableInfo:
        """Return the table as it was when the reader was made."""
        return self._source.info

    def __repr__(self) -> str:
        return f"<TableReader {self.info.path}>"

    def read_point(self, as_of: Moment | None = None) -> ReadPoint:
        """Return a moment of the table, to read it there again and again.

        Args:
            as_of: None: now. Else all records with a timestamp up to this time (a datetime, ISO text, epoch ms); from
                then on no record gets a timestamp up to it, so that the answer stays true.

        Raises:
            InvalidTimestampError: The time cannot be read, or is after the servers' clock.
        """
        moment_ms = None if as_of is None else parse_moment(as_of)
        for attempt in range(LOOKS_MAX):
            try:
                return self._point(moment_ms)
            except PartitionNotFoundError:
                if attempt == LOOKS_MAX - 1:
                    raise
            except InvalidTimestampError:
                # A millisecond that has only begun is not over for the servers either: "now" must not be refused.
                if attempt >= _PRESENT_WAITS:
                    raise
                threading.Event().wait(_PRESENT_WAIT_S)
        raise AssertionError

    def _point(self, as_of_ms: int | None) -> ReadPoint:
        source = self._source
        moment_ms = time.time_ns() // 1_000_000 if as_of_ms is None else as_of_ms
        state = source.look()
        starts = source.starts(state)
        stops = {each.key: each.end for each in state.buckets}
        if as_of_ms is not None:
            answers = source.offsets_by_time(state, as_of_ms + 1, raise_clock=True)
            stops = {key: answer.offset for key, answer in answers.items()}
        buckets = tuple(
            PointBucket(
                each.partition,
                each.bucket.partition_id,
                each.bucket.bucket,
                min(starts[each.key], stops[each.key]),
                stops[each.key],
            )
            for each in state.buckets
        )
        return ReadPoint(
            self.info.path,
            self.info.table_id,
            self.info.schema_id,
            moment_ms,
            as_of_ms is not None,
            state.snapshot_id,
            buckets,
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: object = None,
        *,
        limit: int | None = None,
        as_of: Moment | None = None,
        read_point: ReadPoint | None = None,
        partitions: Collection[str] | None = None,
        buckets: Collection[int] | None = None,
        with_source: bool = False,
    ) -> Scan:
        """Return the union read of the table at one moment; nothing is read yet.

        Args:
            columns: The user's columns, and ``__bucket``, ``__offset``, ``__timestamp`` by name, in the order wanted;
                None: the user's, in schema order.
            where: SQL text, a pyarrow expression or a pyiceberg expression; rows for which it is not true are left out.
            limit: At most so many rows, the first in reading order; None: all.
            as_of: The table as it was at this time.
            read_point: The table as it was at this point. At most one of the two; neither: at the scan's first use.
            partitions: Names of the partitions wanted; None: all.
            buckets: Numbers of the buckets wanted; None: all.
            with_source: Whether to add ``_source``: ``lake`` or ``log``.

        Raises:
            InvalidFilterError: The filter cannot be read, or names an unknown column.
            InvalidSchemaError: There is no such column.
            InvalidTimestampError: `as_of` cannot be read, or is after the servers' clock.
            InvalidRequestError: A limit below 0, or both `as_of` and `read_point`.
            TableNotFoundError: The read point is of a table that was dropped since.
            UnsupportedError: It is a primary-key table.

        A read point is read in the schema that the table had when it was taken.
        """
        if not self.info.is_log_table:
            raise UnsupportedError(
                f"table {self.info.path}: this version scans log tables; it has a primary key: look rows up, or read its "
                "changelog"
            )
        if as_of is not None and read_point is not None:
            raise InvalidRequestError("scan: expected as_of or read_point, found both")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidRequestError(f"scan: expected a limit of at least 0, found {limit!r}")
        source = self._source if read_point is None else self._source_at(read_point)
        schema = source.info.schema
        selection = Selection(compile_filter(where, schema), _collected(partitions), _collected(buckets))
        check_selection(source.info, selection)
        made = make_columns(schema, columns, with_source)
        if as_of is not None:
            read_point = self.read_point(as_of)
        fixed = read_point
        take = self.read_point if fixed is None else lambda: fixed
        return Scan(source, take, made, selection, limit, self._spark)

    def _source_at(self, point: ReadPoint) -> TableSource:
        """Return the table with the columns that it had at a read point."""
        source = self._source
        source.check_table(point.table_id)
        if point.schema_id == self.info.schema_id:
            return source
        schema = source.connection.schema(self.info, point.schema_id)
        descriptor = replace(self.info.descriptor, schema=schema)
        return source.with_info(replace(self.info, schema_id=point.schema_id, descriptor=descriptor))

    def seek(self, moment: Moment) -> Seek:
        """Return, per bucket, the first offset at or after a time, its timestamp, and where it lives.

        A time after the last record gives the end of the bucket; one before all history its start.

        Raises:
            InvalidTimestampError: The time cannot be read, or is after the servers' clock.
        """
        return seek(self._source, parse_moment(moment))

    def changelog(
        self,
        start: Any = "earliest",
        end: Any = None,
        *,
        buckets: Collection[int | BucketKey] | None = None,
        columns: Sequence[str] | None = None,
        net: bool = False,
    ) -> Changelog:
        """Return a range of the table's log, from lake and cluster together; nothing is read yet.

        Args:
            start: ``"earliest"``, ``"latest"``, offsets by bucket or by (partition, bucket), a `Seek`, a `ReadPoint`, a
                time (from the first record at or after it), or a lake snapshot's id (from the end of what it holds).
            end: The same, exclusive; None: the latest at first use.
            buckets: Numbers, or (partition, bucket); None: all.
            columns: User's columns, in the order wanted; None: all.
            net: Only what has changed in effect; for primary-key tables.

        Raises:
            UnsupportedError: `net`: a log table only grows, and of primary-key tables this version gives every change.
            InvalidSchemaError: There is no such column.
        """
        if net:
            why = (
                "it is for primary-key tables, a log table only grows"
                if self.info.is_log_table
                else "this version gives every single change"
            )
            raise UnsupportedError(f"table {self.info.path}: changelog(net=True): {why}")
        return Changelog(self._source, start, end, _collected(buckets), columns, self._spark)


def _collected(values: Collection[Any] | None) -> Any:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidRequestError(f"expected a list, found {values!r}")
    return tuple(values)

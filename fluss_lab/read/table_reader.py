"""The reader of a table across cluster and lake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.client import Connection, LogScanner
from fluss_lab.client.cluster.lossy_drops import newest_lossy_drop
from fluss_lab.errors import InvalidRequestError, InvalidTimestampError, PartitionNotFoundError, UnsupportedError
from fluss_lab.lake import LakeStorage
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import Moment, fixed_moment, format_moment, parse_moment, whole_number
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.changelog.counted_diff import CountedDiff, counted_diff
from fluss_lab.read.changelog.net_changes import NetChangelog
from fluss_lab.read.changelog.offset_ranges import EARLIEST, LATEST, OTHER_EDGES, checked_buckets, resolve_starts
from fluss_lab.read.changelog.row_history import RowHistory
from fluss_lab.read.changelog.table_diff import Diff, diff
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.moment.as_of import point_at_snapshot, point_at_time, point_now, snapshot_moment
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.record_place import RecordPlace, locate
from fluss_lab.read.moment.table_state import LOOKS_MAX, TableSource
from fluss_lab.read.moment.time_seek import Seek, seek
from fluss_lab.read.union.read_columns import make_columns, with_columns_at
from fluss_lab.read.union.read_parts import Selection
from fluss_lab.read.union.read_plan import check_selection
from fluss_lab.read.union.scan import Scan

if TYPE_CHECKING:
    from fluss_lab.display import Waiting

#: A time in the present millisecond is past after one: two waits of more than that.
_PRESENT_WAITS: Final = 2
_PRESENT_WAIT_S: Final = 0.0015


@check_arguments
class TableReader:
    """Reads one table across cluster and lake: union reads, seeks, the changelog. Cheap to make.

    Args:
        connection: To the cluster.
        path: The table.
        storage: The lake; None: the one that the cluster is configured with, if it is needed.
        spark: Makes a Spark DataFrame of a scan or changelog; None: ``to_spark`` is refused.
        waiting: Shows how far a read is, by its words; None: nobody watches.

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
        waiting: Callable[[str], Waiting] | None = None,
    ) -> None:
        self._source = TableSource(connection, connection.table_info(path), storage, waiting)
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
            as_of: None: now. A time (see `parse_moment`; without a zone in that of ``client.time-zone``): all records with a timestamp up to it; from then on
                no record gets a timestamp up to it, so that the answer stays true. The id of a lake snapshot (a number
                that the cluster knows as one, or that is too large for a time): what that snapshot holds.

        Raises:
            InvalidTimestampError: The time cannot be read, is before the table was made, or after the servers' clock.
            LakeSnapshotNotFoundError: There is no such lake snapshot any more.
            OffsetOutOfRangeError: Of a primary-key table: the rows at that moment are no longer available; the text says
                from when on they can.
            CorruptDataError, StorageError, UnavailableError: The cluster does not know how far a bucket goes; the text
                names bucket and cause. What a lake snapshot holds of it can still be read: ``as_of`` its id.

        Cost: two or three calls for now, of a partitioned table two more; for a time one more a partition.
        """
        # Before the look: of a partition that is dropped in between no bucket is in the point.
        drops = newest_lossy_drop(self._source.connection, self.info) if as_of is None else None
        point = self._read_point(as_of)
        point.check_known()
        return point if drops is None else replace(point, lossy_drops=drops)

    def _read_point(self, as_of: Moment | None = None) -> ReadPoint:
        """Return a moment of the table; buckets that are not known are among its `unknown`, for a scan of others."""
        take = self._taking(as_of)
        for attempt in range(LOOKS_MAX):
            try:
                return take()
            except PartitionNotFoundError:
                if attempt == LOOKS_MAX - 1:
                    raise
            except InvalidTimestampError:
                # A millisecond that has only begun is not over for the servers either: "now" must not be refused.
                if attempt >= _PRESENT_WAITS:
                    raise
                threading.Event().wait(_PRESENT_WAIT_S)
        raise AssertionError

    def _taking(self, as_of: Moment | None) -> Callable[[], ReadPoint]:
        source = self._source
        if as_of is None:
            return partial(point_now, source)
        number = whole_number(as_of)
        if number is not None and (moment := snapshot_moment(source, number)):
            return partial(point_at_snapshot, source, moment)
        as_of_ms = parse_moment(as_of, source.connection.time_zone)
        if as_of_ms < self.info.created_ms:
            raise InvalidTimestampError(
                f"table {self.info.path}: there was none at {format_moment(as_of_ms)}: it was made at "
                f"{format_moment(self.info.created_ms)}; expected a time from then on"
            )
        return partial(point_at_time, source, as_of_ms)

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
        gaps: str = "error",
    ) -> Scan:
        """Return the union read of the table at one moment; nothing is read yet.

        Args:
            columns: The user's columns, and ``__bucket``, ``__offset``, ``__timestamp`` by name, in the order wanted;
                None: the user's, in schema order.
            where: SQL text, a pyarrow expression or a pyiceberg expression; rows for which it is not true are left out.
            limit: At most so many rows, the first in reading order; None: all.
            as_of: The table as it was at this time, or as the lake snapshot of this id holds it; see `read_point`.
            read_point: The table as it was at this point. At most one of the two; neither: at the scan's first use.
            partitions: Names of the partitions wanted; None: all.
            buckets: Numbers of the buckets wanted; None: all.
            with_source: Whether to add ``_source``: ``lake`` or ``log``.
            gaps: What becomes of records of a log table that neither lake nor cluster holds any more (they left the
                cluster while the lake was switched off): ``"error"``, or ``"skip"``: the rest is read, with a
                `GapWarning` that names them; ``explain()`` does too. What is damaged or not known is never skipped.

        Raises:
            UnsupportedError: ``gaps="skip"`` of a primary-key table: its rows follow from all records.
            InvalidFilterError: The filter cannot be read, or names an unknown column.
            InvalidSchemaError: There is no such column.
            InvalidTimestampError: `as_of` cannot be read, or is after the servers' clock.
            LakeSnapshotNotFoundError, OffsetOutOfRangeError: What `as_of` asks for is not held any more.
            InvalidRequestError: A limit below 0, or both `as_of` and `read_point`.
            TableNotFoundError: The table was dropped; or the read point is of one that was dropped since.

        A read point is read in the schema that the table had when it was taken.
        """
        if as_of is not None and read_point is not None:
            raise InvalidRequestError("scan: expected as_of or read_point, found both")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidRequestError(f"scan: expected a limit of at least 0, found {limit!r}")
        if gaps not in {"error", "skip"}:
            raise InvalidRequestError(f"scan: expected gaps='error' or 'skip', found {gaps!r}")
        if gaps == "skip" and not self.info.is_log_table:
            raise UnsupportedError(
                f"table {self.info.path}: gaps='skip' is for log tables; the rows of a primary-key table follow from all "
                "of its records"
            )
        source = self._source if read_point is None else with_columns_at(self._source, read_point)
        schema = source.info.schema
        selection = Selection(compile_filter(where, schema), _collect(partitions), _collect(buckets))
        check_selection(source.info, selection)
        made = make_columns(schema, columns, with_source)
        if as_of is not None:
            read_point = self._read_point(as_of)
        fixed = read_point
        take = self._read_point if fixed is None else lambda: fixed
        return Scan(source, take, made, selection, limit, self._spark, skips_gaps=gaps == "skip")

    def seek(self, moment: Moment) -> Seek:
        """Return, per bucket, the first offset at or after a time, its timestamp, and where it lives.

        A time after the last record gives the end of the bucket, also one that has not come yet; one before all history its
        start.

        Raises:
            InvalidTimestampError: The time cannot be read.
        """
        return seek(self._source, parse_moment(moment, self._source.connection.time_zone))

    def locate(self, partition: str | None, bucket: int, offset: int) -> RecordPlace:
        """Return where one record lives: file, row and snapshot of the lake, segment and byte of the log, or both.

        Args:
            partition: Name of its partition; None of a table without partitions.
            bucket: The bucket's number.
            offset: The record's offset.

        Raises:
            OffsetOutOfRangeError: It is held nowhere any more: the text says which offsets are, and from when on. Or there
                is no such record yet.
            BucketNotFoundError, PartitionNotFoundError, InvalidRequestError: There is no such bucket.
            CorruptDataError, StorageError, UnavailableError: The cluster does not know where it is.
            UnsupportedError: The lake format, or a server of an older version, does not say where records lie.

        Cost: the look at the table, a call to the bucket's server, and two columns of a row group in the lake.
        """
        return locate(self._source, partition, bucket, offset)

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
            net: Only what has changed in effect, by key; for primary-key tables. See `NetChangelog`.

        Raises:
            UnsupportedError: `net`: a log table only grows.
            InvalidSchemaError: There is no such column.
            BucketNotFoundError: There is no such bucket.
            InvalidTimestampError: A time cannot be read.
        """
        if net and self.info.is_log_table:
            raise UnsupportedError(
                f"table {self.info.path}: changelog(net=True): it is for primary-key tables, a log table only grows"
            )
        kind = NetChangelog if net else Changelog
        start, end = (_fix_edge(edge, self._source.connection.time_zone) for edge in (start, end))
        wanted = checked_buckets(self.info, _collect(buckets))
        return kind(self._source, start, end, wanted, columns, self._spark)

    def history(self, key: Any, columns: Sequence[str] | None = None) -> RowHistory:
        """Return every change of one row, in order: records as `changelog` has them, from lake and log; nothing is read yet.

        Args:
            key: One dict, or one row in any form of `fluss_lab.model.values.row_input.record_batches`; it names every key column.
            columns: Only these of the user's columns, in the order wanted; None: all.

        Raises:
            UnsupportedError: It is a log table.
            InvalidRecordError, InvalidPartitionError, InvalidRequestError: The key does not fit, or there are several.
            InvalidSchemaError: There is no such column.

        What is no longer available is said: see `RowHistory.starts_late` and `RowHistory.ends_early`. Only the key's own bucket is read.
        """
        return RowHistory(self._source, key, columns)

    def starts(self, start: Any) -> dict[TableBucket, int]:
        """Return the offset in each bucket that a start means now, for those who follow the log from there.

        Args:
            start: As for `changelog`. A bucket that offsets do not name has no entry.

        Raises:
            OffsetOutOfRangeError: Records asked for are held nowhere any more, or are not written yet.
            InvalidRequestError: A start that is none.
        """
        state, starts = resolve_starts(self._source, _fix_edge(start, self._source.connection.time_zone))
        return {each.bucket: starts[each.key] for each in state.buckets if each.key in starts}

    def subscribe(self, start: Any, columns: Sequence[str] | None = None) -> LogScanner:
        """Return a scanner of every bucket, existing and new partitions', that follows the log from a start. Close it.

        Args:
            start: As for `changelog`; buckets that offsets do not name are not read.
            columns: Only these columns, in this order; None: all.

        Raises:
            OffsetOutOfRangeError, InvalidRequestError: As `starts`.
        """
        specs = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}
        spec = specs.get(start) if isinstance(start, str) else None
        starts = None if spec is not None else self.starts(start)
        scanner = self._source.connection.log_scanner(self.info.path, projection=columns)
        try:
            if spec is not None:
                scanner.subscribe_all(spec)
            else:
                scanner.subscribe_at(starts or {})
        except BaseException:
            scanner.close()
            raise
        return scanner

    def diff(self, before: Moment | ReadPoint, after: Moment | ReadPoint | None = None) -> Diff:
        """Return what changed in the table from one moment to another: rows added, removed and changed.

        Args:
            before: A time, a lake snapshot's id, or a `ReadPoint`.
            after: The same, earlier or later; None: now.

        Raises:
            OffsetOutOfRangeError: What happened in between is no longer all available; the text names the earliest that is.
            PartitionNotFoundError: A partition of one of the two moments was dropped with its rows.
            InvalidTimestampError: A time cannot be read, or is after the servers' clock.
            LakeSnapshotNotFoundError: The cluster knows no such lake snapshot.
            CorruptDataError, StorageError, UnavailableError: Of a bucket it was not known how far it went at one of the two.

        Cost: the log between the two is read now; memory is what changed.
        """
        return diff(self._source, *self._points(before, after))

    def counted_diff(
        self, before: Moment | ReadPoint, after: Moment | ReadPoint | None, rows_max: int
    ) -> Iterator[CountedDiff]:
        """Yield `diff` in numbers with its first rows, step by step and bounded in memory: for those who show it.

        Args:
            before: As for `diff`.
            after: As for `diff`.
            rows_max: How many rows of each set are kept.

        Raises:
            FlussError: As `diff`.
        """
        return counted_diff(self._source, *self._points(before, after), rows_max)

    def _points(self, before: Moment | ReadPoint, after: Moment | ReadPoint | None) -> tuple[ReadPoint, ReadPoint]:
        first, second = (each if isinstance(each, ReadPoint) else self.read_point(each) for each in (before, after))
        return first, second


def _fix_edge(edge: Any, zone: tzinfo | None) -> Any:
    """Return where a changelog starts or ends, meaning the same whenever it is asked."""
    if edge is None or (isinstance(edge, str) and edge in {EARLIEST, LATEST}):
        return edge
    try:
        return fixed_moment(edge, zone)
    except InvalidTimestampError as error:
        raise InvalidTimestampError(f"{error}; or {OTHER_EDGES}") from None


def _collect(values: Collection[Any] | None) -> Any:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidRequestError(f"expected a list, found {values!r}")
    return tuple(values)

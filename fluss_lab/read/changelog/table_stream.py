"""A table's log as a stream of batches: where it starts, how far it goes next, and what a batch is made of.

The caller keeps the offsets (Spark: in its checkpoint) and may request the same batch again; the records of a
batch are the same then, wherever they live by that time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any, Final

from fluss_lab.client.cluster.lossy_drops import lossy_drops, newest_lossy_drop
from fluss_lab.client.log.range_reader import wait_for_records
from fluss_lab.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TableNotFoundError,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.times import fixed_moment, format_moment, shown_moment, whole_number
from fluss_lab.read.changelog.admission_control import admit
from fluss_lab.read.changelog.changelog import ChangelogRange, locate_range, read_changes
from fluss_lab.read.changelog.data_loss import DataLoss
from fluss_lab.read.changelog.offset_ranges import EARLIEST, LATEST, LogRange, resolve_starts
from fluss_lab.read.changelog.stream_offsets import NO_PARTITION, StreamOffset
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import TableSource, TableState
from fluss_lab.read.moment.time_seek import Seek
from fluss_lab.records import LogRecords

log = logging.getLogger(__name__)

#: How often a batch's start may move on to what is still held, when records may be lost, before that is an error: each
#: time a retention came between looking and reading.
_LOSSES_MAX: Final = 5


class TableStream:
    """The stream of one table. Used by one thread; it remembers only what it saw last, to make fewer calls.

    Args:
        source: The table.
        fail_on_data_loss: Whether records that are held nowhere any more end the stream with an error; else it goes on
            from the first that is held, with a warning.
    """

    def __init__(self, source: TableSource, *, fail_on_data_loss: bool = True) -> None:
        self._source = source
        self._loss = DataLoss(source, lambda: self._look(None), fails=fail_on_data_loss)
        self._seen: TableState | None = None
        #: The number of the newest drop of a partition whose losses were reported.
        self._drops_seen: int | None = None
        self._pinned: Mapping[TableBucket, int] | None = None

    # -- offsets ------------------------------------------------------------------------------------------------------

    def initial(self, start: Any) -> StreamOffset:
        """Return where a new stream starts.

        Args:
            start: See `resolve_starts`. Buckets that offsets do not name are never read; partitions made from now on are.

        Raises:
            OffsetOutOfRangeError: Offsets given are held nowhere any more, or are not written yet.
            InvalidRequestError: A start that is none.
        """
        # First: what a drop after that loses, the stream does not get.
        drops = newest_lossy_drop(self._source.connection, self._source.info)
        state, starts = resolve_starts(self._source, start)
        named = {each.bucket: starts[each.key] for each in state.buckets if each.key in starts}
        return self._offset(state, named, NO_PARTITION, named, drops)

    @property
    def pinned(self) -> bool:
        """Return whether the stream has an end."""
        return self._pinned is not None

    def pin(self) -> None:
        """Let the stream end at what there is now: later records and partitions are not seen."""
        self._pinned = {each.bucket: each.end for each in self._look(None).buckets}

    def wait(self, timeout_s: float) -> bool:
        """Wait until there may be more than was seen last, or the time is up.

        Returns:
            Whether there is nothing more, as far as the buckets seen last can say: new partitions are not waited for.
            False where it is not known.
        """
        state = self._seen or self._look(None)
        ends = {each.bucket: each.end for each in state.buckets if not each.is_dropped}
        return wait_for_records(self._source.connection, self._source.info, ends, timeout_s)

    def end(self, start: StreamOffset | None) -> StreamOffset | None:
        """Return the end of the stream as it was when last looked at; None before the first look."""
        if self._seen is None or start is None:
            return None
        ends = {bucket: offset for bucket, (_, offset) in self._reach(start, self._seen).items()}
        return self._offset(self._seen, ends, start.newest_partition, _origin_behind(start), start.lossy_drops)

    def latest(self, start: StreamOffset, rows_max: int | None = None, rows_min: int = 0) -> StreamOffset:
        """Return the end of the next batch: `start` when there is none.

        Buckets advance evenly, see `admit`; the answer depends on nothing but the offsets of start and end.

        Args:
            start: The end of the last batch.
            rows_max: How many records the batch may have; None: all there are.
            rows_min: With fewer there is no batch yet; a stream with a pinned end takes what is left.

        Raises:
            TableNotFoundError: The table was dropped; also when another one has its path now.
            OffsetOutOfRangeError: Records that the stream has read already are gone from a bucket's end, or those that it has not
                read with their partition, and that fails the stream.
        """
        state = self._look(start)
        # Then: of a partition that is dropped in between there is an end here, and a loss next time.
        drops = self._newest_drop(start)
        reach = self._reach(start, state)
        buckets = sorted(reach, key=lambda each: (each.partition_id or 0, each.bucket))
        backlogs = [reach[bucket][1] - reach[bucket][0] for bucket in buckets]
        total = sum(backlogs)
        if total < rows_min and self._pinned is None:
            return start
        if rows_max is not None and rows_max < total:
            backlogs = admit(backlogs, rows_max, sum(start.offsets.values()))
        ends = {bucket: reach[bucket][0] + given for bucket, given in zip(buckets, backlogs, strict=True)}
        end = self._offset(state, ends, start.newest_partition, _origin_behind(start), drops)
        # One of an older release, or of a first batch without records, is not a batch of its own.
        same = replace(end, created_ms=start.created_ms, origin=start.origin, lossy_drops=start.lossy_drops)
        return start if same == start else end

    def _look(self, start: StreamOffset | None) -> TableState:
        """Return the table as it is now, if it still is the stream's."""
        source = self._source
        info = source.connection.table_info(source.info.path)
        expected = source.info.table_id if start is None else start.table_id
        if info.table_id != expected:
            raise TableNotFoundError(
                f"stream of table {source.info.path}: expected the one with id {expected}, found id {info.table_id}: it was "
                "dropped and made again; start a new stream, with a new checkpoint"
            )
        made_ms = None if start is None else start.created_ms
        if made_ms is not None and made_ms != info.created_ms:
            raise TableNotFoundError(
                f"stream of table {source.info.path}: expected the one that was made at {format_moment(made_ms)}, found "
                f"one of the same id that was made at {format_moment(info.created_ms)}: it is another lab's; start a new stream, "
                "with a new checkpoint"
            )
        self._seen = source.look()
        return self._seen

    def _newest_drop(self, start: StreamOffset) -> int | None:
        """Return the number of the newest drop of a partition by which records were lost; None where there are none.

        Args:
            start: Where the stream is: what it has not read of those that were lost since is reported.

        Raises:
            OffsetOutOfRangeError: There are such, and that fails the stream.
        """
        if not self._source.info.descriptor.partitioned_by:
            return None
        known = [each for each in (start.lossy_drops, self._drops_seen) if each is not None]
        found = lossy_drops(self._source.connection, self._source.info, max(known) + 1 if known else 0)
        self._loss.report_drops(found.lost, start)
        self._drops_seen = found.newest
        return found.newest

    def _reach(self, start: StreamOffset, state: TableState) -> dict[TableBucket, tuple[int, int]]:
        """Return, for each bucket that continues, where the stream is and how far it could go."""
        reach: dict[TableBucket, tuple[int, int]] = {}
        for each in state.buckets:
            begin = start.begin(each.bucket)
            is_pinned_out = self._pinned is not None and each.bucket not in self._pinned
            if begin is None or (is_pinned_out and each.bucket not in start.offsets):
                continue
            end = each.end if self._pinned is None else min(each.end, self._pinned.get(each.bucket, begin))
            if each.end < begin and not each.is_dropped:
                self._loss.report(each.bucket, each.partition, each.end, begin, "the bucket's log ends before them")
            reach[each.bucket] = (begin, max(begin, end))
        for bucket in start.offsets.keys() - reach.keys():
            log.info("event=stream_bucket_ended table=%s bucket=%s", self._source.info.path, bucket)
        return reach

    def _offset(
        self,
        state: TableState,
        offsets: Mapping[TableBucket, int],
        newest: int,
        origin: Mapping[TableBucket, int] | None,
        drops: int | None,
    ) -> StreamOffset:
        names = {each.bucket.partition_id: each.partition for each in state.buckets}
        partitions = {bucket.partition_id for bucket in offsets if bucket.partition_id is not None}
        known = [each.bucket.partition_id for each in state.buckets if each.bucket.partition_id is not None]
        if self._pinned is not None:
            known = [number for number in known if number in partitions or number <= newest]
        info = self._source.info
        return StreamOffset(
            str(info.path), info.table_id, offsets,
            {number: names[number] or "" for number in sorted(partitions)}, max([newest, *known]), info.created_ms, origin,
            drops,
        )  # fmt: skip

    # -- batches ------------------------------------------------------------------------------------------------------

    def buckets(self, start: StreamOffset, end: StreamOffset) -> list[LogRange]:
        """Return what a batch is made of, by partition and bucket: what is lost already is left out, if that may be.

        Args:
            start: Where it starts; of a first batch that is run again it may be another place than it was: its end says where it
                began.
            end: Where it ends.

        Raises:
            TableNotFoundError: The table was dropped; also when another one has its path now.
            OffsetOutOfRangeError: Records of the batch are held nowhere any more.
        """
        begins = start.offsets if end.origin is None else end.origin
        found = []
        for bucket, stop in end.offsets.items():
            begin = begins.get(bucket, 0)
            if begin < stop:
                found.append(LogRange(bucket, end.name(bucket), begin, stop))
        if not found:
            return []
        return self._loss.held_ranges(found, self._look(end))

    def ranges(self, buckets: Sequence[LogRange]) -> list[ChangelogRange]:
        """Return from where records of a batch are read now."""
        state = self._seen or self._look(None)
        return [locate_range(each, state) for each in buckets]

    def read(self, part: ChangelogRange, columns: Sequence[str]) -> Iterator[LogRecords]:
        """Yield the records of a range; when some are gone that may be lost, from the next that is held on.

        Raises:
            OffsetOutOfRangeError: Some are held nowhere any more.
            CorruptDataError: A record is missing, or there twice.
        """
        for _ in range(_LOSSES_MAX):
            position = part.start
            try:
                for records in read_changes(self._source, part, columns):
                    position = records.next_offset
                    yield records
                return
            except OffsetOutOfRangeError as error:
                wanted = LogRange(part.bucket, part.partition, position, part.stop)
                if self._loss.fails:
                    raise self._loss.error(wanted.bucket, wanted.partition, position, part.stop, str(error)) from error
                left = self._loss.held_ranges([wanted], self._look(None))
                if not left:
                    return
                [part] = self.ranges(left)
        raise self._loss.error(
            part.bucket, part.partition, part.start, part.stop, "they expire faster than they are read"
        )


def _origin_behind(start: StreamOffset) -> Mapping[TableBucket, int] | None:
    """Return what the end of a batch says of where the stream began; None unless it may be the first."""
    return start.offsets if start.is_origin else None


# -- starts as text -----------------------------------------------------------------------------------------------------


def start_text(info: TableInfo, start: Any, zone: tzinfo | None = None) -> str:
    """Return a start as the text of the data source's option ``start``.

    Args:
        info: The table.
        start: What `resolve_starts` takes.
        zone: The zone of times that have none; None: the system's.

    Raises:
        InvalidRequestError: It is none that `resolve_starts` takes.
    """
    if isinstance(start, Seek):
        # As a read point: partitions that are made later are not in it, and are read from their beginning.
        buckets = tuple(PointBucket(e.partition, e.partition_id, e.bucket, 0, e.offset) for e in start.buckets)
        return ReadPoint(
            start.path,
            start.table_id,
            info.schema_id,
            start.moment_ms,
            False,
            None,
            buckets,
            created_ms=start.created_ms,
        ).to_json()
    if isinstance(start, ReadPoint):
        return start.to_json()
    if isinstance(start, Mapping):
        return json.dumps({_bucket_text(key): _plain(offset) for key, offset in start.items()})
    if not (isinstance(start, str) and start in {EARLIEST, LATEST}):
        start = fixed_moment(start, zone)
    if isinstance(start, bool) or not isinstance(start, str | int | datetime):
        raise InvalidRequestError(
            "start of a stream: expected 'earliest', 'latest', offsets by bucket, a Seek, a ReadPoint, a time or a lake "
            f"snapshot id, found {start!r}"
        )
    return shown_moment(start) if isinstance(start, datetime) else str(start)


def _plain(offset: Any) -> Any:
    return offset if (number := whole_number(offset)) is None else number


def _bucket_text(key: Any) -> str:
    if isinstance(key, tuple):
        return str(key[1]) if key[0] is None else f"{key[0]}/{key[1]}"
    return str(key)

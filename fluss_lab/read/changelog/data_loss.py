"""The loss of records that a stream was to read: an error, or a warning and the next records that are held."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from fluss_lab.client.cluster.lossy_drops import LostRecords
from fluss_lab.errors import LakeSnapshotNotFoundError, OffsetOutOfRangeError
from fluss_lab.model import TableBucket
from fluss_lab.model.times import format_moment
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.changelog.stream_offsets import StreamOffset
from fluss_lab.read.moment.log_retention import log_starts
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState

log = logging.getLogger(__name__)


class DataLoss:
    """What becomes of records of one stream that are held nowhere any more (Spark's and Kafka's ``failOnDataLoss``).

    Args:
        source: The table.
        look: Returns the table as it is now.
        fails: Whether they end the stream.

    Attributes:
        fails: As given.
    """

    def __init__(self, source: TableSource, look: Callable[[], TableState], *, fails: bool) -> None:
        self.fails = fails
        self._source, self._look = source, look

    def held_ranges(self, ranges: list[LogRange], state: TableState) -> list[LogRange]:
        """Return ranges from the first record on that is held; what is lost is reported.

        Args:
            ranges: At most one of each bucket.
            state: The table as it is now.

        Raises:
            OffsetOutOfRangeError: Records are lost, and that fails the stream.
        """
        behind = {each.bucket for each in ranges if not _is_in_cluster(each, state.by_bucket.get(each.bucket))}
        if not behind:
            return ranges
        # Only these need a look into the lake.
        try:
            first = log_starts(self._source, state)
        except LakeSnapshotNotFoundError:  # expired since the look
            state = self._look()
            first = log_starts(self._source, state)
        found = []
        for each in ranges:
            known = state.by_bucket.get(each.bucket)
            if each.bucket not in behind:
                found.append(each)
                continue
            low = each.stop if known is None else _first_held(each, known, first[known.key])
            if low <= each.start:
                found.append(each)
                continue
            why = "its partition was dropped" if known is None else f"the first one held has offset {low}"
            self.report(each.bucket, each.partition, each.start, min(low, each.stop), why)
            if low < each.stop:
                found.append(replace(each, start=low))
        return found

    def report_drops(self, drops: Iterable[LostRecords], start: StreamOffset) -> None:
        """Report those records lost with dropped partitions that a stream has not read.

        Args:
            drops: What was lost, since the stream last looked.
            start: Where the stream is.

        Raises:
            OffsetOutOfRangeError: There are such, and that fails the stream.
        """
        for each in drops:
            begin = start.begin(each.bucket)
            if begin is None or not each.reach(begin):
                continue
            why = f"its partition was dropped at {format_moment(each.dropped_ms)}"
            self.report(each.bucket, each.partition, max(begin, each.start), each.stop, why)

    def report(self, bucket: TableBucket, partition: str | None, start: int, stop: int | None, why: str) -> None:
        """Raise that records of a bucket are lost, or note it where the stream goes on.

        Raises:
            OffsetOutOfRangeError: It does not.
        """
        error = self.error(bucket, partition, start, stop, why)
        if self.fails:
            raise error
        log.warning("%s; continuing without them", error)

    def error(
        self, bucket: TableBucket, partition: str | None, start: int, stop: int | None, why: str
    ) -> OffsetOutOfRangeError:
        """Return what says that records ``[start, stop)`` of a bucket are lost, or those from `start` on."""
        where = f"bucket {bucket.bucket}" if partition is None else f"partition {partition!r}, bucket {bucket.bucket}"
        offsets = f"from {start} on, how many is not known," if stop is None else f"[{start}, {stop})"
        return OffsetOutOfRangeError(
            f"stream of table {self._source.info.path}, {where}: records with offsets {offsets} are no longer available: {why}. "
            "To continue without them set failOnDataLoss=false, or start a new stream"
        )


def _is_in_cluster(wanted: LogRange, state: BucketState | None) -> bool:
    return state is not None and state.holds_from(wanted.start)


def _first_held(wanted: LogRange, state: BucketState, first: int) -> int:
    """Return the first offset that is held of those wanted; beyond them when none is.

    Args:
        wanted: Records of which the cluster does not hold the first.
        state: Their bucket.
        first: Where the log begins that cluster and lake hold.
    """
    if wanted.start < state.lake_end:
        return first
    return wanted.stop if state.start is None else state.start

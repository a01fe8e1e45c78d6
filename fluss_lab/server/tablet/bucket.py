"""One bucket as its readers know it: a log here, and before it perhaps a part in the lake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fluss_lab.errors import InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.model.names import TableBucket
from fluss_lab.server.tablet.log import BucketLog
from fluss_lab.server.tablet.tables import Table
from fluss_lab.server.tablet.view import Fetched


@dataclass(frozen=True, slots=True)
class LakeState:
    """What the lake holds of a bucket, as the coordinator told: offsets ``[start, end)``.

    Attributes:
        snapshot_id: The lake snapshot that holds them.
        start: First offset; 0 unless the coordinator says otherwise.
        end: Offset after the last record.
        max_timestamp_ms: Timestamp of the last record; -1 when unknown.
    """

    snapshot_id: int
    start: int
    end: int
    max_timestamp_ms: int


class OffsetAnswer(NamedTuple):
    """An answer to ListOffsets: the offset, the timestamp of the record there if it is held here, where to look first."""

    offset: int
    timestamp_ms: int | None = None
    lake_snapshot_id: int | None = None


@dataclass(slots=True)
class Bucket:
    """A bucket that this server holds."""

    id: TableBucket
    table: Table
    partition: str | None
    log: BucketLog
    lake: LakeState | None = None

    def fetch(self, offset: int, bytes_max: int, *, at_least_one: bool, enable_lake: bool) -> Fetched | LakeState:
        """Return batches from an offset on, or the lake's part that holds it.

        Local first, the lake second: it is asked iff ``lake start <= offset < lake end`` and the offset is not held
        here any more.

        Raises:
            OffsetOutOfRangeError: Nobody holds the offset.
            CorruptDataError, NotLeaderError: As `LogReader.read`.
        """
        if (lake := self.lake_of(offset, enable_lake=enable_lake)) is not None:
            return lake
        try:
            return self.log.reader.read(offset, bytes_max, at_least_one=at_least_one)
        except OffsetOutOfRangeError as error:
            # It may have gone to the lake since it was looked for.
            if (lake := self.lake_of(offset, enable_lake=enable_lake)) is not None:
                return lake
            raise OffsetOutOfRangeError(self._out_of_range(offset, enable_lake=enable_lake)) from error

    def lake_of(self, offset: int, *, enable_lake: bool) -> LakeState | None:
        """Return the lake's part if it holds an offset that the log holds no more."""
        lake = self.lake
        if enable_lake and lake is not None and offset < self.log.start and lake.start <= offset < lake.end:
            return lake
        return None

    def _out_of_range(self, offset: int, *, enable_lake: bool) -> str:
        text = (
            f"{self.table.path} bucket {self.id.bucket}: offset {offset} is not held; expected one in "
            f"[{self.log.start}, {self.log.high_watermark}]"
        )
        if self.lake is None:
            return f"{text}; the lake holds nothing of the bucket"
        asked = "" if enable_lake else " (the request did not allow reading from there)"
        return f"{text}, or in the lake one in [{self.lake.start}, {self.lake.end}){asked}"

    # -- list offsets --------------------------------------------------------------------------------------------------

    def earliest(self, *, enable_lake: bool) -> OffsetAnswer:
        """Return the first offset that is held: in the lake, if that is earlier and allowed."""
        start, lake = self.log.start, self.lake
        if enable_lake and lake is not None and lake.start < min(start, lake.end):
            return OffsetAnswer(lake.start, None, lake.snapshot_id)
        return OffsetAnswer(start, self._timestamp_at(start))

    def latest(self, *, durable: bool) -> OffsetAnswer:
        """Return the high watermark, or the offset up to which all is on the device, made so before.

        Raises:
            StorageError: The device refused.
        """
        return OffsetAnswer(self.log.sync() if durable else self.log.high_watermark)

    def at_time(self, timestamp_ms: int, *, enable_lake: bool, raise_clock: bool) -> OffsetAnswer:
        """Return the first offset whose record's timestamp is at or after a time.

        Args:
            timestamp_ms: Epoch milliseconds, UTC.
            enable_lake: Whether the answer may lie in the lake. When it may, the answer names the lake's snapshot, to
                be asked first; the offset is the answer if the lake has none.
            raise_clock: Whether no record appended later may come before the time, so that the answer stays.

        Returns:
            The offset; the high watermark when all records are older.

        Raises:
            InvalidTimestampError: The time is negative, or with `raise_clock` after the server's clock.
            StorageError: With `raise_clock` and durability by fsync: the device refused.
        """
        if timestamp_ms < 0:
            raise InvalidTimestampError(f"expected a time of at least 0 (epoch milliseconds), found {timestamp_ms}")
        if raise_clock:
            self.log.raise_floor(timestamp_ms)
            # What was appended before the floor rose belongs to the answer: it must be readable now.
            self.log.settle()
        offset, found_ms = self.log.reader.find_time(timestamp_ms)
        lake, start = self.lake, self.log.start
        # Where nothing here is older than the time, the first record that is not older may have left.
        may_have_left = enable_lake and lake is not None and offset <= start and lake.start < min(start, lake.end)
        if lake is not None and may_have_left and (lake.max_timestamp_ms < 0 or lake.max_timestamp_ms >= timestamp_ms):
            return OffsetAnswer(offset, found_ms, lake.snapshot_id)
        return OffsetAnswer(offset, found_ms)

    def _timestamp_at(self, offset: int) -> int | None:
        try:
            return self.log.reader.timestamp_at(offset)
        except OffsetOutOfRangeError:
            return None  # it left in between; the offset was right when it was asked

    # -- retention -----------------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Drop segments past the table's ttl; of a lake-enabled table only what the lake holds. Return how many.

        Raises:
            StorageError: The disk refused.
        """
        offset_max: int | None = None
        if self.table.lake_enabled:
            lake = self.lake
            # What left the log must be found in the lake without a hole in front of it.
            if lake is None or lake.start > self.log.start:
                return 0
            offset_max = lake.end
        return self.log.drop_before(now_ms - self.table.log_ttl_ms, offset_max)

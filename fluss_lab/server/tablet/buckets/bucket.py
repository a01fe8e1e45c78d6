"""The places that hold a bucket: its log here, before it perhaps a part in remote storage, and one in the lake; which answers what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fluss_lab.errors import FlussError, InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.names import TableBucket
from fluss_lab.server.tablet.buckets.bucket_logger import bucket_fields
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.damage.log_cut import GivenUpRange
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.log_reader import FetchedBatches
from fluss_lab.server.tablet.remote.remote_log import RemoteFetch, RemoteLog
from fluss_lab.server.tablet.remote.remote_manifest import RemoteManifest
from fluss_lab.server.tablet.request_counters import BucketCounters


@dataclass(frozen=True, slots=True)
class LakeState:
    """What the lake holds of a bucket, as the coordinator notified: offsets ``[start, end)``.

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

    def leads_up_to(self, offset: int) -> bool:
        """Return whether it holds what comes before an offset, without a hole (as there is where the lake was switched off)."""
        return self.start < offset <= self.end


class OffsetAnswer(NamedTuple):
    """An answer to ListOffsets.

    Attributes:
        offset: The answer, as far as the cluster knows; None: not known at the moment, but the lake may have it.
        timestamp_ms: Timestamp of the record there, if it is held here.
        lake_snapshot_id: Where to look first.
    """

    offset: int | None
    timestamp_ms: int | None = None
    lake_snapshot_id: int | None = None


@dataclass(slots=True)
class Bucket:
    """A bucket that this server holds."""

    id: TableBucket
    table: RegisteredTable
    partition: str | None
    log: BucketLog
    lake: LakeState | None = None
    #: The rows, of a primary-key table.
    kv: KvBucket | None = None
    #: What left the log for remote storage; None without remote storage.
    remote: RemoteLog | None = None
    #: What was given up of the log, because it could not be read.
    given_up: tuple[GivenUpRange, ...] = ()
    counters: BucketCounters = field(init=False)

    def __post_init__(self) -> None:
        self.counters = BucketCounters(self.log.end)

    @property
    def log_fields(self) -> dict[str, str | None]:
        """Return what a log record about the bucket says of it: see `BucketLogger`."""
        return bucket_fields(self.table.path, self.partition, self.id)

    @property
    def start(self) -> int:
        """Return the first offset that the cluster holds: here, or in remote storage in front of it.

        Raises:
            CorruptDataError, StorageError: It is not known: segments are missing here, or what remote storage holds is not
                known.
        """
        self.log.reader.check_start()
        start = self.log.start
        before = self._remote_before(start)
        return start if before is None else before.start

    def _remote_before(self, start: int) -> RemoteManifest | None:
        """Return what remote storage holds in front of an offset, without a hole; None when nothing. It raises as `start`."""
        held = None if self.remote is None or not start else self.remote.manifest
        return held if held is not None and held.segments and held.start < start <= held.end else None

    def check_known(self) -> None:
        """Check that the bucket's first and last offsets are known: nothing may be dropped, copied or tiered otherwise.

        Raises:
            FlussError: Why they are not.
        """
        _ = self.start
        self.log.reader.check_end()

    def fetch(
        self, offset: int, bytes_max: int, *, at_least_one: bool, enable_lake: bool, stop: int | None = None
    ) -> FetchedBatches | RemoteFetch | LakeState:
        """Return batches from an offset on, up to another, or where in remote storage they are, or the lake's part that holds it.

        Local first, remote storage second, the lake third: only if ``lake start <= offset < lake end`` and the cluster no
        longer holds the offset.

        Raises:
            OffsetOutOfRangeError: Neither log, remote storage nor lake holds the offset.
            CorruptDataError, NotLeaderError: As `LogReader.read`.
            CorruptDataError, StorageError: It may be in remote storage, which cannot be read; the lake does not hold it.
        """
        if (found := self._elsewhere(offset, enable_lake=enable_lake)) is not None:
            return found
        try:
            return self.log.reader.read(offset, bytes_max, at_least_one=at_least_one, stop=stop)
        except OffsetOutOfRangeError as error:
            # It may have left the log since it was looked for.
            if (found := self._elsewhere(offset, enable_lake=enable_lake)) is not None:
                return found
            if offset < self.log.start:
                self.log.reader.check_start()
            raise OffsetOutOfRangeError(self._out_of_range(offset, enable_lake=enable_lake)) from error

    def _elsewhere(self, offset: int, *, enable_lake: bool) -> RemoteFetch | LakeState | None:
        """Return what holds an offset that the log no longer holds."""
        if offset >= self.log.start:
            return None
        lake = self.lake_of(offset, enable_lake=enable_lake)
        if self.remote is not None:
            try:
                if (found := self.remote.fetch(offset)) is not None:
                    return found
            except FlussError:
                if lake is None:
                    raise
        return lake

    def lake_of(self, offset: int, *, enable_lake: bool) -> LakeState | None:
        """Return the lake's part if it holds an offset that the log no longer holds."""
        lake = self.lake
        if enable_lake and lake is not None and offset < self.log.start and lake.start <= offset < lake.end:
            return lake
        return None

    def _out_of_range(self, offset: int, *, enable_lake: bool) -> str:
        text = (
            f"{self.table.path} bucket {self.id.bucket}: offset {offset} is not held; expected one in "
            f"[{self.log.start}, {self.log.high_watermark}]"
        )
        try:
            start = self.start
            if (remote := self._remote_before(self.log.start)) is not None:
                text += f", or in remote storage one in [{remote.start}, {remote.end})"
        except FlussError as error:
            return f"{text}; what lies before is not known: {error}"
        if (lake := self.lake) is None:
            return f"{text}; the lake holds nothing of the bucket"
        asked = "" if enable_lake else " (the request did not allow reading from there)"
        first = min(start, lake.start) if enable_lake and lake.start < lake.end else start
        return f"{text}, or in the lake one in [{lake.start}, {lake.end}){asked}; the earliest is {first}"

    # -- list offsets --------------------------------------------------------------------------------------------------

    def earliest(self, *, enable_lake: bool) -> OffsetAnswer:
        """Return the first offset that is held: in the lake, if that is earlier and allowed.

        Raises:
            CorruptDataError, StorageError: It is not known: see `start`.
        """
        held_from = self.log.start
        lake = self.lake
        if enable_lake and lake is not None and lake.start == 0 and lake.end >= held_from > 0:
            return OffsetAnswer(0, None, lake.snapshot_id)  # whatever the cluster holds in front of its log
        failpoint("tablet.offsets.before_start")
        start = self.start
        lake = self.lake  # once more, after the start: what left the cluster by then is in what the lake has now
        if enable_lake and lake is not None and lake.leads_up_to(start):
            return OffsetAnswer(lake.start, None, lake.snapshot_id)
        if self.remote is not None and self.log.start:
            held = self.remote.manifest
            if held.segments and held.start == start:
                return OffsetAnswer(start, held.segments[0].first_timestamp_ms)
        return OffsetAnswer(start, self._timestamp_at(start))

    def latest(self, *, durable: bool) -> OffsetAnswer:
        """Return the high watermark, or the offset up to which all is on the device, made so before.

        Raises:
            StorageError: The device refused.
            CorruptDataError, UnsupportedError: The log was damaged, so it is not known; or its beginning is not, and the
                durable offset is asked, from which follows what may be moved to the lake.
        """
        self.log.reader.check_end()
        if durable:
            self.log.reader.check_start()
        return OffsetAnswer(self.log.sync() if durable else self.log.high_watermark)

    def at_time(self, timestamp_ms: int, *, enable_lake: bool, raise_clock: bool) -> OffsetAnswer:
        """Return the first offset whose record's timestamp is at or after a time.

        Args:
            timestamp_ms: Epoch milliseconds, UTC.
            enable_lake: Whether the answer may lie in the lake. When it may, the answer names the lake's snapshot, to
                be asked first; the offset is the answer if the lake has none (absent when remote storage cannot be read).
            raise_clock: Whether no record appended later may come before the time, so that the answer stays.

        Returns:
            The offset; the high watermark when all records are older.

        Raises:
            InvalidTimestampError: The time is negative, or with `raise_clock` after the server's clock.
            StorageError: With `raise_clock` and durability by fsync: the device refused.
            CorruptDataError, StorageError, UnsupportedError: The answer may lie in what is damaged or lost, or in remote
                storage, which cannot be read; nor has the lake it.
        """
        if timestamp_ms < 0:
            raise InvalidTimestampError(f"expected a time of at least 0 (epoch milliseconds), found {timestamp_ms}")
        if raise_clock:
            self.log.raise_floor(timestamp_ms)
            # What was appended before the floor rose belongs to the answer: it must be readable now.
            self.log.settle()
        failpoint("tablet.offsets.before_log")
        offset, found_ms = self.log.reader.find_time(timestamp_ms)
        problem = None
        try:
            if offset <= self.log.start:
                self.log.reader.check_start()
            offset, found_ms = self._remote_at_time(timestamp_ms, offset) or (offset, found_ms)
        except FlussError as error:
            problem = error
        if enable_lake and offset <= (held_from := self.log.start):
            # Where nothing here is older than the time, the first record that is not older may have left.
            start = self.start if problem is None else held_from
            if offset <= start and (snapshot_id := self._lake_at_time(timestamp_ms, start, problem)) is not None:
                return OffsetAnswer(offset if problem is None else None, found_ms, snapshot_id)
        if problem is not None:
            raise problem
        return OffsetAnswer(offset, found_ms)

    def _lake_at_time(self, timestamp_ms: int, start: int, problem: FlussError | None) -> int | None:
        """Return the lake's snapshot if it may hold the first record at or after a time, before the cluster's `start`.

        Called after all looks at the log: what left it between two of them is in what the lake has now.
        """
        lake = self.lake
        if lake is None or 0 <= lake.max_timestamp_ms < timestamp_ms:
            return None
        # With a problem, what lies between the lake and the log here is in remote storage.
        behind = lake.leads_up_to(start if problem is None else min(start, lake.end))
        return lake.snapshot_id if behind else None

    def _remote_at_time(self, timestamp_ms: int, local: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a time, if it lies before the log's answer."""
        if self.remote is None or not 0 < local <= self.log.start:
            return None  # what is older is here, and so is the answer
        if not self.remote.manifest.segments or self._remote_before(self.log.start) is None:
            return None
        found = self.remote.find_time(timestamp_ms)
        return found if found is not None and found[0] < local else None

    def _timestamp_at(self, offset: int) -> int | None:
        try:
            return self.log.reader.timestamp_at(offset)
        except OffsetOutOfRangeError:
            return None  # it left in between; the offset was right when it was asked

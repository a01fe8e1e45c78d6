"""The state of a table now: its buckets in the cluster and in the lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from fluss_lab.client import BucketOffset, BucketStatus, Connection, KnownBucket, UnknownBucket
from fluss_lab.client.cluster.bucket_status import bucket_statuses, lake_snapshot
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.errors import (
    FlussError,
    InvalidRequestError,
    InvalidTimestampError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    PartitionNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import FlussLogSource, LakeSource, LakeStorage, LookupContext, SupportsCreateFlussLogSource
from fluss_lab.model import LakeSnapshot, OffsetSpec, PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment

if TYPE_CHECKING:
    from fluss_lab.display import Waiting

T = TypeVar("T")

#: A partition may be dropped between the questions of one look; more often than this is no accident.
LOOKS_MAX = 5
#: Of a lake snapshot's id: a larger number is none.
_ID_BITS = 63


@dataclass(frozen=True, slots=True)
class BucketState:
    """One bucket now. What the cluster cannot say of it raises the server's own error where it is asked for.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        status: What the cluster says of it; None when it does not have the bucket any more.
        lake_end: Offsets below are in the lake (0 when none are).
    """

    bucket: TableBucket
    partition: str | None
    status: BucketStatus | None
    lake_end: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket.bucket)

    @property
    def is_known(self) -> bool:
        """Return whether the cluster knows how far the bucket goes (or that it has dropped it)."""
        return not isinstance(self.status, UnknownBucket)

    @property
    def is_dropped(self) -> bool:
        """Return whether the cluster does not have the bucket any more."""
        return self.status is None

    def check_known(self) -> None:
        """Raise the server's error unless the cluster knows how far the bucket goes."""
        if self.status is not None:
            self.status.require()

    @property
    def start(self) -> int | None:
        """Return the first offset that the cluster holds; None when it does not have the bucket any more.

        Raises:
            FlussError: The cluster does not know it.
        """
        return None if self.status is None else self.status.require().start_offset

    @property
    def local_start(self) -> int | None:
        """Return the first offset on a server's disk: those before are in remote storage, or gone from the cluster."""
        return None if self.status is None else self.status.require().local_start_offset

    @property
    def end(self) -> int:
        """Return the offset after the last readable record, in the cluster, or in the lake when only that holds it."""
        return self.lake_end if self.status is None else self.status.require().high_watermark

    @property
    def start_error(self) -> FlussError | None:
        """Return why the cluster does not know the bucket's first offset, though it knows the rest; None when it does."""
        return self.status.error if isinstance(self.status, KnownBucket) else None

    def is_whole_in(self, snapshot: LakeSnapshot | None) -> bool:
        """Return whether the newest lake snapshot has the bucket from its first record on."""
        return bool(snapshot is not None and self.lake_end and snapshot.starts.get(self.bucket, 0) == 0)

    @property
    def max_timestamp_ms(self) -> int | None:
        """Return the time of its last record; None when it has none, or only the lake knows it."""
        return None if self.status is None else self.status.require().max_timestamp_ms

    def holds_from(self, offset: int) -> bool:
        """Return whether the cluster holds the log from an offset on.

        Raises:
            FlussError: The cluster does not know it.
        """
        if self.status is None:
            return False
        known = self.status.require()
        # What is on the server's disk is held whatever may be in front of it.
        return known.local_start_offset <= offset or known.start_offset <= offset

    def lake_stop(self, start: int, stop: int) -> int:
        """Return where in ``[start, stop)`` that ends which is read from the lake: the cluster does not hold it.

        Of a bucket that is not known all that the lake has; whether the cluster has the rest, reading finds out.
        """
        held = stop
        if isinstance(self.status, KnownBucket):
            held = self.status.local_start_offset if self.status.error else self.status.start_offset
        # Below the cluster's start only the lake can have it; the lake may lag behind that in no case but by accident.
        return max(start, min(held, self.lake_end, stop))


def surely_holds(bucket: BucketState, offset: int) -> bool:
    """Return whether the cluster holds a bucket's log from an offset on, and knows it: nothing is raised."""
    status = bucket.status
    if not isinstance(status, KnownBucket):
        return False
    return status.local_start_offset <= offset or (status.error is None and status.start_offset <= offset)


def known_start(bucket: BucketState, low: Mapping[BucketKey, int]) -> int:
    """Return where a bucket's log begins, from `log_retention.log_starts`.

    Raises:
        FlussError: It is not known: the server's own error.
    """
    if bucket.key in low:
        return low[bucket.key]
    bucket.check_known()
    start = bucket.start
    assert start is not None
    return start


@dataclass(frozen=True)
class TableState:
    """A table now: every bucket, by partition name and bucket, and the newest lake snapshot (None without)."""

    buckets: tuple[BucketState, ...]
    snapshot: LakeSnapshot | None

    @cached_property
    def by_bucket(self) -> Mapping[TableBucket, BucketState]:
        """Return the buckets by identity."""
        return {each.bucket: each for each in self.buckets}

    @property
    def is_whole(self) -> bool:
        """Return whether the cluster surely holds the log of every bucket from its first record on."""
        return all(surely_holds(each, 0) for each in self.buckets)

    def only(self, wanted: Callable[[BucketState], bool]) -> TableState:
        """Return the table with some of its buckets."""
        return TableState(tuple(each for each in self.buckets if wanted(each)), self.snapshot)

    @property
    def snapshot_id(self) -> int | None:
        """Return the newest lake snapshot's id."""
        return None if self.snapshot is None else self.snapshot.snapshot_id


class TableSource:
    """One table with everything that reads of it need.

    Args:
        connection: To the cluster.
        info: The table.
        storage: The lake; None: the one that the cluster is configured with.
        waiting: Shows how far a read is, by its words; None: nobody watches.
    """

    def __init__(
        self,
        connection: Connection,
        info: TableInfo,
        storage: LakeStorage | None,
        waiting: Callable[[str], Waiting] | None = None,
    ) -> None:
        self.connection = connection
        self.info = info
        self._given = storage
        self._waiting = waiting
        self._seen: TableState | None = None

    def with_info(self, info: TableInfo) -> TableSource:
        """Return the same table as it is otherwise known: with the columns that it had at some time."""
        other = TableSource(self.connection, info, self._given, self._waiting)
        other._seen = self._seen
        return other

    def fresh(self) -> TableSource:
        """Return the same table, not looked at yet: what is asked of it changes nothing here.

        Raises:
            FlussError: The cluster does not answer, or does not know one of its buckets. It is not waited for.
        """
        connection, path = self.connection, self.info.path
        now = connection.table_info(path, connection.attempts(f"show {path}", 0))
        for status in connection.admin().buckets(now, patient=False):
            status.require()
        return TableSource(connection, self.info, self._given)

    def watch(self, what: str) -> AbstractContextManager[Waiting | None]:
        """Return the block in which a person sees how far a read is: its progress, None where nobody watches.

        Args:
            what: What goes on; ``{}`` in it is the table.
        """
        if self._waiting is None:
            return nullcontext()
        return self._waiting(what.format(self.info.path))

    def check_table(self, path: TablePath, table_id: int, created_ms: int | None, what: str) -> None:
        """See that something taken of a table was taken of this one.

        Args:
            path: The table that it was taken of.
            table_id: The id of that one.
            created_ms: When that one was made; None: it was not noted.
            what: What was taken.

        Raises:
            InvalidRequestError: It was taken of a table of another path.
            TableNotFoundError: It was taken of a table of this path that was dropped since, or is another lab's.
        """
        if path != self.info.path:
            raise InvalidRequestError(
                f"table {self.info.path}: expected a {what} of it, found one of table {path} (id {table_id})"
            )
        check_table_id(path, table_id, self.info.table_id)
        if created_ms is not None and created_ms != self.info.created_ms:
            raise TableNotFoundError(
                f"table {path}: expected a {what} of the one that was made at {format_moment(self.info.created_ms)}, found one of a "
                f"table of the same id that was made at {format_moment(created_ms)}: it is another lab's"
            )

    # -- the lake -----------------------------------------------------------------------------------------------------

    @cached_property
    def storage(self) -> LakeStorage:
        """Return the lake: the one given, else the one that the cluster is configured with."""
        storage = self._given if self._given is not None else self.connection.lake_of(self.info)
        if storage is None:
            raise LakeNotConfiguredError(
                f"table {self.info.path}: a part of it is in the lake, and no lake is configured"
            )
        return storage

    @cached_property
    def lake_source(self) -> LakeSource:
        """Return the reader of the lake's rows."""
        return self.storage.create_lake_source(self.info)

    @cached_property
    def log_source(self) -> FlussLogSource:
        """Return the reader of the lake's rows as a log."""
        if not isinstance(self.storage, SupportsCreateFlussLogSource):
            raise UnsupportedError(f"table {self.info.path}: its lake format cannot be read as a log")
        return self.storage.create_fluss_log_source(self.info)

    def snapshot(self, snapshot_id: int | None = None, *, whole: bool = False) -> LakeSnapshot | None:
        """Return a lake snapshot as the cluster knows it, or the newest; None when it knows none such.

        Args:
            snapshot_id: Which; None: the newest.
            whole: With the partitions that were dropped from the lake since it was the newest.

        Cost: a call, unless it is the newest one of the last look.
        """
        seen = None if self._seen is None or whole else self._seen.snapshot
        if seen is not None and seen.snapshot_id == snapshot_id:
            return seen
        if snapshot_id is not None and snapshot_id.bit_length() > _ID_BITS:
            return None
        try:
            return lake_snapshot(self.connection, self.info.path, snapshot_id, self.info.table_id)
        except (LakeSnapshotNotFoundError, LakeNotConfiguredError):
            return None

    def newest_snapshot(self) -> LakeSnapshot | None:
        """Return the newest lake snapshot as of the last look, or as of now without one."""
        return self.snapshot() if self._seen is None else self._seen.snapshot

    def with_lake_starts(self, snapshot: LakeSnapshot) -> LakeSnapshot:
        """Return a snapshot of a primary-key table with the replay starts that the lake itself states."""
        starts = dict(snapshot.starts)
        for bucket, offset in snapshot.offsets.items():
            start = self.log_source.earliest_offset(offset.partition, bucket.bucket, snapshot.snapshot_id)
            if start is not None:
                starts[bucket] = max(start, starts.get(bucket, 0))
        return replace(snapshot, starts=starts)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def look(self) -> TableState:
        """Return the table as it is now: of each bucket, ``lake_end <= end``."""
        for attempt in range(LOOKS_MAX):
            # The lake first: what is tiered between the two questions then only looks untiered.
            snapshot = self.snapshot()
            try:
                statuses = bucket_statuses(self.connection, self.info, patient=True)
            except PartitionNotFoundError:
                if attempt == LOOKS_MAX - 1:
                    raise
                continue
            self._seen = self._merge(snapshot, statuses)
            return self._seen
        raise AssertionError

    def last_look(self) -> TableState:
        """Return the table as of the last look, or as it is now without one."""
        return self._seen or self.look()

    def answer(self, ask: Callable[[TableState], T]) -> T:
        """Return a question's answer for the table as it is now; asked again where a lake snapshot expired since the look.

        Raises:
            LakeSnapshotNotFoundError: One is missing that the cluster still names, or that the question named.
        """
        for attempt in range(LOOKS_MAX):
            state = self.look()
            try:
                return ask(state)
            except LakeSnapshotNotFoundError:
                if attempt == LOOKS_MAX - 1 or self.look().snapshot_id == state.snapshot_id:
                    raise
        raise AssertionError

    @property
    def is_looked_at(self) -> bool:
        """Return whether there was a look: a bucket that it did not find is not there."""
        return self._seen is not None

    def known_state(self, bucket: TableBucket) -> BucketState | None:
        """Return a bucket as it was at the last look; None when there was none, or it was not there."""
        return None if self._seen is None else self._seen.by_bucket.get(bucket)

    def may_hold(self, bucket: TableBucket, offset: int) -> bool:
        """Return whether the cluster may hold a bucket's log from an offset on: true unless the last look says otherwise.

        Raises:
            FlussError: The cluster does not know the bucket.
        """
        known = self.known_state(bucket)
        return self._seen is None or (known is not None and known.holds_from(offset))

    def cluster_holds(self, bucket: TableBucket, start: int, stop: int) -> bool:
        """Return whether the cluster said at the last look that it holds a bucket's ``[start, stop)``: nothing is raised."""
        if start >= stop:
            return True
        known = self.known_state(bucket)
        return known is not None and surely_holds(known, start)

    def bucket_state(self, bucket: TableBucket) -> BucketState | None:
        """Return a bucket as it was at the last look, or as it is now without one; None when it is not there."""
        if self._seen is None:
            self.look()
        return self.known_state(bucket)

    def available_from_ms(self, starts: Mapping[TableBucket, int]) -> dict[TableBucket, int | None]:
        """Return the times from which on rows are available, of buckets and offsets; None of one that is not known."""
        state = self.last_look().only(lambda each: each.bucket in starts)
        found: dict[TableBucket, int | None] = dict.fromkeys(starts)
        with suppress(FlussError):  # the caller raises another error
            for each in state.buckets:
                found[each.bucket] = each.max_timestamp_ms if starts[each.bucket] == each.end else None
            answers = self.offsets_by_time(state, 0)
            for each in state.buckets:
                answer = answers[each.key]
                if answer.offset == starts[each.bucket] and answer.timestamp_ms is not None:
                    found[each.bucket] = answer.timestamp_ms
        return found

    def availability(self, bucket: TableBucket, earliest: int) -> str:
        """Return, for a message, from when on the rows of a bucket are available: an offset, and its time if that is known."""
        moment_ms = self.available_from_ms({bucket: earliest})[bucket]
        if moment_ms is not None:
            return f"available from offset {earliest}, time {format_moment(moment_ms)}"
        return f"available from offset {earliest}"

    def offsets_by_time(
        self, state: TableState, timestamp_ms: int, *, raise_clock: bool = False
    ) -> dict[BucketKey, BucketOffset]:
        """Return, for every bucket of `state`, the first offset at or after a time; its end when there is none.

        Args:
            state: From `look`.
            timestamp_ms: Epoch milliseconds.
            raise_clock: Whether the servers shall give no later record a timestamp below it.

        Raises:
            InvalidTimestampError: With `raise_clock`: the time is after the servers' clock.
            FlussError: The cluster does not know a bucket.
        """
        for each in state.buckets:
            each.check_known()
        found: dict[BucketKey, BucketOffset] = {}
        spec = OffsetSpec.timestamp(timestamp_ms)
        names = sorted({each.partition or "" for each in state.buckets if not each.is_dropped})
        for name in names:
            members = [each for each in state.buckets if (each.partition or "") == name and not each.is_dropped]
            identity = members[0].bucket.partition_id
            partition = None if identity is None else PartitionInfo(identity, name)
            answers = self.connection.admin().list_offsets(
                self.info, spec, partition=partition, buckets=[each.bucket.bucket for each in members],
                raise_clock=raise_clock,
            )  # fmt: skip
            found |= {each.key: answers[each.bucket.bucket] for each in members}
        for each in state.buckets:
            if not each.is_dropped and self._has_rows_before_a_gap(each, state):
                in_lake = self._lake_record_by_time(each, state.snapshot_id, timestamp_ms)
                if in_lake is not None and in_lake.offset < found[each.key].offset:
                    found[each.key] = in_lake
            if each.is_dropped:
                found[each.key] = self._lake_offset_by_time(each, state.snapshot_id, timestamp_ms)
        return found

    def _has_rows_before_a_gap(self, bucket: BucketState, state: TableState) -> bool:
        """Return whether the lake may have rows from before a gap: the server looks no further back than behind it."""
        starts = {} if state.snapshot is None else state.snapshot.starts
        within = self.info.is_log_table and starts.get(bucket.bucket, 0) > 0
        return bucket.lake_end > 0 and (within or not surely_holds(bucket, bucket.lake_end))

    def _lake_offset_by_time(self, bucket: BucketState, snapshot_id: int | None, timestamp_ms: int) -> BucketOffset:
        """Answer for a bucket that only the lake has."""
        return self._lake_record_by_time(bucket, snapshot_id, timestamp_ms) or BucketOffset(bucket.end)

    def _lake_record_by_time(
        self, bucket: BucketState, snapshot_id: int | None, timestamp_ms: int
    ) -> BucketOffset | None:
        """Return the first record at or after a time in the lake; None when it has none."""
        if snapshot_id is None or not bucket.lake_end:
            return None
        context = LookupContext(bucket.partition, bucket.bucket.bucket, timestamp_ms, snapshot_id)
        try:
            offset, found_ms = self.log_source.lookup_log_offset_by_timestamp(context)
        except InvalidTimestampError:
            return None
        return BucketOffset(offset, found_ms, snapshot_id)

    def starts(self, state: TableState) -> dict[BucketKey, int]:
        """Return, for every bucket of `state`, the first offset that is held anywhere: cluster or lake.

        The lake may have rows from before a gap. The rows of a primary-key table are those of all records: 0. Of a bucket
        that the cluster does not know, it is that of the lake, which is asked then.

        Raises:
            FlussError: The cluster does not know where a bucket begins, nor has the lake what would be before it.

        Cost: none, unless the lake cannot replay a bucket from its begin on; then its files are planned.
        """
        if not self.info.is_log_table:
            return {each.key: 0 for each in state.buckets}
        whole = {each.key for each in state.buckets if each.is_whole_in(state.snapshot)}
        found = {each.key: _cluster_start(each) for each in state.buckets if each.key not in whole}
        behind = {each.key: each for each in state.buckets if each.lake_end and found.get(each.key)}
        found |= dict.fromkeys(whole, 0)
        if behind and state.snapshot is not None:
            stops = {key: each.lake_end for key, each in behind.items()}
            for split in self.lake_source.plan(state.snapshot.snapshot_id, stops=stops):
                key = (split.partition, split.bucket)
                found[key] = min(found[key], split.min_offset)
        return found

    def _merge(self, snapshot: LakeSnapshot | None, statuses: Sequence[BucketStatus]) -> TableState:
        lake = {} if snapshot is None else dict(snapshot.offsets)
        found: list[BucketState] = []
        for status in statuses:
            offset = lake.pop(status.bucket, None)
            found.append(BucketState(status.bucket, status.partition, status, 0 if offset is None else offset.end))
        found += [BucketState(bucket, offset.partition, None, offset.end) for bucket, offset in lake.items()]
        return TableState(tuple(sorted(found, key=lambda each: (each.partition or "", each.bucket.bucket))), snapshot)


def _cluster_start(bucket: BucketState) -> int:
    """Return the first offset that the cluster holds; where it holds none, or does not know, the lake's end."""
    if not bucket.is_known:
        return bucket.lake_end
    start = bucket.start
    return bucket.lake_end if start is None else start

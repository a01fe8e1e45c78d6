"""Splits and their generator: what the cluster holds durably and the lake does not, cut into parts with a task each.

Names are those of Apache Fluss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from fluss_lab.client import BucketStatus, Connection, KnownBucket
from fluss_lab.client.cluster.bucket_status import bucket_statuses
from fluss_lab.client.cluster.list_offsets import OffsetQuery, list_offsets
from fluss_lab.client.kv.kv_snapshot_reader import KvSnapshot
from fluss_lab.errors import LakeAheadError, OffsetOutOfRangeError, UnavailableError
from fluss_lab.model import LakeOffset, OffsetSpec, PartitionInfo, TableBucket, TableInfo, TablePath
from fluss_lab.tiering.round.round_options import TieringOptions

#: Bytes of a record whose bucket does not report its size (an empty answer cannot happen for a bucket that lags).
RECORD_BYTES_GUESS: Final = 64
#: How far a bucket is on the device: whatever is tiered must survive a loss of power that the lake survives.
_DURABLE_END: Final = OffsetQuery(OffsetSpec.latest(), lake=False, durable=True)


class _Split(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """What every split has.

    Attributes:
        table_path: The table.
        table_bucket: Which bucket of it, by ids.
        partition_name: Name of the bucket's partition; None without partitions.
        number_of_splits: Splits of the round that this one belongs to.
        split_index: Its position among them.
    """

    table_path: TablePath
    table_bucket: TableBucket
    partition_name: str | None
    number_of_splits: int
    split_index: int

    def __str__(self) -> str:
        partition = "" if self.partition_name is None else f" partition {self.partition_name}"
        return f"{self.table_path}{partition} bucket {self.table_bucket.bucket} {self._what()}"

    def _what(self) -> str:
        raise NotImplementedError


class TieringLogSplit(_Split, frozen=True, tag="log"):
    """Records ``[starting_offset, stopping_offset)`` of one bucket's log.

    Of a primary-key table, a ``-U`` and its ``+U`` are never in two lake snapshots: where a split ends between them, the
    ``+U`` belongs to it as well, and not to the split that follows it.

    Attributes:
        starting_offset: First offset.
        stopping_offset: Offset after the last.
        follows: Whether another split of the round ends where this one begins.
    """

    starting_offset: int
    stopping_offset: int
    follows: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.starting_offset < self.stopping_offset:
            raise ValueError(
                f"split of {self.table_bucket}: expected 0 <= start < stop, "
                f"found [{self.starting_offset}, {self.stopping_offset})"
            )

    def _what(self) -> str:
        return f"[{self.starting_offset}, {self.stopping_offset})"

    @property
    def start(self) -> int:
        """Return the first offset."""
        return self.starting_offset

    @property
    def end(self) -> int:
        """Return the offset after the last."""
        return self.stopping_offset

    @property
    def replay_start(self) -> int:
        """Return the first offset."""
        return self.starting_offset

    @property
    def records(self) -> int:
        """Return how many offsets the split covers."""
        return self.stopping_offset - self.starting_offset


class TieringSnapshotSplit(_Split, frozen=True, tag="snapshot"):
    """The rows that one bucket of a primary-key table had at a key-value snapshot: all changes below its log offset.

    Attributes:
        snapshot_id: Of the key-value snapshot.
        log_offset: Its log offset: the log from there on has the other changes, and replay begins there.
    """

    snapshot_id: int
    log_offset: int

    def __post_init__(self) -> None:
        if self.snapshot_id < 0 or self.log_offset < 1:
            raise ValueError(
                f"split of {self.table_bucket}: expected a snapshot id and a log offset behind the log's begin, found "
                f"snapshot {self.snapshot_id} at {self.log_offset}"
            )

    def _what(self) -> str:
        return f"snapshot {self.snapshot_id} at log offset {self.log_offset}"

    @property
    def start(self) -> int:
        """Return 0: the rows are what all changes from the first on came to."""
        return 0

    @property
    def end(self) -> int:
        """Return the snapshot's log offset."""
        return self.log_offset

    @property
    def replay_start(self) -> int:
        """Return the snapshot's log offset."""
        return self.log_offset


#: Each says where it begins (`start`: the lake holds the bucket up to here before it, by this round or an earlier one), how
#: far the lake holds the bucket with it (`end`, exclusive), and from which offset on the bucket's log could be replayed were
#: it the bucket's first (`replay_start`).
TieringSplit: TypeAlias = TieringLogSplit | TieringSnapshotSplit


def number_splits(splits: Sequence[TieringSplit]) -> list[TieringSplit]:
    """Return the splits with their positions and their number filled in."""
    count = len(splits)
    return [
        msgspec.structs.replace(split, number_of_splits=count, split_index=index) for index, split in enumerate(splits)
    ]


@dataclass(frozen=True, slots=True)
class UntieredRange:
    """Records ``[start, stop)`` of one bucket that wait to be tiered, and about how many bytes they are."""

    bucket: TableBucket
    partition: str | None
    start: int
    stop: int
    size_bytes: int

    @property
    def records(self) -> int:
        """Return how many records wait."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class GeneratedSplits:
    """The splits of a round.

    Attributes:
        splits: In the order in which they are to be begun.
        is_limited: Whether more waits than they cover, because of the options' limits.
        statuses: The buckets as they were found.
    """

    splits: Sequence[TieringSplit]
    is_limited: bool
    statuses: Sequence[BucketStatus] = ()


@dataclass(frozen=True, slots=True)
class _Lag:
    """A bucket that lags: from where on its log is to be tiered, and the snapshot that comes before, if any."""

    status: KnownBucket
    start: int
    snapshot: KvSnapshot | None = None


class TieringSplitGenerator:
    """Plans the splits of one table.

    Partitions that only the lake has any more, because the cluster dropped them, have nothing to tier.

    Args:
        connection: To the cluster.
        table: The table.
        partitions: Its partitions; empty for a table without.
        options: Limits of the round and its splits.
        sound: What can be read of buckets whose logs are damaged behind it: only these are tiered, up to there; None: all
            buckets, whose logs must be whole.
    """

    def __init__(
        self,
        connection: Connection,
        table: TableInfo,
        partitions: Sequence[PartitionInfo],
        options: TieringOptions,
        sound: Mapping[TableBucket, KnownBucket] | None = None,
    ) -> None:
        self._connection = connection
        self._table = table
        self._partitions = {partition.partition_id: partition for partition in partitions}
        self._options = options
        self._sound = sound

    def generate(self, tiered: Mapping[TableBucket, LakeOffset], parallelism: int) -> GeneratedSplits:
        """Return the splits of a round; none when the lake is up to date.

        Of a bucket that was tiered, from the end of what the lake holds; of another, from the first record that the
        cluster holds. A primary-key bucket that was never tiered and whose log does not reach back to its begin starts
        with its latest key-value snapshot, and goes on with the log from there. To the last *durable* record: what a
        power loss could take back never gets into the lake.

        The first splits of all buckets come first, biggest first, then the second ones, and so on: however far a round
        gets, what it has written of a bucket joins.

        Args:
            tiered: How far each bucket is tiered.
            parallelism: Tasks that run at once: buckets are cut so that all have work, but never finer than
                `TieringOptions.split_bytes_min`.

        Raises:
            OffsetOutOfRangeError: Records left the cluster before they were tiered; the lake would have a gap.
            LakeAheadError: The lake holds more of a bucket than the cluster ever wrote.
            CorruptDataError: A bucket has stopped.
            FlussError: The cluster does not know how far a bucket goes, or where one begins that was never tiered: the
                server's own error. Nothing of the table is tiered then, nor is it said to be up to date.
            UnavailableError: A bucket whose log does not reach back to its begin has no key-value snapshot yet.

        Cost: one call for the table, and one (which makes records durable) for each partition that lags; one more for
            each partition with such a bucket.
        """
        statuses = self._statuses()
        lagging = list(self._lagging_buckets(statuses, tiered))
        waiting = [each for partition_id, lags in lagging for each in self._durable(partition_id, lags)]
        ranges = limit_ranges(waiting, self._options.round_records_max, self._options.round_bytes_max)
        size_bytes = split_size(ranges, parallelism, self._options)
        placed = list(self._snapshots(lag for _, lags in lagging for lag in lags))
        begun = {split.table_bucket for _, _, split in placed}
        for each in ranges:
            placed.extend(self._cut(each, size_bytes, each.bucket in begun))
        placed.sort(key=lambda item: (item[0], item[1], item[2].table_bucket.sort_key()))
        is_limited = sum(each.records for each in ranges) < sum(each.records for each in waiting)
        return GeneratedSplits(number_splits([split for _, _, split in placed]), is_limited, statuses)

    def _lagging_buckets(
        self, statuses: Sequence[BucketStatus], tiered: Mapping[TableBucket, LakeOffset]
    ) -> Iterator[tuple[int | None, list[_Lag]]]:
        """Yield the buckets that lag, by partition."""
        found: dict[int | None, list[KnownBucket]] = defaultdict(list)
        for status in statuses:
            bucket = status.bucket
            if bucket.partition_id is None or bucket.partition_id in self._partitions:
                found[bucket.partition_id].append(status.require())
            # Else it was dropped, or made since the partitions were listed.
        for partition_id, present in found.items():
            lags = [_Lag(status, self._start(status, tiered.get(status.bucket))) for status in present]
            cut_off = {
                lag.status.bucket for lag in lags if lag.status.bucket not in tiered and self._needs_snapshot(lag)
            }
            if cut_off:
                latest = self._connection.admin().latest_kv_snapshots(
                    self._table.path, None if partition_id is None else self._partitions[partition_id]
                )
                lags = [
                    self._begin(lag, latest.get(lag.status.bucket.bucket)) if lag.status.bucket in cut_off else lag
                    for lag in lags
                ]
            if lags := [lag for lag in lags if lag.snapshot is not None or lag.start < lag.status.end_offset]:
                yield partition_id, lags

    def _statuses(self) -> Sequence[BucketStatus]:
        if self._sound is not None:
            return list(self._sound.values())
        return bucket_statuses(self._connection, self._table, patient=True)

    def _needs_snapshot(self, lag: _Lag) -> bool:
        return not self._table.is_log_table and lag.start > 0

    def _begin(self, lag: _Lag, snapshot: KvSnapshot | None) -> _Lag:
        """Return a bucket whose log does not reach back to its begin, with the snapshot to begin with."""
        where = f"table {self._table.path} bucket {self._name(lag.status.bucket)}"
        if snapshot is None:
            raise UnavailableError(
                f"{where}: its log begins at offset {lag.start}, and there is no key-value snapshot of what was before yet; "
                "try again after the next one (kv.snapshot.interval)"
            )
        if snapshot.log_offset < lag.start:
            raise OffsetOutOfRangeError(
                f"{where}: its latest key-value snapshot has the changes below offset {snapshot.log_offset}, its log those "
                f"from {lag.start} on; [{snapshot.log_offset}, {lag.start}) left the cluster before they were tiered"
            )
        return _Lag(lag.status, snapshot.log_offset, snapshot)

    def _durable(self, partition_id: int | None, lags: Sequence[_Lag]) -> Iterable[UntieredRange]:
        partition = None if partition_id is None else self._partitions[partition_id]
        if self._sound is not None:
            stops = {lag.status.bucket.bucket: lag.status.durable_offset for lag in lags}
        else:
            stops = self._durable_ends(partition, lags)
        for lag in lags:
            start, stop = lag.start, stops[lag.status.bucket.bucket]
            if start < stop:
                name = None if partition is None else partition.name
                size_bytes = _record_bytes(lag.status) * (stop - start)
                yield UntieredRange(lag.status.bucket, name, start, stop, max(1, int(size_bytes)))

    def _durable_ends(self, partition: PartitionInfo | None, lags: Sequence[_Lag]) -> dict[int, int]:
        buckets = [lag.status.bucket.bucket for lag in lags]
        latest = list_offsets(self._connection, self._table, _DURABLE_END, partition, buckets)
        return {bucket: answer.offset for bucket, answer in latest.items()}

    def _start(self, status: KnownBucket, tiered: LakeOffset | None) -> int:
        """Return the first offset of a bucket to tier, after checking that lake and log fit together.

        Raises:
            FlussError: It may be in remote storage, which the server cannot read: a start that is not confirmed would
                leave records out of the lake for ever.
        """
        if tiered is None:
            return status.start_offset
        where = f"table {self._table.path} bucket {self._name(status.bucket)}"
        if tiered.end < status.local_start_offset and tiered.end < status.start_offset:
            raise OffsetOutOfRangeError(
                f"{where}: the lake holds offsets below {tiered.end}, the cluster those from {status.start_offset} on; "
                f"[{tiered.end}, {status.start_offset}) left the cluster before they were tiered. Nothing more of the "
                f"table is tiered, since the lake would have a gap. To go on without these records, run 'fluss-lab repair "
                f"{self._table.path} --adopt --accept-gaps'"
            )
        if tiered.end > status.end_offset:
            raise LakeAheadError(
                f"{where}: the lake holds offsets below {tiered.end}, the cluster only those below "
                f"{status.end_offset}; the cluster's folder is older than the lake (restored from a copy?). Nothing more of the table "
                f"is tiered: restore the newer folder, or {anew_text(self._table.path)}"
            )
        return tiered.end

    def _name(self, bucket: TableBucket) -> str:
        partition = None if bucket.partition_id is None else self._partitions.get(bucket.partition_id)
        return f"{bucket.bucket}" if partition is None else f"{bucket.bucket} of partition {partition.name}"

    def _snapshots(self, lags: Iterable[_Lag]) -> Iterator[tuple[int, int, TieringSplit]]:
        """Yield the snapshot splits: always the first of their bucket, and before others since their size is not known."""
        for lag in lags:
            if (snapshot := lag.snapshot) is not None:
                split = TieringSnapshotSplit(
                    self._table.path, lag.status.bucket, lag.status.partition, 0, 0, snapshot.snapshot_id,
                    snapshot.log_offset,
                )  # fmt: skip
                yield 0, -(1 << 62), split

    def _cut(self, each: UntieredRange, size_bytes: int, is_begun: bool) -> Iterator[tuple[int, int, TieringSplit]]:
        """Yield pieces of a range with what they are ordered by: place in the bucket, then size."""
        parts = cut_range(each.start, each.stop, -(-each.size_bytes // size_bytes))
        for place, (start, stop) in enumerate(parts):
            split = TieringLogSplit(self._table.path, each.bucket, each.partition, 0, 0, start, stop, follows=place > 0)
            yield place + is_begun, -each.size_bytes * (stop - start) // each.records, split


def limit_ranges(ranges: Sequence[UntieredRange], records_max: int, bytes_max: int) -> list[UntieredRange]:
    """Return the ranges shortened, each by the same share (but to at least one record), to so much in all."""
    records, size_bytes = sum(each.records for each in ranges), sum(each.size_bytes for each in ranges)
    if records <= records_max and size_bytes <= bytes_max:
        return list(ranges)
    # The smaller share as a fraction of whole numbers: there may be more records than a float can count.
    part, whole = min((records_max, records), (bytes_max, size_bytes), key=lambda limit: limit[0] / limit[1])
    limited = []
    for each in ranges:
        taken = max(1, each.records * part // whole)
        size = max(1, each.size_bytes * taken // each.records)
        limited.append(replace(each, stop=each.start + taken, size_bytes=size))
    return limited


def split_size(ranges: Sequence[UntieredRange], parallelism: int, options: TieringOptions) -> int:
    """Return about how many bytes a split should have: what gives every worker one, within the options' bounds."""
    total = sum(each.size_bytes for each in ranges)
    fair = -(-total // max(1, parallelism))
    return min(max(fair, options.split_bytes_min), options.split_bytes_max)


def cut_range(start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    """Return ``[start, stop)`` as at most so many ranges of nearly equal length, none of them empty."""
    length = stop - start
    pieces = max(1, min(pieces, length))
    return list(pairwise(start + length * index // pieces for index in range(pieces + 1)))


def _record_bytes(status: KnownBucket) -> float:
    records = status.end_offset - status.local_start_offset
    return status.size_bytes / records if records > 0 and status.size_bytes > 0 else RECORD_BYTES_GUESS


def anew_text(path: TablePath) -> str:
    """Return what may be done where the lake has later records than the cluster: they are in the lake table alone."""
    return f"drop the table without its lake table (lab.drop_table({str(path)!r}, lake=False)) and create it anew"

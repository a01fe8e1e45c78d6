"""The scanner of a table's log, from any offset, wherever its records are; and the batches that it returns."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss_lab.client.cluster.list_offsets import OffsetQuery, list_offsets
from fluss_lab.client.cluster.log_damage import damage_error
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.client.log.fetch_buffer import FetchedRecords, ScannedBucket, ScannedBuckets
from fluss_lab.client.log.fetch_codec import Projection, decode_bucket
from fluss_lab.client.log.log_fetcher import LogFetcher
from fluss_lab.client.log.partition_discovery import PartitionDiscovery
from fluss_lab.closing import Closing
from fluss_lab.display import Grid, card, plural
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    FlussError,
    InvalidPartitionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    UnavailableError,
)
from fluss_lab.interrupts import Flag, Held
from fluss_lab.model import OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """A run of records of one bucket.

    Attributes:
        bucket: Which bucket.
        partition: Name of its partition; None without partitions.
        records: At least one, in order of offset, following the bucket's batch before without a gap.
    """

    bucket: TableBucket
    partition: str | None
    records: LogRecords

    @property
    def rows(self) -> pa.RecordBatch:
        """Return the user's columns."""
        return self.records.rows

    def __repr__(self) -> str:
        where = "" if self.partition is None else f"{self.partition} "
        return (
            f"<ScanBatch {where}bucket {self.bucket.bucket} [{self.records.base_offset}, {self.records.next_offset})>"
        )


class ScanRecords:
    """The records of one poll: an iterable of `ScanBatch`, maybe of none."""

    def __init__(self, batches: Sequence[ScanBatch]) -> None:
        self.batches = tuple(batches)

    def __iter__(self) -> Iterator[ScanBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def count(self) -> int:
        """Return the number of records."""
        return sum(len(batch.records) for batch in self.batches)

    def buckets(self) -> list[TableBucket]:
        """Return the buckets that have records here."""
        return list(dict.fromkeys(batch.bucket for batch in self.batches))

    def records(self, bucket: TableBucket) -> list[LogRecords]:
        """Return the runs of one bucket, in order."""
        return [batch.records for batch in self.batches if batch.bucket == bucket]

    def to_arrow(self) -> pa.Table | None:
        """Return the rows of all batches as one table; None when there are none."""
        return pa.Table.from_batches([batch.rows for batch in self.batches]) if self.batches else None

    def __repr__(self) -> str:
        return f"<ScanRecords {self.count:,} records of {len(self.buckets())} buckets>"

    def _repr_html_(self) -> str:
        rows = [
            (batch.partition, batch.bucket.bucket, batch.records.base_offset, batch.records.next_offset)
            for batch in self.batches[:CARD_ROWS_MAX]
        ]
        return card(
            "ScanRecords",
            plural(self.count, "record"),
            [("buckets", len(self.buckets())), ("batches", len(self))],
            grid=Grid(("partition", "bucket", "from offset", "to before offset"), rows),
            total=len(self),
            noun="batch",
            calls=[".to_arrow()"],
        )


@check_arguments
class LogScanner(Closing):
    """Reads subscribed buckets in order of offset, from servers, remote storage or the lake.

    In this order: the server's disk, remote storage, the lake.

    Records are fetched ahead by threads, two answers at most (``client.scanner.log.fetch.max-bytes`` each). Servers'
    restarts are outlived. One thread polls; any may close.

    Args:
        connection: To the cluster.
        info: The table.
        projection: Names or positions of the columns wanted, in the order wanted; None: all.
        previous_offsets: Of a primary-key table: whether records from the cluster have their previous offsets.

    Raises:
        InvalidSchemaError: There is no such column, or one is wanted twice.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        projection: Sequence[str | int] | None = None,
        *,
        previous_offsets: bool = False,
    ) -> None:
        self._connection = connection
        self._info = info
        self._projection = Projection(info, projection, partial(connection.schema, info))
        self._previous_offsets = previous_offsets and not info.is_log_table
        timeout_s = connection.request_timeout_ms / 1000
        self._positions = ScannedBuckets(connection.fetch_bytes_max, timeout_s)
        self._fetcher: LogFetcher | None = None
        self._closing = Flag()
        self._discovery: PartitionDiscovery | None = None
        connection.remember(info)
        # A scanner without references cannot be closed by its owner any more.
        weakref.finalize(self, self._positions.abandon).atexit = False

    def __repr__(self) -> str:
        state = "closed" if self._closing.is_set() else f"{len(self._positions.all())} buckets"
        return f"<LogScanner of {self._info.path}, {state}>"

    def close(self) -> None:
        """Stop fetching; what was fetched ahead is dropped, and a poll under way ends. Twice is fine."""
        if self._positions.is_left:
            return
        with Held():
            self._closing.set()
            self._positions.close()
            self._connection.open_resources.remove(self._positions)

    # -- subscribing -------------------------------------------------------------------------------------------------

    def subscribe(self, bucket: int, offset: int, partition: str | None = None) -> None:
        """Read a bucket from an offset on. An earlier subscription of it is replaced.

        Args:
            bucket: Number of the bucket.
            offset: The first offset wanted; it may be one not yet written.
            partition: Name of the partition, for a partitioned table.

        Raises:
            BucketNotFoundError, PartitionNotFoundError: There is none such.
            InvalidPartitionError: A partition is missing, or given for a table without.
            OffsetOutOfRangeError: The offset is negative.
        """
        self._check_open()
        if offset < 0:
            raise OffsetOutOfRangeError(f"{self._info.path}: expected an offset of at least 0, found {offset}")
        self._put([self._position(self._partition(partition), bucket, offset, found=False)])

    def subscribe_from_beginning(self, bucket: int, partition: str | None = None) -> None:
        """Read a bucket from the first offset that is held anywhere, in the cluster or the lake. See `subscribe`."""
        self._check_open()
        self._put(self._positions_at(self._partition(partition), OffsetSpec.earliest(), [bucket], found=False))

    def subscribe_all(self, spec: OffsetSpec) -> None:
        """Read every bucket from what a spec means now; of partitions made later, everything.

        Partitions that are dropped later just end; when the whole table is dropped, `poll` raises.

        Raises:
            InvalidTimestampError: By a time that is negative.
        """
        self._check_open()
        if not self._info.descriptor.partitioned_by:
            self._put(self._positions_at(None, spec, None, found=True))
            return
        known = self._connection.partitions(self._info)
        self._put(self._positions_of_partitions(known.values(), spec))
        self._begin_discovery(known.values())

    def subscribe_at(self, offsets: Mapping[TableBucket, int]) -> None:
        """Read buckets from offsets on; of partitions made later, everything. Other buckets are not read.

        Partitions that are dropped later, or were since the offsets were found out, just end.

        Args:
            offsets: The first offset wanted, by bucket.

        Raises:
            TableNotFoundError: The table was dropped.
        """
        self._check_open()
        for bucket in offsets:
            check_table_id(self._info.path, bucket.table_id, self._info.table_id)
        partitions: dict[int | None, PartitionInfo | None] = {None: None}
        if self._info.descriptor.partitioned_by:
            known = self._connection.partitions(self._info)
            partitions = {each.partition_id: each for each in known.values()}
            self._begin_discovery(known.values())
        there = {bucket: offset for bucket, offset in offsets.items() if bucket.partition_id in partitions}
        self._put([
            self._position(partitions[bucket.partition_id], bucket.bucket, offset, found=True)
            for bucket, offset in there.items()
        ])  # fmt: skip

    def unsubscribe(self, bucket: int, partition: str | None = None) -> None:
        """Stop reading a bucket. One that is not subscribed is fine."""
        for position in self._positions.all():
            if position.bucket.bucket == bucket and position.partition == partition:
                self._positions.drop(position.bucket)

    def positions(self) -> dict[TableBucket, int]:
        """Return, by subscribed bucket, the offset after the last record that `poll` gave: where to resume."""
        return {position.bucket: position.offset for position in self._positions.all()}

    @property
    def is_failing(self) -> bool:
        """Return whether records of a bucket could not be fetched when that was tried last; polling on tries on."""
        return self._positions.is_failing

    # -- reading -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> ScanRecords:
        """Return the next records, about one answer's worth; wait for some at most so long.

        Within a bucket, records follow each other in order of offset without gaps, over all polls. After an error
        other buckets go on at the next poll; the bucket at fault stays where it is, and a lasting error stops it until
        it is subscribed again.

        Args:
            timeout_s: Seconds; 0 returns at once.

        Returns:
            Nothing when the time is up.

        Raises:
            OffsetOutOfRangeError: A bucket's offset is neither in the cluster nor in the lake (any more).
            CorruptDataError: Bytes failed their checks.
            TableNotFoundError, PartitionNotFoundError: A subscribed bucket was dropped.
            ServerUnavailableError: No server answered for ``client.request-timeout``; polling on tries on.
            InvalidRequestError: Nothing is subscribed, or the scanner is closed.
            ConnectionClosedError: The connection was closed.
        """
        self._check_open()
        if not self._positions.all() and self._discovery is None:
            raise InvalidRequestError(f"scan of {self._info.path}: nothing is subscribed; subscribe a bucket first")
        deadline = time.monotonic() + timeout_s
        with Held() as held:
            while True:
                left_s = deadline - time.monotonic()
                taken = self._positions.take(max(0.0, left_s))
                offsets = {fetched.position: fetched.position.offset for fetched in taken}
                batches: list[ScanBatch] = []
                try:
                    for fetched in taken:
                        self._read(fetched, batches)
                except FlussError as error:
                    if not held.is_pending:
                        if isinstance(error, UnavailableError) and not isinstance(taken[-1].content, FlussError):
                            # What was fetched waits until it can be decoded: a schema that is not known yet is asked for.
                            self._positions.put_back(taken, offsets)
                        raise
                if held.is_pending:
                    # This poll returns nothing: what was taken goes to the next one.
                    self._positions.put_back(taken, offsets)
                    held.deliver()
                elif not taken and (ended := self._positions.ended) is not None:
                    raise type(ended)(str(ended))
                elif batches or (left_s <= 0 and not taken) or self._positions.closed:
                    return ScanRecords(batches)

    def _read(self, fetched: FetchedRecords, batches: list[ScanBatch]) -> None:
        """Decode what was fetched; a damaged batch stops its bucket, and its error is raised after all records before it."""
        position, content = fetched.position, fetched.content
        if isinstance(content, FlussError):
            raise content
        if position.damage is not None:  # found in what came before it, by this very call
            return
        if isinstance(content, LogRecords):
            batches.append(self._batch(position, content))
            return
        try:
            for records in decode_bucket(content, fetched.start, self._projection):
                batches.append(self._batch(position, records))  # noqa: PERF401 - what was decoded before an error counts
        except CorruptDataError as error:
            self._positions.stop(
                position, damage_error(self._connection, self._info, position.bucket, position.partition, error)
            )
        except UnavailableError:
            raise
        except FlussError as error:
            what = f"scan of {self._info.path}, bucket {position.bucket}"
            self._positions.stop(position, type(error)(f"{what}: {error}"))

    def _batch(self, position: ScannedBucket, records: LogRecords) -> ScanBatch:
        position.offset = records.next_offset
        return ScanBatch(position.bucket, position.partition, records)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._positions.is_left:
            raise InvalidRequestError(
                f"scan of {self._info.path}: the scanner began before this process was forked off, and its threads are the other's; "
                "open a new one here, from `positions()` there"
            )
        if self._closing.is_set():
            # With its connection: of that no new one can be opened.
            self._connection.check_open(f"scan of {self._info.path}")
            raise InvalidRequestError(f"scan of {self._info.path}: the scanner is closed; open a new one")

    def _partition(self, name: str | None) -> PartitionInfo | None:
        columns = self._info.descriptor.partitioned_by
        if (name is None) == bool(columns):
            expected = f"a partition by {', '.join(columns)}" if columns else "no partition"
            raise InvalidPartitionError(f"{self._info.path}: expected {expected}, found {name!r}")
        if name is None:
            return None
        if (found := self._connection.partitions(self._info).get(name)) is None:
            raise PartitionNotFoundError(f"{self._info.path}: there is no partition {name!r}")
        return found

    def _put(self, positions: Sequence[ScannedBucket]) -> None:
        with Held():
            self._positions.put(positions)
            if positions and self._fetcher is None:
                self._connection.open_resources.add(
                    self._positions, partial(_end, self._closing, self._positions), self._positions.leave
                )
                self._fetcher = LogFetcher(
                    self._connection, self._info, self._projection, self._positions,
                    previous_offsets=self._previous_offsets,
                )  # fmt: skip

    def _position(self, partition: PartitionInfo | None, bucket: int, offset: int, *, found: bool) -> ScannedBucket:
        if not 0 <= bucket < self._info.descriptor.buckets:
            expected = f"buckets in [0, {self._info.descriptor.buckets})"
            raise BucketNotFoundError(f"{self._info.path}: expected {expected}, found {bucket}")
        partition_id, name = (None, None) if partition is None else (partition.partition_id, partition.name)
        return ScannedBucket(TableBucket(self._info.table_id, partition_id, bucket), name, offset, offset, found)

    def _positions_at(
        self, partition: PartitionInfo | None, spec: OffsetSpec, buckets: Sequence[int] | None, *, found: bool
    ) -> list[ScannedBucket]:
        """Return positions in buckets at what a spec means now."""
        offsets = list_offsets(self._connection, self._info, OffsetQuery(spec), partition, buckets)
        return [self._position(partition, bucket, answer.offset, found=found) for bucket, answer in offsets.items()]

    def _positions_of_partitions(self, partitions: Iterable[PartitionInfo], spec: OffsetSpec) -> list[ScannedBucket]:
        """Return positions in all buckets of partitions; those that are gone meanwhile are left out."""
        positions: list[ScannedBucket] = []
        for partition in partitions:
            try:
                positions += self._positions_at(partition, spec, None, found=True)
            except PartitionNotFoundError as error:
                log.info("scan of %s: partition %s is gone: %s", self._info.path, partition.name, error)
        return positions

    def _begin_discovery(self, known: Iterable[PartitionInfo]) -> None:
        if self._discovery is None:
            self._discovery = PartitionDiscovery(
                self._connection, self._info, known, self._begin_partitions, self._positions.end, self._closing
            )
            self._discovery.start()

    def _begin_partitions(self, made: Sequence[PartitionInfo]) -> None:
        positions = self._positions_of_partitions(made, OffsetSpec.earliest())
        if not self._closing.is_set():
            self._put(positions)


def _end(closing: threading.Event, positions: ScannedBuckets) -> None:
    """End a scanner's threads, whether the scanner itself is still there or not."""
    closing.set()
    positions.close()

"""The readers of a bucket's log by offset: a range, from its server, remote storage or the lake; and the wait for new records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from fluss_lab.client.cluster.cluster_client import ClusterClient
from fluss_lab.client.cluster.leader_requests import Attempts, BucketRequest, LeaderCall, call_leader, call_leaders
from fluss_lab.client.cluster.log_damage import damage_error
from fluss_lab.client.log.fetch_codec import (
    FetchedBucket,
    FetchLimits,
    Projection,
    decode_bucket,
    fetch_request,
    fetched_buckets,
)
from fluss_lab.client.log.read_ahead import AnswersAhead
from fluss_lab.client.log.remote_reader import GoneSegments, SegmentGoneError, remote_records
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    InternalError,
    LakeSnapshotNotFoundError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from fluss_lab.lake import FetchContext, FlussLogSource
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


def read_range(
    connection: ClusterClient,
    info: TableInfo,
    bucket: TableBucket,
    start: int,
    stop: int,
    *,
    partition: str | None = None,
    projection: Sequence[str | int] | None = None,
    lake: bool = True,
    previous_offsets: bool = False,
    first: FirstAnswer | None = None,
) -> Iterator[LogRecords]:
    """Yield exactly the records with offsets in ``[start, stop)`` of a bucket, in order, without gap or duplicate.

    Records come from the bucket's server; from remote storage or the lake where the server says that they are there. Its restart is outlived, up to ``client.request-timeout`` without progress.

    Args:
        connection: To the cluster.
        info: The table.
        bucket: Which bucket.
        start: First offset wanted.
        stop: Offset after the last wanted; all before must have been readable (below the high watermark) once.
        partition: Name of the bucket's partition; needed only where the lake is.
        projection: Names or positions of columns, in the order wanted; None: all.
        lake: Whether the lake may be read.
        previous_offsets: Of a primary-key table: whether records have their previous offsets.
        first: Of `first_answers`, for the same columns; it spares the first request where it begins at `start`.

    Raises:
        OffsetOutOfRangeError: Offsets are missing at the begin or the end: not held any more, or not yet written.
        CorruptDataError: Offsets are missing in between, or bytes failed their checks.
        LakeSnapshotNotFoundError: The server keeps naming a lake snapshot that has expired.
        StorageError: Remote storage cannot be read from here.
        TableNotFoundError, PartitionNotFoundError: The bucket was dropped.
        ServerUnavailableError: No server answered in time.

    Cost: one request per 4 MB (``client.scanner.log.fetch.max-bytes``), the next two under way while one is decoded; memory
    of four answers.
    """
    columns = Projection(info, projection, partial(connection.schema, info))
    reader = _RangeReader(
        connection, info, bucket, partition, columns, _limits(connection, info, lake, previous_offsets)
    )
    yield from reader.read(start, stop, first)


def _limits(connection: ClusterClient, info: TableInfo, lake: bool, previous_offsets: bool) -> FetchLimits:
    wants_previous = previous_offsets and not info.is_log_table
    return FetchLimits(connection.fetch_bytes_max, 0, lake, previous_offsets=wants_previous)


#: Buckets that one call requests at most; and half of those that one does after a call of whose buckets few had room.
_TOGETHER_MAX: Final = 1024
_TOGETHER_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """What a bucket's server has from an offset on."""

    offset: int
    fetched: FetchedBucket


def first_answers(
    connection: ClusterClient,
    info: TableInfo,
    starts: Mapping[TableBucket, int],
    *,
    projection: Sequence[str | int] | None = None,
    previous_offsets: bool = False,
) -> dict[TableBucket, FirstAnswer]:
    """Return what the servers of some buckets have from offsets on, by one request to each of them; not from the lake.

    A bucket is left out where there was no more room in the answer, or its server has an error instead: `read_range` then
    requests it by itself.

    Args:
        connection: To the cluster.
        info: The table.
        starts: First offset wanted of each bucket.
        projection, previous_offsets: As `read_range` is going to have them.

    Raises:
        ServerUnavailableError: No server answered in time.

    Cost: at most 4 MB (``client.scanner.log.fetch.max-bytes``) of each server, which are kept until they are read.
    """
    connection.remember(info)
    columns = Projection(info, projection, partial(connection.schema, info))
    limits = _limits(connection, info, lake=False, previous_offsets=previous_offsets)

    def send(gateway: TabletServerGateway, requests: Sequence[BucketRequest]) -> list[FetchedBucket | None]:
        offsets = [(each.bucket, starts[each.bucket]) for each in requests]
        answer = gateway.fetch_log(fetch_request(info.table_id, offsets, columns, limits))
        found = {each.bucket: each for each in fetched_buckets(answer) if _has_records(each)}
        return [found.get(each.bucket) for each in requests]

    call: LeaderCall[BucketRequest, FetchedBucket | None] = LeaderCall(send)
    requests = [BucketRequest(bucket) for bucket in starts]
    try:
        found = call_leaders(connection, requests, call, connection.attempts(info.path))
    except NotFoundError:
        return {}  # whoever reads the bucket that has gone meets it
    return {
        bucket: FirstAnswer(offset, fetched)
        for (bucket, offset), fetched in zip(starts.items(), found, strict=True)
        if fetched is not None
    }


class FirstAnswers:
    """The first answers of buckets that are read one after another, fetched for several of them by one call.

    Args:
        connection: To the cluster.
        info: The table.
        starts: First offset wanted of each bucket, in the order in which they are read.
        projection, previous_offsets: As `read_range` is going to have them.

    Raises:
        ServerUnavailableError: No server answered in time.

    Cost: one call of `first_answers` now, and more as buckets are come to; an answer is kept until it is taken.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        starts: Mapping[TableBucket, int],
        *,
        projection: Sequence[str | int] | None = None,
        previous_offsets: bool = False,
    ) -> None:
        self._request = partial(
            first_answers, connection, info, projection=projection, previous_offsets=previous_offsets
        )
        self._waiting = dict(starts)
        self._held: dict[TableBucket, FirstAnswer] = {}
        #: Buckets whose answers are requested together, with those held.
        self._window = _TOGETHER_MAX
        self._fetch()

    def take(self, bucket: TableBucket) -> FirstAnswer | None:
        """Return a bucket's answer, once; None: its reader requests it by itself.

        Raises:
            ServerUnavailableError: No server answered in time.
        """
        # Two threads may take at a time: at worst both fetch the same.
        if bucket in self._waiting:
            self._fetch()
            self._waiting.pop(bucket, None)
        return self._held.pop(bucket, None)

    def _fetch(self) -> None:
        chosen = dict(list(self._waiting.items())[: max(1, self._window - len(self._held))])
        found = self._request(chosen)
        for bucket, answer in found.items():
            if self._waiting.pop(bucket, None) is not None:  # else another thread has it
                self._held[bucket] = answer
        # Those for which there was no room are requested again: not all of a thousand at each call.
        self._window = 2 * max(len(found), _TOGETHER_MIN)


def _has_records(fetched: FetchedBucket) -> bool:
    """Return whether an answer has records of a bucket, or says where in remote storage they are."""
    return fetched.error is None and (fetched.size_bytes > 0 or fetched.remote is not None)


def fetch_bucket(
    connection: ClusterClient, bucket: TableBucket, request: pb.FetchLogRequest, what: object, attempts: Attempts
) -> FetchedBucket:
    """Return the answer to a fetch of one bucket.

    Args:
        connection: To the cluster.
        bucket: The one that the request is for.
        request: The fetch.
        what: Who fetches, for messages.
        attempts: How often, and how long.

    Raises:
        ServerUnavailableError: No server answered in time.
        FlussError: The server's.
    """

    def call(gateway: TabletServerGateway) -> FetchedBucket:
        fetched = next(fetched_buckets(gateway.fetch_log(request)), None)
        if fetched is None or fetched.bucket != bucket:
            raise InternalError(f"{what}: the server's answer leaves the bucket out")
        if fetched.error is not None:
            raise fetched.error
        return fetched

    return call_leader(connection, bucket, what, call, attempts)


class _RangeReader:
    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        bucket: TableBucket,
        partition: str | None,
        projection: Projection,
        limits: FetchLimits,
    ) -> None:
        connection.remember(info)
        self._connection = connection
        self._info = info
        self._bucket = bucket
        self._partition = partition
        self._projection = projection
        self._source: FlussLogSource | None = None
        self._limits = limits

    def __str__(self) -> str:
        return f"read of bucket {self._bucket} of {self._info.path}"

    def read(self, start: int, stop: int, first: FirstAnswer | None) -> Iterator[LogRecords]:
        """Yield the records of a range; `first` may be the answer that it begins with."""
        offset = start
        attempts = self._connection.attempts(self)
        gone: GoneSegments | None = None
        ahead = AnswersAhead(stop, self._limits.max_bytes, self._fetch_once)
        is_first = True
        while offset < stop:
            begin = offset
            fetched = first.fetched if first is not None and first.offset == offset else ahead.take(offset)
            first = None
            if fetched is None:
                fetched = self._fetch(offset, ahead.end_of_gap(offset), attempts)
            try:
                # Only once more than the first records are asked for: one answer is enough for a reader of few.
                if not is_first:
                    ahead.ask(begin, fetched)
                for records in self._records(fetched, offset, stop):
                    offset = records.next_offset
                    yield records
                    if is_first:
                        ahead.ask(begin, fetched)
                    is_first = False
            except LakeSnapshotNotFoundError as error:
                # It was replaced since the server named it; the server learns of its successor.
                if offset == begin:
                    attempts.wait_after(error, "the lake")
                    continue
            except SegmentGoneError as error:
                gone = gone or GoneSegments()
                gone.note(error, str(self))
                continue
            if offset == begin and fetched.lake is None:
                raise OffsetOutOfRangeError(
                    f"bucket {self._bucket} of {self._info.path}: expected records [{start}, {stop}), found none in "
                    f"[{offset}, {stop}); the log holds [{fetched.log_start_offset}, {fetched.high_watermark})"
                )
            attempts.restart()

    def _records(self, fetched: FetchedBucket, start: int, stop: int) -> Iterator[LogRecords]:
        """Yield the records of an answer, or of the place that it names, below an offset."""
        if fetched.lake is not None:
            return self._from_lake(fetched.lake, start, stop)
        if fetched.remote is not None:
            return self._from_remote(fetched.remote, start, stop)
        return self._from_server(fetched, start, stop)

    def _from_server(self, fetched: FetchedBucket, start: int, stop: int) -> Iterator[LogRecords]:
        try:
            for records in decode_bucket(fetched, start, self._projection, self._connection.decoded_ends):
                if (clipped := records.clip(start, stop)) is None:
                    return
                start = clipped.next_offset
                yield clipped
        except CorruptDataError as error:
            raise damage_error(self._connection, self._info, self._bucket, self._partition, error) from error

    def _fetch_once(self, offset: int, stop: int) -> FetchedBucket:
        return self._fetch(offset, stop, self._connection.attempts(self, 0))

    def _fetch(self, offset: int, stop: int, attempts: Attempts) -> FetchedBucket:
        request = fetch_request(self._info.table_id, [(self._bucket, offset)], self._projection, self._limits, stop)
        return fetch_bucket(self._connection, self._bucket, request, self, attempts)

    def _from_remote(self, place: pb.PbRemoteLogFetchInfo, start: int, stop: int) -> Iterator[LogRecords]:
        what = f"bucket {self._bucket} of {self._info.path}"
        previous_offsets = self._limits.previous_offsets
        return remote_records(
            place, what, start, stop, self._projection, previous_offsets=previous_offsets,
            files=self._connection.remote_files,
        )  # fmt: skip

    def _from_lake(self, place: pb.PbLakeLogFetchInfo, start: int, stop: int) -> Iterator[LogRecords]:
        if self._source is None:
            self._source = self._connection.log_source(self._info)
        if self._source is None:
            raise OffsetOutOfRangeError(
                f"bucket {self._bucket} of {self._info.path}: offset {start} has left the cluster, and no plug-in here "
                "can read the lake that holds it"
            )
        context = FetchContext(
            start,
            min(stop, place.log_end_offset),
            self._partition,
            self._bucket.bucket,
            place.snapshot_id,
            self._projection.columns,
        )
        what = f"bucket {self._bucket} of {self._info.path}"
        yield from checked_lake_records(
            self._source, context, what, keyed=not self._info.is_log_table,
            previous_offsets=self._limits.previous_offsets,
        )  # fmt: skip


def checked_lake_records(
    source: FlussLogSource, context: FetchContext, what: str, *, keyed: bool = False, previous_offsets: bool = False
) -> Iterator[LogRecords]:
    """Yield the records that a lake holds of a range, seen to be in order and complete.

    Args:
        source: The lake.
        context: The range.
        what: Who reads, for messages.
        keyed: Whether the table has a primary key, and the records change types.
        previous_offsets: Of such a table: whether records keep their previous offsets.

    Raises:
        CorruptDataError: Offsets of the range are missing or out of order, or a changelog has no change types.
        LakeSnapshotNotFoundError: The snapshot has expired.
    """
    offset = context.fetch_start_offset
    for records in source.fetch_log_records(context):
        if not len(records):
            continue
        if records.base_offset != offset or records.next_offset - records.base_offset != len(records):
            raise CorruptDataError(
                f"{what}, lake snapshot {context.lake_snapshot_id}: expected offsets from {offset} without a gap, found "
                f"{len(records)} between {records.base_offset} and {records.next_offset}"
            )
        if keyed and (records.change_types is None or records.previous_offsets is None):
            raise CorruptDataError(
                f"{what}, lake snapshot {context.lake_snapshot_id}: expected change types and previous offsets, as a "
                "changelog has, found records without"
            )
        offset = records.next_offset
        yield records if previous_offsets or not keyed else records.replace(records.rows, None)
    if offset != context.log_end_offset:
        raise CorruptDataError(
            f"{what}, lake snapshot {context.lake_snapshot_id}: expected records [{context.fetch_start_offset}, "
            f"{context.log_end_offset}), found none in [{offset}, {context.log_end_offset})"
        )


#: Where a server cannot be waited at, for all of the time: several hold the buckets, or it answers at once.
_PAUSE_S: Final = 0.1


def wait_for_records(
    connection: ClusterClient, info: TableInfo, ends: Mapping[TableBucket, int], timeout_s: float
) -> bool:
    """Wait until a bucket may have new records, or the time is up; shorter when no single server can be waited at.

    Args:
        connection: To the cluster.
        info: The table.
        ends: Offset in each bucket behind which records are new.
        timeout_s: Longest wait.

    Returns:
        Whether there are none: False where that is not known.

    Cost: one call to the server; of several servers none, and then it returns after a tenth of a second.
    """
    deadline = time.monotonic() + timeout_s
    has_come = _has_come(connection, info, ends, timeout_s) if ends else None
    if not has_come:
        threading.Event().wait(max(0.0, min(_PAUSE_S, deadline - time.monotonic())))
    return has_come is False


def _has_come(
    connection: ClusterClient, info: TableInfo, ends: Mapping[TableBucket, int], timeout_s: float
) -> bool | None:
    """Wait at the server; return whether it has records behind the ends. None: an error, which the next read raises."""
    # One column of one batch: the records themselves are not read.
    limits = FetchLimits(1, int(timeout_s * 1000), enable_lake=False)
    request = fetch_request(info.table_id, list(ends.items()), Projection(info, [0]), limits)
    try:
        servers = set(connection.leaders(ends).values())
        if len(servers) != 1:
            return None
        answered = list(fetched_buckets(connection.gateway(servers.pop()).fetch_log(request)))
        # A batch without records lies at the end itself, and is no news.
        if any(
            header.next_offset > ends[each.bucket]
            for each in answered
            if each.error is None and each.bucket in ends
            for header, _ in split_headers(each.data)
        ):
            return True
        return False if {each.bucket for each in answered if each.error is None} >= ends.keys() else None
    except FlussError:
        return None

"""The status of a table's buckets and its lake snapshots, as the cluster knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fluss_lab.client.cluster.leader_requests import (
    PASSING_ERRORS,
    BucketRequest,
    LeaderCall,
    call_leaders,
    call_leaders_once,
)
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.errors import (
    FlussError,
    InternalError,
    NotLeaderError,
    PartitionNotFoundError,
    error_from_code,
)
from fluss_lab.model import LakeOffset, LakeSnapshot, TableBucket, TableInfo, TablePath
from fluss_lab.model.times import format_moment
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import bucket_of, path_message

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: The leader of a bucket whose server is away.
NO_LEADER = -1
#: How often buckets are listed for one answer: more drops of partitions in a row are no accident.
LISTINGS_MAX = 5


@dataclass(frozen=True, slots=True)
class GivenUpRange:
    """Offsets ``[start, stop)`` of a log that were given up, because they could not be read.

    Attributes:
        start: The first.
        stop: Where the log could be read again.
        lost_start: Neither lake nor remote storage held those in ``[lost_start, stop)``; `stop` when the lake or remote storage held all. It is
            below `start` where sound records before the damage were discarded too.
        time_ms: When that was done.
    """

    start: int
    stop: int
    lost_start: int
    time_ms: int

    def __str__(self) -> str:
        held = "" if self.lost_start < self.stop else ", held by the lake or remote storage"
        return f"[{min(self.start, self.lost_start)}, {self.stop}) given up at {format_moment(self.time_ms)}{held}"


@dataclass(frozen=True, slots=True)
class KnownBucket:
    """How one bucket is.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        leader: Id of the server that holds it.
        start: `start_offset`, or the error that says why it is not known: remote storage may hold what is before
            `local_start_offset`, and cannot be read.
        local_start_offset: First offset on the server's disk.
        end_offset: Offset that the next record gets.
        high_watermark: Offsets below are readable.
        durable_offset: Offsets below are on the device.
        size_bytes: Of its log on the server's disk.
        segments: Files of its log there.
        max_timestamp_ms: Of its last record; None before the first.
        lake_end_offset: Offsets below are in the lake; None when it was never tiered.
        lake_snapshot_id: The lake snapshot that says so.
        lake_start_offset: From there on the lake holds every record up to `lake_end_offset`; None when it was never
            tiered, or the server does not say it: see `has_unsaid_lake_start`.
        warning: What is wrong without making an offset doubtful: a copy to remote storage that failed, a disk that
            refuses writes. None when all is well.
        remote_start_offset: First offset in remote storage; None when nothing is there.
        remote_end_offset: Offset after the last one there.
        remote_size_bytes: Of what is there.
        given_up: What was given up of its log, because it could not be read.
    """

    bucket: TableBucket
    partition: str | None
    leader: int
    start: int | FlussError
    local_start_offset: int
    end_offset: int
    high_watermark: int
    durable_offset: int
    size_bytes: int
    segments: int
    max_timestamp_ms: int | None
    lake_end_offset: int | None
    lake_snapshot_id: int | None
    warning: str | None = None
    remote_start_offset: int | None = None
    remote_end_offset: int | None = None
    remote_size_bytes: int = 0
    given_up: tuple[GivenUpRange, ...] = ()
    lake_start_offset: int | None = None

    def require(self) -> KnownBucket:
        """Return the bucket itself; of an `UnknownBucket` its error is raised."""
        return self

    @property
    def start_offset(self) -> int:
        """Return the first offset that the cluster holds, on the server's disk or in remote storage.

        Raises:
            FlussError: It is not known: the server's own error.
        """
        if isinstance(self.start, FlussError):
            raise fresh_error(self.start)
        return self.start

    @property
    def has_unsaid_lake_start(self) -> bool:
        """Return whether the lake holds a part of which the server, of an older version, does not say where it begins."""
        return self.lake_end_offset is not None and self.lake_start_offset is None

    @property
    def error(self) -> FlussError | None:
        """Return why `start_offset` is not known; None when it is."""
        return self.start if isinstance(self.start, FlussError) else None


@dataclass(frozen=True, slots=True)
class UnknownBucket:
    """A bucket of which no offset is known: it could not be opened, its log is damaged, or its server is away.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        leader: Id of the server that says so; -1 when that is away.
        error: Why: the server's own error, with table and bucket named.
    """

    bucket: TableBucket
    partition: str | None
    leader: int
    error: FlussError

    def require(self) -> KnownBucket:
        """Raise the error.

        Raises:
            FlussError: Always.
        """
        raise fresh_error(self.error)


#: How one bucket is: known, or an error that a caller must handle before it can read an offset.
BucketStatus: TypeAlias = KnownBucket | UnknownBucket


def fresh_error(error: FlussError) -> FlussError:
    """Return an error that may be raised again: without the traceback of where it was raised before."""
    return type(error)(str(error))


def list_buckets(connection: ClusterClient, info: TableInfo, *, patient: bool) -> list[BucketStatus]:
    """Return how each bucket of a table is; asked again where a partition was dropped meanwhile. See `Admin.buckets`."""
    for left in reversed(range(LISTINGS_MAX)):
        try:
            return bucket_statuses(connection, info, patient=patient)
        except PartitionNotFoundError:
            if not left:
                raise
    raise AssertionError


def bucket_statuses(connection: ClusterClient, info: TableInfo, *, patient: bool) -> list[BucketStatus]:
    """Return how each bucket of a table is.

    Raises:
        PartitionNotFoundError: A partition was dropped between the question for partitions and that for buckets.
    """
    names: dict[int | None, str | None] = {None: None}
    if info.descriptor.partitioned_by:
        names = {each.partition_id: each.name for each in connection.partitions(info).values()}
    wanted = [
        TableBucket(info.table_id, partition_id, bucket)
        for partition_id in names
        for bucket in range(info.descriptor.buckets)
    ]
    connection.remember(info)
    if not patient:
        connection.forget_leaders_of(wanted)  # the question is which servers are away now
    attempts = connection.attempts("describe_buckets")

    def send(gateway: TabletServerGateway, requests: Sequence[BucketRequest]) -> list[BucketStatus | FlussError]:
        leaders = connection.present_leaders([each.bucket for each in requests], attempts)
        response = gateway.describe_buckets(pb.DescribeBucketsRequest(table_id=info.table_id))
        found = {bucket_of(entry.table_bucket): entry for entry in response.buckets}
        return [
            _status(found[each.bucket], names, leaders.get(each.bucket, NO_LEADER), info.path)
            if each.bucket in found
            else NotLeaderError(f"bucket {each.bucket}: its server is away")
            for each in requests
        ]

    call: LeaderCall[BucketRequest, BucketStatus] = LeaderCall(send)
    requests = [BucketRequest(bucket) for bucket in wanted]
    statuses: list[BucketStatus] = []
    for bucket, found in zip(
        wanted, (call_leaders if patient else call_leaders_once)(connection, requests, call, attempts), strict=True
    ):
        if not isinstance(found, FlussError):
            statuses.append(found)
        elif isinstance(found, PASSING_ERRORS):
            partition = names.get(bucket.partition_id)
            statuses.append(
                UnknownBucket(bucket, partition, NO_LEADER, _name_bucket(found, info.path, bucket, partition))
            )
        else:
            raise found
    return sorted(statuses, key=lambda status: (status.partition or "", status.bucket.bucket))


def _status(
    entry: pb.PbBucketDescription, names: Mapping[int | None, str | None], leader: int, path: TablePath
) -> BucketStatus:
    bucket = bucket_of(entry.table_bucket)
    partition = names.get(bucket.partition_id)
    if entry.WhichOneof("state") != "known":
        return UnknownBucket(bucket, partition, leader, _name_bucket(_error(entry), path, bucket, partition))
    known = entry.known
    start: int | FlussError = known.start_offset
    if known.WhichOneof("start") != "start_offset":
        start = _name_bucket(_start_error(known), path, bucket, partition)
    has_remote = known.HasField("remote_log_start_offset")
    has_lake, says_start = known.HasField("lake_log_end_offset"), known.HasField("lake_log_start_offset")
    return KnownBucket(
        bucket=bucket,
        partition=partition,
        leader=leader,
        start=start,
        local_start_offset=known.log_start_offset,
        end_offset=known.log_end_offset,
        high_watermark=known.high_watermark,
        durable_offset=known.durable_offset,
        size_bytes=known.size_in_bytes,
        segments=known.segments,
        max_timestamp_ms=known.max_timestamp if known.max_timestamp >= 0 else None,
        lake_end_offset=known.lake_log_end_offset if has_lake else None,
        lake_snapshot_id=known.lake_snapshot_id if known.HasField("lake_snapshot_id") else None,
        warning=known.warning if known.HasField("warning") else None,
        remote_start_offset=known.remote_log_start_offset if has_remote else None,
        remote_end_offset=known.remote_log_end_offset if has_remote else None,
        remote_size_bytes=known.remote_size_in_bytes,
        given_up=given_up_ranges(known.given_up),
        lake_start_offset=known.lake_log_start_offset if has_lake and says_start else None,
    )


def given_up_ranges(entries: Iterable[pb.PbGivenUpRange]) -> tuple[GivenUpRange, ...]:
    """Return what was given up of a log, from a server's answer."""
    return tuple(
        GivenUpRange(each.start_offset, each.stop_offset, each.lost_start_offset, each.time) for each in entries
    )


def _error(entry: pb.PbBucketDescription) -> FlussError:
    if entry.HasField("error"):
        return error_from_code(entry.error.error_code, entry.error.error_message)
    return InternalError("the server describes it neither as known nor by an error; is it of another version?")


def _start_error(known: pb.PbKnownBucket) -> FlussError:
    if known.HasField("start_error"):
        return error_from_code(known.start_error.error_code, known.start_error.error_message)
    return InternalError("the server says neither where it begins nor why that is not known")


def _name_bucket(error: FlussError, path: TablePath, bucket: TableBucket, partition: str | None) -> FlussError:
    """Return an error with the bucket that it is about."""
    where = "" if partition is None else f" of partition {partition!r}"
    return type(error)(f"table {path}, bucket {bucket.bucket}{where}: what it holds is not known: {error}")


def lake_snapshot(
    connection: ClusterClient, path: TablePath, snapshot_id: int | None = None, table_id: int | None = None
) -> LakeSnapshot:
    """Return a lake snapshot as the cluster knows it. See `Admin.lake_snapshot`."""
    request = pb.GetLakeSnapshotRequest(table_path=path_message(path))
    if snapshot_id is not None:
        request.snapshot_id = snapshot_id
    response = connection.coordinator().get_lake_snapshot(request)
    if table_id is not None:
        check_table_id(path, table_id, response.table_id)
    offsets, starts = {}, {}
    for entry in response.bucket_snapshots:
        name = entry.partition_name if entry.HasField("partition_name") else None
        timestamp_ms = entry.log_max_timestamp if entry.HasField("log_max_timestamp") else -1
        bucket = bucket_of(entry, response.table_id)
        offsets[bucket] = LakeOffset(entry.log_offset, timestamp_ms, name)
        if entry.HasField("log_start_offset"):
            starts[bucket] = entry.log_start_offset
    return LakeSnapshot(response.snapshotId, offsets, starts)

"""Offsets by position or time: earliest, latest, at a time; in the cluster, and in the lake where the answer lies there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_lab.client.cluster.leader_requests import BucketRequest, LeaderCall, call_leaders
from fluss_lab.errors import (
    BucketNotFoundError,
    FlussError,
    InternalError,
    InvalidTimestampError,
    LakeSnapshotNotFoundError,
    error_from_code,
)
from fluss_lab.lake import FlussLogSource, LookupContext
from fluss_lab.model import OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.offsets import EARLIEST, TIMESTAMP
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import CLIENT_ID

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: How often in a row the lake snapshot that a server named may have expired: the lookup is repeated each time, and two expiries within
#: one look are no accident.
LAKE_ATTEMPTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class BucketOffset:
    """The answer for one bucket.

    Attributes:
        offset: The offset found.
        timestamp_ms: Timestamp of the record there; None when there is none yet, or the query was not by time.
        lake_snapshot_id: The lake snapshot that the answer was found in; None when it is from the cluster.
    """

    offset: int
    timestamp_ms: int | None = None
    lake_snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """The query for each bucket.

    Attributes:
        spec: Earliest, latest, or by time.
        lake: Whether the lake may answer.
        durable: Latest: only what is on the device, put there before the answer.
        raise_clock: By time: no later record gets a timestamp below it.
        local_only: Only what the cluster itself holds; offsets are clipped to it.
    """

    spec: OffsetSpec
    lake: bool = True
    durable: bool = False
    raise_clock: bool = False
    local_only: bool = False


def list_offsets(
    connection: ClusterClient,
    info: TableInfo,
    query: OffsetQuery,
    partition: PartitionInfo | None,
    buckets: Sequence[int] | None,
) -> dict[int, BucketOffset]:
    """Return the offset of each bucket, by one request to each server. See `Admin.list_offsets`."""
    connection.remember(info)
    partition_id = None if partition is None else partition.partition_id
    wanted = [TableBucket(info.table_id, partition_id, bucket) for bucket in _bucket_ids(info, buckets)]
    # Also of a table whose lake is switched off by now: what it holds has left the cluster all the same.
    asks_lake = query.lake and not query.local_only
    answers = _call_leaders(connection, wanted, query, enable_lake=asks_lake)
    in_lake = [bucket for bucket, answer in answers.items() if answer.HasField("lake_snapshot_id")]
    source = connection.log_source(info) if asks_lake and in_lake else None
    if in_lake and source is None:
        answers |= _call_leaders(connection, in_lake, query, enable_lake=False)
    found: dict[int, BucketOffset] = {}
    for bucket, answer in answers.items():
        if source is not None and answer.HasField("lake_snapshot_id"):
            found[bucket.bucket] = _from_lake(connection, source, query, bucket, partition, answer)
        else:
            found[bucket.bucket] = _from_cluster(answer)
    return found


def _bucket_ids(info: TableInfo, buckets: Sequence[int] | None) -> list[int]:
    count = info.descriptor.buckets
    if buckets is None:
        return list(range(count))
    if outside := [bucket for bucket in buckets if not 0 <= bucket < count]:
        raise BucketNotFoundError(f"{info.path}: expected buckets in [0, {count}), found {outside[0]}")
    return list(dict.fromkeys(buckets))


def _from_cluster(answer: pb.PbListOffsetsRespForBucket) -> BucketOffset:
    return BucketOffset(answer.offset, answer.timestamp if answer.HasField("timestamp") else None)


def _from_lake(
    connection: ClusterClient,
    source: FlussLogSource,
    query: OffsetQuery,
    bucket: TableBucket,
    partition: PartitionInfo | None,
    answer: pb.PbListOffsetsRespForBucket,
) -> BucketOffset:
    """Find the offset in the lake snapshot that the server named, or in its successor where it was expired since.

    A time that is after all that the lake holds is the cluster's to answer, which did so beside naming the snapshot.

    Raises:
        LakeSnapshotNotFoundError: The server keeps naming snapshots that are gone.
    """
    gone = 0
    while answer.HasField("lake_snapshot_id"):
        try:
            found = _offset_in_lake(source, query, bucket, None if partition is None else partition.name, answer)
            if found is not None:
                return found
            if answer.HasField("offset"):
                break
            answer = _call_leaders(connection, [bucket], query, enable_lake=False)[bucket]
        except LakeSnapshotNotFoundError:
            # Without the lake the answer would be wrong: it would pass over what has left the cluster.
            gone += 1
            if gone == LAKE_ATTEMPTS_MAX:
                raise
            answer = _call_leaders(connection, [bucket], query, enable_lake=True)[bucket]
    return _from_cluster(answer)


def _offset_in_lake(
    source: FlussLogSource,
    query: OffsetQuery,
    bucket: TableBucket,
    partition: str | None,
    answer: pb.PbListOffsetsRespForBucket,
) -> BucketOffset | None:
    """Return the answer of the lake snapshot that the server named; None when it has none."""
    snapshot_id = answer.lake_snapshot_id
    if query.spec.kind == TIMESTAMP:
        context = LookupContext(partition, bucket.bucket, query.spec.timestamp_ms, snapshot_id)
        try:
            offset, timestamp_ms = source.lookup_log_offset_by_timestamp(context)
        except InvalidTimestampError:
            return None
        return BucketOffset(offset, timestamp_ms, snapshot_id)
    if query.spec.kind == EARLIEST:
        named = answer.offset if answer.HasField("offset") else None
        first = named if named is not None else source.earliest_offset(partition, bucket.bucket, snapshot_id)
        return None if first is None else BucketOffset(first, None, snapshot_id)
    return None


def _call_leaders(
    connection: ClusterClient, buckets: list[TableBucket], query: OffsetQuery, *, enable_lake: bool
) -> dict[TableBucket, pb.PbListOffsetsRespForBucket]:
    """Ask each bucket's server, again where it moved or was away."""

    def send(
        gateway: TabletServerGateway, requests: Sequence[BucketRequest]
    ) -> list[pb.PbListOffsetsRespForBucket | FlussError]:
        asked = [request.bucket for request in requests]
        response = gateway.list_offsets(_request(asked, query, enable_lake))
        by_id = {entry.bucket_id: entry for entry in response.buckets_resp}
        return [_answer(bucket, by_id.get(bucket.bucket)) for bucket in asked]

    call: LeaderCall[BucketRequest, pb.PbListOffsetsRespForBucket] = LeaderCall(send)
    answers = call_leaders(connection, list(map(BucketRequest, buckets)), call, connection.attempts("list_offsets"))
    return dict(zip(buckets, answers, strict=True))


def _answer(
    bucket: TableBucket, entry: pb.PbListOffsetsRespForBucket | None
) -> pb.PbListOffsetsRespForBucket | FlussError:
    if entry is None:
        return InternalError(f"the server's answer leaves out bucket {bucket}")
    return error_from_code(entry.error_code, entry.error_message) if entry.error_code else entry


def _request(buckets: list[TableBucket], query: OffsetQuery, enable_lake: bool) -> pb.ListOffsetsRequest:
    request = pb.ListOffsetsRequest(
        follower_server_id=CLIENT_ID,
        offset_type=query.spec.kind,
        table_id=buckets[0].table_id,
        partition_id=buckets[0].partition_id,
        bucket_id=[bucket.bucket for bucket in buckets],
        enable_lake=enable_lake,
        durable=query.durable,
        raise_clock=query.raise_clock,
        local_only=query.local_only,
    )
    if query.spec.kind == TIMESTAMP:
        request.startTimestamp = query.spec.timestamp_ms
    return request

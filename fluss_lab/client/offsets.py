"""Asking for offsets: earliest, latest, by time; in the cluster, and in the lake where the answer lies there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_lab.client.asking import Ask, ask_leaders
from fluss_lab.errors import (
    BucketNotFoundError,
    FlussError,
    InternalError,
    InvalidTimestampError,
    LakeSnapshotNotFoundError,
    UnavailableError,
    error_from_code,
)
from fluss_lab.lake import FlussLogSource, LookupContext, SupportsCreateFlussLogSource
from fluss_lab.model import OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.offsets import EARLIEST, TIMESTAMP
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway

if TYPE_CHECKING:
    from fluss_lab.client.connection import Connection

log = logging.getLogger(__name__)

#: A client, not a following server.
CLIENT: Final = -1


@dataclass(frozen=True, slots=True)
class BucketOffset:
    """The answer for one bucket.

    Attributes:
        offset: The offset asked for.
        timestamp_ms: Timestamp of the record there; None when there is none yet, or it was not asked by time.
        lake_snapshot_id: The lake snapshot that the answer was found in; None when it is from the cluster.
    """

    offset: int
    timestamp_ms: int | None = None
    lake_snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """What is asked of each bucket.

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


def log_source(connection: Connection, info: TableInfo) -> FlussLogSource | None:
    """Return the table's log in the lake; None when the cluster has no lake or no plug-in here can read it so.

    Source: FIP "fetch log from lake", "Changed in FlussClient": without plug-in the client goes on as before.
    """
    try:
        storage = connection.lake_storage()
        if isinstance(storage, SupportsCreateFlussLogSource):
            return storage.create_fluss_log_source(info)
    except UnavailableError:
        raise
    except (FlussError, ImportError) as error:
        log.warning("%s: the lake cannot be read as a log, going on without it: %s", info.path, error)
    return None


def list_offsets(
    connection: Connection,
    info: TableInfo,
    query: OffsetQuery,
    partition: PartitionInfo | None,
    buckets: Sequence[int] | None,
) -> dict[int, BucketOffset]:
    """Return the offset of each bucket, asked of one request per server. See `Admin.list_offsets`."""
    connection.remember(info)
    partition_id = None if partition is None else partition.partition_id
    wanted = [TableBucket(info.table_id, partition_id, bucket) for bucket in _bucket_ids(info, buckets)]
    asks_lake = query.lake and not query.local_only and info.descriptor.lake_enabled
    source = log_source(connection, info) if asks_lake else None
    answers = _ask(connection, wanted, query, enable_lake=source is not None)
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
    connection: Connection,
    source: FlussLogSource,
    query: OffsetQuery,
    bucket: TableBucket,
    partition: PartitionInfo | None,
    answer: pb.PbListOffsetsRespForBucket,
) -> BucketOffset:
    """Find the offset in the lake snapshot that the server named; without success, ask for what the cluster holds."""
    name = None if partition is None else partition.name
    try:
        if query.spec.kind == TIMESTAMP:
            context = LookupContext(name, bucket.bucket, query.spec.timestamp_ms, answer.lake_snapshot_id)
            offset, timestamp_ms = source.lookup_log_offset_by_timestamp(context)
            return BucketOffset(offset, timestamp_ms, answer.lake_snapshot_id)
        if query.spec.kind == EARLIEST:
            if answer.HasField("offset"):
                return BucketOffset(answer.offset, None, answer.lake_snapshot_id)
            first = source.earliest_offset(name, bucket.bucket, answer.lake_snapshot_id)
            if first is not None:
                return BucketOffset(first, None, answer.lake_snapshot_id)
        else:
            return _from_cluster(answer)
    except (InvalidTimestampError, LakeSnapshotNotFoundError) as error:
        log.info("bucket %s: lake snapshot %s has no answer: %s", bucket, answer.lake_snapshot_id, error)
    return _from_cluster(_ask(connection, [bucket], query, enable_lake=False)[bucket])


@dataclass(frozen=True, slots=True)
class _Question:
    bucket: TableBucket


def _ask(
    connection: Connection, buckets: list[TableBucket], query: OffsetQuery, *, enable_lake: bool
) -> dict[TableBucket, pb.PbListOffsetsRespForBucket]:
    """Ask each bucket's server, again where it moved or was away."""

    def send(
        gateway: TabletServerGateway, questions: Sequence[_Question]
    ) -> list[pb.PbListOffsetsRespForBucket | FlussError]:
        asked = [question.bucket for question in questions]
        response = gateway.list_offsets(_request(asked, query, enable_lake))
        by_id = {entry.bucket_id: entry for entry in response.buckets_resp}
        return [_answer(bucket, by_id.get(bucket.bucket)) for bucket in asked]

    questions = [_Question(bucket) for bucket in buckets]
    ask: Ask[_Question, pb.PbListOffsetsRespForBucket] = Ask(send)
    answers = ask_leaders(connection, questions, ask, connection.attempts("list_offsets"))
    return dict(zip(buckets, answers, strict=True))


def _answer(
    bucket: TableBucket, entry: pb.PbListOffsetsRespForBucket | None
) -> pb.PbListOffsetsRespForBucket | FlussError:
    if entry is None:
        return InternalError(f"the server's answer leaves out bucket {bucket}")
    return error_from_code(entry.error_code, entry.error_message) if entry.error_code else entry


def _request(buckets: list[TableBucket], query: OffsetQuery, enable_lake: bool) -> pb.ListOffsetsRequest:
    request = pb.ListOffsetsRequest(
        follower_server_id=CLIENT,
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

"""The conversion between the protocol's messages and the coordinator's own types."""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from fluss_lab.errors import (
    FlussError,
    InvalidPartitionError,
    InvalidPropertyError,
    InvalidRequestError,
    InvalidSchemaError,
    error_code,
    error_from_code,
)
from fluss_lab.model import PartitionInfo, Schema, TableDescriptor, TableInfo, TablePath
from fluss_lab.model.names import partition_values
from fluss_lab.model.schema import NewColumn
from fluss_lab.model.types import DataType
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.server.coordinator.ddl.partition_records import KeptPartition, LossyDrop, LossyDrops, PartitionLoss
from fluss_lab.server.coordinator.metadata.table_catalog import LEADER_EPOCH, NO_PARTITION, BucketGroup
from fluss_lab.server.coordinator.tiering.lake_snapshots import PartitionBucket, TieredOffset, TieredSnapshot
from fluss_lab.server.coordinator.tiering.table_tiering import TableTiering

_SET = 0
_DELETE = 1
_LAST = 0


def path_of(message: pb.PbTablePath | pb.PbPhysicalTablePath) -> TablePath:
    """Return the table path in a message.

    Raises:
        InvalidNameError: A name breaks the rule.
    """
    return TablePath(message.database_name, message.table_name)


def descriptor_of(table_json: bytes) -> TableDescriptor:
    """Return the table definition in a message; only its shape is checked.

    Raises:
        InvalidSchemaError: It is not a table definition.
    """
    try:
        value = json.loads(table_json)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"not a table definition in JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidSchemaError(f"not a table definition in JSON: expected an object, found {type(value).__name__}")
    try:
        return TableDescriptor.from_json(value)
    except RecursionError as error:
        raise InvalidSchemaError("not a table definition in JSON: nested too deeply") from error


def spec_of(message: pb.PbPartitionSpec) -> dict[str, str]:
    """Return the values in a partition spec by column.

    Raises:
        InvalidPartitionError: A column appears twice.
    """
    values = {entry.key: entry.value for entry in message.partition_key_values}
    if len(values) != len(message.partition_key_values):
        raise InvalidPartitionError(f"partition {list(values)}: a column appears twice")
    return values


def partition_message(info: TableInfo, partition: PartitionInfo) -> pb.PbPartitionInfo:
    """Return a partition as a message."""
    pairs = zip(info.descriptor.partitioned_by, partition_values(partition.name), strict=True)
    spec = pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key=key, value=value) for key, value in pairs])
    return pb.PbPartitionInfo(partition_id=partition.partition_id, partition_spec=spec)


def partitions_message(
    info: TableInfo, found: Iterable[PartitionInfo], lost: Iterable[PartitionLoss], drops: LossyDrops
) -> pb.ListPartitionInfosResponse:
    """Return a table's partitions, and what drops of partitions have lost, as a message.

    Args:
        lost: The dropped partitions whose rows are no longer available at the time asked for.
        drops: The drops asked for.
    """
    return pb.ListPartitionInfosResponse(
        partitions_info=[partition_message(info, each) for each in found],
        lost_partitions=[
            pb.PbLostPartition(partition_name=each.partition.name, dropped_time=each.until_ms) for each in lost
        ],
        table_id=info.table_id,
        newest_lossy_drop=drops.newest,
        lossy_drops=[_drop_message(each) for each in drops.wanted],
    )


def _drop_message(drop: LossyDrop) -> pb.PbLossyDrop:
    return pb.PbLossyDrop(
        number=drop.number,
        partition_id=drop.partition.partition_id,
        partition_name=drop.partition.name,
        from_time=drop.from_ms,
        dropped_time=drop.dropped_ms,
        lost_ranges=[
            pb.PbLostRange(
                bucket_id=each.bucket, start_offset=each.start, stop_offset=each.stop, last_time=each.last_ms
            )
            for each in drop.lost
        ],
    )


def changes_of(messages: Iterable[pb.PbAlterConfig]) -> tuple[dict[str, str], list[str]]:
    """Return which properties a request sets, and which it resets.

    Raises:
        InvalidPropertyError: A property appears twice, or has no value to be set to.
        InvalidRequestError: An unknown operation.
    """
    values: dict[str, str] = {}
    reset: list[str] = []
    for change in messages:
        if change.config_key in values or change.config_key in reset:
            raise InvalidPropertyError(f"property {change.config_key!r} is changed twice in one request")
        if change.op_type == _DELETE:
            reset.append(change.config_key)
        elif change.op_type != _SET:
            raise InvalidRequestError(
                f"property {change.config_key!r}: expected operation 0 or 1, found {change.op_type}"
            )
        elif not change.HasField("config_value"):
            raise InvalidPropertyError(
                f"property {change.config_key!r}: a value is missing; reset it to get the default"
            )
        else:
            values[change.config_key] = change.config_value
    return values, reset


def added_columns(messages: Iterable[pb.PbAddColumn]) -> list[NewColumn]:
    """Return the columns that a request adds; only their shape is checked.

    Raises:
        InvalidSchemaError: The type is unknown.
        InvalidRequestError: A column whose position is not the end.
    """
    columns: list[NewColumn] = []
    for column in messages:
        if column.column_position_type != _LAST:
            raise InvalidRequestError(
                f"new column {column.column_name!r}: expected position 0 (last), found {column.column_position_type}"
            )
        try:
            dtype = DataType.from_json(json.loads(column.data_type_json))
        except (ValueError, RecursionError, InvalidSchemaError) as error:
            raise InvalidSchemaError(f"new column {column.column_name!r}: not a data type in JSON: {error}") from error
        columns.append((column.column_name, dtype, column.comment if column.HasField("comment") else None))
    return columns


def buckets_message(leaders: Iterable[int], there: Container[int]) -> list[pb.PbBucketMetadata]:
    """Return who holds the buckets as messages; a bucket whose server is not there has no leader."""
    return [
        pb.PbBucketMetadata(
            bucket_id=bucket,
            leader_id=leader if leader in there else None,
            replica_id=[leader],
            leader_epoch=LEADER_EPOCH,
        )
        for bucket, leader in enumerate(leaders)
    ]


def table_message(info: TableInfo, leaders: Iterable[int], there: Container[int]) -> pb.PbTableMetadata:
    """Return a table and who holds its buckets as a message; see `buckets_message`."""
    return pb.PbTableMetadata(
        table_path=path_message(info.path),
        table_id=info.table_id,
        schema_id=info.schema_id,
        table_json=json.dumps(info.descriptor.to_json()).encode(),
        bucket_metadata=buckets_message(leaders, there),
        created_time=info.created_ms,
        modified_time=info.modified_ms,
    )


def schema_message(schema_id: int, schema: Schema) -> pb.PbSchema:
    """Return a schema and its id as a message."""
    return pb.PbSchema(schema_id=schema_id, schema_json=json.dumps(schema.to_json()).encode())


def snapshot_message(table_id: int, snapshot: TieredSnapshot, names: Mapping[int, str]) -> pb.GetLakeSnapshotResponse:
    """Return a lake snapshot as a message.

    Args:
        names: Partition names by id, dropped ones too.
    """
    response = pb.GetLakeSnapshotResponse(table_id=table_id, snapshotId=snapshot.snapshot_id)
    for (partition_id, bucket), offset in sorted(snapshot.offsets.items()):
        entry = response.bucket_snapshots.add(
            bucket_id=bucket, log_offset=offset.end, log_max_timestamp=offset.max_timestamp_ms
        )
        if partition_id != NO_PARTITION:
            entry.partition_id = partition_id
            entry.partition_name = names[partition_id]
        if offset.start is not None:
            entry.log_start_offset = offset.start
    return response


def committed_offsets(
    table: TableInfo, message: pb.PbLakeTableSnapshotInfo, partitions: Mapping[int, str], gone: Container[int] = ()
) -> tuple[dict[PartitionBucket, TieredOffset], dict[PartitionBucket, int]]:
    """Return the offsets in a commit, and the log start offsets of buckets for which it has only those.

    Args:
        message: The commit.
        partitions: The table's partitions by id, dropped ones too.
        gone: Ids of partitions that went from the lake since the round was planned: their offsets are left out.

    Raises:
        InvalidRequestError: A bucket that the table does not have, one that appears twice, or an offset that cannot be.
    """
    offsets: dict[PartitionBucket, TieredOffset] = {}
    starts: dict[PartitionBucket, int] = {}
    for entry in message.buckets_req:
        if entry.HasField("partition_id") and entry.partition_id in gone:
            continue
        where = f"table {table.path}, partition {entry.partition_id}, bucket {entry.bucket_id}"
        if entry.HasField("partition_id") != bool(table.descriptor.partitioned_by) or (
            entry.HasField("partition_id") and entry.partition_id not in partitions
        ):
            raise InvalidRequestError(f"{where}: the table has no such partition")
        if not 0 <= entry.bucket_id < table.descriptor.buckets:
            raise InvalidRequestError(f"{where}: expected a bucket in [0, {table.descriptor.buckets})")
        key = (entry.partition_id if entry.HasField("partition_id") else NO_PARTITION, entry.bucket_id)
        if key in offsets or key in starts:
            raise InvalidRequestError(f"{where}: the bucket appears twice")
        start = entry.log_start_offset if entry.HasField("log_start_offset") else None
        if start is not None and start >= 0 and not entry.HasField("log_end_offset") and not message.repair:
            starts[key] = start
            continue
        if not entry.HasField("log_end_offset") or entry.log_end_offset < 0:
            raise InvalidRequestError(f"{where}: expected a log end offset of at least 0")
        if start is not None and not 0 <= start <= entry.log_end_offset:
            raise InvalidRequestError(f"{where}: expected 0 <= start <= end, found [{start}, {entry.log_end_offset})")
        timestamp_ms = entry.log_max_timestamp if entry.HasField("log_max_timestamp") else -1
        offsets[key] = TieredOffset(start, entry.log_end_offset, timestamp_ms)
    return offsets, starts


def tiering_message(table: TableTiering, due_ms: int | None) -> pb.PbTieringState:
    """Return how a table's tiering stands as a message; `due_ms` is when its next round is due."""
    return pb.PbTieringState(
        table_id=table.table_id,
        table_path=path_message(table.path),
        state=table.state.value,
        tiering_epoch=table.epoch,
        failures=table.failures,
        last_tiered_time=table.last_tiered_ms,
        last_error=table.last_error,
        due_time=due_ms,
    )


def kept_message(kept: KeptPartition) -> pb.PbKeptPartition:
    """Return a partition that stays past its retention as a message."""
    return pb.PbKeptPartition(
        table_id=kept.table_id,
        table_path=path_message(kept.path),
        partition_name=kept.name,
        since_time=kept.since_ms,
        reason=kept.reason,
    )


def metrics_pages(ports: Mapping[int, int]) -> list[pb.PbMetricsPage]:
    """Return the pages of metrics by their server; a negative id is the coordinator's process."""
    return [
        pb.PbMetricsPage(server_id=server_id if server_id >= 0 else None, port=port)
        for server_id, port in sorted(ports.items())
    ]


def error_message(error: FlussError) -> pb.ErrorResponse:
    """Return an error as a message."""
    return pb.ErrorResponse(error_code=error_code(error), error_message=str(error))


log = logging.getLogger(__name__)

#: Each request to a tablet server stays well below its limit for requests (32 MB by default, 64 kB at least).
REQUEST_BYTES_MAX: Final = 48 * 1024

M = TypeVar(
    "M", pb.PbNotifyLeaderAndIsrReqForBucket, pb.PbNotifyLakeTableOffsetReqForBucket, pb.PbStopReplicaReqForBucket
)


def bucket_message(group: BucketGroup, bucket: int) -> pb.PbTableBucket:
    """Return a bucket as a message."""
    found = pb.PbTableBucket(table_id=group.table_id, bucket_id=bucket)
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    return found


def lake_offset_message(
    group: BucketGroup, bucket: int, snapshot: TieredSnapshot, offset: TieredOffset | None
) -> pb.PbNotifyLakeTableOffsetReqForBucket:
    """Return how far a bucket is tiered as a message; None: the lake holds nothing of it."""
    found = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=group.table_id, bucket_id=bucket, snapshot_id=snapshot.snapshot_id, commit_sequence=snapshot.sequence
    )
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    if offset is None:
        return found
    found.log_end_offset, found.log_max_timestamp = offset.end, offset.max_timestamp_ms
    if offset.start is not None:
        found.log_start_offset = offset.start
    return found


def chunks(parts: Sequence[M]) -> Iterator[list[M]]:
    """Yield the messages in lists that fit a request; one that is larger stands alone."""
    chunk: list[M] = []
    size = 0
    for message in parts:
        length = message.ByteSize()
        if chunk and size + length > REQUEST_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


def is_done(answer: pb.PbNotifyLeaderAndIsrRespForBucket | pb.PbStopReplicaRespForBucket) -> bool:
    """Return whether a bucket needs no further notification: it obeyed, or its server retries to open it by itself."""
    if not answer.HasField("error_code"):
        return True
    error = error_from_code(answer.error_code, answer.error_message)
    bucket = answer.table_bucket
    log.warning("event=bucket_refused table=%d bucket=%d error=%s", bucket.table_id, bucket.bucket_id, error)
    return isinstance(answer, pb.PbNotifyLeaderAndIsrRespForBucket)

"""The damaged offsets of a table's logs, and the requests that give them up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.client.cluster.bucket_status import GivenUpRange, given_up_ranges
from fluss_lab.client.cluster.leader_requests import call_leader
from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records.batch import Buffer, encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: Ranges that an error names.
_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class DamagedOffsets:
    """Offsets ``[start, stop)`` of a bucket's log that cannot be read; none, at its start, where its rows are what cannot be.

    Attributes:
        file: In which they begin, or behind which they are missing; on the server's machine. Without offsets: the folder of
            the key-value snapshots, none of which has the rows that the log goes on from.
        start: The first.
        stop: Where the log can be read again.
        before_ms: Timestamp of the last record before; None without any.
        after_ms: Timestamp of the first record behind; None without any.
    """

    file: str
    start: int
    stop: int
    before_ms: int | None
    after_ms: int | None


@dataclass(frozen=True, slots=True)
class DamagedBucket:
    """What is damaged of a bucket's log, and who holds what of it.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        start: First offset in the cluster, were all of it sound.
        local_start: And on the server's disk.
        end: Offset after the last.
        size_bytes: Of the log on the server's disk.
        ranges: What cannot be read, ascending; empty: all can.
        remote_end: Remote storage holds what is before, from `start` on; None: not so.
        lake_end: So does the lake; None: it holds nothing, or the table is not tiered.
        rows_offset: The rows of a primary-key table need the log from here on; None of a log table.
        given_up: What was given up before.
        lake_rows: The lake has the rows as they were at this offset, and all of the log from there on can be read; None
            where that is not so, or not needed.
        is_gone: Whether nothing of the log is left on the server's disk.
    """

    bucket: TableBucket
    partition: str | None
    start: int
    local_start: int
    end: int
    size_bytes: int
    ranges: tuple[DamagedOffsets, ...]
    remote_end: int | None
    lake_end: int | None
    rows_offset: int | None
    given_up: tuple[GivenUpRange, ...]
    lake_rows: int | None = None
    is_gone: bool = False

    @property
    def needs_lake_rows(self) -> bool:
        """Return whether the rows are to be made from the lake's."""
        if self.lake_rows is None or self.rows_offset is None or not self.ranges:
            return False
        return self.rows_offset < min(self.lake_rows, self.ranges[-1].stop)


@dataclass(frozen=True, slots=True)
class RowsSent:
    """What was sent of a bucket: see `send_rows`."""

    log_offset: int
    count: int


def damaged_buckets(connection: ClusterClient, info: TableInfo) -> list[DamagedBucket]:
    """Return every bucket of a table with what is damaged of it. See `Admin.damaged_buckets`."""
    names: dict[int | None, str | None] = {None: None}
    if info.descriptor.partitioned_by:
        names = {each.partition_id: each.name for each in connection.partitions(info).values()}
    connection.remember(info)
    buckets = [
        TableBucket(info.table_id, partition_id, number)
        for partition_id in names
        for number in range(info.descriptor.buckets)
    ]
    found = [_describe(connection, bucket, names[bucket.partition_id]) for bucket in buckets]
    return sorted(found, key=lambda each: (each.partition or "", each.bucket.bucket))


def damage_error(
    connection: ClusterClient, info: TableInfo, bucket: TableBucket, partition: str | None, error: CorruptDataError
) -> CorruptDataError:
    """Return what to raise for bytes of a bucket's log that a server sent and that failed their checks.

    Its server looks at the files itself. It stops the bucket where they are damaged (P7), and then the text names file and
    offsets.
    """
    where = f"table {info.path}, bucket {bucket.bucket}" + (f" of partition {partition}" if partition else "")
    try:
        ranges = _describe(connection, bucket, partition).ranges
    except FlussError as failure:
        return CorruptDataError(f"{where}: {error}; where the damage is could not be found out: {failure}")
    if not ranges:
        return CorruptDataError(f"{where}: {error}; its files are sound, as its server finds: read again")
    shown = ", ".join(
        f"{each.file}: offsets [{each.start}, {each.stop}) cannot be read" for each in ranges[:_SHOWN_MAX]
    )
    more = f" and {len(ranges) - _SHOWN_MAX} more ranges" if len(ranges) > _SHOWN_MAX else ""
    return CorruptDataError(
        f"{where}: {shown}{more} ({error}). The bucket is stopped: restore the file from a copy and start the server again, or "
        f"give them up: fluss-lab repair {info.path} --skip-corrupt"
    )


def send_rows(
    connection: ClusterClient, info: TableInfo, bucket: TableBucket, log_offset: int, parts: Iterable[pa.RecordBatch]
) -> RowsSent:
    """Send all rows of a primary-key table's bucket to its server, for `give_up_range` to make the rows from.

    Args:
        connection: To the cluster.
        info: The table.
        bucket: Which.
        log_offset: The rows are as they were at this offset.
        parts: In the table's schema, with ``__offset`` and ``__timestamp`` (int64, epoch milliseconds) behind, ascending by
            offset; each fits into one request.

    Raises:
        ConflictError: Another client sends rows to the server meanwhile; begin again.
        FlussError: The server does not take them.
    """
    connection.remember(info)
    count = 0
    for part, rows in enumerate(itertools.chain([None], parts)):
        request = pb.SendRowsRequest(
            table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=log_offset,
            part=part,
        )  # fmt: skip
        payloads: list[Sequence[Buffer]] = []
        if rows is not None:
            request.records = b""
            payloads.append(encode(rows, schema_id=info.schema_id))
        frame = Frame(request, payloads)
        count = int(call_leader(connection, bucket, "send_rows", partial(_send, frame)).row_count)
    return RowsSent(log_offset, count)


def _send(frame: Frame[pb.SendRowsRequest], gateway: TabletServerGateway) -> pb.SendRowsResponse:
    return gateway.send_rows(frame)


def give_up_range(
    connection: ClusterClient,
    info: TableInfo,
    bucket: TableBucket,
    start: int,
    stop: int,
    *,
    discard_before: bool,
    sent: RowsSent | None = None,
) -> int:
    """Give up the first damaged range of a bucket; return where its log begins then. See `Admin.give_up_range`.

    With rows that were sent to its server, a primary-key table's bucket has these, and the changes of the log from their
    offset on.
    """
    connection.remember(info)
    request = pb.GiveUpRangeRequest(
        table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, start_offset=start,
        stop_offset=stop, discard_before=discard_before, rows_offset=None if sent is None else sent.log_offset,
        row_count=None if sent is None else sent.count,
    )  # fmt: skip
    response = call_leader(connection, bucket, "give_up_range", lambda gateway: gateway.give_up_range(request))
    return int(response.log_start_offset)


def _describe(connection: ClusterClient, bucket: TableBucket, partition: str | None) -> DamagedBucket:
    request = pb.DescribeDamageRequest(
        table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket
    )
    response = call_leader(connection, bucket, "describe_damage", lambda gateway: gateway.describe_damage(request))
    return _damaged_bucket(bucket, partition, response)


def _damaged_bucket(bucket: TableBucket, partition: str | None, response: pb.DescribeDamageResponse) -> DamagedBucket:
    ranges = tuple(
        DamagedOffsets(
            each.file, each.start_offset, each.stop_offset,
            each.time_before if each.HasField("time_before") else None,
            each.time_after if each.HasField("time_after") else None,
        )
        for each in response.ranges
    )  # fmt: skip
    return DamagedBucket(
        bucket=bucket,
        partition=partition,
        start=response.start_offset,
        local_start=response.log_start_offset,
        end=response.log_end_offset,
        size_bytes=response.size_in_bytes,
        ranges=ranges,
        remote_end=response.remote_log_end_offset if response.HasField("remote_log_end_offset") else None,
        lake_end=response.lake_log_end_offset if response.HasField("lake_log_end_offset") else None,
        rows_offset=response.rows_offset if response.HasField("rows_offset") else None,
        given_up=given_up_ranges(response.given_up),
        lake_rows=response.lake_rows_offset if response.HasField("lake_rows_offset") else None,
        is_gone=response.is_gone,
    )

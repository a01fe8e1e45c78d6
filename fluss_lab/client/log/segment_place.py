"""The places of one record in the cluster: segments on its server's disk and in remote storage, as the server says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.leader_requests import call_leader
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where in a segment of a bucket's log a record lies.

    Attributes:
        server: Id of the server that holds the bucket.
        file: The segment's file, by its path on that server, or in remote storage.
        segment_id: Of a segment in remote storage; None of one on the server's disk.
        base_offset: The segment's first offset.
        end_offset: The one after its last.
        position: Where in the file the batch begins that has the record, in bytes.
        size_bytes: Of the batch.
        batch_base_offset: The batch's first offset.
        batch_end_offset: The one after its last.
        timestamp_ms: Of the batch, and so of the record.
    """

    server: int
    file: str
    segment_id: str | None
    base_offset: int
    end_offset: int
    position: int
    size_bytes: int
    batch_base_offset: int
    batch_end_offset: int
    timestamp_ms: int

    @property
    def is_remote(self) -> bool:
        """Return whether the segment is in remote storage."""
        return self.segment_id is not None


def segment_places(
    connection: ClusterClient, info: TableInfo, bucket: TableBucket, offset: int
) -> tuple[SegmentPlace | None, SegmentPlace | None, str | None]:
    """Return where the cluster holds a record: on the server's disk, and in remote storage; None where it does not.

    The third is why it is not known whether remote storage holds what the disk does; None: it is.

    Raises:
        OffsetOutOfRangeError: There is no such record yet.
        CorruptDataError, StorageError: It may lie in what is damaged, or in remote storage, which cannot be read.
        TableNotFoundError, PartitionNotFoundError: The bucket was dropped.
        UnsupportedError: The server is of an older version.
        ServerUnavailableError: No server answered in time.

    Cost: one call.
    """
    connection.remember(info)
    request = pb.LocateRecordRequest(
        table_id=info.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=offset
    )
    what = f"locate offset {offset} of bucket {bucket} of {info.path}"
    answer = call_leader(connection, bucket, what, lambda gateway: gateway.locate_record(request))
    server = connection.leaders((bucket,))[bucket]
    local = _place(answer.local, server) if answer.HasField("local") else None
    remote = _place(answer.remote, server) if answer.HasField("remote") else None
    return local, remote, answer.remote_error or None


def _place(found: pb.PbSegmentPlace, server: int) -> SegmentPlace:
    return SegmentPlace(
        server=server,
        file=found.file,
        segment_id=found.remote_log_segment_id if found.HasField("remote_log_segment_id") else None,
        base_offset=found.segment_base_offset,
        end_offset=found.segment_end_offset,
        position=found.position,
        size_bytes=found.batch_size_in_bytes,
        batch_base_offset=found.batch_base_offset,
        batch_end_offset=found.batch_end_offset,
        timestamp_ms=found.timestamp,
    )

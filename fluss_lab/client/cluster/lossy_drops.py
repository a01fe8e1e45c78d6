"""The drops of a table's partitions by which records were lost, as the cluster remembers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records ``[start, stop)`` of a bucket whose partition was dropped: neither the cluster nor the lake holds them.

    Attributes:
        number: That of the drop: later ones of a table have larger ones.
        bucket: The bucket.
        partition: Name of its partition.
        start: The first of them.
        stop: The offset after the last one; None: where the bucket ended is not known.
        from_ms: None of them has a timestamp before it.
        last_ms: The timestamp of the last one; None: it is not known.
        dropped_ms: When the partition was dropped, or deleted from the lake.
    """

    number: int
    bucket: TableBucket
    partition: str
    start: int
    stop: int | None
    from_ms: int
    last_ms: int | None
    dropped_ms: int

    def reach(self, offset: int) -> bool:
        """Return whether some of them are at an offset or behind it, or may be."""
        return self.stop is None or self.stop > offset


@dataclass(frozen=True, slots=True)
class LossyDrops:
    """Drops of partitions of one table.

    Attributes:
        newest: The number of the newest one by which records were lost, 0 when there was none; None: a server of an older
            release does not know.
        lost: What was lost by the drops asked for, in their order.
    """

    newest: int | None
    lost: tuple[LostRecords, ...]


def lossy_drops(connection: ClusterClient, info: TableInfo, first: int, after_ms: int = 0) -> LossyDrops:
    """Return the drops of a table's partitions by which records were lost.

    Args:
        connection: To the cluster.
        info: The table.
        first: Those of this number and above are wanted; 0: none.
        after_ms: And only those after this time, in epoch milliseconds.

    Raises:
        TableNotFoundError: The table was dropped, or another one has its path now.
        UnavailableError: The coordinator is away.

    Cost: one call.
    """
    path = path_message(info.path)
    request = pb.ListPartitionInfosRequest(
        table_path=path, lossy_drops_from=first, lossy_drops_after_time=max(after_ms, 0)
    )
    response = connection.coordinator().list_partition_infos(request)
    check_table_id(info.path, info.table_id, response.table_id)
    lost = tuple(
        LostRecords(
            drop.number,
            TableBucket(info.table_id, drop.partition_id, each.bucket_id),
            drop.partition_name,
            each.start_offset,
            each.stop_offset if each.HasField("stop_offset") else None,
            drop.from_time,
            each.last_time if each.HasField("last_time") else None,
            drop.dropped_time,
        )
        for drop in response.lossy_drops
        for each in drop.lost_ranges
    )
    return LossyDrops(response.newest_lossy_drop if response.HasField("newest_lossy_drop") else None, lost)


def newest_lossy_drop(connection: ClusterClient, info: TableInfo) -> int | None:
    """Return the number of a table's newest drop by which records were lost; None: it has no partitions, or it is not known.

    Raises and costs as `lossy_drops`, but nothing for a table without partitions.
    """
    return lossy_drops(connection, info, 0).newest if info.descriptor.partitioned_by else None

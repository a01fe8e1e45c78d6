"""A few rows of a table, to look at: any live ones of a primary-key table, the latest ones of a log table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.cluster.leader_requests import call_leader
from fluss_lab.client.kv.lookup_codec import answer_rows
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.errors import (
    InvalidPartitionError,
    InvalidRequestError,
    PartitionNotFoundError,
    error_from_code,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records import LogRecords, decode_all, records_of
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


#: What a request can say; servers allow less.
_LIMIT_MAX: Final = 2**31 - 1


def limit_scan(
    connection: ClusterClient, info: TableInfo, limit: int, partitions: Sequence[str] | None = None
) -> pa.Table:
    """Return up to `limit` rows of what the cluster holds. See `ClusterClient.limit_scan`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= _LIMIT_MAX:
        raise InvalidRequestError(f"limit scan of {info.path}: expected a limit in [0, {_LIMIT_MAX}], found {limit!r}")
    scan = _LimitScan(connection, info)
    rows = scan.latest(limit, partitions) if info.is_log_table else scan.live(limit, partitions)
    return pa.Table.from_batches(rows, info.schema.arrow())


class _LimitScan:
    def __init__(self, connection: ClusterClient, info: TableInfo) -> None:
        connection.remember(info)
        self._connection = connection
        self._info = info
        self._projection = Projection(info, None, partial(connection.schema, info))
        self._what = f"limit scan of {info.path}"

    def live(self, limit: int, partitions: Sequence[str] | None) -> list[pa.RecordBatch]:
        """Return live rows, bucket after bucket until there are enough."""
        found: list[pa.RecordBatch] = []
        for bucket in self._buckets(partitions):
            if limit <= 0:
                break
            answer = self._ask(bucket, limit)
            schema = self._projection.wire_schema(_schema_id(answer.message, self._info))
            rows = answer_rows(answer.payloads[0] if answer.payloads else (), schema, f"{self._what}, bucket {bucket}")
            found.append(self._projection.rows(rows.slice(0, limit)))
            limit -= rows.num_rows
        return found

    def latest(self, limit: int, partitions: Sequence[str] | None) -> list[pa.RecordBatch]:
        """Return the records with the highest timestamps, in the order of time."""
        runs = [run for bucket in self._buckets(partitions) for run in self._log(bucket, limit)] if limit else []
        if not runs:
            return []
        times = np.concatenate([run.timestamps_ms.to_numpy() for run in runs])
        rows = pa.concat_batches([self._projection.rows(run.rows) for run in runs])
        return [rows.take(pa.array(np.argsort(times, kind="stable")[-limit:]))]

    def _log(self, bucket: TableBucket, limit: int) -> Iterator[LogRecords]:
        answer = self._ask(bucket, limit)
        payload = answer.payloads[0] if answer.payloads else ()
        batches = decode_all(b"".join(payload), self._projection.wire_schema)
        runs = [records for batch in batches if (records := records_of(batch)) is not None]
        # Whole batches came: of the first one the end is wanted.
        start = runs[-1].next_offset - limit if runs else 0
        for run in runs:
            if (clipped := run.clip(start, run.next_offset)) is not None:
                yield clipped

    def _buckets(self, partitions: Sequence[str] | None) -> Iterator[TableBucket]:
        ids: list[int | None] = [None]
        if self._info.descriptor.partitioned_by:
            known = self._connection.partitions(self._info)
            wanted = sorted(known) if partitions is None else list(partitions)
            if absent := [name for name in wanted if name not in known]:
                raise PartitionNotFoundError(f"{self._what}: there is no partition {absent[0]!r}")
            ids = [known[name].partition_id for name in wanted]
        elif partitions is not None:
            raise InvalidPartitionError(f"{self._what}: expected no partitions, found {list(partitions)}")
        for partition_id in ids:
            for bucket in range(self._info.descriptor.buckets):
                yield TableBucket(self._info.table_id, partition_id, bucket)

    def _ask(self, bucket: TableBucket, limit: int) -> Frame[pb.LimitScanResponse]:
        request = pb.LimitScanRequest(
            table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, limit=limit
        )

        def call(gateway: TabletServerGateway) -> Frame[pb.LimitScanResponse]:
            answer = gateway.limit_scan(request)
            if answer.message.error_code:
                raise error_from_code(answer.message.error_code, answer.message.error_message)
            return answer

        return call_leader(self._connection, bucket, self._what, call)


def _schema_id(message: pb.LimitScanResponse, info: TableInfo) -> int:
    return message.schema_id if message.HasField("schema_id") else info.schema_id

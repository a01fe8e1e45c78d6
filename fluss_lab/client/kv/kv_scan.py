"""The scan of all live rows of a primary-key bucket at one moment, and the scan of a few rows of any table, to look at."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.cluster.leader_requests import call_leader
from fluss_lab.client.kv.lookup_codec import answer_rows
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.closing import Closing
from fluss_lab.errors import (
    AuthenticationError,
    FlussError,
    InvalidPartitionError,
    InvalidRequestError,
    NotFoundError,
    PartitionNotFoundError,
    UnavailableError,
    UnsupportedError,
    error_from_code,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.records import LogRecords, decode_all, records_of
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

log = logging.getLogger(__name__)
#: What a server says of a scan that it does not know: it was started again, or the scan paused for too long. With
#: another token when it is another server, on the port of the last.
_LOST: Final = (NotFoundError, InvalidRequestError, AuthenticationError)
_SYSTEM: Final = (pa.field("__offset", pa.int64(), nullable=False), pa.field("__timestamp", pa.int64(), nullable=False))
#: What a request can say; servers allow less.
_LIMIT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KvRecords:
    """Some live rows of a bucket, in no particular order.

    Attributes:
        rows: The user's columns (or the projected ones, in the order requested).
        offsets: int64, not null: offset of the log record that made each row what it is.
        timestamps_ms: int64, not null: timestamp of that record, epoch milliseconds.
    """

    rows: pa.RecordBatch
    offsets: pa.Int64Array
    timestamps_ms: pa.Int64Array

    def __len__(self) -> int:
        return int(self.rows.num_rows)


@check_arguments
class KvScan(Closing):
    """All live rows of one bucket at one moment: an iterable of `KvRecords`, each row in exactly one. To be read once.

    It begins at the first use. A lost answer is requested again, and a server's restart before the
    begin is outlived. When the server loses the scan itself later (it was started again, or the reader paused for longer
    than ``server.scanner-ttl``), the scan fails, because its moment cannot be read again. Close it when it is not read to its end.

    Args:
        columns: Names or positions of the columns wanted, in the order wanted; None: all.
        start_offset: Of rows whose last change has a smaller offset none is wanted; a server of an older version gives
            them all the same.
        begin_ms: How long its begin is tried, where the server has no place for it or not its rows; 0: once. None:
            ``client.request-timeout``.

    Raises:
        UnsupportedError: It is a log table.
        InvalidSchemaError: There is no such column, or one is wanted twice.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        bucket: TableBucket,
        columns: Sequence[str | int] | None = None,
        start_offset: int = 0,
        begin_ms: int | None = None,
    ) -> None:
        if info.is_log_table:
            raise UnsupportedError(f"{info.path} has no primary key: it has no live rows but a log; scan that")
        connection.remember(info)
        self._connection = connection
        self._info = info
        self._bucket = bucket
        self._projection = Projection(info, columns, partial(connection.schema, info))
        self._start_offset = start_offset
        self._begin_ms = begin_ms
        self._batch_bytes = connection.fetch_bytes_max
        self._what = f"scan of the rows of {info.path}, bucket {bucket}"
        self._scanner_id: bytes | None = None
        self._calls = 0
        self._log_offset: int | None = None
        #: The first answer, until it is given out.
        self._first: Frame[pb.ScanKvResponse] | None = None
        self._read = False

    def __repr__(self) -> str:
        at = "" if self._log_offset is None else f" at log offset {self._log_offset}"
        return f"<KvScan of {self._info.path}, bucket {self._bucket}{at}>"

    @property
    def log_offset(self) -> int:
        """Return the moment: the scan shows all changes below this offset of the bucket's log, and none from it on.

        It is chosen by the server when the scan begins: at this call, or at the first batch.

        Raises:
            FlussError: The scan could not begin.
        """
        if self._log_offset is None:
            self._first = self._begin()
        assert self._log_offset is not None
        return self._log_offset

    def close(self) -> None:
        """Let the server forget the scan. Twice is fine."""
        scanner_id, self._scanner_id = self._scanner_id, None
        if scanner_id is not None:
            try:
                self._connection.tablet_server(self._bucket).scan_kv(
                    pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=self._calls, close_scanner=True)
                )
            except FlussError as error:
                log.info("%s: not closed; the server expires it: %s", self._what, error)

    def __iter__(self) -> Iterator[KvRecords]:
        """Yield the rows.

        Raises:
            InvalidRequestError: They were read already.
            UnavailableError: The server lost the scan; begin a new one.
            TableNotFoundError, PartitionNotFoundError: The bucket was dropped.
            CorruptDataError: An answer failed its checks.
            ServerUnavailableError: No server answered in time.
        """
        if self._read:
            raise InvalidRequestError(f"{self._what}: it was read already; begin a new one")
        self._read = True
        given = 0
        answer, self._first = self._first or self._begin(), None
        while True:
            records = self._records(answer)
            given += len(records)
            if len(records):
                yield records
            if not answer.message.has_more_results:
                self._scanner_id = None
                return
            try:
                answer = self._next()
            except _ScanLostError as lost:
                raise UnavailableError(
                    f"{self._what}: the server lost it after {given:,} rows were given out; begin a new one: {lost}"
                ) from lost

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> Frame[pb.ScanKvResponse]:
        wanted = pb.PbScanReqForBucket(
            table_id=self._info.table_id,
            partition_id=self._bucket.partition_id,
            bucket_id=self._bucket.bucket,
            projected_fields=self._projection.indices or (),
            start_offset=self._start_offset,
        )
        request = pb.ScanKvRequest(bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=self._batch_bytes)
        attempts = self._connection.attempts(self._what, self._begin_ms)
        answer = call_leader(
            self._connection, self._bucket, self._what, lambda gateway: _ask_server(gateway, request), attempts
        )
        self._scanner_id = answer.message.scanner_id
        self._calls = 1
        self._log_offset = answer.message.log_offset
        return answer

    def _next(self) -> Frame[pb.ScanKvResponse]:
        request = pb.ScanKvRequest(
            scanner_id=self._scanner_id, call_seq_id=self._calls, batch_size_bytes=self._batch_bytes
        )

        def call(gateway: TabletServerGateway) -> Frame[pb.ScanKvResponse]:
            try:
                return _ask_server(gateway, request)
            except _LOST as error:
                # About the scan, not the bucket: it is not retried.
                raise _ScanLostError(str(error)) from error

        answer = call_leader(self._connection, self._bucket, self._what, call)
        self._calls += 1
        return answer

    def _records(self, answer: Frame[pb.ScanKvResponse]) -> KvRecords:
        message = answer.message
        schema_id = message.schema_id if message.HasField("schema_id") else self._info.schema_id
        schema = pa.schema([*self._projection.wire_schema(schema_id), *_SYSTEM])
        received = answer_rows(answer.payloads[0] if answer.payloads else (), schema, self._what)
        offset, timestamp = (received.column(field.name) for field in _SYSTEM)
        return KvRecords(self._projection.rows(received), offset, timestamp)


class _ScanLostError(Exception):
    """The server does not know the scan (any more)."""


def _ask_server(gateway: TabletServerGateway, request: pb.ScanKvRequest) -> Frame[pb.ScanKvResponse]:
    answer = gateway.scan_kv(request)
    if answer.message.error_code:
        raise error_from_code(answer.message.error_code, answer.message.error_message)
    return answer


def limit_scan(
    connection: ClusterClient, info: TableInfo, limit: int, partitions: Sequence[str] | None = None
) -> pa.Table:
    """Return up to `limit` rows of what the cluster holds. See `ClusterClient.limit_scan`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= _LIMIT_MAX:
        raise InvalidRequestError(f"limit scan of {info.path}: expected a limit in [0, {_LIMIT_MAX}], found {limit!r}")
    scan = _LimitScan(connection, info)
    rows = scan.latest(limit, partitions) if info.is_log_table else scan.live(limit, partitions)
    return pa.Table.from_batches(rows, info.schema.arrow_schema)


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

"""What the tests of the tablet server share: batches, an open log, a service spoken to by messages."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fluss_lab.model import make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import decode_all, encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_segments import LogAppendInfo, LogOptions
from fluss_lab.server.tablet.log.payload_validation import check_payload
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing.mock_clock import MockClock

TYPES = {"id": "bigint not null", "name": "string"}
DESCRIPTOR = make_descriptor(TYPES)
DESCRIPTOR_JSON = json.dumps(DESCRIPTOR.to_json()).encode()
SCHEMA = DESCRIPTOR.schema.arrow_schema
TABLE_ID = 7
OPTIONS = LogOptions(segment_bytes=1 << 20, index_interval_bytes=256, fsync=False, writer_expiration_ms=3_600_000)


class Record(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    timestamp_ms: int
    id: int


def rows(first: int, count: int) -> pa.RecordBatch:
    """Rows with ids from `first` up."""
    ids = list(range(first, first + count))
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"name-{i}" for i in ids])], schema=SCHEMA)


def batch(first: int, count: int, *, writer_id: int = -1, sequence: int = -1, schema_id: int = 1) -> bytes:
    """The bytes of a batch with ids from `first` up."""
    made = encode(rows(first, count), schema_id=schema_id, writer_id=writer_id, batch_sequence=sequence)
    return b"".join(bytes(memoryview(part)) for part in made)


def checked(*payloads: bytes):
    """Batches as the log takes them."""
    return check_payload([b"".join(payloads)], {1: SCHEMA}, current_schema_id=1, size_max=1 << 25)


def open_log(folder: Path, clock: MockClock | None = None, options: LogOptions = OPTIONS) -> BucketLog:
    """The log of a folder, made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    logger = BucketLogger(logging.getLogger("tests"), "db.events", None, TableBucket(TABLE_ID, None, 0))
    return BucketLog(folder, options, HandlePool(8), clock or MockClock(), logger, threading.Semaphore(8))


def append(log: BucketLog, first: int, count: int, *, writer_id: int = -1, sequence: int = -1) -> LogAppendInfo:
    """Append one batch and return when it is acknowledged."""
    appended = log.append(checked(batch(first, count, writer_id=writer_id, sequence=sequence)))
    log.acknowledge(appended)
    return appended


def records_in(data: bytes, schema: pa.Schema = SCHEMA) -> list[Record]:
    """The records of encoded batches; each is checked as a client would."""
    return [
        Record(each.base_offset + at, each.header.timestamp_ms, row)
        for each in decode_all(data, schema)
        for at, row in enumerate(each.rows.column("id").to_pylist())
    ]


def read_all(log: BucketLog, start: int | None = None, bytes_max: int = 1 << 20) -> list[Record]:
    """All readable records from an offset on, read as a client would."""
    found: list[Record] = []
    offset = log.start if start is None else start
    while offset < log.high_watermark:
        fetched = log.reader.read(offset, bytes_max)
        assert fetched.next_offset > offset
        some = records_in(b"".join(fetched.buffers))
        found += [record for record in some if record.offset >= offset]
        offset = fetched.next_offset
    return found


class Tablet:
    """A tablet service with a table of some buckets, spoken to by messages."""

    def __init__(self, folder: Path, clock: MockClock | None = None, **options: str) -> None:
        self.folder = folder
        self.clock = clock or MockClock()
        self.options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        self.service = TabletService(folder, options=self.options, clock=self.clock)

    def reopen(self, *, clean: bool = True) -> Tablet:
        """Another service on the same folder, after this one was closed, or was killed."""
        if clean:
            self.service.close()
        again = Tablet(self.folder, self.clock)
        again.options = self.options
        again.service = TabletService(self.folder, options=self.options, clock=self.clock)
        return again

    def open(
        self, *buckets: int, table_id: int = TABLE_ID, partition_id: int | None = None, types=None,
        durable_offset: int | None = None, **properties,
    ):  # fmt: skip
        """Open buckets as the coordinator does; return the answers."""
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
        descriptor = make_descriptor(types or TYPES, properties=named)
        requests = [
            pb.PbNotifyLeaderAndIsrReqForBucket(
                physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="events"),
                table_bucket=pb.PbTableBucket(table_id=table_id, partition_id=partition_id, bucket_id=bucket),
                leader=0,
                leader_epoch=0,
                table_json=json.dumps(descriptor.to_json()).encode(),
                schema_id=1,
                durable_offset=durable_offset,
            )
            for bucket in buckets or (0,)
        ]
        return self.service.open_buckets(requests, 1)

    def produce(self, payloads: dict[int, bytes], timeout_ms: int = 0, table_id: int = TABLE_ID):
        """Append a payload to each bucket; return the answers by bucket."""
        request = pb.ProduceLogRequest(acks=-1, table_id=table_id, timeout_ms=timeout_ms)
        for bucket in payloads:
            request.buckets_req.add(bucket_id=bucket, records=b"")
        answer = self.service.produce_log(Frame(request, [[memoryview(data)] for data in payloads.values()]))
        return {each.bucket_id: each for each in answer.buckets_resp}

    def fetch(self, offsets: dict[int, int], *, table_id: int = TABLE_ID, fields: list[int] | None = None, **asked):
        """Fetch from each bucket; return (answer, bytes) by bucket."""
        each_max = asked.pop("max_fetch_bytes", 1 << 22)
        asked_whole = asked.pop("small_batches_whole", False)
        stop = asked.pop("stop_offset", None)
        previous = asked.pop("previous_offsets_only", False)
        request = pb.FetchLogRequest(follower_server_id=-1, **{"max_bytes": 1 << 22, **asked})
        table = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=fields is not None)
        table.projected_fields.extend(fields or [])
        if asked_whole:
            table.small_batches_whole = True
        if previous:
            table.previous_offsets = table.previous_offsets_only = True
        for bucket, offset in offsets.items():
            table.buckets_req.add(bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=each_max, stop_offset=stop)
        frame = self.service.fetch_log(request)
        payloads = iter(frame.payloads)
        answers = [answer for table in frame.message.tables_resp for answer in table.buckets_resp]
        found = {
            answer.bucket_id: (answer, b"".join(next(payloads)) if answer.HasField("records") else b"")
            for answer in answers
        }
        assert next(payloads, None) is None
        return found

    def offsets(self, kind: int, *buckets: int, **asked):
        """List offsets; return the answers by bucket."""
        request = pb.ListOffsetsRequest(follower_server_id=-1, offset_type=kind, table_id=TABLE_ID, **asked)
        request.bucket_id.extend(buckets or (0,))
        return {each.bucket_id: each for each in self.service.list_offsets(request).buckets_resp}

    def tell_lake(self, bucket: int, end: int, *, snapshot_id: int = 11, start: int = 0, max_timestamp_ms: int = -1):
        """Say what the lake holds of a bucket, as the coordinator does."""
        reported = pb.PbNotifyLakeTableOffsetReqForBucket(
            table_id=TABLE_ID,
            bucket_id=bucket,
            snapshot_id=snapshot_id,
            log_start_offset=start,
            log_end_offset=end,
            log_max_timestamp=max_timestamp_ms,
        )
        self.service.set_lake_offsets([reported])

    def describe(self, table_id: int = TABLE_ID):
        """How each bucket is, or the error that says why that is not known."""
        answer = self.service.describe_buckets(pb.DescribeBucketsRequest(table_id=table_id))
        return {each.table_bucket.bucket_id: getattr(each, each.WhichOneof("state")) for each in answer.buckets}

    def stop(self, bucket: int, *, delete: bool):
        """Close a bucket, and delete it if asked."""
        request = pb.StopReplicaRequest(coordinator_epoch=1)
        bucket_message = pb.PbTableBucket(table_id=TABLE_ID, bucket_id=bucket)
        request.stop_replicas_req.add(table_bucket=bucket_message, leader_epoch=0, delete=delete)
        return self.service.stop_replica(request)


def expiring_tablet(folder: Path, pace_ms: int = 10) -> Tablet:
    """A log of 20 records, one after each `pace_ms`, in segments of a few, which expire a second later."""
    tablet = Tablet(folder, log__segment__file_size="1kb")
    tablet.open(0, table__log__ttl="1s")
    for first in range(20):
        tablet.produce({0: batch(first, 1)})
        tablet.clock.advance(pace_ms)
    return tablet

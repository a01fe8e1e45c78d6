"""What the tests of primary-key buckets share: a service with such a table, and a model of what it must hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fluss_lab.errors import error_from_code
from fluss_lab.model import make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import decode_all, encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing.mock_clock import MockClock

TABLE_ID = 9
TYPES = {"id": "bigint", "name": "string", "score": "int"}
KEY = ("id",)
INSERT, BEFORE, AFTER, DELETE = 1, 2, 3, 4

Row = dict[str, Any]


class Event(NamedTuple):
    """A record of a changelog as a reader sees it."""

    offset: int
    change: int
    row: tuple[Any, ...]
    previous: int | None = None


def joined(buffers) -> bytes:
    """The bytes of buffers that lie one after another."""
    return b"".join(bytes(memoryview(each)) for each in buffers)


def put_batch(
    rows: list[Row], changes=None, *, columns=None, types=None, key=KEY, writer_id=-1, sequence=-1, schema_id=1
):
    """The bytes of a batch of rows to upsert (or, where `changes` says so, delete)."""
    schema = make_descriptor(types or TYPES, primary_key=key).schema.arrow_schema
    fields = [schema.field(name) for name in (columns or schema.names)]
    schema = pa.schema([each.with_nullable(each.name not in key) for each in fields])
    arrays = [pa.array([row.get(each.name) for row in rows], each.type) for each in schema]
    types_of = bytes(changes or [AFTER] * len(rows))
    made = encode(
        pa.record_batch(arrays, schema=schema),
        schema_id=schema_id,
        writer_id=writer_id,
        batch_sequence=sequence,
        change_types=types_of,
    )
    return joined(made)


def upserts(first: int, count: int, tag: str = "n") -> list[Row]:
    """Rows with ids from `first` up."""
    return [{"id": i, "name": f"{tag}-{i}", "score": i % 7} for i in range(first, first + count)]


class KvTablet:
    """A tablet service with a primary-key table, spoken to by messages."""

    def __init__(self, folder: Path, clock: MockClock | None = None, *, types=None, key=KEY, bucket_key=(), **options):
        self.folder, self.clock = folder, clock or MockClock()
        self.types, self.key, self.bucket_key = types or TYPES, key, bucket_key
        self.options = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
        self.options.setdefault("remote.data.dir", str(folder / "remote"))
        folder.mkdir(parents=True, exist_ok=True)  # the lab's, which is there before its servers
        self.service = TabletService(folder / "tablet", options=self.options, clock=self.clock)
        self.schema_id = 1
        self.properties: dict[str, str] = {}

    def open(self, *buckets: int, well: bool = True, **properties: str):
        """Open buckets as the coordinator does; where they are well, all can be opened."""
        named = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
        self.properties.update(named)
        made = make_descriptor(self.types, primary_key=self.key, bucket_key=self.bucket_key, properties=self.properties)
        self.schema = made.schema.arrow_schema
        requests = [
            pb.PbNotifyLeaderAndIsrReqForBucket(
                physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="people"),
                table_bucket=pb.PbTableBucket(table_id=TABLE_ID, bucket_id=bucket),
                leader=0,
                leader_epoch=0,
                table_json=json.dumps(made.to_json()).encode(),
                schema_id=self.schema_id,
            )
            for bucket in buckets or (0,)
        ]
        answers = self.service.open_buckets(requests, 1)
        assert well is not any(answer.error_code for answer in answers), answers
        return self

    def alter(self, **added: str) -> None:
        """Add columns at the end, and tell the open buckets."""
        self.types = {**self.types, **added}
        self.schema_id += 1
        self.open(*sorted(bucket.id.bucket for bucket in self.service._store.all()))

    def reopen(self, *, clean: bool = True, well: bool = True, **options: str) -> KvTablet:
        """Another service on the same folder, after this one was closed, or was killed."""
        if clean:
            self.service.close()
        buckets = sorted(bucket.id.bucket for bucket in self.service._store.all())
        named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
        again = KvTablet(self.folder, self.clock, types=self.types, key=self.key, bucket_key=self.bucket_key)
        again.options = {**self.options, **named}
        again.service = TabletService(self.folder / "tablet", options=again.options, clock=self.clock)
        again.schema_id, again.properties = self.schema_id, self.properties
        return again.open(*buckets, well=well)

    def bucket(self, number: int = 0):
        """The open bucket."""
        return self.service._store.get(TableBucket(TABLE_ID, None, number))

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_bytes(self, payloads: dict[int, bytes], columns=(), timeout_ms: int = 0, table_id: int = TABLE_ID):
        """Put a payload to each bucket; return the answers by bucket."""
        request = pb.PutKvRequest(acks=-1, table_id=table_id, timeout_ms=timeout_ms)
        request.target_columns.extend(columns)
        for bucket in payloads:
            request.buckets_req.add(bucket_id=bucket, records=b"")
        answer = self.service.put_kv(Frame(request, [[memoryview(data)] for data in payloads.values()]))
        return {each.bucket_id: each for each in answer.buckets_resp}

    def put(self, rows: list[Row], changes=None, *, columns=None, bucket: int = 0, timeout_ms: int = 0, **batch):
        """Put rows to a bucket; return (base offset, end offset)."""
        batch = {"types": self.types, "key": self.key, "schema_id": self.schema_id, **batch}
        data = put_batch(rows, changes, columns=columns, **batch)
        indexes = [list(batch["types"]).index(name) for name in columns or ()]
        answer = self.put_bytes({bucket: data}, indexes, timeout_ms)[bucket]
        if answer.HasField("error_code"):
            raise error_from_code(answer.error_code, answer.error_message)
        return answer.base_offset, answer.end_offset

    def delete(self, *ids: int, bucket: int = 0, **batch):
        """Delete rows by their id; return (base offset, end offset)."""
        return self.put([{"id": i} for i in ids], [DELETE] * len(ids), bucket=bucket, **batch)

    # -- reading -------------------------------------------------------------------------------------------------------

    def lookup_bytes(self, keys: dict[int, bytes], fields=(), table_id: int = TABLE_ID):
        """Look keys up in each bucket; return (answer, bytes) by bucket."""
        request = pb.LookupRequest(table_id=table_id, projected_fields=fields)
        for bucket in keys:
            request.buckets_req.add(bucket_id=bucket, key_records=b"")
        return _answers(self.service.lookup(Frame(request, [[data] for data in keys.values()])))

    def lookup(self, *keys: Any, bucket: int = 0, fields=()) -> list[Row | None]:
        """The row of each key, None where there is none."""
        tuples = [key if isinstance(key, tuple) else (key,) for key in keys]
        answer, data = self.lookup_bytes({bucket: self.keys(tuples, self.key)}, fields)[bucket]
        if answer.HasField("error_code"):
            raise error_from_code(answer.error_code, answer.error_message)
        rows = iter(self.rows(data, fields))
        found = [next(rows) if each else None for each in answer.found]
        assert next(rows, None) is None
        return found

    def prefix_lookup(self, *prefixes: tuple[Any, ...], bucket: int = 0, fields=()) -> list[list[Row]]:
        """The rows of each prefix."""
        request = pb.PrefixLookupRequest(table_id=TABLE_ID, projected_fields=fields)
        request.buckets_req.add(bucket_id=bucket, key_records=b"")
        data = self.keys(list(prefixes), self.bucket_key or self.key)
        answer, data = _answers(self.service.prefix_lookup(Frame(request, [[data]])))[bucket]
        if answer.HasField("error_code"):
            raise error_from_code(answer.error_code, answer.error_message)
        rows = iter(self.rows(data, fields))
        found = [[next(rows) for _ in range(count)] for count in np.frombuffer(answer.counts, "<i4")]
        assert next(rows, None) is None
        return found

    def keys(self, keys: list[tuple[Any, ...]], names) -> bytes:
        """The bytes of a batch of keys."""
        fields = [self.schema.field(name) for name in names]
        arrays = [pa.array([key[at] for key in keys], each.type) for at, each in enumerate(fields)]
        return bytes(pa.record_batch(arrays, schema=pa.schema(fields)).serialize())

    def rows(self, data: bytes, fields=(), *, places: bool = False) -> list[Row]:
        """The rows in the bytes of an Arrow record batch."""
        schema = self.schema if not fields else pa.schema([self.schema.field(index) for index in fields])
        if places:
            schema = schema.append(pa.field("__offset", pa.int64())).append(pa.field("__timestamp", pa.int64()))
        return pa.ipc.read_record_batch(pa.py_buffer(data), schema).to_pylist()

    def limit_scan(self, limit: int, bucket: int = 0, table_id: int = TABLE_ID):
        """The answer to a scan of a few rows, and its bytes."""
        request = pb.LimitScanRequest(table_id=table_id, bucket_id=bucket, limit=limit)
        frame = self.service.limit_scan(request)
        return frame.message, joined(frame.payloads[0])

    def scan_call(self, **asked: Any):
        """One call of a full scan: the answer, and its bytes."""
        frame = self.service.scan_kv(pb.ScanKvRequest(**asked))
        return frame.message, joined(frame.payloads[0]) if frame.payloads else b""

    def begin_scan(self, bucket: int = 0, fields=(), batch_size_bytes: int | None = None, start_offset: int = 0):
        """The first call of a full scan."""
        asked = pb.PbScanReqForBucket(
            table_id=TABLE_ID, bucket_id=bucket, projected_fields=fields, start_offset=start_offset
        )
        return self.scan_call(bucket_scan_req=asked, batch_size_bytes=batch_size_bytes)

    def scan(
        self, bucket: int = 0, fields=(), batch_size_bytes: int | None = None, start_offset: int = 0
    ) -> tuple[list[Row], int]:
        """All live rows with `__offset` and `__timestamp`, and the log offset of the moment."""
        answer, data = self.begin_scan(bucket, fields, batch_size_bytes, start_offset)
        rows = self.rows(data, fields, places=True) if data else []
        call = 0
        while answer.has_more_results:
            call += 1
            answer, data = self.scan_call(scanner_id=answer.scanner_id, call_seq_id=call)
            rows += self.rows(data, fields, places=True) if data else []
        self.scan_call(scanner_id=answer.scanner_id, close_scanner=True)
        return rows, answer.log_offset

    def fetch(self, offset: int = 0, *, bucket: int = 0, previous: bool = True, fields=None, **asked: Any):
        """One fetch from a bucket: the answer, and the bytes of the records."""
        each_max, stop = asked.pop("max_fetch_bytes", 1 << 24), asked.pop("stop_offset", None)
        only = asked.pop("previous_offsets_only", None)
        request = pb.FetchLogRequest(follower_server_id=-1, **{"max_bytes": 1 << 24, **asked})
        table = request.tables_req.add(table_id=TABLE_ID, projection_pushdown_enabled=fields is not None)
        table.projected_fields.extend(fields or [])
        if previous:
            table.previous_offsets = True
        if only:
            table.previous_offsets_only = True
        table.buckets_req.add(bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=each_max, stop_offset=stop)
        frame = self.service.fetch_log(request)
        return frame.message.tables_resp[0].buckets_resp[0], joined(frame.payloads[0]) if frame.payloads else b""

    def changelog(self, start: int = 0, *, bucket: int = 0, previous: bool = True, **asked: Any) -> list[Event]:
        """All events from an offset on, fetched as a client would."""
        events: list[Event] = []
        offset = start
        while offset < (end := self.bucket(bucket).log.high_watermark):
            answer, data = self.fetch(offset, bucket=bucket, previous=previous, **asked)
            if answer.HasField("error_code"):
                raise error_from_code(answer.error_code, answer.error_message)
            assert data, (offset, end)
            some = events_in(data, self.schemas(), answer.previous_offsets if previous else None)
            events += [event for event in some if event.offset >= offset]
            offset = some[-1].offset + 1
        return events

    def schemas(self):
        """What gives the Arrow schema of a schema id."""
        held = self.bucket().table.schemas
        return lambda schema_id: held[schema_id]

    def produce(self, data: bytes, bucket: int = 0):
        """Try to append to the table as to a log table; return the answer."""
        request = pb.ProduceLogRequest(acks=-1, table_id=TABLE_ID, timeout_ms=0)
        request.buckets_req.add(bucket_id=bucket, records=b"")
        return self.service.produce_log(Frame(request, [[memoryview(data)]])).buckets_resp[0]

    def describe(self):
        """How each bucket is, or the error that says why that is not known."""
        answer = self.service.describe_buckets(pb.DescribeBucketsRequest(table_id=TABLE_ID))
        return {each.table_bucket.bucket_id: getattr(each, each.WhichOneof("state")) for each in answer.buckets}

    def offsets(self, kind: int, **asked: Any):
        """List offsets of bucket 0."""
        request = pb.ListOffsetsRequest(follower_server_id=-1, offset_type=kind, table_id=TABLE_ID, **asked)
        request.bucket_id.append(0)
        return self.service.list_offsets(request).buckets_resp[0]

    def stop(self, bucket: int = 0, *, delete: bool):
        """Close a bucket, and delete it if asked."""
        request = pb.StopReplicaRequest(coordinator_epoch=1)
        reported = pb.PbTableBucket(table_id=TABLE_ID, bucket_id=bucket)
        request.stop_replicas_req.add(table_bucket=reported, leader_epoch=0, delete=delete)
        return self.service.stop_replica(request)


def events_in(data: bytes, schema, previous: bytes | None = None) -> list[Event]:
    """The events of encoded batches; each is checked as a client would, and previous offsets are aligned with them."""
    found = []
    for batch in decode_all(data, schema):
        assert batch.change_types is not None
        for at, row in enumerate(batch.rows.to_pylist()):
            found.append(Event(batch.base_offset + at, batch.change_types[at], tuple(row.values())))
    if previous is None:
        return found
    offsets = np.frombuffer(previous, "<i8")
    assert len(offsets) == len(found)
    return [event._replace(previous=int(offset)) for event, offset in zip(found, offsets, strict=True)]


def _answers(frame):
    payloads = iter(frame.payloads)
    found = {
        answer.bucket_id: (answer, joined(next(payloads)) if answer.HasField("records") else b"")
        for answer in frame.message.buckets_resp
    }
    assert next(payloads, None) is None
    return found


@dataclass
class Model:
    """What a bucket must hold: the live rows with their offsets, and the events; the plainest way to say it."""

    columns: tuple[str, ...] = tuple(TYPES)
    live: dict[Any, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def upsert(self, row: Row, columns=None) -> None:
        """Upsert one row; columns not named keep their value."""
        key, old = row["id"], self.live.get(row["id"])
        before = dict(zip(self.columns, old[1], strict=True)) if old else dict.fromkeys(self.columns)
        names = columns or self.columns
        new = tuple(row.get(name) if name in names else before[name] for name in self.columns)
        if old is None:
            self._add(INSERT, new, -1)
        elif old[1] != new:
            self._add(BEFORE, old[1], old[0])
            self._add(AFTER, new, old[0])
        else:
            return
        self.live[key] = (len(self.events) - 1, new)

    def delete(self, key: Any) -> None:
        """Delete a row by its id."""
        if (old := self.live.pop(key, None)) is not None:
            self._add(DELETE, old[1], old[0])

    def _add(self, change: int, row: tuple[Any, ...], previous: int) -> None:
        self.events.append(Event(len(self.events), change, row, previous))

    @staticmethod
    def of(events: list[Event], columns: tuple[str, ...] = tuple(TYPES)) -> Model:
        """The model that events lead to."""
        model = Model(columns)
        for event in events:
            match event.change:
                case 1 | 3:
                    model.live[event.row[0]] = (event.offset, event.row)
                case 4:
                    del model.live[event.row[0]]
        model.events = list(events)
        return model

    def check(self, tablet: KvTablet, bucket: int = 0) -> None:
        """Assert that a bucket holds just this: changelog, previous offsets, rows, their offsets."""
        assert tablet.changelog(bucket=bucket) == self.events
        self.check_rows(tablet, bucket)

    def check_rows(self, tablet: KvTablet, bucket: int = 0) -> None:
        """Assert that a bucket's rows are these."""
        rows, log_offset = tablet.scan(bucket)
        assert log_offset == len(self.events)
        found = {row["id"]: (row["__offset"], tuple(row[name] for name in self.columns)) for row in rows}
        assert len(found) == len(rows)
        assert found == self.live

"""Requests as an enemy with the token would send them: right ones, spoiled in every way that we could think of.

`Fuzzer` sends them to a living server and judges the answers; `World` makes what they are about, and tells afterwards
whether the server still serves what it served before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from fluss_lab.client import ServerAddress
from fluss_lab.model import make_descriptor
from fluss_lab.records.batch import CRC_START, HEADER, HEADER_BYTES, checksum, encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.token import header_of
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.rpc.rpc_methods import COORDINATOR, TABLET_SERVER, Method, methods_of
from tests.campaigns.fuzz_world import CARRIERS, DATABASE, TIMEOUT_S, World

#: Above what a server takes in one request.
OVERSIZE_BYTES = (32 << 20) + 1

#: Answers that tell a caller what is wrong. Not among them: UNKNOWN and INTERNAL, which tell of our defects.
ALLOWED = frozenset({
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "RESOURCE_EXHAUSTED", "ABORTED", "UNAVAILABLE", "DATA_LOSS",
})  # fmt: skip

#: Never sent: it ends the server, as it should.
SPARED = frozenset({"stop_cluster"})
#: Ids that no table of the world has: what servers tell each other is obeyed, and must not be about the canary.
ELSEWHERE = 1_000_000

#: What servers tell each other, and believe: a coordinator of a later epoch would be obeyed, and the true one not any
#: more; a tablet server would be called at its new place. Those are not sent.
OBEYED = frozenset(
    {"notify_leader_and_isr", "stop_replica", "notify_lake_table_offset", "register_tablet_server", "report_buckets"}
)

INTEGERS = (0, 1, -1, 2, 7, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63), 10**12)

TEXTS = (
    "", "a", "x" * 201, "y" * 70_000, "..", "../../etc/passwd", "a/b", "a.b", "-", "__a", "ä", "名", "\0", "a\nb",
    "'; DROP TABLE tables; --", "%s%n", "CON", " ", "{}", "\U0001f600",
)  # fmt: skip

BODIES = (b"", b"\0", b"{}", b"[]", b"null", b"1e999", b'{"a":' * 2_000, b"[" * 100_000, b"\xff\xfe", b"\xff" * 64)


class Fuzzer:
    """Sends spoiled requests and judges the answers.

    Args:
        world: What they are about.
        address: Where to.
        chance: Every choice.

    Attributes:
        counts: Answers by status.
        methods: Requests by method.
        bodies: How many requests had an Arrow body behind a right checksum.
        complaints: What the server should not have said.
    """

    def __init__(self, world: World, address: ServerAddress, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.counts: Counter[str] = Counter()
        self.methods: Counter[str] = Counter()
        self.bodies = 0
        self.complaints: list[str] = []
        self.unavailable: Counter[str] = Counter()
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(str(address), options=options)
        self._metadata = (header_of(address.token),)
        self._known = {
            name: method
            for service in (COORDINATOR, TABLET_SERVER)
            for name, method in methods_of(service).items()
            if name not in SPARED
        }
        self._batch = b"".join(bytes(memoryview(part)) for part in encode(self._rows(20), schema_id=1))
        changes = bytes([3] * 20)
        parts = encode(self._rows(20), schema_id=1, change_types=changes)
        self._put = b"".join(bytes(memoryview(part)) for part in parts)

    def _rows(self, count: int) -> pa.RecordBatch:
        return self.world.rows.slice(0, count).combine_chunks().to_batches()[0]

    def run(self, requests: int) -> None:
        """Send so many requests, every method in turn."""
        names = sorted([*self._known, *CARRIERS * 3])
        for number in range(requests):
            self._one(self._known[names[number % len(names)]])

    def oversize(self) -> None:
        """Send a request larger than any server takes, to methods that carry records and to some that do not."""
        for name in (*CARRIERS, "create_table", "attach", "describe_cluster"):
            method = self._known[name]
            self._send(method, b"\0" * OVERSIZE_BYTES, allowed={"RESOURCE_EXHAUSTED"})

    def close(self) -> None:
        """Let go of the server."""
        self._channel.close()

    # -- one request ---------------------------------------------------------------------------------------------------

    def _one(self, method: Method) -> None:
        template = self._template(method)
        way = self.chance.randrange(10)
        if way == 0:
            self._send(method, self.chance.randbytes(self.chance.randrange(200)))
        elif way == 1:
            self._send(method, self._nested(template))
        elif way <= 5:
            self._send(method, self._spoiled(template.SerializePartialToString()))
        else:
            for _ in range(self.chance.randint(1, 3)):
                self._change(template)
            self._send(method, template.SerializePartialToString())

    def _send(self, method: Method, data: bytes, allowed: set[str] | frozenset[str] = ALLOWED) -> None:
        if method.name in OBEYED:
            data = _tamed(method, data)
        self.methods[method.name] += 1
        try:
            if method.streams:
                stream = self._channel.unary_stream(method.path)(data, metadata=self._metadata, timeout=TIMEOUT_S)
                next(stream, None)
                stream.cancel()
                answer = None
            else:
                answer = self._channel.unary_unary(method.path)(data, metadata=self._metadata, timeout=TIMEOUT_S)
            status, details = "OK", ""
        except grpc.RpcError as failure:
            answer, status, details = None, failure.code().name, failure.details()
        self.counts[status] += 1
        if status == "UNAVAILABLE":
            self.unavailable[details[:90]] += 1
        if status not in allowed:
            self._complain(method, data, f"{status}: {details}")
        if answer is not None:
            for code, text in _errors_in(_message_of(method.decode_response(answer))):
                self.counts[f"error {code}"] += 1
                if code == -1:
                    self._complain(method, data, text)

    def _complain(self, method: Method, data: bytes, text: str) -> None:
        self.complaints.append(f"{method.name} {data[:300].hex()}: {text[:500]}")

    # -- spoiling ------------------------------------------------------------------------------------------------------

    def _spoiled(self, data: bytes) -> bytes:
        """Bytes that were right."""
        spoiled = bytearray(data)
        for _ in range(self.chance.randint(1, 4)):
            at = self.chance.randrange(len(spoiled) + 1)
            match self.chance.randrange(6):
                case 0 if at < len(spoiled):
                    spoiled[at] ^= 1 << self.chance.randrange(8)
                case 1 if at < len(spoiled):
                    spoiled[at] = self.chance.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 2:
                    del spoiled[at:]
                case 3:
                    spoiled[at:at] = self.chance.randbytes(self.chance.randint(1, 12))
                case 4:
                    spoiled += spoiled[at : at + 64]
                case _:
                    spoiled[at:at] = b"\xff" * 9 + b"\x01"
        return bytes(spoiled)

    def _nested(self, template: Message) -> bytes:
        """A right request with something that nests deeper than any parser should follow."""
        depth = self.chance.choice((99, 101, 1_000, 20_000))
        if self.chance.random() < 0.5:
            return template.SerializePartialToString() + b"\x7b" * depth + b"\x7c" * self.chance.choice((depth, 0))
        inner = b""
        for _ in range(min(depth, 1_000)):
            inner = b"\x0a" + _varint(len(inner)) + inner
        return template.SerializePartialToString() + inner

    def _change(self, message: Message) -> None:
        """Change a field of a message, or of one within it."""
        fields = list(message.DESCRIPTOR.fields)
        if not fields:
            return
        field = self.chance.choice(fields)
        if field.message_type is not None:
            self._change_messages(message, field)
        elif self.chance.random() < 0.1:
            message.ClearField(field.name)
        elif field.is_repeated:
            values = getattr(message, field.name)
            values.extend(self._value(field) for _ in range(self.chance.choice((1, 2, 100))))
        else:
            setattr(message, field.name, self._value(field))

    def _change_messages(self, message: Message, field: Any) -> None:
        value = getattr(message, field.name)
        if not field.is_repeated:
            self._change(value)
        elif value and self.chance.random() < 0.8:
            if self.chance.random() < 0.1:
                value.extend([value[0]] * self.chance.choice((1, 50)))
            self._change(self.chance.choice(list(value)))
        else:
            self._change(value.add())

    def _value(self, field: Any) -> Any:
        if field.type == field.TYPE_STRING:
            return self.chance.choice(TEXTS)
        if field.type == field.TYPE_BYTES:
            return self._bytes(field.name)
        if field.type == field.TYPE_BOOL:
            return self.chance.random() < 0.5
        value = self.chance.choice(INTEGERS)
        is_long = field.type == field.TYPE_INT64
        # A long poll is right to wait; here it would only take time.
        if field.name in {"max_wait_ms", "timeout_ms"}:
            value = min(value, 20)
        return value if is_long else max(-(2**31), min(value, 2**31 - 1))

    def _bytes(self, name: str) -> bytes:
        if name == "records":
            return self._records(self._batch if self.chance.random() < 0.5 else self._put)
        if name == "key_records":
            return self._spoiled(self._keys())
        return self.chance.choice(BODIES)

    def _records(self, batch: bytes) -> bytes:
        """A batch that was right: a changed header or body, and mostly a checksum that is right all the same."""
        self.bodies += 1
        head, body = bytearray(batch[:HEADER_BYTES]), batch[HEADER_BYTES:]
        if self.chance.random() < 0.8:
            body = self._spoiled(body) if self.chance.random() < 0.5 else self._flipped(body)
        if self.chance.random() < 0.4:
            fields = list(HEADER.unpack(head))
            at = self.chance.choice((5, 6, 7, 8, 9, 10))
            fields[at] = self.chance.choice((0, 1, -1, 2, 3, 19, 20, 21, 1000, 2**15 - 1, 2**31 - 1, -(2**31)))
            bounds = {5: (-(2**15), 2**15 - 1), 6: (0, 255)}
            low, high = bounds.get(at, (-(2**31), 2**31 - 1))
            fields[at] = max(low, min(fields[at], high))
            head = bytearray(_packed(fields))
        if self.chance.random() < 0.9:
            head[8:12] = (len(head) + len(body) - 12).to_bytes(4, "little")
            whole = bytes(head) + body
            head[CRC_START - 4 : CRC_START] = checksum(memoryview(whole)[CRC_START:]).to_bytes(4, "little")
        return bytes(head) + body

    def _flipped(self, body: bytes) -> bytes:
        """A body with numbers of its flatbuffer, or lengths and offsets, changed."""
        spoiled = bytearray(body)
        for _ in range(self.chance.randint(1, 3)):
            at = self.chance.randrange(0, max(1, len(spoiled) - 8), 4)
            value = self.chance.choice((0, 1, 2**31 - 1, 0xFFFFFFFF, 2**62, 2**63, len(spoiled)))
            width = self.chance.choice((4, 8))
            spoiled[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
        return bytes(spoiled)

    def _keys(self) -> bytes:
        keys = self._rows(5).select(["id"])
        return bytes(memoryview(keys.serialize()))

    # -- right requests ------------------------------------------------------------------------------------------------

    def _template(self, method: Method) -> Message:
        """A right request."""
        make = getattr(self, f"_make_{method.name}", None)
        return make() if make is not None else self._plain(method)

    def _plain(self, method: Method) -> Message:
        """A request with every field filled in: with the world's names where there are any."""
        service = COORDINATOR if method.name in methods_of(COORDINATOR) else TABLET_SERVER
        name = method.path.rsplit("/", 1)[1]
        message: Message = getattr(pb, f"{name}Request")()
        assert service
        self._fill(message)
        return message

    def _fill(self, message: Message, depth: int = 0) -> None:
        for field in message.DESCRIPTOR.fields:
            if field.message_type is not None:
                value = getattr(message, field.name)
                self._fill(value.add() if field.is_repeated else value, depth + 1)
            elif not (field.is_repeated or field.name in {"partition_id", "partition_name"}):
                setattr(message, field.name, self._right(field))

    def _right(self, field: Any) -> Any:
        if field.type == field.TYPE_STRING:
            return {
                "database_name": DATABASE, "table_name": self.chance.choice(("events", "rows", "parted", "made")),
                "key": "day", "value": "d1", "config_key": "custom.note", "config_value": "x", "host": "127.0.0.1",
                "column_name": "extra",
            }.get(field.name, "text")  # fmt: skip
        if field.type == field.TYPE_BYTES:
            return b'{"type":"STRING"}' if field.name == "data_type_json" else b"{}"
        if field.type == field.TYPE_BOOL:
            return self.chance.random() < 0.5
        return {
            "table_id": self.chance.choice((self.world.log.table_id, self.world.keyed.table_id)), "schema_id": 1,
            "coordinator_epoch": 1, "port": 1, "offset_type": self.chance.randrange(3), "server_id": ELSEWHERE,
        }.get(field.name, 0)  # fmt: skip

    def _make_create_table(self) -> Message:
        import json

        path = pb.PbTablePath(database_name=DATABASE, table_name=self.chance.choice(("made", "made2")))
        value = make_descriptor(self.world.types, buckets=self.chance.randint(1, 3)).to_json()
        text = json.dumps(value).encode()
        if self.chance.random() < 0.5:
            text = self._spoiled(text)
        elif self.chance.random() < 0.5:
            text = json.dumps(self._bent(value)).encode()
        return pb.CreateTableRequest(table_path=path, table_json=text, ignore_if_exists=True)

    def _bent(self, value: Any) -> Any:
        """JSON with one thing in it replaced."""
        if self.chance.random() < 0.25 or not isinstance(value, dict | list) or not value:
            return self.chance.choice((None, True, -1, 10**30, 1.5, "", "x" * 5_000, [], {}, [[]], {"a": {}}, 2**31))
        if isinstance(value, list):
            at = self.chance.randrange(len(value))
            return [self._bent(each) if i == at else each for i, each in enumerate(value)] * self.chance.choice(
                (1, 1, 90)
            )
        key = self.chance.choice(list(value))
        return {**value, key: self._bent(value[key])}

    def _make_drop_table(self) -> Message:
        path = pb.PbTablePath(database_name=DATABASE, table_name="made")
        return pb.DropTableRequest(table_path=path, ignore_if_not_exists=True)

    def _make_drop_database(self) -> Message:
        return pb.DropDatabaseRequest(database_name="other", ignore_if_not_exists=True, cascade=True)

    def _make_produce_log(self) -> Message:
        table = self.world.log
        request = pb.ProduceLogRequest(acks=-1, table_id=table.table_id, timeout_ms=0)
        for bucket in range(self.chance.randint(1, 2)):
            request.buckets_req.add(bucket_id=bucket, records=self._records(self._batch))
        return request

    def _make_put_kv(self) -> Message:
        request = pb.PutKvRequest(acks=-1, table_id=self.world.keyed.table_id, timeout_ms=0)
        request.buckets_req.add(bucket_id=0, records=self._records(self._put))
        if self.chance.random() < 0.2:
            request.target_columns.extend(self.chance.choice(([0], [0, 1], [1], [0, 0], [2, 1, 0], [-1], [2**31 - 1])))
        return request

    def _make_lookup(self) -> Message:
        request = pb.LookupRequest(table_id=self.world.keyed.table_id)
        keys = self._keys()
        request.buckets_req.add(bucket_id=0, key_records=keys if self.chance.random() < 0.3 else self._flipped(keys))
        return request

    def _make_prefix_lookup(self) -> Message:
        request = pb.PrefixLookupRequest(table_id=self.world.keyed.table_id)
        request.buckets_req.add(bucket_id=0, key_records=self._flipped(self._keys()))
        return request

    def _make_fetch_log(self) -> Message:
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 16, max_wait_ms=0, min_bytes=1)
        table = self.chance.choice((self.world.log, self.world.keyed))
        asked = request.tables_req.add(
            table_id=table.table_id, projection_pushdown_enabled=self.chance.random() < 0.5,
            previous_offsets=self.chance.random() < 0.2,
        )  # fmt: skip
        asked.projected_fields.extend(self.chance.choice(([], [0], [0, 2], [2, 0], [-1], [99], [0] * 50)))
        for bucket in range(2):
            asked.buckets_req.add(bucket_id=bucket, fetch_offset=0, max_fetch_bytes=1 << 16)
        return request

    def _make_scan_kv(self) -> Message:
        request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1_000, close_scanner=self.chance.random() < 0.8)
        request.bucket_scan_req.table_id, request.bucket_scan_req.bucket_id = self.world.keyed.table_id, 0
        return request

    def _make_limit_scan(self) -> Message:
        table = self.chance.choice((self.world.log, self.world.keyed))
        return pb.LimitScanRequest(table_id=table.table_id, bucket_id=0, limit=5)

    def _make_list_offsets(self) -> Message:
        request = pb.ListOffsetsRequest(
            follower_server_id=-1, offset_type=self.chance.randrange(3), table_id=self.world.log.table_id,
            startTimestamp=1, enable_lake=True,
        )  # fmt: skip
        request.bucket_id.extend((0, 1))
        return request

    def _make_stop_replica(self) -> Message:
        request = pb.StopReplicaRequest(coordinator_epoch=1)
        bucket = pb.PbTableBucket(table_id=ELSEWHERE, bucket_id=0)
        request.stop_replicas_req.add(table_bucket=bucket, leader_epoch=0, delete=True)
        return request

    def _make_notify_leader_and_isr(self) -> Message:
        import json

        request = pb.NotifyLeaderAndIsrRequest(coordinator_epoch=1)
        request.notify_buckets_leader_req.add(
            physical_table_path=pb.PbPhysicalTablePath(database_name=DATABASE, table_name="nobody"),
            table_bucket=pb.PbTableBucket(table_id=ELSEWHERE, bucket_id=0), leader=0, leader_epoch=0, schema_id=1,
            table_json=self._spoiled(json.dumps(make_descriptor(self.world.types).to_json()).encode()),
        )  # fmt: skip
        return request


def _tamed(method: Method, data: bytes) -> bytes:
    """Return a request of a server without what would be believed."""
    message = getattr(pb, f"{method.path.rsplit('/', 1)[1]}Request")()
    try:
        message.MergeFromString(data)
    except DecodeError:
        return data
    if method.name == "register_tablet_server":
        if message.server_id != 0:
            return data
        message.server_id = ELSEWHERE
    else:
        message.coordinator_epoch = min(message.coordinator_epoch, 1)
        for bucket in _buckets_in(message):
            if 0 <= bucket.table_id < ELSEWHERE:
                bucket.table_id += ELSEWHERE
    tamed: bytes = message.SerializePartialToString()
    return tamed


def _buckets_in(message: Message) -> Iterator[Any]:
    """Yield what in a request names a table by its id."""
    if "table_id" in message.DESCRIPTOR.fields_by_name:
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                yield from _buckets_in(each)


def _packed(fields: Sequence[int]) -> bytes:
    return HEADER.pack(*fields)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message_of(answer: Any) -> Message:
    message: Message = answer.message if isinstance(answer, Frame) else answer
    return message


def _errors_in(message: Message) -> Iterator[tuple[int, str]]:
    """Yield each error code in an answer, with its text."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value, getattr(message, "error_message", "")
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                yield from _errors_in(each)

"""The payload codec speaks plain protobuf, and refuses what is none."""

import random

import pytest

from fluss_lab.errors import InvalidRequestError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, decode, encode


def produce(payloads):
    message = pb.ProduceLogRequest(acks=1, table_id=2**40, timeout_ms=30_000)
    for bucket, _ in enumerate(payloads):
        message.buckets_req.add(bucket_id=bucket, records=b"")
    return Frame(message, payloads)


def fetched(tables):
    frame = Frame(pb.FetchLogResponse(), [])
    for table_id, payloads in enumerate(tables):
        table = frame.message.tables_resp.add(table_id=table_id)
        for bucket, payload in enumerate(payloads):
            answer = table.buckets_resp.add(bucket_id=bucket, high_watermark=7)
            if payload is not None:
                answer.records = b""
                frame.payloads.append([payload])
    return frame


def test_any_protobuf_library_reads_what_is_encoded():
    plain = pb.ProduceLogRequest.FromString(encode(produce([[b"abc", b"def"], [b""], [b"x" * 300]])))
    assert [bucket.records for bucket in plain.buckets_req] == [b"abcdef", b"", b"x" * 300]
    assert plain.table_id == 2**40
    answer = pb.FetchLogResponse.FromString(encode(fetched([[b"one", None], [], [b"two" * 1000]])))
    assert answer.tables_resp[0].buckets_resp[0].records == b"one"
    assert not answer.tables_resp[0].buckets_resp[1].HasField("records")
    assert answer.tables_resp[2].buckets_resp[0].records == b"two" * 1000


def test_what_any_protobuf_library_writes_is_decoded():
    plain = encode(fetched([[b"one", None, b""], [b"z" * 70_000]]))
    again = decode(pb.FetchLogResponse.FromString(plain).SerializeToString(), pb.FetchLogResponse)
    assert [bytes(payload[0]) for payload in again.payloads] == [b"one", b"", b"z" * 70_000]
    assert again.message.tables_resp[0].buckets_resp[0].records == b""
    assert again.message.tables_resp[0].buckets_resp[0].high_watermark == 7


def test_fields_that_a_version_does_not_know_are_skipped():
    """Older servers fill answers up with field 1023, of bytes."""
    answer = fetched([[b"z" * 70_000]])
    again = decode(b"\xfa\x3f\x83\x01" + bytes(131) + encode(answer), pb.FetchLogResponse)
    assert [bytes(payload[0]) for payload in again.payloads] == [b"z" * 70_000]
    assert again.message.tables_resp[0].buckets_resp[0].high_watermark == 7


def test_payloads_are_not_copied():
    data = encode(produce([[b"q" * 100_000]]))
    assert decode(data, pb.ProduceLogRequest).payloads[0][0].obj is data


def test_payloads_and_fields_must_agree():
    frame = produce([[b"a"]])
    with pytest.raises(ValueError, match="more payloads"):
        encode(Frame(frame.message, [[b"a"], [b"b"]]))
    with pytest.raises(ValueError, match="fewer payloads"):
        encode(Frame(frame.message, []))
    frame.message.buckets_req[0].records = b"inline"
    with pytest.raises(ValueError, match="not empty"):
        encode(frame)


def test_damaged_bytes_are_refused_or_read_as_protobuf_reads_them(seed):
    """Whatever comes in, the answer is a frame or `InvalidRequestError`; never another error."""
    chance = random.Random(seed)
    good = encode(produce([[b"abc" * 20], [b"d"]]))
    refused = 0
    for _ in range(5_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data = data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data
        try:
            frame = decode(bytes(data), pb.ProduceLogRequest)
        except InvalidRequestError:
            refused += 1
        else:
            plain = pb.ProduceLogRequest.FromString(bytes(data))
            assert [b"".join(p) for p in frame.payloads] == [
                b.records for b in plain.buckets_req if b.HasField("records")
            ]
    assert 1_000 < refused < 5_000


def test_a_payload_given_twice_stays_with_its_bucket():
    """Protobuf keeps the last of a field given twice; two payloads for one bucket would reach the next one."""
    first = pb.PbProduceLogReqForBucket(bucket_id=0, records=b"old").SerializeToString() + b"\x1a\x03new"
    second = pb.PbProduceLogReqForBucket(bucket_id=1, records=b"next").SerializeToString()
    head = pb.ProduceLogRequest(acks=1, table_id=1, timeout_ms=1).SerializeToString()
    data = head + b"".join(b"\x22" + bytes([len(part)]) + part for part in (first, second))
    frame = decode(data, pb.ProduceLogRequest)
    plain = pb.ProduceLogRequest.FromString(data)
    assert [b"".join(payload) for payload in frame.payloads] == [bucket.records for bucket in plain.buckets_req]
    assert [b"".join(payload) for payload in frame.payloads] == [b"new", b"next"]

"""Answers made in one piece: the same messages, without a copy of the payload."""

import os

import pytest

from fluss_lab.rpc import answer_buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, decode, encode

SIZE = 1 << 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(2 * SIZE))
    fd = os.open(path, os.O_RDONLY)
    yield fd, path.read_bytes()
    os.close(fd)


def frame_of(*payloads, buckets=None):
    """An answer with a payload for each of the first buckets."""
    frame = Frame(pb.FetchLogResponse(), [[payload] for payload in payloads])
    table = frame.message.tables_resp.add(table_id=2**62)
    for bucket in range(buckets or len(payloads)):
        answer = table.buckets_resp.add(bucket_id=bucket, high_watermark=2**50, log_start_offset=3)
        if bucket < len(payloads):
            answer.records = b""
    return frame


def test_what_is_read_is_what_the_file_has(file):
    fd, data = file
    for start, size in ((0, 10), (5, SIZE), (SIZE, SIZE), (7, 0)):
        assert bytes(answer_buffer.read_with_room(fd, start, size)) == data[start : start + size]
    assert bytes(answer_buffer.read_with_room(fd, 2 * SIZE - 3, 10)) == data[-3:]
    with pytest.raises(OSError, match="Bad file"):
        answer_buffer.read_with_room(2**20, 0, 10)


def test_an_answer_in_one_piece_is_the_message_for_any_protobuf_library(file):
    fd, data = file
    made = encode(frame_of(answer_buffer.read_with_room(fd, 100, SIZE)))
    assert isinstance(made, bytes)
    assert len(made) == SIZE + answer_buffer.HEAD_BYTES
    plain = pb.FetchLogResponse.FromString(made)
    answer = plain.tables_resp[0].buckets_resp[0]
    assert answer.records == data[100 : 100 + SIZE]
    assert (plain.tables_resp[0].table_id, answer.high_watermark, answer.log_start_offset) == (2**62, 2**50, 3)
    again = decode(made, pb.FetchLogResponse)
    assert bytes(again.payloads[0][0]) == data[100 : 100 + SIZE]
    assert again.message.tables_resp[0].buckets_resp[0].high_watermark == 2**50


def test_the_payload_is_not_copied(file):
    fd, _ = file
    payload = answer_buffer.read_with_room(fd, 0, SIZE)
    made = encode(frame_of(payload))
    assert made is payload.obj.whole


@pytest.mark.parametrize("kind", ["a part", "two payloads", "another field behind it", "a head too long"])
def test_what_does_not_fit_is_joined_as_always(file, kind):
    fd, data = file
    payload = answer_buffer.read_with_room(fd, 0, SIZE)
    if kind == "a part":
        frame, expected = frame_of(payload[: SIZE - 1]), [data[: SIZE - 1]]
    elif kind == "two payloads":
        frame, expected = frame_of(payload, answer_buffer.read_with_room(fd, SIZE, SIZE)), [data[:SIZE], data[SIZE:]]
    elif kind == "another field behind it":
        frame, expected = frame_of(payload), [data[:SIZE]]
        frame.message.tables_resp[0].buckets_resp[0].previous_offsets = b"12345678"
    else:
        frame, expected = frame_of(b"x", payload, buckets=2), [b"x", data[:SIZE]]
        frame.message.tables_resp[0].buckets_resp[0].error_message = "long" * answer_buffer.HEAD_BYTES
    plain = pb.FetchLogResponse.FromString(encode(frame))
    assert [each.records for each in plain.tables_resp[0].buckets_resp] == expected


@pytest.mark.parametrize(
    "length", [0, 1, answer_buffer.HEAD_BYTES - 5, answer_buffer.HEAD_BYTES - 4, answer_buffer.HEAD_BYTES - 3, 130]
)
def test_heads_of_every_length_leave_a_filler_that_is_skipped(file, length):
    fd, data = file
    head = b"\x0a" + bytes([length - 2]) + b"x" * (length - 2) if 2 <= length < 130 else b"y" * length
    made = answer_buffer.in_one_piece([head, answer_buffer.read_with_room(fd, 0, 100)])
    if length > answer_buffer.HEAD_BYTES - 4:
        assert made is None
        return
    assert made is not None
    assert made.endswith(head + data[:100])
    filler = len(made) - length - 100
    assert made[:2] == b"\xfa\x3f"
    assert (made[2] & 127) | made[3] << 7 == filler - 4


def test_nothing_and_bytes_have_no_room():
    assert answer_buffer.in_one_piece([]) is None
    assert answer_buffer.in_one_piece([b"a", b"b"]) is None
    assert answer_buffer.in_one_piece([b"a", memoryview(b"b")]) is None


def test_memory_is_given_back_with_the_last_view(file):
    """Nothing that holds a payload holds itself: no collector is needed."""
    import gc
    import weakref

    fd, _ = file
    gc.disable()
    try:
        payload = answer_buffer.read_with_room(fd, 0, SIZE)
        window = weakref.ref(payload.obj)
        part = payload[10:20]
        del payload
        assert window() is not None
        del part
        assert window() is None
    finally:
        gc.enable()

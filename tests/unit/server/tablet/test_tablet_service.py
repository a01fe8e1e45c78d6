"""The tablet server by its messages: offsets, descriptions, opening and stopping, and each bucket's own error."""

import json
import logging
import random
import threading

import pyarrow as pa
import pytest

from fluss_lab import failpoints, files
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    InvalidRecordError,
    InvalidRequestError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    UnsupportedError,
    error_from_code,
)
from fluss_lab.records.batch import HEADER, encode, split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.rpc.rpc_methods import TABLET_SERVER
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.tablet.tablet_kit import SCHEMA, Tablet, batch, records_in, rows

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2


@pytest.fixture
def tablet(tmp_path):
    made = Tablet(tmp_path)
    made.open(0, 1)
    yield made
    made.service.close()


def _error(answer):
    assert answer.HasField("error_code"), answer
    return error_from_code(answer.error_code, answer.error_message)


# -- produce ---------------------------------------------------------------------------------------------------------


def _header(data, **changes):
    """A batch with some header fields changed; the CRC is made right again."""
    import google_crc32c

    names = [
        "base",
        "length",
        "magic",
        "timestamp",
        "crc",
        "schema_id",
        "attributes",
        "delta",
        "writer_id",
        "sequence",
        "count",
    ]
    values = dict(zip(names, HEADER.unpack_from(data), strict=True)) | changes
    changed = bytearray(HEADER.pack(*values.values()) + data[HEADER.size :])
    changed[21:25] = google_crc32c.value(bytes(changed[25:])).to_bytes(4, "little")
    return bytes(changed)


GOOD = batch(0, 3)
WRONG_TYPE = b"".join(bytes(memoryview(p)) for p in encode(pa.record_batch({"id": ["a"], "name": ["b"]}), schema_id=1))
WITH_NULL = b"".join(
    bytes(memoryview(p))
    for p in encode(
        pa.record_batch([pa.array([1, None], pa.int64()), pa.array(["a", "b"])], names=["id", "name"]), schema_id=1
    )
)
CHANGELOG = b"".join(bytes(memoryview(p)) for p in encode(rows(0, 2), schema_id=1, change_types=b"\1\2"))


def _compressed(batch):
    """The body of a batch as a stream writer with a codec makes it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    stream = memoryview(sink.getvalue())
    start = 8 + int.from_bytes(stream[4:8], "little")  # behind the schema message
    return bytes(stream[start:-8])  # before the end of the stream


COMPRESSED = GOOD[:48] + _compressed(rows(0, 3))
SCHEMA_MESSAGE = GOOD[:48] + bytes(memoryview(SCHEMA.serialize()))
BAD_UTF8 = bytes(GOOD.replace(b"name-1", b"name-\xff"))


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b"", InvalidRecordError, "empty payload"),
        (GOOD[:-1], CorruptDataError, "does not fit"),
        (GOOD[:20], CorruptDataError, "header of 48 bytes"),
        (GOOD + b"x", CorruptDataError, "header of 48 bytes"),
        (GOOD[:60] + b"\xff" + GOOD[61:], CorruptDataError, "CRC"),
        (_header(GOOD, magic=1), UnsupportedError, "written by a newer version"),
        (_header(GOOD, schema_id=0), InvalidRecordError, "expected a schema id in [1], found 0"),
        (_header(GOOD, schema_id=2), NotLeaderError, "expected a schema id up to 1, found 2"),
        (_header(GOOD, count=4, delta=3), InvalidRecordError, "expected 4 records"),
        (_header(GOOD, count=4), CorruptDataError, "do not agree"),
        (_header(GOOD, count=-1, delta=0), CorruptDataError, "do not agree"),
        (_header(GOOD, attributes=3), InvalidRecordError, "append-only"),
        (_header(GOOD, writer_id=-2), InvalidRecordError, "writer id"),
        (_header(GOOD, writer_id=4), InvalidRecordError, "writer id"),
        (_header(GOOD, sequence=4), InvalidRecordError, "writer id"),
        (_header(GOOD, writer_id=4, sequence=-2), InvalidRecordError, "batch sequence"),
        (CHANGELOG, InvalidRecordError, "append-only"),
        (WRONG_TYPE, InvalidRecordError, "not Arrow of its schema"),
        (WITH_NULL, InvalidRecordError, "null in column 'id'"),
        (_header(COMPRESSED, length=len(COMPRESSED) - 12), InvalidRecordError, "compressed"),
        (_header(SCHEMA_MESSAGE, length=len(SCHEMA_MESSAGE) - 12), InvalidRecordError, "expected a record batch"),
        (_header(GOOD[:48], length=36), InvalidRecordError, "not Arrow"),
        (_header(BAD_UTF8), InvalidRecordError, "not Arrow"),
        (_header(GOOD[:48] + b"\0" * (len(GOOD) - 48)), InvalidRecordError, "not Arrow"),
    ],
)
def test_a_bad_payload_is_refused_whole_and_the_others_are_appended(tablet, payload, kind, text):
    answers = tablet.produce({0: GOOD + payload if payload else payload, 1: GOOD})
    error = _error(answers[0])
    assert isinstance(error, kind)
    assert text in str(error)
    assert "nothing was appended" in str(error)
    assert (answers[1].base_offset, answers[1].end_offset) == (0, 3)
    assert (tablet.describe()[0].log_end_offset, tablet.describe()[0].size_in_bytes) == (0, 0)


def test_no_damage_to_a_body_ends_in_anything_but_a_refusal(tablet, seed):
    """Bytes changed at random under a right CRC: what Arrow lets pass are other rows of the same table."""
    chance = random.Random(seed)
    for _ in range(3000):
        data = bytearray(GOOD)
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(48, len(data))] = chance.randrange(256)
        answer = tablet.produce({0: _header(bytes(data))})[0]
        if answer.HasField("error_code"):
            assert isinstance(_error(answer), InvalidRecordError), answer


def test_a_payload_over_the_limit_is_refused(tmp_path):
    tablet = Tablet(tmp_path, server__request_size_max="64kb")
    tablet.open(0)
    error = _error(tablet.produce({0: batch(0, 5000)})[0])
    assert isinstance(error, RecordTooLargeError)


def test_payloads_and_buckets_must_be_as_many(tablet):
    request = pb.ProduceLogRequest(acks=1, table_id=7, timeout_ms=0)
    request.buckets_req.add(bucket_id=0, records=b"")
    with pytest.raises(InvalidRequestError, match="expected 1 payloads, found 0"):
        tablet.service.produce_log(Frame(request, []))


def test_a_payload_may_lie_in_many_buffers(tablet):
    request = pb.ProduceLogRequest(acks=1, table_id=7, timeout_ms=0)
    request.buckets_req.add(bucket_id=0, records=b"")
    parts = [part for first in range(3) for part in encode(rows(first, 1), schema_id=1)]
    assert tablet.service.produce_log(Frame(request, [parts])).buckets_resp[0].end_offset == 3
    assert [record.id for record in records_in(tablet.fetch({0: 0})[0][1])] == [0, 1, 2]


def test_a_bucket_that_is_not_here_is_to_be_looked_up_again(tablet):
    for answer in (tablet.produce({5: GOOD})[5], tablet.offsets(LATEST, 5)[5], tablet.fetch({5: 0})[5][0]):
        error = _error(answer)
        assert isinstance(error, NotLeaderError)
        assert error.retriable


def test_a_full_disk_is_said_of_the_bucket(tablet):
    failpoints.arm("tablet.append.before_write", "enospc@1")
    answers = tablet.produce({0: GOOD, 1: GOOD})
    assert isinstance(_error(answers[0]), StorageError)
    assert "No space left" in answers[0].error_message
    assert answers[1].end_offset == 3
    assert tablet.produce({0: GOOD})[0].base_offset == 0


def test_with_fsync_what_is_acknowledged_is_durable(tmp_path):
    tablet = Tablet(tmp_path, log__durability="fsync")
    tablet.open(0, 1)
    tablet.produce({0: GOOD, 1: GOOD})
    assert [(d.durable_offset, d.high_watermark) for d in tablet.describe().values()] == [(3, 3), (3, 3)]
    failpoints.arm("tablet.flush.before", "eio@1")
    answers = tablet.produce({0: GOOD, 1: GOOD})
    assert "fsync failed" in answers[0].error_message
    assert (answers[0].base_offset, answers[0].end_offset) == (3, 6)  # in the log they are, and may stay there
    assert answers[1].end_offset == 6
    refused = tablet.produce({0: GOOD})[0]
    assert "cannot be written" in refused.error_message
    assert not refused.HasField("base_offset")
    reported = tablet.describe()[0]
    assert "fsync failed" in reported.warning
    assert reported.high_watermark == 3  # what is acknowledged stays readable
    assert len(records_in(tablet.fetch({0: 0})[0][1])) == 3


# -- opening, describing, stopping -------------------------------------------------------------------------------------


def test_a_description_says_what_there_is(tablet):
    tablet.produce({0: batch(0, 4)})
    tablet.clock.advance(7)
    tablet.produce({0: batch(4, 1)})
    tablet.tell_lake(0, 3, snapshot_id=9, start=1)
    described = tablet.describe()
    assert set(described) == {0, 1}
    found = described[0]
    assert (found.log_start_offset, found.log_end_offset, found.high_watermark, found.segments) == (0, 5, 5, 1)
    assert (found.max_timestamp, found.lake_snapshot_id, found.lake_log_end_offset) == (START_MS + 7, 9, 3)
    assert found.lake_log_start_offset == 1
    assert not described[1].HasField("lake_log_start_offset")
    assert found.size_in_bytes == sum(path.stat().st_size for path in tablet.folder.glob("data/t7/b0/*.log"))
    assert (described[1].max_timestamp, described[1].HasField("lake_snapshot_id")) == (-1, False)
    assert tablet.describe(table_id=8) == {}


def test_records_are_there_after_a_restart(tablet):
    tablet.produce({0: batch(0, 4)})
    for clean in (True, False):
        again = tablet.reopen(clean=clean)
        again.open(0, 1)
        assert [record.id for record in records_in(again.fetch({0: 0})[0][1])] == [0, 1, 2, 3]


def test_folders_are_named_by_ids(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(3, partition_id=5)
    assert (tmp_path / "data/t7/p5/b3/00000000000000000000.log").exists()
    assert json.loads((tmp_path / "data/t7/schema-1.json").read_text())["columns"][0]["name"] == "id"


def _definition(columns, schema_id, *, schemas=(), table_id=7, bucket=0, **key):
    """What a coordinator says of a bucket of a table with these columns."""
    from fluss_lab.model import make_descriptor

    definition = make_descriptor(columns, **key).to_json()
    return pb.PbNotifyLeaderAndIsrReqForBucket(
        physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="events"),
        table_bucket=pb.PbTableBucket(table_id=table_id, bucket_id=bucket), leader=0, leader_epoch=0,
        table_json=json.dumps(definition).encode(), schema_id=schema_id,
        schemas=[pb.PbSchema(schema_id=number, schema_json=json.dumps(text).encode()) for number, text in schemas],
    )  # fmt: skip


def test_a_definition_that_is_none_is_refused_clearly(tmp_path):
    tablet = Tablet(tmp_path)
    request = _definition({"id": "int"}, 1, table_id=1)
    for nonsense in (b"{nonsense", b"[]", b"\xff", b"[" * 100_000, b"{}"):
        request.table_json = nonsense
        assert "not a table definition" in _error(tablet.service.open_buckets([request], 1)[0]).args[0]
    tablet.service.close()


def test_a_bucket_that_cannot_be_opened_says_why_and_the_others_work(tmp_path):
    tablet = Tablet(tmp_path)
    (tmp_path / "data/t7").mkdir(parents=True)
    (tmp_path / "data/t7/b0").write_text("in the way")
    answers = tablet.open(0, 1)
    assert [answer.HasField("error_code") for answer in answers] == [True, False]
    assert isinstance(_error(tablet.produce({0: GOOD})[0]), StorageError)
    assert tablet.describe()[0].error_message
    assert tablet.produce({1: GOOD})[1].end_offset == 3
    (tmp_path / "data/t7/b0").unlink()
    tablet.open(0)
    assert tablet.produce({0: GOOD})[0].end_offset == 3


def test_a_corrupt_bucket_is_described_and_read_below_the_damage(tablet):
    tablet.produce({0: batch(0, 2)})
    tablet.produce({0: batch(2, 2)})
    tablet.produce({0: batch(4, 2)})
    path = next(tablet.folder.glob("data/t7/b0/*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 100] ^= 1
    path.write_bytes(data)
    again = tablet.reopen(clean=False)
    again.open(0, 1)
    assert "valid batch" in again.describe()[0].error_message  # and no offset beside it
    assert [record.id for record in records_in(again.fetch({0: 0})[0][1])] == [0, 1]
    assert isinstance(_error(again.fetch({0: 2}, max_wait_ms=20_000)[0][0]), CorruptDataError)
    assert isinstance(_error(again.produce({0: GOOD})[0]), CorruptDataError)
    assert again.produce({1: GOOD})[1].end_offset == 3


def test_a_deleted_bucket_is_gone_at_once_and_its_files_too(tablet):
    tablet.produce({0: GOOD, 1: GOOD})
    assert not tablet.stop(0, delete=True).stop_replicas_resp[0].HasField("error_code")
    assert isinstance(_error(tablet.produce({0: GOOD})[0]), NotLeaderError)
    assert not (tablet.folder / "data/t7/b0").exists()
    assert tablet.produce({1: GOOD})[1].base_offset == 3
    tablet.stop(0, delete=True)  # again
    tablet.stop(1, delete=True)
    assert [path.name for path in (tablet.folder / "data").iterdir()] == ["trash"]
    assert list((tablet.folder / "data/trash").iterdir()) == []
    tablet.open(0)
    assert tablet.produce({0: GOOD})[0].base_offset == 0


def test_a_deletion_that_the_device_refuses_is_an_error_until_it_takes_it(tablet, monkeypatch):
    tablet.produce({0: GOOD, 1: GOOD})
    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync_folder", refuse_to_write)
        for _ in range(2):
            (answer,) = tablet.stop(0, delete=True).stop_replicas_resp
            assert isinstance(_error(answer), StorageError)
            assert "delete bucket" in answer.error_message
    assert not tablet.stop(0, delete=True).stop_replicas_resp[0].HasField("error_code")
    assert not (tablet.folder / "data/t7/b0").exists()
    assert list((tablet.folder / "data/trash").iterdir()) == []


def refuse_to_write(folder):
    raise OSError(5, "Input/output error", str(folder))


def test_a_stopped_bucket_keeps_its_files(tablet):
    tablet.produce({0: GOOD})
    tablet.stop(0, delete=False)
    assert isinstance(_error(tablet.produce({0: GOOD})[0]), NotLeaderError)
    tablet.open(0)
    assert tablet.produce({0: GOOD})[0].base_offset == 3


def test_what_a_crash_left_in_the_trash_is_removed(tmp_path):
    (tmp_path / "data/trash/t7-b0-x/b0").mkdir(parents=True)
    (tmp_path / "data/trash/t7-b0-x/b0/00000000000000000000.log").write_bytes(b"x")
    Tablet(tmp_path)
    assert list((tmp_path / "data/trash").iterdir()) == []


def test_an_older_coordinator_is_not_obeyed(tablet):
    tablet.service.open_buckets([], 3)
    with pytest.raises(ConflictError, match="epoch 3 has spoken"):
        tablet.service.stop_replica(pb.StopReplicaRequest(coordinator_epoch=2))
    with pytest.raises(ConflictError):
        tablet.service.notify_lake_table_offset(pb.NotifyLakeTableOffsetRequest(coordinator_epoch=1))


WIDER = {"id": "bigint not null", "name": "string", "note": "string"}


def _wider_batch(first, count, schema_id=2):
    made = rows(first, count)
    made = made.append_column("note", pa.array([f"note-{n}" for n in range(first, first + count)]))
    return b"".join(bytes(memoryview(part)) for part in encode(made, schema_id=schema_id))


def test_batches_of_an_older_schema_are_read_after_a_restart(tablet):
    tablet.produce({0: batch(0, 2)})
    again = tablet.reopen()
    again.service.open_buckets([_definition(WIDER, 2)], 1)
    data = again.fetch({0: 0}, fields=[0, 2])[0][1]
    assert [record.id for record in records_in(data, pa.schema([SCHEMA.field(0)]))] == [0, 1]


def test_a_writer_of_an_older_schema_is_still_served(tablet):
    tablet.service.open_buckets([_definition(WIDER, 2)], 1)
    for payload in (batch(0, 2), _wider_batch(2, 2), batch(4, 2)):
        assert not tablet.produce({0: payload})[0].HasField("error_code")
    again = tablet.reopen()
    again.service.open_buckets([_definition(WIDER, 2)], 1)
    assert tablet_headers(again.fetch({0: 0})[0][1]) == [(0, 1), (2, 2), (4, 1)]


def tablet_headers(data):
    return [(header.base_offset, header.schema_id) for header, _ in split_headers(memoryview(bytes(data)))]


def test_a_batch_of_a_schema_that_is_not_known_yet_is_sent_again(tablet):
    error = _error(tablet.produce({0: _wider_batch(0, 1)})[0])
    assert isinstance(error, NotLeaderError)
    assert "refresh the metadata and retry" in str(error)
    tablet.service.open_buckets([_definition(WIDER, 2)], 1)
    assert not tablet.produce({0: _wider_batch(0, 1)})[0].HasField("error_code")


def test_a_server_that_slept_through_changes_learns_of_every_schema(tmp_path):
    from fluss_lab.model import make_descriptor

    first = Tablet(tmp_path)
    first.service.open_buckets([_definition({"id": "bigint not null"}, 1)], 1)
    first.service.close()
    texts = [make_descriptor({"id": "bigint not null", "name": "string"}).schema.to_json()]
    texts.append(make_descriptor(WIDER).schema.to_json())
    again = Tablet(tmp_path)
    answers = again.service.open_buckets([_definition(WIDER, 3, schemas=enumerate(texts, 2))], 1)
    assert not answers[0].HasField("error_code")
    for schema_id in (2, 3):
        made = batch(0, 1, schema_id=2) if schema_id == 2 else _wider_batch(0, 1, 3)
        assert not again.produce({0: made})[0].HasField("error_code")
    assert sorted(path.name for path in tmp_path.rglob("schema-*.json")) == [f"schema-{n}.json" for n in (1, 2, 3)]
    again.service.close()


def test_a_primary_key_table_is_opened(tmp_path):
    tablet = Tablet(tmp_path)
    answers = tablet.service.open_buckets([_definition({"id": "int"}, 1, primary_key=["id"])], 1)
    assert not answers[0].HasField("error_code")
    tablet.service.close()


def test_log_lines_name_table_and_bucket(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    Tablet(tmp_path).open(2)
    line = next(record for record in caplog.records if "open:" in record.getMessage())
    assert (line.table, line.bucket) == ("db.events", "t7/b2")
    assert "db.events bucket 2 [t7/b2]" in line.getMessage()


def test_the_background_makes_records_durable_and_applies_retention(tmp_path):
    tablet = Tablet(tmp_path, log__flush__interval="1ms", log__retention__check_interval="10ms")
    tablet.open(0, table__log__ttl="1s")
    tablet.produce({0: GOOD})
    tablet.service.start()
    reader = tablet.service._store.all()[0].log.reader
    watcher = threading.Event()
    reader.watch(watcher)
    tablet.clock.advance(1_001)
    assert watcher.wait(60)
    tablet.service.close()
    described = tablet.describe()[0]
    assert (described.log_start_offset, described.durable_offset) == (3, 3)
    assert tablet.service._tickers[0]._thread.is_alive() is False


def test_over_grpc(tmp_path):
    service = TabletService(tmp_path, options={})
    helper = Tablet.__new__(Tablet)
    helper.service, helper.folder = service, tmp_path
    helper.open(0)
    server = Server("127.0.0.1", 0, "secret-token", threads=4, request_bytes_max=1 << 25)
    server.add(TABLET_SERVER, service, {"fetch_log": 2})
    server.start()
    channel = Channel("127.0.0.1", server.port, "secret-token")
    try:
        helper.service = channel.tablet_server()
        assert helper.produce({0: GOOD}, timeout_ms=1000)[0].end_offset == 3
        assert [record.id for record in records_in(helper.fetch({0: 0})[0][1])] == [0, 1, 2]
        assert helper.offsets(LATEST)[0].offset == 3
        assert helper.describe()[0].log_end_offset == 3
        assert isinstance(_error(helper.produce({0: GOOD[:-1]})[0]), CorruptDataError)
    finally:
        channel.close()
        server.stop(1.0)
        service.close()

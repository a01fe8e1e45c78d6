"""Reading rows: lookups, prefix lookups, scans, previous offsets; and what of all that is refused."""

import threading

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    InvalidRecordError,
    InvalidRequestError,
    NotLeaderError,
    RecordTooLargeError,
    UnsupportedError,
    error_from_code,
)
from fluss_lab.records.batch import decode_all, read_header
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.requests import lookup_rows
from tests.unit.server.tablet.kv_kit import KvTablet, Model, events_in, joined, put_batch, upserts
from tests.unit.server.tablet.tablet_kit import Tablet, batch, expiring_tablet, records_in

pytestmark = pytest.mark.slow

LEGS = {"origin": "string", "id": "int", "note": "string"}


@pytest.fixture
def legs(tmp_path):
    service = KvTablet(tmp_path, types=LEGS, key=("origin", "id"), bucket_key=("origin",)).open(0)
    service.put([{"origin": o, "id": i, "note": f"{o}{i}"} for o in ("EWR", "JFK") for i in range(5)])
    yield service
    service.service.close()


def _error(answer):
    return error_from_code(answer.error_code, answer.error_message)


# -- lookup ------------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_keys_and_as_often_as_asked(tablet):
    tablet.put(upserts(0, 5))
    found = tablet.lookup(3, 99, 3, 0)
    assert [row and row["id"] for row in found] == [3, None, 3, 0]
    assert tablet.lookup() == []
    assert tablet.lookup(99, 98) == [None, None]


def test_columns_are_those_asked_for(tablet):
    tablet.put(upserts(0, 3))
    assert tablet.lookup(1, 7, fields=[1]) == [{"name": "n-1"}, None]
    assert tablet.lookup(2, fields=[0, 2]) == [{"id": 2, "score": 2}]
    for fields in ([2, 1], [-1], [0, 0]):
        with pytest.raises(InvalidRequestError, match="projected fields"):
            tablet.lookup(1, fields=fields)
    with pytest.raises(NotLeaderError, match="knows 3 columns"):
        tablet.lookup(1, fields=[3])


def test_composite_keys_are_looked_up_by_all_their_columns(legs):
    assert legs.lookup(("JFK", 3), ("JFK", 9), ("EWR", 3)) == [
        {"origin": "JFK", "id": 3, "note": "JFK3"}, None, {"origin": "EWR", "id": 3, "note": "EWR3"}
    ]  # fmt: skip


def test_many_keys_are_looked_up_at_once(tablet):
    tablet.put(upserts(0, 20_000))
    found = tablet.lookup(*range(19_999, -1, -1), 20_000)
    assert [row["id"] for row in found[:-1]] == list(range(19_999, -1, -1))
    assert found[-1] is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not Arrow"),
        (b"\xff" * 100, "not Arrow"),
        (bytes(pa.record_batch([pa.array([1, None])], names=["id"]).serialize()), "null in column 'id'"),
        (bytes(pa.record_batch([pa.array([1], pa.int8())], names=["id"]).serialize()), "keys"),
    ],
)
def test_keys_that_are_none_are_refused(tablet, data, text):
    tablet.put(upserts(0, 3))
    answer, _ = tablet.lookup_bytes({0: data})[0]
    assert isinstance(_error(answer), InvalidRecordError)
    assert text in answer.error_message


def test_compressed_keys_are_refused_unread(tablet):
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    keys = pa.record_batch([pa.array([1] * 1000)], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pa.ipc.new_stream(sink, keys.schema, options=options) as writer:
        writer.write_batch(keys)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    data = bytes(reader.read_next_message().serialize())
    answer, _ = tablet.lookup_bytes({0: data})[0]
    assert "compressed" in answer.error_message


def test_too_many_keys_in_a_call_are_refused(tmp_path):
    tablet = KvTablet(tmp_path, server__lookup_keys_max="5").open(0, 1)
    keys = [tablet.keys([(i,) for i in range(count)], ["id"]) for count in (3, 3)]
    answers = tablet.lookup_bytes(dict(enumerate(keys)))
    assert not answers[0][0].HasField("error_code")
    assert isinstance(_error(answers[1][0]), RecordTooLargeError), "the error by which clients split"
    assert "server.lookup-keys-max" in answers[1][0].error_message


def test_a_single_key_is_answered_as_among_others(tablet, rng):
    tablet.put(upserts(0, 1_000))
    for key in (0, 999, 1_000, -1, -(2**63), 2**63 - 1, *(rng.randrange(-1_000, 2_000) for _ in range(50))):
        for fields in ((), (0,), (0, 2)):
            one, (other, another) = tablet.lookup(key, fields=fields), tablet.lookup(key, key, fields=fields)
            assert one == [other] == [another]
            assert (one[0] is not None) == (0 <= key < 1_000)


def test_a_single_key_that_is_none_is_refused(tablet):
    tablet.put(upserts(0, 3))
    data = bytearray(tablet.keys([(1,)], ["id"]))
    data[data.index(b"\xff\xff\xff\xff")] ^= 1
    answer, _ = tablet.lookup_bytes({0: bytes(data)})[0]
    assert isinstance(_error(answer), InvalidRecordError)


def test_single_keys_count_as_others_do(tmp_path):
    tablet = KvTablet(tmp_path, server__lookup_keys_max="1").open(0, 1)
    answers = tablet.lookup_bytes(dict.fromkeys((0, 1), tablet.keys([(1,)], ["id"])))
    assert not answers[0][0].HasField("error_code")
    assert isinstance(_error(answers[1][0]), RecordTooLargeError)


def test_single_keys_of_many_buckets_share_the_limit_of_an_answer(tmp_path):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0, 1, 2)
    for bucket in range(3):
        tablet.put([{"id": 1, "name": "x" * 400_000, "score": 0}], bucket=bucket)
    answers = tablet.lookup_bytes(dict.fromkeys(range(3), tablet.keys([(1,)], ["id"])))
    refused = [answers[bucket][0].HasField("error_code") for bucket in range(3)]
    assert refused[0] is False
    assert refused[-1] is True
    assert "fewer keys" in answers[2][0].error_message


def test_an_answer_too_large_is_refused_before_it_is_made(tmp_path):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0)
    tablet.put([{"id": i, "name": "x" * 10_000, "score": 0} for i in range(50)])
    with pytest.raises(RecordTooLargeError, match="fewer keys"):
        tablet.lookup(*[i % 50 for i in range(100_000)])
    assert len(tablet.lookup(*range(50))) == 50


def test_one_wide_row_asked_for_often_is_not_copied_as_often(tmp_path, monkeypatch):
    tablet = KvTablet(tmp_path).open(0)
    tablet.put([{"id": i, "name": "n", "score": 0} for i in range(5_000)])
    tablet.put([{"id": 7, "name": "x" * 1_000_000, "score": 0}])
    # The first of the keys say nothing of those that follow.
    monkeypatch.setattr(lookup_rows, "_FIRST_KEYS", 20_000)
    with pytest.raises(RecordTooLargeError, match=r"expected at most \d+; ask for fewer keys"):
        tablet.lookup(*range(64), *[7] * 10_000)


def test_log_tables_have_nothing_to_look_up(tmp_path, tablet):
    logs = Tablet(tmp_path / "logs")
    logs.open(0)
    key = tablet.keys([(1,)], ["id"])
    answer, _ = KvTablet.lookup_bytes(logs, {0: key}, table_id=7)[0]
    assert isinstance(_error(answer), UnsupportedError)
    with pytest.raises(UnsupportedError, match="no primary key"):
        logs.service.scan_kv(pb.ScanKvRequest(bucket_scan_req=pb.PbScanReqForBucket(table_id=7, bucket_id=0)))


def test_a_bucket_that_is_elsewhere_says_so_in_its_own_answer(tablet):
    tablet.put(upserts(0, 3))
    key = tablet.keys([(1,)], ["id"])
    answers = tablet.lookup_bytes({5: key, 0: key})
    assert isinstance(_error(answers[5][0]), NotLeaderError)
    assert answers[0][0].found == b"\1"


# -- prefix lookup -----------------------------------------------------------------------------------------------------


def test_a_prefix_has_all_its_rows(legs):
    found = legs.prefix_lookup(("JFK",), ("LGA",), ("EWR",))
    assert [sorted(row["id"] for row in rows) for rows in found] == [[0, 1, 2, 3, 4], [], [0, 1, 2, 3, 4]]
    assert {row["origin"] for row in found[0]} == {"JFK"}
    legs.put([{"origin": "JFK", "id": 2}], [4])
    assert sorted(row["note"] for row in legs.prefix_lookup(("JFK",), fields=[2])[0]) == [
        "JFK0",
        "JFK1",
        "JFK3",
        "JFK4",
    ]


def test_a_prefix_needs_a_bucket_key_shorter_than_the_key(tablet):
    with pytest.raises(UnsupportedError, match="prefix lookup"):
        tablet.prefix_lookup((1,))


# -- limit scan --------------------------------------------------------------------------------------------------------


def test_a_few_rows_of_a_primary_key_table(tablet):
    tablet.put(upserts(0, 10))
    tablet.delete(3)
    answer, data = tablet.limit_scan(4)
    rows = tablet.rows(data)
    assert not answer.is_log_table
    assert len({row["id"] for row in rows} - {3}) == 4
    assert len(tablet.rows(tablet.limit_scan(100)[1])) == 9
    with pytest.raises(InvalidRequestError, match="limit"):
        tablet.limit_scan(0)


def test_the_latest_rows_of_a_log_table(tmp_path):
    logs = Tablet(tmp_path)
    logs.open(0)
    for first in range(0, 30, 10):
        logs.produce({0: batch(first, 10)})
    request = pb.LimitScanRequest(table_id=7, bucket_id=0, limit=12)
    frame = logs.service.limit_scan(request)
    found = list(
        decode_all(b"".join(bytes(part) for part in frame.payloads[0]), logs.service._store.table(7).schemas[1])
    )
    assert frame.message.is_log_table
    assert (found[0].base_offset, found[-1].next_offset) == (10, 30)
    logs.service.close()


def test_a_limit_scan_of_a_log_shows_what_is_left_where_records_expire_meanwhile(tmp_path):
    logs = expiring_tablet(tmp_path, pace_ms=100)
    failpoints.arm("tablet.limit.before_read", logs.service.apply_retention)
    frame = logs.service.limit_scan(pb.LimitScanRequest(table_id=7, bucket_id=0, limit=18))
    start = logs.describe()[0].log_start_offset
    assert start > 2
    assert [each.id for each in records_in(joined(frame.payloads[0]))] == list(range(start, 20))
    logs.service.close()


def test_a_limit_scan_too_large_for_an_answer_is_refused(tmp_path):
    tablet = KvTablet(tmp_path, server__request_size_max="1mb").open(0)
    for first in range(0, 120, 40):
        tablet.put([{"id": first + i, "name": "x" * 10_000, "score": 0} for i in range(40)])
    with pytest.raises(RecordTooLargeError, match="ask for fewer"):
        tablet.limit_scan(120)
    assert len(tablet.rows(tablet.limit_scan(20)[1])) == 20


# -- previous offsets --------------------------------------------------------------------------------------------------


@pytest.fixture
def rolled(tmp_path):
    """A changelog of many batches in several segments, and its model."""
    tablet, model = KvTablet(tmp_path, log__segment__file_size="4kb").open(0), Model()
    for turn in range(60):
        rows = upserts(turn % 5, 4, f"t{turn}")
        tablet.put(rows)
        for row in rows:
            model.upsert(row)
    assert len(tablet.bucket().log.segments) > 4
    yield tablet, model
    tablet.service.close()


def test_previous_offsets_are_beside_every_record_from_any_offset(rolled):
    tablet, model = rolled
    for start in range(0, len(model.events), 3):
        assert tablet.changelog(start) == model.events[start:]
    assert [event[:3] for event in tablet.changelog(previous=False)] == [event[:3] for event in model.events]


def test_previous_offsets_are_aligned_with_what_is_answered_within_its_limit(rolled):
    tablet, model = rolled
    for limit in (1, 300, 1000, 5000):
        answer, data = tablet.fetch(0, max_fetch_bytes=limit)
        count = sum(batch.header.record_count for batch in decode_all(data, tablet.schemas()))
        assert len(answer.previous_offsets) == 8 * count
        one = read_header(data).size + 8 * read_header(data).record_count
        assert len(data) + len(answer.previous_offsets) <= max(limit, one)
        assert tablet.changelog(max_fetch_bytes=limit) == model.events


def test_previous_offsets_come_with_a_projection_too(rolled):
    tablet, model = rolled
    schema, offset, found = pa.schema([tablet.schema.field(2)]), 0, []
    while offset < len(model.events):
        answer, data = tablet.fetch(offset, fields=[2], max_fetch_bytes=1000)
        some = events_in(data, schema, answer.previous_offsets)
        found += [event for event in some if event.offset >= offset]
        offset = found[-1].offset + 1
    assert found == [event._replace(row=event.row[2:]) for event in model.events]


def test_nothing_is_said_of_previous_offsets_where_nothing_is_answered(tablet):
    answer, data = tablet.fetch(0)
    assert (answer.HasField("previous_offsets"), data) == (False, b"")


def test_log_tables_have_no_previous_offsets(tmp_path):
    logs = Tablet(tmp_path)
    logs.open(0)
    logs.produce({0: batch(0, 3)})
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    table = request.tables_req.add(table_id=7, projection_pushdown_enabled=False, previous_offsets=True)
    table.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    answer = logs.service.fetch_log(request).message.tables_resp[0].buckets_resp[0]
    assert isinstance(_error(answer), UnsupportedError)
    logs.service.close()


def test_damaged_previous_offsets_are_rebuilt_and_writes_go_on(rolled):
    tablet, model = rolled
    segment = tablet.bucket().log.reader.view.segments[1]
    path = segment.previous.values_path
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert tablet.changelog(segment.base_offset) == model.events[segment.base_offset :]
    assert path.read_bytes() == data
    assert tablet.bucket().log.stopped is None
    tablet.put(upserts(0, 1, "on"))


def test_lost_previous_offsets_are_rebuilt(rolled):
    tablet, model = rolled
    segment = tablet.bucket().log.reader.view.segments[1]
    for path in segment.previous.paths():
        path.unlink()
        tablet.service._store._pool.forget(path)
    assert tablet.changelog(0) == model.events


# -- fsync -------------------------------------------------------------------------------------------------------------


def test_with_fsync_rows_that_are_read_are_durable(tmp_path):
    tablet = KvTablet(tmp_path, log__durability="fsync").open(0)
    log = tablet.bucket().log
    key = tablet.keys([(3,)], ["id"])
    reads = (
        lambda: tablet.lookup_bytes({0: key}),
        lambda: tablet.lookup_bytes({0: tablet.keys([(3,), (4,)], ["id"])}),
        lambda: tablet.limit_scan(1),
        tablet.begin_scan,
    )
    for turn, read in enumerate(reads):
        # Written, and not acknowledged: nobody waited for the device.
        tablet.bucket().kv.put([memoryview(put_batch(upserts(3, 1, f"t{turn}")))], ())
        assert log.durable_offset < log.end
        read()
        assert log.durable_offset == log.end


def test_lookups_beside_puts_see_whole_rows(tablet):
    done, problems = threading.Event(), []

    def read():
        try:
            while not done.is_set():
                for row in tablet.lookup(*range(50)):
                    assert row is None or row["name"].rsplit("-", 1)[0] == f"t{row['score']}"
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        tablet.put([{**row, "score": turn} for row in upserts(0, 50, f"t{turn}")])
    done.set()
    for thread in threads:
        thread.join(60)
    assert problems == []


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_bucket_is_described_with_its_rows_and_snapshots(tablet):
    tablet.put(upserts(0, 30))
    tablet.delete(4)
    reported = tablet.describe()[0]
    assert (reported.row_count, reported.log_end_offset, reported.HasField("kv_snapshot_id")) == (29, 31, False)
    assert reported.memory_in_bytes > 0
    taken = tablet.service.snapshot_now(tablet.bucket().id)
    reported = tablet.describe()[0]
    assert (reported.kv_snapshot_id, reported.kv_snapshot_log_offset) == (taken.snapshot_id, 31)

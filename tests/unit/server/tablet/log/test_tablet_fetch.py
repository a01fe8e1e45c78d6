"""FetchLog: limits, projection, long polls, and the way to the lake."""

import threading
import time

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, InvalidRequestError, NotLeaderError, error_from_code
from fluss_lab.records.batch import HEADER_BYTES, decode_all, read_header
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc import message_codec
from fluss_lab.server.tablet.log.log_reader import BucketLogReader
from tests.unit.server.tablet.tablet_kit import SCHEMA, Tablet, batch, records_in


@pytest.fixture
def tablet(tmp_path):
    made = Tablet(tmp_path)
    made.open(0, 1, 2)
    yield made
    made.service.close()


def _error(answer):
    assert answer.HasField("error_code"), answer
    return error_from_code(answer.error_code, answer.error_message)


def test_what_was_produced_is_fetched(tablet):
    answers = tablet.produce({0: batch(0, 3), 1: batch(10, 2)})
    assert [(a.base_offset, a.end_offset, a.HasField("error_code")) for a in answers.values()] == [
        (0, 3, False),
        (0, 2, False),
    ]
    found = tablet.fetch({0: 0, 1: 1, 2: 0})
    assert [record.id for record in records_in(found[0][1])] == [0, 1, 2]
    assert [record.id for record in records_in(found[1][1])] == [10, 11]  # the batch that holds the offset
    assert [(a.high_watermark, a.log_start_offset) for a, _ in found.values()] == [(3, 0), (2, 0), (0, 0)]
    assert not found[2][0].HasField("records")


def test_an_answer_survives_the_wire(tablet):
    tablet.produce({0: batch(0, 3), 2: batch(5, 1)})
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    table = request.tables_req.add(table_id=7, projection_pushdown_enabled=False)
    for bucket in range(3):
        table.buckets_req.add(bucket_id=bucket, fetch_offset=0, max_fetch_bytes=1 << 20)
    sent = message_codec.decode(message_codec.encode(tablet.service.fetch_log(request)), pb.FetchLogResponse)
    assert [records_in(b"".join(map(bytes, payload)))[0].id for payload in sent.payloads] == [0, 5]


def test_the_whole_answer_and_each_bucket_have_a_limit_but_there_is_one_batch_at_least(tablet):
    for first in range(10):
        tablet.produce({0: batch(first, 1), 1: batch(first, 1)})
    one = len(batch(0, 1))
    sizes = {
        b: len(data) for b, (_, data) in tablet.fetch({0: 0, 1: 0}, max_bytes=one * 4, max_fetch_bytes=one * 3).items()
    }
    assert sizes == {0: one * 3, 1: one}
    sizes = {b: len(data) for b, (_, data) in tablet.fetch({0: 0, 1: 0}, max_bytes=1).items()}
    assert sizes == {0: one, 1: 0}
    sizes = {b: len(data) for b, (_, data) in tablet.fetch({2: 0, 1: 0}, max_bytes=1).items()}
    assert sizes == {2: 0, 1: one}  # the first with records, not the first asked
    with pytest.raises(InvalidRequestError, match="max_bytes"):
        tablet.fetch({0: 0}, max_bytes=0)


@pytest.mark.parametrize("fields", [[0], [1], [0, 1], []])
def test_only_the_projected_columns_are_served_under_the_same_header(tablet, fields):
    tablet.produce({0: batch(0, 3, writer_id=6, sequence=0) + batch(3, 2, writer_id=6, sequence=1)})
    whole, some = tablet.fetch({0: 1})[0][1], tablet.fetch({0: 1}, fields=fields)[0][1]
    projected = list(decode_all(some, pa.schema([SCHEMA.field(i) for i in fields])))
    for before, after in zip(decode_all(whole, SCHEMA), projected, strict=True):
        assert after.rows.equals(before.rows.select(fields))
        names = (
            "base_offset",
            "timestamp_ms",
            "schema_id",
            "attributes",
            "writer_id",
            "batch_sequence",
            "record_count",
        )
        assert [getattr(after.header, name) for name in names] == [getattr(before.header, name) for name in names]


@pytest.mark.parametrize("fields", [[1, 0], [0, 0], [-1]])
def test_a_projection_that_cannot_be_is_refused(tablet, fields):
    tablet.produce({0: batch(0, 1)})
    with pytest.raises(InvalidRequestError, match="projected fields"):
        raise _error(tablet.fetch({0: 0}, fields=fields, max_wait_ms=30_000)[0][0])


def test_a_projection_to_columns_that_are_not_known_yet_is_asked_for_again(tablet):
    tablet.produce({0: batch(0, 1)})
    with pytest.raises(NotLeaderError, match="knows 2 columns"):
        raise _error(tablet.fetch({0: 0}, fields=[2], max_wait_ms=30_000)[0][0])


def test_a_projected_fetch_fills_its_answer_from_more_than_its_size_of_log(tablet):
    for first in range(0, 4000, 100):
        tablet.produce({0: batch(first, 100)})
    size = len(batch(0, 100)) * 4
    narrow = tablet.fetch({0: 0}, fields=[0], max_bytes=size)[0][1]
    assert len(narrow) <= size
    ids = [row for each in decode_all(narrow, pa.schema([SCHEMA.field(0)])) for row in each.rows.column(0).to_pylist()]
    assert ids == list(range(len(ids)))
    assert len(ids) > 600


def test_small_batches_come_with_all_columns_where_that_was_allowed(tablet):
    small = b"".join(batch(first, 1) for first in range(100))
    tablet.produce({0: small})
    tablet.produce({0: batch(100, 2000), 1: batch(0, 2000)})
    tablet.produce({1: batch(2000, 1)})
    answer, data = tablet.fetch({0: 7}, fields=[0], small_batches_whole=True)[0]
    assert answer.all_columns
    assert data == tablet.fetch({0: 7}, max_fetch_bytes=len(data))[0][1]
    assert [record.id for record in records_in(data)] == list(range(7, 100))
    # Larger ones are not worth it, nor few small ones in front of them; and who does not ask gets what was asked for.
    for offsets, asked in (({0: 100}, True), ({0: 50}, True), ({1: 0}, True), ({0: 0}, False)):
        ((answer, data),) = tablet.fetch(offsets, fields=[0], small_batches_whole=asked).values()
        assert not answer.all_columns
        assert all(each.rows.num_columns == 1 for each in decode_all(data, pa.schema([SCHEMA.field(0)])))


@pytest.mark.parametrize("fields", [None, [0]])
def test_a_fetch_that_stops_has_the_batches_that_begin_before(tablet, fields):
    for first in range(0, 60, 10):
        tablet.produce({0: batch(first, 10)})
    schema = SCHEMA if fields is None else pa.schema([SCHEMA.field(0)])
    for offset, stop, bases in (
        (0, 30, [0, 10, 20]),
        (5, 31, [0, 10, 20, 30]),
        (29, 30, [20]),
        (50, 99, [50]),
        (60, 61, []),
    ):
        data = tablet.fetch({0: offset}, fields=fields, stop_offset=stop)[0][1]
        assert [each.header.base_offset for each in decode_all(data, schema)] == bases
    with pytest.raises(InvalidRequestError, match="stop_offset: expected an offset behind 30"):
        raise _error(tablet.fetch({0: 30}, fields=fields, stop_offset=30)[0][0])


def test_damage_is_not_served_under_a_fresh_checksum(tablet):
    tablet.produce({0: batch(0, 50)})
    path = next(tablet.folder.glob("data/t7/b0/*.log"))
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match="CRC"):
        raise _error(tablet.fetch({0: 0}, fields=[0])[0][0])


@pytest.mark.parametrize("is_restarted", [False, True], ids=["noticed by the fetch", "noticed by the start"])
@pytest.mark.parametrize("fields", [None, [0]])
def test_good_batches_before_a_damaged_one_are_served(tablet, fields, is_restarted):
    """The error is the answer to who asks for what is damaged, from there on."""
    for first in range(0, 3000, 1000):
        tablet.produce({0: batch(first, 1000)})
    path, size = next(tablet.folder.glob("data/t7/b0/*.log")), len(batch(0, 1000))
    if is_restarted:
        tablet.service.close()
        (path.parent / "recovery-point").unlink()
    data = bytearray(path.read_bytes())
    data[size * 3 // 2] ^= 1
    path.write_bytes(data)
    if is_restarted:
        tablet = tablet.reopen(clean=False)
        tablet.open(0, 1, 2)
    answer, found = tablet.fetch({0: 0}, fields=fields)[0]
    schema = SCHEMA if fields is None else pa.schema([SCHEMA.field(0)])
    assert not answer.HasField("error_code")
    assert next(decode_all(found, schema)).rows.column(0).to_pylist() == list(range(1000))
    if fields is not None or is_restarted:  # else the bytes are as they are on the disk: the client checks them
        assert read_header(found).size == len(found)
        with pytest.raises(CorruptDataError, match=r"offsets \[1000, "):
            raise _error(tablet.fetch({0: 1000}, fields=fields)[0][0])
    if is_restarted:
        tablet.service.close()


# -- waiting ---------------------------------------------------------------------------------------------------------


def _poll(tablet, offsets, **asked):
    """Fetch on a thread; return it and the list where its answer will be."""
    answers = []
    asked = {"max_wait_ms": 20_000, **asked}
    thread = threading.Thread(target=lambda: answers.append(tablet.fetch(offsets, **asked)))
    thread.start()
    return thread, answers


def _watched(tablet, bucket=0):
    """Return when a fetch waits at a bucket."""
    reader = next(b for b in tablet.service._store.all() if b.id.bucket == bucket).log.reader
    deadline = time.monotonic() + 60
    while not reader._watchers:
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def test_a_fetch_without_records_waits_as_long_as_asked_and_no_longer(tablet):
    started = time.monotonic()
    assert tablet.fetch({0: 0}, max_wait_ms=60)[0][1] == b""
    assert 0.05 < time.monotonic() - started < 60
    assert tablet.fetch({0: 0}, max_wait_ms=0)[0][1] == b""


def test_an_append_to_any_bucket_ends_the_wait(tablet):
    thread, answers = _poll(tablet, {0: 0, 1: 0})
    _watched(tablet, 1)
    tablet.produce({1: batch(7, 1)})
    thread.join(60)
    assert [len(data) > 0 for _, data in answers[0].values()] == [False, True]
    assert all(not bucket.log.reader._watchers for bucket in tablet.service._store.all())


def test_a_wait_that_is_woken_for_too_little_goes_back_to_sleep(tablet, monkeypatch):
    looks, real = [], BucketLogReader.available
    monkeypatch.setattr(
        BucketLogReader, "available", lambda self, offset: (looks.append(offset), real(self, offset))[1]
    )
    thread, answers = _poll(tablet, {0: 0, 1: 0}, min_bytes=10_000, max_wait_ms=300)
    _watched(tablet)
    tablet.produce({1: batch(0, 1)})
    thread.join(60)
    assert len(records_in(answers[0][1][1])) == 1
    assert len(looks) <= 8  # two buckets, at most four times


def test_a_fetch_waits_for_so_many_bytes_over_all_buckets(tablet):
    one = len(batch(0, 1))
    tablet.produce({0: batch(0, 1)})
    thread, answers = _poll(tablet, {0: 0, 1: 0}, min_bytes=one * 2 + 1)
    _watched(tablet)
    tablet.produce({1: batch(0, 1)})
    assert not answers
    tablet.produce({0: batch(1, 1)})
    thread.join(60)
    assert sum(len(data) for _, data in answers[0].values()) == one * 3


def test_with_fsync_a_poll_ends_when_the_record_is_durable(tmp_path):
    tablet = Tablet(tmp_path, log__durability="fsync")
    tablet.open(0)
    thread, answers = _poll(tablet, {0: 0})
    _watched(tablet)
    tablet.produce({0: batch(0, 1)})
    thread.join(60)
    assert records_in(answers[0][0][1])[0].id == 0


@pytest.mark.parametrize("end", ["interrupt", "close", "delete"])
def test_waiting_ends_with_the_server_or_the_bucket(tablet, end):
    thread, answers = _poll(tablet, {0: 0})
    _watched(tablet)
    if end == "delete":
        tablet.stop(0, delete=True)
    else:
        getattr(tablet.service, end)()
    thread.join(60)
    assert answers[0][0][0].HasField("error_code") == (end == "delete")
    if end == "interrupt":
        assert tablet.fetch({0: 0}, max_wait_ms=20_000)[0][1] == b""  # at once from now on


def test_a_bad_bucket_ends_the_wait_and_the_others_are_answered(tablet):
    tablet.produce({1: batch(0, 1)})
    found = tablet.fetch({9: 0, 1: 0, 0: 5}, max_wait_ms=20_000, min_bytes=1 << 20)
    assert "not held by this server" in found[9][0].error_message
    assert "expected one in [0, 0]" in found[0][0].error_message
    assert len(records_in(found[1][1])) == 1


# -- the lake --------------------------------------------------------------------------------------------------------


def _half_gone(tmp_path):
    """A bucket with offsets [0, 10) in the lake only and [10, 20) here."""
    tablet = Tablet(tmp_path, log__segment__file_size="1kb")
    tablet.open(0, table__log__ttl="1s")
    for first in range(20):
        tablet.produce({0: batch(first, 1)})
        if first == 9:
            tablet.clock.advance(2_000)
    tablet.service.apply_retention()
    start = tablet.describe()[0].log_start_offset
    assert 0 < start <= 10
    return tablet, start


def test_an_offset_that_left_is_looked_for_in_the_lake(tmp_path):
    tablet, start = _half_gone(tmp_path)
    tablet.tell_lake(0, 15, snapshot_id=77)
    for offset in (0, start - 1):
        answer, data = tablet.fetch({0: offset}, enable_lake=True, max_wait_ms=20_000)[0]
        assert (answer.lake_log_fetch_info.snapshot_id, answer.lake_log_fetch_info.log_end_offset) == (77, 15)
        assert (data, answer.log_start_offset, answer.high_watermark) == (b"", start, 20)
    answer, data = tablet.fetch({0: start}, enable_lake=True)[0]  # local first
    assert not answer.HasField("lake_log_fetch_info")
    assert records_in(data)[0].offset == start


def test_the_lake_is_asked_only_for_what_it_holds_and_only_if_allowed(tmp_path):
    tablet, start = _half_gone(tmp_path)
    with pytest.raises(Exception, match=rf"\[{start}, 20\]; the lake holds nothing"):
        raise _error(tablet.fetch({0: 0}, enable_lake=True)[0][0])
    tablet.tell_lake(0, start - 1, start=2)
    with pytest.raises(Exception, match="did not allow"):
        raise _error(tablet.fetch({0: 3}, enable_lake=False)[0][0])
    for offset, there in ((1, False), (2, True), (start - 2, True), (start - 1, False)):
        answer, _ = tablet.fetch({0: offset}, enable_lake=True)[0]
        assert answer.HasField("lake_log_fetch_info") == there
        assert answer.HasField("error_code") != there


def test_every_served_batch_is_whole(tablet):
    for first in range(0, 60, 20):
        tablet.produce({0: batch(first, 20)})
    size = len(batch(0, 20))
    for limit in range(1, size * 3 + 2, 37):
        data = tablet.fetch({0: 0}, max_bytes=limit)[0][1]
        assert len(data) >= read_header(data).size > HEADER_BYTES
        assert len(data) <= max(limit, read_header(data).size)
        assert records_in(data)

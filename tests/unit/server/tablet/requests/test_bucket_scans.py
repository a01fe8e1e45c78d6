"""Scans of a bucket's live rows: one moment, call by call."""

import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    InvalidRequestError,
    NotFoundError,
    RequestTimeoutError,
    ResourceExhaustedError,
)
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.process.listener import serve_tablet
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, Model, upserts

# -- full scans --------------------------------------------------------------------------------------------------------


def test_a_scan_shows_one_moment_whatever_happens_meanwhile(tablet):
    model = Model()
    for row in upserts(0, 3000):
        model.upsert(row)
    tablet.put(upserts(0, 3000))
    answer, data = tablet.begin_scan(batch_size_bytes=8192)
    rows, call = tablet.rows(data, places=True), 0
    assert (answer.log_offset, answer.has_more_results) == (3000, True)
    tablet.put(upserts(0, 3000, "later"))
    while answer.has_more_results:
        call += 1
        answer, data = tablet.scan_call(scanner_id=answer.scanner_id, call_seq_id=call)
        rows += tablet.rows(data, places=True)
    assert {row["id"]: (row["__offset"], (row["id"], row["name"], row["score"])) for row in rows} == model.live
    assert len(rows) == 3000
    assert call > 5


def test_the_last_call_may_be_repeated_and_no_other(tablet):
    tablet.put(upserts(0, 2000))
    first, data = tablet.begin_scan(batch_size_bytes=8192)
    scan = {"scanner_id": first.scanner_id}
    assert tablet.scan_call(**scan, call_seq_id=0) == (first, data)
    second = tablet.scan_call(**scan, call_seq_id=1)
    assert tablet.scan_call(**scan, call_seq_id=1) == second
    for wrong in (0, 3, -1):
        with pytest.raises(InvalidRequestError, match="call_seq_id"):
            tablet.scan_call(**scan, call_seq_id=wrong)
    third = tablet.scan_call(**scan, call_seq_id=2)
    assert third[1] != second[1]


def test_the_last_batch_of_all_may_be_repeated_too(tablet):
    tablet.put(upserts(0, 3))
    first = tablet.begin_scan()
    assert not first[0].has_more_results
    assert tablet.scan_call(scanner_id=first[0].scanner_id, call_seq_id=0) == first
    answer, data = tablet.scan_call(scanner_id=first[0].scanner_id, call_seq_id=1)
    assert (answer.has_more_results, data) == (False, b"")


def test_an_empty_bucket_scans_to_nothing(tablet):
    assert tablet.scan() == ([], 0)


def test_a_scan_has_the_columns_asked_for(tablet):
    tablet.put(upserts(0, 3))
    tablet.put([{"id": 1, "name": "x", "score": 9}])
    rows, log_offset = tablet.scan(fields=[2])
    assert log_offset == 5
    assert sorted((row["__offset"], row["score"]) for row in rows) == [(0, 0), (2, 2), (4, 9)]
    assert {row["__timestamp"] for row in rows} == {tablet.clock.now_ms()}


def test_a_scan_from_an_offset_on_has_the_rows_that_changed_since(tablet):
    for tag in "abc":
        tablet.put(upserts(0 if tag == "a" else 10, 40, tag))
        tablet.put(upserts(100, 1, tag))
    tablet.delete(12)
    rows, moment = tablet.scan()
    for start in (0, 1, 40, 41, 90, moment - 1, moment, moment + 1):
        since = [row for row in rows if row["__offset"] >= start]
        assert tablet.scan(start_offset=start, batch_size_bytes=500) == (since, moment)
    assert 0 < len([row for row in rows if row["__offset"] >= 41]) < len(rows)


def test_ids_cannot_be_guessed_and_a_closed_scan_is_gone(tablet):
    tablet.put(upserts(0, 2000))
    ids = {tablet.begin_scan(batch_size_bytes=8192)[0].scanner_id for _ in range(8)}
    assert len(ids) == 8
    assert {len(each) for each in ids} == {16}
    for scanner_id in ids:
        tablet.scan_call(scanner_id=scanner_id, close_scanner=True)
        tablet.scan_call(scanner_id=scanner_id, close_scanner=True)
        with pytest.raises(NotFoundError, match="begin the scan again"):
            tablet.scan_call(scanner_id=scanner_id, call_seq_id=1)


def test_a_scan_that_pauses_too_long_ends(tmp_path):
    tablet = KvTablet(tmp_path, server__scanner_ttl="10s").open(0)
    tablet.put(upserts(0, 2000))
    first, _ = tablet.begin_scan(batch_size_bytes=8192)
    tablet.clock.advance(9_000)
    second, _ = tablet.scan_call(scanner_id=first.scanner_id, call_seq_id=1)
    tablet.clock.advance(9_000)
    tablet.scan_call(scanner_id=second.scanner_id, call_seq_id=2)
    tablet.clock.advance(11_000)
    tablet.service._scanners.expire()
    with pytest.raises(NotFoundError):
        tablet.scan_call(scanner_id=first.scanner_id, call_seq_id=3)


def test_there_are_no_more_scans_than_allowed(tmp_path):
    tablet = KvTablet(tmp_path, server__scanners_max="2", server__scanner_ttl="10s").open(0)
    tablet.put(upserts(0, 2000))
    first, _ = tablet.begin_scan(batch_size_bytes=8192)
    tablet.begin_scan(batch_size_bytes=8192)
    with pytest.raises(ResourceExhaustedError, match=r"server\.scanners-max"):
        tablet.begin_scan()
    tablet.scan_call(scanner_id=first.scanner_id, close_scanner=True)
    tablet.begin_scan(batch_size_bytes=8192)
    tablet.clock.advance(11_000)
    tablet.begin_scan()


def test_scans_left_unread_make_room_for_others_and_those_in_use_do_not(tmp_path):
    tablet = KvTablet(tmp_path, server__scanners_max="2", server__scanner_ttl_crowded="1s").open(0)
    tablet.put(upserts(0, 2000))
    left, used = (tablet.begin_scan(batch_size_bytes=8192)[0].scanner_id for _ in range(2))
    tablet.clock.advance(900)
    tablet.scan_call(scanner_id=used, call_seq_id=1)
    with pytest.raises(ResourceExhaustedError):
        tablet.begin_scan()
    tablet.clock.advance(100)
    tablet.begin_scan(batch_size_bytes=8192)  # the place of the one that paused for a second
    with pytest.raises(NotFoundError, match="begin the scan again"):
        tablet.scan_call(scanner_id=left, call_seq_id=1)
    tablet.scan_call(scanner_id=used, call_seq_id=2)
    with pytest.raises(ResourceExhaustedError):
        tablet.begin_scan()


def test_a_scan_whose_caller_has_left_before_it_began_takes_no_place(tablet):
    """Seen: a begin that was interrupted, or timed out and was repeated, left its scan on the server for a minute."""
    tablet.put(upserts(0, 2000))
    server = Server("127.0.0.1", 0, "secret", threads=2, request_bytes_max=1 << 20)
    serve_tablet(server, tablet.service, {})
    server.start()
    channel = Channel(server.host, server.port, "secret", call_timeout_s=0.5)
    has_left = threading.Event()
    failpoints.arm("tablet.scan.before_rows", lambda: has_left.wait(30))
    wanted = pb.PbScanReqForBucket(table_id=TABLE_ID, bucket_id=0)
    request = pb.ScanKvRequest(bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=8192)
    try:
        with pytest.raises(RequestTimeoutError):
            channel.tablet_server().scan_kv(request)
        assert len(tablet.service._scanners) == 1
        has_left.set()
        wait_until(lambda: len(tablet.service._scanners) == 0)
        channel.tablet_server().scan_kv(request)
        assert len(tablet.service._scanners) == 1
    finally:
        channel.close()
        server.stop(0)


def test_scans_that_were_read_to_their_end_take_no_place(tmp_path):
    tablet = KvTablet(tmp_path, server__scanners_max="2").open(0)
    tablet.put(upserts(0, 2000))
    for _ in range(5):
        answer, _ = tablet.begin_scan(batch_size_bytes=16384)
        call = 0
        while answer.has_more_results:
            call += 1
            answer, _ = tablet.scan_call(scanner_id=answer.scanner_id, call_seq_id=call)
        assert call
    paused = [tablet.begin_scan(batch_size_bytes=8192)[0] for _ in range(2)]
    assert all(each.has_more_results for each in paused)


def test_of_finished_scans_the_latest_may_be_asked_again(tmp_path):
    tablet = KvTablet(tmp_path, server__scanners_max="2", server__scanner_ttl="10s").open(0)
    tablet.put(upserts(0, 3))
    first, second, third = (tablet.begin_scan() for _ in range(3))
    assert tablet.scan_call(scanner_id=second[0].scanner_id, call_seq_id=0) == second
    assert tablet.scan_call(scanner_id=third[0].scanner_id, call_seq_id=0) == third
    with pytest.raises(NotFoundError, match="begin the scan again"):
        tablet.scan_call(scanner_id=first[0].scanner_id, call_seq_id=0)
    tablet.clock.advance(11_000)
    tablet.service._scanners.expire()
    with pytest.raises(NotFoundError):
        tablet.scan_call(scanner_id=third[0].scanner_id, call_seq_id=0)


def test_scans_end_with_their_bucket(tablet):
    tablet.put(upserts(0, 2000))
    first, _ = tablet.begin_scan(batch_size_bytes=8192)
    tablet.stop(delete=False)
    assert len(tablet.service._scanners) == 0
    tablet.open(0)
    with pytest.raises(NotFoundError):
        tablet.scan_call(scanner_id=first.scanner_id, call_seq_id=1)


def test_a_scan_does_not_go_on_when_its_bucket_was_opened_again(tablet):
    tablet.put(upserts(0, 2000))
    first, _ = tablet.begin_scan(batch_size_bytes=8192)
    tablet.service._store.release(tablet.bucket().id, delete=True)
    tablet.open(0)
    with pytest.raises(NotFoundError):
        tablet.scan_call(scanner_id=first.scanner_id, call_seq_id=1)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"close_scanner": True},
        {"call_seq_id": 1, "bucket_scan_req": pb.PbScanReqForBucket(table_id=TABLE_ID, bucket_id=0)},
        {"bucket_scan_req": pb.PbScanReqForBucket(table_id=TABLE_ID, bucket_id=0, projected_fields=[1, 0])},
    ],
)
def test_a_scan_that_makes_no_sense_is_refused(tablet, asked):
    with pytest.raises(InvalidRequestError):
        tablet.scan_call(**asked)

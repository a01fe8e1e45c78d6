"""Opening buckets beside one another: each once, and none in the way of the others."""

import threading

import pytest

from fluss_lab.errors import NotLeaderError
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.buckets.bucket import LakeState
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket
from fluss_lab.testing import wait_until
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, upserts

BUCKET = TableBucket(TABLE_ID, None, 0)


@pytest.fixture
def tablet(tmp_path):
    service = KvTablet(tmp_path)
    yield service
    service.service.close()


@pytest.fixture
def held(monkeypatch):
    """Holds whoever opens bucket 0, until told otherwise."""
    begun, goes_on, opened = threading.Event(), threading.Event(), []
    original = KvBucket.open

    def slow(table, log, bucket, *others):
        if bucket == BUCKET:
            opened.append(log)
            begun.set()
            assert goes_on.wait(60)
        return original(table, log, bucket, *others)

    monkeypatch.setattr(KvBucket, "open", slow)
    yield begun, goes_on, opened
    goes_on.set()


def _in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_bucket_that_many_want_open_is_opened_once(tablet, held):
    begun, goes_on, opened = held
    threads = [_in_thread(lambda: tablet.open(0)) for _ in range(6)]
    assert begun.wait(60)
    goes_on.set()
    for thread in threads:
        thread.join(60)
    assert len(opened) == 1
    tablet.put(upserts(0, 3))
    assert tablet.lookup(1)[0]


def test_others_are_opened_and_used_meanwhile(tablet, held):
    begun, goes_on, _ = held
    thread = _in_thread(lambda: tablet.open(0))
    assert begun.wait(60)
    tablet.open(1)
    tablet.put(upserts(0, 3), bucket=1)
    assert tablet.lookup(1, bucket=1)[0]
    with pytest.raises(NotLeaderError):
        tablet.put(upserts(0, 3), bucket=0)
    goes_on.set()
    thread.join(60)
    tablet.put(upserts(0, 3), bucket=0)


def test_a_bucket_is_deleted_when_it_is_open(tablet, held):
    begun, goes_on, _ = held
    thread = _in_thread(lambda: tablet.open(0))
    assert begun.wait(60)
    done = threading.Event()
    deleting = _in_thread(lambda: (tablet.stop(delete=True), done.set()))
    # It waits: there is nothing to see of that but that it does not end.
    assert not done.wait(0.2)
    goes_on.set()
    assert done.wait(60)
    thread.join(60)
    deleting.join(60)
    with pytest.raises(NotLeaderError):
        tablet.bucket()
    assert not list((tablet.folder / "tablet" / "data").rglob("*.log"))


def test_what_is_said_of_the_lake_meanwhile_is_known(tablet, held):
    begun, goes_on, _ = held
    thread = _in_thread(lambda: tablet.open(0))
    assert begun.wait(60)
    reported = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=TABLE_ID, bucket_id=0, snapshot_id=4, log_start_offset=0, log_end_offset=9
    )
    tablet.service.set_lake_offsets([reported])
    goes_on.set()
    thread.join(60)
    wait_until(lambda: tablet.bucket().lake == LakeState(4, 0, 9, -1), timeout_s=60)


def test_many_buckets_are_opened_in_one_call_with_an_answer_each(tablet):
    tablet.open(*range(12))
    for number in range(12):
        tablet.put(upserts(number, 2), bucket=number)
    again = tablet.reopen(clean=False)
    assert [bucket.kv.store.row_count for bucket in again.service._store.all()] == [2] * 12

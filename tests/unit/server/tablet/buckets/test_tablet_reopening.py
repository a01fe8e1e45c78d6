"""A bucket that could not be opened is tried again by itself; until then what touches it is an error, and others go on."""

import json
import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import FlussError, StorageError, error_from_code
from fluss_lab.model import make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.buckets.unopened_buckets import UnopenedBuckets
from fluss_lab.testing import wait_until
from tests.unit.server.tablet import tablet_kit
from tests.unit.server.tablet.kv_kit import KvTablet, upserts
from tests.unit.server.tablet.tablet_kit import Tablet, batch

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


def _reopened(tablet):
    """The tablet on the same files, with an error while its bucket 0 was opened."""
    again = tablet.reopen()
    # By itself: buckets of one request are opened at once, and the error would meet the one that is first.
    failpoints.arm("tablet.recover.before", "eio")
    again.open(0)
    failpoints.disarm()
    again.open(1)
    return again


def _errors(tablet, bucket):
    """What each kind of request that touches a bucket of a log table says."""
    answers = [tablet.offsets(kind, bucket, startTimestamp=1)[bucket] for kind in (EARLIEST, LATEST, TIMESTAMP)]
    answers += [tablet.fetch({bucket: 0})[bucket][0], tablet.produce({bucket: batch(0, 1)})[bucket]]
    return [
        error_from_code(each.error_code, each.error_message) if each.HasField("error_code") else each
        for each in answers
    ]


def test_all_that_touches_it_is_an_error_and_it_comes_back_by_itself(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(0, 1)
    tablet.produce({0: batch(0, 4), 1: batch(0, 5)})
    again = _reopened(tablet)
    for error in _errors(again, 0):
        assert isinstance(error, StorageError), error
        assert "db.events bucket 0 [t7/b0] could not be opened" in str(error)
        assert "failpoint tablet.recover.before" in str(error) or "Input/output error" in str(error)
        assert "tries again by itself" in str(error)
    assert "could not be opened" in again.describe()[0].error_message
    assert again.offsets(LATEST, 1)[1].offset == 5  # the other one is well
    again.clock.advance(10_000)
    again.service.reopen()
    assert (again.offsets(EARLIEST, 0)[0].offset, again.offsets(LATEST, 0)[0].offset) == (0, 4)
    assert again.produce({0: batch(4, 1)})[0].base_offset == 4
    assert again.describe()[0].high_watermark == 5
    again.service.close()


def test_rows_come_back_too(tmp_path):
    tablet = KvTablet(tmp_path)
    tablet.open(0)
    tablet.put(upserts(0, 3))
    failpoints.arm("tablet.recover.before", "eio")
    again = tablet.reopen(well=False)
    failpoints.disarm()
    with pytest.raises(FlussError, match="could not be opened"):
        again.lookup(1)
    again.clock.advance(10_000)
    again.service.reopen()
    assert again.lookup(1)[0]
    again.service.close()


def test_it_is_tried_again_by_a_thread_of_the_server(tmp_path):
    tablet = Tablet(tmp_path, bucket__reopen__wait_max="1ms")
    tablet.open(0, 1)
    tablet.produce({0: batch(0, 4)})
    again = _reopened(tablet)
    again.service.start()
    again.clock.advance(10_000)
    wait_until(lambda: not again.offsets(LATEST, 0)[0].HasField("error_code"), timeout_s=30)
    again.service.close()


def test_it_waits_longer_each_time_up_to_a_limit(tmp_path):
    tablet = Tablet(tmp_path, bucket__reopen__wait_max="1s")
    tablet.open(0)
    tablet.service.close()
    again = tablet.reopen(clean=False)
    failpoints.arm("tablet.recover.before", "eio")
    again.open(0)
    waits, since = [], 0
    while len(waits) < 6:
        before = failpoints.passes("tablet.recover.before")
        again.clock.advance(50)
        since += 50
        again.service.reopen()
        if failpoints.passes("tablet.recover.before") > before:
            waits.append(since)
            since = 0
    assert waits == [200, 400, 800, 1000, 1000, 1000]
    failpoints.disarm()
    again.service.close()


def test_one_that_was_dropped_meanwhile_is_not_made_anew(tmp_path, monkeypatch):
    tablet = Tablet(tmp_path)
    tablet.open(0, 1)
    again = _reopened(tablet)
    again.clock.advance(10**6)
    original = UnopenedBuckets.due

    def due(self):
        """A drop comes right after it was looked what is due."""
        found = original(self)
        again.stop(0, delete=True)
        return found

    monkeypatch.setattr(UnopenedBuckets, "due", due)
    again.service.reopen()
    assert not (tmp_path / "data" / "t7" / "b0").exists()
    assert 0 not in again.describe()
    again.service.close()


def test_a_definition_that_could_not_be_kept_is_taken_over_later(tmp_path):
    """The requests of a table's other buckets do not bring it again, and the one that did may be dropped meanwhile."""
    tablet = Tablet(tmp_path)
    blocked = tmp_path / "data" / "t7" / "schema-1.json"
    blocked.mkdir(parents=True)
    requests = [
        pb.PbNotifyLeaderAndIsrReqForBucket(
            physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="events"),
            table_bucket=pb.PbTableBucket(table_id=tablet_kit.TABLE_ID, bucket_id=bucket), leader=0, leader_epoch=0,
            table_json=tablet_kit.DESCRIPTOR_JSON if not bucket else b"", schema_id=1,
        )
        for bucket in (0, 1)
    ]  # fmt: skip
    assert all(answer.HasField("error_code") for answer in tablet.service.open_buckets(requests, 1))
    tablet.stop(0, delete=True)
    blocked.rmdir()
    tablet.clock.advance(10_000)
    tablet.service.reopen()
    assert not tablet.produce({1: batch(0, 1)})[1].HasField("error_code")
    tablet.service.close()


def _defined(bucket, definition, table_json=True, schema_id=1):
    """A request to open a bucket of a table whose ttl tells its definitions apart."""
    described = make_descriptor(tablet_kit.TYPES, properties={"table.log.ttl": definition}).to_json()
    return pb.PbNotifyLeaderAndIsrReqForBucket(
        physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="events"),
        table_bucket=pb.PbTableBucket(table_id=tablet_kit.TABLE_ID, bucket_id=bucket), leader=0, leader_epoch=0,
        table_json=json.dumps(described).encode() if table_json else b"", schema_id=schema_id,
    )  # fmt: skip


def _ttl_ms(tablet):
    return tablet.service._store.table(tablet_kit.TABLE_ID).log_ttl_ms


def test_a_bucket_that_is_tried_again_does_not_bring_the_definition_of_then(tmp_path, monkeypatch):
    """Its first request brought the table's definition, which was altered since."""
    tablet = Tablet(tmp_path)
    failpoints.arm("tablet.recover.before", "eio")
    tablet.service.open_buckets([_defined(0, "1h")], 1)
    failpoints.disarm()
    tablet.clock.advance(10_000)
    original = UnopenedBuckets.due

    def due(self):
        """The alteration comes right after it was looked what is due; the bucket itself is still waited for."""
        found = original(self)
        tablet.service.open_buckets([_defined(1, "2h")], 1)
        return found

    monkeypatch.setattr(UnopenedBuckets, "due", due)
    tablet.service.reopen()
    assert not tablet.produce({0: batch(0, 1)})[0].HasField("error_code")
    assert _ttl_ms(tablet) == 7_200_000
    tablet.service.close()


def test_a_newer_definition_does_not_come_between_a_look_at_the_older_one_and_its_use(tmp_path, monkeypatch):
    tablet = Tablet(tmp_path)
    blocked = tmp_path / "data" / "t7" / "schema-1.json"
    blocked.mkdir(parents=True)
    tablet.service.open_buckets([_defined(0, "1h")], 1)
    blocked.rmdir()
    tablet.clock.advance(10_000)
    original, alterations = BucketStore.define, []

    def define(self, requests):
        if not alterations:
            altering = threading.Thread(target=lambda: tablet.service.open_buckets([_defined(0, "2h")], 1))
            alterations.append(altering)
            altering.start()
            # It waits: there is nothing to see of that but that it does not end.
            altering.join(0.2)
        original(self, requests)

    monkeypatch.setattr(BucketStore, "define", define)
    tablet.service.reopen()
    alterations[0].join(60)
    assert _ttl_ms(tablet) == 7_200_000
    tablet.service.close()


def test_a_definition_is_taken_over_though_the_bucket_that_brought_it_is_gone(tmp_path):
    """The table's other buckets are open, so nothing else is tried again."""
    tablet = Tablet(tmp_path)
    tablet.service.open_buckets([_defined(0, "1h"), _defined(1, "1h", table_json=False)], 1)
    blocked = tmp_path / "data" / "t7" / "schema-2.json"
    blocked.mkdir()
    altered = [_defined(0, "2h", schema_id=2), _defined(1, "2h", table_json=False, schema_id=2)]
    tablet.service.open_buckets(altered, 1)
    tablet.stop(0, delete=True)
    blocked.rmdir()
    tablet.service.reopen()
    assert _ttl_ms(tablet) == 7_200_000
    tablet.service.close()

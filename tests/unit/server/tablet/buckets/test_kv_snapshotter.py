"""Taking key-value snapshots of buckets: when, of what, and what a restart makes of them."""

import logging
import threading
from itertools import count

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import CorruptDataError, NotLeaderError, StorageError, UnsupportedError
from fluss_lab.model.config.options import KV_SNAPSHOT_INTERVAL
from fluss_lab.model.names import TableBucket
from fluss_lab.server.kv.kv_snapshot import SnapshotStore
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, Model, upserts
from tests.unit.server.tablet.tablet_kit import TABLE_ID as LOG_TABLE_ID
from tests.unit.server.tablet.tablet_kit import Tablet

BUCKET = TableBucket(TABLE_ID, None, 0)
INTERVAL_MS = KV_SNAPSHOT_INTERVAL.default


@pytest.fixture
def tablet(tmp_path):
    service = KvTablet(tmp_path).open(0)
    yield service
    service.service.close()


def take(tablet, bucket=0):
    return tablet.service.snapshot_now(TableBucket(TABLE_ID, None, bucket))


def folder_of(tablet, bucket=0):
    return tablet.folder / "remote" / "kv" / "db" / f"people-{TABLE_ID}" / str(bucket)


def latest(tablet, bucket=0):
    return tablet.bucket(bucket).kv.snapshots.latest


def kept(tablet, schemas=None):
    """What is in the newest snapshot on the disk: its log offset, and rows by id with their offsets."""
    found = SnapshotStore(folder_of(tablet), retained=2, bucket=BUCKET).load(schemas or tablet.bucket().table.schemas)
    rows = {}
    for chunk, live in zip(found[1].chunks, found[1].live, strict=True):
        content = chunk.rows.to_pylist()
        for at in live.nonzero()[0]:
            rows[content[at]["id"]] = (int(chunk.offsets[at]), tuple(content[at].values()))
    assert len(rows) == found[0].row_count
    return found[0].log_offset, rows


def test_what_was_put_is_in_the_snapshot(tablet):
    tablet.put(upserts(0, 50))
    tablet.put(upserts(10, 5, "again"))
    tablet.delete(3, 4)
    done = take(tablet)
    assert (done.log_offset, done.row_count) == (tablet.bucket().log.end, 48)
    assert kept(tablet) == (done.log_offset, Model.of(tablet.changelog()).live)


def test_a_snapshot_never_knows_more_than_the_durable_log(tablet):
    tablet.put(upserts(0, 5))
    assert tablet.bucket().log.durable_offset == 0
    assert take(tablet).log_offset == 5
    assert tablet.bucket().log.durable_offset >= 5


def test_a_log_that_cannot_be_made_durable_has_no_snapshot(tablet):
    tablet.put(upserts(0, 5))
    failpoints.arm("tablet.flush.before", "eio")
    with pytest.raises(StorageError):
        take(tablet)
    assert not folder_of(tablet).exists()


def test_nothing_new_is_no_new_snapshot(tablet):
    assert take(tablet) is None
    tablet.put(upserts(0, 5))
    first = take(tablet)
    assert take(tablet).snapshot_id == first.snapshot_id
    tablet.put(upserts(0, 5))  # changes nothing
    assert take(tablet).snapshot_id == first.snapshot_id
    tablet.put(upserts(5, 1))
    assert take(tablet).snapshot_id == first.snapshot_id + 1


def test_a_restart_goes_on_from_it(tablet):
    tablet.put(upserts(0, 20), writer_id=5, sequence=0)
    take(tablet)
    tablet.put(upserts(10, 20, "later"), writer_id=5, sequence=1)
    model = Model.of(tablet.changelog())
    again = tablet.reopen(clean=False)
    model.check(again)
    # The snapshot's writers and those of the log behind it.
    assert again.put(upserts(10, 20, "later"), writer_id=5, sequence=1) == (20, len(model.events))
    assert again.put(upserts(0, 20), writer_id=5, sequence=0) == (0, 20)
    again.put(upserts(90, 1))
    assert take(again).snapshot_id == 1
    again.service.close()


def test_of_a_broken_one_a_restart_takes_the_one_before(tablet, caplog):
    tablet.put(upserts(0, 20))
    take(tablet)
    tablet.put(upserts(10, 20, "later"))
    take(tablet)
    model = Model.of(tablet.changelog())
    path = next(folder_of(tablet).glob("0000000001*.live"))
    path.write_bytes(b"\0" * path.stat().st_size)
    with caplog.at_level(logging.ERROR):
        again = tablet.reopen(clean=False)
    assert "broken and set aside" in caplog.text
    model.check(again)
    assert latest(again).snapshot_id == 0
    again.put(upserts(90, 1))
    assert take(again).snapshot_id == 2
    again.service.close()


def test_without_any_snapshot_the_whole_log_must_be_there(tmp_path):
    """Never rows of a part of the log."""
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0, table__log__ttl="1h")
    for first in range(0, 400, 20):
        tablet.put(upserts(first, 20))
    take(tablet)
    tablet.clock.advance(2 * 3_600_000)
    tablet.put(upserts(0, 1, "young"))
    dropped = tablet.service.apply_retention()
    assert dropped, "the test is about a log that was cut"
    assert tablet.bucket().log.start > 0
    model = Model.of(tablet.changelog(tablet.bucket().log.start))
    again = tablet.reopen(clean=False)
    assert again.lookup(0, 1, 399) == tablet.lookup(0, 1, 399)
    again.service._store.close()
    for path in folder_of(tablet).iterdir():
        path.unlink()
    third = tablet.reopen(clean=False)
    assert third.bucket().log.stopped is not None
    with pytest.raises(CorruptDataError):
        third.lookup(0)
    assert model.events
    third.service.close()


def test_retention_leaves_what_an_older_snapshot_needs(tmp_path):
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0, table__log__ttl="1h")
    floors = []
    for turn in range(4):
        for first in range(0, 100, 20):
            tablet.put(upserts(first, 20, f"turn{turn}"))
        take(tablet)
        floors.append(tablet.bucket().log.end)
    tablet.clock.advance(2 * 3_600_000)
    tablet.service.apply_retention()
    assert 0 < tablet.bucket().log.start <= floors[2], "the one before the latest could not be gone back to"
    model = Model.of([])
    path = next(folder_of(tablet).glob("0000000003*.live"))
    path.write_bytes(b"")
    expected = sorted(map(str, tablet.scan()[0]))
    again = tablet.reopen(clean=False)
    assert latest(again).snapshot_id == 2
    assert sorted(map(str, again.scan()[0])) == expected
    assert model.live == {}
    again.service.close()


def test_columns_added_since_are_null(tablet):
    tablet.put(upserts(0, 5))
    take(tablet)
    tablet.alter(note="string")
    tablet.put([{"id": 2, "name": "x", "score": 1, "note": "new"}])
    take(tablet)
    again = tablet.reopen(clean=False)
    assert again.lookup(1, 2) == [
        {"id": 1, "name": "n-1", "score": 1, "note": None},
        {"id": 2, "name": "x", "score": 1, "note": "new"},
    ]
    assert again.bucket().kv.store.row_count == 5
    again.service.close()


def test_buckets_are_taken_in_turns_once_an_interval(tmp_path):
    tablet = KvTablet(tmp_path).open(*range(12))
    for bucket in range(12):
        tablet.put(upserts(0, 3), bucket=bucket)
    tablet.service._snapshots.tick()
    assert not any(latest(tablet, bucket) for bucket in range(12))
    counts = []
    for _ in range(20):
        tablet.clock.advance(INTERVAL_MS // 20)
        before = sum(latest(tablet, bucket) is not None for bucket in range(12))
        tablet.service._snapshots.tick()
        counts.append(sum(latest(tablet, bucket) is not None for bucket in range(12)) - before)
    assert sum(counts) == 12
    assert max(counts) <= 4, "all at once"
    for bucket in range(12):
        tablet.put(upserts(50, 1), bucket=bucket)
    tablet.clock.advance(INTERVAL_MS)
    tablet.service._snapshots.tick()
    assert {latest(tablet, bucket).snapshot_id for bucket in range(12)} == {1}
    tablet.service.close()


def test_a_full_disk_leaves_the_old_one_and_is_tried_again(tablet, caplog):
    tablet.put(upserts(0, 5))
    take(tablet)
    before = sorted(folder_of(tablet).iterdir())
    tablet.put(upserts(5, 5))
    tablet.service._snapshots.tick()
    failpoints.arm("kv.snapshot.before_live", "enospc")
    waits = []
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            failures = caplog.text.count("kv_snapshot_failed")
            tablet.clock.advance(INTERVAL_MS // 4)
            tablet.service._snapshots.tick()
            waits.append(caplog.text.count("kv_snapshot_failed") - failures)
    assert "No space left" in caplog.text
    assert 3 <= sum(waits) <= 20, "neither never nor without pause"
    assert sorted(folder_of(tablet).iterdir()) == before
    assert tablet.lookup(7) is not None
    failpoints.disarm()
    tablet.clock.advance(INTERVAL_MS)
    tablet.service._snapshots.tick()
    assert latest(tablet).log_offset == 10


def test_a_graceful_end_takes_one(tablet):
    tablet.put(upserts(0, 5))
    tablet.service.close()
    tablet.service.close()
    assert SnapshotStore(folder_of(tablet), retained=2, bucket=BUCKET).latest.log_offset == 5


def test_an_end_on_a_full_disk_is_an_end(tablet, caplog):
    tablet.put(upserts(0, 5))
    failpoints.arm("kv.snapshot.before_chunks", "enospc")
    tablet.service.close()
    assert "kv_snapshot_failed" in caplog.text
    failpoints.disarm()
    Model.of(tablet.changelog()).check(tablet.reopen(clean=False))


def test_a_stopped_log_has_none(tablet):
    tablet.put(upserts(0, 5))
    tablet.bucket().log.end_by(CorruptDataError("damage"))
    with pytest.raises(CorruptDataError, match="damage"):
        take(tablet)
    tablet.service._snapshots.take_all()
    assert latest(tablet) is None


def test_a_log_table_has_none(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(0)
    with pytest.raises(UnsupportedError, match="no primary key"):
        tablet.service.snapshot_now(TableBucket(LOG_TABLE_ID, None, 0))
    with pytest.raises(NotLeaderError):
        tablet.service.snapshot_now(TableBucket(LOG_TABLE_ID, None, 1))
    tablet.service.close()


def test_a_dropped_bucket_leaves_nothing(tmp_path):
    tablet = KvTablet(tmp_path).open(0, 1)
    for bucket in (0, 1):
        tablet.put(upserts(0, 5), bucket=bucket)
        take(tablet, bucket)
    tablet.stop(0, delete=True)
    assert not folder_of(tablet, 0).exists()
    assert folder_of(tablet, 1).exists()
    # After a restart the server knows of it no more than its ids.
    tablet.service.close()
    tablet.service = KvTablet(tmp_path).service
    answer = tablet.stop(1, delete=True)
    assert not answer.stop_replicas_resp[0].error_code
    assert not (tmp_path / "remote" / "kv" / "db").exists()
    tablet.stop(1, delete=True)
    tablet.service.close()


def test_a_bucket_that_is_only_closed_keeps_its_snapshots(tablet):
    tablet.put(upserts(0, 5))
    take(tablet)
    tablet.stop(0, delete=False)
    assert folder_of(tablet).exists()


def test_a_drop_while_snapshots_are_taken_leaves_nothing(tablet):
    stopped, problems = threading.Event(), []
    bucket = tablet.bucket()

    def work():
        turn = 0
        while not stopped.is_set():
            turn += 1
            try:
                tablet.put(upserts(turn % 50, 3, f"t{turn}"))
                tablet.service._snapshots.take(bucket)
            except NotLeaderError:
                return
            except Exception as error:
                problems.append(error)
                return

    worker = threading.Thread(target=work)
    worker.start()
    reached = threading.Event()
    for _ in range(6000):
        if folder_of(tablet).exists() and len(list(folder_of(tablet).iterdir())) > 2:
            reached.set()
            break
        stopped.wait(0.01)
    assert reached.is_set()
    answer = tablet.stop(0, delete=True)
    worker.join(60)
    stopped.set()
    assert not worker.is_alive()
    assert problems == []
    assert not answer.stop_replicas_resp[0].error_code
    assert not folder_of(tablet).exists()


def test_each_snapshot_under_load_is_of_one_moment(tablet):
    """Rows, writers and log offset agree, whatever is put meanwhile."""
    enough, problems, found = threading.Event(), [], []
    schemas = tablet.bucket().table.schemas

    def work():
        try:
            for turn in count():
                tablet.put(upserts(turn * 7 % 90, 20, f"t{turn}"), writer_id=1, sequence=turn)
                if enough.is_set():
                    return
        except Exception as error:
            problems.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    while len(found) < 6 and worker.is_alive():
        if (taken := take(tablet)) is not None and (not found or taken.log_offset > found[-1][0]):
            found.append((*kept(tablet, schemas), taken.writers))
    enough.set()
    worker.join(60)
    assert problems == []
    assert len(found) == 6
    events = tablet.changelog()
    for log_offset, rows, writers in found:
        assert rows == Model.of(events[:log_offset]).live
        assert writers[0][2][-1][2] == log_offset, "the writer's last batch ends where the snapshot does"


def test_a_bucket_tells_how_it_is(tablet):
    tablet.put(upserts(0, 5))
    assert not tablet.describe()[0].HasField("kv_snapshot_id")
    take(tablet)
    reported = tablet.describe()[0]
    assert (reported.row_count, reported.kv_snapshot_id, reported.kv_snapshot_log_offset) == (5, 0, 5)
    assert reported.memory_in_bytes > 0

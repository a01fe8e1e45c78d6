"""Retention: what is past its ttl goes, and of a lake-enabled table nothing that the lake does not hold."""

import random

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import StorageError
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.tablet.tablet_kit import OPTIONS, Tablet, append, batch, checked, open_log, read_all, records_in

TTL_MS = 60_000


def _tablet(folder, *, lake, batches=30, every_ms=1_000):
    tablet = Tablet(folder, log__segment__file_size="1kb")
    tablet.open(0, table__log__ttl="1min", table__datalake__enabled=str(lake).lower())
    for first in range(batches):
        tablet.produce({0: batch(first, 1)})
        tablet.clock.advance(every_ms)
    return tablet


def _segments(tablet):
    return sorted(int(path.stem) for path in tablet.folder.glob("data/t7/b0/*.log"))


def test_segments_go_when_their_last_record_is_past_the_ttl(tmp_path):
    tablet = _tablet(tmp_path, lake=False)
    bases = _segments(tablet)
    assert len(bases) > 4
    written = records_in(tablet.fetch({0: 0})[0][1])
    # Exactly at its ttl a segment stays; a millisecond later it goes.
    last_of_second = written[bases[2] - 1].timestamp_ms
    assert tablet.service.apply_retention(last_of_second + TTL_MS) == 1
    assert tablet.service.apply_retention(last_of_second + TTL_MS + 1) == 1
    assert (_segments(tablet), tablet.describe()[0].log_start_offset) == (bases[2:], bases[2])
    assert records_in(tablet.fetch({0: bases[2]})[0][1]) == written[bases[2] :]
    assert not [path for path in tablet.folder.glob("data/t7/b0/*index") if int(path.stem) < bases[2]]


def test_a_log_past_its_ttl_as_a_whole_goes_on_at_its_end(tmp_path):
    tablet = _tablet(tmp_path, lake=False, batches=5)
    tablet.clock.advance(TTL_MS)
    tablet.service.apply_retention()
    described = tablet.describe()[0]
    assert (described.log_start_offset, described.log_end_offset, described.segments) == (5, 5, 1)
    assert tablet.service.apply_retention() == 0  # and no new segment each time
    tablet = tablet.reopen(clean=False)
    tablet.open(0, table__log__ttl="1min")
    assert tablet.produce({0: batch(5, 1)})[0].base_offset == 5
    assert [record.id for record in records_in(tablet.fetch({0: 5})[0][1])] == [5]


def test_a_lake_enabled_table_keeps_what_the_lake_does_not_hold(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    bases = _segments(tablet)
    tablet.clock.advance(10 * TTL_MS)
    assert tablet.service.apply_retention() == 0  # the lake holds nothing
    for lake_end in range(31):
        tablet.tell_lake(0, lake_end)
        tablet.service.apply_retention()
        start = tablet.describe()[0].log_start_offset
        assert start <= lake_end
        # Everything that may go has gone: up to the last boundary of segments that the lake covers.
        assert start == max(base for base in [*bases, 30] if base <= lake_end)
        if start < 30:
            assert records_in(tablet.fetch({0: start})[0][1])[0].offset == start
    assert tablet.describe()[0].log_end_offset == 30


def test_what_the_lake_holds_stays_until_its_ttl(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    tablet.tell_lake(0, 30)
    assert tablet.service.apply_retention() == 0


def test_a_lake_that_begins_behind_the_log_lets_nothing_go(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    tablet.clock.advance(10 * TTL_MS)
    tablet.tell_lake(0, 30, start=1)
    assert tablet.service.apply_retention() == 0
    tablet.tell_lake(0, 30, start=0)
    assert tablet.service.apply_retention() > 0


def test_what_the_coordinator_says_last_is_true(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    tablet.clock.advance(10 * TTL_MS)
    tablet.tell_lake(0, 30, snapshot_id=500)
    tablet.tell_lake(0, 0, snapshot_id=2)  # snapshot ids are not ordered
    assert tablet.service.apply_retention() == 0


def test_lake_offsets_may_come_before_the_bucket(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    tablet.clock.advance(10 * TTL_MS)
    tablet = tablet.reopen()
    tablet.tell_lake(0, 30)
    tablet.open(0, table__log__ttl="1min", table__datalake__enabled="true")
    assert tablet.service.apply_retention() > 0


def test_a_table_whose_properties_change_is_kept_by_the_new_ones(tmp_path):
    tablet = _tablet(tmp_path, lake=True)
    tablet.clock.advance(10 * TTL_MS)
    tablet.open(0, table__log__ttl="1min", table__datalake__enabled="false")
    assert tablet.service.apply_retention() > 0
    for first in range(30, 40):
        tablet.produce({0: batch(first, 1)})
    tablet.open(0, table__log__ttl="1d")
    tablet.clock.advance(10 * TTL_MS)
    assert tablet.service.apply_retention() == 0


def test_a_reader_with_an_old_view_reads_on_or_fails(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock, OPTIONS.__class__(1024, 64, False, 10**9))
    for first in range(20):
        append(log, first, 1)
    view = log.reader.view
    held = view.segments[0]
    before = held.read(0, held.size)
    handle = held._pool.get(held.path)
    assert log.drop_before(clock.now_ms() + 1, None) > 0
    import os

    assert os.pread(handle.fd, len(before), 0) == before  # who has the file open reads it to its end
    with pytest.raises(FileNotFoundError):
        view.read(0, 100, at_least_one=True)
    assert read_all(log) == []


def test_a_removal_that_fails_is_tried_again_and_leaves_no_hole(tmp_path):
    tablet = _tablet(tmp_path, lake=False)
    bases = _segments(tablet)
    tablet.clock.advance(10 * TTL_MS)
    failpoints.arm("tablet.retention.before_delete", "eio@2")
    tablet.service.apply_retention()
    assert _segments(tablet) == [*bases[1:], 30]  # the first is gone, the second not, and none behind it
    assert tablet.describe()[0].log_start_offset == 30
    killed = tablet.reopen(clean=False)
    killed.open(0, table__log__ttl="1d")
    assert (killed.describe()[0].log_start_offset, killed.describe()[0].warning) == (bases[1], "")
    killed.service.apply_retention(killed.clock.now_ms() + 2 * 86_400_000)
    assert _segments(killed) == [30]


@pytest.mark.slow
def test_retention_while_others_append_and_read_serves_no_wrong_record(tmp_path, seed):
    import threading

    chance = random.Random(seed)
    clock = MockClock()
    log = open_log(tmp_path, clock, OPTIONS.__class__(2048, 128, False, 10**9))
    done, problems = threading.Event(), []

    def read():
        try:
            while not done.is_set():
                for record in read_all_from_start(log):
                    assert record.id == record.offset
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        append(log, log.end, chance.randrange(1, 5))
        clock.advance(1)
        if chance.random() < 0.1:
            log.drop_before(clock.now_ms() - chance.randrange(5), None)
    done.set()
    for reader in readers:
        reader.join(60)
    assert not problems
    assert log.stopped is None


def read_all_from_start(log):
    """What a reader gets that begins at the log's start, while that moves."""
    from fluss_lab.errors import OffsetOutOfRangeError

    try:
        return read_all(log, log.start, bytes_max=700)
    except OffsetOutOfRangeError:
        return []


def test_writers_are_known_though_the_segments_that_named_them_are_gone(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock, OPTIONS.__class__(1000, 256, False, 10**9))
    for sequence in range(20):
        append(log, sequence, 1, writer_id=9, sequence=sequence)
    clock.advance(TTL_MS)
    assert log.drop_before(clock.now_ms(), None) > 3
    again = open_log(tmp_path, clock)  # as after kill -9
    assert (again.start, again.end) == (20, 20)
    assert append(again, 19, 1, writer_id=9, sequence=19).base_offset == 19
    assert append(again, 20, 1, writer_id=9, sequence=20).base_offset == 20


def test_with_fsync_dropping_segments_shows_no_record_that_is_not_durable(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock, OPTIONS.__class__(1000, 256, True, 10**9))
    while len(log.segments) < 3:
        append(log, log.end, 1)
    clock.advance(TTL_MS)
    log.append(checked(batch(log.end, 1)))
    failpoints.arm("tablet.flush.before", "eio")
    with pytest.raises(StorageError):
        log.drop_before(clock.now_ms(), None)
    assert log.start > 0
    assert log.high_watermark == log.durable_offset == log.end - 1

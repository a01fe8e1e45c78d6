"""One bucket's log: what is appended is read, in order, across rolls and restarts."""

import os
import random
import shutil
import threading
from itertools import pairwise

import pytest

from fluss_lab import failpoints, files
from fluss_lab.errors import (
    CorruptDataError,
    InvalidTimestampError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
)
from fluss_lab.records.batch import split_headers
from fluss_lab.server.tablet.log import bucket_log
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.testing.mock_clock import START_MS, MockClock
from tests.unit.server.tablet.tablet_kit import OPTIONS, Record, append, batch, checked, open_log, read_all

SMALL = LogOptions(segment_bytes=2048, index_interval_bytes=128, fsync=False, writer_expiration_ms=3_600_000)
DURABLE = LogOptions(segment_bytes=2048, index_interval_bytes=128, fsync=True, writer_expiration_ms=3_600_000)


def test_an_empty_log_has_no_records(tmp_path):
    log = open_log(tmp_path)
    assert (log.start, log.end, log.high_watermark, log.durable_offset, log.max_timestamp_ms) == (0, 0, 0, 0, -1)
    assert log.reader.read(0, 100).buffers == []


def test_offsets_ascend_by_one_and_all_is_read(tmp_path):
    log = open_log(tmp_path)
    assert (append(log, 0, 3).base_offset, append(log, 3, 1).base_offset) == (0, 3)
    assert append(log, 4, 2).end_offset == 6
    assert read_all(log) == [Record(i, START_MS, i) for i in range(6)]


def test_a_read_that_stops_has_all_batches_that_begin_before_and_no_other(tmp_path, rng):
    log = open_log(tmp_path, options=SMALL)
    bases = [0]
    while bases[-1] < 400:
        count = rng.choice((0, rng.randint(1, 20)))  # segments, too, begin with batches without records
        append(log, bases[-1], count)
        bases.append(bases[-1] + count)
    assert len(log.reader.view.segments) > 2
    ends = dict(pairwise(sorted(set(bases))))
    for offset in range(bases[-1]):
        for stop in {*range(offset + 1, offset + 30), rng.randrange(offset + 1, 500)}:
            fetched = log.reader.read(offset, 1 << 20, stop=stop)
            found = [
                header.base_offset
                for data in fetched.buffers
                for header, _ in split_headers(data)
                if header.record_count
            ]
            assert found == [base for base, end in ends.items() if end > offset and base < stop]
            assert fetched.next_offset == max(ends[base] for base in found)


def test_a_read_that_stops_at_damage_has_what_is_good_before_it(tmp_path):
    log = open_log(tmp_path)
    places = [append(log, first, 10) and log.reader.view.frontier.position for first in range(0, 100, 10)]
    path = log.reader.view.segments[0].path
    data = bytearray(path.read_bytes())
    data[places[6]] ^= 1  # the header of the batch at offset 70
    path.write_bytes(data)
    assert log.reader.read(0, 1 << 20, stop=75).next_offset == 70


def test_a_payload_of_several_batches_is_appended_as_one(tmp_path):
    log = open_log(tmp_path)
    appended = log.append(checked(batch(0, 2), batch(2, 3), batch(5, 1)))
    assert (appended.base_offset, appended.end_offset) == (0, 6)
    assert [record.id for record in read_all(log)] == list(range(6))


def test_more_buffers_than_one_system_call_takes(tmp_path):
    log = open_log(tmp_path)
    log.append(checked(*(batch(i, 1) for i in range(1500))))
    assert [record.id for record in read_all(log)] == list(range(1500))


def test_a_batch_without_records_uses_no_offset(tmp_path):
    log = open_log(tmp_path)
    append(log, 0, 2, writer_id=5, sequence=0)
    empty = append(log, 9, 0, writer_id=5, sequence=1)
    assert (empty.base_offset, empty.end_offset) == (2, 2)
    append(log, 2, 1, writer_id=5, sequence=2)
    assert [record.id for record in read_all(log)] == [0, 1, 2]
    assert [record.id for record in read_all(log, 2)] == [2]


def test_reading_begins_with_the_batch_that_holds_the_offset(tmp_path):
    log = open_log(tmp_path)
    for first in range(0, 100, 10):
        append(log, first, 10)
    for offset in range(100):
        fetched = log.reader.read(offset, 1)
        assert fetched.next_offset == offset // 10 * 10 + 10


def test_at_least_one_batch_is_read_however_small_the_limit_only_if_asked(tmp_path):
    log = open_log(tmp_path)
    append(log, 0, 1000)
    assert log.reader.read(5, 1).next_offset == 1000
    assert log.reader.read(5, 1, at_least_one=False).buffers == []


def test_no_more_is_read_than_asked(tmp_path):
    log = open_log(tmp_path)
    for first in range(10):
        append(log, first, 1)
    one = log.segments.size_bytes // 10
    assert log.reader.read(0, one * 3 + one // 2).next_offset == 3
    assert log.reader.read(0, one * 3).size == one * 3


def test_a_read_goes_on_in_the_next_segment(tmp_path):
    log = open_log(tmp_path, options=SMALL)
    for first in range(40):
        append(log, first, 1)
    assert len(log.segments) > 3
    assert log.reader.read(0, 1 << 20).next_offset == 40


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
def test_an_offset_that_is_not_held_is_refused_with_the_range(tmp_path, offset):
    log = open_log(tmp_path)
    append(log, 0, 3)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 3\]"):
        log.reader.read(offset, 100)


def test_timestamps_never_go_back_when_the_clock_does(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock)
    append(log, 0, 1)
    clock.set_wall(START_MS - 5000)
    append(log, 1, 1)
    log.close()
    log = open_log(tmp_path, clock)
    append(log, 2, 1)
    clock.set_wall(START_MS + 7)
    append(log, 3, 1)
    assert [record.timestamp_ms for record in read_all(log)] == [START_MS, START_MS, START_MS, START_MS + 7]


def test_a_raised_floor_holds_after_a_clean_and_an_unclean_restart(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock)
    append(log, 0, 1)
    log.raise_floor(START_MS)
    clock.advance(100)
    log.raise_floor(START_MS + 90)
    clock.set_wall(START_MS)
    append(log, 1, 1)
    log.raise_floor(START_MS)  # lower than it is: nothing happens
    log.flush()
    log = open_log(tmp_path, clock)
    append(log, 2, 1)
    assert [record.timestamp_ms - START_MS for record in read_all(log)] == [0, 90, 90]
    with pytest.raises(InvalidTimestampError, match=r"\.\d{3}Z is after the server's clock \(\d{4}-.*Z\)"):
        log.raise_floor(START_MS + 1)
    with pytest.raises(InvalidTimestampError, match=f"time {2**62} is after the server's clock"):
        log.raise_floor(2**62)


def test_offset_by_time_is_exact(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock, SMALL)
    for first in range(50):
        append(log, first, 1)
        if first % 3 == 2:
            clock.advance(10)
    written = read_all(log)
    for time_ms in range(START_MS - 2, written[-1].timestamp_ms + 3):
        at_or_after = [record for record in written if record.timestamp_ms >= time_ms]
        expected = (at_or_after[0].offset, at_or_after[0].timestamp_ms) if at_or_after else (50, None)
        assert log.reader.find_time(time_ms) == expected


def test_a_time_lookup_skips_batches_without_records(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock)
    append(log, 0, 2, writer_id=1, sequence=0)
    clock.advance(10)
    append(log, 2, 0, writer_id=1, sequence=1)
    assert log.reader.find_time(START_MS + 1) == (2, None)
    clock.advance(10)
    append(log, 2, 1, writer_id=1, sequence=2)
    assert log.reader.find_time(START_MS + 1) == (2, START_MS + 20)


# -- durability ------------------------------------------------------------------------------------------------------


def test_with_fsync_a_record_is_readable_only_when_it_is_durable(tmp_path):
    log = open_log(tmp_path, options=DURABLE)
    first = log.append(checked(batch(0, 2)))
    assert (log.end, log.high_watermark, log.durable_offset) == (2, 0, 0)
    assert log.reader.read(0, 100).buffers == []
    log.acknowledge(first)
    assert (log.high_watermark, log.durable_offset) == (2, 2)
    log.append(checked(batch(2, 1)))
    assert [record.id for record in read_all(log)] == [0, 1]
    assert log.reader.find_time(0) == (0, START_MS)


def test_with_ack_a_record_is_readable_at_once_and_durable_later(tmp_path):
    log = open_log(tmp_path)
    append(log, 0, 2)
    assert (log.high_watermark, log.durable_offset) == (2, 0)
    log.flush()
    assert log.durable_offset == 2


def test_with_fsync_readers_do_not_pass_the_durable_place_across_a_roll(tmp_path):
    log = open_log(tmp_path, options=DURABLE)
    while len(log.segments) < 3:
        log.append(checked(batch(log.end, 1)))
    assert log.high_watermark == log.durable_offset == log.end - 1  # a roll makes durable what was before it
    assert len(read_all(log)) == log.end - 1
    log.sync()
    assert len(read_all(log)) == log.end


def test_waiting_appends_share_an_fsync(tmp_path, monkeypatch):
    log = open_log(tmp_path, options=LogOptions(1 << 20, 4096, True, 1000))
    seen, entered, let_go = [], threading.Event(), threading.Event()
    real = bucket_log.Segment.sync

    def slow(self, size):
        seen.append(log.high_watermark)
        entered.set()
        assert let_go.wait(60)
        real(self, size)

    monkeypatch.setattr(bucket_log.Segment, "sync", slow)
    tickets = [log.append(checked(batch(0, 1)))]
    threads = [threading.Thread(target=log.acknowledge, args=tickets)]
    threads[0].start()
    assert entered.wait(60)
    tickets = [log.append(checked(batch(i, 1))) for i in range(1, 6)]
    threads += [threading.Thread(target=log.acknowledge, args=(ticket,)) for ticket in tickets]
    for thread in threads[1:]:
        thread.start()
    let_go.set()
    for thread in threads:
        thread.join(60)
    # Two waits for six appends; after the first only what was written before it began is readable.
    assert seen == [0, 1]
    assert (log.durable_offset, log.high_watermark) == (6, 6)


def test_a_segment_is_on_the_device_before_the_next_one_is_and_that_before_its_records(tmp_path, monkeypatch):
    log = open_log(tmp_path, options=SMALL)
    events = []
    for name in ("fsync_file", "fsync_folder"):
        real = getattr(files, name)

        def recorded(what, real=real, name=name):
            real(what)
            sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.log"))]
            events.append((name, len(sizes), sizes[-1] == 0))

        monkeypatch.setattr(files, name, recorded)
    while len(log.segments) < 2:
        append(log, log.end, 1)
    assert events == [("fsync_file", 1, False), ("fsync_folder", 2, True)]
    assert log.durable_offset == log.end - 1


@pytest.mark.parametrize("point", ["tablet.append.before_write", "tablet.append.after_write"])
@pytest.mark.parametrize("kind", ["enospc", "eio"])
def test_a_full_disk_refuses_appends_keeps_reads_and_heals(tmp_path, point, kind):
    log = open_log(tmp_path)
    append(log, 0, 2, writer_id=1, sequence=0)
    size = next(tmp_path.glob("*.log")).stat().st_size
    failpoints.arm(point, kind)
    with pytest.raises(StorageError, match="nothing was appended"):
        append(log, 2, 2, writer_id=1, sequence=1)
    assert (log.end, log.stopped, next(tmp_path.glob("*.log")).stat().st_size) == (2, None, size)
    assert [record.id for record in read_all(log)] == [0, 1]
    failpoints.disarm()
    assert append(log, 2, 2, writer_id=1, sequence=1).base_offset == 2
    assert [record.id for record in read_all(open_log(tmp_path))] == [0, 1, 2, 3]


def test_a_short_write_is_finished(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: real(fd, [memoryview(b"".join(buffers))[:20]], at))
    log.append(checked(batch(0, 3), batch(3, 3)))
    assert [record.id for record in read_all(log)] == list(range(6))


def test_a_short_write_that_then_fails_is_cut_off(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    append(log, 0, 1)
    size = next(tmp_path.glob("*.log")).stat().st_size
    real = os.pwritev

    def short(fd, buffers, at):
        real(fd, [memoryview(b"".join(buffers))[:60]], at)
        return 60

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", short)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match="No space left"):
        append(log, 1, 1)
    assert next(tmp_path.glob("*.log")).stat().st_size == size
    monkeypatch.undo()
    append(log, 1, 1)
    assert [record.id for record in read_all(open_log(tmp_path))] == [0, 1]


def test_a_failed_write_that_cannot_be_cut_off_stops_the_log(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    append(log, 0, 1)

    def failing(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", failing)
        failpoints.arm("tablet.append.after_write", "eio")
        with pytest.raises(StorageError, match="could not be cut off"):
            append(log, 1, 1)
        failpoints.disarm()
    with pytest.raises(StorageError, match="cannot be written"):
        append(log, 1, 1)
    assert [record.id for record in read_all(log)] == [0]


@pytest.mark.parametrize("options", [OPTIONS, DURABLE])
def test_after_a_failed_fsync_the_log_is_never_written_again(tmp_path, options):
    log = open_log(tmp_path, options=options)
    append(log, 0, 2)
    log.sync()
    failpoints.arm("tablet.flush.before", "eio")
    appended = log.append(checked(batch(2, 1)))
    with pytest.raises(StorageError, match="fsync failed"):
        log.sync(appended.ticket)
    failpoints.disarm()
    size = next(tmp_path.glob("*.log")).stat().st_size
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be written"):
            append(log, 3, 1)
        with pytest.raises(StorageError, match="fsync failed"):
            log.sync()
    assert next(tmp_path.glob("*.log")).stat().st_size == size
    assert log.durable_offset == 2
    assert "fsync failed" in str(log.stopped)
    assert [record.id for record in read_all(log)] == ([0, 1] if options.fsync else [0, 1, 2])
    log.close()


def test_after_a_failed_fsync_nothing_is_called_durable_whatever_stopped_the_log_before(tmp_path):
    """Damage that a reader found stops it too: what was appended before is still made durable, but not after a failure."""
    log = open_log(tmp_path, options=DURABLE)
    first, second = log.append(checked(batch(0, 1))), log.append(checked(batch(1, 1)))
    log.stop_for(CorruptDataError("a flipped bit"))
    log.acknowledge(first)
    assert log.durable_offset == 2
    log.acknowledge(second)
    log.close()

    log = open_log(tmp_path, options=DURABLE)
    third = log.append(checked(batch(2, 1)))
    log.stop_for(CorruptDataError("a flipped bit"))
    failpoints.arm("tablet.flush.before", "eio@1")
    for _ in range(2):  # the second time the device would not refuse any more
        with pytest.raises(StorageError, match="fsync failed"):
            log.acknowledge(third)
    assert (log.durable_offset, log.high_watermark) == (2, 2)
    assert isinstance(log.stopped, CorruptDataError)
    assert list(tmp_path.glob("fsync-failed"))


def test_a_log_that_was_closed_touches_no_file_in_its_folder(tmp_path):
    """The folder may be another log's by then, or be gone with its table."""
    log = open_log(tmp_path, options=DURABLE)
    appended = log.append(checked(batch(0, 1)))
    log.close(save=False)
    shutil.rmtree(tmp_path)
    with pytest.raises(NotLeaderError, match="was closed"):
        log.acknowledge(appended)
    assert log.stopped is None


def test_after_a_restart_the_pages_of_a_failed_fsync_are_written_again(tmp_path):
    log = open_log(tmp_path)
    append(log, 0, 2)
    failpoints.arm("tablet.flush.before", "eio")
    with pytest.raises(StorageError):
        log.flush()
    failpoints.disarm()
    before = next(tmp_path.glob("*.log")).stat().st_ino
    log.close()
    log = open_log(tmp_path)
    assert next(tmp_path.glob("*.log")).stat().st_ino != before
    append(log, 2, 1)
    assert [record.id for record in read_all(log)] == [0, 1, 2]
    assert not list(tmp_path.glob("fsync-failed"))


def _append_many(log, count):
    for _ in range(count):
        append(log, log.end, 1)


def test_a_roll_that_finds_the_disk_full_leaves_the_log_as_it_was(tmp_path):
    log = open_log(tmp_path, options=SMALL)
    while len(log.segments) < 2:
        append(log, log.end, 1)
    failpoints.arm("tablet.roll.before", "enospc")
    with pytest.raises(StorageError, match="no new segment"):
        _append_many(log, 100)
    end = log.end
    failpoints.disarm()
    append(log, end, 1)
    assert [record.id for record in read_all(open_log(tmp_path, options=SMALL))] == list(range(end + 1))


def test_a_closed_log_is_not_written(tmp_path):
    log = open_log(tmp_path)
    log.close()
    log.close()
    with pytest.raises(NotLeaderError, match="was closed"):
        append(log, 0, 1)


# -- at random -------------------------------------------------------------------------------------------------------


def test_any_history_reads_like_the_list_it_is(tmp_path, seed):
    """Appends, retries, rolls, restarts clean and not, retention and lookups, against a list."""
    chance = random.Random(seed)
    clock = MockClock()
    options = LogOptions(1500, 100, chance.random() < 0.3, 10**9)
    log = open_log(tmp_path, clock, options)
    model: list[Record] = []
    sequences: dict[int, list[tuple[int, int, int]]] = {}
    start = 0
    for _ in range(400):
        match chance.choices(
            ["append", "retry", "reopen", "kill", "flush", "drop", "time", "read"], [9, 3, 1, 1, 2, 1, 4, 4]
        )[0]:
            case "append":
                clock.advance(chance.choice([0, 0, 1, 5]))
                writer_id, count = chance.randrange(3), chance.choice([0, 1, 1, 3, 20])
                known = sequences.setdefault(writer_id, [])
                base = start + len(model)
                appended = append(log, base, count, writer_id=writer_id, sequence=len(known))
                assert (appended.base_offset, appended.end_offset) == (base, base + count)
                known.append((base, base, count))
                model += [Record(base + i, clock.now_ms(), base + i) for i in range(count)]
            case "retry" if any(sequences.values()):
                writer_id, known = chance.choice([item for item in sequences.items() if item[1]])
                sequence = chance.randrange(max(0, len(known) - 5), len(known))
                first, base, count = known[sequence]
                again = append(log, first, count, writer_id=writer_id, sequence=sequence)
                assert (again.base_offset, again.end_offset) == (base, base + count)
            case "reopen" | "kill" as how:
                if how == "reopen":
                    log.close()
                log = open_log(tmp_path, clock, options)
            case "flush":
                log.checkpoint(durable=False) if chance.random() < 0.5 else log.flush()
            case "drop":
                bound = start + chance.randrange(len(model) + 1) if chance.random() < 0.7 else None
                log.drop_before(clock.now_ms() - chance.choice([-1, 0, 20]), bound)
                assert bound is None or log.start <= max(bound, start)
                model, start = model[log.start - start :], log.start
            case "time":
                time_ms = clock.now_ms() - chance.randrange(-2, 60)
                found = next((record for record in model if record.timestamp_ms >= time_ms), None)
                expected = (start + len(model), None) if found is None else (found.offset, found.timestamp_ms)
                assert log.reader.find_time(time_ms) == expected
            case "read":
                offset = start + chance.randrange(len(model) + 1)
                assert read_all(log, offset, chance.choice([1, 700, 5000])) == model[offset - start :]
        assert (log.start, log.end, log.high_watermark, log.stopped) == (start, start + len(model), log.end, None)
    assert read_all(log) == model

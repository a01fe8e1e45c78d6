"""Whatever a crash or a bad disk leaves of a bucket's files, what is read is a prefix of what was written, or refused."""

import os
import shutil
from itertools import pairwise

import pytest

from fluss_lab import failpoints, files
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    UnsupportedError,
)
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.tablet.tablet_kit import append, batch, checked, open_log, read_all, records_in

SEGMENTED = LogOptions(segment_bytes=1100, index_interval_bytes=64, fsync=False, writer_expiration_ms=3_600_000)
#: Where the timestamp lies in a batch's header: Fluss's layout leaves it out of the CRC.
TIME_BYTES = range(13, 21)
#: Where its format does: left out of the CRC too, so a batch that is whole otherwise is one of another format.
FORMAT_BYTE = 12


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bucket"


def _write(folder, options, *, batches, clean, checkpoint_after=None):
    """A log of batches of one or two records with advancing times; return its records and its files."""
    shutil.rmtree(folder, ignore_errors=True)
    clock = MockClock()
    log = open_log(folder, clock, options)
    for sequence in range(batches):
        append(log, log.end, 1 + sequence % 2, writer_id=3, sequence=sequence)
        clock.advance(300)  # so that a changed bit of a time may keep their order
        if sequence == checkpoint_after:
            log.checkpoint(durable=False)
    if clean:
        log.close()
    written = read_all(log)
    return written, {path.name: path.read_bytes() for path in folder.iterdir()}


def _put(folder, content):
    for path in folder.iterdir():
        if path.name not in content:
            path.unlink()
    for name, data in content.items():
        (folder / name).write_bytes(data)


def _readable(folder, options):
    """What a client gets: the records up to where it is refused, and whether the log can be written."""
    log = open_log(folder, MockClock(), options)
    found = []
    while len(found) < log.end - log.start:
        try:
            found += read_all(log, log.start + len(found), bytes_max=1)
        except (CorruptDataError, UnsupportedError, OffsetOutOfRangeError):
            break
        if log.stopped is None and len(found) + log.start == log.high_watermark:
            break
    for offset in range(log.start, log.start + len(found)):
        assert read_all(log, offset, bytes_max=1)[0].offset == offset
    return found, log


def _ends(data):
    """Where each batch of a segment ends."""
    ends, at = [], 0
    while at < len(data):
        at += int.from_bytes(data[at + 8 : at + 12], "little") + 12
        ends.append(at)
    return ends


def test_a_segment_cut_anywhere_reads_as_its_whole_batches_and_is_written_on(folder):
    written, content = _write(folder, SEGMENTED, batches=3, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    data = content[name]
    ends = _ends(data)
    for size in range(len(data)):
        _put(folder, {**content, name: data[:size]})
        whole = sum(end <= size for end in ends)
        found, log = _readable(folder, SEGMENTED)
        assert found == written[: len(found)]
        assert (log.stopped, log.end, (folder / name).stat().st_size) == (None, len(found), ([0, *ends])[whole])
        # The writer is where the log is: what was cut off is new, what is there is not.
        assert append(log, 0, 1, writer_id=3, sequence=whole).base_offset == len(found)
        with pytest.raises(OutOfOrderSequenceError):
            append(log, 0, 1, writer_id=3, sequence=whole + 2)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_segment_with_any_byte_flipped_is_never_read_wrong(folder, clean, mask):
    written, content = _write(folder, SEGMENTED, batches=3, clean=clean)
    name = next(name for name in content if name.endswith(".log"))
    data = content[name]
    starts = [0, *_ends(data)[:-1]]
    for at in range(len(data)):
        _put(folder, {**content, name: data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]})
        found, log = _readable(folder, SEGMENTED)
        start = max(start for start in starts if start <= at)
        if at - start in TIME_BYTES and not clean:
            # Behind the recovery point only their order speaks for them.
            assert [record.id for record in found] == [record.id for record in written[: len(found)]]
            assert all(a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(found))
        else:
            assert found == written[: len(found)]
            assert len(found) < len(written)
            # The last batch behind the recovery point may have been torn; all else is damage, and stays as it is.
            torn = not clean and start == starts[-1] and at - start != FORMAT_BYTE
            assert clean or (log.stopped is None) == torn
            assert torn or (folder / name).stat().st_size == len(data)
        # In one read, too, what is before the damage is right, and what is behind it is not served.
        again = open_log(folder, MockClock(), SEGMENTED)
        if again.end and start:
            assert again.reader.read(0, 1 << 20).next_offset <= again.end
            try:
                whole = records_in(b"".join(again.reader.read(0, 1 << 20).buffers))
            except (CorruptDataError, UnsupportedError):
                continue
            assert whole == written[: len(whole)] or (at - start in TIME_BYTES and not clean)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_cut_or_flipped_anywhere_changes_no_answer(folder, clean, suffix):
    written, content = _write(folder, SEGMENTED, batches=8, clean=clean, checkpoint_after=6)
    names = sorted(name for name in content if name.endswith(suffix))
    assert len(names) > 1
    for name in names:
        data = content[name]
        assert data
        damaged = [data[:size] for size in range(len(data))]
        damaged += [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(len(data))]
        for each in damaged:
            _put(folder, {**content, name: each})
            log = open_log(folder, MockClock(), SEGMENTED)
            assert read_all(log, bytes_max=1) == written
            for record in written:
                assert read_all(log, record.offset, bytes_max=1)[0] == record
                first = next(other for other in written if other.timestamp_ms >= record.timestamp_ms)
                assert log.reader.find_time(record.timestamp_ms) == (first.offset, first.timestamp_ms)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [False, True])
def test_a_recovery_point_cut_or_flipped_anywhere_changes_nothing(folder, clean):
    written, content = _write(folder, SEGMENTED, batches=5, clean=clean, checkpoint_after=2)
    data = content[recovery_point.FILE_NAME]
    damaged = [data[:size] for size in range(len(data))]
    damaged += [data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :] for at in range(len(data))]
    for each in damaged:
        _put(folder, {**content, recovery_point.FILE_NAME: each})
        log = open_log(folder, MockClock(), SEGMENTED)
        assert (read_all(log), log.stopped) == (written, None)
        assert append(log, 6, 1, writer_id=3, sequence=4).end_offset == log.end  # a retry of the last


def test_a_missing_recovery_point_or_index_is_made_again(folder):
    written, content = _write(folder, SEGMENTED, batches=8, clean=True)
    _put(folder, {name: data for name, data in content.items() if name.endswith(".log")})
    log = open_log(folder, MockClock(), SEGMENTED)
    assert read_all(log) == written
    log.close()
    kept = {path.name for path in folder.iterdir()}
    assert kept == set(content)


def test_damage_before_a_valid_batch_stops_the_bucket_with_a_message(folder):
    written, content = _write(folder, LogOptions(1 << 20, 64, False, 10**9), batches=6, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    data = bytearray(content[name])
    data[_ends(data)[2] + 100] ^= 1
    _put(folder, {name: bytes(data)})
    for _ in range(2):  # the same again after a restart
        log = open_log(folder)
        good = written[: log.end]
        assert log.end == 4
        assert read_all(log) == good
        assert "a valid batch at offset" in str(log.stopped)
        with pytest.raises(CorruptDataError, match=r"cannot be written.*CRC"):
            append(log, 0, 1)
        with pytest.raises(CorruptDataError, match="up to offset 4 only"):
            log.reader.read(4, 100)
        with pytest.raises(CorruptDataError, match="up to offset 4 only"):
            log.reader.read(5, 100)
        log.flush()
        log.close()
        assert (folder / name).read_bytes() == bytes(data)


@pytest.mark.parametrize("gap", [1, 37, 300, 5000, 1_100_000])
def test_a_valid_batch_is_found_behind_garbage_of_any_length(folder, gap):
    written, content = _write(folder, LogOptions(1 << 22, 64, False, 10**9), batches=4, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    data = content[name]
    at = _ends(data)[2]
    _put(folder, {name: data[:at] + b"\x00\xff" * (gap // 2) + b"\x01" * (gap % 2) + data[at:]})
    log = open_log(folder)
    assert log.stopped is not None
    assert read_all(log) == written[:4]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 5000, b"garbage" * 700])
def test_garbage_behind_the_last_batch_is_cut_off(folder, tail):
    written, content = _write(folder, SEGMENTED, batches=3, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    _put(folder, {name: content[name] + tail})
    log = open_log(folder)
    assert (read_all(log), log.stopped) == (written, None)
    assert (folder / name).stat().st_size == len(content[name])


def test_an_old_valid_batch_behind_the_end_is_no_reason_to_stop(folder):
    """What a reused block may hold: a batch of an offset that lies before the end cannot follow it."""
    written, content = _write(folder, LogOptions(1 << 20, 64, False, 10**9), batches=4, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    data = content[name]
    _put(folder, {name: data + b"\1" * 7 + data[: _ends(data)[0]]})
    log = open_log(folder)
    assert (read_all(log), log.stopped) == (written, None)


def test_bytes_missing_below_the_recovery_point_stop_the_bucket(folder):
    options = LogOptions(1 << 20, 64, False, 10**9)
    written, content = _write(folder, options, batches=6, clean=True)
    name = next(name for name in content if name.endswith(".log"))
    for cut in (1, 400, len(content[name])):
        _put(folder, {**content, name: content[name][:-cut]})
        log = open_log(folder, options=options)
        assert "was on the device up to" in str(log.stopped)
        assert read_all(log) == written[: log.end]
        assert (folder / name).read_bytes() == content[name][:-cut]  # evidence is not touched


def test_missing_segments_stop_the_bucket(folder):
    written, content = _write(folder, SEGMENTED, batches=12, clean=True)
    names = sorted(name for name in content if name.endswith(".log"))
    assert len(names) >= 3
    _put(folder, {name: data for name, data in content.items() if name != names[1]})
    log = open_log(folder, options=SEGMENTED)
    assert "expected a segment at offset" in str(log.stopped)
    assert read_all(log) == written[: int(names[1][:20])]
    _put(folder, {name: data for name, data in content.items() if name not in names})
    for _ in range(2):
        with pytest.raises(CorruptDataError, match=f"no segment is left .* up to offset {len(written)}"):
            open_log(folder, options=SEGMENTED)


def test_a_torn_segment_before_another_one_is_damage(folder):
    written, content = _write(folder, SEGMENTED, batches=12, clean=False)
    names = sorted(name for name in content if name.endswith(".log"))
    logs = {name: data for name, data in content.items() if name in names}
    _put(folder, {**logs, names[0]: logs[names[0]][:-1]})
    log = open_log(folder, options=SEGMENTED)
    assert "another segment lies behind it" in str(log.stopped)
    assert read_all(log) == written[: log.end]


def test_a_segment_swapped_for_another_is_not_served(folder):
    written, content = _write(folder, SEGMENTED, batches=12, clean=True)
    names = sorted(name for name in content if name.endswith(".log"))
    _put(folder, {**content, names[0]: content[names[1]], names[1]: content[names[0]]})
    found, log = _readable(folder, SEGMENTED)
    assert found == written[: len(found)]
    assert log.stopped is not None


def test_damage_that_a_reader_finds_stops_the_bucket(folder):
    _, content = _write(folder, SEGMENTED, batches=3, clean=True)
    name = next(name for name in content if name.endswith(".log"))
    data = bytearray(content[name])
    data[_ends(data)[0]] ^= 4  # a base offset, which no CRC covers
    _put(folder, {**content, name: bytes(data)})
    log = open_log(folder, options=SEGMENTED)
    assert log.stopped is None
    assert log.reader.read(0, 1 << 20).next_offset == 1
    with pytest.raises(CorruptDataError, match="expected a batch at offset 1"):
        log.reader.read(1, 1 << 20)
    with pytest.raises(CorruptDataError, match="cannot be written"):
        append(log, 5, 1)
    assert log.reader.read(0, 1).next_offset == 1


def test_a_batch_that_lost_its_only_record_is_not_passed_over(folder):
    """Its count says none, so the next offset is looked for behind it: in a full segment that would be a hole."""
    _, content = _write(folder, LogOptions(700, 64, False, 10**9), batches=9, clean=True)
    names = sorted(name for name in content if name.endswith(".log"))
    for name in names:
        start = [0, *_ends(content[name])][-2]
        data = bytearray(content[name])
        if data[start + 44] != 1:
            continue
        data[start + 44] = 0
        _put(folder, {**content, name: bytes(data)})
        log = open_log(folder)
        offset = int.from_bytes(data[start : start + 8], "little")
        with pytest.raises(CorruptDataError, match=f"none at {offset}"):
            log.reader.read(offset, 1 << 20)
        with pytest.raises(CorruptDataError):
            log.reader.available(offset)
        return
    pytest.fail("no segment ends with a batch of one record")


def test_recovery_reads_only_what_lies_behind_the_recovery_point(folder):
    """Told by damage that it does not see: it is the reader who meets it."""
    _, content = _write(folder, SEGMENTED, batches=3, clean=False, checkpoint_after=1)
    name = next(name for name in content if name.endswith(".log"))
    data = bytearray(content[name])
    data[100] ^= 1
    _put(folder, {**content, name: bytes(data)})
    assert open_log(folder, options=SEGMENTED).stopped is None
    _put(folder, {name: bytes(data)})
    assert open_log(folder, options=SEGMENTED).stopped is not None


def test_what_recovery_found_is_durable_before_it_is_served(folder, monkeypatch):
    written, content = _write(folder, SEGMENTED, batches=3, clean=False)
    synced, real = [], files.fsync_file

    def recorded(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(files, "fsync_file", recorded)
    _put(folder, content)
    log = open_log(folder, options=SEGMENTED)
    assert synced == [str(path) for path in folder.glob("*.log")]
    assert (log.durable_offset, read_all(log)) == (len(written), written)
    log.close()
    synced.clear()
    open_log(folder, options=SEGMENTED)
    assert synced == []


def test_what_a_crash_left_half_done_is_removed(folder):
    written, content = _write(folder, SEGMENTED, batches=3, clean=True)
    left = {".recovery-point.x1": b"half", "00000000000000000999.index": b"x", "00000000000000000999.timeindex": b"x"}
    _put(folder, {**content, **left})
    assert read_all(open_log(folder, options=SEGMENTED)) == written
    assert {path.name for path in folder.iterdir()} == set(content)


def test_recovery_can_fail_and_be_repeated(folder):
    written, content = _write(folder, SEGMENTED, batches=3, clean=False)
    name = next(name for name in content if name.endswith(".log"))
    _put(folder, {**content, name: content[name] + b"torn"})
    failpoints.arm("tablet.recover.before", "eio")
    with pytest.raises(OSError, match="failpoint"):
        open_log(folder, options=SEGMENTED)
    failpoints.disarm()
    log = open_log(folder, options=SEGMENTED)
    assert (read_all(log), log.stopped) == (written, None)


def test_a_recovery_point_that_cannot_be_written_is_tried_again(folder):
    folder.mkdir()
    log = open_log(folder)
    append(log, 0, 1)
    failpoints.arm("tablet.checkpoint.before", "enospc")
    with pytest.raises(FlussError, match="no recovery point"):
        log.checkpoint(durable=False)
    assert (log.durable_offset, recovery_point.load(folder)) == (1, None)
    failpoints.disarm()
    log.flush()
    known = recovery_point.load(folder)
    assert known is not None
    assert known.recovery_point == 1


def test_the_recovery_point_follows_without_being_asked(folder):
    clock = MockClock()
    log = open_log(folder, clock)
    append(log, 0, 1)
    log.flush()
    assert recovery_point.load(folder) is None
    clock.advance(10_000)
    log.flush()
    known = recovery_point.load(folder)
    assert known is not None
    assert known.recovery_point == 1
    before = (folder / recovery_point.FILE_NAME).stat().st_ino
    clock.advance(60_000)
    log.flush()  # nothing new
    assert (folder / recovery_point.FILE_NAME).stat().st_ino == before


def test_a_log_whose_records_were_all_dropped_keeps_its_end(folder):
    clock = MockClock()
    log = open_log(folder, clock, SEGMENTED)
    for sequence in range(10):
        append(log, sequence, 1, writer_id=3, sequence=sequence)
    assert log.drop_before(clock.now_ms() + 1, None) > 0
    assert (log.start, log.end, len(log.segments)) == (10, 10, 1)
    for clean in (False, True):
        log.close() if clean else None
        log = open_log(folder, clock, SEGMENTED)
        assert (log.start, log.end, log.stopped) == (10, 10, None)
    assert append(log, 10, 1, writer_id=3, sequence=10).base_offset == 10
    assert append(log, 9, 1, writer_id=3, sequence=9).base_offset == 9  # a retry is known though its record is gone


def test_a_payload_of_several_batches_torn_anywhere_leaves_its_first_ones(folder):
    options = LogOptions(1 << 20, 64, False, 10**9)
    folder.mkdir()
    log = open_log(folder, options=options)
    log.append(checked(*(batch(i, 1, writer_id=2, sequence=i) for i in range(3))))
    path = next(folder.glob("*.log"))
    data, ends = path.read_bytes(), _ends(path.read_bytes())
    for size in range(0, len(data), 7):
        _put(folder, {path.name: data[:size]})
        again = open_log(folder, options=options)
        there = sum(end <= size for end in ends)
        assert again.end == there
        # The retry of the whole payload completes it.
        appended = again.append(checked(*(batch(i, 1, writer_id=2, sequence=i) for i in range(3))))
        assert (appended.base_offset, appended.end_offset) == (0, 3)
        assert [record.id for record in read_all(again)] == [0, 1, 2]

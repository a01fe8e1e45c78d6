"""Whatever a crash or a bad disk leaves of a primary-key bucket, its rows and its changelog agree, or it is refused."""

import logging
import os
import random
import shutil
import threading
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from fluss_lab import failpoints, files
from fluss_lab.errors import CorruptDataError, FlussError, StorageError
from fluss_lab.model import make_descriptor
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.kv.row_memory import RowMemory
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket, RowOptions
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.log import previous_offsets
from fluss_lab.server.tablet.log.bucket_log import BucketLog
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.forked import run_forked
from tests.unit.server.tablet import kv_crash
from tests.unit.server.tablet.kv_crash import OPTIONS, WRITER_ID, changes
from tests.unit.server.tablet.kv_kit import (
    AFTER,
    DELETE,
    KEY,
    TABLE_ID,
    TYPES,
    KvTablet,
    Model,
    events_in,
    put_batch,
    upserts,
)

pytestmark = pytest.mark.slow

DESCRIPTOR = make_descriptor(TYPES, primary_key=KEY)
SCHEMA = DESCRIPTOR.schema.arrow_schema
TABLE = RegisteredTable(TABLE_ID, TablePath("db", "people"), 1, DESCRIPTOR, {1: SCHEMA})
BUCKET = TableBucket(TABLE_ID, None, 0)
KEPT = LogOptions(segment_bytes=1200, index_interval_bytes=64, fsync=False, writer_expiration_ms=3_600_000)
POINTS = [
    "tablet.previous.before_write",
    "tablet.previous.after_write",
    "tablet.append.before_write",
    "tablet.append.after_write",
    "tablet.roll.before",
    "tablet.flush.before",
    "tablet.checkpoint.before",
    "tablet.recover.before",
]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bucket"


def _open(folder, options=KEPT):
    (folder / "log").mkdir(parents=True, exist_ok=True)
    logger = BucketLogger(logging.getLogger("tests"), "db.people", None, BUCKET)
    log = BucketLog(folder / "log", options, HandlePool(8), MockClock(), logger, threading.Semaphore(8), changelog=True)
    rows = RowOptions(folder / "remote", 2, 1 << 25, RowMemory(folder / "rows", 1 << 20))
    return log, KvBucket.open(TABLE, log, BUCKET, None, rows, logger)


def _put(log, kv, rows, kinds, sequence):
    appended = kv.put([put_batch(rows, kinds, writer_id=WRITER_ID, sequence=sequence)], ())
    log.acknowledge(appended)
    return appended


def _written(folder, batches, options=KEPT):
    """A bucket of some batches; return its files, and the model after each number of records at which one ended."""
    log, kv = _open(folder, options)
    model = Model()
    for sequence in range(batches):
        rows, kinds = [{"id": sequence % 2, "name": f"b{sequence}", "score": 1}], [AFTER]
        if sequence == 3:
            rows, kinds = [{"id": 1}, {"id": 7, "name": "x"}], [DELETE, AFTER]
        _put(log, kv, rows, kinds, sequence)
        for row, kind in zip(rows, kinds, strict=True):
            model.delete(row["id"]) if kind == DELETE else model.upsert(row)
    log.sync()
    ends = {0} | {each.base_offset for each in _headers(log)} | {log.end}
    return {path.name: path.read_bytes() for path in (folder / "log").iterdir()}, model, ends


def _headers(log):
    fetched = log.reader.read(log.start, 1 << 20)
    return [header for buffer in fetched.buffers for header, _ in split_headers(buffer)]


def _refill(folder, content):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    for name, data in content.items():
        (folder / "log" / name).write_bytes(data)


def _events(log, *, with_previous=True):
    """All events that a client gets, each fetch by itself; and how many were refused for their previous offsets alone."""
    found, offset, refused = [], log.start, 0
    while offset < log.high_watermark:
        fetched = log.reader.read(offset, 1)
        previous = None
        if with_previous:
            try:
                previous = log.reader.previous(offset, fetched.next_offset)
            except CorruptDataError:
                refused += 1
        found += events_in(b"".join(fetched.buffers), SCHEMA, previous)
        offset = fetched.next_offset
    return found, refused


def _check(log, kv, model, ends):
    """What is there is what was written up to the end of some batch, or the rows are refused; nothing is ever wrong."""
    events = []
    try:
        events, refused = _events(log)
        assert refused == 0
    except CorruptDataError:
        assert log.stopped is not None
    assert events == model.events[: len(events)]
    if log.stopped is not None:
        with pytest.raises(FlussError):
            kv.view()
        return False
    assert len(events) == log.end
    assert log.end in ends
    expected = Model.of(model.events[: log.end]).live
    found = {
        row["id"]: (int(offset), tuple(row.values()))
        for rows, offsets, _ in kv.view().batches()
        for row, offset in zip(rows.to_pylist(), offsets, strict=True)
    }
    assert found == expected
    assert kv.store.log_offset == log.end
    return True


#: Every so many bytes of the log, which is the long one; all of them take minutes.
SOME_OR_ALL = pytest.mark.parametrize(
    ("suffix", "step"),
    [(".log", 7), (".prev", 1), (".prevcrc", 1), pytest.param(".log", 1, marks=pytest.mark.campaign)],
)


def _places(data, step, seed):
    """Places in a file: every so many bytes from a random one on, and beside the edges of batches."""
    edges = [0, len(data)]
    if step > 1:
        edges += accumulate(header.size for header, _ in split_headers(data))
    beside = {edge + more for edge in edges for more in (-1, 0, 1)}
    return sorted({*range(random.Random(seed).randrange(step), len(data), step), *beside & {*range(len(data))}})


@SOME_OR_ALL
def test_a_file_cut_anywhere_leaves_rows_and_changelog_that_agree(folder, suffix, step, seed):
    content, model, ends = _written(folder, 5, LogOptions(1 << 20, 64, False, 3_600_000))
    name = next(name for name in content if name.endswith(suffix))
    for size in _places(content[name], step, seed):
        _refill(folder, {**content, name: content[name][:size]})
        log, kv = _open(folder)
        assert _check(log, kv, model, ends)
        if suffix != ".log":
            assert log.end == len(model.events)
        # What was cut off is new, and is put again.
        appended = _put(log, kv, [{"id": 50, "name": "on", "score": 0}], None, len(_headers(log)))
        assert appended.base_offset == log.end - 1
        assert _events(log)[1] == 0


@SOME_OR_ALL
def test_a_file_flipped_anywhere_shows_no_wrong_row(folder, suffix, step, seed):
    content, model, ends = _written(folder, 5, LogOptions(1 << 20, 64, False, 3_600_000))
    name = next(name for name in content if name.endswith(suffix))
    stopped = 0
    for position in _places(content[name], step, seed):
        data = bytearray(content[name])
        data[position] ^= 1 << position % 8
        _refill(folder, {**content, name: bytes(data)})
        log, kv = _open(folder)
        stopped += not _check(log, kv, model, ends)
    assert (stopped > 100 // step) == (suffix == ".log")


def test_files_of_any_segment_may_be_lost_or_torn_beside_the_log(folder):
    content, model, ends = _written(folder, 12)
    beside = [name for name in content if name.endswith((".prev", ".prevcrc"))]
    assert len(beside) > 4
    for name in beside:
        for data in (None, b"", content[name][:7], content[name] + b"rest of a write that failed", bytes(500)):
            changed = {**content, name: data}
            _refill(folder, {key: value for key, value in changed.items() if value is not None})
            log, kv = _open(folder)
            assert _check(log, kv, model, ends)
            assert log.end == len(model.events)
    # They were mended on the disk, so that the next start finds nothing to mend.
    log.close()
    assert {name: (folder / "log" / name).read_bytes() for name in beside} == {name: content[name] for name in beside}


def test_previous_offsets_that_are_whole_and_others_than_the_replays_stop_the_bucket(folder):
    content, _, _ = _written(folder, 5)
    name = min(name for name in content if name.endswith(".prev"))
    values, marks = content[name], content[name + "crc"]
    other = values[:8] + (5).to_bytes(8, "little") + values[16:]
    first = int.from_bytes(marks[4:8], "little")
    assert first == 1
    mark = previous_offsets._mark(1, other[8:16])
    assert mark[:8] == marks[12:20]
    _refill(folder, {**content, name: other, name + "crc": marks[:12] + mark + marks[24:]})
    log, kv = _open(folder)
    assert isinstance(log.stopped, CorruptDataError)
    assert "do not agree" in str(log.stopped)
    with pytest.raises(CorruptDataError):
        kv.view()
    with pytest.raises(CorruptDataError):
        _put(log, kv, upserts(0, 1), None, 5)
    assert _events(log, with_previous=False)[0]


# -- snapshots ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapped(tmp_path):
    """A bucket with two snapshots and more behind them, and its model."""
    tablet, model = KvTablet(tmp_path, log__segment__file_size="2kb").open(0), Model()
    for sequence in range(30):
        rows, kinds = changes(sequence)
        tablet.put(rows, kinds, writer_id=WRITER_ID, sequence=sequence)
        for row, kind in zip(rows, kinds, strict=True):
            model.delete(row["id"]) if kind == DELETE else model.upsert(row)
        if sequence in {12, 20}:
            tablet.service.snapshot_now(tablet.bucket().id)
    return tablet, model


def test_a_restart_takes_the_newest_snapshot_and_the_log_behind_it(snapped):
    tablet, model = snapped
    offsets = [each.log_offset for each in _manifests(tablet)]
    again = tablet.reopen(clean=False)
    model.check(again)
    assert 0 < offsets[1] < offsets[0] < again.bucket().log.end
    rows, kinds = changes(29)
    assert again.put(rows, kinds, writer_id=WRITER_ID, sequence=29)[1] == len(model.events)


def _manifests(tablet):
    return tablet.bucket().kv.snapshots._manifests


def test_a_broken_snapshot_falls_back_to_the_one_before_and_then_to_the_log(snapped):
    tablet, model = snapped
    for _ in range(3):
        live = sorted(path for path in tablet.folder.rglob("*.live"))
        if live:
            live[-1].write_bytes(b"\0" * live[-1].stat().st_size)
            live[-1].rename(live[-1].with_suffix(".seen"))
        tablet = tablet.reopen(clean=False)
        model.check(tablet)
    assert tablet.bucket().kv.snapshots.latest is None


def test_the_log_is_kept_as_far_as_the_oldest_snapshot_needs_it(snapped):
    tablet, model = snapped
    floor = min(each.log_offset for each in _manifests(tablet))
    tablet.clock.advance(10**10)
    assert tablet.service.apply_retention() > 0
    log = tablet.bucket().log
    assert 0 < log.start <= floor < log.start + 20
    tablet = tablet.reopen(clean=False)
    assert tablet.changelog(log.start) == model.events[log.start :]
    model.check_rows(tablet)


def test_nothing_of_the_log_is_dropped_before_there_is_a_snapshot(tmp_path):
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0)
    for turn in range(20):
        tablet.put(upserts(0, 5, f"t{turn}"))
    tablet.clock.advance(10**10)
    assert tablet.service.apply_retention() == 0
    tablet.service.snapshot_now(tablet.bucket().id)
    assert tablet.service.apply_retention() > 3


def test_what_the_lake_can_not_replay_goes_like_the_rest_of_a_changelog(tmp_path):
    """First tiered from a snapshot, or replayed from later on: what is before is in the lake as rows."""
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0, table__datalake__enabled="true")
    for turn in range(20):
        tablet.put(upserts(0, 5, f"t{turn}"))
    tablet.service.snapshot_now(tablet.bucket().id)
    tablet.clock.advance(10**10)
    assert tablet.service.apply_retention() == 0  # the lake holds nothing
    reported = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=tablet.bucket().id.table_id, bucket_id=0, snapshot_id=1, log_start_offset=90, log_end_offset=100
    )
    tablet.service.set_lake_offsets([reported])
    assert tablet.service.apply_retention() > 0
    assert 0 < tablet.bucket().log.start <= 100


def test_without_the_snapshots_that_a_shortened_log_needs_the_rows_are_refused(snapped):
    tablet, _ = snapped
    tablet.clock.advance(10**10)
    tablet.service.apply_retention()
    shutil.rmtree(tablet.folder / "remote" / "kv")
    tablet = tablet.reopen(clean=False)
    with pytest.raises(CorruptDataError, match=r"the log begins at .*--skip-corrupt"):
        tablet.lookup(1)
    with pytest.raises(CorruptDataError, match=r"the log begins at .*--skip-corrupt"):
        tablet.put(upserts(0, 1))
    assert tablet.changelog(tablet.bucket().log.start, previous=False, max_fetch_bytes=1)
    assert "the log begins at" in tablet.describe()[0].error_message


def test_a_log_that_ends_before_the_snapshot_is_refused(snapped):
    tablet, _ = snapped
    folder = tablet.bucket().log._folder
    segments = sorted(path for path in folder.glob("*.log"))
    tablet = tablet.reopen()  # closed cleanly: with a snapshot at the end
    tablet.service.close()
    for path in segments[2:]:
        path.unlink()
    (folder / "recovery-point").unlink()
    tablet = tablet.reopen(clean=False)
    with pytest.raises(CorruptDataError, match="missing"):
        tablet.lookup(1)


def test_writers_are_known_from_the_snapshot_where_the_log_is_gone(snapped):
    tablet, _ = snapped
    tablet.clock.advance(1_000_000)
    tablet.put(upserts(3, 1), writer_id=77, sequence=0)
    known = tablet.put(upserts(3, 2), writer_id=77, sequence=1)
    tablet.service.snapshot_now(tablet.bucket().id)
    for turn in range(40):
        tablet.put(upserts(0, 5, f"t{turn}"))
    tablet.service.snapshot_now(tablet.bucket().id)
    tablet.put(upserts(0, 5, "last"))
    tablet.service.snapshot_now(tablet.bucket().id)
    tablet.clock.advance(1_000_000_000)
    assert tablet.service.apply_retention() > 0
    assert tablet.bucket().log.start > known[1]
    (tablet.bucket().log._folder / "recovery-point").unlink()
    tablet = tablet.reopen(clean=False)
    assert tablet.put(upserts(3, 2), writer_id=77, sequence=1) == known
    assert tablet.put(upserts(3, 1), writer_id=77, sequence=2)


@pytest.mark.parametrize("suffix", [".prev", ".prevcrc"])
def test_damage_below_the_snapshot_is_refused_where_it_is_asked_for_and_never_answered_wrong(snapped, suffix):
    tablet, model = snapped
    path = min(tablet.bucket().log._folder.glob(f"*{suffix}"))
    data = path.read_bytes()
    refused = 0
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 0x81
        path.write_bytes(bytes(changed))
        tablet = tablet.reopen(clean=False)
        log = tablet.bucket().log
        assert log.stopped is None
        events, few = _events(log)
        refused += few
        assert [event[:3] for event in events] == [event[:3] for event in model.events]
        assert all(event.previous in {None, right.previous} for event, right in zip(events, model.events, strict=True))
        assert few <= 1, "one flipped byte hurts no batch but its own"
    assert refused


# -- durability --------------------------------------------------------------------------------------------------------


def test_previous_offsets_are_durable_before_a_snapshot_and_when_a_segment_is_rolled(tmp_path, monkeypatch):
    tablet = KvTablet(tmp_path).open(0)
    log, synced = tablet.bucket().log, set()
    fsync = files.fsync_file

    def watched(fd):
        synced.add(Path(os.readlink(f"/proc/self/fd/{fd}")).suffix)
        fsync(fd)

    monkeypatch.setattr(files, "fsync_file", watched)
    tablet.put(upserts(0, 3))
    tablet.service.snapshot_now(tablet.bucket().id)
    assert synced >= {".log", ".prev", ".prevcrc"}
    tablet.put(upserts(0, 1, "k"))
    # What a killed server wrote may be in the cache only.
    tablet = tablet.reopen(clean=False)
    log = tablet.bucket().log
    synced.clear()
    log.sync()
    assert synced >= {".prev", ".prevcrc"}
    synced.clear()
    tablet.put(upserts(0, 3, "m"))
    with log.lock:
        log._roll()
    assert synced >= {".log", ".prev", ".prevcrc"}


def test_with_fsync_a_put_is_acknowledged_when_it_is_durable(tmp_path):
    tablet = KvTablet(tmp_path, log__durability="fsync").open(0)
    tablet.put(upserts(0, 3))
    assert tablet.bucket().log.durable_offset == 3
    failpoints.arm("tablet.flush.before", "eio")
    with pytest.raises(StorageError):
        tablet.put(upserts(0, 3, "m"))
    failpoints.disarm()
    with pytest.raises(StorageError):
        tablet.lookup(1)


def test_previous_offsets_are_rebuilt_beside_a_put_that_is_not_durable_yet(tmp_path):
    """It comes while what was put before is being made durable; its own previous offsets are kept."""
    tablet = KvTablet(tmp_path, log__durability="fsync").open(0)
    tablet.put(upserts(0, 3))
    tablet.put(upserts(0, 3, "m"))
    kv, log = tablet.bucket().kv, tablet.bucket().log
    expected = kv.previous(0, 9)
    next(tmp_path.rglob("*.prev")).write_bytes(b"")
    kv.put([put_batch(upserts(0, 1, "o"))], ())
    failpoints.arm("tablet.flush.after", lambda: kv.put([put_batch(upserts(1, 1, "o"))], ()))
    assert kv.previous(0, 9) == expected
    failpoints.disarm()
    log.sync()
    assert np.frombuffer(log.reader.previous(9, 11), "<i8").tolist() == [4, 4]


def test_an_fsync_of_previous_offsets_that_fails_stops_the_bucket(tmp_path, monkeypatch):
    tablet = KvTablet(tmp_path).open(0)
    tablet.put(upserts(0, 3))
    fsync = files.fsync_file

    def failing(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".prev"):
            raise OSError(5, "Input/output error")
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync_file", failing)
        with pytest.raises(StorageError):
            tablet.bucket().log.sync()
    with pytest.raises(StorageError, match="fsync"):
        tablet.put(upserts(0, 3))
    assert tablet.lookup(1)[0]
    again = tablet.reopen(clean=False)
    assert len(again.changelog()) == 3
    again.put(upserts(0, 3, "m"))


# -- kills -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_server_has_done_each_acknowledged_batch_once(folder, point, seed):
    folder.mkdir()
    assert run_forked(kv_crash.main, folder, point, seed, 3) == 0
    path = folder / "acked"
    acked = [int(line) for line in path.read_text().split()] if path.exists() else []
    assert acked == list(range(len(acked)))
    tablet = KvTablet(folder / "server", **OPTIONS).open(0)
    model = Model()
    for sequence in range(len(acked)):
        for row, kind in zip(*changes(sequence), strict=True):
            model.delete(row["id"]) if kind == DELETE else model.upsert(row)
    if tablet.bucket().log.end != len(model.events):
        # The batch under way was written, and nobody heard of it.
        for row, kind in zip(*changes(len(acked)), strict=True):
            model.delete(row["id"]) if kind == DELETE else model.upsert(row)
    model.check(tablet)
    # And the writer goes on with the batch that it does not know to be done.
    base, end = tablet.put(*changes(len(acked)), writer_id=WRITER_ID, sequence=len(acked))
    assert end >= base
    tablet.service.close()

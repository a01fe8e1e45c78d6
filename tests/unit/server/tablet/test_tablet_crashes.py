"""kill -9 at every failpoint of the tablet, several lives in a row: nothing acknowledged is lost, nothing is twice."""

import random
import threading
from itertools import pairwise

import pytest

from fluss_lab.errors import OutOfOrderSequenceError
from tests.unit.server.forked import run_forked
from tests.unit.server.tablet import tablet_crash
from tests.unit.server.tablet.tablet_crash import OPTIONS, WRITER_ID
from tests.unit.server.tablet.tablet_kit import append, open_log, read_all

pytestmark = pytest.mark.slow

POINTS = [
    "tablet.append.before_write",
    "tablet.append.after_write",
    "tablet.roll.before",
    "tablet.flush.before",
    "tablet.flush.after",
    "tablet.checkpoint.before",
    "tablet.recover.before",
    "tablet.retention.before_delete",
]


@pytest.mark.parametrize("point", POINTS)
def test_nothing_acknowledged_is_lost(tmp_path, point, seed):
    assert run_forked(tablet_crash.main, tmp_path, point, seed, 3) == 0
    log = open_log(tmp_path / "log", options=OPTIONS)
    assert log.stopped is None
    path = tmp_path / "acked"
    lines = path.read_text().splitlines() if path.exists() else []
    acked = [tuple(map(int, line.split())) for line in lines]
    # Batch n has one record, so exactly once means that it lies at offset n, whenever it was acknowledged.
    assert all(sequence == offset for sequence, offset in acked)
    assert log.end >= max((offset + 1 for _, offset in acked), default=0)
    records = read_all(log)
    assert [(record.offset, record.id) for record in records] == [(n, n) for n in range(log.start, log.end)]
    assert all(earlier.timestamp_ms <= later.timestamp_ms for earlier, later in pairwise(records))
    if log.end:
        assert append(log, log.end - 1, 1, writer_id=WRITER_ID, sequence=log.end - 1).base_offset == log.end - 1
        with pytest.raises(OutOfOrderSequenceError):
            append(log, 0, 1, writer_id=WRITER_ID, sequence=log.end + 1)


@pytest.mark.parametrize("fsync", [False, True])
def test_writers_at_once_keep_each_their_order(tmp_path, seed, fsync):
    """Four writers with retries, beside flushes, checkpoints, rolls, retention of nothing, and readers."""
    options = OPTIONS.__class__(4000, 256, fsync, 10**12)
    log = open_log(tmp_path, options=options)
    done, problems = threading.Event(), []

    def guarded(work):
        def run():
            try:
                work()
            except BaseException as error:
                problems.append(error)

        return threading.Thread(target=run)

    def write(writer_id):
        chance = random.Random(seed + writer_id)
        for sequence in range(60):
            first = append(log, writer_id * 1000 + sequence, 1, writer_id=writer_id, sequence=sequence)
            if chance.random() < 0.3:
                again = append(log, writer_id * 1000 + sequence, 1, writer_id=writer_id, sequence=sequence)
                assert (again.base_offset, again.end_offset) == (first.base_offset, first.end_offset)
            assert log.high_watermark >= first.end_offset

    def tend():
        while not done.is_set():
            log.flush()
            log.checkpoint(durable=False)
            log.drop_before(0, None)

    def read():
        while not done.is_set():
            found = read_all(log)
            assert [record.offset for record in found] == list(range(len(found)))

    writers = [guarded(lambda each=each: write(each)) for each in range(4)]
    others = [guarded(tend), guarded(read)]
    for thread in writers + others:
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    for thread in others:
        thread.join(60)
    assert not problems
    for found in (read_all(log), read_all(open_log(tmp_path, options=options))):
        for writer_id in range(4):
            mine = [record.id % 1000 for record in found if record.id // 1000 == writer_id]
            assert mine == list(range(60))

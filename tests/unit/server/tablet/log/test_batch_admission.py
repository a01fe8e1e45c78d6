"""Idempotent writers: retries are answered, gaps are waited for, and all of it survives restarts."""

import threading

import pytest

from fluss_lab.errors import DuplicateSequenceError, NotLeaderError, OutOfOrderSequenceError
from fluss_lab.server.tablet.log.batch_admission import (
    SEQUENCE_MAX,
    Admission,
    WriterStates,
    WrittenBatch,
    following,
)
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.tablet.tablet_kit import OPTIONS, append, batch, checked, open_log, read_all


def test_a_retry_is_answered_with_the_first_offsets(tmp_path):
    log = open_log(tmp_path)
    for sequence in range(7):
        append(log, sequence * 2, 2, writer_id=9, sequence=sequence)
    for sequence in range(2, 7):
        again = append(log, sequence * 2, 2, writer_id=9, sequence=sequence)
        assert (again.base_offset, again.end_offset) == (sequence * 2, sequence * 2 + 2)
    assert log.end == 14
    with pytest.raises(DuplicateSequenceError, match="older than"):
        log.append(checked(batch(2, 2, writer_id=9, sequence=1)), wait_ms=10_000)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flushed", [0, 3, 7])
def test_writers_are_remembered_across_restarts(tmp_path, clean, flushed):
    log = open_log(tmp_path)
    for sequence in range(7):
        append(log, sequence, 1, writer_id=9, sequence=sequence)
        if sequence + 1 == flushed:
            log.checkpoint(durable=False)
    if clean:
        log.close()
    log = open_log(tmp_path)
    for sequence in range(2, 7):
        assert append(log, sequence, 1, writer_id=9, sequence=sequence).base_offset == sequence
    assert log.end == 7
    with pytest.raises(OutOfOrderSequenceError):
        append(log, 8, 1, writer_id=9, sequence=8)
    assert append(log, 7, 1, writer_id=9, sequence=7).base_offset == 7


@pytest.mark.parametrize("restart", ["none", "clean", "killed", "killed, with a recovery point"])
def test_another_batch_of_a_number_that_was_used_is_refused(tmp_path, restart):
    log = open_log(tmp_path)
    for sequence in range(3):
        append(log, sequence, 1, writer_id=9, sequence=sequence)
    if restart == "clean":
        log.close()
    elif restart.endswith("point"):
        log.checkpoint(durable=False)
    if restart != "none":
        log = open_log(tmp_path)
    for sequence in range(3):
        text = rf"sequence {sequence} of writer 9: another batch .*\[{sequence}, {sequence + 1}\).*nothing was appended"
        with pytest.raises(DuplicateSequenceError, match=text):
            append(log, 100, 1, writer_id=9, sequence=sequence)
        assert append(log, sequence, 1, writer_id=9, sequence=sequence).base_offset == sequence
    # Nothing of a payload with such a batch is appended.
    with pytest.raises(DuplicateSequenceError):
        log.append(checked(batch(9, 1, writer_id=1, sequence=0), batch(100, 1, writer_id=9, sequence=2)))
    assert log.end == 3


def test_batches_of_checkpoints_without_crcs_are_accepted():
    states = WriterStates.from_json([[9, 5, [[0, 0, 2], [1, 2, 4, 77]]]])
    assert states.find(9, 0) == WrittenBatch(0, 0, 2, None)
    assert states.find(9, 1) == WrittenBatch(1, 2, 4, 77)
    assert WriterStates.from_json(states.to_json()).to_json() == states.to_json()
    log_states = WriterStates()
    log_states.add_older(states)
    assert Admission(log_states, threading.Condition(), threading.Semaphore(1)).admit(
        checked(batch(0, 2, writer_id=9, sequence=0)), 0, lambda: None
    ) == [WrittenBatch(0, 0, 2)]


def test_a_writer_that_is_not_known_begins_at_zero(tmp_path):
    log = open_log(tmp_path)
    with pytest.raises(OutOfOrderSequenceError, match=r"expected 0, found 3.*first batch must be 0"):
        append(log, 0, 1, writer_id=4, sequence=3)
    assert log.end == 0
    append(log, 0, 1, writer_id=4, sequence=0)


def test_an_idle_writer_is_forgotten(tmp_path):
    clock = MockClock()
    log = open_log(tmp_path, clock)
    append(log, 0, 1, writer_id=4, sequence=0)
    clock.advance(OPTIONS.writer_expiration_ms)
    log.checkpoint(durable=False)
    append(log, 1, 1, writer_id=4, sequence=1)  # idle just not long enough
    for _ in range(2):
        clock.advance(OPTIONS.writer_expiration_ms + 1)
        append(log, log.end, 1)
        log.checkpoint(durable=False)
    with pytest.raises(OutOfOrderSequenceError, match="not known"):
        append(log, 3, 1, writer_id=4, sequence=2)
    assert append(log, 3, 1, writer_id=4, sequence=0).base_offset == 4


@pytest.mark.parametrize("restart", [False, True])
def test_a_step_of_the_clock_is_no_idleness(tmp_path, restart):
    """A writer's first batch, sent again, would else be taken for that of a new writer, and be there twice."""
    clock = MockClock()
    log = open_log(tmp_path, clock)
    append(log, 0, 1, writer_id=4, sequence=0)
    clock.set_wall(clock.now_ms() + 100 * OPTIONS.writer_expiration_ms)
    for _ in range(3):
        log.checkpoint(durable=False)
        if restart:
            log.close()
            log = open_log(tmp_path, clock)
        clock.advance(OPTIONS.writer_expiration_ms // 4)
    assert append(log, 0, 1, writer_id=4, sequence=0).base_offset == 0
    assert log.end == 1
    # What it did then counts: it is not idle from the step on.
    append(log, 1, 1, writer_id=4, sequence=1)
    clock.advance(OPTIONS.writer_expiration_ms)
    log.checkpoint(durable=False)
    assert append(log, 2, 1, writer_id=4, sequence=2).base_offset == 2


def test_a_batch_waits_for_its_predecessor(tmp_path):
    log = open_log(tmp_path)
    late, done = checked(batch(1, 1, writer_id=1, sequence=1)), []
    thread = threading.Thread(target=lambda: done.append(log.append(late, wait_ms=10_000)))
    thread.start()
    append(log, 0, 1, writer_id=1, sequence=0)
    thread.join(60)
    assert (done[0].base_offset, [record.id for record in read_all(log)]) == (1, [0, 1])


def test_a_predecessor_that_does_not_come_is_asked_for(tmp_path):
    log = open_log(tmp_path)
    append(log, 0, 1, writer_id=1, sequence=0)
    with pytest.raises(OutOfOrderSequenceError, match=r"expected 1, found 2.*send its predecessor first"):
        log.append(checked(batch(2, 1, writer_id=1, sequence=2)), wait_ms=20)
    assert log.end == 1


def test_only_so_many_appends_wait_at_once(tmp_path):
    log = open_log(tmp_path)
    refused = threading.Event()

    def wait(sequence):
        try:
            log.append(checked(batch(0, 1, writer_id=1, sequence=sequence)), wait_ms=30_000)
        except OutOfOrderSequenceError:
            refused.set()
        except NotLeaderError:
            pass

    threads = [threading.Thread(target=wait, args=(sequence,)) for sequence in range(1, 10)]  # one more than may wait
    for thread in threads:
        thread.start()
    assert refused.wait(60)
    log.close()  # the others are sent away
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_payload_that_was_partly_appended_before_is_completed(tmp_path):
    log = open_log(tmp_path)
    first, second = batch(0, 2, writer_id=1, sequence=0), batch(2, 2, writer_id=1, sequence=1)
    log.append(checked(first))
    append(log, 100, 1)
    again = log.append(checked(first, second))
    assert (again.base_offset, again.end_offset) == (0, 5)
    assert [record.id for record in read_all(log)] == [0, 1, 100, 2, 3]


def test_a_gap_within_a_payload_writes_nothing(tmp_path):
    log = open_log(tmp_path)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(checked(batch(0, 1, writer_id=1, sequence=0), batch(1, 1, writer_id=1, sequence=2)))
    assert (log.end, log.segments.size_bytes) == (0, 0)


def test_sequences_begin_again_after_the_largest():
    states = WriterStates()
    states.add(1, WrittenBatch(SEQUENCE_MAX, 0, 1), 0)
    assert states.expected_sequence(1) == following(SEQUENCE_MAX) == 0
    assert following(0) == 1

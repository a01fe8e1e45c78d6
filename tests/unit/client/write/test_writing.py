"""Batches on their way, without servers: how they are cut and numbered, and which answers to them can be."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fluss_lab.client.write.bucket_queue import UNACKED_MAX, BucketQueue, BucketRows, WriteBatch, WriteCall
from fluss_lab.client.write.record_accumulator import GROUPED_BYTES, PIPELINED_BYTES, RecordAccumulator
from fluss_lab.client.write.write_requests import Appends, Upserts, shares_of
from fluss_lab.client.write.write_result import UpsertResult
from fluss_lab.errors import InternalError, PartitionNotFoundError, StorageError
from fluss_lab.model import ChangeType, TableBucket, TableInfo, TablePath, make_descriptor

INFO = TableInfo(TablePath("db", "t"), 7, 1, make_descriptor({"id": "bigint"}, primary_key=["id"]), 0, 0)
PLENTY = 1 << 30


def piece(start, stop, change=ChangeType.UPDATE_AFTER):
    rows = pa.record_batch({"id": pa.array(range(start, stop), pa.int64())})
    return BucketRows(WriteCall(UpsertResult(), len(rows), 0.0, 1), rows, rows.nbytes, change)


def filled(*pieces):
    queue = BucketQueue(TableBucket(7, None, 0), None, 1)
    queue.waiting.extend(pieces)
    return queue


def ids(batch):
    return [value for each in batch.pieces for value in each.rows.column(0).to_pylist()]


def take(queue):
    return queue.take(PLENTY, 60.0)


def came_back(queue):
    queue.resending = True
    for batch in queue.unacked:
        batch.in_flight = False


def test_a_batch_found_too_large_is_cut_and_what_follows_numbered_anew():
    pieces = [piece(0, 10), piece(10, 13, ChangeType.DELETE), piece(13, 20)]
    queue = filled(*pieces[:2])
    first = take(queue)
    queue.waiting.append(pieces[2])
    second = take(queue)
    assert (first.sequence, second.sequence, queue.next_sequence) == (0, 1, 2)
    second.payload = [b"encoded under the old number"]
    came_back(queue)
    queue.halve_rows_max(first)
    sent = []
    while queue.unacked:
        batch = take(queue)
        assert (batch.alone, batch.in_flight) == (True, True)
        assert batch.payload is None
        sent.append((batch.sequence, ids(batch)))
        queue.unacked.remove(batch)
        batch.in_flight = False
    assert sent == [(0, list(range(6))), (1, list(range(6, 12))), (2, [12]), (3, list(range(13, 19))), (4, [19])]
    assert queue.next_sequence == 5
    # Each call is settled when all its pieces are, and knows how many there are.
    assert [each.write.open_pieces for each in pieces] == [2, 2, 2]


def test_the_order_and_change_of_every_row_survive_the_cuts():
    queue = filled(piece(0, 5), piece(5, 7, ChangeType.DELETE), piece(7, 12))
    batch = take(queue)
    came_back(queue)
    queue.halve_rows_max(batch)
    queue.rows_max = 3
    kind = Upserts(INFO, [])
    changes, rows = b"", []
    while queue.unacked:
        batch = take(queue)
        assert batch.rows <= 3
        changes += kind.change_types(batch)
        rows += ids(batch)
        queue.unacked.popleft()
    assert rows == list(range(12))
    assert changes == bytes([3] * 5 + [4] * 2 + [3] * 5)


def test_a_batch_that_may_be_in_the_log_is_not_cut():
    """It would be recognised by its number, and its second half be written again under the next."""
    queue = filled(piece(0, 10))
    batch = take(queue)
    came_back(queue)
    batch.doubtful = True
    queue.rows_max = 2
    assert ids(take(queue)) == list(range(10))
    assert len(queue.unacked) == 1


def test_later_batches_are_as_small_and_grow_again():
    queue = filled(piece(0, 100))
    queue.rows_max = 8
    sizes = []
    while queue.waiting:
        batch = take(queue)
        sizes.append(batch.rows)
        queue.unacked.remove(batch)
        queue.grow_rows_max(batch)
    assert sum(sizes) == 100
    assert sizes[0] == 8
    assert sizes[:5] == sorted(sizes[:5])
    assert sizes[4] > 16


def test_no_more_batches_are_taken_than_the_server_remembers():
    queue = filled(*[piece(index, index + 1) for index in range(20)])
    while queue.ready_at() is not None:
        queue.take(0, 60.0)
    assert len(queue.unacked) == UNACKED_MAX


def test_batches_of_a_bucket_travel_together_up_to_a_size():
    accumulator = RecordAccumulator(PLENTY, PLENTY, 60.0, Appends.batches_max)
    queues = [accumulator.queue(TableBucket(7, None, bucket), None, 1) for bucket in range(2)]
    given = [large_piece(index, GROUPED_BYTES * 2 // 5) for index in range(6)]
    for index, each in enumerate(given):
        assert accumulator.add(each.write, [(queues[index // 4], each)])
    for queue in queues:
        queue.leader = 0
    taken = accumulator.take()
    assert [(batch.queue.bucket.bucket, batch.sequence, ids(batch)) for batch in taken] == [
        (0, 0, [0]), (0, 1, [1]), (1, 0, [4]), (1, 1, [5]),
    ]  # fmt: skip
    assert all(queue.encoding for queue in queues)


def test_few_rows_wait_for_the_request_that_is_on_its_way_and_go_together():
    accumulator = RecordAccumulator(PLENTY, PLENTY, 60.0, Appends.batches_max)
    queue = accumulator.queue(TableBucket(7, None, 0), None, 1)
    queue.leader = 0
    given = [large_piece(0, 10), *(large_piece(number, PIPELINED_BYTES // 4) for number in range(1, 8))]

    def add(*numbers):
        for number in numbers:
            assert accumulator.add(given[number].write, [(queue, given[number])])

    with ThreadPoolExecutor(1) as sender:  # one thread: when it takes again, its request has ended
        add(0)
        accumulator.mark_sent(sender.submit(accumulator.take).result())
        add(1, 2, 3)
        assert accumulator._sendable(time.monotonic()) == []
        second = sender.submit(accumulator.take).result()
        assert [ids(batch) for batch in second] == [[1, 2, 3]]
        accumulator.mark_sent(second)
        add(4, 5, 6)
        assert accumulator._sendable(time.monotonic()) == []
        add(7)  # together they are worth a request of their own
        assert [ids(batch) for batch in accumulator.take()] == [[4, 5, 6, 7]]


def test_a_call_that_waited_for_room_is_not_queued_behind_one_that_failed_meanwhile():
    accumulator = RecordAccumulator(100, PLENTY, 60.0, Appends.batches_max)
    queue = accumulator.queue(TableBucket(7, None, 0), None, 1)
    first, second, third = (large_piece(number, 100) for number in range(3))
    assert accumulator.add(first.write, [(queue, first)])
    batch = accumulator.take()[0]
    with ThreadPoolExecutor(1) as caller:
        waiting = caller.submit(accumulator.add, second.write, [(queue, second)])
        accumulator.reenqueue(batch, StorageError("full"), doubtful=False, lasting=True)
        with pytest.raises(StorageError, match="full"):
            waiting.result(60)
    assert accumulator.progress().unsent == 1  # what failed can still be sent again
    assert str(accumulator.take_failure()) == "full"
    assert accumulator.take_failure() is None
    assert not accumulator.add(third.write, [(queue, third)])  # only a new writer id is missing
    accumulator.renew(queue, 2)
    assert accumulator.add(third.write, [(queue, third)])
    assert (accumulator.progress().unsent, accumulator.progress().given_up) == (1, 1)


def test_many_small_calls_are_worth_a_request():
    queue = filled(*[piece(index, index + 1) for index in range(63)])
    assert queue.sendable_bytes(PLENTY) == 63 * 8
    queue.waiting.append(piece(63, 64))
    assert queue.sendable_bytes(PLENTY) == PLENTY
    assert filled(large_piece(0, 500)).sendable_bytes(400) == 400


def test_a_batch_that_is_sent_again_waits_for_no_rows():
    queue = filled(piece(0, 1))
    take(queue)
    came_back(queue)
    assert queue.sendable_bytes(PLENTY) == PLENTY


def large_piece(number, size_bytes):
    rows = pa.record_batch({"id": pa.array([number], pa.int64())})
    return BucketRows(WriteCall(UpsertResult(), 1, 0.0, 1), rows, size_bytes)


def test_no_more_batches_travel_together_than_the_server_remembers():
    queue = filled(*[piece(index, index + 1) for index in range(20)])
    while queue.follows(0, PLENTY):
        queue.take(0, 60.0)
    assert len(queue.unacked) == UNACKED_MAX


def test_a_batch_that_comes_back_travels_alone():
    queue = filled(*[piece(index, index + 1) for index in range(20)])
    assert take(queue) is not None
    queue.waiting.append(piece(20, 21))
    assert queue.follows(0, PLENTY)
    assert not queue.follows(0, 0)
    came_back(queue)
    assert not queue.follows(0, PLENTY)


def test_the_batches_of_a_request_share_its_offsets_and_only_all_of_them():
    kind = Appends(INFO)
    batches = [batch_of(piece(0, 4), piece(4, 10)), batch_of(piece(10, 13))]
    assert shares_of(kind, batches, 7, 20) == [[(7, 11), (11, 17)], [(17, 20)]]
    for end in (17, 19, 21):
        assert shares_of(kind, batches, 7, end) is None
    assert shares_of(kind, batches[:1], 7, 17) == [[(7, 11), (11, 17)]]
    assert shares_of(kind, batches[:1], 7, 16) is None
    assert shares_of(Upserts(INFO, []), batches[:1], 7, 16) == [[(7, 16)] * 2]


def batch_of(*pieces):
    return WriteBatch(BucketQueue(TableBucket(7, None, 0), None, 1), 0, list(pieces))


@pytest.mark.parametrize(("base", "end"), [(0, -1), (5, 4), (0, 21), (0, 1000)])
def test_a_changelog_that_cannot_be_is_not_taken_for_an_answer(base, end):
    kind = Upserts(INFO, [])
    assert kind.ranges(batch_of(piece(0, 4), piece(4, 10)), base, end) is None
    assert kind.ranges(batch_of(piece(0, 4), piece(4, 10)), 7, 27) == [(7, 27)] * 2
    assert kind.ranges(batch_of(piece(0, 4)), 7, 7) == [(7, 7)]


def test_appends_have_one_offset_a_row():
    kind = Appends(INFO)
    assert kind.ranges(batch_of(piece(0, 4), piece(4, 10)), 7, 17) == [(7, 11), (11, 17)]
    for end in (7, 16, 18):
        assert kind.ranges(batch_of(piece(0, 4), piece(4, 10)), 7, end) is None
    assert kind.change_types(batch_of(piece(0, 4))) is None


def test_only_a_delete_is_done_when_its_partition_is_gone():
    gone, other = PartitionNotFoundError("gone"), InternalError("other")
    for change, error, fails in [
        (ChangeType.DELETE, gone, False),
        (ChangeType.DELETE, other, True),
        (ChangeType.UPDATE_AFTER, gone, True),
    ]:
        each = piece(0, 1, change)
        each.fail(error)
        assert (each.write.error is not None) == fails


def test_ranges_that_touch_or_are_the_same_are_reported_once():
    write = WriteCall(UpsertResult(), 3, 0.0, 0)
    write.offsets[None, 0] = [(4, 9), (0, 4), (4, 9), (12, 12), (20, 21)]
    write.settle()
    assert dict(write.future.result(0).offsets) == {(None, 0): ((0, 9), (12, 12), (20, 21))}

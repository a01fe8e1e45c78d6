"""Scanners beside everything that moves records: rounds, compactions, expiries, retention. Every offset once, in order."""

import random
import threading
import time

import pytest

from fluss_lab import failpoints
from fluss_lab.client import Connection
from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.model.changes import CHANGE_SYMBOLS
from tests.unit.read.keyed_changes import DAY_MS, NAMES
from tests.unit.read.subjects import HOURS_MS, PATIENCE_S, Keyed, maintain, read, words


def move(subject, rng, steps, *, forgetful=False):
    """Write, and move what was written; the first steps make sure that there is some of everything."""
    actions = {
        "write": subject.write,
        "tier": subject.table.tier,
        "retire": subject.retire,
        "compact": lambda: maintain(subject, "compact", 0),
        "expire": lambda: maintain(subject, "expire", HOURS_MS),
        "forget": lambda: maintain(subject, "expire", 9 * DAY_MS),
    }
    names = [*["write"] * 4, *["tier"] * 4, "retire", "retire", "compact", "expire", *(["forget"] if forgetful else [])]
    for name in ["write", "tier", "write", "tier", "retire", *rng.choices(names, k=steps)]:
        subject.table.clock.advance(rng.choice([0, 1, 50]))
        actions[name]()


def follow_while_moving(subject, seed, steps, *, forgetful=False):
    """Start scanners at random offsets beside a thread that moves the table; return how many were read."""
    rng, failures = random.Random(seed + 1), []
    done = threading.Event()

    def mover():
        try:
            move(subject, random.Random(seed), steps, forgetful=forgetful)
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=mover, daemon=True)
    thread.start()
    scans = 0
    while not done.is_set() or not scans:
        ends = {bucket: end for bucket, end in subject.ends.items() if end}
        if not ends:
            done.wait(0.01)
            continue
        bucket = rng.choice(sorted(ends))
        start = rng.randint(0, ends[bucket])
        try:
            found = read(subject, bucket, start, ends[bucket], lambda: done.wait(rng.choice([0, 0.02])))
        except OffsetOutOfRangeError:
            if not (forgetful and start < subject.table.lake_replay_starts().get((None, bucket), 0)):
                raise
            continue
        assert found == subject.expected(bucket, start, ends[bucket])
        scans += 1
    thread.join(PATIENCE_S)
    if failures:
        raise failures[0]
    for bucket, end in subject.ends.items():
        low = subject.table.replay_starts().get((None, bucket), 0) if forgetful else 0
        assert read(subject, bucket, low, end, lambda: None) == subject.expected(bucket, low, end)
    return scans


@pytest.mark.slow
def test_scanners_see_every_offset_once_while_records_move(subject, seed):
    follow_while_moving(subject, seed, 24)


@pytest.mark.campaign
def test_scanners_over_long_histories(subject, seed):
    follow_while_moving(subject, seed, 400, forgetful=isinstance(subject, Keyed))


@pytest.mark.slow
def test_a_snapshot_that_expires_under_a_scanner_is_replaced_without_a_gap(subject, cluster):
    """The scanner is somewhere in the lake when the snapshot that it reads, and its files, go."""
    while max(subject.ends.values(), default=0) < 200:
        for _ in range(5):
            subject.write()
        subject.table.clock.advance(10)
        subject.table.tier()
    subject.leave()
    bucket, end = max(subject.ends.items(), key=lambda item: item[1])
    client = {"client.scanner.log.fetch.max-bytes": "1kb"}
    with (
        Connection(lambda: cluster.address, client) as slow,
        slow.log_scanner(subject.table.path, previous_offsets=True) as scanner,
    ):
        scanner.subscribe(bucket, 0)
        first = scanner.poll(PATIENCE_S)
        found = [word for batch in first for word in words(batch.records, subject.table.info.schema.names)]
        assert 0 < len(found) < end
        before = subject.table.connection.admin().lake_snapshot(subject.table.path).snapshot_id
        maintain(subject, "compact", 0)
        subject.write()
        subject.table.tier()
        maintain(subject, "expire", HOURS_MS)
        maintain(subject, "orphans", HOURS_MS)
        assert subject.table.connection.admin().lake_snapshot(subject.table.path).snapshot_id != before
        end = subject.ends[bucket]
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < end:
            assert time.monotonic() < deadline, (len(found), end)
            for batch in scanner.poll(1.0):
                found += words(batch.records, subject.table.info.schema.names)
    assert found == subject.expected(bucket, 0, end)


def test_columns_that_are_chosen_come_with_change_types_from_the_lake_too(make_keyed):
    table = make_keyed(buckets=1)
    table.write(random.Random(1), 12)
    table.tier()
    table.leave()
    table.write(random.Random(2), 12)
    end = table.ends[None, 0]
    with table.connection.log_scanner(table.path, ["tags", "id"]) as scanner:
        scanner.subscribe(0, 0)
        found, deadline = [], time.monotonic() + PATIENCE_S
        while len(found) < end:
            assert time.monotonic() < deadline
            for batch in scanner.poll(1.0):
                assert batch.rows.schema.names == ["tags", "id"]
                assert batch.records.previous_offsets is None
                found += zip(batch.records.change_types.to_pylist(), batch.rows.to_pylist(), strict=True)
    expected = [
        (CHANGE_SYMBOLS.index(each.change), {"tags": each.row[NAMES.index("tags")], "id": each.row[0]})
        for each in table.logs[None, 0]
    ]
    assert found == expected


@pytest.mark.parametrize("columns", [None, ["tags", "id"]])
def test_records_that_leave_the_log_before_their_previous_offsets_are_read_come_from_the_lake(make_keyed, columns):
    """Retention ran in the middle of one fetch, so the offset was refused that the lake holds."""
    table = make_keyed(buckets=1)
    while len(table.logs[None, 0]) < 5:
        table.write(random.Random(1), 12)
    table.tier()
    end = table.ends[None, 0]
    left = []
    failpoints.arm("tablet.fetch.before_previous", lambda: left.append(table.leave()))
    with table.connection.log_scanner(table.path, columns, previous_offsets=True) as scanner:
        scanner.subscribe(0, 0)
        found, deadline = [], time.monotonic() + PATIENCE_S
        while len(found) < end:
            assert time.monotonic() < deadline
            for batch in scanner.poll(1.0):
                offsets, previous = batch.records.offsets.to_pylist(), batch.records.previous_offsets.to_pylist()
                found += zip(offsets, previous, strict=True)
    assert left, "the records did not leave in the middle"
    assert found == [(each.offset, each.previous) for each in table.logs[None, 0]]

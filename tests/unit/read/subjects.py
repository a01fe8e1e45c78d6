"""Tables of both kinds behind one face: what happened to them, and what a scanner must give."""

import time

from fluss_lab.model.changes import CHANGE_SYMBOLS
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from tests.unit.read.keyed_changes import DAY_MS, KeyedTable

PATIENCE_S = 60.0
HOURS_MS = 3 * 3_600_000


class Keyed:
    """A primary-key table to be followed."""

    def __init__(self, make_keyed, rng):
        self.table: KeyedTable = make_keyed(keys=12)
        self.rng = rng

    def write(self):
        self.table.write(self.rng, 6)

    def retire(self):
        self.table.retire()

    def leave(self):
        """Let the cluster drop all of its log; the lake must hold all of it."""
        self.table.leave()

    @property
    def ends(self):
        return {key[1]: end for key, end in self.table.ends.items()}

    def expected(self, bucket, start, stop):
        return [
            (each.offset, each.change, each.timestamp_ms, repr(each.row), each.previous)
            for each in self.table.logs[None, bucket][start:stop]
        ]


class Plain:
    """A log table to be followed."""

    def __init__(self, make_table, rng):
        self.table = make_table(partitioned=False)
        # The test says when files are compacted.
        self.table.connection.admin().alter_table(self.table.path, set={"table.datalake.auto-maintenance": False})
        self.rng = rng

    def write(self):
        self.table.append_random(self.rng, self.rng.choice([1, 30]), ["2013-01"])

    def retire(self):
        self.table.cluster.tablet().apply_retention(self.table.clock.now_ms() + 400 * DAY_MS)

    def leave(self):
        self.table.expire()

    @property
    def ends(self):
        return {key[1]: end for key, end in dict(self.table.ends).items()}

    def expected(self, bucket, start, stop):
        held = sorted(
            (each for each in list(self.table.records) if each.bucket == bucket), key=lambda each: each.offset
        )
        return [(each.offset, "+A", each.timestamp_ms, repr(each.row), None) for each in held[start:stop]]


def maintain(subject, action, ahead_ms):
    table = subject.table
    storage = table.connection.lake_storage()
    maintain_by_hand(table.connection, storage, LocalTieringExecutor(), action, table.info.table_id, ahead_ms=ahead_ms)


def read(subject, bucket, start, stop, pause):
    """Return what a scanner gives of a range, in the words of `expected`."""
    found = []
    connection, keyed = subject.table.connection, isinstance(subject, Keyed)
    with connection.log_scanner(subject.table.path, previous_offsets=keyed) as scanner:
        scanner.subscribe(bucket, start)
        deadline = time.monotonic() + PATIENCE_S
        while start + len(found) < stop:
            assert time.monotonic() < deadline, (bucket, start, stop, len(found))
            for batch in scanner.poll(1.0):
                found += words(batch.records, subject.table.info.schema.names)
            pause()
    return found[: stop - start]


def words(records, names):
    count = len(records)
    changes = ["+A"] * count
    previous = [None] * count
    if records.change_types is not None:
        changes = [CHANGE_SYMBOLS[number] for number in records.change_types.to_pylist()]
        previous = records.previous_offsets.to_pylist()
    rows = [repr(tuple(row[name] for name in names)) for row in records.rows.to_pylist()]
    return list(
        zip(records.offsets.to_pylist(), changes, records.timestamps_ms.to_pylist(), rows, previous, strict=True)
    )

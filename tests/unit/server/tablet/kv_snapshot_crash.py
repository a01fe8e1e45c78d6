"""A tablet server that puts, snapshots and drops log until a failpoint kills it: see test_kv_snapshot_crashes.

Batch n of the one writer follows from n, so the rows follow from how many batches there are.
"""

import os
import random
from pathlib import Path

from fluss_lab.model.names import TableBucket
from fluss_lab.testing.mock_clock import START_MS, MockClock
from tests.unit.server.lives import run_lives
from tests.unit.server.tablet.kv_kit import AFTER, DELETE, TABLE_ID, KvTablet, Model

WRITER_ID = 3
BUCKET = TableBucket(TABLE_ID, None, 0)
#: Passes of a point in one life, where they are few or many.
PASSES = {"kv.snapshot.before_delete": 12, "tablet.retention.before_delete": 3, "tablet.recover.before": 1}


def batch_of(seed: int, number: int) -> tuple[list[dict], list[int]]:
    """The rows of a batch, and what is done with each."""
    chance = random.Random(f"{seed}/{number}")
    rows = [{"id": i, "name": f"n{number}-{i}", "score": number} for i in chance.sample(range(60), 12)]
    return rows, [DELETE if chance.random() < 0.2 else AFTER for _ in rows]


def model_of(seed: int, batches: int) -> Model:
    """What a bucket holds after so many batches."""
    model = Model()
    for number in range(batches):
        for row, change in zip(*batch_of(seed, number), strict=True):
            model.upsert(row) if change == AFTER else model.delete(row["id"])
    return model


def acked(folder: Path) -> int:
    path = folder / "acked"
    return len(path.read_text().split()) if path.exists() else 0


def opened(folder: Path, turn: int) -> KvTablet:
    clock = MockClock(START_MS + turn * 10_000_000)
    return KvTablet(folder, clock, log__segment__file_size="4kb").open(0, table__log__ttl="1h")


def check(tablet: KvTablet, seed: int, least: int) -> int:
    """Hold the bucket against what was acknowledged; return how many batches it has."""
    log = tablet.bucket().log
    assert log.stopped is None, log.stopped
    for batches in (least, least + 1):  # one more may have been written without an answer
        model = model_of(seed, batches)
        if len(model.events) == log.end:
            model.check_rows(tablet)
            assert tablet.changelog(log.start) == model.events[log.start :]
            return batches
    raise AssertionError(f"log end {log.end} belongs neither to {least} batches nor to one more")


def live(folder: Path, seed: int, chance: random.Random, turn: int) -> None:
    """Go on from what is there."""
    tablet = opened(folder, turn)
    number = acked(folder)
    check(tablet, seed, number)
    reported = os.open(folder / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(30):
        rows, changes = batch_of(seed, number)
        tablet.put(rows, changes, writer_id=WRITER_ID, sequence=number)
        os.write(reported, b"%d\n" % number)
        number += 1
        match chance.randrange(6):
            case 0 | 1:
                tablet.service.snapshot_now(BUCKET)
            case 2:
                tablet.service.flush()
            case 3:
                tablet.clock.advance(2 * 3_600_000)
                tablet.service.apply_retention()
    tablet.service.close()


def main(folder: Path, point: str, seed: int, kills: int) -> None:
    """Run lives until the failpoint has ended so many."""
    run_lives(point, PASSES.get(point, 6), seed, kills, lambda chance, turn: live(folder, seed, chance, turn))

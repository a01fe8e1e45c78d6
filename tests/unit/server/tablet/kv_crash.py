"""A process that upserts until a failpoint kills it, again and again in forks: see test_kv_recovery.

Each life opens the server, goes on where the last one ended, and writes the sequence of each batch that was acknowledged
to ``acked`` in the folder. Batch n is made of n alone.
"""

import os
import random
from pathlib import Path

from tests.unit.server.lives import run_lives
from tests.unit.server.tablet.kv_kit import AFTER, DELETE, KvTablet, Row

WRITER_ID = 3
BATCHES = 60
OPTIONS = {"log__segment__file_size": "3kb", "log__index__interval_size": "128b"}
#: Passes of a point in one life, where they are few.
PASSES = {"tablet.recover.before": 1, "tablet.roll.before": 5}


def changes(sequence: int) -> tuple[list[Row], list[int]]:
    """What a batch does."""
    chance = random.Random(sequence)
    rows = [{"id": chance.randrange(12), "name": f"b{sequence}", "score": at} for at in range(chance.randrange(4))]
    return rows, [chance.choice([AFTER, AFTER, DELETE]) for _ in rows]


def live(folder: Path, chance: random.Random) -> None:
    """Open the server and work on it."""
    tablet = KvTablet(folder / "server", **OPTIONS).open(0)
    acked = os.open(folder / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done = (folder / "acked").read_text().split()
    # The batch that was under way when the last life ended is sent again.
    first = int(done[-1]) + 1 if done else 0
    for sequence in range(first, first + BATCHES):
        tablet.put(*changes(sequence), writer_id=WRITER_ID, sequence=sequence)
        os.write(acked, b"%d\n" % sequence)
        match chance.randrange(10):
            case 0:
                tablet.service.flush()
            case 1:
                tablet.bucket().log.checkpoint(durable=chance.random() < 0.5)
            case 2:
                tablet.service.snapshot_now(tablet.bucket().id)
    tablet.service.close()


def main(folder: Path, point: str, seed: int, kills: int) -> None:
    """Run lives until the failpoint has ended so many."""
    run_lives(point, PASSES.get(point, 20), seed, kills, lambda chance, _: live(folder, chance))

"""A process that appends to a log until a failpoint kills it, again and again in forks: see test_tablet_crashes.

Each life opens the log, goes on where it ends, and writes what it was acknowledged to ``acked`` in the folder.
"""

import os
import random
from pathlib import Path

from fluss_lab.server.tablet.log.log_segments import LogOptions
from fluss_lab.testing.mock_clock import START_MS, MockClock
from tests.unit.server.lives import run_lives
from tests.unit.server.tablet.tablet_kit import append, open_log

OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=128, fsync=False, writer_expiration_ms=10**12)
WRITER_ID = 3
#: Passes of a point in one life, where they are few.
PASSES = {"tablet.recover.before": 1, "tablet.retention.before_delete": 2, "tablet.roll.before": 6}


def live(folder: Path, chance: random.Random, turn: int) -> None:
    """Open the log and work on it. The id of every record is its offset; batch n of the writer is `sizes[n]` long."""
    # A clock that now and then begins before the last life ended.
    clock = MockClock(START_MS + turn * 40 - chance.randrange(30))
    acked = os.open(folder / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = open_log(folder / "log", clock, OPTIONS)
    sequence = int((folder / "sequence").read_text()) if (folder / "sequence").exists() else 0
    for _ in range(60):
        # The batch that was under way when the last life ended is sent again.
        appended = append(log, sequence, 1, writer_id=WRITER_ID, sequence=sequence)
        assert appended.end_offset == appended.base_offset + 1
        os.write(acked, b"%d %d\n" % (sequence, appended.base_offset))
        sequence += 1
        (folder / "sequence").write_text(str(sequence))
        clock.advance(chance.randrange(3))
        match chance.randrange(8):
            case 0:
                log.flush()
            case 1:
                log.checkpoint(durable=chance.random() < 0.5)
            case 2:
                log.drop_before(clock.now_ms() - 10, sequence - 10)
    log.close()


def main(folder: Path, point: str, seed: int, kills: int) -> None:
    """Run lives until the failpoint has ended so many."""
    run_lives(point, PASSES.get(point, 10), seed, kills, lambda chance, turn: live(folder, chance, turn))

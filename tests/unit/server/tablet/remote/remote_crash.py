"""A tablet that appends, copies and forgets until a failpoint kills it, again and again in forks: see test_remote_crashes.

Run as ``python -m tests.unit.server.tablet.remote.remote_crash FOLDER SEED LIVES POINT...``: each point has a folder of its name. A line
for each says how many lives were ended by it.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

from fluss_lab import failpoints
from fluss_lab.testing.mock_clock import START_MS, MockClock
from tests.unit.server.tablet.remote.remote_kit import fill, make_tablet

PROPERTIES = {"table__log__ttl": "1min", "table__log__tiered__local_segments": "1"}
#: A life lasts at most so long.
LIFE_MS = 40_000
#: Passes of a point in one life, where they are few.
PASSES = {"tablet.checkpoint.before": 3}


def options_of(folder: Path) -> dict[str, str]:
    """The cluster options of a point's folder: those that the folder above has, with remote storage of its own."""
    given = folder.parent / "options.json"
    options: dict[str, str] = json.loads(given.read_text()) if given.exists() else {}
    if (remote := options.get("remote.data.dir")) is not None:
        options["remote.data.dir"] = f"{remote}/{folder.name}"
    return options


def live(folder: Path, chance: random.Random, turn: int) -> None:
    """Open the tablet and work on it. The id of every record is its offset."""
    clock = MockClock(START_MS + turn * LIFE_MS)
    tablet = make_tablet(folder, clock, open_it=False, options=options_of(folder))
    # Behind the recovery: what that may be killed at is another test's.
    (answer,) = tablet.open(0, **PROPERTIES)
    assert not answer.error_message, answer.error_message
    acked = os.open(folder / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(30):
        now_ms, end = clock.now_ms(), fill(tablet, 1, rows=chance.randrange(20, 60), every_ms=LIFE_MS // 40)
        os.write(acked, b"%d %d\n" % (now_ms, end))
        match chance.randrange(4):
            case 0:
                tablet.service.copy_to_remote()
            case 1:
                tablet.service.apply_retention()
            case 2:
                tablet.service.flush()
    tablet.service.close()


def main(folder: Path, seed: int, lives: int, points: list[str]) -> None:
    """Run the lives, each in a fork: this process is started once, because that is what takes the time."""
    for point in points:
        (folder / point).mkdir()
        killed = 0
        for turn in range(lives):
            chance = random.Random(f"{seed} {point} {turn}")
            child = os.fork()
            if child == 0:
                failpoints.arm(point, f"kill@{chance.randrange(1, 1 + PASSES.get(point, 4))}")
                live(folder / point, chance, turn)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status in {0, signal.SIGKILL}, (point, status)
            killed += status == signal.SIGKILL
        print(point, killed, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])

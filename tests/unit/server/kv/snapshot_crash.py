"""A process that takes snapshots until a failpoint kills it, again and again in forks: see test_snapshot_crashes.

Each life goes on from the snapshot that it finds, which must have the right rows, and notes the log offset of every
snapshot that it was told complete.
"""

import os
import random
from pathlib import Path

from tests.unit.server.kv.snapshot_kit import SCHEMAS, Puts, restored, rows_of, store, write
from tests.unit.server.lives import run_lives

STEPS = 12


def change(puts: Puts, seed: int) -> None:
    """Change a store by what belongs to its log offset, so that its rows follow from that offset."""
    chance = random.Random(f"{seed}/{puts.end}")
    ids = sorted(puts.ids())
    if ids and chance.random() < 0.3:
        puts.delete(chance.choice(ids))
    else:
        puts.put(*chance.sample(range(30), chance.randrange(1, 8)))


def rows_at(seed: int, log_offset: int) -> list:
    """The rows that belong to a log offset."""
    puts = Puts()
    while puts.end < log_offset:
        change(puts, seed)
    assert puts.end == log_offset
    return rows_of(puts.image())


def acked(folder: Path) -> int:
    path = folder / "acked"
    return max(map(int, path.read_text().split()), default=0) if path.exists() else 0


def check(folder: Path, seed: int):
    """Load what is there, and hold it against what was acknowledged and what belongs to its offset."""
    snapshots = store(folder / "kv")
    loaded = snapshots.load(SCHEMAS)
    found = 0 if loaded is None else loaded[1].log_offset
    assert found >= acked(folder), f"found {found}, acknowledged {acked(folder)}"
    if loaded is not None:
        assert rows_of(loaded[1]) == rows_at(seed, found)
        assert loaded[0].broken == ()
        assert (snapshots.retained_floor() or 0) <= found
    return snapshots, loaded


def live(folder: Path, seed: int, chance: random.Random) -> None:
    """Go on from what is there."""
    snapshots, loaded = check(folder, seed)
    puts = Puts() if loaded is None else restored(loaded[1])
    reported = os.open(folder / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(STEPS):
        for _ in range(chance.randrange(1, 4)):
            change(puts, seed)
        if chance.random() < 0.2 and puts.ids():
            puts.merge()
        done = write(snapshots, puts.image())
        os.write(reported, b"%d\n" % done.log_offset)


def main(folder: Path, point: str, seed: int, kills: int) -> None:
    """Run lives until the failpoint has ended so many."""
    run_lives(point, 1 + STEPS // 2, seed, kills, lambda chance, _: live(folder, seed, chance))
    check(folder, seed)

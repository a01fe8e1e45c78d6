"""A process that lives again and again in forks, each ended by a failpoint at a random pass."""

import os
import random
import signal
from collections.abc import Callable

from fluss_lab import failpoints

#: Lives for each kill: a life may end before it passes its failpoint often enough.
LIVES_PER_KILL = 12


def run_lives(point: str, passes: int, seed: int, kills: int, live: Callable[[random.Random, int], None]) -> None:
    """Run lives until the failpoint has ended so many of them.

    Args:
        point: The failpoint.
        passes: It kills at one of the first so many passes of a life.
        seed: Of everything random.
        kills: How many lives it must end.
        live: One life, given its chance and its number.

    Raises:
        AssertionError: A life ended otherwise, or the failpoint is hardly ever passed.
    """
    for turn in range(kills * LIVES_PER_KILL):
        chance = random.Random(seed * 1000 + turn)
        child = os.fork()
        if child == 0:
            failpoints.arm(point, f"kill@{chance.randrange(1, 1 + passes)}")
            live(chance, turn)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status in {0, signal.SIGKILL}, status
        kills -= status == signal.SIGKILL
        if not kills:
            return
    raise AssertionError(f"{point} is hardly ever passed: {kills} kills are missing")

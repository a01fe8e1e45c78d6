"""The seed of a test that draws: of the test itself, by chance, or a given one."""

from __future__ import annotations

import os
import random
import zlib
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import InvalidPropertyError

if TYPE_CHECKING:
    import pytest

VARIABLE: Final = "FLUSS_LAB_SEED"
BY_CHANCE: Final = "random"
SEEDS: Final = 2**32


def seed_of(test: pytest.Item | pytest.Collector) -> int:
    """Return the seed of a test, or of what all tests of a file share, and print it.

    Without ``FLUSS_LAB_SEED`` it is a checksum of the test's id, so that the same tree gives the same verdict, as with the
    ``derandomize`` of hypothesis: a test that fails with some other seed is found by those who look for it, not by whoever
    changed something else. In a test marked ``campaign``, which looks for it, the seed is drawn by chance. See `seed_named`.
    """
    return seed_named(test.nodeid, by_chance=test.get_closest_marker("campaign") is not None)


def seed_named(name: str, *, by_chance: bool = False) -> int:
    """Return the seed of what is drawn under a name, in ``[0, 2**32)`` unless given, and print both.

    ``FLUSS_LAB_SEED`` goes before all else: a number is the seed, ``random`` draws one by chance.

    Args:
        name: Of what is drawn: equal names have equal seeds.
        by_chance: Draw the seed, whatever the name.

    Raises:
        InvalidPropertyError: ``FLUSS_LAB_SEED`` is neither a number nor ``random``.
    """
    given = os.environ.get(VARIABLE, "")
    if given and given != BY_CHANCE:
        if not (given.isascii() and given.isdecimal()):
            raise InvalidPropertyError(f"{VARIABLE}: expected a seed, 0 or more, or {BY_CHANCE!r}, found {given!r}")
        seed = int(given)
    elif given or by_chance:
        seed = random.SystemRandom().randrange(SEEDS)
    else:
        seed = zlib.crc32(name.encode())
    print(f"\n{name}: {VARIABLE}={seed}", flush=True)
    return seed

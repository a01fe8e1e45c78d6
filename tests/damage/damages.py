"""What may happen to a file: deleted, emptied, cut, one byte flipped; and which files a bucket has.

Shared by all tests that damage files and ask what readers say then: the answer is exact or an error, never a third
thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

Damage: TypeAlias = Callable[[Path, random.Random], None]


def delete(path: Path, _rng: random.Random) -> None:
    """Delete a file."""
    path.unlink()


def empty(path: Path, _rng: random.Random) -> None:
    """Leave a file of no bytes."""
    path.write_bytes(b"")


def cut(path: Path, rng: random.Random) -> None:
    """Cut a file somewhere; at least one byte goes."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))] if data else b"")


def flip(path: Path, rng: random.Random) -> None:
    """Flip one bit of one byte."""
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


def flipped_bits(data: bytes) -> Iterator[bytes]:
    """Yield the bytes once for each bit, with that bit turned over."""
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            yield bytes(changed)


DAMAGES: Final[dict[str, Damage]] = {"deleted": delete, "emptied": empty, "cut": cut, "flipped": flip}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        name: For the ids of tests.
        pattern: Glob below the folder that it is looked for in.
        which: Which of the files that match, in order: 0 the first, -1 the last; None: the middle one.
    """

    name: str
    pattern: str
    which: int | None = 0

    def find(self, folder: Path) -> Path | None:
        """Return the file in a folder; None when there is none."""
        found = sorted(path for path in folder.glob(self.pattern) if path.is_file())
        if not found:
            return None
        return found[len(found) // 2 if self.which is None else self.which]


def _ends(name: str, pattern: str) -> tuple[Kind, ...]:
    return Kind(f"first {name}", pattern, 0), Kind(f"middle {name}", pattern), Kind(f"last {name}", pattern, -1)


#: In a bucket's own folder.
LOCAL: Final = (
    *_ends("segment", "*.log"),
    Kind("first index", "*.index"),
    Kind("last index", "*.index", -1),
    Kind("first time index", "*.timeindex"),
    Kind("recovery point", "recovery-point"),
    Kind("log start", "log-start"),
    Kind("remote mark", "remote-log"),
)
#: In the same place, of primary-key tables.
LOCAL_KEYED: Final = (
    Kind("first previous offsets", "*.prev"),
    Kind("last previous offsets", "*.prev", -1),
    Kind("first previous marks", "*.prevcrc"),
    Kind("last previous marks", "*.prevcrc", -1),
)
#: In a bucket's folder of the remote log.
REMOTE: Final = (
    Kind("remote manifest", "manifest"),
    Kind("first remote segment", "*/*.log"),
    Kind("last remote segment", "*/*.log", -1),
    Kind("first remote index", "*/*.blocks"),
)
#: In a bucket's folder of key-value snapshots.
SNAPSHOTS: Final = (
    Kind("first snapshot manifest", "*.manifest"),
    Kind("last snapshot manifest", "*.manifest", -1),
    Kind("first chunks", "*.chunks"),
    Kind("last chunks", "*.chunks", -1),
    Kind("live rows", "*.live", -1),
)


def cases(*groups: tuple[Kind, ...]) -> Iterator[tuple[Kind, str]]:
    """Yield each kind with each damage."""
    for group in groups:
        for kind in group:
            for damage in DAMAGES:
                yield kind, damage

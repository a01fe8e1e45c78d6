"""Scanners that are held through all that happens to a table: each record comes once, in order, and is what was written."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.client import LogScanner
from fluss_lab.errors import OffsetOutOfRangeError
from tests.crash.history import CHANGES, Place

if TYPE_CHECKING:
    from tests.across.world import World

#: Steps of a world that scanners take.
SCANNING: Final = ("hold", "poll")
SCANNERS_MAX: Final = 3
#: The longest honest wait for a scanner to give what there is.
PATIENCE_S: Final = 60.0
#: A partition's id, and bucket: a name may be used again.
_Key = tuple[int | None, int]


@dataclass(frozen=True)
class _Held:
    """A scanner, its columns, and where it is in each bucket that it began with or gave something of."""

    scanner: LogScanner
    columns: Sequence[str]
    offsets: dict[_Key, int]


class HeldScanners:
    """The scanners of one world. Close them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[_Held] = []
        #: Names by id of the partitions that are there; of those that were dropped, what a scanner still gives is not compared.
        self._names: dict[int | None, str | None] = {}

    def close(self) -> None:
        for held in self._held:
            held.scanner.close()

    def hold(self, rng: random.Random) -> None:
        """Open a scanner of every bucket, from the earliest records, the latest, or offsets."""
        world = self._world
        places, earliest = [place for place in world.statuses() if place in world.logs], world.earliest()
        ends = {place: len(world.logs[place].events) for place in places}
        if len(self._held) == SCANNERS_MAX or not places:
            return
        word: Any = rng.choice(["earliest", "latest", "offsets"])
        starts = ends if word == "latest" else {place: earliest[place] for place in places}
        if word == "offsets":
            starts = {place: rng.randint(earliest[place], ends[place]) for place in places}
            word = {place[1] if place[0] is None else place: offset for place, offset in starts.items()}
        columns = rng.sample(world.columns, rng.randint(1, len(world.columns)))
        scanner = world.reader().subscribe(word, columns)
        ids = {name: each for each, name in self._look().items()}
        offsets = {(ids[name], bucket): offset for (name, bucket), offset in starts.items()}
        self._held.append(_Held(scanner, columns, offsets))

    def poll(self, rng: random.Random) -> None:
        """Have one of them give all that there is."""
        if not self._held:
            return
        held = rng.choice(self._held)
        self._look()
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            while missing := self._missing(held):
                for batch in held.scanner.poll(0.2):
                    self._take(held, batch)
                assert time.monotonic() < deadline_s, f"a held scanner gives nothing of {missing}"
        except OffsetOutOfRangeError:
            # Lost before a round, or left out by a compaction and then dropped by the cluster.
            earliest = self._world.earliest()
            lost = {place for place, (offset, _) in self._missing(held).items() if offset < earliest.get(place, 0)}
            assert lost, "a held scanner ended though all is held"
            held.scanner.close()
            self._held.remove(held)

    def _look(self) -> dict[int | None, str | None]:
        world = self._world
        self._names = {None: None}
        if world.kind.partitioned_by:
            admin = world.cluster.connection.admin()
            self._names = {each.partition_id: each.name for each in admin.partitions(world.history.path)}
        return self._names

    def _first(self, place: Place) -> int:
        return self._world.firsts.get(place, 0)

    def _missing(self, held: _Held) -> dict[Place, tuple[int, int]]:
        """Return the buckets of which it has not given all, with where it is and where they end."""
        world, found = self._world, {}
        for each, name in self._names.items():
            for bucket in range(world.kind.buckets):
                log = world.logs.get((name, bucket))
                # Of a partition that was made later all is given, but what was lost before the scanner saw it.
                offset = held.offsets.get((each, bucket), self._first((name, bucket)))
                if log is not None and offset < len(log.events):
                    found[name, bucket] = offset, len(log.events)
        return found

    def _take(self, held: _Held, batch: Any) -> None:
        key, run = (batch.bucket.partition_id, batch.bucket.bucket), batch.records
        if key[0] not in self._names:
            return
        place = self._names[key[0]], key[1]
        expected = held.offsets.get(key, min(run.base_offset, self._first(place)))
        assert run.base_offset == expected, (place, run.base_offset, expected)
        held.offsets[key] = run.next_offset
        changes = [0] * len(run) if run.change_types is None else run.change_types.to_pylist()
        records = zip(
            run.offsets.to_pylist(), changes, run.timestamps_ms.to_pylist(), run.rows.to_pylist(), strict=True
        )
        for offset, change, time_ms, row in records:
            event = self._world.logs[place].events[offset]
            wanted = {name: event.row.get(name) for name in held.columns}
            assert (CHANGES[change], time_ms, row) == (event.change, event.timestamp_ms, wanted), (place, offset)

"""Tables that lose records while their lake is switched off: every read gives just what is true, or says that something is gone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fluss_lab.errors import FlussError, OffsetOutOfRangeError
from fluss_lab.read.moment.read_point import ReadPoint
from tests.across.looks import claim, plain, same
from tests.across.oracle import Moment, order, records
from tests.across.program import Step
from tests.across.world import FAR_MS, World
from tests.crash.history import Place

CHANGES = ("write", "write", "write", "wait", "tier", "tier", "retain", "retain", "lake_switch", "lake_switch", "keep")
OTHERS = ("compact", "restart", "remote", "add_column")
STEPS = 40


class LossyTable:
    """A table whose records may be lost behind the lake's end, and which of them cluster and lake have."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._in_lake: dict[Place, set[int]] = {}
        self._kept: list[tuple[str, Moment]] = []
        self.refused = 0

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self) -> None:
        name = self._rng.choice([*CHANGES, *CHANGES, *OTHERS])
        if name in {"tier", "retain", "keep"}:
            getattr(self, f"_{name}")()
        else:
            self._world.take(Step(name, self._rng.randrange(1 << 30), 12))
        self._world.changed()

    def _tier(self) -> None:
        world = self._world
        if not world.in_lake:
            return
        before = self.held()
        try:
            world.scene.tier()
        except FlussError:
            assert self._is_lossy(), "a round was refused though nothing is lost"
        world.changed()
        for place, end in world.tiered().items():
            self._in_lake.setdefault(place, set()).update(each for each in before.get(place, ()) if each < end)

    def _retain(self) -> None:
        """Let the cluster drop all that it need not hold, also behind the end of a lake that is switched off."""
        self._world.take(Step("snapshot", 0))
        self._world.cluster.tablet().apply_retention(self._world.clock.now_ms() + FAR_MS)

    def _keep(self) -> None:
        self._kept.append((self._world.reader().read_point().to_json(), self._world.now()))

    # -- what there is -------------------------------------------------------------------------------------------------

    def held(self) -> dict[Place, set[int]]:
        """Return the offsets that lake or cluster have."""
        here = {place: range(each.start_offset, each.end_offset) for place, each in self._world.statuses().items()}
        return {place: self._in_lake.get(place, set()) | set(here.get(place, ())) for place in self._world.logs}

    def _is_lossy(self) -> bool:
        held = self.held()
        return any(len(held[place]) < len(log.events) for place, log in self._world.logs.items())

    def _is_held(self, ranges: dict[Place, tuple[int, int]]) -> bool:
        held = self.held()
        return all(held[place].issuperset(range(*each)) for place, each in ranges.items())

    # -- looks ---------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        look = self._rng.choice([self.rows, self.rows, self.changes, self.since, self.difference])
        try:
            look()
        except OffsetOutOfRangeError as error:
            claim(self._is_lossy(), f"{look.__name__}: refused though nothing is lost: {error}")
            self.refused += 1

    def _moment(self) -> tuple[dict[str, Any], Moment]:
        world = self._world
        match self._rng.choice(["now", "past", "past", "kept"]):
            case "past" if (past := world.past(self._rng)) is not None:
                return {"as_of": past[0]}, past[1]
            case "kept" if self._kept:
                text, moment = self._rng.choice(self._kept)
                return {"read_point": ReadPoint.from_json(text)}, moment
        return {}, world.now()

    def rows(self) -> None:
        """Read the rows at a moment; of a log table those that are held, without a hole."""
        given, moment = self._moment()
        names = [*moment.columns, "__bucket", "__offset"]
        found = plain(self._world.reader().scan(names, **given).to_arrow())
        held = self.held()
        wanted = moment.rows()
        if not self._world.kind.is_keyed:
            partition = self._world.kind.partition
            firsts = {place: min(each, default=moment.stops.get(place, 0)) for place, each in held.items()}
            wanted = [row for row in wanted if row["__offset"] >= firsts[partition(row), row["__bucket"]]]
        same(f"rows {given}", found, [{name: row[name] for name in names} for row in wanted])

    def changes(self) -> None:
        """Read any range of the log."""
        ranges = {
            place: tuple(sorted(self._rng.choices(range(len(log.events) + 1), k=2)))
            for place, log in self._world.logs.items()
        }
        starts, stops = ({self._name(place): each[side] for place, each in ranges.items()} for side in (0, 1))
        self._same_log(plain(self._world.reader().changelog(starts, stops).to_arrow()), ranges, f"log {ranges}")

    def since(self) -> None:
        """Read the log from a time on."""
        if (past := self._world.past(self._rng)) is None:
            return
        firsts = self._world.offsets_at(past[0])
        ranges = {place: (firsts[place], len(log.events)) for place, log in self._world.logs.items()}
        self._same_log(plain(self._world.reader().changelog(past[0]).to_arrow()), ranges, f"log from {past[0]} on")

    def difference(self) -> None:
        """Compare a time with now; of a log table: which records came since."""
        past = self._world.past(self._rng)
        if past is None or self._world.kind.is_keyed:
            return
        found = self._world.reader().diff(past[0]).added
        ends = {place: len(log.events) for place, log in self._world.logs.items()}
        ranges = {place: (past[1].stops[place], end) for place, end in ends.items()}
        assert self._is_held(ranges), f"since {past[0]}: records are gone, and nobody said so"
        assert len(found) == sum(end - start for start, end in ranges.values()), (past, found)

    def _same_log(self, found: list[dict[str, Any]], ranges: dict[Place, tuple[int, int]], what: str) -> None:
        world = self._world
        assert self._is_held(ranges), f"{what}: records are gone, and nobody said so"
        wanted = [
            row
            for place in sorted(ranges, key=order)
            for row in records(
                world.logs[place], place, *ranges[place], world.columns, partitioned=bool(world.kind.partitioned_by)
            )
        ]
        same(what, found, wanted)

    @staticmethod
    def _name(place: Place) -> Any:
        return place[1] if place[0] is None else place


@pytest.mark.slow
@pytest.mark.parametrize("sort", ["usual", "late"])
@pytest.mark.parametrize("kind", ["log", "log_parts", "pk", "pk_parts"])
def test_what_is_lost_is_never_left_out_in_silence(seed, kind, sort):
    world = World(kind, sort)
    try:
        table = LossyTable(world, random.Random(seed))
        for _ in range(STEPS):
            table.change()
            for _ in range(3):
                table.look()
        print(f"{table.refused} reads were refused")
    finally:
        world.close()

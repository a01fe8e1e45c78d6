"""Reads of a table's log: replay, net changes, differences, seeks, scanners; each held against what it must give."""

from __future__ import annotations

import random
import time
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import OffsetOutOfRangeError, PartitionNotFoundError
from fluss_lab.model import OffsetSpec, PartitionInfo
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.moment.read_point import ReadPoint
from tests.across.edge import Edge
from tests.across.looks import GONE, claim, plain, same
from tests.across.oracle import Moment, NetChange, Row, net_changes, net_records, order, records
from tests.across.world import Kept, World
from tests.crash.history import CHANGES, Event, Place

#: The longest honest wait for a scanner to give what there is.
PATIENCE_S: Final = 60.0


class LogLooks:
    """Asks for records of the log, in one of all ways."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def _partitioned(self) -> bool:
        return bool(self._world.kind.partitioned_by)

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, rng: random.Random) -> None:
        """Read a range of the log in one of all words."""
        world = self._world
        start, end = self._edge(rng, is_start=True), self._edge(rng, is_start=False)
        columns = self._columns(rng)
        log = world.reader().changelog(start.value, end.value, columns=columns)
        what = f"replay of [{start.value!r}, {end.value!r})"
        ranges = self._ranges(start, end)
        self._check_lost(log, what, start, end)
        early = start.early or self._may_be_lost(start, end)
        if (found := self._read(rng, log, ranges, what, early)) is not None:
            expected = [
                row
                for place, begin, stop in ranges
                for row in records(world.logs[place], place, begin, stop, columns, partitioned=self._partitioned)
            ]
            same(what, found, expected)

    def net(self, rng: random.Random) -> None:
        """Read the net changes of a range."""
        world = self._world
        if not world.kind.is_keyed:
            return
        start, end = self._edge(rng, is_start=True), self._edge(rng, is_start=False)
        log = world.reader().changelog(start.value, end.value, net=True)
        what = f"net changes of [{start.value!r}, {end.value!r})"
        ranges = self._ranges(start, end)
        early = start.early or self._may_be_lost(start, end)
        if (found := self._read(rng, log, ranges, what, early)) is not None:
            expected = [row for each in ranges for row in self._net(*each)]
            same(what, _ordered(found), _ordered(expected))

    def spark_log(self, rng: random.Random) -> None:
        """Read a range of the log, or its net changes, in Spark, where records come in no order."""
        world = self._world
        start, end = self._edge(rng, is_start=True), self._edge(rng, is_start=False)
        net = world.kind.is_keyed and rng.random() < 0.4
        ranges, earliest = self._ranges(start, end), world.earliest()
        if start.early or self._may_be_lost(start, end) or any(begin < earliest[place] for place, begin, _ in ranges):
            return
        found = plain(pa.table(world.reader().changelog(start.value, end.value, net=net).to_spark().toArrow()))
        expected = [row for each in ranges for row in (self._net(*each) if net else self._records(*each))]
        same(f"{'net ' * net}log of [{start.value!r}, {end.value!r}) in Spark", _ordered(found), _ordered(expected))

    def _records(self, place: Place, start: int, stop: int) -> list[Row]:
        world = self._world
        return records(world.logs[place], place, start, stop, world.columns, partitioned=self._partitioned)

    def diff(self, rng: random.Random) -> None:
        """Read what changed between two moments, in either direction."""
        world = self._world
        (one, before), (other, after) = self._moment(rng), self._moment(rng)
        if other is None and rng.random() < 0.5:
            one, before, other, after = None, after, one, before
        if one is None:
            one = world.reader().read_point()
        what = f"difference between {before.label} and {after.label}"
        edges = [(each, self._stop(each, before), self._stop(each, after)) for each in sorted(world.logs, key=order)]
        earliest = world.earliest()
        missing = [place for place, *stops in edges if stops[0] != stops[1] and min(stops) < earliest[place]]
        try:
            found = world.reader().diff(one, other)
        except GONE as error:
            beyond = missing or not world.is_within_reach(before) or not world.is_within_reach(after)
            beyond = beyond or self._is_unsure(one) or self._is_unsure(other)
            claim(beyond, f"{what}: refused though all is held: {error}")
            return
        assert not missing, f"{what}: records of {missing} are gone, and nobody said so"
        changes = [(place, each) for edge in edges for place, each in self._differences(*edge)]
        expected = [
            row
            for place, change in changes
            for row in net_records([change], place, world.columns, partitioned=self._partitioned)
        ]
        same(what, _ordered(plain(found.to_arrow())), _ordered(expected))
        for rows, count in (
            (found.added, sum(each.before is None for _, each in changes)),
            (found.removed, sum(each.after is None for _, each in changes)),
            (found.changed, sum(each.before is not None and each.after is not None for _, each in changes)),
        ):
            assert len(rows) == count, (what, found)

    def _stop(self, place: Place, moment: Moment) -> int:
        """Return where a moment is; at a time, a log table whose first records were lost had none before the others."""
        is_time = moment.moment_ms is not None and place in moment.stops and not self._world.kind.is_keyed
        return max(self._world.firsts.get(place, 0) if is_time else 0, moment.stops.get(place, 0))

    def _differences(self, place: Place, before: int, after: int) -> list[tuple[Place, NetChange]]:
        world = self._world
        low, high = min(before, after), max(before, after)
        if world.kind.is_keyed:
            found = net_changes(world.logs[place], low, high, world.columns, self._key)
        else:
            found = [NetChange(None, (offset, world.logs[place].events[offset])) for offset in range(low, high)]
        return [(place, each if before <= after else NetChange(each.after, each.before)) for each in found]

    def _moment(self, rng: random.Random) -> tuple[Any, Moment]:
        """Return a moment in one of all words; None: now."""
        world = self._world
        match rng.choice(["now", "past", "past", "kept", "snapshot"]):
            case "past" if (past := world.past(rng)) is not None:
                return past
            case "kept" if (kept := self._kept(rng)) is not None:
                return ReadPoint.from_json(kept.text), kept.moment
            case "snapshot" if (snapshot := world.snapshot(rng)) is not None:
                return snapshot
        return None, world.now()

    def _is_unsure(self, value: Any) -> bool:
        """Return whether a past moment of a log table lies before all that is held: nobody knows how many records it had."""
        world = self._world
        if world.kind.is_keyed:
            return False
        if isinstance(value, ReadPoint):
            return value.as_of and any(0 < each.start == each.stop for each in value.buckets)
        return isinstance(value, int) and world.edge_at(value + 1, value).early

    def _kept(self, rng: random.Random) -> Kept | None:
        """Return a point that was kept, of buckets that are still there."""
        world = self._world
        if not world.kept:
            return None
        kept = rng.choice(world.kept)
        there = all(world.logs.get(place) is log for place, log in kept.moment.logs.items())
        return kept if there and not kept.moment.lost else None

    def _net(self, place: Place, start: int, stop: int) -> list[Row]:
        world = self._world
        changes = net_changes(world.logs[place], start, stop, world.columns, self._key)
        return net_records(changes, place, world.columns, partitioned=self._partitioned)

    def _key(self, event: Event) -> tuple[Any, ...]:
        return tuple(event.row[name] for name in self._world.kind.primary_key)

    def _columns(self, rng: random.Random) -> list[str]:
        columns = self._world.columns
        return rng.sample(columns, rng.randint(1, len(columns))) if rng.random() < 0.4 else list(columns)

    def _ranges(self, start: Edge, end: Edge) -> list[tuple[Place, int, int]]:
        """Return the ranges that edges come to, in reading order: those that are not empty, of the buckets that there are."""
        world = self._world
        found = []
        for place in sorted(world.logs, key=order):
            begin, stop = start.offsets.get(place), end.offsets.get(place)
            if begin is not None and stop is not None and begin < stop:
                found.append((place, begin, stop))
        return found

    def _may_be_lost(self, start: Edge, end: Edge) -> bool:
        """Return whether records of partitions that were dropped may belong to a range."""
        return bool(self._world.lost_times) and start.is_moment and (end.is_moment or self._is_now(end))

    @staticmethod
    def _is_now(end: Edge) -> bool:
        return end.value is None or end.value == "latest"

    def _check_lost(self, log: Changelog, what: str, start: Edge, end: Edge) -> None:
        """Complain where records from a time until now are lost, and a read does not say so."""
        lost = [each for each in self._world.lost_times if start.time_ms is not None and each >= start.time_ms]
        if lost and self._is_now(end):
            try:
                log.to_arrow()
            except OffsetOutOfRangeError:
                return
            raise AssertionError(f"{what}: records went with a partition at {lost}, and nobody said so")

    def _read(
        self, rng: random.Random, log: Changelog, ranges: list[tuple[Place, int, int]], what: str, early: bool
    ) -> Any:
        """Return the records; None when they are rightly refused."""
        earliest = self._world.earliest()
        missing = [place for place, begin, _ in ranges if begin < earliest[place]]
        try:
            match rng.choice(["arrow", "batches", "pandas"]):
                case "arrow":
                    found = log.to_arrow()
                case "batches":
                    found = pa.Table.from_batches(log.to_batches(rng.choice([1, 7, 1000])), log.schema)
                case _:
                    found = pa.Table.from_pandas(log.to_pandas(), log.schema, preserve_index=False)
        except GONE as error:
            claim(missing or early, f"{what}: refused though all is held: {error}")
            return None
        assert not missing, f"{what}: records of {missing} are gone, and nobody said so"
        return plain(found)

    def _edge(self, rng: random.Random, *, is_start: bool) -> Edge:
        """Return a start or an end in one of all words."""
        world = self._world
        ends = {place: len(log.events) for place, log in world.logs.items()}
        # Of a bucket that was not there yet, all is wanted from its beginning.
        absent = dict.fromkeys(world.logs, 0) if is_start else {}
        match rng.choice(["word", "offsets", "offsets", "time", "seek", "snapshot", "point"]):
            case "offsets" if world.logs:
                low = world.earliest()
                chosen = {place: rng.randint(low[place], end) for place, end in ends.items()}
                return Edge({self._name(place): offset for place, offset in chosen.items()}, chosen)
            case "time" if (past := world.past(rng)) is not None:
                return world.edge_at(past[0], past[0])
            case "seek" if (past := world.past(rng)) is not None:
                return world.edge_at(past[0], world.reader().seek(past[0]))
            case "snapshot" if (snapshot := world.snapshot(rng)) is not None:
                return Edge(snapshot[0], {**absent, **snapshot[1].stops}, is_moment=True)
            case "point" if (kept := self._kept(rng)) is not None:
                point = ReadPoint.from_json(kept.text)
                return Edge(point, {**absent, **kept.moment.stops}, self._is_unsure(point), is_moment=True)
        if is_start:
            return Edge("earliest", world.earliest())
        return Edge(rng.choice([None, "latest"]), ends)

    @staticmethod
    def _name(place: Place) -> Any:
        return place[1] if place[0] is None else place

    # -- times ---------------------------------------------------------------------------------------------------------

    def seek(self, rng: random.Random) -> None:
        """Look for a time."""
        world = self._world
        if (past := world.past(rng)) is None:
            return
        moment_ms = past[0] if rng.random() < 0.9 else world.clock.now_ms()
        expected, earliest = world.offsets_at(moment_ms), world.earliest()
        found = world.reader().seek(moment_ms)
        for place, offset in expected.items():
            if place not in found.offsets:
                assert not world.logs[place].events, (place, found)
                continue
            answer, events = found[self._name(place)], world.logs[place].events
            assert answer.offset == max(offset, earliest[place]), (place, moment_ms, answer, offset, earliest[place])
            if answer.offset < len(events):
                assert answer.timestamp_ms == events[answer.offset].timestamp_ms, (place, answer)
            else:
                assert (answer.timestamp_ms, answer.lives) == (None, "end"), (place, answer)
        self._list_offsets(moment_ms, expected, earliest)

    def _list_offsets(self, moment_ms: int, expected: dict[Place, int], earliest: dict[Place, int]) -> None:
        """Ask the cluster's clients too: of buckets that the cluster has."""
        world = self._world
        admin, info = world.cluster.connection.admin(), world.history.info
        for name, partition in self._partitions().items():
            times = admin.list_offsets(info, OffsetSpec.timestamp(moment_ms), partition=partition)
            firsts = admin.list_offsets(info, OffsetSpec.earliest(), partition=partition)
            lasts = admin.list_offsets(info, OffsetSpec.latest(), partition=partition)
            for bucket, answer in times.items():
                place = (name, bucket)
                if place in world.logs:
                    begin, end = earliest[place], len(world.logs[place].events)
                    assert answer.offset == max(expected[place], begin), (place, moment_ms, answer, expected[place])
                    assert (firsts[bucket].offset, lasts[bucket].offset) == (begin, end), (place, firsts, lasts, begin)

    def _partitions(self) -> dict[str | None, PartitionInfo | None]:
        if not self._partitioned:
            return {None: None}
        admin = self._world.cluster.connection.admin()
        return {each.name: each for each in admin.partitions(self._world.history.path)}

    # -- scanners ------------------------------------------------------------------------------------------------------

    def scanner(self, rng: random.Random) -> None:
        """Follow buckets from random offsets on, while the table moves."""
        world = self._world
        held = [place for place in sorted(self._world.statuses(), key=order) if place in world.logs]
        earliest = world.earliest()
        starts = {place: rng.randint(earliest[place], len(world.logs[place].events)) for place in held}
        if not starts:
            return
        columns = self._columns(rng)
        found: dict[Place, list[Row]] = {place: [] for place in starts}
        names: dict[int | None, str | None] = {None: None}
        names |= {each.partition_id: name for name, each in self._partitions().items() if each is not None}
        with world.cluster.connection.log_scanner(world.history.path, projection=columns) as scanner:
            for (name, bucket), start in starts.items():
                scanner.subscribe(bucket, start, name)
            wanted = sum(len(world.logs[place].events) - start for place, start in starts.items())
            deadline_s = time.monotonic() + PATIENCE_S
            while sum(map(len, found.values())) < wanted:
                assert time.monotonic() < deadline_s, f"scanner: {wanted} records wanted, found {found}"
                for batch in scanner.poll(1.0):
                    place = (names[batch.bucket.partition_id], batch.bucket.bucket)
                    found[place] += _records(batch.records, place)
        for place, start in starts.items():
            expected = [
                {"offset": offset, "change": event.change, "time": event.timestamp_ms}
                | {name: event.row.get(name) for name in columns}
                for offset, event in enumerate(world.logs[place].events[start:], start)
            ]
            same(f"scanner of {place} from {start}", found[place], expected)

    # -- refusals ------------------------------------------------------------------------------------------------------

    def too_early(self, rng: random.Random) -> None:
        """Ask for records from before what is held: it is an error that tells what there is."""
        world = self._world
        earliest = {place: first for place, first in world.earliest().items() if first}
        if not earliest:
            return
        place = rng.choice(sorted(earliest, key=order))
        if not world.logs[place].events[earliest[place] :]:
            return
        try:
            world.reader().changelog({self._name(place): rng.randrange(earliest[place])}, None).to_arrow()
        except (OffsetOutOfRangeError, PartitionNotFoundError) as error:
            claim(str(earliest[place]) in str(error), f"the earliest offset of {place}, {earliest[place]}: {error}")
        else:
            raise AssertionError(f"{place}: records before {earliest[place]} were read, though they are gone")


def _records(run: Any, place: Place) -> list[Row]:
    changes = [0] * len(run) if run.change_types is None else run.change_types.to_pylist()
    rows = zip(run.offsets.to_pylist(), changes, run.timestamps_ms.to_pylist(), run.rows.to_pylist(), strict=True)
    return [{"offset": offset, "change": CHANGES[change], "time": ms} | row for offset, change, ms, row in rows]


def _ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.get("_partition") or "", row["_bucket"], row["_log_offset"]))

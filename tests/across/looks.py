"""Union reads of a table, each held against what it must give."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import LakeSnapshotNotFoundError, OffsetOutOfRangeError, UnsupportedError
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.union.scan import Scan
from tests.across.oracle import SYSTEM, Moment, Row
from tests.across.program import Step
from tests.across.world import World
from tests.readers.engines import QUICK

Condition = Callable[[Row], bool]
#: What says that something is not held any more.
GONE: Final = (OffsetOutOfRangeError, LakeSnapshotNotFoundError)


def plain(table: pa.Table) -> list[Row]:
    """Return rows as plain values, moments of records in milliseconds."""
    for name in ("__timestamp", "_commit_timestamp"):
        if name in table.column_names:
            millis = table.column(name).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            table = table.set_column(table.column_names.index(name), name, millis)
    rows: list[Row] = table.to_pylist()
    return rows


def claim(holds: object, what: str) -> None:
    """Complain unless something holds; for where an error is judged."""
    if not holds:
        raise AssertionError(what)


def same(what: str, found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Compare rows in order."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other, f"{what}: row {index} of {len(found)}: found {one}, expected {other} (of {len(expected)})"
    assert len(found) == len(expected), (
        f"{what}: found {len(found)} rows, expected {len(expected)}; the first too much or missing: "
        f"{(list(found) + list(expected))[-abs(len(found) - len(expected))]}"
    )


def _places(rng: random.Random) -> list[str]:
    """Return the columns that say where a row lies; its time only sometimes: rows with times are read of the log."""
    return [name for name in SYSTEM if name != "__timestamp" or rng.random() < 0.5]


class UnionLooks:
    """Asks for the rows at a moment, in one of all ways."""

    def __init__(self, world: World) -> None:
        self._world = world

    def union(self, rng: random.Random) -> None:
        """Read at a point: now, kept, a time, or a lake snapshot."""
        world = self._world
        if (chosen := self.choose(rng)) is None:
            return
        given, moment = chosen
        if moment.lost:
            # Refused, or read whole of a lake snapshot that is still there.
            with suppress(*GONE, UnsupportedError):
                self._compare(rng, given, world.whole(moment))
            return
        try:
            self._compare(rng, given, moment)
        except GONE as error:
            claim(not world.is_within_reach(moment), f"{moment.label}: refused though all is held: {error}")
        except UnsupportedError as error:
            # When the rows were written that an update ended since, only their records tell; these have left the cluster.
            reported = world.without_records(moment) or not world.is_within_reach(moment)
            claim(
                "__timestamp" in str(error) and reported,
                f"{moment.label}: refused though their records are held: {error}",
            )

    def moving(self, rng: random.Random) -> None:
        """Read while the table moves under the reader."""
        world = self._world
        if (chosen := self.choose(rng)) is None:
            return
        given, moment = chosen
        if not world.is_within_reach(moment):
            return
        names = [*moment.columns, *_places(rng)]
        scan = world.reader().scan(names, **given)
        expected = [{name: row[name] for name in names} for row in moment.rows()]
        _ = scan.read_point
        batches = scan.to_batches(rng.choice([1, 3, 1000]))
        found: list[Row] = []
        # Before the first row is asked for, or in the middle of them.
        moves_after = rng.choice([0, 1])
        try:
            for count in itertools.count():
                if count == moves_after:
                    self.disturb(rng)
                if (batch := next(batches, None)) is None:
                    break
                found += plain(pa.Table.from_batches([batch], scan.schema))
        except (*GONE, UnsupportedError) as error:
            allowed = not world.is_within_reach(moment) or (
                "__timestamp" in str(error) and world.without_records(moment)
            )
            claim(allowed, f"moving, {moment.label}: {error}")
            same(f"moving, {moment.label}, up to the error", found, expected[: len(found)])
            return
        same(f"moving, {moment.label}", found, expected)

    def spark(self, rng: random.Random) -> None:
        """Read at a point in Spark, where the rows come in no order."""
        world = self._world
        if (chosen := self.choose(rng)) is None or not world.is_within_reach(chosen[1]):
            return
        given, moment = chosen
        if world.without_records(moment):
            return
        more, wanted, label = self.selection(rng, moment)
        names = [*rng.sample(moment.columns, rng.randint(1, len(moment.columns))), *_places(rng)]
        names += [name for name in world.kind.partitioned_by if name not in names]
        limit = rng.randint(0, 30) if rng.random() < 0.2 else None
        scan = world.reader().scan(names, **given, **more, limit=limit)
        expected = [{name: row[name] for name in names} for row in moment.rows() if wanted(row)][:limit]
        frame = scan.to_spark()
        found = plain(pa.table(frame.toArrow()))
        found.sort(key=lambda row: (world.kind.partition(row) or "", row["__bucket"], row["__offset"]))
        same(f"union in Spark, {moment.label}, {label}, limit {limit}, {scan.read_point!r}", found, expected)
        if rng.random() < 0.3:
            assert frame.count() == len(expected)

    def peers(self, rng: random.Random) -> None:
        """Where all is in the lake, everybody else who reads it must find what we do."""
        world = self._world
        ends, lake = world.tiered(), world.lake()
        held = {place: len(log.events) for place, log in world.logs.items() if log.events}
        if lake is None or world.sort == "equality" or any(ends.get(place) != end for place, end in held.items()):
            return
        names = [name for name in world.columns if name not in world.history.added]
        names = [*rng.sample(names, len(names)), *world.kind.partitioned_by, "__bucket", "__offset"]
        names = list(dict.fromkeys(names))
        ours = plain(world.reader().scan(names).to_arrow())
        for name, engine in QUICK.items():
            rows = plain(engine(world.scene.audit.table()).select(names))
            rows.sort(key=lambda row: (world.kind.partition(row) or "", row["__bucket"], row["__offset"]))
            same(f"what {name} reads of the lake", ours, rows)

    def disturb(self, rng: random.Random) -> None:
        """Do what moves records, and lets go of files."""
        names = ["write", "tier", "tier_cut", "compact", "expire", "retain", "remote", "orphans", "restart"]
        names += ["foreign", "tier", "retain"] if rng.random() < 0.5 else ["expire", "expire_tags"]
        for name in rng.sample(names, rng.randint(1, 5)):
            self._world.take(Step(name, rng.randrange(1 << 30), 10))

    def choose(self, rng: random.Random) -> tuple[dict[str, Any], Moment] | None:
        world = self._world
        match rng.choice(["now", "now", "kept", "kept", "past", "past", "snapshot"]):
            case "now":
                return {}, world.now()
            case "kept" if world.kept:
                kept = rng.choice(world.kept)
                return {"read_point": ReadPoint.from_json(kept.text)}, kept.moment
            case "past" if (past := world.past(rng)) is not None:
                return {"as_of": past[0]}, past[1]
            case "snapshot" if (snapshot := world.snapshot(rng)) is not None:
                return {"as_of": snapshot[0]}, snapshot[1]
        return None

    def _compare(self, rng: random.Random, given: dict[str, Any], moment: Moment) -> None:
        expected = moment.rows()
        more, wanted, label = self.selection(rng, moment)
        names = rng.sample([*moment.columns, *SYSTEM], rng.randint(1, len(moment.columns) + 3))
        with_source = rng.random() < 0.2
        limit = rng.randint(0, len(expected) + 2) if rng.random() < 0.2 else None
        scan = self._world.reader().scan(names, **given, **more, limit=limit, with_source=with_source)
        rows = [row for row in expected if wanted(row)][:limit]
        what = f"union, {moment.label}, {label}, limit {limit}, {scan.read_point!r}"
        if rng.random() < 0.3:
            assert scan.count() == len(rows), f"{what}: counted {scan.count()}, expected {len(rows)}"
            scan.explain()
        shown = [{name: row[name] for name in names} for row in rows]
        found = self._rows(rng, scan)
        if with_source:
            assert {row.pop("_source") for row in found} <= {"lake", "log"}
        same(what, found, shown)

    @staticmethod
    def _rows(rng: random.Random, scan: Scan) -> list[Row]:
        match rng.choice(["arrow", "batches", "pandas"]):
            case "arrow":
                return plain(scan.to_arrow())
            case "batches":
                return plain(pa.Table.from_batches(scan.to_batches(rng.choice([1, 7, 1000])), scan.schema))
        return plain(pa.Table.from_pandas(scan.to_pandas(), scan.schema, preserve_index=False))

    def selection(self, rng: random.Random, moment: Moment) -> tuple[dict[str, Any], Condition, str]:
        chosen = rng.random()
        if chosen < 0.4:
            text, wanted = condition(rng, self._world, moment)
            return {"where": text}, wanted, f"where {text}"
        if chosen < 0.55:
            count = self._world.kind.buckets
            buckets = rng.sample(range(count), rng.randint(1, count))
            return {"buckets": buckets}, lambda row: row["__bucket"] in buckets, f"buckets {buckets}"
        names = sorted({place[0] for place in moment.stops if place[0] is not None and moment.stops[place]})
        if chosen < 0.7 and names:
            partitions = rng.sample(names, rng.randint(1, len(names)))
            name_of = self._world.kind.partition
            return {"partitions": partitions}, lambda row: name_of(row) in partitions, f"partitions {partitions}"
        return {}, lambda _: True, "all"


def condition(rng: random.Random, world: World, moment: Moment) -> tuple[str, Condition]:
    """Return a filter as SQL and as a function; null is true of none but of ``is null``."""
    stops = [stop for stop in moment.stops.values() if stop]
    offset = rng.randint(0, max(stops, default=1))
    found = [
        _term("__offset", f">= {offset}", lambda value: value >= offset),
        _term("__offset", f"< {offset}", lambda value: value < offset),
        _term("__bucket", "= 0", lambda value: value == 0),
    ]
    for name, kind in world.kind.columns.items():
        number = rng.randrange(12)
        found += [_term(name, text, test) for text, test in _tests(kind, number)]
        found.append(_is_null(name))
    one, other = rng.choice(found), rng.choice(found)
    match rng.choice(["one", "one", "one", "and", "or"]):
        case "and":
            return f"({one[0]}) and ({other[0]})", _both(one[1], other[1])
        case "or":
            return f"({one[0]}) or ({other[0]})", _either(one[1], other[1])
    return one


def _tests(kind: str, number: int) -> list[tuple[str, Callable[[Any], bool]]]:
    match kind:
        case "bigint":
            return [(f"< {number}", lambda value: value < number), (f"= {number}", lambda value: value == number)]
        case "double":
            return [("> 0", lambda value: value > 0), ("!= 0", lambda value: value != 0)]
        case "string":
            return [
                ("= 'a'", lambda value: value == "a"),
                ("like 'a%'", lambda value: value.startswith("a")),
                ("not in ('a', 'b')", lambda value: value not in {"a", "b"}),
            ]
    return []


def _term(name: str, text: str, test: Callable[[Any], bool]) -> tuple[str, Condition]:
    def wanted(row: Row) -> bool:
        return row[name] is not None and test(row[name])

    return f"{name} {text}", wanted


def _is_null(name: str) -> tuple[str, Condition]:
    def wanted(row: Row) -> bool:
        return row[name] is None

    return f"{name} is null", wanted


def _both(one: Condition, other: Condition) -> Condition:
    def wanted(row: Row) -> bool:
        return one(row) and other(row)

    return wanted


def _either(one: Condition, other: Condition) -> Condition:
    def wanted(row: Row) -> bool:
        return one(row) or other(row)

    return wanted

"""Boundaries that are hunted on purpose: where lake and log meet, and what happens between planning and reading."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import ServerProcess
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.across.log_looks import LogLooks
from tests.across.looks import UnionLooks, plain, same
from tests.across.oracle import SYSTEM, Moment, records
from tests.across.program import from_text
from tests.across.world import World
from tests.crash.history import History

KINDS = ["log", "pk_parts"]
CAMPAIGN = pytest.mark.campaign
#: What may happen between the planning of a read and its first row, or in the middle of it.
BETWEEN = {
    "a round": "write/1/20 tier/2",
    "two rounds": "write/1/20 tier/2 write/3/20 tier/4",
    "a cut round": "write/1/20 tier_cut/2",
    "an empty round": "tier/1 tier/2",
    "segments dropped": "write/1/20 tier/2 retain/3",
    "segments copied away": "write/1/30 write/2/30 remote/3",
    "a compaction": "tier/1 compact/2 expire/3 orphans/4",
    "a compaction and no tags": "tier/1 retain/2 compact/3 expire_tags/4 orphans/5",
    "somebody's compaction": "foreign/1 expire/2",
    "a restart": "restart/1",
    "all of it": "write/1/20 tier/2 retain/3 compact/4 write/5/20 foreign/6 expire/7 restart/8 retain/9",
}


@pytest.fixture
def make_world():
    made: list[World] = []

    def make(kind: str, **options: object) -> World:
        made.append(World(kind, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


def take(world: World, program: str) -> None:
    for step in from_text(program):
        world.take(step)


def rows_at(world: World, moment: Moment, **given: object) -> None:
    """Check the rows at a moment by all forms, and their count."""
    scan = world.reader().scan([*moment.columns, *SYSTEM], **given)
    expected = moment.rows()
    same(f"{moment.label}, {given}", plain(scan.to_arrow()), expected)
    same(f"{moment.label} in pandas", plain(pa.Table.from_pandas(scan.to_pandas(), scan.schema)), expected)
    assert scan.count() == len(expected)


def replayed(world: World) -> None:
    """Check the whole log."""
    earliest = world.earliest()
    expected = [
        row
        for place in sorted(world.logs, key=lambda each: (each[0] or "", each[1]))
        for row in records(
            world.logs[place], place, earliest[place], len(world.logs[place].events), world.columns,
            partitioned=bool(world.kind.partitioned_by),
        )
    ]  # fmt: skip
    same("the whole log", plain(world.reader().changelog().to_arrow()), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_at_exactly_the_lakes_end_and_beside_it(make_world, kind):
    world = make_world(kind)
    take(world, "write/1/9 wait/2 write/3/9 tier/4 wait/5 write/6/9")
    ends = world.tiered()
    for back, retained in itertools.product((-1, 0, 1), (False, True)):
        if retained:
            take(world, "tier/1 retain/2 wait/3 write/4/5")
            ends = world.tiered()
        stops = {place: min(max(0, ends.get(place, 0) + back), len(log.events)) for place, log in world.logs.items()}
        point = world.reader().read_point()
        text = json.loads(point.to_json())
        text["buckets"] = [[*each[:3], 0, stops[each[0], each[2]]] for each in text["buckets"]]
        kept = ReadPoint.from_json(json.dumps(text))
        rows_at(world, world.moment(stops, f"{back} beside the lake's end"), read_point=kept)
    replayed(world)


@pytest.mark.parametrize("kind", ["pk", *(pytest.param(kind, marks=CAMPAIGN) for kind in ("log_parts", "pk_parts"))])
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_whatever_comes_between_planning_and_reading(make_world, kind, between):
    _check_between(make_world(kind), between)


@pytest.mark.parametrize("between", ["a round", "all of it"])
def test_whatever_comes_between_planning_and_reading_of_a_log_table(make_world, between):
    _check_between(make_world("log"), BETWEEN[between])


@pytest.mark.parametrize("kind", ["log", "pk"])
def test_whatever_comes_while_much_is_still_to_be_read(make_world, kind):
    """With sizes so small that of what is left nothing was fetched yet, when all of it moves."""
    _check_between(make_world(kind, sort="small"), BETWEEN["all of it"])


def _check_between(world: World, between: str) -> None:
    take(world, "write/11/20 wait/12 write/13/20 tier/14 wait/15 write/16/20 tier/17 write/18/20")
    moments = [world.now(), world.at(world.times()[1])]
    given = [{}, {"as_of": world.times()[1]}]
    world.clock.advance(10)
    scans = [world.reader().scan([*m.columns, *SYSTEM], **g) for m, g in zip(moments, given, strict=True)]
    logs = [world.reader().changelog(), world.reader().changelog(columns=["name"])]
    expected_log = {place: len(log.events) for place, log in world.logs.items()}
    begun = []
    for scan in scans:
        batches = scan.to_batches(1)
        begun.append((scan, [next(batches)], batches))
    planned = [scan.plan() for scan in scans]
    changes = [(log, log.to_batches(1)) for log in logs]
    first = [next(batches) for _, batches in changes]
    take(world, between)
    for moment, (scan, found, batches) in zip(moments, begun, strict=True):
        if not world.is_within_reach(moment):
            # What ended rows since is not known any more: either what is read is true, or it is refused.
            with pytest.raises(OffsetOutOfRangeError, match="no longer available"):
                scan.to_arrow()
            continue
        same(moment.label, plain(pa.Table.from_batches([*found, *batches], scan.schema)), moment.rows())
        same(f"{moment.label} again", plain(scan.to_arrow()), moment.rows())
    assert planned
    if any(world.earliest().values()):
        return
    for (log, batches), one in zip(changes, first, strict=True):
        expected = [
            row
            for place in sorted(expected_log, key=lambda each: (each[0] or "", each[1]))
            for row in records(
                world.logs[place], place, 0, expected_log[place], log.columns, partitioned=bool(world.kind.partitioned_by)
            )
        ]  # fmt: skip
        same("the log", plain(pa.Table.from_batches([one, *batches], log.schema)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_that_was_never_tiered_beside_one_that_was(make_world, kind):
    world = make_world(kind)
    rng = random.Random(1)
    take(world, "write/1/1 tier/2")
    for seed in range(3, 6):
        take(world, f"wait/{seed} write/{seed}/15")
        rows_at(world, world.now())
        replayed(world)
        LogLooks(world).scanner(rng)
    take(world, "retain/6")
    rows_at(world, world.now())


@pytest.mark.parametrize("kind", KINDS)
def test_empty_rounds_and_an_empty_table(make_world, kind):
    world = make_world(kind)
    rows_at(world, world.now())
    take(world, "tier/1 tier/2 write/3/9 tier/4 tier/5 retain/6 tier/7")
    rows_at(world, world.now())
    replayed(world)


@pytest.mark.parametrize("kind", ["log_parts", "pk_parts"])
def test_a_partition_only_in_the_lake_and_one_of_its_name(make_world, kind):
    world = make_world(kind)
    # What a compaction retired of it stays in the lake, kept by a tag, whatever becomes of its name.
    take(world, "write/1/30 wait/2 write/3/30 tier/4 compact/5 write/6/20 tier/7 wait/8 keep/6")
    kept = ReadPoint.from_json(world.kept[-1].text) if world.kept else world.reader().read_point()
    before = world.now() if not world.kept else world.kept[-1].moment
    admin, path, history = world.cluster.connection.admin(), world.history.path, world.history
    admin.drop_partition(path, {"p": "p2"}, lake=False)
    history.model.drop_partition("p2")
    history.frozen.add("p2")
    world.changed()
    rows_at(world, world.now())
    rows_at(world, before, read_point=kept)
    rows_at(world, world.at(world.times()[0]), as_of=world.times()[0])
    replayed(world)
    first = min(world.snapshots, key=list(world.snapshots).index)
    then = world.moment(world.snapshots[first].stops, "at the first snapshot")
    rows_then, rows_kept = then.rows(), before.rows()
    admin.drop_partition(path, {"p": "p2"}, True, lake=True)
    dropped_ms = world.clock.now_ms()
    history.frozen.discard("p2")
    for place in [place for place in world.logs if place[0] == "p2"]:
        world.logs.pop(place).events.clear()
    world.changed()
    rows_at(world, world.now())
    take(world, "wait/1 write/7/4 wait/2 write/8/30 tier/8 write/9/30 retain/10")
    assert any(place[0] == "p2" and log.events for place, log in world.logs.items())
    for moment_ms in world.times()[-3:]:
        world.clock.advance(1)
        if moment_ms < dropped_ms:
            with pytest.raises(OffsetOutOfRangeError, match="partition 'p2' was dropped"):
                world.reader().read_point(moment_ms)
        else:
            rows_at(world, world.at(moment_ms), as_of=moment_ms)
    rows_at(world, world.now())
    replayed(world)
    # A snapshot from before has the rows of the first one of the name, and none of the second.
    assert any(row["p"] == "p2" for row in rows_then)
    scan = world.reader().scan([*then.columns, *SYSTEM], as_of=first)
    same(then.label, plain(scan.to_arrow()), rows_then)
    assert scan.count() == len(rows_then)
    # The point is of the partition that went, not of the one that has its name now.
    same("at the point", plain(world.reader().scan([*before.columns, *SYSTEM], read_point=kept).to_arrow()), rows_kept)


def test_looks_find_rows_however_they_are_asked_for(make_world, seed):
    """Of one table that lies in lake and log, every form of a read, many times."""
    world, rng = make_world("pk"), random.Random(seed)
    take(
        world,
        "write/1/30 wait/2 write/3/30 keep/4 tier/5 wait/6 write/7/30 keep/8 compact/9 write/10/20 tier/11 write/12/9",
    )
    looks = UnionLooks(world)
    for _ in range(60):
        looks.union(rng)


TURNS = 6
READER = """
import sys
from fluss_lab.client import Connection
from fluss_lab.model import TablePath
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.server import cluster
from fluss_lab.client import ServerAddress
from pathlib import Path

def address():
    place = cluster.locate(Path(sys.argv[1]))
    return ServerAddress.of(place.host, place.port, place.token, place.trust)

point = ReadPoint.from_json(sys.argv[2])
with Connection(address, {"client.request-timeout": "120s"}) as connection:
    for turn in range(int(sys.argv[3])):
        rows = TableReader(connection, TablePath.parse(sys.argv[4])).scan(["id", "name", "__offset"], read_point=point).to_arrow()
        print(turn, len(rows), hash(tuple(map(tuple, (row.values() for row in rows.to_pylist())))), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pk", pytest.param("log", marks=CAMPAIGN)])
def test_a_reader_of_another_process_keeps_its_point_across_kills_of_the_server(tmp_path, kind):
    with ServerProcess(tmp_path / "lab", client={"client.request-timeout": "120s"}) as server:
        history = History(server.connection, kind, random.Random(3), "t")
        for _ in range(4):
            history.write()
        _tier(history)
        history.write()
        point = TableReader(server.connection, history.path).read_point()
        logs = history.read()
        expected = len(Moment(logs, dict(point.stops), history.columns, history.kind.is_keyed).rows())
        command = [sys.executable, "-c", READER, str(server.folder), point.to_json(), str(TURNS), str(history.path)]
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as reader:
            assert reader.stdout is not None
            found = [reader.stdout.readline().split()]
            for action in (history.write, lambda: _tier(history)):
                server.kill()
                server.start()
                action()
                found.append(reader.stdout.readline().split())
            found += [line.split() for line in reader.stdout]
            assert reader.wait(120) == 0
        assert [int(each[0]) for each in found] == list(range(TURNS))
        assert {int(each[1]) for each in found} == {expected}
        assert len({each[2] for each in found}) == 1, found


def _tier(history: History) -> None:
    storage = history.connection.lake_storage()
    assert storage is not None
    run_round(history.connection, storage, LocalTieringExecutor(), table_id=history.info.table_id)


@pytest.mark.parametrize("kind", ["log", "pk"])
def test_what_only_a_lake_holds_that_is_switched_off(make_world, kind):
    """Records that have left the cluster are found by time, offset and moment as before."""
    world, rng = make_world(kind), random.Random(7)
    take(world, "write/1/20 wait/2 write/3/20 tier/4 retain/5 lake_switch/6 wait/7 write/8/9 wait/9")
    for moment_ms in world.times():
        rows_at(world, world.at(moment_ms), as_of=moment_ms)
        found = world.reader().seek(moment_ms)
        assert dict(found.offsets) == world.offsets_at(moment_ms)
        log = world.reader().changelog(moment_ms).to_arrow()
        left = sum(len(world.logs[place].events) - offset for place, offset in world.offsets_at(moment_ms).items())
        assert len(log) == left
    replayed(world)
    LogLooks(world).scanner(rng)
    take(world, "lake_switch/10 tier/11 retain/12")
    rows_at(world, world.now())
    replayed(world)

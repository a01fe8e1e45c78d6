"""One history of a few dozen records, read at every offset, at every moment, and from every offset to every later one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.read.moment.read_point import ReadPoint
from tests.across.looks import plain, same
from tests.across.oracle import SYSTEM, net_changes, net_records, records
from tests.across.program import from_text
from tests.across.world import World

#: Two compactions of our own and one of somebody else's, each followed by rounds that end rows in what they wrote; then
#: much of it leaves the cluster, and the log goes on.
HISTORY = (
    "write/1/9 wait/2 write/3/9 tier/4 wait/5 write/6/9 tier/7 compact/8 wait/9 write/10/9 tier/11 write/12/9 tier/13 "
    "compact/14 wait/15 write/16/9 tier/17 foreign/18 wait/19 write/20/9 tier/21 write/22/5 retain/23 wait/24 write/25/9"
)
PLACES = [(None, 0), (None, 1)]


@pytest.fixture(scope="module", params=["pk", "pk small", "log", "log small"])
def world(request) -> Iterator[World]:
    made = World(*request.param.split())
    for step in from_text(HISTORY):
        made.take(step)
    made.clock.advance(10)
    yield made
    made.close()


def point_at(world: World, stops: dict) -> ReadPoint:
    text = json.loads(world.reader().read_point().to_json())
    text["buckets"] = [[*each[:3], 0, stops[each[0], each[2]]] for each in text["buckets"]]
    return ReadPoint.from_json(json.dumps(text))


def ends(world: World) -> dict:
    return {place: len(world.logs[place].events) for place in PLACES}


def test_the_history_is_one_of_lake_and_log(world):
    """What follows says little unless the lake's part is long, compacted, and rows of it were ended since."""
    held = world.statuses()
    for place in PLACES:
        assert 0 < held[place].start_offset <= world.tiered()[place] < ends(world)[place]
    tags = [name for name in world.scene.audit.table().metadata.refs if name != "main"]
    assert len(tags) >= (3 if world.kind.is_keyed else 0)


def test_the_rows_at_every_offset(world):
    last = ends(world)
    names = [*world.columns, *SYSTEM]
    for stop in range(max(last.values()) + 1):
        stops = {place: min(stop, end) for place, end in last.items()}
        moment = world.moment(stops, f"at offset {stop}")
        scan = world.reader().scan(names, read_point=point_at(world, stops))
        same(moment.label, plain(scan.to_arrow()), moment.rows())
        assert scan.count() == len(moment.rows())


def test_the_rows_at_every_moment(world):
    names = [*world.columns, *SYSTEM]
    for time_ms in world.times():
        for moment_ms in (max(time_ms - 1, world.history.info.created_ms), time_ms):
            moment = world.at(moment_ms)
            same(moment.label, plain(world.reader().scan(names, as_of=moment_ms).to_arrow()), moment.rows())


def test_the_log_from_every_offset(world):
    last = ends(world)
    for start in range(max(last.values()) + 1):
        starts = {place: min(start, end) for place, end in last.items()}
        log = world.reader().changelog({bucket: offset for (_, bucket), offset in starts.items()})
        expected = [
            row
            for place in PLACES
            for row in records(world.logs[place], place, starts[place], last[place], world.columns, partitioned=False)
        ]
        same(f"from {start}", plain(log.to_arrow()), expected)


def test_the_net_changes_between_any_two_offsets(world, seed):
    if not world.kind.is_keyed:
        return
    rng, last = random.Random(seed), ends(world)
    for _ in range(40):
        edges = {place: sorted(rng.choices(range(end + 1), k=2)) for place, end in last.items()}
        start, stop = ({place[1]: edge[at] for place, edge in edges.items()} for at in (0, 1))
        expected = [
            row
            for place in PLACES
            for row in net_records(
                net_changes(world.logs[place], *edges[place], world.columns, lambda event: event.row["id"]),
                place, world.columns, partitioned=False,
            )
        ]  # fmt: skip
        same(f"{start} to {stop}", plain(world.reader().changelog(start, stop, net=True).to_arrow()), expected)


def test_a_scanner_from_every_offset(world):
    for place in PLACES:
        events = world.logs[place].events
        for start in range(0, len(events), 3):
            with world.cluster.connection.log_scanner(world.history.path, projection=world.columns) as scanner:
                scanner.subscribe(place[1], start)
                found: list = []
                while sum(map(len, found)) < len(events) - start:
                    found += [batch.records for batch in scanner.poll(60.0)]
            rows = [row for run in found for row in run.rows.to_pylist()]
            offsets = [offset for run in found for offset in run.offsets.to_pylist()]
            assert offsets == list(range(start, len(events)))
            assert rows == [{name: event.row.get(name) for name in world.columns} for event in events[start:]]


def test_what_nothing_is_known_of_any_more_is_refused_and_the_rest_is_still_right():
    world = World("pk")
    try:
        for step in from_text(
            f"{HISTORY} tier/30 retain/31 compact/32 write/33/9 tier/34 retain/35 expire_tags/36 write/37/5"
        ):
            world.take(step)
        last, starts = ends(world), world.replay_starts()
        assert all(starts[place] > 0 for place in PLACES)
        refused = 0
        for stop in range(max(last.values()) + 1):
            stops = {place: min(stop, end) for place, end in last.items()}
            moment = world.moment(stops, f"at offset {stop}")
            scan = world.reader().scan([*world.columns, *SYSTEM], read_point=point_at(world, stops))
            if world.is_within_reach(moment):
                same(moment.label, plain(scan.to_arrow()), moment.rows())
            elif stop:
                refused += 1
                with pytest.raises(OffsetOutOfRangeError, match="no longer available"):
                    scan.to_arrow()
            first = {place[1]: offset for place, offset in stops.items()}
            if all(stops[place] >= world.earliest()[place] for place in PLACES):
                found = plain(world.reader().changelog(first).to_arrow())
                assert len(found) == sum(last[place] - stops[place] for place in PLACES)
            else:
                with pytest.raises(OffsetOutOfRangeError, match="earliest available"):
                    world.reader().changelog(first).to_arrow()
        assert refused > 5
    finally:
        world.close()

"""Rows one by one, and by pages: look-ups by key and by prefix, the history of a key, pages, the first rows."""

from __future__ import annotations

import random
from typing import Any

from fluss_lab.client import Lookuper
from fluss_lab.errors import PartitionNotFoundError, UnsupportedError
from tests.across.looks import GONE, UnionLooks, claim, plain, same
from tests.across.oracle import SYSTEM, order, record
from tests.across.world import World
from tests.crash.kinds import Row


class RowLooks:
    """Asks for rows in ways that have a reader of their own."""

    def __init__(self, world: World) -> None:
        self._world = world

    # -- by key --------------------------------------------------------------------------------------------------------

    def lookup(self, rng: random.Random) -> None:
        """Look keys up, some of them twice, some in partitions that are not there."""
        world = self._world
        if not world.kind.is_keyed:
            return
        keys = [world.kind.key(rng) for _ in range(rng.randint(0, 9))]
        keys += rng.sample(keys, min(len(keys), rng.choice([0, 0, 1])))
        columns = rng.sample(world.columns, rng.randint(1, len(world.columns))) if rng.random() < 0.5 else None
        rows = [world.history.model.lookup(key) or {} for key in keys]
        if (found := self._looked_up(keys, columns, Lookuper.lookup)) is None:
            return
        names = columns or world.columns
        assert found.column_names == names, (found.column_names, names)
        same(f"lookup of {keys}", found.to_pylist(), [{name: row.get(name) for name in names} for row in rows])

    def prefix(self, rng: random.Random) -> None:
        """Look rows up by the bucket key."""
        world, kind = self._world, self._world.kind
        rest = [name for name in kind.primary_key if name not in kind.partitioned_by]
        if not kind.bucket_key or len(rest) < 2 or tuple(rest[:1]) != kind.bucket_key:
            return
        key = kind.key(rng)
        prefix = {name: key[name] for name in (*kind.bucket_key, *kind.partitioned_by)}
        if (found := self._looked_up([prefix], None, Lookuper.prefix_lookup)) is None:
            return
        assert found.column_names == world.columns
        live = [row for bucket in world.history.model.buckets.values() for row, _ in bucket.rows.values()]
        expected = [row for row in live if all(row[name] == value for name, value in prefix.items())]
        same(f"prefix {prefix}", sorted(found.to_pylist(), key=self._key), sorted(expected, key=self._key))

    def history(self, rng: random.Random) -> None:
        """Read all changes of one key."""
        world = self._world
        if not world.kind.is_keyed:
            return
        key = world.kind.key(rng)
        if rng.random() < 0.9 and (places := [place for place in world.logs if world.logs[place].events]):
            event = rng.choice(world.logs[rng.choice(sorted(places, key=order))].events)
            key = {name: event.row[name] for name in world.kind.primary_key}
        place = world.history.model.place(key)
        events = world.logs[place].events if place in world.logs else []
        try:
            history = world.reader().history(key)
            found, first = plain(history.to_arrow()), history.first_offset
        except PartitionNotFoundError as error:
            claim(not events, f"history of {key}: {error}")
            return
        assert not events or first == world.earliest()[place], (key, first)
        expected = [
            record(place, offset, event, world.columns, bool(world.kind.partitioned_by))
            for offset, event in enumerate(events)
            if offset >= first and all(event.row[name] == value for name, value in key.items())
        ]
        same(f"history of {key}", found, expected)

    def _looked_up(self, keys: list[Row], columns: list[str] | None, call: Any) -> Any:
        """Ask as `Table.lookup` does: of lookupers that are kept. None: it was refused, as it must be where only the lake has rows."""
        connection, kept = self._world.cluster.connection, self._only_in_lake(keys)
        try:
            found = connection.kept_lookupers.lookup(connection.lookuper, self._world.history.path, columns, keys, call)
        except PartitionNotFoundError as error:
            claim(kept, f"lookup of {keys}: {error}")
            return None
        assert not kept, f"lookup of {keys}: only the lake has rows of {kept}, and nobody said so"
        return found

    def _only_in_lake(self, keys: list[Row]) -> set[str | None]:
        """Return the partitions of keys that were dropped from the cluster, and of which the lake has rows."""
        lake = self._world.lake()
        tiered = {each.partition for each in lake.offsets.values() if each.end} if lake is not None else set()
        return tiered & self._world.history.frozen & {self._world.kind.partition(key) for key in keys}

    def _key(self, row: Row) -> str:
        return str([row[name] for name in self._world.kind.primary_key])

    # -- by number -----------------------------------------------------------------------------------------------------

    def pages(self, rng: random.Random) -> None:
        """Read pages of a scan, anywhere, while the table moves."""
        world, looks = self._world, UnionLooks(self._world)
        if (chosen := looks.choose(rng)) is None:
            return
        given, moment = chosen
        if not world.is_within_reach(moment) or world.without_records(moment):
            return
        more, wanted, label = looks.selection(rng, moment)
        names = rng.sample([*moment.columns, *SYSTEM], rng.randint(1, len(moment.columns) + 3))
        limit = rng.randint(0, 30) if rng.random() < 0.3 else None
        rows = [row for row in moment.rows() if wanted(row)][:limit]
        places = [{"_partition": world.kind.partition(row), **{name: row[name] for name in SYSTEM}} for row in rows]
        what = f"pages, {moment.label}, {label}, limit {limit}"
        with world.reader().scan(names, **given, **more, limit=limit).pages() as pages:
            for _ in range(rng.randint(1, 4)):
                first, count = rng.randint(0, len(rows) + 2), rng.randint(1, 10)
                try:
                    page = pages.page(first, count)
                except (*GONE, UnsupportedError) as error:
                    claim(not world.is_within_reach(moment) or world.without_records(moment), f"{what}: {error}")
                    return
                shown = [{name: row[name] for name in names} for row in rows[first : first + count]]
                same(f"{what}, {count} from {first}", plain(page.rows), shown)
                same(f"{what}, places", plain(page.places.drop_columns("_source")), places[first : first + count])
                assert page.total in {None, len(rows)}, (what, page)
                assert page.at_least <= len(rows), (what, page)
                if rng.random() < 0.2:
                    looks.disturb(rng)

    def first(self, rng: random.Random) -> None:
        """Read the first rows, as the reader and as the servers have them, and count all."""
        world, count = self._world, rng.randint(1, 8)
        rows = [{name: row[name] for name in world.columns} for row in world.now().rows()]
        same("the first rows", plain(world.reader().scan(limit=count).to_arrow()), rows[:count])
        assert world.reader().scan().count() == len(rows)
        if world.kind.is_keyed:
            live = [row for bucket in world.history.model.buckets.values() for row, _ in bucket.rows.values()]
            found = world.cluster.connection.limit_scan(world.history.path, count).to_pylist()
            assert all(row in live for row in found), found
            assert len(found) == min(count, len(live))

"""A primary-key table in a cluster with a lake, and the same table as a plain model: what every read must agree with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import LakeSnapshotNotFoundError, OffsetOutOfRangeError, UnsupportedError
from fluss_lab.model import LakeSnapshot
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.scan import Scan
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.crash.history import Place
from tests.crash.scene import DAYS_AHEAD_MS, HOURS_AHEAD_MS, TAKEOVER, Scene
from tests.readers import foreign
from tests.unit.read.kit import SYSTEM, rows_of

#: Segments of a few batches, so that they roll; nothing is done by the clock, only when a test says so.
OPTIONS: Final = {
    **TAKEOVER,
    "log.segment.file-size": "2kb",
    "log.index.interval-size": "1kb",
    "remote.log.task-interval-duration": "1d",
    "kv.snapshot.interval": "1d",
    "log.retention.check-interval": "1d",
    "lake.tiering.heartbeat-timeout": "60s",
}
FAR_MS: Final = 400 * 24 * 3_600_000

Stops = Mapping[Place, int]
Row = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """A moment of the table: how it is asked for, and up to where it reaches in each bucket."""

    asked: Mapping[str, Any]
    stops: Stops
    by_time: bool = False


class KeyedTable:
    """A primary-key table of a kind of `tests.crash.kinds`, and all that was ever written to it."""

    def __init__(
        self, cluster: EmbeddedCluster, clock: MockClock, kind: str, name: str, seed: int = 0, **properties: Any
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.scene = Scene(cluster, kind, seed, name, properties)
        self.history = self.scene.history
        self.kind = self.history.kind
        self.known: dict[int, Stops] = {}

    @property
    def connection(self) -> Any:
        return self.cluster.connection

    @property
    def columns(self) -> list[str]:
        return [*self.history.columns, *SYSTEM]

    @property
    def stops(self) -> dict[Place, int]:
        return {place: len(log.events) for place, log in self.history.logs.items()}

    def reader(self) -> TableReader:
        return TableReader(self.connection, self.history.path)

    def scan(self, columns: list[str] | None = None, where: object = None, **asked: Any) -> Scan:
        return self.reader().scan(self.columns if columns is None else columns, where, **asked)

    # -- changing both ------------------------------------------------------------------------------------------------

    def write(self, times: int = 1) -> None:
        for _ in range(times):
            self.history.write()
        self.history.read()

    def upsert(self, rows: list[Row]) -> None:
        self.history._upsert(rows)
        self.history.read()

    def delete(self, keys: list[Row]) -> None:
        self.history._delete(keys)
        self.history.read()

    def tier(self, **options: Any) -> int | None:
        report = self.scene.tier(**options)
        if (snapshot := self.lake()) is not None:
            self.known[snapshot.snapshot_id] = {
                (each.partition, bucket.bucket): each.end for bucket, each in snapshot.offsets.items()
            }
        return report.snapshot_id

    def compact(self) -> None:
        if self.lake() is not None:
            self.scene.maintain("compact")

    def expire(self, *, tags: bool = False) -> None:
        if self.lake() is not None:
            self.scene.maintain("expire", ahead_ms=DAYS_AHEAD_MS if tags else HOURS_AHEAD_MS)

    def compact_elsewhere(self, rng: random.Random) -> None:
        """Somebody else compacts the lake table; our next round notices."""
        if self.lake() is not None:
            self.tier()
            foreign.compact(self.scene.audit.table(), rng)
            self.write()
            self.tier()

    def retain(self) -> None:
        """Let the cluster drop all that it need not hold."""
        service = self.cluster.tablet()
        for status in self.statuses().values():
            service.snapshot_now(status.bucket)
        service.apply_retention(self.clock.now_ms() + FAR_MS)

    def drop_partition(self, name: str, *, discard: bool = False) -> None:
        """Drop a partition when the lake holds all of it; or with `discard` as it is: what was not tiered is lost."""
        self.history.read()
        if not discard:
            self.tier()
        lake = self.lake()
        ends = (
            {} if lake is None else {(each.partition, bucket.bucket): each.end for bucket, each in lake.offsets.items()}
        )
        partition = {self.kind.partitioned_by[0]: name}
        self.connection.admin().drop_partition(self.history.path, partition, discard_untiered=discard)
        self.history.model.drop_partition(name)
        self.history.frozen.add(name)
        for place in [each for each in self.history.logs if each[0] == name]:
            del self.history.logs[place].events[ends.get(place, 0) :]
            if place not in ends:
                del self.history.logs[place]

    # -- how it stands ------------------------------------------------------------------------------------------------

    def statuses(self) -> dict[Place, Any]:
        found = self.connection.admin().buckets(self.history.info)
        return {(each.partition, each.bucket.bucket): each for each in found}

    def lake(self) -> LakeSnapshot | None:
        try:
            found: LakeSnapshot = self.connection.admin().lake_snapshot(self.history.path)
        except LakeSnapshotNotFoundError:
            return None
        return found

    def earliest(self) -> dict[Place, int]:
        """Return the first offset at which the rows of each bucket can be told."""
        lake, held = self.lake(), {place: each.start_offset for place, each in self.statuses().items()}
        starts = {}
        if lake is not None:
            starts = {(o.partition, b.bucket): lake.starts.get(b, 0) for b, o in lake.offsets.items()}
        found = {}
        for place in self.history.logs:
            known = [each[place] for each in (held, starts) if place in each]
            found[place] = min(known, default=0)
        return found

    # -- moments ------------------------------------------------------------------------------------------------------

    def now(self) -> Moment:
        return Moment({}, self.stops)

    def keep(self) -> Moment:
        point = self.reader().read_point()
        assert {key: stop for key, stop in point.stops.items() if stop} == {k: n for k, n in self.stops.items() if n}
        return Moment({"read_point": point}, self.stops)

    def at(self, moment_ms: int) -> Moment:
        stops = {
            place: sum(event.timestamp_ms <= moment_ms for event in log.events)
            for place, log in self.history.logs.items()
        }
        return Moment({"as_of": moment_ms}, stops, by_time=True)

    def within_reach(self, moment: Moment) -> bool:
        """Return whether a read must succeed. Of a time before the first record held nobody knows what it misses."""
        earliest = self.earliest()
        for place, stop in moment.stops.items():
            first = earliest.get(place, 0)
            if stop < first or (moment.by_time and stop == first > 0):
                return False
        return all(stop <= self.stops.get(place, 0) for place, stop in moment.stops.items())

    # -- what reads must give -----------------------------------------------------------------------------------------

    def expected(self, stops: Stops, where: Callable[[Row], Any] | None = None) -> list[Row]:
        """Return the rows that live at the stops and for which a condition is true, in reading order."""
        found = []
        logs = self.history.logs
        for place in sorted((each for each in stops if each in logs), key=lambda each: (each[0] or "", each[1])):
            for offset, event in sorted(logs[place].live(stops[place]).items()):
                row = dict.fromkeys(self.history.columns) | event.row
                row |= {"__bucket": place[1], "__offset": offset, "__timestamp": event.timestamp_ms}
                if where is None or where(row):
                    found.append(row)
        return found


class Looks:
    """Reads of a table in every form, each held against the model."""

    def __init__(self, table: KeyedTable) -> None:
        self.table = table
        self.kept: list[Moment] = []
        self.refused = self.read = self.timeless = 0

    def look(self, rng: random.Random) -> None:
        """Look at a random moment in a random form."""
        moment = self._moment(rng)
        try:
            try:
                self.check(moment, rng)
            except UnsupportedError as error:
                if "leave __timestamp out" not in str(error):
                    raise
                self.timeless += 1
                self.check(moment, rng, times=False)
            self.read += 1
        except OffsetOutOfRangeError:
            if self.table.within_reach(moment):
                raise
            self.refused += 1

    def _moment(self, rng: random.Random) -> Moment:
        table = self.table
        choice = rng.random()
        if choice < 0.3 and self.kept:
            return rng.choice(self.kept)
        times = sorted({event.timestamp_ms for log in table.history.logs.values() for event in log.events})
        if choice < 0.6 and times:
            moment_ms = min(rng.choice(times) + rng.choice([-1, 0, 0, 1]), table.clock.now_ms() - 1)
            return table.at(moment_ms) if moment_ms >= table.history.info.created_ms else table.now()
        if choice < 0.8 and table.known:
            snapshot_id = rng.choice(sorted(table.known))
            if table.connection.admin().lake_snapshot(table.history.path).snapshot_id == snapshot_id or self._is_known(
                snapshot_id
            ):
                return Moment({"as_of": snapshot_id}, table.known[snapshot_id])
        return table.now()

    def _is_known(self, snapshot_id: int) -> bool:
        try:
            self.table.connection.admin().lake_snapshot(self.table.history.path, snapshot_id)
        except LakeSnapshotNotFoundError:
            return False
        return True

    def check(self, moment: Moment, rng: random.Random, *, times: bool = True) -> None:
        table, asked = self.table, dict(moment.asked)
        if "read_point" in asked and rng.random() < 0.5:
            asked["read_point"] = ReadPoint.from_json(asked["read_point"].to_json())
        columns = table.columns
        if "read_point" in asked:
            schema = table.connection.schema(table.history.info, asked["read_point"].schema_id)
            columns = [*schema.names, *SYSTEM]
        if not times:
            columns = [name for name in columns if name != "__timestamp"]
        wanted = [{name: row[name] for name in columns} for row in table.expected(moment.stops)]
        forms = [self._whole, self._some, self._filtered, self._limited, self._by_bucket, self._by_offset, self._pandas]
        rng.choice(forms)(asked, columns, wanted, rng)

    def _same(self, scan: Scan, wanted: list[Row], rng: random.Random) -> None:
        names = scan.schema.names
        if rng.random() < 0.5:
            found = pa.Table.from_batches(scan.to_batches(rng.randint(1, 50)), scan.schema)
        else:
            found = scan.to_arrow()
        assert rows_of(found) == [{name: row[name] for name in names} for row in wanted], (scan, scan.explain())
        assert scan.count() == len(wanted)

    def _whole(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        self._same(self.table.scan(columns, **asked), wanted, rng)

    def _some(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        self._same(self.table.scan(rng.sample(columns, rng.randint(1, len(columns))), **asked), wanted, rng)

    def _filtered(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        conditions: list[tuple[str, Callable[[Row], Any]]] = [
            ("name is null", lambda row: row["name"] is None),
            ("name like 'a%'", lambda row: row["name"] is not None and row["name"].startswith("a")),
            ("x > 0", lambda row: row["x"] is not None and row["x"] > 0),
            ("pos is not null", lambda row: row["pos"] is not None),
            ("file_path like '%b'", lambda row: row["file_path"] is not None and row["file_path"].endswith("b")),
            ("__bucket = 1", lambda row: row["__bucket"] == 1),
        ]
        key = rng.choice(wanted) if wanted else None
        if key is not None:
            names = self.table.kind.primary_key
            if all(isinstance(key[name], int | str) for name in names):
                conditions.append((
                    " and ".join(f"{name} = {_literal(key[name])}" for name in names),
                    lambda row: all(row[name] == key[name] for name in names),
                ))  # fmt: skip
        sql, condition = rng.choice([each for each in conditions if each[0].split()[0] in columns])
        scan = self.table.scan(rng.sample(columns, rng.randint(1, len(columns))), sql, **asked)
        self._same(scan, [row for row in wanted if condition(row)], rng)

    def _limited(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        limit = rng.randint(0, len(wanted) + 2)
        self._same(self.table.scan(columns, limit=limit, **asked), wanted[:limit], rng)

    def _by_bucket(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        count = self.table.kind.buckets
        buckets = rng.sample(range(count), rng.randint(1, count))
        scan = self.table.scan(columns, buckets=buckets, **asked)
        self._same(scan, [row for row in wanted if row["__bucket"] in buckets], rng)

    def _by_offset(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        low = rng.randint(0, 40)
        high = low + rng.randint(0, 60)
        scan = self.table.scan(columns, f"__offset >= {low} and __offset < {high}", **asked)
        self._same(scan, [row for row in wanted if low <= row["__offset"] < high], rng)

    def _pandas(self, asked: Any, columns: list[str], wanted: list[Row], rng: random.Random) -> None:
        frame = self.table.scan(columns, **asked).to_pandas()
        assert frame["__offset"].tolist() == [row["__offset"] for row in wanted]
        assert frame["__bucket"].tolist() == [row["__bucket"] for row in wanted]


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

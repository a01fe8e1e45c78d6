"""Real flights as a primary-key table: departures, then delays, then corrections and deletions, in many rounds."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.samples import nyc_flights
from tests.across.world import FAR_MS
from tests.crash.scene import HOURS_AHEAD_MS
from tests.readers.audit import load_table
from tests.readers.engines import QUICK

BUCKETS = 4
PROPERTIES = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
OPTIONS = {"log.segment.file-size": "32kb", "log.retention.check-interval": "1d", "kv.snapshot.interval": "1d"}
#: What is known when a flight has left, and what only later.
LATER = ("arr_time", "arr_delay", "air_time")
CORRECTED = 0.01
COMPACT_EVERY = 7
MONTHS = [f"2013-{number:02}" for number in range(1, 13)]


class Flights:
    """The table, everything that was sent to it, and the log that it must come to.

    The log is kept as columns: the event's flight and day of writing tell its row.
    """

    def __init__(self, cluster: EmbeddedCluster, clock: MockClock, months: list[str], seed: int) -> None:
        self.cluster = cluster
        self.clock = clock
        self.rng = random.Random(seed)
        every = nyc_flights()
        chosen = every.filter(pc.is_in(every["month"], pa.array(months)))
        number = pa.array(np.arange(len(chosen), dtype=np.int32))
        self.source = chosen.add_column(0, pa.field("id", pa.int32(), nullable=False), number).combine_chunks()
        self.bucket_of = iceberg_bucket_ids(number, BUCKETS).to_numpy()
        admin = cluster.connection.admin()
        admin.create_database("nyc")
        self.path = TablePath("nyc", "flights")
        descriptor = make_descriptor(self.source.schema, primary_key=["id"], buckets=BUCKETS, properties=PROPERTIES)
        self.info = admin.create_table(self.path, descriptor)
        self.columns = self.source.column_names
        #: By bucket: (change, time, row) of every record.
        self.events: list[list[tuple[str, int, tuple[Any, ...]]]] = [[] for _ in range(BUCKETS)]
        self.live: dict[int, tuple[tuple[Any, ...], int, int]] = {}
        self.points: list[tuple[int, pa.Table]] = []
        self.rounds = 0

    # -- the input -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live through the days: each has its departures, the delays of its flights, corrections and cancellations."""
        days = defaultdict(list)
        keys = zip(self.source["month"].to_pylist(), self.source["day"].to_pylist(), strict=True)
        for number, key in enumerate(keys):
            days[key].append(number)
        for count, day in enumerate(sorted(days), start=1):
            self._depart(days[day])
            self._tier()
            self._arrive(days[day])
            self._correct()
            self._cancel(days[day])
            if count % 2:
                self._tier()
            if count % COMPACT_EVERY == 0:
                self._compact()
                self.points.append((self.clock.now_ms() - 1, self.state()))
        self._tier()
        self._compact()

    def _depart(self, numbers: list[int]) -> None:
        rows = self.source.take(numbers)
        for name in LATER:
            index = rows.column_names.index(name)
            rows = rows.set_column(index, name, pa.nulls(len(rows), rows.schema.field(name).type))
        self._upsert(rows)

    def _arrive(self, numbers: list[int]) -> None:
        self._upsert(self.source.take(numbers).select(["id", *LATER]))

    def _correct(self) -> None:
        some = sorted(self.rng.sample(sorted(self.live), max(1, int(len(self.live) * CORRECTED))))
        delays = [self.rng.choice([None, 0, 7]) for _ in some]
        self._upsert(pa.table({"id": pa.array(some, pa.int32()), "dep_delay": pa.array(delays, pa.int32())}))

    def _cancel(self, numbers: list[int]) -> None:
        """Delete the flights that never left."""
        gone = [number for number in numbers if self.live[number][0][self.columns.index("dep_time")] is None]
        with self.cluster.connection.upsert_writer(self.path) as writer:
            writer.delete([{"id": number} for number in gone]).result()
        for number in gone:
            row, _, _ = self.live.pop(number)
            self._event(number, "-D", row)
        self.clock.advance(60_000)

    def _upsert(self, rows: pa.Table) -> None:
        columns = None if rows.num_columns == len(self.columns) else rows.column_names
        with self.cluster.connection.upsert_writer(self.path, columns=columns) as writer:
            writer.upsert(rows).result()
        places = [self.columns.index(name) for name in rows.column_names]
        for values in zip(*[column.to_pylist() for column in rows.columns], strict=True):
            number = values[0]
            old = self.live.get(number)
            row = list(old[0]) if old is not None else [None] * len(self.columns)
            for place, value in zip(places, values, strict=True):
                row[place] = value
            new = tuple(row)
            if old is not None and old[0] == new:
                continue
            if old is not None:
                self._event(number, "-U", old[0])
            offset = self._event(number, "+I" if old is None else "+U", new)
            self.live[number] = (new, offset, self.clock.now_ms())
        self.clock.advance(60_000)

    def _event(self, number: int, change: str, row: tuple[Any, ...]) -> int:
        events = self.events[self.bucket_of[number]]
        events.append((change, self.clock.now_ms(), row))
        return len(events) - 1

    # -- what is done to it --------------------------------------------------------------------------------------------

    @property
    def _lake(self) -> Any:
        return self.cluster.connection.lake_storage()

    def _tier(self) -> None:
        run_round(self.cluster.connection, self._lake, LocalTieringExecutor(), table_id=self.info.table_id)
        self.rounds += 1

    def _compact(self) -> None:
        """Compact, and let go of all that need not be kept."""
        self._maintain("compact", 0)
        self._maintain("expire", HOURS_AHEAD_MS)
        tablet = self.cluster.tablet()
        for status in self.cluster.connection.admin().buckets(self.info):
            tablet.snapshot_now(status.bucket)
        tablet.apply_retention(self.clock.now_ms() + FAR_MS)

    def _maintain(self, action: str, ahead_ms: int) -> None:
        connection, table_id = self.cluster.connection, self.info.table_id
        maintain_by_hand(connection, self._lake, LocalTieringExecutor(), action, table_id, ahead_ms=ahead_ms)

    # -- what it must come to ------------------------------------------------------------------------------------------

    def state(self) -> pa.Table:
        """Return the rows that live, in reading order."""
        order = sorted((self.bucket_of[number], offset, number) for number, (_, offset, _) in self.live.items())
        rows = [self.live[number][0] for _, _, number in order]
        system = {
            "__bucket": pa.array([int(bucket) for bucket, _, _ in order], pa.int32()),
            "__offset": pa.array([offset for _, offset, _ in order], pa.int64()),
            "__timestamp": _moments([self.live[number][2] for _, _, number in order]),
        }
        return pa.table({**self._table(rows), **system})

    def replay(self) -> pa.Table:
        """Return the whole log."""
        events = [
            (bucket, offset, *event) for bucket, log in enumerate(self.events) for offset, event in enumerate(log)
        ]
        buckets, offsets, changes, times, rows = zip(*events, strict=True)
        system = {
            "_change_type": pa.array(changes, pa.string()),
            "_bucket": pa.array(buckets, pa.int32()),
            "_log_offset": pa.array(offsets, pa.int64()),
            "_commit_timestamp": _moments(times),
        }
        return pa.table({**system, **self._table(rows)})

    def _table(self, rows: Any) -> dict[str, pa.Array]:
        types = self.info.schema.arrow_schema
        columns = list(zip(*rows, strict=True))
        return {
            name: pa.array(values, types.field(name).type) for name, values in zip(self.columns, columns, strict=True)
        }

    def reader(self) -> TableReader:
        return TableReader(self.cluster.connection, self.path)


def _moments(times: Any) -> pa.Array:
    return pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def equal(found: pa.Table, expected: pa.Table) -> None:
    """Compare tables by values, and tell the first difference."""
    assert found.column_names == expected.column_names
    assert len(found) == len(expected)
    for name in expected.column_names:
        one, other = found[name].combine_chunks(), expected[name].combine_chunks()
        one = one.cast(other.type)
        if not one.equals(other):
            index = next(i for i in range(len(one)) if one[i] != other[i] and (one[i].is_valid or other[i].is_valid))
            raise AssertionError(f"{name}, row {index}: found {one[index]}, expected {other[index]}")


@pytest.fixture(
    scope="module", params=[MONTHS[:1], pytest.param(MONTHS, marks=pytest.mark.campaign)], ids=["month", "year"]
)
def flights(request) -> Iterator[Flights]:
    clock = MockClock()
    with EmbeddedCluster(options=OPTIONS, clock=clock) as cluster:
        found = Flights(cluster, clock, request.param, 2013)
        found.run()
        yield found


@pytest.mark.slow
def test_the_replay_is_what_was_sent_event_for_event(flights):
    log = flights.reader().changelog()
    equal(log.to_arrow(), flights.replay())
    assert flights.rounds > 40
    lake_ends = {each.bucket.bucket: each.lake_stop for each in log.plan()}
    held = sum(lake_ends.values()) / sum(map(len, flights.events))
    assert held > 0.8, f"only {held:.0%} of the replay came from the lake"


@pytest.mark.slow
def test_the_union_read_is_what_the_events_come_to(flights):
    system = ["__bucket", "__offset", "__timestamp"]
    equal(flights.reader().scan([*flights.columns, *system]).to_arrow(), flights.state())
    assert flights.reader().scan().count() == len(flights.live)
    for moment_ms, state in flights.points:
        equal(flights.reader().scan([*flights.columns, *system], as_of=moment_ms).to_arrow(), state)


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(QUICK))
def test_others_read_the_same_from_the_lake(flights, engine):
    """All is tiered, so that the lake alone is the table: every reader of it must agree with the union read."""
    table = load_table(flights.cluster.connection, flights.path)
    names = [*flights.columns, "__bucket", "__offset"]
    found = QUICK[engine](table).select(names).sort_by([("__bucket", "ascending"), ("__offset", "ascending")])
    equal(found, flights.reader().scan(names).to_arrow())

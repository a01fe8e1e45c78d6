"""A primary-key table in a cluster with a lake, and all that ever happened to it as plain lists: what replay must give.

Events are read from the cluster right after each write, while it holds them, and held against a dictionary of rows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import read_range
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.model.changes import CHANGE_SYMBOLS
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.read.kit import LAKE, retain

COLUMNS: Final = {"id": "bigint", "month": "string", "delay": "int", "ratio": "double", "tags": "array<int>"}
NAMES: Final = list(COLUMNS)
DAY_MS: Final = 24 * 3_600_000
Key = tuple[str | None, int]


@dataclass(frozen=True)
class Event:
    """A record of a changelog."""

    offset: int
    change: str
    timestamp_ms: int
    row: tuple[Any, ...]
    previous: int

    @property
    def adds(self) -> bool:
        return self.change in {"+I", "+U"}


class KeyedTable:
    """A primary-key table, and its log.

    Args:
        cluster: Where it is.
        clock: The cluster's.
        name: Its name.
        partitioned: Whether by month.
        keys: How many keys there are to write; few, so that each has a history.
        properties: Of the table, beside those of a lake.
    """

    def __init__(
        self, cluster: EmbeddedCluster, clock: MockClock, name: str, *, partitioned: bool = False, keys: int = 30,
        buckets: int = 2, **properties: Any,
    ) -> None:  # fmt: skip
        self.cluster, self.clock, self.partitioned, self.keys = cluster, clock, partitioned, keys
        self.logs: dict[Key, list[Event]] = defaultdict(list)
        self.rows: dict[tuple[Any, Any], tuple[Any, ...]] = {}
        admin = self.connection.admin()
        admin.create_database("db", if_not_exists=True)
        self.path = TablePath("db", name)
        descriptor = make_descriptor(
            COLUMNS,
            primary_key=["id", "month"] if partitioned else ["id"],
            partitioned_by=["month"] if partitioned else [],
            bucket_key=["id"],
            buckets=buckets,
            properties={**LAKE, "table.datalake.auto-maintenance": False, **properties},
        )
        self.info: TableInfo = admin.create_table(self.path, descriptor)

    @property
    def connection(self) -> Any:
        return self.cluster.connection

    def reader(self) -> TableReader:
        return TableReader(self.connection, self.path)

    # -- changing both ------------------------------------------------------------------------------------------------

    def write(self, rng: random.Random, count: int = 10) -> None:
        """Upsert and delete at random."""
        months = ["2013-01", "2013-02"]
        for _ in range(rng.randint(1, 3)):
            keys = {(rng.randrange(self.keys), rng.choice(months) if self.partitioned else "") for _ in range(count)}
            if self.rows and rng.random() < 0.25:  # deletes of nothing leave no events
                self.delete(sorted(keys))
            else:
                self.upsert([self.row(rng, key) for key in sorted(keys)])

    def row(self, rng: random.Random, key: tuple[int, str]) -> tuple[Any, ...]:
        known = self.rows.get(key)
        if known is not None and rng.random() < 0.2:
            return known  # nothing changes, or it changes back
        ratio = rng.choice([None, float("nan"), 0.0, -0.0, 2.5])
        tags = rng.choice([None, [], [1, None], [rng.randrange(3)]])
        return (key[0], key[1], rng.choice([None, rng.randrange(3)]), ratio, tags)

    def upsert(self, rows: list[tuple[Any, ...]]) -> None:
        with self.connection.upsert_writer(self.path) as writer:
            writer.upsert(_table(rows)).result()
        self.rows |= {(row[0], row[1]): row for row in rows}
        self.observe()

    def delete(self, keys: list[tuple[Any, Any]]) -> None:
        with self.connection.upsert_writer(self.path) as writer:
            writer.delete(_table([(*key, None, None, None) for key in keys])).result()
        for key in keys:
            self.rows.pop(key, None)
        self.observe()

    def observe(self) -> None:
        """Learn the events that were written since."""
        for status in self.connection.admin().buckets(self.info):
            log = self.logs[status.partition, status.bucket.bucket]
            if len(log) < status.high_watermark:
                for run in read_range(
                    self.connection, self.info, status.bucket, len(log), status.high_watermark,
                    partition=status.partition, lake=False, previous_offsets=True,
                ):  # fmt: skip
                    log += _events(run)
        live = {repr(event.row) for log in self.logs.values() for event in live_at(log, len(log))}
        assert live == {repr(row) for row in self.rows.values()}

    @property
    def ends(self) -> dict[Key, int]:
        return {key: len(log) for key, log in self.logs.items()}

    # -- moving it ----------------------------------------------------------------------------------------------------

    def tier(self) -> TieringReport:
        storage = self.connection.lake_storage()
        report = run_round(self.connection, storage, LocalTieringExecutor(), table_id=self.info.table_id)
        assert report is not None
        return report

    def maintain(self, action: str, ahead_ms: int = 0) -> Any:
        """``compact``, ``expire`` or ``orphans``; see `maintain_by_hand`."""
        storage = self.connection.lake_storage()
        return maintain_by_hand(
            self.connection, storage, LocalTieringExecutor(), action, self.info.table_id, ahead_ms=ahead_ms
        )

    def retire(self) -> None:
        """Let the cluster drop what the lake holds, segment by segment."""
        tablet = self.cluster.tablet()
        for status in self.connection.admin().buckets(self.info):
            tablet.snapshot_now(status.bucket)
        tablet.apply_retention(self.clock.now_ms() + 400 * DAY_MS)

    def leave(self) -> None:
        """Let the cluster drop all of its log: the lake must hold all of it."""
        self.retire()
        retain(self.cluster, lambda: all(each.start_offset == each.end_offset for each in self.statuses()))

    def statuses(self) -> list[Any]:
        found: list[Any] = self.connection.admin().buckets(self.info)
        return found

    def replay_starts(self) -> dict[Key, int]:
        """Return where replay starts in the lake, of buckets where that is not 0."""
        return _starts_of(self.connection.admin().lake_snapshot(self.path))

    def lake_replay_starts(self) -> dict[Key, int]:
        """Return the same as the lake states it: the cluster learns of it a moment after an expiry."""
        source = self.reader().scan().source
        return _starts_of(source.with_lake_starts(source.newest_snapshot()))

    # -- what reads must give -----------------------------------------------------------------------------------------

    def changes(self, key: Key, start: int, stop: int) -> list[dict[str, Any]]:
        """Return a range of the changelog."""
        return [self.record(key, event, event.change) for event in self.logs[key][start:stop]]

    def record(self, key: Key, event: Event, change: str) -> dict[str, Any]:
        found: dict[str, Any] = {"_change_type": change}
        if self.partitioned:
            found["_partition"] = key[0]
        found |= {"_bucket": key[1], "_log_offset": event.offset, "_commit_timestamp": event.timestamp_ms}
        return found | dict(zip(NAMES, event.row, strict=True))

    def net(self, key: Key, start: int, stop: int, *, back: bool = False) -> list[dict[str, Any]]:
        """Return what a range comes to, by looking at every key's first and last record in it."""
        by_key: dict[Any, list[Event]] = {}
        for event in self.logs[key][start:stop]:
            by_key.setdefault(event.row[:2], []).append(event)
        found = []
        for events in by_key.values():
            before = None if events[0].adds else events[0]
            after = events[-1] if events[-1].adds else None
            if before is not None and after is not None:
                if repr(before.row) != repr(after.row):
                    words = ("UPDATE_AFTER", "UPDATE_BEFORE") if back else ("UPDATE_BEFORE", "UPDATE_AFTER")
                    found += [self.record(key, before, words[0]), self.record(key, after, words[1])]
            elif before is not None:
                found.append(self.record(key, before, "INSERT" if back else "DELETE"))
            elif after is not None:
                found.append(self.record(key, after, "DELETE" if back else "INSERT"))
        return sorted(found, key=lambda row: row["_log_offset"])


def live_at(log: list[Event], stop: int) -> list[Event]:
    """Return the records whose rows are live at an offset, by the previous offsets."""
    ended = {event.previous for event in log[:stop] if not event.adds}
    return [event for event in log[:stop] if event.adds and event.offset not in ended]


def _events(run: Any) -> list[Event]:
    changes = [CHANGE_SYMBOLS[number] for number in run.change_types.to_pylist()]
    rows = [tuple(row[name] for name in NAMES) for row in run.rows.to_pylist()]
    parts = (run.offsets, run.timestamps_ms, run.previous_offsets)
    offsets, times, previous = (part.to_pylist() for part in parts)
    return [Event(*each) for each in zip(offsets, changes, times, rows, previous, strict=True)]


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    types = [pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.list_(pa.int32())]
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, dtype) for column, dtype in zip(columns, types, strict=True)], NAMES)


def found_in(table: pa.Table) -> list[dict[str, Any]]:
    """Return a changelog's rows as plain values, timestamps in milliseconds."""
    place = table.column_names.index("_commit_timestamp")
    millis = table.column(place).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    rows: list[dict[str, Any]] = table.set_column(place, "_commit_timestamp", millis).to_pylist()
    return rows


def agree(table: pa.Table, expected: list[dict[str, Any]]) -> None:
    """Compare rows; NaN equals NaN, and a zero's sign counts."""
    found = found_in(table)
    assert len(found) == len(expected), (len(found), len(expected))
    for one, other in zip(found, expected, strict=True):
        assert repr(one) == repr(other)


def _starts_of(snapshot: Any) -> dict[Key, int]:
    return {(snapshot.offsets[bucket].partition, bucket.bucket): at for bucket, at in snapshot.starts.items() if at}

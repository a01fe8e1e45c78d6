"""Primary-key tables, the model of what they went through, and the comparison of the lake with it."""

from __future__ import annotations

import random as randoms
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.testing import wait_until
from fluss_lab.testing.readers import duckdb_rows
from tests.stateful.model import TableModel
from tests.unit.tiering.kit import LAKE, Tables

COLUMNS = {"id": "bigint not null", "name": "string", "x": "double"}
PARTITIONED = {"id": "bigint not null", "p": "string not null", "name": "string", "x": "double"}
Place = tuple[str | None, int]


class KeyedTable:
    """One primary-key table with its model."""

    def __init__(self, tables: Tables, name: str = "people", *, columns: Any = None, **options: Any) -> None:
        self.tables = tables
        # What a compaction takes away is found by replay only; most tests look into the files.
        properties = {"table.datalake.auto-maintenance": False} | options.pop("properties", {})
        options = {"primary_key": ["id"], "buckets": 2} | options
        descriptor = make_descriptor(columns or COLUMNS, properties=LAKE | properties, **options)
        self.info: TableInfo = self.admin.create_table(TablePath("db", name), descriptor)
        self.model = TableModel(self.info.descriptor)
        self.times: dict[Place, list[int]] = {}

    @property
    def admin(self) -> Any:
        return self.tables.connection.admin()

    @property
    def partitioned(self) -> bool:
        return bool(self.info.descriptor.partitioned_by)

    # -- changes -----------------------------------------------------------------------------------------------------

    def upsert(self, rows: list[dict[str, Any]]) -> None:
        self._make_partitions(rows)
        schema = self.info.schema.arrow_schema
        names = [name for name in schema.names if any(name in row for row in rows)]
        some = pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in names]))
        with self.tables.connection.upsert_writer(
            self.info.path, None if len(names) == len(schema) else names
        ) as writer:
            writer.upsert(some)
        self.model.upsert([{name: row.get(name) for name in names} for row in rows], 0)
        self.remember_times()

    def delete(self, keys: list[dict[str, Any]]) -> None:
        schema = self.info.schema.arrow_schema
        fields = pa.schema([schema.field(name) for name in self.info.schema.primary_key])
        with self.tables.connection.upsert_writer(self.info.path) as writer:
            writer.delete(pa.Table.from_pylist(keys, fields))
        self.model.delete(keys, 0)
        self.remember_times()

    def change(self, random: randoms.Random, count: int = 30, keys: int = 25) -> None:
        """Make some random upserts and deletes; an upsert first."""
        for turn in range(random.randrange(1, 5)):
            some = [self.key(random, keys) for _ in range(random.randrange(1, count))]
            if turn and random.random() < 0.25:
                known = [key for key in some if not self.partitioned or self._has(key)]
                self.delete(known)
            else:
                self.upsert([key | {"name": f"n{random.randrange(9)}", "x": random.random()} for key in some])

    def key(self, random: randoms.Random, keys: int) -> dict[str, Any]:
        key: dict[str, Any] = {"id": random.randrange(keys)}
        return key | {"p": random.choice("abc")} if self.partitioned else key

    def add_column(self, name: str) -> None:
        self.info = self.admin.alter_table(self.info.path, add_columns={name: "string"})
        self.model.add_column(name)

    def _has(self, key: dict[str, Any]) -> bool:
        return any(place[0] == key["p"] for place in self.model.buckets)

    def _make_partitions(self, rows: list[dict[str, Any]]) -> None:
        if self.partitioned:
            for name in sorted({row["p"] for row in rows}):
                self.admin.create_partition(self.info.path, {"p": name}, if_not_exists=True)

    # -- the cluster -------------------------------------------------------------------------------------------------

    def buckets(self) -> dict[Place, TableBucket]:
        return {(each.partition, each.bucket.bucket): each.bucket for each in self.admin.buckets(self.info)}

    def snapshot(self) -> dict[Place, int]:
        """Take a key-value snapshot of every bucket; return their log offsets."""
        tablet = self.tables.cluster.tablet()
        taken = {place: tablet.snapshot_now(bucket) for place, bucket in self.buckets().items()}
        return {place: snapshot.log_offset for place, snapshot in taken.items() if snapshot is not None}

    def lose_log(self) -> dict[Place, int]:
        """Let the log be cut off as far as it may be; return where it begins now."""
        self.admin.alter_table(self.info.path, set={"table.log.ttl": "1ms"})
        wait_until(lambda: all(each.start_offset > 0 for each in self.admin.buckets(self.info)))
        self.info = self.admin.alter_table(self.info.path, set={"table.log.ttl": "7d"})
        return {(each.partition, each.bucket.bucket): each.start_offset for each in self.admin.buckets(self.info)}

    def remember_times(self) -> None:
        """Note the timestamps of what was logged since: the log may not be there later."""
        for place, bucket in self.buckets().items():
            times = self.times.setdefault(place, [])
            stop = len(self.model.buckets[place].log)
            for run in read_range(self.tables.connection, self.info, bucket, len(times), stop, lake=False):
                times.extend(run.timestamps_ms.to_pylist())

    # -- the lake ----------------------------------------------------------------------------------------------------

    def check(self, *, starts: dict[Place, int] | None = None, complete: bool = True) -> dict[Place, int]:
        """Check state and events of the lake against the model; return how far each bucket is tiered.

        Args:
            starts: Where the replay of buckets begins that began with a snapshot.
            complete: Whether the lake is up to date.
        """
        starts = starts or {}
        info = self.info
        known = self.tables.known(info).offsets
        ends = {(offset.partition, bucket.bucket): offset.end for bucket, offset in known.items()}
        if complete:
            assert ends == {place: len(bucket.log) for place, bucket in self.model.buckets.items() if bucket.log}
        # Nobody who looks at the lake sees a row gone that was updated.
        assert all(self.model.buckets[place].log[end - 1].change != "-U" for place, end in ends.items())
        lake = self.tables.lake(info)
        expected = self.expected_state(ends)
        names = [*info.schema.names, "__bucket", "__offset", "__timestamp"]
        assert state_of(lake.scan().to_arrow(), names) == expected
        assert state_of(duckdb_rows(lake.metadata_location), names) == expected
        self.check_events(lake, ends, starts)
        return ends

    def live_at(self, place: Place, end: int) -> dict[int, dict[str, Any]]:
        """Return the live rows by offset after the first events of a bucket."""
        live: dict[int, dict[str, Any]] = {}
        for offset, event in enumerate(self.model.buckets[place].log[:end]):
            if event.change in ("+I", "+U"):
                live[offset] = event.row
            else:
                live.pop(event.previous)
        return live

    def expected_state(self, ends: dict[Place, int]) -> list[tuple[Any, ...]]:
        rows = [
            (*self.values(row), place[1], offset, self.times[place][offset])
            for place, end in ends.items()
            for offset, row in self.live_at(place, end).items()
        ]
        return sorted(rows, key=repr)

    def values(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.info.schema.names)

    def check_events(self, lake: Any, ends: dict[Place, int], starts: dict[Place, int]) -> None:
        """Every event from where replay begins on is in exactly one file, with its own offset, timestamp and row."""
        wanted = []
        for place, end in ends.items():
            start, log, times = starts.get(place, 0), self.model.buckets[place].log, self.times[place]
            for offset, row in self.live_at(place, start).items():
                wanted.append(("+", None, *self.values(row), place[1], offset, times[offset]))
            for offset in range(start, end):
                event = log[offset]
                change, previous = ("+", None) if event.change in ("+I", "+U") else (event.change, event.previous)
                wanted.append((change, previous, *self.values(event.row), place[1], offset, times[offset]))
        found = events_in(lake, self.info.schema.names)
        if len(found) != len(wanted):
            # A compacted copy has the offset of its original.
            assert self.info.descriptor.properties["table.datalake.auto-maintenance"] == "true"
            found = list(set(found))
        assert sorted(found, key=repr) == sorted(wanted, key=repr)


def state_of(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    return sorted((_plain(row, names) for row in rows.select(names).to_pylist()), key=repr)


def _plain(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    return (*(row[name] for name in names[:-1]), _millis(row[names[-1]]))


def _millis(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def events_in(lake: Any, names: list[str]) -> list[tuple[Any, ...]]:
    """Return all rows of all live data and delete files: change, previous offset, columns, bucket, offset, time.

    Of the newest snapshot, and beside them those that only a snapshot before a compaction has, which a tag keeps.
    """
    newest = lake.metadata.current_snapshot_id
    found = _events_at(lake, names, newest, set())
    seen, files = set(found), {file["file_path"] for file in lake.inspect.files(newest).to_pylist()}
    for ref in lake.metadata.refs.values():
        for event in _events_at(lake, names, ref.snapshot_id, files):
            if event not in seen:
                seen.add(event)
                found.append(event)
    return found


def _events_at(lake: Any, names: list[str], snapshot_id: int, known: set[str]) -> list[tuple[Any, ...]]:
    ids = {field.name: field.field_id for field in lake.schema().fields}
    found = []
    for file in lake.inspect.files(snapshot_id).to_pylist():
        if file["file_path"] in known:
            continue
        rows = pq.ParquetFile(unquote(urlparse(file["file_path"]).path)).read().to_pylist()
        for row in rows:
            if file["content"] == 0:
                by_name = {name: row.get(name) for name in ids}
                found.append(("+", None, *_event(by_name, names)))
            else:
                by_name = {name: row.get(f"_r{ids[name]}") for name in ids}
                found.append((row["_change_type"], row["_previous_offset"], *_event(by_name, names)))
    return found


def _event(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    return (*(row[name] for name in names), row["__bucket"], row["__offset"], _millis(row["__timestamp"]))

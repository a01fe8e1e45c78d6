"""Whether a lake table holds what its buckets' logs say: state, events, offsets. Every complaint is an AssertionError."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from fluss_lab.client import Connection
from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.lake.snapshot_summary import COMMIT_USER_KEY
from fluss_lab.model import LakeSnapshot, TablePath
from tests.crash.history import BucketLog, Event, History
from tests.readers.engines import QUICK, Engine
from tests.readers.lake_files import (
    Entry,
    FileContent,
    LakeFiles,
    Place,
    Row,
    replay_snapshots,
    replay_starts,
    tiered,
    tiered_ends,
)

Logs = Mapping[Place, BucketLog]
#: Readers that refuse equality deletes, or choke on them.
NO_EQUALITY = ("duckdb", "pyiceberg", "datafusion")


class LakeAudit:
    """Holds the lake table of one history against it.

    Args:
        history: The table, with its connection.
        equality: Whether rows are deleted by equality, which readers of others than Spark cannot process.
    """

    def __init__(self, history: History, *, equality: bool = False) -> None:
        self._history = history
        self._equality = equality
        self._files = LakeFiles()

    def table(self) -> Table:
        """Return the table as somebody else would load it."""
        return load_table(self._history.connection, self._history.path)

    def check(self, *, complete: bool = True, engines: Mapping[str, Engine] = QUICK) -> Table:
        """Check everything about the newest snapshot; return the table.

        Args:
            complete: Whether all that the cluster holds must have been tiered.
            engines: Who reads the state.
        """
        # What is known first, what is written last: tierers may be at work meanwhile.
        known = self._known()
        table, logs = self.table(), self._history.read()
        ends = tiered_ends(table)
        for place, end in ends.items():
            assert end <= len(logs[place].events), (place, end)
        if complete:
            held = {
                place: len(log.events) for place, log in logs.items() if log.events and place[0] not in self._frozen
            }
            assert {place: end for place, end in ends.items() if place in held} == held
        self.check_events(table, logs, ends)
        self.check_known(table, ends, known, equal=complete)
        self.check_state(table, logs, ends, self._able(engines, table))
        return table

    @property
    def _frozen(self) -> set[str]:
        return self._history.frozen

    def _able(self, engines: Mapping[str, Engine], table: Table) -> Mapping[str, Engine]:
        """Return the engines that can read a table as it is.

        Spark alone can with equality deletes; DataFusion cannot after a change of schema alone, until the next snapshot.
        """
        snapshot, out = table.current_snapshot(), set(NO_EQUALITY) if self._equality else set()
        if snapshot is None or snapshot.schema_id != table.metadata.current_schema_id:
            out.add("datafusion")
        return {name: engine for name, engine in engines.items() if name not in out}

    # -- state ---------------------------------------------------------------------------------------------------------

    def check_snapshot(self, table: Table, logs: Logs, engines: Mapping[str, Engine] = QUICK) -> None:
        """Check that engines find in one version of the table what its own summary promises: a round whole, or not at all."""
        self.check_state(table, logs, tiered_ends(table), self._able(engines, table))

    def check_state(self, table: Table, logs: Logs, ends: Mapping[Place, int], engines: Mapping[str, Engine]) -> None:
        """Check that engines find the rows that live at the ends of the buckets' tiered logs, each once."""
        expected = [
            (place[0] or "", place[1], offset, event.timestamp_ms, *self._values(event.row))
            for place, end in ends.items()
            if place in logs
            for offset, event in logs[place].live(end).items()
        ]
        expected.sort(key=lambda each: each[:3])
        for name, engine in engines.items():
            found = self._rows(engine(table))
            assert found == expected, _difference(name, found, expected)

    def _values(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in self._history.columns)

    def _rows(self, found: pa.Table) -> list[tuple[Any, ...]]:
        columns = self._history.columns
        partitions = [found[name].to_pylist() for name in self._history.kind.partitioned_by]
        names = ["$".join(each) for each in zip(*partitions, strict=True)] if partitions else [""] * len(found)
        times = [_millis(each) for each in found["__timestamp"].to_pylist()]
        nothing = pa.nulls(len(found))
        users = [(found[name] if name in found.column_names else nothing).to_pylist() for name in columns]
        offsets = found["__offset"].to_pylist()
        rows = list(zip(names, found["__bucket"].to_pylist(), offsets, times, *users, strict=True))
        return sorted(rows, key=lambda each: each[:3])

    # -- events --------------------------------------------------------------------------------------------------------

    def check_events(self, table: Table, logs: Logs, ends: Mapping[Place, int]) -> None:
        """Check that the files of the newest snapshot and of tagged ones hold each record below the ends exactly once.

        Copies that a compaction made count as their originals. Of a bucket whose replay begins later than 0, the rows
        that lived there, and each record from there on. A tag may keep those of a partition that was dropped since.
        """
        starts = replay_starts(table)
        found: dict[Place, dict[int, Entry]] = {}
        now = tiered(table, table.current_snapshot())
        for snapshot in replay_snapshots(table):
            files = self._files.of(table, snapshot)
            check_within(files)
            then = tiered(table, snapshot)
            for content in files.values():
                if snapshot.snapshot_id != table.metadata.current_snapshot_id and _gone(content.place, then, now):
                    continue
                entries = found.setdefault(content.place, {})
                for entry in content.entries:
                    other = entries.setdefault(entry.offset, entry)
                    assert _same(other, entry), f"two records have offset {entry.offset}: {other}, {entry}"
        for place in {*found, *ends}:
            entries = found.get(place, {})
            assert place in logs, f"the lake holds {len(entries)} records of {place}, which nobody wrote"
            self._check_bucket(place, entries, logs[place], starts.get(place, 0), ends.get(place, 0))

    def _check_bucket(self, place: Place, entries: dict[int, Entry], log: BucketLog, start: int, end: int) -> None:
        expected = {offset: log.events[offset] for offset in range(start, end)}
        before = log.live(start)
        where = f"{self._history.path} {place} [{start}, {end})"
        missing = sorted((expected.keys() | before.keys()) - entries.keys())
        assert not missing, f"{where}: a gap at {missing[:20]}"
        surplus = sorted(entries.keys() - expected.keys() - before.keys())
        if start:
            # What was before the start may still be there, as long as it is true.
            surplus = [offset for offset in surplus if offset >= start]
        assert not surplus, f"{where}: nobody wrote {surplus[:20]}"
        for offset, entry in entries.items():
            self._check_entry(f"{where} offset {offset}", entry, log.events[offset])
            follows = entries.get(offset - 1)
            if entry.change is None and self._history.kind.is_keyed and (offset > start or not start):
                derived = "+U" if follows is not None and follows.change == "-U" else "+I"
                assert derived == log.events[offset].change, (where, offset)

    def _check_entry(self, where: str, entry: Entry, event: Event) -> None:
        assert entry.timestamp_ms == event.timestamp_ms, (where, entry, event)
        assert self._values(entry.row) == self._values(event.row), (where, entry, event)
        if entry.change is None:
            assert event.adds, (where, entry, event)
        else:
            assert (entry.change, entry.previous) == (event.change, event.previous), (where, entry, event)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _known(self) -> LakeSnapshot | None:
        try:
            return self._history.connection.admin().lake_snapshot(self._history.path)
        except LakeSnapshotNotFoundError:
            return None

    def check_known(self, table: Table, ends: Mapping[Place, int], known: LakeSnapshot | None, *, equal: bool) -> None:
        """Check that what Fluss knew of the lake is what the lake says; before a recovery it may know less."""
        if known is None:
            assert not (equal and any(ends.values()))
            return
        reported = {(offset.partition, bucket.bucket): offset.end for bucket, offset in known.offsets.items()}
        for place, end in ends.items():
            assert reported.get(place, 0) == end or (reported.get(place, 0) < end and not equal), (
                place,
                reported,
                ends,
            )
        self._number(table, known)
        if equal:
            number = self._number(table, known)
            newer = [each for each in table.metadata.snapshots if (each.sequence_number or 0) > number]
            assert not any(COMMIT_USER_KEY in str(each.summary) for each in newer), (known, newer)

    @staticmethod
    def _number(table: Table, known: LakeSnapshot) -> int:
        snapshot = table.snapshot_by_id(known.snapshot_id)
        assert snapshot is not None, f"the cluster knows snapshot {known.snapshot_id}, which is gone"
        return snapshot.sequence_number or 0


def load_table(connection: Connection, path: TablePath) -> Table:
    """Load the lake table of a table, as somebody else would."""
    from pyiceberg.catalog import load_catalog

    storage = connection.lake_storage()
    assert storage is not None
    properties = dict(storage.properties)
    return load_catalog(properties.pop("name"), **properties).load_table((path.database, path.table))


def check_within(files: Mapping[str, FileContent]) -> None:
    """Check that within one snapshot each record is there once, and that each delete is where its row is."""
    held: set[tuple[Place, int]] = set()
    for path, content in files.items():
        for entry in content.entries:
            assert (content.place, entry.offset) not in held, f"{path}: offset {entry.offset} of {content.place} twice"
            held.add((content.place, entry.offset))
            if entry.target is not None and entry.target[0] in files:
                aim = files[entry.target[0]]
                assert aim.place == content.place, (path, entry)
                assert aim.content is DataFileContent.DATA
                assert aim.entries[entry.target[1]].offset == entry.previous, (path, entry)


def _gone(place: Place, then: Mapping[Place, dict[str, Any]], now: Mapping[Place, dict[str, Any]]) -> bool:
    """Return whether a bucket that a tagged snapshot holds is not there any more, or is another of its name."""
    return place not in now or then[place].get("partition_id") != now[place].get("partition_id")


def _same(one: Entry, other: Entry) -> bool:
    """Return whether two entries are of the same record; a copy may know more columns, and be placed elsewhere."""
    rows = {name: value for name, value in one.row.items() if name in other.row}
    return (one.timestamp_ms, one.change, one.previous) == (other.timestamp_ms, other.change, other.previous) and all(
        other.row[name] == value for name, value in rows.items()
    )


def _millis(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _difference(name: str, found: list[Any], expected: list[Any]) -> str:
    surplus = [each for each in found if each not in expected]
    missing = [each for each in expected if each not in found]
    return (
        f"{name}: found {len(found)} rows, expected {len(expected)}; surplus {surplus[:5]}, missing {missing[:5]}"
        f"{'' if surplus or missing else '; some rows are there more than once'}"
    )

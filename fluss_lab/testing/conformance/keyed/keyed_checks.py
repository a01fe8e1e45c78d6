"""The shared parts of tests of primary-key tables: histories of changes, and checks of the rows and changes in the lake."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lake import FetchContext
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.kit import COLUMNS, EPOCH_MS, LakeFormat, LakeKit, LakeWrite
from fluss_lab.testing.rows import plain, plain_rows

#: Keys are drawn from so many: few enough that they meet.
KEYS: Final = 40
_ADDS: Final = (ChangeType.INSERT, ChangeType.UPDATE_AFTER)


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """One record of a changelog."""

    change_type: ChangeType
    offset: int
    timestamp_ms: int
    previous_offset: int
    row: dict[str, Any]


class KeyedHistory:
    """The changelog of one bucket of a table with the columns ``id`` (its key), ``name`` and ``x``, from an offset on.

    Args:
        info: The table; partitioned by ``p`` if at all.
        bucket: Its keys are those that the table's bucketing puts there.
        partition: Name of the bucket's partition, or None.
        first: Offset of the first change.
    """

    def __init__(self, info: TableInfo, bucket: int = 0, partition: str | None = None, first: int = 0) -> None:
        self.info = info
        self.bucket = bucket
        self.partition = partition
        self.first = first
        self.changes: list[KeyedChange] = []
        self._live: dict[int, KeyedChange] = {}
        buckets = iceberg_bucket_ids(pa.array(range(KEYS * info.descriptor.buckets)), info.descriptor.buckets)
        self.keys = [key for key, found in enumerate(buckets.to_pylist()) if found == bucket][:KEYS]

    @property
    def end(self) -> int:
        """Return the offset after the last change."""
        return self.first + len(self.changes)

    def upsert(self, key: int, **values: Any) -> None:
        """Insert a key, or update it."""
        row = {"id": key, "name": None, "x": None, **values}
        if self.partition is not None:
            row["p"] = self.partition
        old = self._live.get(key)
        if old is None:
            self._add(ChangeType.INSERT, -1, row)
        else:
            self._add(ChangeType.UPDATE_BEFORE, old.offset, old.row)
            self._add(ChangeType.UPDATE_AFTER, old.offset, row)
        self._live[key] = self.changes[-1]

    def delete(self, key: int) -> None:
        """Delete a key that is there; nothing happens for another one."""
        if (old := self._live.pop(key, None)) is not None:
            self._add(ChangeType.DELETE, old.offset, old.row)

    def go_on(self, rng: random.Random, count: int) -> None:
        """Make so many random upserts and deletes."""
        for _ in range(count):
            key = rng.choice(self.keys)
            if rng.random() < 0.3:
                self.delete(key)
            else:
                self.upsert(key, name=rng.choice([None, "", "a", f"n{self.end}"]), x=rng.choice([None, self.end / 4]))

    def cuts(self, rng: random.Random, start: int, pieces: int) -> list[tuple[int, int]]:
        """Return ``[start, end)`` as ranges, cut where the log may be cut: never between ``-U`` and ``+U``."""
        inner = [at for at in range(start + 1, self.end) if self._change(at).change_type != ChangeType.UPDATE_AFTER]
        edges = sorted(rng.sample(inner, min(pieces - 1, len(inner))))
        edges = [start, *edges, self.end]
        return [(low, high) for low, high in pairwise(edges) if low < high]

    def records(self, start: int, stop: int) -> list[LogRecords]:
        """Return the changes of ``[start, stop)`` as a split reader gives them."""
        return (
            [run] if (run := changelog(self.info, [self._change(at) for at in range(start, stop)])) is not None else []
        )

    def state(self, end: int | None = None) -> dict[int, dict[str, Any]]:
        """Return the live rows by offset, after the changes below an end; None: after all."""
        live: dict[int, dict[str, Any]] = {}
        for change in self.changes:
            if end is not None and change.offset >= end:
                break
            live.pop(change.previous_offset, None)
            if change.change_type in _ADDS:
                live[change.offset] = change.row
        return live

    def snapshot(self, end: int | None = None) -> list[LogRecords]:
        """Return the live rows as a split of a key-value snapshot gives them: ``+I``, each with its own offset and time."""
        rows = [
            KeyedChange(ChangeType.INSERT, offset, self._change(offset).timestamp_ms, -1, row)
            for offset, row in sorted(self.state(end).items())
        ]
        return [run] if (run := changelog(self.info, rows)) is not None else []

    def _change(self, offset: int) -> KeyedChange:
        return self.changes[offset - self.first]

    def _add(self, change_type: ChangeType, previous_offset: int, row: dict[str, Any]) -> None:
        # Some records share a moment.
        change = KeyedChange(change_type, self.end, EPOCH_MS + self.end // 3, previous_offset, row)
        self.changes.append(change)


def changelog(info: TableInfo, changes: Sequence[KeyedChange]) -> LogRecords | None:
    """Return changes as records; None for none."""
    if not changes:
        return None
    rows = pa.RecordBatch.from_pylist([change.row for change in changes], schema=info.schema.arrow_schema)

    def column(values: list[int], kind: type[np.generic]) -> pa.Array:
        return pa.array(np.array(values, dtype=kind))

    return LogRecords(
        rows,
        column([change.offset for change in changes], np.int64),
        column([change.timestamp_ms for change in changes], np.int64),
        column([change.change_type for change in changes], np.int8),
        column([change.previous_offset for change in changes], np.int64),
    )


class KeyedChecks(LakeFormat):
    """A format's primary-key tables under test."""

    #: Whether the format's `FlussLogSource` reads changelogs of primary-key tables back.
    replays_changes: ClassVar[bool] = False

    @pytest.fixture
    def keyed(self, kit: LakeKit) -> LakeKit:
        """Give a lake that holds primary-key tables."""
        self.needs_keyed_tables()
        return kit

    def keyed_table(self, kit: LakeKit, *, buckets: int = 2, partitioned: bool = False) -> TableInfo:
        """Create the table that `KeyedHistory` is of."""
        if partitioned:
            columns = {**COLUMNS, "p": "string"}
            return kit.table(columns, primary_key=["id", "p"], partitioned_by=["p"], buckets=buckets)
        return kit.table(COLUMNS, primary_key=["id"], buckets=buckets)

    def check_state(self, kit: LakeKit, histories: Sequence[KeyedHistory], ends: Sequence[int] | None = None) -> None:
        """Assert that the lake holds exactly the rows that the histories leave."""
        info = histories[0].info
        names = [*info.schema.names, "__bucket", "__offset"]
        expected = [
            {**row, "__bucket": history.bucket, "__offset": offset}
            for number, history in enumerate(histories)
            for offset, row in history.state(None if ends is None else ends[number]).items()
        ]
        rows = self.read_state(kit.storage, info).select(names)
        wanted = plain_rows([{name: row.get(name) for name in names} for row in expected])
        assert sorted(map(_order, plain(rows))) == sorted(map(_order, wanted))

    def check_changes(self, kit: LakeKit, history: KeyedHistory, start: int = 0) -> None:
        """Assert that a bucket's log reads back as it was, where the format reads changes back."""
        newest = kit.newest(history.info)
        if not self.replays_changes or newest is None or start >= history.end:
            return
        context = FetchContext(start, history.end, history.partition, history.bucket, newest)
        found = [
            (change, offset, timestamp, previous, row)
            for run in kit.log_source(history.info).fetch_log_records(context)
            for change, offset, timestamp, previous, row in zip(
                (run.change_types or pa.nulls(0)).to_pylist(),
                run.offsets.to_pylist(),
                run.timestamps_ms.to_pylist(),
                (run.previous_offsets or pa.nulls(0)).to_pylist(),
                run.rows.to_pylist(),
                strict=True,
            )
        ]
        assert found == [
            (change.change_type, change.offset, change.timestamp_ms, change.previous_offset, change.row)
            for change in history.changes
            if change.offset >= start
        ]

    def write_history(self, kit: LakeKit, history: KeyedHistory, ranges: Sequence[tuple[int, int]]) -> list[LakeWrite]:
        """Write ranges of a history as the splits of one round."""
        return [
            kit.write(history.info, history.records(*each), history.bucket, history.partition, alone=len(ranges) == 1)
            for each in ranges
        ]


def _order(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row as something that sorts and compares, whatever its values are."""
    return [(name, repr(row[name])) for name in sorted(row)]

"""A random changelog of one bucket of a primary-key table, and the rows that it leaves: what a lake's content is compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.kit import EPOCH_MS

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

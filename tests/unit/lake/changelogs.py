"""A primary-key bucket by the book: a model that makes the changelog, and what the lake must hold of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.lake import WriterInitContext
from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_row_delta
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, live_state, snapshot_of
from fluss_lab.lake.iceberg.table.layout import checked_layout, known_layout
from fluss_lab.lake.iceberg.write.delete_schema import read_events
from fluss_lab.lake.iceberg.write.delete_writer import place_again
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.model import ChangeType, TableBucket
from fluss_lab.model.json_codec import to_plain
from fluss_lab.records import LogRecords
from tests.unit.lake.conftest import EPOCH_MS, summary


@dataclass
class Record:
    """One record of a changelog."""

    kind: ChangeType
    row: dict[str, Any]
    previous: int
    timestamp_ms: int


@dataclass
class Changelog:
    """The log of one bucket, and its live rows by key."""

    schema: pa.Schema
    key: tuple[str, ...]
    log: list[Record] = field(default_factory=list)
    live: dict[tuple, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.log)

    def upsert(self, row: dict[str, Any]) -> None:
        key = tuple(row[name] for name in self.key)
        if (old := self.live.get(key)) is None:
            self._add(ChangeType.INSERT, row, -1)
        else:
            self._add(ChangeType.UPDATE_BEFORE, self.log[old].row, old)
            self._add(ChangeType.UPDATE_AFTER, row, old)
        self.live[key] = self.end - 1

    def delete(self, key: tuple) -> None:
        if (old := self.live.pop(key, None)) is not None:
            self._add(ChangeType.DELETE, self.log[old].row, old)

    def _add(self, kind, row, previous) -> None:
        self.log.append(Record(kind, row, previous, EPOCH_MS + self.end * 3))

    def run(self, start: int, stop: int) -> LogRecords:
        """Return records of the log."""
        return log_records(self.schema, self.log[start:stop], range(start, stop))

    def runs(self, start: int, stop: int, rng: random.Random) -> list[LogRecords]:
        """Return records of the log, cut anywhere."""
        cuts = sorted({start, stop, *(rng.randint(start, stop) for _ in range(rng.randrange(6)))})
        return [self.run(low, high) for low, high in pairwise(cuts)]

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return the live rows by offset."""
        return {offset: self.log[offset].row for offset in sorted(self.live.values())}

    def ends(self, start: int, stop: int) -> list[tuple]:
        """Return offset, change type, previous offset, timestamp and row of each event of the log."""
        return [
            (offset, each.kind.symbol, each.previous, each.timestamp_ms, each.row)
            for offset, each in enumerate(self.log[start:stop], start)
            if each.kind in {ChangeType.UPDATE_BEFORE, ChangeType.DELETE}
        ]


def log_records(schema: pa.Schema, found: list[Record], offsets) -> LogRecords:
    return LogRecords(
        pa.RecordBatch.from_pylist([each.row for each in found], schema=schema),
        pa.array(list(offsets), pa.int64()),
        pa.array([each.timestamp_ms for each in found], pa.int64()),
        pa.array([int(each.kind) for each in found], pa.int8()),
        pa.array([each.previous for each in found], pa.int64()),
    )


def snapshot_split(changelog: Changelog) -> LogRecords:
    """Return the live rows as a KV snapshot gives them."""
    offsets = sorted(changelog.live.values())
    found = [Record(ChangeType.INSERT, changelog.log[o].row, -1, changelog.log[o].timestamp_ms) for o in offsets]
    return log_records(changelog.schema, found, offsets)


def state_of(lake, info):
    """Return what each bucket of the newest snapshot consists of."""
    table = lake.load(info)
    if (snapshot_id := table.metadata.current_snapshot_id) is None:
        return {}
    snapshot = snapshot_of(table, info.path, snapshot_id)
    return live_state(table, info.path, known_layout(info, table), snapshot, EntryCache())


def offset_files(lake, info, partition=None, bucket=0) -> list[OffsetFile]:
    found = state_of(lake, info).get((partition, bucket))
    return [
        OffsetFile(each.file.file_path, each.min_offset, each.max_offset, each.file.record_count)
        for each in (found.data if found else ())
    ]


def keyed_writer(lake, info, *, partition=None, bucket=0, split=0, alone=True, files=None):
    known = offset_files(lake, info, partition, bucket) if files is None else files
    place = TableBucket(info.table_id, None if partition is None else 1, bucket)
    described = {"files": to_plain(list(known))} if known else {}
    return lake.factory.create_lake_writer(
        WriterInitContext(
            info, place, partition, lake.factory.describe_table(info), f"round{lake.rounds}", split, described, alone
        )
    )


def written(lake, info, *runs: LogRecords, **options):
    writer = keyed_writer(lake, info, **options)
    for run in runs:
        writer.write(run)
    return writer.complete()


def commit_files(lake, info, data, deletes) -> int:
    """Commit files as they are."""
    table = lake.load(info)
    staged = stage_row_delta(table, data, deletes, summary())
    lake.storage.access.commit("test", table, staged.requirements, staged.updates)
    lake.rounds += 1
    return staged.snapshot_id


def commit_results(lake, info, *results) -> int:
    data = [file for result in results for file in result.files]
    return commit_files(lake, info, data, [file for result in results for file in result.deletes])


def result_files(result) -> list[OffsetFile]:
    """Return a write result's data files as rows are sought in them, by reading their offsets."""
    found = []
    for file in result.files:
        offsets = pq.read_table(file.file_path.removeprefix("file://"), columns=["__offset"]).column(0).to_numpy()
        found.append(OffsetFile(file.file_path, int(offsets.min()), int(offsets.max()), len(offsets)))
    return found


def commit_cut(lake, info, splits) -> list:
    """Commit the splits of one bucket, what they could not place being placed now; return the delete files."""
    files = [*offset_files(lake, info), *(file for result in splits for file in result_files(result))]
    table = lake.load(info)
    unplaced = [file for result in splits for file in result.unplaced]
    deletes = [file for result in splits for file in result.deletes]
    deletes += place_again(
        WriteTarget.of(checked_layout(info, table), table), table.io, unplaced, files, None, 0, "placed"
    )
    commit_files(lake, info, [file for result in splits for file in result.files], deletes)
    return deletes


def events_of(lake, info, files) -> list[tuple]:
    """Return the events of delete files, as `Changelog.ends` tells them, by offset."""
    table = lake.load(info)
    ids = {each.name: f"_r{each.field_id}" for each in known_layout(info, table).schema.fields}
    found: list[tuple] = []
    for file in files:
        for batch in read_events(table.io, file):
            user = {}
            for each in info.schema.arrow_schema:
                column = pa.nulls(len(batch), each.type)
                if ids[each.name] in batch.schema.names:
                    column = batch.column(ids[each.name])
                user[each.name] = column if pa.types.is_nested(each.type) else column.cast(each.type)
            rows = pa.table(user).to_pylist()
            stamps = batch.column(ids["__timestamp"]).cast(pa.int64()).to_numpy() // 1000
            found += zip(
                batch.column(ids["__offset"]).to_pylist(),
                batch.column("_change_type").to_pylist(),
                batch.column("_previous_offset").to_pylist(),
                stamps.tolist(),
                rows,
                strict=True,
            )
    return sorted(found, key=lambda each: each[0])


def expected_rows(lake, info, changelog: Changelog, bucket: int = 0) -> pa.Table:
    """Return the live rows as the lake has them, ascending by offset."""
    schema = pa.schema([field.remove_metadata() for field in lake.load(info).schema().as_arrow()])
    live = changelog.rows()
    rows = pa.Table.from_pylist(list(live.values()), schema=info.schema.arrow_schema)
    offsets = np.array(list(live), dtype=np.int64)
    stamps = np.array([changelog.log[offset].timestamp_ms for offset in live], dtype=np.int64) * 1000
    return pa.table(
        [
            *(column.cast(field.type) for column, field in zip(rows.columns, schema, strict=False)),
            pa.array(np.full(len(offsets), bucket, dtype=np.int32)),
            pa.array(offsets),
            pa.array(stamps).cast(pa.timestamp("us", "UTC")),
        ],
        names=schema.names,
    )


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether a reader's rows, in any order and of its own Arrow types, are the expected ones."""
    columns = []
    for wanted in expected.schema:
        column = found.column(wanted.name)
        # Arrow does not cast nested types with nulls above fields that are never null; as Python values they compare.
        columns.append((column if pa.types.is_nested(wanted.type) else column.cast(wanted.type)).combine_chunks())
    ordered = pa.table(columns, names=expected.schema.names).sort_by("__offset")
    assert ordered.to_pylist() == expected.to_pylist()
    return True

"""A lake format under test: what its author says of it, and a kit that uses it by the plug-in interfaces only."""

from __future__ import annotations

import json
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.lake import (
    CommittedLakeSnapshot,
    CommitterInitContext,
    FlussLogSource,
    LakeCommitter,
    LakeStorage,
    LakeWriter,
    SupportsCreateFlussLogSource,
    WriterInitContext,
    lake_storage,
)
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, COMMIT_USER, COMMIT_USER_KEY, TABLE_ID_KEY
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.records import LogRecords
from fluss_lab.testing.rows import plain
from fluss_lab.testing.seeds import seed_of

#: When the first record of every bucket was written.
EPOCH_MS: Final = 1_700_000_000_000
#: A table that most tests can do with.
COLUMNS: Final = {"id": "bigint not null", "name": "string", "x": "double"}


@dataclass(frozen=True, slots=True)
class LakeWrite:
    """A write result, and what the test knows of it.

    Attributes:
        result: Of the format.
        partition: Name of the partition, or None.
        bucket: The bucket.
        end: Offset after the last record.
        max_timestamp_ms: Timestamp of the last record.
    """

    result: Any
    partition: str | None
    bucket: int
    end: int
    max_timestamp_ms: int


class LakeKit:
    """A lake and what the tests do to it again and again."""

    def __init__(self, format_name: str, properties: Mapping[str, str], table_properties: Mapping[str, str]) -> None:
        self.format_name = format_name
        self.properties = dict(properties)
        self.table_properties = dict(table_properties)
        self.storage: LakeStorage = lake_storage(format_name, self.properties)
        self.catalog = self.storage.create_lake_catalog()
        self.factory = self.storage.create_lake_tiering_factory()
        self._splits = 0

    def again(self) -> LakeKit:
        """Return the same lake as another process would have it."""
        return LakeKit(self.format_name, self.properties, self.table_properties)

    # -- tables --------------------------------------------------------------------------------------------------------

    def info(
        self, columns: Mapping[str, str] | pa.Schema = COLUMNS, *, name: str = "t", table_id: int = 7, **definition: Any
    ) -> TableInfo:
        """Return a table that is not in the lake yet."""
        properties = {"table.datalake.enabled": True, **self.table_properties, **definition.pop("properties", {})}
        descriptor = make_descriptor(columns, properties=properties, **definition)
        return TableInfo(TablePath("db", name), table_id, 1, descriptor, 0, 0)

    def table(self, columns: Mapping[str, str] | pa.Schema = COLUMNS, **definition: Any) -> TableInfo:
        """Create a table and return it."""
        info = self.info(columns, **definition)
        self.catalog.create_table(info)
        return info

    # -- rounds --------------------------------------------------------------------------------------------------------

    def context(
        self,
        info: TableInfo,
        bucket: int = 0,
        partition: str | None = None,
        *,
        split: int | None = None,
        alone: bool = True,
    ) -> WriterInitContext:
        """Return what a round would give to the writer of one split."""
        self._splits += 1
        index = self._splits if split is None else split
        place = TableBucket(info.table_id, None if partition is None else partition_id(partition), bucket)
        with self.committer(info) as committer:
            planned = committer.current_snapshot_id()
        key = (partition, bucket)
        of_bucket = {} if info.is_log_table else self.factory.describe_buckets(info, [key], planned).get(key, {})
        # As they travel to tasks.
        target, of_bucket = json.loads(json.dumps([self.factory.describe_table(info), of_bucket]))
        return WriterInitContext(info, place, partition, target, uuid.uuid4().hex, index, of_bucket, alone)

    def writer(self, info: TableInfo, bucket: int = 0, partition: str | None = None, **options: Any) -> LakeWriter[Any]:
        """Return the writer of one split."""
        return self.factory.create_lake_writer(self.context(info, bucket, partition, **options))

    def write(
        self, info: TableInfo, runs: Iterable[LogRecords], bucket: int = 0, partition: str | None = None, **options: Any
    ) -> LakeWrite:
        """Write one split."""
        writer = self.writer(info, bucket, partition, **options)
        end, max_timestamp_ms = 0, -1
        for run in runs:
            writer.write(run)
            end, max_timestamp_ms = run.next_offset, int(run.timestamps_ms[-1].as_py())
        return LakeWrite(writer.complete(), partition, bucket, end, max_timestamp_ms)

    def committer(self, info: TableInfo) -> LakeCommitter[Any, Any]:
        """Return a committer."""
        return self.factory.create_lake_committer(CommitterInitContext(info, uuid.uuid4().hex))

    def commit(self, info: TableInfo, *written: LakeWrite, commit_id: str | None = None, **properties: str) -> int:
        """Commit on top of whatever is there, and return the snapshot's id."""
        with self.committer(info) as committer:
            planned = committer.current_snapshot_id()
            committable = committer.to_committable([each.result for each in written])
            return committer.commit(
                committable, planned, {**summary(info, *written, commit_id=commit_id), **properties}
            )

    def append(
        self, info: TableInfo, count: int, first: int = 0, *, bucket: int = 0, partition: str | None = None
    ) -> int:
        """Write and commit records ``[first, first + count)`` of a table with `COLUMNS`."""
        return self.commit(info, self.write(info, [records(info, count, first, partition)], bucket, partition))

    # -- questions -----------------------------------------------------------------------------------------------------

    def newest(self, info: TableInfo) -> int | None:
        """Return the newest snapshot's id."""
        with self.committer(info) as committer:
            return committer.current_snapshot_id()

    def missing(self, info: TableInfo, known: int | None) -> CommittedLakeSnapshot | None:
        """Return what `LakeCommitter.missing_lake_snapshot` says."""
        with self.committer(info) as committer:
            return committer.missing_lake_snapshot(known)

    def rows(self, info: TableInfo, snapshot_id: int, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
        """Return a log table's rows in a snapshot, as its `LakeSource` reads them."""
        source = self.storage.create_lake_source(info)
        names = list(info.schema.names if columns is None else columns)
        splits = source.plan(snapshot_id, stops=options.get("stops"))
        batches = [batch for _, batch in source.read(splits, names, **options)]
        if batches:
            return pa.Table.from_batches(batches)
        known = info.schema.arrow_schema
        return pa.schema([known.field(name) for name in names if name in known.names]).empty_table()

    def offsets(self, info: TableInfo, snapshot_id: int) -> dict[int, list[int]]:
        """Return the offsets of a log table's rows in a snapshot, by bucket."""
        found: dict[int, list[int]] = {}
        rows = self.rows(info, snapshot_id, ["__bucket", "__offset"])
        for row in rows.to_pylist():
            found.setdefault(row["__bucket"], []).append(row["__offset"])
        return found

    def log_source(self, info: TableInfo) -> FlussLogSource:
        """Return the log source; skip the test of a format that has none."""
        if not isinstance(self.storage, SupportsCreateFlussLogSource):
            import pytest

            pytest.skip(f"format {self.format_name!r} does not read logs back")
        return self.storage.create_fluss_log_source(info)


def partition_id(name: str) -> int:
    """Return the id that a partition has in these tests."""
    return 1 + sum(name.encode())


def summary(info: TableInfo, *written: LakeWrite, commit_id: str | None = None) -> dict[str, str]:
    """Return the properties that a round gives to its snapshot."""
    entries: dict[tuple[str, int], dict[str, Any]] = {}
    for each in sorted(written, key=lambda each: each.end):
        if each.max_timestamp_ms < 0:
            continue
        named = (
            {}
            if each.partition is None
            else {"partition_id": partition_id(each.partition), "partition_name": each.partition}
        )
        offset = {"bucket": each.bucket, "offset": each.end, "max_timestamp": each.max_timestamp_ms}
        entries[each.partition or "", each.bucket] = named | offset
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        COMMIT_ID_KEY: commit_id or uuid.uuid4().hex,
        BUCKET_OFFSET_KEY: json.dumps(list(entries.values())),
        TABLE_ID_KEY: str(info.table_id),
    }


def log_records(
    rows: pa.RecordBatch | pa.Table, first: int = 0, timestamps_ms: Sequence[int] | None = None
) -> LogRecords:
    """Return rows as records of a log table from an offset on, a millisecond apart if nothing is said."""
    batch = rows.combine_chunks().to_batches()[0] if isinstance(rows, pa.Table) else rows
    offsets = np.arange(first, first + batch.num_rows, dtype=np.int64)
    times = EPOCH_MS + offsets if timestamps_ms is None else np.asarray(timestamps_ms, dtype=np.int64)
    return LogRecords(batch, pa.array(offsets), pa.array(times))


def row_of(offset: int, partition: str | None = None) -> dict[str, Any]:
    """Return the row that `records` has at an offset: `COLUMNS`, and a partition column ``p`` if there is one."""
    row: dict[str, Any] = {"id": offset, "name": None if offset % 7 == 0 else f"n{offset % 13}", "x": offset / 4}
    return row if partition is None else row | {"p": partition}


def records(info: TableInfo, count: int, first: int = 0, partition: str | None = None) -> LogRecords:
    """Return records ``[first, first + count)`` of a bucket of a table with `COLUMNS`."""
    rows = [row_of(offset, partition) for offset in range(first, first + count)]
    return log_records(pa.RecordBatch.from_pylist(rows, schema=info.schema.arrow_schema), first)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Assert that two tables have the same columns, types and rows, in order."""
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    assert plain(found) == plain(expected)


class LakeFormat(ABC):
    """A format under test. Every test has a lake of its own under pytest's ``tmp_path``."""

    #: Under which it is installed.
    format_name: ClassVar[str]
    #: Whether it holds primary-key tables; False skips their tests.
    has_keyed_tables: ClassVar[bool] = True
    #: Properties that every table of the tests gets, for instance to make retries short.
    table_properties: ClassVar[Mapping[str, str]] = {}
    #: Failpoints that its write and commit pass, beside `fluss_lab.failpoints`'s of the layers above; a process is killed
    #: at each.
    kill_points: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def properties(self, folder: Path) -> Mapping[str, str]:
        """Return the storage's properties for a lake in a folder, which does not exist yet."""

    @abstractmethod
    def read_state(self, storage: LakeStorage, table: TableInfo) -> pa.Table:
        """Return the live rows of a primary-key table in its newest snapshot, by whatever reads the format.

        They have at least the user's columns, ``__bucket`` and ``__offset``, in any order; none without a snapshot.
        """

    @pytest.fixture
    def kit(self, tmp_path: Path) -> LakeKit:
        """Give a lake under a path with a space in it."""
        return LakeKit(self.format_name, self.properties(tmp_path / "a lake"), self.table_properties)

    @pytest.fixture
    def rng(self, request: pytest.FixtureRequest) -> random.Random:
        """Give the test's randomness; see `seed_of`."""
        return random.Random(seed_of(request.node))  # noqa: S311 - of a test

    @pytest.fixture(autouse=True)
    def _disarmed(self) -> Iterator[None]:
        """Leave no failpoint armed."""
        yield
        failpoints.disarm()

    def needs_keyed_tables(self) -> None:
        """Skip the test of a format without primary-key tables."""
        if not self.has_keyed_tables:
            pytest.skip(f"format {self.format_name!r} holds no primary-key tables")

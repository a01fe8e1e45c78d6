"""What tests of a primary-key table's log in Iceberg share: the log against the model, and the snapshots that hold it."""

from bisect import bisect_left

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile

from fluss_lab.errors import (
    CorruptDataError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
)
from fluss_lab.lake import FetchContext, LookupContext
from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.read.lake_table import LakeTable
from tests.unit.lake.changelogs import Changelog
from tests.unit.lake.upkeep import Upkeep


def newest(lake, info) -> int:
    return lake.load(info).metadata.current_snapshot_id


def fetched(source, start, stop, snapshot_id, *, bucket=0, partition=None, names=None) -> list[tuple]:
    context = FetchContext(start, stop, partition, bucket, snapshot_id, names)
    found: list[tuple] = []
    for run in source.fetch_log_records(context):
        assert run.offsets.null_count == run.previous_offsets.null_count == run.change_types.null_count == 0
        found += zip(
            run.offsets.to_pylist(),
            run.change_types.to_pylist(),
            run.previous_offsets.to_pylist(),
            run.timestamps_ms.to_pylist(),
            run.rows.to_pylist(),
            strict=True,
        )
    return found


def expected(log: Changelog, start, stop, names=None) -> list[tuple]:
    return [
        (
            offset,
            int(each.kind),
            each.previous,
            each.timestamp_ms,
            {name: each.row.get(name) for name in names or log.schema.names},
        )
        for offset, each in enumerate(log.log[start:stop], start)
    ]


def check_log(lake, info, logs, ends, rng, *, starts=None, partition=None, snapshot_id=None, source=None) -> None:
    """Check random ranges, projections and times of every bucket against the model."""
    source = source or lake.storage.create_fluss_log_source(info)
    at = snapshot_id or newest(lake, info)
    for bucket, log in logs.items():
        start, end = (starts or {}).get(bucket, 0), ends[bucket]
        place = {"bucket": bucket, "partition": partition}
        assert source.earliest_offset(partition, bucket, at) == (start if end else None)
        if start > 0:
            with pytest.raises(OffsetOutOfRangeError, match=str(start)):
                fetched(source, rng.randrange(start), end + 1, at, **place)
        ranges = [(start, end)] + [tuple(sorted(rng.randint(start, end) for _ in range(2))) for _ in range(4)]
        for low, high in ranges:
            first, *_, last = log.schema.names
            names = rng.choice([None, (), (last,), (last, first)])
            found = fetched(source, low, high, at, names=names, **place)
            assert found == expected(log, low, high, names if names is not None else None) or names == ()
            assert [each[:4] for each in found] == [each[:4] for each in expected(log, low, high)]
        with pytest.raises(CorruptDataError, match=rf"\[{end}, {end + 2}\)"):
            fetched(source, min(start, end), end + 2, at, **place)
        times = [each.timestamp_ms for each in log.log[start:end]]
        for _ in range(4 if times else 0):
            wanted = rng.randint(times[0] - 5, times[-1])
            offset = start + bisect_left(times, wanted)
            context = LookupContext(partition, bucket, wanted, at)
            assert source.lookup_log_offset_by_timestamp(context) == (offset, log.log[offset].timestamp_ms)
        late = times[-1] + 1 if times else 0
        with pytest.raises(InvalidTimestampError):
            source.lookup_log_offset_by_timestamp(LookupContext(partition, bucket, late, at))


def compact_keeping(upkeep: Upkeep) -> None:
    """Compact without leave to drop anything."""
    if (plan := upkeep.plan()) is not None:
        for task in plan.tasks:
            task["bucket"]["drops"] = False
        upkeep.commit(plan, upkeep.run(plan))


def links(lake, info, key=(None, 0), snapshot_id=None):
    at = snapshot_id or newest(lake, info)
    table = LakeTable(lake.storage.access, EntryCache(), info)
    return table.chain(at).links(at, key)


def copied(file: DataFile, name: str) -> DataFile:
    """Return a file under another name, with all that it holds."""
    path = file.file_path.removeprefix("file://")
    other = f"{path.rpartition('/')[0]}/{name}"
    pq.write_table(pq.read_table(path), other)
    copy = DataFile(*file._data)
    copy._data[1] = f"file://{other}"
    copy.spec_id = file.spec_id
    return copy


def exchange(table, removed, added) -> None:
    """Commit other files instead of some, as somebody does who knows no better; nothing keeps what was."""
    number = table.current_snapshot().sequence_number
    summary = {"commit-user": "__fluss_lake_tiering"}
    staged = stage_replace(table, removed=removed, added=[(file, number) for file in added], summary=summary)
    table.catalog.commit_table(table, staged.requirements, staged.updates)

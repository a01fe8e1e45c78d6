"""The tests of log sources: the log of a table read back from the lake: by offset and by time."""

from __future__ import annotations

import random
from bisect import bisect_left

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, LakeSnapshotNotFoundError
from fluss_lab.lake import FetchContext, LookupContext
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.catalogs import altered
from fluss_lab.testing.conformance.kit import COLUMNS, EPOCH_MS, LakeFormat, LakeKit, assert_same, log_records, row_of
from fluss_lab.testing.rows import ALL_TYPES, all_types_rows


class LogSourceConformance(LakeFormat):
    """What `FlussLogSource` promises of log tables."""

    def test_any_range_comes_back(self, kit: LakeKit, rng: random.Random) -> None:
        """Exactly the records of a range, in order, with their timestamps, whatever files they lie in."""
        info = kit.table(buckets=2)
        sizes = [7, 1, 40, 12]
        first = 0
        for size in sizes:
            snapshot = kit.append(info, size, first, bucket=1)
            first += size
        source = kit.log_source(info)
        ranges = [(0, 60), (0, 0), (59, 60), (7, 8)] + [tuple(sorted(rng.sample(range(61), 2))) for _ in range(10)]
        for start, stop in ranges:
            runs = list(source.fetch_log_records(FetchContext(start, stop, None, 1, snapshot)))
            rows = [row for run in runs for row in run.rows.to_pylist()]
            assert rows == [row_of(n) for n in range(start, stop)]
            assert [n for run in runs for n in run.offsets.to_pylist()] == [*range(start, stop)]
            assert [n for run in runs for n in run.timestamps_ms.to_pylist()] == [
                EPOCH_MS + n for n in range(start, stop)
            ]
            assert all(run.rows.schema.equals(info.schema.arrow()) for run in runs)

    def test_every_type(self, kit: LakeKit) -> None:
        """Records have the table's own types and values, projected too."""
        info = kit.table(ALL_TYPES)
        rows = all_types_rows(info, 20)
        snapshot = kit.commit(info, kit.write(info, [log_records(rows)]))
        source = kit.log_source(info)
        for names in (None, ("rec", "id", "tiny"), ("at3",)):
            context = FetchContext(3, 17, None, 0, snapshot, names)
            found = pa.Table.from_batches([run.rows for run in source.fetch_log_records(context)])
            assert_same(found, rows.slice(3, 14).select(list(names or info.schema.names)))

    def test_columns_added_later(self, kit: LakeKit) -> None:
        """Older records have null there."""
        old = kit.table()
        kit.append(old, 3)
        new = altered(old, extra="int")
        kit.catalog.alter_table(new)
        rows = pa.RecordBatch.from_pylist([row_of(3) | {"extra": 5}], new.schema.arrow())
        snapshot = kit.commit(new, kit.write(new, [log_records(rows, 3)]))
        runs = list(kit.log_source(new).fetch_log_records(FetchContext(1, 4, None, 0, snapshot, ("extra", "id"))))
        assert [row for run in runs for row in run.rows.to_pylist()] == [
            {"extra": None, "id": 1}, {"extra": None, "id": 2}, {"extra": 5, "id": 3}
        ]  # fmt: skip

    def test_what_the_lake_does_not_hold_is_told(self, kit: LakeKit) -> None:
        """A range that goes beyond what is there is an error, never a shorter answer."""
        info = kit.table()
        first = kit.append(info, 5, 10)
        snapshot = kit.append(info, 5, 20)
        source = kit.log_source(info)
        for start, stop, at in [
            (0, 5, snapshot),
            (8, 12, snapshot),
            (12, 16, snapshot),
            (12, 22, snapshot),
            (20, 26, snapshot),
            (20, 21, first),
        ]:
            with pytest.raises(CorruptDataError):
                list(source.fetch_log_records(FetchContext(start, stop, None, 0, at)))

    def test_offsets_by_time(self, kit: LakeKit, rng: random.Random) -> None:
        """The first record at or after a time, in runs of equal timestamps and jumps, over several files."""
        info = kit.table(buckets=2)
        times: list[int] = []
        now = EPOCH_MS
        for size in (1, 30, 5, 20):
            start = len(times)
            for _ in range(size):
                now += rng.choice([0, 0, 1, 1000])
                times.append(now)
            rows = pa.RecordBatch.from_pylist([row_of(n) for n in range(start, start + size)], info.schema.arrow())
            snapshot = kit.commit(info, kit.write(info, [log_records(rows, start, times[start:])], 1))
        source = kit.log_source(info)
        for wanted in [0, times[0], times[-1], *(rng.randint(EPOCH_MS - 10, times[-1]) for _ in range(20))]:
            at = bisect_left(times, wanted)
            assert source.lookup_log_offset_by_timestamp(LookupContext(None, 1, wanted, snapshot)) == (at, times[at])
        with pytest.raises(InvalidTimestampError):
            source.lookup_log_offset_by_timestamp(LookupContext(None, 1, times[-1] + 1, snapshot))
        with pytest.raises(InvalidTimestampError):
            source.lookup_log_offset_by_timestamp(LookupContext(None, 0, 0, snapshot))

    def test_where_the_lake_begins(self, kit: LakeKit) -> None:
        """The first offset of a bucket in a snapshot; None where it holds none."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"], buckets=2)
        first = kit.append(info, 5, 10, bucket=1, partition="a")
        last = kit.append(info, 5, bucket=0, partition="b")
        source = kit.log_source(info)
        for partition, bucket, snapshot, expected in [
            ("a", 1, first, 10), ("a", 1, last, 10), ("b", 0, last, 0), ("b", 0, first, None), ("a", 0, last, None),
            ("c", 0, last, None),
        ]:  # fmt: skip
            assert source.earliest_offset(partition, bucket, snapshot) == expected

    def test_partitions_have_logs_of_their_own(self, kit: LakeKit) -> None:
        """A range is of one partition's bucket."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        kit.append(info, 5, partition="a")
        snapshot = kit.append(info, 5, partition="b")
        context = FetchContext(1, 4, "b", 0, snapshot, ("p", "id"))
        runs = list(kit.log_source(info).fetch_log_records(context))
        assert [row for run in runs for row in run.rows.to_pylist()] == [{"p": "b", "id": n} for n in (1, 2, 3)]

    def test_snapshots_that_are_gone(self, kit: LakeKit) -> None:
        """An unknown snapshot is an error of every question."""
        info = kit.table()
        wrong = kit.append(info, 3) + 1
        source = kit.log_source(info)
        for ask in (
            lambda: source.lookup_log_offset_by_timestamp(LookupContext(None, 0, 0, wrong)),
            lambda: list(source.fetch_log_records(FetchContext(0, 1, None, 0, wrong))),
            lambda: source.earliest_offset(None, 0, wrong),
        ):
            with pytest.raises(LakeSnapshotNotFoundError):
                ask()

    def test_long_logs_come_in_pieces(self, kit: LakeKit) -> None:
        """Memory is bounded by a piece of a file."""
        info = kit.table({"id": "bigint"})
        count = 150_000
        rows = pa.record_batch({"id": pa.array(range(count))})
        whole = log_records(rows)
        runs = [whole.clip(start, start + 10_000) for start in range(0, count, 10_000)]
        snapshot = kit.commit(info, kit.write(info, [run for run in runs if run is not None]))
        found: list[LogRecords] = list(
            kit.log_source(info).fetch_log_records(FetchContext(5, count, None, 0, snapshot))
        )
        assert len(found) > 1
        assert sum(map(len, found)) == count - 5

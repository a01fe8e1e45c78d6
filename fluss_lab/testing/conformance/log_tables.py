"""The tests of log tables: snapshots return exactly the rows that were written, and read back as the log they were."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, LakeSnapshotNotFoundError
from fluss_lab.lake import SYSTEM_FIELDS, FetchContext, LookupContext
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.catalogs import alter
from fluss_lab.testing.conformance.kit import (
    COLUMNS,
    EPOCH_MS,
    LakeFormat,
    LakeKit,
    assert_same,
    log_records,
    records,
    row_of,
)
from fluss_lab.testing.rows import ALL_TYPES, all_types_rows


class LogTableConformance(LakeFormat):
    """What `LakeWriter` and `LakeSource` promise of log tables."""

    def test_every_type_comes_back(self, kit: LakeKit) -> None:
        """Values, nulls and Arrow types are what was written, in every column alone and in all together."""
        info = kit.table(ALL_TYPES)
        rows = all_types_rows(info, 40)
        snapshot = kit.commit(info, kit.write(info, [log_records(rows.slice(0, 15)), log_records(rows.slice(15), 15)]))
        assert_same(kit.rows(info, snapshot), rows)
        for name in info.schema.names:
            assert_same(kit.rows(info, snapshot, [name]), rows.select([name]))

    def test_system_columns(self, kit: LakeKit) -> None:
        """Bucket, offset and timestamp come in `SYSTEM_FIELDS`'s types, in whatever order they are asked for."""
        info = kit.table(buckets=2)
        snapshot = kit.append(info, 5, 10, bucket=1)
        names = ["__timestamp", "id", "__offset", "__bucket"]
        found = kit.rows(info, snapshot, names)
        assert found.schema.names == names
        for field in SYSTEM_FIELDS:
            assert found.schema.field(field.name).type == field.type
        assert found["__offset"].to_pylist() == found["id"].to_pylist() == [*range(10, 15)]
        assert set(found["__bucket"].to_pylist()) == {1}
        assert found["__timestamp"].cast(pa.int64()).to_pylist() == [(EPOCH_MS + n) * 1000 for n in range(10, 15)]

    def test_projection(self, kit: LakeKit) -> None:
        """Columns come in the order asked, and none but they."""
        info = kit.table()
        snapshot = kit.append(info, 4)
        found = kit.rows(info, snapshot, ["x", "id"])
        assert found.to_pylist() == [{"x": n / 4, "id": n} for n in range(4)]

    def test_filter(self, kit: LakeKit) -> None:
        """Rows for which the filter is not true are left out, null included; its columns need not be asked for."""
        info = kit.table()
        kit.append(info, 50)
        snapshot = kit.append(info, 50, 50)
        for where, expected in [
            (pc.field("id") >= 90, range(90, 100)),
            (pc.field("name") == "n5", [n for n in range(100) if n % 13 == 5 and n % 7]),
            (pc.field("name").is_null() & (pc.field("x") < 5.0), range(0, 20, 7)),
            (pc.field("__offset") > 97, [98, 99]),
        ]:
            assert kit.rows(info, snapshot, ["id"], where=where)["id"].to_pylist() == [*expected]

    def test_stops(self, kit: LakeKit) -> None:
        """Only rows below a bucket's stop are given; a bucket without one is left out."""
        info = kit.table(buckets=3)
        for bucket in range(3):
            kit.append(info, 5, bucket=bucket)
            snapshot = kit.append(info, 5, 5, bucket=bucket)
        for stops in ({(None, 0): 7, (None, 1): 5, (None, 2): 0}, {(None, 1): 100}, {}):
            found = kit.rows(info, snapshot, ["__bucket", "__offset"], stops=stops).to_pylist()
            assert [(row["__bucket"], row["__offset"]) for row in found] == [
                (bucket, offset) for (_, bucket), stop in sorted(stops.items()) for offset in range(min(stop, 10))
            ]

    def test_plans_tell_what_files_hold(self, kit: LakeKit) -> None:
        """Splits come by partition, bucket and offset, and say the ranges, rows and sizes of their files."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"], buckets=2)
        places = [("b", 0, 0), ("a", 1, 4), ("a", 1, 0), ("a", 0, 0), ("b", 0, 4)]
        for partition, bucket, first in places:
            snapshot = kit.append(info, 4, first, bucket=bucket, partition=partition)
        source = kit.storage.create_lake_source(info)
        splits = source.plan(snapshot)
        assert [(each.partition, each.bucket, each.min_offset) for each in splits] == sorted(places)
        for each in splits:
            assert (each.rows, each.max_offset) == (4, each.min_offset + 3)
            assert each.size_bytes > 0
            assert each.path.startswith(("file:", "s3", "gs", "abfs", "hdfs", "oss", "memory"))
        found = [(split, row["id"]) for split, rows in source.read(splits[1:3], ["id"]) for row in rows.to_pylist()]
        assert found == [(split, n) for split in splits[1:3] for n in range(split.min_offset, split.max_offset + 1)]
        assert source.plan(snapshot, stops={("a", 1): 4, ("b", 0): 1}) == [splits[1], splits[3]]

    def test_partitions_are_kept_apart(self, kit: LakeKit) -> None:
        """Partition names of any characters, with offsets of their own."""
        names = ["2013-01", "a b", "ünï/%", "=", ".x"]
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"])
        written = [
            kit.write(info, [records(info, 2 + number, partition=name)], 0, name) for number, name in enumerate(names)
        ]
        snapshot = kit.commit(info, *written)
        source = kit.storage.create_lake_source(info)
        found = {split.partition: split.rows for split in source.plan(snapshot)}
        assert found == {name: 2 + number for number, name in enumerate(names)}
        for name in names:
            rows = kit.rows(info, snapshot, ["p", "id"], stops={(name, 0): 100})
            assert set(rows["p"].to_pylist()) == {name}

    def test_partitions_of_two_columns(self, kit: LakeKit) -> None:
        """The partition's name joins the values."""
        info = kit.table({**COLUMNS, "p": "string", "q": "string"}, partitioned_by=["p", "q"])
        rows = pa.RecordBatch.from_pylist([row_of(n, "x") | {"q": "y"} for n in range(3)], info.schema.arrow_schema)
        snapshot = kit.commit(info, kit.write(info, [log_records(rows)], 0, "x$y"))
        assert kit.rows(info, snapshot, ["q"], stops={("x$y", 0): 2})["q"].to_pylist() == ["y", "y"]

    def test_columns_added_later_are_null_before(self, kit: LakeKit) -> None:
        """Over several alterations, projected, filtered, and of every type."""
        info = kit.table({"id": "bigint not null"})
        versions = [info]
        for name, text in ALL_TYPES.items():
            if name != "id":
                versions.append(alter(versions[-1], **{name: text}))
        for number in (0, 1, len(versions) - 1):
            if number:
                kit.catalog.alter_table(versions[number])
            rows = all_types_rows(versions[-1], 3).select(versions[number].schema.names)
            rows = rows.cast(versions[number].schema.arrow_schema)
            snapshot = kit.commit(
                versions[number], kit.write(versions[number], [log_records(rows, 3 * (number > 0) + 3 * (number > 1))])
            )
        last = versions[-1]
        found = kit.rows(last, snapshot)
        assert_same(found.slice(6), all_types_rows(last, 3))
        assert found.slice(0, 6).select(last.schema.names[2:]).to_pylist() == [dict.fromkeys(last.schema.names[2:])] * 6
        assert kit.rows(last, snapshot, ["id"], where=pc.field("txt").is_null())["id"].to_pylist() == [0, 1, 2] * 2
        assert kit.rows(last, snapshot, ["rec"]).schema.field("rec").type == last.schema.arrow_schema.field("rec").type

    def test_long_splits(self, kit: LakeKit) -> None:
        """Many small runs and one long one: order is kept, and read in pieces."""
        info = kit.table({"id": "bigint", "text": "string"})
        count = 150_000
        rows = pa.record_batch(
            {"id": pa.array(range(count)), "text": pa.array([f"row {n}" for n in range(count)])}
        ).cast(info.schema.arrow_schema)
        whole = log_records(rows)
        cuts = [0, *range(1, 2000, 37), 2000, 140_000, count]
        runs = [whole.clip(start, stop) for start, stop in pairwise(cuts)]
        snapshot = kit.commit(info, kit.write(info, [run for run in runs if run is not None]))
        source = kit.storage.create_lake_source(info)
        batches = [batch for _, batch in source.read(source.plan(snapshot), ["id"])]
        assert len(batches) > 1
        assert pa.Table.from_batches(batches)["id"].to_pylist() == [*range(count)]

    def test_wide_rows(self, kit: LakeKit) -> None:
        """A few rows of megabytes each."""
        info = kit.table({"id": "bigint", "text": "string"})
        rows = pa.RecordBatch.from_pylist(
            [{"id": n, "text": chr(97 + n) * 2_000_000} for n in range(5)], info.schema.arrow_schema
        )
        snapshot = kit.commit(info, kit.write(info, [log_records(rows)]))
        assert kit.rows(info, snapshot).equals(pa.Table.from_batches([rows]))

    def test_snapshots_that_are_not_there(self, kit: LakeKit) -> None:
        """An unknown snapshot, and one of a dropped table, are errors."""
        info = kit.table()
        snapshot = kit.append(info, 1)
        for wrong in (snapshot + 1, 2**62):
            with pytest.raises(LakeSnapshotNotFoundError):
                kit.storage.create_lake_source(info).plan(wrong)

    def test_random_rounds(self, kit: LakeKit, rng: random.Random) -> None:
        """Rounds of several splits a bucket, over buckets and partitions, read at every snapshot."""
        info = kit.table({**COLUMNS, "p": "string"}, partitioned_by=["p"], buckets=2)
        places = [(name, bucket) for name in ("a", "b") for bucket in range(2)]
        ends = dict.fromkeys(places, 0)
        history = []
        for _ in range(6):
            written = []
            for name, bucket in rng.sample(places, rng.randint(0, len(places))):
                for _ in range(rng.randint(1, 3)):
                    count = rng.randint(0, 20)
                    runs = [records(info, count, ends[name, bucket], name)] if count else []
                    written.append(kit.write(info, runs, bucket, name))
                    ends[name, bucket] += count
            rng.shuffle(written)
            history.append((kit.commit(info, *written), dict(ends)))
        for snapshot, expected in history:
            rows = kit.rows(info, snapshot, [*info.schema.names, "__bucket", "__offset"])
            assert rows.to_pylist() == [
                row_of(offset, name) | {"__bucket": bucket, "__offset": offset}
                for name, bucket in places
                for offset in range(expected[name, bucket])
            ]


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
            assert all(run.rows.schema.equals(info.schema.arrow_schema) for run in runs)

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
        new = alter(old, extra="int")
        kit.catalog.alter_table(new)
        rows = pa.RecordBatch.from_pylist([row_of(3) | {"extra": 5}], new.schema.arrow_schema)
        snapshot = kit.commit(new, kit.write(new, [log_records(rows, 3)]))
        runs = list(kit.log_source(new).fetch_log_records(FetchContext(1, 4, None, 0, snapshot, ("extra", "id"))))
        assert [row for run in runs for row in run.rows.to_pylist()] == [
            {"extra": None, "id": 1}, {"extra": None, "id": 2}, {"extra": 5, "id": 3}
        ]  # fmt: skip

    def test_what_the_lake_does_not_hold_is_reported(self, kit: LakeKit) -> None:
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
            rows = pa.RecordBatch.from_pylist([row_of(n) for n in range(start, start + size)], info.schema.arrow_schema)
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

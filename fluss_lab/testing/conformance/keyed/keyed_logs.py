"""The tests of changelogs: that of a primary-key table read back from the lake: by offset and by time."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, LakeSnapshotNotFoundError, OffsetOutOfRangeError
from fluss_lab.lake import FetchContext, FlussLogSource, LookupContext
from fluss_lab.model import PartitionInfo
from fluss_lab.testing.conformance.catalogs import alter
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedChange, KeyedHistory
from fluss_lab.testing.conformance.kit import COLUMNS, EPOCH_MS, LakeKit, partition_id
from fluss_lab.testing.rows import ALL_TYPES, all_types_row, plain_rows


class KeyedLogConformance(KeyedChecks):
    """What `FlussLogSource` promises of primary-key tables."""

    @pytest.fixture
    def logged(self, keyed: LakeKit) -> LakeKit:
        """Give a lake that reads changelogs back."""
        if not self.replays_changes:
            pytest.skip(f"format {self.format_name!r} does not read changelogs of primary-key tables back")
        return keyed

    def test_any_range_of_a_changelog_comes_back(self, logged: LakeKit, rng: random.Random) -> None:
        """Of every bucket, in every snapshot: exactly the records, in order, whatever columns are asked for."""
        info = logged.table({**COLUMNS, "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"], buckets=2)
        histories = [KeyedHistory(info, bucket, part) for bucket in range(2) for part in ("a", "b")]
        done = [0] * len(histories)
        snapshots: list[tuple[int, list[int]]] = []
        source = logged.log_source(info)
        for _ in range(6):
            written = []
            for number, history in enumerate(histories):
                if rng.random() < 0.7:
                    history.go_on(rng, rng.randint(1, 25))
                if history.end > done[number]:
                    cuts = history.cuts(rng, done[number], rng.choice([1, 1, 3]))
                    written += self.write_history(logged, history, cuts)
                    done[number] = history.end
            rng.shuffle(written)
            snapshots.append((logged.commit(info, *written), list(done)))
            for snapshot, ends in (snapshots[-1], rng.choice(snapshots)):
                for history, end in zip(histories, ends, strict=True):
                    self.check_ranges(rng.choice([source, logged.log_source(info)]), history, snapshot, end, rng)

    def check_ranges(
        self, source: FlussLogSource, history: KeyedHistory, snapshot: int, end: int, rng: random.Random, first: int = 0
    ) -> None:
        """Check random ranges, columns and times of one bucket, of which the lake holds ``[first, end)``."""
        assert source.earliest_offset(history.partition, history.bucket, snapshot) == (first if end else None)
        ranges = [(first, end), (end, end)]
        ranges += [(min(pair), max(pair)) for pair in [(rng.randint(first, end), rng.randint(first, end))] * 3]
        for start, stop in ranges:
            names = rng.choice([None, ("x", "id"), ("name",)])
            context = FetchContext(start, stop, history.partition, history.bucket, snapshot, names)
            assert list(_changes(source, context)) == _expected_changes(history, start, stop, names)
        times = [change.timestamp_ms for change in history.changes[first:end]]
        for wanted in [0, *(rng.randint(times[0] - 1, times[-1]) for _ in range(3))] if times else []:
            at = bisect_left(times, wanted)
            found = source.lookup_log_offset_by_timestamp(
                LookupContext(history.partition, history.bucket, wanted, snapshot)
            )
            assert found == (first + at, times[at])
        late = LookupContext(history.partition, history.bucket, times[-1] + 1 if times else 0, snapshot)
        with pytest.raises(InvalidTimestampError):
            source.lookup_log_offset_by_timestamp(late)

    def test_what_the_lake_does_not_hold_of_a_changelog_is_reported(self, logged: LakeKit, rng: random.Random) -> None:
        """A range that goes beyond what is there is an error, never a shorter answer."""
        history = KeyedHistory(self.keyed_table(logged))
        history.go_on(rng, 20)
        older = logged.commit(history.info, *self.write_history(logged, history, [(0, history.end)]))
        end = history.end
        history.go_on(rng, 20)
        newer = logged.commit(history.info, *self.write_history(logged, history, [(end, history.end)]))
        source = logged.log_source(history.info)
        for start, stop, snapshot in [(0, end + 1, older), (end, end + 1, older), (end, history.end + 1, newer)]:
            with pytest.raises(CorruptDataError):
                list(source.fetch_log_records(FetchContext(start, stop, None, history.bucket, snapshot)))
        with pytest.raises(CorruptDataError):
            list(source.fetch_log_records(FetchContext(0, 1, None, 1, newer)))
        assert source.earliest_offset(None, 1, newer) is None
        wrong = newer + 1
        for ask in (
            lambda: source.lookup_log_offset_by_timestamp(LookupContext(None, 0, 0, wrong)),
            lambda: list(source.fetch_log_records(FetchContext(0, 1, None, 0, wrong))),
            lambda: source.earliest_offset(None, 0, wrong),
        ):
            with pytest.raises(LakeSnapshotNotFoundError):
                ask()

    def test_a_changelog_begins_where_a_snapshot_was_tiered(self, logged: LakeKit, rng: random.Random) -> None:
        """Rows of a key-value snapshot are state: what was before it is out of range, and no time leads there."""
        info = self.keyed_table(logged)
        history = KeyedHistory(info)
        start, snapshot = self.tier_snapshot_and_log(logged, history, rng, after=30)
        source = logged.log_source(info)
        self.check_ranges(source, history, snapshot, history.end, rng, start)
        for begin in (0, start - 1):
            with pytest.raises(OffsetOutOfRangeError, match=str(start)):
                list(source.fetch_log_records(FetchContext(begin, history.end, None, 0, snapshot)))

    def test_changes_of_every_type(self, logged: LakeKit) -> None:
        """Rows and the rows that were ended have the table's own types and values, projected too."""
        info = logged.table(ALL_TYPES, primary_key=["id"], buckets=1)
        history = KeyedHistory(info)
        blank = dict.fromkeys(ALL_TYPES)
        for n in range(10):
            history.upsert(n, **blank | all_types_row(n))
        middle = history.end
        for n in range(0, 10, 2):
            history.upsert(n, **blank | all_types_row(n + 1) | {"id": n})
        history.delete(9)
        for cut in ((0, middle), (middle, history.end)):
            snapshot = logged.commit(info, *self.write_history(logged, history, [cut]))
        source = logged.log_source(info)
        for names in (None, ("rec", "id", "tiny"), ("at3",)):
            context = FetchContext(3, history.end, None, 0, snapshot, names)
            schema = info.schema.arrow_schema
            wanted = schema if names is None else pa.schema([schema.field(name) for name in names])
            runs = list(source.fetch_log_records(context))
            assert all(run.rows.schema.equals(wanted) for run in runs)
            rows = [row for run in runs for row in run.rows.to_pylist()]
            expected = [{name: each.row[name] for name in wanted.names} for each in history.changes[3:]]
            expected = pa.Table.from_pylist(expected, schema=wanted).to_pylist()
            assert plain_rows(rows) == plain_rows(expected)

    def test_columns_added_to_a_changelog(self, logged: LakeKit) -> None:
        """Older rows have null there, and so have the changes that end them."""
        old = self.keyed_table(logged)
        history = KeyedHistory(old)
        one, two = history.keys[:2]
        history.upsert(one)
        history.upsert(two)
        history.upsert(two, x=1.0)
        logged.commit(old, *self.write_history(logged, history, [(0, history.end)]))
        end = history.end
        new = alter(old, extra="int")
        logged.catalog.alter_table(new)
        history.info = new
        for change in history.changes:
            change.row["extra"] = None
        history.upsert(one, extra=5)
        history.delete(two)
        snapshot = logged.commit(new, *self.write_history(logged, history, [(end, history.end)]))
        source = logged.log_source(new)
        for names in (None, ("extra", "id"), ("name",)):
            context = FetchContext(1, history.end, None, 0, snapshot, names)
            assert list(_changes(source, context)) == _expected_changes(history, 1, history.end, names)

    def test_the_changelog_of_a_partition_made_again(self, logged: LakeKit, rng: random.Random) -> None:
        """It is the second one's; the first one's is gone with it."""
        info = self.keyed_table(logged, buckets=1, partitioned=True)
        old = KeyedHistory(info, 0, "a")
        old.go_on(rng, 30)
        first = logged.commit(info, *self.write_history(logged, old, [(0, old.end)]))
        logged.catalog.drop_partition(info, PartitionInfo(partition_id("a"), "a"))
        source = logged.log_source(info)
        dropped = logged.newest(info)
        assert dropped is not None
        assert source.earliest_offset("a", 0, dropped) is None
        new = KeyedHistory(info, 0, "a")
        new.go_on(rng, 20)
        snapshot = logged.commit(info, *self.write_history(logged, new, [(0, new.end)]))
        self.check_ranges(source, new, snapshot, new.end, rng)
        self.check_ranges(source, old, first, old.end, rng)

    def test_long_changelogs_come_in_pieces(self, logged: LakeKit) -> None:
        """Memory is bounded by pieces of files."""
        info = logged.table({"id": "bigint", "v": "int"}, primary_key=["id"], buckets=1)
        from fluss_lab.model import ChangeType
        from fluss_lab.records import LogRecords

        count, snapshot = 150_000, -1
        ids = pa.array(range(count))
        none = pa.repeat(pa.scalar(-1, pa.int64()), count)
        for change_type, first, previous in ((ChangeType.INSERT, 0, none), (ChangeType.DELETE, count, ids)):
            rows = pa.RecordBatch.from_arrays(
                [ids, pa.repeat(pa.scalar(7, pa.int32()), count)], schema=info.schema.arrow_schema
            )
            whole = LogRecords(
                rows,
                pa.array(range(first, first + count)),
                pa.array(range(EPOCH_MS + first, EPOCH_MS + first + count)),
                pa.repeat(pa.scalar(int(change_type), pa.int8()), count),
                previous,
            )
            runs = [whole.clip(at, at + 10_000) for at in range(first, first + count, 10_000)]
            snapshot = logged.commit(info, logged.write(info, [run for run in runs if run is not None]))
        found = list(logged.log_source(info).fetch_log_records(FetchContext(5, 2 * count, None, 0, snapshot)))
        assert len(found) > 1
        assert sum(map(len, found)) == 2 * count - 5
        assert [found[0].base_offset, *(run.next_offset for run in found)] == [5, *(run.next_offset for run in found)]


def _changes(source: FlussLogSource, context: FetchContext) -> Iterator[KeyedChange]:
    """Yield what a fetch gives, one by one."""
    from fluss_lab.model import ChangeType

    for run in source.fetch_log_records(context):
        assert run.change_types is not None
        assert run.previous_offsets is not None
        for kind, offset, timestamp, previous, row in zip(
            run.change_types.to_pylist(),
            run.offsets.to_pylist(),
            run.timestamps_ms.to_pylist(),
            run.previous_offsets.to_pylist(),
            run.rows.to_pylist(),
            strict=True,
        ):
            yield KeyedChange(ChangeType(kind), offset, timestamp, previous, row)


def _expected_changes(history: KeyedHistory, start: int, stop: int, names: Sequence[str] | None) -> list[KeyedChange]:
    def row(change: KeyedChange) -> dict[str, Any]:
        return change.row if names is None else {name: change.row[name] for name in names}

    return [
        KeyedChange(each.change_type, each.offset, each.timestamp_ms, each.previous_offset, row(each))
        for each in history.changes[start:stop]
    ]

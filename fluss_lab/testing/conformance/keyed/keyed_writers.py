"""The tests of writers and commits of changes: a primary-key table's snapshots hold the rows that its changes leave, and the changes."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab.errors import CommitConflictError
from fluss_lab.model import ChangeType
from fluss_lab.testing.conformance.catalogs import alter
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedChange, KeyedHistory, changelog
from fluss_lab.testing.conformance.kit import COLUMNS, EPOCH_MS, LakeKit, LakeWrite, partition_id, summary
from fluss_lab.testing.rows import ALL_TYPES, all_types_row

#: Types of a primary key, with three values each in ascending order.
KEY_TYPES: dict[str, list[Any]] = {
    "int": [-1, 0, 7],
    "bigint": [-(2**63), 0, 2**63 - 1],
    "smallint": [-5, 0, 5],
    "string": ["", "a", "é😀"],
    "char(2)": ["aa", "ab", "zz"],
    "decimal(20,3)": [Decimal("-1.500"), Decimal("0.000"), Decimal("99999999999999999.999")],
    "date": [dt.date(1969, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 2, 28)],
    "time(6)": [dt.time(0), dt.time(12, 0, 0, 1), dt.time(23, 59, 59, 999999)],
    "timestamp(6)": [dt.datetime(1969, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2026, 1, 1, 1, 1, 1, 1)],  # noqa: DTZ001
}


class KeyedWriterConformance(KeyedChecks):
    """What `LakeWriter` and `LakeCommitter` promise of primary-key tables."""

    def test_rows_are_inserted_updated_and_deleted(self, keyed: LakeKit) -> None:
        """Round by round, each on what the ones before left."""
        history = KeyedHistory(self.keyed_table(keyed))
        one, two, three = history.keys[:3]
        #: Keys with the values that they get, None for none any more.
        steps: list[dict[int, dict[str, Any] | None]] = [
            {one: {"name": "first"}, two: {"name": ""}, three: {}},
            {two: {"name": "second", "x": 1.5}},
            {one: None},
            {one: {"name": "again"}, three: {}},
            {one: None, two: None, three: None},
            {three: {"x": -0.5}},
        ]
        for step in steps:
            start = history.end
            for key, values in step.items():
                if values is None:
                    history.delete(key)
                else:
                    history.upsert(key, **values)
            keyed.commit(history.info, *self.write_history(keyed, history, [(start, history.end)]))
            self.check_state(keyed, [history])
        self.check_changes(keyed, history)

    def test_a_key_that_changes_within_one_split(self, keyed: LakeKit) -> None:
        """Rows that come and go in one split leave only the last."""
        history = KeyedHistory(self.keyed_table(keyed))
        one, two = history.keys[:2]
        for turn in range(4):
            history.upsert(one, x=float(turn))
            history.upsert(two, x=float(turn))
            history.delete(two)
        keyed.commit(history.info, *self.write_history(keyed, history, [(0, history.end)]))
        self.check_state(keyed, [history])
        self.check_changes(keyed, history)

    def test_a_round_with_events_only(self, keyed: LakeKit) -> None:
        """Everything is deleted again; what is left is empty."""
        history = KeyedHistory(self.keyed_table(keyed))
        for key in history.keys[:5]:
            history.upsert(key)
        keyed.commit(history.info, *self.write_history(keyed, history, [(0, 5)]))
        for key in history.keys[:5]:
            history.delete(key)
        keyed.commit(history.info, *self.write_history(keyed, history, [(5, 10)]))
        self.check_state(keyed, [history])
        self.check_changes(keyed, history)

    def test_a_bucket_cut_into_splits(self, keyed: LakeKit, rng: random.Random) -> None:
        """Splits of one bucket in one round end rows that others write, in whatever order they are done."""
        history = KeyedHistory(self.keyed_table(keyed))
        start = 0
        for _ in range(3):
            history.go_on(rng, 25)
            written = self.write_history(keyed, history, history.cuts(rng, start, 5))
            rng.shuffle(written)
            keyed.commit(history.info, *written)
            self.check_state(keyed, [history])
            start = history.end
        self.check_changes(keyed, history)

    def test_random_histories(self, keyed: LakeKit, rng: random.Random) -> None:
        """Many rounds over buckets and partitions, some cut, some given up, some in conflict, with fences between."""
        self.run_history(keyed, rng, rounds=8, partitioned=True)

    @pytest.mark.campaign
    @pytest.mark.parametrize("partitioned", [False, True])
    @pytest.mark.parametrize("number", range(3))
    def test_long_random_histories(self, keyed: LakeKit, rng: random.Random, number: int, partitioned: bool) -> None:
        """The same at length."""
        self.run_history(keyed, rng, rounds=20, partitioned=partitioned, name=f"t{number}")

    def run_history(self, kit: LakeKit, rng: random.Random, *, rounds: int, partitioned: bool, name: str = "t") -> None:
        """Run rounds of random changes and check after each."""
        columns, key = ({**COLUMNS, "p": "string"}, ["id", "p"]) if partitioned else (COLUMNS, ["id"])
        parts = ["p"] if partitioned else []
        info = kit.table(columns, primary_key=key, partitioned_by=parts, buckets=2, name=name)
        places = [(bucket, part) for bucket in range(2) for part in (["a", "b"] if partitioned else [None])]
        histories = [KeyedHistory(info, *place) for place in places]
        done = [0] * len(histories)
        for _ in range(rounds):
            planned = kit.newest(info)
            written: list[LakeWrite] = []
            for number, history in enumerate(histories):
                if rng.random() < 0.8:
                    history.go_on(rng, rng.randint(1, 20))
                if history.end > done[number]:
                    cuts = history.cuts(rng, done[number], rng.choice([1, 1, 2, 4]))
                    written += self.write_history(kit, history, cuts)
            rng.shuffle(written)
            chance = rng.random()
            with kit.committer(info) as committer:
                results = [each.result for each in written]
                if chance < 0.15:
                    committer.abort(results)  # the round dies; the next one writes it all again
                elif chance < 0.3:
                    kit.commit(info)  # a successor's fence
                    with pytest.raises(CommitConflictError):
                        committer.commit(committer.to_committable(results), planned, summary(info, *written))
                    committer.abort(results)
                else:
                    committer.commit(committer.to_committable(results), planned, summary(info, *written))
                    done = [history.end for history in histories]
            self.check_state(kit, histories, done) if kit.newest(info) is not None else None
        if written and done == [history.end for history in histories]:
            for history in histories:
                self.check_changes(kit, history)

    def test_a_first_round_from_a_snapshot(self, keyed: LakeKit, rng: random.Random) -> None:
        """Rows of a key-value snapshot, with gaps between their offsets, then the log from there, in one round."""
        info = self.keyed_table(keyed)
        history = KeyedHistory(info)
        snapshot_end, _ = self.tier_snapshot_and_log(keyed, history, rng, after=30)
        self.check_state(keyed, [history])
        cut = history.end
        history.go_on(rng, 30)
        keyed.commit(info, *self.write_history(keyed, history, [(cut, history.end)]))
        self.check_state(keyed, [history])
        self.check_changes(keyed, history, snapshot_end)
        newest = keyed.newest(info)
        if self.replays_changes and newest is not None:
            assert keyed.log_source(info).earliest_offset(None, 0, newest) == snapshot_end

    def test_partitions_hold_keys_of_their_own(self, keyed: LakeKit) -> None:
        """One key in two partitions is two rows."""
        info = self.keyed_table(keyed, buckets=1, partitioned=True)
        histories = [KeyedHistory(info, 0, name) for name in ("a", "b")]
        for number, history in enumerate(histories):
            history.upsert(3, x=float(number))
        written = [each for history in histories for each in self.write_history(keyed, history, [(0, 1)])]
        keyed.commit(info, *written)
        histories[0].delete(3)
        keyed.commit(info, *self.write_history(keyed, histories[0], [(1, 2)]))
        self.check_state(keyed, histories)

    def test_a_dropped_partition_goes_whole(self, keyed: LakeKit) -> None:
        """Its rows and what ended some of them; one of the same name begins anew."""
        from fluss_lab.model import PartitionInfo

        info = self.keyed_table(keyed, buckets=1, partitioned=True)
        old, other = KeyedHistory(info, 0, "a"), KeyedHistory(info, 0, "b")
        for history in (old, other):
            for key in (1, 2, 3):
                history.upsert(key)
            history.delete(2)
            keyed.commit(info, *self.write_history(keyed, history, [(0, 3)]))
            keyed.commit(info, *self.write_history(keyed, history, [(3, 4)]))
        keyed.catalog.drop_partition(info, PartitionInfo(partition_id("a"), "a"))
        self.check_state(keyed, [other])
        new = KeyedHistory(info, 0, "a")
        new.upsert(2, name="new")
        keyed.commit(info, *self.write_history(keyed, new, [(0, 1)]))
        self.check_state(keyed, [other, new])

    def test_every_type_in_rows_and_events(self, keyed: LakeKit) -> None:
        """Rows of every type are written, ended with their values and nulls, and written anew."""
        info = keyed.table(ALL_TYPES, primary_key=["id"], buckets=1)
        history = KeyedHistory(info)
        for n in range(10):
            history.upsert(n, **{name: all_types_row(n).get(name) for name in ALL_TYPES})
        keyed.commit(info, *self.write_history(keyed, history, [(0, 10)]))
        for n in range(0, 10, 2):
            history.upsert(n, **({name: all_types_row(n + 1).get(name) for name in ALL_TYPES} | {"id": n}))
        history.delete(9)
        keyed.commit(info, *self.write_history(keyed, history, [(10, history.end)]))
        found = self.read_state(keyed.storage, info).select(["id", "tiny", "txt", "dec", "day", "__offset"])
        expected = history.state()
        assert sorted(found["__offset"].to_pylist()) == sorted(expected)
        for row in found.to_pylist():
            wanted = expected[row.pop("__offset")]
            assert row == {name: wanted[name] for name in row}

    @pytest.mark.parametrize("key_type", KEY_TYPES)
    def test_keys_of_every_type(self, keyed: LakeKit, key_type: str) -> None:
        """Rows are ended by what the changes say, whatever their key is."""
        columns = {"k": f"{key_type} not null", "v": "int"}
        info = keyed.table(columns, primary_key=["k"], buckets=1)
        values = KEY_TYPES[key_type]
        inserts = [
            KeyedChange(ChangeType.INSERT, n, EPOCH_MS, -1, {"k": value, "v": n}) for n, value in enumerate(values)
        ]
        count = len(values)
        changes = [
            KeyedChange(ChangeType.UPDATE_BEFORE, count, EPOCH_MS, 0, inserts[0].row),
            KeyedChange(ChangeType.UPDATE_AFTER, count + 1, EPOCH_MS, 0, {"k": values[0], "v": 9}),
            KeyedChange(ChangeType.DELETE, count + 2, EPOCH_MS, count - 1, inserts[-1].row),
        ]
        for part in (inserts, changes):
            run = changelog(info, part)
            assert run is not None
            keyed.commit(info, keyed.write(info, [run]))
        found = self.read_state(keyed.storage, info)
        assert dict(zip(found["__offset"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
            count + 1: 9, **{n: n for n in range(1, count - 1)}
        }  # fmt: skip

    def test_columns_added(self, keyed: LakeKit) -> None:
        """Rows of before are ended by changes that have the new columns."""
        old = self.keyed_table(keyed)
        history = KeyedHistory(old)
        one, two = history.keys[:2]
        history.upsert(one)
        history.upsert(two)
        keyed.commit(old, *self.write_history(keyed, history, [(0, 2)]))
        new = alter(old, extra="int")
        keyed.catalog.alter_table(new)
        history.info = new
        for change in history.changes:
            change.row["extra"] = None
        history.upsert(one, extra=5)
        history.delete(two)
        keyed.commit(new, *self.write_history(keyed, history, [(2, history.end)]))
        self.check_state(keyed, [history])
        self.check_changes(keyed, history)

    def test_many_rows_in_one_split(self, keyed: LakeKit) -> None:
        """A split of more rows and events than are held at a time."""
        info = keyed.table({"id": "bigint", "v": "int"}, primary_key=["id"], buckets=1)
        count = 30_000
        ids = pa.array(range(count))
        from fluss_lab.records import LogRecords

        def batch(change_type: int, first: int, previous: pa.Array, value: int) -> LogRecords:
            rows = pa.RecordBatch.from_arrays(
                [ids, pa.repeat(pa.scalar(value, pa.int32()), count)], schema=info.schema.arrow_schema
            )
            offsets = pa.array(range(first, first + count))
            times = pa.repeat(pa.scalar(EPOCH_MS, pa.int64()), count)
            return LogRecords(rows, offsets, times, pa.repeat(pa.scalar(change_type, pa.int8()), count), previous)

        none = pa.repeat(pa.scalar(-1, pa.int64()), count)
        insert = batch(ChangeType.INSERT, 0, none, 1)
        keyed.commit(info, keyed.write(info, [insert]))
        delete = batch(ChangeType.DELETE, count, insert.offsets, 1)
        again = batch(ChangeType.INSERT, 2 * count, none, 2)
        keyed.commit(info, keyed.write(info, [delete, again]))
        found = self.read_state(keyed.storage, info)
        assert found.num_rows == count
        assert set(found["v"].to_pylist()) == {2}

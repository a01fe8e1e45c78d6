"""The tests of sources: rows of primary-key tables read out of snapshots, as they were at any offset."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from fluss_lab.errors import LakeSnapshotNotFoundError, OffsetOutOfRangeError
from fluss_lab.lake import SupportsMaintenance, splits_from_json, splits_to_json
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.conformance.catalogs import alter
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedHistory
from fluss_lab.testing.conformance.kit import COLUMNS, LakeKit, partition_id, summary
from fluss_lab.testing.mock_clock import MockClock

Stops = Mapping[BucketKey, int]
Ended = Mapping[BucketKey, NDArray[np.int64]]
_HOUR_MS = 3_600_000


class KeyedSourceConformance(KeyedChecks):
    """What `LakeSource` promises of primary-key tables."""

    # -- what is read, and what should be ------------------------------------------------------------------------------

    def read_rows(
        self,
        kit: LakeKit,
        info: TableInfo,
        snapshot: int,
        names: Sequence[str],
        *,
        stops: Stops | None = None,
        ended: Ended | None = None,
        where: pc.Expression | None = None,
    ) -> list[tuple[Any, ...]]:
        """Return partition, bucket and values of the rows of a snapshot, read by another source than the one that planned."""
        source = kit.storage.create_lake_source(info)
        splits = splits_from_json(splits_to_json(source.plan(snapshot, stops=stops)))
        options: dict[str, Any] = {"stops": stops, "ended": ended}
        known = pa.schema([*info.schema.arrow_schema, *_system_fields()])
        found = []
        for split, batch in kit.storage.create_lake_source(info).read(splits, names, where=where, **options):
            assert batch.schema.types == [known.field(name).type for name in names]
            columns = [column.to_pylist() for column in batch.columns]
            found += [(split.partition, split.bucket, *values) for values in zip(*columns, strict=True)]
        if where is None:
            assert source.count(splits, **options) == len(found)
        return found

    def check_read(
        self,
        kit: LakeKit,
        histories: Sequence[KeyedHistory],
        snapshot: int,
        stops: Stops | None = None,
        ended: Ended | None = None,
        *,
        filtered: bool = True,
    ) -> None:
        """Assert that a snapshot gives the rows of its buckets at some stops, by place and offset, and filtered."""
        info = histories[0].info
        names = [*info.schema.names, "__offset"]
        rows = []
        for history in sorted(histories, key=lambda each: (each.partition or "", each.bucket)):
            key = (history.partition, history.bucket)
            if stops is not None and key not in stops:
                continue
            gone = set() if ended is None else set(ended.get(key, np.empty(0)).tolist())
            state = history.state(None if stops is None else stops[key])
            rows += [(*key, offset, row) for offset, row in sorted(state.items()) if offset not in gone]
        expected = [(*key, *(row.get(name) for name in info.schema.names), at) for *key, at, row in rows]
        # Files of a bucket may overlap; within each, rows ascend.
        found = self.read_rows(kit, info, snapshot, names, stops=stops, ended=ended)
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        if not filtered:
            return
        middle = sorted(at for *_, at, _ in rows)[len(rows) // 2] if rows else 0
        for where, holds in (
            (pc.field("id") < 10, lambda row, _: row["id"] < 10),
            (pc.field("name").is_null(), lambda row, _: row["name"] is None),
            (pc.field("__offset") >= middle, lambda _, at: at >= middle),
            (pc.field("x") > middle / 4, lambda row, _: row["x"] is not None and row["x"] > middle / 4),
        ):
            wanted = [(*key, row["id"]) for *key, at, row in rows if holds(row, at)]
            ids = self.read_rows(kit, info, snapshot, ["id"], stops=stops, ended=ended, where=where)
            assert sorted(ids, key=repr) == sorted(wanted, key=repr)

    # -- tests ---------------------------------------------------------------------------------------------------------

    def test_rows_of_a_snapshot(self, keyed: LakeKit) -> None:
        """Inserted, updated and deleted in one split and in several, in the order of their offsets."""
        history = KeyedHistory(self.keyed_table(keyed))
        one, two, three = history.keys[:3]
        for key in (one, two, three, two):
            history.upsert(key, name="first")
        first = keyed.commit(history.info, *self.write_history(keyed, history, [(0, history.end)]))
        cut = history.end
        history.delete(one)
        history.upsert(three, x=1.5)
        second = keyed.commit(history.info, *self.write_history(keyed, history, [(cut, history.end)]))
        found = self.read_rows(keyed, history.info, second, ["__offset", "x", "id"])
        assert found == [(None, 0, 4, None, two), (None, 0, 7, 1.5, three)]
        self.check_read(keyed, [history], second)
        self.check_read(keyed, [history], first, {(None, 0): cut})

    def test_every_stop_of_a_bucket(self, keyed: LakeKit, rng: random.Random) -> None:
        """Rows as they were before each record, in the newest snapshot and in older ones."""
        history = KeyedHistory(self.keyed_table(keyed, buckets=1))
        snapshots = []
        for _ in range(3):
            start = history.end
            history.go_on(rng, 10)
            cuts = history.cuts(rng, start, rng.choice([1, 2]))
            snapshots.append((keyed.commit(history.info, *self.write_history(keyed, history, cuts)), history.end))
        for snapshot, end in snapshots:
            for stop in range(end + 2):
                self.check_read(keyed, [history], snapshot, {(None, 0): min(stop, end)}, filtered=stop % 7 == 0)
        newest, end = snapshots[-1]
        self.check_read(keyed, [history], newest, {(None, 0): end + 1_000})
        assert self.read_rows(keyed, history.info, newest, ["id"], stops={}) == []

    def test_rows_that_the_log_has_ended_since(self, keyed: LakeKit, rng: random.Random) -> None:
        """Offsets of rows are left out, whether there is such a row or not."""
        info = self.keyed_table(keyed)
        histories = [KeyedHistory(info, bucket) for bucket in range(2)]
        for _ in range(2):
            starts = [history.end for history in histories]
            for history in histories:
                history.go_on(rng, 20)
            written = [
                each
                for history, start in zip(histories, starts, strict=True)
                for each in self.write_history(keyed, history, [(start, history.end)])
            ]
            snapshot = keyed.commit(info, *written)
        for share in (0.0, 0.3, 1.0):
            ended: dict[BucketKey, NDArray[np.int64]] = {
                (None, history.bucket): np.array(
                    sorted(at for at in range(history.end + 3) if rng.random() < share), dtype=np.int64
                )
                for history in histories
            }
            self.check_read(keyed, histories, snapshot, None, ended)
            stops: dict[BucketKey, int] = {(None, history.bucket): rng.randint(0, history.end) for history in histories}
            self.check_read(keyed, histories, snapshot, stops, ended)

    def test_random_histories_at_random_stops(self, keyed: LakeKit, rng: random.Random) -> None:
        """Over partitions, cut splits, and what the format does for maintenance, at every snapshot that is left."""
        self.run_read_history(keyed, rng, rounds=6)

    @pytest.mark.campaign
    @pytest.mark.parametrize("number", range(3))
    def test_long_random_histories_at_random_stops(self, keyed: LakeKit, rng: random.Random, number: int) -> None:
        """The same at length."""
        self.run_read_history(keyed, rng, rounds=20, name=f"t{number}")

    def run_read_history(self, kit: LakeKit, rng: random.Random, *, rounds: int, name: str = "t") -> None:
        """Run rounds of random changes and read after each."""
        columns = {**COLUMNS, "p": "string"}
        info = kit.table(
            columns, primary_key=["id", "p"], partitioned_by=["p"], buckets=2, name=name,
            properties=self.read_properties(rng),
        )  # fmt: skip
        histories = [KeyedHistory(info, bucket, part) for bucket in range(2) for part in ("a", "b")]
        clock = MockClock(int(time.time() * 1000))
        snapshots: list[tuple[int, dict[BucketKey, int]]] = []
        for _ in range(rounds):
            written = []
            for history in histories:
                start = history.end
                if rng.random() < 0.8:
                    history.go_on(rng, rng.randint(1, 15))
                    written += self.write_history(kit, history, history.cuts(rng, start, rng.choice([1, 1, 3])))
            rng.shuffle(written)
            ends = {(history.partition, history.bucket): history.end for history in histories}
            snapshots.append((kit.commit(info, *written), ends))
            if rng.random() < 0.5 and (compacted := compact(kit, info, clock)) is not None:
                snapshots.append((compacted, ends))
            if rng.random() < 0.3:
                # What a reader may be reading stays for an hour, what replay needs for days.
                clock.advance(2 * _HOUR_MS)
                expire(kit, info, clock)
            for snapshot, then in [snapshots[-1], rng.choice(snapshots)]:
                stops = {key: rng.choice([end, rng.randint(0, end)]) for key, end in then.items() if rng.random() < 0.9}
                try:
                    self.check_read(kit, histories, snapshot, stops)
                except LakeSnapshotNotFoundError:
                    assert snapshot != snapshots[-1][0]
            self.check_read(kit, histories, snapshots[-1][0], None)

    def read_properties(self, rng: random.Random) -> dict[str, str]:
        """Return table properties that a history is run with; a format with more than one form chooses one."""
        del rng
        return {}

    def test_stops_below_the_replay_start(self, keyed: LakeKit, rng: random.Random) -> None:
        """Of a bucket that was first tiered from a key-value snapshot nothing earlier is known; at its start all is."""
        info = self.keyed_table(keyed, buckets=1)
        history = KeyedHistory(info)
        start, snapshot = self.tier_snapshot_and_log(keyed, history, rng, after=20)
        for stop in (start, start + 7, history.end, history.end + 1):
            self.check_read(keyed, [history], snapshot, {(None, 0): stop})
        self.check_read(keyed, [history], snapshot, {(None, 0): 0})
        for stop in (1, start - 1):
            with pytest.raises(OffsetOutOfRangeError, match=str(start)):
                keyed.storage.create_lake_source(info).plan(snapshot, stops={(None, 0): stop})

    def test_columns_added_later_are_null_before(self, keyed: LakeKit) -> None:
        """In rows and in the deletes of rows that were written before and after."""
        info = self.keyed_table(keyed, buckets=1)
        history = KeyedHistory(info)
        for key in history.keys[:4]:
            history.upsert(key)
        keyed.commit(info, *self.write_history(keyed, history, [(0, 4)]))
        history.delete(history.keys[0])
        keyed.commit(info, *self.write_history(keyed, history, [(4, 5)]))
        history.info = wider = alter(info, extra="int")
        keyed.catalog.alter_table(wider)
        history.delete(history.keys[1])
        history.upsert(history.keys[2], extra=7)
        snapshot = keyed.commit(wider, *self.write_history(keyed, history, [(5, 8)]))
        history.upsert(history.keys[2], extra=8)
        snapshot = keyed.commit(wider, *self.write_history(keyed, history, [(8, 10)]))
        for stop in range(11):
            self.check_read(keyed, [history], snapshot, {(None, 0): stop})
        two, three = history.keys[2:4]
        found = self.read_rows(keyed, wider, snapshot, ["id", "extra"])
        assert found == [(None, 0, three, None), (None, 0, two, 8)]
        where = pc.field("extra").is_null()
        assert self.read_rows(keyed, wider, snapshot, ["id"], where=where) == [(None, 0, three)]

    def test_partitions_that_are_made_again(self, keyed: LakeKit) -> None:
        """Nothing of a dropped partition is among the rows of one of its name, at whatever stop."""
        from fluss_lab.model import PartitionInfo

        info = self.keyed_table(keyed, buckets=1, partitioned=True)
        old, other = KeyedHistory(info, 0, "a"), KeyedHistory(info, 0, "b")
        for history in (old, other):
            for key in (1, 2, 3, 4):
                history.upsert(key)
            history.delete(2)
            keyed.commit(info, *self.write_history(keyed, history, [(0, 4)]))
            keyed.commit(info, *self.write_history(keyed, history, [(4, 5)]))
        compact(keyed, info, MockClock(int(time.time() * 1000)))
        keyed.catalog.drop_partition(info, PartitionInfo(partition_id("a"), "a"))
        snapshot = keyed.newest(info)
        assert snapshot is not None
        self.check_read(keyed, [other], snapshot, {("b", 0): 5, ("a", 0): 5})

    def test_long_tables_come_in_pieces(self, keyed: LakeKit) -> None:
        """Memory is bounded by a piece of a file; offsets have gaps where rows were ended."""
        info = keyed.table({"id": "bigint not null", "text": "string"}, primary_key=["id"], buckets=1)
        count = 150_000
        rows = pa.record_batch(
            {"id": pa.array(range(count)), "text": pa.array([f"row {n}" for n in range(count)])},
            schema=info.schema.arrow_schema,
        )
        from fluss_lab.model import ChangeType
        from fluss_lab.records import LogRecords

        def changes(kind: ChangeType, taken: pa.RecordBatch, first: int, previous: NDArray[np.int64]) -> LogRecords:
            offsets = np.arange(first, first + len(taken), dtype=np.int64)
            kinds = pa.array(np.full(len(taken), int(kind), dtype=np.int8))
            return LogRecords(taken, pa.array(offsets), pa.array(offsets), kinds, pa.array(previous))

        keyed.commit(info, keyed.write(info, [changes(ChangeType.INSERT, rows, 0, np.full(count, -1, dtype=np.int64))]))
        gone = np.arange(0, count, 3, dtype=np.int64)
        taken = rows.take(pa.array(gone))
        snapshot = keyed.commit(info, keyed.write(info, [changes(ChangeType.DELETE, taken, count, gone)]))
        source = keyed.storage.create_lake_source(info)
        splits = source.plan(snapshot)
        batches = [batch for _, batch in source.read(splits, ["id"])]
        assert len(batches) > 1
        assert source.count(splits) == count - len(gone)
        expected = np.setdiff1d(np.arange(count), gone)
        assert np.array_equal(pa.Table.from_batches(batches)["id"].to_numpy(), expected)


def _system_fields() -> Sequence[pa.Field]:
    from fluss_lab.lake import SYSTEM_FIELDS

    return SYSTEM_FIELDS


def compact(kit: LakeKit, info: TableInfo, clock: MockClock) -> int | None:
    """Compact a table if its format can and there is something to do; return the snapshot."""
    if not isinstance(kit.storage, SupportsMaintenance):
        return None
    with kit.storage.create_lake_maintenance(info, clock) as maintenance:
        plan = maintenance.plan_compaction(force=True)
        if plan is None:
            return None
        results = [kit.storage.compact(info, json.loads(json.dumps(task))) for task in plan.tasks]
        with kit.committer(info) as committer:
            newest = committer.newest_lake_snapshot()
        assert newest is not None
        offsets = {key: text for key, text in newest.properties.items() if key == BUCKET_OFFSET_KEY}
        carried = {**summary(info), **offsets, COMMIT_ID_KEY: uuid.uuid4().hex}
        maintenance.commit_compaction(plan, results, carried)
    return kit.newest(info)


def expire(kit: LakeKit, info: TableInfo, clock: MockClock) -> None:
    """Expire a table's old snapshots if its format can."""
    if not isinstance(kit.storage, SupportsMaintenance):
        return
    with kit.storage.create_lake_maintenance(info, clock) as maintenance:
        maintenance.expire_snapshots(older_than_ms=clock.now_ms(), keep=1, protected=frozenset(), partition_ids={})

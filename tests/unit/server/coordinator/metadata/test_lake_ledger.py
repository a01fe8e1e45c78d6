"""Lake snapshots: merged, never back, remembered, against a list of dicts."""

import json
import random
from contextlib import suppress

import pytest

from fluss_lab.errors import ConflictError, InvalidRequestError, LakeSnapshotNotFoundError
from fluss_lab.model import PartitionInfo, TableInfo, TablePath, make_descriptor
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, TableCatalog
from fluss_lab.server.coordinator.tiering.lake_snapshots import SNAPSHOTS_KEPT, LakeLedger, PartitionDrop, TieredOffset

PATH = TablePath("d", "t")


@pytest.fixture
def store(tmp_path):
    opened = MetadataStore(tmp_path / "metadata.db")
    catalog = TableCatalog(opened)
    catalog.add_database("d", 0)
    catalog.add_table(TableInfo(PATH, 1, 1, make_descriptor({"a": "int"}, buckets=8), 0, 0), [0] * 8)
    yield opened
    opened.close()


def offsets(**ends: int) -> dict[tuple[int, int], TieredOffset]:
    return {(NO_PARTITION, int(name[1:])): TieredOffset(0, end, end * 10) for name, end in ends.items()}


def ends(snapshot) -> dict[int, int]:
    return {bucket: offset.end for (_, bucket), offset in snapshot.offsets.items()}


def test_offsets_are_merged_over_the_previous_ones(store):
    ledger = LakeLedger(store)
    assert ledger.commit(1, 500, offsets(b0=10, b1=5), 0)
    assert ledger.commit(1, 400, offsets(b1=7, b2=1), 1)  # ids are not ordered
    assert ends(ledger.snapshot(1)) == {0: 10, 1: 7, 2: 1}
    assert ledger.snapshot(1).snapshot_id == 400
    assert ends(ledger.snapshot(1, 500)) == {0: 10, 1: 5}


def test_a_snapshot_without_offsets_keeps_those_before(store):
    ledger = LakeLedger(store)
    ledger.commit(1, 1, offsets(b0=10), 0)
    ledger.commit(1, 2, {}, 1)
    assert ledger.snapshot(1).snapshot_id == 2
    assert ends(ledger.snapshot(1)) == {0: 10}


def test_a_bucket_never_goes_back_and_a_refused_commit_changes_nothing(store):
    ledger = LakeLedger(store)
    ledger.commit(1, 1, offsets(b0=10, b1=10), 0)
    with pytest.raises(ConflictError, match="bucket 1: the lake holds it up to 10 already, found 9"):
        ledger.commit(1, 2, offsets(b0=20, b1=9), 1)
    assert ends(ledger.snapshot(1)) == {0: 10, 1: 10}
    assert ledger.snapshot(1, 2) is None


def test_what_was_taken_back_is_not_remembered(store):
    ledger = LakeLedger(store)
    ledger.commit(1, 1, offsets(b0=10), 0)
    with suppress(KeyError), store.write():
        ledger.commit(1, 2, offsets(b0=20, b1=3), 1)
        assert ends(ledger.snapshot(1)) == {0: 20, 1: 3}
        raise KeyError
    assert ends(ledger.snapshot(1)) == {0: 10}
    ledger.commit(1, 3, offsets(b0=15), 1)
    assert ends(ledger.snapshot(1)) == {0: 15}
    assert ends(LakeLedger(store).snapshot(1)) == {0: 15}


def drop(ledger: LakeLedger, partition_id: int, name: str) -> None:
    gone = PartitionDrop(1, PartitionInfo(partition_id, name))
    ledger.note_partition_drop(gone)
    ledger.end_partition_drop(gone)


def test_a_dropped_partition_is_held_by_the_snapshots_from_before_alone(store):
    ledger = LakeLedger(store)
    ledger.commit(1, 1, {(7, 0): TieredOffset(0, 10), (8, 0): TieredOffset(0, 5)}, 0)
    ledger.commit(1, 2, {(7, 0): TieredOffset(0, 12), (9, 0): TieredOffset(0, 1)}, 0)
    before = ledger.snapshot(1).sequence
    drop(ledger, 7, "a")
    drop(ledger, 9, "c")
    assert (ledger.snapshot(1).snapshot_id, set(ledger.snapshot(1).offsets)) == (2, {(8, 0)})
    assert ledger.snapshot(1).sequence == before + 1  # for both: what the servers were told is older
    assert ledger.partitions_gone(1) == {7: "a", 9: "c"}
    assert ledger.partition_offsets(1, 7) == {}
    ledger.commit(1, 3, {(8, 0): TieredOffset(0, 6)}, 0)
    drop(ledger, 7, "a")
    for each in (ledger, LakeLedger(store)):
        ends = [
            {place: offset.end for place, offset in each.snapshot(1, number).offsets.items()} for number in (1, 2, 3)
        ]
        assert ends == [{(7, 0): 10, (8, 0): 5}, {(7, 0): 12, (8, 0): 5, (9, 0): 1}, {(8, 0): 6}]
        assert set(each.snapshot(1).offsets) == {(8, 0)}


def test_what_dropped_partitions_leave_behind_goes_with_the_last_snapshot_that_held_them(store):
    ledger = LakeLedger(store)
    for number in range(SNAPSHOTS_KEPT):
        ledger.commit(1, 1000 + number, {(number, 0): TieredOffset(0, 1)}, 0)
        known = filter(None, (ledger.snapshot(1, 1000 + each) for each in range(number)))
        assert all(each.offsets for each in known)
        drop(ledger, number, str(number))
        held = [each for each in range(number + 1) if ledger.snapshot(1, 1000 + each) is not None]
        assert held == list(range(held[0], number + 1))
        assert len(held) >= min(number + 1, SNAPSHOTS_KEPT // 2)
        assert all(set(ledger.snapshot(1, 1000 + each).offsets) == {(each, 0)} for each in (held[0], held[-1]))
        assert ledger.snapshot(1).offsets == {}
    with store.read() as db:
        assert db.execute("SELECT count(*) FROM lake_offsets").fetchone()[0] <= 2 * SNAPSHOTS_KEPT


def test_committing_the_same_again_changes_nothing_and_other_offsets_are_refused(store):
    ledger = LakeLedger(store)
    assert ledger.commit(1, 1, offsets(b0=10), 0)
    assert not ledger.commit(1, 1, offsets(b0=10), 1)
    with pytest.raises(ConflictError, match="committed before"):
        ledger.commit(1, 1, offsets(b0=11), 1)
    ledger.commit(1, 2, offsets(b0=12), 1)
    with pytest.raises(ConflictError, match="committed before"):
        ledger.commit(1, 1, offsets(b0=10), 2)


def test_a_start_after_the_end_is_refused(store):
    with pytest.raises(InvalidRequestError, match="start <= end"):
        LakeLedger(store).commit(1, 1, {(NO_PARTITION, 0): TieredOffset(5, 4)}, 0)


def test_what_is_not_said_stays(store):
    ledger = LakeLedger(store)
    ledger.commit(1, 1, {(NO_PARTITION, 0): TieredOffset(3, 10, 99)}, 0)
    ledger.commit(1, 2, {(NO_PARTITION, 0): TieredOffset(None, 12, -1)}, 1)
    assert ledger.snapshot(1).offsets[NO_PARTITION, 0] == TieredOffset(3, 12, 99)


def test_never_tiered_and_unknown_snapshots_are_distinguished(store):
    ledger = LakeLedger(store)
    with pytest.raises(LakeSnapshotNotFoundError, match="never tiered"):
        ledger.require(1, PATH, None)
    ledger.commit(1, 1, offsets(b0=1), 0)
    with pytest.raises(LakeSnapshotNotFoundError, match="no lake snapshot 7"):
        ledger.require(1, PATH, 7)


def test_a_long_random_history_equals_the_model_and_stays_bounded(store, seed):
    dice = random.Random(seed)
    ledger = LakeLedger(store)
    state: dict[int, int] = {}
    history: list[tuple[int, dict[int, int]]] = []
    for number in range(SNAPSHOTS_KEPT * 2 + 7):
        moved = {
            bucket: state.get(bucket, 0) + dice.randrange(5) for bucket in dice.sample(range(8), dice.randrange(4))
        }
        snapshot_id = dice.getrandbits(50)
        ledger.commit(1, snapshot_id, {(NO_PARTITION, b): TieredOffset(0, end) for b, end in moved.items()}, number)
        state |= moved
        history.append((snapshot_id, dict(state)))
    for snapshot_id, expected in history[-SNAPSHOTS_KEPT:]:
        assert ends(ledger.snapshot(1, snapshot_id)) == expected, json.dumps(expected)
    assert all(ledger.snapshot(1, snapshot_id) is None for snapshot_id, _ in history[:-SNAPSHOTS_KEPT])
    with store.read() as db:
        rows = db.execute("SELECT count(*) FROM lake_offsets").fetchone()[0]
    changes = sum(
        sum(before.get(bucket) != end for bucket, end in after.items())
        for (_, before), (_, after) in zip(history[-SNAPSHOTS_KEPT:], history[-SNAPSHOTS_KEPT + 1 :], strict=False)
    )
    assert rows <= changes + 8

"""What the lake can replay of each bucket: where it begins, and offsets that a repair sets back; told to tablet servers."""

import random

import pytest

from fluss_lab.errors import ERROR_CODES, ConflictError, InvalidRequestError
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, TableCatalog
from fluss_lab.server.coordinator.tiering.lake_snapshots import SNAPSHOTS_KEPT, LakeLedger, TieredOffset

LAKE = {"table.datalake.enabled": True}
TABLE_ID = 1


@pytest.fixture
def store(tmp_path):
    opened = MetadataStore(tmp_path / "metadata.db")
    catalog = TableCatalog(opened)
    catalog.add_database("d", 0)
    info = TableInfo(TablePath("d", "t"), TABLE_ID, 1, make_descriptor({"a": "int"}, buckets=8), 0, 0)
    catalog.add_table(info, [0] * 8)
    yield opened
    opened.close()


def at(bucket: int) -> tuple[int, int]:
    return NO_PARTITION, bucket


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_a_start_is_raised_without_a_word_of_the_end(store):
    ledger = LakeLedger(store)
    ledger.commit(TABLE_ID, 1, {at(0): TieredOffset(10, 50, 99), at(1): TieredOffset(None, 7)}, 0)
    assert ledger.commit(TABLE_ID, 2, {}, 1, starts={at(0): 30})
    assert ledger.snapshot(TABLE_ID).offsets == {at(0): TieredOffset(30, 50, 99), at(1): TieredOffset(None, 7)}
    assert ledger.snapshot(TABLE_ID, 1).offsets[at(0)] == TieredOffset(10, 50, 99)


def test_a_start_never_goes_back(store):
    ledger = LakeLedger(store)
    ledger.commit(TABLE_ID, 1, {at(0): TieredOffset(30, 50)}, 0)
    ledger.commit(TABLE_ID, 2, {}, 1, starts={at(0): 10})
    ledger.commit(TABLE_ID, 3, {at(0): TieredOffset(0, 60)}, 2)
    assert ledger.snapshot(TABLE_ID).offsets[at(0)] == TieredOffset(30, 60)


def test_a_start_that_cannot_be_changes_nothing(store):
    ledger = LakeLedger(store)
    ledger.commit(TABLE_ID, 1, {at(0): TieredOffset(0, 5)}, 0)
    with pytest.raises(InvalidRequestError, match=r"start <= end, found \[6, 5\)"):
        ledger.commit(TABLE_ID, 2, {}, 1, starts={at(0): 6})
    with pytest.raises(InvalidRequestError, match="bucket 3: a start without an end"):
        ledger.commit(TABLE_ID, 2, {}, 1, starts={at(3): 0})
    assert ledger.snapshot(TABLE_ID).snapshot_id == 1


def test_a_repair_says_all_that_there_is(store):
    ledger = LakeLedger(store)
    ledger.commit(TABLE_ID, 1, {at(0): TieredOffset(0, 50, 5), at(1): TieredOffset(0, 9, 9)}, 0)
    assert ledger.repair(TABLE_ID, 2, {at(0): TieredOffset(0, 20, 2)}, 1)
    # What it remembers of the newest version, and what whoever starts after it reads.
    for each in (ledger, LakeLedger(store)):
        assert each.snapshot(TABLE_ID).offsets == {at(0): TieredOffset(0, 20, 2)}
    assert not ledger.repair(TABLE_ID, 2, {at(0): TieredOffset(0, 20, 2)}, 2)
    assert ledger.snapshot(TABLE_ID, 1).offsets[at(1)].end == 9
    # From there on nothing goes back again.
    ledger.commit(TABLE_ID, 3, {at(0): TieredOffset(None, 25), at(1): TieredOffset(3, 4)}, 3)
    assert ledger.snapshot(TABLE_ID).offsets == {at(0): TieredOffset(0, 25, 2), at(1): TieredOffset(3, 4)}
    with pytest.raises(ConflictError, match="up to 25 already, found 20"):
        ledger.commit(TABLE_ID, 4, {at(0): TieredOffset(None, 20)}, 4)


def test_a_repair_under_an_id_that_meant_something_else_is_refused(store):
    ledger = LakeLedger(store)
    ledger.commit(TABLE_ID, 1, {at(0): TieredOffset(0, 50)}, 0)
    with pytest.raises(ConflictError, match="committed before"):
        ledger.repair(TABLE_ID, 1, {at(0): TieredOffset(0, 20)}, 1)
    with pytest.raises(InvalidRequestError, match="start <= end"):
        ledger.repair(TABLE_ID, 2, {at(0): TieredOffset(21, 20)}, 1)


def test_a_long_random_history_with_starts_and_repairs_equals_the_model(store, seed):
    dice, ledger = random.Random(seed), LakeLedger(store)
    state: dict[tuple[int, int], TieredOffset] = {}
    history = []
    for snapshot_id in range(1, SNAPSHOTS_KEPT * 2 + 9):
        change = dice.random()
        buckets = [at(bucket) for bucket in dice.sample(range(8), dice.randrange(5))]
        if change < 0.1:
            ends = {key: dice.randrange(200) for key in buckets}
            state = {key: TieredOffset(dice.randrange(end + 1), end) for key, end in ends.items()}
            ledger.repair(TABLE_ID, snapshot_id, state, snapshot_id)
        elif change < 0.4:
            starts = {key: dice.randrange(state[key].end + 1) for key in buckets if key in state}
            ledger.commit(TABLE_ID, snapshot_id, {}, snapshot_id, starts=starts)
            raised = {key: max(state[key].start or 0, start) for key, start in starts.items()}
            state = state | {key: TieredOffset(start, state[key].end) for key, start in raised.items()}
        else:
            old = {key: state.get(key, TieredOffset(None, 0)) for key in buckets}
            moved = {key: TieredOffset(each.start, each.end + dice.randrange(9)) for key, each in old.items()}
            ledger.commit(TABLE_ID, snapshot_id, moved, snapshot_id)
            state = state | moved
        history.append((snapshot_id, dict(state)))
    for snapshot_id, expected in history[-SNAPSHOTS_KEPT:]:
        assert ledger.snapshot(TABLE_ID, snapshot_id).offsets == expected, snapshot_id
    with store.read() as db:
        assert db.execute("SELECT count(*) FROM lake_offsets").fetchone()[0] <= 8 * (SNAPSHOTS_KEPT + 1)


# -- over the wire -----------------------------------------------------------------------------------------------------


def commit(rig, table_id: int, snapshot_id: int, epoch: int, *entries, **fields) -> str | None:
    """Commit a lake snapshot; return the error's name, or None."""
    table = pb.PbLakeTableSnapshotInfo(
        table_id=table_id, snapshot_id=snapshot_id, tiering_epoch=epoch, coordinator_epoch=1, **fields
    )
    table.buckets_req.extend(pb.PbLakeTableOffsetForBucket(**entry) for entry in entries)
    answer = rig.coordinator.commit_lake_table_snapshot(pb.CommitLakeTableSnapshotRequest(tables_req=[table]))
    code = answer.table_resp[0].error_code
    return ERROR_CODES[code].__name__ if code else None


def in_tablet(rig, table_id: int) -> dict[int, tuple[int, int] | None]:
    """What the tablet server believes the lake to hold of each bucket."""
    buckets = rig.cluster.node.tablets.tablet._store.all(table_id)
    return {each.id.bucket: None if each.lake is None else (each.lake.start, each.lake.end) for each in buckets}


def starts(rig) -> dict[int, tuple[int, int]]:
    return {entry.bucket_id: (entry.log_start_offset, entry.log_offset) for entry in rig.snapshot().bucket_snapshots}


def test_starts_are_reported_kept_and_read_back(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    epoch = lake_rig.ask(table_id).tiering_table.tiering_epoch
    both = ({"bucket_id": 0, "log_start_offset": 5, "log_end_offset": 9}, {"bucket_id": 1, "log_end_offset": 4})
    assert commit(lake_rig, table_id, 1, epoch, *both) is None
    assert in_tablet(lake_rig, table_id) == {0: (5, 9), 1: (0, 4)}
    assert commit(lake_rig, table_id, 2, epoch, {"bucket_id": 0, "log_start_offset": 7}) is None
    assert in_tablet(lake_rig, table_id) == {0: (7, 9), 1: (0, 4)}
    assert starts(lake_rig) == {0: (7, 9), 1: (0, 4)}
    assert not lake_rig.snapshot().bucket_snapshots[1].HasField("log_start_offset")
    lake_rig.cluster.restart()
    assert starts(lake_rig) == {0: (7, 9), 1: (0, 4)}
    assert in_tablet(lake_rig, table_id) == {0: (7, 9), 1: (0, 4)}


def test_a_repair_takes_offsets_back_and_tablets_forget(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    epoch = lake_rig.ask(table_id).tiering_table.tiering_epoch
    ends = ({"bucket_id": 0, "log_end_offset": 9}, {"bucket_id": 1, "log_end_offset": 4})
    assert commit(lake_rig, table_id, 1, epoch, *ends) is None
    assert commit(lake_rig, table_id, 2, epoch, {"bucket_id": 0, "log_end_offset": 3}) == "ConflictError"
    assert commit(lake_rig, table_id, 2, epoch, {"bucket_id": 0, "log_end_offset": 3}, repair=True) is None
    assert in_tablet(lake_rig, table_id) == {0: (0, 3), 1: None}
    assert starts(lake_rig) == {0: (0, 3)}
    lake_rig.cluster.restart()
    assert in_tablet(lake_rig, table_id) == {0: (0, 3), 1: None}


def test_a_repair_is_for_the_holder_only_and_says_ends(lake_rig):
    table_id = lake_rig.create(buckets=2, properties=LAKE)
    epoch = lake_rig.ask(table_id).tiering_table.tiering_epoch
    assert commit(lake_rig, table_id, 1, epoch - 1, repair=True) == "FencedTieringEpochError"
    start = {"bucket_id": 0, "log_start_offset": 3}
    assert commit(lake_rig, table_id, 1, epoch, start, repair=True) == "InvalidRequestError"
    assert commit(lake_rig, table_id, 1, epoch, start) == "InvalidRequestError"  # never tiered
    twice = ({"bucket_id": 0, "log_end_offset": 3}, start)
    assert commit(lake_rig, table_id, 1, epoch, *twice) == "InvalidRequestError"

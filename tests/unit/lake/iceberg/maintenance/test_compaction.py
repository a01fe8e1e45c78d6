"""Compaction: rows stay, replay stays, deletes placed before and after are right, and costs are bounded."""

import json
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import CommitConflictError, CorruptDataError, StorageError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.maintenance.maintenance_state import MAINTENANCE_PROPERTY, MaintenanceState
from fluss_lab.model import TableInfo
from tests.unit.lake.changelogs import commit_files, same_rows, state_of
from tests.unit.lake.conftest import records
from tests.unit.lake.foreign import bare_position_deletes, equality_deletes
from tests.unit.lake.rounds import tags
from tests.unit.lake.upkeep import COLUMNS, DAY_MS, HOUR_MS, Upkeep, check, data_files, keyed_lake

pytestmark = pytest.mark.slow


def rows(info: TableInfo, count, first=0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": first + i, "name": f"v{first + i}"} for i in range(count)], schema=info.schema.arrow_schema
    )


def history(keyed, rng, rounds, changes=12, keys=40):
    for _ in range(rounds):
        keyed.change(rng, changes, keys)
        keyed.round()


def test_rows_of_one_offset_are_not_merged_into_a_file_that_nobody_reads(lake):
    """Seen of rows that somebody else copied: the merged file did not ascend, and every scan of the table failed."""
    info = lake.table({"id": "bigint"}, buckets=1)
    for first in (0, 5, 0):
        lake.append(info, rows(info, 5, first), first)
    upkeep = Upkeep(lake, info)
    plan = upkeep.plan()
    with pytest.raises(CorruptDataError, match="hold the offset 0 more than once"):
        upkeep.run(plan)
    assert lake.rows(info, plan.snapshot_id).num_rows == 15
    assert upkeep.orphans() == []


def test_a_log_tables_small_files_become_one(lake):
    info = lake.table(COLUMNS, buckets=1)
    for turn in range(6):
        lake.append(info, rows(info, 3, 3 * turn), 3 * turn)
    upkeep = Upkeep(lake, info)
    done = upkeep.compact(force=False)
    assert (done.files_before, done.files_after, done.tag) == (6, 1, None)
    (file,) = upkeep.maintenance.files()
    assert (file.rows, file.min_offset, file.max_offset) == (18, 0, 17)
    assert upkeep.rows(names=["id", "__offset"]).to_pydict() == {"id": list(range(18)), "__offset": list(range(18))}
    snapshot = lake.load(info).current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert json.loads(snapshot.summary["fluss-bucket-offset"])[0]["offset"] == 18
    assert upkeep.compact(force=False) is None


def test_the_log_can_be_fetched_across_a_compaction(lake):
    from fluss_lab.lake import FetchContext

    info = lake.table(COLUMNS, buckets=1)
    for turn in range(5):
        before = lake.append(info, rows(info, 4, 4 * turn), 4 * turn)
    upkeep = Upkeep(lake, info)
    after = upkeep.compact().snapshot_id
    source = lake.storage.create_fluss_log_source(info)
    for snapshot_id in (before, after):
        fetched = [
            run.offsets.to_pylist() for run in source.fetch_log_records(FetchContext(3, 17, None, 0, snapshot_id))
        ]
        assert [offset for run in fetched for offset in run] == list(range(3, 17))


def test_deleted_rows_are_dropped_and_a_tag_keeps_them_for_replay(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(1), 4)
    before = lake.load(keyed.info).metadata.current_snapshot_id
    upkeep = Upkeep(lake, keyed.info)
    done = upkeep.compact()
    assert [file.content for file in upkeep.maintenance.files()] == ["data"]
    assert tags(lake, keyed.info)[done.tag].snapshot_id == before
    assert tags(lake, keyed.info)[done.tag].max_ref_age_ms == 7 * DAY_MS
    check(keyed, upkeep)
    assert upkeep.compact() is None


def test_a_round_after_a_compaction_places_its_deletes_in_the_new_files(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(2)
    for force in (True, False, True):
        history(keyed, rng, 6)
        upkeep = Upkeep(lake, keyed.info)
        upkeep.compact(force=force)
        keyed.change(rng, 30)
        keyed.round(splits=2)
        check(keyed, upkeep)


def test_rows_and_replay_stay_through_random_histories(lake, seed):
    rng = random.Random(seed)
    keyed = keyed_lake(lake, 2, properties={"table.datalake.changelog-retention": "50h"})
    upkeep = Upkeep(lake, keyed.info)
    for turn in range(16):
        keyed.change(rng, rng.randrange(1, 30), rng.choice([10, 60]))
        keyed.round(splits=rng.randrange(1, 3))
        if rng.random() < 0.5:
            upkeep.clock.advance(rng.randrange(HOUR_MS))
        if rng.random() < 0.5:
            upkeep.compact(force=rng.random() < 0.2)
        if turn % 4 == 3:
            check(keyed, upkeep)


def test_without_leave_to_drop_every_row_and_event_is_kept(lake, seed):
    """Small files are put together all the same: rows that are deleted too, and the deletes placed anew."""
    rng = random.Random(seed)
    keyed = keyed_lake(lake)
    upkeep = Upkeep(lake, keyed.info)
    history(keyed, rng, 5)
    assert upkeep.compact(force=False).tag is not None  # the first may drop, and none for 100 minutes after it
    tagged = tags(lake, keyed.info)
    for _ in range(2):
        history(keyed, rng, 6, changes=20)
        before = len(data_files(upkeep))
        done = upkeep.compact(force=False)
        assert done is not None
        assert done.tag is None
        assert len(data_files(upkeep)) < before
        check(keyed, upkeep)
        assert tags(lake, keyed.info) == tagged
        keyed.change(rng, 10)
        keyed.round()
        check(keyed, upkeep)


def test_rows_are_dropped_at_most_once_in_a_hundredth_of_the_retention(lake):
    keyed = keyed_lake(lake, properties={"table.datalake.changelog-retention": "100h"})
    upkeep = Upkeep(lake, keyed.info)
    rng = random.Random(3)
    history(keyed, rng, 3, keys=5)
    assert upkeep.compact(force=False).tag is not None
    history(keyed, rng, 3, keys=5)
    upkeep.clock.advance(HOUR_MS - 1)
    assert upkeep.compact(force=False) is None
    upkeep.clock.advance(1)
    assert upkeep.compact(force=False).tag is not None
    history(keyed, rng, 1, keys=5)
    assert upkeep.compact(force=True).tag is not None  # by hand: whenever
    assert len(tags(lake, keyed.info)) == 3


def test_an_alteration_of_the_table_leaves_what_maintenance_remembers(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(3), 3, keys=5)
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    before = lake.load(keyed.info).properties[MAINTENANCE_PROPERTY]
    lake.catalog.alter_table(lake.info(COLUMNS, primary_key=["id"], buckets=1, properties={"iceberg.custom.x": "y"}))
    after = lake.load(keyed.info).properties
    assert (after["custom.x"], after[MAINTENANCE_PROPERTY]) == ("y", before)


def test_more_than_ten_delete_files_become_few_and_nothing_is_lost(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for number in range(2000):
        log.upsert({"id": number, "name": "x" * 50})
    keyed.round()
    for turn in range(11):
        log.upsert({"id": turn, "name": "new"})
        keyed.round()
        upkeep = Upkeep(lake, keyed.info)
        if turn == 9:
            # Fewer data files alone do not need the delete files to be touched: the deletes are of the first file.
            assert len([f for f in upkeep.maintenance.files() if f.content == "position deletes"]) == 10
    done = upkeep.compact(force=False)
    assert done.tag is None
    deletes = [f for f in upkeep.maintenance.files() if f.content == "position deletes"]
    assert (len(deletes), deletes[0].rows) == (1, 11)
    assert (deletes[0].min_offset, deletes[0].max_offset) == (2000, 2020)
    check(keyed, upkeep)


@pytest.mark.parametrize("change", ["of any row", "of a few rows", "deletes alone"])
def test_nobody_ever_reads_many_delete_files(lake, change):
    """Of any snapshot, those between a round and its compaction too, with the options that a table has by itself."""
    keyed = keyed_lake(lake)
    log, rng, found = keyed.logs[0], random.Random(4), []
    for number in range(3000):
        log.upsert({"id": number, "name": f"{number}"})
    keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    for turn in range(60):
        for number in range(4):
            if change == "deletes alone":
                log.delete((4 * turn + number,))
            else:
                log.upsert({"id": rng.randrange(3000 if change == "of any row" else 30), "name": f"new {turn}"})
        keyed.round()
        found.append(len(state_of(lake, keyed.info)[(None, 0)].deletes))
        upkeep.compact(force=False)
    assert max(found) <= (11 if change == "deletes alone" else 7)
    check(keyed, upkeep)


def test_a_delete_file_that_only_deletes_from_files_that_are_gone_goes(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for turn in range(3):
        log.upsert({"id": 1, "name": f"a{turn}"})
        keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    bucket = plan.tasks[0]["bucket"]
    bucket.update(drops=True, runs=[], merge=[])
    upkeep.commit(plan, upkeep.run(plan))
    assert [file.content for file in upkeep.maintenance.files()] == ["data"]
    check(keyed, upkeep)


def test_only_dirty_files_are_rewritten(lake):
    keyed = keyed_lake(lake, properties={"iceberg.write.target-file-size-bytes": "3000"})
    log = keyed.logs[0]
    for start in (0, 1000):
        for number in range(start, start + 1000):
            log.upsert({"id": number, "name": f"{number * 7919 % 10007}"})
        keyed.round()
    untouched = {file.path for file in data_files(Upkeep(lake, keyed.info)) if file.max_offset < 1000}
    for number in range(1000, 1700):
        log.delete((number,))
    keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact(force=False)
    after = data_files(upkeep)
    assert untouched <= {file.path for file in after}
    assert sum(file.rows for file in after) == 1300
    check(keyed, upkeep)


def test_a_commit_in_between_makes_a_compaction_fail_and_its_files_go(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(4)
    history(keyed, rng, 3)
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    results = upkeep.run(plan)
    history(keyed, rng, 1)
    kept = keyed.paths()
    with pytest.raises(CommitConflictError):
        upkeep.commit(plan, results)
    upkeep.maintenance.abort_compaction(results)
    left = keyed.paths()
    assert left < kept
    assert {file.path for file in upkeep.maintenance.files()} <= left
    check(keyed, upkeep)
    upkeep.compact()
    check(keyed, upkeep)


def test_giving_up_never_removes_what_a_snapshot_refers_to(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(4), 3)
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    results = upkeep.run(plan)
    upkeep.commit(plan, results)
    upkeep.maintenance.abort_compaction(results)
    check(keyed, upkeep)


def test_a_round_planned_before_a_compaction_is_refused(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(5)
    history(keyed, rng, 3)
    keyed.change(rng, 10)
    stale = keyed.plan()
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    with pytest.raises(CommitConflictError):
        keyed.commit(stale)
    keyed.round()
    check(keyed, upkeep)


def test_foreign_position_deletes_are_applied_and_kept_as_long_as_they_are_needed(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(6), 6, keys=200)
    data = state_of(lake, keyed.info)[(None, 0)].data
    upkeep = Upkeep(lake, keyed.info)
    live = upkeep.rows()
    # Somebody rewrote the position deletes: without rows.
    table = lake.load(keyed.info)
    gone = live.column("__offset")[0].as_py()
    first = next(file for file in data if file.min_offset <= gone <= file.max_offset)
    bare = bare_position_deletes(table, keyed.info, [(first.file.file_path, gone - first.min_offset)])
    commit_files(lake, keyed.info, [], [bare])
    expected = live.filter(pc.field("__offset") != gone)
    assert same_rows(upkeep.rows(), expected)
    plan = upkeep.plan()
    plan.tasks[0]["bucket"].update(drops=False)
    upkeep.commit(plan, upkeep.run(plan))
    assert first.file.file_path in {file.path for file in data_files(upkeep)}  # not rewritten while keeping
    assert same_rows(upkeep.rows(), expected)
    upkeep.compact()
    assert [file.content for file in upkeep.maintenance.files()] == ["data"]
    assert same_rows(upkeep.rows(), expected)


def test_an_equality_delete_is_applied_when_it_may_be(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(7), 6, keys=100)
    upkeep = Upkeep(lake, keyed.info)
    live = upkeep.rows()
    upkeep.compact(force=False)
    key = live.column("id")[0].as_py()
    commit_files(lake, keyed.info, [], [equality_deletes(lake.load(keyed.info), keyed.info, {"id": [key, 10**6]})])
    expected = live.filter(pc.field("id") != key)
    assert same_rows(upkeep.rows(), expected)
    assert upkeep.compact(force=False) is None  # nothing else is due, and rows were dropped a moment ago
    upkeep.clock.advance(7 * DAY_MS // 1000)
    assert upkeep.compact(force=False).tag is not None
    assert {file.content for file in upkeep.maintenance.files()} <= {"data", "position deletes"}
    assert same_rows(upkeep.rows(), expected)


def test_rows_that_a_key_deletes_do_not_come_back(lake):
    """Without leave to apply it, nothing that an equality delete may apply to is written again."""
    keyed = keyed_lake(lake)
    history(keyed, random.Random(7), 2, keys=5)
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    history(keyed, random.Random(8), 6, keys=100)
    live = upkeep.rows()
    key = live.column("id")[0].as_py()
    commit_files(lake, keyed.info, [], [equality_deletes(lake.load(keyed.info), keyed.info, {"id": [key]})])
    before = {file.path for file in data_files(upkeep)}
    upkeep.compact(force=False)
    assert {file.path for file in data_files(upkeep)} == before
    assert same_rows(upkeep.rows(), live.filter(pc.field("id") != key))


def test_an_equality_delete_that_comes_later_still_applies_to_rewritten_rows(lake):
    """Rewritten rows have the planned snapshot's sequence number: as if they had been written then."""
    keyed = keyed_lake(lake)
    history(keyed, random.Random(8), 6, keys=100)
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    results = upkeep.run(plan)
    upkeep.commit(plan, results)
    live = upkeep.rows()
    data = state_of(lake, keyed.info)[(None, 0)].data
    planned = lake.load(keyed.info).metadata.snapshot_by_id(plan.snapshot_id)
    assert {file.data_sequence_number for file in data} == {planned.sequence_number}
    key = live.column("id")[0].as_py()
    commit_files(lake, keyed.info, [], [equality_deletes(lake.load(keyed.info), keyed.info, {"id": [key]})])
    assert same_rows(upkeep.rows(), live.filter(pc.field("id") != key))


def test_columns_that_somebody_added_in_the_lake_keep_their_values(lake):
    from pyiceberg.types import LongType

    info = lake.table(COLUMNS, buckets=1)
    lake.append(info, rows(info, 3))
    table = lake.load(info)
    with table.update_schema() as update:
        update.add_column("score", LongType())
    table = lake.load(info)
    given = table.scan().to_arrow().set_column(5, "score", pa.array([7, 8, 9], pa.int64()))
    table.overwrite(given)
    lake.append(info, rows(info, 3, 3), 3)
    upkeep = Upkeep(lake, info)
    upkeep.compact()
    found = lake.load(info).scan().to_arrow().sort_by("__offset")
    assert found["score"].to_pylist() == [7, 8, 9, None, None, None]
    assert len(data_files(upkeep)) == 1


def test_files_that_overlap_become_files_that_ascend(lake):
    info = lake.table(COLUMNS, buckets=1)
    evens = records(rows(info, 5))
    for offsets in (range(0, 10, 2), range(1, 11, 2)):
        run = type(evens)(evens.rows, pa.array(list(offsets), pa.int64()), evens.timestamps_ms)
        lake.commit(info, lake.write(info, run))
    upkeep = Upkeep(lake, info)
    upkeep.compact()
    (file,) = data_files(upkeep)
    with lake.load(info).io.new_input(file.path).open() as stream:
        assert pa.parquet.read_table(stream)["__offset"].to_pylist() == list(range(10))


def test_a_task_that_fails_leaves_no_file(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    for number in range(30):
        log.upsert({"id": number, "name": "a"})
    keyed.round()
    for number in range(4):
        log.upsert({"id": number, "name": "b"})
        keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    plan.tasks[0]["bucket"].update(drops=False)
    before = upkeep.files()
    for name in (
        "maintenance.compact.after_group",
        "maintenance.compact.after_file",
        "maintenance.compact.after_deletes",
    ):
        failpoints.arm(name, "error")
        with pytest.raises(FailpointError):
            upkeep.run(plan)
        failpoints.disarm(name)
        assert upkeep.files() == before


def test_a_full_disk_leaves_no_file(lake, monkeypatch):
    from fluss_lab.lake.iceberg.files import durable_io

    keyed = keyed_lake(lake)
    history(keyed, random.Random(9), 4)
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    before = upkeep.files()

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_io, "fsync_path", full)
    with pytest.raises(StorageError):
        upkeep.run(plan)
    assert upkeep.files() == before


def test_a_delete_whose_row_nobody_has_stops_the_compaction(lake):
    keyed = keyed_lake(lake)
    history(keyed, random.Random(9), 6)
    upkeep = Upkeep(lake, keyed.info)
    plan = upkeep.plan()
    bucket = plan.tasks[0]["bucket"]
    # As if the metadata did not tell of the rows that are deleted: the file's range is elsewhere.
    bucket.update(drops=False, runs=[], merge=list(range(len(bucket["deletes"]))))
    for file in bucket["data"]:
        file[3:5] = [10**9, 10**9]
    with pytest.raises(CorruptDataError, match="no live data file has it"):
        upkeep.run(plan)


def test_what_is_remembered_survives_its_property():
    state = MaintenanceState().with_dropped(5, 17, 3, [("b", 2), (None, 1), (None, 2), (None, 4), ("b", 0)])
    again = MaintenanceState.of(state.to_properties())
    assert again.retired[17].buckets == {(None, 1), (None, 2), (None, 4), ("b", 0), ("b", 2)}
    assert again.retired[17].sequence_number == 3
    assert again.without([17]).retired == {}
    assert again.dropped_ms == 5
    assert MaintenanceState.of({MAINTENANCE_PROPERTY: "[nonsense"}) == MaintenanceState()
    assert MaintenanceState.of({MAINTENANCE_PROPERTY: '{"retired": {"x": 1}}'}) == MaintenanceState()


def test_a_table_that_deletes_by_equality_is_compacted_too(lake, seed):
    rng = random.Random(seed)
    given = {"table.datalake.delete-mode": "equality", "table.datalake.changelog-retention": "10h"}
    keyed = keyed_lake(lake, properties=given)
    upkeep = Upkeep(lake, keyed.info)
    for turn in range(8):
        keyed.change(rng, 15, 20)
        keyed.round(splits=rng.randrange(1, 3))
        upkeep.clock.advance(rng.randrange(HOUR_MS // 5))
        upkeep.compact(force=turn == 5)
        assert same_rows(upkeep.rows(), keyed.rows(0))
        assert keyed.replayed() == {0: list(range(keyed.tiered[0]))}
    assert tags(lake, keyed.info)
    upkeep.compact()
    assert [file.content for file in upkeep.maintenance.files()] in (["data"], [])
    check(keyed, upkeep)

"""Buckets of which no segment, or no folder, is left: what others hold is kept, and what is lost is lost by a word."""

from __future__ import annotations

import shutil

import pytest

from fluss_lab.errors import CorruptDataError, InvalidRequestError, UntieredRecordsError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.server.tablet.buckets import bucket_store
from fluss_lab.server.tablet.damage import log_cut
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.repair.damage_repair import FAILPOINTS, give_up_damage, plan_damage_repair
from tests.unit.tiering.broken_logs import OPTIONS, Broken, batches, flip, inside_a_segment, nothing
from tests.unit.tiering.kit import LAKE, Tables

pytestmark = pytest.mark.slow


@pytest.fixture
def tables():
    with EmbeddedCluster(None, OPTIONS) as cluster:
        yield Tables(cluster)


def no_segment(segments):
    end = batches(segments[-1])[-1][1].next_offset
    for path in segments:
        path.unlink()
    return [(int(segments[0].stem), end)]


def no_folder(segments):
    end = batches(segments[-1])[-1][1].next_offset
    folder = segments[0].parent
    # In one step: a server that runs may write into the folder while its files are removed one by one.
    shutil.rmtree(folder.rename(folder.parents[3] / f"{folder.name}-gone"))
    return [(0, end)]


GONE = (no_segment, no_folder, nothing, nothing, nothing, nothing)


def _lost(tables, keyed, tiered, *, snapshots=True, places=GONE, lake=True):
    broken = Broken(tables, keyed=keyed, lake=lake)
    broken.fill(tiered)
    if keyed:
        before = dict(broken.model)
        broken.write(1)
        broken.erase([1, 5, 9, 13, 17, 21, 25, 29, 33])
        if tiered == "all":
            tables.tier(broken.info)
        broken.truth = {bucket: broken.read(bucket, 0, end) for bucket, end in broken.ends().items()}
        del before
    tables.cluster.stop()
    if not snapshots:
        broken.forget_snapshots()
    broken.break_logs(places)
    tables.cluster.start()
    return broken


def _given_up(broken):
    statuses = {each.bucket.bucket: each.require() for each in broken.connection.admin().buckets(broken.info)}
    return {
        number: [(each.start, each.stop, each.lost_start) for each in statuses[number].given_up]
        for number, ranges in broken.damage.items()
        if ranges
    }


def _goes_on(broken, lost):
    """Written, read, restarted, tiered: all is as the model has it."""
    tables = broken.tables
    with pytest.raises(InvalidRequestError, match="nothing to repair"):
        broken.repair()
    broken.write(1)
    broken.check_rows(lost)
    tables.cluster.restart()
    broken.check_rows(lost)
    broken.write(1)
    if broken.lake:
        tables.tier(broken.info)
        ends = {bucket.bucket: offset.end for bucket, offset in tables.known(broken.info).offsets.items()}
        assert ends == broken.ends()
        broken.check_rows(lost)
        if broken.keyed:
            lake = tables.lake_rows(broken.info).to_pylist()
            assert {row["id"]: row["v"] for row in lake} == broken.model
            assert len(lake) == len(broken.model)


@pytest.mark.parametrize("tiered", ["all", "part", "none"])
def test_a_log_table_begins_anew_behind_what_is_gone(tables, tiered):
    broken = _lost(tables, False, tiered)
    known = tables.known(broken.info).offsets if tiered != "none" else {}
    held = {number: known[broken.bucket(number)].end if known else 0 for number in (0, 1)}
    ends = {number: ranges[0][1] for number, ranges in broken.damage.items() if ranges}
    lost = {number: [(held[number], end)] if held[number] < end else [] for number, end in ends.items()}
    plan = broken.plan()
    assert [(each.bucket.bucket, each.damage.start, each.damage.stop) for each in plan.ranges] == [
        (number, 0, end) for number, end in ends.items()
    ]
    assert plan.needs_word == (tiered != "all")
    assert repr(plan) == repr(broken.plan())  # nothing was changed
    assert not broken.folder(1).exists()
    text = repr(plan)
    for number in ends:
        assert ("lost for ever: " + "".join(f"[{a}, {b})" for a, b in lost[number]) in text) == bool(lost[number])
    if plan.needs_word:
        with pytest.raises(UntieredRecordsError) as caught:
            broken.repair()
        assert all(
            f"[{a}, {b}) are held nowhere else" in str(caught.value) for ranges in lost.values() for a, b in ranges
        )
        assert not broken.folder(1).exists()
    assert repr(broken.repair(discard=plan.needs_word)) == text
    assert _given_up(broken) == {number: [(0, end, held[number])] for number, end in ends.items()}
    for number in broken.damage:
        broken.check_log(number, lost.get(number, []))
    broken.check_rows(lost)
    _goes_on(broken, lost)


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("tiered", ["all", "part", "none"])
def test_a_primary_key_table_has_the_newest_rows_that_anybody_knows(tables, tiered, snapshots):
    broken = _lost(tables, True, tiered, snapshots=snapshots)
    known = tables.known(broken.info).offsets if tiered != "none" else {}
    held = {number: known[broken.bucket(number)].end if known else 0 for number in (0, 1)}
    ends = {number: ranges[0][1] for number, ranges in broken.damage.items() if ranges}
    plan = broken.plan()
    assert plan.needs_word == (tiered != "all")
    for each in plan.ranges:
        number = each.bucket.bucket
        rows = ends[number] if snapshots else held[number]
        assert each.rows_until == rows
        if rows < ends[number]:
            text = f"the rows become what they were at offset {rows}: what [{rows}, {ends[number]}) changed is lost"
            assert text in repr(plan)
            _go_back(broken, number, rows)
    if plan.needs_word:
        with pytest.raises(UntieredRecordsError, match="--discard-before"):
            broken.repair()
        assert not broken.folder(1).exists()
    broken.repair(discard=plan.needs_word)
    assert _given_up(broken) == {number: [(0, end, held[number])] for number, end in ends.items()}
    for number in broken.damage:
        broken.check_log(number, [(0, ends[number])] if number in ends and held[number] < ends[number] else [])
    broken.check_rows({})
    _goes_on(broken, {})


def _go_back(broken, number, offset):
    """Have the model forget what the records of a bucket from an offset on have changed."""
    before = {}
    for _offset, _time, kind, key, value in broken.truth[number]:
        if _offset < offset and kind in {"+I", "+U"}:
            before[key] = value
        elif _offset < offset and kind == "-D":
            before.pop(key, None)
    for key in {record[3] for record in broken.truth[number]}:
        broken.model.pop(key, None)
    broken.model |= before


@pytest.mark.parametrize("keyed", [False, True])
def test_without_a_lake_all_is_lost_by_a_word(tables, keyed):
    broken = (
        _lost(tables, keyed, "none", snapshots=False, lake=False) if keyed else _lost(tables, keyed, "none", lake=False)
    )
    ends = {number: ranges[0][1] for number, ranges in broken.damage.items() if ranges}
    with pytest.raises(UntieredRecordsError, match=r"\[0, \d+\) are held nowhere else"):
        broken.repair()
    broken.repair(discard=True)
    lost = {number: [(0, end)] for number, end in ends.items()}
    for number in ends if keyed else ():
        _go_back(broken, number, 0)
    broken.check_rows(lost)
    _goes_on(broken, lost)


def test_a_bucket_that_never_had_a_record_begins_anew(tables):
    broken = Broken(tables, keyed=False)
    tables.cluster.stop()
    shutil.rmtree(broken.folder(0))
    tables.cluster.start()
    assert "no record is known that was in it" in repr(broken.plan())
    broken.repair()
    broken.write(2)
    assert min(broken.ends().values()) > 0
    broken.truth = {bucket: broken.read(bucket, 0, end) for bucket, end in broken.ends().items()}
    broken.check_rows({})


def test_a_folder_that_comes_back_is_opened_as_it_is(tables):
    broken = Broken(tables, keyed=False)
    broken.fill("part")
    tables.cluster.stop()
    aside = broken.folder(0).with_name("aside")
    broken.folder(0).rename(aside)
    tables.cluster.start()
    assert broken.plan().ranges[0].is_gone
    with pytest.raises(UntieredRecordsError):
        broken.repair()
    aside.rename(broken.folder(0))
    tables.cluster.restart()
    assert broken.plan().is_empty
    broken.check_rows({})


def test_a_folder_of_another_bucket_is_not_begun_anew(tables):
    broken = Broken(tables, keyed=False)
    broken.fill("all")
    tables.cluster.stop()
    shutil.rmtree(broken.folder(0))
    shutil.copytree(broken.folder(1), broken.folder(0))
    for path in broken.segments(0):
        path.unlink()
    before = sorted(path.name for path in broken.folder(0).iterdir())
    tables.cluster.start()
    with pytest.raises(CorruptDataError, match="another bucket"):
        broken.repair(discard=True)
    assert sorted(path.name for path in broken.folder(0).iterdir()) == before


@pytest.mark.parametrize(
    ("keyed", "point"),
    [
        *((False, point) for point in (*bucket_store.FAILPOINTS, *FAILPOINTS, "tablet.cut.begun", "tablet.cut.start")),
        *((True, point) for point in (*bucket_store.FAILPOINTS, "tiering.give_up.sent", "kv.snapshot.after_manifest")),
        # What follows an empty log is what any damaged range takes: test_damage_repair has all of its steps.
        *(pytest.param(True, point, marks=pytest.mark.campaign) for point in log_cut.FAILPOINTS),
    ],
)
def test_a_lost_log_is_begun_anew_wherever_that_ended(tables, keyed, point):
    """Both with damage of another bucket beside it, which needs its own steps."""
    places = (no_folder, inside_a_segment, nothing, nothing, nothing, nothing)
    broken = _lost(tables, keyed, "part", places=places, snapshots=not keyed) if not keyed else _lost(
        tables, keyed, "all", places=(no_folder, *[nothing] * 5), snapshots=False
    )  # fmt: skip
    lake = tables.known(broken.info).offsets
    lost = {}
    if not keyed:
        held = {number: lake[broken.bucket(number)].end for number in (0, 1)}
        lost = {
            number: [(max(start, held[number]), stop)]
            for number in (0, 1)
            for start, stop in broken.damage[number]
            if held[number] < stop
        }
    broken.repair_cut_off(point, discard=not keyed)
    if point.startswith("tablet."):
        tables.cluster.restart()
    try:
        broken.repair(discard=not keyed)
    except InvalidRequestError:
        assert point in {"tiering.give_up.after", "tiering.give_up.adopted", *log_cut.FAILPOINTS}
    for number in broken.damage:
        broken.check_log(number, lost.get(number, []))
    broken.check_rows(lost)
    _goes_on(broken, lost)


@pytest.mark.parametrize("keyed", [False, True])
def test_what_goes_while_the_server_runs_is_found_and_given_up_without_a_restart(tables, keyed):
    broken = Broken(tables, keyed=keyed)
    broken.fill("part")
    lake = tables.known(broken.info).offsets
    broken.break_logs(GONE)
    ends = {number: ranges[0][1] for number, ranges in broken.damage.items() if ranges}
    lost = {number: [(0 if keyed else lake[broken.bucket(number)].end, end)] for number, end in ends.items()}
    plan = broken.plan()
    assert [(each.damage.start, each.damage.stop) for each in plan.ranges] == [(0, end) for end in ends.values()]
    with pytest.raises(UntieredRecordsError):
        broken.repair()
    broken.repair(discard=True)
    for number in broken.damage:
        broken.check_log(number, lost.get(number, []))
    broken.check_rows(lost)
    _goes_on(broken, lost)


def test_partitions_are_repaired_each_from_its_own_part_of_the_lake(tables):
    """One has lost its folder, one is damaged where its rows come from, one is well; the same keys are in all."""
    admin, path = tables.connection.admin(), TablePath("db", "parts")
    schema = {"id": "bigint not null", "month": "string not null", "v": "string"}
    made = make_descriptor(schema, primary_key=["id", "month"], partitioned_by=["month"], buckets=1, properties=LAKE)
    info = admin.create_table(path, made)
    model = {}
    for month in ("a", "b", "c"):
        admin.create_partition(path, {"month": month})

    def write(tag):
        rows = [
            {"id": number, "month": month, "v": f"{tag}-{number}-{month}"} for month in "abc" for number in range(40)
        ]
        for at in range(0, len(rows), 10):
            with tables.connection.upsert_writer(path) as writer:
                writer.upsert(rows[at : at + 10])
        gone = [{"id": number, "month": month} for month in "abc" for number in range(ord(month) % 5, 40, 6)]
        with tables.connection.upsert_writer(path) as writer:
            writer.delete(gone)
        model.update({(row["id"], row["month"]): row["v"] for row in rows})
        for row in gone:
            del model[row["id"], row["month"]]

    def check():
        rows = TableReader(tables.connection, path).scan().to_arrow().to_pylist()
        assert {(row["id"], row["month"]): row["v"] for row in rows} == model
        assert len(rows) == len(model)
        with tables.connection.lookuper(path) as lookuper:
            found = lookuper.lookup([{"id": number, "month": month} for month in "abc" for number in range(40)])
        assert {(row["id"], row["month"]): row["v"] for row in found.to_pylist() if row["id"] is not None} == model

    write("one")
    write("two")
    tables.tier(info)
    ids = {each.name: each.partition_id for each in admin.partitions(path)}
    tables.cluster.stop()
    folders = {
        name: tables.cluster.folder / "tablet" / "data" / f"t{info.table_id}" / f"p{ids[name]}" / "b0" for name in ids
    }
    shutil.rmtree(tables.cluster.folder / "remote" / "kv")
    shutil.rmtree(folders["a"])
    flip(sorted(folders["b"].glob("*.log"))[1], 0)
    (folders["b"] / "recovery-point").unlink(missing_ok=True)
    tables.cluster.start()
    plan = plan_damage_repair(tables.connection, path)
    assert [(each.partition, each.is_gone) for each in plan.ranges] == [("a", True), ("b", False)]
    assert not plan.needs_word
    give_up_damage(tables.connection, path, lambda: tables.storage, lambda _: LocalTieringExecutor())
    check()
    write("three")
    tables.cluster.restart()
    check()
    tables.tier(info)
    check()
    lake = tables.lake_rows(info).to_pylist()
    assert {(row["id"], row["month"]): row["v"] for row in lake} == model
    assert len(lake) == len(model)

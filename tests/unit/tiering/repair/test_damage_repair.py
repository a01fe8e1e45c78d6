"""Damaged logs: exactly what cannot be read is given up, from the lake if it holds it, and said."""

from __future__ import annotations

import pytest

from fluss_lab.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    TieringInProgressError,
    UnsupportedError,
    UntieredRecordsError,
)
from fluss_lab.server.tablet.damage import log_cut
from fluss_lab.server.tablet.damage.log_cut import GIVEN_UP_FILE
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.tiering.repair import lake_repair
from fluss_lab.tiering.repair.damage_repair import FAILPOINTS
from fluss_lab.tiering.round.source_enumerator import TieringSession, TieringSourceEnumerator
from tests.unit.cli.shell_kit import call
from tests.unit.tiering.broken_logs import (
    OPTIONS,
    PLACES,
    WRITES,
    Broken,
    a_whole_segment,
    first_batch,
    flip,
    inside_a_segment,
    nothing,
    the_last_batch,
)
from tests.unit.tiering.kit import Tables

pytestmark = pytest.mark.slow


@pytest.fixture
def tables():
    with EmbeddedCluster(None, OPTIONS) as cluster:
        yield Tables(cluster)


def _union(plan, number, kind):
    return [part for each in plan.ranges if each.bucket.bucket == number and (part := getattr(each, kind)) is not None]


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("tiered", ["all", "part", "none"])
def test_a_tiered_log_table_loses_exactly_what_is_damaged_and_nobody_else_holds(tables, tiered, forget):
    broken = Broken(tables, keyed=False)
    broken.fill(tiered)
    lake = (
        {bucket: offset.end for bucket, offset in tables.known(broken.info).offsets.items()} if tiered != "none" else {}
    )
    tables.cluster.stop()
    broken.break_logs(forget=forget)
    tables.cluster.start()
    plan = broken.plan()
    assert not plan.needs_word
    lost = {}
    for number, ranges in broken.damage.items():
        mine = [each for each in plan.ranges if each.bucket.bucket == number]
        assert [(each.damage.start, each.damage.stop) for each in mine] == ranges, PLACES[number].__name__
        held = lake.get(broken.bucket(number), 0)
        lost[number] = [(max(start, held), stop) for start, stop in ranges if stop > held]
        assert _union(plan, number, "lost") == lost[number]
    done = broken.repair()
    assert repr(done) == repr(plan)
    statuses = {each.bucket.bucket: each.require() for each in tables.connection.admin().buckets(broken.info)}
    for number, ranges in broken.damage.items():
        given_up = [(each.start, each.stop, each.lost_start) for each in statuses[number].given_up]
        gone = {stop: start for start, stop in lost[number]}
        assert given_up == [(start, stop, gone.get(stop, stop)) for start, stop in ranges]
        if ranges:
            assert statuses[number].start_offset == ranges[-1][1]
        broken.check_log(number, lost[number])
        for start, stop in lost[number]:
            with pytest.raises(OffsetOutOfRangeError):
                broken.read(number, start, stop)
    broken.check_rows(lost)
    with pytest.raises(InvalidRequestError, match="nothing to repair"):
        broken.repair()
    broken.write(2)
    tables.tier(broken.info)
    broken.check_rows(lost)
    ends = broken.ends()
    assert {number: len(records) for number, records in broken.truth.items()} != ends
    assert {bucket.bucket: offset.end for bucket, offset in tables.known(broken.info).offsets.items()} == ends


@pytest.mark.parametrize("keyed", [False, True])
def test_a_table_without_a_lake_loses_what_is_before_the_damage_only_by_a_word(tables, keyed):
    broken = Broken(tables, keyed=keyed, lake=False)
    broken.fill("none")
    tables.cluster.stop()
    broken.break_logs()
    tables.cluster.start()
    before = [path.read_bytes() for number in broken.damage for path in broken.segments(number)]
    plan = broken.plan()
    assert plan.needs_word
    with pytest.raises(UntieredRecordsError) as caught:
        broken.repair()
    lost = {}
    for number, ranges in broken.damage.items():
        assert _union(plan, number, "lost") == ranges
        begins = [0, *(stop for _, stop in ranges)]
        sound = [(begin, start) for begin, (start, _) in zip(begins, ranges, strict=False) if begin < start]
        assert _union(plan, number, "discarded") == sound
        assert all(f"[{start}, {stop})" in str(caught.value) for start, stop in sound)
        lost[number] = [(0, ranges[-1][1])] if ranges else []
    assert before == [path.read_bytes() for number in broken.damage for path in broken.segments(number)]
    broken.repair(discard=True)
    for number, ranges in lost.items():
        broken.check_log(number, ranges)
    broken.check_rows(lost)
    broken.write(2)
    tables.cluster.restart()
    broken.check_rows(lost)


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("tiered", ["all", "part", "none"])
def test_a_tiered_primary_key_table_keeps_every_row(tables, tiered, forget):
    broken = Broken(tables, keyed=True)
    broken.fill(tiered)
    tables.cluster.stop()
    broken.break_logs(forget=forget)
    tables.cluster.start()
    plan = broken.plan()
    assert plan.needs_word == (tiered != "all")
    if plan.needs_word:
        with pytest.raises(UntieredRecordsError, match=r"Nothing was changed.*--discard-before"):
            broken.repair()
    broken.repair(discard=plan.needs_word)
    for number, ranges in broken.damage.items():
        broken.check_log(number, [] if tiered == "all" or not ranges else [(0, ranges[-1][1])])
    broken.check_rows({})
    broken.write(2)
    tables.tier(broken.info)
    broken.check_rows({})
    lake = tables.lake_rows(broken.info).to_pylist()
    assert {row["id"]: row["v"] for row in lake} == broken.model
    assert len(lake) == len(broken.model)


# -- cut off -------------------------------------------------------------------------------------------------------------


def _damaged(tables, tiered, place=inside_a_segment):
    broken = Broken(tables, keyed=False)
    broken.fill(tiered)
    broken.break_logs((place, *[nothing] * (len(PLACES) - 1)))  # while it runs
    return broken


@pytest.mark.parametrize(
    "point", [*FAILPOINTS, *lake_repair.FAILPOINTS, *log_cut.FAILPOINTS, "tiering.fluss_commit.after"]
)
def test_a_repair_that_ended_anywhere_is_finished_by_the_next(tables, point):
    broken = _damaged(tables, "part")
    lost = {0: broken.damage[0]}
    broken.repair_cut_off(point)
    if point in log_cut.FAILPOINTS:
        tables.cluster.restart()
    if point == "tiering.adopt_lake.after":
        # The lake has what the cluster was not told of: nobody passes that without saying so.
        with pytest.raises(OffsetOutOfRangeError, match=r"run 'fluss-lab repair db\.broken --adopt'"):
            broken.repair()
        lake_repair.adopt(tables.connection, tables.storage, broken.path)
    try:
        done = broken.repair()
    except InvalidRequestError:
        assert point in {"tiering.give_up.adopted", "tiering.adopt_lake.after", "tiering.adopt_fluss.after"}
    else:
        assert not done.is_empty
    broken.check_log(0, lost[0])
    broken.check_rows(lost)
    with pytest.raises(InvalidRequestError, match="nothing to repair"):
        broken.repair()
    broken.write(1)
    tables.tier(broken.info)
    broken.check_rows(lost)


def test_a_table_that_a_tierer_works_on_is_left_alone(tables):
    broken = _damaged(tables, "all")
    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 0.02)
        assignment = enumerator.request(broken.info.table_id)
        with enumerator.hold(assignment, lambda: None), pytest.raises(TieringInProgressError):
            broken.repair()
    assert [(each.damage.start, each.damage.stop) for each in broken.plan().ranges] == broken.damage[0]
    broken.repair()
    broken.check_rows({})


@pytest.mark.parametrize("tiered", ["part", "none"])
def test_rows_that_need_what_is_damaged_are_not_given_up(tables, tiered):
    broken = Broken(tables, keyed=True)
    broken.fill(tiered)
    tables.cluster.stop()
    broken.forget_snapshots()
    broken.break_logs((inside_a_segment, *[nothing] * (len(PLACES) - 1)), forget=True)
    tables.cluster.start()
    ((start, stop),) = broken.damage[0]
    lake = "the lake does not hold the bucket"
    if tiered == "part":
        lake = f"the lake holds the bucket only up to offset {tables.known(broken.info).offsets[broken.bucket(0)].end}"
    text = (
        f"not possible: the rows are made from the changes since offset 0, where their newest key-value snapshot is, and {lake}: "
        f"what [{start}, {stop}) made of them is not known; restore the file from a copy"
    )
    assert text in repr(broken.plan())
    shown = call("repair", broken.info.path, "--skip-corrupt", "-f", tables.cluster.folder)
    assert (shown.code, text in shown.out, "does it" in shown.out) == (0, True, False)
    with pytest.raises(UnsupportedError) as caught:
        broken.repair(discard=True)
    assert text in str(caught.value)
    assert [(each.damage.start, each.damage.stop) for each in broken.plan().ranges] == broken.damage[0]
    assert all(not each.require().given_up for each in tables.connection.admin().buckets(broken.info)[1:])


# -- rows from the lake --------------------------------------------------------------------------------------------------


def _rowless(tables, places=PLACES, *, writes=0, name="broken"):
    """A primary-key table, tiered and then written to, with damage and without the snapshots of its rows."""
    broken = Broken(tables, keyed=True, name=name)
    broken.write(WRITES // 2)
    broken.erase(range(0, 36, 5))
    broken.write(1)
    broken.erase(range(3, 36, 7))
    tables.tier(broken.info)
    for turn in range(writes):
        broken.write(1)
        broken.erase(range(turn, 36, 4))
    broken.truth = {bucket: broken.read(bucket, 0, end) for bucket, end in broken.ends().items()}
    tables.cluster.stop()
    broken.forget_snapshots()
    broken.break_logs(places, forget=True)
    tables.cluster.start()
    return broken


def _check_after(broken):
    """Everything works on, and is as if nothing had happened."""
    tables = broken.tables
    for number in broken.damage:
        broken.check_log(number, [])
    broken.check_rows({})
    with pytest.raises(InvalidRequestError, match="nothing to repair"):
        broken.repair()
    broken.write(1)
    broken.erase([1, 8])
    broken.check_rows({})
    tables.cluster.restart()
    broken.check_rows({})
    broken.erase([2])
    broken.write(1)
    tables.tier(broken.info)
    broken.truth = {bucket: broken.read(bucket, 0, end) for bucket, end in broken.ends().items()}
    lake = tables.lake_rows(broken.info).to_pylist()
    assert {row["id"]: row["v"] for row in lake} == broken.model
    assert len(lake) == len(broken.model)
    tables.cluster.restart()  # which takes key-value snapshots
    snapshots = tables.connection.admin().latest_kv_snapshots(broken.path)
    assert {number: each.log_offset for number, each in snapshots.items()} == broken.ends()
    for number in broken.damage:
        broken.check_log(number, [])
    broken.check_rows({})


def _two_early(segments):
    return [flip(segments[0], 0), flip(segments[2], 0)]


@pytest.mark.parametrize("writes", [0, 2])
def test_rows_are_made_from_those_that_the_lake_has(tables, writes):
    places = (first_batch, inside_a_segment, a_whole_segment, _two_early, nothing, nothing) if writes else PLACES
    broken = _rowless(tables, places, writes=writes)
    plan = broken.plan()
    lake = tables.known(broken.info).offsets
    assert not plan.needs_word
    for each in plan.ranges:
        assert each.lake_rows == lake[each.bucket].end
        assert each.lost is None
    text = repr(plan)
    assert all(f"as they were at offset {each.lake_rows}" in text for each in plan.ranges)
    assert [(each.bucket.bucket, (each.damage.start, each.damage.stop)) for each in plan.ranges] == [
        (number, part) for number, ranges in broken.damage.items() for part in ranges
    ]
    assert repr(broken.repair()) == text
    statuses = {each.bucket.bucket: each.require() for each in tables.connection.admin().buckets(broken.info)}
    for number, ranges in broken.damage.items():
        assert [(each.start, each.stop, each.lost_start) for each in statuses[number].given_up] == [
            (start, stop, stop) for start, stop in ranges
        ]
        if ranges:
            assert statuses[number].start_offset == ranges[-1][1]
    _check_after(broken)


def test_rows_of_the_lake_have_the_columns_that_were_added_since(tables):
    broken = Broken(tables, keyed=True)
    broken.fill("all")
    broken.info = tables.connection.admin().alter_table(broken.path, add_columns={"w": "int"})
    broken.write(1)
    with tables.connection.upsert_writer(broken.path) as writer:
        writer.upsert([{"id": 7, "v": "last", "w": 7}])
    broken.model[7] = "last"
    broken.truth = {bucket: broken.read(bucket, 0, end) for bucket, end in broken.ends().items()}
    tables.cluster.stop()
    broken.forget_snapshots()
    broken.break_logs((first_batch, inside_a_segment, *[nothing] * (len(PLACES) - 2)), forget=True)
    tables.cluster.start()
    broken.repair()
    with tables.connection.lookuper(broken.path) as lookuper:
        assert lookuper.lookup([{"id": 7}, {"id": 8}]).to_pylist() == [
            {"id": 7, "v": "last", "w": 7},
            {"id": 8, "v": broken.model[8], "w": None},
        ]
    _check_after(broken)


@pytest.mark.parametrize(
    "point",
    [
        *FAILPOINTS[:3], "kv.snapshot.before_chunks", "kv.snapshot.before_manifest", "kv.snapshot.after_manifest",
        # The steps behind the rows are those of any damaged range.
        *(pytest.param(point, marks=pytest.mark.campaign) for point in log_cut.FAILPOINTS),
    ],
)  # fmt: skip
def test_making_rows_from_the_lake_may_end_anywhere(tables, point):
    broken = _rowless(tables, (inside_a_segment, *[nothing] * (len(PLACES) - 1)), writes=1)
    broken.repair_cut_off(point)
    if point in {"tiering.give_up.sent", "kv.snapshot.after_manifest", *log_cut.FAILPOINTS}:
        tables.cluster.restart()
    try:
        assert not broken.repair().is_empty
    except InvalidRequestError:
        assert point in {"tiering.give_up.after", *log_cut.FAILPOINTS}
    _check_after(broken)


def test_a_gap_that_damage_has_not_made_is_not_accepted_on_the_way(tables):
    """Records left the cluster while the lake was switched off; then another bucket is found damaged."""
    broken = Broken(tables, keyed=False)
    broken.fill("part")
    lake = tables.known(broken.info).offsets[broken.bucket(1)].end
    ends = broken.ends()
    admin = tables.connection.admin()
    for enabled in (False, True):
        tables.cluster.stop()
        if not enabled:
            broken.break_logs((inside_a_segment, the_last_batch, *[nothing] * (len(PLACES) - 2)))
        tables.cluster.start()
        broken.info = admin.alter_table(broken.path, set={"table.datalake.enabled": enabled})
        if not enabled:
            # Without the lake nobody else held what was before the end.
            admin.damaged_buckets(broken.info)
            (start, stop) = broken.damage[1][0]
            assert admin.give_up_range(broken.info, broken.bucket(1), start, stop, discard_before=True) == ends[1]
    path = broken.folder(1) / GIVEN_UP_FILE
    path.unlink()  # what was lost there was not given up because of damage, for all that is known
    tables.cluster.restart()
    with pytest.raises(OffsetOutOfRangeError, match=rf"\[{lake}, {ends[1]}\).*--adopt --accept-gaps"):
        broken.repair()

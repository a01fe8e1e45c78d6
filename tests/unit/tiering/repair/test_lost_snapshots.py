"""Primary-key buckets whose log is sound, but begins behind every whole key-value snapshot: the lake has their rows."""

from __future__ import annotations

import pytest

from fluss_lab.client import UnknownBucket
from fluss_lab.errors import CorruptDataError, InvalidRequestError, UnsupportedError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.cli.shell_kit import call
from tests.unit.tiering.broken_logs import Broken
from tests.unit.tiering.kit import Tables
from tests.unit.tiering.repairs import take_snapshots

pytestmark = pytest.mark.slow

#: Two snapshots of each bucket, which share files of chunks, taken by no clock.
OPTIONS = {
    "log.segment.file-size": "1kb", "kv.snapshot.interval": "1h", "kv.snapshot.num-retained": "2",
    "lake.tiering.takeover": "200ms",
}  # fmt: skip
#: A time at which every record is past the table's ttl.
NEVER_MS = 1 << 45


@pytest.fixture
def tables():
    with EmbeddedCluster(None, OPTIONS) as cluster:
        yield Tables(cluster)


def _aged(tables, *, lake=True, writes=2):
    """A primary-key table whose log begins late, with two snapshots of each bucket, written to since."""
    broken = Broken(tables, keyed=True, lake=lake)
    broken.write(2)
    broken.erase(range(0, 36, 5))
    take_snapshots(tables, broken.info)
    if lake:
        tables.tier(broken.info)

    for _ in range(2):
        broken.write(1)
        broken.erase(range(3, 36, 7))
        take_snapshots(tables, broken.info)
        if lake:
            tables.tier(broken.info)
    wait_until(lambda: tables.cluster.tablet().apply_retention(NEVER_MS) == 0 and all(_starts(broken).values()))
    for turn in range(writes):
        broken.write(1)
        broken.erase(range(turn, 36, 4))
    return broken


def _starts(broken):
    return {each.bucket.bucket: each.require().start_offset for each in broken.connection.admin().buckets(broken.info)}


def _flip_chunks(broken, numbers):
    """Turn a bit over in every file of chunks of some buckets, which all of their snapshots share."""
    broken.tables.cluster.stop()
    kv = broken.tables.cluster.folder / "remote" / "kv"
    for number in numbers:
        chunks = list(kv.rglob(f"{number}/*.chunks"))
        assert chunks
        for path in chunks:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
    broken.tables.cluster.start()


def _errors(broken):
    buckets = broken.connection.admin().buckets(broken.info)
    return {each.bucket.bucket: each.error for each in buckets if isinstance(each, UnknownBucket)}


def _check(broken):
    """All is as the model has it, now, after a restart, and in the lake; and there is nothing to repair."""
    tables = broken.tables
    with pytest.raises(InvalidRequestError, match="nothing to repair"):
        broken.repair()
    broken.check_rows({})
    broken.write(1)
    broken.erase([1, 8])
    tables.cluster.restart()
    broken.check_rows({})
    tables.tier(broken.info)
    lake = tables.lake_rows(broken.info).to_pylist()
    assert {row["id"]: row["v"] for row in lake} == broken.model
    assert len(lake) == len(broken.model)


def test_rows_whose_snapshots_are_damaged_are_made_from_those_of_the_lake(tables):
    broken = _aged(tables)
    starts, ends = _starts(broken), broken.ends()
    records = {number: broken.read(number, start, ends[number]) for number, start in starts.items()}
    lake = {bucket.bucket: offset.end for bucket, offset in tables.known(broken.info).offsets.items()}
    _flip_chunks(broken, (0, 2))
    errors = _errors(broken)
    assert set(errors) == {0, 2}
    for number, error in errors.items():
        assert isinstance(error, CorruptDataError)
        assert f"the log begins at {starts[number]}" in str(error)
        assert "fluss-lab repair db.broken --skip-corrupt" in str(error)
    plan = broken.plan()
    assert not plan.needs_word
    assert plan.is_possible
    assert [each.bucket.bucket for each in plan.ranges] == [0, 2]
    for each in plan.ranges:
        number = each.bucket.bucket
        assert (each.damage.start, each.damage.stop) == (starts[number], starts[number])
        assert each.lake_rows == lake[number]
        assert each.lost is each.discarded is each.to_tier is None
    text = f"{plan!r}\n"
    for number in (0, 2):
        assert f"which begins at offset {starts[number]}\n" in text
        assert f"the rows are made from those that the lake has, as they were at offset {lake[number]}\n" in text
    assert "nothing is lost" in text
    assert "/remote/kv/" in text
    shown = call("repair", broken.info.path, "--skip-corrupt", "-f", tables.cluster.folder)
    assert (shown.code, "--skip-corrupt --yes" in shown.out) == (0, True)
    done = call("repair", broken.info.path, "--skip-corrupt", "--yes", "-f", tables.cluster.folder)
    assert done.code == 0, done.err
    assert _starts(broken) == starts
    assert all(not each.require().given_up for each in tables.connection.admin().buckets(broken.info))
    assert {number: broken.read(number, start, ends[number]) for number, start in starts.items()} == records
    _check(broken)


def test_an_emptied_folder_of_snapshots_is_made_good_too(tables):
    broken = _aged(tables, writes=0)  # and a log without a record
    tables.cluster.stop()
    broken.forget_snapshots()
    tables.cluster.start()
    assert set(_errors(broken)) == set(range(broken.info.descriptor.buckets))
    broken.repair()
    _check(broken)


@pytest.mark.parametrize("lake", [False, True])
def test_rows_that_nobody_has_are_refused_and_nothing_is_changed(tables, lake):
    broken = _aged(tables, lake=False)
    if lake:  # which is to hold the table from now on, and has nothing yet
        broken.info = tables.connection.admin().alter_table(broken.path, set={"table.datalake.enabled": True})
    starts = _starts(broken)
    _flip_chunks(broken, (1,))
    kept = sorted(path.name for path in broken.folder(1).iterdir())
    plan = broken.plan()
    assert not plan.is_possible
    assert "the lake does not hold the bucket" in repr(plan)
    assert f"what [0, {starts[1]}) made of them is not known; restore the folder from a copy" in repr(plan)
    for discard in (False, True):
        with pytest.raises(UnsupportedError, match=r"not possible"):
            broken.repair(discard=discard)
    start = starts[1]
    with pytest.raises(UnsupportedError, match=rf"\[0, {start}\) of them cannot be read: restore .*kv.* from a copy"):
        tables.connection.admin().give_up_range(broken.info, broken.bucket(1), start, start, discard_before=True)
    assert sorted(path.name for path in broken.folder(1).iterdir()) == kept
    assert set(_errors(broken)) == {1}


@pytest.mark.parametrize(
    ("point", "restarts"),
    [
        ("tiering.give_up.before", False), ("tiering.give_up.sent", True), ("kv.snapshot.before_manifest", False),
        ("kv.snapshot.after_manifest", False), ("kv.snapshot.after_manifest", True), ("tiering.give_up.after", True),
    ],
)  # fmt: skip
def test_it_may_end_anywhere(tables, point, restarts):
    broken = _aged(tables, writes=1)
    _flip_chunks(broken, (0,))
    broken.repair_cut_off(point)
    if restarts:
        tables.cluster.restart()
    try:
        assert not broken.repair().is_empty
    except InvalidRequestError:
        assert point == "tiering.give_up.after" or (restarts and point == "kv.snapshot.after_manifest")
    _check(broken)

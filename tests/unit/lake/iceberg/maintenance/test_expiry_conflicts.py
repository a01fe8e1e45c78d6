"""Expiry beside commits of others, without an answer, and of a process that ends: nothing that is referred to goes."""

import pytest
from pyiceberg.exceptions import CommitFailedException

from fluss_lab import failpoints
from fluss_lab.errors import CommitConflictError, CommitOutcomeUnknownError
from fluss_lab.failpoints import FailpointError
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.maintenance.expiry_kit import appended, check_no_orphan, expiring_table, in_use, left
from tests.unit.lake.iceberg.maintenance.test_compaction import rows
from tests.unit.lake.upkeep import DAY_MS, Upkeep

pytestmark = pytest.mark.slow


@pytest.fixture
def info(lake):
    return expiring_table(lake)


def act_before_commit(lake, act):
    """Have another program do something with the lake just before the first commit; return what it returned, once it has."""
    other, catalog, turns = Lake(lake.folder), lake.storage.access.catalog(), []
    real = catalog.commit_table

    def commit_table(*arguments):
        if not turns:
            turns.append(act(other))
        return real(*arguments)

    catalog.commit_table = commit_table
    return turns


def test_a_commit_in_between_is_noticed_and_nothing_of_it_goes(lake, info):
    ids = appended(lake, info, 5)
    turns = act_before_commit(lake, lambda other: other.append(info, rows(info, 2, 10), 10))
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    assert upkeep.expire().snapshot_ids == tuple(ids[:3])
    assert left(lake, info) == [*ids[3:], turns[0]]
    check_no_orphan(lake, info)


def test_a_tag_made_in_between_keeps_its_snapshot(lake, info):
    ids = appended(lake, info, 5)
    act_before_commit(lake, lambda other: other.load(info).manage_snapshots().create_tag(ids[0], "mine").commit())
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    assert upkeep.expire().snapshot_ids == (ids[1],)
    assert lake.load(info).scan(snapshot_id=ids[0]).to_arrow().num_rows == 2
    check_no_orphan(lake, info)


def test_refused_for_ever_is_reported(lake, info):
    appended(lake, info, 5)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)

    def commit_table(*arguments):
        raise CommitFailedException("no")

    lake.storage.access.catalog().commit_table = commit_table
    before = upkeep.files()
    with pytest.raises(CommitConflictError, match="nothing was expired"):
        upkeep.expire()
    assert upkeep.files() == before


def test_an_unknown_outcome_removes_no_file(lake, info):
    ids = appended(lake, info, 5)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    catalog = lake.storage.access.catalog()
    real = catalog.commit_table

    load = catalog.load_table

    def lost(*_arguments):
        raise ConnectionError("the catalog is gone")

    def commit_table(*arguments):
        real(*arguments)
        catalog.load_table = lost
        raise ConnectionError("the answer was lost")

    before = upkeep.files()
    catalog.commit_table = commit_table
    with pytest.raises(CommitOutcomeUnknownError):
        upkeep.expire()
    catalog.commit_table, catalog.load_table = real, load
    assert before <= upkeep.files()
    assert left(lake, info) == ids[2:]
    upkeep.clock.advance(DAY_MS)
    removed = upkeep.orphans(dry_run=False)
    assert removed
    check_no_orphan(lake, info)


@pytest.mark.parametrize("place", ["before", "after_commit", "after_file"])
def test_a_process_that_ends_in_between_loses_nothing(lake, info, place):
    appended(lake, info, 6)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    failpoints.arm(f"maintenance.expire.{place}", "error")
    with pytest.raises(FailpointError):
        upkeep.expire()
    failpoints.disarm()
    assert in_use(lake, info) <= upkeep.files()
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == list(range(12))
    upkeep.expire()
    upkeep.clock.advance(DAY_MS)
    upkeep.orphans(dry_run=False)
    check_no_orphan(lake, info)

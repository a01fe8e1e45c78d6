"""Expiry of a REST catalog's tables while others make branches and tags: the server does not compare them."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_lab.errors import CommitConflictError, CommitOutcomeUnknownError
from fluss_lab.lake.iceberg.maintenance.maintenance_state import MaintenanceState
from tests.unit.lake.iceberg.commit.test_rest_commits import QUICK, RestLake
from tests.unit.lake.rest_server import Fault, RestServer
from tests.unit.lake.upkeep import COLUMNS, HOUR_MS, Upkeep, keyed_lake

pytestmark = pytest.mark.slow

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])
#: Of the table of `upkeep`: the empty one, those of three rounds, the first of the compaction's two.
EXPIRED = 5


@pytest.fixture
def rest(tmp_path):
    with RestServer(tmp_path / "rest") as found:
        yield found


@pytest.fixture
def upkeep(rest) -> Upkeep:
    """A table with snapshots that may go, and files that go with them: of a bucket that was compacted."""
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    for number in range(3):
        lake.append(info, pa.RecordBatch.from_pylist([{"id": number, "name": "x"}], ROWS), number)
    found = Upkeep(lake, info)
    assert found.compact() is not None
    found.clock.advance(2 * HOUR_MS)
    return found


def expire(upkeep: Upkeep):
    return upkeep.expire(keep=1, older_than_ms=upkeep.clock.now_ms())


def tag(rest: RestServer, upkeep: Upkeep, name: str = "theirs") -> int:
    """Somebody else's tag of the oldest snapshot with rows: the first one is empty."""
    loaded = RestLake(rest).load(upkeep.info)
    oldest: int = loaded.metadata.snapshots[1].snapshot_id
    loaded.manage_snapshots().create_tag(oldest, name).commit()
    return oldest


def test_what_expires_is_removed(rest, upkeep):
    before = upkeep.files()
    done = expire(upkeep)
    assert len(done.snapshot_ids) == EXPIRED
    assert done.files > 3
    assert len(before - upkeep.files()) == done.files


def test_a_tag_that_came_since_the_table_was_loaded_keeps_its_snapshot(rest, upkeep):
    maintenance = upkeep.maintenance
    maintenance.expiry_due(1)  # which loads the table
    tagged = tag(rest, upkeep)
    done = maintenance.expire_snapshots(
        older_than_ms=upkeep.clock.now_ms(), keep=1, protected=frozenset(), partition_ids={}
    )
    assert tagged not in done.snapshot_ids
    assert len(done.snapshot_ids) == EXPIRED - 1
    rows = upkeep.lake.rows(upkeep.info, tagged)
    assert rows["id"].to_pylist() == [0]


def test_a_tag_that_comes_with_the_commit_keeps_the_files(rest, upkeep):
    """The server expired what the tag names, or not: its files are not ours to remove."""
    before = upkeep.files()
    raced = []
    rest.faults = [Fault("commit", -1, then=lambda: raced.append(tag(rest, upkeep)))]
    done = expire(upkeep)
    assert raced
    assert done.files == 0
    assert before <= upkeep.files()


def test_others_who_keep_tagging_are_a_conflict(rest, upkeep):
    seen = []

    def another() -> None:
        seen.append(1)
        tag(rest, upkeep, f"t{len(seen)}")

    real = upkeep.lake.storage.access.load_table
    upkeep.lake.storage.access.load_table = lambda path: (another(), real(path))[1]
    with pytest.raises(CommitConflictError, match="nothing was expired: branches or tags were changed"):
        upkeep.maintenance.expire_snapshots(
            older_than_ms=upkeep.clock.now_ms(), keep=1, protected=frozenset(), partition_ids={}
        )


@pytest.mark.parametrize("status", [500, 503, 504, None])
def test_an_expiry_whose_answer_was_lost_is_looked_up(rest, upkeep, status):
    before = upkeep.files()
    rest.faults = [Fault("commit", status, done=True)]
    done = expire(upkeep)
    assert len(done.snapshot_ids) == EXPIRED
    assert len(before - upkeep.files()) == done.files > 0


def test_an_expiry_that_is_not_found_may_still_come(rest, upkeep):
    before = upkeep.files()
    rest.faults = [Fault("commit", 504)]
    with pytest.raises(CommitOutcomeUnknownError, match="remove_orphan_files"):
        expire(upkeep)
    assert upkeep.files() == before
    assert all(Path(path).exists() for path in before)
    assert len(expire(upkeep).snapshot_ids) == EXPIRED


def test_that_orphans_were_looked_for_is_not_noted_over_a_compaction_that_came_in_between(rest):
    """One property says both: a note that a stopped tierer sends late would forget what the compaction retired."""
    keyed = keyed_lake(RestLake(rest), properties=QUICK)
    for turn in range(3):
        keyed.change(random.Random(turn), 12)
        keyed.round()
    upkeep = Upkeep(keyed.lake, keyed.info)
    rest.faults = [Fault("commit", -1, then=upkeep.compact)]
    upkeep.orphans(dry_run=False)
    assert not rest.faults
    assert MaintenanceState.of(keyed.lake.load(keyed.info).properties).retired

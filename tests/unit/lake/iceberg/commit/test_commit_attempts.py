"""Commits of primary-key tables while others commit too: what passes, what is refused, and what is left behind."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType

from fluss_lab import failpoints
from fluss_lab.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    ForeignCommitError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.commit import commit_attempts as commits
from fluss_lab.lake.iceberg.commit import round_commit
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits
from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_TAG_PREFIX
from fluss_lab.lake.iceberg.metadata import snapshot_builder
from fluss_lab.lake.iceberg.metadata.snapshot_builder import StagedSnapshot, stage_replace, stage_row_delta
from tests.unit.lake.changelogs import Changelog, state_of
from tests.unit.lake.conftest import Lake, summary
from tests.unit.lake.iceberg.commit.test_round_commit import failing
from tests.unit.lake.iceberg.commit.test_row_delta import check, referenced
from tests.unit.lake.rounds import RETENTION_MS, KeyedLake, keyed_result, starts, tags

COLUMNS = {"id": "bigint", "name": "string"}
QUICK = {"iceberg.commit.retry.min-wait-ms": "1", "iceberg.commit.status-check.min-wait-ms": "1"}
STEPS = (*commits.FAILPOINTS, *snapshot_builder.FAILPOINTS, *round_commit.FAILPOINTS)


@pytest.fixture
def table(lake) -> KeyedLake:
    return keyed(lake)


def keyed(lake, buckets=1, **properties) -> KeyedLake:
    info = lake.table(COLUMNS, primary_key=["id"], buckets=buckets, properties=QUICK | properties)
    return KeyedLake(lake, info, buckets)


def begun(table: KeyedLake, splits=1):
    """A round that is written, with deletes of rows that earlier rounds brought and of its own."""
    bring(table.logs[0])
    table.round()
    replace_some(table.logs[0])
    return table.plan(splits)


def bring(log: Changelog) -> None:
    for number in range(10):
        log.upsert({"id": number, "name": "first"})


def replace_some(log: Changelog) -> None:
    for number in range(3, 6):
        log.upsert({"id": number, "name": "second"})
        log.upsert({"id": number, "name": "third"})
    log.delete((9,))


def foreign_rows(table: KeyedLake, operation: Operation) -> int:
    """Somebody else's change of rows, by pyiceberg's own hands."""
    loaded = table.lake.load(table.info)
    if operation == Operation.APPEND:
        loaded.append(loaded.scan().to_arrow())
    elif operation == Operation.DELETE:
        loaded.delete(EqualTo("id", 1))
    else:
        loaded.overwrite(loaded.scan().to_arrow())
    return table.lake.load(table.info).metadata.current_snapshot_id


@pytest.mark.parametrize("splits", [1, 3])
def test_deletes_are_placed_again_after_somebody_elses_compaction(table, splits):
    done = begun(table, splits)
    before = table.lake.load(table.info).metadata.current_snapshot_id
    theirs = table.compact(0, ours=False)
    mine = table.commit(done)
    check(table)
    loaded = table.lake.load(table.info)
    assert loaded.metadata.snapshot_by_id(mine).parent_snapshot_id == theirs
    assert tags(table.lake, table.info) == {
        f"{REPLAY_TAG_PREFIX}{before}": snapshot_builder.TagRequest(
            f"{REPLAY_TAG_PREFIX}{before}", before, RETENTION_MS
        )
    }
    assert table.replayed() == {0: list(range(table.logs[0].end))}
    # The data files are the writers'; the delete files that were placed in files that are gone are gone too.
    data = {file.file_path for result in done.results for file in result.files}
    old = {file.file_path for result in done.results for file in (*result.deletes, *result.unplaced)}
    assert data <= table.paths()
    assert not old & table.paths()


def test_a_compaction_between_two_rounds_is_tagged_by_the_next_commit(table):
    begun(table)
    before = table.lake.load(table.info).metadata.current_snapshot_id
    table.compact(0, ours=False)
    middle = table.compact(0, ours=False)
    done = table.plan()
    table.commit(done)
    check(table)
    assert {tag.snapshot_id for tag in tags(table.lake, table.info).values()} == {
        before,
        table.lake.load(table.info).metadata.snapshot_by_id(middle).parent_snapshot_id,
    }
    table.round()
    assert len(tags(table.lake, table.info)) == 2
    assert table.replayed() == {0: list(range(table.logs[0].end))}


def test_a_log_table_needs_no_tag(lake):
    info = lake.table(COLUMNS)
    committer = lake.committer(info)
    first = committer.commit(committer.to_committable([]), None, summary())

    def stage(current):
        return stage_replace(current, removed=[], added=[], summary={"fluss-commit-id": "x"})

    SnapshotCommits(lake.storage.access, info.path, "x").commit(stage, first, {"fluss-commit-id": "x"})
    committer.commit(committer.to_committable([]), first, summary())
    assert tags(lake, info) == {}


@pytest.mark.filterwarnings("ignore:Merge on read")
@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.DELETE, Operation.OVERWRITE])
def test_foreign_changes_of_rows_stop_the_round(table, operation):
    done = begun(table)
    theirs = foreign_rows(table, operation)
    with pytest.raises(ForeignCommitError, match=r"changes the table's rows.*fluss-lab repair db.t --adopt"):
        table.commit(done)
    assert table.lake.load(table.info).metadata.current_snapshot_id == theirs
    with pytest.raises(ForeignCommitError):
        done.committer.missing_lake_snapshot(done.planned)


@pytest.mark.parametrize(("lost", "message"), [(1, "2 rows are gone"), (-2, "-2 rows are gone")])
def test_a_replace_that_changes_rows_is_a_foreign_change(table, lost, message):
    """It says that it is a compaction, and its own counts say otherwise."""
    for number in range(4):
        table.logs[0].upsert({"id": number, "name": "x"})
    table.round()
    log = table.logs[0]
    kept = log.live.copy()
    table.tiered[0] = log.end
    if lost > 0:
        log.live = dict(list(kept.items())[2:])
    done = table.plan()
    _rewritten(table, log, extra=0 if lost > 0 else 2)
    with pytest.raises(ForeignCommitError, match=message):
        table.commit(done)
    # A round that is planned later finds it too.
    with pytest.raises(ForeignCommitError, match=message):
        done.committer.missing_lake_snapshot(done.planned)


def _rewritten(table: KeyedLake, log, extra: int) -> None:
    """Somebody's replace of all files by one with other rows."""
    changed = Changelog(log.schema, log.key, list(log.log), dict(log.live))
    for number in range(extra):
        changed.upsert({"id": 100 + number, "name": "more"})
    state = state_of(table.lake, table.info)[(None, 0)]
    files = keyed_result(table.lake, table.info, changed, 0).files
    removed = [each.file for each in (*state.data, *state.deletes)]
    planned = table.lake.load(table.info).metadata.current_snapshot_id

    done = {"fluss-commit-id": "theirs"}

    def stage(current):
        return stage_replace(current, removed=removed, added=[(file, None) for file in files], summary=done)

    SnapshotCommits(table.lake.storage.access, table.info.path, "theirs").commit(stage, planned, done)


def test_commits_of_ours_in_between_are_conflicts(table):
    done = begun(table, splits=3)
    table.compact(0)
    files = table.paths()
    with pytest.raises(CommitConflictError, match="plan it again"):
        table.commit(done)
    assert table.paths() == files
    done.committer.abort(done.results)
    assert table.paths() == {f"file://{path}" for path in referenced(table.lake, table.info)}
    table.round()
    check(table)


def test_compactions_that_come_while_the_commit_is_on_its_way(table):
    """The catalog's own condition holds the commit back; deletes are placed once more."""
    done = begun(table, splits=2)
    other = KeyedLake(Lake(table.lake.folder), table.info)
    other.logs, other.tiered = table.logs, table.tiered
    other.lake.rounds = 100
    failing(table.lake, [("before", lambda: other.compact(0, ours=False)) for _ in range(2)])
    table.commit(done)
    check(table)
    assert len(tags(table.lake, table.info)) == 2
    assert table.paths() == {f"file://{path}" for path in referenced(table.lake, table.info)}


def test_how_often_compactions_are_followed_is_bounded(lake):
    table = keyed(lake, **{"iceberg.commit.retry.num-retries": "2"})
    done = begun(table)
    other = KeyedLake(Lake(lake.folder), table.info)
    other.logs, other.tiered = table.logs, table.tiered
    left = failing(lake, [("before", lambda: other.compact(0, ours=False)) for _ in range(10)])
    with pytest.raises(CommitConflictError):
        table.commit(done)
    assert len(left) == 7
    # What was placed in between is gone; the writers' files are left for the abort.
    done.committer.abort(done.results)
    assert table.paths() == {f"file://{path}" for path in referenced(lake, table.info)}


def test_a_commit_that_landed_after_it_was_placed_again_keeps_its_files(table):
    done = begun(table, splits=2)
    table.compact(0, ours=False)
    failing(table.lake, [("after", ConnectionError("reset"))])
    table.commit(done)
    check(table)
    assert table.paths() == {f"file://{path}" for path in referenced(table.lake, table.info)}


def test_nothing_is_removed_while_the_outcome_is_unknown(table):
    done = begun(table, splits=2)
    table.compact(0, ours=False)
    failing(table.lake, [("before", ConnectionError("reset"))])
    before = table.paths()
    with pytest.raises(CommitOutcomeUnknownError):
        table.commit(done)
    assert before < table.paths()
    # It did not arrive; the same commit again does.
    table.commit(done)
    check(table)


def test_a_landed_commit_is_found_though_the_planned_snapshot_has_expired(table):
    """Expiry may run at any time: the commit is then found in what history is left."""
    done = begun(table)
    other = Lake(table.lake.folder)

    def expire():
        loaded = other.load(table.info)
        oldest = loaded.metadata.snapshots[0].snapshot_id
        assert oldest == done.planned
        loaded.maintenance.expire_snapshots().by_id(oldest).commit()
        raise ConnectionError("reset")

    catalog = table.lake.storage.access.catalog()
    real = catalog.commit_table

    def commit_table(*arguments):
        real(*arguments)
        catalog.commit_table = real
        expire()

    catalog.commit_table = commit_table
    mine = table.commit(done)
    assert mine == table.lake.load(table.info).metadata.current_snapshot_id
    check(table)


def test_a_planned_snapshot_that_is_gone_is_a_conflict(table):
    done = begun(table)
    done.planned = 12345
    with pytest.raises(CommitConflictError, match="12345, which is not in the table's history any more"):
        table.commit(done)


def test_a_property_that_others_set_in_between_is_not_lost(table):
    """The replay starts that a commit sets are made of those that it read."""
    done = begun(table)
    other = Lake(table.lake.folder)
    theirs = {"fluss.replay-start": '[{"bucket":0,"offset":40}]', "others": "x"}

    def raised():
        other.load(table.info).transaction().set_properties(theirs).commit_transaction()

    failing(table.lake, [("before", raised)])
    table.commit(done, **{"fluss-replay-start": '[{"bucket":0,"offset":7}]'})
    loaded = table.lake.load(table.info)
    assert starts(loaded.properties["fluss.replay-start"]) == {(None, 0): 40}
    assert loaded.properties["others"] == "x"
    assert starts(loaded.metadata.current_snapshot().summary["fluss-replay-start"]) == {(None, 0): 40}


def test_columns_that_others_add_in_between_do_not_matter(table):
    done = begun(table)
    other = Lake(table.lake.folder)
    failing(
        table.lake, [("before", lambda: other.load(table.info).update_schema().add_column("w", StringType()).commit())]
    )
    table.commit(done)
    loaded = table.lake.load(table.info)
    assert loaded.metadata.current_snapshot().schema_id == loaded.metadata.current_schema_id


def test_a_partition_spec_that_others_change_in_between_is_refused(table):
    done = begun(table)
    other = Lake(table.lake.folder)
    failing(table.lake, [("before", lambda: other.load(table.info).update_spec().add_identity("name").commit())])
    with pytest.raises(UnsupportedError, match="partition spec"):
        table.commit(done)
    assert table.lake.load(table.info).metadata.current_snapshot_id == done.planned


def test_a_full_disk_while_deletes_are_placed(table):
    done = begun(table, splits=3)
    table.compact(0, ours=False)
    files = table.paths()
    failpoints.arm("lake.place.after", "enospc")
    with pytest.raises(StorageError, match="No space left"):
        table.commit(done)
    assert table.paths() == files
    failpoints.disarm()
    table.commit(done)
    check(table)


@pytest.mark.parametrize("step", STEPS)
def test_a_commit_that_ends_between_two_steps_is_whole_or_not_there(table, step):
    done = begun(table, splits=2)
    table.compact(0, ours=False)
    newest = table.lake.load(table.info).metadata.current_snapshot_id
    failpoints.arm(step, "error")
    with pytest.raises(FailpointError):
        table.commit(done)
    failpoints.disarm()
    happened = table.lake.load(table.info).metadata.current_snapshot_id != newest
    assert happened == (step in {"lake.send.after", "lake.commit.after"})
    if happened:
        assert done.committer.missing_lake_snapshot(newest).properties["fluss-commit-id"] == done.commit_id
    table.commit(done)
    check(table, quickly=True)
    assert table.replayed() == {0: list(range(table.logs[0].end))}


KILLED = """
import sys
from pathlib import Path
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.commit.test_commit_attempts import begun, keyed, COLUMNS, QUICK
from tests.unit.lake.rounds import KeyedLake
from fluss_lab import failpoints
lake = Lake(Path(sys.argv[1]))
table = KeyedLake(lake, lake.info(COLUMNS, primary_key=["id"], buckets=1, properties=QUICK))
done = begun(table, 2)
table.compact(0, ours=False)
failpoints.arm(sys.argv[2], "kill")
table.commit(done)
"""


@pytest.mark.parametrize("step", ["lake.place.after", "lake.send.after"])
def test_a_process_that_is_killed_in_a_commit_leaves_orphans_at_most(lake, step):
    table = keyed(lake)
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(lake.folder), step],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[5])},
        check=False,
    )
    assert died.returncode == -9
    committer = lake.committer(table.info)
    missing = committer.missing_lake_snapshot(None)
    # The log as the dead process made it.
    bring(table.logs[0])
    replace_some(table.logs[0])
    table.tiered[0] = missing.offsets[(None, 0)].end
    check(table)
    assert table.tiered[0] in {10, table.logs[0].end}
    table.round()
    check(table)


def test_a_stage_that_fails_leaves_nothing(table):
    def stage(current) -> StagedSnapshot:
        raise UnsupportedError("no")

    with pytest.raises(UnsupportedError, match="no"):
        SnapshotCommits(table.lake.storage.access, table.info.path, "x").commit(stage, None, summary())
    assert table.lake.load(table.info).metadata.current_snapshot_id is None


def test_commits_on_top_of_anything(table):
    """As for the drop of a partition: the commit does not depend on what came between."""
    table.change(random.Random(5), 20)
    table.round()
    commits = SnapshotCommits(table.lake.storage.access, table.info.path, "x")
    mine = summary("mine")

    def stage(current):
        return stage_row_delta(current, [], [], mine)

    with pytest.raises(CommitConflictError):
        commits.commit(stage, None, mine)
    first = commits.commit(stage, None, mine, on_moved=lambda lake, newer: None)
    table.round()
    assert commits.commit(stage, None, mine, on_moved=lambda lake, newer: None) == first

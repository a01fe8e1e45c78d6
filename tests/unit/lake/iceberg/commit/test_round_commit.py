"""The committer: conditional commits, outcomes that are not what they seem, foreign commits, recovery, abort."""

import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Operation

from fluss_lab import failpoints
from fluss_lab.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    InternalError,
    StorageError,
    TableNotFoundError,
    UnavailableError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.iceberg.files import durable_io
from fluss_lab.lake.iceberg.metadata.snapshot_history import main_line
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.conftest import Lake, records, summary
from tests.unit.server.disks import fill, small_disk

COLUMNS = {"id": "bigint", "v": "string"}


def rows(info, count, first=0):
    return pa.RecordBatch.from_pylist(
        [{"id": first + i, "v": f"v{first + i}"} for i in range(count)], schema=info.schema.arrow_schema
    )


@pytest.fixture
def table(lake):
    waits = {"iceberg.commit.retry.min-wait-ms": "1", "iceberg.commit.status-check.min-wait-ms": "1"}
    return lake.table(COLUMNS, buckets=2, properties=waits)


def failing(lake, failures):
    """Have the catalog fail its next commits: (before or after the real one, with what)."""
    catalog = lake.storage.access.catalog()
    real = catalog.commit_table
    left = list(failures)

    def commit_table(*arguments):
        if not left:
            return real(*arguments)
        when, error = left.pop(0)
        if when == "after":
            real(*arguments)
        if callable(error):
            error()
            return real(*arguments)
        raise error

    catalog.commit_table = commit_table
    return left


def test_a_commit_is_one_snapshot_with_the_summary(lake, table):
    result = lake.write(table, records(rows(table, 5)), bucket=1)
    committer = lake.committer(table)
    assert committer.current_snapshot_id() is None
    given = summary("c1", [(None, 1, 5, 17)]) | {"fluss-tiering-epoch": "3"}
    snapshot_id = committer.commit(committer.to_committable([result]), None, given)
    assert committer.current_snapshot_id() == snapshot_id
    found = lake.load(table).current_snapshot()
    assert found.summary.operation == Operation.APPEND
    assert {key: found.summary[key] for key in given} == given
    assert found.summary["added-records"] == "5"
    assert json.loads(found.summary["fluss-bucket-offset"]) == [{"bucket": 1, "offset": 5, "max_timestamp": 17}]


def test_readers_see_all_buckets_of_a_round_at_once(lake, table):
    results = [lake.write(table, records(rows(table, 5 + bucket)), bucket=bucket) for bucket in (0, 1)]
    lake.commit(table, *results)
    lake.append(table, rows(table, 3, 5), 5)
    expected = [(0, 8), (1, 6)]
    counts = "select __bucket, count(*) as n from lake group by 1 order by 1"
    assert [
        tuple(row.values()) for row in duckdb_rows(lake.load(table).metadata_location, counts).to_pylist()
    ] == expected
    scanned = lake.load(table).scan().to_arrow().group_by("__bucket").aggregate([("id", "count")]).sort_by("__bucket")
    assert [tuple(row.values()) for row in scanned.to_pylist()] == expected


def test_a_commit_without_files_makes_a_snapshot_that_readers_read(lake, table):
    first = lake.commit(table)
    assert duckdb_rows(lake.load(table).metadata_location).num_rows == 0
    assert lake.load(table).scan().to_arrow().num_rows == 0
    lake.append(table, rows(table, 4))
    last = lake.commit(table)
    assert first != last
    assert duckdb_rows(lake.load(table).metadata_location).num_rows == 4
    assert lake.rows(table, last).num_rows == 4
    assert lake.rows(table, first).num_rows == 0


def test_a_stale_commit_fails_and_changes_nothing(lake, table):
    stale = lake.write(table, records(rows(table, 5)))
    newest = lake.append(table, rows(table, 5))
    committer = lake.committer(table)
    with pytest.raises(CommitConflictError, match=f"planned at snapshot None, but the newest is {newest}"):
        committer.commit(committer.to_committable([stale]), None, summary())
    assert committer.current_snapshot_id() == newest


def test_a_commit_between_planning_and_sending_fails(lake, table):
    """The other commit comes when ours is already on its way: the catalog's own condition must hold it back."""
    mine = lake.write(table, records(rows(table, 5)))
    other = Lake(lake.folder)
    committer = lake.committer(table)
    failing(lake, [("before", lambda: other.append(table, rows(table, 3)))])
    with pytest.raises(CommitConflictError):
        committer.commit(committer.to_committable([mine]), None, summary())
    assert lake.rows(table, committer.current_snapshot_id()).num_rows == 3


def test_a_change_of_properties_in_between_does_not_matter(lake, table):
    mine = lake.write(table, records(rows(table, 5)))
    other = Lake(lake.folder)
    failing(lake, [("before", lambda: other.load(table).transaction().set_properties({"a": "b"}).commit_transaction())])
    committer = lake.committer(table)
    snapshot_id = committer.commit(committer.to_committable([mine]), None, summary())
    assert lake.rows(table, snapshot_id).num_rows == 5
    assert lake.load(table).properties["a"] == "b"


def test_retries_of_refused_commits_are_bounded_by_the_tables_property(lake):
    table = lake.table(
        COLUMNS, properties={"iceberg.commit.retry.num-retries": "2", "iceberg.commit.retry.min-wait-ms": "1"}
    )
    left = failing(lake, [("before", CommitFailedException("busy"))] * 10)
    committer = lake.committer(table)
    with pytest.raises(CommitConflictError, match="nothing was committed: busy"):
        committer.commit(committer.to_committable([]), None, summary())
    assert len(left) == 7
    assert committer.current_snapshot_id() is None


@pytest.mark.parametrize(
    "error",
    [CommitFailedException("409"), CommitStateUnknownException("502"), ConnectionError("reset"), RuntimeError("what")],
)
def test_a_commit_that_landed_though_reported_as_failed_is_not_repeated(lake, table, error):
    mine = lake.write(table, records(rows(table, 5)))
    failing(lake, [("after", error)])
    committer = lake.committer(table)
    snapshot_id = committer.commit(committer.to_committable([mine]), None, summary())
    assert [snapshot.snapshot_id for snapshot in lake.load(table).snapshots()] == [snapshot_id]
    assert lake.rows(table, snapshot_id).num_rows == 5


@pytest.mark.parametrize("error", [CommitStateUnknownException("502"), ConnectionError("reset"), TimeoutError("late")])
def test_an_outcome_that_is_not_known_is_reported_and_the_files_stay(lake, table, error):
    mine = lake.write(table, records(rows(table, 5)))
    failing(lake, [("before", error)])
    committer = lake.committer(table)
    with pytest.raises(CommitOutcomeUnknownError, match="commit-1"):
        committer.commit(committer.to_committable([mine]), None, summary("commit-1"))
    assert Path(mine.files[0].file_path.removeprefix("file://")).exists()
    snapshot_id = committer.commit(committer.to_committable([mine]), None, summary("commit-1"))
    assert lake.rows(table, snapshot_id).num_rows == 5


def test_concurrent_committers_make_one_line(lake, table):
    """Each plans, commits, and plans again after a conflict; no commit gets lost or doubled."""
    won: list[tuple[str, int]] = []

    def work(number: int) -> None:
        mine = Lake(lake.folder)
        committer = mine.committer(table)
        for turn in range(4):
            commit_id = f"{number}-{turn}"
            for _ in range(1000):
                try:
                    planned = committer.current_snapshot_id()
                    won.append((commit_id, committer.commit(committer.to_committable([]), planned, summary(commit_id))))
                    break
                except CommitConflictError:
                    continue

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, number) for number in range(3)]:
            done.result()
    loaded = lake.load(table)
    line = list(main_line(loaded.metadata))
    assert len(line) == len(loaded.snapshots()) == 12
    assert {snapshot.summary["fluss-commit-id"]: snapshot.snapshot_id for snapshot in line} == dict(won)


def test_the_same_commit_again_returns_the_snapshot_that_it_made(lake, table):
    mine = lake.write(table, records(rows(table, 5)))
    committer = lake.committer(table)
    first = committer.commit(committer.to_committable([mine]), None, summary("same"))
    lake.append(table, rows(table, 2, 5), 5)
    assert committer.commit(committer.to_committable([mine]), None, summary("same")) == first
    with pytest.raises(CommitConflictError):
        committer.commit(committer.to_committable([]), first, summary("same"))


def test_a_locked_catalog_is_waited_for(tmp_path):
    lake = Lake(tmp_path / "a lab", uri=f"sqlite:///{tmp_path}/catalog/lake.db?timeout=0.01")
    table = lake.table(COLUMNS, properties={"iceberg.commit.retry.min-wait-ms": "1"})
    other = sqlite3.connect(tmp_path / "catalog" / "lake.db", check_same_thread=False)
    committer = lake.committer(table)

    def lock() -> None:
        other.execute("begin immediate")

    catalog = lake.storage.access.catalog()
    failing(lake, [("before", lock), ("before", other.rollback)])
    assert committer.commit(committer.to_committable([]), None, summary()) == committer.current_snapshot_id()
    other.close()
    assert catalog is lake.storage.access.catalog()


def test_a_commit_for_which_the_catalogs_disk_has_no_room_is_known_not_to_be_made(tmp_path):
    with small_disk(tmp_path / "disk", 4) as disk:
        lake = Lake(tmp_path / "a lab", uri=f"sqlite:///{disk}/lake.db")
        table = lake.table(COLUMNS)
        committer = lake.committer(table)
        ballast = fill(disk)
        # Not "may have happened": nobody has to look for it.
        with pytest.raises(StorageError, match="disk is full; nothing was committed") as refused:
            committer.commit(committer.to_committable([]), None, summary())
        assert "SQL:" not in str(refused.value)
        ballast.unlink()
        assert newest_to_others(lake) is None
        made = committer.commit(committer.to_committable([]), None, summary())
        assert newest_to_others(lake).snapshot_id == made
        lake.storage.access.catalog().engine.dispose()


@pytest.fixture
def read_locked(tmp_path):
    """A lake whose catalog's file somebody else reads in a transaction: others may begin to write, but not commit."""
    lake = Lake(tmp_path / "a lab", uri=f"sqlite:///{tmp_path}/catalog/lake.db?timeout=0.01")
    table = lake.table(COLUMNS, properties={"iceberg.commit.retry.min-wait-ms": "1"})
    reader = sqlite3.connect(tmp_path / "catalog" / "lake.db", isolation_level=None)
    reader.execute("begin")
    reader.execute("select * from iceberg_tables").fetchall()
    yield lake, table, reader
    reader.close()


def newest_to_others(lake):
    properties = dict(lake.storage.properties)
    return load_catalog(properties.pop("name"), **properties).load_table(("db", "t")).current_snapshot()


def test_a_commit_that_a_reader_kept_from_the_catalogs_file_is_not_taken_for_made(read_locked):
    lake, table, reader = read_locked
    committer = lake.committer(table)
    with pytest.raises(CommitConflictError, match="nothing was committed"):
        committer.commit(committer.to_committable([]), None, summary())
    assert committer.current_snapshot_id() is None
    reader.execute("rollback")
    assert newest_to_others(lake) is None
    made = committer.commit(committer.to_committable([]), None, summary())
    assert newest_to_others(lake).snapshot_id == made


def test_a_commit_waits_for_a_reader_of_the_catalogs_file(read_locked):
    lake, table, reader = read_locked
    committer = lake.committer(table)
    failing(lake, [("before", lambda: None), ("before", lambda: reader.execute("rollback"))])
    made = committer.commit(committer.to_committable([]), None, summary())
    assert newest_to_others(lake).snapshot_id == made


def test_a_table_that_a_reader_kept_from_the_catalogs_file_is_not_there(read_locked):
    lake, _, reader = read_locked
    with pytest.raises(UnavailableError, match="locked by another process"):
        lake.table(COLUMNS, name="other", table_id=8)
    reader.execute("rollback")
    made = lake.table(COLUMNS, name="other", table_id=8)
    committer = lake.committer(made)
    committer.commit(committer.to_committable([]), None, summary())


def test_to_committable_refuses_what_cannot_be_one_round(lake, table):
    committer = lake.committer(table)
    first, again = (lake.write(table, records(rows(table, 5), offset)) for offset in (0, 4))
    with pytest.raises(InternalError, match="offset 4"):
        committer.to_committable([again, first])
    stranger = lake.table(COLUMNS, name="other", table_id=8)
    with pytest.raises(InternalError, match="table id 7"):
        lake.committer(stranger).to_committable([first])
    with pytest.raises(InternalError, match="fluss-commit-id"):
        committer.commit(committer.to_committable([]), None, {})


def test_abort_removes_files_that_no_snapshot_refers_to(lake, table):
    kept = lake.write(table, records(rows(table, 5)))
    lake.commit(table, kept)
    lake.append(table, rows(table, 5, 5), 5)
    lost = lake.write(table, records(rows(table, 5, 10), 10))
    lake.committer(table).abort([kept, lost])
    exists = [Path(result.files[0].file_path.removeprefix("file://")).exists() for result in (kept, lost)]
    assert exists == [True, False]


def test_abort_removes_nothing_when_it_cannot_tell(lake, table):
    lost = lake.write(table, records(rows(table, 5)))
    lake.catalog.drop_table(table.path, 7, keep=True)
    lake.committer(table).abort([lost])
    assert Path(lost.files[0].file_path.removeprefix("file://")).exists()


def test_nothing_refers_to_a_file_before_it_is_durable(lake, table, monkeypatch):
    """What is synced, and where the catalog's pointer is at that moment."""
    synced: dict[str, str | None] = {}

    def watched(real):
        def sync(path):
            real(path)
            with sqlite3.connect(lake.folder / "catalog" / "lake.db") as catalog:
                pointer = catalog.execute("select metadata_location from iceberg_tables").fetchone()
            catalog.close()
            synced[str(path)] = pointer[0] if pointer else None

        return sync

    for name in ("fsync_path", "fsync_folder"):
        monkeypatch.setattr(f"fluss_lab.lake.iceberg.files.durable_io.{name}", watched(getattr(durable_io, name)))
    result = lake.write(table, records(rows(table, 5)))
    data = Path(result.files[0].file_path.removeprefix("file://"))
    location = Path(lake.load(table).location().removeprefix("file://"))
    assert {str(data), str(data.parent), str(data.parent.parent), str(location)} <= set(synced)
    synced.clear()
    before = lake.load(table).metadata_location
    lake.commit(table, result)
    after = lake.load(table)
    snapshot = after.current_snapshot()
    referred = [
        after.metadata_location,
        snapshot.manifest_list,
        *(m.manifest_path for m in snapshot.manifests(after.io)),
    ]
    for path in [*(each.removeprefix("file://") for each in referred), str(location / "metadata")]:
        assert synced[path] == before, path


def test_the_number_of_manifests_stays_bounded(lake, table):
    counts = []
    for i in range(45):
        lake.append(table, rows(table, 1, i), i)
        counts.append(len(lake.load(table).current_snapshot().manifests(lake.load(table).io)))
    assert max(counts) <= 20
    assert duckdb_rows(lake.load(table).metadata_location).num_rows == 45
    assert lake.load(table).scan().to_arrow().num_rows == 45


def test_old_metadata_files_go(lake):
    table = lake.table(COLUMNS, properties={"iceberg.write.metadata.previous-versions-max": "3"})
    for _ in range(8):
        lake.commit(table)
    assert len(list(lake.folder.rglob("*.metadata.json"))) == 4


def test_a_full_disk_commits_nothing_and_leaves_no_manifests(lake, table):
    mine = lake.write(table, records(rows(table, 5)))
    committer = lake.committer(table)
    failpoints.arm("lake.commit.after_metadata", "enospc")
    with pytest.raises(StorageError, match="No space left"):
        committer.commit(committer.to_committable([mine]), None, summary())
    failpoints.disarm()
    assert committer.current_snapshot_id() is None
    assert not list(lake.folder.rglob("*.avro"))
    assert committer.commit(committer.to_committable([mine]), None, summary())


@pytest.mark.parametrize(("point", "happened"), [("before", False), ("after_metadata", False), ("after", True)])
def test_failpoints_of_the_commit(lake, table, point, happened):
    mine = lake.write(table, records(rows(table, 5)))
    committer = lake.committer(table)
    failpoints.arm(f"lake.commit.{point}", "error")
    with pytest.raises(FailpointError):
        committer.commit(committer.to_committable([mine]), None, summary("x"))
    failpoints.disarm()
    assert (committer.missing_lake_snapshot(None) is not None) == happened
    snapshot_id = committer.commit(committer.to_committable([mine]), None, summary("x"))
    assert lake.rows(table, snapshot_id).num_rows == 5


KILLED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.commit.test_round_commit import COLUMNS, rows
lake = Lake(Path(sys.argv[1]))
info = lake.info(COLUMNS, buckets=2)
lake.append(info, rows(info, 5))
"""


@pytest.mark.parametrize(("point", "happened"), [("before", 0), ("after_metadata", 0), ("after", 5)])
def test_a_process_that_dies_in_a_commit_leaves_all_or_nothing(lake, point, happened):
    table = lake.table(COLUMNS, buckets=2)
    environment = os.environ | {
        "FLUSS_LAB_FAILPOINTS": f"lake.commit.{point}=kill",
        "PYTHONPATH": str(Path(__file__).parents[5]),
    }
    died = subprocess.run([sys.executable, "-c", KILLED, str(lake.folder)], env=environment, check=False)
    assert died.returncode == -9
    assert lake.load(table).scan().to_arrow().num_rows == happened
    lake.append(table, rows(table, 5, happened), happened)
    assert duckdb_rows(lake.load(table).metadata_location).num_rows == happened + 5


def test_a_table_that_is_gone(lake, table):
    lake.catalog.drop_table(table.path, 7)
    committer = lake.committer(table)
    for call in (committer.current_snapshot_id, lambda: committer.missing_lake_snapshot(None)):
        with pytest.raises(TableNotFoundError):
            call()
    with pytest.raises(TableNotFoundError):
        lake.factory.describe_table(table)
    with pytest.raises(TableNotFoundError):
        committer.commit(committer.to_committable([]), None, summary())

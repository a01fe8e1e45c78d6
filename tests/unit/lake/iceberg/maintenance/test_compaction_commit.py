"""The two snapshots of a compaction: one that says what was removed, and the newest, which readers open nothing of in vain."""

import random

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import StaticTable

from fluss_lab import failpoints
from fluss_lab.failpoints import FailpointError
from fluss_lab.testing.readers import duckdb_connection, duckdb_rows
from tests.unit.lake.changelogs import same_rows
from tests.unit.lake.iceberg.commit.test_rest_commits import QUICK, RestLake
from tests.unit.lake.nessie_like_server import NessieLikeServer
from tests.unit.lake.rounds import tags
from tests.unit.lake.upkeep import Upkeep, check, keyed_lake

pytestmark = pytest.mark.slow


@pytest.fixture
def keyed(lake):
    return with_rounds(keyed_lake(lake, 2), 5)


def with_rounds(keyed, count):
    rng = random.Random(3)
    for _ in range(count):
        keyed.change(rng, 30)
        keyed.round()
    return keyed


def entries_of(table, snapshot, *statuses) -> dict[str, int]:
    """Return the files of a snapshot's manifests, with the snapshot that each entry names, by their status there."""
    return {
        entry.data_file.file_path: entry.snapshot_id
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status in statuses
    }


LIVE = (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING)
GONE = (ManifestEntryStatus.DELETED,)


def test_the_newest_snapshot_lists_only_what_is_live(lake, keyed):
    Upkeep(lake, keyed.info).compact()
    table = lake.load(keyed.info)
    manifests = table.current_snapshot().manifests(table.io)
    assert [(each.content, each.added_files_count, each.deleted_files_count) for each in manifests] == [
        (ManifestContent.DATA, 2, 0)
    ]
    check(keyed, Upkeep(lake, keyed.info))


def test_other_readers_count_by_the_metadata_alone(lake, keyed):
    Upkeep(lake, keyed.info).compact()
    location = lake.load(keyed.info).metadata_location
    rows = keyed.all_rows().num_rows
    with duckdb_connection() as connection:
        query = f"select count(*) from iceberg_scan('{location.removeprefix('file://')}')"
        plan = connection.execute(f"explain {query}").fetchall()[0][1]
        assert "ICEBERG_SCAN" not in plan
        assert connection.execute(query).fetchall() == [(rows,)]
    scan = StaticTable.from_metadata(location).scan()
    assert [len(task.delete_files) for task in scan.plan_files()] == [0, 0]
    assert scan.count() == rows


def test_what_was_removed_is_in_the_snapshot_before_for_writers_who_look_for_it(lake, keyed):
    """As Iceberg's own look for it: in the manifests that a snapshot since theirs added."""
    planned = lake.load(keyed.info).current_snapshot()
    done = Upkeep(lake, keyed.info).compact()
    table = lake.load(keyed.info)
    newest = table.current_snapshot()
    first = table.snapshot_by_id(newest.parent_snapshot_id)
    assert (done.snapshot_id, first.parent_snapshot_id) == (newest.snapshot_id, planned.snapshot_id)
    assert [each.summary.operation.value for each in (first, newest)] == ["replace", "replace"]
    assert (first.sequence_number, newest.sequence_number) == (planned.sequence_number + 1, planned.sequence_number + 2)
    before = entries_of(table, planned, *LIVE)
    assert len(before) == done.files_before
    assert entries_of(table, first, *GONE) == dict.fromkeys(before, first.snapshot_id)
    assert all(
        each.added_snapshot_id == first.snapshot_id for each in first.manifests(table.io) if each.deleted_files_count
    )
    assert entries_of(table, newest, *LIVE) == entries_of(table, first, *LIVE)
    assert first.snapshot_id not in {each.snapshot_id for each in table.metadata.snapshot_log}
    both = [table.scan(snapshot_id=each.snapshot_id).to_arrow().sort_by("__offset") for each in (first, newest)]
    assert same_rows(*both)


def test_both_say_what_tiering_says_and_the_newest_keeps_the_totals(lake, keyed):
    Upkeep(lake, keyed.info).compact()
    table = lake.load(keyed.info)
    newest = table.current_snapshot()
    first = table.snapshot_by_id(newest.parent_snapshot_id)
    for key in ("commit-user", "fluss-commit-id", "fluss-bucket-offset", "total-records", "total-data-files"):
        assert first.summary[key] == newest.summary[key] is not None, key
    assert newest.summary["total-position-deletes"] == "0"
    assert (newest.summary["manifests-kept"], newest.summary["added-data-files"]) == ("1", None)


def test_a_compaction_is_one_of_the_listed_snapshots(lake, keyed):
    upkeep = Upkeep(lake, keyed.info)
    before = upkeep.maintenance.snapshots()
    done = upkeep.compact()
    *rounds, compaction = upkeep.maintenance.snapshots()
    listed, known = ([each.snapshot_id for each in found] for found in (rounds, before))
    assert listed == known
    assert (compaction.snapshot_id, compaction.operation) == (done.snapshot_id, "replace")
    assert (compaction.added_files, compaction.added_rows) == (2, compaction.rows)
    assert (compaction.offsets, compaction.complete) == (before[-1].offsets, True)
    keyed.round()
    assert len(upkeep.maintenance.snapshots()) == len(before) + 2


def test_expiry_of_the_first_alone_takes_nothing_of_the_newest(lake, keyed):
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    upkeep.clock.advance(2 * 3_600_000)
    done = upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1)
    table = lake.load(keyed.info)
    assert len(table.metadata.snapshots) == 2  # The newest, and the one that the tag keeps.
    assert len(done.snapshot_ids) == 5
    check(keyed, upkeep)
    assert upkeep.orphans() == []


@pytest.mark.parametrize("step", ["lake.manifest_list.after", "lake.send.before", "lake.send.after"])
def test_both_come_or_none(lake, keyed, step):
    upkeep = Upkeep(lake, keyed.info)
    before = len(lake.load(keyed.info).metadata.snapshots)
    plan = upkeep.plan()
    results = upkeep.run(plan)
    failpoints.arm(step, "error")
    with pytest.raises(FailpointError):
        upkeep.commit(plan, results)
    failpoints.disarm()
    happened = step == "lake.send.after"
    assert len(lake.load(keyed.info).metadata.snapshots) == before + 2 * happened
    assert len(tags(lake, keyed.info)) == happened
    check(keyed, upkeep)


def test_a_catalog_that_shows_the_newest_only_is_followed_across_both(tmp_path):
    """What a compaction committed before its tierer died is registered, though the cluster knows the planned snapshot."""
    with NessieLikeServer(tmp_path / "rest", hides_history=True) as hiding:
        lake = RestLake(hiding)
        keyed = with_rounds(keyed_lake(lake, 2, properties=QUICK), 3)
        known = lake.load(keyed.info).metadata.current_snapshot_id
        done = Upkeep(lake, keyed.info).compact()
        found = lake.committer(keyed.info).missing_lake_snapshot(known)
        assert found.snapshot_id == done.snapshot_id
        assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == keyed.tiered
        rows = duckdb_rows(lake.load(keyed.info).metadata_location)
        assert rows.num_rows == keyed.all_rows().num_rows


def test_a_table_without_a_snapshot_lists_none(lake):
    assert Upkeep(lake, keyed_lake(lake).info).maintenance.snapshots() == []

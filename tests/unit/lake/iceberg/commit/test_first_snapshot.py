"""First commits to tables in REST catalogs that do not look whether there is a snapshot already."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from fluss_lab.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    LakeSnapshotNotFoundError,
    LakeTableExistsError,
    ServerUnavailableError,
)
from fluss_lab.model import PartitionInfo
from tests.unit.lake.conftest import records
from tests.unit.lake.iceberg.commit.test_rest_commits import COLUMNS, QUICK, RestLake, commit, rows_of
from tests.unit.lake.iceberg.table.test_schema_evolution import altered
from tests.unit.lake.nessie_like_server import NessieLikeServer
from tests.unit.lake.rest_server import Fault

pytestmark = pytest.mark.slow


@pytest.fixture
def rest(tmp_path):
    with NessieLikeServer(tmp_path / "rest") as found:
        yield found


def planned(lake, info, *ids):
    """A round: its committer, what it is planned at, what it has written."""
    committer = lake.committer(info)
    lake.rounds += 1
    at = committer.current_snapshot_id()
    return committer, at, lake.write(info, records(pa.record_batch({"id": ids})))


def without_snapshots(rest, info):
    """The table as a creation left it that was cut off before its first snapshot."""
    made = rest.catalog.load_table((info.path.database, info.path.table))
    ids = [each.snapshot_id for each in made.metadata.snapshots]
    rest.catalog.commit_table(made, (), (RemoveSnapshotsUpdate(snapshot_ids=ids),))


def test_the_second_of_two_first_rounds_is_refused(rest):
    lake, other = RestLake(rest), RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    first, second = planned(lake, info, 1, 2), planned(other, info, 3)
    mine = commit(*first)
    with pytest.raises(CommitConflictError):
        commit(*second, "other")
    assert rows_of(lake, info) == [1, 2]
    assert lake.committer(info).missing_lake_snapshot(None).snapshot_id == mine


def test_first_rounds_at_once_lose_nothing(rest):
    info = RestLake(rest).table(COLUMNS, properties=QUICK)
    ready = threading.Barrier(4)

    def tier(number):
        done = planned(RestLake(rest), info, number)
        ready.wait()
        try:
            commit(*done, f"round {number}")
        except CommitConflictError:
            return []
        return [number]

    with ThreadPoolExecutor(4) as pool:
        committed = [number for found in pool.map(tier, range(4)) for number in found]
    assert len(committed) == 1
    assert rows_of(RestLake(rest), info) == committed


def test_a_table_without_a_snapshot_gets_an_empty_one_before_the_first_round(rest):
    lake, other = RestLake(rest), RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    without_snapshots(rest, info)
    first, second = planned(lake, info, 1, 2), planned(other, info, 3)
    assert first[1] is None
    mine = commit(*first)
    with pytest.raises(CommitConflictError):
        commit(*second, "other")
    line = rest.catalog.load_table((info.path.database, info.path.table)).metadata.snapshots
    assert [each.summary.operation.value for each in line] == ["replace", "append"]
    assert line[1].snapshot_id == mine
    assert line[1].parent_snapshot_id == line[0].snapshot_id
    assert rows_of(lake, info) == [1, 2]


def test_the_empty_snapshot_is_nothing_that_happened(rest):
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    committer = lake.committer(info)
    begun = committer.current_snapshot_id()
    assert begun is not None
    assert committer.missing_lake_snapshot(None) is None
    assert committer.newest_lake_snapshot() is None
    assert rows_of(lake, info) == []
    # Creation again: of the same table, of a strange one, and of one whose first creation was cut off in the cluster.
    lake.catalog.create_table(info)
    assert committer.current_snapshot_id() == begun
    with pytest.raises(LakeTableExistsError):
        lake.table({"id": "string"}, table_id=8, properties=QUICK)
    info = lake.table(COLUMNS, table_id=8, properties=QUICK)
    committer, at, written = planned(lake, info, 1)
    assert at == begun
    mine = commit(committer, at, written)
    found = committer.missing_lake_snapshot(None)
    assert found.snapshot_id == mine
    assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == {0: 1}
    lake.catalog.create_table(info)
    assert committer.current_snapshot_id() == mine


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("status", [409, 500, None])
def test_a_first_snapshot_of_unknown_outcome(rest, status, done):
    """Whether creation says so or not: made again it is whole."""
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    without_snapshots(rest, info)
    rest.faults = [Fault("commit", status, done=done)]
    if status != 409:
        with pytest.raises((CommitOutcomeUnknownError, ServerUnavailableError)):
            lake.catalog.create_table(info)
    lake.catalog.create_table(info)
    assert not rest.faults
    assert rows_of(lake, info) == []
    commit(*planned(lake, info, 7))
    assert rows_of(lake, info) == [7]


@pytest.fixture
def hiding(tmp_path):
    with NessieLikeServer(tmp_path / "hiding", hides_history=True) as found:
        yield found


def test_what_a_hidden_history_may_say_is_not_taken_for_nothing(hiding):
    lake = RestLake(hiding)
    info = lake.table(COLUMNS, properties=QUICK, buckets=2)
    committer = lake.committer(info)
    assert committer.missing_lake_snapshot(None) is None
    rows = pa.record_batch({"id": [1, 2]})
    first = lake.append(info, rows)
    assert lake.committer(info).missing_lake_snapshot(None).snapshot_id == first
    second = lake.append(info, rows, 2)
    committer = lake.committer(info)
    with pytest.raises(LakeSnapshotNotFoundError, match=r"shows none before .* sequence number is 3.*--adopt"):
        committer.missing_lake_snapshot(None)
    assert committer.missing_lake_snapshot(second) is None


def test_a_snapshot_that_is_not_shown_is_followed_where_the_next_one_says_so(hiding):
    """What a round committed before it died is registered; what is known of no line of snapshots stays an error."""
    lake = RestLake(hiding)
    info = lake.table(COLUMNS, properties=QUICK, buckets=2)
    rows = pa.record_batch({"id": [1, 2]})
    first = lake.append(info, rows)
    second = lake.append(info, rows, 2)
    assert [each.parent_snapshot_id for each in lake.load(info).metadata.snapshots] == [None]
    found = lake.committer(info).missing_lake_snapshot(first)
    assert found.snapshot_id == second
    assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == {0: 4}
    third = lake.append(info, rows, 4)
    with pytest.raises(LakeSnapshotNotFoundError, match="not in the main branch's history"):
        lake.committer(info).missing_lake_snapshot(first)
    foreign = lake.load(info)
    foreign.append(foreign.scan().to_arrow().slice(0, 0))
    with pytest.raises(LakeSnapshotNotFoundError, match="not in the main branch's history"):
        lake.committer(info).missing_lake_snapshot(third)


def test_snapshots_without_offsets_are_followed_back_to_one_with_them(hiding):
    lake = RestLake(hiding)
    info = lake.table({"id": "bigint", "p": "string"}, partitioned_by=["p"], properties=QUICK)
    first = lake.load(info).metadata.current_snapshot_id
    for number in (1, 2, 3):
        lake.catalog.drop_partition(info, PartitionInfo(number, f"p{number}"))
    assert lake.committer(info).missing_lake_snapshot(first).offsets == {}
    with pytest.raises(LakeSnapshotNotFoundError):
        lake.committer(info).missing_lake_snapshot(first + 1)


def test_snapshots_without_offsets_before_the_first_round_hide_nothing(hiding):
    lake = RestLake(hiding)
    info = lake.table({"id": "bigint", "p": "string"}, partitioned_by=["p"], properties=QUICK)
    for number in (1, 2):
        lake.catalog.drop_partition(info, PartitionInfo(number, f"p{number}"))
    assert lake.load(info).metadata.last_sequence_number == 3
    assert lake.committer(info).missing_lake_snapshot(None).offsets == {}


def test_an_expired_history_is_none_that_is_hidden(rest):
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    snapshots = [lake.append(info, pa.record_batch({"id": [number]}), number) for number in range(4)]
    loaded = rest.catalog.load_table((info.path.database, info.path.table))
    gone = [each.snapshot_id for each in loaded.metadata.snapshots if each.snapshot_id != snapshots[3]]
    done = rest.catalog.commit_table(loaded, (), (RemoveSnapshotsUpdate(snapshot_ids=gone),))
    assert [each.parent_snapshot_id for each in done.metadata.snapshots] == [None]
    found = lake.committer(info).missing_lake_snapshot(None)
    assert found.snapshot_id == snapshots[3]
    assert {bucket: offset.end for (_, bucket), offset in found.offsets.items()} == {0: 4}


def test_columns_are_added_with_the_last_ones_id(rest):
    rest.credential = "me:right"
    lake = RestLake(rest)
    info = lake.table(COLUMNS, properties=QUICK)
    rest.expire_tokens()
    lake.catalog.alter_table(altered(info, note="string"))
    assert lake.load(info).schema().column_names[:2] == ["id", "note"]
    rest.faults = [Fault("commit", 409), Fault("commit", 500, done=True)]
    with pytest.raises(CommitOutcomeUnknownError):
        lake.catalog.alter_table(altered(altered(info, note="string"), more="int"))
    lake.catalog.alter_table(altered(altered(info, note="string"), more="int"))
    assert lake.load(info).schema().column_names[:3] == ["id", "note", "more"]

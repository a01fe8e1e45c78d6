"""A partition dropped from cluster and lake at any moment of the table's tiering: its rows go, everybody else's stay."""

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import FlussError, InternalError, PartitionExistsError, PartitionNotFoundError
from fluss_lab.lake.snapshot_summary import COMMIT_USER, COMMIT_USER_KEY
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import wait_until
from fluss_lab.tiering.round.commit_recovery import CommitRecovery
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter

pytestmark = pytest.mark.slow

OLD, NEW = "2013-01", "2013-02"


@pytest.fixture
def months(tables):
    """A table of two months, with rows of both."""
    info = tables.create(partitioned_by=["month"], buckets=2)
    tables.append(info, 20, OLD)
    tables.append(info, 10, NEW)
    return info


def drop(tables, info, month=OLD, lake=True):
    tables.connection.admin().drop_partition(info.path, {"month": month}, lake=lake)


def per_month(tables, info) -> dict[str, int]:
    months = tables.lake_rows(info)["month"].to_pylist()
    return {month: months.count(month) for month in sorted(set(months))}


def read_per_month(tables, info) -> dict[str, int]:
    months = TableReader(tables.connection, info.path).scan(columns=["month"]).to_arrow()["month"].to_pylist()
    return {month: months.count(month) for month in sorted(set(months))}


def test_its_rows_leave_the_lake_and_its_name_is_free(tables, months):
    tables.tier(months)
    drop(tables, months)
    assert per_month(tables, months) == {NEW: 10}
    assert read_per_month(tables, months) == {NEW: 10}
    newest = tables.lake(months).current_snapshot()
    assert newest.summary.operation.value == "delete"
    assert newest.summary.additional_properties[COMMIT_USER_KEY] == COMMIT_USER
    tables.append(months, 5, OLD)
    tables.append(months, 5, NEW)
    tables.tier(months)
    assert per_month(tables, months) == {OLD: 5, NEW: 15}
    assert read_per_month(tables, months) == {OLD: 5, NEW: 15}
    offsets = tables.lake_rows(months).filter(pa.compute.field("month") == OLD)["__offset"].to_pylist()
    assert max(offsets) < 5
    with pytest.raises(PartitionNotFoundError):
        drop(tables, months, "2014-01")


def test_a_partition_that_was_dropped_before_can_go_from_the_lake_later(tables, months):
    tables.tier(months)
    drop(tables, months, lake=False)
    assert read_per_month(tables, months) == {OLD: 20, NEW: 10}
    with pytest.raises(PartitionExistsError, match="lake=True"):
        tables.connection.admin().create_partition(months.path, {"month": OLD})
    drop(tables, months)
    assert read_per_month(tables, months) == {NEW: 10}
    tables.connection.admin().create_partition(months.path, {"month": OLD})


def test_nothing_was_tiered_yet(tables, months):
    drop(tables, months)
    tables.tier(months)
    assert per_month(tables, months) == {NEW: 10}
    tables.append(months, 3, OLD)
    tables.tier(months)
    assert per_month(tables, months) == {OLD: 3, NEW: 10}


def test_a_table_without_a_lake(tables):
    info = tables.create(partitioned_by=["month"], properties={"table.datalake.enabled": False})
    tables.append(info, 3, OLD)
    drop(tables, info)
    tables.append(info, 2, OLD)
    assert read_per_month(tables, info) == {OLD: 2}


@pytest.mark.parametrize("was_tiered", [True, False])
@pytest.mark.parametrize(
    "moment", ["tiering.heartbeat.after", "tiering.plan.after", "tiering.write.after", "tiering.lake_commit.before"]
)
def test_dropped_during_a_round(tables, months, moment, was_tiered):
    """The round had planned or even written its rows: none of them may come to the lake, and all others must."""
    if was_tiered:
        tables.tier(months)
        tables.append(months, 20, OLD)
        tables.append(months, 10, NEW)
    failpoints.arm(moment, lambda: drop(tables, months))
    report = tables.tier(months)
    assert failpoints.passes(moment)
    assert report.rows == 10
    expected = {NEW: 20 if was_tiered else 10}
    assert per_month(tables, months) == expected
    # The same name again, of another partition: what was said of the first one says nothing of it.
    tables.append(months, 7, OLD)
    tables.tier(months)
    assert per_month(tables, months) == expected | {OLD: 7}
    assert read_per_month(tables, months) == expected | {OLD: 7}


def test_dropped_between_the_partitions_and_the_snapshot_of_a_plan(tables, months, monkeypatch):
    """What is planned from a snapshot after the drop must not hold rows of the partition."""
    tables.tier(months)
    tables.append(months, 20, OLD)
    tables.append(months, 10, NEW)
    real, done = CommitRecovery._known_snapshot, []

    def late(self, table):
        if not done:
            done.append(drop(tables, months))
        return real(self, table)

    monkeypatch.setattr(CommitRecovery, "_known_snapshot", late)
    tables.tier(months)
    assert per_month(tables, months) == {NEW: 20}


@pytest.mark.parametrize("again", [False, True])
def test_dropped_between_lake_and_cluster(tables, months, again):
    """The round committed its rows to the lake and did not live to tell: the rest of them must not come twice."""
    tables.tier(months)
    tables.append(months, 20, OLD)
    tables.append(months, 10, NEW)
    failpoints.arm("tiering.lake_commit.after", "error@1")
    with pytest.raises(Exception, match="failpoint"):
        tables.tier(months)
    drop(tables, months)
    if again:
        tables.append(months, 4, OLD)
    tables.tier(months)
    assert per_month(tables, months) == ({OLD: 4} if again else {}) | {NEW: 20}
    assert read_per_month(tables, months) == per_month(tables, months)


def test_the_round_tells_of_it_after_it_is_gone(tables, months, monkeypatch):
    """The lake commit came before the drop, and the word of it comes after: it is heard but for that partition."""
    tables.tier(months)
    tables.append(months, 20, OLD)
    tables.append(months, 10, NEW)
    real, done = FlussTableLakeSnapshotCommitter.commit, []

    def late(self, *arguments):
        if not done:
            done.append(drop(tables, months))
        return real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(FlussTableLakeSnapshotCommitter, "commit", late)
        assert tables.tier(months).rows == 30
    assert {offset.partition for offset in tables.known(months).offsets.values()} == {NEW}
    tables.append(months, 6, OLD)
    assert read_per_month(tables, months) == {OLD: 6, NEW: 20}
    tables.tier(months)
    assert per_month(tables, months) == {OLD: 6, NEW: 20}


@pytest.mark.parametrize("point", ["coordinator.ddl.after_commit", "coordinator.ddl.after_lake_partition"])
def test_a_drop_that_was_cut_off_is_finished_later(tables, months, point):
    tables.tier(months)
    failpoints.arm(point, "error@1")
    with pytest.raises(InternalError):
        drop(tables, months)
    tables.cluster.restart()
    failpoints.disarm()
    # By itself (the coordinator takes care of what was left), or by whoever wants the name.
    tables.append(months, 4, OLD)
    assert read_per_month(tables, months) == {OLD: 4, NEW: 10}
    tables.tier(months)
    assert per_month(tables, months) == {OLD: 4, NEW: 10}


def test_a_lake_that_refuses_is_asked_again(tables, months):
    tables.tier(months)
    catalog = tables.cluster.node._coordinator._partitions._lake.tables()._load_once()
    real = catalog.drop_partition

    def refuse(table, partition):
        raise FlussError("not today")

    catalog.drop_partition = refuse
    with pytest.raises(FlussError, match="not today"):
        drop(tables, months)
    assert [each.name for each in tables.connection.admin().partitions(months.path)] == [NEW]
    with pytest.raises(FlussError, match="not today"):
        tables.connection.admin().create_partition(months.path, {"month": OLD})
    catalog.drop_partition = real
    tables.cluster.node._coordinator._ticker.soon()
    wait_until(lambda: per_month(tables, months) == {NEW: 10})
    tables.append(months, 2, OLD)


def test_deleting_it_again_changes_nothing(tables, months):
    """As after a crash between lake and metadata: the commit is recognised by its id."""
    from fluss_lab.model import PartitionInfo

    tables.tier(months)
    partition = next(each for each in tables.connection.admin().partitions(months.path) if each.name == OLD)
    catalog = tables.storage.create_lake_catalog()
    catalog.drop_partition(months, partition)
    before = tables.lake(months).current_snapshot().snapshot_id
    catalog.drop_partition(months, partition)
    assert tables.lake(months).current_snapshot().snapshot_id == before
    catalog.drop_partition(months, PartitionInfo(99, "never there"))
    assert per_month(tables, months) == {NEW: 10}

"""The history of a table's rounds as tierers report it: done, failed, cut off; after restarts of the cluster too."""

import pytest

from fluss_lab.errors import StorageError, TableNotFoundError
from fluss_lab.model import TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.maintenance.manual_maintenance import NoTieringExecutor, maintain
from fluss_lab.tiering.round.round_options import TieringOptions

pytestmark = pytest.mark.slow


def rounds(tables, info):
    return tables.connection.admin().tiering_rounds(info.path)


class Failing(LocalTieringExecutor):
    """Fails before any task ran."""

    def run(self, tasks, progress=None):
        raise StorageError("no room: free some")


def test_a_round_is_kept_with_what_it_did_and_how_far_the_lake_lagged(tables):
    info = tables.create(buckets=2)
    tables.append(info, 500)
    report = tables.tier(info)
    tables.append(info, 20)
    (found,) = rounds(tables, info)
    assert (found.epoch, found.rows, found.events, found.files) == (report.epoch, 500, 0, report.files)
    assert (found.size_bytes, found.splits, found.snapshot_id) == (report.bytes, report.splits, report.snapshot_id)
    assert (found.state, found.error, found.error_class, found.idle_before) == ("done", None, None, 0)
    assert (found.before.records, found.after.records, found.after.ms) == (500, 0, 0)
    assert found.before.ms >= 0
    assert set(found.seconds) == {"plan", "write", "commit", "maintain", "total"}
    for stage in ("plan", "write", "commit"):
        assert found.seconds[stage] == pytest.approx(report.seconds[stage], abs=0.001)
    assert found.seconds["total"] <= report.seconds["total"] + 0.001
    assert found.end_ms >= found.start_ms


def test_what_a_limit_leaves_is_the_lag_after(tables):
    info = tables.create()
    tables.append(info, 100)
    tables.tier(info, options=TieringOptions(round_records_max=30))
    (found,) = rounds(tables, info)
    assert (found.state, found.rows, found.before.records, found.after.records) == ("limited", 30, 100, 70)
    assert found.after.ms > 0


def test_a_failed_round_is_kept_with_class_and_text_and_what_lagged(tables):
    info = tables.create()
    tables.append(info, 40)
    with pytest.raises(StorageError):
        tables.tier(info, executor=Failing())
    (found,) = rounds(tables, info)
    assert (found.state, found.error_class, found.error) == ("failed", "StorageError", "no room: free some")
    assert (found.rows, found.before.records, found.after) == (None, 40, None)
    assert found.seconds["plan"] > 0


def test_the_history_survives_a_restart_and_goes_with_its_table(tables):
    info = tables.create()
    for number in range(3):
        tables.append(info, 10 + number)
        tables.tier(info)
    before = rounds(tables, info)
    assert [each.rows for each in before] == [10, 11, 12]
    tables.cluster.restart()
    assert rounds(tables, info) == before
    tables.connection.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        rounds(tables, info)
    again = tables.create()
    assert again.table_id != info.table_id
    assert rounds(tables, again) == []


def test_upkeep_by_hand_is_no_round_and_a_table_without_a_lake_has_none(tables):
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    (tiered,) = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tiering_states
    maintain(tables.connection, tables.storage, NoTieringExecutor(), lambda held: held.expire(), table_id=info.table_id)
    assert [each.rows for each in rounds(tables, info)] == [10]
    (kept,) = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tiering_states
    assert kept.last_tiered_time == tiered.last_tiered_time
    plain = tables.create("plain", properties={"table.datalake.enabled": False})
    assert rounds(tables, plain) == []
    with pytest.raises(TableNotFoundError):
        tables.connection.admin().tiering_rounds(TablePath("db", "nothing"))

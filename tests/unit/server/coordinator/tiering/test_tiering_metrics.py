"""What the metrics page tells of tiering: Fluss's names, and true at each step of a round."""

import pytest

from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.coordinator_gauges import tiering_families
from fluss_lab.server.coordinator.tiering.tierer_heartbeats import answer_heartbeat
from tests.unit.server.coordinator.tiering.states_kit import FRESHNESS_MS, Bench

TABLE = "coordinator_lakeTiering_table_"


class NoSessions:
    """Nobody is attached."""

    def is_open(self, _session_id):
        return False


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def metrics(bench):
    """Return each metric of the only table, and the counts of tables, by name."""
    families = tiering_families(bench.tiering.states(), bench.tiering.stats, bench.clock.now_ms())
    return {each.name.removeprefix("fluss_"): each.samples[0].value for each in families if each.samples}


def beat(bench, **tables):
    request = pb.LakeTieringHeartbeatRequest(**tables)
    return answer_heartbeat(request, bench.tiering, NoSessions(), bench.epoch)


def reported(bench, epoch, **more):
    return pb.PbHeartbeatReqForTable(table_id=1, coordinator_epoch=bench.epoch, tiering_epoch=epoch, **more)


def test_a_round_from_due_to_done(bench):
    bench.add(1)
    found = metrics(bench)
    assert found[f"{TABLE}freshness"] == FRESHNESS_MS
    assert f"{TABLE}tierDuration" not in found
    assert f"{TABLE}fileSize" not in found
    assert (found[f"{TABLE}pendingTime"], found[f"{TABLE}failuresTotal"]) == (0, 0)
    assert found["coordinator_lakeTiering_pendingTablesCount"] == 0
    bench.clock.advance(FRESHNESS_MS)
    assert metrics(bench)["coordinator_lakeTiering_pendingTablesCount"] == 1
    bench.clock.advance(700)
    assert metrics(bench)[f"{TABLE}pendingTime"] == 700
    epoch = beat(bench, request_table=True).tiering_table.tiering_epoch
    found = metrics(bench)
    assert found[f"{TABLE}pendingTime"] == 0
    assert found["coordinator_lakeTiering_runningTablesCount"] == 1
    bench.clock.advance(1_500)
    stats = pb.PbLakeTieringStats(file_size=4_096, record_count=17)
    beat(bench, finished_tables=[reported(bench, epoch, lake_tiering_stats=stats)])
    bench.clock.advance(250)
    found = metrics(bench)
    assert found[f"{TABLE}tierDuration"] == 1_500
    assert (found[f"{TABLE}fileSize"], found[f"{TABLE}recordCount"]) == (4_096, 17)
    assert (found[f"{TABLE}tierLag"], found[f"{TABLE}tieredTimestamp"]) == (250, bench.clock.now_ms() - 250)
    assert found["coordinator_lakeTiering_runningTablesCount"] == 0


def test_failures_add_up_though_a_round_that_ends_well_forgets_them(bench):
    bench.add(1)
    for expected in (1, 2):
        grant = bench.tiering.request(1, None)
        beat(bench, failed_tables=[reported(bench, grant.epoch, error_message="no room")])
        found = metrics(bench)
        assert (found[f"{TABLE}failures"], found[f"{TABLE}failuresTotal"]) == (expected, expected)
    grant = bench.tiering.request(1, None)
    beat(bench, finished_tables=[reported(bench, grant.epoch)])
    found = metrics(bench)
    assert (found[f"{TABLE}failures"], found[f"{TABLE}failuresTotal"]) == (0, 2)


def test_a_table_that_goes_takes_its_figures_along(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    beat(bench, failed_tables=[reported(bench, grant.epoch)])
    bench.tiering.remove(1)
    assert f"{TABLE}failuresTotal" not in metrics(bench)
    assert bench.tiering.stats.of(1).failures == 0

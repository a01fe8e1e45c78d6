"""What happens to a table while it is being tiered: dropped, switched off and on, altered; and what the holder hears."""

import pytest

from fluss_lab.errors import ERROR_CODES, ForeignCommitError, UnsupportedError, error_code
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.tiering.table_tiering import BACKOFF_FIRST_MS, BACKOFF_MAX_MS
from tests.unit.server.coordinator.rig import Rig

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "10s"}
ON, OFF = {"table.datalake.enabled": "true"}, {"table.datalake.enabled": "false"}
KEYED = {"schema": {"k": "bigint", "v": "string"}, "primary_key": ["k"]}


def beat(rig: Rig, kind: str, table_id: int, epoch: int, **fields) -> str | None:
    """Send one table's heartbeat; return the error's name, or None."""
    table = pb.PbHeartbeatReqForTable(table_id=table_id, coordinator_epoch=1, tiering_epoch=epoch, **fields)
    request = pb.LakeTieringHeartbeatRequest()
    getattr(request, f"{kind}_tables").append(table)
    answer = getattr(rig.coordinator.lake_tiering_heartbeat(request), f"{kind}_table_resp")[0]
    return ERROR_CODES[answer.error.error_code].__name__ if answer.HasField("error") else None


def commit(rig: Rig, table_id: int, snapshot_id: int, epoch: int, ends) -> str | None:
    code = rig.commit(table_id, snapshot_id, epoch, ends).error_code
    return ERROR_CODES[code].__name__ if code else None


def states(rig: Rig) -> list[pb.PbTieringState]:
    return list(rig.coordinator.describe_cluster(pb.DescribeClusterRequest()).tiering_states)


def hold(rig: Rig, table_id: int) -> pb.PbLakeTieringTableInfo:
    answer = rig.ask(table_id)
    assert not answer.HasField("request_error"), answer.request_error
    return answer.tiering_table


@pytest.mark.parametrize("definition", [{}, KEYED], ids=["log", "primary key"])
def test_dropped_during_its_round(brief_rig, definition):
    table_id = brief_rig.create(properties=LAKE, **definition)
    epoch = hold(brief_rig, table_id).tiering_epoch
    brief_rig.drop()
    for kind in ("tiering", "finished", "failed"):
        assert beat(brief_rig, kind, table_id, epoch) == "TableNotFoundError"
    assert commit(brief_rig, table_id, 1, epoch, {0: 1}) == "TableNotFoundError"
    assert states(brief_rig) == []
    again = brief_rig.create(properties=LAKE, **definition)
    assert commit(brief_rig, table_id, 1, epoch, {0: 1}) == "TableNotFoundError"
    assert (hold(brief_rig, again).tiering_epoch, again != table_id) == (1, True)


@pytest.mark.parametrize("definition", [{}, KEYED], ids=["log", "primary key"])
def test_switched_off_and_on_during_its_round(lake_rig, definition):
    table_id = lake_rig.create(properties=LAKE, **definition)
    first = hold(lake_rig, table_id)
    lake_rig.alter(set=OFF)
    for kind in ("tiering", "finished", "failed"):
        assert beat(lake_rig, kind, table_id, first.tiering_epoch) == "LakeNotConfiguredError"
    assert commit(lake_rig, table_id, 1, first.tiering_epoch, {0: 1}) == "LakeNotConfiguredError"
    lake_rig.alter(set=ON)
    # Who slept through both must not go on.
    assert beat(lake_rig, "tiering", table_id, first.tiering_epoch) == "FencedTieringEpochError"
    assert commit(lake_rig, table_id, 1, first.tiering_epoch, {0: 1}) == "FencedTieringEpochError"
    second = hold(lake_rig, table_id)
    assert (second.tiering_epoch, second.takeover) == (first.tiering_epoch + 1, True)
    assert commit(lake_rig, table_id, 1, second.tiering_epoch, {0: 1}) is None


@pytest.mark.parametrize("definition", [{}, KEYED], ids=["log", "primary key"])
def test_columns_and_freshness_change_during_its_round(lake_rig, definition):
    table_id = lake_rig.create(properties=LAKE, **definition)
    epoch = hold(lake_rig, table_id).tiering_epoch
    lake_rig.alter(add={"note": "string"}, set={"table.datalake.freshness": "1s"})
    assert beat(lake_rig, "tiering", table_id, epoch) is None
    assert commit(lake_rig, table_id, 1, epoch, {0: 1}) is None
    assert beat(lake_rig, "finished", table_id, epoch) is None
    assert states(lake_rig)[0].due_time == lake_rig.clock.now_ms() + 1_000
    lake_rig.clock.advance(1_000)
    assert lake_rig.ask().tiering_table.tiering_epoch == epoch + 1


def test_what_a_person_must_mend_is_tried_seldom_until_the_table_is_altered(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    epoch = hold(lake_rig, table_id).tiering_epoch
    foreign = error_code(ForeignCommitError("somebody"))
    assert beat(lake_rig, "failed", table_id, epoch, error_message="somebody", error_code=foreign) is None
    state = states(lake_rig)[0]
    assert (state.state, state.last_error, state.due_time - lake_rig.clock.now_ms()) == (
        "Pending", "somebody", BACKOFF_MAX_MS,
    )  # fmt: skip
    lake_rig.clock.advance(BACKOFF_MAX_MS - 1)
    assert not lake_rig.ask().HasField("tiering_table")
    lake_rig.alter(set={"custom.mended": "yes"})
    epoch = lake_rig.ask().tiering_table.tiering_epoch
    assert not states(lake_rig)[0].HasField("due_time")
    assert beat(lake_rig, "failed", table_id, epoch, error_message="hiccup") is None
    assert states(lake_rig)[0].due_time - lake_rig.clock.now_ms() == 2 * BACKOFF_FIRST_MS


def test_a_primary_key_table_comes_and_goes_with_its_lake_table(lake_rig):
    table_id = lake_rig.create(properties=LAKE, buckets=2, **KEYED)
    assert [each.state for each in states(lake_rig)] == ["Scheduled"]
    with pytest.raises(UnsupportedError, match=r"write\.merge\.mode"):
        lake_rig.alter(set={"iceberg.write.merge.mode": "copy-on-write"})
    with pytest.raises(UnsupportedError, match="may not change"):
        lake_rig.alter(set={"table.datalake.delete-mode": "equality"})
    lake_rig.alter(set={"table.datalake.changelog-retention": "1h"}, add={"more": "int"})
    lake_rig.cluster.restart()
    assert [(each.table_id, each.state) for each in states(lake_rig)] == [(table_id, "Scheduled")]
    lake_rig.drop()
    assert states(lake_rig) == []


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"schema": {"a": "bigint", "b": "bigint"}, "primary_key": ["a", "b"]}, "multi-argument"),
        ({"schema": {"a": "double", "v": "int"}, "primary_key": ["a"]}, "multi-argument|FLOAT and DOUBLE"),
        ({"schema": {"a": "bigint", "x": "float"}, "primary_key": ["a", "x"], "bucket_key": ["a"]}, "FLOAT and DOUBLE"),
        ({"schema": {"a": "boolean", "v": "int"}, "primary_key": ["a"]}, "a single one that Iceberg can bucket by"),
        ({"schema": {"a": "bigint", "t": "timestamp(9)"}, "primary_key": ["a"]}, "microseconds"),
        ({"schema": {"a": "bigint"}, "primary_key": ["a"],
          "properties": {"iceberg.write.delete.mode": "copy-on-write"}}, r"write\.delete\.mode"),
    ],
)  # fmt: skip
def test_what_the_lake_cannot_hold_is_refused_before_anything_is_done(lake_rig, definition, text):
    lake_rig.create(**definition)
    before = lake_rig.info().SerializeToString()
    with pytest.raises(UnsupportedError, match=text):
        lake_rig.alter(set=ON)
    assert lake_rig.info().SerializeToString() == before
    assert states(lake_rig) == []
    assert lake_rig.cluster.node._coordinator.ledger.tables() == []

"""The server killed between the steps of a change: what was done is done, what was not can be done again."""

import json

import pytest

from fluss_lab.errors import LakeSnapshotNotFoundError, ServerUnavailableError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.testing import EmbeddedCluster, ServerProcess

PATH = pb.PbTablePath(database_name="d", table_name="t")
LAKE = {"table.datalake.enabled": True}


def gateway(server: ServerProcess) -> Channel:
    return Channel(server.address.host, server.address.port, server.address.token)


def create(channel: Channel, **columns: str) -> None:
    value = make_descriptor(columns, buckets=2, properties=LAKE).to_json()
    request = pb.CreateTableRequest(table_path=PATH, table_json=json.dumps(value).encode(), ignore_if_exists=False)
    channel.coordinator().create_table(request)


def killed_in(server: ServerProcess, action) -> None:
    """Run an action during which the server kills itself, and start it again without failpoints."""
    channel = gateway(server)
    with pytest.raises(ServerUnavailableError):
        action(channel)
    channel.close()
    server.wait_until_gone()
    server.env.clear()
    server.start()


def armed(folder, point: str) -> ServerProcess:
    server = ServerProcess(folder, env={"FLUSS_LAB_FAILPOINTS": f"{point}=kill"})
    server.start()
    server.connection.admin().create_database("d")
    return server


def is_usable(server: ServerProcess) -> bool:
    """Append a row and read its offset back."""
    with server.connection.append_writer("d.t") as writer:
        writer.append([{"x": 1}])
    described = server.connection.admin().buckets(server.connection.table_info(TablePath("d", "t")))
    return sum(each.require().end_offset for each in described) == 1


@pytest.mark.parametrize("point", ["coordinator.ddl.after_lake", "coordinator.ddl.after_commit"])
def test_killed_while_a_lake_enabled_table_is_created(tmp_path, point):
    server = armed(tmp_path / "my lab", point)
    try:
        killed_in(server, lambda channel: create(channel, x="bigint"))
        if point.endswith("after_lake"):
            assert server.connection.admin().tables("d") == []
            # Another layout: nothing of the first may be in the way.
            channel = gateway(server)
            create(channel, x="bigint", y="string")
            channel.close()
        assert server.connection.admin().tables("d") == ["t"]
        assert is_usable(server)
    finally:
        server.close()


def test_killed_while_a_table_is_dropped(tmp_path):
    with EmbeddedCluster(tmp_path / "my lab") as before:
        before.connection.admin().create_database("d")
        descriptor = make_descriptor({"x": "bigint", "y": "string"}, buckets=2, properties=LAKE)
        before.connection.admin().create_table(TablePath("d", "t"), descriptor)
    server = ServerProcess(tmp_path / "my lab", env={"FLUSS_LAB_FAILPOINTS": "coordinator.ddl.after_commit=kill"})
    server.start()
    try:
        request = pb.DropTableRequest(table_path=PATH, ignore_if_not_exists=False)
        killed_in(server, lambda channel: channel.coordinator().drop_table(request))
        assert server.connection.admin().tables("d") == []
        assert not list((server.folder / "tablet").rglob("t1"))
        channel = gateway(server)
        create(channel, x="bigint")
        channel.close()
        assert is_usable(server)
    finally:
        server.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_a_lake_snapshot_is_committed(tmp_path, moment):
    server = armed(tmp_path / "my lab", f"coordinator.lake_commit.{moment}")
    try:
        channel = gateway(server)
        create(channel, x="bigint")
        ask = pb.LakeTieringHeartbeatRequest(request_table=True, request_table_id=1)
        first = channel.coordinator().lake_tiering_heartbeat(ask)
        channel.close()
        table = pb.PbLakeTableSnapshotInfo(
            table_id=1, snapshot_id=77, tiering_epoch=first.tiering_table.tiering_epoch,
            coordinator_epoch=first.coordinator_epoch,
            buckets_req=[pb.PbLakeTableOffsetForBucket(bucket_id=0, log_start_offset=0, log_end_offset=9)],
        )  # fmt: skip
        commit = pb.CommitLakeTableSnapshotRequest(tables_req=[table])
        killed_in(server, lambda channel: channel.coordinator().commit_lake_table_snapshot(commit))
        channel = gateway(server)
        wanted = pb.GetLakeSnapshotRequest(table_path=PATH)
        if moment == "after":
            assert channel.coordinator().get_lake_snapshot(wanted).snapshotId == 77
        else:
            with pytest.raises(LakeSnapshotNotFoundError):
                channel.coordinator().get_lake_snapshot(wanted)
        # The round that was cut off may not go on; the next one knows that it has to fence it.
        stale = channel.coordinator().commit_lake_table_snapshot(commit).table_resp[0]
        assert stale.error_code == 50
        second = channel.coordinator().lake_tiering_heartbeat(ask).tiering_table
        assert second.takeover
        assert second.tiering_epoch > first.tiering_table.tiering_epoch
        channel.close()
    finally:
        server.close()

"""One server on a folder: what it takes, what it leaves, what it refuses."""

import fcntl
import json
import os
import socket
import sqlite3
import stat
import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import InvalidPropertyError, LabError, LabLockedError, LabMovedError, UnsupportedError
from fluss_lab.model import make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.server.process import discovery
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.testing import EmbeddedCluster


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_and_what_tells_the_way_are_the_owners_alone(tmp_path):
    folder = tmp_path / "lab"
    with ServerNode(folder) as node:
        assert mode(folder) == 0o700
        assert mode(folder / "server.json") == 0o600
        assert mode(folder / "token") == 0o600
        value = json.loads((folder / "server.json").read_text())
        (entry,) = value["servers"]
        assert (value["version"], value["ephemeral"]) == (1, False)
        assert (entry["pid"], entry["host"], entry["port"]) == (os.getpid(), *node.address)
        assert (entry["roles"], entry["server_id"]) == (["coordinator", "tablet"], 0)
        assert (folder / "token").read_text() == node.secret
    assert not (folder / "server.json").exists()


def test_a_second_server_on_the_same_folder_is_refused_and_the_first_lives_on(tmp_path):
    with ServerNode(tmp_path / "lab") as node:
        with pytest.raises(LabLockedError, match=f"process {os.getpid()}.*fluss-lab down"):
            ServerNode(tmp_path / "lab").start()
        channel = Channel(*node.address, node.secret)
        channel.coordinator().list_databases(pb.ListDatabasesRequest())
        channel.close()
    with ServerNode(tmp_path / "lab"):
        pass


def test_a_folder_whose_last_server_is_still_stopping_is_waited_for(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir(mode=0o700)
    outcome: list[object] = []

    def start() -> None:
        try:
            with ServerNode(folder) as node:
                outcome.append(node.address)
        except LabLockedError as error:
            outcome.append(error)

    with (folder / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starter = threading.Thread(target=start)
        starter.start()
        starter.join(0.2)
        assert outcome == []
    starter.join(60)
    assert isinstance(outcome[0], tuple), outcome


def test_the_token_stays_over_restarts(tmp_path):
    secrets = []
    for _ in range(2):
        with ServerNode(tmp_path / "lab") as node:
            secrets.append(node.secret)
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) >= 32


def test_each_start_has_the_next_coordinator_epoch(tmp_path):
    epochs = []
    for _ in range(3):
        with ServerNode(tmp_path / "lab") as node:
            channel = Channel(*node.address, node.secret)
            epochs.append(channel.coordinator().describe_cluster(pb.DescribeClusterRequest()).coordinator_epoch)
            channel.close()
    assert epochs == [1, 2, 3]


def test_the_port_of_a_killed_run_is_taken_again_unless_somebody_else_has_it(tmp_path):
    folder = tmp_path / "lab"
    with ServerNode(folder) as node:
        left = (folder / "server.json").read_text()
        port = node.address[1]
    (folder / "server.json").write_text(left)
    with ServerNode(folder) as node:
        assert node.address[1] == port
    (folder / "server.json").write_text(left)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with ServerNode(folder) as node:
            assert node.address[1] != port


def test_a_start_that_fails_lets_go_of_everything(tmp_path):
    folder = tmp_path / "lab"
    failpoints.arm("node.start.before_discovery", "error@1")
    with pytest.raises(failpoints.FailpointError):
        ServerNode(folder).start()
    assert not (folder / "server.json").exists()
    with ServerNode(folder):
        pass


def test_metadata_of_a_newer_version_are_refused_and_the_lock_is_let_go(tmp_path):
    folder = tmp_path / "lab"
    with ServerNode(folder):
        pass
    with sqlite3.connect(folder / "metadata.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    for _ in range(2):
        with pytest.raises(LabError, match="newer version of fluss_lab"):
            ServerNode(folder).start()


@pytest.mark.parametrize("options", [{"log.segment.fil-size": "1mb"}, {"log.durability": "maybe"}])
def test_options_are_checked_before_anything_is_touched(tmp_path, options):
    with pytest.raises(InvalidPropertyError, match=next(iter(options))):
        ServerNode(tmp_path / "lab", options=options)
    assert not (tmp_path / "lab").exists()


def test_lake_options_are_free_and_reported_to_clients(tmp_path):
    with ServerNode(
        tmp_path / "lab", options={"datalake.format": "iceberg", "datalake.iceberg.s3.endpoint": "x"}
    ) as node:
        channel = Channel(*node.address, node.secret)
        reported = channel.coordinator().describe_cluster(pb.DescribeClusterRequest()).options
        channel.close()
    assert {entry.key: entry.value for entry in reported} == {
        "datalake.format": "iceberg",
        "datalake.iceberg.s3.endpoint": "x",
        "remote.data.dir": str(tmp_path / "lab" / "remote"),
    }


def test_a_moved_lab_with_lake_tables_is_refused_naming_both_places(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new place"
    with EmbeddedCluster(old) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("d")
        from fluss_lab.model import TablePath

        admin.create_table(
            TablePath("d", "t"), make_descriptor({"a": "int"}, properties={"table.datalake.enabled": True})
        )
    old.rename(new)
    with pytest.raises(LabMovedError, match=f"from {old} to {new}"):
        ServerNode(new).start()
    # Back by a link, it is the same place under two names.
    old.symlink_to(new)
    with ServerNode(new), pytest.raises(LabLockedError):
        ServerNode(old).start()
    old.unlink()
    new.rename(old)
    with EmbeddedCluster(old) as cluster:
        assert cluster.connection.admin().tables("d") == ["t"]


def test_a_moved_lab_without_lake_tables_just_runs(tmp_path):
    with ServerNode(tmp_path / "old"):
        pass
    (tmp_path / "old").rename(tmp_path / "new")
    with ServerNode(tmp_path / "new"):
        pass


def test_only_loopback_is_listened_on(tmp_path):
    with ServerNode(tmp_path / "lab") as node:
        assert node.address[0] == "127.0.0.1"
        with socket.socket() as outside:
            outside.settimeout(0.5)
            # Another loopback address reaches servers on all interfaces, and this one not.
            assert outside.connect_ex(("127.0.0.2", node.address[1])) != 0


def test_a_call_to_stop_ends_the_wait(tmp_path):
    node = ServerNode(tmp_path / "lab")
    node.start()
    assert not node.wait(0)
    channel = Channel(*node.address, node.secret)
    channel.coordinator().stop_cluster(pb.StopClusterRequest())
    channel.close()
    assert node.wait(60)
    node.stop()
    node.stop()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1, "ephemeral": true, "servers": []}'])
def test_a_discovery_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    with pytest.raises(LabError, match="expected a discovery file"):
        discovery.read(tmp_path)


def test_a_discovery_file_of_another_version_is_refused(tmp_path):
    (tmp_path / "server.json").write_text('{"version": 2, "ephemeral": true, "servers": []}')
    with pytest.raises(UnsupportedError, match=r"written by a newer version of fluss_lab .format 2"):
        discovery.read(tmp_path)

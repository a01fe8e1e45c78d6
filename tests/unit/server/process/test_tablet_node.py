"""Several tablet servers, each with a port of its own, in this process: who holds what, who hears what, who is let in."""

import socket
import threading
import time
from collections import Counter

import grpc
import numpy as np
import pytest

from fluss_lab.client import read_range
from fluss_lab.errors import ConflictError, LabError, NotLeaderError
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.rpc_methods import TABLET_SERVER, methods_of
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing import EmbeddedCluster, wait_until

pytestmark = pytest.mark.slow

PATH = TablePath("d", "t")
CLIENT = {"client.request-timeout": "60s", "client.scanner.log.fetch.wait-max-time": "100ms"}
PATIENCE_S = 60.0


def start(folder, servers: int | None = 2, **options: str) -> EmbeddedCluster:
    cluster = EmbeddedCluster(folder / "lab", options, lake=False, tablet_servers=servers, client=CLIENT)
    cluster.start()
    cluster.connection.admin().create_database("d", if_not_exists=True)
    return cluster


@pytest.fixture
def cluster(tmp_path):
    made = start(tmp_path)
    yield made
    made.close()


def make(cluster: EmbeddedCluster, name: str = "t", **definition):
    definition.setdefault("buckets", 4)
    return cluster.connection.admin().create_table(
        TablePath("d", name), make_descriptor({"id": "bigint"}, **definition)
    )


def leaders(cluster: EmbeddedCluster, info) -> list[int]:
    return [status.leader for status in cluster.connection.admin().buckets(info)]


def notified_leaders(cluster: EmbeddedCluster, name: str = "t") -> list[int | None]:
    request = pb.MetadataRequest(table_path=[pb.PbTablePath(database_name="d", table_name=name)])
    answer = cluster.connection.coordinator().metadata(request)
    entries = answer.table_metadata[0].bucket_metadata
    return [entry.leader_id if entry.HasField("leader_id") else None for entry in entries]


def write(cluster: EmbeddedCluster, info, count: int = 100) -> None:
    with cluster.connection.append_writer(info.path) as writer:
        for bucket in range(info.descriptor.buckets):
            writer.append({"id": np.arange(count) + bucket * count})


def read(cluster: EmbeddedCluster, info) -> list[int]:
    found: list[int] = []
    for bucket, end in cluster.connection.admin().list_offsets(info, OffsetSpec.latest()).items():
        for run in read_range(cluster.connection, info, TableBucket(info.table_id, None, bucket), 0, end.offset):
            found += run.rows.column("id").to_pylist()
    return sorted(found)


# -- who holds what ----------------------------------------------------------------------------------------------------


def test_buckets_are_spread_kept_over_restarts_and_each_server_has_its_own_folder_and_port(cluster):
    info, more = make(cluster), make(cluster, "u", buckets=1)
    assert leaders(cluster, info) == [0, 1, 0, 1]
    write(cluster, info)
    nodes = cluster.connection.coordinator().metadata(pb.MetadataRequest()).tablet_servers
    ports = {node.node_id: node.port for node in nodes}
    assert set(ports) == {0, 1}
    assert len({*ports.values(), cluster.node.address[1]}) == 3
    for folder, buckets in (("tablet", {"b0", "b2"}), ("tablet-1", {"b1", "b3"})):
        held = {path.name for path in (cluster.folder / folder / "data" / f"t{info.table_id}").glob("b*")}
        assert held == buckets
    cluster.restart()
    assert leaders(cluster, info) == [0, 1, 0, 1]
    assert leaders(cluster, more) == [0]
    assert read(cluster, info) == list(range(400))


def test_fewer_servers_than_hold_buckets_are_refused_and_nothing_is_lost(cluster):
    info = make(cluster)
    write(cluster, info)
    cluster.stop()
    cluster.options["server.tablet-servers"] = 1
    with pytest.raises(LabError, match="start with 2 or more"):
        cluster.start()
    # Without a word about it there are as many as there were.
    del cluster.options["server.tablet-servers"]
    cluster.start()
    assert read(cluster, info) == list(range(400))


def test_more_servers_later_are_used_by_new_tables(cluster):
    info = make(cluster)
    write(cluster, info)
    cluster.restart({"server.tablet-servers": 3})
    assert leaders(cluster, info) == [0, 1, 0, 1]
    assert leaders(cluster, make(cluster, "new", buckets=4)) == [2, 0, 1, 2]
    assert read(cluster, info) == list(range(400))


def test_a_cluster_of_one_grows_without_moving_anything(tmp_path):
    cluster = start(tmp_path, None)
    info = make(cluster)
    write(cluster, info)
    cluster.restart({"server.tablet-servers": 2})
    assert leaders(cluster, info) == [0, 0, 0, 0]
    assert read(cluster, info) == list(range(400))
    cluster.restart({})
    assert leaders(cluster, make(cluster, "new", buckets=2)) == [1, 0]
    cluster.close()


# -- away and back -----------------------------------------------------------------------------------------------------


def test_buckets_of_a_server_that_is_away_have_no_leader_and_are_reported_as_such(cluster):
    info = make(cluster)
    write(cluster, info)
    cluster.stop_tablet(1)
    assert notified_leaders(cluster) == [0, None, 0, None]
    reported = cluster.connection.admin().buckets(info, patient=False)
    assert [(status.leader, status.error is None) for status in reported] == [
        (0, True), (-1, False), (0, True), (-1, False),
    ]  # fmt: skip
    assert [status.require().end_offset for status in reported[::2]] == [100, 100]
    with pytest.raises(NotLeaderError, match="is away"):
        reported[1].require()
    described = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    assert [status.state for status in described.tablet_server_status] == ["running", "away"]
    with pytest.raises(NotLeaderError, match="is away"):
        cluster.connection.leaders([TableBucket(info.table_id, None, 1)])
    cluster.start_tablet(1)
    assert notified_leaders(cluster) == [0, 1, 0, 1]
    assert read(cluster, info) == list(range(400))


def test_what_changes_while_a_server_is_away_reaches_it_when_it_is_back(cluster):
    admin = cluster.connection.admin()
    kept, dropped = make(cluster, "kept"), make(cluster, "dropped")
    cluster.stop_tablet(1)
    admin.alter_table(kept.path, set={"table.log.ttl": "3d"})
    admin.drop_table(dropped.path)
    made = make(cluster, "made")
    assert notified_leaders(cluster, "made") == [0, None, 0, None]
    data = cluster.folder / "tablet-1" / "data"
    assert (data / f"t{dropped.table_id}").exists()
    cluster.start_tablet(1)
    assert leaders(cluster, made) == [0, 1, 0, 1]
    write(cluster, made)
    assert read(cluster, made) == list(range(400))
    wait_until(lambda: not (data / f"t{dropped.table_id}").exists(), PATIENCE_S)
    tablet = cluster.node.tablets.nodes[1].tablet
    assert tablet._store.table(kept.table_id).log_ttl_ms == 3 * 24 * 3600 * 1000


def test_what_changes_while_a_server_opens_its_buckets_reaches_it_after_that(cluster, monkeypatch):
    """It is not shown to clients until it has opened all it was told of; what came between is told then."""
    info = make(cluster)
    cluster.stop_tablet(1)
    asked, goes_on = threading.Event(), threading.Event()
    open_buckets = TabletService.open_buckets

    def slowly(self, *arguments):
        answers = open_buckets(self, *arguments)
        if not asked.is_set():
            asked.set()
            assert goes_on.wait(PATIENCE_S)
        return answers

    monkeypatch.setattr(TabletService, "open_buckets", slowly)
    starting = threading.Thread(target=cluster.start_tablet, args=(1,))
    starting.start()
    assert asked.wait(PATIENCE_S)
    cluster.connection.admin().alter_table(info.path, set={"table.log.ttl": "3d"})
    made = make(cluster, "made")
    assert notified_leaders(cluster, "made") == notified_leaders(cluster) == [0, None, 0, None]
    goes_on.set()
    starting.join(PATIENCE_S)
    assert leaders(cluster, made) == [0, 1, 0, 1]
    tablet = cluster.node.tablets.nodes[1].tablet
    wait_until(lambda: tablet._store.table(info.table_id).log_ttl_ms == 3 * 24 * 3600 * 1000, PATIENCE_S)


def test_a_server_that_the_coordinator_lost_by_mistake_registers_again(cluster):
    info = make(cluster)
    write(cluster, info)
    cluster.node._coordinator.tablet_server_lost(1)
    assert notified_leaders(cluster) == [0, None, 0, None]
    wait_until(lambda: notified_leaders(cluster) == [0, 1, 0, 1], PATIENCE_S)
    assert read(cluster, info) == list(range(400))


def test_what_an_earlier_coordinator_reported_does_not_count(cluster):
    coordinator = cluster.node._coordinator
    request = pb.RegisterTabletServerRequest(server_id=1, host="127.0.0.1", port=1, opened_epoch=coordinator.epoch - 1)
    with pytest.raises(ConflictError, match="register again"):
        coordinator.register_tablet_server(request)
    # Nor does the word of one that never asked.
    request.opened_epoch = coordinator.epoch
    with pytest.raises(ConflictError, match="register again"):
        coordinator.register_tablet_server(request)
    assert {node.node_id: node.port for node in coordinator.metadata(pb.MetadataRequest()).tablet_servers}[1] != 1


# -- clients -----------------------------------------------------------------------------------------------------------


def test_clients_find_a_server_that_has_moved(cluster):
    info = make(cluster)
    writer = cluster.connection.append_writer(PATH)
    with cluster.connection.log_scanner(PATH) as scanner, socket.socket() as taken:
        scanner.subscribe_all(OffsetSpec.earliest())
        for _ in range(4):
            writer.append([{"id": 1}])
        writer.flush()
        count = 0
        while count < 4:
            count += scanner.poll(1.0).count
        old = cluster.node.tablets.nodes[1].address
        cluster.stop_tablet(1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(old)
        taken.listen()
        cluster.start_tablet(1)
        assert cluster.node.tablets.nodes[1].address != old
        for _ in range(4):
            writer.append([{"id": 2}])
        writer.close()
        while count < 8:
            count += scanner.poll(1.0).count
        assert sum(each.end_offset for each in cluster.connection.admin().buckets(info)) == 8


def test_a_server_that_is_away_stalls_neither_writers_nor_readers_of_the_others(cluster):
    make(cluster, buckets=2, bucket_key=["id"])
    with cluster.connection.append_writer(PATH) as writer, cluster.connection.log_scanner(PATH) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        results = {key: writer.append([{"id": key}]).result(PATIENCE_S) for key in range(20)}
        bucket_of = {key: next(iter(result.offsets))[1] for key, result in results.items()}
        here = [key for key, bucket in bucket_of.items() if bucket == 0]
        there = [key for key, bucket in bucket_of.items() if bucket == 1]
        assert here
        assert there
        seen = 0
        while seen < 20:
            seen += scanner.poll(1.0).count
        cluster.stop_tablet(1)
        waiting = [writer.append([{"id": key}]) for key in there]
        for _ in range(5):
            for future in [writer.append([{"id": key}]) for key in here]:
                future.result(PATIENCE_S)
        while seen < 20 + 5 * len(here):
            seen += scanner.poll(1.0).count
        # Nor those that come now, and have to find the servers first.
        with cluster.connection.log_scanner(PATH) as second, cluster.connection.append_writer(PATH) as other:
            for bucket in (0, 1):
                second.subscribe(bucket, 0)
            waiting += [other.append([{"id": there[0]}])]
            for key in here:
                other.append([{"id": key}]).result(PATIENCE_S)
            found = 0
            deadline = time.monotonic() + PATIENCE_S
            while found < 7 * len(here):
                assert time.monotonic() < deadline
                found += second.poll(1.0).count
            assert not any(future.done() for future in waiting)
            cluster.start_tablet(1)
        for future in waiting:
            future.result(PATIENCE_S)
        while seen < 20 + 6 * len(here) + len(there) + 1:
            seen += scanner.poll(1.0).count


def test_a_server_is_asked_for_all_its_buckets_in_two_calls_at_most(tmp_path, monkeypatch):
    """However many buckets it has: one call waits for records, one serves what has just come back."""
    lock, under_way, most = threading.Lock(), Counter(), Counter()
    fetch_log = TabletService.fetch_log

    def counted(self, request):
        with lock:
            under_way[self] += 1
            most[self] = max(most[self], under_way[self])
        try:
            return fetch_log(self, request)
        finally:
            with lock:
                under_way[self] -= 1

    monkeypatch.setattr(TabletService, "fetch_log", counted)
    cluster = start(tmp_path)
    info = make(cluster, buckets=32)
    with cluster.connection.log_scanner(PATH) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        seen = 0
        for _ in range(3):
            write(cluster, info, 3)
            seen += 96
            while seen > 0:
                seen -= scanner.poll(1.0).count
    cluster.close()
    assert len(most) == 2
    assert max(most.values()) <= 2


# -- doors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", methods_of(TABLET_SERVER).values(), ids=methods_of(TABLET_SERVER))
def test_no_method_of_a_tablet_server_is_answered_without_the_token(door, method):
    host, port, right = door
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        for token, expected in (
            (None, grpc.StatusCode.UNAUTHENTICATED),
            ("wrong", grpc.StatusCode.UNAUTHENTICATED),
            (right, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            metadata = [] if token is None else [("authorization", f"Bearer {token}")]
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method.path)(b"\xff\xff", metadata=metadata, timeout=60)
            assert caught.value.code() is expected


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    cluster = start(tmp_path_factory.mktemp("doors"))
    node = cluster.connection.coordinator().metadata(pb.MetadataRequest()).tablet_servers[1]
    yield node.host, node.port, cluster.address.token
    cluster.close()


def test_a_tablet_server_answers_no_calls_for_the_coordinator_and_the_other_way_round(door):
    host, port, token = door
    channel = Channel(host, port, token)
    with pytest.raises(Exception, match="UNIMPLEMENTED"):
        channel.coordinator().list_databases(pb.ListDatabasesRequest())
    channel.close()

"""Names, sizes and definitions that an enemy would choose: refused with the reason, by the server itself."""

import json

import pytest

from fluss_lab.errors import FlussError, InvalidError
from fluss_lab.model import make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.testing import EmbeddedCluster

TYPES = {"id": "bigint not null", "name": "string"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("hostile") / "lab", lake=False) as made:
        made.connection.admin().create_database("db")
        yield made


@pytest.fixture
def coordinator(cluster):
    channel = Channel(*cluster.node.address, cluster.address.token)
    yield channel.coordinator()
    channel.close()


HOSTILE = [
    "", ".", "..", "../x", "a/b", "a\\b", "a.b", "a b", "a\0b", "a\nb", "x" * 201, "x" * 100_000, "ä", "名", "'",
    '"; DROP TABLE tables; --', "%00", "\u202e", "-" * 300,
]  # fmt: skip


def create(coordinator, name, definition):
    path = pb.PbTablePath(database_name="db", table_name=name)
    text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    coordinator.create_table(pb.CreateTableRequest(table_path=path, table_json=text, ignore_if_exists=False))


@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(name)[:30] for name in HOSTILE])
def test_hostile_names_of_everything_are_refused(coordinator, name):
    good = make_descriptor(TYPES).to_json()
    with pytest.raises(InvalidError):
        coordinator.create_database(pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=False))
    with pytest.raises(InvalidError):
        create(coordinator, name, good)
    column = json.loads(json.dumps(good))
    column["schema"]["columns"][1]["name"] = name
    with pytest.raises(InvalidError):
        create(coordinator, "columns", column)
    assert list(coordinator.list_tables(pb.ListTablesRequest(database_name="db")).table_name) == []
    assert list(coordinator.list_databases(pb.ListDatabasesRequest()).database_name) == ["db"]


def _nested(depth):
    text = '{"type":"INTEGER"}'
    for _ in range(depth):
        text = '{"type":"ARRAY","element_type":' + text + "}"
    return text


@pytest.mark.parametrize(
    "change",
    [
        {"bucket_count": 2**31}, {"bucket_count": -1}, {"bucket_count": 0}, {"bucket_count": 10**6},
        {"bucket_key": [["id"]]}, {"bucket_key": [{}]},
        {"partition_key": [[]]}, {"comment": "x" * 10**6}, {"properties": {"custom.x": "y" * 10**6}},
        {"properties": {f"custom.{n}": "y" * 4_000 for n in range(1_000)}}, {"properties": []}, {"schema": None},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_definitions_that_cannot_be_are_refused(coordinator, change):
    value = {**make_descriptor(TYPES).to_json(), **change}
    with pytest.raises(InvalidError):
        create(coordinator, "bad", value)


def test_many_columns_and_deep_types_are_refused(coordinator):
    value = make_descriptor(TYPES).to_json()
    column = value["schema"]["columns"][1]
    many = [{**column, "name": f"c{number}", "id": number + 1} for number in range(5_000)]
    with pytest.raises(InvalidError):
        create(coordinator, "bad", {**value, "schema": {**value["schema"], "columns": many}})
    for depth in (30, 900, 20_000):
        text = json.dumps(value).replace('{"type": "STRING"}', _nested(depth)).encode()
        with pytest.raises(InvalidError):
            create(coordinator, "bad", text)
    for text in (b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000):
        with pytest.raises(InvalidError):
            create(coordinator, "bad", text)


@pytest.mark.parametrize("server_id", [-1, 1, 2**31 - 1])
def test_a_tablet_server_that_the_cluster_does_not_have_cannot_register(cluster, coordinator, server_id):
    request = pb.RegisterTabletServerRequest(server_id=server_id, host="127.0.0.1", port=1)
    with pytest.raises(FlussError, match=r"expected one in \[0, 1\)"):
        coordinator.register_tablet_server(request)
    nodes = coordinator.metadata(pb.MetadataRequest()).tablet_servers
    assert [node.node_id for node in nodes] == [0]

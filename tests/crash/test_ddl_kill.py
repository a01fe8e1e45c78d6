"""The server killed between the steps of a change of a live table; the client that asked for it asks again by itself."""

import threading

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidSchemaError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, ServerProcess
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

PATH = TablePath("d", "t")
MONTHS = ["2013-01", "2013-02"]
#: Longer than a server takes to start on a machine that stalls.
CLIENT = {"client.request-timeout": "3min"}


@pytest.fixture
def server(tmp_path):
    """A server that is not started yet, on a lab that one in this process has filled."""
    with EmbeddedCluster(tmp_path / "my lab") as cluster:
        admin = cluster.connection.admin()
        admin.create_database("d")
        descriptor = make_descriptor(
            {"id": "bigint", "month": "string"}, partitioned_by=["month"], buckets=2,
            properties={"table.datalake.enabled": True, "table.datalake.freshness": "1h"},
        )  # fmt: skip
        admin.create_table(PATH, descriptor)
        append(cluster, range(20))
        tier(cluster)
        append(cluster, range(20, 40))
    made = ServerProcess(tmp_path / "my lab", client=CLIENT)
    yield made
    made.close()


def append(server, ids):
    with server.connection.append_writer(PATH) as writer:
        writer.append([{"id": number, "month": MONTHS[number % 2]} for number in ids]).result()


def tier(server):
    info = server.connection.table_info(PATH)
    storage = server.connection.lake_storage()
    return run_round(server.connection, storage, LocalTieringExecutor(), table_id=info.table_id)


def lake_columns(server) -> list[str]:
    table = server.connection.lake_storage().access.load_table(PATH)
    return [field.name for field in table.schema().fields]


def killed_meanwhile(server, point, action):
    """Run an action whose server kills itself at a failpoint, and is started again while the client still asks."""
    server.env["FLUSS_LAB_FAILPOINTS"] = f"{point}=kill"
    server.start()
    outcome = []

    def run():
        try:
            outcome.append(action())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    server.wait_until_gone()
    server.env.clear()
    server.start()
    thread.join(180)
    assert not thread.is_alive()
    return outcome[0]


@pytest.mark.parametrize("point", ["coordinator.ddl.after_lake", "coordinator.ddl.after_commit"])
def test_killed_while_columns_are_added(server, point):
    answer = killed_meanwhile(
        server, point, lambda: server.connection.admin().alter_table(PATH, add_columns={"note": "string"})
    )
    assert answer.schema.names == ["id", "month", "note"]
    assert lake_columns(server) == ["id", "month", "note", "__bucket", "__offset", "__timestamp"]
    with pytest.raises(InvalidSchemaError, match="twice"):
        server.connection.admin().alter_table(PATH, add_columns={"note": "string"})
    with server.connection.append_writer(PATH) as writer:
        writer.append([{"id": 40, "month": MONTHS[0], "note": "new"}]).result()
    tier(server)
    rows = TableReader(server.connection, PATH).scan().to_arrow().sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == list(range(41))
    assert [row["note"] for row in rows] == [None] * 40 + ["new"]


@pytest.mark.parametrize("point", ["coordinator.ddl.after_commit", "coordinator.ddl.after_lake_partition"])
def test_killed_while_a_partition_goes_from_the_lake(server, point):
    drop = {"month": MONTHS[0]}
    assert (
        killed_meanwhile(server, point, lambda: server.connection.admin().drop_partition(PATH, drop, lake=True)) is None
    )
    # Whoever was first, the repeated call or the coordinator's own care: the name is free.
    append(server, [40])
    tier(server)
    found = TableReader(server.connection, PATH).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted([*range(1, 40, 2), 40])
    stored = server.connection.lake_storage().access.load_table(PATH).scan().to_arrow()
    assert sorted(stored["id"].to_pylist()) == sorted(found["id"].to_pylist())
    assert stored.filter(pa.compute.field("month") == MONTHS[0]).num_rows == 1
